//! `approve`: shows, approves or rejects held-back deletions, through the running daemon, or on its state.

use super::daemon_client::{DaemonAddress, DaemonClient, DaemonError};
use super::daemon_requests::{
    ask_daemon_or_state, daemon_status, print_count, print_rows, print_when_done,
};
use super::exit_status::OK;
use super::failure::Failure;
use super::held::{described, list_path, tally};
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
    /// Print JSON: with --list and --dry-run one object per line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pub(super) daemon: DaemonAddress,
}

pub(super) async fn approve(config: &Config, arguments: &ApproveArguments) -> Result<u8, Failure> {
    let names = std::slice::from_ref(&arguments.source);
    let (client, _) = ask_daemon_or_state(config, names).await?;
    if arguments.list || arguments.dry_run {
        list(&client, config, arguments).await?;
        return Ok(OK);
    }
    let (operation, key, done) = match (arguments.reject, arguments.undo_reject) {
        (true, _) => ("reject", "rejected", "rejected; the files stay"),
        (_, true) => ("undo-reject", "held", "held back again"),
        _ => ("approve", "approved", "approved"),
    };
    let query = match arguments.through {
        Some(through) => format!("?through={through}"),
        None => String::new(),
    };
    let path = format!("/sources/{}/{operation}{query}", arguments.source);
    let answer = client.post(&path).await?;
    let sentence = |count| match count {
        0 => format!("no deletions are {done}"),
        1 => format!("1 deletion is {done}"),
        count => format!("{count} deletions are {done}"),
    };
    print_count(&arguments.source, &answer, key, arguments.json, sentence);
    print_when_done(&client, arguments.json);
    Ok(OK)
}

async fn list(
    client: &DaemonClient,
    config: &Config,
    arguments: &ApproveArguments,
) -> Result<(), DaemonError> {
    let source = &arguments.source;
    let mut sources = config.sources.iter();
    let deletes = sources.find(|it| it.name == *source).map(|it| it.delete);
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
    let text = |_: &str, deletion: &HeldDeletion| {
        let is_part = through.is_none_or(|through| deletion.hold <= through);
        is_part.then(|| format!("{prefix}{}", described(deletion)))
    };
    let (path, sources) = (list_path(arguments.rejected), std::slice::from_ref(source));
    let rows = print_rows(client, path, sources, arguments.json, text).await?;
    if arguments.json {
        return Ok(());
    }
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
