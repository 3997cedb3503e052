//! Whether the database can be written.

use chrono::{DateTime, Utc};
use parking_lot::Mutex;

use super::error::StoreError;
use crate::clock;

/// Whether the last transaction with something to write failed for a cause that is not its own: disk full, read-only, locked.
///
/// A delivery is longer than most of what is written. Where one did not fit, a shorter write proves nothing.
#[derive(Default)]
pub(super) struct WriteHealth(Mutex<LastWrite>);

#[derive(Default)]
struct LastWrite {
    failure: Option<WriteFailure>,
    /// The length of the longest delivery that could not be stored, in bytes.
    refused: u64,
}

/// Why the database can't be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteFailure {
    /// The code of the last error.
    pub code: &'static str,
    /// The last error.
    pub message: String,
    /// When the first write failed of those that have failed since one succeeded.
    pub since: DateTime<Utc>,
}

impl WriteHealth {
    /// Nothing can be written.
    pub(super) fn note_failed(&self, error: &StoreError) {
        self.0.lock().fail(error);
    }

    /// A delivery of so many bytes could not be stored.
    pub(super) fn note_refused(&self, length: u64, error: &StoreError) {
        let mut last = self.0.lock();
        last.fail(error);
        last.refused = last.refused.max(length);
    }

    /// So many bytes were written.
    pub(super) fn note_fitting(&self, length: u64) {
        let mut last = self.0.lock();
        if length >= last.refused {
            *last = LastWrite::default();
        }
    }

    pub(super) fn failure(&self) -> Option<WriteFailure> {
        self.0.lock().failure.clone()
    }

    pub(super) fn refused(&self) -> u64 {
        self.0.lock().refused
    }
}

impl LastWrite {
    fn fail(&mut self, error: &StoreError) {
        let since = self.failure.take().map(|failure| failure.since);
        self.failure = Some(WriteFailure {
            code: error.code(),
            message: error.to_string(),
            since: since.unwrap_or_else(|| clock::now().wall),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shorter_write_proves_nothing() {
        let health = WriteHealth::default();
        let error = StoreError::Closed;
        health.note_failed(&error);
        health.note_fitting(0);
        assert_eq!(health.failure(), None);
        health.note_refused(10, &error);
        let since = health.failure().unwrap().since;
        health.note_refused(5, &error);
        for (length, has_failed) in [(0, true), (9, true), (10, false)] {
            health.note_fitting(length);
            let failure = health.failure();
            assert_eq!(failure.is_some(), has_failed, "{length}");
            assert!(failure.is_none_or(|failure| failure.since == since));
        }
        assert_eq!(health.refused(), 0);
    }
}
