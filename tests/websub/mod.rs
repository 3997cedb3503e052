//! The requirements of WebSub (W3C Recommendation, 23 January 2018) for a subscriber, one by one, over real sockets, with a
//! hub that can be configured to misbehave.
//!
//! | the subscriber | tested by |
//! |---|---|
//! | posts a form with every parameter that some hub requires | [`requesting`]: `request_…` |
//! | stores the pending request before it sends it | [`requesting`]: `verification_before_…`, [`crash`] |
//! | accepts 200, 202 and 204, follows 307 and 308 | [`requesting`]: `status_…`, `redirects_…`, [`tls`] |
//! | repeats a refused request without a lease | [`requesting`]: `hub_that_refuses_a_lease_…` |
//! | confirms only its own requests | [`verifying`] |
//! | uses the granted lease, whatever was requested | [`verifying`]: `granted_lease_…` |
//! | renews in time, and uses the running lease meanwhile | [`leases`], and the tables of `resyncd_core::channel` and `resyncd_core::lease` |
//! | accepts a denial at any time | [`leases`]: `denied_…`, `subscription_that_the_hub_ends_…` |
//! | detects that push has silently stopped | [`leases`]: `lost_subscription_…`, and the tests of `resyncd_core::push_watchdog` |
//! | checks signatures, and does not reveal the result | [`deliveries`] |
//! | identifies a channel by its callback alone | [`deliveries`]: `misleading_link_header_…` |
//! | tolerates unusual headers | [`deliveries`]: `unusual_headers_…` |
//! | answers 410 for a channel that it has left, 404 for an unknown callback | [`endings`] |
//! | ends a subscription and reports the result | [`endings`] |
//! | discovers hub and topic | [`discovery`] |
//! | moves to another hub, topic or callback without losing what runs | [`moves`] |
//! | shows what is wrong with the deliveries | [`deliveries`]: `fault_…`, [`moves`] |

mod crash;
mod deliveries;
mod discovery;
mod endings;
mod leases;
mod moves;
mod requesting;
mod tls;
mod verifying;

use std::sync::Mutex;

use axum::Router;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::post;
use resourcesync::Capability;
use resyncd_core::HubUri;
use resyncd_testkit::{
    ChannelHub, Hub, HubEvent, HubOptions, SampleOptions, SampleSource, Subscription,
};
use tokio::net::TcpListener;
use tokio::sync::watch;
use websub::{Mode, Signature, SignatureMethod, SubscriptionRequest, Verification};

use crate::support::{self, Rig, SET, client, resources, send, soon};

/// A Source with a hub of these options.
fn with_hub(hub: HubOptions) -> SampleOptions {
    SampleOptions {
        hub: ChannelHub::Own(hub),
        ..resources(3)
    }
}

/// A Source whose Capability List names these hubs for every channel.
async fn advertising(hub: HubOptions, hubs: &[&str]) -> SampleSource {
    let source = SampleSource::start(with_hub(hub)).await.unwrap();
    let list = source.capability_list(SET);
    let answer = client().get(list.clone()).send().await.unwrap();
    let text = answer.text().await.unwrap();
    let own = source.hub().unwrap().uri().to_string();
    let link = |hub: &str| format!("<rs:ln rel=\"hub\" href=\"{hub}\"/>");
    assert_eq!(text.matches(&link(&own)).count(), 2, "{text}");
    let links: String = hubs.iter().map(|hub| link(hub)).collect();
    source.put_document(
        list.path(),
        "application/xml",
        text.replace(&link(&own), &links),
    );
    source
}

fn topic_path(source: &SampleSource) -> String {
    let topic = source.topic(SET, &Capability::ChangeNotification);
    topic.url().path().to_owned()
}

/// The requests that the hub has received so far.
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
async fn requested_after(hub: &Hub, mark: u64, topic: &str) -> SubscriptionRequest {
    let asked = hub.wait_after(
        mark,
        |event| matches!(event, HubEvent::Requested { request, .. } if request.topic == topic),
    );
    match soon("requested", asked).await {
        HubEvent::Requested { request, .. } => request,
        other => unreachable!("{other:?}"),
    }
}

/// Waits until everything is in sync. Returns the subscription to the change notifications.
async fn subscribed(rig: &Rig) -> Subscription {
    rig.settled().await;
    let topic = rig.changes();
    soon(
        "subscribed",
        rig.hub().wait_for_subscription(topic.as_str()),
    )
    .await
}

/// A change arrives by push: the Change List that a poll would read does not contain it.
async fn check_push(rig: &Rig, bytes: &str) {
    rig.source.freeze_change_list(support::SET, true);
    let since = rig.operator.last_change().await;
    rig.source
        .update(support::SET, "r0001.txt", bytes.to_owned());
    rig.source.notify_and_publish(support::SET).await.unwrap();
    let line = rig.until_in_feed(since, "r0001.txt").await;
    assert_eq!(line.origin, "notification", "{bytes}");
    rig.source.freeze_change_list(support::SET, false);
}

/// A delivery, signed with SHA-256 if there is a secret.
fn delivery(to: &Subscription, body: &[u8], secret: Option<&str>) -> reqwest::RequestBuilder {
    let mut request = client().post(&to.callback).body(body.to_vec());
    if let Some(secret) = secret {
        let signature = Signature::sign(SignatureMethod::Sha256, secret.as_bytes(), body);
        request = request.header("X-Hub-Signature", signature.to_string());
    }
    request
}

async fn status_of(request: reqwest::RequestBuilder) -> u16 {
    let answer = send(|| request.try_clone().unwrap()).await;
    answer.status().as_u16()
}

/// Sends a verification of intent to a callback. Returns status, media type and body of the answer.
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
    let answer = send(|| client().get(&url)).await;
    let status = answer.status().as_u16();
    let media_type = answer.headers().get("content-type");
    let media_type = media_type.map_or("", |it| it.to_str().unwrap()).to_owned();
    (status, media_type, answer.text().await.unwrap())
}

/// A hub that records the forms that it receives, and answers with a status or never.
struct BareHub {
    uri: HubUri,
    forms: watch::Receiver<Vec<String>>,
}

impl BareHub {
    async fn start(answer: Option<StatusCode>) -> Self {
        let (sent, forms) = watch::channel(Vec::new());
        let handle = async move |body: String| {
            sent.send_modify(|forms| forms.push(body));
            match answer {
                Some(status) => status.into_response(),
                None => std::future::pending().await,
            }
        };
        let uri = serve(Router::new().route("/hub", post(handle))).await + "/hub";
        Self {
            uri: HubUri::parse(&uri).unwrap(),
            forms,
        }
    }

    /// Waits for this many forms.
    async fn wait_for_forms(&self, many: usize) -> Vec<String> {
        let mut forms = self.forms.clone();
        let arrived = forms.wait_for(|forms| forms.len() >= many);
        soon("the forms", arrived).await.unwrap().clone()
    }
}

/// Serves until the test ends. Returns the base URL.
async fn serve(router: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    base
}
