//! Remembers where readers of the feed continue, so that what they read next is not removed before. Hooks are such readers.
//!
//! A position is stored when the feed is trimmed, and not when it is named: readers wait for no commit.

use std::sync::Arc;

use chrono::{DateTime, Utc};

use crate::store::feed_readers::day_of;
use crate::store::tables::{feed_reader, hook};
use crate::store::{Store, StoreError};

/// How many days a position counts that a reader has named.
const DAYS: i64 = 7;

impl Store {
    /// Notes that a reader continues after that number of the feed.
    pub fn note_feed_reader(&self, now: DateTime<Utc>, since: i64) {
        self.feed_readers.note(day_of(now), since);
    }

    /// Stores the positions that were noted, and returns the lowest one that was named in the last seven days, or that a hook has;
    /// `None`: there is none.
    pub async fn feed_read_until(
        self: &Arc<Self>,
        now: DateTime<Utc>,
    ) -> Result<Option<i64>, StoreError> {
        let since = day_of(now) - DAYS;
        let unstored = self.feed_readers.unstored();
        if !unstored.is_empty() {
            let noted = unstored.clone();
            self.write(move |tx| {
                for &(day, position) in &noted {
                    feed_reader::lower(tx.sql, day, position)?;
                }
                Ok(feed_reader::delete_before(tx.sql, since)?)
            })
            .await?;
        }
        self.feed_readers.note_stored(&unstored, since);
        self.read(move |sql| {
            let lowest = [feed_reader::lowest_since(sql, since)?, hook::lowest(sql)?];
            Ok(lowest.into_iter().flatten().min())
        })
        .await
    }
}
