//! `status`: how everything stands, asked of the running daemon.

use std::time::Duration;

use super::ask::{AskError, Asking};
use super::{FAILED, OK, UNREACHABLE};
use crate::config::Config;
use crate::status::{OddityStatus, SetStatus, SourceStatus, Status, Trouble};

/// What `status` may be told.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Print the daemon's own JSON
    #[arg(long)]
    json: bool,
}

pub(super) async fn status(config: &Config, arguments: &Arguments) -> u8 {
    let asked = match Asking::of(config, Duration::from_secs(30)) {
        Ok(asking) => asking.get("/status").await,
        Err(error) => Err(error),
    };
    let body = match asked {
        Ok(body) => body,
        Err(error) => {
            eprintln!("resyncd: {error}");
            return if matches!(error, AskError::Unreachable { .. }) {
                UNREACHABLE
            } else {
                FAILED
            };
        }
    };
    let status: Status = match serde_json::from_str(&body) {
        Ok(status) => status,
        Err(error) => {
            eprintln!("resyncd: the daemon's answer can't be read: {error}");
            return FAILED;
        }
    };
    if arguments.json {
        println!("{body}");
    } else {
        status.sources.iter().for_each(print_source);
    }
    if is_well(&status) { OK } else { FAILED }
}

fn is_well(status: &Status) -> bool {
    let well = |set: &SetStatus| matches!(set.state.as_str(), "in-sync" | "catching-up");
    status
        .sources
        .iter()
        .all(|source| !source.sets.is_empty() && source.sets.iter().all(well))
}

fn print_source(source: &SourceStatus) {
    println!(
        "{}: {} ({} → {})",
        source.name, source.state, source.url, source.mirror
    );
    print_trouble(source.error.as_ref(), "  ");
    for set in &source.sets {
        println!("  {}", set.capability_list);
        let until = set.synced_until.as_deref().unwrap_or("not yet");
        println!("    {}, in step until {until}", set.state);
        println!(
            "    {} resources, {} bytes; {} pending, {} failed, {} deletions held back",
            set.resources, set.bytes, set.pending, set.failed, set.held_deletions
        );
        print_trouble(set.error.as_ref(), "    ");
        print_oddities(&set.oddities);
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
                "      {} received, {} applied, {} known already, {} rejected, {} held, {} gaps",
                channel.received,
                channel.applied,
                channel.duplicate,
                channel.rejected,
                channel.held,
                channel.gaps
            );
            print_trouble(channel.error.as_ref(), "      ");
        }
    }
}

/// One line a document.
fn print_oddities(oddities: &[OddityStatus]) {
    for rows in oddities.chunk_by(|one, next| one.document == next.document) {
        let counted = rows.iter().map(|row| format!("{}={}", row.code, row.count));
        let counted: Vec<String> = counted.collect();
        println!("    odd: {} ({})", rows[0].document, counted.join(" "));
    }
}

fn print_trouble(trouble: Option<&Trouble>, indent: &str) {
    if let Some(Trouble { code, message, at }) = trouble {
        println!("{indent}! {message} [{code}, {at}]");
    }
}
