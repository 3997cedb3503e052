//! Sources of the draft of version 0.1 whose Change Sets name each other without end, or whose dump has a record without one.

use std::convert::Infallible;
use std::io::Write;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::{Body, Bytes};
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::{StreamExt, stream};
use resyncd::status::SetStatus;

use crate::support::site::{GuardedDaemon, PUBLIC, Site, number, ok, status};
use crate::support::{Destination, eventually, files};

/// How many Change Sets are read in one poll.
const MOST: usize = 1000;
const NAMESPACES: &str = r#"xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/" xmlns:xhtml="http://www.w3.org/1999/xhtml""#;
const CHANGE_SET: &str = "http://www.openarchives.org/rs/changeset";

fn document(root: &str, link: &str, entry: &str) -> String {
    let modified = r#"<xhtml:meta name="DCTERMS.modified" content="2012-08-08T12:00:00Z"/>"#;
    format!("<urlset {root} {NAMESPACES}>{modified}{link}{entry}</urlset>")
}

/// A site whose Change Set of a number names the one of the number that `before` returns; counts the requests for Change Sets but the
/// first.
async fn site(before: impl Fn(usize) -> usize + Send + Sync + 'static) -> (Site, Arc<AtomicUsize>) {
    let requested = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&requested);
    let site = Site::start(PUBLIC, |address| {
        let base = format!("http://{address}");
        move |path: &str, _: &_| match path {
            "/sitemap.xml" => {
                let link =
                    format!(r#"<xhtml:link rel="current {CHANGE_SET}" href="{base}/sets/0"/>"#);
                let entry = format!(
                    "<url><loc>{base}/r/0</loc><lastmod>2012-08-08T08:00:00Z</lastmod></url>"
                );
                ok(document("", &link, &entry))
            }
            "/r/0" => ok("resource"),
            path if path.starts_with("/sets/") => {
                let number = number(path);
                counted.fetch_add(usize::from(number > 0), Ordering::Relaxed);
                let before = before(number);
                let link =
                    format!(r#"<xhtml:link rel="prev {CHANGE_SET}" href="{base}/sets/{before}"/>"#);
                let (minute, second) = (59 - number / 60 % 60, 59 - number % 60);
                let entry = format!(
                    "<url><loc>{base}/r/0</loc><lastmod rs:type=\"updated\">2012-08-08T14:{minute:02}:{second:02}Z</lastmod></url>"
                );
                ok(document("rs:type=\"changeset\"", &link, &entry))
            }
            _ => status(404),
        }
    })
    .await;
    (site, requested)
}

/// Follows the site; returns its set once it is reported that not all Change Sets are read.
async fn followed(site: &Site, requested: &AtomicUsize) -> (GuardedDaemon, SetStatus) {
    let daemon = GuardedDaemon::follow(site.url("/sitemap.xml")).await;
    // Each hundred within the limit of a test, not all of them.
    for expected in (100..MOST).step_by(100) {
        eventually("Change Sets are requested", None, async || match requested
            .load(Ordering::Relaxed)
        {
            number if number >= expected => Ok(()),
            number => Err(format!("{number} of {expected}")),
        })
        .await;
    }
    let is_reported = |set: &SetStatus| {
        let mut notices = set.notices.iter();
        let is_cut = notices.any(|notice| notice.code == "change-sets-cut");
        is_cut && !set.gaps.is_empty() && set.pending == 0
    };
    let sets = daemon
        .until("reported", |sets| sets.iter().any(is_reported))
        .await;
    (daemon, sets[0].clone())
}

/// Waits for another poll: all Change Sets were read, and none is requested again but the first. Once the poll after it begins, it has
/// ended.
async fn only_the_first_is_polled(
    daemon: &GuardedDaemon,
    set: &SetStatus,
    requested: &AtomicUsize,
) {
    let read = requested.load(Ordering::Relaxed);
    assert!(read >= MOST - 1, "{read}");
    let mut last = set.last_poll_at.clone();
    for _ in 0..2 {
        let sets = daemon
            .until("polled again", |sets| sets[0].last_poll_at != last)
            .await;
        last = sets[0].last_poll_at.clone();
    }
    assert_eq!(requested.load(Ordering::Relaxed), read);
}

#[tokio::test(flavor = "multi_thread")]
async fn ring_of_a_thousand_change_sets_is_read_once() {
    let (site, requested) = site(|number| (number + 1) % 1000).await;
    let (daemon, set) = followed(&site, &requested).await;
    let notice = set
        .notices
        .iter()
        .find(|notice| notice.code == "change-sets-cut");
    let message = &notice.unwrap().message;
    assert!(message.contains("named again"), "{message}");
    // Of what they state nothing is lost, and what they do not prove is not claimed.
    assert_eq!(files(&daemon.config.sources[0].mirror).len(), 1);
    assert_eq!(set.synced_until.as_deref(), Some("2012-08-08T12:00:00Z"));
    only_the_first_is_polled(&daemon, &set, &requested).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn change_sets_without_end_are_cut() {
    let (site, requested) = site(|number| number + 1).await;
    let (daemon, set) = followed(&site, &requested).await;
    assert_eq!(set.gaps.len(), 1, "{set:#?}");
    assert_eq!(files(&daemon.config.sources[0].mirror).len(), 1);
    only_the_first_is_polled(&daemon, &set, &requested).await;
}

/// The beginning of a record that states this length.
fn record(length: u64) -> String {
    format!(
        "WARC/1.1\r\nWARC-Type: resource\r\nWARC-Target-URI: http://example.com/r/1\r\nWARC-Date: 2012-08-08T08:00:00Z\r\n\
         Content-Length: {length}\r\n\r\n"
    )
}

/// A record that is sent without end.
fn endless() -> Body {
    let begin = Bytes::from(record(1 << 62));
    let more = stream::repeat(Bytes::from_static(&[b'x'; 64 << 10]));
    let pieces = stream::once(std::future::ready(begin)).chain(more);
    Body::from_stream(pieces.map(Ok::<_, Infallible>))
}

/// A small WARC whose record becomes a thousand times as long.
fn inflating() -> Bytes {
    let length = 256 << 20;
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(record(length).as_bytes()).unwrap();
    let piece = vec![0; 1 << 20];
    (0..length >> 20).for_each(|_| packed.write_all(&piece).unwrap());
    packed.finish().unwrap().into()
}

#[tokio::test(flavor = "multi_thread")]
async fn warc_of_one_endless_record_is_cut_and_the_sitemap_read() {
    const LIMIT: u64 = 4 << 20;
    // It takes a while: no request may wait for it.
    let inflating = inflating();
    let dumps: [(Arc<dyn Fn() -> Body + Send + Sync>, _); 2] = [
        (Arc::new(endless), "too-large"),
        (Arc::new(move || Body::from(inflating.clone())), "expansion"),
    ];
    for (dump, code) in dumps {
        let site = Site::start(Ipv4Addr::LOCALHOST, |address| {
            let base = format!("http://{address}");
            move |path: &str, _: &_| match path {
                "/sitemap.xml" => {
                    let link = format!(
                        r#"<xhtml:link rel="http://www.openarchives.org/rs/dump" href="{base}/dump.warc"/>"#
                    );
                    let lastmod = "<lastmod>2012-08-08T08:00:00Z</lastmod>";
                    let entry = format!("<url><loc>{base}/r/0</loc>{lastmod}</url>");
                    ok(document("", &link, &entry))
                }
                "/r/0" => ok("resource"),
                "/dump.warc" => ok(dump()),
                _ => status(404),
            }
        })
        .await;
        let destination = Destination::start(site.url("/sitemap.xml"), |config| {
            config.limits.package = Some(LIMIT);
        })
        .await;
        let set = destination
            .until(code, |set| {
                let mut errors = set.errors.iter();
                let is_reported = errors.any(|error| error.code == code);
                is_reported && set.resources == 1 && set.pending == 0
            })
            .await;
        assert_eq!(set.failed, 0, "{set:#?}");
        let stored = files(&destination.config.sources[0].mirror);
        assert_eq!(stored.len(), 1, "{code}");
    }
}
