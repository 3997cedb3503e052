//! Begins the publication of sets that have a complete copy.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast::error::RecvError;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::Publisher;
use super::deliveries::{announce, deliver};
use super::folder::record_folder;
use crate::clock;
use crate::config::PublishHub;
use crate::store::{StoreError, Wake};

/// How often it is looked for sets that have a complete copy by now, if nothing is applied.
const INTERVAL: Duration = Duration::from_secs(10);
/// How long changes are gathered.
const GATHERED: Duration = Duration::from_millis(200);

/// Publishes, and tells subscribers, until it is stopped.
pub async fn publish(publisher: Arc<Publisher>, stop: CancellationToken) {
    let hub = publisher.built_in.clone();
    let telling = async {
        if let Some(hub) = hub {
            deliver(Arc::clone(&publisher), hub, stop.clone()).await;
        } else if let PublishHub::At(url) = &publisher.settings.hub {
            announce(Arc::clone(&publisher), url.clone(), stop.clone()).await;
        }
    };
    let mut recording = JoinSet::new();
    for folder in publisher.sources().iter().filter(|source| source.is_folder) {
        let recorded = record_folder(Arc::clone(&publisher), folder.clone(), stop.clone());
        recording.spawn(recorded);
    }
    tokio::join!(telling, begin_sets(&publisher, &stop));
    recording.join_all().await;
}

async fn begin_sets(publisher: &Publisher, stop: &CancellationToken) {
    loop {
        let mut wakes = publisher.store.wakes();
        if let Err(error) = publisher.catch_up().await {
            // What the workers write fails as well, and is reported.
            tracing::debug!(code = error.code(), %error, "database error; nothing more is published");
        }
        let change = async {
            loop {
                match wakes.recv().await {
                    Ok(Wake::Feed(_)) | Err(RecvError::Lagged(_)) => return,
                    Ok(_) => {}
                    Err(RecvError::Closed) => std::future::pending().await,
                }
            }
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = change => tokio::time::sleep(GATHERED).await,
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
