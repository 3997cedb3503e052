//! The examples of the core, section 14 (numbers 24 to 33), as a Source publishes them: what is done with the default keys.
//!
//! Each example is a function that takes a change of the configuration and returns when its changes are applied, so that a test of a
//! key begins with the same documents: `generic_uri(|source| source.… = …).await`.

use resyncd::config::{self, Config};
use resyncd::demo::{ChannelHub, SampleOptions, SampleSource};
use resyncd::protocol::{Algorithm, Digest};
use resyncd::status::SetStatus;
use serde_json::Value;

use super::packing::HEAD;
use crate::support::{FeedLine, NAME, Rig, SET, client, eventually, path_of, resources, send};

const CHANGES: &str = "/set1/changelist.xml";
const PATCH: &str = "http://www.openarchives.org/rs/terms/patch";

/// A Source that publishes an example, another host, and a Destination.
pub(super) struct Example {
    pub(super) rig: Rig,
    pub(super) other: SampleSource,
    /// The Change List's entries so far.
    entries: String,
    begin: String,
}

impl Example {
    async fn follow(change: impl FnOnce(&mut config::Source)) -> Self {
        let options = SampleOptions {
            hub: ChannelHub::None,
            ..resources(1)
        };
        let rig = Rig::start_with(options.clone(), |config| change(&mut config.sources[0])).await;
        rig.idle().await;
        let begin = rig.set().await.synced_until.unwrap();
        Self {
            rig,
            other: SampleSource::start(options).await.unwrap(),
            entries: String::new(),
            begin,
        }
    }

    /// The URI of a path of the Source.
    pub(super) fn uri(&self, path: &str) -> String {
        self.rig.source.base().join(path).unwrap().to_string()
    }

    pub(super) fn serve(&self, path: &str, media_type: &str, body: &str) {
        self.rig
            .source
            .put_document(path, media_type, body.to_owned());
    }

    /// Adds an entry to the Change List, and waits until the Destination has applied it. `md`: more attributes of its `rs:md`;
    /// `modified` in the links is replaced by the time of the change.
    pub(super) async fn announce(&mut self, entries: &[(&str, &str, &str)]) {
        let since = self.rig.operator.last_change().await;
        self.rig.source.advance(std::time::Duration::from_secs(1));
        let at = self.rig.source.boundary();
        for (path, md, links) in entries {
            let links = links.replace("modified=\"\"", &format!("modified=\"{at}\""));
            self.entries.push_str(&format!(
                r#"<url><loc>{path}</loc><lastmod>{at}</lastmod><rs:md change="updated" {md}/>{links}</url>"#
            ));
        }
        let (begin, entries_so_far) = (&self.begin, &self.entries);
        let list = format!(
            r#"{HEAD}<rs:ln rel="up" href="/set1/capabilitylist.xml"/><rs:md capability="changelist" from="{begin}"/>{entries_so_far}</urlset>"#
        );
        self.rig
            .source
            .put_document(CHANGES, "application/xml", list);
        self.rig.operator.poll(NAME).await;
        for (path, ..) in entries {
            self.line_after(since, path).await;
        }
    }

    async fn line_after(&self, since: i64, path: &str) -> FeedLine {
        let (uri, what) = (self.uri(path), format!("{path} is in the feed"));
        eventually(&what, Some(self.rig.wakes()), async || {
            let lines = self.rig.operator.changes(since).await;
            let found = lines.iter().rfind(|line| line.uri == uri).cloned();
            found.ok_or(format!("{lines:#?}"))
        })
        .await
    }

    /// The last line of the feed about a path.
    pub(super) async fn line(&self, path: &str) -> FeedLine {
        self.line_after(0, path).await
    }

    /// What `GET /resource` states of a path.
    pub(super) async fn shown(&self, path: &str) -> Value {
        self.rig.operator.resource(&self.uri(path)).await.unwrap()
    }

    /// The relations of the links that are shown of a path.
    pub(super) async fn relations(&self, path: &str) -> Vec<String> {
        let shown = self.shown(path).await;
        let links = shown["links"].as_array().unwrap().iter();
        links
            .map(|link| link["rel"].as_str().unwrap().to_owned())
            .collect()
    }

    /// The file of a path in the mirror.
    pub(super) fn file(&self, path: &str) -> Option<String> {
        let uri = self.uri(path).parse().unwrap();
        let mirror = &self.rig.config.sources[0].mirror;
        std::fs::read_to_string(mirror.join(path_of(&uri))).ok()
    }

    pub(super) fn hits(&self, path: &str) -> u64 {
        self.rig.source.hits(path)
    }
}

/// The attributes that state these bytes.
pub(super) fn stated(bytes: &str) -> String {
    let digest = Digest::of(Algorithm::Sha256, bytes.as_bytes());
    format!("hash=\"{digest}\" length=\"{}\"", bytes.len())
}

/// Example 24: mirrored content. The last location is of another scheme.
pub(super) async fn mirrored_content(change: impl FnOnce(&mut config::Source)) -> Example {
    let mut example = Example::follow(change).await;
    let body = "<p>The same at three places.</p>";
    example.serve("/res1", "text/html", body);
    for path in ["/first", "/second"] {
        example.other.put_document(path, "text/html", body);
    }
    let host = example.other.base();
    let links = format!(
        r#"<rs:ln rel="duplicate" pri="1" href="{host}first" modified=""/>
        <rs:ln rel="duplicate" pri="2" href="{host}second" modified=""/>
        <rs:ln rel="duplicate" pri="3" href="gsiftp://127.0.0.1/res1" modified=""/>"#
    );
    let md = format!("{} type=\"text/html\"", stated(body));
    example.announce(&[("/res1", &md, &links)]).await;
    example
}

/// Example 25: a generic URI, and the specific URIs of its representations.
pub(super) async fn generic_uri(change: impl FnOnce(&mut config::Source)) -> Example {
    let mut example = Example::follow(change).await;
    example.serve("/res1", "text/html", "<p>generic</p>");
    example.serve("/res1.html", "text/html", "<p>generic</p>");
    example.serve("/res1.pdf", "application/pdf", "%PDF generic");
    let links = r#"<rs:ln rel="alternate" href="/res1.html" modified="" type="text/html"/>
        <rs:ln rel="alternate" href="/res1.pdf" modified="" type="application/pdf"/>"#;
    example.announce(&[("/res1", "", links)]).await;
    example
}

/// Example 26: a specific URI, and the generic one.
pub(super) async fn specific_uri(change: impl FnOnce(&mut config::Source)) -> Example {
    let mut example = Example::follow(change).await;
    let body = "<p>specific</p>";
    example.serve("/res1.html", "text/html", body);
    example.serve("/res1", "text/html", body);
    let links = r#"<rs:ln rel="canonical" href="/res1" modified=""/>"#;
    example
        .announce(&[("/res1.html", &stated(body), links)])
        .await;
    example
}

/// Example 27: a patch of a type that is known, and one of a type that is not.
pub(super) async fn patches(change: impl FnOnce(&mut config::Source)) -> Example {
    let mut example = Example::follow(change).await;
    let before = r#"{"title":"A","pages":[1,2]}"#;
    example.serve("/res4", "application/json", before);
    example.serve("/res5-full.tiff", "image/tiff", "II the first image");
    let of_image = stated("II the first image");
    example
        .announce(&[
            ("/res4", &stated(before), ""),
            ("/res5-full.tiff", &of_image, ""),
        ])
        .await;
    let after = r#"{"title":"A","pages":[1,2,3]}"#;
    let patch = r#"[{"op":"add","path":"/pages/-","value":3}]"#;
    example.serve("/res4", "application/json", after);
    example.serve("/res4-json-patch", "application/json-patch", patch);
    example.serve("/res5-full.tiff", "image/tiff", "II the second image");
    example.serve("/res5-diff", "application/x-tiff-diff", "a difference");
    let link = |href: &str, body: &str, media_type: &str| {
        let stated = stated(body);
        format!(r#"<rs:ln rel="{PATCH}" href="{href}" modified="" {stated} type="{media_type}"/>"#)
    };
    let of_json = link("/res4-json-patch", patch, "application/json-patch");
    let of_tiff = link("/res5-diff", "a difference", "application/x-tiff-diff");
    let image = format!("{} type=\"image/tiff\"", stated("II the second image"));
    example
        .announce(&[
            ("/res4", &stated(after), &of_json),
            ("/res5-full.tiff", &image, &of_tiff),
        ])
        .await;
    example
}

/// Example 28: a resource, and a metadata record that describes it.
pub(super) async fn metadata(change: impl FnOnce(&mut config::Source)) -> Example {
    let mut example = Example::follow(change).await;
    let (file, record) = ("%PDF described", "<record/>");
    example.serve("/res2.pdf", "application/pdf", file);
    example.serve("/res2_dublin-core_metadata.xml", "application/xml", record);
    let of_file = format!("{} type=\"application/pdf\"", stated(file));
    let described_by = r#"<rs:ln rel="describedby" href="/res2_dublin-core_metadata.xml" modified="" type="application/xml"/>"#;
    let describes = format!(
        r#"<rs:ln rel="describes" href="/res2.pdf" modified="" {of_file}/>
        <rs:ln rel="profile" href="http://purl.org/dc/elements/1.1/"/>"#
    );
    example
        .announce(&[
            ("/res2.pdf", &of_file, described_by),
            (
                "/res2_dublin-core_metadata.xml",
                "type=\"application/xml\"",
                &describes,
            ),
        ])
        .await;
    example
}

/// Example 29: the announced version at its own URI, a TimeGate and a TimeMap.
pub(super) async fn versions(change: impl FnOnce(&mut config::Source)) -> Example {
    let mut example = Example::follow(change).await;
    let body = "<p>the announced version</p>";
    example.serve("/res1", "text/html", body);
    example.serve("/20260103070000/res1", "text/html", body);
    let of_body = format!("{} type=\"text/html\"", stated(body));
    let links = format!(
        r#"<rs:ln rel="memento" href="/20260103070000/res1" modified="" {of_body}/>
        <rs:ln rel="timegate" href="/timegate/http://127.0.0.1/res1"/>
        <rs:ln rel="timemap" href="/timemap/http://127.0.0.1/res1" type="application/link-format"/>"#
    );
    example.announce(&[("/res1", &of_body, &links)]).await;
    example
}

/// Example 30: a member of a collection.
pub(super) async fn collection(change: impl FnOnce(&mut config::Source)) -> Example {
    let mut example = Example::follow(change).await;
    let body = "<p>a member</p>";
    example.serve("/res1", "text/html", body);
    let links = r#"<rs:ln rel="collection" href="/aggregation/0601007"/>"#;
    let md = format!("{} type=\"text/html\"", stated(body));
    example.announce(&[("/res1", &md, links)]).await;
    example
}

/// Examples 31 to 33: the original, and the aggregator that republishes it. (A second aggregator states the same link.)
pub(super) async fn republished(change: impl FnOnce(&mut config::Source)) -> Example {
    let mut example = Example::follow(change).await;
    let body = "<p>republished</p>";
    example.other.put_document("/res1.html", "text/html", body);
    example.serve("/res1.html", "text/html", body);
    let md = format!("{} type=\"text/html\"", stated(body));
    let original = example.other.base();
    let links = format!(r#"<rs:ln rel="via" href="{original}res1.html" modified="" {md}/>"#);
    example.announce(&[("/res1.html", &md, &links)]).await;
    example
}

#[tokio::test(flavor = "multi_thread")]
async fn mirrored_content_is_fetched_from_the_first_location() {
    let example = mirrored_content(|_| {}).await;
    let (first, second) = (example.other.hits("/first"), example.other.hits("/second"));
    assert_eq!((first, second, example.hits("/res1")), (1, 0, 0));
    assert_eq!(
        example.file("/res1").as_deref(),
        Some("<p>The same at three places.</p>")
    );
    assert_eq!(example.relations("/res1").await, ["duplicate"; 3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn generic_uri_is_mirrored_and_its_representations_are_shown() {
    let example = generic_uri(|_| {}).await;
    assert_eq!(example.file("/res1").as_deref(), Some("<p>generic</p>"));
    assert_eq!(example.relations("/res1").await, ["alternate"; 2]);
    for path in ["/res1.html", "/res1.pdf"] {
        assert_eq!(
            (example.hits(path), example.file(path)),
            (0, None),
            "{path}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn specific_uri_is_mirrored_and_its_generic_one_is_shown() {
    let example = specific_uri(|_| {}).await;
    let file = example.file("/res1.html");
    assert_eq!(file.as_deref(), Some("<p>specific</p>"));
    assert_eq!(example.relations("/res1.html").await, ["canonical"]);
    assert_eq!((example.hits("/res1"), example.file("/res1")), (0, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn patch_of_a_known_type_is_used_and_another_one_is_not_requested() {
    let example = patches(|_| {}).await;
    let after = r#"{"title":"A","pages":[1,2,3]}"#;
    assert_eq!(example.file("/res4").as_deref(), Some(after));
    assert_eq!(
        (example.hits("/res4"), example.hits("/res4-json-patch")),
        (1, 1)
    );
    assert_eq!(example.line("/res4").await.by.as_deref(), Some("patch"));
    let image = example.file("/res5-full.tiff");
    assert_eq!(image.as_deref(), Some("II the second image"));
    assert_eq!(
        (example.hits("/res5-full.tiff"), example.hits("/res5-diff")),
        (2, 0)
    );
    assert_eq!(example.line("/res5-full.tiff").await.by, None);
    let counted = |set: &SetStatus| set.patched == 1 && set.patch_missed == 0;
    example.rig.until("counted", counted).await;

    let whole = patches(|source| source.patches = false).await;
    assert_eq!(whole.file("/res4").as_deref(), Some(after));
    assert_eq!(
        (whole.hits("/res4"), whole.hits("/res4-json-patch")),
        (2, 0)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn resource_and_its_metadata_are_paired() {
    let example = metadata(|_| {}).await;
    let (file, record) = ("/res2.pdf", "/res2_dublin-core_metadata.xml");
    assert_eq!(example.file(file).as_deref(), Some("%PDF described"));
    assert_eq!(example.file(record).as_deref(), Some("<record/>"));
    let of_file = example.line(file).await;
    assert_eq!(of_file.describedby, Some(vec![example.uri(record)]));
    let of_record = example.line(record).await;
    assert_eq!(of_record.describes, Some(vec![example.uri(file)]));
    let profile = "http://purl.org/dc/elements/1.1/";
    assert_eq!(of_record.profile, Some(vec![profile.to_owned()]));
    assert_eq!(
        example.shown(file).await["describedby"][0],
        example.uri(record)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn announced_version_is_mirrored_and_its_own_uri_is_shown() {
    let example = versions(|_| {}).await;
    let file = example.file("/res1");
    assert_eq!(file.as_deref(), Some("<p>the announced version</p>"));
    assert_eq!(
        example.relations("/res1").await,
        ["memento", "timegate", "timemap"]
    );
    for path in [
        "/20260103070000/res1",
        "/timegate/http://127.0.0.1/res1",
        "/timemap/http://127.0.0.1/res1",
    ] {
        assert_eq!(example.hits(path), 0, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn collection_of_a_member_is_in_the_feed() {
    let example = collection(|_| {}).await;
    assert_eq!(example.file("/res1").as_deref(), Some("<p>a member</p>"));
    let collections = example.line("/res1").await.collections;
    assert_eq!(collections, Some(vec![example.uri("/aggregation/0601007")]));
    assert_eq!(example.hits("/aggregation/0601007"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn original_of_a_republished_resource_is_in_the_feed() {
    let example = republished(|_| {}).await;
    let file = example.file("/res1.html");
    assert_eq!(file.as_deref(), Some("<p>republished</p>"));
    let original = format!("{}res1.html", example.other.base());
    assert_eq!(
        example.line("/res1.html").await.via,
        Some(vec![original.clone()])
    );
    assert_eq!(example.shown("/res1.html").await["via"][0], original);
    assert_eq!(example.other.hits("/res1.html"), 0);
}

/// What `demo` shows: the sample Source publishes every relation, and serves what its links lead to.
#[tokio::test(flavor = "multi_thread")]
async fn sample_source_publishes_every_relation() {
    let options = SampleOptions {
        metadata: true,
        related: true,
        ..resources(2)
    };
    // By a notification of another origin's hub nothing is patched.
    let trusting = |config: &mut Config| config.sources[0].trust_hub = Some(true);
    let rig = Rig::start_with(options, trusting).await;
    rig.settled().await;
    let relations = async |name: &str| {
        let shown = rig.operator.resource(&rig.uri(name)).await.unwrap();
        let links = shown["links"].as_array().unwrap().iter();
        let of = |link: &Value, key: &str| link[key].as_str().unwrap().to_owned();
        let links = links.map(|link| (of(link, "rel"), of(link, "href")));
        links.collect::<Vec<_>>()
    };
    let mut found = Vec::new();
    for (name, expected) in [
        ("r0000.txt", &["describedby", "collection"][..]),
        ("r0000.dc.xml", &["describes", "profile", "collection"]),
        ("mirrored.txt", &["duplicate"]),
        ("guide", &["alternate", "alternate"]),
        ("guide.txt", &["canonical"]),
        ("catalog.json", &[]),
        ("news.txt", &["memento", "timegate", "timemap"]),
        ("copied.txt", &["via"]),
    ] {
        let links = relations(name).await;
        let rels: Vec<_> = links.iter().map(|(rel, _)| rel.as_str()).collect();
        assert_eq!(rels, expected, "{name}");
        found.extend(links);
    }
    // Identifiers need not be served.
    let is_name = |rel: &str| ["profile", "collection"].contains(&rel);
    for (rel, href) in found.iter().filter(|(rel, _)| !is_name(rel)) {
        let answer = send(|| client().get(href)).await;
        assert!(answer.status().is_success(), "{rel} {href}: {answer:?}");
    }

    let since = rig.operator.last_change().await;
    let second = "{\"title\":\"Catalog\",\"version\":2}\n";
    rig.source.update(SET, "catalog.json", second);
    rig.source.update(SET, "news.txt", "The second news.\n");
    rig.source.notify_and_publish(SET).await.unwrap();
    let line = rig.until_in_feed(since, "catalog.json").await;
    assert_eq!(line.by.as_deref(), Some("patch"));
    assert_eq!(rig.source.hits("/set1/res/catalog.json"), 1);
    rig.until_mirrored().await;
    rig.until_in_feed(since, "news.txt").await;
    let links = relations("news.txt").await;
    let memento = send(|| client().get(&links[0].1)).await;
    assert!(memento.headers().contains_key("memento-datetime"));
    assert_eq!(memento.text().await.unwrap(), "The second news.\n");
    let map = send(|| client().get(&links[2].1))
        .await
        .text()
        .await
        .unwrap();
    assert_eq!(map.matches("rel=\"memento\"").count(), 2, "{map}");
    // The first version, by its time.
    let old = || {
        let request = client().get(&links[1].1);
        request.header("Accept-Datetime", "Thu, 01 Jan 2015 00:00:00 GMT")
    };
    assert_eq!(send(old).await.text().await.unwrap(), "The first news.\n");
    rig.assert_mirrored();
}
