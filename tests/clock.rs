//! The system clock is set forward and back, while the daemon runs and while it is stopped. No wait depends on it: waits use
//! the monotonic clock, and stored deadlines are shifted when the system clock is set.
//!
//! The tests set a clock of the whole process, so that they are a program of their own and run one after the other.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "a test panics where its preconditions fail, and makes what it needs by itself"
)]

#[path = "support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "this program uses a part of it")]
mod support;

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use chrono::TimeDelta;
use resourcesync::SourceTime;
use resyncd::clock;
use resyncd_core::Now;
use resyncd_testkit::{ChannelHub, Fault, HubEvent, HubOptions, SampleOptions, Verifying};
use support::{FeedLine, NAME, Rig, SET, resources, soon, time};
use tokio::sync::{Mutex, MutexGuard};

const PATH: &str = "/set1/res/r0001.txt";
const LIST: &str = "/set1/changelist.xml";

static CLOCK: Mutex<()> = Mutex::const_new(());
/// By how much the wall clock is wrong, in microseconds.
static SET_BY: AtomicI64 = AtomicI64::new(0);

/// Moves the wall clock of this process by `from_right` from the correct time, as an operator or a time server may do.
fn set_wall(from_right: TimeDelta) {
    let micros = from_right.num_microseconds().unwrap();
    SET_BY.store(micros, Ordering::Relaxed);
    clock::replace(|| {
        let now = clock::system();
        let set_by = TimeDelta::microseconds(SET_BY.load(Ordering::Relaxed));
        Now {
            wall: now.wall + set_by,
            ..now
        }
    });
}

/// Exclusive access to the clock; dropping it sets the clock right.
struct ClockGuard(#[allow(dead_code, reason = "held until it is dropped")] MutexGuard<'static, ()>);

impl ClockGuard {
    async fn take() -> Self {
        Self(CLOCK.lock().await)
    }
}

impl Drop for ClockGuard {
    fn drop(&mut self) {
        set_wall(TimeDelta::zero());
    }
}

fn days(days: i64) -> TimeDelta {
    TimeDelta::days(days)
}

/// By how many days the clock is set: a day and ten years, forward and back.
const JUMPS: [i64; 4] = [1, -1, 3650, -3650];

/// A Source whose time is independent of the system clock, and a hub with leases of a few seconds.
async fn rig() -> Rig {
    let hub = HubOptions {
        max_lease: Duration::from_secs(4),
        // It ends its leases by the clock that is set.
        clock: || clock::now().wall,
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

/// Waits until the update of `r0001.txt` waits for its next try, or was applied at that.
async fn until_delayed(rig: &Rig) {
    rig.until("delayed", |set| {
        set.pending == 1
            || rig
                .mirrored("r0001.txt")
                .is_some_and(|bytes| bytes == b"delayed")
    })
    .await;
}

/// Waits for the next renewal of the subscription to the change notifications.
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

/// Checks that the daemon works: it applies a notified change, polls, renews, and the mirror equals the Source. It does not check
/// gaps: while the clock is so far behind that all times of the Source are in the future, no gap can be closed.
async fn check_keeps_working(rig: &Rig, what: &str) {
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

/// A rig with a download that is to be tried again.
async fn rig_with_a_delay() -> Rig {
    let rig = rig().await;
    let hits = rig.source.hits(PATH);
    rig.source
        .fail(PATH, Fault::Unavailable { retry_after: 3 }, 1);
    rig.source.update(SET, "r0001.txt", "delayed");
    rig.source.notify_and_publish(SET).await.unwrap();
    soon("tried", rig.source.wait_for_hits(PATH, hits + 1)).await;
    until_delayed(&rig).await;
    rig
}

/// The clock is set for two daemons at once: one that is running, and one that is stopped meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn daemon_keeps_working_when_its_clock_is_set_also_while_it_is_stopped() {
    let _guard = ClockGuard::take().await;
    for by in JUMPS {
        let (running, mut stopped) = tokio::join!(rig_with_a_delay(), rig_with_a_delay());
        let first = running.operator.changes(0).await;
        // A notification that is held back because the one before it is missing.
        running.source.advance(Duration::from_secs(1));
        running.source.update(SET, "r0000.txt", "lost");
        running.source.notify(SET);
        running.source.advance(Duration::from_secs(1));
        running.source.update(SET, "r0002.txt", "early");
        running.source.notify_and_publish(SET).await.unwrap();
        stopped.stop_daemon().await;

        set_wall(days(by));
        stopped.start_daemon().await;
        let what = format!("set by {by} days");
        let of_running = async {
            running.until_holds("r0001.txt", "delayed").await;
            running.until_holds("r0002.txt", "early").await;
            check_keeps_working(&running, &what).await;
        };
        let of_stopped = async {
            stopped.until_holds("r0001.txt", "delayed").await;
            check_keeps_working(&stopped, &what).await;
        };
        tokio::join!(of_running, of_stopped);
        stopped.stop_daemon().await;
        set_wall(TimeDelta::zero());
        stopped.start_daemon().await;
        let what = format!("set right after {by} days");
        let of_running = async {
            check_keeps_working(&running, &what).await;
            running.settled().await;
            check_coverage(&running, &first).await;
        };
        let of_stopped = async {
            check_keeps_working(&stopped, &what).await;
            stopped.operator.poll(NAME).await;
            stopped.settled().await;
        };
        tokio::join!(of_running, of_stopped);
    }
}

/// Checks that coverage is complete again, and that the feed is in order, whatever its dates.
async fn check_coverage(rig: &Rig, first: &[FeedLine]) {
    let now = time("2000-01-01").max(rig.source.boundary());
    rig.source.refresh_resource_list(SET);
    rig.until("covered", |set| {
        let until = set.synced_until.as_ref().map(time);
        set.gaps.is_empty() && until.is_some_and(|until| until.micros() + 2_000_000 >= now.micros())
    })
    .await;
    let lines = rig.operator.changes(0).await;
    assert!(lines.starts_with(first) && lines.is_sorted_by_key(|line| line.seq));
}

/// A hub may have given up a subscriber that was away for a while.
#[tokio::test(flavor = "multi_thread")]
async fn longer_downtime_is_followed_by_a_new_subscription() {
    let _guard = ClockGuard::take().await;
    let mut rig = Rig::start(resources(3)).await;
    rig.settled().await;
    let first = rig.hub().subscriptions();
    let requests = rig.hub().counts().requested;
    rig.stop_daemon().await;
    assert_eq!(rig.hub().forget(rig.changes().as_str()), 1);
    set_wall(TimeDelta::seconds(90));
    rig.start_daemon().await;
    let asked = rig
        .hub()
        .wait_for_counts(|counts| counts.requested >= requests + 2);
    soon("requested again", asked).await;
    let again = soon(
        "subscribed",
        rig.hub().wait_for_subscription(rig.changes().as_str()),
    )
    .await;
    assert!(first.iter().any(|first| first.callback == again.callback));
    rig.settled().await;
}

/// A hub that accepts and does not verify is reported after a minute.
#[tokio::test(flavor = "multi_thread")]
async fn subscription_that_is_not_verified_is_reported() {
    let _guard = ClockGuard::take().await;
    let rig = Rig::start(SampleOptions {
        hub: ChannelHub::Own(HubOptions {
            verifying: Verifying::Never,
            ..HubOptions::default()
        }),
        ..resources(3)
    })
    .await;
    let topic = rig.changes().to_string();
    let asked = rig.hub().wait_for(
        |event| matches!(event, HubEvent::Requested { request, .. } if request.topic == topic),
    );
    let HubEvent::Requested { request, .. } = soon("asked", asked).await else {
        unreachable!()
    };
    rig.until("in sync", |set| set.state == "in-sync").await;
    assert_eq!(rig.channel().await.error, None);
    set_wall(TimeDelta::seconds(61));
    // A verification of something else is counted, and wakes the channel.
    let query = "hub.mode=subscribe&hub.challenge=c&hub.topic=http%3A%2F%2Fother.example%2F";
    let url = format!("{}?{query}", request.callback);
    let answer = support::send(|| support::client().get(&url)).await;
    assert_eq!(answer.status(), 404);
    rig.until("reported", |set| {
        set.channels.iter().any(|channel| {
            let error = channel.error.as_ref();
            channel.rejected_verifications == 1
                && error.is_some_and(|error| {
                    error.code == "not-verified"
                        && error.message.contains("public_url")
                        && error.message.contains("http://other.example/")
                })
        })
    })
    .await;
}

/// Serves an index of two lists that has the same time of both, of that day in January 2026, or one of these lists.
fn put_lists(rig: &Rig, path: &str, day: u32, names: &[&str]) {
    let namespaces = "xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" xmlns:rs=\"http://www.openarchives.org/rs/terms/\"";
    let head = "<rs:md capability=\"resourcelist\"/>";
    let lastmod = format!("<lastmod>2026-01-{day:02}T10:07:31Z</lastmod>");
    let document = if path == INDEX {
        let entries: String = [A, B]
            .map(|path| rig.source.base().join(path).unwrap())
            .map(|loc| format!("<sitemap><loc>{loc}</loc>{lastmod}</sitemap>"))
            .concat();
        format!("<sitemapindex {namespaces}>{head}{entries}</sitemapindex>")
    } else {
        let entries: String = names
            .iter()
            .map(|name| format!("<url><loc>{}</loc>{lastmod}</url>", rig.uri(name)))
            .collect();
        format!("<urlset {namespaces}>{head}{entries}</urlset>")
    };
    rig.source.put_document(path, "application/xml", document);
}

const INDEX: &str = "/set1/resourcelist.xml";
const A: &str = "/set1/a.xml";
const B: &str = "/set1/b.xml";

/// A Source that never changes the times in its index.
#[tokio::test(flavor = "multi_thread")]
async fn index_that_has_hidden_news_is_not_believed_any_more() {
    let _guard = ClockGuard::take().await;
    let options = SampleOptions {
        change_list: false,
        hub: ChannelHub::None,
        ..resources(4)
    };
    let source = resyncd_testkit::SampleSource::start(options).await.unwrap();
    source.fail(INDEX, Fault::Status(503), usize::MAX);
    let rig = Rig::follow(source, |config| {
        config.sources[0].poll_interval = Duration::from_secs(1);
    })
    .await;
    let polled = async || {
        let hits = rig.source.hits(INDEX);
        soon("polled", rig.source.wait_for_hits(INDEX, hits + 2)).await;
    };
    let until = async |names: usize, notices: &[&str]| {
        rig.until("in sync", |set| {
            let codes = set.notices.iter().map(|notice| notice.code.as_str());
            set.state == "in-sync" && set.resources == names as u64 && codes.eq(notices.to_vec())
        })
        .await;
    };
    put_lists(&rig, A, 5, &["r0000.txt"]);
    put_lists(&rig, B, 5, &["r0001.txt"]);
    put_lists(&rig, INDEX, 5, &[]);
    rig.source.heal(INDEX);
    until(2, &[]).await;

    put_lists(&rig, A, 5, &["r0000.txt", "r0002.txt"]);
    let hits = rig.source.hits(A);
    polled().await;
    assert_eq!(rig.source.hits(A), hits, "it is believed");
    set_wall(days(2));
    until(3, &["misdated-parts"]).await;

    put_lists(&rig, B, 5, &["r0001.txt", "r0003.txt"]);
    until(4, &["misdated-parts"]).await;

    put_lists(&rig, INDEX, 6, &[]);
    until(4, &[]).await;
    polled().await;
    let hits = [A, B].map(|path| rig.source.hits(path));
    polled().await;
    assert_eq!([A, B].map(|path| rig.source.hits(path)), hits);
}
