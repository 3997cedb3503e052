//! `told`: what people were told, by the name of the `[[notify]]`.

use crate::store::sql::{Connection, OptionalExtension, Result};

pub(crate) fn get(sql: &Connection, name: &str) -> Result<Option<String>> {
    sql.prepare_cached("SELECT told FROM told WHERE name = ?1")?
        .query_row([name], |row| row.get(0))
        .optional()
}

pub(crate) fn put(sql: &Connection, name: &str, told: &str) -> Result<()> {
    sql.prepare_cached(
        "INSERT INTO told (name, told) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET told = ?2",
    )?
    .execute([name, told])
    .map(drop)
}

pub(crate) fn names(sql: &Connection) -> Result<Vec<String>> {
    sql.prepare_cached("SELECT name FROM told")?
        .query_map([], |row| row.get(0))?
        .collect()
}

pub(crate) fn delete(sql: &Connection, name: &str) -> Result<()> {
    sql.prepare_cached("DELETE FROM told WHERE name = ?1")?
        .execute([name])
        .map(drop)
}
