//! Where a state is.

use std::path::{Path, PathBuf};

use rusqlite::OpenFlags;

use super::error::StoreError;
use super::schema;
use super::sql::Connection;
#[cfg(feature = "postgres")]
use super::sql::Server;

/// Where a state is: in a folder, whose database is SQLite's unless it is on a server.
#[derive(Clone)]
pub struct StatePlace {
    /// What belongs to this machine: locks, unfinished files, and SQLite's database.
    pub(super) folder: PathBuf,
    #[cfg(feature = "postgres")]
    pub(super) server: Option<Server>,
}

impl<P: AsRef<Path> + ?Sized> From<&P> for StatePlace {
    fn from(folder: &P) -> Self {
        Self {
            folder: folder.as_ref().to_owned(),
            #[cfg(feature = "postgres")]
            server: None,
        }
    }
}

impl StatePlace {
    /// The file of SQLite's database.
    pub(super) fn database(&self) -> PathBuf {
        self.folder.join(schema::DATABASE)
    }

    /// Whether the database is on a server.
    pub(super) fn is_on_server(&self) -> bool {
        #[cfg(feature = "postgres")]
        return self.server.is_some();
        #[cfg(not(feature = "postgres"))]
        false
    }

    /// A connection that writes; a new database gets its schema.
    pub(super) fn open(&self) -> Result<Connection, StoreError> {
        #[cfg(feature = "postgres")]
        if let Some(server) = &self.server {
            return schema::open_on_server(server);
        }
        schema::open(&self.database())
    }

    /// A connection that only reads.
    pub(super) fn open_to_read(&self) -> Result<Connection, StoreError> {
        #[cfg(feature = "postgres")]
        if let Some(server) = &self.server {
            return Ok(server.open()?);
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = rusqlite::Connection::open_with_flags(self.database(), flags)?;
        schema::configure(&connection)?;
        Ok(connection.into())
    }
}
