//! `versions`: lists the stored versions of a resource, and has those fetched that its TimeMap names.
//!
//! Beside a running daemon, that one does the work: one process writes. Without one, this process does.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use resyncd_core::{ResourceUri, visible_json};
use url::form_urlencoded::byte_serialize;

use super::daemon::StartError;
use super::daemon_client::{DaemonClient, DaemonError};
use super::daemon_requests::{client, daemon_status, print_failure};
use super::exit_status::{FAILED, FAULTS, OK};
use super::logging::{self, DefaultLevel};
use super::stop_signals::StopSignals;
use super::users::refuse_another_user;
use crate::config::Config;
use crate::engine::Engine;
use crate::status::{ResourceVersion, StatusError};
use crate::store::Store;

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

/// Why there is no list.
enum VersionsFailure {
    Daemon(DaemonError),
    Start(StartError),
    Status(StatusError),
}

pub(super) async fn versions(
    mut config: Config,
    arguments: &VersionsArguments,
    environment: Option<&Path>,
) -> u8 {
    let _summaries = logging::start(DefaultLevel::Warn, config.log.format);
    let Ok(uri) = ResourceUri::parse(&arguments.uri) else {
        eprintln!(
            "resyncd: {:?} is not the http or https URI of a resource [bad-uri]",
            arguments.uri
        );
        return FAULTS;
    };
    config.sources.retain(|source| {
        source.versions.is_some()
            && arguments
                .source
                .as_ref()
                .is_none_or(|name| *name == source.name)
    });
    if config.sources.is_empty() {
        let of = match &arguments.source {
            Some(name) => format!("no Source {name:?} of the configuration stores versions"),
            None => "no Source of the configuration stores versions".to_owned(),
        };
        eprintln!("resyncd: {of}: set `versions` to a folder [no-versions]");
        return FAULTS;
    }
    let listed = match through_daemon(&config, &uri, arguments).await {
        Err(VersionsFailure::Daemon(error)) if error.is_unreachable() => {
            match refuse_another_user(&config.state_dir, environment) {
                Ok(()) => without_daemon(&config, &uri, arguments).await,
                Err(status) => return status,
            }
        }
        listed => listed,
    };
    match listed {
        Ok(listed) => {
            print(&listed, arguments.json);
            let is_missing = |version: &ResourceVersion| {
                if arguments.backfill {
                    version.state != "stored"
                } else {
                    version.state == "failed"
                }
            };
            if listed.iter().any(is_missing) {
                FAILED
            } else {
                OK
            }
        }
        Err(VersionsFailure::Daemon(error)) => print_failure(&error),
        Err(VersionsFailure::Start(error)) => {
            eprintln!("resyncd: {error} [{}]", error.code());
            FAILED
        }
        Err(VersionsFailure::Status(StatusError { code, message, .. })) => {
            eprintln!("resyncd: {message} [{code}]");
            FAILED
        }
    }
}

async fn through_daemon(
    config: &Config,
    uri: &ResourceUri,
    arguments: &VersionsArguments,
) -> Result<Vec<ResourceVersion>, VersionsFailure> {
    let client = client(config).map_err(VersionsFailure::Daemon)?;
    let query: String = byte_serialize(uri.as_str().as_bytes()).collect();
    if !arguments.backfill {
        return list(&client, config, &query).await;
    }
    let mut last = None;
    let mut is_requested = false;
    for source in &config.sources {
        let path = format!("/sources/{}/backfill?uri={query}", source.name);
        match client.post(&path).await {
            Ok(_) => is_requested = true,
            // Another Source may have it.
            Err(error @ DaemonError::Rejected { status: 404, .. }) => last = Some(error),
            Err(error) => return Err(VersionsFailure::Daemon(error)),
        }
    }
    if let Some(error) = last.filter(|_| !is_requested) {
        return Err(VersionsFailure::Daemon(error));
    }
    loop {
        let listed = list(&client, config, &query).await?;
        // What is tried again later is left to the daemon, and so is what waits for its resource.
        let is_due = |version: &ResourceVersion| {
            let is_ready = version.next_try_at.is_some();
            version.state == "pending" && version.error.is_none() && is_ready
        };
        // Nothing is stored while the folder can't be used.
        if !listed.iter().any(is_due) || is_unusable(&client, config).await? {
            return Ok(listed);
        }
        tokio::time::sleep(PACE).await;
    }
}

/// Whether a folder of versions can't be used; the status and the log state why.
async fn is_unusable(client: &DaemonClient, config: &Config) -> Result<bool, VersionsFailure> {
    let status = daemon_status(client)
        .await
        .map_err(VersionsFailure::Daemon)?;
    let is_asked = |name: &str| config.sources.iter().any(|source| source.name == name);
    let mut sources = status.sources.iter().filter(|it| is_asked(&it.name));
    Ok(sources.any(|it| it.attention.iter().any(|it| it.code == "versions-unusable")))
}

async fn list(
    client: &DaemonClient,
    config: &Config,
    query: &str,
) -> Result<Vec<ResourceVersion>, VersionsFailure> {
    let mut listed = Vec::new();
    for source in &config.sources {
        let path = format!("/versions?uri={query}&source={}", source.name);
        let body = client.get(&path).await.map_err(VersionsFailure::Daemon)?;
        for line in body.lines() {
            let row = serde_json::from_str(line);
            listed.push(row.map_err(|_| VersionsFailure::Daemon(client.not_resyncd()))?);
        }
    }
    Ok(listed)
}

async fn without_daemon(
    config: &Config,
    uri: &ResourceUri,
    arguments: &VersionsArguments,
) -> Result<Vec<ResourceVersion>, VersionsFailure> {
    let prepared = async {
        let store = Store::open(&config.state_dir)?;
        let client = config.client()?;
        Ok::<_, StartError>(Engine::once(config, Arc::clone(&store), &client).await?)
    };
    let engine = prepared.await.map_err(VersionsFailure::Start)?;
    if arguments.backfill {
        let working = engine.backfill_versions(uri);
        let mut working = std::pin::pin!(working);
        let done = match StopSignals::listen() {
            Ok(mut signals) => tokio::select! {
                done = &mut working => done,
                () = signals.wait() => {
                    engine.interrupt();
                    working.await
                }
            },
            Err(_) => working.await,
        };
        done.map_err(VersionsFailure::Status)?;
    }
    let listed = engine.versions(None, uri).await;
    Ok(listed.map_err(VersionsFailure::Status)?.unwrap_or_default())
}

fn print(listed: &[ResourceVersion], json: bool) {
    for version in listed {
        if json {
            println!("{}", visible_json(&serde_json::json!(version).to_string()))
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
