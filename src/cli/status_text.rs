//! The status as text: what waits for a person, then a table of the Sources, or all details of a single one.

use chrono::{DateTime, Utc};
use indicatif::HumanBytes;

use super::colours::Colours;
use super::human::{cut, short_time, with_age, wrapped};
use super::up_to_date::{checked, up_to_date};
use crate::status::{
    Attention, ChannelStatus, CountedError, FormerSource, HookStatus, HostStatus, OddityStatus,
    SetStatus, SourceStatus, Status, StatusError, UnfollowedStatus, VersionsStatus,
};

/// The number of columns that a table, and a sentence, have at most.
const WIDTH: usize = 80;
/// The widths of the first columns of the table; numbers and times follow.
const NAME: usize = 20;
const STATE: usize = 11;

/// What is printed for people. A single Source has all its details, several have a line each.
pub(super) fn status_text(status: &Status, colours: Colours) -> String {
    let now = status.now.parse().ok();
    let mut lines = attention_lines(status, now, colours);
    lines.extend(restart_lines(status));
    if !lines.is_empty() {
        lines.push(String::new());
    }
    match &status.sources[..] {
        [source] => lines.extend(source_lines(source, now, colours)),
        sources => lines.extend(table(sources, now, colours)),
    }
    for channel in &status.unfollowed {
        lines.extend(unfollowed_lines(channel));
    }
    for former in &status.former_sources {
        lines.extend(former_lines(former));
    }
    for host in &status.hosts {
        lines.extend(slowed_lines(host));
    }
    lines.push(String::new());
    lines.join("\n")
}

/// What waits for a person, with the next step.
fn attention_lines(status: &Status, now: Option<DateTime<Utc>>, colours: Colours) -> Vec<String> {
    let mut lines = Vec::new();
    let mut add = |subject: &str, of_set: &str, found: &Attention| {
        let Attention {
            code,
            message,
            since,
            next_step,
        } = found;
        let since = with_age(since, now);
        let text = format!("{subject}{message}{of_set} [{code}, since {since}]");
        let text = wrapped(&text, "! ", WIDTH).into_iter();
        lines.extend(text.map(|line| colours.alarm(&line)));
        lines.extend(wrapped(next_step, "  ", WIDTH));
    };
    for found in &status.attention {
        add("", "", found);
    }
    for source in &status.sources {
        let of_source = source.attention.iter().map(|found| (None, found));
        let of_sets = source.sets.iter().flat_map(|set| {
            let list = Some(set.capability_list.as_str());
            set.attention.iter().map(move |found| (list, found))
        });
        for (set, found) in of_source.chain(of_sets) {
            let of_set = set.map_or_else(String::new, |set| format!(" ({set})"));
            add(&format!("{}: ", source.name), &of_set, found);
        }
    }
    lines
}

/// The keys that a reload could not apply.
fn restart_lines(status: &Status) -> Vec<String> {
    match &status.configuration.restart_required[..] {
        [] => Vec::new(),
        keys => wrapped(
            &format!("restart to apply: {}", keys.join(", ")),
            "- ",
            WIDTH,
        ),
    }
}

/// Those that `fails` is true for, and then the others.
fn failures_first<T>(all: &[T], fails: fn(&T) -> bool) -> impl Iterator<Item = &T> {
    let failing = all.iter().filter(move |&one| fails(one));
    failing.chain(all.iter().filter(move |&one| !fails(one)))
}

/// Whether a Source, or one of its sets, fails or waits for a person.
fn needs_attention(source: &SourceStatus) -> bool {
    let fails = source.state == "failing" || !source.attention.is_empty();
    fails || source.sets.iter().any(set_needs_attention)
}

fn set_needs_attention(set: &SetStatus) -> bool {
    matches!(set.state.as_str(), "failing" | "gap") || !set.attention.is_empty()
}

/// One line per Source, and below it its errors.
fn table(sources: &[SourceStatus], now: Option<DateTime<Utc>>, colours: Colours) -> Vec<String> {
    let mut lines = vec![row([
        &format!("{:NAME$}", "SOURCE"),
        &format!("{:STATE$}", "STATE"),
        "RESOURCES",
        "SIZE",
        "PENDING",
        "FAILED",
        "BEHIND",
    ])];
    for source in failures_first(sources, needs_attention) {
        let SourceTotals {
            state,
            resources,
            bytes,
            pending,
            failed,
            behind,
        } = SourceTotals::of(source, now);
        lines.push(row([
            &format!("{:NAME$}", cut(&source.name, NAME)),
            &colours.state(state, &format!("{state:STATE$}")),
            &resources.to_string(),
            &HumanBytes(bytes).to_string(),
            &pending.to_string(),
            &failed.to_string(),
            behind.as_deref().unwrap_or("-"),
        ]));
        let of_sets = source.sets.iter().filter_map(|set| set.error.as_ref());
        for error in source.error.iter().chain(of_sets) {
            lines.extend(error_lines(Some(error), "  "));
        }
    }
    lines.push(String::new());
    lines.push("resyncd status NAME prints the details of a Source.".to_owned());
    lines
}

/// Name and state have their widths already: colours count as characters.
fn row([name, state, resources, size, pending, failed, behind]: [&str; 7]) -> String {
    format!("{name} {state} {resources:>11} {size:>10} {pending:>8} {failed:>7} {behind:>7}")
}

/// The sets of a Source together.
struct SourceTotals<'a> {
    /// That of the Source unless it is `ok`, otherwise the worst of its sets.
    state: &'a str,
    resources: u64,
    bytes: u64,
    pending: u64,
    failed: u64,
    /// How far the set is behind that is the farthest behind; `None`: of one that is not known.
    behind: Option<String>,
}

impl<'a> SourceTotals<'a> {
    fn of(source: &'a SourceStatus, now: Option<DateTime<Utc>>) -> Self {
        let sets = &source.sets;
        let state = match source.state.as_str() {
            "ok" => {
                let worst = sets.iter().map(|set| set.state.as_str());
                worst.min_by_key(|state| badness(state)).unwrap_or("ok")
            }
            state => state,
        };
        let behind = sets.iter().map(|set| set.behind(now));
        let behind = behind.max_by_key(|behind| (behind.is_none(), *behind));
        Self {
            state,
            resources: sets.iter().map(|set| set.resources).sum(),
            bytes: sets.iter().map(|set| set.bytes).sum(),
            pending: sets.iter().map(|set| set.pending).sum(),
            failed: sets.iter().map(|set| set.failed).sum(),
            behind: behind.flatten().map(short_time),
        }
    }
}

/// The order of the states of sets, the worst first.
fn badness(state: &str) -> usize {
    let order = ["failing", "gap", "baseline", "catching-up", "in-sync"];
    let place = order.iter().position(|known| *known == state);
    place.unwrap_or(0)
}

fn source_lines(
    source: &SourceStatus,
    now: Option<DateTime<Utc>>,
    colours: Colours,
) -> Vec<String> {
    let SourceStatus {
        name,
        state,
        url,
        mirror,
        ..
    } = source;
    let state = colours.state(state, state);
    let mut lines = vec![format!("{name}: {state} ({url} → {mirror})")];
    lines.extend(failing_line(
        [
            &source.failing_since,
            &source.last_request_at,
            &source.next_try_at,
        ],
        "  ",
        now,
    ));
    lines.extend(error_lines(source.error.as_ref(), "  "));
    lines.extend(notice_lines(&source.notices, "  "));
    lines.extend(described_by(&source.describedby, "  "));
    for hook in &source.hooks {
        lines.extend(hook_lines(hook, now, colours));
    }
    if let Some(versions) = &source.versions {
        let VersionsStatus {
            folder,
            pending,
            failed,
            error,
        } = versions;
        lines.push(format!(
            "  versions in {folder}: {pending} pending, {failed} given up"
        ));
        lines.extend(error_lines(error.as_ref(), "    "));
    }
    for set in failures_first(&source.sets, set_needs_attention) {
        lines.extend(set_lines(set, now, colours));
    }
    lines
}

/// Since when a Source or a set fails, when it was asked last, and when it is tried next.
fn failing_line(
    [since, last, next]: [&Option<String>; 3],
    indent: &str,
    now: Option<DateTime<Utc>>,
) -> Option<String> {
    let since = with_age(since.as_deref()?, now);
    let shown = |time: &Option<String>| {
        let time = time.as_deref();
        time.map_or_else(|| "not known".to_owned(), |time| with_age(time, now))
    };
    let (last, next) = (shown(last), shown(next));
    Some(format!(
        "{indent}failing since {since}; last asked {last}; next try {next}"
    ))
}

fn hook_lines(hook: &HookStatus, now: Option<DateTime<Utc>>, colours: Colours) -> Vec<String> {
    let HookStatus { name, kind, .. } = hook;
    let state = match (&hook.failing_since, hook.running) {
        _ if hook.stopped => colours.state("stopped", "stopped"),
        (Some(since), _) => {
            let failing = colours.state("failing", "failing");
            format!("{failing} since {}", with_age(since, now))
        }
        (None, true) => "running".to_owned(),
        (None, false) => "waiting".to_owned(),
    };
    let position = hook.position.map_or_else(
        || "no position yet".to_owned(),
        |position| {
            let behind = hook.behind.unwrap_or_default();
            format!("position {position}, {behind} entries of the feed behind")
        },
    );
    let mut lines = vec![format!("  hook {name} ({kind}): {state}; {position}")];
    lines.extend(error_lines(hook.error.as_ref(), "    "));
    lines
}

fn set_lines(set: &SetStatus, now: Option<DateTime<Utc>>, colours: Colours) -> Vec<String> {
    let state = colours.state(&set.state, &set.state);
    let mut lines = vec![
        format!("  {}", set.capability_list),
        format!("    {state}, {}{}", up_to_date(set, now), checked(set, now)),
        format!(
            "    {} resources, {}; {} pending, {} failed, {} deletions held back",
            set.resources,
            HumanBytes(set.bytes),
            set.pending,
            set.failed,
            set.held_deletions
        ),
    ];
    lines.extend(failing_line(
        [&set.failing_since, &set.last_request_at, &set.next_try_at],
        "    ",
        now,
    ));
    if set.unavailable > 0 {
        lines.push(format!(
            "    {} resources unavailable: the Source has refused or lacked them for a week, or its robots.txt disallows them",
            set.unavailable
        ));
    }
    if set.rejected > 0 {
        lines.push(format!(
            "    {} deletions rejected: the files stay",
            set.rejected
        ));
    }
    lines.extend(error_lines(set.error.as_ref(), "    "));
    lines.extend(
        other_errors(set)
            .into_iter()
            .map(|line| format!("    {line}")),
    );
    lines.extend(notice_lines(&set.notices, "    "));
    lines.extend(described_by(&set.describedby, "    "));
    let oddities = oddity_lines(&set.oddities);
    lines.extend(oddities.into_iter().map(|line| format!("    {line}")));
    for gap in &set.gaps {
        let since = with_age(&gap.since, now);
        lines.push(format!(
            "    missing: {} to {} ({}, since {since})",
            gap.from, gap.until, gap.reason
        ));
    }
    for channel in &set.channels {
        lines.extend(channel_lines(channel, now, colours));
    }
    lines
}

fn channel_lines(
    channel: &ChannelStatus,
    now: Option<DateTime<Utc>>,
    colours: Colours,
) -> Vec<String> {
    let state = colours.state(&channel.state, &channel.state);
    let lease = channel.lease_expires_at.as_deref();
    let lease = lease.map_or_else(|| "none".to_owned(), |lease| with_age(lease, now));
    let way = match &channel.hub {
        Some(hub) => format!("hub {hub}, lease until {lease}"),
        None => format!("{} {}", channel.transport, channel.topic),
    };
    let mut lines = vec![
        format!("    {}: {state} ({way})", channel.kind),
        format!(
            "      {} received, {} applied, {} duplicate, {} rejected, {} held, {} gaps",
            channel.received,
            channel.applied,
            channel.duplicate,
            channel.rejected,
            channel.held,
            channel.gaps
        ),
    ];
    if channel.subscribed_topic != channel.topic {
        lines.push(format!("      subscribed to {}", channel.subscribed_topic));
    }
    if channel.rejected_verifications > 0 {
        lines.push(format!(
            "      {} verifications of the hub rejected",
            channel.rejected_verifications
        ));
    }
    lines.extend(error_lines(channel.error.as_ref(), "      "));
    lines
}

/// The number of dead parts, and the errors beside the first one.
fn other_errors(set: &SetStatus) -> Vec<String> {
    let dead = (set.dead_parts > 0)
        .then(|| format!("{} parts of its indexes can't be read", set.dead_parts));
    let unread =
        (set.unread > 0).then(|| format!("{} entries of its documents can't be read", set.unread));
    let shown = set.error.as_ref().map(|error| error.code.as_str());
    let others = set.errors.iter().filter_map(|error| {
        let CountedError {
            code,
            message,
            count,
            ..
        } = error;
        if Some(code.as_str()) != shown {
            Some(format!("! {message} [{code}, {count} times]"))
        } else if *count > 1 {
            Some(format!("! {count} times [{code}]"))
        } else {
            None
        }
    });
    dead.into_iter().chain(unread).chain(others).collect()
}

fn notice_lines(notices: &[CountedError], indent: &str) -> Vec<String> {
    let lines = notices
        .iter()
        .flat_map(|CountedError { code, message, .. }| {
            wrapped(
                &format!("{message} [{code}]"),
                &format!("{indent}- "),
                WIDTH,
            )
        });
    lines.collect()
}

fn described_by(documents: &[String], indent: &str) -> Vec<String> {
    let lines = documents.iter();
    lines
        .map(|document| format!("{indent}described by {document}"))
        .collect()
}

fn unfollowed_lines(channel: &UnfollowedStatus) -> Vec<String> {
    let mut lines = vec![format!(
        "{}: no longer followed, ending the subscription of {}{}",
        channel.source,
        channel.topic,
        match channel.hub.as_str() {
            "" if channel.transport.is_empty() => String::new(),
            "" => format!(" ({})", channel.transport),
            hub => format!(" (hub {hub})"),
        }
    )];
    lines.extend(error_lines(channel.error.as_ref(), "  "));
    lines
}

/// A Source that is not followed any more, and how to be rid of it.
fn former_lines(former: &FormerSource) -> Vec<String> {
    let FormerSource {
        name,
        mirror,
        resources,
        bytes,
        ..
    } = former;
    let mirror = mirror.as_deref().unwrap_or("its mirror");
    let bytes = HumanBytes(*bytes);
    vec![
        format!("{name}: not followed any more; {resources} resources, {bytes} in {mirror}"),
        format!(
            "  `resyncd forget {name}` deletes its rows in the database, with --delete-files its files as well"
        ),
    ]
}

/// Nothing if the host is not slowed down.
fn slowed_lines(host: &HostStatus) -> Vec<String> {
    let HostStatus {
        origin,
        at_once,
        most,
        slowed,
        ..
    } = host;
    if slowed.is_none() {
        return Vec::new();
    }
    let mut lines = vec![format!(
        "{origin}: slowed down to {at_once} of {most} requests at once"
    )];
    lines.extend(error_lines(slowed.as_ref(), "  "));
    lines
}

/// One line per document.
fn oddity_lines(oddities: &[OddityStatus]) -> Vec<String> {
    let of_documents = oddities.chunk_by(|one, next| one.document == next.document);
    of_documents
        .map(|rows| {
            let counted = rows.iter().map(|row| format!("{}={}", row.code, row.count));
            let counted: Vec<String> = counted.collect();
            format!("oddities: {} ({})", rows[0].document, counted.join(" "))
        })
        .collect()
}

fn error_lines(error: Option<&StatusError>, indent: &str) -> Vec<String> {
    let lines = error.map(|StatusError { code, message, at }| {
        let text = format!("{message} [{code}, {at}]");
        wrapped(&text, &format!("{indent}! "), WIDTH)
    });
    lines.unwrap_or_default()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    #[test]
    fn dead_parts_unread_entries_and_further_errors_have_lines() {
        let set = serde_json::json!({
            "capability_list": "http://example.com/", "state": "failing", "synced_until": null, "gaps": [],
            "resources": 0, "bytes": 0, "pending": 0, "failed": 0, "held_deletions": 0, "channels": [],
            "last_poll_at": null, "next_poll_at": null, "dead_parts": 4, "unread": 2,
            "error": {"code": "not-found", "message": "gone", "at": "now"},
            "errors": [
                {"code": "not-found", "message": "gone", "at": "now", "count": 3},
                {"code": "timeout", "message": "slow", "at": "now", "count": 1},
            ],
        });
        let set: SetStatus = serde_json::from_value(set).unwrap();
        assert_eq!(
            other_errors(&set),
            [
                "4 parts of its indexes can't be read",
                "2 entries of its documents can't be read",
                "! 3 times [not-found]",
                "! slow [timeout, 1 times]",
            ]
        );
    }

    /// A set in that state, with an attention of each code.
    pub(crate) fn set(list: &str, state: &str, attention: &[&str]) -> serde_json::Value {
        serde_json::json!({
            "capability_list": list, "state": state, "synced_until": null, "gaps": [],
            "resources": 0, "bytes": 0, "pending": 0, "failed": 0, "held_deletions": 0, "channels": [],
            "last_poll_at": null, "next_poll_at": null, "error": null, "attention": attentions(attention),
        })
    }

    fn attentions(codes: &[&str]) -> Vec<serde_json::Value> {
        let attention = |code: &&str| serde_json::json!({ "code": code, "message": "wrong", "since": "then", "next_step": "mend it" });
        codes.iter().map(attention).collect()
    }

    pub(crate) fn status(sources: &[(&str, &str, &[&str], Vec<serde_json::Value>)]) -> Status {
        let source = |(name, state, attention, sets): &(&str, &str, &[&str], Vec<_>)| {
            serde_json::json!({
                "name": name, "url": "u", "mirror": "m", "state": state, "error": null,
                "attention": attentions(attention), "sets": sets,
            })
        };
        let sources: Vec<_> = sources.iter().map(source).collect();
        let status = serde_json::json!({ "version": "1", "started_at": "s", "now": "n", "sources": sources });
        serde_json::from_value(status).unwrap()
    }

    #[test]
    fn what_waits_for_a_person_comes_first() {
        let status = status(&[
            ("a", "ok", &[], vec![set("well", "in-sync", &[])]),
            (
                "b",
                "ok",
                &[],
                vec![
                    set("well", "in-sync", &[]),
                    set("held", "catching-up", &["held-deletions"]),
                    set("failing", "failing", &[]),
                ],
            ),
            ("c", "failing", &["mirror-unusable"], vec![]),
        ]);
        assert_eq!(
            attention_lines(&status, None, Colours::NONE),
            [
                "! b: wrong (held) [held-deletions, since then]",
                "  mend it",
                "! c: wrong [mirror-unusable, since then]",
                "  mend it",
            ]
        );
        let sources = failures_first(&status.sources, needs_attention);
        let names: Vec<_> = sources.map(|source| source.name.as_str()).collect();
        assert_eq!(names, ["b", "c", "a"]);
        let sets = failures_first(&status.sources[1].sets, set_needs_attention);
        let lists: Vec<_> = sets.map(|set| set.capability_list.as_str()).collect();
        assert_eq!(lists, ["held", "failing", "well"]);
    }

    #[test]
    fn what_the_daemon_itself_waits_for_comes_first() {
        let mut status = status(&[("a", "failing", &["mirror-unusable"], vec![])]);
        assert!(restart_lines(&status).is_empty());
        let refused = attentions(&["configuration-refused"]);
        status.attention = serde_json::from_value(refused.into()).unwrap();
        let keys = ["http.timeout", "log.format"];
        status.configuration.restart_required = keys.map(str::to_owned).to_vec();
        let text = status_text(&status, Colours::NONE);
        let lines: Vec<&str> = text.lines().take(6).collect();
        assert_eq!(
            lines,
            [
                "! wrong [configuration-refused, since then]",
                "  mend it",
                "! a: wrong [mirror-unusable, since then]",
                "  mend it",
                "- restart to apply: http.timeout, log.format",
                "",
            ]
        );
    }

    #[test]
    fn former_source_has_what_it_left_and_the_next_step() {
        let mut status = status(&[]);
        let former = serde_json::json!([
            { "name": "gone", "url": "u", "mirror": "/srv/gone", "resources": 3, "bytes": 2048 },
            { "name": "older", "url": null, "mirror": null, "resources": 0, "bytes": 0 },
        ]);
        status.former_sources = serde_json::from_value(former).unwrap();
        let text = status_text(&status, Colours::NONE);
        let lines: Vec<&str> = text.lines().rev().take(4).collect();
        assert_eq!(
            lines,
            [
                "  `resyncd forget older` deletes its rows in the database, with --delete-files its files as well",
                "older: not followed any more; 0 resources, 0 B in its mirror",
                "  `resyncd forget gone` deletes its rows in the database, with --delete-files its files as well",
                "gone: not followed any more; 3 resources, 2.00 KiB in /srv/gone",
            ]
        );
    }

    #[test]
    fn each_document_with_oddities_has_one_line() {
        let row = |document: &str, code: &str, count| OddityStatus {
            document: document.to_owned(),
            code: code.to_owned(),
            count,
        };
        let rows = [
            row("http://example.com/1.xml", "no-up", 1),
            row("http://example.com/1.xml", "bad-loc", 12),
            row("http://example.com/2.xml", "no-up", 1),
        ];
        assert_eq!(
            oddity_lines(&rows),
            [
                "oddities: http://example.com/1.xml (no-up=1 bad-loc=12)",
                "oddities: http://example.com/2.xml (no-up=1)",
            ]
        );
        assert!(oddity_lines(&[]).is_empty());
    }

    #[test]
    fn several_sources_are_a_table_of_80_columns() {
        let named = |name: &str, state: &str| {
            let mut source = serde_json::to_value(source(state)).unwrap();
            source["name"] = name.into();
            source
        };
        let sources: Vec<_> = (0..20)
            .map(|number| named(&format!("{number:02}-a-long-name-of-a-source"), "in-sync"))
            .chain([named("broken", "failing"), named("new", "baseline")])
            .collect();
        let status = serde_json::json!({
            "version": "1", "started_at": "s", "now": "2026-01-03T00:10:00Z", "sources": sources,
        });
        let text = status_text(&serde_json::from_value(status).unwrap(), Colours::NONE);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 1 + 22 + 2 + 2, "{text}");
        for line in &lines {
            assert!(line.chars().count() <= 80, "{line}");
        }
        assert_eq!(
            lines[..3],
            [
                "SOURCE               STATE         RESOURCES       SIZE  PENDING  FAILED  BEHIND",
                "broken               failing         2600000   1.50 TiB        7       1   5 min",
                "  ! the Capability List can't be read, because the server has answered 404 twice",
            ],
            "{text}"
        );
        assert!(
            lines[4].starts_with("00-a-long-name-of-a… in-sync "),
            "{text}"
        );
    }

    /// A Source with a set in that state.
    fn source(state: &str) -> SourceStatus {
        let error = serde_json::json!({
            "code": "not-found", "at": "now",
            "message": "the Capability List can't be read, because the server has answered 404 twice",
        });
        let mut set = set("list", state, &[]);
        set["synced_until"] = "2026-01-03T00:05:00Z".into();
        set["resources"] = 2_600_000.into();
        set["bytes"] = (3_u64 << 39).into();
        set["pending"] = 7.into();
        set["failed"] = 1.into();
        if state == "failing" {
            set["error"] = error;
        }
        let source = serde_json::json!({
            "name": "", "url": "u", "mirror": "m", "state": "ok", "error": null, "sets": [set],
        });
        serde_json::from_value(source).unwrap()
    }

    #[test]
    fn hooks_have_lines_among_the_details_of_a_source() {
        let mut source = source("in-sync");
        let hook = serde_json::json!({
            "name": "index", "kind": "command", "position": 7, "behind": 3, "running": false, "accepted": 1, "failed": 2,
            "last_accepted_at": null, "failing_since": "2026-01-03T00:05:00Z", "next_try_at": null, "stopped": false,
            "error": {"code": "command-failed", "message": "exit status: 3", "at": "now"},
        });
        source.hooks = vec![serde_json::from_value(hook).unwrap()];
        let now = "2026-01-03T00:10:00Z".parse().ok();
        let failing = source_lines(&source, now, Colours::NONE);
        let line = &failing[1];
        assert!(
            line.starts_with("  hook index (command): failing since "),
            "{failing:#?}"
        );
        assert!(
            line.ends_with("; position 7, 3 entries of the feed behind"),
            "{failing:#?}"
        );
        assert_eq!(failing[2], "    ! exit status: 3 [command-failed, now]");
        source.hooks[0].failing_since = None;
        source.hooks[0].running = true;
        assert!(source_lines(&source, now, Colours::NONE)[1].contains(": running; "));
        source.hooks[0].stopped = true;
        assert!(source_lines(&source, now, Colours::NONE)[1].contains(": stopped; "));
    }

    #[test]
    fn sets_of_a_source_are_one_line_with_the_worst_of_them() {
        let now = "2026-01-03T00:10:00Z".parse().ok();
        let mut all = source("in-sync");
        all.sets.extend(source("gap").sets);
        all.sets.extend(source("catching-up").sets);
        all.sets[1].synced_until = Some("2026-01-02T00:10:00Z".to_owned());
        let totals = SourceTotals::of(&all, now);
        assert_eq!(totals.state, "gap");
        assert_eq!((totals.resources, totals.pending), (7_800_000, 21));
        assert_eq!(totals.behind.as_deref(), Some("24 h"));
        all.sets[2].synced_until = None;
        assert_eq!(SourceTotals::of(&all, now).behind, None);
        all.state = "discovering".to_owned();
        assert_eq!(SourceTotals::of(&all, now).state, "discovering");
    }
}
