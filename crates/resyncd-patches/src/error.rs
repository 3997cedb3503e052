//! Why a patch can't be applied, and the limits of the work on one.

/// Why a patch can't be applied to a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The file, the patch or the result is not of the format, or uses what its specification leaves open: which of them, and why.
    #[error("the {0} can't be read: {1}")]
    Syntax(&'static str, &'static str),
    /// An operation is none of the format: its number, from 0, and what is wrong.
    #[error("operation {0} of the patch is invalid: {1}")]
    Operation(usize, &'static str),
    /// The file has not what an operation names, or is not as the patch expects it: its number, from 0, and what differs.
    #[error("operation {0} of the patch does not fit the file: {1}")]
    Unfit(usize, &'static str),
    /// It would take too much memory or time.
    #[error("the patch exceeds a limit: {0}")]
    Limit(&'static str),
}

impl PatchError {
    /// The stable name of the error.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Syntax(..) => "patch-unreadable",
            Self::Operation(..) => "patch-invalid",
            Self::Unfit(..) => "patch-unfit",
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
pub(super) const MAX_WORK: usize = 1 << 27;

/// What the work on one patch may still take. It is spent before the work is done.
#[derive(Debug)]
pub(super) struct Budget {
    work: usize,
    added: usize,
}

impl Budget {
    pub(super) fn new(work: usize) -> Self {
        let added = MAX_ADDED;
        Self { work, added }
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
