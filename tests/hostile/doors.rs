//! The doors that documents come in by, and what happens behind them when a document is not what it should be.

use std::io::{Cursor, Write};

use bytes::Bytes;
use resyncd::demo::{ChannelHub, DumpOptions, Fault, SampleOptions};
use resyncd::protocol::{Capability, ChangeKind, Head, Root, write_document};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use crate::support::{
    Files, NAME, Rig, SET, change, client, difference, eventually, files, resources,
};

const DUMP: &str = "/set1/resourcedump.xml";
const PACKAGE: &str = "/set1/own.zip";

/// A door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    CapabilityList,
    ResourceList,
    /// A list that an index of Resource Lists names.
    ChildOfIndex,
    ChangeList,
    /// The manifest within a package of a Resource Dump.
    Manifest,
    Notification,
}

impl Door {
    pub(crate) const ALL: [Self; 6] = [
        Self::CapabilityList,
        Self::ResourceList,
        Self::ChildOfIndex,
        Self::ChangeList,
        Self::Manifest,
        Self::Notification,
    ];

    /// Whether it is the Source's own document that tells of the deletion.
    fn deletes(self) -> bool {
        !matches!(self, Self::CapabilityList | Self::Notification)
    }

    fn options(self) -> SampleOptions {
        let polled = SampleOptions {
            hub: ChannelHub::None,
            change_list: false,
            ..resources(5)
        };
        match self {
            Self::ResourceList => polled,
            Self::ChildOfIndex => SampleOptions {
                entries_per_list: 3,
                ..polled
            },
            Self::CapabilityList | Self::ChangeList => SampleOptions {
                change_list: true,
                ..polled
            },
            Self::Manifest => SampleOptions {
                resource_list: false,
                dumps: DumpOptions {
                    resource_dump: true,
                    contents: false,
                    ..DumpOptions::default()
                },
                ..polled
            },
            Self::Notification => resources(5),
        }
    }

    /// Where the document is.
    fn path(self) -> &'static str {
        match self {
            Self::CapabilityList => "/set1/capabilitylist.xml",
            Self::ResourceList => "/set1/resourcelist.xml",
            Self::ChildOfIndex => "/set1/resourcelist-0001.xml",
            Self::ChangeList => "/set1/changelist.xml",
            Self::Manifest => PACKAGE,
            Self::Notification => "",
        }
    }
}

/// A daemon that is in step, and a document that would, if it were taken, delete a resource.
pub(crate) struct Guarded {
    pub(crate) rig: Rig,
    pub(crate) door: Door,
    /// The document as it should be.
    pub(crate) whole: String,
    before: Files,
}

impl Guarded {
    pub(crate) async fn start(door: Door) -> Self {
        let rig = Rig::start(door.options()).await;
        rig.settled().await;
        let before = files(&rig.config.sources[0].mirror);
        // Nobody may see the true documents before they are spoilt.
        rig.source.fail("/set1/*", Fault::Status(500), usize::MAX);
        if door.deletes() {
            rig.source.delete(SET, "r0000.txt");
            // Where a Change List is of no use, the Resource List is: it must not tell of it.
            if door != Door::ChangeList {
                rig.source.refresh_resource_list(SET);
            }
        }
        let whole = match door {
            Door::Manifest => manifest(&rig),
            Door::Notification => notification(&rig),
            _ => {
                rig.source.heal("/set1/*");
                let url = rig.source.base().join(door.path()).unwrap();
                let answer = client().get(url).send().await.unwrap();
                let text = answer.text().await.unwrap();
                rig.source.fail("/set1/*", Fault::Status(500), usize::MAX);
                text
            }
        };
        let guarded = Self {
            rig,
            door,
            whole,
            before,
        };
        guarded.put(b"<nothing/>".to_vec());
        guarded.rig.source.heal("/set1/*");
        guarded
    }

    fn put(&self, bytes: Vec<u8>) {
        let source = &self.rig.source;
        match self.door {
            Door::Notification => {}
            Door::Manifest => {
                let (at, loc) = (source.boundary(), PACKAGE);
                let dump = format!(
                    r#"<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/"><rs:md capability="resourcedump" at="{at}"/><url><loc>{loc}</loc><lastmod>{at}</lastmod></url></urlset>"#
                );
                source.put_document(PACKAGE, "application/zip", package_of(&bytes));
                source.put_document(DUMP, "application/xml", dump);
            }
            door => source.put_document(door.path(), "application/xml", bytes),
        }
    }

    /// What comes in is refused with one of these codes, is told, and nothing is lost over it.
    pub(crate) async fn refuses(&self, what: &str, bytes: Vec<u8>, codes: &[&str]) {
        let what = format!("{what} by {:?}", self.door);
        if self.door == Door::Notification {
            self.refuses_notification(&what, bytes).await;
        } else {
            let before = self.rig.set().await.error.map(|error| error.at);
            self.put(bytes);
            self.rig.operator.poll(NAME).await;
            self.rig
                .until(&what, |set| {
                    let error = set.error.as_ref();
                    error.is_some_and(|error| {
                        Some(&error.at) != before.as_ref() && self.is_told_as(&error.code, codes)
                    })
                })
                .await;
        }
        self.assert_unchanged(&what).await;
    }

    /// What comes in tells nothing, refused or not: that is all that comes of it.
    pub(crate) async fn learns_nothing(&self, what: &str, bytes: Vec<u8>) {
        let what = format!("{what} by {:?}", self.door);
        if self.door == Door::Notification {
            let taken = async || {
                let channel = self.rig.channel().await;
                channel.applied + channel.duplicate + channel.rejected
            };
            let before = taken().await;
            let topic = self.rig.changes().to_string();
            self.rig.hub().deliver(&topic, Bytes::from(bytes)).await;
            eventually(&what, Some(self.rig.wakes()), async || {
                let taken = taken().await;
                (taken > before).then_some(()).ok_or(format!("{taken}"))
            })
            .await;
        } else {
            let before = self.rig.set().await.last_poll_at;
            self.put(bytes);
            self.rig.operator.poll(NAME).await;
            self.rig
                .until(&what, |set| set.last_poll_at != before)
                .await;
        }
        self.assert_unchanged(&what).await;
    }

    /// Whatever stands in the place of a Capability List: what matters is that it is none.
    fn is_told_as(&self, code: &str, codes: &[&str]) -> bool {
        codes.contains(&code)
            || (self.door == Door::CapabilityList && code == "not-a-capability-list")
    }

    async fn refuses_notification(&self, what: &str, bytes: Vec<u8>) {
        let before = self.rig.channel().await.rejected;
        let topic = self.rig.changes().to_string();
        self.rig.hub().deliver(&topic, Bytes::from(bytes)).await;
        eventually(what, Some(self.rig.wakes()), async || {
            let channel = self.rig.channel().await;
            if channel.rejected == before + 1 {
                Ok(())
            } else {
                Err(format!("{channel:?}"))
            }
        })
        .await;
    }

    /// No file has gone, none has come, and nothing waits to go.
    pub(crate) async fn assert_unchanged(&self, what: &str) {
        let found = files(&self.rig.config.sources[0].mirror);
        assert_eq!(difference(&self.before, &found), "", "{what}");
        let set = self.rig.set().await;
        assert_eq!((set.resources, set.held_deletions), (5, 0), "{what}");
    }

    /// The true document is back: the set goes on, and does what it tells.
    pub(crate) async fn recovers(self) {
        let rig = &self.rig;
        match self.door {
            Door::Notification => {
                rig.source.delete(SET, "r0000.txt");
                rig.source.notify_and_publish(SET).await.unwrap();
            }
            Door::Manifest => {
                rig.source.remove_document(PACKAGE);
                rig.source.remove_document(DUMP);
                rig.source.refresh_resource_dump(SET);
                rig.operator.poll(NAME).await;
            }
            door => {
                rig.source.remove_document(door.path());
                if door == Door::CapabilityList {
                    rig.source.delete(SET, "r0000.txt");
                }
                rig.operator.poll(NAME).await;
            }
        }
        rig.until_mirrored().await;
        let set = rig.until("in step", |set| set.state == "in-sync").await;
        assert!(set.error.is_none(), "{set:#?}");
        assert_eq!(set.resources, 4);
    }
}

/// A manifest that lacks a resource.
fn manifest(rig: &Rig) -> String {
    let mut head = Head::new(Root::Urlset, Capability::ResourceDumpManifest);
    head.md.at = Some(rig.source.boundary());
    let entries: Vec<_> = (1..5)
        .map(|number| {
            let uri = rig.source.resource_uri(SET, &format!("r{number:04}.txt"));
            resyncd::protocol::Entry::new(uri)
        })
        .collect();
    String::from_utf8(write_document(&head, &entries)).unwrap()
}

/// A notification that tells of a deletion which the Source knows nothing of.
fn notification(rig: &Rig) -> String {
    let mut head = Head::new(Root::Urlset, Capability::ChangeNotification);
    head.md.from = Some(rig.source.boundary());
    let at = rig.source.boundary();
    head.md.until = Some(rig.source.boundary());
    let mut entry = change(&rig.source.resource_uri(SET, "r0000.txt"), at);
    entry.md.change = Some(ChangeKind::Deleted);
    String::from_utf8(write_document(&head, &[entry])).unwrap()
}

/// A package of a manifest and nothing else.
pub(crate) fn package_of(manifest: &[u8]) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default();
    zip.start_file("manifest.xml", options).unwrap();
    zip.write_all(manifest).unwrap();
    zip.finish().unwrap().into_inner()
}
