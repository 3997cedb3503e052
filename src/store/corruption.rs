//! A database that is damaged: found when it is opened, by a look at all of it, or when something in it can't be read.
//!
//! A daemon can't mend it while it works with it. It ends, and the next start sets the database aside: what it held comes
//! back from the mirror and a baseline. A marker beside the database carries that over the restart.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::{Connection, InterruptHandle, OpenFlags};
use tokio_util::sync::CancellationToken;

use super::StoreError;

/// Up to this size, in bytes, a database is looked at as a whole before it is used; a larger one while it is used.
const CHECKED_FIRST: u64 = 64 << 20;
/// How many databases are kept that were set aside. The last of them is replaced when there are more.
const KEPT_ASIDE: u32 = 3;

/// The pause before what goes on in spite of an interruption is interrupted again.
const INTERRUPTED_AGAIN: Duration = Duration::from_millis(2);

/// Whether damage was met, and what the next start is to know of it.
pub(super) struct Damage {
    marker: PathBuf,
    /// Whether a row that makes no sense counts. It does not when databases were set aside again and again: then they were
    /// not what was wrong.
    rows_count: bool,
    met: CancellationToken,
}

impl Damage {
    pub(super) fn of(database: &Path) -> Self {
        Self {
            marker: beside(database, ".damage-met"),
            rows_count: !beside(database, &aside(KEPT_ASIDE)).exists(),
            met: CancellationToken::new(),
        }
    }

    /// Whether an earlier process met damage and could do nothing about it.
    pub(super) fn was_met(&self) -> bool {
        self.marker.exists()
    }

    /// Forgets it: the database was set aside.
    pub(super) fn forget(&self) -> std::io::Result<()> {
        match std::fs::remove_file(&self.marker) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Takes note of an error, if it tells of damage.
    pub(super) fn note(&self, error: &StoreError) {
        let tells = match error.code() {
            "database-damaged" => true,
            _ => self.rows_count && is_bad_row(error),
        };
        if !tells || self.met.is_cancelled() {
            return;
        }
        self.met.cancel();
        tracing::error!(code = "database-damaged", %error, "the database is damaged: it has to be set aside by a restart");
        if let Err(error) = std::fs::write(&self.marker, format!("{error}\n")) {
            // The next start looks for itself.
            tracing::error!(code = "state-folder", marker = %self.marker.display(), %error, "the damage can't be marked");
        }
    }

    /// Waits until damage is met.
    pub(super) async fn met(&self) {
        self.met.cancelled().await;
    }
}

/// Whether a row holds what this program never writes.
fn is_bad_row(error: &StoreError) -> bool {
    use rusqlite::Error;
    match error {
        StoreError::BadRow(_) => true,
        StoreError::Sqlite(error) => matches!(
            error,
            Error::FromSqlConversionFailure(..)
                | Error::IntegralValueOutOfRange(..)
                | Error::InvalidColumnType(..)
                | Error::Utf8Error(..)
        ),
        _ => false,
    }
}

/// Looks at a database as a whole, its indexes included. What is a valid value where another one stood, nobody can see.
pub(super) fn check(connection: &Connection) -> Result<(), StoreError> {
    let mut found = String::new();
    connection.pragma(None, "integrity_check", 1, |row| {
        found = row.get(0)?;
        Ok(())
    })?;
    match found.as_str() {
        "ok" => Ok(()),
        _ => Err(StoreError::Damaged(found)),
    }
}

/// Whether a database is small enough to be looked at before it is used.
pub(super) fn is_checked_first(database: &Path) -> bool {
    let length = |path: &Path| std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    length(database) + length(&beside(database, "-wal")) <= CHECKED_FIRST
}

/// A look at the whole database while others work with it; ends early when it is dropped.
pub(super) struct Check {
    interrupt: InterruptHandle,
    thread: Option<JoinHandle<()>>,
}

impl Check {
    pub(super) fn begin(database: &Path, damage: Arc<Damage>) -> Result<Self, StoreError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(database, flags)?;
        let interrupt = connection.get_interrupt_handle();
        let thread = std::thread::Builder::new()
            .name("store-check".into())
            .spawn(move || {
                // An interruption is no damage, and neither is a disk that can't be read for now.
                if let Err(error) = check(&connection) {
                    damage.note(&error);
                }
            });
        let thread = thread.map_err(|error| StoreError::Folder(database.to_owned(), error))?;
        Ok(Self {
            interrupt,
            thread: Some(thread),
        })
    }
}

impl Drop for Check {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else {
            return;
        };
        // Whoever has not begun can't be interrupted: it is done again until it helps.
        while !thread.is_finished() {
            self.interrupt.interrupt();
            std::thread::sleep(INTERRUPTED_AGAIN);
        }
        // It panicked, or it is done.
        let _ = thread.join();
    }
}

/// Renames a database that can't be read, with its companions, to names that are free, or else to the last ones.
pub(super) fn set_aside(database: &Path) -> std::io::Result<PathBuf> {
    let mut names = (1..=KEPT_ASIDE).map(aside);
    let free = names.find(|suffix| !beside(database, suffix).exists());
    let suffix = free.unwrap_or_else(|| aside(KEPT_ASIDE));
    for companion in ["", "-wal", "-shm"] {
        let to = beside(database, &format!("{suffix}{companion}"));
        match std::fs::rename(beside(database, companion), &to) {
            // One that was there before belongs to another database.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let _ = std::fs::remove_file(to);
            }
            renamed => renamed?,
        }
    }
    Ok(beside(database, &suffix))
}

fn aside(number: u32) -> String {
    format!(".damaged-{number}")
}

fn beside(database: &Path, suffix: &str) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
