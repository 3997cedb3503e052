//! The verification of intent: who is believed, and what is granted (WebSub, section 5.3).

use chrono::{DateTime, TimeDelta, Utc};
use resyncd::clock;
use resyncd::demo::{HubOptions, SampleOptions, Verifying};
use resyncd::protocol::Capability;
use resyncd::protocol::websub::Mode;

use crate::support::{Rig, SET, client, resources};
use crate::{asked_after, subscribed, verify, with_hub};

/// Of a hub that leaves it to the test to verify.
fn never_verifying() -> SampleOptions {
    with_hub(HubOptions {
        verifying: Verifying::Never,
        ..HubOptions::default()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn verification_of_what_was_asked_echoes_the_challenge() {
    let rig = Rig::start(never_verifying()).await;
    let topic = rig.changes().to_string();
    let callback = asked_after(rig.hub(), 0, &topic).await.callback;
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
    // Nothing of it is to be read as a page, or left out.
    let odd = "<b>&amp;+%2B=é\u{1F600}";
    let (status, media_type, body) = ask(Mode::Subscribe, &topic, Some(odd)).await;
    assert_eq!((status, body.as_str()), (200, odd));
    assert!(media_type.starts_with("text/plain"), "{media_type}");
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_verification_is_refused_and_changes_nothing() {
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
    // A hub that repeats its verification is told the same again, and the lease stays what it is.
    for lease in [1, 0, 1 << 62] {
        let (status, _, body) = forge(Mode::Subscribe, topic, lease).await;
        assert_eq!((status, body.as_str()), (200, "challenge"));
    }
    for bare in [callback.clone(), format!("{callback}?hub.mode=subscribe")] {
        assert_eq!(client().get(bare).send().await.unwrap().status(), 404);
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
async fn granted_lease_counts_whatever_was_asked() {
    const DAY: i64 = 86_400;
    let granted = [
        ("set1", Some(0), 10 * DAY),
        ("set2", None, 10 * DAY),
        ("set3", Some(7200), 7200),
        ("set4", Some(1), 1),
        // Longer than anybody lives: renewed as if it were a year.
        ("set5", Some(1 << 63), 366 * DAY),
        ("set6", Some(u64::MAX), 366 * DAY),
    ];
    let rig = Rig::start(SampleOptions {
        sets: granted.map(|(set, ..)| set.to_owned()).to_vec(),
        ..never_verifying()
    })
    .await;
    for (set, told, expected) in granted {
        let topic = rig.source.topic(set, &Capability::ChangeNotification);
        let topic = topic.to_string();
        let request = asked_after(rig.hub(), 0, &topic).await;
        let begun = clock::now().wall;
        let answer = verify(&request.callback, Mode::Subscribe, &topic, Some("c"), told).await;
        assert_eq!(answer.0, 200, "{told:?}");
        let found = rig.set_named(set).await.unwrap();
        let mut channels = found.channels.into_iter();
        let channel = channels.find(|channel| channel.topic == topic).unwrap();
        let time = |text: Option<String>| -> Option<DateTime<Utc>> { Some(text?.parse().unwrap()) };
        let (expires, renew) = (time(channel.lease_expires_at), time(channel.renew_at));
        let ended = clock::now().wall;
        let Some((expires, renew)) = expires.zip(renew) else {
            // So short a lease may be over by now.
            assert_eq!((told, channel.state.as_str()), (Some(1), "expired"));
            continue;
        };
        let lease = TimeDelta::seconds(expected);
        // The status tells milliseconds.
        let slack = TimeDelta::seconds(1);
        assert!(expires >= begun + lease - slack, "{told:?}: {expires}");
        assert!(expires <= ended + lease + slack, "{told:?}: {expires}");
        let earliest = (lease / 2).max(TimeDelta::seconds(2));
        let latest = (lease * 2 / 3).max(TimeDelta::seconds(2));
        assert!(renew >= begun + earliest - slack, "{told:?}: {renew}");
        assert!(renew <= ended + latest + slack, "{told:?}: {renew}");
    }
    assert!(rig.set_named(SET).await.is_some());
}
