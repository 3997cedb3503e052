//! Indexes that state what their parts name: a part in which nothing is selected is not read, and proves no absence.

use resyncd::config::{Config, Filter};
use resyncd_testkit::{ChannelHub, DumpOptions, SampleOptions, SampleSource};

use super::packing::put_zip;
use super::selection::{selecting, until_mirrored};
use crate::support::{NAME, Rig, SET, resources, time};

const XMLNS: &str = "xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" xmlns:rs=\"http://www.openarchives.org/rs/terms/\"";
const ALL: [&str; 3] = ["a1", "a2", "b1"];
/// The names of the parts.
const A: &str = "part-a";
const B: &str = "part-b";

/// What entries state, of a part or of a resource: attributes of `rs:md`, and links.
#[derive(Clone, Copy)]
struct Stated(&'static str, &'static str);

const PDF: Stated = Stated("type=\"application/pdf\"", "");
const CSV: Stated = Stated("type=\"text/csv\"", "");
const FIRST: Stated = Stated("", "<rs:ln rel=\"collection\" href=\"http://e.org/1\"/>");
const SECOND: Stated = Stated("", "<rs:ln rel=\"collection\" href=\"http://e.org/2\"/>");
const DC: Stated = Stated("", "<rs:ln rel=\"profile\" href=\"http://e.org/dc\"/>");
const MODS: Stated = Stated("", "<rs:ln rel=\"profile\" href=\"http://e.org/mods\"/>");

/// The names of resources, and what their entries state.
type Named<'a> = &'a [(&'a str, Stated)];

/// The form of the index and its parts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    ResourceList,
    ResourceDump,
}

impl Form {
    fn capability(self) -> &'static str {
        match self {
            Self::ResourceList => "resourcelist",
            Self::ResourceDump => "resourcedump",
        }
    }

    /// Serves the index as of a day of February 2026, with its parts.
    fn put(self, source: &SampleSource, day: u32, parts: &[(&str, Stated, Named)]) {
        let (at, capability) = (at(day), self.capability());
        let mut index = String::new();
        for (part, Stated(md, links), named) in parts {
            let path = format!("/{SET}/{part}.xml");
            index +=
                &format!("<sitemap><loc>{path}</loc><rs:md at=\"{at}\" {md}/>{links}</sitemap>\n");
            let mut entries = String::new();
            for (name, Stated(md, links)) in *named {
                let uri = source.resource_uri(SET, name);
                let member = match self {
                    Self::ResourceList => String::new(),
                    Self::ResourceDump => format!("path=\"/{name}\""),
                };
                entries += &format!(
                    "<url><loc>{uri}</loc><lastmod>2026-01-01T00:00:00Z</lastmod><rs:md {md} {member}/>{links}</url>\n"
                );
            }
            let document = |capability: &str, entries: &str| {
                format!(
                    "<urlset {XMLNS}><rs:md capability=\"{capability}\" at=\"{at}\"/>\n{entries}</urlset>"
                )
            };
            if self == Self::ResourceDump {
                let manifest = document("resourcedump-manifest", &entries);
                let members: Vec<_> = named.iter().map(|(name, _)| (*name, *name)).collect();
                put_zip(source, &package(part, day), &manifest, &members);
                entries = format!(
                    "<url><loc>{}</loc><rs:md type=\"application/zip\"/></url>",
                    package(part, day)
                );
            }
            source.put_document(&path, "application/xml", document(capability, &entries));
        }
        let index = format!(
            "<sitemapindex {XMLNS}><rs:md capability=\"{capability}\" at=\"{at}\"/>\n{index}</sitemapindex>"
        );
        source.put_document(
            &format!("/{SET}/{capability}.xml"),
            "application/xml",
            index,
        );
    }
}

fn at(day: u32) -> String {
    format!("2026-02-{day:02}T00:00:00Z")
}

fn package(part: &str, day: u32) -> String {
    format!("/{SET}/{part}-{day}.zip")
}

/// Has the index of a day read.
async fn until_read(rig: &Rig, day: u32) {
    rig.operator.poll(NAME).await;
    rig.until("the index is read", |set| {
        let until = set.synced_until.as_ref().map(time);
        set.state == "in-sync" && set.pending == 0 && until >= Some(time(at(day)))
    })
    .await;
}

/// A Source that serves the resources.
async fn source(form: Form) -> SampleSource {
    let options = SampleOptions {
        change_list: false,
        resource_list: form == Form::ResourceList,
        dumps: DumpOptions {
            resource_dump: form == Form::ResourceDump,
            ..DumpOptions::default()
        },
        hub: ChannelHub::None,
        ..resources(0)
    };
    let source = SampleSource::start(options).await.unwrap();
    for name in ALL {
        let path = format!("/{SET}/res/{name}");
        source.put_document(&path, "application/pdf", name);
    }
    source
}

fn parts<'a>(
    wanted: Stated,
    first: Named<'a>,
    other: Stated,
    second: Named<'a>,
) -> [(&'static str, Stated, Named<'a>); 2] {
    [(A, wanted, first), (B, other, second)]
}

/// Follows an index of two parts, of which the second states what is not selected.
async fn follow(form: Form, filter: Filter, wanted: Stated, other: Stated) -> Rig {
    let source = source(form).await;
    let hits = |source: &SampleSource| source.hits(&format!("/{SET}/{B}.xml"));
    let (a1, a2, b1) = (("a1", wanted), ("a2", wanted), ("b1", other));
    form.put(&source, 1, &parts(wanted, &[a1, a2], other, &[b1]));
    let mut rig = Rig::follow(source, |config| config.sources[0].filter = filter.clone()).await;
    until_mirrored(&rig, &ALL, &["a1", "a2"]).await;
    assert_eq!(hits(&rig.source), 0);

    // Nothing is absent: the same part is left out again, also after a restart.
    rig.stop_daemon().await;
    form.put(&rig.source, 2, &parts(wanted, &[a1, a2], other, &[b1]));
    rig.start_daemon().await;
    until_read(&rig, 2).await;
    assert_eq!(hits(&rig.source), 0);

    // What the other part names by now is not deleted.
    let last = rig.operator.last_change().await;
    form.put(&rig.source, 3, &parts(wanted, &[a1], other, &[b1, a2]));
    until_read(&rig, 3).await;
    until_mirrored(&rig, &ALL, &["a1", "a2"]).await;
    assert!(hits(&rig.source) > 0);
    assert_eq!(rig.operator.changes(last).await, []);

    // What no part names is.
    form.put(&rig.source, 4, &parts(wanted, &[a1], other, &[b1]));
    until_read(&rig, 4).await;
    until_mirrored(&rig, &ALL, &["a1"]).await;
    rig
}

/// Each key, what it selects, and what it does not.
fn selections() -> [(Filter, Stated, Stated); 3] {
    [
        (selecting(&["application/pdf"], &[], &[]), PDF, CSV),
        (selecting(&[], &["http://e.org/1"], &[]), FIRST, SECOND),
        (selecting(&[], &[], &["http://e.org/dc"]), DC, MODS),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn part_of_a_resource_list_index_is_left_out_until_something_is_absent() {
    for (filter, wanted, other) in selections() {
        follow(Form::ResourceList, filter, wanted, other).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn part_of_a_resource_dump_index_is_left_out_until_something_is_absent() {
    for (filter, wanted, other) in selections() {
        let rig = follow(Form::ResourceDump, filter, wanted, other).await;
        let fetched = [1, 2].map(|day| rig.source.hits(&package(B, day)));
        assert_eq!(fetched, [0, 0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn part_that_was_left_out_is_read_once_it_is_selected() {
    // Where everything could be left out, everything is read.
    for (first, all_read, before) in [("none", true, &[][..]), ("1", false, &["a1", "a2"])] {
        let source = source(Form::ResourceList).await;
        let a = [("a1", FIRST), ("a2", FIRST)];
        let parts = [(A, FIRST, &a[..]), (B, SECOND, &[("b1", SECOND)])];
        Form::ResourceList.put(&source, 1, &parts);
        let collection = |name: &str| selecting(&[], &[&format!("http://e.org/{name}")], &[]);
        let change = |config: &mut Config| config.sources[0].filter = collection(first);
        let mut rig = Rig::follow(source, change).await;
        until_read(&rig, 1).await;
        until_mirrored(&rig, &ALL, before).await;
        let read = rig.source.hits(&format!("/{SET}/{B}.xml")) > 0;
        assert_eq!(read, all_read);
        rig.stop_daemon().await;
        rig.config.sources[0].filter = collection("2");
        rig.start_daemon().await;
        let wanted = [before, &["b1"]].concat();
        until_mirrored(&rig, &ALL, &wanted).await;
    }
}
