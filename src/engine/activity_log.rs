//! Logs what was done: at most a line a minute, and none while nothing is done.
//!
//! Must not know how it is done, and changes nothing.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

use super::context::SourceContext;
use super::progress::Counts;
use crate::store::{Store, Wake};

/// How long what is done is counted until it is logged. It begins with the first change.
const INTERVAL: Duration = Duration::from_secs(60);
/// How many Sources a line names.
const NAMED: usize = 5;

/// Logs the numbers of these Sources until it is stopped, and then what was not logged yet.
pub(super) async fn log_activity(
    store: Arc<Store>,
    contexts: Vec<Arc<SourceContext>>,
    stop: CancellationToken,
) {
    let counts = || -> Vec<Counts> {
        let counts = contexts.iter().map(|context| context.progress.counts());
        counts.collect()
    };
    let mut wakes = store.wakes();
    let mut logged = counts();
    loop {
        let is_stopped = tokio::select! {
            () = stop.cancelled() => true,
            () = change(&mut wakes) => false,
        };
        if !is_stopped {
            // The result is the end of one of them.
            let _ = tokio::time::timeout(INTERVAL, stop.cancelled()).await;
        }
        let now = counts();
        let names = contexts.iter().map(|context| context.name());
        if let Some(Activity {
            applied,
            failed,
            sources,
        }) = Activity::between(names, &logged, &now)
        {
            tracing::info!(
                applied,
                failed,
                sources,
                "{applied} changes applied, {failed} failed"
            );
        }
        if is_stopped || stop.is_cancelled() {
            return;
        }
        logged = now;
    }
}

/// Waits until a task has changed: applied, failed or made.
async fn change(wakes: &mut tokio::sync::broadcast::Receiver<Wake>) {
    loop {
        match wakes.recv().await {
            Ok(Wake::Tasks(_) | Wake::Feed(_)) | Err(RecvError::Lagged(_)) => return,
            Ok(_) => {}
            // The store outlives this.
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}

/// What was done between two moments.
#[derive(Debug, PartialEq, Eq)]
struct Activity {
    applied: u64,
    failed: u64,
    /// The Sources that it was done for.
    sources: String,
}

impl Activity {
    /// `None`: nothing was done.
    fn between<'a>(
        names: impl Iterator<Item = &'a str>,
        before: &[Counts],
        now: &[Counts],
    ) -> Option<Self> {
        let (mut applied, mut failed) = (0, 0);
        let mut sources = Vec::new();
        for (name, (before, now)) in names.zip(before.iter().zip(now)) {
            let done = (now.applied - before.applied, now.failed - before.failed);
            if done != (0, 0) {
                sources.push(name);
            }
            applied += done.0;
            failed += done.1;
        }
        if sources.is_empty() {
            return None;
        }
        let named = sources.iter().take(NAMED).copied();
        let mut text = named.collect::<Vec<_>>().join(", ");
        if sources.len() > NAMED {
            text.push_str(&format!(" and {} more", sources.len() - NAMED));
        }
        Some(Self {
            applied,
            failed,
            sources: text,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_states_what_was_done_since_the_last_one_and_for_whom() {
        let counts = |done: &[(u64, u64)]| -> Vec<Counts> {
            let counts = done.iter().map(|&(applied, failed)| Counts {
                applied,
                failed,
                ..Counts::default()
            });
            counts.collect()
        };
        let names = ["a", "b", "c", "d", "e", "f", "g"];
        let before = counts(&[(5, 1); 7]);
        let between =
            |now: &[(u64, u64)]| Activity::between(names.into_iter(), &before, &counts(now));
        let activity = |applied, failed, sources: &str| {
            Some(Activity {
                applied,
                failed,
                sources: sources.to_owned(),
            })
        };
        assert_eq!(between(&[(5, 1); 7]), None);
        assert_eq!(between(&[(5, 1), (9, 1), (5, 3)]), activity(4, 2, "b, c"));
        assert_eq!(
            between(&[(6, 1); 7]),
            activity(7, 0, "a, b, c, d, e and 2 more")
        );
    }
}
