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
    let show = |source: &str, answer: &str| println!("{source}: {}", shown(answer));
    post_for_each(config, &arguments.sources, "retry", show).await
}

/// The answer of the daemon as a sentence; as it is if it is another than expected.
fn shown(answer: &str) -> String {
    let parsed: Option<serde_json::Value> = serde_json::from_str(answer).ok();
    match parsed.and_then(|it| it["retried"].as_u64()) {
        Some(0) => "nothing has failed".to_owned(),
        Some(1) => "1 failed change is tried again".to_owned(),
        Some(count) => format!("{count} failed changes are tried again"),
        None => answer.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_become_sentences() {
        let cases = [
            ("{\"retried\":0}", "nothing has failed"),
            ("{\"retried\":1}", "1 failed change is tried again"),
            ("{\"retried\":12}", "12 failed changes are tried again"),
            ("{\"other\":1}", "{\"other\":1}"),
            ("busy", "busy"),
        ];
        for (answer, sentence) in cases {
            assert_eq!(shown(answer), sentence);
        }
    }
}
