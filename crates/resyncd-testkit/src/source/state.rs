//! The state of the sample Source: its sets, its clock, planned faults and counted requests.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use parking_lot::Mutex;
use resourcesync::{Capability, ChangeKind, SourceTime};
use resyncd_core::HubUri;
use tokio::sync::watch;
use url::Url;

use super::clock::SampleClock;
use super::documents::{self, SetUris};
use super::fault::PlannedFaults;
use super::options::{ChannelHub, SampleOptions, Submission};
use super::resource::path_and_query;
use super::resource_set::ResourceSet;
use super::served::{Negotiated, Representation, ServedFile};
use crate::serving;

/// What the Source's methods and its server share.
pub(super) struct SharedSource {
    pub(super) state: Mutex<SampleState>,
    /// Changes with each request.
    pub(super) requests: watch::Sender<u64>,
}

/// The state of the Source at one moment.
pub(super) struct SampleState {
    base: Url,
    options: SampleOptions,
    hub: Option<Url>,
    clock: SampleClock,
    sets: BTreeMap<String, ResourceSet>,
    documents: BTreeMap<String, ServedFile>,
    faults: PlannedFaults,
    /// By path and query: requests, and those answered 304.
    hits: HashMap<String, (u64, u64)>,
    sent: u64,
}

impl SampleState {
    /// The state that the options describe; `own_hub`: the Source's own hub.
    pub(super) fn new(base: Url, options: SampleOptions, own_hub: Option<&HubUri>) -> Self {
        let hub = match &options.hub {
            ChannelHub::None => None,
            ChannelHub::Own(_) => own_hub.map(|hub| hub.url().clone()),
            ChannelHub::External { hub, .. } => Some(hub.url().clone()),
        };
        let names = options.sets.clone();
        let mut state = Self {
            base,
            hub,
            clock: SampleClock::new(options.clock, options.start, options.whole_seconds),
            options,
            sets: BTreeMap::new(),
            documents: BTreeMap::new(),
            faults: PlannedFaults::default(),
            hits: HashMap::new(),
            sent: 0,
        };
        for name in &names {
            state.add_set(name);
        }
        state
    }

    pub(super) fn base(&self) -> &Url {
        &self.base
    }

    /// The set of that name; panics if there is none.
    pub(super) fn set(&self, name: &str) -> &ResourceSet {
        let set = self.sets.get(name);
        set.expect("the sample Source has a set of that name")
    }

    /// The set of that name; panics if there is none.
    pub(super) fn set_mut(&mut self, name: &str) -> &mut ResourceSet {
        let set = self.sets.get_mut(name);
        set.expect("the sample Source has a set of that name")
    }

    pub(super) fn add_set(&mut self, name: &str) {
        let uris = SetUris::new(self.base.clone(), name);
        let start = self.clock.boundary();
        let mut set = ResourceSet::new(uris, &self.options, start);
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

    /// Stores a notification as its topic's latest, if the channel still exists.
    pub(super) fn set_latest(&mut self, set: &str, kind: &Capability, body: Bytes) {
        if let Some(set) = self.sets.get_mut(set) {
            set.set_latest(kind, body);
        }
    }

    /// The external hub, and how notifications are submitted to it.
    pub(super) fn external_hub(&self) -> Option<(HubUri, Submission)> {
        match &self.options.hub {
            ChannelHub::External { hub, submission } => Some((hub.clone(), *submission)),
            ChannelHub::None | ChannelHub::Own(_) => None,
        }
    }

    pub(super) fn put_document(&mut self, path: &str, document: Option<ServedFile>) {
        match document {
            Some(document) => self.documents.insert(path.to_owned(), document),
            None => self.documents.remove(path),
        };
    }

    pub(super) fn faults(&mut self) -> &mut PlannedFaults {
        &mut self.faults
    }

    pub(super) fn hits(&self, path: &str) -> (u64, u64) {
        self.hits.get(path).copied().unwrap_or_default()
    }

    /// Counts a request: whether it is answered 304, and the bytes of its body, planned faults disregarded.
    pub(super) fn hit(&mut self, path: &str, is_not_modified: bool, bytes: usize) {
        let hits = self.hits.entry(path.to_owned()).or_default();
        hits.0 += 1;
        hits.1 += u64::from(is_not_modified);
        self.sent += bytes as u64;
    }

    /// The number of requests.
    pub(super) fn requests(&self) -> u64 {
        self.hits.values().map(|(requests, _)| requests).sum()
    }

    /// The bytes of all bodies.
    pub(super) fn sent(&self) -> u64 {
        self.sent
    }

    /// The representation at a path with query.
    pub(super) fn find(&self, path: &str) -> Option<Representation> {
        if let Some(document) = self.documents.get(path) {
            return Some(document.clone().into());
        }
        let uris = || self.sets.values().map(ResourceSet::uris);
        match path {
            "/.well-known/resourcesync" => {
                Some(ServedFile::xml(documents::source_description(uris())).into())
            }
            "/" => {
                let page = ServedFile {
                    media_type: "text/html; charset=utf-8".to_owned(),
                    body: documents::front_page(uris()).into(),
                };
                Some(page.into())
            }
            _ => {
                let (name, file) = path.strip_prefix('/')?.split_once('/')?;
                self.find_in_set(self.sets.get(name)?, file, path)
            }
        }
    }

    /// The answer of the TimeGate at a path with query, if there is one.
    pub(super) fn negotiate(
        &self,
        path: &str,
        wanted: Option<DateTime<Utc>>,
    ) -> Option<Negotiated> {
        let (name, file) = path.strip_prefix('/')?.split_once('/')?;
        let set = self.sets.get(name)?;
        set.related()?.negotiate(set.uris(), file, wanted)
    }

    fn find_in_set(&self, set: &ResourceSet, file: &str, path: &str) -> Option<Representation> {
        if let Some(resource) = set.resource(path) {
            return Some(Representation {
                file: ServedFile {
                    media_type: resource.media_type.to_owned(),
                    body: resource.bytes.clone(),
                },
                etag: format!("\"{}\"", resource.digest),
                lastmod: Some(resource.lastmod),
                links: None,
                memento: None,
            });
        }
        if let Some(related) = set.related() {
            let bytes_of = |name: &str| {
                let uri = set.resource_uri(name);
                let found = set.resource(path_and_query(&uri));
                found.map(|resource| resource.bytes.clone())
            };
            if let Some(found) = related.find(set.uris(), file, bytes_of) {
                return Some(found);
            }
        }
        if let Some((kind, latest)) = set.channel(file) {
            let hub = self.hub.as_ref()?;
            let body = if self.options.latest_on_topic {
                latest.clone()
            } else {
                Bytes::new()
            };
            let mut topic = Representation::from(ServedFile::xml(body));
            let uri = set.uris().topic(kind);
            topic.links = Some(serving::channel_links(uri.as_str(), hub.as_str()));
            return Some(topic);
        }
        if let Some(document) = set.dumps().document(file) {
            return Some(document.into());
        }
        let document = set.document(file, self.hub.as_ref())?;
        Some(ServedFile::xml(document).into())
    }
}
