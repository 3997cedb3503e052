//! The resource that an entry is about: its row, its membership and its links.

use resyncd_mirror::first_path;
use rusqlite::Connection;

use super::batch_context::BatchContext;
use super::membership::{PartAssignment, join, part_or_whole};
use super::statements::Resource;
use crate::store::change::Change;
use crate::store::error::StoreError;
use crate::store::ids::ResourceId;
use crate::store::tables::feed::{self, LINKED, NewEntry};
use crate::store::tables::membership::Membership;
use crate::store::tables::resource::{self, ResourceState};
use crate::store::tables::{part, resource_count, source_set};

impl Resource {
    /// Reads the resource of a change. One that has no row gets one, with a path of its own.
    pub(super) fn of_change(
        sql: &Connection,
        context: &BatchContext<'_>,
        change: &Change,
    ) -> Result<Self, StoreError> {
        let Some(mut state) = context.state_of(&change.uri)? else {
            let state = ResourceState::new(
                add_resource(sql, context, change)?,
                change.uri.clone(),
                context.set,
            );
            return Self::read(sql, context, state);
        };
        if let Some(updates) = &context.updates {
            state.membership = updates.membership(context.set, state.id, state.membership);
        }
        if state.announced_by != context.set {
            source_set::set_sharing(sql, context.set, state.announced_by)?;
        }
        Self::read(sql, context, state)
    }

    /// Stores how an entry writes the URI, which is how it is requested and shown from then on. Call it only with the entry that counts for
    /// the resource. Who may not speak for the Source does not decide that: it could have the resource requested without TLS.
    pub(super) fn respell(&mut self, sql: &Connection, change: &Change) -> Result<(), StoreError> {
        if self.state.uri.as_str() != change.uri.as_str() && !change.unconfirmed {
            resource::set_spelling(sql, self.state.id, &change.uri)?;
            self.state.uri = change.uri.clone();
        }
        Ok(())
    }

    /// Makes the resource belong to the set because a change names it. `unconfirmed`: only who may not speak for the Source states that
    /// change.
    pub(super) fn join_changed(
        &mut self,
        sql: &Connection,
        context: &BatchContext<'_>,
        unconfirmed: bool,
    ) -> Result<(), StoreError> {
        let part = match self.state.membership {
            None if unconfirmed => Some(part::CLAIMED),
            None => None,
            Some(it) if !unconfirmed && (it.is_only_claimed() || it.is_only_linked()) => None,
            Some(_) => return Ok(()),
        };
        self.join(sql, context, part)
    }

    /// Makes the resource belong to the set because its list names it, in that part.
    pub(super) fn join_listed(
        &mut self,
        sql: &Connection,
        context: &BatchContext<'_>,
        parts: Option<&mut PartAssignment<'_>>,
    ) -> Result<(), StoreError> {
        let part = match parts {
            Some(parts) => parts.part_of(self.state.membership)?,
            None => part_or_whole(sql, self.state.membership)?,
        };
        self.join(sql, context, Some(part))
    }

    /// Makes the resource belong to the set, as one that only links name, unless it belongs to it already.
    pub(super) fn join_linked(
        &mut self,
        sql: &Connection,
        context: &BatchContext<'_>,
    ) -> Result<(), StoreError> {
        if self.state.membership.is_some() {
            return Ok(());
        }
        self.join(sql, context, Some(part::LINKED))
    }

    /// Makes the resource belong to the set with that part of its list.
    pub(super) fn join(
        &mut self,
        sql: &Connection,
        context: &BatchContext<'_>,
        part: Option<i64>,
    ) -> Result<(), StoreError> {
        let (before, id) = (self.state.membership, self.state.id);
        let now = Membership {
            generation: context.generation,
            part,
        };
        let (set, updates) = (context.set, context.updates.as_ref());
        join(sql, set, id, self.live_length(), before, now, updates)?;
        self.state.membership = Some(now);
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
        if !self.state.has_links && change.links.is_empty() {
            return Ok(());
        }
        let Some(relinked) = resource::set_links(sql, self.state.id, &change.links)? else {
            return Ok(());
        };
        let entry = NewEntry {
            applied_at: context.now,
            set: context.set,
            resource: self.state.id,
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
