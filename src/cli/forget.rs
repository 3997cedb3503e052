//! `forget`: deletes what is known of a Source that is not followed any more, and its files if asked to; through the running daemon, or
//! without one. With `--former-sets` the running daemon deletes the files of former sets of a Source that is followed.

use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::daemon::{RunningListener, StartError, bind_callback};
use super::daemon_client::{DaemonAddress, DaemonClient, DaemonError};
use super::daemon_requests::{ask_daemon, post_for_each, print_failure};
use super::exit_status::{FAILED, FAULTS, OK};
use super::logging::{self, DefaultLevel};
use super::progress::{ProgressDisplay, SourceProgress};
use super::unsubscribe::line_of;
use super::users::refuse_another_user;
use crate::config::Config;
use crate::engine::{EndingSource, ForgetError, ForgetRequest, forget_source};
use crate::http::{RejectionCounters, SharedRedaction};
use crate::status::{Forgotten, Status};
use crate::store::Store;

/// How long the daemon may take: it answers when it is done, and there may be millions of files.
const TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// The time between two counts of the resources that are left. Each time costs the daemon as much as a request of the status.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(2);

/// Arguments of `forget`.
#[derive(Debug, clap::Args)]
pub(super) struct ForgetArguments {
    /// Name of a Source that was removed from the configuration; with --former-sets, of one that is in it
    source: String,
    /// Also delete its files of the mirror; files that are not known to be the Source's stay
    #[arg(long)]
    delete_files: bool,
    /// Delete the files of former or deselected sets of a Source that is followed
    #[arg(long, conflicts_with = "delete_files")]
    former_sets: bool,
    #[command(flatten)]
    pub(super) daemon: DaemonAddress,
}

/// Why nothing, or not everything, was forgotten.
enum ForgetFailure {
    Daemon(DaemonError),
    Start(StartError),
    Forget(ForgetError),
    /// It was printed.
    Refused(u8),
}

pub(super) async fn forget(
    config: Config,
    arguments: &ForgetArguments,
    environment: Option<&Path>,
) -> u8 {
    if arguments.former_sets {
        let _summaries = logging::start(DefaultLevel::Warn, config.log.format);
        let names = std::slice::from_ref(&arguments.source);
        let (client, sources) = match ask_daemon(&config, names).await {
            Ok(asked) => asked,
            Err(status) => return status,
        };
        let show = |source: &str, answer: &str| println!("{source}: {answer}");
        return post_for_each(&client, &sources, "forget-former-sets", show).await;
    }
    let names = std::iter::once(arguments.source.as_str());
    let mut display = ProgressDisplay::start(names, config.log.format);
    let mut show = |progress| display.show(std::iter::once(progress));
    let forgotten = match through_daemon(&config, arguments, &mut show).await {
        Err(ForgetFailure::Daemon(error))
            if error.is_unreachable() && !arguments.daemon.is_given() =>
        {
            without_daemon(config, arguments, environment, &mut show).await
        }
        forgotten => forgotten,
    };
    display.end();
    match forgotten {
        Ok(forgotten) => {
            for line in lines(&forgotten, arguments.delete_files) {
                println!("{line}");
            }
            OK
        }
        Err(ForgetFailure::Daemon(error)) => {
            let status = print_failure(&error);
            match error {
                DaemonError::Rejected { status: 404, .. } => FAULTS,
                _ => status,
            }
        }
        Err(ForgetFailure::Start(error)) => {
            eprintln!("resyncd: {error} [{}]", error.code());
            FAILED
        }
        Err(ForgetFailure::Forget(error)) => {
            eprintln!("resyncd: {error} [{}]", error.code());
            match error {
                ForgetError::Unknown(_) => FAULTS,
                _ => FAILED,
            }
        }
        Err(ForgetFailure::Refused(status)) => status,
    }
}

/// What the mirror has of a Source.
#[derive(Clone, Copy, Debug)]
struct Left {
    resources: u64,
    bytes: u64,
}

/// Waits for the work, and shows meanwhile how many of the resources that were there at first are left. `left`: what is left now; `None`:
/// that is not known.
async fn watched<T>(
    work: impl Future<Output = T>,
    left: impl AsyncFn() -> Option<Left>,
    interval: Duration,
    mut show: impl FnMut(SourceProgress),
) -> T {
    let mut work = pin!(work);
    let mut at_first: Option<Left> = None;
    loop {
        let next = async {
            let left = left().await;
            if let Some(left) = left {
                let at_first = *at_first.get_or_insert(left);
                show(SourceProgress {
                    done: at_first.resources.saturating_sub(left.resources),
                    known: at_first.resources,
                    bytes: at_first.bytes.saturating_sub(left.bytes),
                    ..SourceProgress::default()
                });
            }
            tokio::time::sleep(interval).await;
        };
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = next => {}
        }
    }
}

async fn through_daemon(
    config: &Config,
    arguments: &ForgetArguments,
    show: impl FnMut(SourceProgress),
) -> Result<Forgotten, ForgetFailure> {
    let name = &arguments.source;
    let is_name = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    if name.is_empty() || !name.bytes().all(is_name) {
        return Err(ForgetFailure::Forget(ForgetError::Unknown(name.clone())));
    }
    if config.sources.iter().any(|source| source.name == *name) {
        return Err(ForgetFailure::Forget(ForgetError::Followed(name.clone())));
    }
    let client = DaemonClient::new(config, TIMEOUT).map_err(ForgetFailure::Daemon)?;
    let delete_files = arguments.delete_files;
    let path = format!("/sources/{name}/forget?delete_files={delete_files}");
    let left = async || {
        let answer = client.get("/status").await.ok()?;
        let status: Status = serde_json::from_str(&answer).ok()?;
        let mut former = status.former_sources.into_iter();
        let source = former.find(|source| source.name == *name)?;
        Some(Left {
            resources: source.resources,
            bytes: source.bytes,
        })
    };
    let answer = watched(client.post(&path), left, PROGRESS_INTERVAL, show).await;
    let answer = answer.map_err(ForgetFailure::Daemon)?;
    serde_json::from_str(&answer).map_err(|_| ForgetFailure::Daemon(client.not_resyncd()))
}

async fn without_daemon(
    mut config: Config,
    arguments: &ForgetArguments,
    environment: Option<&Path>,
    show: impl FnMut(SourceProgress),
) -> Result<Forgotten, ForgetFailure> {
    refuse_another_user(&config.state_dir, environment).map_err(ForgetFailure::Refused)?;
    let failed = |error: StartError| ForgetFailure::Start(error);
    let name = &arguments.source;
    let store = Store::open(&config.state_dir).map_err(|error| failed(error.into()))?;
    let client = config.client().map_err(|error| failed(error.into()))?;
    let subscribed = store.subscribed_channels(name).await;
    let subscribed = subscribed.map_err(|error| failed(error.into()))?;
    let bound = if subscribed.is_empty() {
        None
    } else {
        Some(bind_callback(&mut config).await.map_err(failed)?)
    };
    let secrets = SharedRedaction::new(&config.redaction());
    let rejections = RejectionCounters::default();
    let listener = RunningListener::start_callback(bound, &config, &store, rejections, secrets);
    let ending = EndingSource::unfollowed(
        name,
        &config.transports(client),
        config.callback.public_url.as_ref(),
    );
    let followed = config.sources.iter();
    let request = ForgetRequest {
        name: name.clone(),
        delete_files: arguments.delete_files,
        mirrors: followed
            .map(|source| (source.name.clone(), source.mirror.clone()))
            .collect(),
    };
    let left = async || {
        let totals = store.set_totals(name).await.ok()?;
        Some(Left {
            resources: totals.iter().map(|set| set.resources).sum(),
            bytes: totals.iter().map(|set| set.bytes).sum(),
        })
    };
    let stop = CancellationToken::new();
    let work = forget_source(&store, &ending, &request, &stop);
    let forgotten = watched(work, left, PROGRESS_INTERVAL, show).await;
    listener.stop().await;
    forgotten.map_err(ForgetFailure::Forget)
}

/// What was done, and what stays.
fn lines(forgotten: &Forgotten, delete_files: bool) -> Vec<String> {
    let Forgotten {
        source,
        mirror,
        resources,
        deleted_files,
        deleted_bytes,
        left,
        left_paths,
        subscriptions,
    } = forgotten;
    let mirror = mirror.as_deref().unwrap_or("their folder");
    let mut lines = Vec::new();
    lines.extend(subscriptions.iter().map(line_of));
    lines.push(if delete_files {
format!(
            "{source}: {resources} resources forgotten; {deleted_files} files deleted from {mirror}, {deleted_bytes} bytes"
        )
        } else {
format!("{source}: {resources} resources forgotten; the files stay in {mirror}")
        });
    if *left > 0 {
        let paths = if *left == 1 { "path" } else { "paths" };
        lines.push(format!(
            "{source}: {left} {paths} not deleted, because what is there is not a file of the Source: {}",
            left_paths.join(", ")
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[tokio::test]
    async fn progress_is_shown_while_it_is_forgotten() {
        let (done, ended) = tokio::sync::oneshot::channel();
        let (mut done, left) = (Some(done), AtomicU64::new(1000));
        let mut shown = Vec::new();
        let left = async || match left.fetch_sub(250, Ordering::Relaxed) {
            // The daemon does not answer once.
            750 => None,
            resources => Some(Left {
                resources,
                bytes: 10 * resources,
            }),
        };
        let result = watched(ended, left, Duration::from_millis(1), |progress| {
            shown.push((progress.done, progress.known, progress.bytes));
            if progress.done == 750
                && let Some(done) = done.take()
            {
                done.send("forgotten").unwrap();
            }
        });
        assert_eq!(result.await, Ok("forgotten"));
        shown.truncate(3);
        assert_eq!(shown, [(0, 1000, 0), (500, 1000, 5000), (750, 1000, 7500)]);
    }

    #[test]
    fn lines_state_what_was_deleted_and_what_stays() {
        let forgotten = Forgotten {
            source: "example".to_owned(),
            mirror: Some("/srv/mirror".to_owned()),
            resources: 5,
            deleted_files: 3,
            deleted_bytes: 70,
            left: 1,
            left_paths: vec!["a.example/link".to_owned()],
            subscriptions: Vec::new(),
        };
        let with_files = lines(&forgotten, true);
        assert_eq!(
            with_files,
            [
                "example: 5 resources forgotten; 3 files deleted from /srv/mirror, 70 bytes",
                "example: 1 path not deleted, because what is there is not a file of the Source: a.example/link",
            ]
        );
        let rows = Forgotten {
            left: 0,
            ..forgotten
        };
        let stays = "example: 5 resources forgotten; the files stay in /srv/mirror";
        assert_eq!(lines(&rows, false), [stays]);
    }
}
