//! What an audit reports.

use std::ops::AddAssign;

use serde::Serialize;
use url::Url;

use crate::store::{Finding, FindingKind, FindingOutcome};

/// A finding of an audit, as it is reported.
#[derive(Clone, Debug)]
pub struct ReportedFinding {
    /// What was found.
    pub finding: Finding,
    /// The Capability List of the set that names the resource.
    pub set: Option<Url>,
}

/// What an audit reports while it runs.
#[derive(Clone, Debug)]
pub enum Reported {
    /// A difference between the mirror and the Source.
    Finding(ReportedFinding),
    /// A republished resource that is not what is stated of its original, or of which that is unknown.
    Original(ReportedOriginal),
}

/// How the file of a republished resource compares with what is stated of its original.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportedOriginal {
    /// The Capability List of the set that names the resource.
    pub set: Option<Url>,
    /// The resource.
    pub uri: String,
    /// Its file, relative to the mirror.
    pub path: String,
    /// The URI of the original.
    pub original: String,
    /// The result.
    pub outcome: OriginalOutcome,
}

/// The result of the comparison with an original.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OriginalOutcome {
    /// The file has the digest that is stated of the original.
    Same,
    /// It has not: in what it differs, by stable names.
    Differs(Vec<&'static str>),
    /// Nothing is known: why, by a stable name.
    Unknown(&'static str),
}

impl OriginalOutcome {
    /// Its stable name.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Differs(_) => "differs",
            Self::Unknown(_) => "unknown",
        }
    }
}

/// The numbers of comparisons with originals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OriginalSums {
    /// Files with the digest that is stated of their original.
    pub same: u64,
    /// Those without it.
    pub differing: u64,
    /// Those of which that is unknown.
    pub unknown: u64,
}

impl OriginalSums {
    pub(super) fn count(&mut self, outcome: &OriginalOutcome) {
        match outcome {
            OriginalOutcome::Same => self.same += 1,
            OriginalOutcome::Differs(_) => self.differing += 1,
            OriginalOutcome::Unknown(_) => self.unknown += 1,
        }
    }
}

impl AddAssign for OriginalSums {
    fn add_assign(&mut self, other: Self) {
        self.same += other.same;
        self.differing += other.differing;
        self.unknown += other.unknown;
    }
}

/// The result of an audit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// The numbers of findings.
    pub sums: Sums,
    /// Whether all documents of the Source could be read.
    pub whole: bool,
    /// Whether files that the Source does not name are extra; if not, none was reported so.
    pub proves_absence: bool,
    /// The comparison with originals, if that was requested.
    pub originals: Option<OriginalSums>,
}

/// The numbers of an audit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sums {
    /// Files that were expected and compared.
    pub compared: u64,
    /// Those that are right.
    pub right: u64,
    /// Those that are missing.
    pub missing: u64,
    /// Those that differ.
    pub altered: u64,
    /// Files that no document names.
    pub extra: u64,
    /// Missing or altered resources that can't be fetched, and lists that can't be read.
    pub unreachable: u64,
    /// Files of deleted resources that stay because of `delete = false`.
    pub kept: u64,
    /// Findings that were repaired, extra files that were deleted among them.
    pub mended: u64,
    /// Extra files that were deleted.
    pub deleted: u64,
    /// Missing files that were fetched.
    #[serde(skip)]
    pub(super) fetched: u64,
    /// Altered files that were corrected.
    #[serde(skip)]
    pub(super) corrected: u64,
    /// Files with the right bytes that had no record, or another time.
    pub adopted: u64,
    /// Differences that are none yet, as a running daemon has them pending.
    pub pending: u64,
}

impl Summary {
    /// Whether the mirror is now what the Source states.
    pub fn is_in_sync(&self) -> bool {
        let sums = &self.sums;
        let wrong = sums.missing + sums.altered + sums.extra + sums.unreachable;
        self.whole && wrong == sums.mended
    }
}

impl Sums {
    /// What is still so after the repair.
    #[must_use]
    pub fn left(&self) -> Self {
        Self {
            right: self.right + self.fetched + self.corrected,
            missing: self.missing - self.fetched,
            altered: self.altered - self.corrected,
            extra: self.extra - self.deleted,
            ..*self
        }
    }

    pub(super) fn count(&mut self, finding: &Finding) {
        let count = match finding.kind {
            FindingKind::Missing => &mut self.missing,
            FindingKind::Altered => &mut self.altered,
            FindingKind::Extra => &mut self.extra,
            FindingKind::Unreachable => &mut self.unreachable,
            FindingKind::Pending => &mut self.pending,
            FindingKind::Unknown => {
                self.adopted += u64::from(finding.outcome == FindingOutcome::Repaired);
                return;
            }
        };
        *count += 1;
        let is_mended = u64::from(finding.outcome == FindingOutcome::Repaired);
        self.mended += is_mended;
        match finding.kind {
            FindingKind::Missing => self.fetched += is_mended,
            FindingKind::Altered => self.corrected += is_mended,
            FindingKind::Extra => self.deleted += is_mended,
            FindingKind::Unreachable | FindingKind::Unknown | FindingKind::Pending => {}
        }
        // Lists are no files, and extra files were not expected.
        let is_wrong = finding.expected.is_some();
        self.right -= u64::from(is_wrong && self.right > 0);
    }
}

impl AddAssign for Sums {
    fn add_assign(&mut self, other: Self) {
        self.compared += other.compared;
        self.right += other.right;
        self.missing += other.missing;
        self.altered += other.altered;
        self.extra += other.extra;
        self.unreachable += other.unreachable;
        self.kept += other.kept;
        self.mended += other.mended;
        self.deleted += other.deleted;
        self.fetched += other.fetched;
        self.corrected += other.corrected;
        self.adopted += other.adopted;
        self.pending += other.pending;
    }
}
