//! Whether the database can be written.

use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the last transaction with something to write failed for a cause that is not its own: disk full, read-only, locked.
#[derive(Default)]
pub(super) struct WriteHealth {
    has_failed: AtomicBool,
}

impl WriteHealth {
    pub(super) fn note(&self, failed: bool) {
        self.has_failed.store(failed, Ordering::Relaxed);
    }

    pub(super) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }
}
