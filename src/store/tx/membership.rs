//! Membership of resources in sets, and the totals of the sets, which move with it.
//!
//! A member remembers the part of the Resource List that named it. Three things must never happen:
//! - A member is removed although a skipped part names it. A member that several parts name belongs to [`part::SEVERAL`];
//!   only a reading of all parts can tell that it is absent.
//! - A member stays although its part does not name it any more: a part vouches only for members that it named when it was
//!   last read (`member.generation >= part.read`).
//! - A part is skipped that was read in part only: it is complete (it has a `filter`) from its end on.

use rusqlite::Connection;

use crate::store::error::StoreError;
use crate::store::ids::{PartId, ResourceId, SetId};
use crate::store::tables::member::{self, Membership};
use crate::store::tables::{part, resource, source_set};

/// Makes a resource a member of a set, or updates its membership. `before`: its membership until now.
pub(super) fn join(
    sql: &Connection,
    set: SetId,
    resource: ResourceId,
    before: Option<Membership>,
    now: Membership,
) -> Result<(), StoreError> {
    match before {
        Some(before) if before == now => {}
        Some(_) => member::update(sql, set, resource, now)?,
        None => {
            member::insert(sql, set, resource, now)?;
            if let Some(length) = resource::live_length(sql, resource)? {
                source_set::add_totals(sql, set, 1, length)?;
            }
        }
    }
    Ok(())
}

/// Ends a resource's membership in a set if it is a member of another, and returns whether it is.
pub(super) fn leave_if_shared(
    sql: &Connection,
    set: SetId,
    resource: ResourceId,
) -> Result<bool, StoreError> {
    if !member::is_in_another_set(sql, set, resource)? {
        return Ok(false);
    }
    let was_member = member::delete(sql, set, resource)?;
    if was_member && let Some(length) = resource::live_length(sql, resource)? {
        source_set::add_totals(sql, set, -1, -length)?;
    }
    Ok(true)
}

/// Corrects the totals for a file of `length` bytes that has replaced one of `before` bytes, or none.
pub(super) fn count_file(
    sql: &Connection,
    resource: ResourceId,
    before: Option<i64>,
    length: u64,
) -> Result<(), StoreError> {
    let length = i64::try_from(length).unwrap_or(i64::MAX);
    let (count, bytes) = match before {
        None => (1, length),
        Some(before) => (0, length - before),
    };
    Ok(source_set::add_totals_of_sets_of(
        sql, resource, count, bytes,
    )?)
}

/// The part of a member that a change names: its own, if that named it when it was last read.
pub(super) fn part_if_named(
    sql: &Connection,
    member: Membership,
) -> Result<Option<i64>, StoreError> {
    let Some(part) = member.part.filter(|&part| part != part::SEVERAL) else {
        return Ok(member.part);
    };
    let was_left_out = part::was_read_after(sql, part, member.generation)?;
    Ok(member.part.filter(|_| !was_left_out))
}

/// Assigns members to a part that is being read.
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
        let Some(member) = before else {
            return Ok(self.part.0);
        };
        let is_first_name = member.generation < self.generation;
        let may_have_another = match member.part {
            None => false,
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
