//! Changes when tasks are due that were delayed or failed.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use resourcesync::Link;
use resyncd_core::ResourceUri;

use super::approve::TASKS_A_STEP;
use super::settle::drop_at_rest;
use crate::store::ids::{ResourceId, SetId};
use crate::store::tables::task::{self, Task, UnselectedTask, queue};
use crate::store::{Store, StoreError, Wake};

/// The longest delay of a task: of what a Source refuses or lacks.
const LONGEST_DELAY: TimeDelta = TimeDelta::days(1);

/// How many updates one transaction checks that were not selected.
const UNSELECTED_A_STEP: usize = 5000;

impl Store {
    /// Drops the failed tasks of a set that are not wanted any more: no document that is read states what becomes of them.
    pub async fn drop_unwanted(
        self: &Arc<Self>,
        set: SetId,
        now: DateTime<Utc>,
        wants: impl Fn(&ResourceUri) -> bool + Send + 'static,
    ) -> Result<(), StoreError> {
        let unwanted = self.read(move |sql| Ok(queue::unwanted_at_rest(sql, set, now, wants)?));
        let unwanted = unwanted.await?;
        if unwanted.is_empty() {
            return Ok(());
        }
        self.write(move |tx| {
            for &id in &unwanted {
                // It may be due again, or in progress, by now.
                if task::is_at_rest(tx.sql, id, now)? {
                    drop_at_rest(tx.sql, id)?;
                }
            }
            Ok(())
        })
        .await
    }

    /// Makes the updates of a set ready that were not selected, and are now, and drops those that are not wanted any more. `wants` and
    /// `selects` decide by their URIs, and by what they state of themselves.
    pub async fn reselect(
        self: &Arc<Self>,
        set: SetId,
        source: &str,
        wants: impl Fn(&ResourceUri) -> bool,
        selects: impl Fn(Option<&str>, &[Link]) -> bool,
    ) -> Result<(), StoreError> {
        let mut after = (String::new(), ResourceId(0));
        loop {
            let (origin, resource) = after;
            let step = self.read(move |sql| {
                let after = (origin.as_str(), resource);
                Ok(task::unselected(sql, set, after, UNSELECTED_A_STEP)?)
            });
            let step = step.await?;
            let Some(last) = step.last() else {
                return Ok(());
            };
            after = (last.origin.clone(), last.resource);
            let (wanted, unwanted): (Vec<_>, Vec<_>) = step.iter().partition(|it| wants(&it.uri));
            let unwanted: Vec<ResourceId> = unwanted.iter().map(|it| it.resource).collect();
            let is_selected = |it: &&&UnselectedTask| selects(it.media_type.as_deref(), &it.links);
            let selected = wanted.iter().filter(is_selected);
            let selected: Vec<ResourceId> = selected.map(|it| it.resource).collect();
            if selected.is_empty() && unwanted.is_empty() {
                continue;
            }
            let source = source.to_owned();
            self.write(move |tx| {
                for &id in &unwanted {
                    if task::is_unselected(tx.sql, id)? {
                        drop_at_rest(tx.sql, id)?;
                    }
                }
                for &resource in &selected {
                    task::reselect(tx.sql, resource)?;
                }
                tx.wake(Wake::Tasks(source));
                Ok(())
            })
            .await?;
        }
    }

    /// Makes the failed tasks of a set due, for one more try each. `but_since`: those that have failed since then stay failed.
    pub async fn retry_failed(
        self: &Arc<Self>,
        set: SetId,
        source: &str,
        now: DateTime<Utc>,
        but_since: Option<DateTime<Utc>>,
    ) -> Result<(), StoreError> {
        let source = source.to_owned();
        self.write(move |tx| {
            if task::retry_failed(tx.sql, set, now, but_since)? > 0 {
                tx.wake(Wake::Tasks(source));
            }
            Ok(())
        })
        .await
    }

    /// Makes the tasks of a Source due now that were given up, also those that are being tried again, some at a time as long as `goes_on`;
    /// returns their number.
    pub async fn retry_given_up(
        self: &Arc<Self>,
        source: &str,
        now: DateTime<Utc>,
        goes_on: impl Fn() -> bool,
    ) -> Result<u64, StoreError> {
        let name = source.to_owned();
        let found = self
            .read(move |sql| Ok(task::given_up(sql, &name)?))
            .await?;
        let mut retried = 0;
        for step in found.chunks(self.observer.rows_a_step(TASKS_A_STEP)) {
            if !goes_on() {
                break;
            }
            let (source, step) = (source.to_owned(), step.to_vec());
            retried += self
                .write(move |tx| {
                    let mut retried = 0;
                    for &resource in &step {
                        retried += u64::from(task::retry_given_up(tx.sql, resource, now)?);
                    }
                    if retried > 0 {
                        tx.wake(Wake::Tasks(source));
                    }
                    Ok(retried)
                })
                .await?;
        }
        Ok(retried)
    }

    /// Makes delayed and failed tasks due at once: they have a new candidate.
    pub async fn make_due(
        self: &Arc<Self>,
        source: &str,
        now: DateTime<Utc>,
        tasks: Vec<Task>,
    ) -> Result<(), StoreError> {
        let source = source.to_owned();
        self.write(move |tx| {
            for task in &tasks {
                task::make_due(tx.sql, task, now)?;
            }
            tx.wake(Wake::Tasks(source));
            Ok(())
        })
        .await
    }

    /// Moves the times at which a Source's tasks are due after the wall clock was set back, by `setback` if that is known: the
    /// rest of each delay stays. No task is delayed longer than any delay is.
    pub async fn shift_due_times(
        self: &Arc<Self>,
        source: &str,
        now: DateTime<Utc>,
        setback: TimeDelta,
    ) -> Result<(), StoreError> {
        let source = source.to_owned();
        self.write(move |tx| {
            let latest = now + LONGEST_DELAY;
            Ok(task::shift_due_times(
                tx.sql, &source, now, setback, latest,
            )?)
        })
        .await
    }
}
