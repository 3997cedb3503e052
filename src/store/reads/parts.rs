//! What is stored of the parts of a Resource List, to decide which of them must be read again.

use std::ops::RangeInclusive;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use url::Url;

use crate::store::ids::SetId;
use crate::store::tables::part::{self, Part};
use crate::store::{Store, StoreError};

impl Store {
    /// Whether the stored parts are no proof although their index is unchanged: one of them is incomplete, was read with
    /// another filter, or relies on its index although its server was not asked for it within `asked`.
    pub async fn has_unproven_parts(
        self: &Arc<Self>,
        set: SetId,
        filter: &str,
        asked: RangeInclusive<DateTime<Utc>>,
    ) -> Result<bool, StoreError> {
        let filter = filter.to_owned();
        self.read(move |sql| Ok(part::any_unproven(sql, set, &filter, &asked)?))
            .await
    }

    /// Whether a part is incomplete or was read with another filter.
    pub async fn has_incomplete_parts(
        self: &Arc<Self>,
        set: SetId,
        filter: &str,
    ) -> Result<bool, StoreError> {
        let filter = filter.to_owned();
        self.read(move |sql| Ok(part::any_incomplete(sql, set, &filter)?))
            .await
    }

    /// The parts with entries that can't be read, at most so many, and how many those are of each.
    pub async fn unread_of_parts(
        self: &Arc<Self>,
        set: SetId,
        most: usize,
    ) -> Result<Vec<(Url, u64)>, StoreError> {
        self.read(move |sql| Ok(part::unread(sql, set, most)?))
            .await
    }

    /// The stored part of that URI; `None` if it was never begun to be read.
    pub async fn part(self: &Arc<Self>, set: SetId, uri: &Url) -> Result<Option<Part>, StoreError> {
        let uri = uri.clone();
        self.read(move |sql| Ok(part::get(sql, set, &uri)?)).await
    }

    /// Whether an index has stated the same time as before of a part that had news, and has not stated another one since.
    pub async fn has_misdated_parts(self: &Arc<Self>, set: SetId) -> Result<bool, StoreError> {
        self.read(move |sql| Ok(part::any_misdated(sql, set)?))
            .await
    }
}
