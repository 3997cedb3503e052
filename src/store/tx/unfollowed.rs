//! Leaves the channels of sets that are no longer followed: their subscriptions end, and their deliveries are dropped.

use std::collections::BTreeSet;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use resyncd_core::ChannelState;
use url::Url;

use crate::store::ids::ChannelId;
use crate::store::query_threads::Lane;
use crate::store::sql::Connection;
use crate::store::tables::channel::{self, ChannelOfSet, ChannelRecord};
use crate::store::tables::{delivered, inbox};
use crate::store::tx::share::held_elsewhere;
use crate::store::tx::subscribe::change_in;
use crate::store::{Store, StoreError};

/// A Source of the configuration, as far as it decides which channels are wanted.
#[derive(Clone, Debug)]
pub struct FollowedSets {
    /// The label of the Source.
    pub source: String,
    /// The Capability Lists to follow; empty: all.
    pub sets: Vec<Url>,
    /// Whether channels are subscribed to.
    pub notifications: bool,
}

impl FollowedSets {
    /// Whether a set of the Source is followed, with or without its channels.
    fn includes(&self, found: &ChannelOfSet) -> bool {
        let is_wanted = self.sets.is_empty() || self.sets.contains(&found.capability_list);
        self.source == found.source && is_wanted && !found.is_ended
    }
}

/// A subscription of a set that is not followed.
#[derive(Clone, Debug)]
pub struct UnfollowedChannel {
    /// The label of the Source.
    pub source: String,
    /// The Capability List of the set.
    pub capability_list: Url,
    /// The channel.
    pub record: ChannelRecord,
}

impl Store {
    /// Leaves every channel that the configuration does not want any more, unless another node holds its Source. Their deliveries in the
    /// inbox are dropped: no worker would read them.
    pub async fn leave_unfollowed(
        self: &Arc<Self>,
        now: DateTime<Utc>,
        followed: Vec<FollowedSets>,
    ) -> Result<(), StoreError> {
        let (unreadable, node) = (Arc::clone(&self.unreadable), self.node.clone());
        self.write(move |tx| {
            let elsewhere = held_elsewhere(tx.sql, node.as_ref())?;
            for found in channel::all(tx.sql, &unreadable)? {
                let is_wanted = |one: &FollowedSets| one.notifications && one.includes(&found);
                if elsewhere.contains(&found.source) || followed.iter().any(is_wanted) {
                    continue;
                }
                let id = found.record.id;
                if !found.record.is_unwanted {
                    change_in(tx, id, None, |channel| channel.leave(now))?;
                }
                drop_inbox(tx.sql, id)?;
            }
            Ok(())
        })
        .await
    }

    /// The subscriptions that have not ended yet, of sets that are not followed.
    pub async fn unfollowed_channels(
        self: &Arc<Self>,
        followed: Vec<FollowedSets>,
    ) -> Result<Vec<UnfollowedChannel>, StoreError> {
        let (unreadable, node) = (Arc::clone(&self.unreadable), self.node.clone());
        self.read_in(Lane::Reports, move |sql| {
            let elsewhere = held_elsewhere(sql, node.as_ref())?;
            let all = channel::all(sql, &unreadable)?.into_iter();
            let is_unfollowed = |found: &ChannelOfSet| {
                !elsewhere.contains(&found.source)
                    && !followed.iter().any(|one| one.includes(found))
                    && found.record.lease.state != ChannelState::Unsubscribed
            };
            let unfollowed = all.filter(is_unfollowed).map(|found| UnfollowedChannel {
                source: found.source,
                capability_list: found.capability_list,
                record: found.record,
            });
            Ok(unfollowed.collect())
        })
        .await
    }

    /// Whether a subscription is being ended.
    pub async fn has_ending_channels(self: &Arc<Self>) -> Result<bool, StoreError> {
        self.read(move |sql| Ok(channel::any_ending(sql)?)).await
    }

    /// The channels of a Source, whether their sets are followed or not, that a hub may have a subscription of.
    pub async fn subscribed_channels(
        self: &Arc<Self>,
        source: &str,
    ) -> Result<Vec<ChannelRecord>, StoreError> {
        let source = source.to_owned();
        let unreadable = Arc::clone(&self.unreadable);
        self.read(move |sql| {
            let all = channel::all(sql, &unreadable)?.into_iter();
            let of_source = all.filter(|found| found.source == source);
            let records = of_source.map(|found| found.record);
            Ok(records
                .filter(|record| record.channel().may_be_subscribed())
                .collect())
        })
        .await
    }

    /// The labels of the Sources that a hub may have a subscription of.
    pub async fn subscribed_sources(self: &Arc<Self>) -> Result<BTreeSet<String>, StoreError> {
        let unreadable = Arc::clone(&self.unreadable);
        self.read(move |sql| {
            let all = channel::all(sql, &unreadable)?.into_iter();
            let subscribed = all.filter(|found| found.record.channel().may_be_subscribed());
            Ok(subscribed.map(|found| found.source).collect())
        })
        .await
    }
}

/// Drops the deliveries of a channel from the inbox. They count as never received: if the channel is followed again, the
/// same bytes may have news.
pub(super) fn drop_inbox(sql: &Connection, id: ChannelId) -> Result<(), StoreError> {
    delivered::delete_pending(sql, id)?;
    inbox::delete_of_channel(sql, id)?;
    channel::clear_pending(sql, id)?;
    Ok(())
}
