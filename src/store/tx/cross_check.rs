//! Stores what a Change List says about what only a hub has stated for the time that the list covers. Where the list contradicts the
//! hub, the Source is asked: a list may be behind what happens, and its times may be less exact than the hub's.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use resourcesync::{ChangeKind, SourceTime};
use resyncd_core::ResourceUri;
use rusqlite::Connection;

use super::batch_context::BatchContext;
use super::deletion_guard::{DeletionRules, decide_deletions};
use super::put_task::put_task_since;
use super::restore::request_removal_of_unrecorded;
use crate::store::change::{Change, Origin};
use crate::store::ids::SetId;
use crate::store::tables::resource::unconfirmed::{self, Unconfirmed, UnconfirmedState};
use crate::store::tables::resource::{self, ResourceState};
use crate::store::tables::tally::Tallied;
use crate::store::tables::{coverage, membership, source_set, task};
use crate::store::{Store, StoreError, Wake};

/// What a Change List says about statements of a hub.
#[derive(Debug)]
pub struct Comparison {
    /// The set.
    pub set: SetId,
    /// The label of its Source.
    pub source: String,
    /// The statements that it confirms.
    pub confirmed: Vec<Unconfirmed>,
    /// Those that it contradicts.
    pub contradicted: Vec<Unconfirmed>,
    /// Decides whether resources are deleted that the Source does not serve.
    pub rules: DeletionRules,
}

/// What a comparison has led to.
#[derive(Debug, Default)]
pub struct Contradictions {
    /// Resources for which the Source is asked.
    pub asked: u64,
    /// Resources that the Source neither lists nor serves: they are forgotten.
    pub forgotten: Vec<ResourceUri>,
}

impl Store {
    /// What only a hub has stated for a time from `from` to before `until`, and what was not compared yet: up to `most` applied
    /// statements, and as many of resources that the Source does not serve.
    pub async fn unconfirmed(
        self: &Arc<Self>,
        set: SetId,
        from: SourceTime,
        until: SourceTime,
        most: u64,
    ) -> Result<Vec<Unconfirmed>, StoreError> {
        self.read(move |sql| Ok(unconfirmed::find(sql, set, from, until, most)?))
            .await
    }

    /// Stores a comparison. What has changed since it was made is left alone.
    pub async fn conclude_comparison(
        self: &Arc<Self>,
        now: DateTime<Utc>,
        comparison: Comparison,
    ) -> Result<Contradictions, StoreError> {
        self.write(move |tx| {
            let concluded = conclude(tx.sql, now, &comparison)?;
            tx.wake(Wake::Tasks(comparison.source));
            Ok(concluded)
        })
        .await
    }
}

fn conclude(
    sql: &Tallied<'_>,
    now: DateTime<Utc>,
    comparison: &Comparison,
) -> Result<Contradictions, StoreError> {
    let set = comparison.set;
    let context = BatchContext::read(sql, set, &comparison.source, Origin::ChangeList, now)?;
    for statement in &comparison.confirmed {
        if statement.state.is_applied() && current(sql, &context, statement)?.is_some() {
            unconfirmed::set_compared(sql, statement.resource)?;
        }
    }
    if comparison.contradicted.is_empty() {
        return Ok(Contradictions::default());
    }
    // Undecided deletions are those of a document that was not ingested to its end.
    task::interrupt_undecided(sql, set)?;
    let mut concluded = Contradictions::default();
    for statement in &comparison.contradicted {
        let Some(state) = current(sql, &context, statement)? else {
            continue;
        };
        if statement.state == (UnconfirmedState::Unserved { live: false }) {
            // It was asked for, and the Source has answered.
            state.drop_task(sql, &context)?;
            if state.known.is_none() && state.is_doubted {
                request_removal_of_unrecorded(sql, state.id, now)?;
            }
            membership::delete_from_all(sql, state.id, i64::MAX)?;
            concluded.forgotten.push(statement.uri.clone());
        } else {
            if statement.state.is_applied() {
                unconfirmed::set_compared(sql, statement.resource)?;
            }
            ask(sql, &context, statement, &state)?;
            concluded.asked += 1;
        }
    }
    decide_deletions(sql, set, now, comparison.rules)?;
    source_set::end_finished_baselines(sql, set)?;
    Ok(concluded)
}

/// The state of the resource, if what the hub has stated is still the last that is known of it.
fn current(
    sql: &Connection,
    context: &BatchContext<'_>,
    statement: &Unconfirmed,
) -> Result<Option<ResourceState>, StoreError> {
    let at = Some(statement.at);
    let Some(state) = resource::state(sql, context.source, &statement.uri, context.set)? else {
        return Ok(None);
    };
    let is_live = state.known.as_ref().is_some_and(|known| !known.deleted);
    let is_current = match (statement.state, &state.pending, &state.known) {
        // What is given up is not executed.
        (UnconfirmedState::Unserved { live }, Some(_), _) => {
            is_live == live && unconfirmed::is_unserved(sql, context.set, state.id, statement.at)?
        }
        (UnconfirmedState::Live | UnconfirmedState::Deleted, None, Some(known)) => {
            known.unconfirmed
                && known.changed_at == at
                && is_live == (statement.state == UnconfirmedState::Live)
        }
        _ => false,
    };
    Ok(is_current.then_some(state))
}

/// Makes the task that asks the Source: it deletes the resource if the Source does not serve it, or creates it if it does.
fn ask(
    sql: &Tallied<'_>,
    context: &BatchContext<'_>,
    statement: &Unconfirmed,
    state: &ResourceState,
) -> Result<(), StoreError> {
    let deletion = Change {
        unconfirmed: true,
        ..Change::deletion(statement.uri.clone(), Some(statement.at))
    };
    let question = match statement.state {
        UnconfirmedState::Live | UnconfirmedState::Unserved { .. } => deletion,
        UnconfirmedState::Deleted => {
            state.join_changed(sql, context, false)?;
            Change {
                kind: ChangeKind::Created,
                ..deletion
            }
        }
    };
    // `synced_until` is not lowered, because it was claimed already; but it does not advance either.
    let claimed = coverage::unbroken_until(sql, context.set)?;
    let since = claimed.max(Some(statement.at));
    put_task_since(sql, context, state.id, &question, since)?;
    Ok(task::set_contradicted(sql, state.id)?)
}
