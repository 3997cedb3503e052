//! The resource that a change is about: its row, its membership and its task.

use resourcesync::{ChangeKind, SourceTime};
use resyncd_core::{Decision, LocalState, Pending, ResourceUri, plan_change};
use resyncd_mirror::first_path;
use rusqlite::Connection;

use super::batch_context::BatchContext;
use super::membership::{PartAssignment, join, leave_if_shared, part_if_named};
use super::put_task::RequestedAgain;
use super::restore::doubt_and_restore;
use crate::store::change::{Change, Origin};
use crate::store::error::StoreError;
use crate::store::ids::{ResourceId, SetId};
use crate::store::tables::feed::{self, LINKED, NewEntry};
use crate::store::tables::membership::Membership;
use crate::store::tables::resource::{self, ResourceState};
use crate::store::tables::tally::Tallied;
use crate::store::tables::{
    coverage, dropped_task, part, resource_count, source_set, task, tombstone, version,
};

impl ResourceState {
    /// Reads the state of a change's resource. A resource that has no row gets one, with a path of its own.
    pub(super) fn of_change(
        sql: &Connection,
        context: &BatchContext<'_>,
        change: &Change,
    ) -> Result<Self, StoreError> {
        let state = context.state_of(&change.uri)?;
        if let Some(mut state) = state {
            if let Some(updates) = &context.updates {
                state.membership = updates.membership(context.set, state.id, state.membership);
            }
            if state.announced_by != context.set {
                source_set::set_sharing(sql, context.set, state.announced_by)?;
            }
            return Ok(state);
        }
        Ok(Self {
            id: add_resource(sql, context, change)?,
            known: None,
            pending: None,
            is_pending_of_own_list: false,
            pending_set: None,
            is_interrupted: false,
            is_doubted: false,
            has_links: false,
            announced_by: context.set,
            membership: None,
            applied_at: None,
            is_respelled: false,
        })
    }

    /// Stores how an entry writes the URI, which is how it is requested and shown from then on. Call it only with the entry that counts for
    /// the resource. Who may not speak for the Source does not decide that: it could have the resource requested without TLS.
    pub(super) fn respell(&self, sql: &Connection, change: &Change) -> Result<(), StoreError> {
        if self.is_respelled && !change.unconfirmed {
            resource::set_spelling(sql, self.id, &change.uri)?;
        }
        Ok(())
    }

    /// The state once it is known which set decides: if another one has announced the deletion that is pending, the resource
    /// leaves that set at once, and this one decides. A deletion of another set that was applied already decides nothing about a
    /// resource that this one names, unless this one has been read up to then, or the other one is no longer followed.
    /// A `change` that is a deletion does not name the resource: that counts only if it belongs to the set.
    pub(super) fn decided_for(
        mut self,
        sql: &Tallied<'_>,
        context: &BatchContext<'_>,
        change: &Change,
    ) -> Result<Self, StoreError> {
        let names = change.kind != ChangeKind::Deleted;
        if names
            && self.announced_by != context.set
            && let Some(known) = self.known.as_mut().filter(|known| known.deleted)
            && coverage::unbroken_until(sql, context.set)? < known.changed_at
            && source_set::is_followed(sql, self.announced_by)?
        {
            known.changed_at = None;
        }
        let is_of_other = |set: &SetId| *set != context.set && self.is_deletion_pending();
        let Some(other) = self.pending_set.filter(is_of_other) else {
            return Ok(self);
        };
        // A change that is older than what is known says nothing about the deletion of the other set: the Source is asked.
        let counts = context.origin.is_listing()
            || plan_change(&change.announced(), self.known.as_ref(), None) != Decision::Older;
        if !counts {
            return Ok(self);
        }
        if names && self.membership.is_none() {
            self.join_changed(sql, context, change.unconfirmed)?;
            self.membership = Some(Membership {
                generation: context.generation,
                part: change.unconfirmed.then_some(part::CLAIMED),
                named_at: None,
            });
        }
        if self.membership.is_some() && leave_if_shared(sql, other, self.id)? {
            let stated = self.pending.filter(|it| !it.is_listed && !it.unconfirmed);
            if let Some(deleted_at) = stated.and_then(|it| it.changed_at) {
                tombstone::put(sql, other, self.id, deleted_at)?;
            }
            self.pending = self.drop_deletion(sql, context, &change.uri)?;
            self.pending_set = self.pending.is_some().then_some(context.set);
            self.is_interrupted = false;
        }
        Ok(self)
    }

    /// Stores that the set states the deletion of a resource of which the row or the task are those of another set: its own older entries
    /// do not restore it then.
    pub(super) fn note_deletion(
        &self,
        sql: &Connection,
        set: SetId,
        deletion: &Change,
    ) -> Result<(), StoreError> {
        let is_of_another =
            self.announced_by != set || self.pending_set.is_some_and(|other| other != set);
        if let Some(deleted_at) = deletion.changed_at
            && is_of_another
            && !deletion.unconfirmed
        {
            tombstone::put(sql, set, self.id, deleted_at)?;
        }
        Ok(())
    }

    /// When the set has stated the deletion of a resource that does not belong to it.
    pub(super) fn deleted_at(
        &self,
        sql: &Connection,
        set: SetId,
    ) -> Result<Option<SourceTime>, StoreError> {
        // Most resources are new.
        let was_here = self.known.is_some() || self.pending.is_some();
        if self.membership.is_some() || !was_here {
            return Ok(None);
        }
        Ok(tombstone::deleted_at(sql, set, self.id)?)
    }

    /// Drops a pending deletion that does not count any more. A change that it has replaced need not be stated once more: then the
    /// resource is requested again for this set. Returns what is pending now.
    pub(super) fn drop_deletion(
        &self,
        sql: &Tallied<'_>,
        context: &BatchContext<'_>,
        uri: &ResourceUri,
    ) -> Result<Option<Pending>, StoreError> {
        let Some(since) = task::replaced_since(sql, self.id)? else {
            self.drop_task(sql, context)?;
            return Ok(None);
        };
        let again = RequestedAgain {
            resource: self.id,
            source: context.source,
            uri,
            set: context.set,
            origin: Origin::ChangeList,
            is_live: self.live_length().is_some(),
        };
        again.put(sql, context.now, since)?;
        context.has_restored.set(true);
        Ok(Some(again.pending()))
    }

    /// Whether the deletion of a document that was not ingested to its end is pending, and this set has stated it.
    pub(super) fn is_own_interrupted(&self, set: SetId) -> bool {
        self.is_interrupted && self.pending_set == Some(set)
    }

    /// Makes the resource belong to the set because a change names it. `unconfirmed`: only who may not speak for the Source states that
    /// change.
    pub(super) fn join_changed(
        &self,
        sql: &Connection,
        context: &BatchContext<'_>,
        unconfirmed: bool,
    ) -> Result<(), StoreError> {
        self.join_named(sql, context, None, unconfirmed)
    }

    /// As [`join_changed`](Self::join_changed), because of a change of that time that is older than what is known.
    pub(super) fn join_older(
        &self,
        sql: &Connection,
        context: &BatchContext<'_>,
        change: &Change,
    ) -> Result<(), StoreError> {
        let changed_at = change.changed_at;
        let named_at = match self.membership {
            None => changed_at,
            Some(membership) => membership
                .named_at
                .zip(changed_at)
                .map(|(one, other)| one.max(other)),
        };
        self.join_named(sql, context, named_at, change.unconfirmed)
    }

    fn join_named(
        &self,
        sql: &Connection,
        context: &BatchContext<'_>,
        named_at: Option<SourceTime>,
        unconfirmed: bool,
    ) -> Result<(), StoreError> {
        let part = match self.membership {
            membership if unconfirmed && membership.is_none_or(Membership::is_only_claimed) => {
                Some(part::CLAIMED)
            }
            Some(membership) if membership.generation < context.generation => {
                part_if_named(sql, membership)?
            }
            membership => membership
                .filter(|it| !it.is_only_linked() && !it.is_only_claimed())
                .and_then(|membership| membership.part),
        };
        let now = Membership {
            generation: context.generation,
            part,
            named_at,
        };
        self.join(sql, context, now)
    }

    /// Whether a change that is older than what another set has stated says that the resource has left this one: the set has not named
    /// it since. What only a hub states does not count, because nobody would be asked.
    pub(super) fn has_left(&self, change: &Change) -> bool {
        let named_at = self.membership.and_then(|membership| membership.named_at);
        let (Some(named_at), Some(changed_at)) = (named_at, change.changed_at) else {
            return false;
        };
        let is_later = named_at < changed_at || named_at == changed_at && !change.overtaken;
        change.kind == ChangeKind::Deleted && !change.unconfirmed && is_later
    }

    /// Makes the resource belong to the set because a part of its Resource List names it.
    pub(super) fn join_listed(
        &self,
        sql: &Connection,
        context: &BatchContext<'_>,
        parts: &mut PartAssignment<'_>,
    ) -> Result<(), StoreError> {
        let now = Membership {
            generation: context.generation,
            part: Some(parts.part_of(self.membership)?),
            named_at: None,
        };
        self.join(sql, context, now)
    }

    /// Makes the resource belong to the set, as one that only links name, unless it belongs to it already.
    pub(super) fn join_linked(
        &self,
        sql: &Connection,
        context: &BatchContext<'_>,
    ) -> Result<(), StoreError> {
        if self.membership.is_some() {
            return Ok(());
        }
        let now = Membership {
            generation: context.generation,
            part: Some(part::LINKED),
            named_at: None,
        };
        self.join(sql, context, now)
    }

    fn join(
        &self,
        sql: &Connection,
        context: &BatchContext<'_>,
        now: Membership,
    ) -> Result<(), StoreError> {
        let live_length = self.live_length();
        let (set, updates) = (context.set, context.updates.as_ref());
        join(
            sql,
            set,
            self.id,
            live_length,
            self.membership,
            now,
            updates,
        )
    }

    /// The length of the resource's file, in bytes; `None`: the mirror has none.
    pub(super) fn live_length(&self) -> Option<i64> {
        let live = self.known.as_ref().filter(|known| !known.deleted)?;
        let length = live.length.unwrap_or_default();
        Some(i64::try_from(length).unwrap_or(i64::MAX))
    }

    /// Lowers the task's `since` to an older change that the mirror does not have: the task stands for both.
    pub(super) fn lower_since_for(
        &self,
        sql: &Connection,
        set: SetId,
        change: &Change,
    ) -> Result<(), StoreError> {
        let (known, announced) = (self.known.as_ref(), change.announced());
        let is_newer = |known: &LocalState| {
            known.changed_at < change.changed_at && !known.may_be_newer(&announced)
        };
        if known.is_none_or(is_newer) {
            return self.lower_since(sql, change.changed_at);
        }
        // With equal times the change may be newer or older than what the mirror has, and so it may if the Source was asked after
        // a hub had stated a later one. `synced_until` is not lowered, because it was claimed already; but it does not advance
        // either.
        let may_be_missing = plan_change(&announced, known, None) == Decision::Task;
        if may_be_missing && change.changed_at.is_some() {
            let claimed = coverage::unbroken_until(sql, set)?;
            return self.lower_since(sql, change.changed_at.max(claimed));
        }
        Ok(())
    }

    /// Lowers the task's `since`, if there is a task; `None`: to an unknown time.
    pub(super) fn lower_since(
        &self,
        sql: &Connection,
        since: Option<SourceTime>,
    ) -> Result<(), StoreError> {
        if self.pending.is_some() {
            task::lower_since(sql, self.id, since)?;
        }
        Ok(())
    }

    /// Stores the links that a change states of the version that the mirror has. If they are others than before, the feed says so.
    pub(super) fn set_links(
        &self,
        sql: &Connection,
        context: &BatchContext<'_>,
        change: &Change,
    ) -> Result<(), StoreError> {
        // Most entries state none, and each of them would cost an update.
        if !self.has_links && change.links.is_empty() {
            return Ok(());
        }
        let Some(relinked) = resource::set_links(sql, self.id, &change.links)? else {
            return Ok(());
        };
        let entry = NewEntry {
            applied_at: context.now,
            set: context.set,
            resource: self.id,
            uri: &change.uri,
            change: LINKED,
            path: &relinked.path,
            length: relinked.length,
            changed_at: change.changed_at,
            origin: context.origin,
            links: &change.links,
            is_patched: false,
        };
        context.last_entry.set(Some(feed::append(sql, &entry)?));
        Ok(())
    }

    /// Deletes the task, if there is one: the mirror is up to date without it. Where that is in doubt, another task takes its place.
    pub(super) fn drop_task(
        &self,
        sql: &Tallied<'_>,
        context: &BatchContext<'_>,
    ) -> Result<(), StoreError> {
        if self.pending.is_some() {
            // It may be in progress: its result must not be taken for that of the resource's next task.
            resource::raise_next_revision(sql, self.id)?;
            dropped_task::insert(sql, self.id, context.now)?;
            task::delete(sql, self.id)?;
            if version::release(sql, self.id, None)? {
                context.has_versions.set(true);
            }
            if self.known.as_ref().is_some_and(|known| known.is_doubted) {
                let restores = doubt_and_restore(sql, self.id)?.is_some();
                context
                    .has_restored
                    .set(restores || context.has_restored.get());
            }
        }
        Ok(())
    }
}

fn add_resource(
    sql: &Connection,
    context: &BatchContext<'_>,
    change: &Change,
) -> Result<ResourceId, StoreError> {
    let (source, uri) = (context.source, &change.uri);
    if !resource_count::admit(sql, source)? {
        let known = resource_count::of_source(sql, source)?;
        return Err(StoreError::TooManyResources(known));
    }
    let path = first_path(uri, |plain| {
        resource::is_plain_path_of_another(sql, source, plain.as_str(), uri)
    })?;
    Ok(resource::insert(
        sql,
        source,
        uri,
        context.set,
        path.as_str(),
    )?)
}
