//! The kinds of patches, by their media types.

use crate::protocol::{Link, media_type_essence};

/// The relation of a patch (core, section 14.4).
const PATCH: &str = "http://www.openarchives.org/rs/terms/patch";

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
        match media_type_essence(media_type).as_str() {
            "application/json-patch" | "application/json-patch+json" => Some(Self::Json),
            "application/merge-patch+json" => Some(Self::Merge),
            "application/patch-ops-error+xml" | "application/xml-patch+xml" => Some(Self::Xml),
            _ => None,
        }
    }

    /// The kind of the patch that a link names; `None`: it names none, or one of an unknown kind.
    #[must_use]
    pub fn of_link(link: &Link) -> Option<Self> {
        let media_type = link.content.media_type.as_deref()?;
        let is_patch = link.rel.eq_ignore_ascii_case(PATCH);
        Self::of_media_type(media_type).filter(|_| is_patch)
    }
}

#[cfg(test)]
mod tests {
    use url::Url;

    use super::*;

    #[test]
    fn kind_is_that_of_the_relation_and_the_media_type() {
        for (rel, media_type, kind) in [
            (PATCH, "application/json-patch", Some(PatchKind::Json)),
            (
                PATCH,
                "Application/JSON-Patch+JSON; charset=utf-8",
                Some(PatchKind::Json),
            ),
            (
                PATCH,
                "application/merge-patch+json",
                Some(PatchKind::Merge),
            ),
            (
                PATCH,
                "application/patch-ops-error+xml",
                Some(PatchKind::Xml),
            ),
            (PATCH, "application/xml-patch+xml", Some(PatchKind::Xml)),
            (PATCH, "application/x-tiff-diff", None),
            ("patch", "application/json-patch", None),
        ] {
            let mut link = Link::new(rel, Url::parse("http://example.com/p").unwrap());
            assert_eq!(PatchKind::of_link(&link), None);
            link.content.media_type = Some(media_type.to_owned());
            assert_eq!(PatchKind::of_link(&link), kind, "{rel} {media_type}");
        }
    }
}
