//! The hub against a subscriber of the tests' own.

use std::time::Duration;

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::get;
use tokio::sync::mpsc;
use websub::{Mode, Signature, SubscriptionRequest, Verification};

use super::*;

const TOPIC: &str = "http://source.example/set1/changes/";
const SECRET: &str = "a secret";
/// Ends a test that would hang.
const LIMIT: Duration = Duration::from_secs(180);

/// A request that the subscriber received: the query of a GET, or the signature and body of a POST.
#[derive(Debug)]
enum Sent {
    Question(Verification),
    Content {
        signature: Option<Signature>,
        links: String,
        body: Bytes,
    },
}

/// A subscriber that confirms everything.
#[derive(Clone)]
struct Subscriber {
    sent: mpsc::UnboundedSender<Sent>,
    status: StatusCode,
}

struct RunningSubscriber {
    callback: String,
    received: mpsc::UnboundedReceiver<Sent>,
    _serving: Arc<DropGuard>,
}

async fn subscriber(status: StatusCode) -> RunningSubscriber {
    let bound = serving::bind(HubOptions::default().listen).await.unwrap();
    let callback = format!("http://{}/callback", bound.address());
    let (sent, received) = mpsc::unbounded_channel();
    let router = Router::new()
        .route("/callback", get(confirm).post(receive))
        .with_state(Subscriber { sent, status });
    RunningSubscriber {
        callback,
        received,
        _serving: bound.serve(router),
    }
}

async fn confirm(State(subscriber): State<Subscriber>, RawQuery(query): RawQuery) -> String {
    let question = Verification::parse_query(&query.unwrap()).unwrap();
    let challenge = question.challenge.clone().unwrap_or_default();
    subscriber.sent.send(Sent::Question(question)).unwrap();
    challenge
}

async fn receive(
    State(subscriber): State<Subscriber>,
    headers: HeaderMap,
    body: Bytes,
) -> StatusCode {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap());
    let sent = Sent::Content {
        signature: text("X-Hub-Signature").map(|value| Signature::parse(value).unwrap()),
        links: text("Link").unwrap().to_owned(),
        body,
    };
    subscriber.sent.send(sent).unwrap();
    subscriber.status
}

impl RunningSubscriber {
    async fn question(&mut self) -> Verification {
        match self.received.recv().await.unwrap() {
            Sent::Question(question) => question,
            other => panic!("not a question: {other:?}"),
        }
    }

    /// Asks the hub; the status of its answer.
    async fn ask(&self, hub: &Hub, mode: Mode, lease_seconds: Option<u64>) -> u16 {
        let request = SubscriptionRequest {
            mode,
            callback: self.callback.clone(),
            topic: TOPIC.to_owned(),
            lease_seconds,
            secret: Some(SECRET.to_owned()),
        };
        let sent = serving::client(LIMIT)
            .unwrap()
            .post(hub.uri().url().clone())
            .header("Content-Type", "application/x-www-form-urlencoded")
            .body(request.to_form())
            .send();
        sent.await.unwrap().status().as_u16()
    }

    async fn subscribe(&mut self, hub: &Hub) {
        assert_eq!(self.ask(hub, Mode::Subscribe, Some(60)).await, 202);
        self.question().await;
        hub.wait_for_subscription(TOPIC).await;
    }
}

async fn hub(options: HubOptions) -> Hub {
    Hub::start(options).await.unwrap()
}

#[tokio::test]
async fn intent_is_verified_and_the_lease_is_clamped() {
    let hub = hub(HubOptions {
        max_lease: Duration::from_secs(600),
        ..HubOptions::default()
    })
    .await;
    let mut subscriber = subscriber(StatusCode::OK).await;
    assert_eq!(
        subscriber.ask(&hub, Mode::Subscribe, Some(86_400)).await,
        202
    );
    let question = subscriber.question().await;
    assert_eq!(question.mode, Mode::Subscribe);
    assert_eq!(question.topic, TOPIC);
    assert_eq!(question.lease_seconds, Some(600));
    let subscription = hub.wait_for_subscription(TOPIC).await;
    assert_eq!(subscription.callback, subscriber.callback);
    assert_eq!(subscription.lease, Duration::from_secs(600));

    let mark = hub.mark();
    subscriber.ask(&hub, Mode::Unsubscribe, None).await;
    assert_eq!(subscriber.question().await.mode, Mode::Unsubscribe);
    hub.wait_after(mark, |event| matches!(event, HubEvent::Verified { .. }))
        .await;
    assert!(hub.subscriptions().is_empty());
    assert_eq!(hub.counts().subscribed, 1);
    assert_eq!(hub.counts().unsubscribed, 1);
}

#[tokio::test]
async fn deliveries_are_signed_as_configured() {
    let hub = hub(HubOptions::default()).await;
    let mut subscriber = subscriber(StatusCode::NO_CONTENT).await;
    subscriber.subscribe(&hub).await;
    for (signing, verifies) in [
        (Signing::Signed(websub::SignatureMethod::Sha512), Some(true)),
        (Signing::Wrong, Some(false)),
        (Signing::Unsigned, None),
    ] {
        hub.configure(|options| options.signing = signing);
        let delivered = hub.deliver(TOPIC, Bytes::from_static(b"<urlset/>")).await;
        assert!(matches!(&delivered[..], [one] if one.is_accepted() && one.attempts == 1));
        let Some(Sent::Content {
            signature,
            links,
            body,
        }) = subscriber.received.recv().await
        else {
            panic!("no delivery");
        };
        assert_eq!(body, "<urlset/>");
        let verified = signature.map(|it| it.verifies(SECRET.as_bytes(), &body));
        assert_eq!(verified, verifies, "{signing:?}");
        let hub = hub.uri();
        assert_eq!(
            links,
            format!("<{TOPIC}>; rel=\"self\", <{hub}>; rel=\"hub\"")
        );
    }
}

#[tokio::test]
async fn number_of_delivery_attempts_is_bounded() {
    let hub = hub(HubOptions {
        retry_after: Duration::ZERO,
        ..HubOptions::default()
    })
    .await;
    let mut subscriber = subscriber(StatusCode::SERVICE_UNAVAILABLE).await;
    subscriber.subscribe(&hub).await;
    let delivered = hub.deliver(TOPIC, Bytes::from_static(b"<urlset/>")).await;
    assert!(!delivered[0].is_accepted());
    assert_eq!((delivered[0].attempts, delivered[0].status), (3, Some(503)));
    assert_eq!(hub.counts().undelivered, 1);
}

#[tokio::test]
async fn subscription_ends_when_the_callback_answers_410() {
    let hub = hub(HubOptions::default()).await;
    let mut subscriber = subscriber(StatusCode::GONE).await;
    subscriber.subscribe(&hub).await;
    let delivered = hub.deliver(TOPIC, Bytes::new()).await;
    assert_eq!((delivered[0].attempts, delivered[0].status), (1, Some(410)));
    assert!(hub.subscriptions().is_empty());
}

#[tokio::test]
async fn denied_subscription_is_announced_and_not_stored() {
    let hub = hub(HubOptions {
        verifying: Verifying::BeforeAnswer,
        ..HubOptions::default()
    })
    .await;
    hub.deny(TOPIC, "not for you");
    let mut subscriber = subscriber(StatusCode::OK).await;
    subscriber.ask(&hub, Mode::Subscribe, None).await;
    let announced = subscriber.question().await;
    assert_eq!(announced.mode, Mode::Denied);
    assert_eq!(announced.reason.as_deref(), Some("not for you"));
    assert!(hub.subscriptions().is_empty());
}

#[tokio::test]
async fn requested_lease_can_be_rejected() {
    let hub = hub(HubOptions {
        granting: Granting::RefuseLease(409),
        verifying: Verifying::Never,
        ..HubOptions::default()
    })
    .await;
    let subscriber = subscriber(StatusCode::OK).await;
    assert_eq!(subscriber.ask(&hub, Mode::Subscribe, Some(60)).await, 409);
    assert!(hub.subscriptions().is_empty());
    assert_eq!(subscriber.ask(&hub, Mode::Subscribe, None).await, 202);
    assert_eq!(hub.subscriptions().len(), 1);
    assert_eq!(hub.forget(TOPIC), 1);
    assert!(hub.deliver(TOPIC, Bytes::new()).await.is_empty());
}
