//! Forgets a Source: deletes its rows, a step at a time. Plans the deletion of what only former sets of a Source have.
//!
//! Invariants: each step is short, whatever the number of resources; after each of them the rows state nothing that the mirror does
//! not have, so that a Source that is forgotten in part can be followed again, or forgotten further. Entries of the feed stay.
//!
//! The worker of a Source that is forgotten must have ended: numbers of its resources may be used again.

use std::path::PathBuf;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use resourcesync::ChangeKind;

use super::batch_context::BatchContext;
use super::membership::TotalsChange;
use super::repair::repair;
use crate::store::change::{Change, Origin};
use crate::store::ids::{ResourceId, SetId};
use crate::store::query_threads::Lane;
use crate::store::tables::feed::{self, NewEntry};
use crate::store::tables::followed_source::{self, SourceLocation};
use crate::store::tables::forgotten::{self, ForgottenResource, SetTotals};
use crate::store::tables::{audit, mirror, paused, resource};
use crate::store::writer::Tx;
use crate::store::{Store, StoreError, Wake};

/// How many resources one step is for.
const RESOURCES_A_STEP: usize = 500;

/// What becomes of the files of resources whose rows are deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilesOfForgotten {
    /// They stay in the mirror.
    Stay,
    /// They were removed: the feed states that.
    Removed,
}

impl Store {
    /// Where a Source is, or was, and where its files are; `None`: none of that name was followed, or it was forgotten.
    pub async fn location_of(
        self: &Arc<Self>,
        source: &str,
    ) -> Result<Option<SourceLocation>, StoreError> {
        let source = source.to_owned();
        self.read(move |sql| Ok(followed_source::get(sql, &source)?))
            .await
    }

    /// The same of all Sources that were not forgotten, by name.
    pub async fn locations(self: &Arc<Self>) -> Result<Vec<SourceLocation>, StoreError> {
        let unreadable = Arc::clone(&self.unreadable);
        self.read_in(Lane::Reports, move |sql| {
            Ok(followed_source::all(sql, &unreadable)?)
        })
        .await
    }

    /// Stores where a Source is, where its files are, and the id of that mirror.
    pub async fn note_location(
        self: &Arc<Self>,
        source: &str,
        url: &str,
        folder: PathBuf,
        id: &str,
    ) -> Result<(), StoreError> {
        let (source, url, id) = (source.to_owned(), url.to_owned(), id.to_owned());
        self.write(move |tx| {
            followed_source::put(tx.sql, &source, &url, &folder)?;
            Ok(mirror::set_id(tx.sql, &source, &id)?)
        })
        .await
    }

    /// What the mirror has of the sets of a Source, also of those that are not followed; sets without resources are left out.
    pub async fn set_totals(self: &Arc<Self>, source: &str) -> Result<Vec<SetTotals>, StoreError> {
        let source = source.to_owned();
        self.read_in(Lane::Reports, move |sql| {
            Ok(forgotten::set_totals(sql, &source)?)
        })
        .await
    }

    /// Plans the deletion of the next resources of a set, up to 500, that the mirror has and that no other set has than those in `former`.
    /// Returns the last of them, and how many; `None`: there are no more.
    pub async fn delete_next_of_former(
        self: &Arc<Self>,
        source: &str,
        now: DateTime<Utc>,
        set: SetId,
        former: &[SetId],
        after: ResourceId,
    ) -> Result<Option<(ResourceId, usize)>, StoreError> {
        let source = source.to_owned();
        let former: Vec<i64> = former.iter().map(|set| set.0).collect();
        let former = serde_json::to_string(&former);
        let former = former.map_err(|_| StoreError::BadRow("a list of sets"))?;
        let most = self.observer.rows_a_step(RESOURCES_A_STEP);
        self.write(move |tx| {
            let next = forgotten::resources_of_former(tx.sql, set, &former, after, most)?;
            let context = BatchContext::read(tx.sql, set, &source, Origin::Forget, now)?;
            for (_, uri) in &next {
                repair(tx.sql, &context, &Change::deletion(uri.clone(), None))?;
            }
            let last = next.last().map(|(id, _)| (*id, next.len()));
            if last.is_some() {
                tx.wake(Wake::Tasks(source.clone()));
            }
            Ok(last)
        })
        .await
    }

    /// Begins to forget what is known of the resources of a Source: its sets begin with their baselines again.
    pub async fn begin_anew(self: &Arc<Self>, source: &str) -> Result<(), StoreError> {
        let source = source.to_owned();
        self.write(move |tx| {
            for set in forgotten::sets(tx.sql, &source)? {
                forgotten::begin_set_anew(tx.sql, set)?;
            }
            Ok(())
        })
        .await
    }

    /// The next resources to forget, up to 500. Their files are in doubt from now on: they may be removed. Empty: there are no more.
    pub async fn begin_forgetting(
        self: &Arc<Self>,
        source: &str,
    ) -> Result<Vec<ForgottenResource>, StoreError> {
        let source = source.to_owned();
        let most = self.observer.rows_a_step(RESOURCES_A_STEP);
        self.write(move |tx| {
            let next = forgotten::next_resources(tx.sql, &source, most)?;
            for found in &next {
                resource::doubt(tx.sql, found.id)?;
            }
            Ok(next)
        })
        .await
    }

    /// Deletes the rows of resources.
    pub async fn forget_resources(
        self: &Arc<Self>,
        now: DateTime<Utc>,
        resources: Vec<ForgottenResource>,
        files: FilesOfForgotten,
    ) -> Result<(), StoreError> {
        self.write(move |tx| {
            if files == FilesOfForgotten::Removed {
                append_removals(tx, now, &resources)?;
            }
            delete_resources(tx, &resources)
        })
        .await
    }

    /// Deletes the rows of the next resources of a Source, up to 500, whose files stay; returns how many.
    pub async fn forget_next(self: &Arc<Self>, source: &str) -> Result<usize, StoreError> {
        let source = source.to_owned();
        let most = self.observer.rows_a_step(RESOURCES_A_STEP);
        self.write(move |tx| {
            let next = forgotten::next_resources(tx.sql, &source, most)?;
            delete_resources(tx, &next)?;
            Ok(next.len())
        })
        .await
    }

    /// Clears the counts of a Source of which no resource is left.
    pub async fn end_forgetting_resources(
        self: &Arc<Self>,
        source: &str,
    ) -> Result<(), StoreError> {
        let source = source.to_owned();
        self.write(move |tx| {
            for set in forgotten::sets(tx.sql, &source)? {
                forgotten::clear_counts(tx.sql, set)?;
            }
            Ok(())
        })
        .await
    }

    /// Deletes the channels of a Source, ends its sets, and deletes what else is known of it: the last step.
    pub async fn end_forgetting(self: &Arc<Self>, source: &str) -> Result<(), StoreError> {
        let (source, unreadable) = (source.to_owned(), Arc::clone(&self.unreadable));
        self.write(move |tx| {
            for set in forgotten::sets(tx.sql, &source)? {
                forgotten::end_set(tx.sql, set)?;
            }
            mirror::remove(tx.sql, &source)?;
            mirror::remove_versions(tx.sql, &source)?;
            followed_source::delete(tx.sql, &source)?;
            paused::delete(tx.sql, &source)?;
            audit::delete(tx.sql, &source)?;
            unreadable.clear(&source);
            Ok(())
        })
        .await
    }
}

fn delete_resources(tx: &mut Tx<'_>, resources: &[ForgottenResource]) -> Result<(), StoreError> {
    let mut totals = TotalsChange::default();
    for forgotten in resources {
        if let Some(length) = resource::live_length(tx.sql, forgotten.id)? {
            totals.count_removal(tx.sql, forgotten.id, length)?;
        }
        resource::remove(tx.sql, forgotten.id)?;
    }
    totals.write(tx.sql)
}

/// Appends the removals of files to the feed, of the resources that the mirror had.
fn append_removals(
    tx: &mut Tx<'_>,
    now: DateTime<Utc>,
    resources: &[ForgottenResource],
) -> Result<(), StoreError> {
    for forgotten in resources {
        let (Some(path), Some(_)) = (&forgotten.path, forgotten.length) else {
            continue;
        };
        let entry = NewEntry {
            applied_at: now,
            set: forgotten.set,
            resource: forgotten.id,
            uri: &forgotten.uri,
            change: ChangeKind::Deleted.as_str(),
            path,
            length: None,
            changed_at: None,
            origin: Origin::Forget,
            links: &[],
            is_patched: false,
        };
        let seq = feed::append(tx.sql, &entry)?;
        tx.wake(Wake::Feed(seq));
    }
    Ok(())
}
