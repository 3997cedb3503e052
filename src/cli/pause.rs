//! `pause` and `resume`: stop and start what is done for Sources, through the running daemon, or in its state.

use super::daemon_client::DaemonAddress;
use super::daemon_requests::{ask_daemon_or_state, post_for_each, print_when_done};
use super::failure::Failure;
use crate::config::Config;

/// Arguments of `pause` and `resume`.
#[derive(Debug, clap::Args)]
pub(super) struct PauseArguments {
    /// Names of Sources in the configuration
    #[arg(value_name = "SOURCE", required = true)]
    sources: Vec<String>,
    #[command(flatten)]
    pub(super) daemon: DaemonAddress,
}

pub(super) async fn pause(config: &Config, arguments: &PauseArguments) -> Result<u8, Failure> {
    post(config, arguments, "pause", "paused").await
}

pub(super) async fn resume(config: &Config, arguments: &PauseArguments) -> Result<u8, Failure> {
    post(config, arguments, "resume", "resumed").await
}

async fn post(
    config: &Config,
    arguments: &PauseArguments,
    operation: &str,
    done: &str,
) -> Result<u8, Failure> {
    let (client, sources) = ask_daemon_or_state(config, &arguments.sources).await?;
    let show = |source: &str, _: &str| println!("{source}: {done}");
    let status = post_for_each(&client, &sources, operation, show).await;
    print_when_done(&client, false);
    Ok(status)
}
