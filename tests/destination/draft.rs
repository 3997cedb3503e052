//! Sources of the draft of version 0.1: a Sitemap stands for the Capability List, and its head names Change Sets and dumps.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use resourcesync::{Algorithm, Digest};
use resyncd::config::{Config, Source};
use resyncd::status::SetStatus;
use resyncd_testkit::{Fault, SampleSource};

use crate::destination::packing::{tar_of, warc_record};
use crate::destination::selection::selecting;
use crate::support::{Rig, eventually, files, only_pages, path_of, put_zip};

const SITEMAP: &str = "/sitemap.xml";
const CURRENT: &str = "/changesets/most_recent.xml";
const NAMESPACES: &str = r#"xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/" xmlns:xhtml="http://www.w3.org/1999/xhtml""#;

/// A time of the day of the examples; most tests write only the hour.
fn at(time: &str) -> String {
    match time.len() {
        2 => format!("2012-08-08T{time}:00:00Z"),
        _ => time.to_owned(),
    }
}

fn loc(path: &str) -> String {
    format!("<loc>{{site}}{path}</loc>")
}

/// An entry of a Sitemap.
fn listed(path: &str, time: &str) -> String {
    let time = at(time);
    format!("<url>{}<lastmod>{time}</lastmod></url>", loc(path))
}

fn expired(path: &str, time: &str) -> String {
    let time = at(time);
    format!("<url>{}<expires>{time}</expires></url>", loc(path))
}

/// An entry of a Change Set that states no deletion.
fn changed(path: &str, kind: &str, time: &str) -> String {
    let time = at(time);
    let lastmod = format!("<lastmod rs:type=\"{kind}\">{time}</lastmod>");
    format!("<url>{}{lastmod}</url>", loc(path))
}

/// A link of the head.
fn link(rel: &str, path: &str) -> String {
    format!("<xhtml:link href=\"{{site}}{path}\" rel=\"{rel}\"/>")
}

fn change_set_link(which: &str, path: &str) -> String {
    let rel = format!("{which} http://www.openarchives.org/rs/changeset");
    link(&rel, path)
}

fn document(root: &str, modified: &str, links: &[String], entries: &[String]) -> String {
    let meta = match modified {
        "" => String::new(),
        time => {
            let time = at(time);
            format!("<xhtml:meta name=\"DCTERMS.modified\" content=\"{time}\"/>")
        }
    };
    let (links, entries) = (links.concat(), entries.concat());
    format!("<urlset {root} {NAMESPACES}>{meta}{links}{entries}</urlset>")
}

fn sitemap(modified: &str, links: &[String], entries: &[String]) -> String {
    document("", modified, links, entries)
}

/// A Change Set; `before`: the path of the one before it.
fn change_set(before: Option<&str>, entries: &[String]) -> String {
    let mut links = vec![change_set_link("current", CURRENT)];
    links.extend(before.map(|path| change_set_link("prev", path)));
    document("rs:type=\"changeset\"", "23", &links, entries)
}

/// A site that the test writes, and a daemon that follows its Sitemap.
struct Draft(Rig);

/// A site of these pages. The content of each is its path.
async fn site(pages: &[&str]) -> SampleSource {
    let source = SampleSource::start(only_pages()).await.unwrap();
    source.fail("/.well-known/resourcesync", Fault::Status(404), usize::MAX);
    for page in pages {
        put(&source, page, page);
    }
    source
}

fn put(source: &SampleSource, path: &str, text: &str) {
    let base = source.base();
    let text = text.replace("{site}", base.as_str().trim_end_matches('/'));
    source.put_document(path, "text/plain", text);
}

impl Draft {
    async fn follow(source: SampleSource) -> Self {
        Self::follow_with(source, |_| {}).await
    }

    async fn follow_with(source: SampleSource, change: impl FnOnce(&mut Source)) -> Self {
        let url = source.base().join(SITEMAP).unwrap();
        let configure = |config: &mut Config| {
            config.sources[0].url = url;
            config.sources[0].poll_interval = Duration::from_secs(1);
            change(&mut config.sources[0]);
        };
        Self(Rig::follow(source, configure).await)
    }

    fn put(&self, path: &str, text: &str) {
        put(&self.0.source, path, text);
    }

    fn hits(&self, path: &str) -> u64 {
        self.0.source.hits(path)
    }

    /// Waits until the set satisfies a condition.
    async fn until(&self, what: &str, wanted: impl Fn(&SetStatus) -> bool) -> SetStatus {
        eventually(what, Some(self.0.wakes()), async || {
            let status = self.0.operator.status().await;
            let sets = status.sources.into_iter().flat_map(|source| source.sets);
            let sets: Vec<SetStatus> = sets.collect();
            match &sets[..] {
                [set] if wanted(set) => Ok(set.clone()),
                sets => Err(format!("{sets:#?}")),
            }
        })
        .await
    }

    async fn in_sync_until(&self, time: &str) -> SetStatus {
        let wanted = at(time);
        let what = format!("in sync until {wanted}");
        let set = self.until(&what, |set| {
            let until = set.synced_until.as_deref();
            set.state == "in-sync" && set.pending == 0 && until == Some(wanted.as_str())
        });
        set.await
    }

    /// Waits until the mirror holds exactly these pages.
    async fn until_pages(&self, pages: &[(&str, &str)]) {
        let base = self.0.source.base();
        let mut wanted = String::new();
        for (page, text) in pages {
            let path = path_of(&base.join(page).unwrap());
            writeln!(wanted, "{path} {text}").unwrap();
        }
        eventually("pages mirrored", Some(self.0.wakes()), async || {
            let mut found = String::new();
            for (path, bytes) in files(&self.0.config.sources[0].mirror) {
                writeln!(found, "{path} {}", String::from_utf8_lossy(&bytes)).unwrap();
            }
            if found == wanted {
                Ok(())
            } else {
                Err(format!("{found}, not {wanted}"))
            }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_entry_of_a_sitemap_is_a_deletion() {
    let source = site(&["/a", "/b", "/c", "/d"]).await;
    let entries = [
        listed("/a", "08"),
        expired("/b", "09"),
        // It is to be deleted, some time.
        expired("/c", "2999-01-01T00:00:00Z"),
        listed("/d", "08"),
    ];
    put(&source, SITEMAP, &sitemap("", &[], &entries));
    let draft = Draft::follow(source).await;
    draft
        .until_pages(&[("/a", "/a"), ("/c", "/c"), ("/d", "/d")])
        .await;
    assert_eq!(draft.hits("/b"), 0, "what is deleted is not requested");
    let entries = [
        listed("/a", "08"),
        expired("/c", "2999-01-01T00:00:00Z"),
        // Deleted since, and modified since.
        format!(
            "<url>{}<lastmod>2012-08-08T08:00:00Z</lastmod><expires>2012-08-08T09:00:00Z</expires></url>",
            loc("/d")
        ),
    ];
    draft.put(SITEMAP, &sitemap("", &[], &entries));
    draft.until_pages(&[("/a", "/a"), ("/c", "/c")]).await;
    let uri = draft.0.source.base().join("/d").unwrap().to_string();
    eventually("deletion in the feed", Some(draft.0.wakes()), async || {
        let lines = draft.0.operator.changes(0).await;
        let deleted = lines.iter().filter(|line| line.change == "deleted");
        let deleted: Vec<_> = deleted
            .map(|line| (line.origin.as_str(), &line.uri))
            .collect();
        if deleted == [("resource-list", &uri)] {
            Ok(())
        } else {
            Err(format!("{lines:#?}"))
        }
    })
    .await;
}

/// A Source with a Sitemap of 12 o'clock and a Change Set, followed and in sync.
async fn followed(entries: &[String]) -> Draft {
    let source = site(&["/a", "/b", "/c"]).await;
    let listed = [listed("/a", "08"), listed("/b", "09"), listed("/c", "10")];
    let current = change_set_link("current", CURRENT);
    put(&source, SITEMAP, &sitemap("12", &[current], &listed));
    put(&source, CURRENT, &change_set(None, entries));
    let draft = Draft::follow(source).await;
    draft
        .until_pages(&[("/a", "/a"), ("/b", "/b"), ("/c", "/c")])
        .await;
    draft
}

#[tokio::test(flavor = "multi_thread")]
async fn source_is_mirrored_by_its_sitemap_and_change_sets_over_a_restart() {
    let mut draft = followed(&[changed("/c", "created", "10")]).await;
    let set = draft.in_sync_until("12").await;
    assert_eq!((set.resources, set.gaps.len()), (3, 0));
    assert!(set.error.is_none(), "{set:#?}");
    let mut oddities: Vec<_> = set.oddities.iter().map(|odd| odd.code.as_str()).collect();
    oddities.dedup();
    assert_eq!(oddities, ["draft-0.1"]);

    // The Change Set grows.
    draft.put("/a", "new");
    draft.put("/d", "/d");
    let day = [
        changed("/c", "created", "10"),
        changed("/a", "updated", "13"),
        expired("/b", "14"),
        changed("/d", "created", "15"),
    ];
    draft.put(CURRENT, &change_set(None, &day));
    let set = draft.in_sync_until("15").await;
    assert!(set.gaps.is_empty(), "{set:#?}");
    let pages = [("/a", "new"), ("/c", "/c"), ("/d", "/d")];
    draft.until_pages(&pages).await;
    assert_eq!(draft.hits("/c"), 1, "a known change is not applied again");

    // Two more Change Sets are published while nobody follows.
    draft.0.stop_daemon().await;
    draft.put(
        "/changesets/1.xml",
        &change_set(Some("/changesets/0.xml"), &day),
    );
    let evening = [changed("/a", "updated", "16"), expired("/d", "17")];
    draft.put(
        "/changesets/2.xml",
        &change_set(Some("/changesets/1.xml"), &evening),
    );
    let night = [
        changed("/d", "created", "18"),
        changed("/e", "created", "19"),
    ];
    draft.put(CURRENT, &change_set(Some("/changesets/2.xml"), &night));
    for (page, text) in [("/a", "newer"), ("/d", "again"), ("/e", "/e")] {
        draft.put(page, text);
    }
    draft.0.start_daemon().await;
    let set = draft.in_sync_until("19").await;
    assert!(
        set.gaps.is_empty() && set.closed_gaps.is_empty(),
        "{set:#?}"
    );
    let pages = [("/a", "newer"), ("/c", "/c"), ("/d", "again"), ("/e", "/e")];
    draft.until_pages(&pages).await;
    assert_eq!(
        draft.hits("/changesets/0.xml"),
        0,
        "the one after it states known changes"
    );
    assert!(draft.hits("/changesets/1.xml") > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn chain_that_ends_too_early_is_a_gap_until_the_sitemap_fills_it() {
    let draft = followed(&[]).await;
    draft.in_sync_until("12").await;
    draft.put("/a", "new");
    draft.put("/d", "/d");
    draft.put(
        CURRENT,
        &change_set(None, &[changed("/a", "updated", "14")]),
    );
    let set = draft
        .until("gap open", |set| !set.gaps.is_empty() && set.pending == 0)
        .await;
    let gap = &set.gaps[0];
    assert_eq!(
        (gap.from.as_str(), gap.until.as_str(), gap.reason.as_str()),
        (&at("12")[..], &at("14")[..], "change-list-starts-late")
    );
    assert_eq!(set.synced_until, Some(at("12")));
    // What is known is applied, whatever is missing.
    draft
        .until_pages(&[("/a", "new"), ("/b", "/b"), ("/c", "/c")])
        .await;
    let current = change_set_link("current", CURRENT);
    let entries = [
        listed("/a", "14"),
        listed("/b", "09"),
        // Neither a deletion nor a proof: /c is not listed any more.
        listed("/d", "13"),
    ];
    draft.put(SITEMAP, &sitemap("15", &[current], &entries));
    let set = draft.in_sync_until("15").await;
    assert!(set.gaps.is_empty(), "{set:#?}");
    draft
        .until_pages(&[("/a", "new"), ("/b", "/b"), ("/c", "/c"), ("/d", "/d")])
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ring_of_change_sets_is_read_once_and_reported() {
    let draft = followed(&[]).await;
    draft.put("/a", "new");
    let one = [changed("/b", "updated", "16")];
    draft.put("/changesets/1.xml", &change_set(Some(CURRENT), &one));
    let current = [changed("/a", "updated", "17")];
    draft.put(CURRENT, &change_set(Some("/changesets/1.xml"), &current));
    let set = draft
        .until("ring reported", |set| {
            let mut notices = set.notices.iter();
            let is_cut = notices.any(|notice| {
                notice.code == "change-sets-cut" && notice.message.contains("named again")
            });
            is_cut && !set.gaps.is_empty() && set.pending == 0
        })
        .await;
    assert_eq!(set.gaps.len(), 1, "{set:#?}");
    draft
        .until_pages(&[("/a", "new"), ("/b", "/b"), ("/c", "/c")])
        .await;
    // It has not changed: it is not read again, although the gap is open.
    let hits = (draft.hits("/changesets/1.xml"), draft.hits(CURRENT));
    draft.0.source.wait_for_hits(CURRENT, hits.1 + 2).await;
    assert_eq!(draft.hits("/changesets/1.xml"), hits.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn change_sets_that_state_no_type_are_known_by_what_led_to_them() {
    let draft = followed(&[]).await;
    draft.put("/a", "new");
    let entries = [listed("/c", "10"), listed("/a", "14"), expired("/b", "15")];
    draft.put(CURRENT, &document("", "16", &[], &entries));
    let set = draft.in_sync_until("15").await;
    assert!(set.gaps.is_empty(), "{set:#?}");
    draft.until_pages(&[("/a", "new"), ("/c", "/c")]).await;
}

/// The package of a dump of `/a` and `/b`.
type Packing = fn(&SampleSource, manifest: &str) -> Vec<u8>;

const MEMBERS: [(&str, &str); 2] = [("resources/1", "/a"), ("resources/2", "/b")];

/// The manifest of a dump.
fn manifest(source: &SampleSource) -> String {
    let packed = |path: &str, time: &str, text: &str, member: &str| {
        let digest = Digest::of(Algorithm::Sha256, text.as_bytes()).to_string();
        let (algorithm, hex) = digest.split_once(':').unwrap();
        format!(
            "<url>{}<lastmod>{}</lastmod><rs:fixity type=\"{algorithm}\">{hex}</rs:fixity>\
             <rs:size>2</rs:size><rs:mimetype>text/plain</rs:mimetype><rs:path>{member}</rs:path></url>",
            loc(path),
            at(time)
        )
    };
    let entries = [
        packed("/a", "08", "/a", "resources/1"),
        packed("/b", "09", "/b", "resources/2"),
    ];
    let base = source.base();
    document("", "12", &[], &entries).replace("{site}", base.as_str().trim_end_matches('/'))
}

#[tokio::test(flavor = "multi_thread")]
async fn dump_is_the_baseline_and_its_resources_are_not_requested() {
    let packings: [(&str, Packing); 3] = [
        ("/dump/dump.zip", |source, manifest| {
            put_zip(source, "/dump/dump.zip", manifest, &MEMBERS);
            Vec::new()
        }),
        ("/dump/dump.tar", |_, manifest| tar_of(manifest, &MEMBERS)),
        // It needs no manifest.
        ("/dump/dump.warc", |source, _| {
            let record = |path: &str, time: &str| {
                let uri = source.base().join(path).unwrap();
                warc_record("resource", uri.as_str(), &at(time), path)
            };
            [record("/a", "08"), record("/b", "09")].concat()
        }),
    ];
    for (dump, pack) in packings {
        let source = site(&["/a", "/b", "/c"]).await;
        let packed = pack(&source, &manifest(&source));
        if !packed.is_empty() {
            source.put_document(dump, "application/octet-stream", packed);
        }
        let links = [
            link("http://www.openarchives.org/rs/dump", dump),
            change_set_link("current", CURRENT),
        ];
        let entries = [listed("/a", "08"), listed("/b", "09"), listed("/c", "13")];
        put(&source, SITEMAP, &sitemap("14", &links, &entries));
        let changes = [
            changed("/b", "created", "09"),
            changed("/c", "created", "13"),
        ];
        put(&source, CURRENT, &change_set(None, &changes));
        let draft = Draft::follow(source).await;
        draft
            .until_pages(&[("/a", "/a"), ("/b", "/b"), ("/c", "/c")])
            .await;
        let set = draft.in_sync_until("14").await;
        assert!(set.gaps.is_empty() && set.error.is_none(), "{set:#?}");
        let hits = [draft.hits("/a"), draft.hits("/b"), draft.hits("/c")];
        assert_eq!(hits, [0, 0, 1], "{dump}: only what has changed since");
        let lines = draft.0.operator.changes(0).await;
        let packed = lines.iter().filter(|line| line.origin == "resource-dump");
        assert_eq!(packed.count(), 2, "{dump}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn restart_in_the_middle_of_a_dump_does_not_fetch_it_again() {
    const MANY: usize = 3000;
    let pages: Vec<String> = (0..MANY).map(|number| format!("/r{number}")).collect();
    for dump in ["/dump/dump.zip", "/dump/dump.warc"] {
        let source = site(&[]).await;
        let uri = |page: &str| source.base().join(page).unwrap();
        if dump.ends_with("warc") {
            let record =
                |page: &String| warc_record("resource", uri(page).as_str(), &at("08"), page);
            let records: Vec<u8> = pages.iter().flat_map(record).collect();
            source.put_document(dump, "application/warc", records);
        } else {
            let entry = |page: &String| {
                let path = format!("<rs:path>{}</rs:path></url>", &page[1..]);
                listed(page, "08").replace("</url>", &path)
            };
            let entries: Vec<String> = pages.iter().map(entry).collect();
            let base = source.base();
            let manifest = document("", "12", &[], &entries);
            let manifest = manifest.replace("{site}", base.as_str().trim_end_matches('/'));
            let members: Vec<_> = pages.iter().map(|page| (&page[1..], &page[..])).collect();
            put_zip(&source, dump, &manifest, &members);
        }
        let links = [link("http://www.openarchives.org/rs/dump", dump)];
        let entries: Vec<String> = pages.iter().map(|page| listed(page, "08")).collect();
        put(&source, SITEMAP, &sitemap("12", &links, &entries));
        let mut draft = Draft::follow(source).await;
        draft.until("begun", |set| set.resources > 0).await;
        draft.0.stop_daemon().await;
        let before = files(&draft.0.config.sources[0].mirror).len();
        draft.0.start_daemon().await;
        let set = draft.in_sync_until("12").await;
        assert_eq!(set.resources, MANY as u64, "{dump}: {set:#?}");
        let stored = files(&draft.0.config.sources[0].mirror);
        let texts: BTreeSet<_> = stored.into_values().collect();
        let expected: BTreeSet<_> = pages.iter().map(|page| page.clone().into_bytes()).collect();
        assert!(texts == expected, "{dump}");
        assert_eq!(draft.0.operator.changes(0).await.len(), MANY, "each once");
        // Whether it was stopped before the end of the dump or after it.
        let source = &draft.0.source;
        let (hits, not_modified) = source.hits_and_not_modified(dump);
        assert_eq!(hits - not_modified, 1, "{dump}, stopped after {before}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sitemap_is_read_where_the_dump_is_unusable() {
    let source = site(&["/a", "/b"]).await;
    source.put_document("/dump.zip", "application/zip", "no archive");
    let dump = link("http://www.openarchives.org/rs/dump", "/dump.zip");
    let entries = [listed("/a", "08"), listed("/b", "09")];
    put(&source, SITEMAP, &sitemap("12", &[dump], &entries));
    let draft = Draft::follow(source).await;
    draft.until_pages(&[("/a", "/a"), ("/b", "/b")]).await;
    draft.in_sync_until("12").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn change_set_that_is_gone_is_a_gap_and_one_that_fails_is_read_later() {
    let draft = followed(&[]).await;
    draft.in_sync_until("12").await;
    let (one, two) = ("/changesets/1.xml", "/changesets/2.xml");
    let source = &draft.0.source;
    source.fail(two, Fault::Status(503), usize::MAX);
    draft.put("/a", "new");
    draft.put("/d", "/d");
    let first = [
        changed("/c", "created", "10"),
        changed("/d", "created", "13"),
    ];
    draft.put(two, &change_set(None, &first));
    draft.put(
        one,
        &change_set(Some(two), &[changed("/b", "updated", "14")]),
    );
    draft.put(
        CURRENT,
        &change_set(Some(one), &[changed("/a", "updated", "15")]),
    );
    // What can be read is applied meanwhile, and nothing is claimed.
    draft
        .until_pages(&[("/a", "new"), ("/b", "/b"), ("/c", "/c")])
        .await;
    let set = draft.until("failing", |set| set.error.is_some()).await;
    assert!(set.gaps.is_empty(), "{set:#?}");
    assert_eq!(set.synced_until, Some(at("12")));
    draft.0.source.heal(two);
    let set = draft.in_sync_until("15").await;
    assert!(set.gaps.is_empty() && set.closed_gaps.is_empty());
    let pages = [("/a", "new"), ("/b", "/b"), ("/c", "/c"), ("/d", "/d")];
    draft.until_pages(&pages).await;

    // The Source keeps only few of them.
    let later = [changed("/a", "updated", "18")];
    draft.put("/a", "newer");
    draft.put(CURRENT, &change_set(Some("/changesets/9.xml"), &later));
    let set = draft
        .until("gap open", |set| !set.gaps.is_empty() && set.pending == 0)
        .await;
    let gap = &set.gaps[0];
    assert_eq!(
        (gap.from.as_str(), gap.until.as_str()),
        (&at("15")[..], &at("18")[..])
    );
    // The chain proves nothing about the time before its oldest change.
    let covered = set.coverage.iter();
    let covered: Vec<_> = covered
        .map(|it| (it.from.as_deref(), it.until.as_str()))
        .collect();
    assert_eq!(covered, [(None, &at("15")[..])], "{set:#?}");
    assert!(
        set.notices
            .iter()
            .any(|notice| notice.code == "change-sets-cut"),
        "{set:#?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn sitemap_may_be_one_of_the_configured_sets() {
    let source = site(&["/a"]).await;
    let current = change_set_link("current", CURRENT);
    let listed = [listed("/a", "08")];
    put(&source, SITEMAP, &sitemap("12", &[current], &listed));
    let changes = [changed("/a", "created", "08"), expired("/a", "13")];
    put(&source, CURRENT, &change_set(None, &changes));
    let set = source.base().join(SITEMAP).unwrap();
    let draft = Draft::follow_with(source, |followed| {
        followed.url.set_path("/nothing");
        followed.sets = vec![set];
    })
    .await;
    draft.in_sync_until("13").await;
    draft.until_pages(&[]).await;
}

/// An example of the draft, of this site.
fn example(text: &str) -> String {
    text.replace("http://example.com", "{site}")
}

#[tokio::test(flavor = "multi_thread")]
async fn source_of_the_examples_is_mirrored() {
    let source = site(&["/res1", "/res2", "/res3"]).await;
    let listed = include_str!("../../crates/resourcesync/tests/documents/draft-0.1/5.1.xml");
    put(&source, SITEMAP, &example(listed));
    put(&source, CURRENT, &change_set(None, &[]));
    let draft = Draft::follow(source).await;
    draft
        .until_pages(&[("/res1", "/res1"), ("/res2", "/res2")])
        .await;
    draft.in_sync_until("2012-08-08T16:30:00Z").await;
    // A deletion, an update that is known, and a creation, all of them before the time of the Sitemap.
    let changes = include_str!("../../crates/resourcesync/tests/documents/draft-0.1/6.1.xml");
    draft.put(CURRENT, &example(changes));
    draft
        .until_pages(&[("/res1", "/res1"), ("/res3", "/res3")])
        .await;
    draft.in_sync_until("2012-08-08T16:30:00Z").await;
    assert_eq!(draft.hits("/res1"), 1);
    assert_eq!(draft.hits("/changesets/20120807.xml"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn change_set_of_the_examples_may_be_there_before_the_sitemap_is_read() {
    let source = site(&["/res1", "/res2", "/res3"]).await;
    let listed = include_str!("../../crates/resourcesync/tests/documents/draft-0.1/5.1.xml");
    put(&source, SITEMAP, &example(listed));
    let changes = include_str!("../../crates/resourcesync/tests/documents/draft-0.1/6.1.xml");
    put(&source, CURRENT, &example(changes));
    let draft = Draft::follow(source).await;
    draft.in_sync_until("2012-08-08T16:30:00Z").await;
    draft
        .until_pages(&[("/res1", "/res1"), ("/res3", "/res3")])
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn categories_select_resources_as_collections_do() {
    let source = site(&["/a", "/b", "/c", "/d"]).await;
    let entry = |path: &str, category: &str| {
        let time = at("08");
        format!(
            "<url>{}<lastmod>{time}</lastmod>{category}</url>",
            loc(path)
        )
    };
    let frogs = r#"<xhtml:link rel="DCTERMS.subject" href="http://en.wikipedia.org/wiki/Category:Frogs" title="Frogs"/>"#;
    let fish = frogs.replace("Frogs", "Fish");
    let crocodiles = r#"<xhtml:meta name="DC.subject" content="Crocodiles"/>"#;
    let first = [entry("/a", crocodiles), entry("/b", &fish)];
    put(&source, "/1.xml", &sitemap("12", &[], &first));
    let second = [entry("/c", frogs), entry("/d", "")];
    put(&source, "/2.xml", &sitemap("12", &[], &second));
    put(
        &source,
        "/3.xml",
        &sitemap("12", &[], &[entry("/d", &fish)]),
    );
    // The index states of each part what its resources state.
    let part = |path: &str, categories: &str| {
        let time = at("10");
        format!(
            "<sitemap>{}<lastmod>{time}</lastmod>{categories}</sitemap>",
            loc(path)
        )
    };
    let parts = [
        part("/1.xml", &format!("{fish}{crocodiles}")),
        part("/2.xml", frogs),
        part("/3.xml", &fish),
    ];
    let index = sitemap("12", &[], &parts).replace("urlset", "sitemapindex");
    put(&source, SITEMAP, &index);
    let wanted = [
        "http://en.wikipedia.org/wiki/Category:Frogs",
        "data:,Crocodiles",
    ];
    let draft = Draft::follow_with(source, |followed| {
        followed.filter = selecting(&[], &wanted, &[]);
    })
    .await;
    draft.until_pages(&[("/a", "/a"), ("/c", "/c")]).await;
    draft.until("in sync", |set| set.state == "in-sync").await;
    assert_eq!(draft.hits("/3.xml"), 0, "nothing in it is selected");
    let lines = draft.0.operator.changes(0).await;
    let mut stated: Vec<_> = lines
        .iter()
        .filter_map(|line| line.collections.clone())
        .collect();
    stated.sort();
    assert_eq!(stated, [[wanted[1]], [wanted[0]]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn resource_of_another_protocol_is_left_out_and_a_mirror_is_used() {
    let source = site(&["/mirror/a"]).await;
    let digest = Digest::of(Algorithm::Md5, b"/mirror/a").to_string();
    let hex = digest.trim_start_matches("md5:");
    let mirrored = format!(
        "<url>{}<lastmod>{}</lastmod><rs:fixity type=\"md5\">{hex}</rs:fixity>{}</url>",
        loc("/a"),
        at("08"),
        link(
            "alternate http://www.openarchives.org/rs/mirror",
            "/mirror/a"
        )
    );
    let other = r#"<url><loc rs:protocol="http://www.openarchives.org/OAI/openarchivesprotocol.html">{site}/oaipmh</loc></url>"#.to_owned();
    put(&source, SITEMAP, &sitemap("12", &[], &[mirrored, other]));
    let draft = Draft::follow(source).await;
    draft.until_pages(&[("/a", "/mirror/a")]).await;
    let set = draft.in_sync_until("12").await;
    assert_eq!((set.resources, draft.hits("/oaipmh")), (1, 0));
    let mut codes: Vec<_> = set.oddities.iter().map(|odd| odd.code.as_str()).collect();
    codes.sort_unstable();
    assert_eq!(codes, ["draft-0.1", "other-protocol"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn part_of_an_index_may_name_the_change_set() {
    let source = site(&["/a", "/b"]).await;
    let part = |path: &str| format!("<sitemap>{}</sitemap>", loc(path));
    let index = sitemap("12", &[], &[part("/1.xml"), part("/2.xml")]);
    put(&source, SITEMAP, &index.replace("urlset", "sitemapindex"));
    let current = change_set_link("current", CURRENT);
    put(
        &source,
        "/1.xml",
        &sitemap("12", &[], &[listed("/a", "08")]),
    );
    put(
        &source,
        "/2.xml",
        &sitemap("12", &[current], &[listed("/b", "09")]),
    );
    let changes = [changed("/b", "created", "09"), expired("/a", "14")];
    put(&source, CURRENT, &change_set(None, &changes));
    let mut draft = Draft::follow(source).await;
    draft.in_sync_until("14").await;
    draft.until_pages(&[("/b", "/b")]).await;
    draft.0.stop_daemon().await;
    let changes = [expired("/a", "14"), changed("/a", "created", "15")];
    draft.put(CURRENT, &change_set(None, &changes));
    draft.0.start_daemon().await;
    draft.in_sync_until("15").await;
    draft.until_pages(&[("/a", "/a"), ("/b", "/b")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sitemap_of_robots_txt_leads_to_the_change_set() {
    let source = site(&["/a", "/b"]).await;
    source.fail("/", Fault::Status(404), usize::MAX);
    put(
        &source,
        "/robots.txt",
        "User-agent: *\nSitemap: {site}/maps/1.xml\n",
    );
    let current = change_set_link("current", CURRENT);
    let listed = [listed("/a", "08"), listed("/b", "09")];
    put(&source, "/maps/1.xml", &sitemap("12", &[current], &listed));
    let changes = [changed("/b", "created", "09"), expired("/a", "14")];
    put(&source, CURRENT, &change_set(None, &changes));
    let draft = Draft::follow_with(source, |followed| followed.url.set_path("/")).await;
    draft.in_sync_until("14").await;
    draft.until_pages(&[("/b", "/b")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sitemap_that_moves_on_to_another_change_set_is_followed() {
    let draft = followed(&[changed("/c", "created", "10")]).await;
    draft.in_sync_until("12").await;
    draft.put("/a", "new");
    // The one before it stays as it is, and is served as well as ever.
    let next = "/changesets/next.xml";
    let day = [
        changed("/c", "created", "10"),
        changed("/a", "updated", "13"),
    ];
    draft.put(next, &change_set(None, &day));
    let entries = [listed("/a", "08"), listed("/b", "09"), listed("/c", "10")];
    let current = change_set_link("current", next);
    draft.put(SITEMAP, &sitemap("12", &[current], &entries));
    let set = draft.in_sync_until("13").await;
    assert!(set.gaps.is_empty(), "{set:#?}");
    draft
        .until_pages(&[("/a", "new"), ("/b", "/b"), ("/c", "/c")])
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn part_of_an_index_may_move_on_to_another_change_set() {
    let source = site(&["/a", "/b"]).await;
    let part = |path: &str| format!("<sitemap>{}</sitemap>", loc(path));
    let index = sitemap("12", &[], &[part("/1.xml"), part("/2.xml")]);
    put(&source, SITEMAP, &index.replace("urlset", "sitemapindex"));
    let first = sitemap("12", &[], &[listed("/a", "08")]);
    put(&source, "/1.xml", &first);
    let naming = |path: &str| {
        let current = change_set_link("current", path);
        sitemap("12", &[current], &[listed("/b", "09")])
    };
    put(&source, "/2.xml", &naming(CURRENT));
    let changes = [changed("/b", "created", "09")];
    put(&source, CURRENT, &change_set(None, &changes));
    let mut draft = Draft::follow(source).await;
    draft.in_sync_until("12").await;
    draft.0.stop_daemon().await;
    draft.0.start_daemon().await;
    let hits = draft.hits(CURRENT);
    draft.0.source.wait_for_hits(CURRENT, hits + 2).await;
    draft.put("/a", "new");
    let next = "/changesets/next.xml";
    let day = [
        changed("/b", "created", "09"),
        changed("/a", "updated", "13"),
    ];
    draft.put(next, &change_set(None, &day));
    draft.put("/2.xml", &naming(next));
    draft.in_sync_until("13").await;
    draft.until_pages(&[("/a", "new"), ("/b", "/b")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_past_expiry_is_a_deletion_in_a_change_set() {
    let draft = followed(&[]).await;
    let changes = [
        changed("/c", "created", "10"),
        changed("/c", "created", "10"),
        expired("/a", "2999-01-01T00:00:00Z"),
        format!("<url>{}<expires/></url>", loc("/b")),
        // It was created anew since.
        format!(
            "<url>{}<expires>{}</expires><rs:md change=\"updated\" datetime=\"{}\"/></url>",
            loc("/c"),
            at("13"),
            at("14")
        ),
    ];
    draft.put("/c", "new");
    draft.put(CURRENT, &change_set(None, &changes));
    let set = draft.in_sync_until("14").await;
    draft
        .until_pages(&[("/a", "/a"), ("/b", "/b"), ("/c", "new")])
        .await;
    let lines = draft.0.operator.changes(0).await;
    assert!(
        lines.iter().all(|line| line.change != "deleted"),
        "{lines:#?}"
    );
    let mut odd = set.oddities.iter();
    let bad = odd.find(|odd| odd.code == "bad-change");
    assert_eq!(bad.map(|odd| odd.count), Some(2), "{set:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn change_list_with_an_element_of_the_draft_is_no_change_set() {
    let source = site(&["/a", "/b"]).await;
    let md = |attributes: &str| format!("<rs:md {attributes}/>");
    let list = |attributes: &str, entries: &[String]| document("", "", &[md(attributes)], entries);
    let entry = |path: &str, attributes: &str| {
        let md = md(attributes);
        format!("<url>{}{md}</url>", loc(path))
    };
    let offers = [
        entry("/list.xml", "capability=\"resourcelist\""),
        entry("/changes.xml", "capability=\"changelist\""),
    ];
    put(
        &source,
        SITEMAP,
        &list("capability=\"capabilitylist\"", &offers),
    );
    let attributes = format!("capability=\"resourcelist\" at=\"{}\"", at("12"));
    let entries = [listed("/a", "08"), listed("/b", "09")];
    put(&source, "/list.xml", &list(&attributes, &entries));
    let known = format!(
        "<url>{}<lastmod>{}</lastmod><rs:md change=\"created\"/></url>",
        loc("/a"),
        at("08")
    );
    let changes = [known, expired("/b", "14")];
    put(
        &source,
        "/changes.xml",
        &list("capability=\"changelist\"", &changes),
    );
    let draft = Draft::follow(source).await;
    draft.until_pages(&[("/a", "/a")]).await;
    let set = draft.in_sync_until("12").await;
    assert!(set.gaps.is_empty(), "{set:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn expiry_that_was_announced_is_no_time_of_a_change_set() {
    let draft = followed(&[]).await;
    draft.in_sync_until("12").await;
    draft.put("/a", "new");
    // Written at 14 o'clock, it has announced what happened since.
    let entries = [
        changed("/c", "created", "10"),
        changed("/a", "updated", "13"),
        expired("/b", "20"),
    ];
    draft.put(
        CURRENT,
        &document("rs:type=\"changeset\"", "14", &[], &entries),
    );
    draft.until_pages(&[("/a", "new"), ("/c", "/c")]).await;
    draft.in_sync_until("13").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn open_gap_does_not_have_known_change_sets_read_again() {
    let draft = followed(&[]).await;
    draft.in_sync_until("12").await;
    draft.put("/a", "new");
    let (one, two) = ("/changesets/1.xml", "/changesets/2.xml");
    draft.put(two, &change_set(None, &[changed("/c", "updated", "14")]));
    draft.put(
        one,
        &change_set(Some(two), &[changed("/b", "updated", "15")]),
    );
    let day = [changed("/a", "updated", "16")];
    draft.put(CURRENT, &change_set(Some(one), &day));
    draft
        .until("gap open", |set| !set.gaps.is_empty() && set.pending == 0)
        .await;
    draft.put("/a", "newer");
    let day = [
        changed("/a", "updated", "16"),
        changed("/a", "updated", "17"),
    ];
    draft.put(CURRENT, &change_set(Some(one), &day));
    let pages = [("/a", "newer"), ("/b", "/b"), ("/c", "/c")];
    draft.until_pages(&pages).await;
    assert_eq!((draft.hits(one), draft.hits(two)), (1, 1));
    let set = draft.until("gap", |set| set.pending == 0).await;
    let gaps: Vec<_> = set
        .gaps
        .iter()
        .map(|gap| (&*gap.from, &*gap.until))
        .collect();
    assert_eq!(gaps, [(&*at("12"), &*at("14"))], "it is as open as it was");
}

#[tokio::test(flavor = "multi_thread")]
async fn deletion_before_the_sitemap_that_lists_the_resource_is_no_news() {
    let draft = followed(&[]).await;
    draft.in_sync_until("12").await;
    draft.put("/a", "new");
    let entries = [
        changed("/c", "created", "10"),
        // It is listed at 12 o'clock: it was created again.
        expired("/b", "11"),
        changed("/a", "updated", "13"),
    ];
    draft.put(CURRENT, &change_set(None, &entries));
    draft
        .until_pages(&[("/a", "new"), ("/b", "/b"), ("/c", "/c")])
        .await;
    draft.in_sync_until("13").await;
    let lines = draft.0.operator.changes(0).await;
    assert!(
        lines.iter().all(|line| line.change != "deleted"),
        "{lines:#?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn entry_that_is_later_than_the_expiry_of_its_resource_counts() {
    let source = site(&["/a", "/b"]).await;
    let entries = [listed("/a", "15"), expired("/a", "14"), listed("/b", "08")];
    put(&source, SITEMAP, &sitemap("16", &[], &entries));
    let draft = Draft::follow(source).await;
    draft.until_pages(&[("/a", "/a"), ("/b", "/b")]).await;
    draft.in_sync_until("16").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn resource_that_a_dump_lacks_is_in_the_sitemap() {
    let source = site(&["/c"]).await;
    let dump = "/dump/dump.zip";
    put_zip(&source, dump, &manifest(&source), &MEMBERS);
    let links = [
        link("http://www.openarchives.org/rs/dump", dump),
        change_set_link("current", CURRENT),
    ];
    let entries = [listed("/a", "08"), listed("/b", "09"), listed("/c", "10")];
    put(&source, SITEMAP, &sitemap("12", &links, &entries));
    let changes = [changed("/b", "created", "09")];
    put(&source, CURRENT, &change_set(None, &changes));
    let draft = Draft::follow(source).await;
    draft
        .until_pages(&[("/a", "/a"), ("/b", "/b"), ("/c", "/c")])
        .await;
    let set = draft.in_sync_until("12").await;
    assert!(
        set.gaps.is_empty() && set.closed_gaps.is_empty(),
        "{set:#?}"
    );
}

/// It states that it is a Resource List, as those of the draft need not, and its head names what only a Source of the draft has. A list
/// that merely has elements of the draft is one like any other.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_deleted_by_absence_from_a_stated_list_of_the_draft() {
    let stated = |modified: &str, links: &[String], entries: &[String]| {
        let md = format!(
            "<rs:md capability=\"resourcelist\" at=\"{}\"/>",
            at(modified)
        );
        let list = sitemap("", links, entries);
        let end = list.find('>').unwrap() + 1;
        format!("{}{md}{}", &list[..end], &list[end..])
    };
    let sized = |entry: String| entry.replace("</url>", "<rs:size>2</rs:size></url>");
    let interface = "<xhtml:link href=\"{site}/push\" rs:protocol=\"http://example.com/push\"/>";
    for is_of_draft in [true, false] {
        let source = site(&["/a", "/b"]).await;
        let links = if is_of_draft {
            &[interface.to_owned()][..]
        } else {
            &[]
        };
        let entries = [listed("/a", "08"), listed("/b", "09")];
        put(&source, SITEMAP, &stated("12", links, &entries));
        let draft = Draft::follow(source).await;
        draft.until_pages(&[("/a", "/a"), ("/b", "/b")]).await;
        draft.in_sync_until("12").await;
        let left = [sized(listed("/a", "08"))];
        draft.put(SITEMAP, &stated("14", links, &left));
        if is_of_draft {
            let is_noted =
                |set: &SetStatus| set.notices.iter().any(|it| it.code == "draft-absence");
            draft.in_sync_until("14").await;
            draft.until("noted", is_noted).await;
            draft.until_pages(&[("/a", "/a"), ("/b", "/b")]).await;
        } else {
            draft.until_pages(&[("/a", "/a")]).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn older_sitemap_does_not_end_what_a_newer_one_names() {
    let draft = followed(&[]).await;
    draft.in_sync_until("12").await;
    let entries = [listed("/a", "08"), listed("/b", "09")];
    draft.put(SITEMAP, &sitemap("11", &[], &entries));
    draft.put("/a", "new");
    draft.put(
        CURRENT,
        &change_set(None, &[changed("/a", "updated", "14")]),
    );
    // The gap has the Sitemap read.
    draft
        .until("older", |set| {
            let error = set.error.as_ref();
            let is_older = error.is_some_and(|error| error.code == "older-resource-list");
            is_older && !set.gaps.is_empty()
        })
        .await;
    draft.put("/b", "new");
    let day = [
        changed("/a", "updated", "14"),
        changed("/b", "updated", "15"),
    ];
    draft.put(CURRENT, &change_set(None, &day));
    draft
        .until_pages(&[("/a", "new"), ("/b", "new"), ("/c", "/c")])
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_sitemap_with_an_expiry_may_list_capability_lists() {
    let source = site(&["/a"]).await;
    let plain = format!("<url>{}</url>", loc("/set.xml"));
    put(
        &source,
        SITEMAP,
        &sitemap("", &[], &[plain, expired("/old", "09")]),
    );
    let md = "<rs:md capability=\"capabilitylist\"/>".to_owned();
    let offer = format!(
        "<url>{}<rs:md capability=\"resourcelist\"/></url>",
        loc("/list.xml")
    );
    put(&source, "/set.xml", &document("", "", &[md], &[offer]));
    let md = format!("<rs:md capability=\"resourcelist\" at=\"{}\"/>", at("12"));
    let entries = [listed("/a", "08")];
    put(&source, "/list.xml", &document("", "", &[md], &entries));
    let draft = Draft::follow(source).await;
    draft.until_pages(&[("/a", "/a")]).await;
    draft.in_sync_until("12").await;
}
