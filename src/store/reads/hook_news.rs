//! What the feed has for a hook: entries of one Source. The feed has no index for Sources; each query reads a bounded number of entries.

use std::sync::Arc;

use crate::store::query_threads::Lane;
use crate::store::tables::feed::{self, FeedEntry};
use crate::store::{Store, StoreError};

/// How many entries, of all Sources, one query reads.
const MOST_READ: usize = 20_000;

/// A part of the feed, of one Source.
#[derive(Clone, Debug)]
pub struct HookNews {
    /// The entries of the Source, oldest first.
    pub entries: Vec<FeedEntry>,
    /// The number up to which the feed was read. The Source has no other entries up to it.
    pub until: i64,
    /// The last number of the feed.
    pub end: i64,
}

impl Store {
    /// The entries of a Source after that number, as many as one query reads, and at most `limit`.
    ///
    /// # Errors
    /// [`StoreError::FeedTrimmed`] if entries were removed that follow the number.
    pub async fn hook_news(
        self: &Arc<Self>,
        source: &str,
        since: i64,
        limit: usize,
    ) -> Result<HookNews, StoreError> {
        let source = source.to_owned();
        let unreadable = Arc::clone(&self.unreadable);
        self.read_in(Lane::Reports, move |sql| {
            if let Some(oldest) = feed::trimmed(sql)?.filter(|&oldest| since < oldest) {
                return Err(StoreError::FeedTrimmed { oldest });
            }
            let end = feed::last_number(sql)?;
            // A feed of which all was read: the numbers that were never used are skipped.
            let read = feed::nth_after(sql, since, MOST_READ)?.unwrap_or(end);
            let entries = feed::of_source(sql, &source, (since, read), limit, &unreadable)?;
            let until = match entries.last() {
                Some(last) if entries.len() >= limit => last.seq,
                _ => read,
            };
            Ok(HookNews {
                entries,
                until,
                end,
            })
        })
        .await
    }
}
