//! Counts what was done for a Source. The counts show progress to the user, and whether anything is happening at all.
//!
//! Invariant: the counts only grow, from the start of the process.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The counters of one Source.
#[derive(Debug, Default)]
pub(super) struct Progress {
    documents: AtomicU64,
    applied: AtomicU64,
    failed: AtomicU64,
    bytes: AtomicU64,
    versions: AtomicU64,
    is_finished: AtomicBool,
}

/// The counts at one moment, since the start of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Documents that were read.
    pub documents: u64,
    /// Resources that were fetched, removed, or verified to be unchanged.
    pub applied: u64,
    /// How often a resource was given up for now.
    pub failed: u64,
    /// Bytes of resources that were received.
    pub bytes: u64,
    /// Versions that were stored or could not be stored, and TimeMaps that were read.
    pub versions: u64,
    /// Whether a single run has nothing more to do for the Source.
    pub is_finished: bool,
}

impl Progress {
    pub(super) fn count_document(&self) {
        self.documents.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_applied(&self) {
        self.applied.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_bytes(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn count_version(&self) {
        self.versions.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn note_end(&self) {
        self.is_finished.store(true, Ordering::Relaxed);
    }

    pub(super) fn counts(&self) -> Counts {
        Counts {
            documents: self.documents.load(Ordering::Relaxed),
            applied: self.applied.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            versions: self.versions.load(Ordering::Relaxed),
            is_finished: self.is_finished.load(Ordering::Relaxed),
        }
    }
}
