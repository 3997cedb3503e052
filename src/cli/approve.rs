//! `approve`: shows, approves or rejects held-back deletions through the running daemon.

use super::daemon_client::{DaemonAddress, DaemonClient, DaemonError};
use super::daemon_requests::{client, daemon_status, each_row, print_failure, source_names};
use super::exit_status::OK;
use crate::config::Config;
use crate::status::{HeldDeletion, SourceStatus};

/// Arguments of `approve`.
#[derive(Debug, clap::Args)]
pub(super) struct ApproveArguments {
    /// Name of the Source in the configuration
    source: String,
    /// Only list the deletions that are held back
    #[arg(long, conflicts_with_all = ["reject", "dry_run", "through"])]
    list: bool,
    /// With --list: the deletions that were rejected instead
    #[arg(long, requires = "list")]
    rejected: bool,
    /// Only deletions up to this number, which --list prints; what was held back later stays held back
    #[arg(long, value_name = "NUMBER", conflicts_with = "undo_reject")]
    through: Option<u64>,
    /// Reject the deletions: the files stay, until the Source lists a resource again or states a new change of it
    #[arg(long)]
    reject: bool,
    /// Undo the rejection: the deletions are held back again
    #[arg(long, conflicts_with_all = ["list", "reject", "dry_run"])]
    undo_reject: bool,
    /// Only show what would be done
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    pub(super) daemon: DaemonAddress,
}

pub(super) async fn approve(config: &Config, arguments: &ApproveArguments) -> u8 {
    let client = match client(config) {
        Ok(client) => client,
        Err(error) => return print_failure(&error),
    };
    let names = std::slice::from_ref(&arguments.source);
    let sources = match source_names(&client, config, names).await {
        Ok(sources) => sources,
        Err(status) => return status,
    };
    for source in &sources {
        if let Err(error) = approve_all(&client, config, source, arguments).await {
            return print_failure(&error);
        }
    }
    OK
}

async fn approve_all(
    client: &DaemonClient,
    config: &Config,
    source: &str,
    arguments: &ApproveArguments,
) -> Result<(), DaemonError> {
    let operation = match (arguments.reject, arguments.undo_reject) {
        (true, _) => "reject",
        (_, true) => "undo-reject",
        _ => "approve",
    };
    if arguments.list || arguments.dry_run {
        list(client, config, source, arguments).await
    } else {
        let query = match arguments.through {
            Some(through) => format!("?through={through}"),
            None => String::new(),
        };
        let path = format!("/sources/{source}/{operation}{query}");
        println!("{}", client.post(&path).await?);
        Ok(())
    }
}

async fn list(
    client: &DaemonClient,
    config: &Config,
    source: &str,
    arguments: &ApproveArguments,
) -> Result<(), DaemonError> {
    let mut sources = config.sources.iter();
    let deletes = sources.find(|it| it.name == source).map(|it| it.delete);
    let prefix = match (arguments.list, arguments.reject, deletes) {
        (true, ..) => "",
        (false, true, _) => "would keep: ",
        (false, false, Some(true)) => "would delete: ",
        (false, false, Some(false)) => "would record as deleted, and keep the file: ",
        // With `--address` only the daemon knows.
        (false, false, None) => "would approve the deletion: ",
    };
    // Read before the list: what is held back while the list is read is not part of it.
    let through = match (arguments.rejected, arguments.through) {
        (true, _) => None,
        (false, Some(through)) => Some(through),
        (false, None) => held_through(client, source).await?,
    };
    let mut rows = 0_usize;
    let show = |_: &str, deletion: &HeldDeletion| {
        if through.is_none_or(|through| deletion.hold <= through) {
            println!("{prefix}{}", described(deletion));
            rows += 1;
        }
    };
    let list = match arguments.rejected {
        true => "held?rejected=true&",
        false => "held?",
    };
    each_row(client, list, source, show).await?;
    println!("{}", tally(rows, arguments.rejected));
    if let Some(through) = through.filter(|_| rows > 0 && arguments.list) {
        println!(
            "`resyncd approve {source} --through {through}` approves exactly these deletions; with --reject the files stay"
        );
    }
    Ok(())
}

/// The number up to which deletions of a Source are held back by now.
async fn held_through(client: &DaemonClient, source: &str) -> Result<Option<u64>, DaemonError> {
    let status = daemon_status(client).await?;
    let mut sources = status.sources.iter();
    let found = sources.find(|it| it.name == source);
    Ok(found.and_then(SourceStatus::held_through))
}

/// The resource, with its file, and how many go with it.
fn described(deletion: &HeldDeletion) -> String {
    let linked = match deletion.linked {
        0 => String::new(),
        1 => ", with 1 linked file".to_owned(),
        linked => format!(", with {linked} linked files"),
    };
    match &deletion.path {
        Some(path) => format!("{} ({path}){linked}", deletion.uri),
        None => format!("{} (no file){linked}", deletion.uri),
    }
}

fn tally(rows: usize, are_rejected: bool) -> String {
    let what = match are_rejected {
        true => "rejected; the files stay",
        false => "held back",
    };
    match rows {
        0 if are_rejected => "no deletions are rejected".to_owned(),
        0 => "no deletions are held back".to_owned(),
        1 => format!("1 deletion is {what}"),
        rows => format!("{rows} deletions are {what}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn deletion_is_described_with_what_goes_with_it() {
        let uri = "https://example.org/a";
        for (path, linked, expected) in [
            (Some("a"), 0, "https://example.org/a (a)"),
            (
                Some("a"),
                1,
                "https://example.org/a (a), with 1 linked file",
            ),
            (
                None,
                2,
                "https://example.org/a (no file), with 2 linked files",
            ),
        ] {
            let deletion = json!({
                "id": 1, "source": "sample", "set": "set", "uri": uri, "path": path, "length": null, "changed_at": null,
                "origin": "resource-list", "hold": 1, "linked": linked
            });
            let deletion: HeldDeletion = serde_json::from_value(deletion).unwrap();
            assert_eq!(described(&deletion), expected);
        }
    }
}
