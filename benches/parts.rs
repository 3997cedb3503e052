//! Measures the parts that decide and compute, without network, disk or database: the steps that every entry and every resource
//! takes. Run it with `cargo bench --bench parts`; criterion compares each run with the one before. `-- --test` runs everything once.

#![allow(clippy::disallowed_methods, reason = "a benchmark makes its input")]

use std::fmt::Write as _;
use std::hint::black_box;

use criterion::{Criterion, Throughput};
use resourcesync::{
    Algorithm, ChangeKind, Digest, DocumentReader, DocumentSummary, Entry, Interval, SourceTime,
    Verifier,
};
use resyncd_core::{
    Coverage, Record, ResourceUri, Revision, SetFacts, SetKey, Stated, Voice, apply, decide,
};
use resyncd_mirror::{made_path, plain_path};
use url::Url;
use websub::{Signature, SignatureMethod};

/// Entries of a document, and whatever else there is one of for each.
const ENTRIES: usize = 10_000;
/// The time of the documents: 2026-01-05T00:00:00Z, in microseconds.
const AT: i64 = 1_767_571_200_000_000;

type BenchResult<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> BenchResult<()> {
    let mut criterion = Criterion::default().without_plots().configure_from_args();
    let base = Url::parse("https://source.example.org/lists/resourcelist.xml")?;
    documents(&mut criterion, &base)?;
    deciding(&mut criterion, &base)?;
    paths(&mut criterion)?;
    verification(&mut criterion);
    signatures(&mut criterion);
    coverage(&mut criterion);
    criterion.final_summary();
    Ok(())
}

/// A Resource List.
fn resource_list() -> String {
    document(
        "capability=\"resourcelist\" at=\"2026-01-05T00:00:00Z\"",
        "",
    )
}

/// A Change List: each resource was updated once.
fn change_list() -> String {
    document(
        "capability=\"changelist\" from=\"2026-01-01T00:00:00Z\" until=\"2026-01-05T00:00:00Z\"",
        " change=\"updated\" datetime=\"2026-01-02T03:04:05Z\"",
    )
}

/// `md`: the attributes of the head; `of_entry`: those of each entry besides its content.
fn document(md: &str, of_entry: &str) -> String {
    let mut text = format!(
        "<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" \
         xmlns:rs=\"http://www.openarchives.org/rs/terms/\">\n<rs:md {md}/>\n"
    );
    for number in 0..ENTRIES {
        let digest = Digest::of(Algorithm::Sha256, &number.to_le_bytes());
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "<url><loc>https://source.example.org/articles/{:03}/{number:07}.html</loc>\
             <lastmod>2026-01-02T03:04:05Z</lastmod>\
             <rs:md{of_entry} hash=\"{digest}\" length=\"4096\" type=\"text/html\"/></url>",
            number % 1000
        );
    }
    text + "</urlset>\n"
}

fn read_all(text: &str, base: &Url) -> BenchResult<Vec<Entry>> {
    let mut reader = DocumentReader::open(text.as_bytes(), base)?;
    let mut entries = Vec::new();
    while let Some(entry) = reader.next_entry()? {
        entries.push(entry);
    }
    Ok(entries)
}

fn documents(criterion: &mut Criterion, base: &Url) -> BenchResult<()> {
    let mut group = criterion.benchmark_group("document");
    for (name, text) in [
        ("resource list", resource_list()),
        ("change list", change_list()),
    ] {
        // Each is valid; the measurement itself ignores errors.
        assert_eq!(read_all(&text, base)?.len(), ENTRIES);
        group.throughput(Throughput::Elements(ENTRIES as u64));
        group.bench_function(format!("{name}, read"), |bencher| {
            bencher.iter(|| {
                let mut reader = DocumentReader::open(text.as_bytes(), base).ok()?;
                while let Ok(Some(entry)) = reader.next_entry() {
                    black_box(entry);
                }
                Some(())
            });
        });
        group.bench_function(format!("{name}, summarized"), |bencher| {
            bencher.iter(|| {
                let reader = DocumentReader::open(text.as_bytes(), base).ok()?;
                DocumentSummary::read(reader, SourceTime::from_micros(AT)).ok()
            });
        });
    }
    group.finish();
    Ok(())
}

/// What each entry means beside what is stated of its resource, and what is to be done then: of a resource that has not changed, and of one
/// that has.
fn deciding(criterion: &mut Criterion, base: &Url) -> BenchResult<()> {
    let listed = read_all(&resource_list(), base)?;
    let changed = read_all(&change_list(), base)?;
    let known: Vec<_> = listed
        .iter()
        .map(|entry| stated(entry, listing()))
        .collect();
    let mut group = criterion.benchmark_group("decide");
    group.throughput(Throughput::Elements(ENTRIES as u64));
    for (name, entries, what) in [
        ("listed again", &listed, listing()),
        ("changed", &changed, Stated::Change(ChangeKind::Updated)),
    ] {
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                for (entry, known) in entries.iter().zip(&known) {
                    let mut statements = Vec::new();
                    let mut revision = Revision::default();
                    apply(&mut statements, known, false, &mut revision);
                    apply(&mut statements, &stated(entry, what), false, &mut revision);
                    let record = Record::default();
                    black_box(decide(&statements, |_| SetFacts::default(), &record, false));
                }
            });
        });
    }
    group.finish();
    Ok(())
}

fn listing() -> Stated {
    Stated::Listed(SourceTime::from_micros(AT))
}

fn stated(entry: &Entry, stated: Stated) -> resyncd_core::Entry {
    resyncd_core::Entry {
        set: SetKey(1),
        voice: Voice::Source,
        stated,
        at: entry.changed_at(),
        lastmod: entry.lastmod,
        content: entry.md.content.clone(),
    }
}

fn paths(criterion: &mut Criterion) -> BenchResult<()> {
    let text = "https://source.example.org/articles/2026/01/an-article.html?version=2&format=html";
    let uri = ResourceUri::parse(text)?;
    let mut group = criterion.benchmark_group("path");
    group.bench_function("URI parsed", |bencher| {
        bencher.iter(|| ResourceUri::parse(black_box(text)));
    });
    group.bench_function("plain", |bencher| {
        bencher.iter(|| plain_path(black_box(&uri)))
    });
    group.bench_function("made", |bencher| {
        bencher.iter(|| made_path(black_box(&uri)))
    });
    group.finish();
    Ok(())
}

/// Bytes that are counted and hashed, as each download is.
fn verification(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("verify");
    for size in [4 << 10, 1 << 20] {
        let bytes = vec![b'x'; size];
        let digests = [Digest::of(Algorithm::Sha256, &bytes)];
        group.throughput(Throughput::Bytes(size as u64));
        group.bench_function(format!("SHA-256 of {} KiB", size >> 10), |bencher| {
            bencher.iter(|| {
                let mut verifier = Verifier::new(Some(size as u64), &digests);
                verifier.update(black_box(&bytes))?;
                verifier.finish()
            });
        });
    }
    group.finish();
}

/// The signature of a notification of about a hundred changes.
fn signatures(criterion: &mut Criterion) {
    let (secret, body) = (b"a secret of a channel".as_slice(), vec![b'x'; 32 << 10]);
    let signature = Signature::sign(SignatureMethod::Sha256, secret, &body);
    let mut group = criterion.benchmark_group("signature");
    group.throughput(Throughput::Bytes(body.len() as u64));
    group.bench_function("32 KiB verified", |bencher| {
        bencher.iter(|| signature.verifies(secret, black_box(&body)));
    });
    group.finish();
}

/// A thousand notifications, each with a gap before it, and then the Change List that closes all gaps.
fn coverage(criterion: &mut Criterion) {
    let interval = |from: i64, until: i64| {
        Interval::new(
            SourceTime::from_micros(AT + from),
            SourceTime::from_micros(AT + until),
        )
    };
    let notifications: Vec<_> = (0..1000)
        .filter_map(|number| interval(number * 10 + 5, number * 10 + 10))
        .collect();
    let list = interval(0, 10_000);
    criterion.bench_function("coverage of 1,000 gaps", |bencher| {
        bencher.iter(|| {
            let mut coverage = Coverage::default();
            for notification in &notifications {
                coverage.cover(*notification);
            }
            if let Some(list) = list {
                coverage.cover(list);
            }
            coverage
        });
    });
}
