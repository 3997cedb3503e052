//! What the commands share that ask the running daemon for something.

use std::time::Duration;

use serde::de::DeserializeOwned;

use super::daemon_client::{DaemonClient, DaemonError};
use super::exit_status::{FAILED, FAULTS, OK, UNREACHABLE};
use super::selection::select_sources;
use crate::config::Config;
use crate::status::{FailedResource, HeldDeletion, Status};

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
pub(super) async fn source_names(
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

/// Requests an operation for each Source of those names, or for all, also after one for which it is rejected: the daemon may not know a
/// new one yet. `show` prints the answer for one. Returns the exit status.
pub(super) async fn post_for_each(
    config: &Config,
    names: &[String],
    operation: &str,
    show: impl Fn(&str, &str),
) -> u8 {
    let client = match client(config) {
        Ok(client) => client,
        Err(error) => return print_failure(&error),
    };
    let sources = match source_names(&client, config, names).await {
        Ok(sources) => sources,
        Err(status) => return status,
    };
    let mut status = OK;
    for source in &sources {
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
