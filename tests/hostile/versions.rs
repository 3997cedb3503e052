//! A Source that announces versions with mementos, each replaced before the daemon sees it but the last, and the home of a daemon that
//! stores them.

use std::path::PathBuf;
use std::time::Duration;

use resourcesync::{Algorithm, Digest, Link};
use resyncd_core::version_name;
use resyncd_testkit::{ChannelHub, SampleOptions, SampleSource};

use crate::support::process::Home;
use crate::support::{
    Files, SET, change, change_list, difference, eventually, files, path_of, resources, time,
};

const CHANGES: &str = "/set1/changelist.xml";
const NAMES: [&str; 2] = ["r0000.txt", "r0001.txt"];
/// How often each resource changes.
const CHANGES_EACH: usize = 3;

pub(crate) struct VersionsCycle {
    source: SampleSource,
    pub(crate) home: Home,
    /// Every version, by its path in their folder.
    expected: Files,
}

impl VersionsCycle {
    /// The daemon has a baseline, and does not run. Its next poll finds all changes.
    pub(crate) async fn new() -> Self {
        let options = SampleOptions {
            hub: ChannelHub::None,
            ..resources(NAMES.len())
        };
        let source = SampleSource::start(options).await.unwrap();
        let home = Home::new(
            &source.url(),
            "notifications = false\nversions = \"versions\"",
        );
        let running = home.run();
        home.settled(&source).await;
        let set = home.until("the status", |_| true).await;
        let from = time(set.synced_until.unwrap());
        assert_eq!(running.stop().await.code(), Some(0));
        let mut expected = files(&folder(&home));
        assert_eq!(expected.len(), NAMES.len());
        let mut entries = Vec::new();
        for step in 0..CHANGES_EACH {
            source.advance(Duration::from_secs(1));
            for name in NAMES {
                let bytes = format!("{step} of {name}").repeat(1000);
                let (uri, at) = (
                    source.resource_uri(SET, name),
                    source.update(SET, name, bytes.clone()),
                );
                let mut entry = change(&uri, at);
                entry.md.content.hashes = vec![Digest::of(Algorithm::Sha256, bytes.as_bytes())];
                let memento = format!("/m/{step}/{name}");
                source.put_document(&memento, "text/plain", bytes.clone());
                let href = source.base().join(&memento).unwrap();
                entry.links.push(Link::new("memento", href));
                entries.push(entry);
                let path = format!("{}/{}", path_of(&uri), version_name(at).unwrap());
                expected.insert(path, bytes.into_bytes());
            }
        }
        let list = change_list(from, None, None, &entries);
        source.put_document(CHANGES, "application/xml", list);
        Self {
            source,
            home,
            expected,
        }
    }

    /// Waits until every version is stored and the mirror is in sync. No version is ever torn, nor another one.
    pub(crate) async fn settled(&self) {
        eventually("every version is stored", None, async || {
            let found = files(&folder(&self.home));
            for (path, bytes) in &found {
                assert_eq!(self.expected.get(path), Some(bytes), "{path}");
            }
            if found.len() == self.expected.len() {
                Ok(())
            } else {
                Err(difference(&self.expected, &found))
            }
        })
        .await;
        self.home.settled(&self.source).await;
        self.home
            .until_status("nothing waits", |status| {
                let versions = status.sources[0].versions.as_ref().unwrap();
                (versions.pending, versions.failed) == (0, 0)
            })
            .await;
    }
}

fn folder(home: &Home) -> PathBuf {
    home.folder().join("versions")
}
