//! The result of comparing a mirror with its Source, before anything is repaired or reported.

use std::sync::Arc;

use resyncd_mirror::MirrorReader;

use super::documents::SourceDocuments;
use crate::store::AuditDb;

/// A mirror that was compared with its Source.
pub(super) struct MirrorComparison {
    pub(super) audit_db: Arc<AuditDb>,
    pub(super) documents: SourceDocuments,
    pub(super) reader: Option<Arc<MirrorReader>>,
    /// How many files were expected.
    pub(super) expected: u64,
    /// How many files of deleted resources stay.
    pub(super) kept: u64,
}
