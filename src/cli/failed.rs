//! `failed`: lists the resources whose changes were given up, through the running daemon, or from its state.

use super::daemon_requests::{SourcesArguments, ask_daemon_or_state, print_rows};
use super::exit_status::OK;
use super::failure::Failure;
use crate::config::Config;
use crate::status::FailedResource;

pub(super) async fn failed(config: &Config, arguments: &SourcesArguments) -> Result<u8, Failure> {
    let (client, sources) = ask_daemon_or_state(config, &arguments.sources).await?;
    let json = arguments.json;
    let text = |_: &str, resource: &FailedResource| Some(described(resource));
    let rows = print_rows(&client, "failed?", &sources, json, text).await?;
    if rows == 0 && !json {
        println!("nothing has failed");
    }
    Ok(OK)
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
