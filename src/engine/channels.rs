//! The channels of a set: which are wanted, and a driver for each.
//!
//! A channel has a [`Transport`]. What they have in common is here; each transport has a file of its own, which the driver and the
//! ending choose.
//!
//! | module | what it does |
//! |---|---|
//! | `driver` | drives one channel over its transport |
//! | `websub`, `callback` | transports by which hubs and Sources deliver to the callback listener |
//! | `websocket`, `xmpp` | transports by a connection that is opened here |
//! | `connection` | what these two have in common |
//! | `requests` | requests to topics, hubs and interfaces |
//! | `stored` | the stored half of a channel without hubs |
//! | `keys` | tokens and secrets |
//! | `waiting` | how a driver waits |
//! | `ending` | ends a subscription on request |
//! | `unfollowed` | ends those of sets that are not followed any more |
//! | `context` | what the channels of a Source need |

mod callback;
mod connection;
mod context;
mod driver;
mod ending;
mod keys;
mod requests;
mod stored;
mod unfollowed;
mod waiting;
mod websocket;
mod websub;
mod xmpp;

use std::collections::HashMap;
use std::sync::Arc;

use context::ChannelContext;
use driver::drive;
pub use ending::{EndingSource, end_subscriptions};
use keys::fresh_keys;
use resourcesync::Capability;
use resyncd_core::{
    Channel, ChannelKey, ChannelState, HubUri, Offer, TopicUri, Transport, choose_channels,
};
use tokio::task::JoinHandle;
pub(super) use unfollowed::Unfollowed;
use url::Url;

use super::EngineError;
use super::context::SourceContext;
use crate::clock;
use crate::config::LackingKey;
use crate::status::StatusError;
use crate::store::{ChannelId, ChannelRecord, SetId};

/// The channels of one set.
pub(super) struct Channels {
    context: Arc<ChannelContext>,
    set: SetId,
    drivers: HashMap<ChannelId, (Capability, JoinHandle<()>)>,
    /// Whether the last offers have not been followed completely.
    is_behind: bool,
}

/// A channel that a Capability List offers, with the hubs to use.
struct OfferedChannel<'a> {
    transport: Transport,
    kind: &'a Capability,
    topic: TopicUri,
    hubs: &'a [HubUri],
}

impl Channels {
    pub(super) fn new(context: &SourceContext, set: SetId) -> Self {
        Self {
            context: Arc::new(ChannelContext::of(context)),
            set,
            drivers: HashMap::new(),
            is_behind: true,
        }
    }

    /// Whether the offers must be followed again, because the last attempt failed.
    pub(super) fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// Subscribes to the channels that a Capability List offers, and ends those that it no longer offers.
    pub(super) async fn follow(&mut self, offers: &[Offer]) -> Result<(), EngineError> {
        self.is_behind = true;
        self.follow_each(offers).await?;
        self.is_behind = false;
        Ok(())
    }

    async fn follow_each(&mut self, offers: &[Offer]) -> Result<(), EngineError> {
        let context = Arc::clone(&self.context);
        if !context.subscribes {
            return Ok(());
        }
        let offered = offers
            .iter()
            .filter_map(|offer| offered_channel(&context, offer));
        let offered: Vec<_> = offered.collect();
        self.note_unconfigured(offers, &offered);
        let (offered, others) = of_best_transports(offered);
        let stored = context.store.channels(self.set).await?;
        let (former, known): (Vec<_>, Vec<_>) = stored
            .into_iter()
            .partition(|record| record.former_of.is_some());
        self.drive_endings(&former);
        let offered_keys: Vec<ChannelKey<'_>> = offered
            .iter()
            .map(|offered| ChannelKey {
                kind: offered.kind,
                topic: &offered.topic,
                transport: offered.transport,
                is_signed: offered.is_signed(&context),
            })
            .collect();
        let known_keys: Vec<ChannelKey<'_>> = known.iter().map(key_of).collect();
        let choice = choose_channels(&offered_keys, &known_keys, |place| {
            !known[place].is_unwanted
        });
        self.note_surplus(choice.surplus + others);
        for (offered, known) in choice
            .known
            .into_iter()
            .map(|(index, place)| (&offered[index], &known[place]))
        {
            let wanted = self.want(known, offered.hubs).await?;
            self.start(wanted.as_ref().unwrap_or(known));
        }
        for offered in choice.new.into_iter().map(|index| &offered[index]) {
            let record = self.add(offered).await?;
            self.start(&record);
        }
        for known in choice.unwanted.into_iter().map(|place| &known[place]) {
            if !known.is_unwanted {
                self.leave(known).await?;
            }
            if known.lease.state != ChannelState::Unsubscribed {
                self.start(known);
            }
        }
        Ok(())
    }

    /// Shows how many channels are not subscribed to because another one of their kind is.
    fn note_surplus(&self, surplus: usize) {
        const CODE: &str = "surplus-channels";
        let runtime_status = &self.context.runtime_status;
        let message = "the Capability List has several channels of one kind; one of each is used";
        let notice = StatusError::new(CODE, message, clock::now().wall);
        runtime_status.note_set(self.set, |facts| match surplus {
            0 => facts.notices.clear(CODE),
            surplus => {
                facts.notices.replace(notice, surplus as u64);
            }
        });
    }

    /// Shows which channels are not used because the configuration lacks something. `used`: those that can be used.
    fn note_unconfigured(&self, offers: &[Offer], used: &[OfferedChannel<'_>]) {
        let context = &self.context;
        let unused = offers.iter().filter(|_| context.notifications);
        let unused: Vec<_> = unused
            .filter_map(|offer| {
                let lacking = lacking(context, offer)?;
                let used = used.iter().filter(|one| *one.kind == offer.capability);
                let used = used.map(|one| one.transport);
                is_missed(&lacking, used).then_some((offer, lacking))
            })
            .collect();
        for code in LackingKey::CODES {
            let mut of_code = unused.iter().filter(|(_, lacking)| lacking.code() == code);
            let count = of_code.clone().count() as u64;
            let notice = of_code.next().map(|(offer, lacking)| {
                let message = message_of(lacking, &offer.uri);
                StatusError::new(code, message, clock::now().wall)
            });
            let mut is_news = false;
            let runtime_status = &context.runtime_status;
            runtime_status.note_set(self.set, |facts| match &notice {
                Some(notice) => is_news = facts.notices.replace(notice.clone(), count),
                None => facts.notices.clear(code),
            });
            if let Some(notice) = notice.filter(|_| is_news) {
                tracing::info!(
                    code = notice.code,
                    source = context.source,
                    notice = notice.message,
                    "channel not used"
                );
            }
        }
    }

    /// Starts the drivers of those that are left and have not ended.
    fn drive_endings(&mut self, stored: &[ChannelRecord]) {
        let ending = |record: &&ChannelRecord| {
            record.is_unwanted && record.lease.state != ChannelState::Unsubscribed
        };
        for record in stored.iter().filter(ending) {
            self.start(record);
        }
    }

    async fn add(&self, offered: &OfferedChannel<'_>) -> Result<ChannelRecord, EngineError> {
        let keys = fresh_keys(offered.is_signed(&self.context))?;
        let now = clock::now().wall;
        let channel = if offered.transport.has_hubs() {
            Channel::new(now, &offered.topic, offered.hubs)
        } else {
            Channel::without_hubs(offered.transport, now, &offered.topic)
        };
        let store = &self.context.store;
        Ok(store
            .insert_channel(self.set, offered.kind, channel, keys)
            .await?)
    }

    /// Returns the channel as it is now, if that has changed it.
    async fn want(
        &mut self,
        known: &ChannelRecord,
        hubs: &[HubUri],
    ) -> Result<Option<ChannelRecord>, EngineError> {
        let now = clock::now().wall;
        let before = known.channel();
        let mut after = before.clone();
        after.want(now, hubs);
        if after == before {
            return Ok(None);
        }
        // A driver that is about to finish would not see the change.
        if before.is_ending()
            && let Some((_, driver)) = self.drivers.remove(&known.id)
        {
            driver.abort();
            let _ = driver.await;
        }
        // Whoever has learnt the address of a callback that nothing signs can deliver until there is another one.
        let is_renewed = before.is_ending() && !known.transport.has_known_sender();
        let fresh = is_renewed.then(|| fresh_keys(false)).transpose()?;
        let hubs = hubs.to_vec();
        let want = move |channel: &mut Channel| channel.want(now, &hubs);
        let store = &self.context.store;
        Ok(Some(store.want_channel(known.id, fresh, want).await?))
    }

    /// Makes the channel's driver end the subscription.
    async fn leave(&self, known: &ChannelRecord) -> Result<(), EngineError> {
        let now = clock::now().wall;
        let store = &self.context.store;
        Ok(store
            .change_channel(known.id, true, move |channel| channel.leave(now))
            .await?)
    }

    /// Starts the channel's driver unless it is running.
    fn start(&mut self, record: &ChannelRecord) {
        let running = self.drivers.get(&record.id);
        if running.is_none_or(|(_, driver)| driver.is_finished()) {
            let context = &self.context;
            let name = format!(
                "driver of the channel {} (Source {})",
                record.topic, context.source
            );
            let driver = drive(Arc::clone(context), record.clone());
            let driver = tokio::spawn(context.heartbeats.watched(&name, driver));
            let driver = (record.kind.clone(), driver);
            self.drivers.insert(record.id, driver);
        }
    }

    /// The channels of a kind that have a driver.
    pub(super) fn of(&self, kind: &Capability) -> Vec<ChannelId> {
        self.drivers
            .iter()
            .filter(|(_, (of, _))| of == kind)
            .map(|(&id, _)| id)
            .collect()
    }

    /// The stored channels of the set; none on a database error.
    async fn known(&self) -> Vec<ChannelRecord> {
        let known = self.context.store.channels(self.set).await;
        known.unwrap_or_default()
    }

    /// The states of the leases, and how often their subscriptions have begun. A subscription that was replaced by another one is driven to its end.
    pub(super) async fn leases(&mut self) -> HashMap<ChannelId, (ChannelState, u32)> {
        let known = self.known().await;
        if self.context.subscribes {
            self.drive_endings(&known);
        }
        known
            .into_iter()
            .filter(|record| !record.is_unwanted)
            .map(|record| (record.id, (record.lease.state, record.begun)))
            .collect()
    }

    /// The active channel for change notifications, and the number of deliveries that it has received. Where anybody may have made them,
    /// those count that state changes: junk does not show that the Source still pushes.
    pub(super) async fn listening(&self) -> Result<Option<(ChannelId, u64)>, EngineError> {
        let found = self.context.store.channels(self.set).await?;
        let active = found.into_iter().find(|record| {
            record.kind == Capability::ChangeNotification && record.channel().is_delivered()
        });
        Ok(active.map(|record| {
            if record.transport.has_known_sender() {
                (record.id, record.received)
            } else {
                (record.id, record.applied)
            }
        }))
    }

    /// Has a channel subscribed to anew whose hub no longer delivers.
    pub(super) async fn fell_silent(&self, id: ChannelId) -> Result<(), EngineError> {
        let now = clock::now().wall;
        let store = &self.context.store;
        let silent = store
            .change_channel(id, true, move |channel| channel.fall_silent(now))
            .await?;
        if let Some(fault) = silent
            && let Some(record) = store.channel(id).await?
        {
            let (error, event) = (
                fault.message(record.transport),
                record.transport.silent_event(),
            );
            tracing::warn!(code = fault.code(), source = self.context.source, topic = %record.subscribed_topic,
                hub = record.logged_hub(), error, "{event}");
        }
        Ok(())
    }

    /// Whether notifications may be missing without another one that shows it.
    pub(super) async fn any_without_intervals(&self) -> bool {
        let known = self.known().await;
        let mut wanted = known.iter().filter(|record| !record.is_unwanted);
        wanted.any(|record| !record.transport.states_intervals())
    }

    /// Whether a first subscription is still open: neither verified nor failed.
    pub(super) async fn any_pending(&self) -> bool {
        let known = self.known().await;
        known.iter().any(|record| {
            self.drivers.contains_key(&record.id)
                && record.lease.state == ChannelState::Pending
                && self.context.runtime_status.channel(record.id).is_none()
        })
    }

    /// Lets the drivers run until the subscriptions that they end have ended.
    pub(super) fn detach(self) {
        drop(self.drivers);
    }

    /// Stops the drivers. The subscriptions stay: they outlive the process.
    pub(super) async fn stop(self) {
        for (_, driver) in self.drivers.into_values() {
            driver.abort();
            // The result is the abort.
            let _ = driver.await;
        }
    }
}

impl OfferedChannel<'_> {
    /// Whether it is over hubs, and none is advertised: the topic may name some, or none at all.
    fn lacks_hubs(&self) -> bool {
        self.transport.has_hubs() && self.hubs.is_empty()
    }

    /// Whether its deliveries have to be signed: those that can be, if the configuration wants it.
    fn is_signed(&self, context: &ChannelContext) -> bool {
        context.is_signed && self.transport.has_signatures()
    }
}

/// Whether that something is lacking is a reason to change the configuration although these transports can be used.
fn is_missed(lacking: &LackingKey, mut used: impl Iterator<Item = Transport>) -> bool {
    match lacking {
        LackingKey::Protocol(_) => true,
        LackingKey::PublicUrl => used.next().is_none(),
        LackingKey::Account => {
            used.all(|transport| preference_of(transport) >= preference_of(Transport::Xmpp))
        }
    }
}

/// For people, with the next step.
fn message_of(lacking: &LackingKey, uri: &Url) -> String {
    match lacking {
        LackingKey::Protocol(_) => format!("no callback is registered at {uri}: {lacking}"),
        LackingKey::PublicUrl => format!(
            "nothing is subscribed to at {uri}: {lacking}; set it to a URL that leads here, or `notifications` of the Source to false; the \
             set is polled"
        ),
        LackingKey::Account => format!(
            "nothing is subscribed to at {uri}: {lacking}; set it to the address of an account; the set is polled meanwhile"
        ),
    }
}

/// What the configuration lacks first for the channel that an offer is for.
fn lacking(context: &ChannelContext, offer: &Offer) -> Option<LackingKey> {
    let transport = offer
        .transport()
        .filter(|_| offer.capability.is_channel())?;
    let protocol = context.protocol_error(offer);
    let has_url = context.rules.callback_base.is_some();
    let has_account = context.transports.xmpp_account().is_some();
    LackingKey::all_of(transport, protocol, has_url, has_account).next()
}

/// The place of a transport among all; the first one is preferred.
fn preference_of(transport: Transport) -> Option<usize> {
    let mut all = Transport::ALL.into_iter();
    all.position(|one| one == transport)
}

/// Of each kind the channels over the transport that is preferred, and how many others there are. One that lacks hubs comes last: it
/// may never be subscribed to.
fn of_best_transports(offered: Vec<OfferedChannel<'_>>) -> (Vec<OfferedChannel<'_>>, usize) {
    let preference = |one: &OfferedChannel<'_>| (one.lacks_hubs(), preference_of(one.transport));
    let best_of = |kind: &Capability| {
        let of_kind = offered.iter().filter(|one| one.kind == kind);
        of_kind.map(preference).min()
    };
    let is_best: Vec<bool> = offered
        .iter()
        .map(|one| best_of(one.kind) == Some(preference(one)))
        .collect();
    let all = offered.len();
    let mut is_best = is_best.into_iter();
    let best: Vec<_> = offered
        .into_iter()
        .filter(|_| is_best.next() == Some(true))
        .collect();
    let others = all - best.len();
    (best, others)
}

/// The channel that an offer is for, if it is to be subscribed to. It may have no hubs: the topic is read for them then.
fn offered_channel<'a>(
    context: &'a ChannelContext,
    offer: &'a Offer,
) -> Option<OfferedChannel<'a>> {
    if !offer.capability.is_channel() || !context.notifications || context.retired.is_cancelled() {
        return None;
    }
    let transport = offer.transport()?;
    if lacking(context, offer).is_some() {
        return None;
    }
    let topic = TopicUri::of_channel(offer.uri.clone())?;
    let hubs = match &context.rules.hub {
        _ if !transport.has_hubs() => &[],
        Some(hub) => std::slice::from_ref(hub),
        None => offer.hubs.as_slice(),
    };
    Some(OfferedChannel {
        transport,
        kind: &offer.capability,
        topic,
        hubs,
    })
}

fn key_of(record: &ChannelRecord) -> ChannelKey<'_> {
    ChannelKey {
        kind: &record.kind,
        topic: &record.topic,
        transport: record.transport,
        is_signed: record.secret.is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_configuration_lacks_is_missed_unless_another_channel_is_as_good() {
        use Transport::{Callback, Websocket, Websub, Xmpp};
        for (used, url_is_missed, account_is_missed) in [
            (&[][..], true, true),
            (&[Callback], false, true),
            (&[Websocket], false, false),
            (&[Callback, Websub], false, false),
            (&[Xmpp], false, true),
        ] {
            let is_missed = |lacking| is_missed(&lacking, used.iter().copied());
            let found = (
                is_missed(LackingKey::PublicUrl),
                is_missed(LackingKey::Account),
            );
            assert_eq!(found, (url_is_missed, account_is_missed), "{used:?}");
        }
    }

    #[test]
    fn hubs_are_preferred_because_their_notifications_prove_that_none_is_missing() {
        use Capability::{ChangeNotification, FrameworkNotification};
        let hubs = [HubUri::parse("https://hub.example.org/").unwrap()];
        let check = |hubs: &[HubUri], expected: [&str; 3]| {
            let offered = |kind: &'static Capability, uri: &str| {
                let uri = url::Url::parse(uri).unwrap();
                let transport = Transport::of_uri(&uri).unwrap();
                OfferedChannel {
                    transport,
                    kind,
                    topic: TopicUri::of_channel(uri).unwrap(),
                    hubs: if transport.has_hubs() { hubs } else { &[] },
                }
            };
            let all = vec![
                offered(&ChangeNotification, "ws://example.org/a"),
                offered(&FrameworkNotification, "ws://example.org/b"),
                offered(&ChangeNotification, "http://example.org/c"),
                offered(&FrameworkNotification, "wss://example.org/d"),
            ];
            let (best, others) = of_best_transports(all);
            let topics: Vec<&str> = best.iter().map(|one| one.topic.as_str()).collect();
            assert_eq!((topics.as_slice(), others), (expected.as_slice(), 1));
        };
        let (b, d) = ("ws://example.org/b", "wss://example.org/d");
        check(&hubs, [b, "http://example.org/c", d]);
        // There may be none.
        check(&[], ["ws://example.org/a", b, d]);
    }
}
