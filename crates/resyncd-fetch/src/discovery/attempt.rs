//! What a discovery has requested, and what each server answered: the operator's view of a search.

use serde::Serialize;
use url::Url;

use super::error::DiscoveryError;
use crate::capability_list::DocumentRole;

/// The maximum number of requests that are recorded; a Source may have ten thousand sets.
const MAX_ATTEMPTS: usize = 500;
/// The maximum length of a recorded URI in bytes.
const MAX_URI: usize = 8 << 10;
/// How many attempts a message names.
const MAX_NAMED: usize = 10;

/// A document that was requested.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DiscoveryAttempt {
    /// Where it was requested.
    pub uri: Url,
    /// Why there: `entry`, `well-known`, `robots`, `sitemap`, `link`, `listed` or `guess`.
    pub reason: &'static str,
    /// The number of the attempt that led there; `None`: a start point.
    pub parent: Option<usize>,
    /// What was found, for a person.
    pub answer: String,
    /// The code of the error, if it is one.
    pub code: Option<&'static str>,
}

/// Records an attempt; returns its number, `None` if it is not recorded.
pub(super) fn record(
    attempts: &mut Vec<DiscoveryAttempt>,
    uri: &Url,
    reason: &'static str,
    parent: Option<usize>,
    found: Result<&DocumentRole, &DiscoveryError>,
) -> Option<usize> {
    if attempts.len() >= MAX_ATTEMPTS || uri.as_str().len() > MAX_URI {
        return None;
    }
    attempts.push(DiscoveryAttempt {
        uri: uri.clone(),
        reason,
        parent,
        answer: match found {
            Ok(role) => role.to_string(),
            Err(error) => error.reason(),
        },
        code: found.err().map(DiscoveryError::code),
    });
    Some(attempts.len() - 1)
}

/// The first attempts, for a message.
pub(super) fn named(attempts: &[DiscoveryAttempt]) -> String {
    let mut text = String::new();
    for (n, attempt) in attempts.iter().take(MAX_NAMED).enumerate() {
        let separator = if n == 0 { "; tried: " } else { ", " };
        text.push_str(&format!("{separator}{} ({})", attempt.uri, attempt.answer));
    }
    let more = attempts.len().saturating_sub(MAX_NAMED);
    if more > 0 {
        text.push_str(&format!(", and {more} more"));
    }
    text
}
