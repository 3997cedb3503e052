//! Logs what was done: at most a line a minute, and none while nothing is done.
//!
//! Must not know how it is done, and changes nothing.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

use super::context::SourceContext;
use super::followed::FollowedSources;
use super::progress::Counts;
use crate::store::{Store, Wake};

/// How long what is done is counted until it is logged. It begins with the first change.
const INTERVAL: Duration = Duration::from_secs(60);
/// How many Sources a line names.
const NAMED: usize = 5;

/// Logs the numbers of the Sources that are followed until it is stopped, and then what was not logged yet.
pub(super) async fn log_activity(
    store: Arc<Store>,
    sources: Arc<FollowedSources>,
    stop: CancellationToken,
) {
    let mut wakes = store.wakes();
    let mut logged: Vec<Logged> = sources.contexts().into_iter().map(Logged::now).collect();
    loop {
        let is_stopped = tokio::select! {
            () = stop.cancelled() => true,
            () = change(&mut wakes) => false,
        };
        if !is_stopped {
            // The result is the end of one of them.
            let _ = tokio::time::timeout(INTERVAL, stop.cancelled()).await;
        }
        let next: Vec<Logged> = sources.contexts().into_iter().map(Logged::now).collect();
        if let Some(SourceActivity {
            applied,
            failed,
            sources,
        }) = SourceActivity::of(&done_since(&logged, &next))
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
        logged = next;
    }
}

/// The numbers of a Source at a moment. A Source that is started again counts anew: it is another context.
struct Logged {
    context: Arc<SourceContext>,
    counts: Counts,
}

impl Logged {
    fn now(context: Arc<SourceContext>) -> Self {
        let counts = context.progress.counts();
        Self { context, counts }
    }
}

/// What was done for each Source since; also for those that a reload has ended meanwhile.
fn done_since<'a>(logged: &'a [Logged], now: &'a [Logged]) -> Vec<WorkDone<'a>> {
    let find = |all: &'a [Logged], one: &Logged| {
        let mut all = all.iter();
        all.find(|it| Arc::ptr_eq(&it.context, &one.context))
    };
    let of_ended = logged.iter().filter(|before| find(now, before).is_none());
    let of_ended = of_ended.map(|before| {
        let counts = before.context.progress.counts();
        WorkDone::between(before.context.name(), Some(before.counts), counts)
    });
    let of_followed = now.iter().map(|now| {
        let before = find(logged, now).map(|before| before.counts);
        WorkDone::between(now.context.name(), before, now.counts)
    });
    of_ended.chain(of_followed).collect()
}

/// What was done for a Source.
struct WorkDone<'a> {
    source: &'a str,
    applied: u64,
    failed: u64,
}

impl<'a> WorkDone<'a> {
    /// `before`: `None` if nothing was counted yet.
    fn between(source: &'a str, before: Option<Counts>, now: Counts) -> Self {
        let before = before.unwrap_or_default();
        Self {
            source,
            applied: now.applied - before.applied,
            failed: now.failed - before.failed,
        }
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
struct SourceActivity {
    applied: u64,
    failed: u64,
    /// The Sources that it was done for.
    sources: String,
}

impl SourceActivity {
    /// `None`: nothing was done.
    fn of(done: &[WorkDone<'_>]) -> Option<Self> {
        let (mut applied, mut failed) = (0, 0);
        let mut sources = Vec::new();
        for done in done {
            // A Source that was started again has two rows.
            if (done.applied, done.failed) != (0, 0) && !sources.contains(&done.source) {
                sources.push(done.source);
            }
            applied += done.applied;
            failed += done.failed;
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
        let of = |names: &[&str], now: &[(u64, u64)]| {
            let rows = names.iter().zip(before.iter().zip(counts(now)));
            let done =
                rows.map(|(name, (before, now))| WorkDone::between(name, Some(*before), now));
            SourceActivity::of(&done.collect::<Vec<_>>())
        };
        let between = |now: &[(u64, u64)]| of(&names, now);
        let activity = |applied, failed, sources: &str| {
            Some(SourceActivity {
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
        // One that was started again is named once, and counts from nothing.
        let again = of(&["a", "a"], &[(6, 1), (7, 1)]);
        assert_eq!(again, activity(3, 0, "a"));
        let new = WorkDone::between("new", None, before[0]);
        assert_eq!(SourceActivity::of(&[new]), activity(5, 1, "new"));
    }
}
