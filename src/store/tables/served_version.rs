//! The validators of the version that the mirror has: three columns of `resource`.

use rusqlite::{Result, Row};

use crate::protocol::{ServedVersion, Validators};

/// Reads the columns `served_by`, `etag` and `last_modified`.
pub(super) fn served_version(row: &Row<'_>) -> Result<Option<ServedVersion>> {
    let Some(url) = row.get("served_by")? else {
        return Ok(None);
    };
    Ok(Some(ServedVersion {
        url,
        validators: Validators {
            etag: row.get("etag")?,
            last_modified: row.get("last_modified")?,
        },
    }))
}
