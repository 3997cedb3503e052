//! Whether the database can be written.

use parking_lot::Mutex;

/// Whether the last transaction with something to write failed for a cause that is not its own: disk full, read-only, locked.
///
/// A delivery is longer than most of what is written. Where one did not fit, a shorter write proves nothing.
#[derive(Default)]
pub(super) struct WriteHealth(Mutex<LastWrite>);

#[derive(Default)]
struct LastWrite {
    has_failed: bool,
    /// The length of the longest delivery that could not be stored, in bytes.
    refused: u64,
}

impl WriteHealth {
    /// A transaction has failed.
    pub(super) fn note_failed(&self) {
        self.0.lock().has_failed = true;
    }

    /// A delivery of so many bytes could not be stored.
    pub(super) fn note_refused(&self, length: u64) {
        let mut last = self.0.lock();
        last.has_failed = true;
        last.refused = last.refused.max(length);
    }

    /// So many bytes were written.
    pub(super) fn note_fitting(&self, length: u64) {
        let mut last = self.0.lock();
        if length >= last.refused {
            *last = LastWrite::default();
        }
    }

    pub(super) fn has_failed(&self) -> bool {
        self.0.lock().has_failed
    }

    pub(super) fn refused(&self) -> u64 {
        self.0.lock().refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shorter_write_proves_nothing() {
        let health = WriteHealth::default();
        health.note_failed();
        health.note_fitting(0);
        assert!(!health.has_failed());
        health.note_refused(10);
        health.note_refused(5);
        for (length, has_failed) in [(0, true), (9, true), (10, false)] {
            health.note_fitting(length);
            assert_eq!(health.has_failed(), has_failed, "{length}");
        }
        assert_eq!(health.refused(), 0);
    }
}
