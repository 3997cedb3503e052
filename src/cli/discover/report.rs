//! What was found, as the command tells it: plain data, in the names of the status.

use std::collections::BTreeMap;
use std::fmt::Display;

use serde::Serialize;
use url::Url;

use crate::clock;
use crate::fetch::{CapabilityList, Discovery, DiscoveryError, DocumentSummaries};
use crate::protocol::{Capability, DocumentSummary, Oddities, Offer, SourceTime};
use crate::status::StatusError;

#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) url: String,
    pub(super) description: Option<String>,
    pub(super) implied: bool,
    pub(super) channels: Vec<Channel>,
    pub(super) sets: Vec<Set>,
    pub(super) failed: Vec<FailedSet>,
    pub(super) oddities: Vec<OddDocument>,
    pub(super) left_out: usize,
    pub(super) error: Option<StatusError>,
}

#[derive(Debug, Serialize)]
pub(super) struct Set {
    pub(super) capability_list: String,
    pub(super) implied: bool,
    pub(super) oddities: Counts,
    pub(super) capabilities: Vec<Offered>,
    pub(super) channels: Vec<Channel>,
}

#[derive(Debug, Serialize)]
pub(super) struct Channel {
    pub(super) kind: String,
    pub(super) topic: String,
    pub(super) hubs: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct Offered {
    pub(super) capability: String,
    pub(super) uri: String,
    pub(super) looked_into: bool,
    #[serde(flatten)]
    pub(super) facts: Option<Facts>,
    pub(super) error: Option<StatusError>,
}

#[derive(Debug, Serialize)]
pub(super) struct Facts {
    pub(super) index: bool,
    pub(super) at: Option<String>,
    pub(super) completed: Option<String>,
    pub(super) from: Option<String>,
    pub(super) until: Option<String>,
    pub(super) entries: u64,
    pub(super) earliest: Option<String>,
    pub(super) latest: Option<String>,
    pub(super) created: u64,
    pub(super) updated: u64,
    pub(super) deleted: u64,
    pub(super) bytes: u64,
    pub(super) oddities: Counts,
}

#[derive(Debug, Serialize)]
pub(super) struct FailedSet {
    pub(super) capability_list: String,
    pub(super) error: StatusError,
}

#[derive(Debug, Serialize)]
pub(super) struct OddDocument {
    pub(super) document: String,
    pub(super) oddities: Counts,
}

/// How often something was met, by its code.
pub(super) type Counts = BTreeMap<&'static str, u64>;

impl Report {
    /// What was found.
    pub(super) fn of(url: &Url, found: &Discovery, summaries: &DocumentSummaries) -> Self {
        let failed = found.failed.iter().map(|(uri, error)| FailedSet {
            capability_list: uri.to_string(),
            error: status_error(error.code(), error),
        });
        let odd = |(_, oddities): &&(_, Oddities)| !oddities.is_empty();
        let oddities = found
            .oddities
            .iter()
            .filter(odd)
            .map(|(uri, oddities)| OddDocument {
                document: uri.to_string(),
                oddities: counts(oddities),
            });
        Self {
            description: found.description.as_ref().map(Url::to_string),
            implied: found.is_implied(),
            channels: found.channels.iter().map(channel).collect(),
            sets: found
                .sets
                .iter()
                .map(|set| Set::of(set, summaries))
                .collect(),
            failed: failed.collect(),
            oddities: oddities.collect(),
            left_out: summaries.left_out,
            ..Self::empty(url)
        }
    }

    /// That nothing was found, and why.
    pub(super) fn nothing(url: &Url, code: &str, error: &dyn Display) -> Self {
        Self {
            error: Some(status_error(code, error)),
            ..Self::empty(url)
        }
    }

    fn empty(url: &Url) -> Self {
        Self {
            url: url.to_string(),
            description: None,
            implied: false,
            channels: Vec::new(),
            sets: Vec::new(),
            failed: Vec::new(),
            oddities: Vec::new(),
            left_out: 0,
            error: None,
        }
    }
}

impl Set {
    fn of(set: &CapabilityList, summaries: &DocumentSummaries) -> Self {
        let (channels, documents): (Vec<_>, Vec<_>) = set
            .capabilities
            .iter()
            .partition(|advertised| is_channel(&advertised.capability));
        let offered = |advertised: &Offer| offered(advertised, summaries.of(&advertised.uri));
        Self {
            capability_list: set.uri.to_string(),
            implied: set.is_implied(),
            oddities: counts(&set.oddities),
            capabilities: documents.into_iter().map(offered).collect(),
            channels: channels.into_iter().map(channel).collect(),
        }
    }
}

fn offered(advertised: &Offer, seen: Option<&Result<DocumentSummary, DiscoveryError>>) -> Offered {
    let error = match seen {
        Some(Err(error)) => Some(status_error(error.code(), error)),
        Some(Ok(summary)) => contradiction(&advertised.capability, summary),
        None => None,
    };
    let summary = seen.and_then(|seen| seen.as_ref().ok());
    Offered {
        capability: advertised.capability.to_string(),
        uri: advertised.uri.to_string(),
        looked_into: seen.is_some(),
        facts: summary.map(facts),
        error,
    }
}

/// What a document says it is, if that is not what it is advertised as.
fn contradiction(advertised: &Capability, summary: &DocumentSummary) -> Option<StatusError> {
    let stated = summary.head.md.capability.as_ref()?;
    let message = format!("advertised as a {advertised}, but a {stated} by its own word");
    (stated != advertised).then(|| status_error("wrong-capability", &message))
}

fn facts(summary: &DocumentSummary) -> Facts {
    let text = |time: Option<SourceTime>| time.map(|time| time.to_string());
    let (earliest, latest) = if summary.is_index {
        (summary.lists_from, summary.lists_until)
    } else {
        (summary.oldest, summary.newest)
    };
    Facts {
        index: summary.is_index,
        at: text(summary.head.md.at),
        completed: text(summary.head.md.completed),
        from: text(summary.head.md.from),
        until: text(summary.head.md.until),
        entries: summary.entries,
        earliest: text(earliest),
        latest: text(latest),
        created: summary.changes.created,
        updated: summary.changes.updated,
        deleted: summary.changes.deleted,
        bytes: summary.bytes,
        oddities: counts(&summary.oddities),
    }
}

fn channel(advertised: &Offer) -> Channel {
    Channel {
        kind: advertised.capability.to_string(),
        topic: advertised.uri.to_string(),
        hubs: advertised.hubs.iter().map(ToString::to_string).collect(),
    }
}

fn is_channel(capability: &Capability) -> bool {
    matches!(
        capability,
        Capability::ChangeNotification | Capability::FrameworkNotification
    )
}

fn counts(oddities: &Oddities) -> Counts {
    oddities
        .iter()
        .map(|(oddity, count)| (oddity.code(), count))
        .collect()
}

fn status_error(code: &str, error: &(impl Display + ?Sized)) -> StatusError {
    StatusError::new(code, error.to_string(), clock::now().wall)
}
