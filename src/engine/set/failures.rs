//! Errors of single parts of a document, while the others are read: one of them must not keep the later ones from being read.

use crate::engine::EngineError;

/// With more retryable errors than this the rest is left to another poll: then it is not the part, and to wait for each would
/// take too long.
const MAX_TRANSIENT: u32 = 3;

/// The errors of the parts of one document.
#[derive(Default)]
pub(super) struct PartFailures {
    first: Option<EngineError>,
    transient: u32,
}

impl PartFailures {
    /// Adds the error of a part.
    ///
    /// # Errors
    /// When reading on is pointless.
    pub(super) fn add(&mut self, error: EngineError) -> Result<(), EngineError> {
        if matches!(error, EngineError::Store(_) | EngineError::Interrupted) {
            return Err(error);
        }
        self.transient += u32::from(error.is_transient());
        let first = self.first.take().unwrap_or(error);
        if self.transient > MAX_TRANSIENT {
            return Err(first);
        }
        self.first = Some(first);
        Ok(())
    }

    /// After the last part: the first error, if there was one.
    pub(super) fn into_result(self) -> Result<(), EngineError> {
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
    fn permanent_errors_end_nothing_and_transient_ones_do_after_a_few() {
        let mut failures = PartFailures::default();
        for _ in 0..1000 {
            failures.add(failing(404)).unwrap();
        }
        for _ in 0..MAX_TRANSIENT {
            failures.add(failing(503)).unwrap();
        }
        let ended = failures.add(failing(503)).unwrap_err();
        assert!(ended.to_string().starts_with("404: "), "{ended}");
    }

    #[test]
    fn result_is_the_first_error() {
        assert!(PartFailures::default().into_result().is_ok());
        let mut failures = PartFailures::default();
        failures.add(failing(410)).unwrap();
        failures.add(failing(404)).unwrap();
        let first = failures.into_result().unwrap_err();
        assert!(first.to_string().starts_with("410: "), "{first}");
        let stopped = PartFailures::default().add(EngineError::Interrupted);
        assert_eq!(stopped.unwrap_err().code(), "interrupted");
    }
}
