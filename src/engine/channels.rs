//! The channels of a set: which are wanted, and one task for each that keeps its lease.

mod hubs;
pub(super) mod subscription;

use std::collections::HashMap;
use std::sync::Arc;

use tokio::task::JoinHandle;

use super::EngineError;
use super::context::SourceContext;
use crate::clock;
use crate::config::Signatures;
use crate::protocol::{Capability, HubUri, Offer, TopicUri};
use crate::status::StatusError;
use crate::store::{ChannelId, ChannelRecord, SetId};
use crate::sync::{ChannelState, Lease};
use subscription::keep;

/// A secret's length, in bytes before it is written in hexadecimal: well under the 200 bytes that WebSub allows.
const SECRET_BYTES: usize = 32;
/// A token's length, in bytes before it is written in hexadecimal.
const TOKEN_BYTES: usize = 24;

/// The channels of one set.
pub(super) struct Channels {
    context: Arc<SourceContext>,
    set: SetId,
    kept: HashMap<ChannelId, (Capability, JoinHandle<()>)>,
    /// Whether what is offered has not been followed to its end yet.
    is_behind: bool,
}

impl Channels {
    pub(super) fn new(context: Arc<SourceContext>, set: SetId) -> Self {
        Self {
            context,
            set,
            kept: HashMap::new(),
            is_behind: true,
        }
    }

    /// Whether the offers have to be followed again: the last time it came to no end.
    pub(super) fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// Subscribes to what a Capability List offers, and ends what it offers no more.
    pub(super) async fn follow(&mut self, offers: &[Offer]) -> Result<(), EngineError> {
        self.is_behind = true;
        self.follow_each(offers).await?;
        self.is_behind = false;
        Ok(())
    }

    async fn follow_each(&mut self, offers: &[Offer]) -> Result<(), EngineError> {
        if !self.context.subscribes {
            return Ok(());
        }
        let known = self.context.store.channels(self.set).await?;
        let mut wanted = Vec::new();
        for offer in offers {
            if let Some((topic, hubs)) = self.subscribable(offer) {
                let hubs = hubs.to_vec();
                let record = self.want(&known, &offer.capability, &topic, &hubs).await?;
                wanted.push(record.id);
                self.keep(&record);
            }
        }
        for record in known.iter().filter(|record| !wanted.contains(&record.id)) {
            if !record.left {
                self.context.store.want_channel(record.id, false).await?;
                // Its task ends the subscription; one that runs already hears of it so.
                self.context
                    .store
                    .change_lease(record.id, true, |lease| lease.restart(clock::now().wall))
                    .await?;
            }
            if record.lease.state != ChannelState::Unsubscribed {
                self.keep(record);
            }
        }
        Ok(())
    }

    /// The topic of a channel that is to be subscribed to, and the hubs that are advertised with it. There may be none: the
    /// topic is asked for them then.
    fn subscribable<'a>(&'a self, offer: &'a Offer) -> Option<(TopicUri, &'a [HubUri])> {
        let is_channel = matches!(
            offer.capability,
            Capability::ChangeNotification | Capability::FrameworkNotification
        );
        let source = &self.context.source;
        if !is_channel || !source.notifications || self.context.retired.is_cancelled() {
            return None;
        }
        let topic = TopicUri::try_from(offer.uri.clone()).ok()?;
        if self.context.public_url.is_none() {
            tracing::warn!(code = "no-public-url", source = self.context.name(), %topic,
                "a channel can't be subscribed to: [callback] public_url is not set");
            return None;
        }
        Some((
            topic,
            source
                .hub
                .as_ref()
                .map_or(offer.hubs.as_slice(), std::slice::from_ref),
        ))
    }

    /// The channel's row: the one that it had before, or a new one with a callback and a secret of its own.
    async fn want(
        &mut self,
        known: &[ChannelRecord],
        kind: &Capability,
        topic: &TopicUri,
        hubs: &[HubUri],
    ) -> Result<ChannelRecord, EngineError> {
        let store = Arc::clone(&self.context.store);
        let now = clock::now().wall;
        let secret = match self.context.source.signatures {
            Signatures::Required => Some(random_name(SECRET_BYTES)?),
            Signatures::Off => None,
        };
        let same = known
            .iter()
            .find(|record| record.kind == *kind && record.topic == *topic);
        let Some(record) = same.filter(|record| record.secret.is_some() == secret.is_some()) else {
            let token = random_name(TOKEN_BYTES)?;
            return Ok(store
                .add_channel(now, self.set, kind, topic, hubs, token, secret)
                .await?);
        };
        if record.advertised_hubs != hubs {
            store.advertise_hubs(record.id, hubs).await?;
            let is_elsewhere = |hub: &HubUri| !hubs.is_empty() && !hubs.contains(hub);
            if record.hub.as_ref().is_none_or(is_elsewhere) {
                store
                    .change_lease(record.id, true, move |lease| lease.restart(now))
                    .await?;
            }
        }
        if record.left || record.lease.state == ChannelState::Unsubscribed {
            // Whoever is about to end it, or has just ended it, must not have the last word.
            if let Some((_, ending)) = self.kept.remove(&record.id) {
                ending.abort();
                let _ = ending.await;
            }
            store.want_channel(record.id, true).await?;
            store
                .change_lease(record.id, true, move |lease| *lease = Lease::new(now))
                .await?;
        }
        Ok(record.clone())
    }

    /// Starts the task that keeps a channel's lease, if none does.
    fn keep(&mut self, record: &ChannelRecord) {
        if self
            .kept
            .get(&record.id)
            .is_none_or(|(_, task)| task.is_finished())
        {
            let task = tokio::spawn(keep(Arc::clone(&self.context), record.id));
            self.kept.insert(record.id, (record.kind.clone(), task));
        }
    }

    /// The channels of a kind that are being kept.
    pub(super) fn of(&self, kind: &Capability) -> Vec<ChannelId> {
        self.kept
            .iter()
            .filter(|(_, (kept, _))| kept == kind)
            .map(|(&id, _)| id)
            .collect()
    }

    /// All that the set has, or had; none where the database can't tell just now.
    async fn known(&self) -> Vec<ChannelRecord> {
        let known = self.context.store.channels(self.set).await;
        known.unwrap_or_default()
    }

    /// Where the leases stand.
    pub(super) async fn leases(
        &self,
    ) -> HashMap<ChannelId, (ChannelState, Option<chrono::DateTime<chrono::Utc>>)> {
        let known = self.known().await;
        known
            .into_iter()
            .map(|record| (record.id, (record.lease.state, record.lease.expires_at)))
            .collect()
    }

    /// The active channel that tells of changes, and how many deliveries it has received so far.
    pub(super) async fn listening(&self) -> Result<Option<(ChannelId, u64)>, EngineError> {
        let found = self.context.store.channels(self.set).await?;
        let active = found.into_iter().find(|record| {
            record.kind == Capability::ChangeNotification
                && record.lease.state == ChannelState::Active
                && !record.left
        });
        Ok(active.map(|record| (record.id, record.received)))
    }

    /// Subscribes anew to a channel whose hub keeps silent about what changes.
    pub(super) async fn fell_silent(&self, id: ChannelId) -> Result<(), EngineError> {
        let now = clock::now().wall;
        let store = &self.context.store;
        if let Some(channel) = store.channel(id).await? {
            let message = "polls find changes that the hub does not tell of".to_owned();
            self.context.tell_channel(&channel, "push-silent", message);
        }
        store
            .change_lease(id, true, move |lease| lease.fell_silent(now))
            .await?;
        Ok(())
    }

    /// Whether a hub is still to be heard that has not failed yet.
    pub(super) async fn any_pending(&self) -> bool {
        let known = self.known().await;
        known.iter().any(|record| {
            self.kept.contains_key(&record.id)
                && record.lease.state == ChannelState::Pending
                && self.context.runtime_status.channel(record.id).is_none()
        })
    }

    /// Lets the tasks go on by themselves until the subscriptions that they end have ended.
    pub(super) fn detach(self) {
        drop(self.kept);
    }

    /// Ends the tasks. The subscriptions stay: they outlive the process.
    pub(super) async fn stop(self) {
        for (_, task) in self.kept.into_values() {
            task.abort();
            // Aborted: that is what was asked for.
            let _ = task.await;
        }
    }
}

/// A name that nobody can guess.
fn random_name(bytes: usize) -> Result<String, EngineError> {
    let mut random = vec![0; bytes];
    getrandom::fill(&mut random).map_err(|error| EngineError::Random(error.to_string()))?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}

impl SourceContext {
    /// Tells what is wrong with a channel, once.
    pub(super) fn tell_channel(&self, channel: &ChannelRecord, code: &str, message: String) {
        let known = self.runtime_status.channel(channel.id);
        if !known.is_some_and(|known| known.code == code && known.message == message) {
            tracing::warn!(code, source = self.name(), topic = %channel.topic, hub = channel.hub_name(), error = message,
                "a subscription does not go through");
        }
        self.runtime_status.note_channel(
            channel.id,
            Some(StatusError::new(code, message, clock::now().wall)),
        );
    }
}
