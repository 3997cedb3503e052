//! The column `path` of `resource`, relative to the mirror: NULL where it is the plain path of the URI, as of nearly all rows. So neither
//! the row nor the index of the paths repeats what the URI has.
//! A row is found by its path in the column, or else by the URIs of which that is the plain path.

use resyncd_core::ResourceUri;
use resyncd_mirror::{is_plain_path, plain_path};
use rusqlite::types::Type;

use super::values::invalid;
use crate::store::sql::Result;

/// What the column has for a path.
pub(super) fn stored<'a>(path: &'a str, uri: &ResourceUri) -> Option<&'a str> {
    Some(path).filter(|path| !is_plain_path(path, uri))
}

/// The path that the column states; `None`: none at all, as of a resource that has no plain path and was never given another.
pub(crate) fn of(stored: Option<String>, uri: &ResourceUri) -> Option<String> {
    stored.or_else(|| plain_path(uri).map(|plain| plain.to_string()))
}

/// The same where there is one: each resource that has a task was given a path.
pub(crate) fn given(stored: Option<String>, uri: &ResourceUri) -> Result<String> {
    of(stored, uri).ok_or_else(|| {
        let error = invalid("a path");
        rusqlite::Error::FromSqlConversionFailure(0, Type::Null, error.into())
    })
}
