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
    let mut counted = Vec::new();
    done_since(&mut counted, &sources.contexts());
    loop {
        let is_stopped = tokio::select! {
            () = stop.cancelled() => true,
            () = change(&mut wakes) => false,
        };
        if !is_stopped {
            // The result is the end of one of them.
            let _ = tokio::time::timeout(INTERVAL, stop.cancelled()).await;
        }
        let done = done_since(&mut counted, &sources.contexts());
        if let Some((applied, failed, sources)) = summary(&done) {
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
    }
}

/// The numbers of a Source when it was counted last. A Source that is started again counts anew: it is another context.
type Counted = (Arc<SourceContext>, Counts);

/// What was done for each Source since it was counted last, also for those that a reload has ended meanwhile.
fn done_since(counted: &mut Vec<Counted>, followed: &[Arc<SourceContext>]) -> Vec<WorkDone> {
    let is = |one: &Arc<SourceContext>, other: &Arc<SourceContext>| Arc::ptr_eq(one, other);
    for context in followed {
        if !counted.iter().any(|(known, _)| is(known, context)) {
            counted.push((Arc::clone(context), Counts::default()));
        }
    }
    let done = counted.iter_mut().map(|(context, before)| {
        let now = context.progress.counts();
        let before = std::mem::replace(before, now);
        WorkDone {
            source: context.name().to_owned(),
            applied: now.applied - before.applied,
            failed: now.failed - before.failed,
        }
    });
    let done = done.collect();
    counted.retain(|(known, _)| followed.iter().any(|context| is(known, context)));
    done
}

/// What was done for a Source.
struct WorkDone {
    source: String,
    applied: u64,
    failed: u64,
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

/// How many changes were applied and failed, and the Sources that it was done for; `None`: nothing was done.
fn summary(done: &[WorkDone]) -> Option<(u64, u64, String)> {
    let mut sources: Vec<&str> = Vec::new();
    for done in done {
        // A Source that was started again has two rows.
        if (done.applied, done.failed) != (0, 0) && !sources.contains(&done.source.as_str()) {
            sources.push(&done.source);
        }
    }
    if sources.is_empty() {
        return None;
    }
    let mut named = sources[..sources.len().min(NAMED)].join(", ");
    if sources.len() > NAMED {
        named.push_str(&format!(" and {} more", sources.len() - NAMED));
    }
    let applied = done.iter().map(|done| done.applied).sum();
    let failed = done.iter().map(|done| done.failed).sum();
    Some((applied, failed, named))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::tests::TestSource;

    #[test]
    fn line_states_what_was_done_since_the_last_one_and_for_whom() {
        let of = |names: &[&str], done: &[(u64, u64)]| {
            let rows = names.iter().zip(done);
            let rows = rows.map(|(name, &(applied, failed))| WorkDone {
                source: (*name).to_owned(),
                applied,
                failed,
            });
            summary(&rows.collect::<Vec<_>>())
        };
        let names = ["a", "b", "c", "d", "e", "f", "g"];
        let expected = |applied, failed, sources: &str| Some((applied, failed, sources.to_owned()));
        assert_eq!(of(&names, &[(0, 0); 7]), None);
        assert_eq!(
            of(&names, &[(0, 0), (4, 0), (0, 2)]),
            expected(4, 2, "b, c")
        );
        assert_eq!(
            of(&names, &[(1, 0); 7]),
            expected(7, 0, "a, b, c, d, e and 2 more")
        );
        // One that was started again is named once.
        assert_eq!(of(&["a", "a"], &[(1, 0), (2, 0)]), expected(3, 0, "a"));
    }

    #[test]
    fn source_is_counted_from_nothing_and_until_it_has_ended() {
        let source = |list: &str| TestSource::new(&list.parse().unwrap(), |client| client);
        let (one, other) = (source("http://a.example/"), source("http://b.example/"));
        let (one, other) = (one.context, other.context);
        let mut counted = Vec::new();
        let mut applied = |followed: &[&Arc<SourceContext>]| -> Vec<u64> {
            let followed: Vec<_> = followed.iter().map(|&it| Arc::clone(it)).collect();
            let done = done_since(&mut counted, &followed);
            done.iter().map(|done| done.applied).collect()
        };
        one.progress.count_applied();
        assert_eq!(applied(&[&one]), [1]);
        one.progress.count_applied();
        other.progress.count_applied();
        assert_eq!(applied(&[&other]), [1, 1]);
        one.progress.count_applied();
        assert_eq!(applied(&[&other]), [0]);
    }
}
