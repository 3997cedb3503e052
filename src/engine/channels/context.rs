//! What the channels of one Source need: not the mirror, not the documents.

use std::sync::Arc;

use resyncd_channels::Transports;
use resyncd_core::{ChannelFailure, ChannelRules, Offer};
use tokio_util::sync::CancellationToken;
use url::Url;

use crate::clock;
use crate::config::{self, CallbackProtocols, Signatures, UnconfiguredProtocol};
use crate::engine::context::SourceContext;
use crate::engine::heartbeats::{Heartbeats, Work};
use crate::engine::runtime_status::RuntimeStatus;
use crate::metrics::SourceCounters;
use crate::status::StatusError;
use crate::store::{ChannelRecord, Store};

pub(super) struct ChannelContext {
    /// The label of the Source.
    pub(super) source: String,
    pub(super) rules: ChannelRules,
    /// The protocols of the interfaces at which callbacks are registered.
    pub(super) callback_protocols: CallbackProtocols,
    /// Whether channels are wanted at all.
    pub(super) notifications: bool,
    /// The longest message of a connection, in bytes.
    pub(super) longest_message: u64,
    /// How many bytes of messages that are not processed a channel may have.
    pub(super) inbox_limit: u64,
    /// Whether hubs have to sign their deliveries.
    pub(super) is_signed: bool,
    /// Whether subscriptions are begun, renewed and ended; false for a single run without hubs.
    pub(super) subscribes: bool,
    pub(super) store: Arc<Store>,
    pub(super) transports: Transports,
    pub(super) runtime_status: Arc<RuntimeStatus>,
    /// Whether the drivers move.
    pub(super) heartbeats: Heartbeats,
    /// The steps of the work on the Source; `None`: it is not followed.
    pub(super) counters: Option<SourceCounters>,
    /// Whether a driver leaves a channel alone that is wanted again: the worker of its set drives it then.
    pub(super) ends_only: bool,
    /// Stops the drivers.
    pub(super) stop: CancellationToken,
    /// Cancelled once all subscriptions are being ended: nothing is subscribed to any more.
    pub(super) retired: CancellationToken,
}

impl ChannelContext {
    pub(super) fn of(context: &SourceContext) -> Self {
        let source = &context.source;
        Self {
            source: source.name.clone(),
            rules: rules_of(source, context.public_url.as_ref()),
            callback_protocols: source.callback_protocols.clone(),
            notifications: source.notifications,
            longest_message: context.limits.notification,
            inbox_limit: context.limits.inbox,
            is_signed: source.signatures == Signatures::Required,
            subscribes: context.subscribes,
            ends_only: false,
            store: Arc::clone(&context.store),
            transports: context.transports.clone(),
            runtime_status: Arc::clone(&context.runtime_status),
            heartbeats: context.heartbeats.clone(),
            counters: Some(context.counters.clone()),
            stop: context.stop.clone(),
            retired: context.retired.clone(),
        }
    }

    /// For the subscriptions of a Source that is not followed. They can only end.
    pub(super) fn of_unfollowed(
        source: String,
        store: Arc<Store>,
        transports: Transports,
        runtime_status: Arc<RuntimeStatus>,
        callback_base: Option<String>,
        stop: CancellationToken,
    ) -> Self {
        let retired = CancellationToken::new();
        retired.cancel();
        Self {
            source,
            rules: ChannelRules {
                hub: None,
                lease_seconds: 0,
                callback_base,
            },
            callback_protocols: CallbackProtocols::default(),
            notifications: false,
            longest_message: 0,
            inbox_limit: 0,
            is_signed: true,
            subscribes: true,
            ends_only: true,
            store,
            transports,
            runtime_status,
            heartbeats: Heartbeats::default(),
            counters: None,
            stop,
            retired,
        }
    }

    /// Why no callback is registered at an interface that is offered.
    pub(super) fn protocol_error(&self, offer: &Offer) -> Option<UnconfiguredProtocol> {
        let protocol = offer.protocol.as_ref()?;
        self.callback_protocols.check(protocol).err()
    }

    /// A driver waits for an answer, until the result is dropped. A request that waits for others is none that hangs.
    pub(super) fn asks(&self, channel: &ChannelRecord) -> Work {
        let counters = self.counters.clone();
        let name = format!(
            "driver of the channel {} (Source {})",
            channel.topic, self.source
        );
        let steps = move || counters.as_ref().map_or(Some(0), SourceCounters::steps);
        self.heartbeats.work(name, steps)
    }

    /// Shows a failure in the status, and logs it unless it is shown already.
    pub(super) fn report(&self, channel: &ChannelRecord, hub: &str, failure: ChannelFailure) {
        let ChannelFailure { code, message } = failure;
        let known = self.runtime_status.channel(channel.id);
        if !known.is_some_and(|known| known.code == code && known.message == message) {
            tracing::warn!(code, source = self.source, topic = %channel.topic, hub, error = message, "subscription failed");
        }
        self.runtime_status.note_channel(
            channel.id,
            Some(StatusError::new(code, message, clock::now().wall)),
        );
    }

    /// Removes a channel's failure from the status.
    pub(super) fn clear(&self, channel: &ChannelRecord) {
        self.runtime_status.note_channel(channel.id, None);
    }
}

/// What the configuration states about the channels of a Source.
pub(super) fn rules_of(source: &config::Source, public_url: Option<&Url>) -> ChannelRules {
    ChannelRules {
        hub: source.hub.clone(),
        lease_seconds: source.lease.as_secs(),
        callback_base: public_url.map(Url::to_string),
    }
}
