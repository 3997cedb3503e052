//! `retry`: has what was given up tried again at once, through the running daemon, or on its state.

use super::daemon_requests::{
    SourcesArguments, ask_daemon_or_state, post_for_each, print_count, print_when_done,
};
use super::failure::Failure;
use crate::config::Config;

pub(super) async fn retry(config: &Config, arguments: &SourcesArguments) -> Result<u8, Failure> {
    let json = arguments.json;
    let (client, sources) = ask_daemon_or_state(config, &arguments.sources).await?;
    let show = |source: &str, answer: &str| print_count(source, answer, "retried", json, sentence);
    let status = post_for_each(&client, &sources, "retry", show).await;
    print_when_done(&client, json);
    Ok(status)
}

fn sentence(retried: u64) -> String {
    match retried {
        0 => "nothing has failed".to_owned(),
        1 => "1 failed change is tried again".to_owned(),
        count => format!("{count} failed changes are tried again"),
    }
}
