//! `approve`: shows, approves or rejects held-back deletions through the running daemon.

use super::daemon_client::{DaemonAddress, DaemonClient, DaemonError};
use super::daemon_requests::{client, each_row, print_failure, source_names};
use super::exit_status::OK;
use crate::config::Config;
use crate::status::HeldDeletion;

/// Arguments of `approve`.
#[derive(Debug, clap::Args)]
pub(super) struct ApproveArguments {
    /// Name of the Source in the configuration
    source: String,
    /// Only list the deletions that are held back
    #[arg(long, conflicts_with_all = ["reject", "dry_run"])]
    list: bool,
    /// Reject the deletions: the files stay, until the Source lists a resource again or states a new change of it
    #[arg(long)]
    reject: bool,
    /// Have deletions that were rejected held back again
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
        let path = format!("/sources/{source}/{operation}");
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
    let show = |_: &str, deletion: &HeldDeletion| println!("{prefix}{}", described(deletion));
    let rows = each_row(client, "held", source, show).await?;
    println!("{}", tally(rows));
    Ok(())
}

/// The resource, with its file.
fn described(deletion: &HeldDeletion) -> String {
    match &deletion.path {
        Some(path) => format!("{} ({path})", deletion.uri),
        None => format!("{} (no file)", deletion.uri),
    }
}

fn tally(rows: usize) -> String {
    match rows {
        0 => "no deletions are held back".to_owned(),
        1 => "1 deletion is held back".to_owned(),
        rows => format!("{rows} deletions are held back"),
    }
}
