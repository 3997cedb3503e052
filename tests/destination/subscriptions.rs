//! Subscriptions at the hub, and what the callback makes of those who call it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use resyncd::config::Signatures;
use resyncd::demo::{
    ChannelHub, Granting, Hub, HubEvent, HubOptions, SampleOptions, SampleSource, Signing,
    Submission, Subscription, Verifying,
};
use resyncd::protocol::HubUri;
use resyncd::protocol::websub::{
    Mode, Signature, SignatureMethod, SubscriptionRequest, Verification,
};
use resyncd::status::Ending;
use tokio::net::TcpListener;

use crate::support::{NAME, Rig, SET, client, eventually, resources, soon};

fn with_hub(hub: HubOptions) -> SampleOptions {
    SampleOptions {
        hub: ChannelHub::Own(hub),
        ..resources(3)
    }
}

async fn requests(hub: &Hub) -> Vec<SubscriptionRequest> {
    let all = usize::try_from(hub.counts().requested).unwrap();
    let found = Mutex::new(Vec::new());
    soon(
        "the requests",
        hub.wait_for(|event| {
            let mut found = found.lock().unwrap();
            if let HubEvent::Requested { request, .. } = event {
                found.push(request.clone());
            }
            found.len() == all
        }),
    )
    .await;
    found.into_inner().unwrap()
}

async fn subscribed(rig: &Rig) -> Subscription {
    rig.settled().await;
    soon(
        "subscribed",
        rig.hub().wait_for_subscription(rig.changes().as_str()),
    )
    .await
}

async fn post_signed(to: &Subscription, body: impl Into<String>, signed_with: Option<&str>) -> u16 {
    let body = body.into();
    let mut request = client()
        .post(&to.callback)
        .header("Content-Type", "application/xml");
    if let Some(secret) = signed_with {
        let signature =
            Signature::sign(SignatureMethod::Sha256, secret.as_bytes(), body.as_bytes());
        request = request.header("X-Hub-Signature", signature.to_string());
    }
    request.body(body).send().await.unwrap().status().as_u16()
}

#[tokio::test(flavor = "multi_thread")]
async fn request_asks_for_a_lease_with_a_secret_and_a_callback_of_its_own() {
    let rig = Rig::start(resources(3)).await;
    rig.settled().await;
    let requests = requests(rig.hub()).await;
    assert_eq!(requests.len(), 2);
    let public_url = rig.config.callback.public_url.as_ref().unwrap().as_str();
    for request in &requests {
        assert_eq!(request.mode, Mode::Subscribe);
        assert_eq!(request.lease_seconds, Some(864_000));
        let secret = request.secret.as_ref().unwrap();
        assert!((32..200).contains(&secret.len()));
        let token = request.callback.strip_prefix(public_url).unwrap();
        assert!(
            token.len() >= 32 && !token.contains(['/', '?']),
            "{}",
            request.callback
        );
    }
    assert_ne!(requests[0].topic, requests[1].topic);
    assert_ne!(requests[0].callback, requests[1].callback);
    assert_ne!(requests[0].secret, requests[1].secret);
    let (_, status) = rig.operator.get("/status").await;
    for request in &requests {
        assert!(!status.contains(request.secret.as_ref().unwrap()));
        assert!(!status.contains(&request.callback));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn request_is_a_form_that_old_hubs_understand_too() {
    let bodies = Arc::new(Mutex::new(Vec::<String>::new()));
    let take = async |State(bodies): State<Arc<Mutex<Vec<String>>>>, body: String| {
        bodies.lock().unwrap().push(body);
        StatusCode::ACCEPTED
    };
    let router = Router::new()
        .route("/hub", post(take))
        .with_state(Arc::clone(&bodies));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let hub = format!("http://{}/hub", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    let rig = Rig::start_with(resources(3), |config| {
        config.sources[0].hub = Some(HubUri::parse(&hub).unwrap());
    })
    .await;
    let form = eventually("asked", Some(rig.wakes()), async || {
        let found = bodies.lock().unwrap();
        found.first().cloned().ok_or("not asked".to_owned())
    })
    .await;
    let fields: std::collections::BTreeMap<_, _> = url::form_urlencoded::parse(form.as_bytes())
        .into_owned()
        .collect();
    assert_eq!(fields["hub.mode"], "subscribe");
    assert_eq!(fields["hub.verify"], "sync");
    assert_eq!(fields["hub.lease_seconds"], "864000");
    for field in ["hub.callback", "hub.topic", "hub.secret"] {
        assert!(!fields[field].is_empty(), "{field}");
    }
    // A hub that keeps silent does not keep the baseline from being made.
    rig.until("in step", |set| set.state == "in-sync").await;
    assert_eq!(
        rig.hub().counts().requested,
        0,
        "the advertised hub was replaced"
    );
}

/// A hub that does things its own way is subscribed to all the same, and a push comes through.
async fn check_hub(hub: HubOptions) {
    let rig = Rig::start(with_hub(hub)).await;
    rig.settled().await;
    let since = rig.operator.last_change().await;
    rig.source.update(SET, "r0001.txt", "pushed");
    rig.source.notify_and_publish(SET).await.unwrap();
    assert_eq!(
        rig.until_told(since, "r0001.txt").await.origin,
        "notification"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn hub_that_verifies_before_it_answers() {
    check_hub(HubOptions {
        verifying: Verifying::BeforeAnswer,
        granting: Granting::Accept(204),
        ..HubOptions::default()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hub_that_takes_no_lease() {
    check_hub(HubOptions {
        granting: Granting::RefuseLease(409),
        tells_lease: false,
        ..HubOptions::default()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hub_that_redirects_to_another() {
    let other = Hub::start(HubOptions::default()).await.unwrap();
    let rig = Rig::start(with_hub(HubOptions {
        granting: Granting::Redirect(other.uri().to_string()),
        ..HubOptions::default()
    }))
    .await;
    rig.settled().await;
    assert_eq!(other.subscriptions().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn hub_that_signs_with_another_method() {
    check_hub(HubOptions {
        signing: Signing::Signed(SignatureMethod::Sha1),
        ..HubOptions::default()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hub_that_cannot_sign_is_taken_where_signatures_are_off() {
    let rig = Rig::start_with(
        with_hub(HubOptions {
            signing: Signing::Unsigned,
            ..HubOptions::default()
        }),
        |config| config.sources[0].signatures = Signatures::Off,
    )
    .await;
    rig.settled().await;
    assert!(
        requests(rig.hub())
            .await
            .iter()
            .all(|request| request.secret.is_none())
    );
    rig.source.update(SET, "r0001.txt", "pushed");
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.until_mirrored().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn external_hub_is_used_as_advertised() {
    let hub = Hub::start(HubOptions::default()).await.unwrap();
    let rig = Rig::start(SampleOptions {
        hub: ChannelHub::External {
            hub: hub.uri().clone(),
            submission: Submission::Payload,
        },
        ..resources(3)
    })
    .await;
    rig.settled().await;
    rig.source.update(SET, "r0001.txt", "pushed");
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.until_mirrored().await;
    assert_eq!(hub.subscriptions().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_verification_is_refused_and_changes_nothing() {
    let rig = Rig::start(resources(3)).await;
    let subscription = subscribed(&rig).await;
    let before = rig.channel().await;
    let ask = |mode: Mode, topic: &str| {
        let question = Verification {
            mode,
            topic: topic.to_owned(),
            challenge: Some("challenge".to_owned()),
            lease_seconds: Some(5),
            reason: None,
        };
        let url = format!("{}?{}", subscription.callback, question.to_query());
        async move { client().get(url).send().await.unwrap() }
    };
    let other = ask(Mode::Subscribe, "http://127.0.0.1:1/other/").await;
    assert_eq!(other.status(), 404, "another topic");
    let unasked = ask(Mode::Unsubscribe, &subscription.topic).await;
    assert_eq!(unasked.status(), 404, "nobody asked to unsubscribe");
    // A hub that repeats its verification is told the same again, and the lease stays what it is.
    let again = ask(Mode::Subscribe, &subscription.topic).await;
    assert_eq!(again.status(), 200);
    assert_eq!(again.text().await.unwrap(), "challenge");
    let bare = client().get(&subscription.callback).send().await.unwrap();
    assert_eq!(bare.status(), 404);
    let after = rig.channel().await;
    assert_eq!(
        (&after.state, &after.lease_expires_at),
        (&before.state, &before.lease_expires_at)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn deliveries_of_no_use_are_refused_and_counted() {
    let rig = Rig::start_with(resources(3), |config| config.limits.notification = 10_000).await;
    let subscription = subscribed(&rig).await;
    let secret = subscription.secret.clone().unwrap();
    let forged = String::from_utf8(rig.source.notify(SET).body.to_vec()).unwrap();

    assert_eq!(
        post_signed(&subscription, &forged, None).await,
        403,
        "unsigned"
    );
    assert_eq!(
        post_signed(&subscription, &forged, Some("another secret")).await,
        200,
        "wrongly signed"
    );
    let large = "x".repeat(10_001);
    assert_eq!(
        post_signed(&subscription, large.clone(), Some(&secret)).await,
        413,
        "too large"
    );
    assert_eq!(rig.channel().await.rejected, 3);
    let unknown = Subscription {
        callback: format!("{}0", subscription.callback),
        ..subscription.clone()
    };
    assert_eq!(
        post_signed(&unknown, &forged, Some(&secret)).await,
        404,
        "unknown path"
    );
    let root = rig.config.callback.public_url.clone().unwrap();
    assert_eq!(client().get(root).send().await.unwrap().status(), 404);
    let odd = client().put(&subscription.callback).send().await.unwrap();
    assert_eq!(odd.status(), 405);

    // Well signed, but nothing that can be read: acknowledged, for the hub can't help it.
    assert_eq!(
        post_signed(&subscription, "<html>", Some(&secret)).await,
        200
    );
    eventually("counted", Some(rig.wakes()), async || {
        match rig.channel().await {
            channel if channel.rejected == 4 => Ok(()),
            channel => Err(format!("{channel:?}")),
        }
    })
    .await;
    let channel = rig.channel().await;
    assert_eq!((channel.applied, channel.duplicate), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_notification_changes_nothing() {
    let rig = Rig::start(with_hub(HubOptions {
        signing: Signing::Wrong,
        ..HubOptions::default()
    }))
    .await;
    rig.settled().await;
    rig.source.freeze_change_list(SET, true);
    rig.source.update(SET, "r0001.txt", "forged");
    let notification = rig.source.notify(SET);
    let deliveries = rig.source.publish(&notification).await.unwrap();
    assert_eq!(deliveries[0].status, Some(200), "the forger learns nothing");
    assert_eq!(rig.channel().await.rejected, 1);
    // The same by a hub that signs well is applied: until then, nothing was.
    rig.hub()
        .configure(|hub| hub.signing = Signing::Signed(SignatureMethod::Sha512));
    assert!(rig.mirrored("r0001.txt").unwrap() != b"forged");
    rig.source.publish(&notification).await.unwrap();
    rig.until_mirrored().await;
    let channel = rig.channel().await;
    assert_eq!((channel.received, channel.rejected), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn full_inbox_puts_the_hub_off() {
    let rig = Rig::start_with(resources(3), |config| {
        config.limits.inbox = 3_000;
        config.sources[0].reorder_window = Duration::from_secs(600);
    })
    .await;
    rig.settled().await;
    rig.source.create(SET, "first.txt", "first");
    let first = rig.source.notify(SET);
    let mut put_off = false;
    for number in 0..10 {
        rig.source.create(SET, &format!("n{number}.txt"), "n");
        let notification = rig.source.notify(SET);
        let deliveries = rig.source.publish(&notification).await.unwrap();
        put_off |= deliveries[0].status == Some(503);
    }
    assert!(put_off);
    rig.source.publish(&first).await.unwrap();
    // What the hub gave up on is missing, and is had from the Change List.
    rig.operator.poll(NAME).await;
    rig.until_mirrored().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lease_is_renewed_before_it_ends() {
    let rig = Rig::start(with_hub(HubOptions {
        max_lease: Duration::from_secs(4),
        ..HubOptions::default()
    }))
    .await;
    let first = subscribed(&rig).await;
    let topic = rig.changes().to_string();
    let mut mark = rig.hub().mark();
    for round in 0..2 {
        let renewed = soon(
            "renewed",
            rig.hub().wait_after(mark, |event| {
                matches!(event, HubEvent::Requested { request, .. } if request.topic == topic)
            }),
        )
        .await;
        mark = rig.hub().mark();
        let HubEvent::Requested { request, .. } = renewed else {
            unreachable!()
        };
        assert_eq!(request.callback, first.callback, "round {round}");
        assert_eq!(request.secret, first.secret);
        assert_eq!(rig.channel().await.state, "active");
    }
    assert_eq!(rig.hub().subscriptions().len(), 2);
    assert_eq!(rig.hub().counts().not_verified, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn denied_channel_is_told_and_the_source_is_polled() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    let topic = source.topic(SET, &resyncd::protocol::Capability::ChangeNotification);
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
    rig.until("denied, and in step", |set| {
        set.state == "in-sync" && set.channels.iter().any(|c| c.state == "denied")
    })
    .await;
    rig.source.update(SET, "r0001.txt", "polled");
    rig.until_mirrored().await;

    hub.allow(topic.as_str());
    soon("asked again", hub.wait_for_subscription(topic.as_str())).await;
    rig.until("active", |set| {
        set.channels.iter().all(|c| c.state == "active")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn subscription_that_the_hub_ends_is_asked_for_again() {
    let rig = Rig::start(resources(3)).await;
    rig.settled().await;
    let topic = rig.changes().to_string();
    assert_eq!(rig.hub().end(&topic, "maintenance").await, 1);
    rig.source.update(SET, "r0001.txt", "missed");
    rig.source.notify_and_publish(SET).await.unwrap();
    // After a denial there is a poll, and then a new subscription.
    rig.until_mirrored().await;
    soon("asked again", rig.hub().wait_for_subscription(&topic)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hub_that_refuses_is_told_of_and_tried_again() {
    let rig = Rig::start(with_hub(HubOptions {
        granting: Granting::Refuse(503),
        ..HubOptions::default()
    }))
    .await;
    let set = rig
        .until("refused", |set| {
            set.state == "in-sync" && set.channels.iter().all(|c| c.error.is_some())
        })
        .await;
    let trouble = set.channels[0].error.clone().unwrap();
    assert_eq!(trouble.code, "hub-refused");
    assert!(trouble.message.contains("503"), "{trouble:?}");
    rig.hub()
        .configure(|hub| hub.granting = Granting::Accept(202));
    rig.until("active, and no longer in trouble", |set| {
        set.channels
            .iter()
            .all(|channel| channel.state == "active" && channel.error.is_none())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn subscriptions_are_ended_when_an_operator_retires_them() {
    let rig = Rig::start(resources(3)).await;
    let subscription = subscribed(&rig).await;
    let (status, body) = soon(
        "unsubscribed",
        rig.operator.post(&format!("/sources/{NAME}/unsubscribe")),
    )
    .await;
    assert_eq!(status, 200, "{body}");
    let endings: Vec<Ending> = serde_json::from_str(&body).unwrap();
    assert_eq!(endings.len(), 2);
    assert!(endings.iter().all(|ending| ending.confirmed), "{endings:?}");
    soon(
        "the hub has ended them",
        rig.hub().wait_for_counts(|counts| counts.unsubscribed == 2),
    )
    .await;
    assert!(rig.hub().subscriptions().is_empty());
    let set = rig.set().await;
    assert!(
        set.channels
            .iter()
            .all(|channel| channel.state == "unsubscribed"),
        "{set:?}"
    );
    assert_eq!(
        post_signed(&subscription, "late", subscription.secret.as_deref()).await,
        410
    );
    let (status, _) = rig.operator.post("/sources/nobody/unsubscribe").await;
    assert_eq!(status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn subscriptions_outlive_the_process() {
    let mut rig = Rig::start(resources(3)).await;
    let first = subscribed(&rig).await;
    let asked = rig.hub().counts().requested;
    rig.stop_daemon().await;
    assert_eq!(rig.hub().subscriptions().len(), 2, "a stop ends none");
    rig.source.update(SET, "r0001.txt", "changed while away");
    rig.source.notify(SET);
    rig.start_daemon().await;
    rig.settled().await;
    rig.source.update(SET, "r0002.txt", "pushed");
    let deliveries = {
        let notification = rig.source.notify(SET);
        rig.source.publish(&notification).await.unwrap()
    };
    assert_eq!(deliveries[0].callback, first.callback);
    assert!(deliveries[0].is_taken());
    rig.until_mirrored().await;
    assert_eq!(
        rig.hub().counts().requested,
        asked,
        "nothing was asked again"
    );
    assert_eq!(
        rig.source.hits("/set1/resourcelist.xml"),
        1,
        "no second baseline"
    );
}
