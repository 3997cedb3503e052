//! Documents that decompress to a large size, or are large in any other way: reading ends early, or takes little memory.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use resourcesync::Capability;
use resyncd::status::{SetStatus, StatusError};
use resyncd_testkit::{Fault, SampleSource};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::hostile::PROCESSOR;
use crate::hostile::floods::peak_memory;
use crate::support::process::{Home, Running};
use crate::support::{NAME, SET, resources};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const CHANGES: &str = "/set1/changelist.xml";
const HEAD: &str = r#"<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/"><rs:md capability="changelist" from="2026-01-01T00:00:00Z"/>"#;

/// A response body: a beginning, then one piece repeated.
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

    /// Serves it to one peer; `sent` becomes the most bytes that were sent to one.
    async fn serve(&self, mut peer: TcpStream, sent: &AtomicU64) {
        let mut request = [0; 4096];
        let _ = peer.read(&mut request).await;
        let head = format!(
            "HTTP/1.1 200 OK\r\nConnection: close\r\n{}\r\n",
            self.headers
        );
        let mut remaining = self.length;
        let mut next = &self.beginning;
        let _ = peer.write_all(head.as_bytes()).await;
        while remaining > 0 && !next.is_empty() {
            let chunk = &next[..next
                .len()
                .min(usize::try_from(remaining).unwrap_or(usize::MAX))];
            if peer.write_all(chunk).await.is_err() {
                return;
            }
            remaining -= chunk.len() as u64;
            sent.fetch_max(self.length - remaining, Ordering::Relaxed);
            next = &self.piece;
        }
    }
}

/// Serves a bomb to every client; returns the address and the most bytes that were sent to one.
async fn serve(bomb: Bomb) -> (SocketAddr, Arc<AtomicU64>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let (address, sent) = (listener.local_addr().unwrap(), Arc::new(AtomicU64::new(0)));
    let counter = sent.clone();
    tokio::spawn(async move {
        while let Ok((peer, _)) = listener.accept().await {
            let (bomb, counter) = (bomb.clone(), counter.clone());
            tokio::spawn(async move { bomb.serve(peer, &counter).await });
        }
    });
    (address, sent)
}

/// A document with this number of bytes of white space, compressed as several gzip members.
fn compressed_spaces(length: u64) -> Vec<u8> {
    const PIECE: u64 = 16 * MIB;
    let piece = compress(&vec![b' '; usize::try_from(PIECE).unwrap()]);
    let pieces = piece.repeat(usize::try_from(length / PIECE).unwrap());
    [compress(HEAD.as_bytes()), pieces].concat()
}

/// The bytes, compressed.
fn compress(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::new(9));
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

struct Site {
    source: SampleSource,
    home: Home,
    daemon: Running,
    /// What it had in memory before the first bomb, in bytes: much of it is the program itself.
    at_rest: u64,
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
            at_rest: peak_memory(daemon.id()),
            daemon,
        }
    }

    /// What bombs have taken of memory.
    fn growth(&self) -> u64 {
        peak_memory(self.daemon.id()) - self.at_rest
    }

    /// Polls a Change List that is a bomb and checks the code of the error. Returns how many bytes were sent at
    /// most in one answer: the poll may be repeated.
    async fn poll_bomb(&self, what: &str, bomb: Bomb, code: &str) -> u64 {
        let (address, sent) = serve(bomb).await;
        self.source.fail(
            CHANGES,
            Fault::Redirect(format!("http://{address}{CHANGES}.gz")),
            usize::MAX,
        );
        let before = self.home.until("the status", |_| true).await;
        let before = before.error.map(|error| error.at);
        self.home.operator.poll(NAME).await;
        self.home
            .until(what, |set| {
                // A poll that was due may have read the one before.
                let is_new =
                    |error: &StatusError| Some(&error.at) != before.as_ref() && error.code == code;
                set.error.as_ref().is_some_and(is_new)
            })
            .await;
        self.source.heal(CHANGES);
        let sent = sent.load(Ordering::Relaxed);
        self.assert_small(what);
        sent
    }

    #[track_caller]
    fn assert_small(&self, what: &str) {
        let growth = self.growth();
        assert!(growth < 32 * MIB, "{what}: {growth} bytes of memory");
    }

    async fn check_keeps_working(&self) {
        self.home.operator.poll(NAME).await;
        self.source.update(SET, "r0000.txt", "after the bombs");
        self.source.notify_and_publish(SET).await.unwrap();
        self.home.settled(&self.source).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn endless_document_is_cut_off_at_the_size_limit() {
    let _permit = PROCESSOR.read().await;
    let site = Site::start("document = \"8MiB\"").await;
    let bomb = Bomb::plain("", "<url><loc>http://example.com/a</loc></url>", GIB);
    let sent = site.poll_bomb("a gibibyte", bomb, "too-large").await;
    assert!(sent < 64 * MIB, "{sent}");
    let bomb = Bomb::gzip(compressed_spaces(GIB), "Content-Encoding: gzip\r\n");
    site.poll_bomb("a gibibyte in one megabyte", bomb, "too-large")
        .await;
    site.check_keeps_working().await;
}

/// Each XML event has a size limit, so that bodies of a few megabytes suffice. The compressed ones unpack to a gibibyte.
#[tokio::test(flavor = "multi_thread")]
async fn large_document_takes_no_memory() {
    let _permit = PROCESSOR.read().await;
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
        site.poll_bomb(what, Bomb::plain(beginning, piece, length), code)
            .await;
    }
    // Decompression ends when the ratio is exceeded, long before the end of the data.
    let once = compressed_spaces(GIB);
    assert!(once.len() < 2 << 20);
    let twice = compress(&once);
    for (what, bytes, headers) in [
        (
            "by name",
            once,
            "Content-Type: application/octet-stream\r\n",
        ),
        ("twice", twice, "Content-Encoding: gzip\r\n"),
    ] {
        site.poll_bomb(what, Bomb::gzip(bytes, headers), "expansion")
            .await;
    }
    site.check_keeps_working().await;
}

/// Whether a channel has rejected this number of deliveries.
fn rejected(set: &SetStatus, count: u64) -> bool {
    set.channels.iter().any(|channel| channel.rejected == count)
}

#[tokio::test(flavor = "multi_thread")]
async fn notification_that_is_a_bomb_is_rejected() {
    let _permit = PROCESSOR.read().await;
    let site = Site::start("").await;
    let topic = site.source.topic(SET, &Capability::ChangeNotification);
    // One gzip member: of several, the first would be rejected already.
    let once = compress(&vec![b' '; 64 << 20]);
    for (number, body) in [compress(&once), once].into_iter().enumerate() {
        let hub = site.source.hub().unwrap();
        hub.deliver(topic.as_str(), Bytes::from(body)).await;
        site.home
            .until("rejected", |set| rejected(set, number as u64 + 1))
            .await;
    }
    site.assert_small("compressed notifications");
    // The entries of a notification are in memory at once, so that their number is limited, too.
    let entry = "<url><loc>/a</loc><rs:md change='deleted'/></url>";
    let head = HEAD.replace("changelist", "change-notification");
    let crowd = format!("{head}{}</urlset>", entry.repeat(50_001));
    site.source
        .hub()
        .unwrap()
        .deliver(topic.as_str(), Bytes::from(crowd))
        .await;
    site.home.until("rejected", |set| rejected(set, 3)).await;
    let growth = site.growth();
    assert!(growth < 84 * MIB, "{growth} bytes of memory");
    site.check_keeps_working().await;
}
