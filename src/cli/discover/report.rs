//! The result of discovery as plain data, with the field names of the status.

use std::collections::BTreeMap;
use std::fmt::Display;

use resourcesync::{Capability, DocumentSummary, Oddities, Oddity, SourceTime};
use resyncd_core::{Offer, Transport};
use resyncd_fetch::{
    CapabilityList, Discovery, DiscoveryAttempt, DocumentSummaries, EntryCounts, ReplacedEntry,
    TriedParts,
};
use serde::Serialize;
use url::Url;

use crate::clock;
use crate::config::{CallbackProtocols, Config, LackingKey, Source};
use crate::status::StatusError;

#[derive(Debug, Default, Serialize)]
pub(super) struct DiscoveryReport {
    pub(super) url: String,
    pub(super) description: Option<String>,
    pub(super) implied: bool,
    /// The version of the draft that a set of it follows.
    pub(super) dialect: Option<&'static str>,
    pub(super) describedby: Vec<String>,
    pub(super) channels: Vec<AdvertisedChannel>,
    pub(super) sets: Vec<SetReport>,
    pub(super) failed: Vec<FailedSet>,
    pub(super) oddities: Vec<DocumentOddities>,
    pub(super) tried: Vec<DiscoveryAttempt>,
    pub(super) left_out: usize,
    pub(super) notices: Vec<StatusError>,
    pub(super) error: Option<StatusError>,
}

#[derive(Debug, Serialize)]
pub(super) struct SetReport {
    pub(super) capability_list: String,
    pub(super) implied: bool,
    /// The version of the draft that it follows; `None`: version 1.0 or later, or no ResourceSync.
    pub(super) dialect: Option<&'static str>,
    pub(super) describedby: Vec<String>,
    pub(super) oddities: OddityCounts,
    pub(super) capabilities: Vec<OfferReport>,
    pub(super) channels: Vec<AdvertisedChannel>,
}

#[derive(Debug, Serialize)]
pub(super) struct AdvertisedChannel {
    pub(super) kind: String,
    /// Over what its notifications come; null if that is not supported.
    pub(super) transport: Option<&'static str>,
    /// The protocol of an interface at which a callback is registered, or of one that is not supported (version 0.1).
    pub(super) protocol: Option<String>,
    pub(super) topic: String,
    pub(super) hubs: Vec<String>,
    /// Why it can't be used.
    pub(super) error: Option<StatusError>,
}

#[derive(Debug, Serialize)]
pub(super) struct OfferReport {
    pub(super) capability: String,
    pub(super) uri: String,
    pub(super) looked_into: bool,
    #[serde(flatten)]
    pub(super) facts: Option<DocumentFacts>,
    #[serde(flatten)]
    pub(super) parts: Option<PartsReport>,
    pub(super) error: Option<StatusError>,
}

#[derive(Debug, Serialize)]
pub(super) struct PartsReport {
    pub(super) dead_parts: Vec<DeadPart>,
    pub(super) parts_not_tried: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct DeadPart {
    pub(super) uri: String,
    pub(super) error: StatusError,
}

#[derive(Debug, Serialize)]
pub(super) struct DocumentFacts {
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
    /// How many entries state each media type: the first ones that occur.
    pub(super) types: BTreeMap<String, u64>,
    pub(super) other_types: u64,
    /// How many entries state each collection.
    pub(super) collections: BTreeMap<String, u64>,
    pub(super) other_collections: u64,
    pub(super) oddities: OddityCounts,
}

#[derive(Debug, Serialize)]
pub(super) struct FailedSet {
    pub(super) capability_list: String,
    pub(super) error: StatusError,
}

#[derive(Debug, Serialize)]
pub(super) struct DocumentOddities {
    pub(super) document: String,
    pub(super) oddities: OddityCounts,
}

/// How often each oddity occurs, by code.
pub(super) type OddityCounts = BTreeMap<&'static str, u64>;

impl DiscoveryReport {
    /// The report of a successful discovery. `rules`: by which its channels can be used.
    pub(super) fn new(
        url: &Url,
        found: &Discovery,
        summaries: &DocumentSummaries,
        rules: &UsableChannels<'_>,
    ) -> Self {
        let failed = found.failed.iter().map(|(uri, error)| FailedSet {
            capability_list: uri.to_string(),
            error: status_error(error.code(), error),
        });
        let left_out = found.left_out.iter().map(|error| FailedSet {
            capability_list: url.to_string(),
            error: status_error(error.code(), error),
        });
        let is_odd = |(_, oddities): &&(_, Oddities)| !oddities.is_empty();
        let oddities =
            found
                .oddities
                .iter()
                .filter(is_odd)
                .map(|(uri, oddities)| DocumentOddities {
                    document: uri.to_string(),
                    oddities: counts(oddities),
                });
        let sets = found.sets.iter();
        let sets: Vec<_> = sets
            .map(|set| SetReport::of(set, found, summaries, rules))
            .collect();
        Self {
            url: url.to_string(),
            description: found.description.as_ref().map(Url::to_string),
            implied: found.is_implied(),
            dialect: sets.iter().find_map(|set| set.dialect),
            describedby: texts(&found.described_by),
            channels: (found.channels.iter())
                .map(|offer| channel(offer, rules))
                .collect(),
            sets,
            failed: failed.chain(left_out).collect(),
            oddities: oddities.collect(),
            left_out: summaries.left_out,
            notices: found
                .replaced_entry
                .iter()
                .map(|replaced| status_error(ReplacedEntry::CODE, replaced))
                .collect(),
            ..Self::default()
        }
    }

    /// The report of a failed discovery.
    pub(super) fn failed(url: &Url, code: &str, error: &dyn Display) -> Self {
        Self {
            url: url.to_string(),
            error: Some(status_error(code, error)),
            ..Self::default()
        }
    }

    /// Whether something was found, and nothing of it can be read.
    pub(super) fn is_unreadable(&self) -> bool {
        let documents = self.sets.iter().flat_map(|set| &set.capabilities);
        let mut read = documents.filter(|document| document.looked_into).peekable();
        let is_found = !(self.sets.is_empty() && self.failed.is_empty());
        match read.peek() {
            Some(_) => read.all(|document| document.facts.is_none()),
            None => is_found && self.sets.is_empty(),
        }
    }

    /// The same, with what was requested.
    pub(super) fn having_tried(mut self, attempts: &[DiscoveryAttempt]) -> Self {
        self.tried = attempts.to_vec();
        self
    }
}

impl AdvertisedChannel {
    /// Whether hubs deliver its notifications.
    pub(super) fn has_hubs(&self) -> bool {
        self.transport == Some(Transport::Websub.code())
    }

    /// Whether its notifications are delivered to a callback.
    pub(super) fn has_callback(&self) -> bool {
        self.is_over(Transport::has_callback)
    }

    /// Whether it needs an XMPP account.
    pub(super) fn needs_account(&self) -> bool {
        self.is_over(Transport::needs_account)
    }

    /// The protocol of the interface at which a callback is registered for it; `None`: it is none, or not supported.
    pub(super) fn callback_protocol(&self) -> Option<&str> {
        let protocol = self.protocol.as_deref();
        protocol.filter(|_| self.has_callback())
    }

    fn is_over(&self, is_wanted: impl FnOnce(Transport) -> bool) -> bool {
        let transport = self.transport.and_then(Transport::from_code);
        transport.is_some_and(is_wanted)
    }
}

/// By what of the configuration the channels of a Source can be used.
pub(super) struct UsableChannels<'a> {
    pub(super) config: &'a Config,
    /// The Source in the configuration, or the nearest one.
    pub(super) source: Option<&'a Source>,
}

impl UsableChannels<'_> {
    /// Why a channel can't be used: all reasons in one message, under the code of the first one.
    fn check(&self, transport: Transport, protocol: Option<&str>) -> Option<StatusError> {
        let source = self.source;
        let is_off = source.is_some_and(|source| !source.notifications);
        let unconfigured = protocol.and_then(|protocol| {
            let nothing = CallbackProtocols::default();
            let protocols = source.map_or(&nothing, |source| &source.callback_protocols);
            protocols.check(protocol).err()
        });
        // Where nothing is configured yet, what every hub needs is no property of the channel.
        let is_configured = !transport.has_hubs() || !self.config.sources.is_empty();
        let has_url = self.config.callback.public_url.is_some();
        let has_account = self.config.xmpp.is_some();
        let lacking = LackingKey::all_of(
            transport,
            unconfigured,
            has_url || !is_configured,
            has_account,
        );
        let off = is_off.then(|| ("notifications-off", "`notifications` is false".to_owned()));
        let reasons = off.into_iter().chain(lacking.map(|lacking| {
            let need = match lacking {
                LackingKey::Protocol(_) => "",
                LackingKey::PublicUrl => "it needs a callback: ",
                LackingKey::Account => "it needs an XMPP account: ",
            };
            (lacking.code(), format!("{need}{lacking}"))
        }));
        let (codes, texts): (Vec<_>, Vec<_>) = reasons.unzip();
        let code = codes.first()?;
        Some(status_error(code, &texts.join("; ")))
    }
}

impl SetReport {
    fn of(
        set: &CapabilityList,
        found: &Discovery,
        summaries: &DocumentSummaries,
        rules: &UsableChannels<'_>,
    ) -> Self {
        let (channels, documents): (Vec<_>, Vec<_>) = set
            .capabilities
            .iter()
            .partition(|advertised| advertised.capability.is_channel());
        let offered = |advertised: &Offer| offered(advertised, summaries);
        let mut described_by = found.sets_described_by.get(&set.uri).cloned();
        let described_by = described_by.get_or_insert_default();
        for uri in &set.described_by {
            if !described_by.contains(uri) {
                described_by.push(uri.clone());
            }
        }
        let unsupported = set.unsupported_channels.iter().map(unsupported_channel);
        Self {
            capability_list: set.uri.to_string(),
            implied: set.is_implied(),
            dialect: (set.oddities.count(Oddity::Draft01) > 0).then_some("0.1"),
            describedby: texts(described_by),
            oddities: counts(&set.oddities),
            capabilities: documents.into_iter().map(offered).collect(),
            channels: channels
                .into_iter()
                .map(|offer| channel(offer, rules))
                .chain(unsupported)
                .collect(),
        }
    }
}

fn offered(advertised: &Offer, summaries: &DocumentSummaries) -> OfferReport {
    let seen = summaries.by_uri.get(&advertised.uri);
    let error = match seen {
        Some(Err(error)) => Some(status_error(error.code(), error)),
        Some(Ok(read)) => contradiction(&advertised.capability, &read.summary),
        None => None,
    };
    let read = seen.and_then(|seen| seen.as_ref().ok());
    OfferReport {
        capability: advertised.capability.to_string(),
        uri: advertised.uri.to_string(),
        looked_into: seen.is_some(),
        facts: read.map(|read| facts(&read.summary, &read.counts)),
        parts: read.and_then(|read| read.parts.as_ref()).map(parts),
        error,
    }
}

fn parts(tried: &TriedParts) -> PartsReport {
    let dead = tried.dead.iter().map(|(uri, error)| DeadPart {
        uri: uri.to_string(),
        error: status_error(error.code(), error),
    });
    PartsReport {
        dead_parts: dead.collect(),
        parts_not_tried: tried.left_out,
    }
}

/// The error that a document states another capability than it is advertised as.
fn contradiction(advertised: &Capability, summary: &DocumentSummary) -> Option<StatusError> {
    let stated = summary.head.md.capability.as_ref()?;
    let message = format!("advertised as {advertised}, but the document states {stated}");
    (stated != advertised).then(|| status_error("wrong-capability", &message))
}

fn facts(summary: &DocumentSummary, stated: &EntryCounts) -> DocumentFacts {
    let EntryCounts { types, collections } = stated.clone();
    let text = |time: Option<SourceTime>| time.map(|time| time.to_string());
    let (earliest, latest) = if summary.is_index {
        (summary.lists_from, summary.lists_until)
    } else {
        (summary.oldest, summary.newest)
    };
    DocumentFacts {
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
        types: types.counted,
        other_types: types.others,
        collections: collections.counted,
        other_collections: collections.others,
        oddities: counts(&summary.oddities),
    }
}

fn channel(advertised: &Offer, rules: &UsableChannels<'_>) -> AdvertisedChannel {
    let (transport, protocol) = (advertised.transport(), advertised.protocol.as_deref());
    AdvertisedChannel {
        kind: advertised.capability.to_string(),
        transport: transport.map(Transport::code),
        protocol: protocol.map(str::to_owned),
        topic: advertised.uri.to_string(),
        hubs: advertised.hubs.iter().map(ToString::to_string).collect(),
        error: transport.and_then(|transport| rules.check(transport, protocol)),
    }
}

fn unsupported_channel(channel: &Offer) -> AdvertisedChannel {
    let reason = match channel.uri.scheme() {
        "xmpp" => "XMPP without the name of a node",
        scheme => &format!("the scheme {scheme}"),
    };
    let text = format!("a transport that is not supported yet: {reason}");
    AdvertisedChannel {
        kind: channel.capability.to_string(),
        transport: None,
        protocol: channel.protocol.clone(),
        topic: channel.uri.to_string(),
        hubs: Vec::new(),
        error: Some(status_error("unsupported-transport", &text)),
    }
}

fn texts(uris: &[Url]) -> Vec<String> {
    uris.iter().map(Url::to_string).collect()
}

fn counts(oddities: &Oddities) -> OddityCounts {
    oddities
        .iter()
        .map(|(oddity, count)| (oddity.code(), count))
        .collect()
}

fn status_error(code: &str, error: &(impl Display + ?Sized)) -> StatusError {
    StatusError::new(code, error.to_string(), clock::now().wall)
}
