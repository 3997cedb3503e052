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
        self.passing += u32::from(error.is_transient());
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fetch::FetchError;

    fn failing(status: u16) -> EngineError {
        let error = FetchError::Status {
            status,
            retry_after: None,
        };
        let uri = status.to_string();
        EngineError::Fetch { uri, error }
    }

    #[test]
    fn what_is_gone_ends_nothing_and_what_passes_does_after_a_few() {
        let mut failures = Failures::default();
        for _ in 0..1000 {
            failures.pass(failing(404)).unwrap();
        }
        for _ in 0..MOST_PASSING {
            failures.pass(failing(503)).unwrap();
        }
        let ended = failures.pass(failing(503)).unwrap_err();
        assert!(ended.to_string().starts_with("404: "), "{ended}");
    }

    #[test]
    fn what_is_told_is_the_first_failure() {
        assert!(Failures::default().end().is_ok());
        let mut failures = Failures::default();
        failures.pass(failing(410)).unwrap();
        failures.pass(failing(404)).unwrap();
        let told = failures.end().unwrap_err();
        assert!(told.to_string().starts_with("410: "), "{told}");
        let stopped = Failures::default().pass(EngineError::Interrupted);
        assert_eq!(stopped.unwrap_err().code(), "interrupted");
    }
}
