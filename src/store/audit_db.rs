//! The ledger of an audit: what the Source says now, what the database knows, and what was found, for one Source.
//!
//! It is a database of its own in a temporary file that has no name any more, so that nothing is left of it whatever
//! happens, and so that memory does not grow with the set. Every call blocks, those on single pages for a moment only.

mod findings;
mod known;
mod lists;

use std::path::Path;

use parking_lot::{Mutex, MutexGuard};
use rusqlite::{Connection, OpenFlags, Row, Transaction, params};

use super::change_batch::Change;
use super::schema::{BUSY_TIMEOUT, check_version};
use super::{DATABASE, StoreError, row};
use crate::protocol::{ChangeKind, Digest, ResourceUri, SourceTime};

pub use findings::{Finding, FindingKind, Outcome, Place};
pub use known::{KnownFile, KnownFiles};
pub use lists::PendingList;

const TABLES: &str = "
    -- What the Source says, the later word over the earlier one. present: 0 it is deleted, 1 it exists, 2 nobody can say.
    CREATE TABLE expected (
        id INTEGER PRIMARY KEY,
        uri TEXT NOT NULL UNIQUE,
        set_number INTEGER NOT NULL,
        document INTEGER NOT NULL,
        present INTEGER NOT NULL,
        told_at INTEGER NOT NULL,
        changed_at INTEGER,
        lastmod INTEGER,
        length INTEGER,
        media_type TEXT,
        hashes TEXT NOT NULL,
        path TEXT NOT NULL
    );
    CREATE INDEX expected_path ON expected (path);
    -- What the database knows of the Source's resources.
    CREATE TABLE known (
        uri TEXT PRIMARY KEY,
        path TEXT,
        length INTEGER,
        media_type TEXT,
        hashes TEXT NOT NULL,
        lastmod INTEGER,
        changed_at INTEGER,
        applied INTEGER NOT NULL,
        deleted INTEGER NOT NULL,
        wanted INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX known_path ON known (path);
    -- Documents that are to be read.
    CREATE TABLE list (
        id INTEGER PRIMARY KEY,
        set_number INTEGER NOT NULL,
        capability TEXT NOT NULL,
        uri TEXT NOT NULL,
        depth INTEGER NOT NULL,
        from_time INTEGER,
        until_time INTEGER,
        UNIQUE (set_number, capability, uri)
    );
    CREATE TABLE finding (
        id INTEGER PRIMARY KEY,
        kind TEXT NOT NULL,
        outcome TEXT NOT NULL DEFAULT 'found',
        set_number INTEGER,
        uri TEXT,
        path TEXT,
        expected INTEGER,
        differs TEXT NOT NULL DEFAULT '',
        length INTEGER,
        hashes TEXT NOT NULL DEFAULT '',
        code TEXT,
        message TEXT
    );
";

/// The ledger of one audit of one Source.
pub struct AuditDb {
    connection: Mutex<Connection>,
}

/// How a document tells what it tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Telling {
    /// A Resource List: of that time, all of it.
    Listed {
        /// The time that it is of.
        at: SourceTime,
    },
    /// A Change List: each entry of its own time.
    Changes {
        /// Whether its newest entry comes first.
        newest_first: bool,
        /// The time of the Resource List before it: an entry of an earlier time is of a day that had begun by then, and
        /// counts as of this one.
        since: Option<SourceTime>,
    },
}

/// What a file of the mirror should be.
#[derive(Clone, Debug)]
pub struct Expectation {
    /// Its number in the ledger: greater than 0.
    pub id: i64,
    /// The number of the set that told of it.
    pub set: u32,
    /// The resource.
    pub uri: ResourceUri,
    /// Where its file belongs, relative to the mirror.
    pub path: String,
    /// When it changed, as far as is told.
    pub changed_at: Option<SourceTime>,
    /// When it was last modified.
    pub lastmod: Option<SourceTime>,
    /// Its length, in bytes.
    pub length: Option<u64>,
    /// Its media type.
    pub media_type: Option<String>,
    /// Its digests.
    pub hashes: Vec<Digest>,
    /// Whether the database knows that the mirror has it.
    pub is_known: bool,
}

impl AuditDb {
    /// Begins one.
    ///
    /// # Errors
    /// [`StoreError`], also where no temporary file can be made.
    pub fn begin() -> Result<Self, StoreError> {
        let folder =
            tempfile::tempdir().map_err(|error| StoreError::Folder(std::env::temp_dir(), error))?;
        let connection = Connection::open(folder.path().join("ledger.db"))?;
        // Nobody else ever sees it, and after a crash nobody needs it.
        connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
        connection.pragma_update(None, "journal_mode", "OFF")?;
        connection.pragma_update(None, "synchronous", "OFF")?;
        connection.pragma_update(None, "temp_store", "FILE")?;
        connection.pragma_update(None, "cache_size", -16_384)?;
        connection.execute_batch(TABLES)?;
        Ok(Self {
            connection: Mutex::new(connection),
        })
    }

    fn sql(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock()
    }

    /// Runs several statements as one transaction, which is much faster than one by one.
    fn together<T>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut sql = self.sql();
        let together = sql.transaction()?;
        let done = work(&together)?;
        together.commit()?;
        Ok(done)
    }

    /// Takes what a document of a set tells. `document`: a number of its own.
    ///
    /// The later word counts: the time of the list, or of the change, decides, and where it is the same, the order in which
    /// it is told. What tells no time at all can only raise doubts.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn tell(
        &self,
        set: u32,
        document: i64,
        telling: Telling,
        entries: &[Change],
    ) -> Result<(), StoreError> {
        self.together(|sql| {
            for entry in entries {
                tell(sql, set, document, telling, entry)?;
            }
            Ok(())
        })
    }

    /// How many files are expected.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn expected(&self) -> Result<u64, StoreError> {
        let count = self.sql().query_row(
            "SELECT COUNT(*) FROM expected WHERE present = 1",
            [],
            |row| row.get(0),
        )?;
        Ok(row::unsigned(count))
    }

    /// What is expected to be in the mirror, after a number of the ledger, in its order.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn expectations(&self, after: i64, limit: usize) -> Result<Vec<Expectation>, StoreError> {
        let sql = self.sql();
        let mut query = sql.prepare_cached(&format!(
            "{EXPECTATION} WHERE expected.id > ?1 AND expected.present = 1 ORDER BY expected.id LIMIT ?2"
        ))?;
        let mut rows = query.query(params![after, row::signed(limit as u64)])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            found.push(expectation(row)?);
        }
        Ok(found)
    }

    /// One expectation, by its number.
    ///
    /// # Errors
    /// [`StoreError`], also when there is none of that number.
    pub fn expectation(&self, id: i64) -> Result<Expectation, StoreError> {
        let sql = self.sql();
        let mut query = sql.prepare_cached(&format!("{EXPECTATION} WHERE expected.id = ?1"))?;
        let mut rows = query.query([id])?;
        let row = rows.next()?.ok_or(StoreError::BadRow("an expectation"))?;
        expectation(row)
    }
}

const EXPECTATION: &str =
    "SELECT expected.id, expected.set_number, expected.uri, expected.path, expected.changed_at,
    expected.lastmod, expected.length, expected.media_type, expected.hashes,
    COALESCE(known.applied AND NOT known.deleted, 0)
    FROM expected LEFT JOIN known ON known.uri = expected.uri";

fn expectation(found: &Row<'_>) -> Result<Expectation, StoreError> {
    Ok(Expectation {
        id: found.get(0)?,
        set: found.get(1)?,
        uri: row::resource_uri(&found.get::<_, String>(2)?)?,
        path: found.get(3)?,
        changed_at: row::source_time(found.get(4)?),
        lastmod: row::source_time(found.get(5)?),
        length: found.get::<_, Option<i64>>(6)?.map(row::unsigned),
        media_type: found.get(7)?,
        hashes: row::hashes(&found.get::<_, String>(8)?),
        is_known: found.get(9)?,
    })
}

fn tell(
    sql: &Connection,
    set: u32,
    document: i64,
    telling: Telling,
    entry: &Change,
) -> Result<(), StoreError> {
    let deleted = entry.kind == ChangeKind::Deleted;
    let told_at = match telling {
        Telling::Listed { at } => Some(at),
        Telling::Changes { since, .. } => entry
            .changed_at
            .map(|told| since.map_or(told, |since| told.max(since))),
    };
    let Some(told_at) = told_at else {
        return doubt(sql, set, document, entry);
    };
    let newest_first = matches!(
        telling,
        Telling::Changes {
            newest_first: true,
            ..
        }
    );
    let later = "UPDATE expected SET set_number = ?2, document = ?3, present = ?4, told_at = ?5, changed_at = ?6,
             lastmod = ?7, length = ?8, media_type = ?9, hashes = ?10
         WHERE uri = ?1 AND (told_at < ?5 OR (told_at = ?5 AND NOT (?11 AND document = ?3)))";
    let told = sql.prepare_cached(later)?.execute(params![
        entry.uri.as_str(),
        set,
        document,
        i64::from(!deleted),
        told_at.micros(),
        entry.changed_at.map(SourceTime::micros),
        entry.lastmod.map(SourceTime::micros),
        entry.length.map(row::signed),
        entry.media_type,
        row::hashes_text(&entry.hashes),
        newest_first,
    ])?;
    if told == 0 {
        add(sql, set, document, entry, i64::from(!deleted), told_at)?;
    }
    Ok(())
}

/// Takes what tells no time. It may be older than what is known, so that after a change nobody can say what the bytes are,
/// and after a deletion not even whether there are any.
fn doubt(sql: &Connection, set: u32, document: i64, entry: &Change) -> Result<(), StoreError> {
    let deleted = entry.kind == ChangeKind::Deleted;
    let doubted = sql
        .prepare_cached(
            "UPDATE expected SET present = CASE WHEN ?2 OR present <> 1 THEN 2 ELSE 1 END,
                 lastmod = NULL, length = NULL, media_type = NULL, hashes = '' WHERE uri = ?1",
        )?
        .execute(params![entry.uri.as_str(), deleted])?;
    if doubted == 0 {
        let bare = Change {
            lastmod: None,
            length: None,
            media_type: None,
            hashes: Vec::new(),
            ..entry.clone()
        };
        add(
            sql,
            set,
            document,
            &bare,
            if deleted { 2 } else { 1 },
            SourceTime::MIN,
        )?;
    }
    Ok(())
}

/// Adds a resource that was not told of, with a path of its own; one that is known by a later word stays as it is.
fn add(
    sql: &Connection,
    set: u32,
    document: i64,
    entry: &Change,
    present: i64,
    told_at: SourceTime,
) -> Result<(), StoreError> {
    let mut taken = sql.prepare_cached("SELECT 1 FROM expected WHERE path = ?1")?;
    let paths = (entry.paths)(&entry.uri);
    let path = match paths.plain {
        Some(plain) if !taken.exists([&plain])? => plain,
        _ => paths.made,
    };
    sql.prepare_cached(
        "INSERT INTO expected (uri, set_number, document, present, told_at, changed_at, lastmod, length, media_type,
                               hashes, path)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11) ON CONFLICT (uri) DO NOTHING",
    )?
    .execute(params![
        entry.uri.as_str(),
        set,
        document,
        present,
        told_at.micros(),
        entry.changed_at.map(SourceTime::micros),
        entry.lastmod.map(SourceTime::micros),
        entry.length.map(row::signed),
        entry.media_type,
        row::hashes_text(&entry.hashes),
        path,
    ])?;
    Ok(())
}

/// Opens the database in a folder only to read it, also while another process writes it; `None`: there is none.
fn open_to_read(folder: &Path) -> Result<Option<Connection>, StoreError> {
    let path = folder.join(DATABASE);
    if !path.exists() {
        return Ok(None);
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(&path, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    check_version(&connection, &path)?;
    Ok(Some(connection))
}

#[cfg(test)]
mod tests;
