//! Records that the daemon runs, and has subscriptions requested again after it has not run for a while. Connections have ended with
//! the process.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};

use crate::store::tables::{channel, uptime};
use crate::store::{Store, StoreError};

/// A longer downtime may have cost subscriptions: some hubs give a subscriber up after a few failed deliveries.
const SHORT_DOWNTIME: TimeDelta = TimeDelta::minutes(1);

impl Store {
    /// Records that the daemon starts: no connection is open. After a downtime of more than a minute, or of unknown length, every
    /// running subscription is due for a renewal. Returns how many are.
    pub async fn note_start(self: &Arc<Self>, now: DateTime<Utc>) -> Result<usize, StoreError> {
        let unreadable = Arc::clone(&self.unreadable);
        self.write(move |tx| {
            let seen_at = uptime::seen_at(tx.sql)?;
            uptime::set_seen_at(tx.sql, now)?;
            // If the clock was set back, the length is unknown.
            let is_short =
                |seen_at| (TimeDelta::zero()..=SHORT_DOWNTIME).contains(&(now - seen_at));
            let was_down = !seen_at.is_some_and(is_short);
            let mut renewed = 0;
            for found in channel::all(tx.sql, &unreadable)? {
                let before = found.record.channel();
                let mut after = before.clone();
                let is_lease = before.transport.has_lease();
                if !is_lease {
                    after.begin_connecting(now);
                } else if was_down {
                    after.renew_after_downtime(now);
                }
                if after != before {
                    channel::save(tx.sql, found.record.id, &after)?;
                    renewed += usize::from(is_lease);
                }
            }
            Ok(renewed)
        })
        .await
    }

    /// Records that the daemon runs.
    pub async fn note_running(self: &Arc<Self>, now: DateTime<Utc>) -> Result<(), StoreError> {
        self.write(move |tx| Ok(uptime::set_seen_at(tx.sql, now)?))
            .await
    }
}
