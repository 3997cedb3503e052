//! All that the Source is at one moment.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use bytes::Bytes;
use url::Url;

use super::clock::SampleClock;
use super::documents::{self, Places};
use super::fault::Faults;
use super::options::{ChannelHub, SampleOptions, Submission};
use super::resource_set::ResourceSet;
use super::{Notification, serving};
use crate::protocol::{Algorithm, Capability, ChangeKind, Digest, HubUri, SourceTime};

/// Something that is served as it is.
#[derive(Clone, Debug)]
pub(super) struct Document {
    pub(super) media_type: String,
    pub(super) body: Bytes,
}

/// What is found at a path.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) document: Document,
    pub(super) etag: String,
    pub(super) lastmod: Option<SourceTime>,
    /// The Link header, of a topic.
    pub(super) links: Option<String>,
}

/// All that the Source is at one moment.
pub(super) struct World {
    base: Url,
    options: SampleOptions,
    hub: Option<Url>,
    clock: SampleClock,
    sets: BTreeMap<String, ResourceSet>,
    documents: BTreeMap<String, Document>,
    faults: Faults,
    /// By path and query: requests, and those answered 304.
    hits: HashMap<String, (u64, u64)>,
    sent: u64,
}

impl World {
    /// As the options have it; `own_hub` is the one that was started for it.
    pub(super) fn new(base: Url, options: SampleOptions, own_hub: Option<&HubUri>) -> Self {
        let hub = match &options.hub {
            ChannelHub::None => None,
            ChannelHub::Own(_) => own_hub.map(|hub| hub.url().clone()),
            ChannelHub::External { hub, .. } => Some(hub.url().clone()),
        };
        let names = options.sets.clone();
        let mut world = Self {
            base,
            hub,
            clock: SampleClock::new(options.start, options.whole_seconds),
            options,
            sets: BTreeMap::new(),
            documents: BTreeMap::new(),
            faults: Faults::default(),
            hits: HashMap::new(),
            sent: 0,
        };
        for name in &names {
            world.add_set(name);
        }
        world
    }

    pub(super) fn base(&self) -> &Url {
        &self.base
    }

    /// The set of that name, which the caller knows to be there.
    pub(super) fn set(&self, name: &str) -> &ResourceSet {
        let set = self.sets.get(name);
        set.expect("the sample Source has a set of that name")
    }

    /// The set of that name, which the caller knows to be there.
    pub(super) fn set_mut(&mut self, name: &str) -> &mut ResourceSet {
        let set = self.sets.get_mut(name);
        set.expect("the sample Source has a set of that name")
    }

    pub(super) fn add_set(&mut self, name: &str) {
        let places = Places::new(self.base.clone(), name);
        let start = self.clock.boundary();
        let mut set = ResourceSet::new(places, &self.options, start);
        if self.hub.is_some() {
            set.add_channel(Capability::ChangeNotification);
            set.add_channel(Capability::FrameworkNotification);
        }
        self.sets.insert(name.to_owned(), set);
    }

    pub(super) fn remove_set(&mut self, name: &str) {
        self.sets.remove(name);
    }

    pub(super) fn change(
        &mut self,
        set: &str,
        name: &str,
        kind: ChangeKind,
        bytes: Option<Bytes>,
    ) -> SourceTime {
        let at = self.clock.change();
        self.set_mut(set).change(name, kind, bytes, at);
        at
    }

    pub(super) fn advance(&mut self, by: Duration) {
        self.clock.advance(by);
    }

    pub(super) fn boundary(&mut self) -> SourceTime {
        self.clock.boundary()
    }

    /// Keeps a notification as its topic's latest, if the channel is still there.
    pub(super) fn set_latest(&mut self, notification: &Notification) {
        if let Some(set) = self.sets.get_mut(&notification.set) {
            set.set_latest(&notification.kind, notification.body.clone());
        }
    }

    /// The external hub, and how it is told.
    pub(super) fn external_hub(&self) -> Option<(HubUri, Submission)> {
        match &self.options.hub {
            ChannelHub::External { hub, submission } => Some((hub.clone(), *submission)),
            ChannelHub::None | ChannelHub::Own(_) => None,
        }
    }

    pub(super) fn put_document(&mut self, path: &str, document: Option<Document>) {
        match document {
            Some(document) => self.documents.insert(path.to_owned(), document),
            None => self.documents.remove(path),
        };
    }

    pub(super) fn faults(&mut self) -> &mut Faults {
        &mut self.faults
    }

    pub(super) fn hits(&self, path: &str) -> (u64, u64) {
        self.hits.get(path).copied().unwrap_or_default()
    }

    /// Counts a request, whether the answer was 304, and how many bytes it has or would have but for a fault.
    pub(super) fn hit(&mut self, path: &str, is_not_modified: bool, bytes: usize) {
        let hits = self.hits.entry(path.to_owned()).or_default();
        hits.0 += 1;
        hits.1 += u64::from(is_not_modified);
        self.sent += bytes as u64;
    }

    /// How many requests there were.
    pub(super) fn requests(&self) -> u64 {
        self.hits.values().map(|(requests, _)| requests).sum()
    }

    /// The bytes of all bodies.
    pub(super) fn sent(&self) -> u64 {
        self.sent
    }

    /// What is at a path with its query.
    pub(super) fn find(&self, path: &str) -> Option<Found> {
        if let Some(document) = self.documents.get(path) {
            return Some(found(document.clone()));
        }
        let places = || self.sets.values().map(ResourceSet::places);
        match path {
            "/.well-known/resourcesync" => {
                Some(found(xml(documents::source_description(places()))))
            }
            "/" => Some(found(Document {
                media_type: "text/html; charset=utf-8".to_owned(),
                body: documents::front_page(places()).into(),
            })),
            _ => {
                let (name, file) = path.strip_prefix('/')?.split_once('/')?;
                self.find_in_set(self.sets.get(name)?, file, path)
            }
        }
    }

    fn find_in_set(&self, set: &ResourceSet, file: &str, path: &str) -> Option<Found> {
        if let Some(resource) = set.resource(path) {
            return Some(Found {
                document: Document {
                    media_type: resource.media_type.to_owned(),
                    body: resource.bytes.clone(),
                },
                etag: format!("\"{}\"", resource.digest),
                lastmod: Some(resource.lastmod),
                links: None,
            });
        }
        if let Some((kind, latest)) = set.channel(file) {
            let hub = self.hub.as_ref()?;
            let body = if self.options.latest_on_topic {
                latest.clone()
            } else {
                Bytes::new()
            };
            let mut topic = found(xml(body));
            let uri = set.places().topic(kind);
            topic.links = Some(serving::channel_links(uri.as_str(), hub.as_str()));
            return Some(topic);
        }
        if let Some(document) = set.dumps().document(file) {
            return Some(found(document));
        }
        set.document(file, self.hub.as_ref()).map(xml).map(found)
    }
}

/// A document of ResourceSync.
pub(super) fn xml(body: Bytes) -> Document {
    Document {
        media_type: "application/xml".to_owned(),
        body,
    }
}

fn found(document: Document) -> Found {
    Found {
        etag: format!("\"{}\"", Digest::of(Algorithm::Sha256, &document.body)),
        document,
        lastmod: None,
        links: None,
    }
}
