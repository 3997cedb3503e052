//! Connections to a PostgreSQL server.
//!
//! Invariants:
//! - Outside a transaction a connection is replaced if it has ended; inside one, the transaction has ended with it.
//! - Nothing depends on the state of a connection: between transactions a pooler may give it to others.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::error::Error;
use std::fmt::{self, Display};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::str::FromStr;
use std::thread;
use std::time::Duration;
use std::vec::IntoIter;

pub(super) use postgres::Row as PgRow;
use postgres::config::{Host, SslMode};
use postgres::error::SqlState;
use postgres::fallible_iterator::FallibleIterator;
use postgres::row::RowIndex as PgRowIndex;
use postgres::types::private::BytesMut;
use postgres::types::{FromSql as PgFromSql, IsNull, ToSql as PgToSql, Type, to_sql_checked};
use postgres::{Client, Config, NoTls};
use resyncd_fetch::{Authorities, is_localhost};
use rusqlite::types::{FromSql, ToSqlOutput, ValueRef};
use rusqlite::{Result, ToSql};
use tokio::runtime::Handle;
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{Fault, password_file, translation};
use crate::clock;
use crate::store::error::StoreError;
use crate::store::nodes;

/// How a connection presents itself to the server.
const APPLICATION: &str = "resyncd";

/// Where a database is, and how it is reached.
#[derive(Clone)]
pub(crate) struct Server {
    config: Config,
    /// Where connections lead on which the server tells of news; `None`: it does not.
    listening: Option<Config>,
    /// What is trusted besides the authorities of the system; `None`: connections are not encrypted.
    authorities: Option<Authorities>,
}

impl Server {
    /// The server of a URL. Connections are encrypted, unless the server is on this machine, or the URL says otherwise. `listen_url`: another
    /// way to the same server, past a pooler; an empty one: there is none.
    ///
    /// # Errors
    /// [`StoreError::Url`].
    pub(crate) fn new(
        url: &str,
        listen_url: Option<&str>,
        password: Option<&str>,
        authorities: &Authorities,
    ) -> std::result::Result<Self, StoreError> {
        let config = settings(url, password)?;
        let listening = match listen_url {
            None => Some(config.clone()),
            Some("") => None,
            Some(url) => Some(settings(url, password)?),
        };
        let is_local = |host: &Host| match host {
            Host::Tcp(host) => match host.parse::<IpAddr>() {
                Ok(address) => address.is_loopback(),
                Err(_) => is_localhost(host),
            },
            Host::Unix(_) => true,
        };
        let is_encrypted =
            config.get_ssl_mode() != SslMode::Disable && !config.get_hosts().iter().all(is_local);
        let authorities = is_encrypted.then(|| authorities.clone());
        Ok(Self {
            config,
            listening,
            authorities,
        })
    }

    /// The server and the database, for messages.
    pub(crate) fn path(&self) -> PathBuf {
        let host = match self.config.get_hosts().first() {
            Some(Host::Tcp(host)) => host.clone(),
            Some(Host::Unix(folder)) => folder.display().to_string(),
            None => "localhost".to_owned(),
        };
        let database = self.config.get_dbname().or(self.config.get_user());
        PathBuf::from(format!(
            "postgres://{host}/{}",
            database.unwrap_or_default()
        ))
    }

    fn connect(&self, config: &Config) -> Result<Client> {
        blocking(|| {
            let client = match &self.authorities {
                Some(authorities) => {
                    let tls = resyncd_fetch::tls(authorities)
                        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
                    let mut config = config.clone();
                    config.ssl_mode(SslMode::Require);
                    config.connect(MakeRustlsConnect::new(tls))
                }
                None => config.connect(NoTls),
            };
            client.map_err(failed)
        })
    }

    pub(crate) fn open(&self) -> Result<super::Connection> {
        self.open_at(&self.config)
    }

    /// A connection on which the server tells of news; `None`: it does not.
    pub(crate) fn open_to_listen(&self) -> Result<Option<super::Connection>> {
        let listening = self.listening.as_ref();
        listening.map(|config| self.open_at(config)).transpose()
    }

    /// Whether the transaction of that number was committed; `None`: it has not ended yet.
    fn outcome(&self, number: i64) -> Result<Option<bool>> {
        let mut client = self.connect(&self.config)?;
        blocking(move || {
            let asked = "SELECT pg_xact_status(CAST(CAST($1 AS TEXT) AS xid8))";
            let outcome = match client.query_one(asked, &[&number.to_string()]) {
                Ok(row) => row.get(0),
                // A standby that was promoted without it does not know it.
                Err(error) if error.as_db_error().is_some() => None,
                Err(error) => return Err(failed(error)),
            };
            let outcome: Option<String> = outcome;
            Ok(match outcome.as_deref() {
                Some("in progress") => None,
                other => Some(other == Some("committed")),
            })
        })
    }

    fn open_at(&self, config: &Config) -> Result<super::Connection> {
        let session = Session {
            client: RefCell::new(Some(self.connect(config)?)),
            server: self.clone(),
            prepared: RefCell::default(),
            has_transaction: Cell::new(false),
            has_failed: Cell::new(false),
            fence: Cell::new(None),
            has_others: Cell::new(false),
            number: Cell::new(None),
            changes: Cell::new(0),
        };
        Ok(super::Connection(super::Database::Postgres(Box::new(
            session,
        ))))
    }
}

/// How a server is reached.
fn settings(url: &str, password: Option<&str>) -> std::result::Result<Config, StoreError> {
    let mut config = Config::from_str(url).map_err(|error| StoreError::Url(described(&error)))?;
    if config.get_password().is_some() {
        let error =
            "the URL of the database has a password: name a file with it as `password_file`";
        return Err(StoreError::Url(error.to_owned()));
    }
    config.application_name(APPLICATION);
    let password = password.map(str::to_owned);
    if let Some(password) = password.or_else(|| password_file::password_of(&config)) {
        config.password(password);
    }
    Ok(config)
}

/// An error with its cause, for a person.
fn described(error: &postgres::Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

/// An error of the server, or of the connection to it, as one of `rusqlite`.
fn failed(error: postgres::Error) -> rusqlite::Error {
    rusqlite::Error::ToSqlConversionFailure(Box::new(ServerError(error)))
}

/// Another node works on the database.
#[derive(Debug, thiserror::Error)]
#[error("another node has taken the place of this one")]
struct Fenced;

/// An error that shows its cause.
#[derive(Debug)]
struct ServerError(postgres::Error);

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&described(&self.0))
    }
}

impl Error for ServerError {}

/// What an error is, if it is one of a server.
pub(super) fn fault_of(error: &rusqlite::Error) -> Option<Fault> {
    let rusqlite::Error::ToSqlConversionFailure(error) = error else {
        return None;
    };
    if error.is::<Fenced>() {
        return Some(Fault::Held);
    }
    let ServerError(error) = error.downcast_ref()?;
    let Some(state) = error.code() else {
        // It is of the connection.
        return Some(Fault::Unavailable);
    };
    Some(match *state {
        SqlState::DISK_FULL | SqlState::OUT_OF_MEMORY => Fault::DiskFull,
        SqlState::DATA_CORRUPTED | SqlState::INDEX_CORRUPTED => Fault::Damaged,
        SqlState::READ_ONLY_SQL_TRANSACTION => Fault::ReadOnly,
        _ if UNAVAILABLE.contains(&&state.code()[..2]) => Fault::Unavailable,
        _ => Fault::Other,
    })
}

/// The classes of the errors that pass: of connections, resources, an operator who intervenes, and the system of the server.
const UNAVAILABLE: [&str; 4] = ["08", "53", "57", "58"];

/// How long it is looked for what has become of a transaction, and how often.
const OUTCOME: Duration = Duration::from_secs(30);
const OUTCOME_PAUSE: Duration = Duration::from_millis(200);

/// Begins a transaction that writes.
const BEGIN: &str = "BEGIN; SET LOCAL idle_in_transaction_session_timeout = '10s'";

/// How many rows of a cursor are read at once: so many that the way to the server does not count.
const FETCHED: u32 = 1000;

/// Runs what blocks until the server has answered. A thread of the runtime must not be blocked by its client.
fn blocking<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    if Handle::try_current().is_err() {
        return work();
    }
    let worked = thread::scope(|scope| scope.spawn(work).join());
    worked.unwrap_or_else(|panic| resume_unwind(panic))
}

impl Drop for Session {
    fn drop(&mut self) {
        let client = self.client.take();
        blocking(|| drop(client));
    }
}

/// A connection.
pub(super) struct Session {
    server: Server,
    /// There is one until this is dropped.
    client: RefCell<Option<Client>>,
    /// The statements of the connection, by their texts.
    prepared: RefCell<HashMap<String, postgres::Statement>>,
    has_transaction: Cell<bool>,
    /// Whether a statement of the transaction has failed: the server commits nothing of it.
    has_failed: Cell<bool>,
    /// What a transaction that writes checks first; `None`: nothing.
    fence: Cell<Option<i64>>,
    /// Whether other nodes worked when the last one began.
    has_others: Cell<bool>,
    /// Its number on the server.
    number: Cell<Option<i64>>,
    changes: Cell<u64>,
}

impl Session {
    fn run<T>(
        &self,
        run: impl FnOnce(&mut Client) -> std::result::Result<T, postgres::Error> + Send,
    ) -> Result<T>
    where
        T: Send,
    {
        let mut client = self.client.borrow_mut();
        let client = client.as_mut().ok_or(rusqlite::Error::InvalidQuery)?;
        let done = blocking(|| run(client));
        if done.is_err() {
            self.has_failed.set(true);
            if client.is_closed() {
                self.has_transaction.set(false);
            }
        }
        done.map_err(failed)
    }

    fn is_closed(&self) -> bool {
        self.client.borrow().as_ref().is_none_or(Client::is_closed)
    }

    /// Begins a transaction. A server that was restarted since the last one has ended the connection.
    pub(super) fn begin(&self, text: &str) -> Result<()> {
        let begun = self.run(|client| client.batch_execute(text));
        if begun.is_err() && self.is_closed() {
            let client = self.server.connect(&self.server.config)?;
            self.prepared.borrow_mut().clear();
            let former = self.client.replace(Some(client));
            blocking(|| drop(former));
            self.run(|client| client.batch_execute(text))?;
        } else {
            begun?;
        }
        self.has_transaction.set(true);
        self.has_failed.set(false);
        Ok(())
    }

    /// Begins a transaction that writes, as long as this node has its fence: in its turn, so that it overlaps with no other one. One that does
    /// nothing, as the process is paused, must not keep the turn.
    pub(super) fn begin_writing(&self) -> Result<()> {
        let Some(fence) = self.fence.get() else {
            return self.begin(BEGIN);
        };
        self.begin(&format!("{BEGIN}; {}", nodes::TURN))?;
        let mut checked = self.prepare(nodes::CHECK)?.query(&[&fence])?;
        let Some(row) = checked.next() else {
            self.prepare("ROLLBACK")?.execute(&[])?;
            return Err(rusqlite::Error::ToSqlConversionFailure(Box::new(Fenced)));
        };
        self.has_others.set(get(row, 0)?);
        self.number.set(Some(get(row, 1)?));
        Ok(())
    }

    /// Ends a transaction. If the connection is lost meanwhile, the server is asked what has become of it: what was committed must not be
    /// done again.
    pub(super) fn commit(&self) -> Result<()> {
        let number = self.number.take();
        let ended = self.prepare("COMMIT")?.execute(&[]).map(drop);
        let Some(number) = number.filter(|_| ended.is_err() && self.is_closed()) else {
            return ended;
        };
        let limit = clock::now().mono + OUTCOME;
        loop {
            match self.server.outcome(number) {
                Ok(Some(is_committed)) if is_committed => return Ok(()),
                Ok(Some(_)) => return ended,
                Ok(None) | Err(_) if clock::now().mono >= limit => return ended,
                Ok(None) | Err(_) => thread::sleep(OUTCOME_PAUSE),
            }
        }
    }

    pub(super) fn check_fence(&self, fence: i64) {
        self.fence.set(Some(fence));
    }

    pub(super) fn fence(&self) -> Option<i64> {
        self.fence.get()
    }

    pub(super) fn has_others(&self) -> bool {
        self.has_others.get()
    }

    /// Waits until the server tells of something, or that time is over.
    pub(super) fn is_told(&self, limit: Duration) -> Result<bool> {
        let told = self.run(|client| client.notifications().timeout_iter(limit).next())?;
        Ok(told.is_some())
    }

    pub(super) fn has_transaction(&self) -> bool {
        self.has_transaction.get()
    }

    pub(super) fn changes(&self) -> u64 {
        self.changes.get()
    }

    pub(super) fn execute_batch(&self, texts: &str) -> Result<()> {
        self.run(|client| client.batch_execute(&translation::statement(texts)))
    }

    /// As of a [`Connection`](super::Connection).
    pub(super) fn each_row(
        &self,
        query: &str,
        mut read: impl FnMut(&PgRow) -> Result<()>,
    ) -> Result<()> {
        // A pooler prepares a text once for all connections: with the same text as another one it would have the columns of that.
        let mut hasher = DefaultHasher::new();
        query.hash(&mut hasher);
        let cursor = format!("each_row_{:x}", hasher.finish());
        self.execute_batch(&format!("DECLARE {cursor} CURSOR FOR {query}"))?;
        let fetch = format!("FETCH {FETCHED} FROM {cursor}");
        loop {
            let rows = self.run(|client| client.query(&fetch, &[]))?;
            if rows.is_empty() {
                return self.execute_batch(&format!("CLOSE {cursor}"));
            }
            rows.iter().try_for_each(&mut read)?;
        }
    }

    pub(super) fn prepare(&self, text: &str) -> Result<Prepared<'_>> {
        let ends = matches!(text, "COMMIT" | "ROLLBACK");
        let known = self.prepared.borrow().get(text).cloned();
        let statement = match known {
            Some(statement) => Some(statement),
            // Those of transactions take no values, and the server does not plan them.
            None if ends || text.contains("SAVEPOINT") => None,
            None => {
                let translated = translation::statement(text);
                let statement = self.run(|client| client.prepare(&translated))?;
                let mut prepared = self.prepared.borrow_mut();
                prepared.insert(text.to_owned(), statement.clone());
                Some(statement)
            }
        };
        Ok(Prepared {
            session: self,
            writes: text.contains(" RETURNING "),
            kind: match statement {
                Some(statement) => Kind::Statement(statement),
                None => Kind::Transaction {
                    text: text.to_owned(),
                    ends,
                },
            },
        })
    }
}

/// A statement of a connection.
pub(crate) struct Prepared<'a> {
    session: &'a Session,
    /// Whether the rows that it returns are those that it has changed.
    writes: bool,
    kind: Kind,
}

enum Kind {
    Statement(postgres::Statement),
    Transaction { text: String, ends: bool },
}

impl Prepared<'_> {
    pub(super) fn execute(&mut self, values: &[&dyn ToSql]) -> Result<usize> {
        let statement = match &self.kind {
            Kind::Statement(statement) => statement,
            Kind::Transaction { text, ends } => {
                let session = self.session;
                if text == "COMMIT" && session.has_failed.get() {
                    // The server would roll it back without an error.
                    let error = "a statement of the transaction has failed";
                    return Err(rusqlite::Error::ToSqlConversionFailure(error.into()));
                }
                let done = session.run(|client| client.batch_execute(text));
                if *ends {
                    session.has_transaction.set(false);
                }
                if done.is_ok() && text.starts_with("ROLLBACK") {
                    session.has_failed.set(false);
                }
                return done.map(|()| 0);
            }
        };
        let values = encoded(values)?;
        let values: Vec<&(dyn PgToSql + Sync)> = values.iter().map(|it| it as _).collect();
        let rows = self
            .session
            .run(|client| client.execute(statement, &values))?;
        let changes = &self.session.changes;
        changes.set(changes.get() + rows);
        Ok(usize::try_from(rows).unwrap_or(usize::MAX))
    }

    /// All rows at once: while they are read, other statements of the connection are executed.
    pub(super) fn query(&mut self, values: &[&dyn ToSql]) -> Result<Fetched> {
        let Kind::Statement(statement) = &self.kind else {
            return Err(rusqlite::Error::InvalidQuery);
        };
        let values = encoded(values)?;
        let values: Vec<&(dyn PgToSql + Sync)> = values.iter().map(|it| it as _).collect();
        let rows = self
            .session
            .run(|client| client.query(statement, &values))?;
        if self.writes {
            let changes = &self.session.changes;
            changes.set(changes.get() + rows.len() as u64);
        }
        Ok(Fetched {
            rows: rows.into_iter(),
            current: None,
        })
    }
}

/// The rows of a query.
pub(crate) struct Fetched {
    rows: IntoIter<PgRow>,
    current: Option<PgRow>,
}

impl Fetched {
    pub(super) fn next(&mut self) -> Option<&PgRow> {
        self.current = self.rows.next();
        self.current.as_ref()
    }
}

/// A column of bytes has texts as well, as those of SQLite do: with this mark and [`TEXT`] before them. Bytes that begin with the mark have
/// it and [`BLOB`] before them.
const MARK: u8 = 0xff;
const TEXT: u8 = b't';
const BLOB: u8 = b'b';

fn marked(
    kind: u8,
    bytes: &[u8],
    out: &mut BytesMut,
) -> std::result::Result<IsNull, Box<dyn Error + Sync + Send>> {
    out.extend_from_slice(&[MARK, kind]);
    out.extend_from_slice(bytes);
    Ok(IsNull::No)
}

/// A value for a statement.
#[derive(Debug)]
struct Value<'a>(ToSqlOutput<'a>);

fn encoded<'a>(values: &'a [&'a dyn ToSql]) -> Result<Vec<Value<'a>>> {
    values.iter().map(|it| it.to_sql().map(Value)).collect()
}

impl PgToSql for Value<'_> {
    fn to_sql(
        &self,
        kind: &Type,
        out: &mut BytesMut,
    ) -> std::result::Result<IsNull, Box<dyn Error + Sync + Send>> {
        let value = match &self.0 {
            ToSqlOutput::Borrowed(value) => *value,
            ToSqlOutput::Owned(value) => value.into(),
            _ => return Err("a value that PostgreSQL does not have".into()),
        };
        match value {
            ValueRef::Null => Ok(IsNull::Yes),
            ValueRef::Integer(number) => match *kind {
                Type::BOOL => PgToSql::to_sql(&(number != 0), kind, out),
                Type::INT4 => PgToSql::to_sql(&i32::try_from(number)?, kind, out),
                _ => PgToSql::to_sql(&number, kind, out),
            },
            ValueRef::Real(number) => PgToSql::to_sql(&number, kind, out),
            ValueRef::Text(bytes) if *kind == Type::BYTEA => marked(TEXT, bytes, out),
            ValueRef::Blob(bytes) if bytes.first() == Some(&MARK) => marked(BLOB, bytes, out),
            // No text of PostgreSQL has it.
            ValueRef::Text(bytes) if bytes.contains(&0) => {
                let text = String::from_utf8_lossy(bytes).replace('\0', "\u{fffd}");
                PgToSql::to_sql(&text.as_bytes(), kind, out)
            }
            ValueRef::Text(bytes) | ValueRef::Blob(bytes) => PgToSql::to_sql(&bytes, kind, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

/// A value of a row.
struct Found<'a>(ValueRef<'a>);

impl<'a> PgFromSql<'a> for Found<'a> {
    fn from_sql(
        kind: &Type,
        raw: &'a [u8],
    ) -> std::result::Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(match *kind {
            Type::BOOL => ValueRef::Integer(bool::from_sql(kind, raw)?.into()),
            Type::INT2 => ValueRef::Integer(i16::from_sql(kind, raw)?.into()),
            Type::INT4 => ValueRef::Integer(i32::from_sql(kind, raw)?.into()),
            Type::INT8 => ValueRef::Integer(i64::from_sql(kind, raw)?),
            Type::BYTEA => match raw {
                [MARK, TEXT, text @ ..] => ValueRef::Text(text),
                [MARK, BLOB, bytes @ ..] => ValueRef::Blob(bytes),
                _ => ValueRef::Blob(raw),
            },
            _ => ValueRef::Text(raw),
        }))
    }

    fn from_sql_null(_: &Type) -> std::result::Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(ValueRef::Null))
    }

    fn accepts(kind: &Type) -> bool {
        let kinds = [
            Type::BOOL,
            Type::INT2,
            Type::INT4,
            Type::INT8,
            Type::BYTEA,
            Type::TEXT,
            Type::VARCHAR,
            Type::UNKNOWN,
        ];
        kinds.contains(kind)
    }
}

/// What names a column.
pub(crate) trait PgIndex: PgRowIndex + Display {}

impl<I: PgRowIndex + Display> PgIndex for I {}

pub(super) fn get_ref(row: &PgRow, column: impl PgIndex) -> Result<ValueRef<'_>> {
    let Found(value) = row.try_get(column).map_err(failed)?;
    Ok(value)
}

pub(super) fn get<T: FromSql>(row: &PgRow, column: impl PgIndex) -> Result<T> {
    let value = get_ref(row, column)?;
    T::column_result(value).map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(0, value.data_type(), error.into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(value: ValueRef<'_>, kind: &Type) -> Vec<u8> {
        let mut out = BytesMut::new();
        let value = Value(ToSqlOutput::Borrowed(value));
        PgToSql::to_sql(&value, kind, &mut out).unwrap();
        out.to_vec()
    }

    #[test]
    fn texts_have_no_nul_and_bytes_come_back_as_what_they_were() {
        let text = sent(ValueRef::Text(b"a\0b"), &Type::TEXT);
        assert_eq!(text, "a\u{fffd}b".as_bytes());
        for value in [
            ValueRef::Text(b""),
            ValueRef::Text(b"a\0b"),
            ValueRef::Blob(b""),
            ValueRef::Blob(b"\xff"),
            ValueRef::Blob(b"\xff\xfe<\0"),
            ValueRef::Blob(b"\xfftext"),
            ValueRef::Blob(b"plain"),
        ] {
            let bytes = sent(value, &Type::BYTEA);
            let Found(found) = Found::from_sql(&Type::BYTEA, &bytes).unwrap();
            assert_eq!(found, value);
        }
    }
}
