//! Compares entries of a Resource List or Resource Dump with what the mirror has.

use chrono::{DateTime, Utc};
use resourcesync::{ChangeKind, SourceTime};
use resyncd_core::{Applied, CheckRules, Desired, Standing, Stated, Voice};
use url::Url;

use super::batch_context::BatchContext;
use super::deletion_guard::decide_deletions_of_others;
use super::ingest::{BatchResult, EntryOutcome};
use super::list_deletion::delete_expired;
use super::settle::{Cause, Settled};
use super::statements::{Resource, entry_of};
use super::undated::{UndatedChecks, is_doubted, is_planned};
use super::versions::{AnnouncedAs, announce};
use crate::store::change::{Change, Origin};
use crate::store::ids::{PartId, SetId};
use crate::store::named::NamedSoFar;
use crate::store::sql::Connection;
use crate::store::tables::document;
use crate::store::tables::part::{self, PartEnd};
use crate::store::tables::resource::ResourceState;
use crate::store::tables::tally::Tallied;
use crate::store::tables::{source_set, task};
use crate::store::writer::{Tx, Writing};
use crate::store::{Store, StoreError, Wake};

/// A Resource List, or a Resource Dump, that is being read.
#[derive(Clone, Debug)]
pub struct ListProgress {
    /// The set.
    pub set: SetId,
    /// The label of its Source.
    pub source: String,
    /// Which of the two it is.
    pub origin: Origin,
    /// The time of the snapshot.
    pub at: SourceTime,
    /// How entries are checked that state nothing about their content; `None`: they are not, because the list is not new.
    pub checks: Option<CheckRules>,
    /// What it has named so far.
    pub named: NamedSoFar,
}

/// Which entries of a part a batch has.
#[derive(Clone, Debug)]
pub struct PartStep {
    /// Where the part was fetched.
    pub uri: Url,
    /// Whether the batch has the first entries. From then on the part counts as incomplete.
    pub begins: bool,
    /// Set if the batch has the last entries. From then on the part counts as complete, unless it is damaged.
    pub end: Option<PartEnd>,
    /// What the part has named so far.
    pub named: NamedSoFar,
}

impl Store {
    /// Compares entries of a list with what the mirror has and makes tasks of the differences. `named`: what the document of the entries
    /// has named so far. The result may be awaited later.
    pub fn ingest_listed(
        &self,
        list: &ListProgress,
        now: DateTime<Utc>,
        entries: Vec<Change>,
        named: &NamedSoFar,
    ) -> Writing<BatchResult> {
        let (list, named) = (list.clone(), named.clone());
        self.begin_write(move |tx| ingest_listed(tx, &list, now, &named, &entries))
    }

    /// As [`ingest_listed`](Self::ingest_listed), for entries of a part of the list.
    pub fn ingest_part(
        &self,
        list: &ListProgress,
        now: DateTime<Utc>,
        entries: Vec<Change>,
        step: PartStep,
    ) -> Writing<BatchResult> {
        let list = list.clone();
        self.begin_write(move |tx| {
            let part = begin_step(tx.sql, list.set, &step)?;
            let result = ingest_listed(tx, &list, now, &step.named, &entries)?;
            let named = step.named.get();
            let Some(end) = &step.end else {
                part::add_names(tx.sql, part, &named)?;
                return Ok(result);
            };
            // Once there is room they are followed, whether the part has changed or not.
            let filter = end.filter.as_deref();
            let filter = filter.filter(|_| result.unfollowed == 0);
            part::end(tx.sql, part, filter, end, &named)?;
            if let Some(document) = &end.document {
                document::save(tx.sql, list.set, document)?;
            }
            Ok(result)
        })
    }
}

fn begin_step(sql: &Connection, set: SetId, step: &PartStep) -> Result<PartId, StoreError> {
    Ok(if step.begins {
        part::begin(sql, set, &step.uri)?
    } else {
        part::id_of(sql, set, &step.uri)?
    })
}

fn ingest_listed(
    tx: &mut Tx<'_>,
    list: &ListProgress,
    now: DateTime<Utc>,
    named: &NamedSoFar,
    entries: &[Change],
) -> Result<BatchResult, StoreError> {
    let sql = tx.sql;
    let mut context = BatchContext::read(sql, list.set, &list.source, list.origin, now)?;
    context.reading = Some(list);
    let checks = list
        .checks
        .map(|rules| UndatedChecks::read(sql, list.set, rules, now));
    let mut checks = checks.transpose()?;
    let mut result = BatchResult::default();
    source_set::set_reading(sql, list.set, list.at)?;
    for entry in entries {
        result.count(ingest_listed_entry(
            sql,
            &context,
            list.at,
            named,
            checks.as_mut(),
            entry,
        )?);
    }
    result.unfollowed = context.unfollowed.get();
    decide_deletions_of_others(sql, &context)?;
    if let Some(checks) = checks {
        checks.save(sql, list.set)?;
    }
    if result.tasks > 0 || context.has_restored.get() {
        tx.wake(Wake::Tasks(list.source.clone()));
    }
    if context.has_versions.get() {
        tx.wake(Wake::Versions(list.source.clone()));
    }
    if let Some(seq) = context.last_entry.get() {
        tx.wake(Wake::Feed(seq));
    }
    Ok(result)
}

/// Notes that a list names a resource that is not selected: what the mirror has of it from before is not absent.
fn name_unwanted(
    sql: &Tallied<'_>,
    context: &BatchContext<'_>,
    at: SourceTime,
    named: &NamedSoFar,
    entry: &Change,
) -> Result<(), StoreError> {
    let is_member = |state: &ResourceState| state.membership.is_some();
    if context
        .state_of(&entry.uri)?
        .is_none_or(|it| !is_member(&it))
    {
        return Ok(());
    }
    let mut resource = Resource::of_change(sql, context, entry)?;
    resource.apply(&entry_of(context.set, entry, Stated::Listed(at)), false);
    resource.join_listed(sql, context, named)?;
    resource.respell(sql, entry)?;
    resource.relate(sql, context, entry)?;
    resource.settle(sql, context, Some(entry), Cause::Document)?;
    Ok(())
}

/// Compares one entry of a list of the time `at`, and returns what became of it.
fn ingest_listed_entry(
    sql: &Tallied<'_>,
    context: &BatchContext<'_>,
    at: SourceTime,
    named: &NamedSoFar,
    mut checks: Option<&mut UndatedChecks>,
    entry: &Change,
) -> Result<EntryOutcome, StoreError> {
    if entry.kind == ChangeKind::Deleted {
        return delete_expired(sql, context, entry);
    }
    if entry.standing.is_some_and(Standing::is_irrelevant) {
        name_unwanted(sql, context, at, named, entry)?;
        return Ok(EntryOutcome::Known);
    }
    let mut resource = Resource::of_change(sql, context, entry)?;
    let claim = resource.stated_by(context.set, Voice::Hub);
    let deleted_at = claim
        .filter(|claim| !claim.exists())
        .and_then(|claim| claim.entry.at);
    let own = resource.stated_by(context.set, Voice::Source);
    let content_before = own.map(|it| it.content_revision);
    let applied = resource.apply(&entry_of(context.set, entry, Stated::Listed(at)), false);
    if let Applied::Older(_) = applied {
        announce(sql, context, &resource, entry, AnnouncedAs::Older)?;
        // A resource that was deleted after the snapshot is in the list, and does not belong to the set.
        if resource.existence_in(context.set).is_some() {
            resource.join_listed(sql, context, named)?;
            resource.follow_links_of_older(sql, context, entry)?;
        }
        // The list may cover a change that happened before the pending one; at an unknown time, if nothing was covered.
        if resource.state.task.is_some() {
            task::lower_since(sql, resource.state.id, context.unbroken_until()?)?;
        }
        resource.settle(sql, context, None, Cause::Document)?;
        return Ok(EntryOutcome::Known);
    }
    let modified = entry.lastmod.map(SourceTime::latest_possible);
    // Otherwise it may have been created again since.
    let contradicts = modified.is_some() && modified < deleted_at;
    resource.join_listed(sql, context, named)?;
    resource.respell(sql, entry)?;
    resource.relate(sql, context, entry)?;
    resource.follow_links(sql, context, entry)?;
    if applied == Applied::News && is_doubted(sql, context, &resource, entry)? {
        let is_checked = match checks.as_deref_mut() {
            // It was planned when the list was new.
            None => true,
            Some(_) if is_planned(&resource, context.set) => true,
            Some(_) if resource.state.task.is_some() => false,
            Some(checks) => checks.put(sql, context, &mut resource, entry)?,
        };
        if let (true, Some(content), Some(own)) = (
            is_checked,
            content_before,
            resource.stated_by(context.set, Voice::Source),
        ) {
            own.content_revision = content;
        }
    }
    let is_wanted = resource.decide(context)?.desired != Desired::Settled;
    let announced = if is_wanted {
        AnnouncedAs::Pending
    } else {
        AnnouncedAs::InPlace
    };
    announce(sql, context, &resource, entry, announced)?;
    if !is_wanted {
        if let Some(checks) = checks {
            checks.plan(sql, context, &mut resource, entry)?;
        }
        resource.set_links(sql, context, entry)?;
    }
    let settled = resource.settle(sql, context, Some(entry), Cause::Document)?;
    Ok(match settled {
        Settled::Task if contradicts => EntryOutcome::Contradiction,
        Settled::Task => EntryOutcome::Task,
        Settled::Same | Settled::Dropped | Settled::Nothing => EntryOutcome::Known,
    })
}
