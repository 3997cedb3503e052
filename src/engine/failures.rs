//! Parts that can't be had, while the others are read: one of them must not keep what comes after it from being read.

use super::EngineError;

/// So many parts may fail for reasons that pass, before the rest is left to another time: then it is not the part, and to
/// wait for each would take for ever.
const MOST_PASSING: u32 = 3;

/// What kept parts of a document from being read.
#[derive(Default)]
pub(super) struct Failures {
    first: Option<EngineError>,
    passing: u32,
}

impl Failures {
    /// Notes a part that can't be had.
    ///
    /// # Errors
    /// When to go on is of no use.
    pub(super) fn pass(&mut self, error: EngineError) -> Result<(), EngineError> {
        if matches!(error, EngineError::Store(_) | EngineError::Interrupted) {
            return Err(error);
        }
        self.passing += u32::from(error.is_passing());
        let first = self.first.take().unwrap_or(error);
        if self.passing > MOST_PASSING {
            return Err(first);
        }
        self.first = Some(first);
        Ok(())
    }

    /// What is concluded when all parts were tried.
    ///
    /// # Errors
    /// The first failure.
    pub(super) fn end(self) -> Result<(), EngineError> {
        self.first.map_or(Ok(()), Err)
    }
}
