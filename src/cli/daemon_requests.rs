//! What the commands share that ask the running daemon for something, or its handlers where none runs: which Sources, lists, operations.

use std::time::Duration;

use resyncd_core::visible_json;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::daemon::StartError;
use super::daemon_client::{DaemonAddress, DaemonClient, DaemonError};
use super::exit_status::{FAULTS, OK};
use super::failure::Failure;
use super::selection::select_sources;
use super::users::refuse_another_user;
use crate::config::Config;
use crate::status::Status;
use crate::store::{Store, StoreError};

/// How long one request may take.
const TIMEOUT: Duration = Duration::from_secs(60);
/// How many rows are requested at once.
const PAGE: usize = 10_000;

/// For which Sources something is requested, where, and how the answer is printed.
#[derive(Debug, clap::Args)]
pub(super) struct SourcesArguments {
    /// Names of Sources in the configuration; all if none is given
    #[arg(value_name = "SOURCE")]
    pub(super) sources: Vec<String>,
    /// Print one JSON object per line
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) daemon: DaemonAddress,
}

/// A client of the running daemon, and the names of these Sources, or of all.
pub(super) async fn ask_daemon(
    config: &Config,
    names: &[String],
) -> Result<(DaemonClient, Vec<String>), Failure> {
    let client = DaemonClient::new(config, TIMEOUT)?;
    let sources = source_names(&client, config, names).await?;
    Ok((client, sources))
}

/// The same; where no daemon runs, a client of its handlers, on its state.
pub(super) async fn ask_daemon_or_state(
    config: &Config,
    names: &[String],
) -> Result<(DaemonClient, Vec<String>), Failure> {
    if !config.sources.is_empty() {
        select_sources(config, names)?;
    }
    let client = DaemonClient::new(config, TIMEOUT)?;
    let client = match client.check_daemon().await {
        Ok(()) => client,
        Err(error) if !has_state(config) || !Store::exists(&config.state()) => {
            return Err(error.into());
        }
        Err(error) => {
            refuse_another_user(&config.state_dir)?;
            match DaemonClient::of_state(config, |_| false).await {
                Err(StartError::Store(locked @ StoreError::Locked(_))) => {
                    Failure::from(locked).print();
                    return Err(error.into());
                }
                opened => opened?,
            }
        }
    };
    let sources = source_names(&client, config, names).await?;
    Ok((client, sources))
}

/// A client of the running daemon, or else of its handlers on its state, which there need not be yet. `timeout`: for a complete request;
/// `ends`: whether subscriptions of a Source are to be ended.
pub(super) async fn daemon_or_state(
    config: &Config,
    timeout: Duration,
    ends: impl Fn(&str) -> bool,
) -> Result<DaemonClient, Failure> {
    let client = DaemonClient::new(config, timeout)?;
    match client.check_daemon().await {
        Ok(()) => Ok(client),
        Err(error) if !has_state(config) => Err(error.into()),
        Err(_) => {
            refuse_another_user(&config.state_dir)?;
            Ok(DaemonClient::of_state(config, ends).await?)
        }
    }
}

/// Whether it is known where the state is; with `--address` it is not.
fn has_state(config: &Config) -> bool {
    !config.state_dir.as_os_str().is_empty()
}

/// Prints why the daemon did not answer; returns the exit status.
pub(super) fn print_failure(error: DaemonError) -> u8 {
    Failure::from(error).print()
}

/// The names of these Sources, or of all. With `--address` only the daemon knows the Sources.
async fn source_names(
    client: &DaemonClient,
    config: &Config,
    names: &[String],
) -> Result<Vec<String>, Failure> {
    if !config.sources.is_empty() {
        let sources = select_sources(config, names)?;
        return Ok(sources.into_iter().map(|source| source.name).collect());
    }
    let is_name = |name: &String| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    if let Some(wrong) = names.iter().find(|name| !is_name(name)) {
        let message = format!("{wrong:?} is not the name of a Source [unknown-source]");
        return Err(Failure::new(FAULTS, message));
    }
    if !names.is_empty() {
        return Ok(names.to_vec());
    }
    let sources = daemon_status(client).await?.sources.into_iter();
    Ok(sources.map(|source| source.name).collect())
}

/// The status of the daemon.
pub(super) async fn daemon_status(client: &DaemonClient) -> Result<Status, DaemonError> {
    client.read("/status").await
}

/// Requests a list of these Sources page by page, and prints its rows: with `json` as they were received, else what `text` makes of them,
/// with the name of the Source; `None`: not. Returns how many were printed. `list`: its path, with the beginning of the query.
pub(super) async fn print_rows<T: DeserializeOwned>(
    client: &DaemonClient,
    list: &str,
    sources: &[String],
    json: bool,
    text: impl Fn(&str, &T) -> Option<String>,
) -> Result<usize, DaemonError> {
    /// The next page begins after the last number.
    #[derive(Deserialize)]
    struct Numbered {
        id: i64,
    }
    let mut printed = 0;
    for source in sources {
        let mut after = 0;
        loop {
            let path = format!("/{list}source={source}&after={after}&limit={PAGE}");
            let body = client.get(&path).await?;
            for line in body.lines() {
                let row: T = client.parse(line)?;
                after = client.parse::<Numbered>(line)?.id;
                let Some(text) = text(source, &row) else {
                    continue;
                };
                printed += 1;
                if json {
                    println!("{}", visible_json(line));
                } else {
                    println!("{text}");
                }
            }
            if body.lines().count() < PAGE {
                break;
            }
        }
    }
    Ok(printed)
}

/// Requests an operation for each of these Sources, also after one for which it is rejected: the daemon may not know a new one yet.
/// `show` prints the answer for one. Returns the exit status.
pub(super) async fn post_for_each(
    client: &DaemonClient,
    sources: &[String],
    operation: &str,
    show: impl Fn(&str, &str),
) -> u8 {
    let mut status = OK;
    for source in sources {
        let path = format!("/sources/{source}/{operation}");
        match client.post(&path).await {
            Ok(answer) => show(source, &answer),
            Err(error) => {
                let is_unreachable = error.is_unreachable();
                status = print_failure(error);
                if is_unreachable {
                    break;
                }
            }
        }
    }
    status
}

/// Prints how many changes of a Source an operation was for, as a sentence or with the Source as JSON. `key`: of the number in the answer.
pub(super) fn print_count(
    source: &str,
    answer: &str,
    key: &str,
    json: bool,
    sentence: impl Fn(u64) -> String,
) {
    let parsed: Option<Map<String, Value>> = serde_json::from_str(answer).ok();
    let count = parsed.as_ref().and_then(|it| it.get(key)?.as_u64());
    match (parsed, count) {
        (Some(mut parsed), _) if json => {
            parsed.insert("source".to_owned(), source.into());
            println!("{}", visible_json(&Value::Object(parsed).to_string()));
        }
        (_, Some(count)) => println!("{source}: {}", sentence(count)),
        // Of a daemon of another version.
        _ => println!("{source}: {answer}"),
    }
}

/// Prints when what was requested is done, if no daemon does it.
pub(super) fn print_when_done(client: &DaemonClient, json: bool) {
    if client.engine().is_some() && !json {
        println!("no daemon runs: the next `resyncd run` or `resyncd sync` does it");
    }
}
