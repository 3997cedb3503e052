//! What waits for a person, with the next step: what does not pass by itself, or not soon.
//!
//! Invariants: the functions are pure: the same facts give the same result. Codes are stable, and those of a fixed list: they are
//! labels of metrics.
//!
//! Must not know where the facts come from, nor how they are shown.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use resyncd_core::{ChannelState, NOT_VERIFIED, Transport};
use resyncd_mirror::{CASE_INSENSITIVE, NOT_MOUNTED};

use super::pausing::SOURCE_PAUSED;
use super::runtime_status::HookFacts;
use crate::status::{Attention, AuditStatus, ConfigurationStatus, StatusError, rfc3339};
use crate::store::{SetStatistics, WriteFailure};

/// Files are not what the Source states.
const AUDIT_FINDINGS: &str = "audit-findings";
/// Deletions wait for approval.
const HELD_DELETIONS: &str = "held-deletions";
/// Changes were given up.
const FAILED_RESOURCES: &str = "failed-resources";
/// Nothing newer was published for long.
const STALE: &str = "stale";
/// A hub does not verify a subscription.
const CHANNEL_UNVERIFIED: &str = "channel-unverified";
/// A hub denies a subscription.
const CHANNEL_DENIED: &str = "channel-denied";
/// A subscription has ended, and is not renewed.
const CHANNEL_EXPIRED: &str = "channel-expired";
/// A channel over a connection has none.
const CHANNEL_UNCONNECTED: &str = "channel-unconnected";
const CHANNEL_UNREGISTERED: &str = "channel-unregistered";
/// The mirror can't be opened or written.
const MIRROR_UNUSABLE: &str = "mirror-unusable";
/// Former sets take the places of others.
const TOO_MANY_FORMER_SETS: &str = "too-many-former-sets";
/// The code of a folder of versions that can't be used.
const VERSIONS_UNUSABLE: &str = "versions-unusable";

/// A hook fails.
const HOOK_FAILING: &str = "hook-failing";
/// The receiver of a hook wants no more.
const HOOK_STOPPED: &str = "hook-stopped";

/// A message to people is not accepted.
const NOTIFY_FAILING: &str = "notify-failing";

const NODE_NOT_ANSWERING: &str = "node-not-answering";

/// The database can't be written.
const DATABASE_UNWRITABLE: &str = "database-unwritable";
/// A row of the database can't be read.
pub(super) const DATABASE_ROW: &str = "database-row";

/// How many tries of a hook may fail in a row: a receiver that is restarted needs no person.
const HOOK_TRIES: u32 = 3;
/// How long a subscription may be unverified, or expired: several requests have failed by then.
const UNVERIFIED_AFTER: TimeDelta = TimeDelta::minutes(10);

/// A channel that is subscribed to.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChannelNeeds<'a> {
    /// Its topic.
    pub(super) topic: &'a str,
    /// Over what its notifications come.
    pub(super) transport: Transport,
    /// The server of the XMPP account; `None`: there is no account.
    pub(super) server: Option<&'a str>,
    /// The hub that was asked last; empty: none is known.
    pub(super) hub: &'a str,
    /// The state of its subscription.
    pub(super) state: ChannelState,
    /// Since when a subscription was requested and not verified, or has expired.
    pub(super) unverified_since: Option<DateTime<Utc>>,
    /// When the hub has denied the subscription.
    pub(super) denied_at: Option<DateTime<Utc>>,
    /// Its current error.
    pub(super) error: Option<&'a StatusError>,
}

impl ChannelNeeds<'_> {
    /// The end of a message: the current error.
    fn reason(&self) -> String {
        self.error.map_or_else(String::new, |error| {
            format!(": {} [{}]", error.message, error.code)
        })
    }
}

/// What of a Source waits for a person that one has paused, since when.
pub(super) fn of_pause(source: &str, since: DateTime<Utc>) -> Attention {
    let message =
        "the Source is paused: nothing is requested of it, and its subscriptions are not renewed";
    let next_step = format!("`resyncd resume {source}` resumes it");
    Attention::new(SOURCE_PAUSED, message, rfc3339(since), &next_step)
}

/// What an audit of a Source has found that waits for a person.
pub(super) fn of_audit(source: &str, audit: &AuditStatus) -> Option<Attention> {
    let AuditStatus {
        compared,
        missing,
        altered,
        extra,
        ..
    } = audit;
    if missing + altered + extra == 0 {
        return None;
    }
    let message = format!(
        "an audit has compared {compared} files: {missing} are missing, {altered} altered, and {extra} are not of the Source"
    );
    let next_step = format!(
        "`resyncd audit {source}` lists them, `resyncd audit {source} --repair` fetches what is missing or altered, and with \
         `--delete-extra` also removes what is not of the Source"
    );
    let since = audit.ended_at.clone().unwrap_or_default();
    Some(Attention::new(AUDIT_FINDINGS, &message, since, &next_step))
}

/// What of a set waits for a person, without its channels. `source`: the label of its Source.
pub(super) fn of_set(source: &str, set: &SetStatistics) -> Vec<Attention> {
    let held = (set.held_deletions > 0).then(|| {
        let message = format!(
            "{} held back: the Source deletes too many resources at once, or lists none",
            counted(set.held_deletions, "deletion is", "deletions are")
        );
        let next_step = format!(
            "look at them with `resyncd approve {source} --list`; then `resyncd approve {source}` approves them, and \
             `resyncd approve {source} --reject` rejects them: the files stay"
        );
        let since = set.held_since.map(rfc3339).unwrap_or_default();
        Attention::new(HELD_DELETIONS, &message, since, &next_step)
    });
    let failed = set.given_up_since.map(|since| {
        let message = match set.failed {
            0 => "changes that were given up are being tried again".to_owned(),
            failed => format!(
                "{} given up, to be tried again with growing pauses",
                counted(failed, "change is", "changes are")
            ),
        };
        let next_step = format!(
            "look at the reasons with `resyncd failed {source}`; `resyncd retry {source}` tries again at once"
        );
        Attention::new(FAILED_RESOURCES, &message, rfc3339(since), &next_step)
    });
    held.into_iter().chain(failed).collect()
}

/// Whether a set waits for a person because the newest time of its documents, which is of that `age`, is older than `after`.
pub(super) fn of_stale_set(
    after: Duration,
    age: Duration,
    now: DateTime<Utc>,
) -> Option<Attention> {
    let over = age.checked_sub(after).filter(|over| !over.is_zero())?;
    let since = TimeDelta::from_std(over).ok()?;
    let message = format!(
        "nothing newer was published for {} s (stale_after: {} s): the Source rests, or somebody withholds its changes",
        age.as_secs(),
        after.as_secs()
    );
    let next_step = "compare `newest_document_at` with what the Source shows to others, or ask its operator; raise `stale_after` if it \
                     rests for longer";
    Some(Attention::new(
        STALE,
        &message,
        rfc3339(now - since),
        next_step,
    ))
}

/// What of a channel waits for a person.
pub(super) fn of_channel(channel: &ChannelNeeds<'_>, now: DateTime<Utc>) -> Option<Attention> {
    if !channel.transport.has_hubs() {
        return of_connection(channel, now);
    }
    let is_known = !channel.hub.is_empty();
    let hub = match channel.hub {
        "" => "no hub".to_owned(),
        hub => format!("the hub {hub}"),
    };
    let not = if is_known { "not " } else { "" };
    let (topic, reason) = (channel.topic, channel.reason());
    let lasts = |since: &DateTime<Utc>| now - *since >= UNVERIFIED_AFTER;
    let reachable = "check that the hub can reach `public_url` of [callback] (DNS, reverse proxy, firewall); changes are found by \
                     polling meanwhile";
    let lasting = channel.unverified_since.filter(lasts);
    let silent = channel.error.filter(|error| error.code == NOT_VERIFIED);
    let (code, message, since, next_step) = match (channel.state, silent, lasting) {
        (ChannelState::Denied, ..) => (
            CHANNEL_DENIED,
            format!("{hub} denies the subscription of {topic}{reason}"),
            channel.denied_at.map(rfc3339),
            "ask the operator of the hub; it is asked again by itself, and changes are found by polling meanwhile",
        ),
        // Also where the subscription runs still: it is not renewed.
        (_, Some(error), _) if is_known => (
            CHANNEL_UNVERIFIED,
            format!(
                "{hub} has accepted the subscription of {topic} and has not called back{reason}"
            ),
            Some(
                channel
                    .unverified_since
                    .map_or_else(|| error.at.clone(), rfc3339),
            ),
            reachable,
        ),
        (ChannelState::Expired, _, Some(since)) => (
            CHANNEL_EXPIRED,
            format!("the subscription of {topic} has ended, and {hub} has {not}renewed it{reason}"),
            Some(rfc3339(since)),
            reachable,
        ),
        (_, _, Some(since)) => (
            CHANNEL_UNVERIFIED,
            format!("{hub} has {not}verified the subscription of {topic}{reason}"),
            Some(rfc3339(since)),
            reachable,
        ),
        (_, _, None) => return None,
    };
    let since = since.unwrap_or_default();
    Some(Attention::new(code, &message, since, next_step))
}

/// What of a channel without a hub waits for a person.
fn of_connection(channel: &ChannelNeeds<'_>, now: DateTime<Utc>) -> Option<Attention> {
    let since = channel.unverified_since?;
    if now - since < UNVERIFIED_AFTER {
        return None;
    }
    let (topic, reason) = (channel.topic, channel.reason());
    let is_connection = !channel.transport.has_callback();
    let (code, message) = match channel.state {
        _ if !is_connection => (
            CHANNEL_UNREGISTERED,
            format!("the callback is not registered at {topic}{reason}"),
        ),
        _ if channel.transport.needs_account() => (
            CHANNEL_UNCONNECTED,
            format!("there is no session of the XMPP account for {topic}{reason}"),
        ),
        ChannelState::Expired => (
            CHANNEL_UNCONNECTED,
            format!("the connection to {topic} is lost{reason}"),
        ),
        _ => (
            CHANNEL_UNCONNECTED,
            format!("there is no connection to {topic}{reason}"),
        ),
    };
    let check = match channel.server.filter(|_| channel.transport.needs_account()) {
        Some(server) => format!(
            "check `jid` and the password of [xmpp], and that this machine can reach its server {server} (DNS, firewall)"
        ),
        None if channel.transport.needs_account() => "set [xmpp] jid to an account".to_owned(),
        None => "check that this machine can reach it (DNS, firewall, proxy)".to_owned(),
    };
    let next_step = format!(
        "{check}, or ask the operator of the Source; it is tried again by itself, and changes are found by polling meanwhile"
    );
    let since = rfc3339(since);
    Some(Attention::new(code, &message, since, &next_step))
}

/// What to do about an object store that can't be used.
const OBJECTS_FAIL: &str = "check the URL, [objects] or the variables in its place, and that the service answers this machine";

/// What of a mirror waits for a person. `error`: why it can't be opened or written, and since when.
pub(super) fn of_mirror(mirror: &str, error: Option<&StatusError>) -> Option<Attention> {
    error.map(|StatusError { code, message, at }| {
        let next_step = match code.as_str() {
            "disk-full" => "free space or inodes (`df -i`) on the file system of the mirror, or raise the quota",
            "read-only" => "mount the file system of the mirror so that it can be written",
            "mirror-locked" => {
                "stop the other process that uses the mirror, or give the Source a mirror of its own"
            }
            "mirror-missing" => NOT_MOUNTED,
            "mirror-case-insensitive" => CASE_INSENSITIVE,
            "object-store" => OBJECTS_FAIL,
            _ => "check that the file system of the mirror is mounted, and that the user of resyncd may write to the folder",
        };
        let message = format!("the mirror {mirror} cannot be used: {message} [{code}]");
        let next_step = format!("{next_step}; resyncd goes on by itself then");
        Attention::new(MIRROR_UNUSABLE, &message, at.clone(), &next_step)
    })
}

/// What of the sets of a Source waits for a person, where some are not followed because there are too many, and former ones are among those that
/// count. `source`: its label; `since`: when that was found.
pub(super) fn of_former_sets(source: &str, former: usize, since: &str) -> Attention {
    let message = format!(
        "sets are not followed because `[limits] sets` is reached, and {} have files still",
        counted(
            former as u64,
            "set that is not followed any more",
            "sets that are not followed any more"
        )
    );
    let next_step = format!(
        "`resyncd forget {source} --former-sets` deletes their files; or raise `[limits] sets`, or name the wanted sets in `sets`"
    );
    Attention::new(TOO_MANY_FORMER_SETS, &message, since.to_owned(), &next_step)
}

/// What of a folder of versions waits for a person. `error`: why it can't be used, and since when.
pub(super) fn of_versions(error: Option<&StatusError>) -> Option<Attention> {
    let StatusError { code, message, at } = error?;
    let next_step = match code.as_str() {
        "disk-full" => "free space or inodes (`df -i`) on its file system, or raise the quota",
        "read-only" => "mount its file system so that it can be written",
        "mirror-locked" => {
            "stop the other process that uses it, or give the Source a folder of its own"
        }
        "mirror-case-insensitive" => CASE_INSENSITIVE,
        "object-store" => OBJECTS_FAIL,
        "versions-missing" => {
            "mount its disk; if it is to begin anew, create the folder `.resyncd` in it, or set `versions` to another folder"
        }
        _ => "check that its file system is mounted, and that the user of resyncd may write to it",
    };
    let next_step = format!("{next_step}; resyncd goes on by itself then");
    let message = format!("{message} [{code}]");
    Some(Attention::new(
        VERSIONS_UNUSABLE,
        &message,
        at.clone(),
        &next_step,
    ))
}

/// What of a hook waits for a person.
pub(super) fn of_hook(facts: &HookFacts) -> Option<Attention> {
    let HookFacts {
        status, failures, ..
    } = facts;
    let (name, since, error) = (
        &status.name,
        status.failing_since.clone()?,
        status.error.as_ref()?,
    );
    let (code, message, next_step) = if status.stopped {
        (
            HOOK_STOPPED,
            format!(
                "the hook {name} is stopped: {} [{}]",
                error.message, error.code
            ),
            "remove it from the configuration, or correct its `url`, and reload it: `systemctl reload resyncd`; a restart tries it again",
        )
    } else if *failures >= HOOK_TRIES {
        (
            HOOK_FAILING,
            format!(
                "the hook {name} has failed {failures} times in a row: {} [{}]",
                error.message, error.code
            ),
            "correct what it runs or requests; it is tried again by itself, and gets everything since it last succeeded",
        )
    } else {
        return None;
    };
    Some(Attention::new(code, &message, since, next_step))
}

/// What of a `[[notify]]` waits for a person: its name, why its messages are not accepted, and since when.
pub(super) fn of_notify((name, error): (&String, &StatusError)) -> Attention {
    let StatusError { code, message, at } = error;
    let message = format!("the messages of [[notify]] {name} are not accepted: {message} [{code}]");
    let next_step = format!(
        "correct it in the configuration, and try it with `resyncd notify --test {name}`; what was not told is tried again"
    );
    Attention::new(NOTIFY_FAILING, &message, at.clone(), &next_step)
}

/// What of a Source waits for a person of which a row can't be read. `error`: why, and since when.
pub(super) fn of_row(error: &StatusError) -> Attention {
    let StatusError { code, message, at } = error;
    let message = format!("a row of the Source cannot be read: {message} [{code}]");
    let next_step = "check the disk and the memory; then stop resyncd, and replace resyncd.db in `state_dir` with a backup, or move it \
                     away: it is rebuilt from the mirrors and the Sources";
    Attention::new(DATABASE_ROW, &message, at.clone(), next_step)
}

/// What of the configuration waits for a person.
pub(super) fn of_configuration(configuration: &ConfigurationStatus) -> Option<Attention> {
    configuration.error.as_ref().map(|error| {
        let message = format!(
            "the configuration was not reloaded, the former one is in use: {}",
            error.message
        );
        let next_step = "correct it (`resyncd check` shows every fault) and reload it: `systemctl reload resyncd`; until then the \
                         daemon may not start again";
        Attention::new(ConfigurationStatus::REFUSED, &message, error.at.clone(), next_step)
    })
}

/// Another node works on the database, and does not answer.
pub(super) fn of_node(node: &str, now: DateTime<Utc>) -> Attention {
    let message =
        format!("the node {node} does not answer; of its Sources is shown what the database has");
    let next_step =
        "`resyncd nodes` says whether it works still; its log says why it does not answer";
    Attention::new(NODE_NOT_ANSWERING, &message, rfc3339(now), next_step)
}

/// What of the database waits for a person. `failure`: why it can't be written.
pub(super) fn of_database(failure: &WriteFailure) -> Attention {
    let WriteFailure {
        code,
        message,
        since,
    } = failure;
    let next_step = match *code {
        "disk-full" => "free space on the file system of state_dir, or raise the quota",
        "database-read-only" => "mount the file system of state_dir so that it can be written",
        _ => {
            "check that the file system of state_dir is mounted and sound, that the user of resyncd may write to it, and that no \
             other program has locked the database"
        }
    };
    let next_step = format!(
        "{next_step}; resyncd goes on by itself then, and hubs repeat what they could not deliver"
    );
    let message = format!("the database can't be written: {message} [{code}]");
    Attention::new(DATABASE_UNWRITABLE, &message, rfc3339(*since), &next_step)
}

/// What of the public URL waits for a person, if it does not lead here. `error`: why, and since when.
pub(super) fn of_public_url(error: &StatusError) -> Attention {
    let next_step = "check its name in the DNS, the reverse proxy and the firewall: `resyncd check --environment` tries it again; \
                     hubs can deliver nothing until then, and changes are found by polling";
    Attention::new(&error.code, &error.message, error.at.clone(), next_step)
}

fn counted(count: u64, one: &str, several: &str) -> String {
    let counted = if count == 1 { one } else { several };
    format!("{count} {counted}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::HookStatus;

    fn at(minutes: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::minutes(minutes)
    }

    /// The code, a part of the message, a part of the next step, and since when.
    type ExpectedLine = (&'static str, &'static str, &'static str, i64);

    #[track_caller]
    fn check(found: &[Attention], expected: &[ExpectedLine]) {
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        for (found, (code, message, next_step, since)) in found.iter().zip(expected) {
            assert_eq!(found.code, *code);
            assert!(found.message.contains(message), "{found:#?}");
            assert!(found.next_step.contains(next_step), "{found:#?}");
            assert_eq!(found.since, rfc3339(at(*since)), "{found:#?}");
        }
    }

    #[test]
    fn set_waits_for_a_person_while_deletions_are_held_back_or_changes_given_up() {
        const HELD: ExpectedLine = (
            "held-deletions",
            "150 deletions are held back",
            "`resyncd approve example --list`",
            1,
        );
        const FAILED: ExpectedLine = (
            "failed-resources",
            "1 change is given up",
            "`resyncd retry example`",
            2,
        );
        const RETRIED: ExpectedLine = (
            "failed-resources",
            "being tried again",
            "`resyncd failed example`",
            2,
        );
        for (held_deletions, failed, given_up, expected) in [
            (0, 0, None, &[][..]),
            (150, 0, None, &[HELD]),
            (0, 1, Some(2), &[FAILED]),
            // A poll tries again what was given up: the attention does not come and go with each.
            (0, 0, Some(2), &[RETRIED]),
            (150, 1, Some(2), &[HELD, FAILED]),
        ] {
            let set = SetStatistics {
                held_deletions,
                held_since: Some(at(1)),
                failed,
                given_up_since: given_up.map(at),
                ..SetStatistics::default()
            };
            check(&of_set("example", &set), expected);
        }
    }

    #[test]
    fn channel_waits_for_a_person_once_it_was_unverified_or_expired_for_long() {
        use ChannelState::{Active, Denied, Expired, Pending};
        let refused = StatusError::new("connect", "connection refused", at(9));
        let silent = StatusError::new("not-verified", "answered 202", at(9));
        const HUB: &str = "https://hub.example/";
        const LONG: ExpectedLine = (
            "channel-unverified",
            "the hub https://hub.example/ has not verified the subscription of https://example.org/topic",
            "`public_url`",
            5,
        );
        const REASON: ExpectedLine = (
            "channel-unverified",
            "topic: connection refused [connect]",
            "public_url",
            5,
        );
        const NO_HUB: ExpectedLine = ("channel-unverified", "no hub has verified", "public_url", 5);
        const SILENT: ExpectedLine = (
            "channel-unverified",
            "has accepted the subscription of https://example.org/topic and has not called back: answered 202 [not-verified]",
            "`public_url`",
            5,
        );
        const DENIED: ExpectedLine = (
            "channel-denied",
            "the hub https://hub.example/ denies the subscription of https://example.org/topic: connection refused",
            "operator of the hub",
            7,
        );
        const EXPIRED: ExpectedLine = (
            "channel-expired",
            "the subscription of https://example.org/topic has ended, and the hub https://hub.example/ has not renewed it",
            "`public_url`",
            5,
        );
        let since_9 = |mut expected: ExpectedLine| {
            expected.3 = 9;
            expected
        };
        for (state, hub, since, error, now, expected) in [
            (Pending, HUB, Some(5), None, 5, &[][..]),
            (Pending, HUB, Some(5), Some(&refused), 14, &[]),
            (Pending, HUB, Some(5), None, 15, &[LONG]),
            (Pending, HUB, Some(5), Some(&refused), 15, &[REASON]),
            (Pending, "", Some(5), None, 99, &[NO_HUB]),
            // The clock was set back.
            (Pending, HUB, Some(5), None, 0, &[]),
            // The time that the hub had to call back is over.
            (Pending, HUB, Some(5), Some(&silent), 10, &[SILENT]),
            (Active, HUB, None, Some(&silent), 10, &[since_9(SILENT)]),
            (Active, HUB, None, Some(&refused), 99, &[]),
            (Denied, HUB, None, Some(&refused), 10, &[DENIED]),
            (Expired, HUB, Some(5), None, 14, &[]),
            (Expired, HUB, Some(5), None, 15, &[EXPIRED]),
        ] {
            let channel = ChannelNeeds {
                topic: "https://example.org/topic",
                transport: Transport::Websub,
                server: None,
                hub,
                state,
                unverified_since: since.map(at),
                denied_at: Some(at(7)),
                error,
            };
            let found: Vec<_> = of_channel(&channel, at(now)).into_iter().collect();
            check(&found, expected);
        }
    }

    #[test]
    fn connection_waits_for_a_person_once_it_was_missing_for_long() {
        use ChannelState::{Active, Expired, Pending};
        let refused = StatusError::new("connect", "connection refused", at(9));
        const MISSING: ExpectedLine = (
            "channel-unconnected",
            "there is no connection to wss://example.org/changes: connection refused [connect]",
            "firewall",
            5,
        );
        const LOST: ExpectedLine = (
            "channel-unconnected",
            "the connection to wss://example.org/changes is lost",
            "polling",
            5,
        );
        const UNREGISTERED: ExpectedLine = (
            "channel-unregistered",
            "the callback is not registered at wss://example.org/changes: connection refused [connect]",
            "operator of the Source",
            5,
        );
        let (websocket, callback) = (Transport::Websocket, Transport::Callback);
        const NO_SESSION: ExpectedLine = (
            "channel-unconnected",
            "there is no session of the XMPP account for wss://example.org/changes: connection refused [connect]",
            "[xmpp], and that this machine can reach its server xmpp.example.org",
            5,
        );
        for (transport, state, since, now, expected) in [
            (Transport::Xmpp, Expired, Some(5), 15, &[NO_SESSION][..]),
            (websocket, Pending, Some(5), 14, &[]),
            (websocket, Pending, Some(5), 15, &[MISSING]),
            (websocket, Expired, Some(5), 15, &[LOST]),
            (websocket, Active, None, 99, &[]),
            (callback, Pending, Some(5), 14, &[]),
            (callback, Pending, Some(5), 15, &[UNREGISTERED]),
            (callback, Expired, Some(5), 15, &[UNREGISTERED]),
        ] {
            let channel = ChannelNeeds {
                topic: "wss://example.org/changes",
                transport,
                server: Some("xmpp.example.org"),
                hub: "",
                state,
                unverified_since: since.map(at),
                denied_at: None,
                error: Some(&refused),
            };
            let found: Vec<_> = of_channel(&channel, at(now)).into_iter().collect();
            check(&found, expected);
        }
    }

    #[test]
    fn hook_waits_for_a_person_once_it_has_failed_several_times_or_was_stopped() {
        const FAILING: ExpectedLine = (
            "hook-failing",
            "the hook index has failed 3 times in a row: exit status: 3: no such host [command-failed]",
            "tried again",
            5,
        );
        const STOPPED: ExpectedLine = ("hook-stopped", "the hook index is stopped", "reload", 5);
        for (failures, is_stopped, expected) in [
            (1, false, &[][..]),
            (2, false, &[]),
            (3, false, &[FAILING]),
            (1, true, &[STOPPED]),
        ] {
            let error = StatusError::new("command-failed", "exit status: 3: no such host", at(9));
            let status = HookStatus {
                name: "index".to_owned(),
                failing_since: Some(rfc3339(at(5))),
                error: Some(error),
                stopped: is_stopped,
                ..HookStatus::default()
            };
            let hook = HookFacts {
                status,
                failures,
                ..HookFacts::default()
            };
            let found: Vec<_> = of_hook(&hook).into_iter().collect();
            check(&found, expected);
        }
    }

    #[test]
    fn mirror_waits_for_a_person_while_it_cannot_be_used() {
        assert_eq!(of_mirror("/srv/mirror", None), None);
        for (code, next_step) in [
            ("disk-full", "free space"),
            ("read-only", "mount"),
            ("mirror-locked", "other process"),
            ("mirror-case-insensitive", "such as ext4"),
            ("io", "is mounted"),
            ("path-blocked", "may write"),
        ] {
            let error = StatusError::new(code, "creating /srv/mirror: it failed", at(3));
            let found: Vec<_> = of_mirror("/srv/mirror", Some(&error)).into_iter().collect();
            let expected = (
                "mirror-unusable",
                "the mirror /srv/mirror cannot be used: creating /srv/mirror: it failed [",
                next_step,
                3,
            );
            check(&found, &[expected]);
        }
    }
}
