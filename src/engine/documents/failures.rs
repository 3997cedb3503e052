//! Errors of single documents while others are read: one of them must not keep the later ones from being read, or the alternatives
//! from being tried. A [fatal](EngineError::is_fatal) error ends the reading at once.

use url::Url;

use crate::engine::EngineError;

/// With more retryable errors than this the rest is left to another poll: then it is not the part, and to wait for each would
/// take too long.
const MAX_TRANSIENT: u32 = 3;

/// The errors of this many parts are named.
const MAX_NAMED: usize = 3;

/// The errors of the parts of one document.
#[derive(Default)]
pub(crate) struct PartFailures {
    first: Option<EngineError>,
    transient: u32,
}

/// The parts of an index that can't be read until the Source changes something.
#[derive(Default)]
pub(crate) struct DeadParts {
    first: Option<EngineError>,
    named: Vec<String>,
    count: u64,
}

impl DeadParts {
    /// Adds a part, or so many of one error.
    pub(crate) fn add(&mut self, error: EngineError, count: u64) {
        self.count += count;
        if self.named.len() < MAX_NAMED {
            self.named.push(error.to_string());
        }
        self.first.get_or_insert(error);
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// The error of an index of so many parts, if any of them is dead; that of the part, if it is only one.
    pub(crate) fn into_result(self, index: &Url, parts: u64) -> Result<(), EngineError> {
        let Some(first) = self.first else {
            return Ok(());
        };
        if self.count == 1 {
            return Err(first);
        }
        let mut named = self.named.join("; ");
        let more = self.count.saturating_sub(self.named.len() as u64);
        if more > 0 {
            named += &format!("; and {more} more");
        }
        Err(EngineError::DeadParts {
            document: index.to_string(),
            dead: self.count,
            parts,
            named,
            first: Box::new(first),
        })
    }
}

impl PartFailures {
    /// Adds the error of a part.
    ///
    /// # Errors
    /// When reading on is pointless.
    pub(crate) fn add(&mut self, error: EngineError) -> Result<(), EngineError> {
        if error.is_fatal() {
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
    pub(crate) fn into_result(self) -> Result<(), EngineError> {
        self.first.map_or(Ok(()), Err)
    }
}

/// The errors of documents of which one is enough: the first one that can be read counts.
#[derive(Default)]
pub(crate) struct Alternatives(Option<(Url, EngineError)>);

impl Alternatives {
    /// Adds the error of one.
    ///
    /// # Errors
    /// When the next one is not to be tried.
    pub(crate) fn add(&mut self, uri: &Url, error: EngineError) -> Result<(), EngineError> {
        if error.is_fatal() {
            return Err(error);
        }
        self.0.get_or_insert_with(|| (uri.clone(), error));
        Ok(())
    }

    /// After the last one: the first error, and of which document it is; `None` if there was no document.
    pub(crate) fn into_first(self) -> Option<(Url, EngineError)> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use resyncd_fetch::FetchError;

    use super::*;

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
    fn first_error_of_alternatives_counts_and_a_fatal_one_ends_them() {
        let uri = |name: &str| Url::parse(&format!("https://example.org/{name}")).unwrap();
        assert!(Alternatives::default().into_first().is_none());
        let mut alternatives = Alternatives::default();
        alternatives.add(&uri("a"), failing(404)).unwrap();
        alternatives.add(&uri("b"), failing(503)).unwrap();
        let stopped = alternatives.add(&uri("c"), EngineError::Interrupted);
        assert_eq!(stopped.unwrap_err().code(), "interrupted");
        let (first, error) = alternatives.into_first().unwrap();
        assert_eq!((first, error.code()), (uri("a"), "not-found"));
    }

    #[test]
    fn dead_parts_are_counted_and_the_first_ones_named() {
        let index = Url::parse("https://example.org/index").unwrap();
        assert!(DeadParts::default().into_result(&index, 9).is_ok());
        let dead = |statuses: &[u16]| {
            let mut dead = DeadParts::default();
            statuses
                .iter()
                .for_each(|&status| dead.add(failing(status), 1));
            dead.into_result(&index, 9).unwrap_err()
        };
        let one = dead(&[404]);
        assert!(one.to_string().starts_with("404: "), "{one}");
        let several = dead(&[410, 404, 400, 401, 402]);
        assert_eq!((several.code(), several.is_unusable()), ("gone", true));
        let message = several.to_string();
        assert!(
            message.starts_with("5 of 9 parts of https://example.org/index"),
            "{message}"
        );
        assert!(
            message.contains("400: ") && !message.contains("401: "),
            "{message}"
        );
        assert!(message.ends_with("and 2 more"), "{message}");
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
