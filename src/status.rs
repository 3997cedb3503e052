//! The status of the daemon as plain data.
//!
//! Invariants: field names and codes are stable; text from outside stays on one line.
//!
//! Must not know any module but the protocol.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use resyncd_core::{Transport, one_line};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The longest error message, in bytes.
const MAX_MESSAGE: usize = 1024;

/// The status of the daemon.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Status {
    /// The version of the program.
    pub version: String,
    /// The node that answers, where the state is in a database on a server; absent where it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// When the daemon started.
    pub started_at: String,
    /// When the status was requested.
    pub now: String,
    /// The configuration in use.
    #[serde(default)]
    pub configuration: ConfigurationStatus,
    /// What of the daemon as a whole waits for a person.
    #[serde(default)]
    pub attention: Vec<Attention>,
    /// The Sources, in the order of the configuration.
    pub sources: Vec<SourceStatus>,
    /// The Sources that are not followed any more and were not forgotten: their files, and their rows in the database, stay.
    #[serde(default)]
    pub former_sources: Vec<FormerSource>,
    /// What is published; absent: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub publish: Option<PublishStatus>,
    /// The subscriptions of sets that are not followed any more, while they are being ended.
    #[serde(default)]
    pub unfollowed: Vec<UnfollowedStatus>,
    /// The hosts that were contacted, those that are slowed down or busy first; a bounded number.
    #[serde(default)]
    pub hosts: Vec<HostStatus>,
    /// How many requests that belong to no channel the listeners have rejected since the start, by code.
    #[serde(default)]
    pub refused: BTreeMap<String, u64>,
}

/// What waits for a person, with the Source and the set that it is about; `None`: it is about the daemon, or the Source as a whole.
pub type AttentionOf<'a> = (
    Option<&'a SourceStatus>,
    Option<&'a SetStatus>,
    &'a Attention,
);

impl Status {
    /// What waits for a person: of the daemon first, then of each Source and its sets.
    pub fn attentions(&self) -> impl Iterator<Item = AttentionOf<'_>> {
        let of_daemon = self.attention.iter().map(|found| (None, None, found));
        of_daemon.chain(self.sources.iter().flat_map(SourceStatus::attentions))
    }

    /// Whether anything waits for a person.
    #[must_use]
    pub fn needs_attention(&self) -> bool {
        self.attentions().next().is_some()
    }
}

/// The configuration in use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConfigurationStatus {
    /// When it was loaded: at the start, or by the last reload that succeeded.
    pub loaded_at: String,
    /// Why a later one was refused, until one is loaded.
    pub error: Option<StatusError>,
    /// The keys that a reload has found changed and that only a restart applies.
    pub restart_required: Vec<String>,
}

impl ConfigurationStatus {
    /// The code of the error of a configuration that a reload has refused.
    pub const REFUSED: &'static str = "configuration-refused";

    /// One that was loaded at that time.
    #[must_use]
    pub fn loaded(at: DateTime<Utc>, restart_required: Vec<String>) -> Self {
        Self {
            loaded_at: rfc3339(at),
            error: None,
            restart_required,
        }
    }
}

/// What is published.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PublishStatus {
    /// What each URI begins with.
    pub url: String,
    /// The sets that are published: of folders and of Sources, in the order of the configuration.
    pub sets: Vec<PublishedSetStatus>,
}

/// A set that is published.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PublishedSetStatus {
    /// The Source, or the folder.
    pub source: String,
    /// Its Capability List, as it is published.
    pub capability_list: String,
    /// How many resources it has.
    pub resources: u64,
    /// The time after which its changes are published.
    pub since: String,
    /// How many subscribers it has.
    pub subscribers: u64,
    /// Those that have not been told everything, the ones that are furthest behind first; a bounded number.
    pub behind: Vec<SubscriberStatus>,
}

/// A subscriber that has not been told everything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SubscriberStatus {
    /// The host of its callback.
    pub host: String,
    /// For how long it has not been told something, in seconds.
    pub seconds: u64,
    /// How many deliveries in a row it has not accepted.
    pub failures: u32,
}

/// A Source that is not followed any more and was not forgotten.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FormerSource {
    /// Its label.
    pub name: String,
    /// The entry point of discovery.
    pub url: Option<String>,
    /// The folder of its resources; `None`: any may be used.
    pub mirror: Option<String>,
    /// How many resources the mirror has; one of several sets counts in each.
    pub resources: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What was done to forget a Source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Forgotten {
    /// The label of the Source.
    pub source: String,
    /// The folder of its resources, if it is known.
    pub mirror: Option<String>,
    /// Resources of which the rows were deleted.
    pub resources: u64,
    /// Files that were deleted.
    pub deleted_files: u64,
    /// Their bytes.
    pub deleted_bytes: u64,
    /// Paths of resources at which something else is than a file, which was left alone.
    pub left: u64,
    /// The first of them.
    pub left_paths: Vec<String>,
    /// The subscriptions that were ended.
    pub subscriptions: Vec<UnsubscribeResult>,
}

/// How many requests a host gets at once. It is the same for all Sources.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HostStatus {
    /// Its scheme, name and port.
    pub origin: String,
    /// `HTTP/1.1` or `HTTP/2`, as it has answered last.
    pub protocol: Option<String>,
    /// Requests in progress, of all kinds.
    pub requests: u64,
    /// How many requests for resources it gets at once.
    pub at_once: u64,
    /// How many it gets when nothing slows them down.
    pub most: u64,
    /// Why it gets fewer: the last refusal or error that has lowered the number. Absent where fewer are needed.
    pub slowed: Option<StatusError>,
}

/// A subscription that is being ended: its set is not followed any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UnfollowedStatus {
    /// The label of the Source; it may not be in the configuration any more.
    pub source: String,
    /// The Capability List of the set.
    pub capability_list: String,
    /// Over what its notifications come: the stable name of a transport.
    #[serde(default)]
    pub transport: String,
    /// The topic.
    pub topic: String,
    /// The hub.
    pub hub: String,
    /// Why it could not be ended yet.
    pub error: Option<StatusError>,
}

/// The status of a Source.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct SourceStatus {
    /// Its label.
    pub name: String,
    /// The entry point of discovery.
    pub url: String,
    /// The folder of its resources.
    pub mirror: String,
    /// `discovering`, `ok` or `failing`.
    pub state: String,
    /// The current error.
    pub error: Option<StatusError>,
    /// What of the Source waits for a person; what of its sets does is in theirs.
    #[serde(default)]
    pub attention: Vec<Attention>,
    /// The sets that are followed.
    pub sets: Vec<SetStatus>,
    /// What is notable in its discovery, but keeps nothing from being in sync.
    #[serde(default)]
    pub notices: Vec<CountedError>,
    /// The documents that describe the Source.
    #[serde(default)]
    pub describedby: Vec<String>,
    /// Who gets its changes, in the order of the configuration.
    #[serde(default)]
    pub hooks: Vec<HookStatus>,
    /// The versions that it announces; absent where they are not stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub versions: Option<VersionsStatus>,
    /// Since when the Source fails; `None`: it does not.
    #[serde(default)]
    pub failing_since: Option<String>,
    /// When the Source was asked last.
    #[serde(default)]
    pub last_request_at: Option<String>,
    /// When it is tried next while it fails.
    #[serde(default)]
    pub next_try_at: Option<String>,
    /// Since when it is paused; `None`: it is not.
    #[serde(default)]
    pub paused_since: Option<String>,
    /// The node that follows it, where the state is in a database on a server; absent where it is not, or while none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Since when that node does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_since: Option<String>,
    /// The audits that the daemon makes; absent where there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit: Option<AuditStatus>,
}

/// The last audit of a Source by the daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditStatus {
    /// When it began; `None`: there was none.
    pub began_at: Option<String>,
    /// When it was done.
    pub ended_at: Option<String>,
    /// When the next one is due; `None`: none is.
    pub next_at: Option<String>,
    /// Whether the mirror was what the Source states, after the repair if there was one.
    pub in_sync: bool,
    /// Whether all documents could be read.
    pub whole: bool,
    /// Files that were compared.
    pub compared: u64,
    /// Those that are missing.
    pub missing: u64,
    /// Those that differ.
    pub altered: u64,
    /// Files that no document names.
    pub extra: u64,
    /// Resources that can't be fetched, and lists that can't be read.
    pub unreachable: u64,
    /// What was repaired.
    pub repaired: u64,
    /// Why it could not be completed.
    pub error: Option<StatusError>,
}

/// The status of the stored versions of a Source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VersionsStatus {
    /// Their folder.
    pub folder: String,
    /// How many are still to be stored, with the TimeMaps that are to be read.
    pub pending: u64,
    /// How many were given up.
    pub failed: u64,
    /// The last error of those that were given up.
    pub error: Option<StatusError>,
}

/// A version of a resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ResourceVersion {
    /// The label of the Source.
    pub source: String,
    /// The resource.
    pub uri: String,
    /// Its time; `None`: this is the TimeMap of the resource, which is to be read.
    pub at: Option<String>,
    /// `stored`, `pending` or `failed`.
    pub state: String,
    /// Its file, relative to the folder of versions; `None`: there is none.
    pub path: Option<String>,
    /// The length of the file, in bytes.
    pub length: Option<u64>,
    /// Why it is not stored.
    pub error: Option<VersionError>,
    /// When it is tried next.
    pub next_try_at: Option<String>,
}

/// Why a version is not stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VersionError {
    /// Its stable code, in kebab-case.
    pub code: String,
    /// The message.
    pub message: String,
}

/// The states of Sources and sets, the worst first.
pub const STATES: [&str; 7] = [
    "failing",
    "gap",
    "paused",
    "discovering",
    "baseline",
    "catching-up",
    "in-sync",
];

/// The place of a state among [`STATES`]: smaller numbers are worse.
#[must_use]
pub fn rank(state: &str) -> usize {
    let place = STATES.iter().position(|known| *known == state);
    place.unwrap_or(0)
}

impl SourceStatus {
    /// The state of the Source and its sets together, one of [`STATES`]: that of the Source unless it is `ok`, otherwise the worst of its
    /// sets. `ok`: it has none.
    #[must_use]
    pub fn state_with_sets(&self) -> &str {
        if self.paused_since.is_some() {
            return "paused";
        }
        let of_sets = self.sets.iter().map(|set| set.state.as_str());
        let worst = of_sets.min_by_key(|state| rank(state));
        match self.state.as_str() {
            "ok" => worst.unwrap_or("ok"),
            state => state,
        }
    }

    /// How far the set is behind that is the farthest behind; `None`: that is not known of one.
    #[must_use]
    pub fn behind(&self, now: Option<DateTime<Utc>>) -> Option<TimeDelta> {
        let behind = self.sets.iter().map(|set| set.behind(now));
        let farthest = behind.max_by_key(|behind| (behind.is_none(), *behind));
        farthest.flatten()
    }

    /// A number of its sets, summed up.
    pub fn sum(&self, number: fn(&SetStatus) -> u64) -> u64 {
        self.sets.iter().map(number).sum()
    }

    /// What of the Source waits for a person, and then what of its sets does.
    pub fn attentions(&self) -> impl Iterator<Item = AttentionOf<'_>> {
        let of_source = self.attention.iter();
        let of_source = of_source.map(move |found| (Some(self), None, found));
        let of_sets = self.sets.iter().flat_map(move |set| {
            let of_set = set.attention.iter();
            of_set.map(move |found| (Some(self), Some(set), found))
        });
        of_source.chain(of_sets)
    }

    /// The number up to which the deletions of its sets are held back that this status counts; `None`: it has no set. The sets may
    /// be of different moments: what was held back between them is left out.
    #[must_use]
    pub fn held_through(&self) -> Option<u64> {
        self.sets.iter().filter_map(|set| set.held_through).min()
    }
}

impl SetStatus {
    /// How far the set is behind the Source, as far as that is known: not at all if it is in sync, whatever time the Source has stated
    /// last; otherwise as far as the time up to which every change has been applied.
    #[must_use]
    pub fn behind(&self, now: Option<DateTime<Utc>>) -> Option<TimeDelta> {
        if self.state == "in-sync" {
            return Some(TimeDelta::zero());
        }
        let until: DateTime<Utc> = self.synced_until.as_ref()?.parse().ok()?;
        Some((now? - until).max(TimeDelta::zero()))
    }
}

/// The status of a hook.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HookStatus {
    /// Its name among the hooks of the Source.
    pub name: String,
    /// `command` or `url`.
    pub kind: String,
    /// The number of the feed up to which it has accepted everything; `None`: not known yet.
    pub position: Option<i64>,
    /// How many entries of the feed, of all Sources, follow that.
    pub behind: Option<u64>,
    /// Whether a run or a request is in progress.
    pub running: bool,
    /// How many runs and requests it has accepted since the start.
    pub accepted: u64,
    /// How many have failed since the start.
    pub failed: u64,
    /// When it last accepted something.
    pub last_accepted_at: Option<String>,
    /// Since when it fails.
    pub failing_since: Option<String>,
    /// Why the last run or request has failed.
    pub error: Option<StatusError>,
    /// When it is tried again.
    pub next_try_at: Option<String>,
    /// Whether its receiver wants no further requests: it is not tried again before it is changed, or the daemon started.
    pub stopped: bool,
}

impl HookStatus {
    /// `stopped`, `failing`, `running` or `waiting`.
    #[must_use]
    pub fn state(&self) -> &'static str {
        match (self.failing_since.is_some(), self.running) {
            _ if self.stopped => "stopped",
            (true, _) => "failing",
            (false, true) => "running",
            (false, false) => "waiting",
        }
    }
}

/// The status of a set of resources.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct SetStatus {
    /// Its Capability List.
    pub capability_list: String,
    /// `baseline`, `catching-up`, `in-sync`, `gap` or `failing`.
    pub state: String,
    /// What waits for a person, also of its channels.
    #[serde(default)]
    pub attention: Vec<Attention>,
    /// The Source's own time up to which every change is known to have been applied.
    pub synced_until: Option<String>,
    /// The newest time that the documents of the set state, by the Source's clock; `None`: they are not dated.
    #[serde(default)]
    pub newest_document_at: Option<String>,
    /// How long ago that was by this machine's clock, in seconds.
    #[serde(default)]
    pub seconds_since_newest_document: Option<u64>,
    /// Intervals of the Source's own time in which every change is known, oldest first: the newest ones, a bounded number.
    #[serde(default)]
    pub coverage: Vec<CoveredStatus>,
    /// Intervals in which changes are missing.
    pub gaps: Vec<GapStatus>,
    /// Such intervals that were closed since the start, oldest first: the last ones that were closed, a bounded number.
    #[serde(default)]
    pub closed_gaps: Vec<ClosedGapStatus>,
    /// How many of its resources the mirror has.
    pub resources: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Changes that are known and not applied yet.
    pub pending: u64,
    /// Changes that were given up for now: they are tried again with growing pauses.
    pub failed: u64,
    /// Resources that the Source has refused, or lacked, for a week, or that its robots.txt disallows. They are tried once a day, and do
    /// not keep the set from being in sync.
    #[serde(default)]
    pub unavailable: u64,
    /// Deletions that wait for approval.
    pub held_deletions: u64,
    /// No held-back deletion has a higher number; what is held back later gets one. `None`: a daemon of another version.
    #[serde(default)]
    pub held_through: Option<u64>,
    /// Deletions that a person has rejected: the files stay.
    #[serde(default)]
    pub rejected: u64,
    /// Its channels.
    pub channels: Vec<ChannelStatus>,
    /// When it was last polled.
    pub last_poll_at: Option<String>,
    /// When it will be polled next.
    pub next_poll_at: Option<String>,
    /// The current error: the most severe one of `errors`.
    pub error: Option<StatusError>,
    /// All current errors, one row a code; a bounded number.
    #[serde(default)]
    pub errors: Vec<CountedError>,
    /// What is notable, but does not keep the set from being in sync.
    #[serde(default)]
    pub notices: Vec<CountedError>,
    /// Resources whose entries state nothing about their content, and that are requested again because their list is new. Until
    /// then `synced_until` does not move.
    #[serde(default)]
    pub undated: u64,
    /// Entries of its documents that can't be read: what they name is unknown.
    #[serde(default)]
    pub unread: u64,
    /// How many parts of its indexes can't be read.
    #[serde(default)]
    pub dead_parts: u64,
    /// Changes that were applied by a patch since the start.
    #[serde(default)]
    pub patched: u64,
    /// Changes of resources that the mirror has, with a patch of a known type that was not used, since the start.
    #[serde(default, rename = "patch-missed")]
    pub patch_missed: u64,
    /// The documents that describe the set.
    #[serde(default)]
    pub describedby: Vec<String>,
    /// Deviations from the specification, of the documents that were read last.
    #[serde(default)]
    pub oddities: Vec<OddityStatus>,
    /// Since when the set fails; `None`: it does not.
    #[serde(default)]
    pub failing_since: Option<String>,
    /// When its documents were asked for last.
    #[serde(default)]
    pub last_request_at: Option<String>,
    /// When it is tried next while it fails.
    #[serde(default)]
    pub next_try_at: Option<String>,
}

/// How often a document has an oddity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OddityStatus {
    /// The document, or the topic of notifications.
    pub document: String,
    /// The stable code of the oddity.
    pub code: String,
    /// How often.
    pub count: u64,
}

/// An interval of the Source's time in which every change is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CoveredStatus {
    /// Its beginning, in the Source's time; `None`: every earlier change is known.
    pub from: Option<String>,
    /// Its end, in the Source's time.
    pub until: String,
}

/// An interval of the Source's time in which changes are missing.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct GapStatus {
    /// Its beginning, in the Source's time.
    pub from: String,
    /// Its end, in the Source's time.
    pub until: String,
    /// Why it opened.
    pub reason: String,
    /// When it was detected, in our time.
    pub since: String,
}

/// An interval of the Source's time in which no change is missing any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClosedGapStatus {
    /// Its beginning, in the Source's time.
    pub from: String,
    /// Its end, in the Source's time.
    pub until: String,
    /// Why the gap opened that it was, or that it was a part of.
    pub reason: String,
    /// When that was detected, in our time.
    pub since: String,
    /// When it was closed, in our time.
    pub closed_at: String,
}

/// The status of a channel.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ChannelStatus {
    /// `change-notification` or `framework-notification`.
    pub kind: String,
    /// Over what its notifications come: `websub`, `websocket`, `xmpp` or `callback`.
    #[serde(default = "websub")]
    pub transport: String,
    /// Its topic, or the URI of another transport.
    pub topic: String,
    /// The topic that the hub was asked for: what the topic calls itself may differ from what is advertised.
    #[serde(default)]
    pub subscribed_topic: String,
    /// Its hub: the one that was used last; empty while none is known, null where its transport has none.
    pub hub: Option<String>,
    /// `pending`, `active`, `denied`, `expired` or `unsubscribed`.
    pub state: String,
    /// What waits for a person.
    #[serde(default)]
    pub attention: Vec<Attention>,
    /// When the lease ends.
    pub lease_expires_at: Option<String>,
    /// When the lease will be renewed.
    pub renew_at: Option<String>,
    /// When the last delivery was received.
    pub last_notification_at: Option<String>,
    /// Deliveries that were accepted.
    pub received: u64,
    /// Notifications that were applied.
    pub applied: u64,
    /// Notifications without news.
    pub duplicate: u64,
    /// Deliveries that were rejected or could not be read.
    pub rejected: u64,
    /// Early notifications that wait for the one before them.
    pub held: u64,
    /// Gaps that opened.
    pub gaps: u64,
    /// Verifications of intent that were answered 404.
    #[serde(default)]
    pub rejected_verifications: u64,
    /// Deliveries in the inbox that are not processed yet.
    #[serde(default)]
    pub inbox: u64,
    /// Bytes of these deliveries.
    #[serde(default)]
    pub inbox_bytes: u64,
    /// The current error.
    pub error: Option<StatusError>,
}

/// The transport of a daemon that knows no other.
fn websub() -> String {
    Transport::Websub.code().to_owned()
}

/// What waits for a person: it does not pass by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Attention {
    /// Its stable code, in kebab-case.
    pub code: String,
    /// What is wrong.
    pub message: String,
    /// Since when it is so.
    pub since: String,
    /// What the operator does about it.
    pub next_step: String,
}

/// The codes of all attentions.
pub const ATTENTIONS: [&str; 21] = [
    "audit-findings",
    "channel-denied",
    "channel-expired",
    "channel-unconnected",
    "channel-unregistered",
    "channel-unverified",
    ConfigurationStatus::REFUSED,
    "database-row",
    "database-unwritable",
    "failed-resources",
    "held-deletions",
    "hook-failing",
    "hook-stopped",
    "mirror-unusable",
    "node-not-answering",
    "notify-failing",
    "public-url-unreachable",
    "source-paused",
    "stale",
    "too-many-former-sets",
    "versions-unusable",
];

impl Attention {
    /// An attention; a long message is cut, and control characters are escaped. `code`: one of [`ATTENTIONS`].
    #[must_use]
    pub fn new(code: &str, message: &str, since: String, next_step: &str) -> Self {
        debug_assert!(ATTENTIONS.contains(&code), "{code}");
        Self {
            code: code.to_owned(),
            message: one_line(message, MAX_MESSAGE),
            since,
            next_step: one_line(next_step, MAX_MESSAGE),
        }
    }
}

/// A resource whose change failed until it was given up, also while it is tried again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FailedResource {
    /// Its number: a page begins after one.
    pub id: i64,
    /// The label of the Source.
    pub source: String,
    /// The Capability List of the set that announced the change.
    pub set: String,
    /// The resource.
    pub uri: String,
    /// `created`, `updated` or `deleted`.
    pub change: String,
    /// The stable code of the last error.
    pub code: String,
    /// The last error, for a person.
    pub message: String,
    /// When the last error occurred.
    pub at: Option<String>,
    /// When the change was given up for the first time.
    pub since: String,
    /// When it is tried again.
    pub next_try_at: Option<String>,
    /// Whether the Source has refused the resource, or lacked it, for a week, or its robots.txt disallows it.
    #[serde(default)]
    pub unavailable: bool,
}

/// A deletion that is held back, or that a person has rejected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HeldDeletion {
    /// Its number: a page begins after one.
    pub id: i64,
    /// The label of the Source.
    pub source: String,
    /// The Capability List of the set that announced the deletion.
    pub set: String,
    /// The resource.
    pub uri: String,
    /// Its file, relative to the mirror; `None`: the mirror has none.
    pub path: Option<String>,
    /// The length of the file, in bytes.
    pub length: Option<u64>,
    /// When it was deleted, in the Source's time.
    pub changed_at: Option<String>,
    /// The kind of document that announced the deletion.
    pub origin: String,
    /// The number that it got when it was held back: all that were held back together have the same, and later ones higher ones.
    #[serde(default)]
    pub hold: u64,
    /// How many files go with it that only its entry and those of other deletions link to.
    #[serde(default)]
    pub linked: u64,
}

/// What a person has seen of the deletions of a Source that are held back, and decides about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SeenDeletions {
    /// How many there were. If more are held back, none is approved.
    pub held: Option<u64>,
    /// The number up to which they were held back. Those that were held back later stay so.
    pub through: Option<u64>,
}

/// The upper bounds of the classes of delays, in seconds; the last class has none.
pub const DELAY_BOUNDS: [f64; 12] = [
    0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 21_600.0, 86_400.0,
];

/// How many changes were applied in a stretch of time, in our time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AppliedCounts {
    /// Resources that were created.
    pub created: u64,
    /// Resources that were updated.
    pub updated: u64,
    /// Resources that were deleted.
    pub deleted: u64,
    /// How many of those that a document of changes has announced were applied how long after the change, in the classes of
    /// [`DELAY_BOUNDS`].
    pub delays: [u64; DELAY_BOUNDS.len() + 1],
}

impl AppliedCounts {
    /// Adds those of another Source.
    pub fn add(&mut self, other: &Self) {
        self.created += other.created;
        self.updated += other.updated;
        self.deleted += other.deleted;
        for (sum, count) in self.delays.iter_mut().zip(&other.delays) {
            *sum += count;
        }
    }

    /// All changes.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.created + self.updated + self.deleted
    }
}

/// What was applied in the last hour and in the last day: the columns of two diagrams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Activity {
    /// Since when everything is counted.
    pub since: DateTime<Utc>,
    /// The end of the last column of each.
    pub until: DateTime<Utc>,
    /// The last hour, a minute each, oldest first.
    pub hour: Vec<AppliedCounts>,
    /// The last day, a quarter of an hour each, oldest first.
    pub day: Vec<AppliedCounts>,
}

/// How long after a change it was applied, where a document of changes has announced it: the `origin`. What a list states may have
/// happened long before the mirror was begun. The Source's clock may be ahead of ours.
#[must_use]
pub fn apply_delay(
    origin: &str,
    changed_at: Option<DateTime<Utc>>,
    applied_at: DateTime<Utc>,
) -> Option<Duration> {
    let is_announced = matches!(origin, "notification" | "change-list" | "change-dump");
    let changed_at = changed_at.filter(|_| is_announced)?;
    Some((applied_at - changed_at).to_std().unwrap_or_default())
}

/// A page of a list of resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// The number of the last resource before the page; 0: it is the first page.
    pub after: i64,
    /// How many resources it has at most.
    pub limit: usize,
}

/// An error as the status reports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StatusError {
    /// Its stable code, in kebab-case.
    pub code: String,
    /// The explanation for the operator.
    pub message: String,
    /// When it occurred.
    pub at: String,
}

impl StatusError {
    /// An error that occurred at `at`; a long message is cut, and control characters are escaped.
    #[must_use]
    pub fn new(code: &str, message: impl Into<String>, at: DateTime<Utc>) -> Self {
        Self {
            code: code.to_owned(),
            message: one_line(&message.into(), MAX_MESSAGE),
            at: rfc3339(at),
        }
    }
}

/// The errors of one code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CountedError {
    /// Their stable code, in kebab-case.
    pub code: String,
    /// The explanation of the first one.
    pub message: String,
    /// When the first one occurred.
    pub at: String,
    /// How many there are.
    pub count: u64,
}

impl CountedError {
    /// So many errors, of which the first one is given.
    #[must_use]
    pub fn new(first: StatusError, count: u64) -> Self {
        Self {
            code: first.code,
            message: first.message,
            at: first.at,
            count,
        }
    }

    /// The first error, and how many there are.
    #[must_use]
    pub fn split(self) -> (StatusError, u64) {
        let first = StatusError {
            code: self.code,
            message: self.message,
            at: self.at,
        };
        (first, self.count)
    }
}

/// The result of ending a subscription.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UnsubscribeResult {
    /// The label of the Source.
    pub source: String,
    /// Over what its notifications come: the stable name of a transport. Empty: the subscriptions can't be read.
    #[serde(default)]
    pub transport: String,
    /// The topic.
    pub topic: String,
    /// The hub.
    pub hub: String,
    /// Whether the hub has confirmed the end.
    pub confirmed: bool,
    /// The hub's answer, or why there is none.
    pub message: String,
}

/// Formats a moment as RFC 3339 in UTC.
#[must_use]
pub fn rfc3339(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::AutoSi, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_is_known_of_announced_changes_only() {
        let at = |seconds| DateTime::UNIX_EPOCH + TimeDelta::seconds(seconds);
        let second = Some(Duration::from_secs(1));
        for (origin, changed_at, expected) in [
            ("notification", Some(at(4)), second),
            ("change-list", Some(at(4)), second),
            ("change-dump", Some(at(4)), second),
            ("notification", Some(at(6)), Some(Duration::ZERO)),
            ("notification", None, None),
            ("resource-list", Some(at(4)), None),
            ("resource-dump", Some(at(4)), None),
            ("audit", Some(at(4)), None),
        ] {
            assert_eq!(apply_delay(origin, changed_at, at(5)), expected, "{origin}");
        }
    }

    #[test]
    fn long_message_is_cut_and_on_one_line() {
        let status_error = StatusError::new("any", "x\n".repeat(10_000), DateTime::UNIX_EPOCH);
        assert!(status_error.message.len() < 2 * MAX_MESSAGE);
        assert!(!status_error.message.contains('\n'));
    }
}
