//! Removes what sets leave behind that are not followed any more: changes that nothing tries again, resources without a file, channels
//! that have ended, and the row of the set once nothing names it.
//!
//! Invariants: files stay, and with them what a later deletion of them needs: the membership in the set. Each step is short. What may
//! still be executed stays.

use std::sync::Arc;

use chrono::{DateTime, Utc};

use super::deletion_guard::{forget_old, has_old};
use super::membership::{leave, leave_if_shared};
use super::settle::{drop_at_rest, settle};
use crate::store::ids::{ResourceId, SetId};
use crate::store::tables::resource::unused::{self, UnusedRule};
use crate::store::tables::{channel, membership, resource, source_set, task};
use crate::store::writer::Tx;
use crate::store::{Store, StoreError, Wake};

/// How many resources one step is for.
const RESOURCES_A_STEP: usize = 500;

impl Store {
    /// Removes what the former sets of a Source, or of all, have left behind and is not needed any more.
    pub async fn trim_sets(
        self: &Arc<Self>,
        source: Option<&str>,
        now: DateTime<Utc>,
    ) -> Result<(), StoreError> {
        let source = source.map(str::to_owned);
        let due = self.read(move |sql| {
            let mut due = Vec::new();
            for set in source_set::former(sql, source.as_deref())? {
                let is_due = !task::of_shared(sql, set, ResourceId(0), 1)?.is_empty()
                    || !task::updates_at_rest(sql, set, now, 1)?.is_empty()
                    || channel::any_ended(sql, set)?
                    || has_old(sql, set, now)?
                    || source_set::is_unnamed(sql, set)?;
                if is_due {
                    due.push(set);
                }
            }
            Ok(due)
        });
        for set in due.await? {
            self.trim_set(set, now).await?;
        }
        Ok(())
    }

    async fn trim_set(self: &Arc<Self>, set: SetId, now: DateTime<Utc>) -> Result<(), StoreError> {
        self.settle_shared(set, now).await?;
        let most = self.observer.rows_a_step(RESOURCES_A_STEP);
        let step = move |tx: &mut Tx<'_>| {
            let dropped = drop_updates_at_rest(tx, set, now, most)?;
            channel::delete_ended(tx.sql, set)?;
            forget_old(tx.sql, set, now)?;
            if source_set::is_unnamed(tx.sql, set)? {
                source_set::delete(tx.sql, set)?;
            }
            Ok(dropped)
        };
        while self.write(step).await? > 0 {}
        Ok(())
    }

    /// Settles the resources of a set that has ended and that other sets have: what it has stated does not count any more.
    pub(super) async fn settle_shared(
        self: &Arc<Self>,
        set: SetId,
        now: DateTime<Utc>,
    ) -> Result<(), StoreError> {
        let most = self.observer.rows_a_step(RESOURCES_A_STEP);
        let mut after = Some(ResourceId(0));
        while let Some(last) = after {
            let step = self.write(move |tx| {
                let next = task::of_shared(tx.sql, set, last, most)?;
                for &resource in &next {
                    if let Some(source) = settle(tx.sql, resource, now)? {
                        tx.wake(Wake::Tasks(source));
                    }
                }
                Ok(next.last().copied())
            });
            after = step.await?;
        }
        Ok(())
    }

    /// Has a set that has ended leave its resources without a file.
    pub(super) async fn leave_unfetched(
        self: &Arc<Self>,
        set: SetId,
        now: DateTime<Utc>,
    ) -> Result<(), StoreError> {
        self.trim_set(set, now).await?;
        self.for_each_resource(set, |tx, set, (resource, is_unfetched)| {
            if is_unfetched {
                remove_unfetched(tx, set, resource)
            } else {
                Ok(())
            }
        })
        .await?;
        self.trim_set(set, now).await
    }

    /// Has a set that has ended leave the resources that other sets have: their files are those of the others.
    pub async fn leave_shared(self: &Arc<Self>, set: SetId) -> Result<(), StoreError> {
        self.for_each_resource(set, |tx, set, (resource, _)| {
            leave_if_shared(tx.sql, set, resource).map(drop)
        })
        .await
    }

    /// Does something with each resource of a set, some in one transaction. It is stated whether there is neither a file nor a pending
    /// change.
    async fn for_each_resource(
        self: &Arc<Self>,
        set: SetId,
        act: impl Fn(&mut Tx<'_>, SetId, (ResourceId, bool)) -> Result<(), StoreError>
        + Copy
        + Send
        + 'static,
    ) -> Result<(), StoreError> {
        let most = self.observer.rows_a_step(RESOURCES_A_STEP);
        let mut after = Some(ResourceId(0));
        while let Some(last) = after {
            let step = self.write(move |tx| {
                let next = membership::next(tx.sql, set, last, most)?;
                for &found in &next {
                    act(tx, set, found)?;
                }
                Ok(next.last().map(|(resource, _)| *resource))
            });
            after = step.await?;
        }
        Ok(())
    }
}

/// Drops up to `most` updates of a former set that are not being tried; returns how many.
fn drop_updates_at_rest(
    tx: &mut Tx<'_>,
    set: SetId,
    now: DateTime<Utc>,
    most: usize,
) -> Result<usize, StoreError> {
    let at_rest = task::updates_at_rest(tx.sql, set, now, most)?;
    for &(resource, has_result) in &at_rest {
        drop_at_rest(tx.sql, resource)?;
        match (resource::live_length(tx.sql, resource)?, has_result) {
            (Some(_), _) => {}
            (None, true) => remove_unfetched(tx, set, resource)?,
            // Its row goes later, as that of any resource that nothing needs.
            (None, false) => leave(tx.sql, set, resource)?,
        }
    }
    Ok(at_rest.len())
}

/// Has a set leave a resource without a file, and removes it if it was never applied and nothing else names it.
fn remove_unfetched(tx: &mut Tx<'_>, set: SetId, resource: ResourceId) -> Result<(), StoreError> {
    leave(tx.sql, set, resource)?;
    let rule = UnusedRule::without_deletions();
    Ok(unused::remove(tx.sql, resource, &rule)?)
}
