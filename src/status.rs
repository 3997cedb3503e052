//! The view that the status endpoint serialises, and what the endpoint may ask of whoever runs the daemon.

use std::collections::BTreeMap;

use chrono::{DateTime, SecondsFormat, Utc};
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

/// How long a message for people may be, in bytes.
const LONGEST_MESSAGE: usize = 1024;

/// The whole daemon.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    /// The version of the program.
    pub version: String,
    /// When the daemon started.
    pub started_at: String,
    /// When this was asked.
    pub now: String,
    /// The Sources, in the order of the configuration.
    pub sources: Vec<SourceStatus>,
    /// How often the listeners refused what belongs to no channel, since the start, by code.
    #[serde(default)]
    pub refused: BTreeMap<String, u64>,
}

/// A Source.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SourceStatus {
    /// Its label.
    pub name: String,
    /// Where discovery starts.
    pub url: String,
    /// Where its resources are kept.
    pub mirror: String,
    /// `discovering`, `ok` or `failing`.
    pub state: String,
    /// What is wrong.
    pub error: Option<StatusError>,
    /// The sets that are followed.
    pub sets: Vec<SetStatus>,
}

/// A set of resources.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SetStatus {
    /// Its Capability List.
    pub capability_list: String,
    /// `baseline`, `catching-up`, `in-sync`, `gap` or `failing`.
    pub state: String,
    /// The Source's own time up to which every change is known to have been applied.
    pub synced_until: Option<String>,
    /// Stretches of time that are known to be missing.
    pub gaps: Vec<GapStatus>,
    /// How many resources the mirror has of it.
    pub resources: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Changes that are known and not applied yet.
    pub pending: u64,
    /// Changes that were given up for now.
    pub failed: u64,
    /// Deletions that wait for a person.
    pub held_deletions: u64,
    /// Its channels.
    pub channels: Vec<ChannelStatus>,
    /// When its documents were looked at last.
    pub last_poll_at: Option<String>,
    /// When they will be looked at next.
    pub next_poll_at: Option<String>,
    /// What is wrong.
    pub error: Option<StatusError>,
    /// What its documents do otherwise than the specification says, and was understood nevertheless: of the documents that
    /// were read last.
    #[serde(default)]
    pub oddities: Vec<OddityStatus>,
}

/// How often a document is odd in some way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OddityStatus {
    /// The document, or the topic of notifications.
    pub document: String,
    /// What is odd: a stable name.
    pub code: String,
    /// How often.
    pub count: u64,
}

/// A stretch of the Source's time that is missing.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GapStatus {
    /// Where it begins, on the Source's clock.
    pub from: String,
    /// Where it ends, on the Source's clock.
    pub until: String,
    /// Why it opened.
    pub reason: String,
    /// When it was noticed, on ours.
    pub since: String,
}

/// A channel.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ChannelStatus {
    /// `change-notification` or `framework-notification`.
    pub kind: String,
    /// Its topic.
    pub topic: String,
    /// Its hub: the one that was asked last; empty while none is known.
    pub hub: String,
    /// `pending`, `active`, `denied`, `expired` or `unsubscribed`.
    pub state: String,
    /// When the lease runs out.
    pub lease_expires_at: Option<String>,
    /// When the lease will be renewed.
    pub renew_at: Option<String>,
    /// When the last delivery came.
    pub last_notification_at: Option<String>,
    /// Deliveries that were taken.
    pub received: u64,
    /// Notifications that were applied.
    pub applied: u64,
    /// Notifications that told nothing new.
    pub duplicate: u64,
    /// Deliveries that were refused, or could not be read.
    pub rejected: u64,
    /// Early notifications that wait for the one before them.
    pub held: u64,
    /// Gaps that opened.
    pub gaps: u64,
    /// What is wrong.
    pub error: Option<StatusError>,
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusError {
    /// Its stable name.
    pub code: String,
    /// For a person.
    pub message: String,
    /// When it was met.
    pub at: String,
}

impl StatusError {
    /// Something that is wrong since `at`.
    #[must_use]
    pub fn new(code: &str, message: impl Into<String>, at: DateTime<Utc>) -> Self {
        Self {
            code: code.to_owned(),
            message: one_line(&message.into(), LONGEST_MESSAGE),
            at: rfc3339(at),
        }
    }
}

/// What became of ending a subscription.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UnsubscribeResult {
    /// The label of the Source.
    pub source: String,
    /// The topic.
    pub topic: String,
    /// The hub.
    pub hub: String,
    /// Whether the hub has confirmed it.
    pub confirmed: bool,
    /// What the hub answered, or did not.
    pub message: String,
}

/// What the status endpoint may ask of the daemon.
pub trait Operations: Send + Sync {
    /// How everything stands now.
    fn status(&self) -> BoxFuture<'_, Result<Status, StatusError>>;

    /// A mirror whose disk refuses what it is given: the label of its Source, and why.
    fn unwritable_mirror(&self) -> Option<(String, StatusError)>;

    /// Polls a Source now; `false` if there is none of that name.
    fn poll(&self, source: &str) -> bool;

    /// Lets deletions of a Source go on that were held back; answers how many, `None` if there is no such Source.
    fn approve(&self, source: &str) -> BoxFuture<'_, Result<Option<u64>, StatusError>>;

    /// Ends a Source's subscriptions and waits for the hubs' word; `None` if there is no such Source.
    fn unsubscribe(&self, source: &str) -> BoxFuture<'_, Option<Vec<UnsubscribeResult>>>;
}

/// A moment as the endpoint writes it: RFC 3339 in UTC.
#[must_use]
pub fn rfc3339(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::AutoSi, true)
}

/// What strangers have written, for people to read: what would end the line or steer a terminal is escaped, and what is
/// longer than so many bytes is cut.
#[must_use]
pub fn one_line(text: &str, longest: usize) -> String {
    let mut line = String::with_capacity(text.len().min(longest));
    for character in text.chars() {
        if line.len() >= longest {
            line.push('…');
            break;
        }
        if character.is_control() || is_direction(character) {
            line.extend(character.escape_unicode());
        } else {
            line.push(character);
        }
    }
    line
}

/// Whether a character makes a terminal show others in another order than they have.
fn is_direction(character: char) -> bool {
    matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_strangers_write_stays_on_its_line() {
        for (text, expected) in [
            ("uri=http://a.example/ä", "uri=http://a.example/ä"),
            ("a\nERROR forged", "a\\u{a}ERROR forged"),
            ("\u{1b}[2J\r\u{7}", "\\u{1b}[2J\\u{d}\\u{7}"),
            ("\u{9b}31m\u{0}", "\\u{9b}31m\\u{0}"),
            ("a\u{202e}txt", "a\\u{202e}txt"),
            (&"ä".repeat(40), &format!("{}…", "ä".repeat(32))),
        ] {
            assert_eq!(one_line(text, 64), expected);
        }
        let status_error = StatusError::new("any", "x\n".repeat(10_000), DateTime::UNIX_EPOCH);
        assert!(status_error.message.len() < 2 * LONGEST_MESSAGE);
        assert!(!status_error.message.contains('\n'));
    }
}
