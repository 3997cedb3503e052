//! Begins the publication of sets that have a complete copy, and runs what else works without being asked.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio_util::sync::CancellationToken;

use super::Publisher;
use super::announcements::announce;
use super::deliveries::deliver;
use super::folder::record_folder;
use crate::clock;
use crate::config::PublishHub;
use crate::store::{StoreError, Wake};

/// How often it is looked for sets that have a complete copy by now, if nothing is applied.
const INTERVAL: Duration = Duration::from_secs(10);
/// How long changes are gathered.
const GATHERED: Duration = Duration::from_millis(200);

/// Publishes, records folders, and tells subscribers, until it is stopped.
pub async fn publish(publisher: Arc<Publisher>, stop: CancellationToken) {
    let telling = async {
        match (&publisher.built_in, &publisher.settings.hub) {
            (Some(hub), _) => deliver(&publisher, hub, &stop).await,
            (None, PublishHub::At(url)) => announce(&publisher, url, &stop).await,
            _ => {}
        }
    };
    let sources = publisher.sources();
    let folders = sources.iter().filter(|source| source.is_folder);
    let recording = folders.map(|folder| record_folder(&publisher, folder, &stop));
    tokio::join!(telling, begin_sets(&publisher, &stop), join_all(recording));
}

async fn begin_sets(publisher: &Publisher, stop: &CancellationToken) {
    let mut wakes = publisher.store.wakes();
    loop {
        if let Err(error) = publisher.catch_up().await {
            // What the workers write fails as well, and is reported.
            tracing::debug!(code = error.code(), %error, "database error; nothing more is published");
        }
        let change = async {
            Wake::applied(&mut wakes).await;
            tokio::time::sleep(GATHERED).await;
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = change => {}
            () = tokio::time::sleep(INTERVAL) => {}
        }
    }
}

impl Publisher {
    /// Publishes what can be by now.
    async fn catch_up(&self) -> Result<(), StoreError> {
        let sources = self.sources();
        let names = sources.iter().map(|source| source.name.clone()).collect();
        let begun = self.store.publish_sources(clock::now().wall, names).await?;
        if begun > 0 {
            tracing::info!(sets = begun, "sets are published");
        }
        Ok(())
    }
}
