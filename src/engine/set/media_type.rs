//! Media types of packages.

/// Whether a media type is that of a ZIP file.
pub(super) fn is_zip(media_type: &str) -> bool {
    let essence = essence_of(media_type);
    let is_listed = matches!(
        essence.as_str(),
        "application/zip"
            | "application/x-zip"
            | "application/x-zip-compressed"
            | "multipart/x-zip"
    );
    is_listed || essence.ends_with("+zip")
}

/// A media type without its parameters, in lower case.
pub(super) fn essence_of(media_type: &str) -> String {
    let essence = media_type.split(';').next().unwrap_or_default();
    essence.trim().to_ascii_lowercase()
}
