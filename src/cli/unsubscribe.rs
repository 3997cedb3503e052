//! `unsubscribe`: ends the subscriptions at their hubs, through the running daemon, or without one.

use std::time::Duration;

use super::ask::{AskError, Asking};
use super::daemon::{Listening, StartError, listen_for_hubs};
use super::{FAILED, OK, chosen};
use crate::config::{Config, Source};
use crate::engine::end_subscriptions;
use crate::fetch::Client;
use crate::http::RejectionCounters;
use crate::status::Ending;
use crate::store::Store;

/// Longer than the hubs have to confirm.
const PATIENCE: Duration = Duration::from_secs(120);

/// What `unsubscribe` may be told.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The Sources, by their names in the configuration; all, if none is named
    #[arg(value_name = "SOURCE")]
    sources: Vec<String>,
}

pub(super) async fn unsubscribe(config: Config, arguments: &Arguments) -> u8 {
    let sources = match chosen(&config, &arguments.sources) {
        Ok(sources) => sources,
        Err(status) => return status,
    };
    let ended = match through_daemon(&config, &sources).await {
        Err(AskError::Unreachable { .. }) => match by_ourselves(config, &sources).await {
            Ok(endings) => endings,
            Err(error) => {
                eprintln!("resyncd: {error} [{}]", error.code());
                return FAILED;
            }
        },
        Ok(endings) => endings,
        Err(error) => {
            eprintln!("resyncd: {error}");
            return FAILED;
        }
    };
    for Ending {
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
    if ended.iter().all(|ending| ending.confirmed) {
        OK
    } else {
        FAILED
    }
}

async fn through_daemon(config: &Config, sources: &[Source]) -> Result<Vec<Ending>, AskError> {
    let asking = Asking::of(config, PATIENCE)?;
    let mut endings = Vec::new();
    for source in sources {
        let body = asking
            .post(&format!("/sources/{}/unsubscribe", source.name))
            .await?;
        let told: Vec<Ending> = serde_json::from_str(&body).map_err(|error| AskError::Refused {
            status: 200,
            body: format!("{error} in {body}"),
        })?;
        endings.extend(told);
    }
    Ok(endings)
}

/// Without a daemon somebody must answer the hubs when they verify the intent: we do.
async fn by_ourselves(mut config: Config, sources: &[Source]) -> Result<Vec<Ending>, StartError> {
    let store = Store::open(&config.state_dir)?;
    let client = Client::new(&config.http)?;
    let bound = listen_for_hubs(&mut config).await?;
    let listening = Listening::to_hubs(Some(bound), &config, &store, RejectionCounters::default());
    let public_url = config.callback.public_url.as_ref();
    let mut endings = Vec::new();
    for source in sources {
        endings.extend(end_subscriptions(&store, &client, public_url, source).await);
    }
    listening.stop().await;
    Ok(endings)
}
