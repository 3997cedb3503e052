//! Response bodies of a false length, without an end, truncated or trickling: each request ends, and none of them is accepted as
//! complete.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::{Body, Bytes};
use futures_util::{StreamExt, stream};
use resyncd::config;
use resyncd_core::{HubUri, ResourceUri, TopicUri};
use resyncd_fetch::{
    AllowedHosts, Bounds, Client, FetchError, HttpSettings, HubAnswer, PartialPackage, SizeLimit,
};
use resyncd_testkit::SampleSource;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use url::Url;
use websub::{Mode, SubscriptionRequest};

use crate::hostile::PROCESSOR;
use crate::support::site::{Site, entry, ok, redirect, status};
use crate::support::{
    self, Destination, SET, eventually, expected_files, files, resources, soon, until_verified,
};

/// The bytes of an endless body that are sent in one write. Clients stop only after some hundred thousand bytes: small writes would
/// take many thousand system calls.
const CHUNK: usize = 16 << 10;

/// The maximum length of each body, in bytes.
const LIMIT: u64 = 100_000;

/// A timeout that no request reaches, on a busy machine, too.
pub(crate) const UNREACHED: Duration = Duration::from_secs(3600);

/// A client that may connect to loopback, with short pauses between its tries.
pub(crate) fn client(timeout: Duration) -> Client {
    let http = HttpSettings {
        allow_private_addresses: true,
        timeout,
        ..HttpSettings::default()
    };
    Client::new(&http, resyncd::clock::now)
        .unwrap()
        .with_document_retries(Bounds {
            tries: 2,
            first: Duration::from_millis(1),
            longest: Duration::from_millis(2),
        })
}

/// Fetches a URL as a document, as a resource and as a package; returns the lengths or the error codes.
pub(crate) async fn fetch_all(client: &Client, url: &Url) -> [Result<u64, &'static str>; 3] {
    let document = client.get_document(url, LIMIT).await;
    let document = document.map(|document| document.bytes_len());
    let uri = ResourceUri::try_from(url.clone()).unwrap();
    let any = AllowedHosts::any();
    let content = async {
        let content = client
            .get_content(&uri, &any, Some(SizeLimit::resource(LIMIT)), None)
            .await?;
        let (mut content, mut length) = (content.unwrap(), 0);
        while let Some(chunk) = content.chunk().await? {
            length += chunk.len() as u64;
        }
        Ok(length)
    };
    let content = content.await;
    let folder = tempfile::tempdir().unwrap();
    let partial = PartialPackage::open(folder.path(), url).unwrap();
    let package = client
        .get_package(url, &any, Some(SizeLimit::package(LIMIT)), partial)
        .await;
    let package = package.map(|package| package.received());
    [document, content, package].map(|result| result.map_err(|error: FetchError| error.code()))
}

/// Answers every connection with `head`, and then repeats `more` until the peer disconnects.
async fn raw(head: &'static str, more: &'static [u8]) -> Url {
    raw_counted(head, more).await.0
}

/// The same; also returns a counter of the bytes sent after `head`.
async fn raw_counted(head: &'static str, more: &'static [u8]) -> (Url, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let sent = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&sent);
    let more = more.repeat(CHUNK / more.len().max(1));
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (more, count) = (more.clone(), Arc::clone(&count));
            tokio::spawn(async move {
                let _ = stream.read(&mut [0; 8192]).await;
                let mut connected = stream.write_all(head.as_bytes()).await.is_ok();
                while connected && !more.is_empty() {
                    connected = stream.write_all(&more).await.is_ok();
                    count.fetch_add(more.len(), Ordering::SeqCst);
                }
                let _ = stream.shutdown().await;
            });
        }
    });
    (Url::parse(&url).unwrap(), sent)
}

#[tokio::test(flavor = "multi_thread")]
async fn oversized_and_truncated_bodies_are_errors() {
    let chunk = format!("400\r\n{}\r\n", "endless ".repeat(128)).leak();
    let client = client(UNREACHED);
    for (head, more, expected) in [
        (
            "HTTP/1.1 200 OK\r\n\r\n",
            &b"endless "[..],
            Err("too-large"),
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
            chunk.as_bytes(),
            Err("too-large"),
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n12345",
            b"",
            Err("cut-short"),
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\na\r\n12345",
            b"",
            Err("cut-short"),
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\n12345\r\n",
            b"",
            Err("cut-short"),
        ),
        // Bytes after the announced length are ignored.
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n12345",
            b"endless ",
            Ok(5),
        ),
    ] {
        let url = raw(head, more).await;
        let result = soon("three requests", fetch_all(&client, &url)).await;
        assert_eq!(result, [expected; 3], "{head:?}");
    }
    // A body that is announced as too large is not read. A compressed document may be larger than its content.
    let url = raw("HTTP/1.1 200 OK\r\ncontent-length: 100001\r\n\r\n", b"").await;
    let result = soon("three requests", fetch_all(&client, &url)).await;
    let too_large = Err("too-large");
    assert_eq!(result, [Err("cut-short"), too_large, too_large]);
    for head in [
        "HTTP/1.1 200 OK\r\ncontent-length: 9223372036854775807\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 18446744073709551615\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nendless: ",
        "",
    ] {
        let url = raw(head, b"endless ").await;
        let result = soon("three requests", fetch_all(&client, &url)).await;
        assert!(result.iter().all(Result::is_err), "{head:?}: {result:?}");
    }
}

/// A hub and a subscription request for it.
fn subscribing(url: &Url) -> (HubUri, SubscriptionRequest) {
    let request = SubscriptionRequest {
        mode: Mode::Subscribe,
        callback: "http://127.0.0.1/token".into(),
        topic: url.to_string(),
        lease_seconds: Some(60),
        secret: None,
    };
    (HubUri::try_from(url.clone()).unwrap(), request)
}

#[tokio::test(flavor = "multi_thread")]
async fn endless_responses_of_hubs_topics_and_pages_are_cut_off() {
    let client = client(UNREACHED);
    for (status, accepted) in [("200 OK", true), ("202 Accepted", true), ("400 No", false)] {
        let head: &'static str = format!("HTTP/1.1 {status}\r\n\r\n").leak();
        let (url, sent) = raw_counted(head, b"endless ").await;
        let (hub, request) = subscribing(&url);
        let answer = soon("the hub", client.ask_hub(&hub, &request))
            .await
            .unwrap();
        let is_accepted = matches!(answer, HubAnswer::Accepted { .. });
        assert_eq!(is_accepted, accepted, "{answer:?}");
        // The client reads a few kilobytes; the rest is in socket buffers. Reading until the timeout would be far more.
        let sent = sent.load(Ordering::SeqCst);
        assert!(sent < 16 << 20, "{sent} bytes were sent");
        let topic = TopicUri::try_from(url.clone()).unwrap();
        let links = soon("the topic", client.ask_topic(&topic)).await;
        assert!(links.is_err() || links.unwrap().hubs.is_empty());
        let found = soon("discovery", client.discover(&url, LIMIT)).await;
        assert!(found.is_err());
    }
}

/// An endless body: `first` bytes at once, then one byte every 20 ms.
fn trickle(first: usize) -> Body {
    let drops = stream::unfold((), |()| async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        Some((Bytes::from_static(b"x"), ()))
    });
    let first = Bytes::from(vec![b'x'; first]);
    let body = stream::once(std::future::ready(first)).chain(drops);
    Body::from_stream(body.map(Ok::<_, Infallible>))
}

/// The length of a resource is limited only by the length that the Source states.
#[tokio::test(flavor = "multi_thread")]
async fn download_stops_when_a_resource_exceeds_its_stated_length() {
    let _turn = PROCESSOR.read().await;
    let endless = || {
        let pieces = stream::repeat(Bytes::from_static(&[b'x'; 8192]));
        Body::from_stream(pieces.map(Ok::<_, Infallible>))
    };
    let list = |base: &str| entry(&format!("{base}/r/0"), r#"<rs:md length="5"/>"#);
    let site = Site::of_list(Ipv4Addr::LOCALHOST, list, move |_| ok(endless())).await;
    let destination = Destination::start(site.url("/"), |config| {
        config.sources[0].notifications = false;
    })
    .await;
    let error = eventually("the error is in the status", None, async || {
        let status = destination.operator.status().await;
        let set = status.sources[0].sets.first();
        let error = set.and_then(|set| set.error.clone());
        error.ok_or(format!("{status:?}"))
    })
    .await;
    assert_eq!(error.code, "length-mismatch", "{error:?}");
    assert!(files(&destination.config.sources[0].mirror).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn trickling_content_fails_as_too_slow() {
    let site = Site::start(Ipv4Addr::LOCALHOST, |_| {
        |path: &str, _: &_| match path {
            "/at-first" => ok(trickle(40 << 10)),
            _ => ok(trickle(0)),
        }
    })
    .await;
    let client = client(Duration::from_secs(2));
    let received = async |path| -> Result<(), FetchError> {
        let uri = ResourceUri::try_from(site.url(path)).unwrap();
        let any = AllowedHosts::any();
        let content = client.get_content(&uri, &any, None, None).await?;
        let mut content = content.unwrap();
        while content.chunk().await?.is_some() {}
        Ok(())
    };
    let error_of = async |path| loop {
        match received(path).await.unwrap_err().code() {
            // A busy machine did not run this program for so long.
            "timeout" => {}
            code => break code,
        }
    };
    // Each try takes a minute.
    let both = futures_util::future::join(error_of("/always"), error_of("/at-first"));
    let both = tokio::time::timeout(10 * support::LIMIT, both).await;
    assert_eq!(both, Ok(("too-slow", "too-slow")));
}

#[tokio::test(flavor = "multi_thread")]
async fn trickling_document_times_out() {
    let site = Site::start(Ipv4Addr::LOCALHOST, |_| |_: &str, _: &_| ok(trickle(1000))).await;
    // A document may take thirty times this timeout: three seconds for each of two tries.
    let client = client(Duration::from_millis(100));
    let url = site.url("/list.xml");
    let result = soon("the error", client.get_document(&url, LIMIT)).await;
    let error = result.unwrap_err();
    assert_eq!(error.code(), "timeout");
    assert!(error.to_string().contains("[http] timeout"), "{error}");
}

/// The body of a redirect and that of a hub's rejection are read only briefly: the request does not wait for their end.
#[tokio::test(flavor = "multi_thread")]
async fn unneeded_bodies_are_not_awaited() {
    let site = Site::start(Ipv4Addr::LOCALHOST, |_| {
        |path: &str, _: &_| {
            let mut answer = match path {
                "/redirect" => redirect(302, "/end"),
                "/hub" => status(400),
                _ => return ok("target"),
            };
            *answer.body_mut() = trickle(0);
            answer
        }
    })
    .await;
    let client = client(UNREACHED);
    let url = site.url("/redirect");
    let (hub, request) = subscribing(&site.url("/hub"));
    let both = futures_util::future::join(
        client.get_document(&url, LIMIT),
        client.ask_hub(&hub, &request),
    );
    let (document, answer) = soon("both requests", both).await;
    assert!(document.is_ok());
    assert!(matches!(answer, Ok(HubAnswer::Refused { status: 400, .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_source_is_reported_and_delays_no_other() {
    const SLOW: usize = 10;
    let list = |base: &str| {
        let uris = (0..SLOW).map(|n| format!("{base}/r/{n}"));
        uris.map(|uri| entry(&uri, "")).collect()
    };
    let resource = |n| match n {
        ..SLOW => ok(trickle(0)),
        _ => status(404),
    };
    let slow = Site::of_list(Ipv4Addr::LOCALHOST, list, resource).await;
    let source = SampleSource::start(resources(20)).await.unwrap();
    let destination = Destination::start(source.base(), |config| {
        // The slow download fails after thirty times this timeout.
        config.http.timeout = Duration::from_secs(1);
        config.http.connections_per_host = 2;
        let mirror = config.sources[0].mirror.with_file_name("slow");
        let mut other = config::Source::new("slow", slow.url("/"), mirror);
        other.notifications = false;
        config.sources.insert(0, other);
    })
    .await;
    let mirror = &destination.config.sources[1].mirror;
    let is_mirrored = || expected_files(&source, &[SET.to_owned()]) == files(mirror);
    let slow_set = async || {
        let status = destination.operator.status().await;
        let slow = status.sources.iter().find(|source| source.name == "slow");
        slow.and_then(|slow| slow.sets.first().cloned())
    };
    eventually("the other Source is mirrored", None, async || {
        if is_mirrored() {
            Ok(())
        } else {
            Err("not yet".to_owned())
        }
    })
    .await;
    // On a busy machine, a pause between two bytes may be longer than the timeout: such a download is tried again.
    let given_up = slow_set().await.map_or(0, |set| set.failed);
    assert!(given_up < SLOW as u64, "slow downloads remain");
    eventually("the other Source is subscribed to", None, async || {
        let status = destination.operator.status().await;
        let source = status.sources.iter().find(|it| it.name == support::NAME);
        let mut channels = source
            .iter()
            .flat_map(|it| &it.sets)
            .flat_map(|it| &it.channels);
        let is_active = channels.clone().count() == 2 && channels.all(|it| it.state == "active");
        is_active.then_some(()).ok_or(format!("{source:#?}"))
    })
    .await;
    until_verified(&source).await;
    source.update(SET, "r0001.txt", "beside a slow Source");
    source.notify_and_publish(SET).await.unwrap();
    eventually("the change is mirrored", None, async || {
        if is_mirrored() {
            Ok(())
        } else {
            Err("not yet".to_owned())
        }
    })
    .await;
    eventually("a download fails as too slow", None, async || {
        let error = slow_set().await.and_then(|set| set.error);
        let is_slow = error.as_ref().is_some_and(|error| error.code == "too-slow");
        is_slow.then_some(()).ok_or(format!("{error:?}"))
    })
    .await;
}
