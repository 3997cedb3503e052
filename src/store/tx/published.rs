//! Begins and ends the publication of sets, and snapshots of what is published.

use std::sync::Arc;

use chrono::{DateTime, Utc};

use crate::store::tables::subscription::{StoredSubscription, TopicPosition};
use crate::store::tables::{feed, published_set, subscription};
use crate::store::{Store, StoreError, Wake};

impl Store {
    /// Publishes the sets of these Sources that have a complete copy, from now on, and none of other Sources. Returns how many are new.
    pub async fn publish_sources(
        self: &Arc<Self>,
        now: DateTime<Utc>,
        sources: Vec<String>,
    ) -> Result<usize, StoreError> {
        let wanted = sources.clone();
        let is_current = self.read(move |sql| {
            let others = published_set::sources(sql)?;
            let mut is_current = others.iter().all(|source| wanted.contains(source));
            for source in &wanted {
                is_current &= !published_set::any_new(sql, source)?;
            }
            Ok(is_current)
        });
        if is_current.await? {
            return Ok(0);
        }
        self.write(move |tx| {
            for former in published_set::sources(tx.sql)? {
                if !sources.contains(&former) {
                    published_set::end(tx.sql, &former)?;
                }
            }
            let last = feed::last_number(tx.sql)?;
            let since = feed::begin_snapshot(tx.sql, now)?;
            let mut begun = 0;
            for source in &sources {
                begun += published_set::begin(tx.sql, source, last, since)?;
            }
            Ok(begun)
        })
        .await
    }

    /// The time of a snapshot: whatever is read from now on has all changes up to it, and all others are of a later time.
    pub async fn snapshot_time(
        self: &Arc<Self>,
        now: DateTime<Utc>,
    ) -> Result<DateTime<Utc>, StoreError> {
        self.write(move |tx| Ok(feed::begin_snapshot(tx.sql, now)?))
            .await
    }

    /// The subscriptions to what is published.
    pub async fn subscriptions(self: &Arc<Self>) -> Result<Vec<StoredSubscription>, StoreError> {
        self.read(|sql| Ok(subscription::all(sql)?)).await
    }

    /// Stores a subscription. A new one begins after what has been published by now.
    pub async fn put_subscription(
        self: &Arc<Self>,
        now: DateTime<Utc>,
        begun: websub::hub::Subscription,
    ) -> Result<StoredSubscription, StoreError> {
        self.write(move |tx| {
            let until = feed::begin_snapshot(tx.sql, now)?;
            let number = feed::last_number(tx.sql)?;
            let stored = StoredSubscription {
                subscription: begun,
                position: TopicPosition { number, until },
            };
            subscription::put(tx.sql, &stored)?;
            tx.wake(Wake::Subscribed);
            Ok(stored)
        })
        .await
    }

    /// Stores how far subscribers have been told, by topic and callback; `None`: the subscription has ended, and is removed.
    pub async fn put_positions(
        self: &Arc<Self>,
        told: Vec<((String, String), Option<TopicPosition>)>,
    ) -> Result<(), StoreError> {
        self.write(move |tx| {
            for ((topic, callback), position) in &told {
                match position {
                    Some(at) => subscription::set_position(tx.sql, topic, callback, *at)?,
                    None => {
                        subscription::delete(tx.sql, topic, callback)?;
                        tx.wake(Wake::Subscribed);
                    }
                }
            }
            Ok(())
        })
        .await
    }
}
