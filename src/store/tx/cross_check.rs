//! Compares what only a hub has stated with the documents of the Source, which count.
//!
//! Nothing is stored of notifications for that: a resource and a task remember whether only a hub has stated their change, and
//! its time. An entry of the same time, or a later Resource List, confirms it or contradicts it. A Change List that states every
//! change of an interval contradicts what it does not have.

use rusqlite::Connection;

use super::batch_context::BatchContext;
use super::put_task::put_task;
use crate::protocol::{ChangeKind, ContentInfo, Interval, ResourceUri, SourceTime};
use crate::store::change::Change;
use crate::store::error::StoreError;
use crate::store::tables::resource::{self, ResourceState};
use crate::store::tables::{coverage, member, task};
use crate::sync::contradicts_hub;

/// How many resources, and tasks, are compared with one document. The others are compared with the next one.
const AT_ONCE: usize = 10_000;

/// What only a hub has stated, and a document of the Source contradicts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contradictions {
    /// How many changes.
    pub count: u64,
    /// The resource of the first one.
    pub first: Option<ResourceUri>,
}

impl Contradictions {
    fn note(&mut self, uri: &ResourceUri) {
        self.count += 1;
        self.first.get_or_insert_with(|| uri.clone());
    }

    /// Adds those of another batch of the same document.
    pub(super) fn add(&mut self, other: Self) {
        self.count += other.count;
        self.first = self.first.take().or(other.first);
    }
}

/// Counts an entry of the Source that contradicts what only a hub has stated. `listed_at`: of a Resource List of that time.
pub(super) fn compare_with_hub(
    sql: &Connection,
    state: &ResourceState,
    entry: &Change,
    listed_at: Option<SourceTime>,
    contradictions: &mut Contradictions,
) -> Result<(), StoreError> {
    if entry.unconfirmed {
        return Ok(());
    }
    let known = state.known.as_ref();
    let is_hubs = match &state.pending {
        Some(pending) => pending.unconfirmed,
        None => known.is_some_and(|known| known.unconfirmed),
    };
    if !is_hubs {
        return Ok(());
    }
    let stated = match state.pending {
        Some(_) => task::content_of(sql, state.id)?.unwrap_or_default(),
        None => ContentInfo::default(),
    };
    let pending = state.pending.as_ref().map(|pending| (pending, &stated));
    if contradicts_hub(&entry.announced(), listed_at, known, pending) {
        contradictions.note(&entry.uri);
    }
    Ok(())
}

/// Compares the changes that only a hub has stated for an interval with a document that states every change of it, and whose
/// entries are ingested: it does not have those that are left.
pub(super) fn cross_check(
    sql: &Connection,
    context: &BatchContext<'_>,
    interval: Interval,
    contradictions: &mut Contradictions,
) -> Result<(), StoreError> {
    let set = context.set;
    for found in task::unconfirmed_in(sql, set, interval, AT_ONCE)? {
        let uri = found.uri;
        let Some(state) = resource::state(sql, context.source, &uri, set)? else {
            continue;
        };
        let is_live = state.known.as_ref().is_some_and(|known| !known.deleted);
        let is_deletion = state
            .pending
            .as_ref()
            .is_some_and(|pending| pending.kind == ChangeKind::Deleted);
        if is_live || is_deletion || found.stands_for_older {
            // It may have replaced a change that the Source has stated.
            contradictions.note(&uri);
            request(sql, context, &state, &uri, is_live)?;
        } else if found.is_absent {
            // Only the hub knows the resource.
            contradictions.note(&uri);
            state.drop_task(sql)?;
            member::delete_from_all(sql, state.id, i64::MAX)?;
        }
    }
    for uri in resource::unconfirmed_in(sql, set, interval, AT_ONCE)? {
        let Some(state) = resource::state(sql, context.source, &uri, set)? else {
            continue;
        };
        let Some(known) = &state.known else { continue };
        if let Some(pending) = &state.pending {
            // A later change of the Source does not tell whether it had that one before.
            let is_earlier = pending.changed_at.is_some() && pending.changed_at < known.changed_at;
            if !pending.unconfirmed && is_earlier {
                contradictions.note(&uri);
                resource::reject_change(sql, state.id, interval.from())?;
            }
            continue;
        }
        contradictions.note(&uri);
        resource::reject_change(sql, state.id, interval.from())?;
        // A file is the Source's own answer, and each change that the document states was compared with it.
        if known.deleted {
            state.join_changed(sql, context)?;
            request(sql, context, &state, &uri, false)?;
        }
    }
    Ok(())
}

/// Requests a resource: what the Source answers is right. `synced_until` is not lowered, because it was claimed already; but it
/// does not advance either.
fn request(
    sql: &Connection,
    context: &BatchContext<'_>,
    state: &ResourceState,
    uri: &ResourceUri,
    is_live: bool,
) -> Result<(), StoreError> {
    let kind = if is_live {
        ChangeKind::Updated
    } else {
        ChangeKind::Created
    };
    let change = Change {
        kind,
        ..Change::deletion(uri.clone(), None)
    };
    let since = match task::since(sql, state.id)? {
        Some(since) => since,
        None => coverage::unbroken_until(sql, context.set)?,
    };
    put_task(sql, context, state.id, &change)?;
    Ok(task::release(sql, state.id, since)?)
}
