//! Subscriptions of what is no longer followed: they end at the next start, and their callbacks answer that they are gone.

use resyncd_testkit::{Granting, HubEvent, SampleOptions, Subscription};

use crate::support::{NAME, Rig, client, eventually, resources, send, soon};

fn two_sets() -> SampleOptions {
    SampleOptions {
        sets: vec!["set1".to_owned(), "set2".to_owned()],
        ..resources(3)
    }
}

async fn subscriptions(rig: &Rig, many: usize) -> Vec<Subscription> {
    eventually("the subscriptions", None, async || {
        let found = rig.hub().subscriptions();
        if found.len() == many {
            Ok(found)
        } else {
            Err(format!("{found:?}"))
        }
    })
    .await
}

/// Waits until no subscription is to be ended any more.
async fn until_all_ended(rig: &Rig) {
    eventually("no longer shown", None, async || {
        let unfollowed = rig.operator.status().await.unfollowed;
        unfollowed
            .is_empty()
            .then_some(())
            .ok_or(format!("{unfollowed:?}"))
    })
    .await;
}

async fn deliver(to: &Subscription) -> u16 {
    let answer = send(|| client().post(&to.callback).body("<late/>")).await;
    answer.status().as_u16()
}

#[tokio::test(flavor = "multi_thread")]
async fn deselected_set_is_unsubscribed_at_the_next_start() {
    let mut rig = Rig::start(two_sets()).await;
    rig.settled().await;
    let before = subscriptions(&rig, 4).await;
    rig.stop_daemon().await;
    rig.config.sources[0].sets = vec![rig.source.capability_list("set1")];
    rig.hub()
        .configure(|hub| hub.granting = Granting::Refuse(503));
    rig.start_daemon().await;
    // It is gone at once, shown until the hub has confirmed, and tried again.
    let of_set2 = |one: &&Subscription| one.topic.contains("/set2/");
    for left in before.iter().filter(of_set2) {
        assert_eq!(deliver(left).await, 410);
    }
    eventually("shown", None, async || {
        let unfollowed = rig.operator.status().await.unfollowed;
        let is_refused = |error: &resyncd::status::StatusError| error.code == "hub-refused";
        let refused = unfollowed
            .iter()
            .filter(|one| one.error.as_ref().is_some_and(is_refused));
        match refused.count() {
            2 => Ok(()),
            _ => Err(format!("{unfollowed:?}")),
        }
    })
    .await;
    rig.hub()
        .configure(|hub| hub.granting = Granting::Accept(202));
    let after = subscriptions(&rig, 2).await;
    assert!(!after.iter().any(|one| of_set2(&one)));
    until_all_ended(&rig).await;
    rig.until("in sync", |set| set.state == "in-sync").await;

    // Selected again, it is subscribed to again.
    rig.stop_daemon().await;
    rig.config.sources[0].sets.clear();
    rig.start_daemon().await;
    rig.settled().await;
    subscriptions(&rig, 4).await;
    rig.until_mirrored().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn source_that_was_removed_is_unsubscribed() {
    let mut rig = Rig::start(resources(3)).await;
    rig.settled().await;
    let before = subscriptions(&rig, 2).await;
    rig.stop_daemon().await;
    // Another one, of which a file of the mirror is none of the business of this test.
    rig.config.sources[0].name = "another".to_owned();
    rig.start_daemon().await;
    assert_eq!(deliver(&before[0]).await, 410);
    let ended = rig.hub().wait_for_counts(|counts| counts.unsubscribed == 2);
    soon("unsubscribed", ended).await;
    let after = subscriptions(&rig, 2).await;
    let is_old = |one: &Subscription| before.iter().any(|old| old.callback == one.callback);
    assert!(!after.iter().any(is_old));
    // Nothing is left to end for the operator.
    let (status, _) = rig
        .operator
        .post(&format!("/sources/{NAME}/unsubscribe"))
        .await;
    assert_eq!(status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn source_without_notifications_is_unsubscribed_and_the_listener_closes() {
    let mut rig = Rig::start(resources(3)).await;
    rig.settled().await;
    let before = subscriptions(&rig, 2).await;
    rig.stop_daemon().await;
    rig.config.sources[0].notifications = false;
    rig.hub()
        .configure(|hub| hub.granting = Granting::Refuse(503));
    rig.start_daemon().await;
    assert_eq!(deliver(&before[0]).await, 410, "open until it has ended");
    rig.hub()
        .configure(|hub| hub.granting = Granting::Accept(202));
    let ended = rig.hub().wait_for_counts(|counts| counts.unsubscribed == 2);
    soon("unsubscribed", ended).await;
    eventually("closed", None, async || {
        let answer = client().post(&before[0].callback).body("<late/>").send();
        match answer.await {
            Err(error) if error.is_connect() => Ok(()),
            answer => Err(format!("{answer:?}")),
        }
    })
    .await;
    rig.until("polled", |set| set.state == "in-sync").await;
    // After that it is not opened any more.
    rig.stop_daemon().await;
    rig.start_daemon().await;
    assert!(rig.daemon().callback.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn set_that_returns_while_its_subscription_is_being_ended_is_subscribed_to() {
    let mut rig = Rig::start(two_sets()).await;
    rig.settled().await;
    subscriptions(&rig, 4).await;
    rig.stop_daemon().await;
    rig.hub()
        .configure(|hub| hub.granting = Granting::Refuse(503));
    rig.source.remove_set("set2");
    rig.start_daemon().await;
    eventually("refused", None, async || {
        let unfollowed = rig.operator.status().await.unfollowed;
        let refused = unfollowed.iter().filter(|one| one.error.is_some());
        match refused.count() {
            2 => Ok(()),
            _ => Err(format!("{unfollowed:?}")),
        }
    })
    .await;
    rig.stop_daemon().await;
    rig.source.add_set("set2");
    let mark = rig.hub().mark();
    rig.start_daemon().await;
    rig.until_named("set2", "requested again", |set| {
        set.channels.len() == 2 && set.channels.iter().all(|one| one.error.is_some())
    })
    .await;
    rig.hub()
        .configure(|hub| hub.granting = Granting::Accept(202));
    for set in ["set1", "set2"] {
        rig.until_named(set, "subscribed", |set| {
            set.state == "in-sync" && set.channels.iter().all(|one| one.state == "active")
        })
        .await;
    }
    // What was to end it has not requested anything, and is gone.
    until_all_ended(&rig).await;
    let foreign = rig.hub().wait_after(mark, |event| {
        matches!(event, HubEvent::Requested { request, .. } if request.lease_seconds == Some(0))
    });
    let none = tokio::time::timeout(std::time::Duration::ZERO, foreign).await;
    assert!(none.is_err(), "{none:?}");
}
