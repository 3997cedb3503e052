//! Resources that are fetched because the entries of others link to them: representations of other types, and metadata records.
//!
//! Such a resource is an ordinary one, with a row, a path, tasks and a membership, but that no list or change names it: its membership
//! is [linked](crate::store::tables::membership::Membership::Linked). It belongs to a set as long as an entry of that set names it. What a
//! list or a change names itself is not concerned: its own entries state what becomes of it.
//!
//! Invariants: what an entry names is stored in the transaction that applies the entry. A resource that nothing names any more is
//! deleted as any other is: for links that entries have no longer, at the end of their document, together with its other deletions and
//! by the same rules; for an owner that was deleted, in the transaction that stores that, because that deletion was decided.
//! A link that the configuration does not select any more is a link still: it keeps its resource.

use chrono::{DateTime, Utc};
use resourcesync::{ChangeKind, ContentInfo, Link};
use resyncd_core::{
    Applied, Desired, Entry, LinkedAs, LinkedResource, ResourceUri, Revision, SetKey, Stated,
    Statement, Voice,
};

use super::batch_context::BatchContext;
use super::membership::leave;
use super::relate::is_selected;
use super::settle::Cause;
use super::statements::{Resource, entry_of};
use crate::store::change::Change;
use crate::store::error::StoreError;
use crate::store::ids::{ResourceId, SetId};
use crate::store::sql::Connection;
use crate::store::tables::linked::{self, LinkTarget};
use crate::store::tables::tally::Tallied;
use crate::store::tables::task::Task;
use crate::store::tables::{resource, task};

/// How many resources are looked at, at the end of a document, that its links name no longer. The rest is at the end of the next one.
const MAX_ENDED: usize = 20_000;

impl Resource {
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
            linked::named_by(sql, self.state.id, context.set)?
        };
        for before in before {
            let is_named = |link: &Link| LinkedAs::names(link, &before.uri);
            if !change.links.iter().any(is_named) {
                linked::end(sql, self.state.id, context.set, before.id)?;
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
        if change.linked.is_empty()
            || !self.is_live()
            || resource::has_other_links(sql, self.state.id, &change.links)?
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
        let mut resource = match Self::of_change(sql, context, &named) {
            // The entry itself counts: it is about a resource that has a row.
            Err(StoreError::TooManyResources(_)) => {
                context.count_unfollowed();
                return Ok(());
            }
            resource => resource?,
        };
        let id = resource.state.id;
        let is_new = linked::name(sql, self.state.id, context.set, id, target.linked_as)?;
        context.note_linked();
        let has_own_entry = resource.has_own_entry(context)?;
        if has_own_entry {
            // It belongs to this set also if another set is the one that names it, and does so no longer.
            resource.join_linked(sql, context)?;
            // Its own entries state what there is to fetch. What they do not select is wanted because of the link.
            if is_new {
                task::reselect(sql, id)?;
                context.has_restored.set(true);
            }
        }
        named.links = links_to_owners(sql, id)?;
        if resource.is_live() {
            named.kind = ChangeKind::Updated;
        }
        // A deletion that was stated counts until another entry names it.
        let own = resource.stated_by(context.set, Voice::Source);
        let deleted_at = own.filter(|own| own.is_change() && !own.exists());
        let deleted_at = deleted_at.map(|own| own.entry.at);
        let counts = deleted_at.is_some_and(|deleted_at| {
            resource.state.is_deletion_pending() || named.changed_at <= deleted_at
        });
        if !is_new && counts {
            return Ok(());
        }
        let link = Entry {
            voice: Voice::Link,
            ..entry_of(context.set, &named, Stated::Change(ChangeKind::Created))
        };
        let applied = resource.apply(&link, false);
        if has_own_entry {
            if let Some(link) = resource.stated_by(context.set, Voice::Link) {
                // It is no reason to fetch it once its own entry is gone.
                link.entry.content = ContentInfo::default();
                link.content_revision = Revision::default();
            }
            return resource.save(sql, context);
        }
        resource.join_linked(sql, context)?;
        if resource.decide(context)?.desired == Desired::Settled {
            resource.set_links(sql, context, &named)?;
        }
        resource.respell(sql, &named)?;
        resource.relate(sql, context, &named)?;
        let news = (applied == Applied::News).then_some(&named);
        resource.settle(sql, context, news, Cause::Document)?;
        Ok(())
    }

    /// Whether a list or a change names the resource itself, of this set or of another one: what links state of it does not count.
    fn has_own_entry(&self, context: &BatchContext<'_>) -> Result<bool, StoreError> {
        for it in &self.statements {
            let is_own = it.exists() && it.entry.voice != Voice::Link;
            if is_own && context.is_followed(SetId(it.entry.set.0))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Makes a resource that a list does not name any more one that only links name; `false`: none does.
    pub(super) fn remain_linked(
        &mut self,
        sql: &Tallied<'_>,
        context: &BatchContext<'_>,
        uri: &ResourceUri,
    ) -> Result<bool, StoreError> {
        let id = self.state.id;
        if !context.any_linked()? || !linked::is_named_in(sql, id, context.set)? {
            return Ok(false);
        }
        // It has no entry any more.
        linked::end_all_of(sql, id, context.set)?;
        if self.has_own_entry(context)? {
            return Ok(true);
        }
        let named = Change {
            kind: ChangeKind::Updated,
            links: links_to_owners(sql, id)?,
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
        end(sql, context, &target, Cause::Document)?;
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
        end(sql, &context, &target, Cause::Event)?;
    }
    Ok(())
}

/// Plans the deletion of a resource that an entry of the set names no longer, if nothing else names it.
fn end(
    sql: &Tallied<'_>,
    context: &BatchContext<'_>,
    target: &LinkTarget,
    cause: Cause,
) -> Result<(), StoreError> {
    let (set, id) = (context.set, target.id);
    let is_named = linked::is_named_in(sql, id, set)?;
    let Some(mut resource) = Resource::find(sql, context, id)? else {
        return Ok(linked::forget_ended(sql, id, set)?);
    };
    let is_only_linked = resource.is_only_linked();
    if is_named {
        linked::forget_ended(sql, id, set)?;
        if is_only_linked && !resource.has_own_entry(context)? {
            let links = Change {
                links: links_to_owners(sql, id)?,
                ..Change::deletion(target.uri.clone(), None)
            };
            resource.set_links(sql, context, &links)?;
        }
        return Ok(());
    }
    let is_link = |it: &Statement| it.entry.voice_in_set() == (SetKey(set.0), Voice::Link);
    let has_others = resource
        .statements
        .iter()
        .any(|it| it.exists() && !is_link(it));
    if has_others || !is_only_linked {
        resource.statements.retain(|it| !is_link(it));
        if is_only_linked {
            leave(sql, set, id)?;
        }
        linked::forget_ended(sql, id, set)?;
    } else {
        let deletion = Change::deletion(target.uri.clone(), None);
        let link = Entry {
            voice: Voice::Link,
            ..entry_of(set, &deletion, Stated::Change(ChangeKind::Deleted))
        };
        resource.apply(&link, false);
    }
    resource.settle(sql, context, None, cause)?;
    Ok(())
}
