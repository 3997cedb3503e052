//! The verification of intent: what is confirmed, and which lease is granted (WebSub, section 5.3).

use chrono::{DateTime, TimeDelta, Utc};
use resourcesync::Capability;
use resyncd::clock;
use resyncd::status::StatusError;
use resyncd_testkit::{HubOptions, SampleOptions, Verifying};
use rusqlite::Connection;
use websub::Mode;

use crate::support::{Rig, SET, client, resources};
use crate::websub::{requested_after, status_of, subscribed, verify, with_hub};

/// A Source with a hub that does not verify, so that the test can.
fn never_verifying() -> SampleOptions {
    with_hub(HubOptions {
        verifying: Verifying::Never,
        ..HubOptions::default()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn verification_of_a_pending_request_echoes_the_challenge() {
    let rig = Rig::start(never_verifying()).await;
    let topic = rig.changes().to_string();
    let callback = requested_after(rig.hub(), 0, &topic).await.callback;
    let ask = async |mode, topic: &str, challenge: Option<&str>| {
        verify(&callback, mode, topic, challenge, Some(600)).await
    };
    let other = "http://127.0.0.1:1/other/";
    assert_eq!(ask(Mode::Subscribe, other, Some("c")).await.0, 404);
    assert_eq!(ask(Mode::Unsubscribe, &topic, Some("c")).await.0, 404);
    assert_eq!(ask(Mode::Subscribe, &topic, None).await.0, 400);
    assert_eq!(ask(Mode::Subscribe, &topic, Some("")).await.0, 400);
    let (longest, longer) = ("c".repeat(1024), "c".repeat(1025));
    assert_eq!(ask(Mode::Subscribe, &topic, Some(&longer)).await.0, 400);
    assert_eq!(rig.channel().await.state, "pending", "so far");

    let answer = ask(Mode::Subscribe, &topic, Some(&longest)).await;
    assert_eq!((answer.0, answer.2), (200, longest));
    assert_eq!(rig.channel().await.state, "active");
    // It is neither served as a page nor altered.
    let markup = "<b>&amp;+%2B=é\u{1F600}";
    let (status, media_type, body) = ask(Mode::Subscribe, &topic, Some(markup)).await;
    assert_eq!((status, body.as_str()), (200, markup));
    assert!(media_type.starts_with("text/plain"), "{media_type}");
}

#[tokio::test(flavor = "multi_thread")]
async fn channel_that_is_not_verified_for_long_waits_for_a_person() {
    let mut rig = Rig::start(never_verifying()).await;
    let topic = rig.changes().to_string();
    for topic in [topic.as_str(), rig.framework().as_str()] {
        requested_after(rig.hub(), 0, topic).await;
    }
    rig.until("polled", |set| set.state == "in-sync").await;
    let set = rig.set().await;
    // Unless the time is over by now that the hub has to call back.
    let is_silent = |error: &StatusError| error.code == "not-verified";
    let mut errors = set.channels.iter().filter_map(|it| it.error.as_ref());
    assert!(
        set.attention.is_empty() || errors.any(is_silent),
        "not yet: {set:#?}"
    );

    // The same as if the hub had been asked long ago.
    rig.stop_daemon().await;
    let database = Connection::open(rig.config.state_dir.join("resyncd.db")).unwrap();
    let hour = "UPDATE channel SET unverified_since = unverified_since - 3600 * 1000000";
    assert_eq!(database.execute(hour, []).unwrap(), 2);
    drop(database);
    let mark = rig.hub().counts().requested;
    rig.start_daemon().await;
    let set = rig.until("shown", |set| set.attention.len() == 2).await;
    assert!(
        set.attention
            .iter()
            .all(|it| it.code == "channel-unverified")
    );
    let channel = rig.channel().await;
    assert_eq!(
        (channel.state.as_str(), channel.attention.len()),
        ("pending", 1)
    );
    let attention = &channel.attention[0];
    assert!(set.attention.contains(attention));
    for part in [topic.as_str(), rig.hub().uri().as_str()] {
        assert!(attention.message.contains(part), "{attention:?}");
    }
    assert!(attention.next_step.contains("public_url"), "{attention:?}");

    // Once the hub verifies, it is over.
    let request = requested_after(rig.hub(), mark, &topic).await;
    let answer = verify(
        &request.callback,
        Mode::Subscribe,
        &topic,
        Some("c"),
        Some(600),
    )
    .await;
    assert_eq!(answer.0, 200);
    let channel = rig.channel().await;
    assert_eq!(
        (channel.state.as_str(), channel.attention.len()),
        ("active", 0)
    );
    assert_eq!(rig.set().await.attention.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_verification_is_rejected_and_changes_nothing() {
    let rig = Rig::start(resources(3)).await;
    let subscription = subscribed(&rig).await;
    let before = rig.channel().await;
    let (callback, topic) = (&subscription.callback, &subscription.topic);
    let forge = async |mode, topic: &str, lease| {
        verify(callback, mode, topic, Some("challenge"), Some(lease)).await
    };
    let elsewhere = "http://127.0.0.1:1/other/";
    assert_eq!(forge(Mode::Subscribe, elsewhere, 1).await.0, 404);
    assert_eq!(forge(Mode::Unsubscribe, topic, 1).await.0, 404);
    // A repeated verification is confirmed again and does not change the lease.
    for lease in [1, 0, 1 << 62] {
        let (status, _, body) = forge(Mode::Subscribe, topic, lease).await;
        assert_eq!((status, body.as_str()), (200, "challenge"));
    }
    for bare in [callback.clone(), format!("{callback}?hub.mode=subscribe")] {
        assert_eq!(status_of(client().get(bare)).await, 404);
    }
    let after = rig.channel().await;
    assert_eq!(
        (&after.state, &after.lease_expires_at, &after.renew_at),
        (&before.state, &before.lease_expires_at, &before.renew_at)
    );
    let denied_elsewhere = verify(callback, Mode::Denied, elsewhere, None, None).await;
    assert_eq!(denied_elsewhere.0, 404);
    assert_eq!(rig.channel().await.state, "active");
}

#[tokio::test(flavor = "multi_thread")]
async fn granted_lease_counts_whatever_was_requested() {
    const DAY: i64 = 86_400;
    let granted = [
        ("set1", Some(0), 10 * DAY),
        ("set2", None, 10 * DAY),
        ("set3", Some(7200), 7200),
        ("set4", Some(1), 1),
        // An absurdly long lease is renewed as if it were a year.
        ("set5", Some(1 << 63), 366 * DAY),
        ("set6", Some(u64::MAX), 366 * DAY),
    ];
    let rig = Rig::start(SampleOptions {
        sets: granted.map(|(set, ..)| set.to_owned()).to_vec(),
        ..never_verifying()
    })
    .await;
    for (set, lease, expected) in granted {
        let topic = rig.source.topic(set, &Capability::ChangeNotification);
        let topic = topic.to_string();
        let request = requested_after(rig.hub(), 0, &topic).await;
        let begun = clock::now().wall;
        let answer = verify(&request.callback, Mode::Subscribe, &topic, Some("c"), lease).await;
        assert_eq!(answer.0, 200, "{lease:?}");
        let found = rig.set_named(set).await.unwrap();
        let mut channels = found.channels.into_iter();
        let channel = channels.find(|channel| channel.topic == topic).unwrap();
        let time = |text: Option<String>| -> Option<DateTime<Utc>> { Some(text?.parse().unwrap()) };
        let (expires, renew) = (time(channel.lease_expires_at), time(channel.renew_at));
        let ended = clock::now().wall;
        let Some((expires, renew)) = expires.zip(renew) else {
            // So short a lease may have expired by now.
            assert_eq!((lease, channel.state.as_str()), (Some(1), "expired"));
            continue;
        };
        let expected = TimeDelta::seconds(expected);
        // The status shows milliseconds.
        let slack = TimeDelta::seconds(1);
        assert!(expires >= begun + expected - slack, "{lease:?}: {expires}");
        assert!(expires <= ended + expected + slack, "{lease:?}: {expires}");
        let (earliest, latest) = match lease {
            // It can't be renewed before it ends: at the pace of one request per five minutes.
            Some(1) => (TimeDelta::minutes(5), TimeDelta::minutes(5)),
            _ => (expected / 2, expected * 2 / 3),
        };
        assert!(renew >= begun + earliest - slack, "{lease:?}: {renew}");
        assert!(renew <= ended + latest + slack, "{lease:?}: {renew}");
    }
    assert!(rig.set_named(SET).await.is_some());
}
