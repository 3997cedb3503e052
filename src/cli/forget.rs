//! `forget`: deletes what is known of a Source that is not followed any more, and its files if asked to; through the running daemon, or
//! without one. With `--former-sets` the running daemon deletes the files of former sets of a Source that is followed.

use std::pin::pin;
use std::time::Duration;

use tracing::level_filters::LevelFilter;

use super::daemon_client::{DaemonAddress, DaemonError};
use super::daemon_requests::{ask_daemon, daemon_or_state, daemon_status, post_for_each};
use super::exit_status::{FAILED, FAULTS, OK};
use super::failure::Failure;
use super::logging;
use super::progress::{ProgressDisplay, SourceProgress};
use super::unsubscribe::line_of;
use crate::config::Config;
use crate::engine::ForgetError;
use crate::status::{Forgotten, FormerSource};

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

pub(super) async fn forget(config: &Config, arguments: &ForgetArguments) -> Result<u8, Failure> {
    let name = &arguments.source;
    if arguments.former_sets {
        let _summaries = logging::start(LevelFilter::WARN, config.log.format);
        let (client, sources) = ask_daemon(config, std::slice::from_ref(name)).await?;
        let show = |source: &str, answer: &str| println!("{source}: {answer}");
        return Ok(post_for_each(&client, &sources, "forget-former-sets", show).await);
    }
    let refused =
        |status, error: ForgetError| Failure::new(status, format!("{error} [{}]", error.code()));
    let is_name = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    if name.is_empty() || !name.bytes().all(is_name) {
        return Err(refused(FAULTS, ForgetError::Unknown(name.clone())));
    }
    if config.sources.iter().any(|source| source.name == *name) {
        return Err(refused(FAILED, ForgetError::Followed(name.clone())));
    }
    let mut display = ProgressDisplay::start(std::iter::once(name.as_str()), config.log.format);
    let client = daemon_or_state(config, TIMEOUT, |source| source == name).await?;
    let delete_files = arguments.delete_files;
    let path = format!("/sources/{name}/forget?delete_files={delete_files}");
    let left = async || {
        let former = daemon_status(&client).await.ok()?.former_sources;
        former.into_iter().find(|source| source.name == *name)
    };
    let show = |progress| display.show(std::iter::once(progress));
    let answer = watched(client.post(&path), left, PROGRESS_INTERVAL, show).await;
    let forgotten = answer.and_then(|answer| client.parse(&answer));
    client.end().await;
    display.end();
    let forgotten = forgotten.map_err(|error| match error {
        DaemonError::Rejected { status: 404, .. } => Failure::new(FAULTS, error),
        error => error.into(),
    })?;
    for line in lines(&forgotten, delete_files) {
        println!("{line}");
    }
    Ok(OK)
}

/// Waits for the work, and shows meanwhile how many of the resources that were there at first are left. `left`: what is left now; `None`:
/// that is not known.
async fn watched<T>(
    work: impl Future<Output = T>,
    left: impl AsyncFn() -> Option<FormerSource>,
    interval: Duration,
    mut show: impl FnMut(SourceProgress),
) -> T {
    let mut work = pin!(work);
    let mut at_first = None;
    loop {
        let next = async {
            let left = left().await;
            if let Some(left) = left {
                let (resources, bytes) = *at_first.get_or_insert((left.resources, left.bytes));
                show(SourceProgress {
                    done: resources.saturating_sub(left.resources),
                    known: resources,
                    bytes: bytes.saturating_sub(left.bytes),
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
            resources => Some(FormerSource {
                name: "example".to_owned(),
                url: None,
                mirror: None,
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
