//! What servers told of the versions that the mirror has.

use rusqlite::Row;
use url::Url;

use super::{StoreError, row};

/// What a server told of a version, to ask later whether it is still the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedVersion {
    /// Where it was served: it means nothing elsewhere.
    pub url: Url,
    /// Its `ETag`.
    pub etag: Option<String>,
    /// Its `Last-Modified`.
    pub last_modified: Option<String>,
}

/// The version in three columns of a row, of which `first` is the place that served it.
pub(super) fn version(found: &Row<'_>, first: usize) -> Result<Option<ServedVersion>, StoreError> {
    let Some(url) = found.get::<_, Option<String>>(first)? else {
        return Ok(None);
    };
    Ok(Some(ServedVersion {
        url: row::url(&url)?,
        etag: found.get(first + 1)?,
        last_modified: found.get(first + 2)?,
    }))
}
