//! SHELL, both ways: resyncd as a Source of what it mirrors, and of folders.
//!
//! | module | what it has |
//! |---|---|
//! | `uris` | the URIs of what is published |
//! | `entries`, `documents` | what is stated of a resource and of a change; the documents |
//! | `spool` | documents that were made, as temporary files |
//! | `site` | the listener: which request is for what |
//! | `dumps` | packages of files |
//! | `mementos` | the stored versions of resources |
//! | `answer` | a file as the answer to a request |
//! | `folder` | a folder as a Source |
//! | `worker` | begins the publication of sets |
//! | `hub`, `deliveries` | the subscriptions; what their subscribers are told |
//! | `announcements` | what another hub is told |
//! | `status` | what is published, for the status |
//!
//! Invariants:
//! - What is published is what the mirror has, whole: each document is made from the database at one moment, and the database states
//!   nothing that is not in the mirror yet. Nothing is published of a set without a complete copy.
//! - The times of published changes increase, and each is later than that of a snapshot that does not have it. Where that can't be, as after
//!   a lost database, the Change Lists begin anew, and Destinations see the gap.
//!
//! The module knows the store and the folders, and nothing of how Sources are followed.
//!
//! Specification: the core, sections 6 to 14; the notification specifications.

mod announcements;
mod answer;
mod deliveries;
mod documents;
mod dumps;
mod entries;
mod folder;
mod hub;
mod mementos;
mod site;
mod spool;
mod status;
mod uris;
mod worker;

use std::collections::HashMap;
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use deliveries::Notification;
use documents::{SetDocument, SetDocuments, oldest_day};
use entries::EntryForm;
use hub::PublishedHub;
use parking_lot::{Mutex, RwLock};
use percent_encoding::percent_decode_str;
use resyncd_core::ResourceUri;
use resyncd_fetch::Client;
use resyncd_mirror::{BadPath, MirrorPath, MirrorPlace};
pub use site::site_router;
use spool::{DocumentError, Spool, SpoolWriter, Spooled};
use tokio::sync::Semaphore;
use uris::SiteUris;
use url::Url;
pub use worker::publish;

use crate::clock;
use crate::config::{Config, PublishConfig, PublishHub};
use crate::store::{PublishedRows, PublishedSet, PublishedState, ResourceView, Store, StoreError};

/// A Source, or a folder, that is published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PublishedSource {
    pub(crate) name: String,
    /// Where its files are.
    pub(crate) root: MirrorPlace,
    /// Where their versions are.
    pub(crate) versions: Option<MirrorPlace>,
    /// Whether it is a folder: its resources have no originals.
    pub(crate) is_folder: bool,
}

impl PublishedSource {
    /// The path of a file.
    fn parse_path(&self, text: &str) -> Result<MirrorPath, BadPath> {
        if self.is_folder {
            MirrorPath::parse_in_folder(text)
        } else {
            MirrorPath::parse(text)
        }
    }
}

/// What publishes.
pub struct Publisher {
    /// What was published before was published by another process.
    started_at: DateTime<Utc>,
    store: Arc<Store>,
    settings: PublishConfig,
    uris: SiteUris,
    /// Replaced by a reload.
    sources: RwLock<Arc<[PublishedSource]>>,
    spool: Spool,
    /// One for each dump that may be made at once.
    dumps: Arc<Semaphore>,
    client: Client,
    /// What another hub has been told, by topic.
    announced: Mutex<HashMap<String, Notification>>,
    /// The hub of this daemon.
    built_in: Option<PublishedHub>,
}

impl Publisher {
    /// With the subscriptions that are stored. `base`: the URL of the listener, for URIs if none is configured. `client`: for the requests
    /// of the hub.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn open(
        config: &Config,
        store: Arc<Store>,
        client: &Client,
        base: Url,
    ) -> Result<Self, StoreError> {
        let port = base.port();
        let mut base = config.publish.public_url.clone().unwrap_or(base);
        if base.port() == Some(0) {
            // Fails only for URLs that cannot have a port; this one has one.
            let _ = base.set_port(port);
        }
        let built_in = match config.publish.hub {
            PublishHub::BuiltIn => Some(PublishedHub::new(store.subscriptions().await?)),
            PublishHub::At(_) | PublishHub::None => None,
        };
        Ok(Self {
            started_at: clock::now().wall,
            store,
            settings: config.publish.clone(),
            uris: SiteUris::new(base),
            sources: RwLock::new(published(config)),
            spool: Spool::new(&config.state_dir),
            dumps: Arc::new(Semaphore::new(dumps::AT_ONCE)),
            // Subscribers that do not answer delay no Source.
            client: client.clone().apart(),
            announced: Mutex::default(),
            built_in,
        })
    }

    /// Publishes the Sources of another configuration.
    pub fn reload(&self, config: &Config) {
        *self.sources.write() = published(config);
    }

    fn sources(&self) -> Arc<[PublishedSource]> {
        Arc::clone(&self.sources.read())
    }

    fn source(&self, name: &str) -> Option<PublishedSource> {
        let sources = self.sources();
        sources.iter().find(|source| source.name == name).cloned()
    }

    /// How the entries of a Source are made.
    fn form_of(&self, source: &PublishedSource) -> EntryForm {
        EntryForm {
            uris: self.uris.clone(),
            content: self.settings.content,
            is_folder: source.is_folder,
        }
    }

    fn has_dumps(&self) -> bool {
        self.settings.dumps && self.settings.content
    }

    /// What the documents of a set are made of.
    fn documents_of(&self, source: &PublishedSource, set: PublishedSet) -> SetDocuments {
        let keep = self.settings.keep_changes;
        let keep = keep.and_then(|keep| TimeDelta::from_std(keep).ok());
        let now = clock::now().wall;
        SetDocuments {
            set,
            form: self.form_of(source),
            dumps: self.has_dumps(),
            hub: self.hub(),
            oldest: keep.and_then(|keep| oldest_day(now, keep)),
        }
    }

    /// The hub of the channels.
    fn hub(&self) -> Option<Url> {
        match &self.settings.hub {
            PublishHub::BuiltIn => Some(self.uris.at(uris::HUB)),
            PublishHub::At(url) => Some(url.clone()),
            PublishHub::None => None,
        }
    }

    /// The header `Link` of what a topic is about (WebSub, section 7).
    fn topic_links(&self, topic: &str) -> String {
        let hub = self.hub().map(|hub| format!("<{hub}>; rel=\"hub\", "));
        format!("{}<{topic}>; rel=\"self\"", hub.unwrap_or_default())
    }

    /// The published sets of a Source.
    async fn sets(&self, source: &PublishedSource) -> Result<Vec<SetDocuments>, DocumentError> {
        let name = source.name.clone();
        let sets = self.store.published(move |rows| rows.sets(&name)).await?;
        let sets = sets.into_iter();
        Ok(sets.map(|set| self.documents_of(source, set)).collect())
    }

    /// The set of a Source with that folder of documents.
    async fn set_in(
        &self,
        source: &PublishedSource,
        folder: &str,
    ) -> Result<SetDocuments, DocumentError> {
        let mut sets = self.sets(source).await?.into_iter();
        let found = sets.find(|set| self.uris.folder_of(&set.set) == folder);
        found.ok_or(DocumentError::Missing)
    }

    /// Where a set stands.
    async fn state(&self, set: &SetDocuments) -> Result<PublishedState, StoreError> {
        let set = set.set.clone();
        self.store.published(move |rows| rows.state(&set)).await
    }

    /// A document of a set.
    async fn document(
        &self,
        set: SetDocuments,
        document: SetDocument,
    ) -> Result<Arc<Spooled>, DocumentError> {
        let state = self.state(&set).await?;
        if !set.may_have(document, state.last) {
            return Err(DocumentError::Missing);
        }
        let key = set.key(document);
        let is_snapshot = document.is_snapshot();
        // A change of another Source may close a Change List.
        let version = if is_snapshot {
            set.snapshot_version(&state)
        } else {
            let stated = (set.oldest, &set.set.described_by);
            format!("{} {stated:?}", state.seq)
        };
        self.made(&key, &version, is_snapshot, move |rows, at, output| {
            set.write(rows, document, at, output)
        })
        .await
    }

    /// A document that is made unless there is one of that version. `is_snapshot`: whether what changes later is to be of a later time.
    async fn made(
        &self,
        key: &str,
        version: &str,
        is_snapshot: bool,
        write: impl FnOnce(
            &PublishedRows<'_>,
            DateTime<Utc>,
            &mut SpoolWriter,
        ) -> Result<DateTime<Utc>, DocumentError>
        + Send
        + 'static,
    ) -> Result<Arc<Spooled>, DocumentError> {
        let making = async {
            let mut at = clock::now().wall;
            if is_snapshot {
                at = self.store.snapshot_time(at).await?;
            }
            let mut output = SpoolWriter::new(self.spool.folder())?;
            let writing = self.store.published_document(move |rows| {
                let written = write(rows, at, &mut output);
                Ok(written.map(|modified| (output, modified)))
            });
            let (output, modified) = writing.await??;
            Ok(output.finish(modified, version.to_owned())?)
        };
        self.spool.get(key, version, making).await
    }
}

/// The resource that is published at a URI, or of which that is the original, and the place of its Source among these.
fn resource_at(
    rows: &PublishedRows<'_>,
    sources: &[PublishedSource],
    base: &str,
    uri: &str,
) -> Result<Option<(usize, ResourceView)>, StoreError> {
    let published = uri.strip_prefix(base).and_then(|path| path.split_once('/'));
    for (index, source) in sources.iter().enumerate() {
        let found = match published {
            Some((name, path)) if name == source.name => {
                match percent_decode_str(path).decode_utf8() {
                    Ok(path) => rows.file(name, &path)?,
                    Err(_) => None,
                }
            }
            Some(_) => None,
            None => match ResourceUri::parse(uri) {
                Ok(uri) => rows.of_uri(&source.name, &uri)?,
                Err(_) => None,
            },
        };
        if let Some(view) = found.filter(|view| !view.deleted) {
            return Ok(Some((index, view)));
        }
    }
    Ok(None)
}

fn published(config: &Config) -> Arc<[PublishedSource]> {
    let sources = config.sources.iter().filter(|source| source.publish);
    let sources = sources.map(|source| PublishedSource {
        name: source.name.clone(),
        root: source.mirror.clone(),
        versions: source.versions.clone(),
        is_folder: false,
    });
    let folders = config.folders.iter().map(|folder| PublishedSource {
        name: folder.name.clone(),
        root: MirrorPlace::from(&folder.path),
        versions: None,
        is_folder: true,
    });
    sources.chain(folders).collect()
}
