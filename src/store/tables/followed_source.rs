//! `followed_source`: the Sources that are or were followed, until they are forgotten: where discovery began, and where their files
//! are.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::store::sql::{Connection, OptionalExtension, Result, Row, params};
use crate::store::unreadable::UnreadableRows;

/// A Source that is or was followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceLocation {
    /// Its label.
    pub name: String,
    /// Where discovery began.
    pub url: String,
    /// The folder of its files; `None`: any may be used.
    pub mirror: Option<PathBuf>,
}

impl SourceLocation {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        let mirror: Option<Vec<u8>> = row.get("mirror")?;
        Ok(Self {
            name: row.get("name")?,
            url: row.get("url")?,
            mirror: mirror.map(|bytes| OsString::from_vec(bytes).into()),
        })
    }
}

pub(crate) fn get(sql: &Connection, name: &str) -> Result<Option<SourceLocation>> {
    sql.prepare_cached("SELECT name, url, mirror FROM followed_source WHERE name = ?1")?
        .query_row([name], SourceLocation::from_row)
        .optional()
}

/// All that can be read, by name.
pub(crate) fn all(sql: &Connection, unreadable: &UnreadableRows) -> Result<Vec<SourceLocation>> {
    let read = |row: &Row<'_>| unreadable.read(row, "name", SourceLocation::from_row);
    sql.prepare_cached("SELECT name, url, mirror FROM followed_source ORDER BY name")?
        .query_map([], read)?
        .filter_map(Result::transpose)
        .collect()
}

pub(crate) fn put(sql: &Connection, name: &str, url: &str, mirror: &Path) -> Result<()> {
    let mirror = mirror.as_os_str().as_bytes();
    sql.prepare_cached(
        "INSERT INTO followed_source (name, url, mirror) VALUES (?1, ?2, ?3)
         ON CONFLICT (name) DO UPDATE SET url = ?2, mirror = ?3",
    )?
    .execute(params![name, url, mirror])
    .map(drop)
}

/// Forgets where the files of a Source are.
pub(crate) fn clear_mirror(sql: &Connection, name: &str) -> Result<()> {
    sql.prepare_cached("UPDATE followed_source SET mirror = NULL WHERE name = ?1")?
        .execute([name])
        .map(drop)
}

pub(crate) fn delete(sql: &Connection, name: &str) -> Result<()> {
    sql.prepare_cached("DELETE FROM followed_source WHERE name = ?1")?
        .execute([name])
        .map(drop)
}
