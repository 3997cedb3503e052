//! `failed`: lists the resources whose changes were given up, through the running daemon, or from its state.

use resyncd_core::visible_json;

use super::daemon_client::{DaemonAddress, DaemonClient, DaemonError};
use super::daemon_requests::{ask_daemon_or_state, each_row, print_failure};
use super::exit_status::OK;
use crate::config::Config;
use crate::status::FailedResource;

/// Arguments of `failed`.
#[derive(Debug, clap::Args)]
pub(super) struct FailedArguments {
    /// Names of Sources in the configuration; all if none is given
    #[arg(value_name = "SOURCE")]
    sources: Vec<String>,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pub(super) daemon: DaemonAddress,
}

pub(super) async fn failed(config: &Config, arguments: &FailedArguments) -> u8 {
    let names = &arguments.sources;
    let (client, sources) = match ask_daemon_or_state(config, &arguments.daemon, names).await {
        Ok(asked) => asked,
        Err(status) => return status,
    };
    match list(&client, &sources, arguments.json).await {
        Ok(()) => OK,
        Err(error) => print_failure(&error),
    }
}

async fn list(client: &DaemonClient, sources: &[String], json: bool) -> Result<(), DaemonError> {
    let mut rows = 0;
    for source in sources {
        let show = |line: &str, resource: &FailedResource| {
            if json {
                println!("{}", visible_json(line))
            } else {
                println!("{}", described(resource))
            }
        };
        rows += each_row(client, "failed?", source, show).await?;
    }
    if rows == 0 && !json {
        println!("nothing has failed");
    }
    Ok(())
}

/// The resource, why its change failed, since when, and when it is tried again.
fn described(resource: &FailedResource) -> String {
    let FailedResource {
        source,
        uri,
        code,
        message,
        since,
        next_try_at,
        unavailable,
        ..
    } = resource;
    let next = next_try_at.as_deref().unwrap_or("not planned");
    let unavailable = if *unavailable { ", unavailable" } else { "" };
    format!("{source}: {uri}: {message} [{code}], since {since}{unavailable}, next try {next}")
}
