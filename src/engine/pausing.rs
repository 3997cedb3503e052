//! Sources that a person has paused: they have no worker, so that nothing is requested of them, or stored of them but deliveries.
//!
//! Invariant: what is paused is so until it is resumed, also after a restart or a reload.

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};

use super::lifecycle::Engine;
use super::operations::store_failed;
use crate::clock;
use crate::status::StatusError;
use crate::store::StoreError;

/// The Sources that are paused, and since when.
pub(super) type PausedSources = BTreeMap<String, DateTime<Utc>>;

/// The code of what is not done for a Source that is paused, and of the attention.
pub(super) const SOURCE_PAUSED: &str = "source-paused";

impl Engine {
    /// Stops the worker of a Source, until it is [resumed](Self::resume): tasks in progress are published and committed first. Its
    /// subscriptions stay, and are not renewed. `false` if there is no such Source.
    pub async fn pause(self: &Arc<Self>, source: &str) -> Result<bool, StatusError> {
        let (engine, name) = (Arc::clone(self), source.to_owned());
        let pausing = async move {
            let _configuring = engine.configuring.lock().await;
            let Some(followed) = engine.sources.find(&name) else {
                return Ok(false);
            };
            if !engine.paused.lock().contains_key(&name) {
                engine.store.pause(&name, clock::now().wall).await?;
                let paused = engine.store.paused().await?;
                *engine.paused.lock() = paused.into_iter().collect();
                followed.stop().await;
                tracing::info!(source = name, "Source paused");
            }
            Ok(true)
        };
        self.complete_stored("pause of a Source", pausing).await
    }

    /// Starts the worker of a Source that is paused, as a restart of the process does: its documents are polled at once. `false` if there
    /// is no such Source.
    pub async fn resume(self: &Arc<Self>, source: &str) -> Result<bool, StatusError> {
        let (engine, name) = (Arc::clone(self), source.to_owned());
        let resuming = async move {
            let _configuring = engine.configuring.lock().await;
            let Some(followed) = engine.sources.find(&name) else {
                return Ok(false);
            };
            engine.store.resume(&name).await?;
            if engine.paused.lock().remove(&name).is_some() {
                tracing::info!(source = name, "Source resumed");
                engine.restart_configured(&followed.context).await;
            }
            Ok(true)
        };
        self.complete_stored("resumption of a Source", resuming)
            .await
    }

    /// Refuses what only the worker of a Source can do while it is paused.
    pub(super) fn refuse_paused(&self, source: &str) -> Result<(), StatusError> {
        if !self.paused.lock().contains_key(source) {
            return Ok(());
        }
        let message =
            format!("the Source {source} is paused: `resyncd resume {source}` resumes it");
        Err(StatusError::new(SOURCE_PAUSED, message, clock::now().wall))
    }

    async fn complete_stored(
        &self,
        name: &str,
        operation: impl Future<Output = Result<bool, StoreError>> + Send + 'static,
    ) -> Result<bool, StatusError> {
        let completed = self.complete(name, operation).await;
        let completed = completed.unwrap_or(Err(StoreError::Panicked));
        completed.map_err(store_failed)
    }
}
