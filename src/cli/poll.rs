//! `poll`: has the running daemon poll the documents at once.

use super::daemon_client::DaemonAddress;
use super::daemon_requests::{ask_daemon, post_for_each};
use super::failure::Failure;
use crate::config::Config;

/// Arguments of `poll`.
#[derive(Debug, clap::Args)]
pub(super) struct PollArguments {
    /// Names of Sources in the configuration; all if none is given
    #[arg(value_name = "SOURCE")]
    sources: Vec<String>,
    #[command(flatten)]
    pub(super) daemon: DaemonAddress,
}

pub(super) async fn poll(config: &Config, arguments: &PollArguments) -> Result<u8, Failure> {
    let (client, sources) = ask_daemon(config, &arguments.sources).await?;
    let show = |source: &str, _: &str| println!("{source}: poll requested");
    Ok(post_for_each(&client, &sources, "poll", show).await)
}
