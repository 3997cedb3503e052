//! Membership of resources in sets, and the totals of the sets, which move with it.

use std::collections::HashMap;

use crate::store::error::StoreError;
use crate::store::ids::{ResourceId, SetId};
use crate::store::sql::Connection;
use crate::store::tables::{linked, membership, resource, source_set};

/// Ends a resource's membership in a set if it belongs to another, and returns whether it does.
pub(super) fn leave_if_shared(
    sql: &Connection,
    set: SetId,
    resource: ResourceId,
) -> Result<bool, StoreError> {
    if !membership::is_in_another_set(sql, set, resource)? {
        return Ok(false);
    }
    leave(sql, set, resource)?;
    Ok(true)
}

/// Ends a resource's membership in a set, if it has one.
pub(super) fn leave(sql: &Connection, set: SetId, resource: ResourceId) -> Result<(), StoreError> {
    let had_belonged = membership::delete(sql, set, resource)?;
    linked::end_all_of(sql, resource, set)?;
    if had_belonged && let Some(length) = resource::live_length(sql, resource)? {
        source_set::add_totals(sql, set, -1, -length)?;
    }
    Ok(())
}

/// By how much the totals of sets change with the files of a transaction. They are written once, at its end: most files of a batch
/// are those of one set.
#[derive(Default)]
#[must_use = "the totals are to be written"]
pub(super) struct TotalsChange(HashMap<SetId, (i64, i64)>);

impl TotalsChange {
    /// Counts a file of `length` bytes that has replaced one of `before` bytes, or none.
    pub(super) fn count_file(
        &mut self,
        sql: &Connection,
        resource: ResourceId,
        before: Option<i64>,
        length: u64,
    ) -> Result<(), StoreError> {
        let length = i64::try_from(length).unwrap_or(i64::MAX);
        match before {
            None => self.add(sql, resource, 1, length),
            Some(before) => self.add(sql, resource, 0, length - before),
        }
    }

    /// Counts the removal of a file of `length` bytes. The resource still belongs to its sets.
    pub(super) fn count_removal(
        &mut self,
        sql: &Connection,
        resource: ResourceId,
        length: i64,
    ) -> Result<(), StoreError> {
        self.add(sql, resource, -1, -length)
    }

    /// Adds to each set that a resource belongs to.
    fn add(
        &mut self,
        sql: &Connection,
        resource: ResourceId,
        resources: i64,
        bytes: i64,
    ) -> Result<(), StoreError> {
        if (resources, bytes) == (0, 0) {
            return Ok(());
        }
        for set in membership::sets_of(sql, resource)? {
            let change = self.0.entry(set).or_default();
            change.0 += resources;
            change.1 = change.1.saturating_add(bytes);
        }
        Ok(())
    }

    /// Writes the totals.
    pub(super) fn write(self, sql: &Connection) -> Result<(), StoreError> {
        for (set, (resources, bytes)) in self.0 {
            source_set::add_totals(sql, set, resources, bytes)?;
        }
        Ok(())
    }
}
