//! Media types, as far as they decide something (sections 11 and 13: packages are ZIP files).

/// Whether a media type is that of a ZIP file, in any of the spellings in use.
#[must_use]
pub fn is_zip(media_type: &str) -> bool {
    let essence = media_type_essence(media_type);
    let is_named = matches!(
        essence.as_str(),
        "application/zip"
            | "application/x-zip"
            | "application/x-zip-compressed"
            | "multipart/x-zip"
    );
    is_named || essence.ends_with("+zip")
}

/// Type and subtype in lower case, without parameters.
#[must_use]
pub fn media_type_essence(media_type: &str) -> String {
    let essence = media_type.split(';').next().unwrap_or_default();
    essence.trim().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zip_media_types_are_recognized() {
        for (text, expected) in [
            ("application/zip", true),
            ("Application/ZIP; charset=binary", true),
            ("application/x-zip-compressed", true),
            ("application/bagit+zip", true),
            ("application/octet-stream", false),
            ("application/gzip", false),
            ("", false),
        ] {
            assert_eq!(is_zip(text), expected, "{text:?}");
        }
    }
}
