//! Removes from the database what is not needed any more, a short step at a time.

use std::sync::Arc;
use std::time::Duration;

use chrono::TimeDelta;
use tokio_util::sync::CancellationToken;

use crate::clock;
use crate::config::Config;
use crate::store::{Store, StoreError, TrimPosition};

/// The time between two steps.
const PAUSE: Duration = Duration::from_secs(60);
/// The same while there is more to do.
const SHORT_PAUSE: Duration = Duration::from_secs(1);

/// What is removed.
#[derive(Clone)]
pub(super) struct TrimRules {
    /// How long entries of the feed stay; `None`: for ever.
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

/// Trims the database until it is stopped.
pub(super) async fn trim(store: Arc<Store>, rules: TrimRules, stop: CancellationToken) {
    let mut position = TrimPosition::default();
    let mut pause = PAUSE;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
        pause = match step(&store, &rules, &mut position).await {
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

/// Removes a little of everything; returns whether there is more of the feed, or of empty pages.
async fn step(
    store: &Arc<Store>,
    rules: &TrimRules,
    position: &mut TrimPosition,
) -> Result<bool, StoreError> {
    let now = clock::now().wall;
    let mut has_more = false;
    if let Some(oldest) = rules.feed.and_then(|keep| now.checked_sub_signed(keep)) {
        has_more |= store.trim_feed(oldest).await?;
    }
    let next = store.trim_resources(now, *position, &rules.deleting);
    *position = next.await?.unwrap_or_default();
    Ok(store.shrink().await? || has_more)
}
