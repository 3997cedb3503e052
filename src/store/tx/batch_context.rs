//! What the changes of one document have in common within a transaction.

use std::cell::{Cell, RefCell};

use chrono::{DateTime, Utc};
use resourcesync::SourceTime;
use resyncd_core::ResourceUri;
use rusqlite::Connection;

use super::membership::MembershipUpdates;
use crate::store::change::Origin;
use crate::store::error::StoreError;
use crate::store::ids::{ResourceId, SetId};
use crate::store::tables::resource::{ResourceState, StateQuery};
use crate::store::tables::{coverage, linked, source_set};

/// The set, the Source and the kind of document whose changes are applied.
pub(super) struct BatchContext<'a> {
    sql: &'a Connection,
    /// Prepared for the first change.
    states: RefCell<Option<StateQuery<'a>>>,
    pub(super) set: SetId,
    /// The label of the Source.
    pub(super) source: &'a str,
    pub(super) origin: Origin,
    /// The time on our clock.
    pub(super) now: DateTime<Utc>,
    /// The current generation of the set's Resource List.
    pub(super) generation: i64,
    /// For listings: the end of the set's unbroken coverage. A change that the list reveals happened after it.
    pub(super) unbroken: Option<SourceTime>,
    /// Whether a task was dropped and another one, which restores the resource, has taken its place: its worker is to be woken, although
    /// no change has become a task.
    pub(super) has_restored: Cell<bool>,
    /// Whether versions are to be stored: who does that is to be woken.
    pub(super) has_versions: Cell<bool>,
    /// The entry of the feed that was appended last: its readers are to be woken.
    pub(super) last_entry: Cell<Option<i64>>,
    /// Whether any resource is named by links of others; `None`: not queried yet.
    any_linked: Cell<Option<bool>>,
    /// How many linked resources were not followed, because the Source has as many resources as it may have.
    pub(super) unfollowed: Cell<u64>,
    /// The updates of memberships that are to be written; `None`: each is written at once.
    pub(super) updates: Option<MembershipUpdates>,
}

impl<'a> BatchContext<'a> {
    pub(super) fn read(
        sql: &'a Connection,
        set: SetId,
        source: &'a str,
        origin: Origin,
        now: DateTime<Utc>,
    ) -> Result<Self, StoreError> {
        let unbroken = if origin.is_listing() {
            coverage::unbroken_until(sql, set)?
        } else {
            None
        };
        Ok(Self {
            sql,
            states: RefCell::new(None),
            set,
            source,
            origin,
            now,
            generation: source_set::generation(sql, set)?,
            unbroken,
            has_restored: Cell::new(false),
            has_versions: Cell::new(false),
            last_entry: Cell::new(None),
            any_linked: Cell::new(None),
            unfollowed: Cell::new(0),
            updates: None,
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
    pub(super) fn state_of(&self, uri: &ResourceUri) -> Result<Option<ResourceState>, StoreError> {
        let mut states = self.states.borrow_mut();
        let states = match &mut *states {
            Some(prepared) => prepared,
            unprepared => unprepared.insert(StateQuery::new(self.sql)?),
        };
        Ok(states.state(self.source, uri, self.set)?)
    }
}
