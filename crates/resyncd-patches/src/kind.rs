//! The kinds of patches, by their media types.

/// The format of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchKind {
    /// JSON Patch (RFC 6902).
    Json,
    /// JSON merge patch (RFC 7396).
    Merge,
    /// XML patch operations (RFC 5261, RFC 7351).
    Xml,
}

impl PatchKind {
    /// The kind that a media type names; `None` if it is unknown. Two of the names are those of the specification, which is older
    /// than the registered ones.
    #[must_use]
    pub fn of_media_type(media_type: &str) -> Option<Self> {
        let essence = media_type.split(';').next().unwrap_or_default();
        match essence.trim().to_ascii_lowercase().as_str() {
            "application/json-patch" | "application/json-patch+json" => Some(Self::Json),
            "application/merge-patch+json" => Some(Self::Merge),
            "application/patch-ops-error+xml" | "application/xml-patch+xml" => Some(Self::Xml),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_is_that_of_the_media_type() {
        for (media_type, kind) in [
            ("application/json-patch", Some(PatchKind::Json)),
            (
                "Application/JSON-Patch+JSON; charset=utf-8",
                Some(PatchKind::Json),
            ),
            ("application/merge-patch+json", Some(PatchKind::Merge)),
            ("application/patch-ops-error+xml", Some(PatchKind::Xml)),
            ("application/xml-patch+xml", Some(PatchKind::Xml)),
            ("application/x-tiff-diff", None),
        ] {
            assert_eq!(PatchKind::of_media_type(media_type), kind, "{media_type}");
        }
    }
}
