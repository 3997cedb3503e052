//! `retry`: has the running daemon try again at once what was given up.

use super::daemon_client::DaemonAddress;
use super::daemon_requests::post_for_each;
use crate::config::Config;

/// Arguments of `retry`.
#[derive(Debug, clap::Args)]
pub(super) struct RetryArguments {
    /// Names of Sources in the configuration; all if none is given
    #[arg(value_name = "SOURCE")]
    sources: Vec<String>,
    #[command(flatten)]
    pub(super) daemon: DaemonAddress,
}

pub(super) async fn retry(config: &Config, arguments: &RetryArguments) -> u8 {
    let show = |source: &str, answer: &str| println!("{source}: {answer}");
    post_for_each(config, &arguments.sources, "retry", show).await
}
