//! Why a patch can't be applied, and the limits of the work on one.

/// Why a patch can't be applied to a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The file or the patch is not of the format, or uses what its specification leaves open.
    #[error("the {what} can't be read: {reason}")]
    Syntax {
        /// `file` or `patch`.
        what: &'static str,
        /// What is wrong.
        reason: &'static str,
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
    pub(super) fn syntax(what: &'static str, reason: &'static str) -> Self {
        Self::Syntax { what, reason }
    }

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

/// The limit on the depth of a JSON document.
pub(super) const MAX_DEPTH: usize = 128;
/// The limit on the values of a JSON document, and on the elements and attributes of an XML document.
pub(super) const MAX_NODES: usize = 1 << 18;
/// The limit on the length of a result.
pub(super) const MAX_BYTES: usize = 32 << 20;
/// The limit on the memory that the operations of a patch add, in bytes.
const MAX_ADDED: usize = 64 << 20;
/// The limit on the work of one patch, in comparisons and moves of single values, or some bytes that are read.
const MAX_WORK: usize = 1 << 27;

/// What the work on one patch may still take. It is spent before the work is done.
#[derive(Debug)]
pub(super) struct Budget {
    work: usize,
    added: usize,
}

impl Budget {
    pub(super) fn new() -> Self {
        Self::of_work(MAX_WORK)
    }

    pub(super) fn of_work(work: usize) -> Self {
        Self {
            work,
            added: MAX_ADDED,
        }
    }

    /// Counts steps of work.
    pub(super) fn spend(&mut self, steps: usize) -> Result<(), PatchError> {
        let left = self.work.checked_sub(steps);
        self.work = left.ok_or(PatchError::Limit("too much work"))?;
        Ok(())
    }

    /// Counts the memory of what is added to a document, in bytes.
    pub(super) fn add(&mut self, bytes: usize) -> Result<(), PatchError> {
        let left = self.added.checked_sub(bytes);
        self.added = left.ok_or(PatchError::Limit("it adds too much"))?;
        Ok(())
    }
}
