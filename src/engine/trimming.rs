//! Removes from the database what is not needed any more, a short step at a time.

use std::sync::Arc;
use std::time::Duration;

use chrono::TimeDelta;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::clock;
use crate::config::Config;
use crate::store::{FeedCompaction, Store, StoreError, TrimPosition, Wake};

/// The time between two steps.
const PAUSE: Duration = Duration::from_secs(60);
/// The same while there is more to do.
const SHORT_PAUSE: Duration = Duration::from_secs(1);
/// By how many entries the feed grows until the next step, if that is before the pause is over.
const GROWTH: i64 = 5000;
/// How much longer an entry of the feed stays that a reader has not read. One that reads nothing for ever fills no disk.
const UNREAD_FOR: TimeDelta = TimeDelta::days(30);

/// What is removed.
#[derive(Clone)]
pub(super) struct TrimRules {
    /// How long entries of the feed stay, at least; `None`: for ever.
    feed: Option<TimeDelta>,
    /// The labels of the Sources whose deletions remove the files.
    deleting: Vec<String>,
}

impl TrimRules {
    pub(super) fn of(config: &Config) -> Self {
        let deleting = config.sources.iter().filter(|source| source.delete);
        Self {
            feed: config.feed.keep.and_then(|it| TimeDelta::from_std(it).ok()),
            deleting: deleting.map(|source| source.name.clone()).collect(),
        }
    }
}

/// How far the steps have come.
#[derive(Default)]
struct TrimProgress {
    resources: TrimPosition,
    compaction: FeedCompaction,
}

/// Trims the database until it is stopped.
pub(super) async fn trim(
    store: Arc<Store>,
    rules: watch::Receiver<TrimRules>,
    stop: CancellationToken,
) {
    let mut progress = TrimProgress::default();
    let mut pause = PAUSE;
    loop {
        tokio::select! {
            () = stop.cancelled() => {
                // The readers' positions are stored. Without them the next process removes what is old.
                let _ = store.feed_read_until(clock::now().wall).await;
                return;
            }
            () = tokio::time::sleep(pause) => {}
            () = growth(&store) => {}
        }
        let current = rules.borrow().clone();
        pause = match step(&store, &current, &mut progress).await {
            Ok(true) => SHORT_PAUSE,
            Ok(false) => PAUSE,
            Err(error) => {
                // What else is written fails as well, and is reported.
                tracing::debug!(code = error.code(), %error, "database error; nothing is trimmed");
                PAUSE
            }
        };
    }
}

/// Returns when the feed has grown, however fast.
async fn growth(store: &Store) {
    let mut wakes = store.wakes();
    let mut first = None;
    loop {
        match wakes.recv().await {
            Ok(Wake::Feed(seq)) => {
                if seq - *first.get_or_insert(seq) >= GROWTH {
                    return;
                }
            }
            // A later one states the number.
            Ok(_) | Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}

/// Removes a little of everything; returns whether there is more of the feed, or of empty pages.
async fn step(
    store: &Arc<Store>,
    rules: &TrimRules,
    progress: &mut TrimProgress,
) -> Result<bool, StoreError> {
    let now = clock::now().wall;
    let mut has_more = false;
    if let Some(keep) = rules.feed
        && let Some(oldest) = now.checked_sub_signed(keep)
    {
        let read_until = store.feed_read_until(now).await?.unwrap_or(i64::MAX);
        has_more |= store.trim_read_feed(oldest, read_until).await?;
        if let Some(oldest) = oldest.checked_sub_signed(UNREAD_FOR.min(keep)) {
            has_more |= store.trim_feed(oldest).await?;
        }
    }
    has_more |= store.compact_feed(&mut progress.compaction).await?;
    has_more |= store.trim_removed_resources().await?;
    store.trim_sets(None, now).await?;
    let next = store.trim_resources(now, progress.resources, &rules.deleting);
    progress.resources = next.await?.unwrap_or_default();
    Ok(store.shrink().await? || has_more)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::database::TestDatabase;

    /// How many days ago the entries were applied; their numbers begin at 1.
    const AGES: [i64; 4] = [200, 100, 95, 1];

    /// A feed with entries of a Source `a`.
    async fn feed() -> (tempfile::TempDir, Arc<Store>) {
        let folder = tempfile::tempdir().unwrap();
        drop(Store::open(folder.path()).unwrap());
        let now = clock::now().wall;
        let times = AGES.map(|age| now - TimeDelta::days(age));
        TestDatabase::open(folder.path()).add_feed_entries("a", times);
        let store = Store::open(folder.path()).unwrap();
        (folder, store)
    }

    /// Trims a feed of which entries stay 90 days, after readers have named these positions, and checks after which number nothing
    /// is missing.
    async fn check(positions: &[i64], expected: i64) {
        let (_folder, store) = feed().await;
        let now = clock::now().wall;
        for &position in positions {
            store.note_feed_reader(now, position);
        }
        let rules = TrimRules {
            feed: Some(TimeDelta::days(90)),
            deleting: Vec::new(),
        };
        let mut progress = TrimProgress::default();
        step(&store, &rules, &mut progress).await.unwrap();
        let error = store.feed(expected - 1, 9).await.unwrap_err();
        let is_expected = matches!(error, StoreError::FeedTrimmed { oldest } if oldest == expected);
        assert!(is_expected, "{positions:?}: {error}");
        let left = store.feed(expected, 9).await.unwrap().len();
        assert_eq!(i64::try_from(left).unwrap(), 4 - expected, "{positions:?}");
    }

    #[tokio::test]
    async fn entries_stay_longer_that_a_hook_has_not_accepted() {
        let (folder, store) = feed().await;
        let now = clock::now().wall;
        let rules = TrimRules {
            feed: Some(TimeDelta::days(90)),
            deleting: Vec::new(),
        };
        let begun = store.begin_hook("a", "index").await.unwrap();
        assert_eq!((begun.position, begun.has_missed), (0, false));
        store.note_hook("a", "index", 1).await.unwrap();
        step(&store, &rules, &mut TrimProgress::default())
            .await
            .unwrap();
        let left = store.hook_news("a", 1, 9).await.unwrap();
        let numbers: Vec<i64> = left.entries.iter().map(|entry| entry.seq).collect();
        assert_eq!((numbers, left.until, left.end), (vec![2, 3, 4], 4, 4));
        let some = store.hook_news("a", 1, 2).await.unwrap();
        assert_eq!((some.entries.len(), some.until), (2, 3));
        let of_other = store.hook_news("b", 1, 9).await.unwrap();
        assert!(of_other.entries.is_empty() && of_other.until == 4);
        drop(store);

        // But not for ever. A hook that goes on later learns that it has missed some.
        TestDatabase::open(folder.path()).set_applied_at(2, now - TimeDelta::days(300));
        let store = Store::open(folder.path()).unwrap();
        step(&store, &rules, &mut TrimProgress::default())
            .await
            .unwrap();
        let error = store.hook_news("a", 1, 9).await.unwrap_err();
        assert!(
            matches!(error, StoreError::FeedTrimmed { oldest: 2 }),
            "{error}"
        );
        let begun = store.begin_hook("a", "index").await.unwrap();
        assert_eq!((begun.position, begun.has_missed), (2, true));
        // One that is not configured any more retains nothing.
        store
            .retain_hooks(vec![("a".into(), "other".into())])
            .await
            .unwrap();
        step(&store, &rules, &mut TrimProgress::default())
            .await
            .unwrap();
        let error = store.hook_news("a", 2, 9).await.unwrap_err();
        assert!(
            matches!(error, StoreError::FeedTrimmed { oldest: 3 }),
            "{error}"
        );
    }

    #[tokio::test]
    async fn entries_stay_longer_that_a_reader_has_not_read() {
        check(&[], 3).await;
        check(&[4], 3).await;
        check(&[2, 4], 2).await;
        // But not for ever.
        check(&[0, 4], 1).await;
    }
}
