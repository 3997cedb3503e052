//! What WebSub (W3C Recommendation, 23 January 2018) asks of a subscriber, promise by promise, over real sockets against a hub
//! that can be told to misbehave.
//!
//! | the subscriber | held by |
//! |---|---|
//! | posts a form with everything that some hub insists on | [`asking`]: `request_…` |
//! | has the pending state on disk before it sends the request | [`asking`]: `hub_that_verifies_before_it_answers`, [`killing`] |
//! | takes 200, 202 and 204 as accepted, follows 307 and 308 | [`asking`]: `every_answer_…`, `redirects_…`, [`tls`] |
//! | asks again without a lease where that is refused | [`asking`]: `hub_that_takes_no_lease` |
//! | verifies only what it has asked for | [`verifying`] |
//! | takes the lease that is granted, whatever it is | [`verifying`]: `granted_lease_…` |
//! | renews in time, and goes on with what it has meanwhile | [`leases`], and the tests of `sync::lease` on a clock of their own |
//! | takes a denial at any time | [`leases`]: `denied_…`, `subscription_that_the_hub_ends_…` |
//! | notices that push has silently stopped | [`leases`]: `hub_that_forgets_…`, and the tests of `sync::silence` |
//! | checks signatures, and tells forgers nothing | [`deliveries`] |
//! | knows a channel by its callback alone | [`deliveries`]: `misleading_link_header_…` |
//! | tolerates odd headers | [`deliveries`]: `odd_headers_…` |
//! | answers 410 for a channel it has left, 404 for what never was | [`endings`] |
//! | ends a subscription and says what came of it | [`endings`] |
//! | finds hub and topic by itself | [`discovery`] |

#![allow(
    clippy::unwrap_used,
    reason = "what a test relies on and does not get, it should panic of"
)]

#[path = "../support/mod.rs"]
mod support;

#[path = "../process/process.rs"]
#[allow(dead_code, reason = "each test binary uses its own part of this")]
mod process;

mod asking;
mod deliveries;
mod discovery;
mod endings;
mod killing;
mod leases;
mod tls;
mod verifying;

use std::sync::Mutex;

use axum::Router;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::post;
use resyncd::demo::{ChannelHub, Hub, HubEvent, HubOptions, SampleOptions, Subscription};
use resyncd::protocol::HubUri;
use resyncd::protocol::websub::{
    Mode, Signature, SignatureMethod, SubscriptionRequest, Verification,
};
use tokio::net::TcpListener;
use tokio::sync::watch;

use support::{Rig, client, resources, soon};

/// A Source whose hub behaves so.
fn with_hub(hub: HubOptions) -> SampleOptions {
    SampleOptions {
        hub: ChannelHub::Own(hub),
        ..resources(3)
    }
}

/// What the hub has been asked so far.
async fn requests(hub: &Hub) -> Vec<SubscriptionRequest> {
    let all = usize::try_from(hub.counts().requested).unwrap();
    let found = Mutex::new(Vec::new());
    if all > 0 {
        let collecting = hub.wait_for(|event| {
            let mut found = found.lock().unwrap();
            if let HubEvent::Requested { request, .. } = event {
                found.push(request.clone());
            }
            found.len() >= all
        });
        soon("the requests", collecting).await;
    }
    found.into_inner().unwrap()
}

/// Waits for the next request for a topic after the mark.
async fn asked_after(hub: &Hub, mark: u64, topic: &str) -> SubscriptionRequest {
    let asked = hub.wait_after(
        mark,
        |event| matches!(event, HubEvent::Requested { request, .. } if request.topic == topic),
    );
    match soon("asked", asked).await {
        HubEvent::Requested { request, .. } => request,
        other => unreachable!("{other:?}"),
    }
}

/// Waits until all is in step; the subscription to the change notifications.
async fn subscribed(rig: &Rig) -> Subscription {
    rig.settled().await;
    let topic = rig.changes();
    soon(
        "subscribed",
        rig.hub().wait_for_subscription(topic.as_str()),
    )
    .await
}

/// A push comes through: no poll can bring what it tells.
async fn check_push(rig: &Rig, bytes: &str) {
    rig.source.freeze_change_list(support::SET, true);
    let since = rig.operator.last_change().await;
    rig.source
        .update(support::SET, "r0001.txt", bytes.to_owned());
    rig.source.notify_and_publish(support::SET).await.unwrap();
    let line = rig.until_told(since, "r0001.txt").await;
    assert_eq!(line.origin, "notification", "{bytes}");
    rig.source.freeze_change_list(support::SET, false);
}

/// A request of a delivery, signed well by SHA-256 unless there is no secret.
fn delivery(to: &Subscription, body: &[u8], secret: Option<&str>) -> reqwest::RequestBuilder {
    let mut request = client().post(&to.callback).body(body.to_vec());
    if let Some(secret) = secret {
        let signature = Signature::sign(SignatureMethod::Sha256, secret.as_bytes(), body);
        request = request.header("X-Hub-Signature", signature.to_string());
    }
    request
}

async fn status_of(request: reqwest::RequestBuilder) -> u16 {
    request.send().await.unwrap().status().as_u16()
}

/// Asks a callback as a hub does that verifies; the status, the media type and the body of the answer.
async fn verify(
    callback: &str,
    mode: Mode,
    topic: &str,
    challenge: Option<&str>,
    lease_seconds: Option<u64>,
) -> (u16, String, String) {
    let question = Verification {
        mode,
        topic: topic.to_owned(),
        challenge: challenge.map(str::to_owned),
        lease_seconds,
        reason: None,
    };
    let url = format!("{callback}?{}", question.to_query());
    let answer = client().get(url).send().await.unwrap();
    let status = answer.status().as_u16();
    let media_type = answer.headers().get("content-type");
    let media_type = media_type.map_or("", |it| it.to_str().unwrap()).to_owned();
    (status, media_type, answer.text().await.unwrap())
}

/// A hub of which nothing is known but what it was sent. It answers with a status, or never.
struct BareHub {
    uri: HubUri,
    forms: watch::Receiver<Vec<String>>,
}

impl BareHub {
    async fn start(answer: Option<StatusCode>) -> Self {
        let (sent, forms) = watch::channel(Vec::new());
        let take = async move |body: String| {
            sent.send_modify(|forms| forms.push(body));
            match answer {
                Some(status) => status.into_response(),
                None => std::future::pending().await,
            }
        };
        let uri = serve(Router::new().route("/hub", post(take))).await + "/hub";
        Self {
            uri: HubUri::parse(&uri).unwrap(),
            forms,
        }
    }

    /// Waits for so many forms.
    async fn wait_for_forms(&self, many: usize) -> Vec<String> {
        let mut forms = self.forms.clone();
        let arrived = forms.wait_for(|forms| forms.len() >= many);
        soon("the forms", arrived).await.unwrap().clone()
    }
}

/// Serves until the test ends; answers where.
async fn serve(router: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    base
}
