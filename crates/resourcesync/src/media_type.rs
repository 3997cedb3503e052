//! Media types and content codings, as far as they decide something (sections 11 and 13: packages are ZIP files, or of another type
//! that the dump states), and how gzip is recognized, whatever is stated.

/// How gzip begins (RFC 1952, section 2.3.1).
pub const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Whether a media type is that of a package and of nothing else: an archive in a format that is read.
#[must_use]
pub(super) fn is_package_type(media_type: &str) -> bool {
    let essence = media_type_essence(media_type);
    let is_zip = essence == "multipart/x-zip" || essence.ends_with("+zip");
    let is_package = matches!(
        application_subtype(&essence),
        "zip"
            | "zip-compressed"
            | "warc"
            | "warc+gzip"
            | "tar"
            | "gtar"
            | "ustar"
            | "tar+gzip"
            | "tar+zstd"
            | "tgz"
            | "gtar-compressed"
            | "compressed-tar"
            | "zstd-compressed-tar"
    );
    is_zip || is_package
}

/// What follows `application/` in the essence of a media type, without `x-`; empty for others.
fn application_subtype(essence: &str) -> &str {
    let subtype = essence.strip_prefix("application/").unwrap_or_default();
    subtype.strip_prefix("x-").unwrap_or(subtype)
}

/// Whether packages of a media type are read: also what is compressed may be an archive.
#[must_use]
pub fn may_be_package(media_type: &str) -> bool {
    let essence = media_type_essence(media_type);
    let is_coded = matches!(application_subtype(&essence), "gzip" | "zstd");
    let suffixes = ["+gzip", "+zstd"];
    let has_suffix = suffixes.iter().any(|suffix| essence.ends_with(suffix));
    is_package_type(media_type) || is_coded || has_suffix
}

/// Type and subtype in lower case, without parameters.
#[must_use]
pub fn media_type_essence(media_type: &str) -> String {
    let essence = media_type.split(';').next().unwrap_or_default();
    essence.trim().to_ascii_lowercase()
}

/// A list of content codings in lower case, in the order in which they were applied, with a comma and a space between two, shortened to
/// 100 characters; `None` if it states that nothing is coded. `aws-chunked` is none: stores repeat it of an upload that was sent so.
#[must_use]
pub fn content_coding(stated: &str) -> Option<String> {
    let stated = stated.to_ascii_lowercase();
    let names = stated.split(',').map(str::trim);
    let is_coding =
        |name: &&str| !matches!(*name, "" | "identity" | "utf-8" | "none" | "aws-chunked");
    let coding = names.filter(is_coding).collect::<Vec<_>>().join(", ");
    (!coding.is_empty()).then(|| coding.chars().take(100).collect())
}

/// The names under which archives are published, and whether those are read.
const ARCHIVE_SUFFIXES: [(&str, bool); 17] = [
    (".zip", true),
    (".warc", true),
    (".warc.gz", true),
    (".tar", true),
    (".tar.gz", true),
    (".tgz", true),
    (".tar.xz", false),
    (".txz", false),
    (".tar.bz2", false),
    (".tbz2", false),
    (".tar.zst", true),
    (".tzst", true),
    (".7z", false),
    (".rar", false),
    (".xz", false),
    (".zst", true),
    (".bz2", false),
];

/// The suffix of an archive's name; `None` if a path is none of an archive.
#[must_use]
pub(super) fn archive_suffix(path: &str) -> Option<&'static str> {
    archive_name(path).map(|(suffix, _)| suffix)
}

/// The suffix of the name of an archive that is not read.
#[must_use]
pub fn unread_archive_suffix(path: &str) -> Option<&'static str> {
    let (suffix, is_read) = archive_name(path)?;
    (!is_read).then_some(suffix)
}

fn archive_name(path: &str) -> Option<(&'static str, bool)> {
    let path = path.to_ascii_lowercase();
    let suffixes = ARCHIVE_SUFFIXES.into_iter();
    suffixes
        .filter(|(suffix, _)| path.ends_with(suffix))
        .max_by_key(|(suffix, _)| suffix.len())
}

/// Whether a media type is that of an archive, ZIP or another one.
#[must_use]
pub(super) fn is_archive(media_type: &str) -> bool {
    let essence = media_type_essence(media_type);
    let subtype = application_subtype(&essence);
    is_package_type(media_type)
        || matches!(
            subtype,
            "gzip"
                | "xz"
                | "bzip2"
                | "zstd"
                | "7z-compressed"
                | "rar-compressed"
                | "vnd.rar"
                | "xz-compressed-tar"
                | "bzip"
                | "bzip-compressed-tar"
                | "bzip2-compressed-tar"
                | "lzma"
                | "lzip"
                | "compressed"
                | "archive"
        )
        || subtype.rsplit_once('+').is_some_and(|(_, suffix)| {
            matches!(
                suffix,
                "gzip" | "xz" | "bzip2" | "bz2" | "zstd" | "lzma" | "7z"
            )
        })
}

/// Whether a media type states only that there are bytes.
#[must_use]
pub fn is_octets(media_type: &str) -> bool {
    media_type_essence(media_type).ends_with("/octet-stream")
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
            ("application/x-tar+xz", true),
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
    fn types_of_packages_that_are_read() {
        for (text, is_package, may_be) in [
            ("application/zip", true, true),
            ("application/x-tar", true, true),
            ("application/warc", true, true),
            ("application/x-tar+gzip", true, true),
            ("Application/X-GTAR; a=b", true, true),
            ("application/gzip", false, true),
            ("application/x-gzip", false, true),
            ("application/zstd", false, true),
            ("application/bagit+gzip", false, true),
            ("application/x-xz", false, false),
            ("application/x-7z-compressed", false, false),
            ("text/x-tar", false, false),
            ("", false, false),
        ] {
            let found = (is_package_type(text), may_be_package(text));
            assert_eq!(found, (is_package, may_be), "{text}");
        }
        for (path, expected) in [
            ("/a.tar.xz", Some(".tar.xz")),
            ("/a.tar.zst", None),
            ("/a.TGZ", None),
            ("/a", None),
        ] {
            assert_eq!(unread_archive_suffix(path), expected, "{path}");
        }
    }

    #[test]
    fn codings_that_code_nothing_are_left_out() {
        for (stated, expected) in [
            ("GZIP", Some("gzip")),
            ("gzip,aws-chunked", Some("gzip")),
            ("aws-chunked", None),
            ("gzip,", Some("gzip")),
            (" , deflate ,gzip", Some("deflate, gzip")),
            ("identity", None),
            ("", None),
        ] {
            assert_eq!(content_coding(stated).as_deref(), expected, "{stated:?}");
        }
    }

    #[test]
    fn zip_media_types_are_those_of_packages() {
        for (text, expected) in [
            ("application/zip", true),
            ("Application/ZIP; charset=binary", true),
            ("application/x-zip-compressed", true),
            ("application/bagit+zip", true),
            ("application/octet-stream", false),
            ("application/gzip", false),
            ("", false),
        ] {
            assert_eq!(is_package_type(text), expected, "{text:?}");
        }
    }
}
