//! Compares a Change List with what only a hub has stated for the time that the list covers.
//!
//! Invariants: nothing is compared with a list of which a part is missing or damaged, and nothing twice. A list that contradicts
//! the hub changes nothing by itself: it may be behind, or state other times. The Source's answer for the resource decides.

use std::collections::HashMap;

use chrono::TimeDelta;
use resourcesync::{ChangeKind, SourceTime};
use resyncd_core::{CrossCheck, DeliveryFaultKind, ResourceUri};

use super::changes::note_change;
use super::span::{end_of, span_of};
use super::state::SetState;
use crate::clock;
use crate::engine::EngineError;
use crate::engine::contradictions::note_contradiction;
use crate::engine::documents::{NextEntry, SummarizedDocument};
use crate::store::{Comparison, Unconfirmed, UnconfirmedState};

/// How many statements of a hub are compared in one pass over a list, and in how many passes.
const AT_ONCE: u64 = 5000;
const PASSES: u32 = 20;
/// How far from the begin and the end of the list a statement must be: what is nearer may be in the list before or after it.
const MARGIN: TimeDelta = TimeDelta::seconds(1);

impl SetState {
    /// Compares a Change List with what only a hub has stated, before the list is ingested. Where the list contradicts the hub, the
    /// Source is asked. `from`: where the list begins, if it does not state that.
    pub(super) async fn cross_check(
        &self,
        mut read: SummarizedDocument,
        from: Option<SourceTime>,
    ) -> Result<SummarizedDocument, EngineError> {
        let from = span_of(&read.summary).from.or(from);
        let is_whole = read.next_page().is_none()
            && read.summary.packages_of_changes == 0
            && read.expect_undamaged().is_ok();
        let (Some(from), Some(until), true) = (from, end_of(&read.summary), is_whole) else {
            return Ok(read);
        };
        let from = SourceTime::from(from.to_datetime() + MARGIN);
        let until = SourceTime::from(until.to_datetime() - MARGIN);
        let document = read.document.url().clone();
        let (set, store) = (self.record.id, &self.context.store);
        for _ in 0..PASSES {
            let mut statements = store.unconfirmed(set, from, until, AT_ONCE).await?;
            let is_last = statements.len() < AT_ONCE as usize;
            // A date may stand for a time that the list does not cover.
            statements.retain(|statement| statement.at.latest_possible() < until);
            if statements.is_empty() {
                break;
            }
            let newest_first = read.summary.newest_first;
            let comparing = read.with_entries(move |next| compare(next, newest_first, statements));
            let (contradicted, mut confirmed);
            (read, (contradicted, confirmed)) = comparing.await?;
            let filter = &self.context.source.filter;
            let (contradicted, unwanted): (Vec<_>, Vec<_>) = contradicted
                .into_iter()
                .partition(|statement| filter.wants(&statement.uri));
            confirmed.extend(unwanted);
            let source = self.context.name();
            let comparison = Comparison {
                set,
                source: source.to_owned(),
                confirmed,
                contradicted,
                rules: self.deletion_rules(),
            };
            let now = clock::now().wall;
            let found = store.conclude_comparison(now, comparison).await?;
            if found.asked > 0 {
                tracing::info!(source, %document, count = found.asked,
                    "the Change List does not confirm notifications that are not trusted; requesting their resources from the Source");
            }
            for uri in &found.forgotten {
                tracing::warn!(code = DeliveryFaultKind::Contradicted.code(), source, %document, %uri,
                    "a notification announced a resource that the Source neither lists nor serves; its task is dropped");
            }
            if !found.forgotten.is_empty() {
                note_contradiction(&self.context, set).await;
            }
            if is_last {
                break;
            }
        }
        Ok(read)
    }

    /// Reports what only a hub has stated, and a Resource List or Resource Dump contradicts.
    pub(super) async fn report_contradictions(&self, count: u64) {
        if count > 0 {
            let (code, source) = (DeliveryFaultKind::Contradicted.code(), self.context.name());
            tracing::warn!(code, source, set = %self.record.capability_list, count,
                "the Resource List or Resource Dump contradicts notifications that are not trusted; ingesting it");
            note_contradiction(&self.context, self.record.id).await;
        }
    }
}

/// Reads the list once to its end, and divides the statements into those that it contradicts and the others. For a blocking thread.
fn compare(
    next: &mut NextEntry<'_>,
    newest_first: bool,
    statements: Vec<Unconfirmed>,
) -> Result<(Vec<Unconfirmed>, Vec<Unconfirmed>), EngineError> {
    let mut checks: HashMap<ResourceUri, CrossCheck> = statements
        .iter()
        .map(|statement| {
            let is_deleted = statement.state == UnconfirmedState::Deleted;
            let check = CrossCheck::of(statement.at, is_deleted, newest_first);
            (statement.uri.clone(), check)
        })
        .collect();
    let now = clock::now().wall;
    while let Some(mut entry) = next()? {
        let changed_at = note_change(&mut entry, now);
        let is_deleted = entry.md.change == Some(ChangeKind::Deleted);
        if let Ok(uri) = ResourceUri::try_from(entry.loc)
            && let Some(check) = checks.get_mut(&uri)
        {
            check.add(changed_at, is_deleted);
        }
    }
    let is_contradicted = |statement: &Unconfirmed| {
        let check = checks.get(&statement.uri);
        check.is_some_and(CrossCheck::is_contradicted)
    };
    Ok(statements.into_iter().partition(is_contradicted))
}
