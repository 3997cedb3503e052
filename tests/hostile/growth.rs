//! Time and memory grow with the length of a document, and no faster: whatever is repeated in it, and however short the
//! references are.

use std::time::Duration;

use resourcesync::uri::MAX_URI_BYTES;
use resourcesync::{
    Capability, Document, DocumentReader, DocumentSummary, Oddity, ReadError, SourceTime,
    read_document,
};
use rustix::time::{ClockId, clock_gettime};
use url::Url;

use crate::hostile::PROCESSOR;

const NAMESPACES: &str = r#"xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/""#;
const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// How often something is repeated; then eight times as often.
const TIMES: usize = 250;
/// How much longer a document may take that is eight times as long.
const MOST_GROWTH: u32 = 30;
/// What takes less is not compared.
const MEASURABLE: Duration = Duration::from_millis(1);

/// A URL of that length.
fn long_base(length: usize) -> Url {
    let begin = "http://example.org/";
    Url::parse(&format!("{begin}{}", "p".repeat(length - begin.len()))).unwrap()
}

fn document(capability: Capability, head: &str, entries: &str) -> String {
    format!(
        "<urlset {NAMESPACES}>{head}<rs:md capability=\"{capability}\" at=\"2026-01-01\" from=\"2026-01-01\" until=\"2026-01-02\"/>{entries}</urlset>"
    )
}

fn capabilities() -> [Capability; 5] {
    [
        Capability::Description,
        Capability::CapabilityList,
        Capability::ChangeNotification,
        Capability::ChangeList,
        Capability::ResourceList,
    ]
}

/// What the URIs of a document take, in bytes.
fn held(document: &Document) -> usize {
    let links = document.entries.iter().flat_map(|entry| &entry.links);
    let links = links.chain(&document.head.links).map(|link| &link.href);
    let locs = document.entries.iter().map(|entry| &entry.loc);
    links.chain(locs).map(|uri| uri.as_str().len()).sum()
}

fn read(base: &Url, text: &str) -> Result<Document, ReadError> {
    read_document(text.as_bytes(), base)
}

#[test]
fn relative_references_take_no_more_memory_than_their_limits() {
    let links = "<rs:ln rel='x' href='?'/>".repeat(30_000);
    let many = |entry: &str| entry.repeat(40_000);
    for capability in capabilities() {
        let entry = |loc: &str, links: &str| format!("<url><loc>{loc}</loc>{links}</url>");
        let own = entry("http://example.org/a", &links);
        for (base, head, entries, most) in [
            // What is longer than a URI may be is not resolved.
            (60 * KIB, &*links, "", 0),
            (60 * KIB, "", &*own, 100),
            (60 * KIB, "", &*many(&entry("?", "")), 0),
            // The number of links of an entry is limited, and so is their length.
            (100, "", &*own, 10 * KIB),
            (8000, "", &*own, 24 * KIB),
            (8000, &*links, "", 256 * KIB),
        ] {
            let text = document(capability.clone(), head, entries);
            let read = read(&long_base(base), &text).unwrap();
            let held = held(&read);
            assert!(held <= most, "{capability} at {base} bytes holds {held}");
            let counted = [Oddity::LongUri, Oddity::TooManyLinks];
            assert!(
                counted
                    .iter()
                    .any(|&oddity| read.oddities.count(oddity) > 1000)
            );
        }
        // Within the limit of each URI, all of them together would have 320 MB.
        let text = document(capability, "", &many(&entry("?", "")));
        let error = read(&long_base(8000), &text).unwrap_err();
        assert_eq!(error.code(), "uri-expansion");
    }
}

#[test]
fn relative_references_end_a_document_before_they_fill_the_memory() {
    let entry = "<url><loc>?</loc><rs:ln rel='hub' href='#'/></url>";
    let text = document(Capability::ChangeNotification, "", &entry.repeat(40_000));
    let mut reader = DocumentReader::open(text.as_bytes(), &long_base(8000)).unwrap();
    let mut held = 0;
    let error = loop {
        match reader.next_entry() {
            Ok(entry) => {
                let entry = entry.unwrap();
                held += entry.loc.as_str().len();
                held += entry
                    .links
                    .iter()
                    .map(|link| link.href.as_str().len())
                    .sum::<usize>();
            }
            Err(error) => break error,
        }
    };
    assert_eq!(error.code(), "uri-expansion");
    assert!(held < 16 * MIB + 5 * text.len(), "{held}");
}

#[test]
fn uris_up_to_the_limit_are_read() {
    let loc = long_base(MAX_URI_BYTES);
    let text = document(
        Capability::ResourceList,
        "",
        &format!("<url><loc>{loc}</loc></url><url><loc>{loc}p</loc></url>"),
    );
    let read = read(&long_base(100), &text).unwrap();
    assert_eq!(read.entries.len(), 1);
    assert_eq!(read.entries[0].loc, loc);
    assert_eq!(read.oddities.count(Oddity::LongUri), 1);
    // What it names is unknown: the list is not complete, and a Change List covers nothing.
    assert_eq!(read.oddities.bad_entries(), 1);
    assert_eq!(read.oddities.damaged_entries(), 1);
}

#[test]
fn page_that_is_not_read_for_its_length_is_missing() {
    let link = "<rs:ln rel='x' href='http://example.org/'/>";
    for (links, bad) in [(10, 0), (100, 1)] {
        let next = format!("{}<rs:ln rel='next' href='/2'/>", link.repeat(links));
        let text = document(Capability::ResourceList, &next, "");
        let read = read(&long_base(100), &text).unwrap();
        assert_eq!(read.oddities.bad_entries(), bad);
        assert_eq!(read.oddities.damaged_entries(), bad);
    }
}

/// The processor time of this thread. On a busy machine, what takes longer is interrupted more often, and waits each time.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Duration::new(seconds.unwrap(), nanos.unwrap())
}

/// The processor time that reading a document takes as it is read by the engine.
fn time_of(base: &Url, text: &str) -> Duration {
    let begin = processor_time();
    let reader = DocumentReader::open(text.as_bytes(), base).unwrap();
    DocumentSummary::read(reader, SourceTime::MAX).unwrap();
    read(base, text).unwrap();
    processor_time() - begin
}

#[tokio::test]
async fn reading_takes_time_in_proportion_to_the_length() {
    let base = long_base(100);
    let link = |rel: &str, n: usize| format!("<rs:ln rel='{rel}' href='http://h.example/{n}'/>");
    let links = |rel: &str, times: usize| -> String { (0..times).map(|n| link(rel, n)).collect() };
    let entries = |times: usize, inside: &str| -> String {
        let entry = |n| format!("<url><loc>http://example.org/{n}</loc>{inside}</url>");
        (0..times).map(entry).collect()
    };
    let odd = "<rs:md hash='x' length='' change='?' datetime='0' capability='x-1'/><rs:ln/>";
    let channel = |inside: &str| {
        format!(
            "<url><loc>http://example.org/c</loc><rs:md capability='change-notification'/>{inside}</url>"
        )
    };
    type Shape<'a> = (&'static str, Box<dyn Fn(usize) -> (String, String) + 'a>);
    let shapes: [Shape<'_>; 7] = [
        (
            "many hubs of a channel",
            Box::new(|times| (String::new(), channel(&links("hub", times)))),
        ),
        (
            "many channels with hubs",
            Box::new(|times| (links("hub", 64), channel(&links("hub", 3)).repeat(times))),
        ),
        (
            "many head links",
            Box::new(|times| {
                (
                    links("alternate", times) + &link("up", 0),
                    entries(times, ""),
                )
            }),
        ),
        (
            "many links of an entry",
            Box::new(|times| (String::new(), entries(1, &links("duplicate", times)))),
        ),
        (
            "many entries with links",
            Box::new(|times| (String::new(), entries(times / 10, &links("duplicate", 70)))),
        ),
        (
            "many oddities",
            Box::new(|times| (String::new(), entries(times, odd))),
        ),
        (
            "one long text",
            Box::new(|times| {
                (
                    String::new(),
                    entries(1, &"<lastmod>&amp;&lt;</lastmod>".repeat(times)),
                )
            }),
        ),
    ];
    for capability in capabilities() {
        for (name, shape) in &shapes {
            let text = |times: usize| {
                let (head, entries) = shape(times);
                document(capability.clone(), &head, &entries)
            };
            let (short, long) = (text(TIMES), text(8 * TIMES));
            let mut tries = 0;
            // A busy machine may disturb a measurement, but not each of them.
            loop {
                let _processor = PROCESSOR.read().await;
                let (once, eightfold) = (time_of(&base, &short), time_of(&base, &long));
                if eightfold < MOST_GROWTH * once.max(MEASURABLE) {
                    break;
                }
                tries += 1;
                assert!(
                    tries < 8,
                    "{name} of a {capability}: {once:?}, then {eightfold:?}"
                );
            }
        }
    }
}
