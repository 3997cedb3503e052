//! Membership of resources in sets, and the totals of the sets, which move with it.
//!
//! A membership has the part of the Resource List that named the resource. Three things must never happen:
//! - A resource is removed although a skipped part names it. One that several parts name has [`part::SEVERAL`];
//!   only a reading of all parts can show that it is absent.
//! - A resource stays although its part does not name it any more: a part vouches only for resources that it named when it was
//!   last read (`member.generation >= part.read`).
//! - A part is skipped that was read in part only: it is complete (it has a `filter`) from its end on.

use std::cell::Cell;
use std::collections::HashMap;
use std::ops::RangeInclusive;

use rusqlite::Connection;

use crate::store::error::StoreError;
use crate::store::ids::{PartId, ResourceId, SetId};
use crate::store::tables::membership::{self, Membership};
use crate::store::tables::{linked, part, resource, source_set};

/// Makes a resource belong to a set, or updates its membership. `before`: its membership until now; `live_length`: the length of
/// its file, if the mirror has one; `updates`: with which an update is written, if not at once.
pub(super) fn join(
    sql: &Connection,
    set: SetId,
    resource: ResourceId,
    live_length: Option<i64>,
    before: Option<Membership>,
    now: Membership,
    updates: Option<&MembershipUpdates>,
) -> Result<(), StoreError> {
    match (before, updates) {
        (Some(before), _) if before == now => {}
        (Some(_), Some(updates)) => updates.add(sql, set, resource, now)?,
        (Some(_), None) => membership::update(sql, set, resource, now)?,
        (None, _) => {
            membership::insert(sql, set, resource, now)?;
            if let Some(length) = live_length {
                source_set::add_totals(sql, set, 1, length)?;
            }
        }
    }
    Ok(())
}

/// Updates of the memberships of resources that a list names one after the other. A list mostly names resources in the order in which
/// they were added when it was read first: one statement updates all of them.
///
/// Invariant: between two updates every resource of a run was named, so that a run updates no other membership.
#[derive(Default)]
#[must_use = "the last run is to be written"]
pub(super) struct MembershipUpdates {
    run: Cell<Option<MembershipRun>>,
}

/// Resources with consecutive ids, and the membership that they get.
#[derive(Clone, Copy)]
struct MembershipRun {
    set: SetId,
    first: ResourceId,
    last: ResourceId,
    now: Membership,
}

impl MembershipRun {
    fn resources(&self) -> RangeInclusive<ResourceId> {
        self.first..=self.last
    }
}

impl MembershipUpdates {
    /// The membership of a resource. `stored`: what is stored of it.
    pub(super) fn membership(
        &self,
        set: SetId,
        resource: ResourceId,
        stored: Option<Membership>,
    ) -> Option<Membership> {
        let run = self.run.get();
        let run = run.filter(|run| run.set == set && run.resources().contains(&resource));
        // What has ended a membership has done so at once.
        stored.map(|stored| run.map_or(stored, |run| run.now))
    }

    fn add(
        &self,
        sql: &Connection,
        set: SetId,
        resource: ResourceId,
        now: Membership,
    ) -> Result<(), StoreError> {
        let run = self.run.get();
        let continued = run.filter(|run| {
            (run.set, run.now) == (set, now) && run.last.0.checked_add(1) == Some(resource.0)
        });
        let first = match continued {
            Some(run) => run.first,
            None => {
                self.write(sql)?;
                resource
            }
        };
        self.run.set(Some(MembershipRun {
            set,
            first,
            last: resource,
            now,
        }));
        Ok(())
    }

    /// Writes what is not written yet.
    pub(super) fn write(&self, sql: &Connection) -> Result<(), StoreError> {
        if let Some(run) = self.run.take() {
            membership::update_range(sql, run.set, run.resources(), run.now)?;
        }
        Ok(())
    }
}

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

/// The part of a resource that a list without parts names: its own, if that named it when it was last read.
pub(super) fn part_or_whole(
    sql: &Connection,
    membership: Option<Membership>,
) -> Result<i64, StoreError> {
    let Some(membership) = membership.filter(|it| it.is_listed()) else {
        return Ok(part::WHOLE);
    };
    let part = membership.part.unwrap_or(part::WHOLE);
    let was_left_out =
        part > part::SEVERAL && part::was_read_after(sql, part, membership.generation)?;
    Ok(if was_left_out { part::WHOLE } else { part })
}

/// Assigns resources to a part that is being read.
pub(super) struct PartAssignment<'a> {
    sql: &'a Connection,
    set: SetId,
    generation: i64,
    part: PartId,
    /// Whether any part may be skipped in this generation; `None`: not queried yet.
    any_may_be_skipped: Option<bool>,
}

impl<'a> PartAssignment<'a> {
    pub(super) fn new(sql: &'a Connection, set: SetId, generation: i64, part: PartId) -> Self {
        Self {
            sql,
            set,
            generation,
            part,
            any_may_be_skipped: None,
        }
    }

    /// The part of a resource that this part names. `before`: its membership until now.
    pub(super) fn part_of(&mut self, before: Option<Membership>) -> Result<i64, StoreError> {
        let Some(membership) = before else {
            return Ok(self.part.0);
        };
        let is_first_name = membership.generation < self.generation;
        let may_have_another = match membership.part {
            None | Some(part::LINKED | part::CLAIMED | part::WHOLE) => false,
            Some(part) if part == self.part.0 => false,
            _ if !is_first_name => true,
            Some(part::SEVERAL) => self.any_may_be_skipped()?,
            Some(other) => part::may_be_skipped(self.sql, other, self.generation)?,
        };
        Ok(if may_have_another {
            part::SEVERAL
        } else {
            self.part.0
        })
    }

    fn any_may_be_skipped(&mut self) -> Result<bool, StoreError> {
        if let Some(known) = self.any_may_be_skipped {
            return Ok(known);
        }
        let known = part::any_may_be_skipped(self.sql, self.set, self.generation)?;
        self.any_may_be_skipped = Some(known);
        Ok(known)
    }
}
