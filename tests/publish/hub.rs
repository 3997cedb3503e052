//! The hub.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{get, post};
use parking_lot::Mutex;
use resourcesync::{Capability, Document, read_document};
use resyncd::config::PublishHub;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use url::{Url, form_urlencoded};
use websub::{Mode, Signature, SubscriptionRequest, Verification};

use super::Published;
use crate::support::{SET, client, eventually, resources, send, soon};

/// A subscriber that is no resyncd.
#[derive(Clone)]
struct Subscriber {
    address: SocketAddr,
    state: Arc<Mutex<SubscriberState>>,
}

#[derive(Default)]
struct SubscriberState {
    confirms: bool,
    /// The queries of the requests to confirm, and of the deliveries.
    asked: Vec<String>,
    delivered_to: Vec<Option<String>>,
    /// What deliveries are answered with; then with 200.
    answers: VecDeque<u16>,
    received: Vec<(HeaderMap, Vec<u8>)>,
}

impl Subscriber {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let subscriber = Self {
            address: listener.local_addr().unwrap(),
            state: Arc::default(),
        };
        subscriber.state.lock().confirms = true;
        let router = Router::new()
            .route("/callback", get(Self::confirm).post(Self::receive))
            .with_state(subscriber.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        subscriber
    }

    async fn confirm(State(own): State<Self>, RawQuery(query): RawQuery) -> (StatusCode, String) {
        let mut state = own.state.lock();
        let query = query.unwrap();
        let asked = Verification::parse_query(&query).unwrap();
        state.asked.push(query);
        if state.confirms {
            (StatusCode::OK, asked.challenge.unwrap())
        } else {
            (StatusCode::NOT_FOUND, String::new())
        }
    }

    async fn receive(
        State(own): State<Self>,
        RawQuery(query): RawQuery,
        headers: HeaderMap,
        body: axum::body::Bytes,
    ) -> StatusCode {
        let mut state = own.state.lock();
        state.delivered_to.push(query);
        let status = state.answers.pop_front().unwrap_or(200);
        state.received.push((headers, body.to_vec()));
        StatusCode::from_u16(status).unwrap()
    }

    fn callback(&self) -> String {
        format!("http://{}/callback", self.address)
    }

    fn asked(&self) -> usize {
        self.state.lock().asked.len()
    }

    /// The notifications so far.
    fn received(&self, base: &Url) -> Vec<Document> {
        let state = self.state.lock();
        let documents = state.received.iter();
        documents
            .map(|(_, body)| read_document(body, base).unwrap())
            .collect()
    }
}

async fn request(published: &Published, form: String) -> (StatusCode, String) {
    let hub = published.base.join(".rs/hub").unwrap();
    let answer = send(|| {
        let asked = client().post(hub.clone());
        asked
            .header("content-type", "application/x-www-form-urlencoded")
            .body(form.clone())
    })
    .await;
    (answer.status(), answer.text().await.unwrap())
}

async fn subscribe(published: &Published, subscriber: &Subscriber, mode: Mode) {
    let form = SubscriptionRequest {
        mode,
        callback: subscriber.callback(),
        topic: published.of_set("changes").await.to_string(),
        lease_seconds: Some(86_400),
        secret: Some("s3cret".to_owned()),
    };
    let before = subscriber.asked();
    let (status, text) = request(published, form.to_form()).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{text}");
    eventually("asked to confirm", None, async || {
        if subscriber.asked() > before {
            Ok(())
        } else {
            Err("not asked".to_owned())
        }
    })
    .await;
}

/// Has the Source change resources, one after the other, until the subscriber has got some notification.
async fn until_told(published: &Published, subscriber: &Subscriber) -> Vec<Document> {
    let version = AtomicU32::new(0);
    eventually("told", None, async || {
        let text = format!("version {}", version.fetch_add(1, Ordering::Relaxed));
        published.rig.source.update(SET, "r0001.txt", text);
        published.rig.source.notify_and_publish(SET).await.unwrap();
        let received = subscriber.received(&published.base);
        if received.is_empty() {
            Err("nothing".to_owned())
        } else {
            Ok(received)
        }
    })
    .await
}

async fn until_received(
    published: &Published,
    subscriber: &Subscriber,
    uri: &Url,
) -> Vec<Document> {
    eventually(
        "told of a change",
        Some(published.rig.wakes()),
        async || {
            let received = subscriber.received(&published.base);
            let is_there = received
                .iter()
                .any(|document| document.entries.iter().any(|entry| entry.loc == *uri));
            if is_there {
                Ok(received)
            } else {
                Err(format!("{received:?}"))
            }
        },
    )
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn subscriber_gets_signed_notifications_whose_intervals_join() {
    let published = Published::of(4).await;
    let subscriber = Subscriber::start().await;
    subscribe(&published, &subscriber, Mode::Subscribe).await;
    until_told(&published, &subscriber).await;
    published.rig.source.delete(SET, "r0002.txt");
    published.rig.source.notify_and_publish(SET).await.unwrap();
    let received = until_received(&published, &subscriber, &published.file("r0002.txt")).await;
    for (one, other) in received.iter().zip(&received[1..]) {
        assert_eq!(one.head.md.until, other.head.md.from);
    }
    for document in &received {
        assert!(document.oddities.is_empty(), "{:?}", document.oddities);
        let (from, until) = (
            document.head.md.from.unwrap(),
            document.head.md.until.unwrap(),
        );
        let mut times = document
            .entries
            .iter()
            .map(|entry| entry.md.datetime.unwrap());
        assert!(times.all(|at| from < at && at <= until));
        assert_eq!(document.entries.last().unwrap().md.datetime, Some(until));
    }
    for (headers, body) in &subscriber.state.lock().received {
        let signature = Signature::parse(headers["x-hub-signature"].to_str().unwrap()).unwrap();
        assert!(signature.verifies(b"s3cret", body));
        let links = headers["link"].to_str().unwrap();
        assert!(
            links.contains("rel=\"hub\"") && links.contains("/changes>; rel=\"self\""),
            "{links}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn subscriber_that_was_away_gets_what_it_has_missed_at_once() {
    let mut published = Published::of(6).await;
    let subscriber = Subscriber::start().await;
    subscribe(&published, &subscriber, Mode::Subscribe).await;
    until_told(&published, &subscriber).await;
    // It answers with errors until the daemon has been stopped.
    subscriber.state.lock().answers = [503; 1000].into();
    subscriber.state.lock().received.clear();
    for name in ["r0002.txt", "r0003.txt", "r0004.txt"] {
        published.rig.source.update(SET, name, "new");
        published.rig.source.notify_and_publish(SET).await.unwrap();
        published.rig.settled().await;
    }
    until_received(&published, &subscriber, &published.file("r0004.txt")).await;
    let address = published.rig.daemon().publish.unwrap();
    published.rig.stop_daemon().await;
    subscriber.state.lock().answers.clear();
    subscriber.state.lock().received.clear();
    published.rig.config.publish.listen = address;
    published.rig.start_daemon().await;
    let received = until_received(&published, &subscriber, &published.file("r0004.txt")).await;
    let told = |name: &str| {
        received[0]
            .entries
            .iter()
            .any(|entry| entry.loc == published.file(name))
    };
    assert!(told("r0002.txt") && told("r0003.txt"), "{:?}", received[0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_confirm_or_wants_nothing_more_is_told_nothing() {
    let published = Published::of(3).await;
    let (silent, gone, leaving) = (
        Subscriber::start().await,
        Subscriber::start().await,
        Subscriber::start().await,
    );
    silent.state.lock().confirms = false;
    gone.state.lock().answers = [410].into();
    for subscriber in [&silent, &gone, &leaving] {
        subscribe(&published, subscriber, Mode::Subscribe).await;
    }
    until_told(&published, &gone).await;
    until_told(&published, &leaving).await;
    subscribe(&published, &leaving, Mode::Unsubscribe).await;
    // One that is still told shows that the others could have been.
    let last = Subscriber::start().await;
    subscribe(&published, &last, Mode::Subscribe).await;
    until_told(&published, &last).await;
    let before = leaving.received(&published.base).len();
    last.state.lock().received.clear();
    until_told(&published, &last).await;
    assert_eq!(silent.received(&published.base).len(), 0);
    assert_eq!(gone.received(&published.base).len(), 1);
    assert_eq!(leaving.received(&published.base).len(), before);
}

/// The tests that websub.rocks has for publishers and hubs, by their numbers, as far as they are not about other kinds of content.
#[tokio::test(flavor = "multi_thread")]
async fn publisher_and_hub_do_what_the_tests_of_websub_rocks_ask() {
    let published = Published::of(3).await;
    let (topic, hub) = (
        published.of_set("changes").await,
        published.base.join(".rs/hub").unwrap(),
    );
    // Discovery by HTTP headers.
    let links = published.get(&topic).await.header("link").to_owned();
    for link in [
        format!("<{hub}>; rel=\"hub\""),
        format!("<{topic}>; rel=\"self\""),
    ] {
        assert!(links.contains(&link), "{links}");
    }
    for (number, of_callback, more) in [
        ("100", "", ""),
        ("101", "", "&foo=bar&hub.verify=async"),
        ("102", "", "&hub.lease_seconds=86400"),
        ("103", "", "&hub.secret=s3cret"),
        ("104", "?a=b&c=%26", ""),
    ] {
        let subscriber = Subscriber::start().await;
        let callback = subscriber.callback() + of_callback;
        let pairs = [("hub.topic", topic.as_str()), ("hub.callback", &callback)];
        let pairs = form_urlencoded::Serializer::new(String::new())
            .extend_pairs(pairs)
            .finish();
        let ask = async |mode: &str| {
            let before = subscriber.asked();
            let form = format!("hub.mode={mode}&{pairs}{more}");
            let (status, text) = request(&published, form).await;
            assert_eq!(status, StatusCode::ACCEPTED, "{number}: {text}");
            eventually("asked to confirm", None, async || {
                let asked = subscriber.state.lock().asked[before..].first().cloned();
                asked.ok_or_else(|| "not asked".to_owned())
            })
            .await
        };
        let query = ask("subscribe").await;
        let asked = Verification::parse_query(&query).unwrap();
        assert_eq!(asked.mode, Mode::Subscribe);
        assert_eq!(asked.topic, topic.as_str());
        assert!(asked.lease_seconds > Some(0), "{number}: {query}");
        let own = of_callback.trim_start_matches('?');
        assert!(query.starts_with(own), "{number}: {query}");
        until_told(&published, &subscriber).await;
        if number == "102" {
            ask("subscribe").await;
            subscriber.state.lock().received.clear();
            until_told(&published, &subscriber).await;
        }
        {
            let state = subscriber.state.lock();
            let to = Some(own.to_owned()).filter(|own| !own.is_empty());
            assert!(state.delivered_to.iter().all(|query| *query == to));
            for (headers, _) in &state.received {
                assert_eq!(headers["content-type"], "application/xml", "{number}");
                let links = headers["link"].to_str().unwrap();
                assert!(links.contains("rel=\"hub\"") && links.contains("rel=\"self\""));
                let is_signed = headers.contains_key("x-hub-signature");
                assert_eq!(is_signed, more.contains("secret"), "{number}");
            }
        }
        // Each is delivered once, also to who has subscribed twice.
        let received = subscriber.received(&published.base);
        let mut begins: Vec<_> = received.iter().map(|it| it.head.md.from).collect();
        begins.dedup();
        assert_eq!(begins.len(), received.len(), "{number}");
        let query = ask("unsubscribe").await;
        let asked = Verification::parse_query(&query).unwrap();
        assert_eq!(asked.mode, Mode::Unsubscribe);
    }
}

/// Otherwise it would occupy a connection for ever.
#[tokio::test(flavor = "multi_thread")]
async fn subscriber_that_sends_nothing_gets_an_answer() {
    let published = Published::of(1).await;
    let address = published.rig.daemon().publish.unwrap();
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = "POST /.rs/hub HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    soon("an answer", stream.read_exact(&mut answer))
        .await
        .unwrap();
    assert_eq!(&answer, b"HTTP/1.1 400");
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_requests_get_a_clear_error() {
    let published = Published::of(2).await;
    let topic = published.of_set("changes").await.to_string();
    let form = |mode: &str, callback: &str, topic: &str| {
        let mut form = url::form_urlencoded::Serializer::new(String::new());
        form.append_pair("hub.mode", mode);
        form.append_pair("hub.callback", callback)
            .append_pair("hub.topic", topic);
        form.finish()
    };
    let callback = "http://127.0.0.1:1/callback";
    let elsewhere = topic.replace("changes", "other");
    let list = topic.replace("changes", "resourcelist.xml");
    let secret = format!(
        "{}&hub.secret={}",
        form("subscribe", callback, &topic),
        "s".repeat(200)
    );
    for (form, status, code) in [
        (form("denied", callback, &topic), 400, "bad-subscription"),
        (form("subscribe", "", &topic), 400, "bad-subscription"),
        (String::new(), 400, "bad-subscription"),
        (
            form("subscribe", "ftp://127.0.0.1/", &topic),
            400,
            "bad-callback",
        ),
        (
            form("subscribe", "http://a:b@127.0.0.1/", &topic),
            400,
            "bad-callback",
        ),
        (
            form("subscribe", callback, &elsewhere),
            404,
            "unknown-topic",
        ),
        (form("subscribe", callback, &list), 404, "unknown-topic"),
        (
            form("subscribe", callback, "https://elsewhere.example/"),
            404,
            "unknown-topic",
        ),
        (secret, 400, "secret-too-long"),
        ("x".repeat(20_000), 400, "bad-subscription"),
    ] {
        let (found, text) = request(&published, form).await;
        assert_eq!(found.as_u16(), status, "{text}");
        assert!(text.ends_with(&format!("[{code}]\n")), "{text}");
    }
}

/// What the other hub has been told: the topics, and what it has found there.
#[derive(Clone, Default)]
struct OtherHub(Arc<Mutex<Vec<(Url, Document)>>>);

impl OtherHub {
    async fn start() -> (Self, Url) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = Url::parse(&format!("http://{}/hub", listener.local_addr().unwrap())).unwrap();
        let hub = Self::default();
        let router = Router::new()
            .route("/hub", post(Self::receive))
            .with_state(hub.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        (hub, url)
    }

    async fn receive(State(own): State<Self>, body: String) -> StatusCode {
        let form: Vec<(String, String)> = url::form_urlencoded::parse(body.as_bytes())
            .into_owned()
            .collect();
        assert!(
            form.contains(&("hub.mode".to_owned(), "publish".to_owned())),
            "{form:?}"
        );
        let topic = form
            .into_iter()
            .find(|(name, _)| name == "hub.url")
            .unwrap()
            .1;
        let topic = Url::parse(&topic).unwrap();
        tokio::spawn(async move {
            let answer = send(|| client().get(topic.clone())).await;
            let links = answer.headers()["link"].to_str().unwrap();
            assert!(
                links.contains("rel=\"hub\"")
                    && links.contains(&format!("<{topic}>; rel=\"self\"")),
                "{links}"
            );
            let body = answer.bytes().await.unwrap();
            let document = read_document(&body, &topic).unwrap();
            own.0.lock().push((topic, document));
        });
        StatusCode::ACCEPTED
    }

    /// Waits until it has been told more often than before, and has read the topic.
    async fn told(&self, published: &Published, before: usize) -> (Url, Document) {
        eventually(
            "the other hub is told",
            Some(published.rig.wakes()),
            async || {
                let told = self.0.lock();
                told.get(before..)
                    .and_then(|new| new.last().cloned())
                    .ok_or(format!("{told:?}"))
            },
        )
        .await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_hub_is_told_of_news_and_finds_them_at_the_topic() {
    let (hub, url) = OtherHub::start().await;
    let of_config = url.clone();
    let published = Published::start(resources(4), |config| {
        config.publish.hub = PublishHub::At(of_config)
    })
    .await;
    let list = published.document(&published.capability_list().await).await;
    let channel = list
        .entries
        .iter()
        .find(|entry| entry.loc.path().ends_with("/changes"))
        .unwrap();
    assert_eq!(channel.links[0].href, url);

    published.rig.source.update(SET, "r0001.txt", "once");
    published.rig.source.notify_and_publish(SET).await.unwrap();
    let (topic, first) = hub.told(&published, 0).await;
    assert_eq!(topic, channel.loc);
    assert_eq!(
        first.head.md.capability,
        Some(Capability::ChangeNotification)
    );
    assert_eq!(first.entries[0].loc, published.file("r0001.txt"));

    let before = hub.0.lock().len();
    published.rig.source.delete(SET, "r0002.txt");
    published.rig.source.notify_and_publish(SET).await.unwrap();
    let (_, second) = hub.told(&published, before).await;
    assert_eq!(second.head.md.from, first.head.md.until);
    assert_eq!(second.entries[0].loc, published.file("r0002.txt"));

    // More than a subscriber is told at once.
    let names: Vec<String> = (0..1200)
        .map(|number| format!("more{number}.txt"))
        .collect();
    for name in &names {
        published.rig.source.create(SET, name, name.clone());
    }
    published.rig.source.notify_and_publish(SET).await.unwrap();
    eventually("told of all", Some(published.rig.wakes()), async || {
        let told = hub.0.lock();
        for (one, other) in told.iter().zip(&told[1..]) {
            assert_eq!(one.1.head.md.until, other.1.head.md.from);
        }
        let found: std::collections::BTreeSet<Url> = told
            .iter()
            .flat_map(|(_, document)| &document.entries)
            .map(|entry| entry.loc.clone())
            .collect();
        let missing = names
            .iter()
            .find(|name| !found.contains(&published.file(name)));
        match missing {
            None => Ok(()),
            Some(missing) => Err(format!("{missing}, {} are known", found.len())),
        }
    })
    .await;
    // The built-in hub is closed.
    let (status, text) = request(&published, String::new()).await;
    assert_eq!(status, StatusCode::NOT_FOUND, "{text}");
}
