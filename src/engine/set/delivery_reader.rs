//! Reads the deliveries of a channel: whether one is for the set, where it stands among the others, who has sent it, and which of its
//! changes are news. So it is decided for a run of deliveries and for one by itself.

use std::sync::Arc;

use resourcesync::{Capability, Document, Oddity};
use resyncd_core::{HubUri, NewsFilter, Sequencer, TopicUri, Verdict};
use url::Url;

use super::changes::note_expiry;
use super::notification::{
    LeftChanges, NotificationBounds, ReadNotification, Sender, parse_delivery,
};
use super::untrusted::UntrustedNames;
use crate::clock;
use crate::engine::EngineError;
use crate::engine::context::SourceContext;
use crate::store::{ChannelRecord, Delivery, DeliveryOutcome, SetId, SetRecord};

/// Reads deliveries. For blocking threads.
pub(super) struct DeliveryReader {
    context: Arc<SourceContext>,
    set: SetId,
    capability_list: Url,
    pub(super) channel: ChannelRecord,
}

impl DeliveryReader {
    /// Of a channel of that set.
    pub(super) fn of(
        context: &Arc<SourceContext>,
        set: &SetRecord,
        channel: ChannelRecord,
    ) -> Self {
        Self {
            context: Arc::clone(context),
            set: set.id,
            capability_list: set.capability_list.clone(),
            channel,
        }
    }

    /// The document of a delivery. An entry that has expired states a deletion.
    pub(super) fn document(&self, delivery: &Delivery) -> Result<Document, EngineError> {
        let (place, kind) = (self.channel.topic.http_form(), &self.channel.kind);
        let base = self.context.base_uri(&place);
        let limit = self.context.limits.notification;
        let bounds = NotificationBounds::of(self.channel.transport, limit);
        let mut document = parse_delivery(&delivery.body, base, kind, bounds)?;
        if *kind == Capability::ChangeNotification {
            let up = document.head.link("up");
            let is_foreign = up.is_some_and(|up| !self.is_own(up));
            if is_foreign && document.oddities.count(Oddity::WrongUp) == 0 {
                document.oddities.add(Oddity::WrongUp);
            }
            let now = clock::now().wall;
            for entry in &mut document.entries {
                note_expiry(entry, now);
            }
        }
        Ok(document)
    }

    /// The error of a delivery that is for another channel or another set: the hub or the document says so. Its entries would become
    /// resources of this set, and its interval would cover what is not known. An unknown URI is only an oddity: `up` links
    /// often lead elsewhere.
    pub(super) fn misdirected(
        &self,
        delivery: &Delivery,
        document: &Document,
    ) -> Result<Option<EngineError>, EngineError> {
        let up = document.head.link("up");
        let up = up.and_then(|up| TopicUri::try_from(up.clone()).ok());
        for (link, uri) in [("self", delivery.stated_topic.clone()), ("up", up)] {
            if let Some(uri) = uri.filter(|uri| !self.is_own(uri.url()))
                && self.context.store.names_another(&self.channel, &uri)?
            {
                return Ok(Some(EngineError::Misdirected { link, uri }));
            }
        }
        Ok(None)
    }

    /// Whether a URI is the set's Capability List, or the topic.
    fn is_own(&self, uri: &Url) -> bool {
        let topics = [&self.channel.topic, &self.channel.subscribed_topic];
        *uri == self.capability_list || topics.iter().any(|topic| topic.url() == uri)
    }

    /// Where a change notification stands among the others, by the `from` and `until` that count: none where each notification is a hint,
    /// which anybody on the way may have written.
    pub(super) fn order(
        &self,
        sequencer: &mut Sequencer,
        delivery: &Delivery,
        document: &Document,
    ) -> Verdict {
        let stated = &document.head.md;
        let (from, until) = if self.channel.transport.states_intervals() {
            (stated.from, stated.until)
        } else {
            (None, None)
        };
        sequencer.handle(clock::now(), delivery.id, from, until)
    }

    /// The changes of a change notification that are news. `is_trusted`: whether its sender speaks for the Source; `covered`: its outcome
    /// if nothing but its interval counts.
    pub(super) fn news(
        &self,
        is_trusted: bool,
        document: Document,
        filter: &NewsFilter,
        covered: DeliveryOutcome,
    ) -> Result<ReadNotification, EngineError> {
        let (context, capability_list) = (&self.context, &self.capability_list);
        let untrusted = if is_trusted {
            None
        } else {
            let (set, transport) = ((self.set, capability_list), self.channel.transport);
            let names = UntrustedNames::read(context, set, transport, &document.entries)?;
            Some(names)
        };
        let sender = Sender {
            untrusted,
            capability_list: capability_list.clone(),
            left: LeftChanges::default(),
        };
        ReadNotification::of(context, self.set, sender, document, filter, covered)
    }

    /// Whether the sender of a delivery speaks for the Source.
    pub(super) fn is_trusted(&self, delivery: &Delivery) -> bool {
        let channel = &self.channel;
        if !channel.transport.has_known_sender() {
            return false;
        }
        let origin = self.capability_list.origin();
        let is_own = |hub: &HubUri| hub.url().origin() == origin;
        // The configuration may have a hub, or the server of a connection, speak for the Source.
        let configured = self.context.source.trust_hub;
        configured.unwrap_or_else(|| {
            if channel.transport.has_hubs() {
                delivery.hub.as_ref().is_some_and(is_own)
            } else {
                channel.topic.http_form().origin() == origin
            }
        })
    }
}
