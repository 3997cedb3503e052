//! Doubts about files: a change that was executed may have changed a file although its result was not stored.
//!
//! A file is renamed into place before its record is committed. If the process ends in between, the record is that of the former
//! file. The task is executed again; but by then the Source may have reverted the change, and state again what is recorded. A
//! resource in doubt is therefore like none of its descriptions, and its validators are not used, until its task, or another
//! one, has replaced or removed its file. If its task was dropped meanwhile it gets a new one.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use chrono::DateTime;

use super::settle::doubt;
use crate::store::ids::ResourceId;
use crate::store::{Store, StoreError, Wake};

impl Store {
    /// Records that the files of these resources may have been changed by tasks whose results are unknown.
    pub async fn doubt(self: &Arc<Self>, resources: Vec<ResourceId>) -> Result<(), StoreError> {
        self.write(move |tx| {
            for &id in &resources {
                if let Some(source) = doubt(tx.sql, id, DateTime::UNIX_EPOCH)? {
                    tx.wake(Wake::Tasks(source));
                }
            }
            Ok(())
        })
        .await
    }

    /// Records that results of tasks will not be stored: for the next process, this one has not ended in order.
    pub fn mark_unclean_shutdown(&self) {
        self.ends_in_order.store(false, Ordering::SeqCst);
    }
}
