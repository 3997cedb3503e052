//! The points at which documents enter the daemon, and a set that must stay unchanged when an invalid document enters there.

use std::io::{Cursor, Write};

use bytes::Bytes;
use resourcesync::{Capability, ChangeKind, Head, Root, write_document};
use resyncd_testkit::{ChannelHub, DumpOptions, Fault, SampleOptions};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use crate::support::{
    Files, NAME, Rig, SET, change, client, difference, eventually, files, resources,
};

const DUMP: &str = "/set1/resourcedump.xml";
const PACKAGE: &str = "/set1/own.zip";

/// Where a document enters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryPoint {
    CapabilityList,
    ResourceList,
    /// A part of a Resource List index.
    ChildOfIndex,
    ChangeList,
    /// The manifest within a package of a Resource Dump.
    Manifest,
    Notification,
}

impl EntryPoint {
    pub(crate) const ALL: [Self; 6] = [
        Self::CapabilityList,
        Self::ResourceList,
        Self::ChildOfIndex,
        Self::ChangeList,
        Self::Manifest,
        Self::Notification,
    ];

    /// Whether the original document of the Source contains the deletion.
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

    /// The path of the document.
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

/// A set that is in sync, and a document that would delete a resource if it were accepted.
pub(crate) struct GuardedSet {
    pub(crate) rig: Rig,
    pub(crate) entry_point: EntryPoint,
    /// The valid document.
    pub(crate) document: String,
    before: Files,
}

impl GuardedSet {
    pub(crate) async fn start(entry_point: EntryPoint) -> Self {
        let rig = Rig::start(entry_point.options()).await;
        rig.settled().await;
        let before = files(&rig.config.sources[0].mirror);
        // The daemon must not read the valid documents before they are replaced.
        rig.source.fail("/set1/*", Fault::Status(500), usize::MAX);
        if entry_point.deletes() {
            rig.source.delete(SET, "r0000.txt");
            // The daemon falls back from an invalid Change List to the Resource List, which must not show the deletion.
            if entry_point != EntryPoint::ChangeList {
                rig.source.refresh_resource_list(SET);
            }
        }
        let document = match entry_point {
            EntryPoint::Manifest => manifest(&rig),
            EntryPoint::Notification => notification(&rig),
            _ => {
                rig.source.heal("/set1/*");
                let url = rig.source.base().join(entry_point.path()).unwrap();
                let answer = client().get(url).send().await.unwrap();
                let text = answer.text().await.unwrap();
                rig.source.fail("/set1/*", Fault::Status(500), usize::MAX);
                text
            }
        };
        let guarded_set = Self {
            rig,
            entry_point,
            document,
            before,
        };
        guarded_set.put(b"<nothing/>".to_vec());
        guarded_set.rig.source.heal("/set1/*");
        guarded_set
    }

    fn put(&self, bytes: Vec<u8>) {
        let source = &self.rig.source;
        match self.entry_point {
            EntryPoint::Notification => {}
            EntryPoint::Manifest => {
                let (at, loc) = (source.boundary(), PACKAGE);
                let dump = format!(
                    r#"<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/"><rs:md capability="resourcedump" at="{at}"/><url><loc>{loc}</loc><lastmod>{at}</lastmod></url></urlset>"#
                );
                source.put_document(PACKAGE, "application/zip", package_of(&bytes));
                source.put_document(DUMP, "application/xml", dump);
            }
            entry_point => source.put_document(entry_point.path(), "application/xml", bytes),
        }
    }

    /// Checks that these bytes are rejected with one of the codes, which the status reports, and that nothing changes.
    pub(crate) async fn rejects(&self, what: &str, bytes: Vec<u8>, codes: &[&str]) {
        let what = format!("{what} by {:?}", self.entry_point);
        if self.entry_point == EntryPoint::Notification {
            self.rejects_notification(&what, bytes).await;
        } else {
            let before = self.rig.set().await.error.map(|error| error.at);
            self.put(bytes);
            self.rig.operator.poll(NAME).await;
            self.rig
                .until(&what, |set| {
                    let error = set.error.as_ref();
                    error.is_some_and(|error| {
                        Some(&error.at) != before.as_ref()
                            && self.is_expected_code(&error.code, codes)
                    })
                })
                .await;
        }
        self.assert_unchanged(&what).await;
    }

    /// Checks that these bytes change nothing, whether they are rejected or accepted.
    pub(crate) async fn ignores(&self, what: &str, bytes: Vec<u8>) {
        let what = format!("{what} by {:?}", self.entry_point);
        if self.entry_point == EntryPoint::Notification {
            let processed = async || {
                let channel = self.rig.channel().await;
                channel.applied + channel.duplicate + channel.rejected
            };
            let before = processed().await;
            let topic = self.rig.changes().to_string();
            self.rig.hub().deliver(&topic, Bytes::from(bytes)).await;
            eventually(&what, Some(self.rig.wakes()), async || {
                let processed = processed().await;
                (processed > before)
                    .then_some(())
                    .ok_or(format!("{processed}"))
            })
            .await;
        } else {
            let mut last = self.rig.set().await.last_poll_at;
            self.put(bytes);
            // Once the second poll begins, the first one has ended.
            for _ in 0..2 {
                self.rig.operator.poll(NAME).await;
                let set = self.rig.until(&what, |set| set.last_poll_at != last).await;
                last = set.last_poll_at;
            }
        }
        self.assert_unchanged(&what).await;
    }

    /// Any unusable document in the place of a Capability List may also have the code of that.
    fn is_expected_code(&self, code: &str, codes: &[&str]) -> bool {
        codes.contains(&code)
            || (self.entry_point == EntryPoint::CapabilityList && code == "not-a-capability-list")
    }

    async fn rejects_notification(&self, what: &str, bytes: Vec<u8>) {
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

    /// Asserts that no file was added, altered or removed, and that no deletion is held back.
    pub(crate) async fn assert_unchanged(&self, what: &str) {
        let found = files(&self.rig.config.sources[0].mirror);
        assert_eq!(difference(&self.before, &found), "", "{what}");
        let set = self.rig.set().await;
        assert_eq!((set.resources, set.held_deletions), (5, 0), "{what}");
    }

    /// Serves the valid document again, and checks that the set applies the deletion.
    pub(crate) async fn recovers(self) {
        let rig = &self.rig;
        match self.entry_point {
            EntryPoint::Notification => {
                rig.source.delete(SET, "r0000.txt");
                rig.source.notify_and_publish(SET).await.unwrap();
            }
            EntryPoint::Manifest => {
                rig.source.remove_document(PACKAGE);
                rig.source.remove_document(DUMP);
                rig.source.refresh_resource_dump(SET);
                rig.operator.poll(NAME).await;
            }
            entry_point => {
                rig.source.remove_document(entry_point.path());
                if entry_point == EntryPoint::CapabilityList {
                    rig.source.delete(SET, "r0000.txt");
                }
                rig.operator.poll(NAME).await;
            }
        }
        rig.until_mirrored().await;
        let set = rig.until("in sync", |set| set.state == "in-sync").await;
        assert!(set.error.is_none(), "{set:#?}");
        assert_eq!(set.resources, 4);
    }
}

/// A manifest without one of the resources.
fn manifest(rig: &Rig) -> String {
    let mut head = Head::new(Root::Urlset, Capability::ResourceDumpManifest);
    head.md.at = Some(rig.source.boundary());
    let entries: Vec<_> = (1..5)
        .map(|number| {
            let uri = rig.source.resource_uri(SET, &format!("r{number:04}.txt"));
            resourcesync::Entry::new(uri)
        })
        .collect();
    String::from_utf8(write_document(&head, &entries)).unwrap()
}

/// A notification of a deletion that has not happened at the Source.
fn notification(rig: &Rig) -> String {
    let mut head = Head::new(Root::Urlset, Capability::ChangeNotification);
    head.md.from = Some(rig.source.boundary());
    let at = rig.source.boundary();
    head.md.until = Some(rig.source.boundary());
    let mut entry = change(&rig.source.resource_uri(SET, "r0000.txt"), at);
    entry.md.change = Some(ChangeKind::Deleted);
    String::from_utf8(write_document(&head, &[entry])).unwrap()
}

/// A package that contains only a manifest.
pub(crate) fn package_of(manifest: &[u8]) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default();
    zip.start_file("manifest.xml", options).unwrap();
    zip.write_all(manifest).unwrap();
    zip.finish().unwrap().into_inner()
}
