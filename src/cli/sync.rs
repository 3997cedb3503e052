//! `sync`: synchronizes the Sources once, without subscribing, and prints their state.

use std::sync::Arc;

use super::daemon::StartError;
use super::exit_status::{FAILED, OK};
use super::progress::{ProgressDisplay, REDRAW_INTERVAL, SourceProgress};
use super::selection::select_sources;
use super::stop_signals::StopSignals;
use super::up_to_date::up_to_date;
use crate::clock;
use crate::config::Config;
use crate::engine::{Counts, Engine};
use crate::fetch::Client;
use crate::status::{SetStatus, SourceStatus, Status, StatusError};
use crate::store::Store;

/// Arguments of `sync`.
#[derive(Debug, clap::Args)]
pub(super) struct SyncArguments {
    /// Names of Sources in the configuration; all if none is given
    #[arg(value_name = "SOURCE")]
    sources: Vec<String>,
}

pub(super) async fn sync(mut config: Config, arguments: &SyncArguments) -> u8 {
    config.sources = match select_sources(&config, &arguments.sources) {
        Ok(sources) => sources,
        Err(status) => return status,
    };
    let display = ProgressDisplay::start(config.sources.iter().map(|source| source.name.as_str()));
    let mut signals = match StopSignals::listen() {
        Ok(signals) => signals,
        Err(error) => {
            eprintln!("resyncd: cannot listen for signals: {error} [signals]");
            return FAILED;
        }
    };
    let engine = match prepare(&config).await {
        Ok(engine) => engine,
        Err(error) => {
            eprintln!("resyncd: {error} [{}]", error.code());
            return FAILED;
        }
    };
    let (status, interrupted) = run(&engine, display, &mut signals).await;
    let status = match status {
        Ok(status) => status,
        Err(StatusError { code, message, .. }) => {
            eprintln!("resyncd: {message} [{code}]");
            return FAILED;
        }
    };
    for source in &status.sources {
        print_source(source);
    }
    if interrupted {
        println!("interrupted; completed changes are stored");
    }
    if !interrupted && is_in_sync(&status) {
        OK
    } else {
        FAILED
    }
}

async fn prepare(config: &Config) -> Result<Arc<Engine>, StartError> {
    let store = Store::open(&config.state_dir)?;
    let client = Client::of_config(config)?;
    Ok(Engine::once(config, store, &client).await?)
}

/// Synchronizes and shows the progress; also returns whether it was interrupted.
async fn run(
    engine: &Engine,
    mut display: ProgressDisplay,
    signals: &mut StopSignals,
) -> (Result<Status, StatusError>, bool) {
    let working = engine.catch_up();
    tokio::pin!(working);
    let mut interrupted = false;
    let mut pace = tokio::time::interval(REDRAW_INTERVAL);
    let mut known = vec![0; engine.counts().len()];
    let mut counted = None;
    let status = loop {
        tokio::select! {
            status = &mut working => break status,
            // The next run sets the database aside.
            () = engine.damaged(), if !interrupted => {
                interrupted = true;
                engine.interrupt();
            }
            () = signals.wait() => {
                interrupted = true;
                engine.interrupt();
            }
            _ = pace.tick() => {
                let now = clock::now().mono;
                let counts: Vec<Counts> = engine.counts();
                let done = |counts: &Counts| counts.applied + counts.failed;
                // Pending tasks are counted once a second: the query is expensive.
                if counted.is_none_or(|counted| now.saturating_duration_since(counted) >= REDRAW_INTERVAL * 4) {
                    counted = Some(now);
                    for ((known, left), counts) in known.iter_mut().zip(engine.pending().await).zip(&counts) {
                        *known = (*known).max(done(counts) + left);
                    }
                }
                display.show(counts.iter().zip(&known).map(|(counts, &known)| SourceProgress {
                    documents: counts.documents,
                    done: done(counts),
                    known: known.max(done(counts)),
                    bytes: counts.bytes,
                }));
            }
        }
    };
    display.end();
    (status, interrupted)
}

fn is_in_sync(status: &Status) -> bool {
    status.sources.iter().all(|source| {
        source.state == "ok"
            && !source.sets.is_empty()
            && source.sets.iter().all(|set| set.state == "in-sync")
    })
}

/// One line per set, and below it why the set is not in sync.
fn print_source(source: &SourceStatus) {
    let name = &source.name;
    if let Some(StatusError { code, message, .. }) = &source.error {
        println!("{name}: {}: {message} [{code}]", source.state);
    }
    for set in &source.sets {
        let SetStatus {
            capability_list,
            state,
            resources,
            bytes,
            ..
        } = set;
        let until = up_to_date(set);
        println!(
            "{name}: {capability_list}: {state}, {until}; {resources} resources, {bytes} bytes"
        );
        for gap in &set.gaps {
            println!("  missing: {} to {} [{}]", gap.from, gap.until, gap.reason);
        }
        for (count, what, code) in [
            (
                set.dead_parts,
                "parts of its indexes can't be read",
                "dead-parts",
            ),
            (
                set.unread,
                "entries of its documents can't be read",
                "unread",
            ),
            (set.pending, "changes are not applied yet", "pending"),
            (set.failed, "resources can't be fetched", "resources-failed"),
            (
                set.held_deletions,
                "deletions are held back until `resyncd approve`",
                "deletions-held",
            ),
        ] {
            if count > 0 {
                println!("  {count} {what} [{code}]");
            }
        }
        if let Some(StatusError { code, message, .. }) = &set.error {
            println!("  {message} [{code}]");
        }
    }
}
