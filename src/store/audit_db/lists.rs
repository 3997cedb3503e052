//! The documents that an audit has still to read, so that an index of any length fits.

use super::database::AuditDb;
use super::tables::list::{self, PendingList};
use crate::protocol::Capability;
use crate::store::StoreError;

impl AuditDb {
    /// Adds documents of a set that are to be read, each once, however often it is named.
    pub fn note_lists(
        &self,
        set: u32,
        capability: &Capability,
        lists: &[PendingList],
    ) -> Result<(), StoreError> {
        self.transaction(|sql| {
            for list in lists {
                list::insert(sql, set, capability, list)?;
            }
            Ok(())
        })
    }

    /// The next document of a set after an id, in the order in which they were added, with its own id.
    pub fn next_list(
        &self,
        set: u32,
        capability: &Capability,
        after: i64,
    ) -> Result<Option<(i64, PendingList)>, StoreError> {
        Ok(list::next(&self.sql(), set, capability, after)?)
    }
}
