//! Rows that can't be read. One is no proof of damage: SQLite has given back what the row has. Where rows of many Sources are read
//! together it is left out, and its Source is noted.
//!
//! Invariants: of each Source the first one since the start is remembered, and logged once.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use chrono::{DateTime, Utc};
use parking_lot::Mutex;

use super::error::StoreError;
use crate::clock;
use crate::store::sql::Row;

/// A row that can't be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableRow {
    /// Why, for a person.
    pub message: String,
    /// When it was first met.
    pub at: DateTime<Utc>,
}

/// The first of each Source.
#[derive(Debug, Default)]
pub(super) struct UnreadableRows(Mutex<BTreeMap<String, UnreadableRow>>);

impl UnreadableRows {
    /// Notes the error of a row of a Source; whether it is one.
    pub(super) fn note(&self, source: &str, error: &StoreError) -> bool {
        if !error.is_of_row() {
            return false;
        }
        if let Entry::Vacant(unknown) = self.0.lock().entry(source.to_owned()) {
            tracing::error!(code = error.code(), source, %error, "database row unreadable; left out");
            unknown.insert(UnreadableRow {
                message: error.to_string(),
                at: clock::now().wall,
            });
        }
        true
    }

    /// Reads a row whose Source is in the column of that name; `None`: it can't be read, which is noted.
    pub(super) fn read<T>(
        &self,
        row: &Row<'_>,
        source: &str,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<Option<T>> {
        let error = match read(row) {
            Err(error) => StoreError::Sqlite(error),
            read => return read.map(Some),
        };
        // The label may be what can't be read.
        let source: String = row.get(source).unwrap_or_default();
        match (self.note(&source, &error), error) {
            (false, StoreError::Sqlite(error)) => Err(error),
            _ => Ok(None),
        }
    }

    pub(super) fn of(&self, source: &str) -> Option<UnreadableRow> {
        self.0.lock().get(source).cloned()
    }

    /// Forgets what was noted of a Source whose rows were deleted.
    pub(super) fn clear(&self, source: &str) {
        self.0.lock().remove(source);
    }
}
