//! The resource that an entry is about: its row, its membership and its links.

use resyncd_mirror::first_path;

use super::batch_context::BatchContext;
use super::statements::Resource;
use crate::store::change::Change;
use crate::store::error::StoreError;
use crate::store::ids::ResourceId;
use crate::store::named::NamedSoFar;
use crate::store::sql::Connection;
use crate::store::tables::feed::{self, LINKED, NewEntry};
use crate::store::tables::membership::Membership;
use crate::store::tables::resource::{self, ResourceState};
use crate::store::tables::{membership, resource_count, source_set};

impl Resource {
    /// Reads the resource of a change. One that has no row gets one, with a path of its own.
    pub(super) fn of_change(
        sql: &Connection,
        context: &BatchContext<'_>,
        change: &Change,
    ) -> Result<Self, StoreError> {
        let Some(state) = context.state_of(&change.uri)? else {
            let state = ResourceState::new(
                add_resource(sql, context, change)?,
                change.uri.clone(),
                context.set,
            );
            return Self::read(sql, context, state);
        };
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
        let membership = match self.state.membership {
            None if unconfirmed => Membership::Claimed,
            None => Membership::Changed,
            Some(Membership::Claimed | Membership::Linked) if !unconfirmed => Membership::Changed,
            Some(_) => return Ok(()),
        };
        self.join(sql, context, membership)
    }

    /// Makes the resource belong to the set because a list names it. `named`: what its part has named so far.
    pub(super) fn join_listed(
        &mut self,
        sql: &Connection,
        context: &BatchContext<'_>,
        named: &NamedSoFar,
    ) -> Result<(), StoreError> {
        named.insert(self.state.id);
        if let Some(reading) = context.reading {
            reading.named.insert(self.state.id);
        }
        self.join(sql, context, Membership::Listed)
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
        self.join(sql, context, Membership::Linked)
    }

    /// Makes the resource belong to the set.
    pub(super) fn join(
        &mut self,
        sql: &Connection,
        context: &BatchContext<'_>,
        now: Membership,
    ) -> Result<(), StoreError> {
        let before = self.state.membership.replace(now);
        if before != Some(now) {
            membership::set(sql, context.set, self.state.id, now)?;
        }
        if let (None, Some(length)) = (before, self.live_length()) {
            source_set::add_totals(sql, context.set, 1, length)?;
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
