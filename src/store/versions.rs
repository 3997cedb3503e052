//! What servers told of the versions that the mirror has.

use rusqlite::Row;

use super::{StoreError, row};
use crate::protocol::{ServedVersion, Validators};

/// The version in three columns of a row, of which `first` is the place that served it.
pub(super) fn version(found: &Row<'_>, first: usize) -> Result<Option<ServedVersion>, StoreError> {
    let Some(url) = found.get::<_, Option<String>>(first)? else {
        return Ok(None);
    };
    Ok(Some(ServedVersion {
        url: row::url(&url)?,
        validators: Validators {
            etag: found.get(first + 1)?,
            last_modified: found.get(first + 2)?,
        },
    }))
}
