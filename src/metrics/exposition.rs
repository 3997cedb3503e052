//! The text of `GET /metrics`.

use std::collections::BTreeSet;

use chrono::DateTime;

use super::counters::Counters;
use super::families::{
    BUILD_INFO, CHANNEL_ERRORS, CHANNEL_GAPS, CHANNEL_LAST, CHANNEL_LEASE, CHANNEL_VERIFICATIONS,
    CHANNELS, CONFIG_LOADED, CONFIG_SUCCESSFUL, DELIVERIES, HOOK_BEHIND, HOOK_FAILING,
    HOOK_POSITION, HOOK_RUNS, INBOX_BYTES, INBOX_DELIVERIES, NOTIFICATIONS, NOTIFICATIONS_HELD,
    PROCESS_START, PUBLISHED_BEHIND, PUBLISHED_RESOURCES, PUBLISHED_SUBSCRIBERS, REJECTED_REQUESTS,
    SET_ATTENTION, SET_BEHIND, SET_BYTES, SET_DEAD_PARTS, SET_ERRORS, SET_FAILED, SET_GAPS,
    SET_HELD, SET_LAST_POLL, SET_NEWEST_DOCUMENT, SET_NEXT_POLL, SET_NOTICES, SET_PATCHES,
    SET_PENDING, SET_RESOURCES, SET_STATE, SET_SYNCED_UNTIL, SET_UNAVAILABLE, SET_UNDATED,
    SET_UNREAD, SOURCE_ATTENTION, SOURCE_AUDIT_FILES, SOURCE_AUDIT_TIME, SOURCE_ERRORS,
    SOURCE_NODE, SOURCE_NOTICES, SOURCE_SETS, SOURCE_STATE, UNFOLLOWED,
};
use super::process::add_process;
use super::samples::Samples;
use crate::status::{ChannelStatus, SetStatus, SourceStatus, Status};

/// The states of a Source, a set and a channel, as the status names them.
const SOURCE_STATES: &[&str] = &["discovering", "ok", "failing"];
const SET_STATES: &[&str] = &["baseline", "catching-up", "in-sync", "gap", "failing"];
const CHANNEL_STATES: &[&str] = &["pending", "active", "denied", "expired", "unsubscribed"];

/// The status, and what was counted, in Prometheus' text format, version 0.0.4.
///
/// # Errors
/// What can't be encoded, a fault of this program.
pub fn exposition(status: &Status, counters: &Counters) -> Result<String, prometheus::Error> {
    let mut samples = Samples::default();
    let now = seconds(&status.now);
    samples.add(&BUILD_INFO, &[status.version.as_str()], 1.0);
    if let Some(loaded) = seconds(&status.configuration.loaded_at) {
        let is_successful = status.configuration.error.is_none();
        samples.add(&CONFIG_SUCCESSFUL, &[], f64::from(is_successful));
        samples.add(&CONFIG_LOADED, &[], loaded);
    }
    samples.add(&UNFOLLOWED, &[], status.unfollowed.len() as f64);
    for (code, &count) in &status.refused {
        samples.add(&REJECTED_REQUESTS, &[code.as_str()], count as f64);
    }
    for source in &status.sources {
        add_source(&mut samples, source, now);
    }
    for set in status.publish.iter().flat_map(|publish| &publish.sets) {
        let labels = [set.source.as_str(), set.capability_list.as_str()];
        let behind = set.behind.first().map_or(0, |behind| behind.seconds);
        samples.add(&PUBLISHED_RESOURCES, &labels, set.resources as f64);
        samples.add(&PUBLISHED_SUBSCRIBERS, &labels, set.subscribers as f64);
        samples.add(&PUBLISHED_BEHIND, &labels, behind as f64);
    }
    samples.add(&PROCESS_START, &[], seconds(&status.started_at));
    add_process(&mut samples);
    counters.add_to(&mut samples);
    samples.encode()
}

/// `now`: seconds since 1970, as in all functions below.
fn add_source(samples: &mut Samples, source: &SourceStatus, now: Option<f64>) {
    let name = source.name.as_str();
    samples.add_state(&SOURCE_STATE, &[name], SOURCE_STATES, &source.state);
    if let Some(node) = &source.node {
        samples.add(&SOURCE_NODE, &[name, node.as_str()], 1.0);
    }
    samples.add(&SOURCE_SETS, &[name], source.sets.len() as f64);
    if let Some(error) = &source.error {
        samples.add(&SOURCE_ERRORS, &[name, error.code.as_str()], 1.0);
    }
    for notice in &source.notices {
        let labels = [name, notice.code.as_str()];
        samples.add(&SOURCE_NOTICES, &labels, notice.count as f64);
    }
    for attention in &source.attention {
        samples.add(&SOURCE_ATTENTION, &[name, attention.code.as_str()], 1.0);
    }
    if let Some(audit) = source.audit.as_ref().filter(|it| it.ended_at.is_some()) {
        for (finding, count) in [
            ("compared", audit.compared),
            ("missing", audit.missing),
            ("altered", audit.altered),
            ("extra", audit.extra),
            ("unreachable", audit.unreachable),
        ] {
            samples.add(&SOURCE_AUDIT_FILES, &[name, finding], count as f64);
        }
        let ended = audit.ended_at.as_deref().and_then(seconds);
        samples.add(&SOURCE_AUDIT_TIME, &[name], ended);
    }
    for hook in &source.hooks {
        let labels = [name, hook.name.as_str()];
        let failing = hook.failing_since.as_deref().and_then(seconds);
        for (family, value) in [
            (&HOOK_POSITION, hook.position.map(|it| it as f64)),
            (&HOOK_BEHIND, hook.behind.map(|it| it as f64)),
            (&HOOK_FAILING, failing),
        ] {
            samples.add(family, &labels, value);
        }
        for (outcome, runs) in [("accepted", hook.accepted), ("failed", hook.failed)] {
            samples.add(&HOOK_RUNS, &[labels[0], labels[1], outcome], runs as f64);
        }
    }
    for set in &source.sets {
        add_set(samples, name, set, now);
    }
}

fn add_set(samples: &mut Samples, source: &str, set: &SetStatus, now: Option<f64>) {
    let labels = [source, set.capability_list.as_str()];
    samples.add_state(&SET_STATE, &labels, SET_STATES, &set.state);
    for (family, count) in [
        (&SET_RESOURCES, set.resources),
        (&SET_BYTES, set.bytes),
        (&SET_PENDING, set.pending),
        (&SET_FAILED, set.failed),
        (&SET_UNAVAILABLE, set.unavailable),
        (&SET_HELD, set.held_deletions),
        (&SET_UNDATED, set.undated),
        (&SET_UNREAD, set.unread),
        (&SET_DEAD_PARTS, set.dead_parts),
        (&SET_GAPS, set.gaps.len() as u64),
    ] {
        samples.add(family, &labels, count as f64);
    }
    for (result, count) in [("used", set.patched), ("missed", set.patch_missed)] {
        let labels = [labels[0], labels[1], result];
        samples.add(&SET_PATCHES, &labels, count as f64);
    }
    for (family, rows) in [(&SET_ERRORS, &set.errors), (&SET_NOTICES, &set.notices)] {
        for row in rows {
            let labels = [labels[0], labels[1], row.code.as_str()];
            samples.add(family, &labels, row.count as f64);
        }
    }
    for attention in &set.attention {
        let labels = [labels[0], labels[1], attention.code.as_str()];
        samples.add(&SET_ATTENTION, &labels, 1.0);
    }
    let synced_until = set.synced_until.as_deref().and_then(seconds);
    let at = now.and_then(|now| DateTime::from_timestamp_micros((now * 1e6) as i64));
    let behind = set.behind(at).map(|behind| behind.as_seconds_f64());
    let age = set.seconds_since_newest_document;
    for (family, value) in [
        (&SET_BEHIND, behind),
        (&SET_SYNCED_UNTIL, synced_until),
        (&SET_NEWEST_DOCUMENT, age.map(|age| age as f64)),
        (
            &SET_LAST_POLL,
            set.last_poll_at.as_deref().and_then(seconds),
        ),
        (
            &SET_NEXT_POLL,
            set.next_poll_at.as_deref().and_then(seconds),
        ),
    ] {
        samples.add(family, &labels, value);
    }
    add_channels(samples, labels, &set.channels, now);
}

/// The channels of a set, those of one kind together: a topic that is replaced has a channel until its subscription has ended.
fn add_channels(
    samples: &mut Samples,
    [source, set]: [&str; 2],
    channels: &[ChannelStatus],
    now: Option<f64>,
) {
    for channel in channels {
        let labels = [source, set, channel.kind.as_str()];
        samples.add_state(&CHANNELS, &labels, CHANNEL_STATES, &channel.state);
        for (family, count) in [
            (&CHANNEL_VERIFICATIONS, channel.rejected_verifications),
            (&CHANNEL_GAPS, channel.gaps),
            (&DELIVERIES, channel.received),
            (&NOTIFICATIONS_HELD, channel.held),
            (&INBOX_DELIVERIES, channel.inbox),
            (&INBOX_BYTES, channel.inbox_bytes),
        ] {
            samples.add(family, &labels, count as f64);
        }
        if let Some(error) = &channel.error {
            let labels = [source, set, labels[2], error.code.as_str()];
            samples.add(&CHANNEL_ERRORS, &labels, 1.0);
        }
        for (outcome, count) in [
            ("applied", channel.applied),
            ("duplicate", channel.duplicate),
            ("rejected", channel.rejected),
        ] {
            let labels = [source, set, labels[2], outcome];
            samples.add(&NOTIFICATIONS, &labels, count as f64);
        }
    }
    let kinds: BTreeSet<&str> = channels.iter().map(|it| it.kind.as_str()).collect();
    for kind in kinds {
        let of_kind = || channels.iter().filter(|channel| channel.kind == kind);
        let last = of_kind().filter_map(|it| seconds(it.last_notification_at.as_deref()?));
        // A subscription that is being ended is not renewed.
        let used = of_kind().filter(|channel| channel.state != "unsubscribed");
        let ends = used.filter_map(|channel| seconds(channel.lease_expires_at.as_deref()?));
        let left = now.zip(ends.reduce(f64::min));
        let left = left.map(|(now, ends)| (ends - now).max(0.0));
        samples.add(&CHANNEL_LAST, &[source, set, kind], last.reduce(f64::max));
        samples.add(&CHANNEL_LEASE, &[source, set, kind], left);
    }
}

/// The time in seconds since 1970; `None` if it can't be written so.
fn seconds(time: &str) -> Option<f64> {
    let time = DateTime::parse_from_rfc3339(time).ok()?;
    Some(time.timestamp_micros() as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn channel(kind: &str, state: &str, received: u64, ends: Option<&str>) -> serde_json::Value {
        json!({
            "kind": kind, "topic": "t", "hub": "h", "state": state,
            "lease_expires_at": ends, "renew_at": null, "last_notification_at": null,
            "received": received, "applied": 2, "duplicate": 1, "rejected": 0, "held": 0, "gaps": 3,
            "error": { "code": "push-silent", "message": "m", "at": "a" }
        })
    }

    fn status(set: &str, channels: Vec<serde_json::Value>) -> Status {
        serde_json::from_value(json!({
            "version": "1.2.3", "started_at": "2026-01-01T00:00:00Z", "now": "2026-01-02T00:00:00.5Z",
            "refused": { "unauthorized": 4 },
            "sources": [{
                "name": "example", "url": "u", "mirror": "m", "state": "ok",
                "error": { "code": "dns", "message": "m", "at": "a" },
                "attention": [{ "code": "mirror-unusable", "message": "m", "since": "a", "next_step": "n" }],
                "sets": [{
                    "capability_list": set, "state": "catching-up", "synced_until": "2026-01-01T23:59:00Z",
                    "gaps": [], "resources": 12, "bytes": 345, "pending": 6, "failed": 7, "held_deletions": 8,
                    "channels": channels, "last_poll_at": null, "next_poll_at": null, "error": null,
                    "errors": [{ "code": "not-found", "message": "m", "at": "a", "count": 7 }],
                    "seconds_since_newest_document": 90,
                    "attention": [
                        { "code": "held-deletions", "message": "m", "since": "a", "next_step": "n" },
                        { "code": "channel-unverified", "message": "m", "since": "a", "next_step": "n" },
                        { "code": "channel-unverified", "message": "n", "since": "a", "next_step": "n" },
                    ]
                }]
            }]
        }))
        .unwrap()
    }

    fn lines(status: &Status) -> Vec<String> {
        let text = exposition(status, &Counters::default()).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    #[track_caller]
    fn assert_line(lines: &[String], expected: &str) {
        assert!(
            lines.iter().any(|line| line == expected),
            "{expected}: {lines:#?}"
        );
    }

    #[test]
    fn values_of_the_status_are_stated_with_their_labels() {
        let ends = Some("2026-01-03T00:00:00.5Z");
        let channels = vec![channel("change-notification", "active", 5, ends)];
        let lines = lines(&status("https://example.org/a", channels));
        let set = r#"source="example",set="https://example.org/a""#;
        for expected in [
            r#"resyncd_build_info{version="1.2.3"} 1"#,
            "resyncd_process_start_time_seconds 1767225600",
            r#"resyncd_rejected_requests_total{code="unauthorized"} 4"#,
            r#"resyncd_source_state{source="example",state="ok"} 1"#,
            r#"resyncd_source_state{source="example",state="failing"} 0"#,
            "# TYPE resyncd_set_bytes gauge",
            "# TYPE resyncd_notifications_total counter",
            &format!("resyncd_set_resources{{{set}}} 12"),
            &format!("resyncd_set_bytes{{{set}}} 345"),
            &format!("resyncd_set_held_deletions{{{set}}} 8"),
            &format!("resyncd_set_behind_seconds{{{set}}} 60.5"),
            &format!("resyncd_set_newest_document_age_seconds{{{set}}} 90"),
            &format!(r#"resyncd_set_state{{{set},state="catching-up"}} 1"#),
            &format!(r#"resyncd_set_state{{{set},state="gap"}} 0"#),
            &format!(r#"resyncd_set_errors{{{set},code="not-found"}} 7"#),
            r#"resyncd_source_errors{source="example",code="dns"} 1"#,
            r#"resyncd_source_attention{source="example",code="mirror-unusable"} 1"#,
            &format!(r#"resyncd_set_attention{{{set},code="held-deletions"}} 1"#),
            &format!(r#"resyncd_set_attention{{{set},code="channel-unverified"}} 2"#),
            &format!(
                r#"resyncd_channel_errors{{{set},kind="change-notification",code="push-silent"}} 1"#
            ),
            &format!(
                r#"resyncd_channel_lease_remaining_seconds{{{set},kind="change-notification"}} 86400"#
            ),
            &format!(
                r#"resyncd_notifications_total{{{set},kind="change-notification",outcome="applied"}} 2"#
            ),
        ] {
            assert_line(&lines, expected);
        }
    }

    #[test]
    fn channels_of_one_kind_are_one_sample() {
        let soon = Some("2026-01-02T00:00:10.5Z");
        let channels = vec![
            channel("change-notification", "active", 5, None),
            channel("change-notification", "pending", 6, soon),
            channel(
                "change-notification",
                "unsubscribed",
                0,
                Some("2026-01-02T00:00:01Z"),
            ),
        ];
        let lines = lines(&status("s", channels));
        let labels = r#"source="example",set="s",kind="change-notification""#;
        for expected in [
            format!("resyncd_deliveries_received_total{{{labels}}} 11"),
            format!(r#"resyncd_channels{{{labels},state="active"}} 1"#),
            format!(r#"resyncd_channels{{{labels},state="denied"}} 0"#),
            format!("resyncd_channel_lease_remaining_seconds{{{labels}}} 10"),
        ] {
            assert_line(&lines, &expected);
        }
    }

    #[test]
    fn name_of_a_set_ends_neither_its_label_nor_its_line() {
        let hostile = "a\"} 1\nresyncd_forged{x=\"\\";
        let lines = lines(&status(hostile, Vec::new()));
        let set = r#"source="example",set="a\"} 1\nresyncd_forged{x=\"\\""#;
        assert_line(&lines, &format!("resyncd_set_failed_changes{{{set}}} 7"));
        let forged = lines.iter().any(|line| line.starts_with("resyncd_forged"));
        assert!(!forged, "{lines:#?}");
    }

    #[test]
    fn only_metrics_of_the_table_are_stated() {
        let channels = vec![channel("change-notification", "active", 5, None)];
        for line in lines(&status("s", channels)) {
            let name = line
                .strip_prefix("# TYPE ")
                .and_then(|it| it.split(' ').next());
            if let Some(name) = name {
                let is_known = crate::metrics::FAMILIES.iter().any(|it| it.name == name);
                assert!(is_known, "{name}");
            }
        }
    }
}
