//! Sources that name a crowd of hosts that never answer: the downloads at once stay few, and who answers is served beside them.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use resyncd::config::Config;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};

use crate::site::{Site, entry, ok};
use crate::support::{Destination, LIMIT, eventually};

/// How many downloads there are at once, over all hosts of a Source.
const PLACES: usize = 64;

/// Hosts that take requests and never answer.
#[derive(Default)]
struct Crowd {
    asked: AtomicUsize,
    open: AtomicUsize,
    most: AtomicUsize,
}

impl Crowd {
    /// The addresses of so many.
    async fn gather(self: &Arc<Self>, hosts: u8) -> Vec<String> {
        let mut addresses = Vec::new();
        for n in 1..=hosts {
            let address = Ipv4Addr::new(127, 0, 1, n);
            let listener = TcpListener::bind((address, 0)).await.unwrap();
            addresses.push(listener.local_addr().unwrap().to_string());
            let crowd = Arc::clone(self);
            tokio::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    let crowd = Arc::clone(&crowd);
                    tokio::spawn(async move { crowd.hold(stream).await });
                }
            });
        }
        addresses
    }

    async fn hold(&self, mut stream: TcpStream) {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let open = self.open.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(open, Ordering::SeqCst);
        let _ = stream.read_to_end(&mut Vec::new()).await;
        self.open.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A Source of these resources, and who follows it.
async fn followed(entries: Vec<String>, timeout: Duration) -> (Site, Destination) {
    let source = Site::of_list(Ipv4Addr::LOCALHOST, |_| entries.concat(), |_| ok("")).await;
    let change = |config: &mut Config| config.http.timeout = timeout;
    let destination = Destination::start(source.url("/"), change).await;
    (source, destination)
}

/// Three resources of each host.
fn three_of_each(hosts: &[String]) -> Vec<String> {
    let three = |host: &String| [1, 2, 3].map(|n| entry(&format!("http://{host}/{n}"), ""));
    hosts.iter().flat_map(three).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn downloads_at_once_stay_few_however_many_hosts_there_are() {
    let crowd = Arc::new(Crowd::default());
    let hosts = crowd.gather(250).await;
    let _followed = followed(three_of_each(&hosts), Duration::from_secs(3)).await;
    eventually("others have had their turn", None, async || {
        let asked = crowd.asked.load(Ordering::SeqCst);
        let enough = asked > 3 * PLACES;
        enough.then_some(()).ok_or(asked.to_string())
    })
    .await;
    let most = crowd.most.load(Ordering::SeqCst);
    // A peer sees a moment later than the daemon that a connection is closed.
    assert!((PLACES..=2 * PLACES).contains(&most), "{most} at once");
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_that_do_not_answer_leave_room_for_one_that_does() {
    const GOOD: usize = 200;
    let hosts = Arc::new(Crowd::default()).gather(40).await;
    let answers = |_| |path: &str, _: &_| ok(path.to_owned());
    // The last one in every order: by address, and in the list.
    let good = Site::start(Ipv4Addr::new(127, 0, 9, 9), answers).await;
    let mut entries = three_of_each(&hosts);
    entries.extend((0..GOOD).map(|n| entry(good.url(&format!("/good/{n}")).as_str(), "")));
    // Nobody is given up within the test.
    let (_source, destination) = followed(entries, 10 * LIMIT).await;
    eventually("the good host's resources are there", None, async || {
        let status = destination.operator.status().await;
        let sets = status.sources.iter().flat_map(|source| &source.sets);
        let found: u64 = sets.map(|set| set.resources).sum();
        let all = found == GOOD as u64;
        all.then_some(()).ok_or(format!("{found} resources"))
    })
    .await;
}
