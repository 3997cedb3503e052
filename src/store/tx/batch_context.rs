//! What the changes of one document have in common within a transaction.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};

use chrono::{DateTime, Utc};
use resyncd_core::ResourceUri;

use super::ingest_listed::ListProgress;
use crate::store::change::Origin;
use crate::store::error::StoreError;
use crate::store::ids::{ResourceId, SetId};
use crate::store::named::Named;
use crate::store::sql::Connection;
use crate::store::tables::linked;
use crate::store::tables::resource::{ResourceState, StateQuery};
use crate::store::tables::source_set::SetTimes;

/// The set, the Source and the kind of document whose changes are applied.
pub(in crate::store) struct BatchContext<'a> {
    pub(super) sql: &'a Connection,
    /// What is known of the sets that have stated something.
    pub(super) times: RefCell<HashMap<i64, SetTimes>>,
    /// Prepared for the first change.
    states: RefCell<Option<StateQuery<'a>>>,
    pub(in crate::store) set: SetId,
    /// The label of the Source.
    pub(super) source: &'a str,
    pub(super) origin: Origin,
    /// The time on our clock.
    pub(super) now: DateTime<Utc>,
    /// The Resource List or Resource Dump that is being read.
    pub(super) reading: Option<&'a ListProgress>,
    /// Whether a task was dropped and another one, which restores the resource, has taken its place: its worker is to be woken, although
    /// no change has become a task.
    pub(super) has_restored: Cell<bool>,
    /// Whether versions are to be stored: who does that is to be woken.
    pub(super) has_versions: Cell<bool>,
    /// The entry of the feed that was appended last: its readers are to be woken.
    pub(super) last_entry: Cell<Option<i64>>,
    /// The other sets whose deletions have got tasks, which are to be decided.
    pub(super) deletions_of_others: RefCell<BTreeSet<SetId>>,
    /// Whether any resource is named by links of others; `None`: not queried yet.
    any_linked: Cell<Option<bool>>,
    /// How many linked resources were not followed, because the Source has as many resources as it may have.
    pub(super) unfollowed: Cell<u64>,
    /// The resources whose deletion is stated, or that were deleted.
    pub(super) deleted: RefCell<Named>,
}

impl<'a> BatchContext<'a> {
    pub(in crate::store) fn read(
        sql: &'a Connection,
        set: SetId,
        source: &'a str,
        origin: Origin,
        now: DateTime<Utc>,
    ) -> Result<Self, StoreError> {
        Ok(Self {
            sql,
            times: RefCell::default(),
            states: RefCell::new(None),
            set,
            source,
            origin,
            now,
            reading: None,
            has_restored: Cell::new(false),
            has_versions: Cell::new(false),
            last_entry: Cell::new(None),
            deletions_of_others: RefCell::default(),
            any_linked: Cell::new(None),
            unfollowed: Cell::new(0),
            deleted: RefCell::default(),
        })
    }

    /// Whether any resource is named by links of others.
    pub(super) fn any_linked(&self) -> Result<bool, StoreError> {
        if let Some(known) = self.any_linked.get() {
            return Ok(known);
        }
        let known = linked::any(self.sql)?;
        self.any_linked.set(Some(known));
        Ok(known)
    }

    /// Whether links of others name a resource, whatever its own entry states.
    pub(super) fn is_linked(&self, resource: ResourceId) -> Result<bool, StoreError> {
        Ok(self.any_linked()? && linked::is_named(self.sql, resource)?)
    }

    /// Notes that a link names a resource.
    pub(super) fn note_linked(&self) {
        self.any_linked.set(Some(true));
    }

    /// Counts a linked resource that is not followed.
    pub(super) fn count_unfollowed(&self) {
        self.unfollowed.set(self.unfollowed.get() + 1);
    }

    /// The state of a resource as the set sees it; `None`: it has no row.
    pub(in crate::store) fn state_of(
        &self,
        uri: &ResourceUri,
    ) -> Result<Option<ResourceState>, StoreError> {
        let mut states = self.states.borrow_mut();
        let states = match &mut *states {
            Some(prepared) => prepared,
            unprepared => unprepared.insert(StateQuery::new(self.sql)?),
        };
        Ok(states.state(self.source, uri, self.set)?)
    }
}
