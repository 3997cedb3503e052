//! The newest entries of the feed, of all or of some, for people.

use std::sync::Arc;

use resyncd_core::ResourceUri;

use crate::store::query_threads::Lane;
use crate::store::tables::feed::{self, FeedEntry};
use crate::store::{Store, StoreError};

/// How many entries are read at most to find some among them: the feed has no index but its number.
const MOST_READ: usize = 20_000;

/// Which entries of the feed are wanted.
#[derive(Clone, Debug)]
pub struct FeedSearch {
    /// Those of this Source; `None`: of any.
    pub source: Option<String>,
    /// Those of this URI; `None`: of any.
    pub uri: Option<ResourceUri>,
    /// Those with a number below this one; `None`: the newest.
    pub before: Option<i64>,
    /// How many at most.
    pub limit: usize,
}

impl FeedSearch {
    /// The newest entries.
    #[must_use]
    pub fn newest(limit: usize) -> Self {
        Self {
            source: None,
            uri: None,
            before: None,
            limit,
        }
    }
}

/// What was found in a part of the feed.
#[derive(Clone, Debug)]
pub struct FeedExcerpt {
    /// The entries, newest first.
    pub entries: Vec<FeedEntry>,
    /// Where to go on, with [`FeedSearch::before`]; `None`: the feed has no older entry.
    pub next: Option<i64>,
    /// Whether the feed had older entries than it has now.
    pub was_trimmed: bool,
}

impl Store {
    /// The newest entries of the feed that are wanted, of a bounded number that is read. This is no position of a reader: nothing is
    /// retained for it.
    pub async fn newest_changes(
        self: &Arc<Self>,
        search: FeedSearch,
    ) -> Result<FeedExcerpt, StoreError> {
        let unreadable = Arc::clone(&self.unreadable);
        self.read_in(Lane::Reports, move |sql| {
            let before = search.before.unwrap_or(i64::MAX);
            let wanted = (search.source.as_deref(), search.uri.as_ref());
            // The numbers have holes: after a restore they begin far above the last one, and entries are removed.
            let first = match wanted {
                (None, None) => None,
                _ => feed::number_before(sql, before, MOST_READ)?,
            };
            let entries = feed::newest(sql, (first, before), wanted, search.limit, &unreadable)?;
            let read_until = match entries.last() {
                Some(last) if entries.len() >= search.limit => Some(last.seq),
                _ => first,
            };
            let has_more = match read_until {
                Some(read_until) => feed::has_before(sql, read_until)?,
                None => false,
            };
            Ok(FeedExcerpt {
                entries,
                next: read_until.filter(|_| has_more),
                was_trimmed: feed::trimmed(sql)?.is_some(),
            })
        })
        .await
    }
}
