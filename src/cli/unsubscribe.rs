//! `unsubscribe`: ends the subscriptions at their hubs, through the running daemon or without one. Also those of Sources that
//! are no longer in the configuration.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use super::daemon::{RunningListener, StartError, bind_callback};
use super::daemon_client::{DaemonClient, DaemonError};
use super::exit_status::{FAILED, FAULTS, OK};
use super::users::refuse_another_user;
use crate::config::Config;
use crate::engine::{EndingSource, end_subscriptions};
use crate::http::{RejectionCounters, SharedRedaction};
use crate::status::{Status, UnsubscribeResult};
use crate::store::Store;

/// How long the daemon may take to answer: longer than the hubs have to confirm.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Arguments of `unsubscribe`.
#[derive(Debug, clap::Args)]
pub(super) struct UnsubscribeArguments {
    /// Names of Sources, in the configuration or formerly; all if none is given
    #[arg(value_name = "SOURCE")]
    sources: Vec<String>,
}

/// Why the command failed.
enum UnsubscribeFailure {
    /// No Source of these names is or was followed.
    Unknown(Vec<String>),
    Daemon(DaemonError),
    Start(StartError),
    /// It was printed; the exit status.
    Refused(u8),
}

/// `environment`: the configuration file, if the environment names it.
pub(super) async fn unsubscribe(
    config: Config,
    arguments: &UnsubscribeArguments,
    environment: Option<&Path>,
) -> u8 {
    let names = &arguments.sources;
    let ended = match through_daemon(&config, names).await {
        Err(UnsubscribeFailure::Daemon(DaemonError::Unreachable { .. })) => {
            match refuse_another_user(&config.state_dir, environment) {
                Ok(()) => without_daemon(config, names).await,
                Err(status) => Err(UnsubscribeFailure::Refused(status)),
            }
        }
        ended => ended,
    };
    let ended = match ended {
        Ok(ended) => ended,
        Err(UnsubscribeFailure::Unknown(unknown)) => {
            for name in unknown {
                eprintln!(
                    "resyncd: no Source {name:?} in the configuration, and no subscription of one [unknown-source]"
                );
            }
            return FAULTS;
        }
        Err(UnsubscribeFailure::Daemon(error)) => {
            eprintln!("resyncd: {error}");
            return FAILED;
        }
        Err(UnsubscribeFailure::Refused(status)) => return status,
        Err(UnsubscribeFailure::Start(error)) => {
            eprintln!("resyncd: {error} [{}]", error.code());
            return FAILED;
        }
    };
    for result in &ended {
        println!("{}", line_of(result));
    }
    if ended.is_empty() {
        println!("no subscriptions");
    }
    if ended.iter().all(|result| result.confirmed) {
        OK
    } else {
        FAILED
    }
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

/// The Sources of those names, or all that are or were followed.
fn select(
    config: &Config,
    former: BTreeSet<String>,
    names: &[String],
) -> Result<BTreeSet<String>, UnsubscribeFailure> {
    let configured = config.sources.iter().map(|source| source.name.clone());
    let known: BTreeSet<String> = configured.chain(former).collect();
    let (selected, unknown): (Vec<String>, Vec<String>) =
        names.iter().cloned().partition(|name| known.contains(name));
    match (unknown.is_empty(), names.is_empty()) {
        (false, _) => Err(UnsubscribeFailure::Unknown(unknown)),
        (true, true) => Ok(known),
        (true, false) => Ok(selected.into_iter().collect()),
    }
}

async fn through_daemon(
    config: &Config,
    names: &[String],
) -> Result<Vec<UnsubscribeResult>, UnsubscribeFailure> {
    let client = DaemonClient::new(config, TIMEOUT).map_err(UnsubscribeFailure::Daemon)?;
    let status = client.get("/status").await;
    let status: Status = parse(&status.map_err(UnsubscribeFailure::Daemon)?)?;
    let former = status.unfollowed.into_iter().map(|channel| channel.source);
    let mut results = Vec::new();
    for name in select(config, former.collect(), names)? {
        match client.post(&format!("/sources/{name}/unsubscribe")).await {
            Ok(body) => results.extend(parse::<Vec<UnsubscribeResult>>(&body)?),
            // It was a former one, and has ended meanwhile.
            Err(DaemonError::Rejected { status: 404, .. }) => {}
            Err(error) => return Err(UnsubscribeFailure::Daemon(error)),
        }
    }
    Ok(results)
}

fn parse<T: serde::de::DeserializeOwned>(body: &str) -> Result<T, UnsubscribeFailure> {
    serde_json::from_str(body).map_err(|error| {
        UnsubscribeFailure::Daemon(DaemonError::Rejected {
            status: 200,
            body: format!("{error} in {body}"),
        })
    })
}

/// Serves the callback meanwhile: the hubs verify the intent to unsubscribe.
async fn without_daemon(
    mut config: Config,
    names: &[String],
) -> Result<Vec<UnsubscribeResult>, UnsubscribeFailure> {
    let failed = |error: StartError| UnsubscribeFailure::Start(error);
    let store = Store::open(&config.state_dir).map_err(|error| failed(error.into()))?;
    let former = store.subscribed_sources().await;
    let former = former.map_err(|error| failed(error.into()))?;
    let selected = select(&config, former, names)?;
    let client = config.client().map_err(|error| failed(error.into()))?;
    let transports = config.transports(client);
    let bound = bind_callback(&mut config).await.map_err(failed)?;
    let (secrets, rejections) = (
        SharedRedaction::new(&config.redaction()),
        RejectionCounters::default(),
    );
    let listener =
        RunningListener::start_callback(Some(bound), &config, &store, rejections, secrets);
    let public_url = config.callback.public_url.as_ref();
    let mut results = Vec::new();
    for name in &selected {
        let configured = config.sources.iter().find(|source| source.name == *name);
        let source = match configured {
            Some(source) => EndingSource::of(source, &transports, public_url),
            None => EndingSource::unfollowed(name, &transports, public_url),
        };
        results.extend(end_subscriptions(&store, &source).await);
    }
    listener.stop().await;
    Ok(results)
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
