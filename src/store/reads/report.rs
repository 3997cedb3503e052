//! Lists of tasks for people.

use std::sync::Arc;

use crate::store::ids::ResourceId;
use crate::store::query_threads::Lane;
use crate::store::tables::task::report::{self, GivenUpTask, HeldBackTask, PlannedTask};
use crate::store::{Store, StoreError};

impl Store {
    /// The tasks of a Source that were given up, also those that are being tried again, of resources after that one: at most
    /// `limit`, in the order of their resources.
    pub async fn given_up(
        self: &Arc<Self>,
        source: &str,
        after: ResourceId,
        limit: usize,
    ) -> Result<Vec<GivenUpTask>, StoreError> {
        let source = source.to_owned();
        self.read_in(Lane::Reports, move |sql| {
            Ok(report::given_up(sql, &source, after, limit)?)
        })
        .await
    }

    /// The deletions of a Source that are held back, or those that were rejected, of resources after that one: at most `limit`, in
    /// the order of their resources.
    pub async fn held_back(
        self: &Arc<Self>,
        source: &str,
        is_rejected: bool,
        after: ResourceId,
        limit: usize,
    ) -> Result<Vec<HeldBackTask>, StoreError> {
        let source = source.to_owned();
        self.read_in(Lane::Reports, move |sql| {
            Ok(report::held_back(sql, &source, is_rejected, after, limit)?)
        })
        .await
    }

    /// What would be done for a Source: its tasks of resources after that one, at most `limit`, in the order of their resources.
    pub async fn planned(
        self: &Arc<Self>,
        source: &str,
        after: ResourceId,
        limit: usize,
    ) -> Result<Vec<PlannedTask>, StoreError> {
        let source = source.to_owned();
        self.read_in(Lane::Reports, move |sql| {
            Ok(report::planned(sql, &source, after, limit)?)
        })
        .await
    }
}
