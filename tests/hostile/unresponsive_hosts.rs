//! Sources whose resources are on many hosts that never answer: the number of concurrent downloads is bounded, and resources of
//! other hosts are downloaded meanwhile.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use resyncd::config::Config;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};

use crate::support::site::{Site, entry, ok};
use crate::support::{Destination, LIMIT, eventually};

/// The maximum of concurrent downloads, over all hosts of a Source.
const MAX_DOWNLOADS: usize = 64;

/// Hosts that accept connections and never answer.
#[derive(Default)]
struct SilentHosts {
    requests: AtomicUsize,
    open: AtomicUsize,
    peak: AtomicUsize,
}

impl SilentHosts {
    /// Starts this number of hosts; returns their addresses.
    async fn start(self: &Arc<Self>, count: u8) -> Vec<String> {
        let mut addresses = Vec::new();
        for n in 1..=count {
            let address = Ipv4Addr::new(127, 0, 1, n);
            let listener = TcpListener::bind((address, 0)).await.unwrap();
            addresses.push(listener.local_addr().unwrap().to_string());
            let hosts = Arc::clone(self);
            tokio::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    let hosts = Arc::clone(&hosts);
                    tokio::spawn(async move { hosts.hold(stream).await });
                }
            });
        }
        addresses
    }

    async fn hold(&self, mut stream: TcpStream) {
        self.requests.fetch_add(1, Ordering::SeqCst);
        let open = self.open.fetch_add(1, Ordering::SeqCst) + 1;
        self.peak.fetch_max(open, Ordering::SeqCst);
        let _ = stream.read_to_end(&mut Vec::new()).await;
        self.open.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A Source of these resources and a daemon that follows it.
async fn follow(entries: Vec<String>, timeout: Duration) -> (Site, Destination) {
    let source = Site::of_list(Ipv4Addr::LOCALHOST, |_| entries.concat(), |_| ok("")).await;
    let change = |config: &mut Config| config.http.timeout = timeout;
    let destination = Destination::start(source.url("/"), change).await;
    (source, destination)
}

/// Three resources of each host.
fn three_of_each(addresses: &[String]) -> Vec<String> {
    let three = |host: &String| [1, 2, 3].map(|n| entry(&format!("http://{host}/{n}"), ""));
    addresses.iter().flat_map(three).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_downloads_are_bounded_however_many_hosts_there_are() {
    let hosts = Arc::new(SilentHosts::default());
    let addresses = hosts.start(250).await;
    let _running = follow(three_of_each(&addresses), Duration::from_secs(3)).await;
    eventually("more hosts were tried than fit at once", None, async || {
        let requests = hosts.requests.load(Ordering::SeqCst);
        let peak = hosts.peak.load(Ordering::SeqCst);
        // On a busy machine the first ones may time out before the last ones of so many have begun.
        let enough = requests > 3 * MAX_DOWNLOADS && peak >= MAX_DOWNLOADS;
        enough
            .then_some(())
            .ok_or(format!("{requests}, {peak} at once"))
    })
    .await;
    let peak = hosts.peak.load(Ordering::SeqCst);
    // A host notices the end of a connection later than the daemon.
    assert!(peak <= 2 * MAX_DOWNLOADS, "{peak} at once");
}

#[tokio::test(flavor = "multi_thread")]
async fn unresponsive_hosts_leave_room_for_a_responsive_one() {
    const RESPONSIVE: usize = 200;
    let addresses = Arc::new(SilentHosts::default()).start(40).await;
    let answers = |_| |path: &str, _: &_| ok(path.to_owned());
    // The last one, by address and in the list.
    let responsive = Site::start(Ipv4Addr::new(127, 0, 9, 9), answers).await;
    let mut entries = three_of_each(&addresses);
    entries
        .extend((0..RESPONSIVE).map(|n| entry(responsive.url(&format!("/good/{n}")).as_str(), "")));
    // No request times out during the test.
    let (_source, destination) = follow(entries, 10 * LIMIT).await;
    eventually(
        "the responsive host's resources are mirrored",
        None,
        async || {
            let status = destination.operator.status().await;
            let sets = status.sources.iter().flat_map(|source| &source.sets);
            let found: u64 = sets.map(|set| set.resources).sum();
            let all = found == RESPONSIVE as u64;
            all.then_some(()).ok_or(format!("{found} resources"))
        },
    )
    .await;
}
