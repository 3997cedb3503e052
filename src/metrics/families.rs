//! The metrics. The table in `docs/reference/metrics.md` is made from this one.

/// What kind of metric it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// It grows, and begins at zero again when what it counts begins anew.
    Counter,
    /// It goes up and down.
    Gauge,
    /// Counts of values up to bounds, and their number and sum.
    Histogram,
}

impl MetricKind {
    /// Its name in the text format.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// A metric: its samples differ by the values of its labels.
#[derive(Debug)]
pub struct Family {
    /// Its name, with the unit of its values.
    pub name: &'static str,
    /// Its kind.
    pub kind: MetricKind,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// What it means, on one line.
    pub help: &'static str,
}

macro_rules! families {
    ($($constant:ident: $kind:ident $name:literal [$($label:literal),*] $help:literal;)*) => {
        $(
            pub(super) const $constant: Family = Family {
                name: $name,
                kind: MetricKind::$kind,
                labels: &[$($label),*],
                help: $help,
            };
        )*

        /// Every metric.
        pub const FAMILIES: &[Family] = &[$($constant),*];
    };
}

families! {
    BUILD_INFO: Gauge "resyncd_build_info" ["version"]
        "1, with the version of the program.";
    CONFIG_SUCCESSFUL: Gauge "resyncd_config_last_reload_successful" []
        "1 if the configuration was loaded when it was read last, at the start or by a reload; 0 if it was refused.";
    CONFIG_LOADED: Gauge "resyncd_config_last_reload_success_timestamp_seconds" []
        "When a configuration was loaded last.";
    UNFOLLOWED: Gauge "resyncd_unfollowed_subscriptions" []
        "Subscriptions of Sources and sets that are no longer followed, while they are being ended.";
    REJECTED_REQUESTS: Counter "resyncd_rejected_requests_total" ["code"]
        "Requests that belong to no channel and that the listeners have rejected, by code.";

    PUBLISHED_RESOURCES: Gauge "resyncd_published_resources" ["source", "set"]
        "Resources of a set that is published, by its published Capability List.";
    PUBLISHED_SUBSCRIBERS: Gauge "resyncd_published_subscribers" ["source", "set"]
        "Subscribers of the set at the built-in hub.";
    PUBLISHED_BEHIND: Gauge "resyncd_published_subscriber_behind_seconds" ["source", "set"]
        "For how long the subscriber that is furthest behind has not been told something; 0: all have been told everything.";

    SOURCE_STATE: Gauge "resyncd_source_state" ["source", "state"]
        "1 for the state of the Source, 0 for the others.";
    SOURCE_NODE: Gauge "resyncd_source_node" ["source", "node"]
        "1, with the node that works on the Source, where the state is in a PostgreSQL database.";
    SOURCE_SETS: Gauge "resyncd_source_sets" ["source"]
        "Sets of the Source that are followed.";
    SOURCE_ERRORS: Gauge "resyncd_source_errors" ["source", "code"]
        "1 for the current error of the Source.";
    SOURCE_NOTICES: Gauge "resyncd_source_notices" ["source", "code"]
        "What is notable in the discovery of the Source but no error, by code.";
    SOURCE_ATTENTION: Gauge "resyncd_source_attention" ["source", "code"]
        "What of the Source waits for a person, by code; of hooks, how many.";
    SOURCE_AUDIT_FILES: Gauge "resyncd_source_audit_files" ["source", "finding"]
        "What the last audit of the Source by the daemon has found: files that were compared, and those that are missing, altered, extra or unreachable.";
    SOURCE_AUDIT_TIME: Gauge "resyncd_source_audit_timestamp_seconds" ["source"]
        "When the last audit of the Source by the daemon was done.";
    HOOK_POSITION: Gauge "resyncd_hook_position" ["source", "hook"]
        "The number of the feed up to which the hook has accepted everything.";
    HOOK_BEHIND: Gauge "resyncd_hook_behind_entries" ["source", "hook"]
        "Entries of the feed, of all Sources, that follow that number.";
    HOOK_FAILING: Gauge "resyncd_hook_failing_since_timestamp_seconds" ["source", "hook"]
        "Since when the hook fails. Absent while it does not.";
    HOOK_RUNS: Counter "resyncd_hook_runs_total" ["source", "hook", "outcome"]
        "Runs and requests of the hook by outcome: accepted or failed.";

    REQUESTS: Counter "resyncd_http_client_requests_total" ["source", "kind", "result"]
        "HTTP requests by what they were for (documents and hubs, content, packages) and result: a status, a class of statuses such as 4xx, or the code of an error.";
    RECEIVED_BYTES: Counter "resyncd_http_client_received_bytes_total" ["source", "kind"]
        "Bytes of the bodies of answers, as they were transferred.";
    COMMIT_TASKS: Histogram "resyncd_commit_tasks" ["source"]
        "Tasks whose results were committed together.";
    APPLY_DELAY: Histogram "resyncd_change_apply_delay_seconds" ["source", "origin"]
        "Time from a change by the Source's clock until it was applied, by the kind of document that has announced it: notification, change-list or change-dump.";

    SET_STATE: Gauge "resyncd_set_state" ["source", "set", "state"]
        "1 for the state of the set, 0 for the others.";
    SET_RESOURCES: Gauge "resyncd_set_resources" ["source", "set"]
        "Resources of the set that the mirror has.";
    SET_BYTES: Gauge "resyncd_set_bytes" ["source", "set"]
        "Bytes of these resources.";
    SET_PENDING: Gauge "resyncd_set_pending_changes" ["source", "set"]
        "Changes that are known and not applied yet.";
    SET_FAILED: Gauge "resyncd_set_failed_changes" ["source", "set"]
        "Changes that were given up for now, to be tried again with growing pauses.";
    SET_UNAVAILABLE: Gauge "resyncd_set_unavailable_resources" ["source", "set"]
        "Resources that the Source has refused or lacked for a week, or that its robots.txt disallows: they are requested once a day, and do not count against in-sync.";
    SET_HELD: Gauge "resyncd_set_held_deletions" ["source", "set"]
        "Deletions that wait for approval.";
    SET_UNDATED: Gauge "resyncd_set_undated_resources" ["source", "set"]
        "Resources whose entries state nothing about their content and that are requested again.";
    SET_UNREAD: Gauge "resyncd_set_unread_entries" ["source", "set"]
        "Entries of the set's documents that cannot be read.";
    SET_DEAD_PARTS: Gauge "resyncd_set_dead_parts" ["source", "set"]
        "Parts of the set's indexes that cannot be read.";
    SET_PATCHES: Counter "resyncd_set_patches_total" ["source", "set", "result"]
        "Changes with a patch, of resources that the mirror has, by whether it was used or missed: then the resource was fetched.";
    SET_GAPS: Gauge "resyncd_set_open_gaps" ["source", "set"]
        "Intervals in which changes are missing.";
    SET_ERRORS: Gauge "resyncd_set_errors" ["source", "set", "code"]
        "Current errors of the set, by code.";
    SET_NOTICES: Gauge "resyncd_set_notices" ["source", "set", "code"]
        "What is notable in the set but no error, by code.";
    SET_ATTENTION: Gauge "resyncd_set_attention" ["source", "set", "code"]
        "What of the set waits for a person, by code: held-deletions, failed-resources, stale, channel-unverified, channel-denied, channel-expired, channel-unconnected or channel-unregistered (the number of channels).";
    SET_BEHIND: Gauge "resyncd_set_behind_seconds" ["source", "set"]
        "0 while the set is in sync; otherwise the time since the Source's time up to which every change is applied. Absent before the baseline.";
    SET_SYNCED_UNTIL: Gauge "resyncd_set_synced_until_timestamp_seconds" ["source", "set"]
        "The Source's time up to which every change is known to have been applied. Absent before the baseline.";
    SET_NEWEST_DOCUMENT: Gauge "resyncd_set_newest_document_age_seconds" ["source", "set"]
        "Seconds since the newest time that the set's documents state. Absent where they state none.";
    SET_LAST_POLL: Gauge "resyncd_set_last_poll_timestamp_seconds" ["source", "set"]
        "When the set was last polled. Absent before the first poll since the start.";
    SET_NEXT_POLL: Gauge "resyncd_set_next_poll_timestamp_seconds" ["source", "set"]
        "When the set will be polled next.";

    POLLS: Counter "resyncd_polls_total" ["source", "set", "outcome"]
        "Polls by outcome: complete, incomplete (a gap stays open) or failed.";
    CHANGES: Counter "resyncd_changes_applied_total" ["source", "set", "origin", "change"]
        "Applied changes by the kind of document that has announced them, and by what happened: created, updated or deleted.";

    CHANNELS: Gauge "resyncd_channels" ["source", "set", "kind", "state"]
        "Channels of the set in each state.";
    CHANNEL_ERRORS: Gauge "resyncd_channel_errors" ["source", "set", "kind", "code"]
        "Channels of the set with an error, by its code.";
    CHANNEL_LEASE: Gauge "resyncd_channel_lease_remaining_seconds" ["source", "set", "kind"]
        "Seconds until the lease of the subscription ends, 0 once it has. Absent without a lease.";
    CHANNEL_LAST: Gauge "resyncd_channel_last_notification_timestamp_seconds" ["source", "set", "kind"]
        "When the last delivery was received. Absent before the first one.";
    CHANNEL_VERIFICATIONS: Counter "resyncd_channel_rejected_verifications_total" ["source", "set", "kind"]
        "Verifications of intent that were answered 404.";
    CHANNEL_GAPS: Counter "resyncd_channel_gaps_total" ["source", "set", "kind"]
        "Gaps that notifications have opened.";
    DELIVERIES: Counter "resyncd_deliveries_received_total" ["source", "set", "kind"]
        "Deliveries that were acknowledged.";
    NOTIFICATIONS: Counter "resyncd_notifications_total" ["source", "set", "kind", "outcome"]
        "Notifications by outcome: applied, duplicate (without news) or rejected (unsigned, wrongly signed, too large, too frequent or unreadable).";
    NOTIFICATIONS_HELD: Gauge "resyncd_notifications_held" ["source", "set", "kind"]
        "Early notifications that wait for the one before them.";

    INBOX_DELIVERIES: Gauge "resyncd_inbox_deliveries" ["source", "set", "kind"]
        "Deliveries in the inbox that are not processed yet.";
    INBOX_BYTES: Gauge "resyncd_inbox_bytes" ["source", "set", "kind"]
        "Bytes of these deliveries.";

    PROCESS_CPU: Counter "resyncd_process_cpu_seconds_total" []
        "Processor time of the process, in user and system mode.";
    PROCESS_RESIDENT: Gauge "resyncd_process_resident_memory_bytes" []
        "Memory of the process that is resident.";
    PROCESS_VIRTUAL: Gauge "resyncd_process_virtual_memory_bytes" []
        "Address space of the process.";
    PROCESS_THREADS: Gauge "resyncd_process_threads" []
        "Threads of the process.";
    PROCESS_OPEN_FDS: Gauge "resyncd_process_open_fds" []
        "Open file descriptors.";
    PROCESS_MAX_FDS: Gauge "resyncd_process_max_fds" []
        "How many file descriptors may be open. Absent without a limit.";
    PROCESS_START: Gauge "resyncd_process_start_time_seconds" []
        "When the daemon started.";
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// What `promtool check metrics` objects to, as far as it concerns names and help texts.
    #[test]
    fn names_follow_the_conventions() {
        let is_name = |name: &str| {
            let mut characters = name.chars();
            characters.next().is_some_and(|it| it.is_ascii_lowercase())
                && characters.all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '_')
        };
        let mut names = BTreeSet::new();
        for family in FAMILIES {
            let name = family.name;
            assert!(names.insert(name), "{name} is there twice");
            assert!(is_name(name) && !name.contains("__"), "{name}");
            assert!(name.starts_with("resyncd_"), "{name}");
            let is_counter = family.kind == MetricKind::Counter;
            assert_eq!(name.ends_with("_total"), is_counter, "{name}");
            for word in ["counter", "gauge", "histogram", "minutes", "ms", "kb"] {
                assert!(!name.split('_').any(|it| it == word), "{name}: {word}");
            }
            for end in ["_count", "_sum", "_bucket"] {
                assert!(!name.ends_with(end), "{name}");
            }
            let help = family.help;
            assert!(
                help.ends_with('.') && !help.contains(['\n', '\\', '|']),
                "{name}"
            );
            let mut labels = BTreeSet::new();
            for &label in family.labels {
                assert!(is_name(label) && labels.insert(label), "{name}: {label}");
                let is_reserved = ["le", "quantile", "job", "instance"].contains(&label);
                assert!(!is_reserved, "{name}: {label}");
            }
        }
    }
}
