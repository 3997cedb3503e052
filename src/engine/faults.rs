//! Errors counted by code, for the status: those of a set's last poll, or its notices.
//!
//! Invariant: bounded, whatever a Source publishes.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use url::Url;

use super::error::EngineError;
use crate::status::{CountedError, StatusError};

/// The maximum number of codes; the errors of further codes are not recorded.
const MAX_CODES: usize = 20;
/// How many dead parts of one poll are logged.
const MAX_LOGGED: usize = 10_000;

/// Errors, one row a code, in the order in which they occurred first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults(Vec<CountedError>);

impl Faults {
    /// Counts an error `count` times more.
    pub(crate) fn add(&mut self, error: StatusError, count: u64) {
        if let Some(known) = self.0.iter_mut().find(|known| known.code == error.code) {
            known.count += count;
        } else if self.0.len() < MAX_CODES {
            self.0.push(CountedError::new(error, count));
        }
    }

    /// Adds an error unless there is one of its code.
    pub(crate) fn include(&mut self, error: StatusError, count: u64) {
        if !self.0.iter().any(|known| known.code == error.code) {
            self.add(error, count);
        }
    }

    /// Replaces what is recorded of the error's code; returns whether the message is news.
    pub(crate) fn replace(&mut self, error: StatusError, count: u64) -> bool {
        let is_news = !self
            .0
            .iter()
            .any(|known| known.code == error.code && known.message == error.message);
        self.clear(&error.code);
        self.add(error, count);
        is_news
    }

    /// Since when an error of a code is recorded; `None`: none is.
    pub(crate) fn since(&self, code: &str) -> Option<&str> {
        let known = self.0.iter().find(|known| known.code == code);
        known.map(|known| known.at.as_str())
    }

    /// Removes what is recorded of a code.
    pub(crate) fn clear(&mut self, code: &str) {
        self.0.retain(|known| known.code != code);
    }

    /// The rows.
    pub(crate) fn into_rows(self) -> Vec<CountedError> {
        self.0
    }
}

/// The errors of the parts of indexes that one poll has read.
#[derive(Default)]
pub(crate) struct PollReport {
    faults: Faults,
    dead_parts: u64,
    /// How many of them are parts of Resource Lists.
    dead_list_parts: u64,
    /// Why the index does not exist that a closed list or dump links to.
    dead_index: Option<String>,
    /// Hashes of the dead parts that are logged, of this poll and of the one before.
    logged: HashSet<u64>,
    logged_before: HashSet<u64>,
}

impl PollReport {
    /// The report of the next poll.
    pub(crate) fn next(self) -> Self {
        Self {
            logged_before: self.logged,
            ..Self::default()
        }
    }

    /// Adds the error of an index that does not exist: the first one is shown.
    pub(crate) fn add_dead_index(&mut self, error: &EngineError) {
        self.dead_index.get_or_insert_with(|| error.to_string());
    }

    /// Why the index does not exist that a closed list or dump links to; `None`: there is none, or each exists.
    pub(crate) fn dead_index(&self) -> Option<&str> {
        self.dead_index.as_deref()
    }

    /// Adds the error of a part.
    pub(crate) fn add(&mut self, error: &EngineError) {
        self.faults.add(error.status_error(), 1);
    }

    /// Adds parts that can't be read until the Source changes something.
    pub(crate) fn add_dead(&mut self, error: &EngineError, count: u64) {
        self.faults.add(error.status_error(), count);
        self.dead_parts += count;
    }

    /// Records that so many of the dead parts are parts of a Resource List.
    pub(crate) fn add_dead_list_parts(&mut self, count: u64) {
        self.dead_list_parts += count;
    }

    /// Whether parts are dead, of Resource Lists only.
    pub(crate) fn has_only_dead_list_parts(&self) -> bool {
        self.dead_parts > 0 && self.dead_parts == self.dead_list_parts
    }

    /// Whether a dead part is to be logged: it was not dead in the poll before, or for another reason.
    pub(crate) fn is_news(&mut self, part: &Url, error: &EngineError) -> bool {
        let mut hasher = DefaultHasher::new();
        (part, error.code()).hash(&mut hasher);
        let hash = hasher.finish();
        self.logged.len() < MAX_LOGGED
            && self.logged.insert(hash)
            && !self.logged_before.contains(&hash)
    }

    /// All errors.
    pub(crate) fn faults(&self) -> &Faults {
        &self.faults
    }

    /// How many parts are dead.
    pub(crate) fn dead_parts(&self) -> u64 {
        self.dead_parts
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;

    use super::*;

    fn error(code: &str, message: &str) -> StatusError {
        StatusError::new(code, message, DateTime::UNIX_EPOCH)
    }

    fn rows(faults: &Faults) -> Vec<(String, String, u64)> {
        let rows = faults.clone().into_rows().into_iter();
        rows.map(|row| (row.code, row.message, row.count)).collect()
    }

    #[test]
    fn errors_of_one_code_are_one_row_with_the_first_message() {
        let mut faults = Faults::default();
        faults.add(error("a", "first"), 1);
        faults.add(error("b", "other"), 2);
        faults.add(error("a", "second"), 1);
        faults.include(error("b", "known"), 1);
        let row = |code: &str, message: &str, count| (code.to_owned(), message.to_owned(), count);
        assert_eq!(rows(&faults), [row("a", "first", 2), row("b", "other", 2)]);
        assert!(!faults.replace(error("a", "first"), 5));
        assert!(faults.replace(error("a", "third"), 1));
        assert_eq!(rows(&faults), [row("b", "other", 2), row("a", "third", 1)]);
        faults.clear("b");
        assert_eq!(rows(&faults).len(), 1);
    }

    #[test]
    fn dead_part_is_logged_until_it_is_read_again() {
        let part = Url::parse("https://example.org/part").unwrap();
        let (empty, nested) = (
            EngineError::EmptyIndex(String::new()),
            EngineError::NestedIndex(String::new()),
        );
        let mut report = PollReport::default();
        assert!(report.is_news(&part, &empty));
        assert!(!report.is_news(&part, &empty), "named twice");
        let mut report = report.next();
        assert!(!report.is_news(&part, &empty), "still dead");
        assert!(report.is_news(&part, &nested), "another error");
        let mut report = report.next().next();
        assert!(report.is_news(&part, &empty), "it was read meanwhile");
    }

    #[test]
    fn codes_are_bounded() {
        let mut faults = Faults::default();
        for n in 0..100 {
            faults.add(error(&n.to_string(), ""), 1);
        }
        assert_eq!(rows(&faults).len(), MAX_CODES);
    }
}
