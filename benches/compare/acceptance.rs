//! How many signed deliveries a second the callback accepts, each on disk before it is acknowledged, over 64 connections; against
//! a handler that reads them and stores nothing, and against one that appends them to a file and syncs that once for all that wait.
//!
//! The notifications are valid and each is another one, but older than the baseline: none has news, so that nothing is fetched
//! meanwhile. The daemon processes them while it accepts more, as it does with every delivery. Many channels are measured as well as
//! one: each set has a worker of its own.

use std::fs::File;
use std::io::Write as _;
use std::iter;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::http::StatusCode;
use axum::routing::post;
use axum::serve::ListenerExt as _;
use resourcesync::{Capability, SourceTime};
use resyncd::clock;
use resyncd_testkit::{SampleOptions, SampleSource};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use url::Url;
use websub::{Signature, SignatureMethod};

use super::daemon::Daemon;
use super::harness::{Bench, BenchResult, Home, runtime, settle};
use super::latencies::Latencies;
use super::site::XMLNS;
use super::table::{Goal, Line};

const CONNECTIONS: usize = 64;
const CHANNELS: [usize; 2] = [1, 16];
/// The time of the first change: long before the baseline.
const FIRST_CHANGE: &str = "2020-01-01T00:00:00Z";
/// The duration of one notification's interval, in microseconds.
const INTERVAL: i64 = 1000;
/// How long the daemon may take to be in sync, or to work through its inbox.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Measures one channel, and many.
pub(crate) fn run(bench: &Bench) -> BenchResult<Vec<Line>> {
    let mut lines = Vec::new();
    for channels in CHANNELS {
        lines.extend(of_channels(bench, channels)?);
    }
    Ok(lines)
}

fn of_channels(bench: &Bench, channels: usize) -> BenchResult<Vec<Line>> {
    let runtime = runtime()?;
    let sets: Vec<String> = (0..channels).map(|number| format!("set{number}")).collect();
    let source = runtime.block_on(SampleSource::start(SampleOptions {
        sets: sets.clone(),
        ..SampleOptions::default()
    }))?;
    let home = Home::of_source(bench, &source.url(), "")?;
    let mut daemon = Daemon::start(bench, &home)?;
    daemon.until_settled(channels, TIMEOUT)?;
    let senders = senders(&source, &sets)?;
    // In a runtime, and so in threads, of its own, like another program.
    let handler = super::harness::runtime()?;
    let storing_nothing = Router::new().fallback(post(|_: Bytes| async { StatusCode::OK }));
    let appending = appending(File::create(home.path().join("appended"))?);
    let mut peers = Vec::new();
    for router in [storing_nothing, appending] {
        let address = handler.block_on(serving(router))?;
        let to_it = senders.iter().map(|sender| sender.sending_to(address));
        peers.push(Peer {
            senders: to_it.map(Arc::new).collect(),
            rates: Vec::new(),
            latencies: Vec::new(),
        });
    }
    let senders: Vec<_> = senders.into_iter().map(Arc::new).collect();

    let duration = Duration::from_secs(if bench.short { 1 } else { 5 });
    let (mut rates, mut latencies) = (Vec::new(), Vec::new());
    let (mut accepted, mut drained) = (0, Duration::ZERO);
    for _ in 0..bench.rounds() {
        settle();
        let load = send(&runtime, &senders, duration)?;
        accepted += load.latencies.len();
        rates.push(load.rate);
        latencies.extend(load.latencies);
        let begun = clock::now().mono;
        daemon.until("an empty inbox", TIMEOUT, |daemon| {
            Ok(received(daemon)?.pending == 0)
        })?;
        drained += clock::now().mono - begun;
        for peer in &mut peers {
            settle();
            let load = send(&runtime, &peer.senders, duration)?;
            peer.rates.push(load.rate);
            peer.latencies.extend(load.latencies);
        }
    }
    let counted = received(&daemon)?;
    if counted.stored != accepted as u64 || counted.rejected != 0 {
        return Err(format!(
            "{accepted} deliveries were acknowledged, {} stored, {} rejected",
            counted.stored, counted.rejected
        )
        .into());
    }
    daemon.expect_no_warnings()?;
    let peak = super::harness::mebibytes(daemon.peak_memory()?);
    daemon.stop()?;

    let (rate, latencies) = (median(rates), Latencies::new(latencies));
    let mut peers = peers.into_iter();
    let mut peer = || peers.next().ok_or("no peer");
    let (nothing, floor) = (peer()?, peer()?);
    let (peer_rate, floor_rate) = (median(nothing.rates), median(floor.rates));
    let p99 = latencies.millis(99);
    let what = match channels {
        1 => "1 channel".to_owned(),
        many => format!("{many} channels"),
    };
    Ok(vec![
        Line::new(format!(
            "signed deliveries over {CONNECTIONS} connections, {what}"
        ))
        .resyncd(format!(
            "{rate:.0}/s, {peak:.0} MiB, inbox empty {:.1} s later",
            drained.as_secs_f64() / f64::from(u32::try_from(bench.rounds())?)
        ))
        .peer(format!("{peer_rate:.0}/s, axum that stores nothing"))
        .ratio(rate / peer_rate, Goal::AtLeast(0.5, "")),
        Line::new(format!("the same, {what}"))
            .resyncd(format!("{rate:.0}/s"))
            .peer(format!("{floor_rate:.0}/s, axum that appends and syncs"))
            .ratio(rate / floor_rate, Goal::AtLeast(0.7, "")),
        Line::new(format!("time of an acknowledgement, {what}"))
            .resyncd(&latencies)
            .peer(Latencies::new(nothing.latencies))
            .goal(p99, Goal::AtMost(20.0, " ms p99")),
    ])
}

/// What resyncd is compared with.
struct Peer {
    senders: Vec<Arc<Sender>>,
    rates: Vec<f64>,
    latencies: Vec<Duration>,
}

/// What the channels count.
struct Received {
    stored: u64,
    rejected: u64,
    pending: u64,
}

fn received(daemon: &Daemon) -> BenchResult<Received> {
    let sets = daemon.sets()?;
    let channels = || sets.iter().flat_map(|set| &set.channels);
    Ok(Received {
        stored: channels().map(|channel| channel.received).sum(),
        rejected: channels().map(|channel| channel.rejected).sum(),
        pending: channels().map(|channel| channel.inbox).sum(),
    })
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_unstable_by(f64::total_cmp);
    rates[rates.len() / 2]
}

/// The sender of one channel's notifications.
struct Sender {
    address: SocketAddr,
    /// The path of the callback.
    path: String,
    secret: String,
    capability_list: Url,
    resource: Url,
    /// Where the next notification's interval begins, in microseconds since 1970.
    next: AtomicI64,
}

impl Sender {
    /// The same to another address.
    fn sending_to(&self, address: SocketAddr) -> Self {
        Self {
            address,
            path: self.path.clone(),
            secret: self.secret.clone(),
            capability_list: self.capability_list.clone(),
            resource: self.resource.clone(),
            next: AtomicI64::new(self.next.load(Ordering::Relaxed)),
        }
    }

    /// The next delivery: a complete HTTP request.
    fn request(&self) -> String {
        let from = self.next.fetch_add(INTERVAL, Ordering::Relaxed);
        let time = |micros| SourceTime::from_micros(micros).to_string();
        let (from, at, until) = (time(from), time(from + 1), time(from + INTERVAL));
        let body = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<urlset {XMLNS}>\n\
             <rs:ln rel=\"up\" href=\"{}\"/>\n\
             <rs:md capability=\"change-notification\" from=\"{from}\" until=\"{until}\"/>\n\
             <url><loc>{}</loc><lastmod>{at}</lastmod>\
             <rs:md change=\"updated\" datetime=\"{at}\" hash=\"sha-256:{:064x}\" length=\"1024\" type=\"text/plain\"/></url>\n\
             </urlset>\n",
            self.capability_list, self.resource, 0
        );
        let secret = self.secret.as_bytes();
        let signature = Signature::sign(SignatureMethod::Sha256, secret, body.as_bytes());
        format!(
            "POST {} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/xml\r\n\
             X-Hub-Signature: {signature}\r\nContent-Length: {}\r\n\r\n{body}",
            self.path,
            self.address,
            body.len()
        )
    }
}

/// The senders of the change notifications of all sets, as the Source's hub could send them.
fn senders(source: &SampleSource, sets: &[String]) -> BenchResult<Vec<Sender>> {
    let subscriptions = source.hub().ok_or("no hub")?.subscriptions();
    let mut senders = Vec::new();
    for set in sets {
        let topic = source.topic(set, &Capability::ChangeNotification);
        let of_topic = subscriptions.iter().find(|it| it.topic == topic.as_str());
        let subscription = of_topic.ok_or("no subscription")?;
        let callback = Url::parse(&subscription.callback)?;
        let first: SourceTime = FIRST_CHANGE.parse().map_err(|_| "no time")?;
        senders.push(Sender {
            address: *callback
                .socket_addrs(|| None)?
                .first()
                .ok_or("no address")?,
            path: callback.path().to_owned(),
            secret: subscription.secret.clone().ok_or("no secret")?,
            capability_list: source.capability_list(set),
            resource: source.resource_uri(set, "r0000.txt"),
            next: AtomicI64::new(first.micros()),
        });
    }
    Ok(senders)
}

/// What was acknowledged.
struct Load {
    rate: f64,
    latencies: Vec<Duration>,
}

/// Sends one delivery after the other on each connection; the connections are shared out among the channels.
fn send(runtime: &Runtime, senders: &[Arc<Sender>], duration: Duration) -> BenchResult<Load> {
    runtime.block_on(async {
        let begun = clock::now().mono;
        let mut connections = JoinSet::new();
        for sender in senders.iter().cycle().take(CONNECTIONS) {
            let sender = Arc::clone(sender);
            connections.spawn(async move {
                let mut connection = Connection::open(sender.address).await?;
                let mut latencies = Vec::new();
                while clock::now().mono - begun < duration {
                    let request = sender.request();
                    let sent = clock::now().mono;
                    let status = connection.exchange(request.as_bytes()).await?;
                    latencies.push(clock::now().mono - sent);
                    if status != 200 {
                        return Err(format!("a delivery was answered {status}").into());
                    }
                }
                BenchResult::Ok(latencies)
            });
        }
        let mut latencies = Vec::new();
        while let Some(ended) = connections.join_next().await {
            latencies.extend(ended??);
        }
        let elapsed = clock::now().mono - begun;
        Ok(Load {
            rate: f64::from(u32::try_from(latencies.len())?) / elapsed.as_secs_f64(),
            latencies,
        })
    })
}

/// A connection that sends complete requests and reads no more of the answers than it must: the load must cost less than what it
/// measures.
struct Connection {
    stream: TcpStream,
    answer: Vec<u8>,
}

impl Connection {
    async fn open(address: SocketAddr) -> BenchResult<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            answer: Vec::new(),
        })
    }

    /// Sends a request, and reads the answer; returns its status. An answer has no body.
    async fn exchange(&mut self, request: &[u8]) -> BenchResult<u16> {
        self.stream.write_all(request).await?;
        self.answer.clear();
        while !self.answer.ends_with(b"\r\n\r\n") {
            if self.stream.read_buf(&mut self.answer).await? == 0 {
                return Err("the connection was closed".into());
            }
        }
        let head = std::str::from_utf8(&self.answer)?;
        let status = head.split(' ').nth(1).ok_or("no status")?;
        Ok(status.parse()?)
    }
}

/// Serves as long as its runtime exists.
async fn serving(router: Router) -> BenchResult<SocketAddr> {
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    let listener = listener.tap_io(|stream| {
        // A stream that does not allow it is only slower.
        let _ = stream.set_nodelay(true);
    });
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(address)
}

/// Appends each delivery to a file, and answers once that is on disk: the least that it costs to lose none.
fn appending(mut file: File) -> Router {
    let (sender, waiting) = mpsc::channel::<(Bytes, oneshot::Sender<()>)>();
    std::thread::spawn(move || {
        while let Ok(first) = waiting.recv() {
            let all: Vec<_> = iter::once(first).chain(waiting.try_iter()).collect();
            let written = all.iter().try_for_each(|(body, _)| file.write_all(body));
            if written.and_then(|()| file.sync_data()).is_err() {
                // Those who wait get no answer.
                return;
            }
            for (_, answer) in all {
                let _ = answer.send(());
            }
        }
    });
    Router::new().fallback(post(async move |body: Bytes| {
        let (answer, written) = oneshot::channel();
        match sender.send((body, answer)) {
            Ok(()) if written.await.is_ok() => StatusCode::OK,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }))
}
