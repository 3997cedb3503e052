//! The versions of resources that are to be stored (core, section 14.6).
//!
//! Invariants: what an entry announces becomes a row in the transaction of the entry; a version counts as stored only after its file
//! was published. A version that can't be fetched changes nothing of the mirror, nor of what is claimed of it.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use resourcesync::{ChangeKind, Link, SourceTime};
use resyncd_core::{LocalState, Memento, ResourceUri, names_version};

use super::batch_context::BatchContext;
use super::relate::is_selected;
use super::statements::Resource;
use crate::store::change::{Change, VersionRule};
use crate::store::error::StoreError;
use crate::store::sql::Connection;
use crate::store::tables::resource::{Publication, StoredVersion};
use crate::store::tables::version::{
    self, NewVersion, PutVersion, VersionFailure, VersionKind, VersionTask, VersionedResource,
    WaitingVersion,
};
use crate::store::{Store, Wake};

/// The relation of a TimeMap.
const TIME_MAP: &str = "timemap";
/// How many versions of a TimeMap are stored in one transaction.
const AT_ONCE: usize = 1000;

/// What an entry means for the mirror.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnnouncedAs {
    /// There is something to do.
    Pending,
    /// The mirror has what it states.
    InPlace,
    /// Something newer is known.
    Older,
}

/// Has the version stored that a change announces, as far as it can be fetched: where the mirror is to have it, and at places of its own.
pub(super) fn announce(
    sql: &Connection,
    context: &BatchContext<'_>,
    resource: &Resource,
    change: &Change,
    announced: AnnouncedAs,
) -> Result<(), StoreError> {
    let state = &resource.state;
    let is_replaced = announced == AnnouncedAs::Pending && state.task.is_some();
    // A hub has no say in what is stored for good.
    if change.version == VersionRule::Ignored || change.unconfirmed {
        return Ok(());
    }
    let at = change.version_time(context.now);
    if is_replaced {
        let before = version::pending_time(sql, state.id)?;
        if let Some(before) = before.filter(|&before| Some(before) != at) {
            version::put_missed(sql, state.id, context.source, before, context.now)?;
        }
        if version::release(sql, state.id, at)? {
            context.has_versions.set(true);
        }
    }
    let (ChangeKind::Created | ChangeKind::Updated, Some(at)) = (change.kind, at) else {
        return Ok(());
    };
    let links: Vec<Link> = change
        .links
        .iter()
        .filter(|it| names_version(it))
        .cloned()
        .collect();
    // What the mirror has is a place, too.
    let has_place = !links.is_empty() || announced == AnnouncedAs::InPlace;
    if !has_place || !is_selected(sql, context, change)? {
        return Ok(());
    }
    let new = NewVersion {
        resource: state.id,
        source: context.source,
        at,
        kind: VersionKind::Announced,
        content: &change.content,
        encoding: change.encoding.as_deref(),
        links: &links,
        // The mirror's file will prove to be the version.
        waits: announced == AnnouncedAs::Pending && !change.content.hashes.is_empty(),
        now: context.now,
    };
    if put(sql, &new)? {
        context.has_versions.set(true);
    }
    Ok(())
}

/// Schedules the version that a change without news announces, if its resource is known.
pub(super) fn announce_only(
    sql: &Connection,
    context: &BatchContext<'_>,
    change: &Change,
) -> Result<(), StoreError> {
    let Some(state) = context.state_of(&change.uri)? else {
        return Ok(());
    };
    let at = change.version_time(context.now);
    // The mirror has it as far as is recorded: what is to be stored is compared.
    let is_known = |known: &LocalState| {
        !known.deleted && at.is_some() && [known.lastmod, known.changed_at].contains(&at)
    };
    let announced = if state.known.as_ref().is_some_and(is_known) {
        AnnouncedAs::InPlace
    } else {
        AnnouncedAs::Older
    };
    let resource = Resource::read(sql, context, state)?;
    announce(sql, context, &resource, change, announced)
}

/// Has a version stored; returns whether something is to be done.
fn put(sql: &Connection, new: &NewVersion<'_>) -> Result<bool, StoreError> {
    Ok(version::put(sql, new)? == PutVersion::Put)
}

/// Records what became of the version that was published. Returns whether it is still to be stored.
pub(super) fn note_published(
    sql: &Connection,
    publication: &Publication,
    now: DateTime<Utc>,
) -> Result<bool, StoreError> {
    let task = &publication.task;
    match publication.stored_version {
        // Most Sources store none: this costs them nothing.
        StoredVersion::Ignored => Ok(false),
        StoredVersion::Timeless => Ok(version::release(sql, task.resource, None)?),
        StoredVersion::Conflicting(at) => {
            version::set_stored(sql, task.resource, at)?;
            version::put_conflict(sql, task.resource, &task.source, at, now)?;
            Ok(version::release(sql, task.resource, None)?)
        }
        StoredVersion::Stored(at) => {
            version::set_stored(sql, task.resource, at)?;
            Ok(version::release(sql, task.resource, None)?)
        }
        StoredVersion::Due(at) => {
            // A hub has no say in what is requested.
            let links = task.links.iter().filter(|_| !task.unconfirmed);
            let links: Vec<Link> = links.filter(|it| names_version(it)).cloned().collect();
            let new = NewVersion {
                resource: task.resource,
                source: &task.source,
                at,
                kind: VersionKind::Announced,
                content: &task.content,
                encoding: task.encoding.as_deref(),
                links: &links,
                waits: false,
                now,
            };
            // What the entry has stated is more than what the task states.
            if !version::is_known(sql, task.resource, at)? {
                put(sql, &new)?;
            }
            version::release(sql, task.resource, None)?;
            Ok(true)
        }
    }
}

/// What is due of a Source.
#[derive(Clone, Debug, Default)]
pub struct DueVersions {
    /// What is due, the longest due first.
    pub tasks: Vec<VersionTask>,
    /// When the first of what is ready is, or was, due.
    pub next_due: Option<DateTime<Utc>>,
    /// When the first of what is not due yet will be.
    pub next_later: Option<DateTime<Utc>>,
}

/// What became of a version that was to be stored.
#[derive(Clone, Debug)]
pub enum VersionResult {
    /// Its file was published.
    Stored,
    /// It is not wanted: it is served in that type.
    Unwanted(String),
    /// There is nothing to do.
    Pointless,
    /// It could not be stored.
    Failed(VersionFailure),
    /// The TimeMap was read: the versions that it names are to be stored. With what of it was not used.
    Listed(Vec<Memento>, Option<VersionFailure>),
}

impl Store {
    /// What is due of a Source, at most so much.
    pub async fn due_versions(
        self: &Arc<Self>,
        source: &str,
        now: DateTime<Utc>,
        limit: usize,
    ) -> Result<DueVersions, StoreError> {
        let source = source.to_owned();
        self.read(move |sql| {
            Ok(DueVersions {
                tasks: version::due(sql, &source, now, limit)?,
                next_due: version::next_due(sql, &source, None)?,
                next_later: version::next_due(sql, &source, Some(now))?,
            })
        })
        .await
    }

    /// Lets the versions of a Source be fetched that wait for tasks that are no more, or since the clock was set back. Returns whether
    /// there were any.
    pub async fn release_versions(
        self: &Arc<Self>,
        source: &str,
        now: DateTime<Utc>,
    ) -> Result<bool, StoreError> {
        let of_read = source.to_owned();
        let any = self.read(move |sql| Ok(version::any_overdue(sql, &of_read, now)?));
        if !any.await? {
            return Ok(false);
        }
        let source = source.to_owned();
        self.write(move |tx| Ok(version::release_overdue(tx.sql, &source, now)?))
            .await?;
        Ok(true)
    }

    /// Has the versions of a Source fetched that were not selected because of a type that `selects` selects now.
    pub async fn reselect_versions(
        self: &Arc<Self>,
        source: &str,
        now: DateTime<Utc>,
        selects: impl Fn(&str) -> bool + Send,
    ) -> Result<(), StoreError> {
        let name = source.to_owned();
        let types = self.read(move |sql| Ok(version::unwanted_types(sql, &name)?));
        let mut types = types.await?;
        types.retain(|served| selects(served));
        if types.is_empty() {
            return Ok(());
        }
        let source = source.to_owned();
        self.write(move |tx| {
            for served in &types {
                version::reselect(tx.sql, &source, served, now)?;
            }
            tx.wake(Wake::Versions(source));
            Ok(())
        })
        .await
    }

    /// Tries again what was given up of the versions of a Source; returns how many.
    pub async fn retry_versions(
        self: &Arc<Self>,
        source: &str,
        now: DateTime<Utc>,
    ) -> Result<u64, StoreError> {
        let source = source.to_owned();
        self.write(move |tx| {
            let retried = version::retry(tx.sql, &source, now)?;
            tx.wake(Wake::Versions(source));
            Ok(retried as u64)
        })
        .await
    }

    /// Records what became of a version, or of a TimeMap. Returns how many versions are to be stored because of it.
    pub async fn complete_version(
        self: &Arc<Self>,
        now: DateTime<Utc>,
        task: VersionTask,
        result: VersionResult,
    ) -> Result<usize, StoreError> {
        let (mut listed, unused) = match result {
            VersionResult::Listed(mementos, unused) => (mementos, unused),
            result => {
                return self
                    .write(move |tx| {
                        complete(tx.sql, now, &task, &result)?;
                        Ok(0)
                    })
                    .await;
            }
        };
        let mut added = 0;
        // What was added by an interrupted reading stays, and is not added again.
        loop {
            let rest = listed.split_off(listed.len().min(AT_ONCE));
            let is_last = rest.is_empty();
            let (batch, task) = (std::mem::replace(&mut listed, rest), task.clone());
            let unused = unused.clone();
            added += self
                .write(move |tx| {
                    let mut added = 0;
                    for memento in &batch {
                        added += usize::from(list(tx.sql, now, &task, memento)?);
                    }
                    match &unused {
                        Some(unused) if is_last => version::fail(tx.sql, &task, unused, now)?,
                        None if is_last => version::delete(tx.sql, task.resource, task.at)?,
                        _ => {}
                    }
                    tx.wake(Wake::Versions(task.source.clone()));
                    Ok(added)
                })
                .await?;
            if is_last {
                return Ok(added);
            }
        }
    }

    /// Has a resource's TimeMap read. Returns whether it has one; `None`: the resource is not known.
    pub async fn request_time_map(
        self: &Arc<Self>,
        source: &str,
        uri: &ResourceUri,
        now: DateTime<Utc>,
    ) -> Result<Option<bool>, StoreError> {
        let (source, uri) = (source.to_owned(), uri.clone());
        self.write(move |tx| {
            let Some(found) = version::resource(tx.sql, &source, &uri)? else {
                return Ok(None);
            };
            let mut links = found.links;
            links.retain(|link| link.is(TIME_MAP));
            links.truncate(1);
            if links.is_empty() {
                return Ok(Some(false));
            }
            let new = NewVersion::time_map(found.id, &source, &links, now);
            put(tx.sql, &new)?;
            tx.wake(Wake::Versions(source));
            Ok(Some(true))
        })
        .await
    }

    /// A resource, and what is to be stored of its versions; `None`: it is not known.
    pub async fn versioned_resource(
        self: &Arc<Self>,
        source: &str,
        uri: &ResourceUri,
    ) -> Result<Option<(VersionedResource, Vec<WaitingVersion>)>, StoreError> {
        let (source, uri) = (source.to_owned(), uri.clone());
        self.read(move |sql| {
            let Some(found) = version::resource(sql, &source, &uri)? else {
                return Ok(None);
            };
            let waiting = version::waiting(sql, found.id)?;
            Ok(Some((found, waiting)))
        })
        .await
    }

    /// The greatest time of a stored version of a resource that is before another.
    pub async fn stored_version_before(
        self: &Arc<Self>,
        task: &VersionTask,
    ) -> Result<Option<SourceTime>, StoreError> {
        let (resource, at) = (task.resource, task.at);
        self.read(move |sql| Ok(version::stored_before(sql, resource, at)?))
            .await
    }
}

fn complete(
    sql: &Connection,
    now: DateTime<Utc>,
    task: &VersionTask,
    result: &VersionResult,
) -> Result<(), StoreError> {
    match result {
        VersionResult::Stored => version::set_stored(sql, task.resource, task.at)?,
        VersionResult::Unwanted(served) => {
            version::unselect(sql, task.resource, task.at, served)?;
        }
        VersionResult::Pointless | VersionResult::Listed(..) => {
            version::delete(sql, task.resource, task.at)?;
        }
        VersionResult::Failed(failure) => version::fail(sql, task, failure, now)?,
    }
    Ok(())
}

fn list(
    sql: &Connection,
    now: DateTime<Utc>,
    of: &VersionTask,
    memento: &Memento,
) -> Result<bool, StoreError> {
    let links = [Link::new("memento", memento.uri.url().clone())];
    let new = NewVersion {
        at: version::time_in_second(sql, of.resource, memento.at)?,
        kind: VersionKind::Listed,
        ..NewVersion::time_map(of.resource, &of.source, &links, now)
    };
    put(sql, &new)
}
