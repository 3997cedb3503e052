//! The state database, opened to read while a daemon may be writing it.

use resyncd_core::ResourceUri;

use crate::store::StoreError;
use crate::store::place::StatePlace;
use crate::store::sql::Connection;
use crate::store::tables::resource::audit::{self, KnownFile};
use crate::store::tables::source_set::SetRecord;
use crate::store::tables::{gap, inbox, source_set};

/// The state database, to look single files up.
pub struct KnownFiles {
    connection: Connection,
}

impl KnownFiles {
    /// Opens the database of a place; `None`: there is none.
    pub fn open(place: &StatePlace) -> Result<Option<Self>, StoreError> {
        let connection = place.open_to_read()?;
        Ok(connection.map(|connection| Self { connection }))
    }

    /// Whether there are changes of a Source that are not known yet: a delivery is in the inbox, or there is a gap.
    pub fn is_behind(&self, source: &str) -> Result<bool, StoreError> {
        let sql = &self.connection;
        Ok(inbox::has_any(sql, source)? || gap::has_any(sql, source)?)
    }

    /// The sets of a Source that are followed.
    pub fn sets(&self, source: &str) -> Result<Vec<SetRecord>, StoreError> {
        Ok(source_set::followed(&self.connection, source)?)
    }

    /// The file of a resource, by its URI or, without one, by its path.
    pub fn of(
        &self,
        source: &str,
        uri: Option<&str>,
        path: Option<&str>,
    ) -> Result<Option<KnownFile>, StoreError> {
        let uri = match uri.map(ResourceUri::parse) {
            // That of a document.
            Some(Err(_)) => return Ok(None),
            Some(Ok(uri)) => Some(uri),
            None => None,
        };
        Ok(audit::known_file(
            &self.connection,
            source,
            uri.as_ref(),
            path,
        )?)
    }
}
