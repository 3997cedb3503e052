//! `versions`: lists the stored versions of a resource, and has those fetched that its TimeMap names.
//!
//! Beside a running daemon, that one does the work: one process writes. Without one, this process does.

use std::time::Duration;

use resyncd_core::ResourceUri;
use url::form_urlencoded::byte_serialize;

use super::daemon_client::{DaemonClient, DaemonError};
use super::daemon_requests::{daemon_or_state, daemon_status};
use super::exit_status::{FAILED, FAULTS, OK};
use super::failure::Failure;
use super::output::json_line;
use super::stop_signals::StopSignals;
use crate::config::{Config, Source};
use crate::engine::Engine;
use crate::status::{ResourceVersion, StatusError};

/// How long one request may take.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The pause between two looks at what the daemon still has to do.
const PACE: Duration = Duration::from_millis(500);

/// Arguments of `versions`.
#[derive(Debug, clap::Args)]
pub(super) struct VersionsArguments {
    /// URI of a resource
    uri: String,
    /// Name of a Source in the configuration; all that store versions if none is given
    #[arg(long, value_name = "SOURCE")]
    source: Option<String>,
    /// First store the versions that the resource's TimeMap names
    #[arg(long)]
    backfill: bool,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

pub(super) async fn versions(
    mut config: Config,
    arguments: &VersionsArguments,
) -> Result<u8, Failure> {
    let Ok(uri) = ResourceUri::parse(&arguments.uri) else {
        let text = "is not the http or https URI of a resource [bad-uri]";
        return Err(Failure::new(FAULTS, format!("{:?} {text}", arguments.uri)));
    };
    let is_named = |name: &String| arguments.source.as_ref().is_none_or(|named| named == name);
    let has_versions = |source: &Source| source.versions.is_some() && is_named(&source.name);
    config.sources.retain(has_versions);
    if config.sources.is_empty() {
        let of = match &arguments.source {
            Some(name) => format!("no Source {name:?} of the configuration stores versions"),
            None => "no Source of the configuration stores versions".to_owned(),
        };
        let text = format!("{of}: set `versions` to a folder [no-versions]");
        return Err(Failure::new(FAULTS, text));
    }
    let client = daemon_or_state(&config, TIMEOUT, |_| false).await?;
    let query: String = byte_serialize(uri.as_str().as_bytes()).collect();
    if arguments.backfill {
        match client.engine() {
            Some(engine) => backfill_here(engine, &uri).await?,
            None => backfill_by_daemon(&client, &config, &query).await?,
        }
    }
    let listed = list(&client, &config, &query).await?;
    print(&listed, arguments.json);
    let is_missing = |version: &ResourceVersion| {
        if arguments.backfill {
            version.state != "stored"
        } else {
            version.state == "failed"
        }
    };
    Ok(if listed.iter().any(is_missing) {
        FAILED
    } else {
        OK
    })
}

/// Has the daemon read the TimeMap and store the versions that it names.
async fn backfill_by_daemon(
    client: &DaemonClient,
    config: &Config,
    query: &str,
) -> Result<(), DaemonError> {
    let mut last = None;
    let mut is_requested = false;
    for source in &config.sources {
        let path = format!("/sources/{}/backfill?uri={query}", source.name);
        match client.post(&path).await {
            Ok(_) => is_requested = true,
            // Another Source may have it.
            Err(error @ DaemonError::Rejected { status: 404, .. }) => last = Some(error),
            Err(error) => return Err(error),
        }
    }
    if let Some(error) = last.filter(|_| !is_requested) {
        return Err(error);
    }
    // What is tried again later is left to the daemon, and so is what waits for its resource.
    let is_due = |version: &ResourceVersion| {
        let is_ready = version.next_try_at.is_some();
        version.state == "pending" && version.error.is_none() && is_ready
    };
    // Nothing is stored while the folder can't be used.
    while list(client, config, query).await?.iter().any(is_due)
        && !is_unusable(client, config).await?
    {
        tokio::time::sleep(PACE).await;
    }
    Ok(())
}

/// Reads the TimeMap and stores the versions that it names.
async fn backfill_here(engine: &Engine, uri: &ResourceUri) -> Result<(), StatusError> {
    let mut working = std::pin::pin!(engine.backfill_versions(uri));
    match StopSignals::listen() {
        Ok(mut signals) => tokio::select! {
            done = &mut working => done,
            () = signals.wait() => {
                engine.interrupt();
                working.await
            }
        },
        Err(_) => working.await,
    }
}

/// Whether a folder of versions can't be used; the status and the log state why.
async fn is_unusable(client: &DaemonClient, config: &Config) -> Result<bool, DaemonError> {
    let status = daemon_status(client).await?;
    let is_asked = |name: &str| config.sources.iter().any(|source| source.name == name);
    let mut sources = status.sources.iter().filter(|it| is_asked(&it.name));
    Ok(sources.any(|it| it.attention.iter().any(|it| it.code == "versions-unusable")))
}

async fn list(
    client: &DaemonClient,
    config: &Config,
    query: &str,
) -> Result<Vec<ResourceVersion>, DaemonError> {
    let mut listed = Vec::new();
    for source in &config.sources {
        let path = format!("/versions?uri={query}&source={}", source.name);
        let body = client.get(&path).await?;
        for line in body.lines() {
            listed.push(client.parse(line)?);
        }
    }
    Ok(listed)
}

fn print(listed: &[ResourceVersion], json: bool) {
    for version in listed {
        if json {
            println!("{}", json_line(version))
        } else {
            println!("{}", described(version))
        }
    }
    if listed.is_empty() && !json {
        println!("no versions are stored");
    }
}

/// The time of the version, where it is or why it is not, and its length.
fn described(version: &ResourceVersion) -> String {
    let at = version.at.as_deref().unwrap_or("TimeMap");
    let path = version.path.as_deref().unwrap_or_default();
    match (&version.error, version.length) {
        (_, Some(length)) => format!("{at}  {length} bytes  {path}"),
        (Some(error), None) => {
            let next = match &version.next_try_at {
                Some(next) => format!("; next try {next}"),
                None => String::new(),
            };
            format!(
                "{at}  {}: {} [{}]{next}",
                version.state, error.message, error.code
            )
        }
        (None, None) => format!("{at}  {}", version.state),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::VersionError;

    #[test]
    fn versions_are_described_in_one_line() {
        let stored = ResourceVersion {
            source: "a".to_owned(),
            uri: "http://a.example/r".to_owned(),
            at: Some("2013-01-03T18:00:00Z".to_owned()),
            state: "stored".to_owned(),
            path: Some("a.example/r/20130103T180000Z".to_owned()),
            length: Some(5),
            error: None,
            next_try_at: None,
        };
        assert_eq!(
            described(&stored),
            "2013-01-03T18:00:00Z  5 bytes  a.example/r/20130103T180000Z"
        );
        let failed = ResourceVersion {
            at: None,
            state: "failed".to_owned(),
            path: None,
            length: None,
            error: Some(VersionError {
                code: "not-found".to_owned(),
                message: "404".to_owned(),
            }),
            ..stored
        };
        assert_eq!(described(&failed), "TimeMap  failed: 404 [not-found]");
        let pending = ResourceVersion {
            state: "pending".to_owned(),
            error: None,
            ..failed
        };
        assert_eq!(described(&pending), "TimeMap  pending");
    }
}
