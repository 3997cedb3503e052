//! Ends a subscription on request and waits for the hub's confirmation.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use resyncd_channels::{Transports, XmppError};
use resyncd_core::{Channel, ChannelAction, ChannelEvent, ChannelReport, ChannelRules, Transport};
use url::Url;

use super::context::rules_of;
use super::requests::{read_topic, send_request};
use super::waiting::wait;
use super::websub::StoredMachine;
use super::xmpp::Nodes;
use crate::engine::error::EngineError;
use crate::status::UnsubscribeResult;
use crate::store::{ChannelRecord, Store, StoreError};
use crate::{clock, config};

/// How long a hub may take to confirm that a subscription has ended.
const ENDING_TIME: Duration = Duration::from_secs(30);

/// Why a subscription has not ended.
#[derive(Debug, thiserror::Error)]
enum EndingError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Machine(#[from] EngineError),
    #[error(transparent)]
    Service(#[from] XmppError),
    /// The message of the channel's machine.
    #[error("{0}")]
    Hub(String),
    #[error("no confirmation within {} s", ENDING_TIME.as_secs())]
    Timeout,
}

/// A Source whose subscriptions are ended on request. It need not be in the configuration any more.
pub struct EndingSource {
    /// Its label.
    pub name: String,
    transports: Transports,
    rules: ChannelRules,
}

impl EndingSource {
    /// One of the configuration.
    #[must_use]
    pub fn of(source: &config::Source, transports: &Transports, public_url: Option<&Url>) -> Self {
        Self {
            name: source.name.clone(),
            transports: transports
                .with_client(transports.client().with_credentials(&source.credentials)),
            rules: rules_of(source, public_url),
        }
    }

    /// One that is only in the database.
    #[must_use]
    pub fn unfollowed(name: &str, transports: &Transports, public_url: Option<&Url>) -> Self {
        Self {
            name: name.to_owned(),
            transports: transports.clone(),
            rules: ChannelRules {
                hub: None,
                lease_seconds: 0,
                callback_base: public_url.map(Url::to_string),
            },
        }
    }

    /// Ends a subscription at its hub: one attempt. The callback must be served meanwhile. A running daemon tries again what
    /// has failed. A connection and a registration need no confirmation.
    pub(crate) async fn end(
        &self,
        store: &Arc<Store>,
        channel: &ChannelRecord,
    ) -> UnsubscribeResult {
        let ending = async {
            Ok(match channel.transport {
                Transport::Websub => {
                    self.end_at_hub(store, channel).await?;
                    "confirmed"
                }
                Transport::Websocket => {
                    end_connection(store, channel).await?;
                    "closed"
                }
                // The draft has no request for that.
                Transport::Callback => {
                    end_connection(store, channel).await?;
                    "deliveries are answered 410"
                }
                Transport::Xmpp => {
                    self.end_at_service(store, channel).await?;
                    "confirmed"
                }
            })
        };
        let ended = tokio::time::timeout(ENDING_TIME, ending).await;
        let ended = ended.unwrap_or(Err(EndingError::Timeout));
        let confirmed = ended.is_ok();
        let message = ended.map_or_else(|error| error.to_string(), str::to_owned);
        if !confirmed && let Err(error) = store.change_channel(channel.id, true, |_| ()).await {
            tracing::error!(code = error.code(), source = self.name, %error, "database error; unsubscribe not retried at once");
        }
        tracing::info!(source = self.name, transport = channel.transport.code(), topic = %channel.topic, hub = channel.logged_hub(),
            confirmed, message, "subscription ended");
        UnsubscribeResult {
            source: self.name.clone(),
            transport: channel.transport.code().to_owned(),
            topic: channel.topic.to_string(),
            hub: channel.hub_name().to_owned(),
            confirmed,
            message,
        }
    }

    /// Ends the subscription to a node. A driver that has a session does so, too.
    async fn end_at_service(
        &self,
        store: &Arc<Store>,
        channel: &ChannelRecord,
    ) -> Result<(), EndingError> {
        let now = clock::now().wall;
        let leaving = store.change_channel(channel.id, true, move |channel| channel.leave(now));
        leaving.await?;
        let nodes = Nodes::of(channel, 0);
        nodes.unsubscribe(&self.transports, channel).await?;
        let ended = store.change_channel(channel.id, true, Channel::ended);
        Ok(ended.await?)
    }

    async fn end_at_hub(
        &self,
        store: &Arc<Store>,
        channel: &ChannelRecord,
    ) -> Result<(), EndingError> {
        let mut wakes = store.wakes();
        let mut stored = StoredMachine::new(store, channel, self.rules.clone(), false);
        let mut now = clock::now();
        let leave = move |channel: &mut Channel| channel.leave(now.wall);
        let mut handled = stored
            .change_and_handle(now, leave, ChannelEvent::Started)
            .await;
        loop {
            let (step, record) = handled?;
            if let Some(ChannelReport::Failed(failure)) = step.report {
                return Err(EndingError::Hub(failure.message));
            }
            let event = match step.action {
                ChannelAction::ReadTopic(topic) => {
                    read_topic(self.transports.client(), &self.name, &topic).await
                }
                ChannelAction::SendRequest(request) => {
                    send_request(self.transports.client(), &record, &request).await
                }
                ChannelAction::WaitUntil(time) => {
                    wait(&mut wakes, channel.id, time, now).await;
                    ChannelEvent::Woken
                }
                ChannelAction::End => return Ok(()),
            };
            now = clock::now();
            handled = stored.handle(now, event).await;
        }
    }
}

/// Ends a channel that has no hub, and at most a connection: the driver that has one closes it, if there is a driver.
async fn end_connection(store: &Arc<Store>, channel: &ChannelRecord) -> Result<(), EndingError> {
    let now = clock::now().wall;
    let ended = store.change_channel(channel.id, true, move |channel| {
        channel.leave(now);
        channel.next_connection_step(now);
    });
    Ok(ended.await?)
}

/// Ends a Source's subscriptions at their hubs, also those of sets that are no longer followed. The callback must be served
/// meanwhile.
pub async fn end_subscriptions(
    store: &Arc<Store>,
    source: &EndingSource,
) -> Vec<UnsubscribeResult> {
    let channels = match store.subscribed_channels(&source.name).await {
        Ok(channels) => channels,
        Err(error) => {
            tracing::error!(code = error.code(), source = source.name, %error, "database error; subscriptions not read");
            return vec![UnsubscribeResult {
                source: source.name.clone(),
                transport: String::new(),
                topic: String::new(),
                hub: String::new(),
                confirmed: false,
                message: error.to_string(),
            }];
        }
    };
    join_all(channels.iter().map(|channel| source.end(store, channel))).await
}
