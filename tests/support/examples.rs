//! The examples of the core, section 14 (numbers 24 to 33), published by one Source: each below a path of its own, with the specification's
//! text. What differs are the hosts, and the lengths and digests of bytes that nobody has.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use resourcesync::{Algorithm, Digest};
use resyncd::config::{self, Config};
use resyncd::status::SetStatus;
use resyncd_testkit::{ChannelHub, DumpOptions, Notification, SampleOptions, SampleSource};

use super::{FeedLine, Files, NAME, Operator, SET, difference, eventually, files, put_zip, time};

const PATCH: &str = "http://www.openarchives.org/rs/terms/patch";
const BEFORE: &str = "2013-01-03T00:00:00Z";
const AFTER: &str = "2013-01-05T00:00:00Z";
/// The digests that stand in the specification for those of the bytes served here.
const OF_RESOURCE: &str = "md5:1584abdf8ebdc9802ac0c6a7402c03b6";
const OF_JSON: &str = "sha-256:f40xZX_x_DFGFDgghgdfb6rtSx-iosjf6735432nklj";
const OF_PATCH: &str = "sha-256:y66dER_t_HWEIKpesdkeb7rtSc-ippjf9823742opld";
const OF_IMAGE: &str = "sha-256:f40xZX_x_F05LcGBSKHWXfwtSx-jlnc0St3SABJtkGk";
const OF_DIFFERENCE: &str = "sha-256:h986gT_t_87HTkjHYE76G558hY-jdfgy76t55sadJUYT";

/// The number of each example, and its entries; those of all examples in the order of time. `28b` is a part of example 28: its record is
/// not listed.
const ENTRIES: [(&str, &str); 12] = [
    (
        "30",
        r#"<url><loc>http://example.com/res1</loc><lastmod>2013-01-03T07:00:00Z</lastmod>
    <rs:md hash="md5:1584abdf8ebdc9802ac0c6a7402c03b6" length="8876" type="text/html" change="updated"/>
    <rs:ln rel="collection" href="http://example.com/aggregation/0601007"/></url>"#,
    ),
    (
        "27",
        r#"<url><loc>http://example.com/res4</loc><lastmod>2013-01-03T17:00:00Z</lastmod>
    <rs:md change="updated" hash="sha-256:f40xZX_x_DFGFDgghgdfb6rtSx-iosjf6735432nklj" length="56778"/>
    <rs:ln rel="http://www.openarchives.org/rs/terms/patch" href="http://example.com/res4-json-patch" modified="2013-01-03T17:00:00Z"
      hash="sha-256:y66dER_t_HWEIKpesdkeb7rtSc-ippjf9823742opld" length="73" type="application/json-patch"/></url>"#,
    ),
    (
        "24",
        r#"<url><loc>http://example.com/res1</loc><lastmod>2013-01-03T18:00:00Z</lastmod>
    <rs:md change="updated" hash="md5:1584abdf8ebdc9802ac0c6a7402c03b6" length="8876" type="text/html"/>
    <rs:ln rel="duplicate" pri="1" href="http://mirror1.example.com/res1" modified="2013-01-03T18:00:00Z"/>
    <rs:ln rel="duplicate" pri="2" href="http://mirror2.example.com/res1" modified="2013-01-03T18:00:00Z"/>
    <rs:ln rel="duplicate" pri="3" href="gsiftp://gridftp.example.com/res1" modified="2013-01-03T18:00:00Z"/></url>"#,
    ),
    (
        "25",
        r#"<url><loc>http://example.com/res1</loc><lastmod>2013-01-03T18:00:00Z</lastmod>
    <rs:md change="updated"/>
    <rs:ln rel="alternate" href="http://example.com/res1.html" modified="2013-01-03T18:00:00Z" type="text/html"/>
    <rs:ln rel="alternate" href="http://example.com/res1.pdf" modified="2013-01-03T18:00:00Z" type="application/pdf"/></url>"#,
    ),
    (
        "26",
        r#"<url><loc>http://example.com/res1.html</loc><lastmod>2013-01-03T18:00:00Z</lastmod>
    <rs:md change="updated" hash="md5:1584abdf8ebdc9802ac0c6a7402c03b6" length="8876"/>
    <rs:ln rel="canonical" href="http://example.com/res1" modified="2013-01-03T18:00:00Z"/></url>"#,
    ),
    (
        "27",
        r#"<url><loc>http://example.com/res5-full.tiff</loc><lastmod>2013-01-03T18:00:00Z</lastmod>
    <rs:md change="updated" hash="sha-256:f40xZX_x_F05LcGBSKHWXfwtSx-jlnc0St3SABJtkGk" length="9788456778" type="image/tiff"/>
    <rs:ln rel="http://www.openarchives.org/rs/terms/patch" href="http://example.com/res5-diff" modified="2013-01-03T18:00:00Z"
      hash="sha-256:h986gT_t_87HTkjHYE76G558hY-jdfgy76t55sadJUYT" length="4533" type="application/x-tiff-diff"/></url>"#,
    ),
    ("28", FILE),
    ("28b", FILE),
    (
        "29",
        r#"<url><loc>http://example.com/res1</loc><lastmod>2013-01-03T18:00:00Z</lastmod>
    <rs:md hash="md5:1584abdf8ebdc9802ac0c6a7402c03b6" length="8876" type="text/html" change="updated"/>
    <rs:ln rel="memento" href="http://example.com/20130103070000/res1" modified="2013-01-02T18:00:00Z"
      hash="md5:1584abdf8ebdc9802ac0c6a7402c03b6" length="8876" type="text/html"/>
    <rs:ln rel="timegate" href="http://example.com/timegate/http://example.com/res1"/>
    <rs:ln rel="timemap" href="http://example.com/timemap/http://example.com/res1" type="application/link-format"/></url>"#,
    ),
    (
        "28",
        r#"<url><loc>http://example.com/res2_dublin-core_metadata.xml</loc><lastmod>2013-01-03T19:00:00Z</lastmod>
    <rs:md change="updated" type="application/xml"/>
    <rs:ln rel="describes" href="http://example.com/res2.pdf" modified="2013-01-03T18:00:00Z"
      hash="md5:1584abdf8ebdc9802ac0c6a7402c03b6" length="8876" type="application/pdf"/>
    <rs:ln rel="profile" href="http://purl.org/dc/elements/1.1/"/></url>"#,
    ),
    (
        "32",
        r#"<url><loc>http://aggregator1.example.com/res1.html</loc><lastmod>2013-01-03T20:00:00Z</lastmod>
    <rs:md hash="md5:1584abdf8ebdc9802ac0c6a7402c03b6" length="8876" type="text/html" change="updated"/>
    <rs:ln rel="via" href="http://original.example.com/res1.html" modified="2013-01-03T07:00:00Z"
      hash="md5:1584abdf8ebdc9802ac0c6a7402c03b6" length="8876" type="text/html"/></url>"#,
    ),
    (
        "33",
        r#"<url><loc>http://aggregator2.example.com/res1.html</loc><lastmod>2013-01-04T09:00:00Z</lastmod>
    <rs:md hash="md5:1584abdf8ebdc9802ac0c6a7402c03b6" length="8876" type="text/html" change="updated"/>
    <rs:ln rel="via" href="http://original.example.com/res1.html" modified="2013-01-03T07:00:00Z"
      hash="md5:1584abdf8ebdc9802ac0c6a7402c03b6" length="8876" type="text/html"/></url>"#,
    ),
];

const FILE: &str = r#"<url><loc>http://example.com/res2.pdf</loc><lastmod>2013-01-03T18:00:00Z</lastmod>
    <rs:md change="updated" hash="md5:1584abdf8ebdc9802ac0c6a7402c03b6" length="8876" type="application/pdf"/>
    <rs:ln rel="describedby" href="http://example.com/res2_dublin-core_metadata.xml" modified="2013-01-01T12:00:00Z" type="application/xml"/></url>"#;

/// What the Destination has before the changes: the bases of the patches.
const BASES: &str = r#"<url><loc>http://example.com/res4</loc><lastmod>2013-01-01T00:00:00Z</lastmod><rs:md change="updated"/></url>
<url><loc>http://example.com/res5-full.tiff</loc><lastmod>2013-01-01T00:00:00Z</lastmod><rs:md change="updated" type="image/tiff"/></url>"#;

/// The listed resources, each with the type that its entry states, and the name of its version.
const LISTED: [(&str, Option<&str>, &str); 12] = [
    ("24/res1", Some("text/html"), "20130103T180000Z"),
    ("25/res1", None, "20130103T180000Z"),
    ("26/res1.html", None, "20130103T180000Z"),
    ("27/res4", None, "20130103T170000Z"),
    ("27/res5-full.tiff", Some("image/tiff"), "20130103T180000Z"),
    ("28/res2.pdf", Some("application/pdf"), "20130103T180000Z"),
    (RECORD, Some("application/xml"), "20130103T190000Z"),
    ("28b/res2.pdf", Some("application/pdf"), "20130103T180000Z"),
    ("29/res1", Some("text/html"), "20130103T180000Z"),
    ("30/res1", Some("text/html"), "20130103T070000Z"),
    ("32/res1.html", Some("text/html"), "20130103T200000Z"),
    ("33/res1.html", Some("text/html"), "20130104T090000Z"),
];
const RECORD: &str = "28/res2_dublin-core_metadata.xml";
const UNLISTED_RECORD: &str = "28b/res2_dublin-core_metadata.xml";
const JSON: &str = "27/res4";
const IMAGE: &str = "27/res5-full.tiff";
const PDF: &str = "25/res1.pdf";
/// What is only linked to.
const LINKED: [&str; 9] = [
    "25/res1.html",
    PDF,
    "26/res1",
    "27/res4-json-patch",
    "27/res5-diff",
    UNLISTED_RECORD,
    "29/20130103070000/res1",
    "29/timegate/{source}/29/res1",
    "29/timemap/{source}/29/res1",
];

/// What the feed's last line of a resource states besides the change: a field, and the URI that is its only value.
const FACTS: [(&str, &str, &str); 9] = [
    (PDF, "alternate_of", "{source}/25/res1"),
    ("26/res1.html", "alternate_of", "{source}/26/res1"),
    (
        "28/res2.pdf",
        "describedby",
        "{source}/28/res2_dublin-core_metadata.xml",
    ),
    (RECORD, "describes", "{source}/28/res2.pdf"),
    (RECORD, "profile", "http://purl.org/dc/elements/1.1/"),
    (
        "28b/res2.pdf",
        "describedby",
        "{source}/28b/res2_dublin-core_metadata.xml",
    ),
    (UNLISTED_RECORD, "describes", "{source}/28b/res2.pdf"),
    ("30/res1", "collections", "{source}/30/aggregation/0601007"),
    ("32/res1.html", "via", "{other}/original/res1.html"),
];
const ORIGINAL: (&str, &str, &str) = ("33/res1.html", "via", "{other}/original/res1.html");

/// A key of `[[source]]`, and what it makes of the examples.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    toml: &'static str,
    /// The listed resources that are wanted.
    wanted: fn(&str) -> bool,
    /// What is fetched although it is not listed.
    linked: Option<&'static str>,
    /// What is fetched last, so that a test can interrupt it.
    last: &'static str,
}

/// No key at first, then each in turn.
pub(crate) const KEYS: [Key; 9] = [
    Key {
        toml: "",
        wanted: |_| true,
        linked: None,
        last: "30/res1",
    },
    Key {
        toml: "types = [\"application/pdf\"]",
        wanted: |path| path.ends_with(".pdf"),
        linked: None,
        last: "28/res2.pdf",
    },
    Key {
        toml: "types = [\"text/*\"]",
        wanted: |path| path.contains("res1"),
        linked: None,
        last: "26/res1.html",
    },
    Key {
        toml: "collections = [\"{source}/30/aggregation/0601007\"]",
        wanted: |path| path == "30/res1",
        linked: None,
        last: "30/res1",
    },
    Key {
        toml: "profiles = [\"http://purl.org/dc/elements/1.1/\"]",
        wanted: |path| path.starts_with("28/"),
        linked: None,
        last: RECORD,
    },
    Key {
        toml: "representations = [\"application/pdf\"]",
        wanted: |_| true,
        linked: Some(PDF),
        last: PDF,
    },
    Key {
        toml: "metadata = \"follow\"",
        wanted: |_| true,
        linked: Some(UNLISTED_RECORD),
        last: UNLISTED_RECORD,
    },
    Key {
        toml: "versions = \"versions\"",
        wanted: |_| true,
        linked: None,
        last: "29/res1",
    },
    Key {
        toml: "patches = false",
        wanted: |_| true,
        linked: None,
        last: JSON,
    },
];

impl Key {
    /// The key as it stands in the configuration file.
    pub(crate) fn toml(&self, examples: &Examples) -> String {
        format!("trust_hub = true\n{}", examples.text(self.toml))
    }

    /// Configures the Source of a daemon in this process.
    pub(crate) fn configure(&self, examples: &Examples, config: &mut Config) {
        let followed = &mut config.sources[0];
        let text = format!(
            "state_dir = \"state\"\n[[source]]\nname = \"{NAME}\"\nurl = \"{}\"\nmirror = \"mirror\"\n{}",
            followed.url,
            self.toml(examples)
        );
        let file = followed.mirror.with_file_name("config.toml");
        let parsed = Config::parse(&text, &file).unwrap();
        let reorder_window = followed.reorder_window;
        *followed = config::Source {
            reorder_window,
            ..parsed.sources[0].clone()
        };
    }

    fn selects_types(&self) -> bool {
        self.toml.starts_with("types")
    }
}

/// How the examples are published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    ResourceList,
    ResourceDump,
    Push,
    ChangeList,
    ChangeDump,
}

impl Way {
    pub(crate) const ALL: [Self; 5] = [
        Self::ResourceList,
        Self::ResourceDump,
        Self::Push,
        Self::ChangeList,
        Self::ChangeDump,
    ];

    /// Whether a Resource List without them is read first.
    pub(crate) fn is_of_changes(self) -> bool {
        !matches!(self, Self::ResourceList | Self::ResourceDump)
    }

    fn has_package(self) -> bool {
        matches!(self, Self::ResourceDump | Self::ChangeDump)
    }

    fn origin(self) -> &'static str {
        match self {
            Self::ResourceList => "resource-list",
            Self::ResourceDump => "resource-dump",
            Self::Push => "notification",
            Self::ChangeList => "change-list",
            Self::ChangeDump => "change-dump",
        }
    }
}

/// The Source of the examples, and the other hosts.
pub(crate) struct Examples {
    pub(crate) source: SampleSource,
    other: SampleSource,
    way: Way,
}

/// The bytes of most resources.
fn resource() -> String {
    "<p>resource</p>\n".repeat(600)[..8876].to_owned()
}

const OLD_TITLE: &str = "A";
const NEW_TITLE: &str = "The title after the patch is";

fn json(title: &str) -> String {
    let text = "x".repeat(56778 - 22 - NEW_TITLE.len());
    format!("{{\"title\":\"{title}\",\"text\":\"{text}\"}}")
}

fn patch() -> String {
    format!("[{{\"op\":\"replace\",\"path\":\"/title\",\"value\":\"{NEW_TITLE}\"}}]")
}

/// The type and the bytes of a path, once the examples are published.
fn served(path: &str) -> (&'static str, String) {
    match path {
        "25/res1" => ("text/html", "<p>generic</p>".to_owned()),
        PDF => ("application/pdf", "%PDF generic".to_owned()),
        JSON => ("application/json", json(NEW_TITLE)),
        "27/res4-json-patch" => ("application/json-patch", patch()),
        IMAGE => ("image/tiff", "II the second image".to_owned()),
        "27/res5-diff" => ("application/x-tiff-diff", "-".repeat(4533)),
        RECORD | UNLISTED_RECORD => ("application/xml", "<record/>".to_owned()),
        path if path.ends_with(".pdf") => ("application/pdf", resource()),
        _ => ("text/html", resource()),
    }
}

impl Examples {
    /// Starts the Source. It has published the examples already if a baseline has them.
    pub(crate) async fn start(way: Way) -> Self {
        let options = SampleOptions {
            hub: match way {
                Way::Push => SampleOptions::default().hub,
                _ => ChannelHub::None,
            },
            resources_per_set: 0,
            resource_list: way != Way::ResourceDump,
            change_list: way == Way::ChangeList,
            dumps: DumpOptions {
                resource_dump: way == Way::ResourceDump,
                change_dump: way == Way::ChangeDump,
                ..DumpOptions::default()
            },
            start: Some(time(BEFORE)),
            ..SampleOptions::default()
        };
        let examples = Self {
            source: SampleSource::start(options).await.unwrap(),
            other: SampleSource::start(SampleOptions {
                hub: ChannelHub::None,
                ..SampleOptions::default()
            })
            .await
            .unwrap(),
            way,
        };
        for path in ["mirror1/res1", "mirror2/res1", "original/res1.html"] {
            let path = format!("/{path}");
            examples.other.put_document(&path, "text/html", resource());
        }
        let listed = LISTED.iter().map(|(path, ..)| *path);
        for path in listed.chain(LINKED) {
            examples.serve(path, served(path));
        }
        if way.is_of_changes() {
            examples.serve(JSON, ("application/json", json(OLD_TITLE)));
            examples.serve(IMAGE, ("image/tiff", "II the first image".to_owned()));
            let bases = examples.entry("27", BASES);
            examples.put_list("resourcelist", &format!("at=\"{BEFORE}\""), &bases);
        } else {
            examples.publish().await;
        }
        examples
    }

    fn serve(&self, path: &str, (media_type, bytes): (&str, String)) {
        let path = format!("/{}", self.text(path));
        self.source.put_document(&path, media_type, bytes);
    }

    /// A text with the URIs of the hosts.
    fn text(&self, text: &str) -> String {
        let uri = |source: &SampleSource| source.url().trim_end_matches('/').to_owned();
        text.replace("{source}", &uri(&self.source))
            .replace("{other}", &uri(&self.other))
    }

    /// An entry of an example, as it is published here.
    fn entry(&self, number: &str, text: &str) -> String {
        let own = format!("{{source}}/{number}");
        let mut text = text.to_owned();
        for host in [
            "example.com",
            "aggregator1.example.com",
            "aggregator2.example.com",
        ] {
            text = text.replace(&format!("http://{host}"), &own);
        }
        for host in ["mirror1", "mirror2", "original"] {
            let uri = format!("http://{host}.example.com");
            text = text.replace(&uri, &format!("{{other}}/{host}"));
        }
        for (stated, algorithm, path) in [
            (OF_RESOURCE, Algorithm::Md5, "24/res1"),
            (OF_JSON, Algorithm::Sha256, JSON),
            (OF_PATCH, Algorithm::Sha256, "27/res4-json-patch"),
            (OF_IMAGE, Algorithm::Sha256, IMAGE),
            (OF_DIFFERENCE, Algorithm::Sha256, "27/res5-diff"),
        ] {
            let digest = Digest::of(algorithm, served(path).1.as_bytes());
            text = text.replace(stated, &digest.to_string());
        }
        let length = served(IMAGE).1.len().to_string();
        self.text(&text.replace("9788456778", &length))
    }

    fn entries(&self) -> Vec<String> {
        let entries = ENTRIES.iter();
        entries
            .map(|(number, text)| self.entry(number, text))
            .collect()
    }

    /// The document of a capability: `md` are the attributes of its `rs:md`.
    fn document(&self, capability: &str, md: &str, entries: &str) -> String {
        // Only a change has a kind, and only a change has a patch.
        let is_of_changes = capability.starts_with("change");
        let entries = if is_of_changes {
            entries.to_owned()
        } else {
            without_patches(&entries.replace(" change=\"updated\"", ""))
        };
        let up = self.source.capability_list(SET);
        format!(
            r#"<?xml version="1.0" encoding="UTF-8"?>
<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"
  xmlns:rs="http://www.openarchives.org/rs/terms/">
  <rs:ln rel="up" href="{up}"/>
  <rs:md capability="{capability}" {md}/>
{entries}</urlset>"#
        )
    }

    fn put_list(&self, capability: &str, md: &str, entries: &str) {
        let document = self.document(capability, md, entries);
        let path = format!("/{SET}/{capability}.xml");
        self.source.put_document(&path, "application/xml", document);
    }

    /// Serves a dump of one package. The package of changes has the patch of a resource instead of its bytes.
    fn put_dump(&self, capability: &str, md: &str) {
        let (mut manifest, mut members) = (String::new(), Vec::new());
        for (n, entry) in self.entries().into_iter().enumerate() {
            let uri = entry.split(&['<', '>'][..]).nth(4).unwrap();
            let path = uri.trim_start_matches(self.source.url().as_str());
            let (element, name) = if self.way == Way::ChangeDump && path == JSON {
                (format!("<rs:ln rel=\"{PATCH}\" "), "27/res4-json-patch")
            } else {
                ("<rs:md ".to_owned(), path)
            };
            let member = format!("resources/{n}");
            manifest += &entry.replace(&element, &format!("{element}path=\"/{member}\" "));
            members.push((member, served(name).1));
        }
        let members: Vec<_> = members
            .iter()
            .map(|(name, bytes)| (name.as_str(), bytes.as_str()))
            .collect();
        let manifest = self.document(&format!("{capability}-manifest"), md, &manifest);
        put_zip(&self.source, PACKAGE, &manifest, &members);
        let package = format!(
            "<url><loc>{}</loc><rs:md type=\"application/zip\" {md}/></url>",
            self.text(&format!("{{source}}{PACKAGE}"))
        );
        self.put_list(capability, md, &package);
    }

    /// Waits until no version of the bases is pending. The folder of versions is opened beside the tasks: what is replaced before that is
    /// missed.
    pub(crate) async fn until_bases_are_stored(operator: &Operator) {
        eventually("the versions are stored", None, async || {
            let source = operator.status().await.sources.remove(0);
            let pending = source.versions.as_ref().map_or(0, |it| it.pending);
            (pending == 0).then_some(()).ok_or(format!("{source:#?}"))
        })
        .await;
    }

    /// Publishes the examples. Only a push needs no poll afterwards.
    pub(crate) async fn publish(&self) {
        for path in [JSON, IMAGE] {
            self.serve(path, served(path));
        }
        let (at, interval) = (
            format!("at=\"{AFTER}\""),
            format!("from=\"{BEFORE}\" until=\"{AFTER}\""),
        );
        let entries = self.entries().concat();
        match self.way {
            Way::ResourceList => self.put_list("resourcelist", &at, &entries),
            Way::ResourceDump => self.put_dump("resourcedump", &at),
            Way::ChangeList => self.put_list("changelist", &format!("from=\"{BEFORE}\""), &entries),
            Way::ChangeDump => self.put_dump("changedump", &interval),
            Way::Push => {
                let body = self.document("change-notification", &interval, &entries);
                let notification = Notification {
                    body: body.into(),
                    ..self.source.notify(SET)
                };
                let deliveries = self.source.publish(&notification).await.unwrap();
                assert!(deliveries[0].is_accepted());
            }
        }
    }

    /// The path that is requested last: until it is served, the examples are not mirrored.
    pub(crate) fn last_path(&self, key: &Key) -> String {
        match (self.way, key.linked) {
            (Way::ResourceDump | Way::ChangeDump, None) => PACKAGE.to_owned(),
            _ => format!("/{}", key.last),
        }
    }

    /// Waits until everything is applied, and asserts that mirror, feed, versions and requests are what the key makes of the examples.
    /// `since`: the last line of the feed before. `interruptions`: how often the daemon was killed meanwhile.
    pub(crate) async fn check(
        &self,
        key: &Key,
        operator: &Operator,
        mirror: &Path,
        since: i64,
        interruptions: u64,
    ) {
        let what = format!("{:?} with {:?}", self.way, key.toml);
        eventually(&what, None, async || {
            let status = operator.status().await;
            let source = &status.sources[0];
            let set = source.sets.iter().find(|set| {
                let until = set.synced_until.as_ref().map(time);
                set.state == "in-sync"
                    && set.pending == 0
                    && until >= Some(time("2013-01-04T09:00:00Z"))
            });
            let is_stored = source
                .versions
                .as_ref()
                .is_none_or(|it| (it.pending, it.failed) == (0, 0));
            // It is counted after it is committed, and since the start of the daemon.
            let patched = u64::from(self.is_patched(key));
            let least = if interruptions == 0 { patched } else { 0 };
            let is_counted = |set: &SetStatus| {
                let missed = set.patch_missed + set.failed + set.held_deletions;
                (least..=patched).contains(&set.patched) && missed == 0
            };
            match set.filter(|set| is_stored && is_counted(set)) {
                Some(_) => Ok(()),
                None => Err(format!("{source:#?}")),
            }
        })
        .await;
        let wanted: Vec<&str> = LISTED
            .iter()
            .map(|(path, ..)| *path)
            .filter(|path| (key.wanted)(path))
            .collect();
        let all: Vec<&str> = wanted.iter().copied().chain(key.linked).collect();
        assert_eq!(
            difference(&self.files_of(&all), &files(mirror)),
            "",
            "{what}"
        );
        let lines = operator.changes(since).await;
        assert_eq!(
            self.changes_of(&lines),
            self.expected_changes(key, &all),
            "{what}"
        );
        for path in &wanted {
            let uri = self.text(&format!("{{source}}/{path}"));
            let shown = operator.resource(&uri).await.unwrap();
            let links = shown["links"].as_array().unwrap().iter();
            let shown: Vec<&str> = links.map(|link| link["rel"].as_str().unwrap()).collect();
            assert_eq!(shown, self.relations_of(&uri), "{what}: {path}");
        }
        self.check_versions(key, mirror, &what);
        self.check_requests(key, interruptions, &what);
    }

    /// The relations of an entry's links, as they are published.
    fn relations_of(&self, uri: &str) -> Vec<&'static str> {
        let of = |(number, text): &(&str, &'static str)| {
            let is_of = self
                .entry(number, text)
                .contains(&format!("<loc>{uri}</loc>"));
            is_of.then_some(*text)
        };
        let text = ENTRIES.iter().find_map(of).unwrap();
        let links = text.split("rel=\"").skip(1);
        let relations = links.filter_map(|link| link.split('"').next());
        relations
            .filter(|it| self.way.is_of_changes() || *it != PATCH)
            .collect()
    }

    /// The path of a resource in the mirror.
    fn stored_at(&self, path: &str) -> String {
        let source = self.text("{source}");
        format!("{}/{path}", source.trim_start_matches("http://"))
    }

    fn files_of(&self, paths: &[&str]) -> Files {
        let files = paths
            .iter()
            .map(|path| (self.stored_at(path), served(path).1.into_bytes()));
        files.collect()
    }

    /// What the lines of the feed state: in any order, because that of the applied changes is.
    fn changes_of(&self, lines: &[FeedLine]) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        for line in lines {
            let mut text = format!("{} {} {}", line.uri, line.change, line.origin);
            for (field, uris) in [
                ("alternate_of", &line.alternate_of),
                ("describedby", &line.describedby),
                ("describes", &line.describes),
                ("profile", &line.profile),
                ("collections", &line.collections),
                ("via", &line.via),
            ] {
                let uris = uris.iter().flatten();
                text.extend(uris.map(|uri| format!(" {field} {uri}")));
            }
            text.extend(line.by.iter().map(|by| format!(" by {by}")));
            assert!(found.insert(text), "twice: {line:?}");
        }
        found
    }

    fn expected_changes(&self, key: &Key, paths: &[&str]) -> BTreeSet<String> {
        let of = |path: &&str| {
            // The Source states it, but not of what it only links to.
            let is_update = self.way.is_of_changes() && key.linked != Some(path);
            let change = if is_update { "updated" } else { "created" };
            let mut text = format!("{{source}}/{path} {change} {}", self.way.origin());
            let facts = FACTS
                .iter()
                .chain([&ORIGINAL])
                .filter(|(of, ..)| of == path);
            text.extend(facts.map(|(_, field, uri)| format!(" {field} {uri}")));
            if *path == JSON && self.is_patched(key) {
                text += " by patch";
            }
            self.text(&text)
        };
        paths.iter().map(of).collect()
    }

    fn is_patched(&self, key: &Key) -> bool {
        self.way.is_of_changes() && (key.wanted)(JSON) && key.toml != "patches = false"
    }

    fn check_versions(&self, key: &Key, mirror: &Path, what: &str) {
        let mut expected = Files::new();
        if key.toml.starts_with("versions") {
            for (path, _, version) in LISTED {
                let path_of_version = format!("{}/{version}", self.stored_at(path));
                expected.insert(path_of_version, served(path).1.into_bytes());
            }
            if self.way.is_of_changes() {
                for (path, bytes) in [
                    (JSON, json(OLD_TITLE)),
                    (IMAGE, "II the first image".to_owned()),
                ] {
                    let path_of_version = format!("{}/20130101T000000Z", self.stored_at(path));
                    expected.insert(path_of_version, bytes.into_bytes());
                }
            }
        }
        let found = files(&mirror.with_file_name("versions"));
        assert_eq!(difference(&expected, &found), "", "{what}");
    }

    /// What was requested that need not be, or was not although it must be.
    fn check_requests(&self, key: &Key, interruptions: u64, what: &str) {
        let mut wrong = BTreeMap::new();
        let listed = LISTED.iter().map(|(path, ..)| *path);
        for path in listed.chain(LINKED) {
            let expected = self.expected_requests(key, path);
            let found = self.source.hits(&format!("/{}", self.text(path)));
            let is_packed = if LISTED.iter().any(|(listed, ..)| *listed == path) {
                (key.wanted)(path)
            } else {
                path.ends_with("-patch") && self.is_patched(key)
            };
            let most = self.most_requests(expected, is_packed, interruptions);
            if !(expected..=most).contains(&found) {
                wrong.insert(path, (expected, found));
            }
        }
        let has_mirrors = (key.wanted)("24/res1");
        let is_copied = has_mirrors && !self.way.has_package();
        for (path, expected) in [
            ("mirror1/res1", u64::from(is_copied)),
            ("mirror2/res1", 0),
            ("original/res1.html", 0),
        ] {
            let found = self.other.hits(&format!("/{path}"));
            let is_packed = has_mirrors && path == "mirror1/res1";
            let most = self.most_requests(expected, is_packed, interruptions);
            if !(expected..=most).contains(&found) {
                wrong.insert(path, (expected, found));
            }
        }
        assert!(
            wrong.is_empty(),
            "{what}: requests expected and found: {wrong:?}"
        );
    }

    /// How often a path may be requested: what was in progress when the daemon was killed is requested again, and what was in the package that
    /// it was reading then by itself. `is_packed`: whether that has it.
    fn most_requests(&self, expected: u64, is_packed: bool, interruptions: u64) -> u64 {
        let is_packed = is_packed && self.way.has_package();
        expected * (1 + interruptions) + if is_packed { interruptions } else { 0 }
    }

    fn expected_requests(&self, key: &Key, path: &str) -> u64 {
        let Some((_, stated, _)) = LISTED.iter().find(|(listed, ..)| *listed == path) else {
            let is_patch =
                path == "27/res4-json-patch" && self.is_patched(key) && !self.way.has_package();
            return u64::from(is_patch || key.linked == Some(path));
        };
        let versions = if self.way.is_of_changes() && [JSON, IMAGE].contains(&path) {
            2
        } else {
            1
        };
        // Only what is served decides.
        if key.selects_types() && stated.is_none() {
            return versions;
        }
        let by_other_means = match path {
            "24/res1" => true,
            JSON if self.is_patched(key) => true,
            JSON if self.way == Way::ChangeDump => false,
            _ => self.way.has_package(),
        };
        if (key.wanted)(path) {
            versions - u64::from(by_other_means)
        } else {
            0
        }
    }
}

const PACKAGE: &str = "/set1/examples.zip";

/// Entries without their links to patches.
fn without_patches(entries: &str) -> String {
    let link = format!("<rs:ln rel=\"{PATCH}\"");
    let mut parts = entries.split(&link);
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        text + part.split_once("/>").map_or("", |(_, after)| after)
    })
}
