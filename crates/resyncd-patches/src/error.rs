//! Why a patch can't be applied, and the limits of the work on one.

/// Why a patch can't be applied to a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The file or the patch is not of the format, or uses what its specification leaves open.
    #[error("the {what} can't be read: {reason} at byte {position}")]
    Syntax {
        /// `file` or `patch`.
        what: &'static str,
        /// What is wrong.
        reason: &'static str,
        /// Where, in bytes.
        position: usize,
    },
    /// An operation is none of the format.
    #[error("operation {operation} of the patch is invalid: {reason}")]
    Operation {
        /// Its number, from 0.
        operation: usize,
        /// What is wrong.
        reason: &'static str,
    },
    /// The file has not what an operation names, or is not as the patch expects it.
    #[error("operation {operation} of the patch does not fit the file: {reason}")]
    Unfit {
        /// Its number, from 0.
        operation: usize,
        /// What differs.
        reason: &'static str,
    },
    /// It would take too much memory or time.
    #[error("the patch exceeds a limit: {0}")]
    Limit(&'static str),
}

impl PatchError {
    /// The operation of that number, from 0, is none of the format.
    pub(super) fn invalid(operation: usize, reason: &'static str) -> Self {
        Self::Operation { operation, reason }
    }

    /// The file has not what the operation of that number, from 0, names or expects.
    pub(super) fn unfit(operation: usize, reason: &'static str) -> Self {
        Self::Unfit { operation, reason }
    }

    /// The stable name of the error.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Syntax { .. } => "patch-unreadable",
            Self::Operation { .. } => "patch-invalid",
            Self::Unfit { .. } => "patch-unfit",
            Self::Limit(_) => "patch-limit",
        }
    }
}

/// The limit on the depth of a document.
pub(super) const MAX_DEPTH: usize = 128;
/// The limit on the values or nodes of a file, of a patch, and of all that the operations of a patch add.
pub(super) const MAX_NODES: usize = 1 << 20;
/// The limit on the bytes of texts that the operations of a patch add, and on the length of a result.
pub(super) const MAX_BYTES: usize = 32 << 20;
/// The limit on the bytes that are written of one document in one style after the other.
pub(super) const MAX_WRITTEN: usize = 256 << 20;
/// The limit on the work of one patch, in comparisons and moves of single values, or bytes that are read.
const MAX_WORK: u64 = 1 << 27;

/// How many bytes are compared or read in one step of work.
pub(super) const BYTES_A_STEP: usize = 4;
/// The least steps of reading a text, however short: it is looked up, and often copied.
const READING_STEPS: usize = 8;

/// What the work on one patch may still take. It is spent before the work is done, also where a search may end early.
#[derive(Debug)]
pub(super) struct Budget {
    work: u64,
    nodes: usize,
    bytes: usize,
}

impl Budget {
    pub(super) fn new() -> Self {
        Self {
            work: MAX_WORK,
            nodes: MAX_NODES,
            bytes: MAX_BYTES,
        }
    }

    #[cfg(test)]
    pub(super) fn of_work(work: u64) -> Self {
        Self {
            work,
            ..Self::new()
        }
    }

    /// Counts steps of work.
    pub(super) fn spend(&mut self, steps: usize) -> Result<(), PatchError> {
        let left = self.work.checked_sub(steps as u64);
        self.work = left.ok_or(PatchError::Limit("too much work"))?;
        Ok(())
    }

    /// Counts the reading of a text of so many bytes.
    pub(super) fn spend_bytes(&mut self, length: usize) -> Result<(), PatchError> {
        self.spend(length / BYTES_A_STEP + READING_STEPS)
    }

    /// Counts a search for a text of so many bytes among so many others: as many bytes of each may be compared.
    pub(super) fn spend_search(&mut self, others: usize, length: usize) -> Result<(), PatchError> {
        self.spend(others.saturating_mul(length / BYTES_A_STEP + 1))
    }

    /// Counts what is added to a document.
    pub(super) fn add(&mut self, nodes: usize, bytes: usize) -> Result<(), PatchError> {
        let left = self
            .nodes
            .checked_sub(nodes)
            .zip(self.bytes.checked_sub(bytes));
        (self.nodes, self.bytes) = left.ok_or(PatchError::Limit("it adds too much"))?;
        self.spend(nodes)
    }
}
