//! `unsubscribe`: ends the subscriptions at their hubs, through the running daemon or without one. Also those of Sources that
//! are no longer in the configuration.

use std::collections::BTreeSet;
use std::time::Duration;

use super::daemon_client::DaemonError;
use super::daemon_requests::{daemon_or_state, daemon_status};
use super::exit_status::{FAILED, OK};
use super::failure::Failure;
use super::selection::refuse_unknown;
use crate::config::Config;
use crate::status::UnsubscribeResult;

/// How long the daemon may take to answer: longer than the hubs have to confirm.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Arguments of `unsubscribe`.
#[derive(Debug, clap::Args)]
pub(super) struct UnsubscribeArguments {
    /// Names of Sources, in the configuration or formerly; all if none is given
    #[arg(value_name = "SOURCE")]
    sources: Vec<String>,
}

pub(super) async fn unsubscribe(
    config: &Config,
    arguments: &UnsubscribeArguments,
) -> Result<u8, Failure> {
    // Whatever fails, the daemon that does not answer included.
    let failed = |failure: Failure| failure.with_status(FAILED);
    let names = &arguments.sources;
    let is_named = |name: &str| names.is_empty() || names.iter().any(|it| it == name);
    let client = daemon_or_state(config, TIMEOUT, is_named).await;
    let client = client.map_err(failed)?;
    let status = daemon_status(&client).await;
    let former = status.map_err(|error| failed(error.into()))?.unfollowed;
    let configured = config.sources.iter().map(|source| source.name.clone());
    let former = former.into_iter().map(|channel| channel.source);
    let known: BTreeSet<String> = configured.chain(former).collect();
    let unknown = names.iter().filter(|name| !known.contains(*name));
    refuse_unknown(unknown, ", and no subscription of one")?;
    let mut ended: Vec<UnsubscribeResult> = Vec::new();
    for name in known.iter().filter(|name| is_named(name)) {
        match client.post(&format!("/sources/{name}/unsubscribe")).await {
            Ok(body) => {
                let results: Result<Vec<_>, _> = client.parse(&body);
                ended.extend(results.map_err(|error| failed(error.into()))?);
            }
            // It was a former one, and has ended meanwhile.
            Err(DaemonError::Rejected { status: 404, .. }) => {}
            Err(error) => return Err(failed(error.into())),
        }
    }
    client.end().await;
    for result in &ended {
        println!("{}", line_of(result));
    }
    if ended.is_empty() {
        println!("no subscriptions");
    }
    let is_confirmed = ended.iter().all(|result| result.confirmed);
    Ok(if is_confirmed { OK } else { FAILED })
}

/// A line about a subscription: where its notifications have come from, or over what, and whether it has ended.
pub(super) fn line_of(result: &UnsubscribeResult) -> String {
    let UnsubscribeResult {
        source,
        transport,
        topic,
        hub,
        message,
        ..
    } = result;
    let place = match (hub.as_str(), transport.as_str()) {
        ("", "") => topic.clone(),
        ("", transport) => format!("{topic} over {transport}"),
        (hub, _) => format!("{topic} at {hub}"),
    };
    format!("{source}: {place}: {message}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_names_the_hub_or_else_the_transport() {
        let line = |transport: &str, topic: &str, hub: &str| {
            line_of(&UnsubscribeResult {
                source: "a".to_owned(),
                transport: transport.to_owned(),
                topic: topic.to_owned(),
                hub: hub.to_owned(),
                confirmed: true,
                message: "confirmed".to_owned(),
            })
        };
        let (hub, node) = ("https://hub.example/", "xmpp:b.example?;node=n");
        for (found, expected) in [
            (
                line("websub", "https://b.example/", hub),
                "a: https://b.example/ at https://hub.example/: confirmed",
            ),
            (
                line("xmpp", node, ""),
                "a: xmpp:b.example?;node=n over xmpp: confirmed",
            ),
            // Of a daemon of a former version.
            (line("", node, ""), "a: xmpp:b.example?;node=n: confirmed"),
        ] {
            assert_eq!(found, expected);
        }
    }
}
