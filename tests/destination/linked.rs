//! Linked resources: representations of other types (section 14.3) and metadata that no list names (section 14.5).

use resourcesync::{Algorithm, ContentInfo, Digest, Link};
use resyncd::config::{Baseline, Config, Filter};
use resyncd::status::{HeldDeletion, SetStatus};
use resyncd_core::{LinkRules, MediaRange, Selection};
use resyncd_testkit::{ChannelHub, DumpOptions, Fault, SampleOptions, SampleSource};
use serde_json::json;

use crate::support::{NAME, Rig, SET, eventually, resources};

const LIST: &str = "/set1/resourcelist.xml";
const OWNER: &str = "r0000.txt";
const PDF: &str = "application/pdf";

fn rules(representations: &[&str]) -> LinkRules {
    let ranges = representations
        .iter()
        .map(|it| MediaRange::parse(it).unwrap());
    LinkRules::new(true, ranges.collect())
}

fn following(config: &mut Config) {
    config.sources[0].filter = Filter::everything().following(rules(&[PDF]));
}

/// Serves a resource that no list names, and returns a link to it that states its length, digest and type.
fn put(rig: &SampleSource, rel: &str, name: &str, media_type: &str, bytes: &str) -> Link {
    let uri = rig.resource_uri(SET, name);
    rig.put_document(uri.path(), media_type, bytes.to_owned());
    Link {
        content: ContentInfo {
            length: Some(bytes.len() as u64),
            media_type: Some(media_type.to_owned()),
            hashes: vec![Digest::of(Algorithm::Sha256, bytes.as_bytes())],
        },
        ..Link::new(rel, uri)
    }
}

/// Links that state nothing but a target.
fn bare(source: &SampleSource, rel: &str, name: &str, bytes: &str) -> Link {
    let link = put(source, rel, name, "application/xml", bytes);
    Link::new(rel, link.href)
}

fn hits(rig: &Rig, name: &str) -> u64 {
    rig.source.hits(&format!("/set1/res/{name}"))
}

/// Waits until the mirror has exactly these besides the `r….txt`, and everything is in sync.
async fn until_linked(rig: &Rig, all: &[&str], wanted: &[&str]) {
    let what = format!("linked resources are {wanted:?}");
    eventually(&what, Some(rig.wakes()), async || {
        let has = |name: &&&str| rig.mirrored(name).is_some();
        let mirrored: Vec<&str> = all.iter().filter(has).copied().collect();
        let set = rig.set_named(SET).await;
        let is_done = |set: &SetStatus| set.state == "in-sync" && set.pending == 0;
        let is_done = set.as_ref().is_some_and(is_done);
        if mirrored == wanted && is_done {
            Ok(())
        } else {
            Err(format!("{mirrored:?}, {set:#?}"))
        }
    })
    .await;
}

/// How changes are announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Push,
    ChangeList,
    ChangeDump,
    ResourceList,
}

impl Way {
    async fn start(self, is_dump: bool) -> SampleSource {
        let options = SampleOptions {
            hub: match self {
                Self::Push => SampleOptions::default().hub,
                _ => ChannelHub::None,
            },
            change_list: matches!(self, Self::Push | Self::ChangeList),
            dumps: DumpOptions {
                resource_dump: is_dump,
                change_dump: self == Self::ChangeDump,
                ..DumpOptions::default()
            },
            ..resources(3)
        };
        SampleSource::start(options).await.unwrap()
    }

    async fn announce(self, rig: &Rig) {
        match self {
            Self::Push => drop(rig.source.notify_and_publish(SET).await.unwrap()),
            Self::ChangeList => rig.operator.poll(NAME).await,
            Self::ChangeDump => {
                rig.source.pack_changes(SET);
                rig.operator.poll(NAME).await;
            }
            Self::ResourceList => {
                rig.source.refresh_resource_list(SET);
                rig.operator.poll(NAME).await;
            }
        }
    }
}

/// From the first copy to the end of the resource that has the links.
async fn follow_through(way: Way, is_dump: bool) {
    const ALL: [&str; 4] = ["a.pdf", "a.html", "a.dc.xml", "b.dc.xml"];
    let source = way.start(is_dump).await;
    let html = put(&source, "alternate", "a.html", "text/html", "html");
    let record = bare(&source, "describedby", "a.dc.xml", "record 1");
    let pdf = |bytes: &str| put(&source, "alternate", "a.pdf", PDF, bytes);
    let first = vec![pdf("pdf 1"), html.clone(), record.clone()];
    source.set_links(SET, OWNER, first);
    source.refresh_resource_list(SET);
    source.refresh_resource_dump(SET);
    let url = source.base();
    let rig = Rig::follow(source, |config| {
        following(config);
        // The hub has another port: what it does not state any more would wait for a poll.
        config.sources[0].trust_hub = Some(true);
        if is_dump {
            config.sources[0].baseline = Baseline::Dump;
        }
    })
    .await;
    assert_eq!(rig.source.base(), url);
    until_linked(&rig, &ALL, &["a.pdf", "a.dc.xml"]).await;
    assert_eq!(rig.set().await.resources, 5);
    assert_eq!((hits(&rig, "a.pdf"), hits(&rig, "a.html")), (1, 0));
    let line = rig.until_in_feed(0, "a.pdf").await;
    assert_eq!(line.alternate_of, Some(vec![rig.uri(OWNER)]));
    let line = rig.until_in_feed(0, "a.dc.xml").await;
    assert_eq!(line.describes, Some(vec![rig.uri(OWNER)]));

    // Another version, told by the link, and a file that may have changed.
    let since = rig.operator.last_change().await;
    let pdf = put(&rig.source, "alternate", "a.pdf", PDF, "pdf 2");
    bare(&rig.source, "describedby", "a.dc.xml", "record 2");
    rig.source
        .set_links(SET, OWNER, vec![pdf.clone(), html, record]);
    rig.source.update(SET, OWNER, "owner 2");
    way.announce(&rig).await;
    rig.until_holds("a.pdf", "pdf 2").await;
    rig.until_holds("a.dc.xml", "record 2").await;
    assert_eq!(rig.until_in_feed(since, "a.pdf").await.change, "updated");

    // A link that is gone, and one that is new.
    let record = bare(&rig.source, "describedby", "b.dc.xml", "record b");
    rig.source.set_links(SET, OWNER, vec![pdf, record]);
    rig.source.update(SET, OWNER, "owner 3");
    way.announce(&rig).await;
    until_linked(&rig, &ALL, &["a.pdf", "b.dc.xml"]).await;
    assert_eq!(hits(&rig, "a.pdf"), 2);

    rig.source.delete(SET, OWNER);
    way.announce(&rig).await;
    until_linked(&rig, &ALL, &[]).await;
    rig.until_mirrored().await;
    let set = rig
        .until("only the others", |set| {
            set.resources == 2 && set.pending == 0
        })
        .await;
    assert_eq!((set.failed, set.held_deletions), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn linked_resources_are_followed_by_lists() {
    follow_through(Way::ResourceList, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn linked_resources_are_followed_by_pushed_changes() {
    follow_through(Way::Push, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn linked_resources_are_followed_by_polled_changes_after_a_dump() {
    follow_through(Way::ChangeList, true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn linked_resources_are_followed_by_change_dumps() {
    follow_through(Way::ChangeDump, false).await;
}

/// A Source without channels whose first resource has these links.
async fn linking(
    links: impl FnOnce(&SampleSource) -> Vec<Link>,
    change: impl FnOnce(&mut Config),
) -> Rig {
    let source = Way::ResourceList.start(false).await;
    let links = links(&source);
    source.set_links(SET, OWNER, links);
    source.refresh_resource_list(SET);
    Rig::follow(source, change).await
}

/// Publishes a new list, and waits until it was read.
async fn until_read(rig: &Rig) {
    rig.source.refresh_resource_list(SET);
    let hits = rig.source.hits(LIST);
    rig.operator.poll(NAME).await;
    rig.source.wait_for_hits(LIST, hits + 1).await;
    // The poll after this one begins when that one has ended.
    rig.operator.poll(NAME).await;
    rig.source.wait_for_hits(LIST, hits + 2).await;
    rig.until("in sync", |set| set.state == "in-sync" && set.pending == 0)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_requested_by_default() {
    let links = |source: &SampleSource| {
        vec![
            put(source, "alternate", "a.pdf", PDF, "pdf"),
            put(source, "describedby", "a.dc.xml", "text/xml", "record"),
        ]
    };
    let rig = linking(links, |_| {}).await;
    rig.settled().await;
    until_read(&rig).await;
    assert_eq!((hits(&rig, "a.pdf"), hits(&rig, "a.dc.xml")), (0, 0));
    assert_eq!(rig.set().await.resources, 3);
    rig.assert_mirrored();
}

#[tokio::test(flavor = "multi_thread")]
async fn listed_alternate_is_requested_once_and_outlives_its_links() {
    const ALL: [&str; 1] = ["r0001.txt"];
    let links = |source: &SampleSource| {
        let state = source.state(SET);
        let uri = source.resource_uri(SET, "r0001.txt");
        let bytes = &state[uri.as_str()];
        let content = ContentInfo {
            length: Some(bytes.len() as u64),
            media_type: Some("text/plain".to_owned()),
            hashes: vec![Digest::of(Algorithm::Sha256, bytes)],
        };
        vec![Link {
            content,
            ..Link::new("alternate", uri)
        }]
    };
    let rig = linking(links, |config| {
        config.sources[0].filter = Filter::everything().following(rules(&["text/*"]));
    })
    .await;
    rig.settled().await;
    assert_eq!((hits(&rig, "r0001.txt"), rig.set().await.resources), (1, 3));
    rig.source.delete(SET, OWNER);
    until_read(&rig).await;
    until_linked(&rig, &ALL, &ALL).await;
    rig.until_mirrored().await;
    assert_eq!(hits(&rig, "r0001.txt"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_of_formats_and_excluded_and_forbidden_targets_are_not_requested() {
    let foreign = SampleSource::start(resources(0)).await.unwrap();
    let other = foreign.base().join("/record.xml").unwrap();
    foreign.put_document("/record.xml", "text/xml", "record");
    let format = Link::new("describedby", foreign.base().join("/format").unwrap());
    let excluded = "x.dc.xml";
    let links = |source: &SampleSource| {
        let typed = put(&foreign, "describedby", "y", "text/xml", "y");
        let mut links = vec![
            format,
            Link::new("describedby", "http://purl.org/dc/terms/".parse().unwrap()),
            bare(source, "describedby", excluded, "excluded"),
            bare(source, "describedby", "a.dc.xml", "record"),
            put(source, "describedby", "kind.xml", "text/xml", "kind"),
        ];
        links.push(Link {
            href: other.clone(),
            ..typed
        });
        links
    };
    let rig = linking(links, |config| {
        let own = config.sources[0].url.clone();
        let selection = Selection::new(
            Vec::new(),
            Vec::new(),
            vec![own.join("/set1/res/kind.xml").unwrap().into()],
        );
        let filter = Filter::selecting(&["*r0000.txt"], &["*x.dc.xml"], selection).unwrap();
        config.sources[0].filter = filter.following(rules(&[]));
        let host = format!("127.0.0.1:{}", own.port().unwrap());
        config.sources[0].hosts = vec![host];
    })
    .await;
    const ALL: [&str; 3] = ["a.dc.xml", "x.dc.xml", "kind.xml"];
    until_linked(&rig, &ALL, &["a.dc.xml"]).await;
    assert_eq!(rig.set().await.resources, 2);
    assert_eq!((hits(&rig, excluded), hits(&rig, "kind.xml")), (0, 0));
    assert_eq!(
        (foreign.hits("/record.xml"), foreign.hits("/format")),
        (0, 0)
    );
}

/// Links to an alternate, `a.pdf`, and to a record, `a.dc.xml`; the Source serves both.
fn pdf_and_record(source: &SampleSource) -> Vec<Link> {
    vec![
        put(source, "alternate", "a.pdf", PDF, "pdf"),
        bare(source, "describedby", "a.dc.xml", "record"),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn file_whose_link_was_cut_stays() {
    const ALL: [&str; 2] = ["a.pdf", "a.dc.xml"];
    let rig = linking(pdf_and_record, following).await;
    until_linked(&rig, &ALL, &ALL).await;
    // More links than are read precede those.
    let many = (0..64).map(|n| Link::new("via", rig.source.resource_uri(SET, &format!("via{n}"))));
    let many: Vec<Link> = many.chain(pdf_and_record(&rig.source)).collect();
    rig.source.set_links(SET, OWNER, many.clone());
    until_read(&rig).await;
    until_linked(&rig, &ALL, &ALL).await;
    let odd = rig.set().await.oddities;
    assert!(odd.iter().any(|it| it.code == "links-cut"), "{odd:?}");
    // A further link is none that was cut.
    let one_less = many[1..].to_vec();
    rig.source.set_links(SET, OWNER, one_less[..64].to_vec());
    until_read(&rig).await;
    until_linked(&rig, &ALL, &["a.pdf"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn linked_resources_beyond_the_limit_are_reported_and_followed_once_there_is_room() {
    const ALL: [&str; 2] = ["a.pdf", "a.dc.xml"];
    let source = Way::ResourceList.start(false).await;
    let links = pdf_and_record(&source);
    // The last entry: those before it have their rows.
    source.set_links(SET, "r0002.txt", links);
    source.refresh_resource_list(SET);
    let mut rig = Rig::follow(source, |config| {
        following(config);
        config.limits.resources = Some(3);
    })
    .await;
    let is_full = |set: &SetStatus| set.notices.iter().any(|it| it.code == "too-many-resources");
    rig.until("the links are reported", is_full).await;
    rig.until_mirrored().await;
    until_linked(&rig, &ALL, &[]).await;
    assert!(rig.set().await.error.is_none());
    rig.stop_daemon().await;
    rig.config.limits.resources = None;
    rig.start_daemon().await;
    until_linked(&rig, &ALL, &ALL).await;
    assert!(!is_full(&rig.set().await));
}

#[tokio::test(flavor = "multi_thread")]
async fn held_back_deletions_state_the_linked_files_that_go_with_them() {
    const ALL: [&str; 2] = ["a.pdf", "a.dc.xml"];
    let rig = linking(pdf_and_record, following).await;
    until_linked(&rig, &ALL, &ALL).await;
    for number in 0..3 {
        rig.source.delete(SET, &format!("r{number:04}.txt"));
    }
    // A list that names nothing.
    rig.source.refresh_resource_list(SET);
    rig.operator.poll(NAME).await;
    rig.until("held back", |set| set.held_deletions == 3).await;
    let (_, held) = rig.operator.get("/held").await;
    let held = held.lines().map(|line| {
        let deletion: HeldDeletion = serde_json::from_str(line).unwrap();
        (deletion.uri, deletion.linked)
    });
    let expected = [(OWNER, 2), ("r0001.txt", 0), ("r0002.txt", 0)];
    let expected = expected.map(|(name, linked)| (rig.uri(name), linked));
    assert_eq!(held.collect::<Vec<_>>(), expected);
    let (_, page) = rig.operator.get(&format!("/page/sources/{NAME}")).await;
    assert!(page.contains(" with 2 linked"), "{page}");
    rig.operator.post(&format!("/sources/{NAME}/approve")).await;
    until_linked(&rig, &ALL, &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn alternate_is_wanted_although_its_type_is_not_selected() {
    const ALL: [&str; 1] = ["a.pdf"];
    let links = |source: &SampleSource| vec![put(source, "alternate", "a.pdf", PDF, "pdf")];
    let rig = linking(links, |config| {
        let types = vec![MediaRange::parse("text/plain").unwrap()];
        let selection = Selection::new(types, Vec::new(), Vec::new());
        let filter = Filter::selecting::<&str>(&[], &[], selection).unwrap();
        config.sources[0].filter = filter.following(rules(&[PDF]));
    })
    .await;
    until_linked(&rig, &ALL, &ALL).await;
    assert_eq!(rig.set().await.resources, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_stay_when_the_keys_are_switched_off_and_go_with_their_owner() {
    const ALL: [&str; 2] = ["a.pdf", "a.dc.xml"];
    let links = |source: &SampleSource| {
        vec![
            put(source, "alternate", "a.pdf", PDF, "pdf"),
            bare(source, "describedby", "a.dc.xml", "record"),
        ]
    };
    let mut rig = linking(links, |_| {}).await;
    rig.settled().await;
    // Switched on: what was read before is read again.
    rig.stop_daemon().await;
    following(&mut rig.config);
    rig.start_daemon().await;
    until_linked(&rig, &ALL, &ALL).await;
    rig.stop_daemon().await;
    rig.config.sources[0].filter = Filter::everything();
    rig.start_daemon().await;
    until_read(&rig).await;
    until_linked(&rig, &ALL, &ALL).await;
    assert_eq!((hits(&rig, "a.pdf"), hits(&rig, "a.dc.xml")), (1, 1));
    rig.source.delete(SET, OWNER);
    until_read(&rig).await;
    until_linked(&rig, &ALL, &[]).await;
    rig.until_mirrored().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn linked_resource_that_was_not_fetched_before_the_end_is_fetched_after_it() {
    const ALL: [&str; 1] = ["a.pdf"];
    let links = |source: &SampleSource| {
        source.fail("/set1/res/a.pdf", Fault::Status(503), usize::MAX);
        vec![put(source, "alternate", "a.pdf", PDF, "pdf")]
    };
    let mut rig = linking(links, following).await;
    rig.source.wait_for_hits("/set1/res/a.pdf", 1).await;
    rig.stop_daemon().await;
    rig.source.heal("/set1/res/a.pdf");
    rig.start_daemon().await;
    until_linked(&rig, &ALL, &ALL).await;
    assert_eq!(rig.set().await.resources, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn generic_uri_is_answered_with_its_representations() {
    let rig = Rig::start_with(resources(3), |config| {
        following(config);
        // Links that another one states count once the Source states them.
        config.sources[0].trust_hub = Some(true);
    })
    .await;
    rig.settled().await;
    let generic = rig.source.resource_uri(SET, "generic");
    assert_eq!(rig.operator.resource(generic.as_str()).await, None);
    // A poll may apply the updates before they are pushed.
    let since = rig.operator.last_change().await;
    for name in ["r0001.txt", "r0002.txt"] {
        let link = Link::new("canonical", generic.clone());
        rig.source.set_links(SET, name, vec![link]);
        rig.source.update(SET, name, format!("new {name}"));
    }
    rig.source.notify_and_publish(SET).await.unwrap();
    for name in ["r0001.txt", "r0002.txt"] {
        let line = rig.until_in_feed(since, name).await;
        assert_eq!(line.alternate_of, Some(vec![generic.to_string()]));
    }
    let found = rig.operator.resource(generic.as_str()).await.unwrap();
    let both = json!([rig.uri("r0001.txt"), rig.uri("r0002.txt")]);
    assert_eq!(found["alternates"], both);
    assert_eq!(found["uri"], json!(generic.as_str()));
    let specific = rig.operator.resource(&rig.uri("r0001.txt")).await.unwrap();
    assert_eq!(specific["alternate_of"], json!([generic.as_str()]));
    // Where a list names the generic URI, its own entry links to them.
    let link = Link::new("alternate", rig.source.resource_uri(SET, "r0002.txt"));
    rig.source.set_links(SET, OWNER, vec![link]);
    rig.source.update(SET, OWNER, "new");
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.until_holds(OWNER, "new").await;
    rig.settled().await;
    let found = rig.operator.resource(&rig.uri(OWNER)).await.unwrap();
    assert_eq!(found["alternates"], json!([rig.uri("r0002.txt")]));
    let specific = rig.operator.resource(&rig.uri("r0002.txt")).await.unwrap();
    let owners = json!([generic.as_str(), rig.uri(OWNER)]);
    assert_eq!(specific["alternate_of"], owners);
}

#[tokio::test(flavor = "multi_thread")]
async fn links_of_one_entry_are_bounded_and_reported() {
    let links = |source: &SampleSource| {
        let link = |n: usize| {
            let path = format!("/a/{n}");
            source.put_document(&path, PDF, "pdf");
            let mut link = Link::new("alternate", source.base().join(&path).unwrap());
            link.content.media_type = Some(PDF.to_owned());
            link
        };
        (0..10_000).map(link).collect()
    };
    let rig = linking(links, following).await;
    let set = rig
        .until("64 at most", |set| {
            set.state == "in-sync" && set.pending == 0
        })
        .await;
    assert_eq!(set.resources, 3 + 64);
    let oddities: Vec<&str> = set.oddities.iter().map(|it| it.code.as_str()).collect();
    assert!(oddities.contains(&"links-cut"), "{oddities:?}");
    let requested = [0, 63, 64, 9_999].map(|n| rig.source.hits(&format!("/a/{n}")));
    assert_eq!(requested, [1, 1, 0, 0]);
}
