//! `GET /metrics`.

use reqwest::StatusCode;
use reqwest::header::{CONTENT_TYPE, HOST};
use resyncd::config::{Hook, HookAction};
use resyncd::metrics::FAMILIES;
use resyncd::status::Status;
use resyncd_testkit::{ChannelHub, Fault, SampleOptions};

use super::packing::LIST;
use crate::support::{Exposition, NAME, Rig, SET, client, eventually, resources, send};

/// What has no sample while nothing is wrong, or without a limit of the system.
const MAY_BE_ABSENT: [&str; 15] = [
    "resyncd_source_node",
    "resyncd_published_resources",
    "resyncd_published_subscribers",
    "resyncd_published_subscriber_behind_seconds",
    "resyncd_source_attention",
    "resyncd_set_attention",
    "resyncd_source_audit_files",
    "resyncd_source_audit_timestamp_seconds",
    "resyncd_source_errors",
    "resyncd_source_notices",
    "resyncd_set_errors",
    "resyncd_set_notices",
    "resyncd_channel_errors",
    "resyncd_hook_failing_since_timestamp_seconds",
    "resyncd_process_max_fds",
];

async fn metrics(rig: &Rig) -> Exposition {
    let (status, text) = rig.operator.get("/metrics").await;
    assert_eq!(status, StatusCode::OK, "{text}");
    Exposition::parse(&text)
}

/// Waits until the sum of samples is that.
async fn until_sum(rig: &Rig, name: &str, labels: &[(&str, &str)], sum: f64) -> Exposition {
    let what = format!("{name} {labels:?} is {sum}");
    eventually(&what, Some(rig.wakes()), async || {
        let metrics = metrics(rig).await;
        match metrics.sum(name, labels) {
            Some(found) if found == sum => Ok(metrics),
            found => Err(format!("{found:?}")),
        }
    })
    .await
}

/// Asserts that the samples of sets and channels are what the status states.
fn assert_same(metrics: &Exposition, status: &Status) {
    for source in &status.sources {
        let name = ("source", source.name.as_str());
        let state = ("state", source.state.as_str());
        let states = "resyncd_source_state";
        assert_eq!(metrics.sum(states, &[name, state]), Some(1.0));
        assert_eq!(metrics.sum(states, &[name]), Some(1.0));
        for set in &source.sets {
            let labels = [name, ("set", set.capability_list.as_str())];
            for (family, value) in [
                ("resyncd_set_resources", set.resources),
                ("resyncd_set_bytes", set.bytes),
                ("resyncd_set_pending_changes", set.pending),
                ("resyncd_set_failed_changes", set.failed),
                ("resyncd_set_held_deletions", set.held_deletions),
                ("resyncd_set_undated_resources", set.undated),
                ("resyncd_set_unread_entries", set.unread),
                ("resyncd_set_dead_parts", set.dead_parts),
                ("resyncd_set_patches_total", set.patched + set.patch_missed),
                ("resyncd_set_open_gaps", set.gaps.len() as u64),
                ("resyncd_channels", set.channels.len() as u64),
            ] {
                assert_eq!(metrics.sum(family, &labels), Some(value as f64), "{family}");
            }
            let state = [labels[0], labels[1], ("state", set.state.as_str())];
            assert_eq!(metrics.sum("resyncd_set_state", &state), Some(1.0));
            assert_eq!(metrics.sum("resyncd_set_state", &labels), Some(1.0));
            for channel in &set.channels {
                let labels = [labels[0], labels[1], ("kind", channel.kind.as_str())];
                for (family, value) in [
                    ("resyncd_deliveries_received_total", channel.received),
                    ("resyncd_notifications_held", channel.held),
                    ("resyncd_inbox_deliveries", channel.inbox),
                    ("resyncd_inbox_bytes", channel.inbox_bytes),
                    ("resyncd_channel_gaps_total", channel.gaps),
                ] {
                    let found = metrics.sum(family, &labels);
                    assert_eq!(found, Some(value as f64), "{family}");
                }
                for (outcome, value) in [
                    ("applied", channel.applied),
                    ("duplicate", channel.duplicate),
                    ("rejected", channel.rejected),
                ] {
                    let labels = [labels[0], labels[1], labels[2], ("outcome", outcome)];
                    let found = metrics.sum("resyncd_notifications_total", &labels);
                    assert_eq!(found, Some(value as f64), "{outcome}");
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_metric_is_stated_and_equals_the_status() {
    let reader = HookAction::Command {
        program: "/bin/sh".into(),
        arguments: ["-c", "cat > /dev/null"].map(str::to_owned).into(),
    };
    let rig = Rig::start_with(resources(3), |config| {
        let hooks = &mut config.sources[0].hooks;
        hooks.push(Hook::new("index", reader));
    })
    .await;
    rig.idle().await;
    let since = rig.operator.last_change().await;
    rig.source.update(SET, "r0001.txt", "news");
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.until_in_feed(since, "r0001.txt").await;
    let url = format!("http://{}/metrics", rig.config.status.listen);
    let foreign = send(|| client().get(&url).header(HOST, "evil.example")).await;
    assert_eq!(foreign.status(), StatusCode::FORBIDDEN);
    let answer = send(|| client().get(&url)).await;
    let media_type = "text/plain; version=0.0.4; charset=utf-8";
    assert_eq!(answer.headers()[CONTENT_TYPE], media_type);

    let source = ("source", NAME);
    // It is counted after it is in the feed.
    let announced = [source, ("origin", "notification"), ("change", "updated")];
    let changes = "resyncd_changes_applied_total";
    until_sum(&rig, changes, &announced, 1.0).await;
    rig.settled().await;
    let stable = eventually("nothing changes between two answers", None, async || {
        let before = rig.operator.status().await;
        let metrics = metrics(&rig).await;
        let after = rig.operator.status().await;
        let shown = |status: &Status| {
            let set = &status.sources[0].sets[0];
            (set.state.clone(), format!("{:?}", set.channels))
        };
        let has_read_all = [&before, &after]
            .iter()
            .all(|status| status.sources[0].hooks[0].behind == Some(0));
        if shown(&before) == shown(&after) && shown(&after).0 == "in-sync" && has_read_all {
            Ok((metrics, after))
        } else {
            Err(format!("{after:?}"))
        }
    });
    let (metrics, status) = stable.await;
    assert_same(&metrics, &status);

    for family in FAMILIES {
        let is_optional = MAY_BE_ABSENT.contains(&family.name);
        assert!(metrics.has(family.name) || is_optional, "{}", family.name);
    }
    for family in metrics.families() {
        assert!(FAMILIES.iter().any(|it| it.name == family), "{family}");
    }
    let listed = [source, ("origin", "resource-list"), ("change", "created")];
    assert_eq!(metrics.sum(changes, &listed), Some(3.0));
    let notified = [source, ("origin", "notification")];
    let delays = metrics.sum("resyncd_change_apply_delay_seconds_count", &notified);
    assert_eq!(delays, Some(1.0));
    let fetched = [source, ("kind", "content"), ("result", "200")];
    let fetched = metrics.sum("resyncd_http_client_requests_total", &fetched);
    assert!(fetched >= Some(4.0), "{fetched:?}");
    let bytes = [source, ("kind", "content")];
    let bytes = metrics.sum("resyncd_http_client_received_bytes_total", &bytes);
    assert!(bytes >= Some(3.0 * 64.0 + 4.0), "{bytes:?}");
    let behind = metrics.sum("resyncd_set_behind_seconds", &[source]);
    assert_eq!(behind, Some(0.0));
    let rejected = [("code", "forbidden-host")];
    let rejected = metrics.sum("resyncd_rejected_requests_total", &rejected);
    assert_eq!(rejected, Some(1.0));
    let hook = [source, ("hook", "index")];
    assert_eq!(metrics.sum("resyncd_hook_behind_entries", &hook), Some(0.0));
    let version = [("version", env!("CARGO_PKG_VERSION"))];
    assert_eq!(metrics.sum("resyncd_build_info", &version), Some(1.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn failing_polls_and_their_errors_are_counted() {
    let polled = SampleOptions {
        change_list: false,
        hub: ChannelHub::None,
        ..resources(3)
    };
    let rig = Rig::start(polled).await;
    rig.settled().await;
    let complete = [("source", NAME), ("outcome", "complete")];
    let before = metrics(&rig).await.sum("resyncd_polls_total", &complete);
    assert!(before >= Some(1.0), "{before:?}");
    rig.source.fail(LIST, Fault::Status(404), usize::MAX);
    rig.operator.poll(NAME).await;
    let set = rig.until("an error", |set| set.error.is_some()).await;
    let code = set.error.unwrap().code;
    let metrics = metrics(&rig).await;
    let errors = [("source", NAME), ("code", code.as_str())];
    assert!(metrics.sum("resyncd_set_errors", &errors) >= Some(1.0));
    let failed = [("source", NAME), ("outcome", "failed")];
    assert!(metrics.sum("resyncd_polls_total", &failed) >= Some(1.0));
    let absent = [("source", NAME), ("kind", "documents"), ("result", "404")];
    let absent = metrics.sum("resyncd_http_client_requests_total", &absent);
    assert!(absent >= Some(1.0), "{absent:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn number_of_samples_is_bounded_by_the_limit_of_sets() {
    let options = SampleOptions {
        sets: ["set1", "set2", "set3"].map(str::to_owned).to_vec(),
        ..resources(2)
    };
    let rig = Rig::start_with(options, |config| config.limits.sets = 2).await;
    let metrics = eventually("two sets are in sync", Some(rig.wakes()), async || {
        let metrics = metrics(&rig).await;
        let in_sync = metrics.sum("resyncd_set_state", &[("state", "in-sync")]);
        if in_sync == Some(2.0) && metrics.has("resyncd_source_notices") {
            Ok(metrics)
        } else {
            Err(format!("{in_sync:?}"))
        }
    })
    .await;
    let sets = metrics.values_of("set");
    assert_eq!(sets.len(), 2, "{sets:?}");
    for set in sets {
        let samples = metrics.count("set", set);
        assert!(samples < 100, "{set}: {samples}");
    }
    let notice = [("source", NAME), ("code", "too-many-sets")];
    assert_eq!(metrics.sum("resyncd_source_notices", &notice), Some(1.0));
}
