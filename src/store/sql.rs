//! Connections to the database: SQLite, or PostgreSQL. Both run the same texts, which are in their common subset; those that only one of
//! them understands use its own connection.
//!
//! The types have the names and the ways of `rusqlite`, whose values, conversions and errors both use.

#[cfg(feature = "postgres")]
mod password_file;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "postgres")]
pub(crate) mod translation;

use std::ops::Deref;
use std::time::Duration;

#[cfg(feature = "postgres")]
pub(crate) use postgres::Server;
use rusqlite::types::{FromSql, ValueRef};
use rusqlite::{CachedStatement, ToSql};
pub(crate) use rusqlite::{OptionalExtension, Result, params};

/// A connection to the database of a store.
pub struct Connection(Database);

enum Database {
    Sqlite(rusqlite::Connection),
    #[cfg(feature = "postgres")]
    Postgres(Box<postgres::Session>),
}

impl From<rusqlite::Connection> for Connection {
    fn from(connection: rusqlite::Connection) -> Self {
        Self(Database::Sqlite(connection))
    }
}

impl Connection {
    /// The connection, if it is one to SQLite.
    pub(crate) fn sqlite(&self) -> Option<&rusqlite::Connection> {
        match &self.0 {
            Database::Sqlite(connection) => Some(connection),
            #[cfg(feature = "postgres")]
            Database::Postgres(_) => None,
        }
    }

    /// As [`sqlite`](Self::sqlite).
    pub(crate) fn sqlite_mut(&mut self) -> Option<&mut rusqlite::Connection> {
        match &mut self.0 {
            Database::Sqlite(connection) => Some(connection),
            #[cfg(feature = "postgres")]
            Database::Postgres(_) => None,
        }
    }

    /// Closes a connection to SQLite.
    pub(crate) fn close(self) -> Result<()> {
        match self.0 {
            Database::Sqlite(connection) => connection.close().map_err(|(_, error)| error),
            #[cfg(feature = "postgres")]
            Database::Postgres(_) => Ok(()),
        }
    }

    /// The file of SQLite's database.
    pub(crate) fn path(&self) -> String {
        let path = self.sqlite().and_then(rusqlite::Connection::path);
        path.unwrap_or_default().to_owned()
    }

    /// A statement that is prepared once for each connection.
    pub(crate) fn prepare_cached(&self, text: &str) -> Result<Statement<'_>> {
        match &self.0 {
            Database::Sqlite(connection) => connection.prepare_cached(text).map(Statement::Sqlite),
            #[cfg(feature = "postgres")]
            Database::Postgres(session) => session.prepare(text).map(Statement::Postgres),
        }
    }

    /// Executes one statement, and returns how many rows it has changed.
    pub(crate) fn execute(&self, text: &str, values: impl Params) -> Result<usize> {
        self.prepare_cached(text)?.execute(values)
    }

    /// The first row of a query.
    pub(crate) fn query_row<T>(
        &self,
        text: &str,
        values: impl Params,
        read: impl FnOnce(&Row<'_>) -> Result<T>,
    ) -> Result<T> {
        self.prepare_cached(text)?.query_row(values, read)
    }

    /// Has each row of a query read, however many they are, in a transaction.
    pub(crate) fn each_row(
        &self,
        query: &str,
        mut read: impl FnMut(&Row<'_>) -> Result<()>,
    ) -> Result<()> {
        match &self.0 {
            Database::Sqlite(_) => {
                let mut query = self.prepare_cached(query)?;
                let mut rows = query.query([])?;
                while let Some(row) = rows.next()? {
                    read(&row)?;
                }
                Ok(())
            }
            #[cfg(feature = "postgres")]
            Database::Postgres(session) => session.each_row(query, |row| read(&Row::Postgres(row))),
        }
    }

    /// Executes statements that have no values.
    pub(crate) fn execute_batch(&self, texts: &str) -> Result<()> {
        match &self.0 {
            Database::Sqlite(connection) => connection.execute_batch(texts),
            #[cfg(feature = "postgres")]
            Database::Postgres(session) => session.execute_batch(texts),
        }
    }

    /// Begins a transaction that writes.
    pub(crate) fn begin(&self) -> Result<()> {
        match &self.0 {
            Database::Sqlite(connection) => {
                connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
                Ok(())
            }
            #[cfg(feature = "postgres")]
            Database::Postgres(session) => session.begin_writing(),
        }
    }

    /// Runs a query of several statements in one read transaction: all of them see the same state.
    pub(crate) fn in_snapshot<T, E: From<rusqlite::Error>>(
        &self,
        query: impl FnOnce(&Self) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        match &self.0 {
            Database::Sqlite(connection) => connection.execute_batch("BEGIN")?,
            #[cfg(feature = "postgres")]
            Database::Postgres(session) => {
                session.begin("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")?;
            }
        }
        let snapshot = Transaction(self);
        let answer = query(&snapshot)?;
        snapshot.commit()?;
        Ok(answer)
    }

    /// From now on, transactions that write check that this node has its fence.
    #[cfg_attr(
        not(feature = "postgres"),
        expect(unused_variables, reason = "a lock of the folder does the same")
    )]
    pub(crate) fn check_fence(&self, fence: i64) {
        match &self.0 {
            Database::Sqlite(_) => {}
            #[cfg(feature = "postgres")]
            Database::Postgres(session) => session.check_fence(fence),
        }
    }

    /// What they check; `None`: nothing.
    pub(crate) fn fence(&self) -> Option<i64> {
        match &self.0 {
            Database::Sqlite(_) => None,
            #[cfg(feature = "postgres")]
            Database::Postgres(session) => session.fence(),
        }
    }

    /// Whether other nodes worked when the last of them began.
    pub(crate) fn has_others(&self) -> bool {
        match &self.0 {
            Database::Sqlite(_) => false,
            #[cfg(feature = "postgres")]
            Database::Postgres(session) => session.has_others(),
        }
    }

    /// Waits until the server tells of something, or that time is over. On a connection that listens.
    pub(crate) fn is_told(&self, limit: Duration) -> Result<bool> {
        match &self.0 {
            Database::Sqlite(_) => {
                std::thread::sleep(limit);
                Ok(false)
            }
            #[cfg(feature = "postgres")]
            Database::Postgres(session) => session.is_told(limit),
        }
    }

    pub(crate) fn commit(&self) -> Result<()> {
        match &self.0 {
            Database::Sqlite(_) => self.execute("COMMIT", []).map(drop),
            #[cfg(feature = "postgres")]
            Database::Postgres(session) => session.commit(),
        }
    }

    pub(crate) fn roll_back(&self) -> Result<()> {
        self.execute("ROLLBACK", []).map(drop)
    }

    /// Begins a transaction, which is rolled back unless it is committed.
    pub(crate) fn transaction(&self) -> Result<Transaction<'_>> {
        self.begin()?;
        Ok(Transaction(self))
    }

    /// Begins what can be rolled back inside a transaction.
    pub(crate) fn savepoint(&self) -> Result<()> {
        self.execute("SAVEPOINT job", []).map(drop)
    }

    /// Ends what a [savepoint](Self::savepoint) has begun.
    pub(crate) fn release(&self) -> Result<()> {
        self.execute("RELEASE SAVEPOINT job", []).map(drop)
    }

    /// Undoes what was done since the [savepoint](Self::savepoint).
    pub(crate) fn roll_back_to_savepoint(&self) -> Result<()> {
        self.execute("ROLLBACK TO SAVEPOINT job", []).map(drop)
    }

    /// Whether there is no transaction, or it is gone.
    pub(crate) fn is_autocommit(&self) -> bool {
        match &self.0 {
            Database::Sqlite(connection) => connection.is_autocommit(),
            #[cfg(feature = "postgres")]
            Database::Postgres(session) => !session.has_transaction(),
        }
    }

    /// How many rows were changed by this connection.
    pub(crate) fn total_changes(&self) -> u64 {
        match &self.0 {
            Database::Sqlite(connection) => connection.total_changes(),
            #[cfg(feature = "postgres")]
            Database::Postgres(session) => session.changes(),
        }
    }
}

/// What an error is, of either database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The disk is full, or a quota.
    DiskFull,
    /// The database is damaged, or no database.
    Damaged,
    ReadOnly,
    /// It can't be reached, or another process has locked it.
    Unavailable,
    /// Another node works on it.
    #[cfg(feature = "postgres")]
    Held,
    /// A row holds what this program never writes.
    Row,
    Other,
}

impl Fault {
    pub(crate) fn of(error: &rusqlite::Error) -> Self {
        use rusqlite::{Error, ErrorCode};
        #[cfg(feature = "postgres")]
        if let Some(fault) = postgres::fault_of(error) {
            return fault;
        }
        if let Error::FromSqlConversionFailure(..)
        | Error::IntegralValueOutOfRange(..)
        | Error::InvalidColumnType(..)
        | Error::Utf8Error(..) = error
        {
            return Self::Row;
        }
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Self::DiskFull,
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Self::Damaged,
            Some(ErrorCode::ReadOnly) => Self::ReadOnly,
            Some(
                ErrorCode::SystemIoFailure
                | ErrorCode::PermissionDenied
                | ErrorCode::CannotOpen
                | ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked,
            ) => Self::Unavailable,
            _ => Self::Other,
        }
    }
}

/// A transaction. Dropping it rolls it back.
pub(crate) struct Transaction<'a>(&'a Connection);

impl Transaction<'_> {
    pub(crate) fn commit(self) -> Result<()> {
        self.0.commit()
    }
}

impl Deref for Transaction<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.0
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if !self.0.is_autocommit() {
            // Otherwise the connection does it when it is closed.
            let _ = self.0.roll_back();
        }
    }
}

/// The values of a statement.
pub(crate) trait Params {
    fn with<T>(self, use_values: impl FnOnce(&[&dyn ToSql]) -> T) -> T;
}

impl Params for &[&dyn ToSql] {
    fn with<T>(self, use_values: impl FnOnce(&[&dyn ToSql]) -> T) -> T {
        use_values(self)
    }
}

macro_rules! arrays {
    ($($length:literal),*) => {$(
        impl<V: ToSql> Params for [V; $length] {
            fn with<T>(self, use_values: impl FnOnce(&[&dyn ToSql]) -> T) -> T {
                use_values(&self.each_ref().map(|value| value as &dyn ToSql))
            }
        }
    )*};
}

// An empty one must not have any type of values.
arrays!(1, 2, 3, 4, 5);

impl Params for [&dyn ToSql; 0] {
    fn with<T>(self, use_values: impl FnOnce(&[&dyn ToSql]) -> T) -> T {
        use_values(&[])
    }
}

/// A prepared statement.
pub(crate) enum Statement<'a> {
    Sqlite(CachedStatement<'a>),
    #[cfg(feature = "postgres")]
    Postgres(postgres::Prepared<'a>),
}

impl Statement<'_> {
    pub(crate) fn execute(&mut self, values: impl Params) -> Result<usize> {
        values.with(|values| match self {
            Self::Sqlite(statement) => statement.execute(values),
            #[cfg(feature = "postgres")]
            Self::Postgres(statement) => statement.execute(values),
        })
    }

    pub(crate) fn query(&mut self, values: impl Params) -> Result<Rows<'_>> {
        values.with(|values| match self {
            Self::Sqlite(statement) => statement.query(values).map(Rows::Sqlite),
            #[cfg(feature = "postgres")]
            Self::Postgres(statement) => statement.query(values).map(Rows::Postgres),
        })
    }

    pub(crate) fn query_map<T, F>(
        &mut self,
        values: impl Params,
        read: F,
    ) -> Result<MappedRows<'_, F>>
    where
        F: FnMut(&Row<'_>) -> Result<T>,
    {
        let rows = self.query(values)?;
        Ok(MappedRows { rows, read })
    }

    pub(crate) fn query_row<T>(
        &mut self,
        values: impl Params,
        read: impl FnOnce(&Row<'_>) -> Result<T>,
    ) -> Result<T> {
        let mut rows = self.query(values)?;
        let row = rows.next()?;
        read(&row.ok_or(rusqlite::Error::QueryReturnedNoRows)?)
    }

    /// Whether the query has a row.
    pub(crate) fn exists(&mut self, values: impl Params) -> Result<bool> {
        Ok(self.query(values)?.next()?.is_some())
    }
}

/// The rows of a query.
pub(crate) enum Rows<'a> {
    Sqlite(rusqlite::Rows<'a>),
    #[cfg(feature = "postgres")]
    Postgres(postgres::Fetched),
}

impl Rows<'_> {
    pub(crate) fn next(&mut self) -> Result<Option<Row<'_>>> {
        match self {
            Self::Sqlite(rows) => Ok(rows.next()?.map(Row::Sqlite)),
            #[cfg(feature = "postgres")]
            Self::Postgres(rows) => Ok(rows.next().map(Row::Postgres)),
        }
    }
}

/// The rows of a query, as they are read by a function.
pub(crate) struct MappedRows<'a, F> {
    rows: Rows<'a>,
    read: F,
}

impl<T, F: FnMut(&Row<'_>) -> Result<T>> Iterator for MappedRows<'_, F> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Result<T>> {
        let row = self.rows.next().transpose()?;
        Some(row.and_then(|row| (self.read)(&row)))
    }
}

/// A row of a query.
pub(crate) enum Row<'a> {
    Sqlite(&'a rusqlite::Row<'a>),
    #[cfg(feature = "postgres")]
    Postgres(&'a postgres::PgRow),
}

/// What names a column: its number, or its name.
#[cfg(not(feature = "postgres"))]
pub(crate) trait RowIndex: rusqlite::RowIndex + Copy {}
#[cfg(not(feature = "postgres"))]
impl<I: rusqlite::RowIndex + Copy> RowIndex for I {}
/// What names a column: its number, or its name.
#[cfg(feature = "postgres")]
pub(crate) trait RowIndex: rusqlite::RowIndex + postgres::PgIndex + Copy {}
#[cfg(feature = "postgres")]
impl<I: rusqlite::RowIndex + postgres::PgIndex + Copy> RowIndex for I {}

impl Row<'_> {
    pub(crate) fn get<I: RowIndex, T: FromSql>(&self, column: I) -> Result<T> {
        match self {
            Self::Sqlite(row) => row.get(column),
            #[cfg(feature = "postgres")]
            Self::Postgres(row) => postgres::get(row, column),
        }
    }

    pub(crate) fn get_ref(&self, column: impl RowIndex) -> Result<ValueRef<'_>> {
        match self {
            Self::Sqlite(row) => row.get_ref(column),
            #[cfg(feature = "postgres")]
            Self::Postgres(row) => postgres::get_ref(row, column),
        }
    }
}
