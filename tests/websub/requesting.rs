//! The request to the hub, and which of its answers count as acceptance (WebSub, section 5.1).

use std::collections::BTreeMap;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use resyncd_core::HubUri;
use resyncd_testkit::{Granting, Hub, HubOptions, Verifying};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use websub::Mode;

use crate::support::{Rig, resources, soon};
use crate::websub::{BareHub, check_push, requests, serve, verify, with_hub};

#[tokio::test(flavor = "multi_thread")]
async fn request_has_a_lease_a_secret_and_a_callback_of_its_own() {
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
async fn request_has_the_parameters_that_old_hubs_require() {
    let hub = BareHub::start(Some(StatusCode::ACCEPTED)).await;
    let rig = Rig::start_with(resources(3), |config| {
        config.sources[0].hub = Some(hub.uri.clone());
    })
    .await;
    for form in hub.wait_for_forms(2).await {
        let pairs = url::form_urlencoded::parse(form.as_bytes()).into_owned();
        let fields: BTreeMap<_, _> = pairs.collect();
        assert_eq!(fields["hub.mode"], "subscribe");
        assert_eq!(fields["hub.verify"], "sync");
        assert_eq!(fields["hub.lease_seconds"], "864000");
        for field in ["hub.callback", "hub.topic", "hub.secret"] {
            assert!(!fields[field].is_empty(), "{field}");
        }
    }
    // A hub that does not verify does not delay the baseline.
    rig.until("in sync", |set| set.state == "in-sync").await;
    let advertised = rig.hub().counts().requested;
    assert_eq!(advertised, 0, "the configured hub is used instead");
}

#[tokio::test(flavor = "multi_thread")]
async fn status_200_202_and_204_are_accepted() {
    for status in [200, 202, 204] {
        let rig = Rig::start(with_hub(HubOptions {
            granting: Granting::Accept(status),
            ..HubOptions::default()
        }))
        .await;
        let set = rig.settled().await;
        assert!(set.channels.iter().all(|c| c.error.is_none()), "{status}");
        check_push(&rig, "pushed").await;
        assert_eq!(rig.hub().counts().requested, 2, "{status}");
    }
}

/// A 204 must not have a body, but some hubs send one.
#[tokio::test(flavor = "multi_thread")]
async fn status_204_with_a_body_is_accepted() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let hub = format!("http://{}/hub", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut request = Vec::new();
                while !String::from_utf8_lossy(&request).contains("hub.secret") {
                    if stream.read_buf(&mut request).await.unwrap_or(0) == 0 {
                        return;
                    }
                }
                let answer = "HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\nok";
                stream.write_all(answer.as_bytes()).await.unwrap();
                let form = String::from_utf8(request).unwrap();
                let form = form.split("\r\n\r\n").nth(1).unwrap();
                let fields: BTreeMap<_, _> = url::form_urlencoded::parse(form.as_bytes()).collect();
                let (callback, topic) = (&fields["hub.callback"], &fields["hub.topic"]);
                verify(callback, Mode::Subscribe, topic, Some("c"), Some(600)).await;
            });
        }
    });
    let rig = Rig::start_with(resources(3), |config| {
        config.sources[0].hub = Some(HubUri::parse(&hub).unwrap());
    })
    .await;
    let set = rig.settled().await;
    assert!(set.channels.iter().all(|channel| channel.error.is_none()));
}

/// `/307/3` redirects by 307 to `/307/2`, and so on; `/307/1` to the hub.
async fn redirecting_to(hub: &Hub) -> String {
    let redirect = async |State(hub): State<String>, Path((status, left)): Path<(u16, u32)>| {
        let to = match left {
            1 => hub,
            left => format!("/{status}/{}", left - 1),
        };
        let status = StatusCode::from_u16(status).unwrap();
        Response::into_response((status, [(LOCATION, to)]).into_response())
    };
    let router = Router::new().route("/{status}/{left}", post(redirect));
    serve(router.with_state(hub.uri().to_string())).await
}

#[tokio::test(flavor = "multi_thread")]
async fn redirects_with_307_and_308_are_followed_up_to_five_times() {
    let hub = Hub::start(HubOptions::default()).await.unwrap();
    let base = redirecting_to(&hub).await;
    for (path, error) in [
        ("/307/1", None),
        ("/308/5", None),
        ("/307/6", Some("too-many-redirects")),
        ("/302/1", Some("hub-refused")),
    ] {
        let uri = HubUri::parse(&format!("{base}{path}")).unwrap();
        let before = hub.counts().requested;
        let rig = Rig::start_with(resources(1), |config| {
            config.sources[0].hub = Some(uri);
        })
        .await;
        let set = match error {
            None => rig.settled().await,
            Some(_) => {
                rig.until("refused", |set| {
                    set.channels.len() == 2 && set.channels.iter().all(|c| c.error.is_some())
                })
                .await
            }
        };
        for channel in &set.channels {
            let found = channel.error.as_ref().map(|error| error.code.as_str());
            assert_eq!(found, error, "{path}");
        }
        let asked = hub.counts().requested - before;
        assert_eq!(asked, if error.is_none() { 2 } else { 0 }, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn redirected_request_is_unchanged() {
    let other = Hub::start(HubOptions::default()).await.unwrap();
    let rig = Rig::start(with_hub(HubOptions {
        granting: Granting::Redirect(308, other.uri().to_string()),
        ..HubOptions::default()
    }))
    .await;
    rig.settled().await;
    let mut sent = [requests(rig.hub()).await, requests(&other).await];
    for requests in &mut sent {
        requests.sort_by_key(|request| request.topic.clone());
    }
    assert_eq!(sent[0], sent[1]);
    soon("the hub is done", other.wait_until_processed()).await;
    assert_eq!(other.subscriptions().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn hub_that_refuses_a_lease_gets_a_request_without_one() {
    for status in [400, 409, 422] {
        let rig = Rig::start(with_hub(HubOptions {
            granting: Granting::RefuseLease(status),
            states_lease: false,
            ..HubOptions::default()
        }))
        .await;
        rig.settled().await;
        let topic = rig.changes().to_string();
        let asked = requests(rig.hub()).await;
        let leases: Vec<_> = asked
            .iter()
            .filter(|request| request.topic == topic)
            .map(|request| request.lease_seconds)
            .collect();
        assert_eq!(leases, [Some(864_000), None], "{status}");
        check_push(&rig, "pushed").await;
    }
}

/// The verification can only be confirmed if the request was stored before it was sent.
#[tokio::test(flavor = "multi_thread")]
async fn verification_before_the_answer_is_confirmed() {
    for granting in [Granting::Accept(202), Granting::Accept(204)] {
        let rig = Rig::start(with_hub(HubOptions {
            verifying: Verifying::BeforeAnswer,
            granting,
            ..HubOptions::default()
        }))
        .await;
        rig.settled().await;
        check_push(&rig, "pushed").await;
        let counts = rig.hub().counts();
        assert_eq!((counts.requested, counts.not_verified), (2, 0));
    }
}

/// The verification decides, not the answer to the request.
#[tokio::test(flavor = "multi_thread")]
async fn verification_without_an_answer_is_confirmed() {
    let hub = BareHub::start(None).await;
    let rig = Rig::start_with(resources(1), |config| {
        config.sources[0].hub = Some(hub.uri.clone());
    })
    .await;
    for form in hub.wait_for_forms(2).await {
        let fields: BTreeMap<_, _> = url::form_urlencoded::parse(form.as_bytes()).collect();
        let (callback, topic) = (&fields["hub.callback"], &fields["hub.topic"]);
        let asked = verify(callback, Mode::Subscribe, topic, Some("c"), Some(600));
        assert_eq!(soon("verified", asked).await.0, 200);
    }
    rig.settled().await;
}
