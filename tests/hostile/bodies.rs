//! Bodies that lie about their length, never end, break off or trickle: each request ends, and takes nothing for whole.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::{Body, Bytes};
use futures_util::{StreamExt, stream};
use resyncd::config::{self, HttpConfig};
use resyncd::demo::SampleSource;
use resyncd::fetch::{AllowedHosts, Bounds, Client, HubAnswer, PartialPackage};
use resyncd::protocol::websub::{Mode, SubscriptionRequest};
use resyncd::protocol::{HubUri, ResourceUri, TopicUri};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use url::Url;

use crate::PROCESSOR;
use crate::site::{Site, entry, ok, redirect, status};
use crate::support::{Destination, SET, eventually, expected_files, files, resources, soon};

/// How many bytes of what never ends are sent at once. Clients stop only after some hundred thousand: a few bytes at a time would
/// be many thousand turns of both sides.
const AT_ONCE: usize = 16 << 10;

/// What each body may be long at most, in bytes.
const LIMIT: u64 = 100_000;

/// A client of which loopback may be asked, and that does not wait long between its tries.
pub(crate) fn client(timeout: Duration) -> Client {
    let http = HttpConfig {
        allow_private_addresses: true,
        timeout,
        ..HttpConfig::default()
    };
    Client::new(&http).unwrap().with_document_retries(Bounds {
        tries: 2,
        first: Duration::from_millis(1),
        longest: Duration::from_millis(2),
    })
}

/// What comes of a document, a resource and a package at a URL: their lengths, or the code of the error.
pub(crate) async fn fetch_all(client: &Client, url: &Url) -> [Result<u64, &'static str>; 3] {
    let document = client.get_document(url, None, LIMIT).await;
    let document = document.map(|got| match got {
        resyncd::fetch::Fetched::Document(document) => document.bytes_len(),
        resyncd::fetch::Fetched::NotModified => panic!("nothing was known"),
    });
    let uri = ResourceUri::try_from(url.clone()).unwrap();
    let any = AllowedHosts::any();
    let content = async {
        let content = client.get_content(&uri, &any, Some(LIMIT), None).await?;
        let (mut content, mut length) = (content.unwrap(), 0);
        while let Some(chunk) = content.chunk().await? {
            length += chunk.len() as u64;
        }
        Ok(length)
    };
    let content = content.await;
    let folder = tempfile::tempdir().unwrap();
    let partial = PartialPackage::open(folder.path(), url).unwrap();
    let package = client.get_package(url, &any, Some(LIMIT), partial).await;
    let package = package.map(|package| package.received());
    [document, content, package]
        .map(|got| got.map_err(|error: resyncd::fetch::FetchError| error.code()))
}

/// Answers every connection with these bytes, and then with more of them for as long as somebody listens.
async fn raw(head: &'static str, more: &'static [u8]) -> Url {
    raw_counted(head, more).await.0
}

/// The same; and how many bytes beyond `head` were sent so far.
async fn raw_counted(head: &'static str, more: &'static [u8]) -> (Url, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let sent = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&sent);
    let more = more.repeat(AT_ONCE / more.len().max(1));
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (more, count) = (more.clone(), Arc::clone(&count));
            tokio::spawn(async move {
                let _ = stream.read(&mut [0; 8192]).await;
                let mut going_on = stream.write_all(head.as_bytes()).await.is_ok();
                while going_on && !more.is_empty() {
                    going_on = stream.write_all(&more).await.is_ok();
                    count.fetch_add(more.len(), Ordering::SeqCst);
                }
                let _ = stream.shutdown().await;
            });
        }
    });
    (Url::parse(&url).unwrap(), sent)
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_are_counted_and_held_against_what_was_announced() {
    let chunk = format!("400\r\n{}\r\n", "endless ".repeat(128)).leak();
    let client = client(Duration::from_secs(5));
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
        // What comes behind the end that was announced is nobody's.
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n12345",
            b"endless ",
            Ok(5),
        ),
    ] {
        let url = raw(head, more).await;
        let got = soon("all of them", fetch_all(&client, &url)).await;
        assert_eq!(got, [expected; 3], "{head:?}");
    }
    // What is announced to be too large is not begun. A document may be larger than what it unpacks to.
    let url = raw("HTTP/1.1 200 OK\r\ncontent-length: 100001\r\n\r\n", b"").await;
    let got = soon("all of them", fetch_all(&client, &url)).await;
    let too_large = Err("too-large");
    assert_eq!(got, [Err("cut-short"), too_large, too_large]);
    for head in [
        "HTTP/1.1 200 OK\r\ncontent-length: 9223372036854775807\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 18446744073709551615\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nendless: ",
        "",
    ] {
        let url = raw(head, b"endless ").await;
        let got = soon("all of them", fetch_all(&client, &url)).await;
        assert!(got.iter().all(Result::is_err), "{head:?}: {got:?}");
    }
}

/// A hub, and what it is asked.
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
async fn hubs_topics_and_pages_that_never_end_are_survived() {
    let client = client(Duration::from_secs(5));
    for (status, accepted) in [("200 OK", true), ("202 Accepted", true), ("400 No", false)] {
        let head: &'static str = format!("HTTP/1.1 {status}\r\n\r\n").leak();
        let (url, sent) = raw_counted(head, b"endless ").await;
        let (hub, request) = subscribing(&url);
        let answer = soon("the hub", client.ask_hub(&hub, &request))
            .await
            .unwrap();
        assert_eq!(answer == HubAnswer::Accepted, accepted, "{answer:?}");
        // A few kilobytes are read; what else was sent lies between the two ends. Whoever reads on until a time-out reads more.
        let sent = sent.load(Ordering::SeqCst);
        assert!(sent < 16 << 20, "{sent} bytes were sent");
        let topic = TopicUri::try_from(url.clone()).unwrap();
        let links = soon("the topic", client.ask_topic(&topic)).await;
        assert!(links.is_err() || links.unwrap().hubs.is_empty());
        let found = soon("discovery", client.discover(&url, LIMIT)).await;
        assert!(found.is_err());
    }
}

/// A body of so many bytes, and then of one every moment.
fn trickle(first: usize) -> Body {
    let drops = stream::unfold((), |()| async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        Some((Bytes::from_static(b"x"), ()))
    });
    let first = Bytes::from(vec![b'x'; first]);
    let body = stream::once(std::future::ready(first)).chain(drops);
    Body::from_stream(body.map(Ok::<_, Infallible>))
}

/// There is no limit to what a resource may be long, unless the Source tells how long it is.
#[tokio::test(flavor = "multi_thread")]
async fn resource_that_is_longer_than_told_is_left_at_once() {
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
    let error = eventually("it is told", None, async || {
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
async fn content_that_trickles_ends_as_too_slow() {
    let site = Site::start(Ipv4Addr::LOCALHOST, |_| {
        |path: &str, _: &_| match path {
            "/at-first" => ok(trickle(40 << 10)),
            _ => ok(trickle(0)),
        }
    })
    .await;
    // No pause between two chunks is as long as this, not on a busy machine either.
    let client = client(Duration::from_secs(2));
    let error_of = async |path| {
        let uri = ResourceUri::try_from(site.url(path)).unwrap();
        let any = AllowedHosts::any();
        let got = client.get_content(&uri, &any, None, None).await;
        let mut content = got.unwrap().unwrap();
        loop {
            match content.chunk().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("it is endless"),
                Err(error) => break error.code(),
            }
        }
    };
    let both = futures_util::future::join(error_of("/always"), error_of("/at-first"));
    assert_eq!(soon("the end", both).await, ("too-slow", "too-slow"));
}

#[tokio::test(flavor = "multi_thread")]
async fn document_that_trickles_is_not_waited_for() {
    let site = Site::start(Ipv4Addr::LOCALHOST, |_| |_: &str, _: &_| ok(trickle(1000))).await;
    // Thirty of these are three seconds, twice.
    let client = client(Duration::from_millis(100));
    let url = site.url("/list.xml");
    let got = soon("the end", client.get_document(&url, None, LIMIT)).await;
    assert_eq!(got.unwrap_err().code(), "timeout");
}

/// What stands behind a redirect, and why a hub refuses, is only looked at: that ends whether it ends or not.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_waits_long_for_what_nobody_needs() {
    let site = Site::start(Ipv4Addr::LOCALHOST, |_| {
        |path: &str, _: &_| {
            let mut answer = match path {
                "/redirect" => redirect(302, "/end"),
                "/hub" => status(400),
                _ => return ok("there"),
            };
            *answer.body_mut() = trickle(0);
            answer
        }
    })
    .await;
    let client = client(Duration::from_secs(5));
    let url = site.url("/redirect");
    let (hub, request) = subscribing(&site.url("/hub"));
    let both = futures_util::future::join(
        client.get_document(&url, None, LIMIT),
        client.ask_hub(&hub, &request),
    );
    let (document, answer) = soon("both", both).await;
    assert!(document.is_ok());
    assert!(matches!(answer, Ok(HubAnswer::Refused { status: 400, .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn source_that_trickles_delays_no_other_and_is_told() {
    let slow = Site::of_list(
        Ipv4Addr::LOCALHOST,
        |base| {
            (0..10)
                .map(|n| entry(&format!("{base}/r/{n}"), ""))
                .collect()
        },
        |n| if n < 10 { ok(trickle(0)) } else { status(404) },
    )
    .await;
    let source = SampleSource::start(resources(20)).await.unwrap();
    let destination = Destination::start(source.base(), |config| {
        // The slow one is given up after thirty of these.
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
    let failed = async || {
        let status = destination.operator.status().await;
        let slow = status.sources.iter().find(|source| source.name == "slow");
        let set = slow.and_then(|slow| slow.sets.first());
        set.and_then(|set| set.error.clone())
    };
    eventually("the other one is mirrored", None, async || {
        if is_mirrored() {
            Ok(())
        } else {
            Err("not yet".to_owned())
        }
    })
    .await;
    assert_eq!(failed().await, None, "the slow one is still waited for");
    source.update(SET, "r0001.txt", "beside a slow one");
    source.notify_and_publish(SET).await.unwrap();
    eventually("the change is mirrored", None, async || {
        if is_mirrored() {
            Ok(())
        } else {
            Err("not yet".to_owned())
        }
    })
    .await;
    let error = eventually("the slow one is told", None, async || {
        failed().await.ok_or("nothing is told".to_owned())
    })
    .await;
    assert_eq!(error.code, "too-slow", "{error:?}");
}
