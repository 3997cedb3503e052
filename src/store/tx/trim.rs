//! Removes what is not needed any more: old entries of the feed, and rows of resources that nothing names. Frees the pages that
//! become empty.
//!
//! Invariants: each step is short, whatever the size of the database; a reader of the feed is never given a gap silently.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};

use crate::store::ids::ResourceId;
use crate::store::tables::resource::unused::{self, UnusedRule};
use crate::store::tables::{feed, removed_resource, resource_count};
use crate::store::{Store, StoreError, schema};

/// How many entries of the feed, or URIs of removed resources, are removed in one transaction.
const ENTRIES_A_STEP: usize = 5000;
/// How many rows of resources are looked at in one step.
const ROWS_A_STEP: usize = 20_000;
/// How many pages are freed in one transaction.
const PAGES_A_STEP: u32 = 2000;
/// How long a row must be known to be unused. A task that was dropped while it was executed ends before.
const UNUSED_FOR: TimeDelta = TimeDelta::days(7);
/// How long a deletion is remembered, at least.
const DELETED_FOR: TimeDelta = TimeDelta::days(90);

/// How far the search for unused rows has come.
#[derive(Clone, Copy, Debug)]
pub struct TrimPosition(ResourceId);

impl Default for TrimPosition {
    fn default() -> Self {
        Self(ResourceId(0))
    }
}

impl Store {
    /// Sets how many resources each Source may have; `None`: any number. It holds for what is written after this.
    pub async fn limit_resources(self: &Arc<Self>, most: Option<u64>) -> Result<(), StoreError> {
        self.write(move |tx| Ok(resource_count::set_limit(tx.sql, most)?))
            .await
    }

    /// Removes the oldest entries of the feed that were applied before that time, up to 5000. Returns whether there may be more.
    pub async fn trim_feed(self: &Arc<Self>, before: DateTime<Utc>) -> Result<bool, StoreError> {
        self.trim_read_feed(before, i64::MAX).await
    }

    /// The same, but only up to a number: the position of a reader that goes on after it.
    pub async fn trim_read_feed(
        self: &Arc<Self>,
        before: DateTime<Utc>,
        until: i64,
    ) -> Result<bool, StoreError> {
        let old =
            self.read(move |sql| Ok(feed::oldest_before(sql, before, until, ENTRIES_A_STEP)?));
        let Some((last, entries)) = old.await? else {
            return Ok(false);
        };
        self.write(move |tx| Ok(feed::trim(tx.sql, last)?)).await?;
        Ok(entries == ENTRIES_A_STEP)
    }

    /// Removes the URIs of removed resources that no entry of the feed names any more, up to 5000. Returns whether there may be more.
    pub async fn trim_removed_resources(self: &Arc<Self>) -> Result<bool, StoreError> {
        let has_unnamed = self.read(|sql| Ok(removed_resource::has_unnamed(sql)?));
        if !has_unnamed.await? {
            return Ok(false);
        }
        let removed = self.write(|tx| Ok(removed_resource::trim(tx.sql, ENTRIES_A_STEP)?));
        Ok(removed.await? == ENTRIES_A_STEP)
    }

    /// Looks at the next 20,000 rows of resources, and removes those that were unused for a week. `deleting`: the labels of the
    /// Sources whose deletions remove the files. Returns where the search continues; `None`: it has ended.
    pub async fn trim_resources(
        self: &Arc<Self>,
        now: DateTime<Utc>,
        position: TrimPosition,
        deleting: &[String],
    ) -> Result<Option<TrimPosition>, StoreError> {
        let rule = UnusedRule {
            deleted_before: now - DELETED_FOR,
            deleting: serde_json::to_string(deleting)
                .map_err(|_| StoreError::BadRow("a list of Sources"))?,
        };
        let of_reading = rule.clone();
        let found = self
            .read(move |sql| Ok(unused::find(sql, position.0, ROWS_A_STEP, &of_reading)?))
            .await?;
        let last = found.last;
        let is_due = |since: DateTime<Utc>| since <= now - UNUSED_FOR;
        let (due, fresh): (Vec<_>, Vec<_>) = found
            .unused
            .into_iter()
            .filter(|(_, since)| since.is_none_or(is_due))
            .partition(|(_, since)| since.is_some());
        if !due.is_empty() || !fresh.is_empty() || !found.used.is_empty() {
            self.write(move |tx| {
                for &(id, _) in &fresh {
                    unused::mark(tx.sql, id, Some(now))?;
                }
                for &id in &found.used {
                    unused::mark(tx.sql, id, None)?;
                }
                for &(id, _) in &due {
                    unused::remove(tx.sql, id, &rule)?;
                }
                Ok(())
            })
            .await?;
        }
        Ok(last.map(TrimPosition))
    }

    /// Gives empty pages back to the file system, up to 2000. Returns whether there may be more.
    pub async fn shrink(self: &Arc<Self>) -> Result<bool, StoreError> {
        let free = self.read(schema::free_pages).await?;
        if free == 0 {
            return Ok(false);
        }
        self.write(|tx| schema::free(tx.sql, PAGES_A_STEP)).await?;
        Ok(free > i64::from(PAGES_A_STEP))
    }
}
