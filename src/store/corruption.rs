//! A damaged database: SQLite finds it so when it is opened or used, or an integrity check does. Nothing else is proof: a row or a schema
//! that this program can't read is an error that is shown.
//!
//! A running daemon can't repair it. It ends, and a marker file beside the database has the next start check it completely. If it fails the
//! check it is set aside and rebuilt from the mirror and a baseline.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::InterruptHandle;
use tokio_util::sync::CancellationToken;

use super::error::StoreError;
use super::schema;
use super::sql::Connection;

/// Up to this size, in bytes, a database is checked before it is used; a larger one while it is used.
const CHECKED_FIRST: u64 = 64 << 20;
/// How many databases that were set aside are retained. When there are more the last one is replaced.
const MOST_ASIDE: u32 = 3;

/// The pause before a check that continues in spite of an interruption is interrupted again.
const INTERRUPTION_PAUSE: Duration = Duration::from_millis(2);

/// Whether damage was found, for this process and for the next start.
pub(super) struct Damage {
    marker: PathBuf,
    found: CancellationToken,
    replaced: CancellationToken,
}

impl Damage {
    pub(super) fn of(database: &Path) -> Self {
        Self {
            marker: beside(database, ".damage-met"),
            found: CancellationToken::new(),
            replaced: CancellationToken::new(),
        }
    }

    /// Checks a database in which an earlier process has found damage.
    ///
    /// # Errors
    /// [`StoreError::Damaged`], or SQLite's error.
    pub(super) fn recheck(&self, connection: &Connection) -> Result<(), StoreError> {
        if !self.was_found() {
            return Ok(());
        }
        check(connection)?;
        let marker = &self.marker;
        self.clear()
            .map_err(|error| StoreError::Folder(marker.clone(), error))?;
        tracing::warn!(marker = %marker.display(), "database is not damaged, although an earlier process has met damage");
        Ok(())
    }

    /// Whether an earlier process has found damage.
    pub(super) fn was_found(&self) -> bool {
        self.marker.exists()
    }

    /// Removes the marker, after the database was set aside or is found to be sound.
    pub(super) fn clear(&self) -> std::io::Result<()> {
        match std::fs::remove_file(&self.marker) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Notes that this node was found dead.
    pub(super) fn replace(&self) {
        self.replaced.cancel();
    }

    /// Notes an error if it shows damage, or that another node works on the database.
    pub(super) fn note(&self, error: &StoreError) {
        if error.code() == "database-held" {
            self.replace();
        }
        if error.code() != "database-damaged" || self.found.is_cancelled() {
            return;
        }
        self.found.cancel();
        tracing::error!(code = "database-damaged", %error,
            "database damaged; stopping: the next start checks the database, and sets it aside and rebuilds it if it is damaged");
        if let Err(error) = std::fs::write(&self.marker, format!("{error}\n")) {
            // The next start checks the database itself.
            tracing::error!(code = "state-folder", marker = %self.marker.display(), %error, "marker of the damaged database can't be written");
        }
    }

    /// Waits until another node works on the database.
    pub(super) async fn replaced(&self) {
        self.replaced.cancelled().await;
    }

    /// Waits until damage is found.
    pub(super) async fn found(&self) {
        self.found.cancelled().await;
    }
}

/// Checks a database with its indexes. A valid value in place of another one is not found.
pub(super) fn check(connection: &Connection) -> Result<(), StoreError> {
    let Some(connection) = connection.sqlite() else {
        return Ok(());
    };
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

/// Whether a database is small enough to be checked before it is used.
pub(super) fn is_checked_first(database: &Path) -> bool {
    let length = |path: &Path| std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    length(database) + length(&beside(database, "-wal")) <= CHECKED_FIRST
}

/// An integrity check while the database is used; dropping it interrupts it.
pub(super) struct Check {
    interrupt: InterruptHandle,
    thread: Option<JoinHandle<()>>,
}

impl Check {
    pub(super) fn begin(database: &Path, damage: Arc<Damage>) -> Result<Self, StoreError> {
        let connection = schema::open_to_read(database)?;
        let sqlite = connection.sqlite().ok_or(StoreError::OnServer)?;
        let interrupt = sqlite.get_interrupt_handle();
        let thread = std::thread::Builder::new()
            .name("store-check".into())
            .spawn(move || {
                // Only damage is noted: neither an interruption nor a disk that can't be read for now.
                if let Err(error) = check(&connection) {
                    damage.note(&error);
                }
            });
        let thread = thread.map_err(StoreError::Thread)?;
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
        // A check that has not begun can't be interrupted: repeat until it has ended.
        while !thread.is_finished() {
            self.interrupt.interrupt();
            std::thread::sleep(INTERRUPTION_PAUSE);
        }
        // It has ended, or panicked.
        let _ = thread.join();
    }
}

/// Renames a damaged database, with the files beside it, to names that are free, or else to the last ones.
pub(super) fn set_aside(database: &Path) -> std::io::Result<PathBuf> {
    let mut names = (1..=MOST_ASIDE).map(aside);
    let free = names.find(|suffix| !beside(database, suffix).exists());
    let suffix = free.unwrap_or_else(|| aside(MOST_ASIDE));
    rename(database, &suffix)
}

/// Renames a database that another one replaces, with the files beside it, to names that are free.
pub(super) fn replace(database: &Path) -> std::io::Result<PathBuf> {
    let mut names = (1_u64..).map(|number| format!(".replaced-{number}"));
    let free = names.find(|suffix| !beside(database, suffix).exists());
    rename(database, &free.unwrap_or_default())
}

fn rename(database: &Path, suffix: &str) -> std::io::Result<PathBuf> {
    for companion in ["", "-wal", "-shm"] {
        let to = beside(database, &format!("{suffix}{companion}"));
        match std::fs::rename(beside(database, companion), &to) {
            // An older file of that name belongs to another database.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let _ = std::fs::remove_file(to);
            }
            renamed => renamed?,
        }
    }
    Ok(beside(database, suffix))
}

fn aside(number: u32) -> String {
    format!(".damaged-{number}")
}

pub(super) fn beside(database: &Path, suffix: &str) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
