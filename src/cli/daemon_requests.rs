//! What the commands share that ask the running daemon for something, or, where none runs, the handlers of its status endpoint on the
//! state of the daemon: an action is implemented once.

use std::sync::Arc;
use std::time::Duration;

use resyncd_core::visible_json;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::daemon::StartError;
use super::daemon_client::{DaemonAddress, DaemonClient, DaemonError};
use super::exit_status::{FAILED, FAULTS, OK, UNREACHABLE};
use super::selection::select_sources;
use super::users::refuse_another_user;
use crate::config::{Config, StatusConfig};
use crate::engine::Engine;
use crate::http::{RejectionCounters, operator_router};
use crate::status::{FailedResource, HeldDeletion, Status};
use crate::store::{Store, StoreError};

/// How long one request may take.
const TIMEOUT: Duration = Duration::from_secs(60);
/// How many rows are requested at once.
const PAGE: usize = 10_000;

/// A row of a list that the daemon serves in pages.
pub(super) trait Row: DeserializeOwned {
    /// Its number: the next page begins after the last one.
    fn id(&self) -> i64;
}

impl Row for FailedResource {
    fn id(&self) -> i64 {
        self.id
    }
}

impl Row for HeldDeletion {
    fn id(&self) -> i64 {
        self.id
    }
}

/// A client for requests that the daemon answers at once.
pub(super) fn client(config: &Config) -> Result<DaemonClient, DaemonError> {
    DaemonClient::new(config, TIMEOUT)
}

/// A client of the running daemon, and the names of these Sources, or of all; prints why there is none.
pub(super) async fn ask_daemon(
    config: &Config,
    names: &[String],
) -> Result<(DaemonClient, Vec<String>), u8> {
    let client = client(config).map_err(|error| print_failure(&error))?;
    let sources = source_names(&client, config, names).await?;
    Ok((client, sources))
}

/// The same; where no daemon runs, a client of its handlers, on its state. `address`: where the command line states that the daemon is.
pub(super) async fn ask_daemon_or_state(
    config: &Config,
    address: &DaemonAddress,
    names: &[String],
) -> Result<(DaemonClient, Vec<String>), u8> {
    if !config.sources.is_empty() {
        select_sources(config, names)?;
    }
    let client = client(config).map_err(|error| print_failure(&error))?;
    let client = match client.check_daemon().await {
        Err(error) if error.is_unreachable() && !address.is_given() => {
            of_state(config, &error).await?
        }
        _ => client,
    };
    let sources = source_names(&client, config, names).await?;
    Ok((client, sources))
}

/// A client of the handlers on the state of a daemon that does not run. `unreachable`: why none is reached.
async fn of_state(config: &Config, unreachable: &DaemonError) -> Result<DaemonClient, u8> {
    if !Store::exists(&config.state_dir) {
        return Err(print_failure(unreachable));
    }
    refuse_another_user(&config.state_dir, super::config_of_environment().as_deref())?;
    let opened = async {
        let store = Store::open(&config.state_dir)?;
        let client = config.client()?;
        let engine = Engine::once(config, Arc::clone(&store), &client).await?;
        Ok::<_, StartError>((store, engine))
    };
    let (store, engine) = opened.await.map_err(|error| {
        let is_locked = matches!(error, StartError::Store(StoreError::Locked(_)));
        eprintln!("resyncd: {error} [{}]", error.code());
        if is_locked {
            print_failure(unreachable)
        } else {
            FAILED
        }
    })?;
    // Nobody else can send requests to it.
    let status = StatusConfig {
        token: None,
        ..config.status.clone()
    };
    let handlers = operator_router(
        engine,
        store,
        &status,
        CancellationToken::new(),
        RejectionCounters::default(),
    );
    Ok(DaemonClient::of_handlers(config, handlers))
}

/// Prints why the daemon did not answer; returns the exit status.
pub(super) fn print_failure(error: &DaemonError) -> u8 {
    eprintln!("resyncd: {error}");
    if error.is_unreachable() {
        UNREACHABLE
    } else {
        FAILED
    }
}

/// The names of these Sources, or of all; prints unknown names. With `--address` only the daemon knows the Sources.
async fn source_names(
    client: &DaemonClient,
    config: &Config,
    names: &[String],
) -> Result<Vec<String>, u8> {
    if !config.sources.is_empty() {
        let sources = select_sources(config, names)?;
        return Ok(sources.into_iter().map(|source| source.name).collect());
    }
    let is_name = |name: &String| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    if let Some(wrong) = names.iter().find(|name| !is_name(name)) {
        eprintln!("resyncd: {wrong:?} is not the name of a Source [unknown-source]");
        return Err(FAULTS);
    }
    if !names.is_empty() {
        return Ok(names.to_vec());
    }
    let status = daemon_status(client).await;
    let status = status.map_err(|error| print_failure(&error))?;
    Ok(status
        .sources
        .into_iter()
        .map(|source| source.name)
        .collect())
}

/// The status of the daemon.
pub(super) async fn daemon_status(client: &DaemonClient) -> Result<Status, DaemonError> {
    parse(&client.get("/status").await?)
}

/// What the daemon states.
fn parse<T: DeserializeOwned>(text: &str) -> Result<T, DaemonError> {
    serde_json::from_str(text).map_err(|error| DaemonError::Rejected {
        status: 200,
        body: format!("{error} in {text}"),
    })
}

/// Requests a list of a Source page by page, and passes each row to `show`, with the line that it was. Returns their number. `list`: its
/// path, with the beginning of the query.
pub(super) async fn each_row<T: Row>(
    client: &DaemonClient,
    list: &str,
    source: &str,
    mut show: impl FnMut(&str, &T),
) -> Result<usize, DaemonError> {
    let (mut after, mut rows) = (0, 0);
    loop {
        let path = format!("/{list}source={source}&after={after}&limit={PAGE}");
        let body = client.get(&path).await?;
        let mut of_page = 0;
        for line in body.lines() {
            let row: T = parse(line)?;
            show(line, &row);
            after = row.id();
            of_page += 1;
        }
        rows += of_page;
        if of_page < PAGE {
            return Ok(rows);
        }
    }
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
                status = print_failure(&error);
                if error.is_unreachable() {
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
    if !client.is_of_daemon() && !json {
        println!("no daemon runs: the next `resyncd run` or `resyncd sync` does it");
    }
}
