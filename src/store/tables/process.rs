//! `session`: whether a process works on the database; one row. (In the code a session is one of XMPP.)

use crate::store::sql::{Connection, OptionalExtension, Result};

/// Records that a process begins to work, and returns whether the one before it has ended in order.
pub(crate) fn begin(sql: &Connection) -> Result<bool> {
    let was_open: Option<bool> = sql
        .query_row("SELECT is_open FROM session", [], |row| row.get(0))
        .optional()?;
    set_open(sql, true)?;
    Ok(was_open == Some(false))
}

/// Puts every resource in doubt of which nothing is recorded: there may be a file of it. This does not write to their rows, of which
/// there may be millions.
pub(crate) fn doubt_unrecorded(sql: &Connection) -> Result<()> {
    sql.execute(
        "UPDATE session SET unrecorded_until = COALESCE((SELECT MAX(id) FROM resource), 0)",
        [],
    )
    .map(drop)
}

/// Records that the process ends in order.
pub(crate) fn end(sql: &Connection) -> Result<()> {
    set_open(sql, false)
}

fn set_open(sql: &Connection, is_open: bool) -> Result<()> {
    sql.execute(
        "INSERT INTO session (id, is_open) VALUES (1, ?1) ON CONFLICT (id) DO UPDATE SET is_open = ?1",
        [is_open],
    )
    .map(drop)
}
