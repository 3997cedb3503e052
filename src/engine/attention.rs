//! What waits for a person, with the next step: what does not pass by itself, or not soon.
//!
//! Invariants: the functions are pure: the same facts give the same result. Codes are stable, and those of a fixed list: they are
//! labels of metrics.
//!
//! Must not know where the facts come from, nor how they are shown.

use chrono::{DateTime, TimeDelta, Utc};

use crate::mirror::NOT_MOUNTED;
use crate::status::{Attention, ConfigurationStatus, StatusError, rfc3339};

/// Deletions wait for approval.
const HELD_DELETIONS: &str = "held-deletions";
/// Changes were given up.
const FAILED_RESOURCES: &str = "failed-resources";
/// A hub does not verify a subscription.
const CHANNEL_UNVERIFIED: &str = "channel-unverified";
/// A configuration was refused by a reload.
const CONFIGURATION_REFUSED: &str = "configuration-refused";
/// The mirror can't be opened or written.
const MIRROR_UNUSABLE: &str = "mirror-unusable";

/// How long a subscription may be unverified: several requests have failed by then.
const UNVERIFIED_AFTER: TimeDelta = TimeDelta::minutes(10);

/// The facts of a set.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SetNeeds {
    /// Deletions that are held back.
    pub(super) held_deletions: u64,
    /// Since when there are any.
    pub(super) held_since: Option<DateTime<Utc>>,
    /// Changes that are given up until the next poll.
    pub(super) failed: u64,
    /// When the first change was given up of those that were not applied since, also while they are tried again.
    pub(super) given_up_since: Option<DateTime<Utc>>,
}

/// A channel that is subscribed to and not verified.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnverifiedChannel<'a> {
    /// Its topic.
    pub(super) topic: &'a str,
    /// The hub that was asked last; empty: none is known.
    pub(super) hub: &'a str,
    /// Since when it was requested.
    pub(super) since: DateTime<Utc>,
    /// Its current error.
    pub(super) error: Option<&'a StatusError>,
}

/// What of a set waits for a person, without its channels. `source`: the label of its Source.
pub(super) fn of_set(source: &str, needs: &SetNeeds) -> Vec<Attention> {
    let held = (needs.held_deletions > 0).then(|| {
        let message = format!(
            "{} held back: the Source deletes too many resources at once, or lists none",
            counted(needs.held_deletions, "deletion is", "deletions are")
        );
        let next_step = format!(
            "look at them with `resyncd approve {source} --list`; then `resyncd approve {source}` deletes the files, and \
             `resyncd approve {source} --reject` keeps them"
        );
        let since = needs.held_since.map(rfc3339).unwrap_or_default();
        Attention::new(HELD_DELETIONS, &message, since, &next_step)
    });
    let failed = needs.given_up_since.map(|since| {
        let message = match needs.failed {
            0 => "changes that were given up are being tried again".to_owned(),
            failed => format!(
                "{} given up, to be tried again at the next poll",
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

/// What of an unverified channel waits for a person.
pub(super) fn of_channel(channel: &UnverifiedChannel<'_>, now: DateTime<Utc>) -> Option<Attention> {
    if now - channel.since < UNVERIFIED_AFTER {
        return None;
    }
    let hub = match channel.hub {
        "" => "no hub".to_owned(),
        hub => format!("the hub {hub}"),
    };
    let topic = channel.topic;
    let reason = channel.error.map_or_else(String::new, |error| {
        format!(": {} [{}]", error.message, error.code)
    });
    let not = if channel.hub.is_empty() { "" } else { "not " };
    let message = format!("{hub} has {not}verified the subscription of {topic}{reason}");
    let next_step = "check that the hub can reach `public_url` of [callback] (DNS, reverse proxy, firewall); \
                     changes are found by polling meanwhile";
    let since = rfc3339(channel.since);
    Some(Attention::new(
        CHANNEL_UNVERIFIED,
        &message,
        since,
        next_step,
    ))
}

/// What of a mirror waits for a person. `error`: why it can't be opened or written, and since when.
pub(super) fn of_mirror(mirror: &str, error: Option<&StatusError>) -> Vec<Attention> {
    let attention = error.map(|StatusError { code, message, at }| {
        let next_step = match code.as_str() {
            "disk-full" => "free space on the file system of the mirror, or raise the quota",
            "read-only" => "mount the file system of the mirror so that it can be written",
            "mirror-locked" => {
                "stop the other process that uses the mirror, or give the Source a mirror of its own"
            }
            "mirror-missing" => NOT_MOUNTED,
            _ => "check that the file system of the mirror is mounted, and that the user of resyncd may write to the folder",
        };
        let message = format!("the mirror {mirror} cannot be used: {message} [{code}]");
        let next_step = format!("{next_step}; resyncd goes on by itself then");
        Attention::new(MIRROR_UNUSABLE, &message, at.clone(), &next_step)
    });
    attention.into_iter().collect()
}

/// What of the configuration waits for a person.
pub(super) fn of_configuration(configuration: &ConfigurationStatus) -> Vec<Attention> {
    let attention = configuration.error.as_ref().map(|error| {
        let message = format!(
            "the configuration was not reloaded, the former one is in use: {}",
            error.message
        );
        let next_step = "correct it (`resyncd check` shows every fault) and reload it: `systemctl reload resyncd`; until then the \
                         daemon may not start again";
        Attention::new(CONFIGURATION_REFUSED, &message, error.at.clone(), next_step)
    });
    attention.into_iter().collect()
}

fn counted(count: u64, one: &str, several: &str) -> String {
    let counted = if count == 1 { one } else { several };
    format!("{count} {counted}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minutes: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::minutes(minutes)
    }

    /// The code, a part of the message, a part of the next step, and since when.
    type Expected = (&'static str, &'static str, &'static str, i64);

    #[track_caller]
    fn check(found: &[Attention], expected: &[Expected]) {
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
        const HELD: Expected = (
            "held-deletions",
            "150 deletions are held back",
            "`resyncd approve example --list`",
            1,
        );
        const FAILED: Expected = (
            "failed-resources",
            "1 change is given up",
            "`resyncd retry example`",
            2,
        );
        const RETRIED: Expected = (
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
            let needs = SetNeeds {
                held_deletions,
                held_since: Some(at(1)),
                failed,
                given_up_since: given_up.map(at),
            };
            check(&of_set("example", &needs), expected);
        }
    }

    #[test]
    fn channel_waits_for_a_person_once_it_was_unverified_for_long() {
        let error = StatusError::new("not-verified", "answered 202", at(9));
        const LONG: Expected = (
            "channel-unverified",
            "the hub https://hub.example/ has not verified the subscription of https://example.org/topic",
            "`public_url`",
            5,
        );
        const REASON: Expected = (
            "channel-unverified",
            "topic: answered 202 [not-verified]",
            "public_url",
            5,
        );
        const NO_HUB: Expected = ("channel-unverified", "no hub has verified", "public_url", 5);
        for (hub, error, now, expected) in [
            ("https://hub.example/", None, 5, &[][..]),
            ("https://hub.example/", Some(&error), 14, &[]),
            ("https://hub.example/", None, 15, &[LONG]),
            ("https://hub.example/", Some(&error), 15, &[REASON]),
            ("", None, 99, &[NO_HUB]),
            // The clock was set back.
            ("https://hub.example/", None, 0, &[]),
        ] {
            let channel = UnverifiedChannel {
                topic: "https://example.org/topic",
                hub,
                since: at(5),
                error,
            };
            let found: Vec<_> = of_channel(&channel, at(now)).into_iter().collect();
            check(&found, expected);
        }
    }

    #[test]
    fn mirror_waits_for_a_person_while_it_cannot_be_used() {
        check(&of_mirror("/srv/mirror", None), &[]);
        for (code, next_step) in [
            ("disk-full", "free space"),
            ("read-only", "mount"),
            ("mirror-locked", "other process"),
            ("io", "is mounted"),
            ("path-blocked", "may write"),
        ] {
            let error = StatusError::new(code, "creating /srv/mirror: it failed", at(3));
            let found = of_mirror("/srv/mirror", Some(&error));
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
