//! More than the listeners can serve at once: they go on, and a delivery gets through.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use futures_util::future::join_all;
use resyncd::demo::{
    ChannelHub, HubDelivery, HubOptions, SampleOptions, SampleSource, Subscription,
};
use resyncd::protocol::Capability;
use resyncd::protocol::websub::{Signature, SignatureMethod};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use url::Url;

use crate::PROCESSOR;
use crate::process::{Home, program};
use crate::support::{LIMIT, SET, client, resources, soon};

/// As many file descriptors as the system lets this process have: the peers are all here.
fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, raised).unwrap();
}

/// A Source whose hub waits for an answer as long as the test does.
async fn patient_source() -> SampleSource {
    let hub = HubOptions {
        timeout: LIMIT,
        ..HubOptions::default()
    };
    let options = SampleOptions {
        hub: ChannelHub::Own(hub),
        ..resources(3)
    };
    SampleSource::start(options).await.unwrap()
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

/// Opens connections that begin to ask, and never do.
async fn silent_peers(address: SocketAddr, count: usize) -> Vec<TcpStream> {
    let connecting = (0..count).map(|_| async {
        let mut peer = TcpStream::connect(address).await.unwrap();
        // The listener may have ended it already, to make room.
        let _ = peer.write_all(b"POST / HTTP/1.1\r\nHos").await;
        peer
    });
    join_all(connecting).await
}

/// A change is delivered to the daemon, and gets into the mirror.
async fn push(home: &Home, source: &SampleSource, text: &str) {
    source.update(SET, "r0000.txt", text.to_owned());
    let deliveries = source.publish(&source.notify(SET)).await.unwrap();
    assert!(
        deliveries.iter().all(HubDelivery::is_accepted),
        "{deliveries:?}"
    );
    home.until_mirrored(source).await;
}

/// How many peers the listeners have ended so far to make room for others.
async fn made_way(home: &Home) -> u64 {
    let refused = home.operator.status().await.refused;
    refused
        .get("too-many-connections")
        .copied()
        .unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_peers_make_way_for_a_delivery_before_their_time_is_up() {
    let _turn = PROCESSOR.write().await;
    const PEERS: usize = 1000;
    raise_limit();
    let source = patient_source().await;
    let home = Home::new(&source.url(), "");
    let _daemon = home.run();
    home.settled(&source).await;
    let subscription = change_subscription(&source).await;
    let address = callback_address(&subscription);
    let peers = soon("a thousand peers", silent_peers(address, PEERS)).await;
    source.update(SET, "r0000.txt", "beside a thousand");
    let body = source.notify(SET).body;
    let secret = subscription.secret.as_ref().unwrap().as_bytes();
    let signature = Signature::sign(SignatureMethod::Sha256, secret, &body).to_string();
    // On a connection of its own, which the listener accepts after those of all the peers.
    let delivery = client().post(&subscription.callback).body(body);
    let delivery = delivery.header("X-Hub-Signature", signature).send();
    assert_eq!(soon("the answer", delivery).await.unwrap().status(), 200);
    let made_way = made_way(&home).await;
    assert!(
        made_way > PEERS as u64 / 2,
        "{made_way} peers made way, the others were waited for"
    );
    home.until_mirrored(&source).await;
    drop(peers);
    push(&home, &source, "after them").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn listeners_go_on_when_no_file_descriptor_is_left() {
    let source = patient_source().await;
    let home = Home::new(&source.url(), "");
    let mut command = Command::new("sh");
    let script = "ulimit -n 64 && exec \"$0\" --config \"$1\" run";
    command.args(["-c", script]).arg(program().get_program());
    command.arg(&home.config).env("RUST_LOG", "warn");
    command.stdin(Stdio::null()).stderr(Stdio::piped());
    let daemon = Ending(command.process_group(0).spawn().unwrap());
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
struct Ending(Child);

impl Drop for Ending {
    fn drop(&mut self) {
        // It has ended already, or the test has failed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The most memory that a process has had, in bytes.
pub(crate) fn peak_memory(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let digits = line.unwrap().replace(|c: char| !c.is_ascii_digit(), "");
    digits.parse::<u64>().unwrap() * 1024
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_times_the_load_it_can_take_does_no_harm() {
    let _turn = PROCESSOR.write().await;
    const PEERS: usize = 2560;
    raise_limit();
    let source = patient_source().await;
    let home = Home::new(&source.url(), "");
    let daemon = home.run();
    home.settled(&source).await;
    let subscription = change_subscription(&source).await;
    let secret = subscription.secret.clone().unwrap();
    // Wrongly signed: each is read whole, and none is kept. 64 KiB each is 160 MiB together.
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
    let told = answers.iter().filter(|answer| answer.is_ok()).count();
    assert!(told > 0, "somebody was served");
    for status in answers.into_iter().flatten() {
        assert!(matches!(status, 200 | 503), "{status}");
    }
    let grown = peak_memory(daemon.id()).saturating_sub(before);
    assert!(grown < 48 << 20, "{grown} bytes more");
    push(&home, &source, "after the flood").await;
    home.settled(&source).await;
}
