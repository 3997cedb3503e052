//! Decides on the held-back deletions of a Source: they are approved or rejected, or a rejection is undone.
//!
//! Invariants: no transaction is long, whatever the number of deletions. Each deletion is decided by one of them or stays as it was, also
//! if the process ends meanwhile. What is held back after the decision has begun is not part of it.

use std::sync::Arc;

use chrono::{DateTime, Utc};

use crate::store::ids::ResourceId;
use crate::store::tables::task::{self, TaskState};
use crate::store::tables::{forgotten, loss, source_set, task_count};
use crate::store::{Store, StoreError, Wake};

/// How many tasks one transaction changes.
pub(in crate::store) const TASKS_A_STEP: usize = if cfg!(test) { 50 } else { 2000 };

/// What a person decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldDecision {
    /// The deletions go on.
    Approve {
        /// How many of them the person has seen: if more are held back, none goes on. `None`: all go on.
        seen: Option<u64>,
    },
    /// The files stay. What states the same deletions again changes nothing; once the Source lists a resource again, or states a new
    /// change of it, that decides.
    Reject,
    /// Deletions that were rejected are held back again.
    Undo,
}

/// What became of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecisionResult {
    /// It was made about so many deletions.
    Decided(u64),
    /// It was made about none: more are held back than the person has seen.
    MoreHeld {
        /// How many are held back.
        held: u64,
        /// How many the person has seen.
        seen: u64,
    },
}

impl DecisionResult {
    fn decided(self) -> u64 {
        match self {
            Self::Decided(deletions) => deletions,
            Self::MoreHeld { .. } => 0,
        }
    }
}

impl HeldDecision {
    /// The states of a task before and afterwards.
    fn states(self) -> (TaskState, TaskState) {
        match self {
            Self::Approve { .. } => (TaskState::HeldBack, TaskState::Ready),
            Self::Reject => (TaskState::HeldBack, TaskState::Rejected),
            Self::Undo => (TaskState::Rejected, TaskState::HeldBack),
        }
    }
}

impl Store {
    /// Releases the held-back deletions of a Source and returns their number.
    pub async fn approve_deletions(self: &Arc<Self>, source: &str) -> Result<u64, StoreError> {
        let decision = HeldDecision::Approve { seen: None };
        let now = crate::clock::now().wall;
        let result = self
            .decide_deletions(source, decision, now, || true)
            .await?;
        Ok(result.decided())
    }

    /// Rejects the held-back deletions of a Source and returns their number.
    pub async fn reject_deletions(self: &Arc<Self>, source: &str) -> Result<u64, StoreError> {
        let (decision, now) = (HeldDecision::Reject, crate::clock::now().wall);
        let result = self
            .decide_deletions(source, decision, now, || true)
            .await?;
        Ok(result.decided())
    }

    /// Decides on the deletions of a Source, some at a time as long as `goes_on`, and returns for how many that was done. The others stay as
    /// they are.
    pub async fn decide_deletions(
        self: &Arc<Self>,
        source: &str,
        decision: HeldDecision,
        now: DateTime<Utc>,
        goes_on: impl Fn() -> bool,
    ) -> Result<DecisionResult, StoreError> {
        let name = source.to_owned();
        let found = self.read(move |sql| {
            Ok(match decision {
                HeldDecision::Approve { .. } | HeldDecision::Reject => task::held_back(sql, &name)?,
                HeldDecision::Undo => task::rejected(sql, &name)?,
            })
        });
        let found = found.await?;
        let held = found.len() as u64;
        if let HeldDecision::Approve { seen: Some(seen) } = decision
            && held > seen
        {
            return Ok(DecisionResult::MoreHeld { held, seen });
        }
        self.begin_decision(source, decision, now).await?;
        let mut decided = 0;
        for step in found.chunks(TASKS_A_STEP) {
            if !goes_on() {
                break;
            }
            decided += self.decide_some(source, decision, step.to_vec()).await?;
        }
        Ok(DecisionResult::Decided(decided))
    }

    async fn begin_decision(
        self: &Arc<Self>,
        source: &str,
        decision: HeldDecision,
        now: DateTime<Utc>,
    ) -> Result<(), StoreError> {
        let source = source.to_owned();
        match decision {
            // Recent deletions do not count any more: a person has reviewed them.
            HeldDecision::Approve { .. } => {
                self.write(move |tx| Ok(loss::delete_of_source(tx.sql, &source)?))
                    .await
            }
            HeldDecision::Reject => Ok(()),
            HeldDecision::Undo => {
                self.write(move |tx| {
                    for set in forgotten::sets(tx.sql, &source)? {
                        if task_count::of_set(tx.sql, set)?.held_back == 0 {
                            source_set::set_held_since(tx.sql, set, now)?;
                        }
                    }
                    Ok(())
                })
                .await
            }
        }
    }

    async fn decide_some(
        self: &Arc<Self>,
        source: &str,
        decision: HeldDecision,
        step: Vec<ResourceId>,
    ) -> Result<u64, StoreError> {
        let source = source.to_owned();
        let (from, to) = decision.states();
        self.write(move |tx| {
            let mut decided = 0;
            for &resource in &step {
                decided += u64::from(task::change_state(tx.sql, resource, from, to)?);
            }
            if decided > 0 && matches!(decision, HeldDecision::Approve { .. }) {
                tx.wake(Wake::Tasks(source));
            }
            Ok(decided)
        })
        .await
    }
}
