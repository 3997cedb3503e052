//! `status`: prints the status of the running daemon.

use std::time::Duration;

use super::daemon_client::{DaemonAddress, DaemonClient, DaemonError};
use super::exit_status::{FAILED, OK, UNREACHABLE};
use super::up_to_date::up_to_date;
use crate::config::Config;
use crate::status::{
    Attention, CountedError, HostStatus, OddityStatus, SetStatus, SourceStatus, Status,
    StatusError, UnfollowedStatus,
};

/// Arguments of `status`.
#[derive(Debug, clap::Args)]
pub(super) struct StatusArguments {
    /// Print the status as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pub(super) daemon: DaemonAddress,
}

pub(super) async fn status(config: &Config, arguments: &StatusArguments) -> u8 {
    let (body, status) = match fetch(config).await {
        Ok(answer) => answer,
        Err(error) => {
            eprintln!("resyncd: {error}");
            return if error.is_unreachable() {
                UNREACHABLE
            } else {
                FAILED
            };
        }
    };
    if arguments.json {
        println!("{body}");
    } else {
        for line in attention_lines(&status) {
            println!("{line}");
        }
        for source in failures_first(&status.sources, needs_look) {
            print_source(source);
        }
        status.unfollowed.iter().for_each(print_unfollowed);
        status.hosts.iter().for_each(print_if_slowed);
    }
    if is_healthy(&status) { OK } else { FAILED }
}

/// The status as it was received, and parsed.
async fn fetch(config: &Config) -> Result<(String, Status), DaemonError> {
    let client = DaemonClient::new(config, Duration::from_secs(30))?;
    let body = client.get("/status").await?;
    let status = serde_json::from_str(&body).map_err(|_| client.not_resyncd())?;
    Ok((body, status))
}

fn is_healthy(status: &Status) -> bool {
    let is_healthy = |set: &SetStatus| matches!(set.state.as_str(), "in-sync" | "catching-up");
    let has_sets =
        |source: &SourceStatus| !source.sets.is_empty() && source.sets.iter().all(is_healthy);
    !status.needs_attention() && status.sources.iter().all(has_sets)
}

/// What waits for a person, with the next step.
fn attention_lines(status: &Status) -> Vec<String> {
    let mut lines = Vec::new();
    for source in &status.sources {
        let of_source = source.attention.iter().map(|found| (None, found));
        let of_sets = source.sets.iter().flat_map(|set| {
            let list = Some(set.capability_list.as_str());
            set.attention.iter().map(move |found| (list, found))
        });
        for (set, found) in of_source.chain(of_sets) {
            let Attention {
                code,
                message,
                since,
                next_step,
            } = found;
            let of_set = set.map_or_else(String::new, |set| format!(" ({set})"));
            let name = &source.name;
            lines.push(format!(
                "! {name}: {message}{of_set} [{code}, since {since}]"
            ));
            lines.push(format!("  {next_step}"));
        }
    }
    lines
}

/// Those that `fails` is true for, and then the others.
fn failures_first<T>(all: &[T], fails: fn(&T) -> bool) -> impl Iterator<Item = &T> {
    let failing = all.iter().filter(move |&one| fails(one));
    failing.chain(all.iter().filter(move |&one| !fails(one)))
}

/// Whether a Source, or one of its sets, fails or waits for a person.
fn needs_look(source: &SourceStatus) -> bool {
    let fails = source.state == "failing" || !source.attention.is_empty();
    fails || source.sets.iter().any(set_needs_look)
}

fn set_needs_look(set: &SetStatus) -> bool {
    matches!(set.state.as_str(), "failing" | "gap") || !set.attention.is_empty()
}

fn print_source(source: &SourceStatus) {
    println!(
        "{}: {} ({} → {})",
        source.name, source.state, source.url, source.mirror
    );
    print_error(source.error.as_ref(), "  ");
    print_notices(&source.notices, "  ");
    print_described_by(&source.describedby, "  ");
    for set in failures_first(&source.sets, set_needs_look) {
        println!("  {}", set.capability_list);
        println!("    {}, {}", set.state, up_to_date(set));
        println!(
            "    {} resources, {} bytes; {} pending, {} failed, {} deletions held back",
            set.resources, set.bytes, set.pending, set.failed, set.held_deletions
        );
        print_error(set.error.as_ref(), "    ");
        for line in other_errors(set) {
            println!("    {line}");
        }
        print_notices(&set.notices, "    ");
        print_described_by(&set.describedby, "    ");
        oddity_lines(&set.oddities)
            .iter()
            .for_each(|line| println!("    {line}"));
        for gap in &set.gaps {
            println!(
                "    missing: {} to {} ({}, since {})",
                gap.from, gap.until, gap.reason, gap.since
            );
        }
        for channel in &set.channels {
            let lease = channel.lease_expires_at.as_deref().unwrap_or("none");
            println!(
                "    {}: {} (hub {}, lease until {lease})",
                channel.kind, channel.state, channel.hub
            );
            println!(
                "      {} received, {} applied, {} duplicate, {} rejected, {} held, {} gaps",
                channel.received,
                channel.applied,
                channel.duplicate,
                channel.rejected,
                channel.held,
                channel.gaps
            );
            if channel.subscribed_topic != channel.topic {
                println!("      subscribed to {}", channel.subscribed_topic);
            }
            if channel.rejected_verifications > 0 {
                println!(
                    "      {} verifications of the hub rejected",
                    channel.rejected_verifications
                );
            }
            print_error(channel.error.as_ref(), "      ");
        }
    }
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
        match Some(code.as_str()) == shown {
            true if *count > 1 => Some(format!("! {count} times [{code}]")),
            true => None,
            false => Some(format!("! {message} [{code}, {count} times]")),
        }
    });
    dead.into_iter().chain(unread).chain(others).collect()
}

fn print_notices(notices: &[CountedError], indent: &str) {
    for CountedError { code, message, .. } in notices {
        println!("{indent}- {message} [{code}]");
    }
}

fn print_described_by(documents: &[String], indent: &str) {
    for document in documents {
        println!("{indent}described by {document}");
    }
}

fn print_unfollowed(channel: &UnfollowedStatus) {
    println!(
        "{}: no longer followed, ending the subscription of {} (hub {})",
        channel.source, channel.topic, channel.hub
    );
    print_error(channel.error.as_ref(), "  ");
}

fn print_if_slowed(host: &HostStatus) {
    let HostStatus {
        origin,
        at_once,
        most,
        slowed,
        ..
    } = host;
    if slowed.is_some() {
        println!("{origin}: slowed down to {at_once} of {most} requests at once");
        print_error(slowed.as_ref(), "  ");
    }
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

fn print_error(status_error: Option<&StatusError>, indent: &str) {
    if let Some(StatusError { code, message, at }) = status_error {
        println!("{indent}! {message} [{code}, {at}]");
    }
}

#[cfg(test)]
mod tests {
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
    fn set(list: &str, state: &str, attention: &[&str]) -> serde_json::Value {
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

    fn status(sources: &[(&str, &str, &[&str], Vec<serde_json::Value>)]) -> Status {
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
    fn status_is_healthy_while_nothing_fails_or_waits_for_a_person() {
        let synced = || set("list", "in-sync", &[]);
        for (attention, sets, is_well) in [
            (
                &[][..],
                vec![synced(), set("list", "catching-up", &[])],
                true,
            ),
            (&[], vec![], false),
            (&[], vec![synced(), set("list", "gap", &[])], false),
            (
                &[],
                vec![set("list", "in-sync", &["channel-unverified"])],
                false,
            ),
            (&["mirror-unusable"], vec![synced()], false),
        ] {
            let status = status(&[("example", "ok", attention, sets)]);
            assert_eq!(is_healthy(&status), is_well, "{status:?}");
        }
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
            attention_lines(&status),
            [
                "! b: wrong (held) [held-deletions, since then]",
                "  mend it",
                "! c: wrong [mirror-unusable, since then]",
                "  mend it",
            ]
        );
        let sources = failures_first(&status.sources, needs_look);
        let names: Vec<_> = sources.map(|source| source.name.as_str()).collect();
        assert_eq!(names, ["b", "c", "a"]);
        let sets = failures_first(&status.sources[1].sets, set_needs_look);
        let lists: Vec<_> = sets.map(|set| set.capability_list.as_str()).collect();
        assert_eq!(lists, ["held", "failing", "well"]);
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
}
