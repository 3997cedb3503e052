//! `held`: lists the deletions that are held back, through the running daemon, or from its state.

use super::daemon_requests::{SourcesArguments, ask_daemon_or_state, print_rows};
use super::exit_status::OK;
use super::failure::Failure;
use crate::config::Config;
use crate::status::HeldDeletion;

/// Arguments of `held`.
#[derive(Debug, clap::Args)]
pub(super) struct HeldArguments {
    #[command(flatten)]
    pub(super) of: SourcesArguments,
    /// The deletions that were rejected instead
    #[arg(long)]
    rejected: bool,
}

pub(super) async fn held(config: &Config, arguments: &HeldArguments) -> Result<u8, Failure> {
    let (client, sources) = ask_daemon_or_state(config, &arguments.of.sources).await?;
    let (rejected, json) = (arguments.rejected, arguments.of.json);
    let text =
        |source: &str, deletion: &HeldDeletion| Some(format!("{source}: {}", described(deletion)));
    let rows = print_rows(&client, list_path(rejected), &sources, json, text).await?;
    if !json {
        println!("{}", tally(rows, rejected));
    }
    Ok(OK)
}

/// The path of the list of deletions, with the beginning of its query.
pub(super) fn list_path(rejected: bool) -> &'static str {
    if rejected {
        "held?rejected=true&"
    } else {
        "held?"
    }
}

/// The resource, with its file, and how many go with it.
pub(super) fn described(deletion: &HeldDeletion) -> String {
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

/// How many deletions are held back, or rejected.
pub(super) fn tally(rows: usize, are_rejected: bool) -> String {
    let what = if are_rejected {
        "rejected; the files stay"
    } else {
        "held back"
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
