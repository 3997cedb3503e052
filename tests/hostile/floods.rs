//! More connections than the listeners can serve: they keep working, and a delivery gets through.

use std::collections::VecDeque;
use std::fs;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use futures_util::future::join_all;
use resourcesync::Capability;
use resyncd_testkit::{HubDelivery, SampleSource, Subscription};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use url::Url;
use websub::{Signature, SignatureMethod};

use crate::hostile::PROCESSOR;
use crate::support::process::{Home, program};
use crate::support::{SET, client, resources, send, soon};

/// Raises the limit of file descriptors of this process, which has all peers, to the maximum.
fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, raised).unwrap();
}

async fn change_subscription(source: &SampleSource) -> Subscription {
    let topic = source.topic(SET, &Capability::ChangeNotification);
    let hub = source.hub().unwrap();
    hub.wait_for_subscription(&topic.to_string()).await
}

fn callback_address(subscription: &Subscription) -> SocketAddr {
    let callback = Url::parse(&subscription.callback).unwrap();
    callback.socket_addrs(|| None).unwrap()[0]
}

/// Opens connections that send the beginning of a request and nothing more.
async fn silent_peers(address: SocketAddr, count: usize) -> Vec<TcpStream> {
    let connecting = (0..count).map(|_| async {
        let mut peer = TcpStream::connect(address).await.unwrap();
        // The listener may have closed the connection already, to make room.
        let _ = peer.write_all(b"POST / HTTP/1.1\r\nHos").await;
        peer
    });
    join_all(connecting).await
}

/// Publishes a change and waits until it is in the mirror.
async fn push(home: &Home, source: &SampleSource, text: &str) {
    source.update(SET, "r0000.txt", text.to_owned());
    let deliveries = source.publish(&source.notify(SET)).await.unwrap();
    assert!(
        deliveries.iter().all(HubDelivery::is_accepted),
        "{deliveries:?}"
    );
    home.until_mirrored(source).await;
}

/// How many of the peers the listener has disconnected, to make room or because their requests took too long.
fn disconnected(peers: &[TcpStream]) -> usize {
    let is_open = |peer: &&TcpStream| {
        let read = peer.try_read(&mut [0; 1]);
        read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    };
    peers.len() - peers.iter().filter(is_open).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn thousand_silent_peers_do_not_delay_a_delivery() {
    let _permit = PROCESSOR.write().await;
    const PEERS: usize = 1000;
    raise_limit();
    let source = SampleSource::start(resources(3)).await.unwrap();
    let home = Home::new(&source.url(), "");
    let _daemon = home.run();
    home.settled(&source).await;
    let subscription = change_subscription(&source).await;
    let address = callback_address(&subscription);
    let peers = soon("a thousand peers", silent_peers(address, PEERS)).await;
    source.update(SET, "r0000.txt", "beside a thousand peers");
    let body = source.notify(SET).body;
    let secret = subscription.secret.as_ref().unwrap().as_bytes();
    let signature = Signature::sign(SignatureMethod::Sha256, secret, &body).to_string();
    // On a new connection, which the listener accepts after those of all peers.
    let delivery = client().post(&subscription.callback).body(body);
    let delivery = delivery.header("X-Hub-Signature", signature);
    let delivery = send(|| delivery.try_clone().unwrap());
    assert_eq!(soon("the answer", delivery).await.status(), 200);
    // The others would occupy all places. Their connections are closed beside the answer.
    soon("most peers disconnected", async {
        while disconnected(&peers) <= PEERS / 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    let refused = home.operator.status().await.refused;
    assert!(refused.contains_key("too-many-connections"), "{refused:?}");
    home.until_mirrored(&source).await;
    drop(peers);
    push(&home, &source, "after the peers").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn listeners_survive_running_out_of_file_descriptors() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    let home = Home::new(&source.url(), "");
    let mut command = Command::new("sh");
    let script = "ulimit -n 64 && exec \"$0\" --config \"$1\" run";
    command.args(["-c", script]).arg(program().get_program());
    command.arg(&home.config).env("RUST_LOG", "warn");
    command.stdin(Stdio::null()).stderr(Stdio::piped());
    let daemon = KillOnDrop(command.process_group(0).spawn().unwrap());
    home.settled(&source).await;
    let callback = callback_address(&change_subscription(&source).await);
    let peers = soon("peers", silent_peers(callback, 200)).await;
    let more = soon("peers", silent_peers(home.status, 200)).await;
    push(&home, &source, "without a descriptor to spare").await;
    assert_eq!(home.operator.get("/healthz").await.0, 200);
    drop((peers, more));
    push(&home, &source, "with some again").await;
    assert_eq!(home.operator.get("/healthz").await.0, 200);
    drop(daemon);
}

/// A process that is killed when it is dropped.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        // Fails if the process has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The peak resident memory of a process, in bytes.
pub(crate) fn peak_memory(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let digits = line.unwrap().replace(|c: char| !c.is_ascii_digit(), "");
    digits.parse::<u64>().unwrap() * 1024
}

#[tokio::test(flavor = "multi_thread")]
async fn tenfold_overload_does_not_exhaust_memory() {
    let _permit = PROCESSOR.write().await;
    const PEERS: usize = 2560;
    raise_limit();
    let source = SampleSource::start(resources(3)).await.unwrap();
    let home = Home::new(&source.url(), "");
    let daemon = home.run();
    home.settled(&source).await;
    let subscription = change_subscription(&source).await;
    let secret = subscription.secret.clone().unwrap();
    // With a wrong signature each is read completely, and none is stored. 64 KiB each are 160 MiB together.
    let body = vec![b'x'; 64 << 10];
    let wrong = Signature::sign(SignatureMethod::Sha256, b"guessed", &body).to_string();
    assert_ne!(secret.as_bytes(), b"guessed");
    let client = client();
    let before = peak_memory(daemon.id());
    let deliveries = (0..PEERS).map(|_| {
        let request = client.post(&subscription.callback);
        let request = request.header("X-Hub-Signature", &wrong).body(body.clone());
        async { request.send().await.map(|answer| answer.status().as_u16()) }
    });
    let answers = join_all(deliveries).await;
    let answered = answers.iter().filter(|answer| answer.is_ok()).count();
    assert!(answered > 0, "at least one request was answered");
    for status in answers.into_iter().flatten() {
        // 408: a body that took too long, on a busy machine.
        assert!(matches!(status, 200 | 408 | 503), "{status}");
    }
    let growth = peak_memory(daemon.id()).saturating_sub(before);
    // At most 256 connections are served at once: each has its body, in a buffer that grows by doubling, and a read buffer.
    assert!(growth < 256 * (256 << 10), "{growth} bytes more");
    push(&home, &source, "after the flood").await;
    home.settled(&source).await;
}

/// Opens connections as fast as the system allows, and leaves the last thousands of them open, until it is dropped.
async fn churn(address: SocketAddr) {
    let mut open = VecDeque::new();
    loop {
        if let Ok(peer) = TcpStream::connect(address).await {
            open.push_back(peer);
        }
        if open.len() > 400 {
            open.pop_front();
        }
    }
}

/// Sends a request in two parts with a pause between them; returns the beginning of the answer.
async fn slow_request(address: SocketAddr, pause: Duration) -> String {
    let mut answer = vec![0; 12];
    let mut peer = TcpStream::connect(address).await.unwrap();
    let asked = async {
        peer.write_all(b"GET /unknown HTTP/1.1\r\n").await?;
        // What a hub far away needs: no event ends it.
        tokio::time::sleep(pause).await;
        peer.write_all(b"Host: a\r\nConnection: close\r\n\r\n")
            .await?;
        peer.read_exact(&mut answer).await
    };
    // The listener may have closed the connection to make room.
    let _ = asked.await;
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn churn_of_connections_does_not_keep_out_a_slow_hub() {
    let _permit = PROCESSOR.write().await;
    raise_limit();
    let source = SampleSource::start(resources(3)).await.unwrap();
    let home = Home::new(&source.url(), "");
    let _daemon = home.run();
    home.settled(&source).await;
    let callback = callback_address(&change_subscription(&source).await);
    let churning = join_all((0..8).map(|_| churn(callback)));
    let asking = async {
        // A hub tries again; how often it must depends on the load of this machine.
        while slow_request(callback, Duration::from_millis(100)).await != "HTTP/1.1 404" {}
    };
    tokio::select! {
        _ = churning => {}
        () = soon("a slow request is answered", asking) => {}
    }
    push(&home, &source, "after the churn").await;
}
