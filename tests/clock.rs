//! Our own clock is set, forward and back, while the daemon works, and while it does not. Nothing waits for it: every wait is
//! timed by the monotonic clock, and what is kept as a date moves with the clock that it was dated by.
//!
//! The tests share one clock, so that they are a program of their own and take turns.

#![allow(
    clippy::unwrap_used,
    reason = "what a test relies on and does not get, it should panic of"
)]

#[path = "support/mod.rs"]
mod support;

use std::time::Duration;

use chrono::TimeDelta;
use resyncd::clock;
use resyncd::demo::{ChannelHub, Fault, HubEvent, HubOptions, SampleOptions};
use resyncd::protocol::SourceTime;
use tokio::sync::{Mutex, MutexGuard};

use support::{NAME, Rig, SET, resources, soon, time};

const PATH: &str = "/set1/res/r0001.txt";
const LIST: &str = "/set1/changelist.xml";

static TURN: Mutex<()> = Mutex::const_new(());

/// The only one that sets the clock, until it is dropped.
struct Setting(#[allow(dead_code, reason = "it is held")] MutexGuard<'static, ()>);

impl Setting {
    async fn take() -> Self {
        Self(TURN.lock().await)
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        clock::set_wall(TimeDelta::zero());
    }
}

fn days(days: i64) -> TimeDelta {
    TimeDelta::days(days)
}

/// By how much the clock is set: a day and ten years, forward and back.
const JUMPS: [i64; 4] = [1, -1, 3650, -3650];

/// A Source with the right time, whatever ours is, and a hub whose leases have to be renewed all the time.
async fn rig() -> Rig {
    let hub = HubOptions {
        max_lease: Duration::from_secs(4),
        ..HubOptions::default()
    };
    let options = SampleOptions {
        start: Some(SourceTime::from(clock::now().wall)),
        hub: ChannelHub::Own(hub),
        ..resources(3)
    };
    let rig = Rig::start_with(options, |config| {
        config.sources[0].poll_interval = Duration::from_secs(1);
    })
    .await;
    rig.settled().await;
    rig
}

/// Waits for the next renewal of the change notifications.
async fn renewed(rig: &Rig) {
    let (mark, topic) = (rig.hub().mark(), rig.changes().to_string());
    let asked = rig.hub().wait_after(
        mark,
        |event| matches!(event, HubEvent::Requested { request, .. } if request.topic == topic),
    );
    soon("renewed", asked).await;
    rig.until("active", |set| {
        set.channels.iter().all(|channel| channel.state == "active")
    })
    .await;
}

/// What can be told of a rig that goes on: it is told of a change, polls, renews, and the mirror is what the Source is. While
/// our clock is so far behind that all that the Source tells is of the future, nothing is proven, and a gap stays one.
async fn check_goes_on(rig: &Rig, what: &str) {
    let since = rig.operator.last_change().await;
    rig.source.advance(Duration::from_secs(1));
    rig.source.update(SET, "r0002.txt", what.to_owned());
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.until_in_feed(since, "r0002.txt").await;
    let polled = rig.source.hits(LIST);
    soon("polled", rig.source.wait_for_hits(LIST, polled + 2)).await;
    renewed(rig).await;
    rig.until_mirrored().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn daemon_goes_on_whatever_its_clock_is_set_to() {
    let _setting = Setting::take().await;
    for by in JUMPS {
        let rig = rig().await;
        let first = rig.operator.changes(0).await;
        // A download that has to wait, and a notification that waits for the one before it.
        let hits = rig.source.hits(PATH);
        rig.source
            .fail(PATH, Fault::Unavailable { retry_after: 3 }, 1);
        rig.source.update(SET, "r0001.txt", "put off");
        rig.source.notify_and_publish(SET).await.unwrap();
        soon("tried", rig.source.wait_for_hits(PATH, hits + 1)).await;
        rig.until("put off", |set| set.pending == 1).await;
        rig.source.advance(Duration::from_secs(1));
        rig.source.update(SET, "r0000.txt", "lost");
        rig.source.notify(SET);
        rig.source.advance(Duration::from_secs(1));
        rig.source.update(SET, "r0002.txt", "early");
        rig.source.notify_and_publish(SET).await.unwrap();

        clock::set_wall(days(by));
        rig.until_holds("r0001.txt", "put off").await;
        rig.until_holds("r0002.txt", "early").await;
        check_goes_on(&rig, &format!("set by {by} days")).await;
        clock::set_wall(TimeDelta::zero());
        check_goes_on(&rig, &format!("set right after {by} days")).await;
        rig.settled().await;

        // All is proven again, and the feed tells it in order, whatever its dates.
        let now = time("2000-01-01").max(rig.source.boundary());
        rig.source.refresh_resource_list(SET);
        rig.until("proven", |set| {
            let until = set.synced_until.as_ref().map(time);
            set.gaps.is_empty()
                && until.is_some_and(|until| until.micros() + 2_000_000 >= now.micros())
        })
        .await;
        let lines = rig.operator.changes(0).await;
        assert!(lines.starts_with(&first) && lines.is_sorted_by_key(|line| line.seq));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn daemon_goes_on_after_its_clock_was_set_while_it_did_not_run() {
    let _setting = Setting::take().await;
    for by in JUMPS {
        let mut rig = rig().await;
        let hits = rig.source.hits(PATH);
        rig.source
            .fail(PATH, Fault::Unavailable { retry_after: 3 }, 1);
        rig.source.update(SET, "r0001.txt", "put off");
        rig.source.notify_and_publish(SET).await.unwrap();
        soon("tried", rig.source.wait_for_hits(PATH, hits + 1)).await;
        rig.until("put off", |set| set.pending == 1).await;
        rig.stop_daemon().await;
        clock::set_wall(days(by));
        rig.start_daemon().await;
        rig.until_holds("r0001.txt", "put off").await;
        check_goes_on(&rig, &format!("set by {by} days")).await;
        rig.stop_daemon().await;
        clock::set_wall(TimeDelta::zero());
        rig.start_daemon().await;
        check_goes_on(&rig, &format!("set right after {by} days")).await;
        rig.operator.poll(NAME).await;
        rig.settled().await;
    }
}
