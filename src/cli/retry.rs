//! `retry`: has what was given up tried again at once, through the running daemon, or on its state.

use super::daemon_client::DaemonAddress;
use super::daemon_requests::{ask_daemon_or_state, post_for_each, print_count, print_when_done};
use crate::config::Config;

/// Arguments of `retry`.
#[derive(Debug, clap::Args)]
pub(super) struct RetryArguments {
    /// Names of Sources in the configuration; all if none is given
    #[arg(value_name = "SOURCE")]
    sources: Vec<String>,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pub(super) daemon: DaemonAddress,
}

pub(super) async fn retry(config: &Config, arguments: &RetryArguments) -> u8 {
    let (names, json) = (&arguments.sources, arguments.json);
    let (client, sources) = match ask_daemon_or_state(config, &arguments.daemon, names).await {
        Ok(asked) => asked,
        Err(status) => return status,
    };
    let show = |source: &str, answer: &str| print_count(source, answer, "retried", json, sentence);
    let status = post_for_each(&client, &sources, "retry", show).await;
    print_when_done(&client, json);
    status
}

fn sentence(retried: u64) -> String {
    match retried {
        0 => "nothing has failed".to_owned(),
        1 => "1 failed change is tried again".to_owned(),
        count => format!("{count} failed changes are tried again"),
    }
}
