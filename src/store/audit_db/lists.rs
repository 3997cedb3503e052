//! The documents that an audit has read, so that each is read once however many indexes name it.

use resourcesync::Capability;
use url::Url;

use super::database::AuditDb;
use super::tables::list;
use crate::store::StoreError;

impl AuditDb {
    /// Notes that a document of a set is read now; returns its number, or `None` if it was noted before.
    pub fn begin_list(
        &self,
        set: u32,
        capability: &Capability,
        uri: &Url,
    ) -> Result<Option<i64>, StoreError> {
        self.transaction(|sql| Ok(list::insert(sql, set, capability, uri)?))
    }
}
