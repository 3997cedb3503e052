//! Documents that are small and become large, or are large in every way there is: they end early, or take no memory.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use resyncd::demo::{Fault, SampleSource};
use resyncd::protocol::Capability;
use resyncd::status::SetStatus;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::PROCESSOR;
use crate::floods::peak_memory;
use crate::process::{Home, Running};
use crate::support::{NAME, SET, resources};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const CHANGES: &str = "/set1/changelist.xml";
const HEAD: &str = r#"<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/"><rs:md capability="changelist" from="2026-01-01T00:00:00Z"/>"#;

/// What a server serves: a beginning, then a piece again and again.
#[derive(Clone)]
struct Bomb {
    beginning: Vec<u8>,
    piece: Vec<u8>,
    length: u64,
    headers: &'static str,
}

impl Bomb {
    fn plain(beginning: &str, piece: &str, length: u64) -> Self {
        Self {
            beginning: format!("{HEAD}{beginning}").into_bytes(),
            piece: piece.repeat((64 << 10) / piece.len()).into_bytes(),
            length,
            headers: "Content-Type: application/xml\r\n",
        }
    }

    fn gzip(bytes: Vec<u8>, headers: &'static str) -> Self {
        Self {
            length: bytes.len() as u64,
            beginning: bytes,
            piece: Vec::new(),
            headers,
        }
    }

    /// Serves it to one peer; answers how much was taken.
    async fn serve(&self, mut peer: TcpStream, taken: &AtomicU64) {
        let mut asked = [0; 4096];
        let _ = peer.read(&mut asked).await;
        let head = format!(
            "HTTP/1.1 200 OK\r\nConnection: close\r\n{}\r\n",
            self.headers
        );
        let mut left = self.length;
        let mut next = &self.beginning;
        let _ = peer.write_all(head.as_bytes()).await;
        while left > 0 && !next.is_empty() {
            let now = &next[..next.len().min(usize::try_from(left).unwrap_or(usize::MAX))];
            if peer.write_all(now).await.is_err() {
                return;
            }
            left -= now.len() as u64;
            taken.fetch_add(now.len() as u64, Ordering::Relaxed);
            next = &self.piece;
        }
    }
}

/// Serves a bomb to everybody who asks.
async fn serve(bomb: Bomb) -> (SocketAddr, Arc<AtomicU64>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let (address, taken) = (listener.local_addr().unwrap(), Arc::new(AtomicU64::new(0)));
    let counter = taken.clone();
    tokio::spawn(async move {
        while let Ok((peer, _)) = listener.accept().await {
            let (bomb, counter) = (bomb.clone(), counter.clone());
            tokio::spawn(async move { bomb.serve(peer, &counter).await });
        }
    });
    (address, taken)
}

/// A document of so many bytes of white space, compressed as gzip allows: in pieces, one behind the other.
fn compressed(length: u64) -> Vec<u8> {
    const PIECE: u64 = 16 * MIB;
    let piece = again(&vec![b' '; usize::try_from(PIECE).unwrap()]);
    let pieces = piece.repeat(usize::try_from(length / PIECE).unwrap());
    [again(HEAD.as_bytes()), pieces].concat()
}

/// The bytes, compressed (once more).
fn again(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::new(9));
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

struct Site {
    source: SampleSource,
    home: Home,
    daemon: Running,
}

impl Site {
    async fn start(limits: &str) -> Self {
        let source = SampleSource::start(resources(3)).await.unwrap();
        let home = Home::new(&source.url(), &format!("[limits]\n{limits}"));
        let daemon = home.run();
        home.settled(&source).await;
        Self {
            source,
            home,
            daemon,
        }
    }

    /// The Change List is a bomb: that is told with this code, and so much of it was taken. Answers how much.
    async fn meets(&self, what: &str, bomb: Bomb, code: &str) -> u64 {
        let (address, taken) = serve(bomb).await;
        self.source.fail(
            CHANGES,
            Fault::Redirect(format!("http://{address}{CHANGES}.gz")),
            usize::MAX,
        );
        let before = self.home.set().await.unwrap().error.map(|error| error.at);
        self.home.operator.poll(NAME).await;
        let set = self
            .home
            .until(what, |set| {
                let at = set.error.as_ref().map(|error| &error.at);
                at.is_some() && at != before.as_ref()
            })
            .await;
        self.source.heal(CHANGES);
        let (error, taken) = (set.error.unwrap(), taken.load(Ordering::Relaxed));
        assert_eq!(error.code, code, "{what}: {error:?}");
        self.assert_small(what);
        taken
    }

    #[track_caller]
    fn assert_small(&self, what: &str) {
        let peak = peak_memory(self.daemon.id());
        assert!(peak < 64 * MIB, "{what}: {peak} bytes of memory");
    }

    async fn goes_on(&self) {
        self.home.operator.poll(NAME).await;
        self.source.update(SET, "r0000.txt", "after the bombs");
        self.source.notify_and_publish(SET).await.unwrap();
        self.home.settled(&self.source).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn endless_document_is_left_at_the_limit() {
    let _turn = PROCESSOR.read().await;
    let site = Site::start("document = \"8MiB\"").await;
    let bomb = Bomb::plain("", "<url><loc>http://example.com/a</loc></url>", GIB);
    let taken = site.meets("a gibibyte", bomb, "too-large").await;
    assert!(taken < 64 * MIB, "{taken}");
    let bomb = Bomb::gzip(compressed(GIB), "Content-Encoding: gzip\r\n");
    site.meets("a gibibyte in one megabyte", bomb, "too-large")
        .await;
    site.goes_on().await;
}

/// Some of them would be a gibibyte, if the reader went on; each event has its limit, so that what lies before it is enough.
#[tokio::test(flavor = "multi_thread")]
async fn large_document_takes_no_memory() {
    let _turn = PROCESSOR.read().await;
    let site = Site::start("document = \"4GiB\"").await;
    let large = 12 * MIB;
    for (what, beginning, piece, length, code) in [
        (
            "one text",
            "<url><loc>",
            "http://example.com/",
            large,
            "event-too-large",
        ),
        (
            "one attribute",
            "<url><rs:md path=\"",
            "abcdefgh",
            large,
            "event-too-large",
        ),
        ("one tag", "<url><a ", "a='b' ", large, "event-too-large"),
        ("one comment", "<!--", " more", large, "event-too-large"),
        (
            "one entry",
            "<url>",
            "<rs:ln rel='x' href='http://example.com/'/>",
            large,
            "event-too-large",
        ),
        ("deep nesting", "", "<a>", large, "too-deep"),
        ("white space", "", " ", large, "event-too-large"),
        ("a million tiny elements", "", "<a/>", 4 * MIB, "cut-short"),
        ("tiny entries", "", "<url/>", 2 * MIB, "cut-short"),
    ] {
        site.meets(what, Bomb::plain(beginning, piece, length), code)
            .await;
    }
    // What is compressed ends where it is out of proportion, long before it is all there.
    let once = compressed(GIB);
    assert!(once.len() < 2 << 20);
    let twice = again(&once);
    for (what, bytes, headers) in [
        (
            "by name",
            once,
            "Content-Type: application/octet-stream\r\n",
        ),
        ("twice", twice, "Content-Encoding: gzip\r\n"),
    ] {
        site.meets(what, Bomb::gzip(bytes, headers), "expansion")
            .await;
    }
    site.goes_on().await;
}

/// Whether a channel has rejected so many.
fn rejected(set: &SetStatus, count: u64) -> bool {
    set.channels.iter().any(|channel| channel.rejected == count)
}

#[tokio::test(flavor = "multi_thread")]
async fn notification_that_is_a_bomb_is_rejected() {
    let _turn = PROCESSOR.read().await;
    let site = Site::start("").await;
    let topic = site.source.topic(SET, &Capability::ChangeNotification);
    // One piece: of several, the first would be enough to be refused.
    let once = again(&vec![b' '; 64 << 20]);
    for (number, body) in [again(&once), once].into_iter().enumerate() {
        let hub = site.source.hub().unwrap();
        hub.deliver(topic.as_str(), Bytes::from(body)).await;
        site.home
            .until("rejected", |set| rejected(set, number as u64 + 1))
            .await;
    }
    site.assert_small("compressed notifications");
    // As many entries as there is room for: they are all in memory at once, so their number has a limit, too.
    let entry = "<url><loc>/a</loc><rs:md change='deleted'/></url>";
    let head = HEAD.replace("changelist", "change-notification");
    let crowd = format!("{head}{}</urlset>", entry.repeat(50_001));
    site.source
        .hub()
        .unwrap()
        .deliver(topic.as_str(), Bytes::from(crowd))
        .await;
    site.home.until("rejected", |set| rejected(set, 3)).await;
    let peak = peak_memory(site.daemon.id());
    assert!(peak < 128 * MIB, "{peak} bytes of memory");
    site.goes_on().await;
}
