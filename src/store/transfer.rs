//! The rows of one database in another one: from SQLite to a server, or back.

use rusqlite::ToSql;
use rusqlite::types::Value;

use super::error::StoreError;
use super::schema::TABLES;
use super::sql::{Connection, OptionalExtension, Result, Row};

/// A table, with what its columns are called that are stored.
pub(super) struct Table {
    pub(super) name: String,
    pub(super) columns: Vec<String>,
    /// Whether its ids are given by the database.
    gives_ids: bool,
}

/// The tables of the schema, those first that others refer to.
pub(super) fn tables() -> Result<Vec<Table>> {
    let schema = rusqlite::Connection::open_in_memory()?;
    schema.execute_batch(TABLES)?;
    let mut names = schema.prepare(
        "SELECT name, sql LIKE '%INTEGER PRIMARY KEY AUTOINCREMENT%' OR sql LIKE '% id INTEGER PRIMARY KEY,%'
         FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY rowid",
    )?;
    let names = names.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let mut tables = Vec::new();
    for found in names {
        let (name, gives_ids): (String, bool) = found?;
        let mut columns = schema.prepare("SELECT name FROM pragma_table_info(?1)")?;
        let columns = columns.query_map([&name], |row| row.get(0))?;
        tables.push(Table {
            columns: columns.collect::<Result<_>>()?,
            name,
            gives_ids,
        });
    }
    Ok(tables)
}

/// Makes the rows of one database those of another one, which has no others then. Both have the schema, and a transaction. Returns how many
/// they are.
pub(super) fn copy_rows(from: &Connection, to: &Connection) -> Result<u64, StoreError> {
    copy(from, to, tables()?, "")
}

/// The same with the rows of one Source, and only of tables that know their Source.
pub(super) fn copy_source(
    from: &Connection,
    to: &Connection,
    source: &str,
) -> Result<u64, StoreError> {
    let mut tables = tables()?;
    tables.retain(|table| table.columns.iter().any(|column| column == "source"));
    let source = source.replace('\'', "''");
    copy(from, to, tables, &format!("WHERE source = '{source}'"))
}

fn copy(
    from: &Connection,
    to: &Connection,
    tables: Vec<Table>,
    condition: &str,
) -> Result<u64, StoreError> {
    for table in tables.iter().rev() {
        to.execute_batch(&format!("DELETE FROM {}", table.name))?;
    }
    let mut rows = 0;
    for table in tables {
        let Table { name, columns, .. } = &table;
        let marks: Vec<_> = (1..=columns.len()).map(|at| format!("?{at}")).collect();
        let (listed, marks) = (columns.join(", "), marks.join(", "));
        let mut insert =
            to.prepare_cached(&format!("INSERT INTO {name} ({listed}) VALUES ({marks})"))?;
        from.each_row(&format!("SELECT {listed} FROM {name} {condition}"), |row| {
            rows += 1;
            let values = values(row, columns.len())?;
            let values: Vec<&dyn ToSql> = values.iter().map(|value| value as _).collect();
            insert.execute(&*values).map(drop)
        })?;
        if table.gives_ids {
            to.set_last_id(name, from.last_id(name)?)?;
        }
    }
    Ok(rows)
}

fn values(row: &Row<'_>, columns: usize) -> Result<Vec<Value>> {
    let values = (0..columns).map(|column| row.get_ref(column).map(Value::try_from));
    values.map(|value| Ok(value??)).collect()
}

impl Connection {
    /// The greatest id that a table has given.
    fn last_id(&self, table: &str) -> Result<i64> {
        let query = if self.sqlite().is_some() {
            format!(
                "SELECT COALESCE((SELECT seq FROM sqlite_sequence WHERE name = '{table}'), (SELECT MAX(id) FROM {table}), 0)"
            )
        } else {
            format!("SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM {table}_id_seq")
        };
        let last = self.query_row(&query, [], |row| row.get(0)).optional()?;
        Ok(last.unwrap_or_default())
    }

    /// Has a table give ids that are greater than this one.
    fn set_last_id(&self, table: &str, last: i64) -> Result<()> {
        if self.sqlite().is_some() {
            // Those of other tables follow the rows.
            self.execute_batch(&format!(
                "DELETE FROM sqlite_sequence WHERE name = '{table}';
                 INSERT INTO sqlite_sequence (name, seq)
                 SELECT name, {last} FROM sqlite_master WHERE name = '{table}' AND sql LIKE '%AUTOINCREMENT%'"
            ))
        } else if last > 0 {
            self.execute_batch(&format!("SELECT setval('{table}_id_seq', {last})"))
        } else {
            Ok(())
        }
    }
}
