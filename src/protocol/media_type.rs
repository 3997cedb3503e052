//! Media types and content codings, as far as they decide something (sections 11 and 13: packages are ZIP files).

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

/// A list of content codings in lower case, shortened to 100 characters; `None` if it states that nothing is coded.
#[must_use]
pub fn content_coding(stated: &str) -> Option<String> {
    let coding = stated.trim().to_ascii_lowercase();
    let coding: String = coding.chars().take(100).collect();
    (!matches!(coding.as_str(), "" | "identity" | "utf-8" | "none")).then_some(coding)
}

/// The names under which archives are published: that of a ZIP file is the first.
const ARCHIVE_SUFFIXES: [&str; 15] = [
    ".zip", ".tar", ".tar.gz", ".tgz", ".tar.xz", ".txz", ".tar.bz2", ".tbz2", ".tar.zst", ".tzst",
    ".7z", ".rar", ".xz", ".zst", ".bz2",
];

/// The suffix of an archive's name; `None` if a path is none of an archive.
#[must_use]
pub fn archive_suffix(path: &str) -> Option<&'static str> {
    let path = path.to_ascii_lowercase();
    let suffixes = ARCHIVE_SUFFIXES.into_iter();
    suffixes
        .filter(|suffix| path.ends_with(suffix))
        .max_by_key(|suffix| suffix.len())
}

/// Whether a media type is that of an archive, ZIP or another one.
#[must_use]
pub fn is_archive(media_type: &str) -> bool {
    let essence = media_type_essence(media_type);
    let subtype = essence.strip_prefix("application/").unwrap_or_default();
    let subtype = subtype.strip_prefix("x-").unwrap_or(subtype);
    is_zip(media_type)
        || matches!(
            subtype,
            "tar"
                | "gtar"
                | "gzip"
                | "xz"
                | "bzip2"
                | "zstd"
                | "7z-compressed"
                | "rar-compressed"
                | "vnd.rar"
                | "compressed-tar"
                | "xz-compressed-tar"
                | "compressed"
                | "archive"
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archives_are_recognized_by_type_or_name() {
        for (text, expected) in [
            ("application/zip", true),
            ("application/x-xz", true),
            ("application/x-tar; a=b", true),
            ("application/gzip", true),
            ("application/octet-stream", false),
            ("text/x-tar", false),
        ] {
            assert_eq!(is_archive(text), expected, "{text:?}");
        }
        for (path, expected) in [
            ("/a/2026.TAR.XZ", Some(".tar.xz")),
            ("/a.zip", Some(".zip")),
            ("/a.xml.gz", None),
            ("/zip", None),
        ] {
            assert_eq!(archive_suffix(path), expected, "{path:?}");
        }
    }

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
