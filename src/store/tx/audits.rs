//! Remembers the last audit of each Source.

use std::sync::Arc;

use chrono::{DateTime, Utc};

use crate::store::tables::audit::{self, AuditRow};
use crate::store::{Store, StoreError};

impl Store {
    /// The last audit of each Source: when it began, or since when the first one is waited for, and the result of it.
    pub async fn audits(self: &Arc<Self>) -> Result<Vec<AuditRow>, StoreError> {
        self.read(move |sql| Ok(audit::all(sql)?)).await
    }

    /// Stores when the last audit of a Source began, and its result.
    pub async fn put_audit(
        self: &Arc<Self>,
        source: &str,
        at: DateTime<Utc>,
        result: Option<String>,
    ) -> Result<(), StoreError> {
        let source = source.to_owned();
        self.write(move |tx| Ok(audit::put(tx.sql, &source, at, result.as_deref())?))
            .await
    }
}
