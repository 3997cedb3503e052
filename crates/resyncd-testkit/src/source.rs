//! The sample Source and the operations on it.

mod clock;
mod documents;
mod dumping;
mod dumps;
mod fault;
mod options;
mod package;
mod range;
mod related;
mod resource;
mod resource_set;
mod served;
mod server;
mod state;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use reqwest::header::{CONTENT_TYPE, LINK};
use resourcesync::uri::parse_uri;
use resourcesync::{Capability, ChangeKind, Entry, Interval, Link, SourceTime};
use resyncd_core::{HubUri, TopicUri};
use tokio::sync::watch;
use tokio_util::sync::DropGuard;
use url::Url;

pub use self::fault::Fault;
pub use self::options::{
    ChangeListForm, ChannelHub, DumpOptions, MemberFault, PathForm, SampleOptions, Submission,
};
use self::served::ServedFile;
use self::state::{SampleState, SharedSource};
use super::{Hub, HubDelivery, SampleError, serving};

/// How long an external hub may take to answer.
const HUB_TIMEOUT: Duration = Duration::from_secs(10);

/// A notification. Only [`SampleSource::publish`] sends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notification {
    /// Its set.
    pub set: String,
    /// Its channel: change or framework notifications.
    pub kind: Capability,
    /// The channel's topic.
    pub topic: TopicUri,
    /// The interval that it covers; a framework notification has none.
    pub interval: Option<Interval>,
    /// How many entries it has.
    pub entries: usize,
    /// The document.
    pub body: Bytes,
}

/// A sample Source that serves on loopback until its last clone is dropped. A clone is the same Source.
///
/// Methods with the name of a set panic if there is no such set: that is a mistake in the test.
#[derive(Clone)]
pub struct SampleSource {
    shared: Arc<SharedSource>,
    hub: Option<Hub>,
    client: reqwest::Client,
    _serving: Arc<DropGuard>,
}

impl SampleSource {
    /// Starts the Source, and its own hub if configured.
    ///
    /// # Errors
    /// [`SampleError::Listen`] and [`SampleError::Client`].
    pub async fn start(options: SampleOptions) -> Result<Self, SampleError> {
        let bound = serving::bind(options.listen).await?;
        let hub = match &options.hub {
            ChannelHub::Own(own) => Some(Hub::start(own.clone()).await?),
            ChannelHub::None | ChannelHub::External { .. } => None,
        };
        let base = base_uri(bound.address());
        let shared = Arc::new(SharedSource {
            state: Mutex::new(SampleState::new(base, options, hub.as_ref().map(Hub::uri))),
            requests: watch::Sender::new(0),
        });
        Ok(Self {
            client: serving::client(HUB_TIMEOUT)?,
            _serving: bound.serve(server::router(Arc::clone(&shared))),
            shared,
            hub,
        })
    }

    // URIs.

    /// The entry point for a Destination: `http://127.0.0.1:PORT/`.
    pub fn url(&self) -> String {
        self.base().to_string()
    }

    /// The entry point, parsed: the base of all paths.
    pub fn base(&self) -> Url {
        self.shared.state.lock().base().clone()
    }

    /// Its own hub.
    pub fn hub(&self) -> Option<&Hub> {
        self.hub.as_ref()
    }

    /// The URI of a resource, whether it exists or not.
    pub fn resource_uri(&self, set: &str, name: &str) -> Url {
        self.shared.state.lock().set(set).resource_uri(name)
    }

    /// The URI of a set's Capability List.
    pub fn capability_list(&self, set: &str) -> Url {
        self.document_uri(set, documents::CAPABILITY_LIST)
    }

    /// The URI of one of a set's documents, as `resourcelist.xml`.
    pub fn document_uri(&self, set: &str, file: &str) -> Url {
        self.shared.state.lock().set(set).uris().file(file)
    }

    /// The topic of a set's channel of that kind.
    pub fn topic(&self, set: &str, kind: &Capability) -> TopicUri {
        topic_uri(&self.shared.state.lock(), set, kind)
    }

    // Changes. Each is in the Change List at once and in the next notification.

    /// Creates a resource; returns the time of the change.
    pub fn create(&self, set: &str, name: &str, bytes: impl Into<Bytes>) -> SourceTime {
        self.change(set, name, ChangeKind::Created, Some(bytes.into()))
    }

    /// Replaces the content of a resource; returns the time of the change.
    pub fn update(&self, set: &str, name: &str, bytes: impl Into<Bytes>) -> SourceTime {
        self.change(set, name, ChangeKind::Updated, Some(bytes.into()))
    }

    /// Links a resource to others, in place of what it was linked to: its entries have these links in the documents and changes that are
    /// made from now on. Nothing is announced by this.
    pub fn set_links(&self, set: &str, name: &str, links: Vec<Link>) {
        let mut state = self.shared.state.lock();
        state.set_mut(set).set_links(name, links);
    }

    /// Deletes a resource; returns the time of the change.
    pub fn delete(&self, set: &str, name: &str) -> SourceTime {
        self.change(set, name, ChangeKind::Deleted, None)
    }

    fn change(&self, set: &str, name: &str, kind: ChangeKind, bytes: Option<Bytes>) -> SourceTime {
        self.shared.state.lock().change(set, name, kind, bytes)
    }

    /// Moves the Source's clock forward.
    pub fn advance(&self, by: Duration) {
        self.shared.state.lock().advance(by);
    }

    /// A moment after all changes so far and not after later ones.
    pub fn boundary(&self) -> SourceTime {
        self.shared.state.lock().boundary()
    }

    /// The expected content of a mirror of the set: URI and bytes of each resource.
    pub fn state(&self, set: &str) -> BTreeMap<String, Bytes> {
        self.shared
            .state
            .lock()
            .set(set)
            .resources()
            .map(|resource| (resource.uri.to_string(), resource.bytes.clone()))
            .collect()
    }

    // Notifications.

    /// Makes the notification of every change since the previous one. Its interval begins where the previous one ended, and ends
    /// now.
    pub fn notify(&self, set: &str) -> Notification {
        let mut state = self.shared.state.lock();
        let until = state.boundary();
        let (interval, changes) = state.set_mut(set).take_buffered(until);
        let uris = state.set(set).uris();
        Notification {
            set: set.to_owned(),
            kind: Capability::ChangeNotification,
            topic: topic_uri(&state, set, &Capability::ChangeNotification),
            interval: Some(interval),
            entries: changes.len(),
            body: documents::change_notification(uris, interval, &changes),
        }
    }

    /// Makes a framework notification of changed documents.
    pub fn framework(&self, set: &str, entries: &[Entry]) -> Notification {
        let state = self.shared.state.lock();
        Notification {
            set: set.to_owned(),
            kind: Capability::FrameworkNotification,
            topic: topic_uri(&state, set, &Capability::FrameworkNotification),
            interval: None,
            entries: entries.len(),
            body: documents::framework_notification(state.set(set).uris(), entries),
        }
    }

    /// An entry for [`SampleSource::framework`]: the document was created, updated or deleted now.
    pub fn framework_entry(&self, loc: Url, capability: Capability, change: ChangeKind) -> Entry {
        let at = self.boundary();
        documents::framework_entry(loc, capability, change, at)
    }

    /// Makes a notification the latest of its topic and sends it to the hub. Waits for the deliveries of its own hub, or for the
    /// response of an external one. Without a hub it is only served at the topic.
    ///
    /// # Errors
    /// [`SampleError::HubUnreachable`] and [`SampleError::HubRefused`] for an external hub.
    pub async fn publish(
        &self,
        notification: &Notification,
    ) -> Result<Vec<HubDelivery>, SampleError> {
        let (body, external) = {
            let mut state = self.shared.state.lock();
            state.set_latest(
                &notification.set,
                &notification.kind,
                notification.body.clone(),
            );
            (notification.body.clone(), state.external_hub())
        };
        if let Some(hub) = &self.hub {
            return Ok(hub.deliver(notification.topic.as_str(), body).await);
        }
        if let Some((hub, submission)) = external {
            self.submit(&hub, submission, notification).await?;
        }
        Ok(Vec::new())
    }

    /// Makes the notification of the changes and publishes it.
    pub async fn notify_and_publish(&self, set: &str) -> Result<Notification, SampleError> {
        let notification = self.notify(set);
        self.publish(&notification).await?;
        Ok(notification)
    }

    async fn submit(
        &self,
        hub: &HubUri,
        submission: Submission,
        notification: &Notification,
    ) -> Result<(), SampleError> {
        let topic = notification.topic.as_str();
        let request = self.client.post(hub.url().clone());
        let request = match submission {
            Submission::Payload => request
                .header(CONTENT_TYPE, "application/xml")
                .header(LINK, serving::channel_links(topic, hub.as_str()))
                .body(notification.body.clone()),
            Submission::Ping => {
                let form = url::form_urlencoded::Serializer::new(String::new())
                    .append_pair("hub.mode", "publish")
                    .append_pair("hub.topic", topic)
                    .append_pair("hub.url", topic)
                    .finish();
                request
                    .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
                    .body(form)
            }
        };
        let answer = request.send().await;
        let answer = answer.map_err(|error| SampleError::HubUnreachable {
            hub: hub.to_string(),
            error,
        })?;
        if answer.status().is_success() {
            return Ok(());
        }
        Err(SampleError::HubRefused {
            hub: hub.to_string(),
            status: answer.status().as_u16(),
        })
    }

    // Documents.

    /// Publishes a Resource List; returns its time.
    pub fn refresh_resource_list(&self, set: &str) -> SourceTime {
        let mut state = self.shared.state.lock();
        let at = state.boundary();
        state.set_mut(set).refresh_resource_list(at);
        at
    }

    /// Freezes the Change List, so that it lags, or lets it catch up.
    pub fn freeze_change_list(&self, set: &str, frozen: bool) {
        self.shared
            .state
            .lock()
            .set_mut(set)
            .freeze_change_list(frozen);
    }

    /// Closes the open Change List and opens the next; from then on there is an index. Returns the time between the two.
    pub fn roll_change_list(&self, set: &str) -> SourceTime {
        let mut state = self.shared.state.lock();
        let at = state.boundary();
        state.set_mut(set).roll_change_list(at);
        at
    }

    /// Drops the oldest closed Change Lists and retains `keep`; returns how many were dropped.
    pub fn drop_old_change_lists(&self, set: &str, keep: usize) -> usize {
        self.shared
            .state
            .lock()
            .set_mut(set)
            .drop_old_change_lists(keep)
    }

    /// Removes the Change List, or opens a new one.
    pub fn set_change_list(&self, set: &str, present: bool) {
        let mut state = self.shared.state.lock();
        let from = present.then(|| state.boundary());
        state.set_mut(set).set_change_list(from);
    }

    /// Changes the form of a set's Change Lists.
    pub fn set_change_list_form(&self, set: &str, form: ChangeListForm) {
        self.shared.state.lock().set_mut(set).set_form(form);
    }

    /// Adds a set of resources, as the options describe it.
    pub fn add_set(&self, set: &str) {
        self.shared.state.lock().add_set(set);
    }

    /// Removes a set with all its documents and resources.
    pub fn remove_set(&self, set: &str) {
        self.shared.state.lock().remove_set(set);
    }

    /// Advertises a channel.
    pub fn add_channel(&self, set: &str, kind: Capability) {
        self.shared.state.lock().set_mut(set).add_channel(kind);
    }

    /// Removes a channel and its topic.
    pub fn remove_channel(&self, set: &str, kind: &Capability) {
        self.shared.state.lock().set_mut(set).remove_channel(kind);
    }

    /// Serves this document at a path instead of what is there.
    pub fn put_document(&self, path: &str, media_type: &str, body: impl Into<Bytes>) {
        let document = ServedFile {
            media_type: media_type.to_owned(),
            body: body.into(),
        };
        self.shared.state.lock().put_document(path, Some(document));
    }

    /// Removes a document that `put_document` has added.
    pub fn remove_document(&self, path: &str) {
        self.shared.state.lock().put_document(path, None);
    }

    // Faults and requests.

    /// Plans a fault for the next `times` requests of a path with query, such as `/set1/res/r0000.txt`. A path that ends in `*` is a
    /// prefix. Several faults apply in the order they were planned.
    pub fn fail(&self, path: &str, fault: Fault, times: usize) {
        self.shared.state.lock().faults().plan(path, fault, times);
    }

    /// Removes the faults planned for exactly this path.
    pub fn heal(&self, path: &str) {
        self.shared.state.lock().faults().heal(path);
    }

    /// How often a path with query was requested.
    pub fn hits(&self, path: &str) -> u64 {
        self.shared.state.lock().hits(path).0
    }

    /// How many of these requests were answered 304.
    pub fn hits_not_modified(&self, path: &str) -> u64 {
        self.shared.state.lock().hits(path).1
    }

    /// [`hits`](Self::hits) and [`hits_not_modified`](Self::hits_not_modified) of the same moment.
    pub fn hits_and_not_modified(&self, path: &str) -> (u64, u64) {
        self.shared.state.lock().hits(path)
    }

    /// The number of requests, and the bytes of all response bodies.
    pub fn traffic(&self) -> (u64, u64) {
        let state = self.shared.state.lock();
        (state.requests(), state.sent())
    }

    /// The number of requests for a path that were not answered 304.
    pub fn downloads(&self, path: &str) -> u64 {
        let (requests, not_modified) = self.shared.state.lock().hits(path);
        requests - not_modified
    }

    /// Waits until a path has been requested that many times in total.
    pub async fn wait_for_hits(&self, path: &str, times: u64) {
        let mut requests = self.shared.requests.subscribe();
        while self.hits(path) < times {
            if requests.changed().await.is_err() {
                return;
            }
        }
    }
}

fn topic_uri(state: &SampleState, set: &str, kind: &Capability) -> TopicUri {
    TopicUri::try_from(state.set(set).uris().topic(kind))
        .expect("what an http listener serves has an http URI")
}

fn base_uri(address: SocketAddr) -> Url {
    parse_uri(&format!("http://{address}/")).expect("an address makes an http URI")
}

#[cfg(test)]
mod tests;
