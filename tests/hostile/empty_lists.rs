//! Empty lists, as published by a Source that failed to make its list. They are valid and recent; the deletions that follow from
//! them are held back until a person approves them.

use resourcesync::{Capability, Entry, Head, Root, SourceTime, write_document};
use resyncd::clock;
use resyncd::config::Config;
use resyncd_testkit::{ChannelHub, DumpOptions, SampleOptions};

use crate::hostile::PROCESSOR;
use crate::hostile::entry_points::package_of;
use crate::support::{NAME, Rig, SET, files, resources};

const RESOURCE_LIST: &str = "/set1/resourcelist.xml";
const RESOURCE_DUMP: &str = "/set1/resourcedump.xml";
const PART: &str = "/set1/part.xml";
const PACKAGE: &str = "/set1/empty.zip";
const RESOURCES: u64 = 7;

/// Which document is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EmptyDocument {
    List,
    ListOfNoTime,
    PartOfIndex,
    Dump,
    Package,
}

impl EmptyDocument {
    fn is_dump(self) -> bool {
        matches!(self, Self::Dump | Self::Package)
    }

    fn options(self) -> SampleOptions {
        SampleOptions {
            hub: ChannelHub::None,
            change_list: false,
            resource_list: !self.is_dump(),
            dumps: DumpOptions {
                resource_dump: self.is_dump(),
                ..DumpOptions::default()
            },
            ..resources(RESOURCES as usize)
        }
    }

    fn document(self) -> &'static str {
        if self.is_dump() {
            RESOURCE_DUMP
        } else {
            RESOURCE_LIST
        }
    }

    /// Has the Source serve the empty document.
    async fn serve(self, rig: &Rig) {
        let source = &rig.source;
        let at = SourceTime::from(clock::now().wall);
        let head = |root, capability| {
            let mut head = Head::new(root, capability);
            head.md.at = Some(at).filter(|_| self != Self::ListOfNoTime);
            head
        };
        let capability = if self.is_dump() {
            Capability::ResourceDump
        } else {
            Capability::ResourceList
        };
        let root = match self {
            Self::PartOfIndex => Root::Sitemapindex,
            _ => Root::Urlset,
        };
        let mut entries = Vec::new();
        if self == Self::PartOfIndex {
            let part = write_document(&head(Root::Urlset, Capability::ResourceList), &[]);
            source.put_document(PART, "application/xml", part);
            entries.push(Entry::new(source.base().join(PART).unwrap()));
        }
        if self == Self::Package {
            let manifest = head(Root::Urlset, Capability::ResourceDumpManifest);
            let package = package_of(&write_document(&manifest, &[]));
            source.put_document(PACKAGE, "application/zip", package);
            entries.push(Entry::new(source.base().join(PACKAGE).unwrap()));
        }
        let body = write_document(&head(root, capability), &entries);
        source.put_document(self.document(), "application/xml", body);
        rig.operator.poll(NAME).await;
    }

    /// Has the Source serve its complete documents again.
    async fn restore(self, rig: &Rig) {
        rig.source.remove_document(self.document());
        if self.is_dump() {
            rig.source.refresh_resource_dump(SET);
        } else {
            rig.source.refresh_resource_list(SET);
        }
        rig.operator.poll(NAME).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn empty_list_has_all_deletions_held_back() {
    let _permit = PROCESSOR.read().await;
    for empty in [
        EmptyDocument::List,
        EmptyDocument::ListOfNoTime,
        EmptyDocument::PartOfIndex,
        EmptyDocument::Dump,
        EmptyDocument::Package,
    ] {
        // Held back even if `max_delete` allows all deletions.
        let without_limit = |config: &mut Config| config.sources[0].max_delete = 1.0;
        let rig = Rig::start_with(empty.options(), without_limit).await;
        rig.settled().await;
        let before = files(&rig.config.sources[0].mirror);
        empty.serve(&rig).await;
        let what = format!("held back: {empty:?}");
        let set = rig
            .until(&what, |set| set.held_deletions == RESOURCES)
            .await;
        assert_eq!(set.resources, RESOURCES, "{empty:?}");
        assert!(files(&rig.config.sources[0].mirror) == before);
        // When the Source is repaired, no approval is needed.
        empty.restore(&rig).await;
        let what = format!("repaired: {empty:?}");
        rig.until(&what, |set| set.held_deletions == 0).await;
        rig.settled().await;
        assert!(files(&rig.config.sources[0].mirror) == before);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deletions_of_an_emptied_source_are_applied_after_approval() {
    let rig = Rig::start(EmptyDocument::List.options()).await;
    rig.settled().await;
    for number in 0..RESOURCES {
        rig.source.delete(SET, &format!("r{number:04}.txt"));
    }
    rig.source.refresh_resource_list(SET);
    rig.operator.poll(NAME).await;
    rig.until("held back", |set| set.held_deletions == RESOURCES)
        .await;
    let (status, body) = rig.operator.post(&format!("/sources/{NAME}/approve")).await;
    assert_eq!(status, 202, "{body}");
    rig.until_mirrored().await;
    assert!(files(&rig.config.sources[0].mirror).is_empty());
}
