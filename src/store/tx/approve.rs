//! Decides on the held-back deletions of a Source: they are approved or rejected, or a rejection is undone.
//!
//! Invariants: no transaction is long, whatever the number of deletions. Each deletion is decided by one of them or stays as it was, also
//! if the process ends meanwhile. What is held back after the decision has begun is not part of it:
//! deletions have the number that they got when they were held back, and a decision is of those up to a number.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use resyncd_core::Desired;

use super::batch_context::BatchContext;
use super::settle::Cause;
use super::statements::Resource;
use crate::store::change::Origin;
use crate::store::ids::ResourceId;
use crate::store::tables::task::{self, TaskState};
use crate::store::tables::{forgotten, last_hold, recent_deletions, resource, source_set, tally};
use crate::store::writer::Tx;
use crate::store::{Store, StoreError, Wake};

/// How many tasks one transaction changes.
pub(super) const TASKS_A_STEP: usize = 2000;

/// What a person decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeletionDecision {
    /// The deletions go on.
    Approve {
        /// How many of them the person has seen: if more are held back, none goes on. `None`: however many.
        seen: Option<u64>,
        /// Only those that were held back up to that number. `None`: all.
        through: Option<u64>,
    },
    /// The files stay. What states the same deletions again changes nothing; once the Source lists a resource again, or states a new
    /// change of it, that decides.
    Reject {
        /// Only those that were held back up to that number. `None`: all.
        through: Option<u64>,
    },
    /// Deletions that were rejected are held back again.
    Undo,
}

/// What became of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecisionResult {
    /// It was made about so many deletions.
    Decided(u64),
    /// It was made about none: more are held back than the person has seen.
    MoreHeldBack {
        /// How many are held back.
        held: u64,
        /// How many the person has seen.
        seen: u64,
    },
}

impl Store {
    /// Decides on the deletions of a Source, some at a time as long as `goes_on`, and returns for how many that was done. The others stay as
    /// they are.
    pub async fn decide_deletions(
        self: &Arc<Self>,
        source: &str,
        decision: DeletionDecision,
        now: DateTime<Utc>,
        goes_on: impl Fn() -> bool,
    ) -> Result<DecisionResult, StoreError> {
        let name = source.to_owned();
        let found = self.read(move |sql| {
            let last = last_hold::get(sql)?;
            Ok(match decision {
                DeletionDecision::Approve { through, .. }
                | DeletionDecision::Reject { through } => {
                    let through = through.map_or(last, |through| through.min(last));
                    let held = tally::held_back_of_source(sql, &name)?;
                    (task::held_back(sql, &name, Some(through))?, held, through)
                }
                DeletionDecision::Undo => (task::rejected(sql, &name)?, 0, last),
            })
        });
        let (found, held, through) = found.await?;
        if let DeletionDecision::Approve {
            seen: Some(seen), ..
        } = decision
            && held > seen
        {
            return Ok(DecisionResult::MoreHeldBack { held, seen });
        }
        // Nothing is left of what was listed: a person has reviewed none of the recent deletions.
        let is_bound = matches!(
            decision,
            DeletionDecision::Approve {
                through: Some(_),
                ..
            }
        );
        if is_bound && found.is_empty() {
            return Ok(DecisionResult::Decided(0));
        }
        if found.is_empty() && decision == DeletionDecision::Undo {
            return Ok(DecisionResult::Decided(0));
        }
        let hold = self.begin_decision(source, decision, through, now).await?;
        let mut decided = 0;
        for step in found.chunks(self.observer.rows_a_step(TASKS_A_STEP)) {
            if !goes_on() {
                break;
            }
            let step = step.to_vec();
            decided += self.decide_some(source, decision, hold, step, now).await?;
        }
        Ok(DecisionResult::Decided(decided))
    }

    /// Returns the number up to which the deletions are decided, or the one that those get which are held back again.
    async fn begin_decision(
        self: &Arc<Self>,
        source: &str,
        decision: DeletionDecision,
        through: u64,
        now: DateTime<Utc>,
    ) -> Result<u64, StoreError> {
        let source = source.to_owned();
        match decision {
            // Recent deletions do not count any more: a person has reviewed them.
            DeletionDecision::Approve { .. } => {
                self.write(move |tx| {
                    recent_deletions::delete_of_source(tx.sql, &source)?;
                    Ok(through)
                })
                .await
            }
            DeletionDecision::Reject { .. } => Ok(through),
            DeletionDecision::Undo => {
                self.write(move |tx| {
                    for set in forgotten::sets(tx.sql, &source)? {
                        if !task::any_held_back(tx.sql, set)? {
                            source_set::set_held_since(tx.sql, set, now)?;
                        }
                    }
                    Ok(last_hold::next(tx.sql)?)
                })
                .await
            }
        }
    }

    async fn decide_some(
        self: &Arc<Self>,
        source: &str,
        decision: DeletionDecision,
        hold: u64,
        step: Vec<ResourceId>,
        now: DateTime<Utc>,
    ) -> Result<u64, StoreError> {
        let source = source.to_owned();
        self.write(move |tx| {
            let mut decided = 0;
            for &resource in &step {
                let is_decided = match decision {
                    DeletionDecision::Approve { .. } => {
                        task::decide_held_back(tx.sql, resource, hold, TaskState::Ready)?
                    }
                    DeletionDecision::Reject { .. } => {
                        let is_rejected =
                            task::decide_held_back(tx.sql, resource, hold, TaskState::Unwanted)?;
                        if is_rejected {
                            settle_rejected(tx, &source, resource, now)?;
                        }
                        is_rejected
                    }
                    DeletionDecision::Undo => task::hold_rejected(tx.sql, resource, hold)?,
                };
                decided += u64::from(is_decided);
            }
            if decided > 0 && matches!(decision, DeletionDecision::Approve { .. }) {
                tx.wake(Wake::Tasks(source));
            }
            Ok(decided)
        })
        .await
    }
}

/// Requests a resource again whose deletion was rejected, where another set states something that the mirror does not have.
fn settle_rejected(
    tx: &mut Tx<'_>,
    source: &str,
    resource: ResourceId,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    let Some((_, set, _)) = resource::followed(tx.sql, resource)? else {
        return Ok(());
    };
    let context = BatchContext::read(tx.sql, set, source, Origin::ChangeList, now)?;
    let Some(mut found) = Resource::find(tx.sql, &context, resource)? else {
        return Ok(());
    };
    found.reject();
    if matches!(found.decide(&context)?.desired, Desired::Fetch { .. }) {
        found.settle(tx.sql, &context, None, Cause::Event)?;
        tx.wake(Wake::Tasks(source.to_owned()));
        return Ok(());
    }
    found.save(tx.sql, &context)
}
