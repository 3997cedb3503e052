//! `unsubscribe`: ends the subscriptions at their hubs, through the running daemon or without one.

use std::time::Duration;

use super::daemon::{RunningListener, StartError, bind_callback};
use super::daemon_client::{DaemonClient, DaemonError};
use super::exit_status::{FAILED, OK};
use super::selection::select_sources;
use crate::config::{Config, Source};
use crate::engine::end_subscriptions;
use crate::fetch::Client;
use crate::http::RejectionCounters;
use crate::status::UnsubscribeResult;
use crate::store::Store;

/// How long the daemon may take to answer: longer than the hubs have to confirm.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Arguments of `unsubscribe`.
#[derive(Debug, clap::Args)]
pub(super) struct UnsubscribeArguments {
    /// Names of Sources in the configuration; all if none is given
    #[arg(value_name = "SOURCE")]
    sources: Vec<String>,
}

pub(super) async fn unsubscribe(config: Config, arguments: &UnsubscribeArguments) -> u8 {
    let sources = match select_sources(&config, &arguments.sources) {
        Ok(sources) => sources,
        Err(status) => return status,
    };
    let ended = match through_daemon(&config, &sources).await {
        Err(DaemonError::Unreachable { .. }) => match without_daemon(config, &sources).await {
            Ok(results) => results,
            Err(error) => {
                eprintln!("resyncd: {error} [{}]", error.code());
                return FAILED;
            }
        },
        Ok(results) => results,
        Err(error) => {
            eprintln!("resyncd: {error}");
            return FAILED;
        }
    };
    for UnsubscribeResult {
        source,
        topic,
        hub,
        message,
        ..
    } in &ended
    {
        println!("{source}: {topic} at {hub}: {message}");
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

async fn through_daemon(
    config: &Config,
    sources: &[Source],
) -> Result<Vec<UnsubscribeResult>, DaemonError> {
    let client = DaemonClient::new(config, TIMEOUT)?;
    let mut results = Vec::new();
    for source in sources {
        let body = client
            .post(&format!("/sources/{}/unsubscribe", source.name))
            .await?;
        let ended: Vec<UnsubscribeResult> =
            serde_json::from_str(&body).map_err(|error| DaemonError::Rejected {
                status: 200,
                body: format!("{error} in {body}"),
            })?;
        results.extend(ended);
    }
    Ok(results)
}

/// Serves the callback meanwhile: the hubs verify the intent to unsubscribe.
async fn without_daemon(
    mut config: Config,
    sources: &[Source],
) -> Result<Vec<UnsubscribeResult>, StartError> {
    let store = Store::open(&config.state_dir)?;
    let client = Client::new(&config.http)?;
    let bound = bind_callback(&mut config).await?;
    let listener =
        RunningListener::start_callback(Some(bound), &config, &store, RejectionCounters::default());
    let public_url = config.callback.public_url.as_ref();
    let mut results = Vec::new();
    for source in sources {
        results.extend(end_subscriptions(&store, &client, public_url, source).await);
    }
    listener.stop().await;
    Ok(results)
}
