//! The SQL of an audit's database, one table a file.

pub(super) mod expected;
pub(super) mod finding;
pub(super) mod known;
pub(super) mod list;
pub(super) mod selected;

use rusqlite::{Connection, Result};

/// Creates all tables.
pub(super) fn create(sql: &Connection) -> Result<()> {
    for table in [
        expected::TABLE,
        known::TABLE,
        list::TABLE,
        finding::TABLE,
        selected::TABLES,
    ] {
        sql.execute_batch(table)?;
    }
    Ok(())
}
