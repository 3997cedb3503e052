//! Resources that are fetched because the entries of others link to them: representations of other types, and metadata records.
//!
//! Such a resource is an ordinary one, with a row, a path, tasks and a membership, but that no list or change names it: its membership
//! has the part [`LINKED`](crate::store::tables::part::LINKED). It belongs to a set as long as an entry of that set names it. What
//! a list or a change names itself is not concerned: its own entries state what becomes of it.
//!
//! Invariants: what an entry names is stored in the transaction that applies the entry. A resource that nothing names any more is
//! deleted as any other is: for links that entries have no longer, at the end of their document, together with its other deletions and
//! by the same rules; for an owner that was deleted, in the transaction that stores that, because that deletion was decided.
//! A link that the configuration does not select any more is a link still: it keeps its resource.

use chrono::{DateTime, Utc};
use resourcesync::{ChangeKind, Link, SourceTime};
use resyncd_core::{Decision, LinkedAs, LinkedResource, ResourceUri, plan_linked};
use rusqlite::Connection;

use super::batch_context::BatchContext;
use super::membership::leave_if_shared;
use super::put_task::put_task_since;
use super::relate::is_selected;
use crate::store::change::Change;
use crate::store::error::StoreError;
use crate::store::ids::ResourceId;
use crate::store::tables::linked::{self, LinkTarget};
use crate::store::tables::resource::{self, ResourceState};
use crate::store::tables::tally::Tallied;
use crate::store::tables::task::Task;
use crate::store::tables::{coverage, membership, task};

/// How many resources are looked at, at the end of a document, that its links name no longer. The rest is at the end of the next one.
const MAX_ENDED: usize = 20_000;

impl ResourceState {
    /// Stores what the links of an entry name, and makes tasks of what the mirror does not have. Call it only with
    /// the entry that counts for the resource. A link is not ended because only a hub no longer states it, or because the entry's links
    /// were cut.
    pub(super) fn follow_links(
        &self,
        sql: &Tallied<'_>,
        context: &BatchContext<'_>,
        change: &Change,
    ) -> Result<(), StoreError> {
        let names_none = change.linked.is_empty();
        let deletes = change.kind == ChangeKind::Deleted;
        if deletes || (names_none && !context.any_linked()?) {
            return Ok(());
        }
        // What does not fit may be what was named before.
        let may_name_more = change.unconfirmed || change.has_cut_links;
        let before = if may_name_more {
            Vec::new()
        } else {
            linked::named_by(sql, self.id, context.set)?
        };
        for before in before {
            let is_named = |link: &Link| LinkedAs::names(link, &before.uri);
            if !change.links.iter().any(is_named) {
                linked::end(sql, self.id, context.set, before.id)?;
            }
        }
        if names_none || !is_selected(sql, context, change)? {
            return Ok(());
        }
        for target in &change.linked {
            self.follow(sql, context, change, target)?;
        }
        Ok(())
    }

    /// As [`follow_links`](Self::follow_links), for an entry that is older than what is known of its resource: it counts if its links are
    /// those that are known.
    pub(super) fn follow_links_of_older(
        &self,
        sql: &Tallied<'_>,
        context: &BatchContext<'_>,
        change: &Change,
    ) -> Result<(), StoreError> {
        let is_live = self.live_length().is_some();
        if change.linked.is_empty()
            || !is_live
            || resource::has_other_links(sql, self.id, &change.links)?
        {
            return Ok(());
        }
        self.follow_links(sql, context, change)
    }

    fn follow(
        &self,
        sql: &Tallied<'_>,
        context: &BatchContext<'_>,
        owner: &Change,
        target: &LinkedResource,
    ) -> Result<(), StoreError> {
        // Without a time of its own it may have changed with the resource that links to it.
        let changed_at = target.modified.or(owner.changed_at).or(owner.lastmod);
        let mut named = Change {
            kind: ChangeKind::Created,
            lastmod: target.modified,
            content: target.content.clone(),
            encoding: target.encoding.clone(),
            ..Change::deletion(target.uri.clone(), changed_at)
        };
        let state = match Self::of_change(sql, context, &named) {
            // The entry itself counts: it is about a resource that has a row.
            Err(StoreError::TooManyResources(_)) => {
                context.count_unfollowed();
                return Ok(());
            }
            state => state?,
        };
        let is_new = linked::name(sql, self.id, context.set, state.id, target.linked_as)?;
        context.note_linked();
        if state.has_own_entry(sql, context)? {
            // It belongs to this set also if another set is the one that names it, and does so no longer.
            state.join_linked(sql, context)?;
            // Its own entries state what there is to fetch. What they do not select is wanted because of the link.
            if is_new {
                task::reselect(sql, state.id)?;
                context.has_restored.set(true);
            }
            return Ok(());
        }
        named.links = links_to_owners(sql, state.id)?;
        if state.live_length().is_some() {
            named.kind = ChangeKind::Updated;
        }
        let (known, pending) = (state.known.as_ref(), state.pending.as_ref());
        let (is_listed, announced) = (context.origin.is_listing(), named.announced());
        let decision = plan_linked(&announced, known, pending, is_new, is_listed);
        match decision {
            Decision::Task => {
                state.join_linked(sql, context)?;
                let since = if is_listed {
                    context.unbroken
                } else {
                    owner.changed_at
                };
                if put_task_since(sql, context, state.id, &named, since)? {
                    context.has_restored.set(true);
                }
            }
            Decision::Done => {
                state.join_linked(sql, context)?;
                if state.is_deletion_pending() {
                    state.drop_deletion(sql, context, &named.uri)?;
                }
                state.set_links(sql, context, &named)?;
            }
            Decision::Older => return Ok(()),
        }
        state.respell(sql, &named)?;
        state.relate(sql, context, &named)
    }

    /// Whether a list or a change names the resource itself, of this set or of another one: what links state of it does not count.
    fn has_own_entry(
        &self,
        sql: &Connection,
        context: &BatchContext<'_>,
    ) -> Result<bool, StoreError> {
        let is_named_here = self
            .membership
            .is_some_and(|membership| !membership.is_only_linked());
        Ok(is_named_here || membership::is_named_by_another_set(sql, context.set, self.id)?)
    }

    /// Makes a resource that a list does not name any more one that only links name; `false`: none does.
    pub(super) fn remain_linked(
        &self,
        sql: &Tallied<'_>,
        context: &BatchContext<'_>,
        uri: &ResourceUri,
    ) -> Result<bool, StoreError> {
        if !context.any_linked()? || !linked::is_named_in(sql, self.id, context.set)? {
            return Ok(false);
        }
        // A deletion that was stated counts until a later entry links to the resource.
        let is_stated = self.pending_at().is_some() && !self.is_pending_of_own_list;
        if self.is_deletion_pending() && is_stated {
            return Ok(false);
        }
        // It has no entry any more.
        linked::end_all_of(sql, self.id, context.set)?;
        if self.is_deletion_pending() {
            self.drop_deletion(sql, context, uri)?;
        }
        if membership::is_named_by_another_set(sql, context.set, self.id)? {
            return Ok(true);
        }
        let named = Change {
            kind: ChangeKind::Updated,
            links: links_to_owners(sql, self.id)?,
            ..Change::deletion(uri.clone(), None)
        };
        self.set_links(sql, context, &named)?;
        self.relate(sql, context, &named)?;
        Ok(true)
    }
}

/// The links that a resource has because of those that name it.
fn links_to_owners(sql: &Connection, id: ResourceId) -> Result<Vec<Link>, StoreError> {
    let owners = linked::owners(sql, id)?.into_iter();
    let links =
        owners.map(|(uri, linked_as)| Link::new(linked_as.reverse_rel(), uri.url().clone()));
    Ok(links.collect())
}

/// Plans the deletion of what the set's entries name no longer. It is decided with the other deletions of the document.
pub(super) fn end_unnamed(sql: &Tallied<'_>, context: &BatchContext<'_>) -> Result<(), StoreError> {
    if !context.any_linked()? {
        return Ok(());
    }
    for target in linked::ended(sql, context.set, MAX_ENDED)? {
        end(sql, context, &target)?;
    }
    Ok(())
}

/// Deletes what a deleted resource has named, and nothing else does.
pub(super) fn end_with_owner(
    sql: &Tallied<'_>,
    now: DateTime<Utc>,
    owner: &Task,
) -> Result<(), StoreError> {
    for target in linked::end_owner(sql, owner.resource)? {
        let context = BatchContext::read(sql, target.set, &owner.source, owner.origin, now)?;
        if end(sql, &context, &target)? {
            // The deletion may have replaced an older change.
            let since = task::since(sql, target.id)?.flatten();
            task::release(sql, target.id, since)?;
        }
    }
    Ok(())
}

/// Plans the deletion of a resource that an entry of the set names no longer, if nothing else names it; returns whether it did.
fn end(
    sql: &Tallied<'_>,
    context: &BatchContext<'_>,
    target: &LinkTarget,
) -> Result<bool, StoreError> {
    let set = context.set;
    let is_named = linked::is_named_in(sql, target.id, set)?;
    let state = context.state_of(&target.uri)?;
    let Some(state) = state.filter(|state| {
        state
            .membership
            .is_some_and(|membership| membership.is_only_linked())
    }) else {
        linked::forget_ended(sql, target.id, set)?;
        return Ok(false);
    };
    if is_named {
        linked::forget_ended(sql, target.id, set)?;
        if state.has_own_entry(sql, context)? {
            return Ok(false);
        }
        let links = Change {
            links: links_to_owners(sql, target.id)?,
            ..Change::deletion(target.uri.clone(), None)
        };
        state.set_links(sql, context, &links)?;
        return Ok(false);
    }
    if leave_if_shared(sql, set, target.id)? {
        linked::forget_ended(sql, target.id, set)?;
        return Ok(false);
    }
    if state.is_deletion_pending() {
        return Ok(false);
    }
    let deletion = Change::deletion(target.uri.clone(), None);
    put_task_since(sql, context, target.id, &deletion, since(sql, context)?)
}

/// `synced_until` is not lowered by the deletion of what no document names, because it was claimed already; but it does not advance either.
fn since(sql: &Connection, context: &BatchContext<'_>) -> Result<Option<SourceTime>, StoreError> {
    Ok(coverage::unbroken_until(sql, context.set)?)
}
