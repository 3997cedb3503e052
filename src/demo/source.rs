//! The sample Source: its state, and what can be done to it.

mod clock;
mod documents;
mod dumping;
mod dumps;
mod fault;
mod options;
mod package;
mod range;
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
use tokio::sync::watch;
use tokio_util::sync::DropGuard;
use url::Url;

pub use self::fault::Fault;
pub use self::options::{
    ChangeListForm, ChannelHub, DumpOptions, MemberFault, PathForm, SampleOptions, Submission,
};
use self::served::ServedFile;
use self::state::{SharedSource, SourceState};
use super::serving;
use super::{DemoError, Hub, HubDelivery};
use crate::protocol::{Capability, ChangeKind, Entry, HubUri, Interval, SourceTime, TopicUri};

/// How long an external hub may take to answer.
const HUB_TIMEOUT: Duration = Duration::from_secs(10);

/// A notification that was made; it is sent by [`SampleSource::publish`] only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notification {
    /// The set it tells of.
    pub set: String,
    /// The channel it belongs to: change or framework notifications.
    pub kind: Capability,
    /// The channel's topic.
    pub topic: TopicUri,
    /// The stretch of time whose changes it tells; a framework notification tells none.
    pub interval: Option<Interval>,
    /// How many entries it has.
    pub entries: usize,
    /// The document.
    pub body: Bytes,
}

/// A sample Source that answers on loopback until its last copy is dropped.
///
/// A copy is the same Source. Where a method takes the name of a set, it panics when there is no such set: a test that
/// misspells it should hear of it at once.
#[derive(Clone)]
pub struct SampleSource {
    shared: Arc<SharedSource>,
    hub: Option<Hub>,
    client: reqwest::Client,
    _serving: Arc<DropGuard>,
}

impl SampleSource {
    /// Starts it, and its hub if it is to have one of its own.
    ///
    /// # Errors
    /// [`DemoError::Listen`], when an address can't be had; [`DemoError::Client`].
    pub async fn start(options: SampleOptions) -> Result<Self, DemoError> {
        let bound = serving::bind(options.listen).await?;
        let hub = match &options.hub {
            ChannelHub::Own(own) => Some(Hub::start(own.clone()).await?),
            ChannelHub::None | ChannelHub::External { .. } => None,
        };
        let base = base_uri(bound.address());
        let shared = Arc::new(SharedSource {
            state: Mutex::new(SourceState::new(base, options, hub.as_ref().map(Hub::uri))),
            requests: watch::Sender::new(0),
        });
        Ok(Self {
            client: serving::client(HUB_TIMEOUT)?,
            _serving: bound.serve(server::router(Arc::clone(&shared))),
            shared,
            hub,
        })
    }

    // Where things are.

    /// The entry point that a Destination is told of: `http://127.0.0.1:PORT/`.
    #[must_use]
    pub fn url(&self) -> String {
        self.base().to_string()
    }

    /// The same, parsed: what paths are joined to.
    #[must_use]
    pub fn base(&self) -> Url {
        self.shared.state.lock().base().clone()
    }

    /// The hub that it started for itself.
    #[must_use]
    pub fn hub(&self) -> Option<&Hub> {
        self.hub.as_ref()
    }

    /// The URI of a resource, whether it exists or not.
    #[must_use]
    pub fn resource_uri(&self, set: &str, name: &str) -> Url {
        self.shared.state.lock().set(set).resource_uri(name)
    }

    /// The URI of a set's Capability List.
    #[must_use]
    pub fn capability_list(&self, set: &str) -> Url {
        self.document_uri(set, documents::CAPABILITY_LIST)
    }

    /// The URI of one of a set's documents, as `resourcelist.xml`.
    #[must_use]
    pub fn document_uri(&self, set: &str, file: &str) -> Url {
        self.shared.state.lock().set(set).uris().file(file)
    }

    /// The topic of a set's channel of that kind.
    #[must_use]
    pub fn topic(&self, set: &str, kind: &Capability) -> TopicUri {
        topic_uri(&self.shared.state.lock(), set, kind)
    }

    // What happens at the Source. Each of these enters the Change List at once and waits for a notification.

    /// A resource comes into being. The moment of the change.
    pub fn create(&self, set: &str, name: &str, bytes: impl Into<Bytes>) -> SourceTime {
        self.change(set, name, ChangeKind::Created, Some(bytes.into()))
    }

    /// The content of a resource changes. The moment of the change.
    pub fn update(&self, set: &str, name: &str, bytes: impl Into<Bytes>) -> SourceTime {
        self.change(set, name, ChangeKind::Updated, Some(bytes.into()))
    }

    /// A resource goes. The moment of the change.
    pub fn delete(&self, set: &str, name: &str) -> SourceTime {
        self.change(set, name, ChangeKind::Deleted, None)
    }

    fn change(&self, set: &str, name: &str, kind: ChangeKind, bytes: Option<Bytes>) -> SourceTime {
        self.shared.state.lock().change(set, name, kind, bytes)
    }

    /// Moves the Source's clock on.
    pub fn advance(&self, by: Duration) {
        self.shared.state.lock().advance(by);
    }

    /// A moment that parts the changes so far from those to come.
    #[must_use]
    pub fn boundary(&self) -> SourceTime {
        self.shared.state.lock().boundary()
    }

    /// What a mirror of the set should hold: each resource's URI and bytes.
    #[must_use]
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

    /// Makes the notification of every change since the one before it; its interval begins where that one's ended, and ends now.
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

    /// Makes a framework notification of documents that were published anew.
    #[must_use]
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

    /// An entry for [`SampleSource::framework`]: the document at that URI was created, updated or deleted just now.
    #[must_use]
    pub fn framework_entry(&self, loc: Url, capability: Capability, change: ChangeKind) -> Entry {
        let at = self.boundary();
        documents::framework_entry(loc, capability, change, at)
    }

    /// Makes a notification its topic's latest and hands it to the hub: the Source's own one, whose deliveries it awaits, or an
    /// external one, whose answer it awaits. Without a hub it only stands at the topic.
    ///
    /// # Errors
    /// [`DemoError::HubUnreachable`] and [`DemoError::HubRefused`], of an external hub.
    pub async fn publish(
        &self,
        notification: &Notification,
    ) -> Result<Vec<HubDelivery>, DemoError> {
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

    /// Makes the notification of what changed, and publishes it.
    ///
    /// # Errors
    /// As [`SampleSource::publish`].
    pub async fn notify_and_publish(&self, set: &str) -> Result<Notification, DemoError> {
        let notification = self.notify(set);
        self.publish(&notification).await?;
        Ok(notification)
    }

    async fn submit(
        &self,
        hub: &HubUri,
        submission: Submission,
        notification: &Notification,
    ) -> Result<(), DemoError> {
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
        let answer = answer.map_err(|error| DemoError::HubUnreachable {
            hub: hub.to_string(),
            error,
        })?;
        if answer.status().is_success() {
            return Ok(());
        }
        Err(DemoError::HubRefused {
            hub: hub.to_string(),
            status: answer.status().as_u16(),
        })
    }

    // What is published.

    /// Publishes a Resource List of this moment, which is what it returns.
    pub fn refresh_resource_list(&self, set: &str) -> SourceTime {
        let mut state = self.shared.state.lock();
        let at = state.boundary();
        state.set_mut(set).refresh_resource_list(at);
        at
    }

    /// Makes the Change List stay as it is now (it lags), or catch up.
    pub fn freeze_change_list(&self, set: &str, frozen: bool) {
        self.shared
            .state
            .lock()
            .set_mut(set)
            .freeze_change_list(frozen);
    }

    /// Closes the open Change List and begins the next; from then on there is an index of them. The moment that parts them.
    pub fn roll_change_list(&self, set: &str) -> SourceTime {
        let mut state = self.shared.state.lock();
        let at = state.boundary();
        state.set_mut(set).roll_change_list(at);
        at
    }

    /// Drops the oldest closed Change Lists, but for `keep` of them; how many were dropped.
    pub fn drop_old_change_lists(&self, set: &str, keep: usize) -> usize {
        self.shared
            .state
            .lock()
            .set_mut(set)
            .drop_old_change_lists(keep)
    }

    /// Takes the Change List away, or begins a new one now.
    pub fn set_change_list(&self, set: &str, present: bool) {
        let mut state = self.shared.state.lock();
        let from = present.then(|| state.boundary());
        state.set_mut(set).set_change_list(from);
    }

    /// Changes how a set's Change Lists are written.
    pub fn set_change_list_form(&self, set: &str, form: ChangeListForm) {
        self.shared.state.lock().set_mut(set).set_form(form);
    }

    /// Offers one more set of resources, made as the options have it.
    pub fn add_set(&self, set: &str) {
        self.shared.state.lock().add_set(set);
    }

    /// Offers a set no longer: it leaves the Source Description, and all of its documents and resources are gone.
    pub fn remove_set(&self, set: &str) {
        self.shared.state.lock().remove_set(set);
    }

    /// Advertises a channel again.
    pub fn add_channel(&self, set: &str, kind: Capability) {
        self.shared.state.lock().set_mut(set).add_channel(kind);
    }

    /// Advertises a channel no longer; its topic is gone.
    pub fn remove_channel(&self, set: &str, kind: &Capability) {
        self.shared.state.lock().set_mut(set).remove_channel(kind);
    }

    /// Serves a document of the test's own at a path, before anything else that is there.
    pub fn put_document(&self, path: &str, media_type: &str, body: impl Into<Bytes>) {
        let document = ServedFile {
            media_type: media_type.to_owned(),
            body: body.into(),
        };
        self.shared.state.lock().put_document(path, Some(document));
    }

    /// Takes such a document away.
    pub fn remove_document(&self, path: &str) {
        self.shared.state.lock().put_document(path, None);
    }

    // Faults and what was asked for.

    /// Plans a fault for the next `times` requests of a path with its query, as `/set1/res/r0000.txt`; a path that ends in `*`
    /// stands for all that begin so. Of several, the one that was planned first comes first.
    pub fn fail(&self, path: &str, fault: Fault, times: usize) {
        self.shared.state.lock().faults().plan(path, fault, times);
    }

    /// Takes back the faults that were planned for exactly this path.
    pub fn heal(&self, path: &str) {
        self.shared.state.lock().faults().heal(path);
    }

    /// How often a path with its query was asked for.
    #[must_use]
    pub fn hits(&self, path: &str) -> u64 {
        self.shared.state.lock().hits(path).0
    }

    /// How often the answer to that was 304.
    #[must_use]
    pub fn hits_not_modified(&self, path: &str) -> u64 {
        self.shared.state.lock().hits(path).1
    }

    /// How many requests there were, and how many bytes of bodies were sent in answer.
    #[must_use]
    pub fn traffic(&self) -> (u64, u64) {
        let state = self.shared.state.lock();
        (state.requests(), state.sent())
    }

    /// Waits until a path was asked for that many times in all.
    pub async fn wait_for_hits(&self, path: &str, times: u64) {
        let mut requests = self.shared.requests.subscribe();
        while self.hits(path) < times {
            if requests.changed().await.is_err() {
                return;
            }
        }
    }
}

fn topic_uri(state: &SourceState, set: &str, kind: &Capability) -> TopicUri {
    TopicUri::try_from(state.set(set).uris().topic(kind))
        .expect("what an http listener serves has an http URI")
}

fn base_uri(address: SocketAddr) -> Url {
    Url::parse(&format!("http://{address}/")).expect("an address makes an http URI")
}

#[cfg(test)]
mod tests;
