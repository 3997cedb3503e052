//! Renewal, denial and loss of a subscription (WebSub, sections 5.2 and 6). The tables of `resyncd_core::channel` and `resyncd_core::lease`
//! test the pauses in detail, on a clock of their own.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use chrono::{DateTime, FixedOffset, TimeDelta};
use resourcesync::Capability;
use resyncd::clock;
use resyncd::status::SetStatus;
use resyncd_testkit::{Granting, HubEvent, HubOptions, SampleSource};

use crate::support::{NAME, Rig, SET, resources, soon};
use crate::websub::{check_push, requested_after, requests, subscribed, with_hub};

const CHANGES: &str = "change-notification";

fn granting_seconds(seconds: u64) -> HubOptions {
    HubOptions {
        max_lease: Duration::from_secs(seconds),
        ..HubOptions::default()
    }
}

/// Repeats a test with a new rig while it returns `None`: on a busy machine a lease ran out before it was renewed, or before the
/// test had read the status.
async fn while_leases_run(test: impl AsyncFn() -> Option<()>) {
    const ATTEMPTS: usize = 5;
    for _ in 0..ATTEMPTS {
        if test().await.is_some() {
            return;
        }
    }
    panic!("in each of {ATTEMPTS} attempts a lease ran out");
}

/// When the leases run out, by kind of channel; `None` if one of them has.
fn lease_ends(set: &SetStatus) -> Option<BTreeMap<String, DateTime<FixedOffset>>> {
    let ends = set.channels.iter().map(|channel| {
        let end = channel.lease_expires_at.as_deref()?;
        Some((
            channel.kind.clone(),
            DateTime::parse_from_rfc3339(end).unwrap(),
        ))
    });
    ends.collect()
}

/// When the lease of the change notifications runs out; `None` if it has.
fn lease_end(set: &SetStatus) -> Option<DateTime<FixedOffset>> {
    lease_ends(set)?.remove(CHANGES)
}

fn is_over(end: &DateTime<FixedOffset>) -> bool {
    *end <= clock::now().wall
}

#[tokio::test(flavor = "multi_thread")]
async fn lease_is_renewed_in_time_with_the_same_callback_and_secret() {
    while_leases_run(async || {
        let rig = Rig::start(with_hub(granting_seconds(20))).await;
        let first = subscribed(&rig).await;
        let topic = rig.changes().to_string();
        let mut mark = rig.hub().mark();
        let mut end = lease_end(&rig.set().await)?;
        for round in 0..2 {
            let request = requested_after(rig.hub(), mark, &topic).await;
            mark = rig.hub().mark();
            assert_eq!(request.callback, first.callback, "round {round}");
            assert_eq!(request.secret, first.secret);
            let state = rig.channel().await.state;
            if is_over(&end) {
                return None;
            }
            assert_eq!(state, "active", "round {round}");
            let renewed = rig.until("renewed", |set| lease_end(set) > Some(end)).await;
            end = lease_end(&renewed)?;
        }
        let requests = requests(rig.hub()).await;
        let subscriptions: BTreeSet<_> = requests
            .iter()
            .map(|request| (&request.topic, &request.callback))
            .collect();
        assert_eq!(subscriptions.len(), 2);
        assert_eq!(rig.hub().counts().not_verified, 0);
        Some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn renewal_without_an_interruption_causes_no_poll() {
    // A renewal may come a third of it late.
    const LEASE: Duration = Duration::from_secs(24);
    while_leases_run(async || {
        let rig = Rig::start(with_hub(granting_seconds(LEASE.as_secs()))).await;
        let first = subscribed(&rig).await;
        // A subscription that is verified after the first poll began makes another one due.
        let begun = lease_ends(&rig.set().await)?;
        let is_polled = |set: &SetStatus| {
            let last = set.last_poll_at.as_deref().unwrap();
            let last = DateTime::parse_from_rfc3339(last).unwrap();
            begun.values().all(|end| *end - LEASE <= last)
        };
        let set = rig
            .until("polled after the subscriptions, or renewed", |set| {
                is_polled(set) || lease_ends(set).as_ref() != Some(&begun)
            })
            .await;
        if !is_polled(&set) {
            return None;
        }
        let polled = set.last_poll_at;
        let (mut ends, mut renewals) = (begun, 0);
        // A poll would have been due after each renewal before the last one.
        while renewals < 3 {
            let set = rig
                .until("renewed", |set| lease_ends(set).as_ref() != Some(&ends))
                .await;
            let renewed = lease_ends(&set)?;
            // So it is, too, if a renewal was not seen here.
            let ran_out =
                |kind: &String| renewed[kind] - ends[kind] >= TimeDelta::from_std(LEASE).unwrap();
            if ends.keys().any(ran_out) {
                return None;
            }
            renewals += usize::from(renewed[CHANGES] != ends[CHANGES]);
            ends = renewed;
        }
        let set = rig.set().await;
        if ends.values().any(is_over) {
            return None;
        }
        assert_eq!(set.last_poll_at, polled);
        assert!(set.channels.iter().all(|channel| channel.state == "active"));
        for request in requests(rig.hub()).await {
            assert!(request.topic != first.topic || request.callback == first.callback);
        }
        Some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn running_lease_stays_active_while_its_renewal_fails() {
    const LEASE: Duration = Duration::from_secs(30);
    while_leases_run(async || {
        let rig = Rig::start(with_hub(granting_seconds(LEASE.as_secs()))).await;
        subscribed(&rig).await;
        let topic = rig.changes().to_string();
        rig.hub()
            .configure(|hub| hub.granting = Granting::Refuse(503));
        let mark = rig.hub().mark();
        let end = lease_end(&rig.set().await)?;
        requested_after(rig.hub(), mark, &topic).await;
        rig.until("reported", |set| {
            set.channels.iter().all(|c| c.error.is_some())
        })
        .await;
        let channel = rig.channel().await;
        if is_over(&end) {
            return None;
        }
        assert_eq!(channel.state, "active");
        assert_eq!(channel.error.unwrap().code, "hub-refused");
        // When the lease has run out, the hub delivers nothing.
        let pushed = check_push(&rig, "pushed during the renewal");
        tokio::time::timeout(LEASE, pushed).await.ok()?;
        let mark = rig.hub().mark();
        rig.hub().configure(|hub| {
            hub.granting = Granting::Accept(202);
            hub.max_lease = Duration::from_secs(600);
        });
        requested_after(rig.hub(), mark, &topic).await;
        rig.until("renewed", |set| {
            set.channels
                .iter()
                .all(|c| c.state == "active" && c.error.is_none())
        })
        .await;
        Some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refusal_is_reported_and_retried() {
    let rig = Rig::start(with_hub(HubOptions {
        granting: Granting::Refuse(503),
        ..HubOptions::default()
    }))
    .await;
    let topic = rig.changes().to_string();
    let mut mark = 0;
    for round in 0..3 {
        requested_after(rig.hub(), mark, &topic).await;
        mark = rig.hub().mark();
        if round == 1 {
            let set = rig
                .until("refused", |set| {
                    set.state == "in-sync" && set.channels.iter().all(|c| c.error.is_some())
                })
                .await;
            let status_error = set.channels[0].error.clone().unwrap();
            assert_eq!(status_error.code, "hub-refused");
            assert!(status_error.message.contains("503"), "{status_error:?}");
            rig.hub()
                .configure(|hub| hub.granting = Granting::Accept(202));
        }
    }
    rig.until("active, without an error", |set| {
        set.channels
            .iter()
            .all(|channel| channel.state == "active" && channel.error.is_none())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn denied_channel_is_reported_polled_and_requested_again() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    let topic = source.topic(SET, &Capability::ChangeNotification);
    let hub = source.hub().unwrap().clone();
    hub.deny(topic.as_str(), "not for you");
    let rig = Rig::follow(source, |config| {
        config.sources[0].poll_interval = Duration::from_secs(1)
    })
    .await;
    soon(
        "denied",
        hub.wait_for(|event| matches!(event, HubEvent::Denied { .. })),
    )
    .await;
    let set = rig
        .until("denied, and in sync", |set| {
            set.state == "in-sync" && set.channels.iter().any(|c| c.state == "denied")
        })
        .await;
    let attentions = set.attention;
    let mut channels = set.channels.into_iter();
    let denied = channels.find(|channel| channel.state == "denied").unwrap();
    let error = denied.error.unwrap();
    assert_eq!(error.code, "denied");
    assert!(error.message.contains("not for you"), "{error:?}");
    let attention = &denied.attention[0];
    assert_eq!(attention.code, "channel-denied");
    assert!(attention.message.contains("not for you"), "{attention:?}");
    assert!(attentions.contains(attention), "{attentions:?}");
    rig.source.update(SET, "r0001.txt", "polled");
    rig.until_mirrored().await;

    hub.allow(topic.as_str());
    soon("requested again", hub.wait_for_subscription(topic.as_str())).await;
    rig.until("active", |set| {
        set.channels
            .iter()
            .all(|c| c.state == "active" && c.error.is_none())
            && set.attention.is_empty()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn subscription_that_the_hub_ends_is_polled_and_requested_again() {
    let rig = Rig::start(resources(3)).await;
    rig.settled().await;
    let topic = rig.changes().to_string();
    rig.hub().deny(&topic, "maintenance");
    assert_eq!(rig.hub().end(&topic, "maintenance").await, 1);
    assert_eq!(rig.channel().await.state, "denied");
    rig.source.update(SET, "r0001.txt", "missed");
    rig.source.notify_and_publish(SET).await.unwrap();
    // After a denial there is a poll, and then a new subscription.
    rig.operator.poll(NAME).await;
    rig.until_mirrored().await;
    rig.hub().allow(&topic);
    soon("requested again", rig.hub().wait_for_subscription(&topic)).await;
    rig.until("active", |set| {
        set.channels.iter().all(|c| c.state == "active")
    })
    .await;
    check_push(&rig, "pushed again").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_subscription_is_detected_and_requested_anew() {
    let rig = Rig::start(resources(3)).await;
    let first = subscribed(&rig).await;
    // A poll that a late verification makes due begins the count again.
    rig.idle().await;
    check_push(&rig, "pushed").await;
    let topic = rig.changes().to_string();
    assert_eq!(rig.hub().forget(&topic), 1);
    rig.hub()
        .configure(|hub| hub.granting = Granting::Refuse(503));
    // These are not delivered. The first poll after the delivered one is only the reference.
    for round in 0..3 {
        if round < 2 {
            assert_eq!(rig.channel().await.state, "active", "before round {round}");
        }
        rig.source.update(SET, "r0001.txt", format!("{round}"));
        rig.source.notify_and_publish(SET).await.unwrap();
        rig.operator.poll(NAME).await;
        rig.until_holds("r0001.txt", &round.to_string()).await;
    }
    rig.until("expired", |set| {
        set.channels.iter().any(|c| c.state == "expired")
    })
    .await;
    rig.hub()
        .configure(|hub| hub.granting = Granting::Accept(202));
    let again = soon("subscribed anew", rig.hub().wait_for_subscription(&topic)).await;
    assert_eq!(
        (again.callback, again.secret),
        (first.callback, first.secret)
    );
    rig.settled().await;
    // The verification does not prove that the hub delivers again.
    let silent = |code: Option<&str>| code == Some("push-silent");
    until_error(&rig, silent).await;
    check_push(&rig, "pushed again").await;
    until_error(&rig, |code| code.is_none()).await;
}

/// Waits until the code of the channel's error is as wanted.
async fn until_error(rig: &Rig, wanted: impl Fn(Option<&str>) -> bool) {
    rig.until("the error", |set| {
        let mut channels = set.channels.iter();
        let channel = channels.find(|channel| channel.kind == "change-notification");
        let error = channel.and_then(|channel| channel.error.as_ref());
        wanted(error.map(|error| error.code.as_str()))
    })
    .await;
}
