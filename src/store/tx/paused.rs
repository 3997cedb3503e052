//! Remembers which Sources a person has paused.

use std::sync::Arc;

use chrono::{DateTime, Utc};

use crate::store::tables::paused;
use crate::store::{Store, StoreError};

impl Store {
    /// The Sources that are paused, and since when.
    pub async fn paused(self: &Arc<Self>) -> Result<Vec<(String, DateTime<Utc>)>, StoreError> {
        self.read(move |sql| Ok(paused::all(sql)?)).await
    }

    /// Stores that a Source is paused from that time on, unless it is already.
    pub async fn pause(
        self: &Arc<Self>,
        source: &str,
        now: DateTime<Utc>,
    ) -> Result<(), StoreError> {
        let source = source.to_owned();
        self.write(move |tx| Ok(paused::put(tx.sql, &source, now)?))
            .await
    }

    /// Stores that a Source is not paused any more.
    pub async fn resume(self: &Arc<Self>, source: &str) -> Result<(), StoreError> {
        let source = source.to_owned();
        self.write(move |tx| Ok(paused::delete(tx.sql, &source)?))
            .await
    }
}
