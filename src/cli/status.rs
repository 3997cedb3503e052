//! `status`: prints the status of the running daemon.

use std::time::Duration;

use super::daemon_client::{DaemonClient, DaemonError};
use super::exit_status::{FAILED, OK, UNREACHABLE};
use crate::config::Config;
use crate::status::{
    CountedError, OddityStatus, SetStatus, SourceStatus, Status, StatusError, UnfollowedStatus,
};

/// Arguments of `status`.
#[derive(Debug, clap::Args)]
pub(super) struct StatusArguments {
    /// Print the status as JSON
    #[arg(long)]
    json: bool,
}

pub(super) async fn status(config: &Config, arguments: &StatusArguments) -> u8 {
    let response = match DaemonClient::new(config, Duration::from_secs(30)) {
        Ok(client) => client.get("/status").await,
        Err(error) => Err(error),
    };
    let body = match response {
        Ok(body) => body,
        Err(error) => {
            eprintln!("resyncd: {error}");
            return if matches!(error, DaemonError::Unreachable { .. }) {
                UNREACHABLE
            } else {
                FAILED
            };
        }
    };
    let status: Status = match serde_json::from_str(&body) {
        Ok(status) => status,
        Err(error) => {
            eprintln!("resyncd: invalid answer of the daemon: {error}");
            return FAILED;
        }
    };
    if arguments.json {
        println!("{body}");
    } else {
        status.sources.iter().for_each(print_source);
        status.unfollowed.iter().for_each(print_unfollowed);
    }
    if is_healthy(&status) { OK } else { FAILED }
}

fn is_healthy(status: &Status) -> bool {
    let is_healthy = |set: &SetStatus| matches!(set.state.as_str(), "in-sync" | "catching-up");
    status
        .sources
        .iter()
        .all(|source| !source.sets.is_empty() && source.sets.iter().all(is_healthy))
}

fn print_source(source: &SourceStatus) {
    println!(
        "{}: {} ({} → {})",
        source.name, source.state, source.url, source.mirror
    );
    print_error(source.error.as_ref(), "  ");
    print_notices(&source.notices, "  ");
    print_described_by(&source.describedby, "  ");
    for set in &source.sets {
        println!("  {}", set.capability_list);
        let until = set.synced_until.as_deref().unwrap_or("not yet");
        println!("    {}, synced until {until}", set.state);
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
