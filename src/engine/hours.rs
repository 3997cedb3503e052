//! The hours in which the files of a first copy are downloaded.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

use super::context::SourceContext;
use crate::clock;
use crate::store::BaselineState;

/// After how long it is looked at again at most: the local time may change, and the first copy may be done.
const LONGEST: TimeDelta = TimeDelta::hours(1);

impl SourceContext {
    /// How long downloads wait at that time because a set has no complete copy yet, and it is outside of `hours`; `None`: they don't.
    /// A single run has been asked for now.
    pub(super) async fn wait_for_hours(&self, now: DateTime<Utc>) -> Option<TimeDelta> {
        let hours = self.source.hours.filter(|_| self.subscribes)?;
        let wait = hours.begin_in(now)?;
        // An error of the database is reported where the sets are loaded.
        let sets = self.store.sets(self.name()).await.ok()?;
        let mut followed = sets
            .iter()
            .filter(|set| self.source.wants_set(&set.capability_list));
        let is_first = followed.any(|set| set.baseline != BaselineState::Done);
        is_first.then(|| wait.min(LONGEST))
    }

    /// Waits until downloads need not wait for `hours`, or the Source is stopped.
    pub(super) async fn until_hours(&self) {
        while let Some(wait) = self.wait_for_hours(clock::now().wall).await {
            let wait = wait.to_std().unwrap_or(Duration::from_secs(1));
            tracing::info!(
                source = self.name(),
                seconds = wait.as_secs(),
                "first copy waits for the hours of the Source"
            );
            let rest = tokio::time::sleep(wait);
            if self.stop.run_until_cancelled(rest).await.is_none() {
                return;
            }
        }
    }
}
