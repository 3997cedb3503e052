//! Peers that stall within a request, and deliveries that are truncated or never end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Bytes;
use futures_util::{StreamExt, stream};
use resourcesync::Capability;
use resyncd::clock;
use resyncd_core::TopicUri;
use resyncd_testkit::{SampleSource, Subscription};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use url::Url;
use websub::{Signature, SignatureMethod};

use crate::hostile::PROCESSOR;
use crate::hostile::floods::peak_memory;
use crate::support::process::Home;
use crate::support::{Rig, SET, client, eventually, resources, send, soon};

/// How long a peer may take for a body.
const BODY_TIME: Duration = Duration::from_secs(10);

const MIB: usize = 1 << 20;

async fn subscription(source: &SampleSource, topic: &TopicUri) -> Subscription {
    let subscribed = source.hub().unwrap();
    let subscribed = subscribed.wait_for_subscription(topic.as_str());
    soon("subscribed", subscribed).await
}

/// A daemon, and its subscriptions to changes and to framework notifications.
async fn subscribed() -> (Rig, Subscription, Subscription) {
    let rig = Rig::start(resources(3)).await;
    rig.settled().await;
    let changes = subscription(&rig.source, &rig.changes()).await;
    let framework = subscription(&rig.source, &rig.framework()).await;
    (rig, changes, framework)
}

fn address(callback: &str) -> SocketAddr {
    let callback = Url::parse(callback).unwrap();
    callback.socket_addrs(|| None).unwrap()[0]
}

fn signature(to: &Subscription, body: &[u8]) -> String {
    let secret = to.secret.as_ref().unwrap();
    Signature::sign(SignatureMethod::Sha256, secret.as_bytes(), body).to_string()
}

/// Sends an incomplete request and waits until the connection is closed; returns the answer.
async fn send_partial(address: SocketAddr, request: String) -> String {
    let mut peer = TcpStream::connect(address).await.unwrap();
    peer.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // The connection may be closed without an answer.
    let _ = peer.read_to_end(&mut answer).await;
    String::from_utf8(answer).unwrap()
}

/// A delivery whose body is shorter than the announced length.
fn partial_delivery(to: &Subscription, body: &[u8], announced: usize) -> String {
    let path = Url::parse(&to.callback).unwrap().path().to_owned();
    let signature = signature(to, body);
    let body = std::str::from_utf8(body).unwrap();
    format!(
        "POST {path} HTTP/1.1\r\nHost: destination\r\nConnection: close\r\nX-Hub-Signature: {signature}\r\n\
         Content-Length: {announced}\r\n\r\n{body}"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn stalled_peers_are_disconnected_and_block_no_other_channel() {
    let _permit = PROCESSOR.read().await;
    let (rig, changes, framework) = subscribed().await;
    let callback = address(&changes.callback);
    let head = "POST / HTTP/1.1\r\nHos";
    let heads =
        [callback, rig.config.status.listen].map(|address| send_partial(address, head.to_owned()));
    let heads = tokio::spawn(futures_util::future::join_all(heads));
    // They reserve all the memory of the channel.
    let begun = clock::now().mono;
    let bodies =
        (0..4).map(|_| send_partial(callback, partial_delivery(&changes, b"<urlset", 8 * MIB)));
    let bodies = tokio::spawn(futures_util::future::join_all(bodies));

    // A short delivery needs no such memory.
    for callback in [&framework.callback, &changes.callback] {
        let other = || client().post(callback).body("unsigned");
        assert_eq!(send(other).await.status(), 403);
        assert!(
            !bodies.is_finished() || begun.elapsed() >= BODY_TIME,
            "other deliveries are answered before the stalled peers are disconnected"
        );
    }

    soon("the connections are closed", heads).await.unwrap();
    for answer in soon("the connections are closed", bodies).await.unwrap() {
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    }
    let channel = rig.channel().await;
    assert_eq!((channel.rejected, channel.received), (5, 0));
    rig.source.update(SET, "r0001.txt", "after the peers");
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.until_mirrored().await;
}

/// A hub that keeps many short deliveries unfinished leaves connections for the others.
#[tokio::test(flavor = "multi_thread")]
async fn stalled_short_deliveries_of_a_channel_are_limited() {
    const MANY: usize = 300;
    let _permit = PROCESSOR.read().await;
    let (_rig, changes, framework) = subscribed().await;
    let callback = address(&changes.callback);
    let stalled = (0..MANY).map(|_| send_partial(callback, partial_delivery(&changes, b"<", 10)));
    let stalled = tokio::spawn(futures_util::future::join_all(stalled));
    let other = || client().post(&framework.callback).body("unsigned");
    assert_eq!(send(other).await.status(), 403);
    let answers = soon("the connections are closed", stalled).await.unwrap();
    let is_refused = |answer: &&String| answer.starts_with("HTTP/1.1 503 ");
    let refused = answers.iter().filter(is_refused).count();
    assert!(refused > 0, "{answers:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn truncated_delivery_is_rejected_even_if_its_beginning_is_signed() {
    let rig = Rig::start(resources(3)).await;
    rig.settled().await;
    let to = subscription(&rig.source, &rig.changes()).await;
    rig.source.freeze_change_list(SET, true);
    rig.source.update(SET, "r0001.txt", "cut short");
    let notification = rig.source.notify(SET);
    let text = partial_delivery(&to, &notification.body, notification.body.len() + 1);
    let mut peer = TcpStream::connect(address(&to.callback)).await.unwrap();
    peer.write_all(text.as_bytes()).await.unwrap();
    peer.shutdown().await.unwrap();
    eventually("the delivery is counted", None, async || {
        match rig.channel().await {
            channel if (channel.rejected, channel.received) == (1, 0) => Ok(()),
            channel => Err(format!("{channel:?}")),
        }
    })
    .await;
    assert!(rig.mirrored("r0001.txt").unwrap() != b"cut short");
    rig.source.publish(&notification).await.unwrap();
    rig.until_mirrored().await;
}

/// What the buffers of the two ends of a TCP connection may grow to, in bytes.
fn largest_socket_buffers() -> usize {
    let limits = ["tcp_rmem", "tcp_wmem"].map(|name| {
        let sizes = std::fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).unwrap();
        sizes.split_whitespace().last().unwrap().parse::<usize>()
    });
    limits.into_iter().map(Result::unwrap).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn endless_delivery_is_cut_off_and_not_buffered() {
    let _permit = PROCESSOR.read().await;
    let source = SampleSource::start(resources(3)).await.unwrap();
    let home = Home::new(&source.url(), "[limits]\nnotification = \"8MiB\"");
    let daemon = home.run();
    home.settled(&source).await;
    let topic = source.topic(SET, &Capability::ChangeNotification);
    let to = subscription(&source, &topic).await;
    let client = client();
    let before = peak_memory(daemon.id());
    let sent = Arc::new(AtomicUsize::new(0));
    let endless = (0..4).map(|_| {
        let sent = Arc::clone(&sent);
        let pieces = stream::repeat(Bytes::from(vec![b'x'; MIB]));
        let counted = pieces.map(move |piece| {
            sent.fetch_add(piece.len(), Ordering::Relaxed);
            Ok::<_, std::convert::Infallible>(piece)
        });
        let request = client.post(&to.callback);
        let request = request.header("X-Hub-Signature", signature(&to, b""));
        request.body(reqwest::Body::wrap_stream(counted)).send()
    });
    let answers = soon("the answers", futures_util::future::join_all(endless)).await;
    for answer in answers {
        // A client that is still sending may not receive the answer. On a busy machine, the time for a body may end before its limit.
        assert!(answer.is_err() || matches!(answer.unwrap().status().as_u16(), 413 | 408));
    }
    // Of each, four times the limit is read and discarded; the rest is in the client and in socket buffers.
    let sent = sent.load(Ordering::Relaxed);
    let most = 4 * (4 * 8 * MIB + 4 * MIB + largest_socket_buffers());
    assert!(sent <= most, "{sent} bytes were sent");
    home.until("counted", |set| {
        set.channels.iter().any(|channel| channel.rejected == 4)
    })
    .await;
    let growth = peak_memory(daemon.id()).saturating_sub(before);
    // Of four concurrent deliveries, no more than the limit is buffered in total.
    assert!(growth < (64 * MIB) as u64, "{growth} bytes more");
    source.update(SET, "r0001.txt", "after the peers");
    source.notify_and_publish(SET).await.unwrap();
    home.settled(&source).await;
}
