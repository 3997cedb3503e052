//! What the changes of one document have in common within a transaction.

use std::cell::Cell;

use chrono::{DateTime, Utc};
use rusqlite::Connection;

use crate::protocol::SourceTime;
use crate::store::change::Origin;
use crate::store::error::StoreError;
use crate::store::ids::SetId;
use crate::store::tables::{coverage, source_set};

/// The set, the Source and the kind of document whose changes are applied.
pub(super) struct BatchContext<'a> {
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
    /// The entry of the feed that was appended last: its readers are to be woken.
    pub(super) last_entry: Cell<Option<i64>>,
}

impl<'a> BatchContext<'a> {
    pub(super) fn read(
        sql: &Connection,
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
            set,
            source,
            origin,
            now,
            generation: source_set::generation(sql, set)?,
            unbroken,
            has_restored: Cell::new(false),
            last_entry: Cell::new(None),
        })
    }
}
