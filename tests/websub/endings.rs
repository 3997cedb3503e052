//! The end of a subscription, and the answers to a hub afterwards.

use resourcesync::Capability;
use resyncd::status::UnsubscribeResult;
use resyncd_testkit::{Granting, HubEvent, Verifying};
use websub::Mode;

use crate::support::{NAME, Rig, SET, client, resources, soon};
use crate::websub::{check_push, delivery, status_of, subscribed, verify};

async fn unsubscribe(rig: &Rig) -> Vec<UnsubscribeResult> {
    let path = format!("/sources/{NAME}/unsubscribe");
    let (status, body) = soon("unsubscribed", rig.operator.post(&path)).await;
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn unsubscribe_waits_until_the_hub_has_confirmed() {
    for verifying in [Verifying::AfterAnswer, Verifying::BeforeAnswer] {
        let rig = Rig::start(resources(3)).await;
        let subscription = subscribed(&rig).await;
        rig.hub().configure(|hub| hub.verifying = verifying);
        let endings = unsubscribe(&rig).await;
        assert_eq!(endings.len(), 2);
        assert!(endings.iter().all(|ending| ending.confirmed), "{endings:?}");
        soon(
            "the hub has ended them",
            rig.hub().wait_for_counts(|counts| counts.unsubscribed == 2),
        )
        .await;
        assert!(rig.hub().subscriptions().is_empty());
        let set = rig.set().await;
        let ended = |state: &str| state == "unsubscribed";
        assert!(set.channels.iter().all(|c| ended(&c.state)), "{set:?}");
        let late = delivery(&subscription, b"late", subscription.secret.as_deref());
        assert_eq!(status_of(late).await, 410);
        let (callback, topic) = (&subscription.callback, &subscription.topic);
        let again = verify(callback, Mode::Subscribe, topic, Some("c"), Some(600)).await;
        assert_eq!(again.0, 404, "not requested");
    }
    let rig = Rig::start(resources(1)).await;
    let (status, _) = rig.operator.post("/sources/nobody/unsubscribe").await;
    assert_eq!(status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn unsubscribe_reports_the_answer_of_each_hub() {
    let rig = Rig::start(resources(3)).await;
    subscribed(&rig).await;
    rig.hub()
        .configure(|hub| hub.granting = Granting::Refuse(501));
    let endings = unsubscribe(&rig).await;
    assert_eq!(endings.len(), 2);
    for ending in endings {
        assert!(!ending.confirmed);
        assert_eq!(ending.hub, rig.hub().uri().to_string());
        assert!(ending.message.contains("501"), "{ending:?}");
    }
    // What has failed is not shown as active, and is tried again.
    rig.until("the failure is shown", |set| {
        set.channels.iter().all(|channel| {
            let error = channel.error.as_ref().map(|error| error.code.as_str());
            channel.state == "unsubscribed" && error == Some("hub-refused")
        })
    })
    .await;
    rig.hub()
        .configure(|hub| hub.granting = Granting::Accept(202));
    soon(
        "ended after all",
        rig.hub().wait_for_counts(|counts| counts.unsubscribed == 2),
    )
    .await;
    rig.until("no error is left", |set| {
        set.channels.iter().all(|channel| channel.error.is_none())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn left_channel_is_gone_and_unknown_callback_is_not_found() {
    let rig = Rig::start(resources(3)).await;
    let subscription = subscribed(&rig).await;
    let secret = subscription.secret.as_deref();
    check_push(&rig, "pushed").await;
    let mut unknown = subscription.clone();
    unknown.callback.push('0');
    assert_eq!(status_of(delivery(&unknown, b"", secret)).await, 404);
    let root = rig.config.callback.public_url.clone().unwrap();
    assert_eq!(status_of(client().get(root)).await, 404);
    let (callback, topic) = (&unknown.callback, &unknown.topic);
    let asked = verify(callback, Mode::Subscribe, topic, Some("c"), None).await;
    assert_eq!(asked.0, 404);

    rig.source
        .remove_channel(SET, &Capability::ChangeNotification);
    let mark = rig.hub().mark();
    rig.operator.poll(NAME).await;
    let ended = rig.hub().wait_after(mark, |event| {
        matches!(event, HubEvent::Verified { mode: Mode::Unsubscribe, topic, .. } if *topic == subscription.topic)
    });
    soon("ended at the hub", ended).await;
    assert_eq!(status_of(delivery(&subscription, b"", secret)).await, 410);
    let set = rig
        .until("one is left", |set| set.channels.len() == 1)
        .await;
    assert_eq!(set.channels[0].kind, "framework-notification");
}

#[tokio::test(flavor = "multi_thread")]
async fn channel_that_comes_back_is_subscribed_to_during_and_after_its_end() {
    let rig = Rig::start(resources(3)).await;
    let topic = subscribed(&rig).await.topic;
    let is_asked = |event: &HubEvent| matches!(event, HubEvent::Requested { request, .. } if request.topic == topic);
    let is_ended = |event: &HubEvent| matches!(event, HubEvent::Verified { mode: Mode::Unsubscribe, topic: ended, .. } if *ended == topic);
    let is_back = |event: &HubEvent| matches!(event, HubEvent::Verified { mode: Mode::Subscribe, topic: back, .. } if *back == topic);
    let steps: [&(dyn Fn(&HubEvent) -> bool + Sync); 2] = [&is_asked, &is_ended];
    for (round, is_far) in steps.into_iter().enumerate() {
        rig.source
            .remove_channel(SET, &Capability::ChangeNotification);
        let mark = rig.hub().mark();
        rig.operator.poll(NAME).await;
        soon("it is being ended", rig.hub().wait_after(mark, is_far)).await;
        // The status shows it as active until its end is stored.
        let mark = rig.hub().mark();
        rig.source.add_channel(SET, Capability::ChangeNotification);
        rig.operator.poll(NAME).await;
        soon("it is back", rig.hub().wait_after(mark, is_back)).await;
        rig.settled().await;
        check_push(&rig, &format!("pushed in round {round}")).await;
    }
}
