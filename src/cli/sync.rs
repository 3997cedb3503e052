//! `sync`: synchronizes the Sources once, without subscribing, and prints their state.
//!
//! With `--json` each line of standard output is an object: `"type": "source"` for each Source, as in the status, and `"summary"` at
//! the end; with `--dry-run`, before them, `"change"` for each change that would be applied.

use std::pin::Pin;
use std::sync::Arc;

use indicatif::HumanBytes;
use serde::Serialize;

use super::exit_status::{FAILED, OK};
use super::failure::Failure;
use super::output::json_line;
use super::planned_changes::{PlannedCounts, Scratch, print_planned, release_mirrors};
use super::progress::{ProgressDisplay, REDRAW_INTERVAL, SourceProgress};
use super::selection::select_sources;
use super::stop_signals::StopSignals;
use super::up_to_date::up_to_date;
use super::users::refuse_another_user;
use crate::clock;
use crate::config::Config;
use crate::engine::{Counts, Engine};
use crate::status::{SetStatus, SourceStatus, Status, StatusError};
use crate::store::Store;

/// Arguments of `sync`.
#[derive(Debug, clap::Args)]
pub(super) struct SyncArguments {
    /// Names of Sources in the configuration; all if none is given
    #[arg(value_name = "SOURCE")]
    sources: Vec<String>,
    /// Print the result as JSON, one object per line
    #[arg(long)]
    json: bool,
    /// Read the documents of the Sources and print what would be done; also while a daemon is running
    #[arg(long)]
    dry_run: bool,
}

/// A line of `--json`.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
enum SyncLine<'a> {
    Source(&'a SourceStatus),
    Summary {
        sources: usize,
        in_sync: bool,
        interrupted: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        would: Option<PlannedCounts>,
    },
}

pub(super) async fn sync(mut config: Config, arguments: &SyncArguments) -> Result<u8, Failure> {
    if !arguments.dry_run {
        refuse_another_user(&config.state_dir)?;
    }
    config.sources = select_sources(&config, &arguments.sources)?;
    let names = config.sources.iter().map(|source| source.name.as_str());
    let display = ProgressDisplay::start(names, config.log.format);
    let mut signals = StopSignals::listen()?;
    // Its folder is removed at the end.
    let scratch = if arguments.dry_run {
        Some(Scratch::of(&config).await?)
    } else {
        None
    };
    let used = scratch.as_ref().map_or(&config, Scratch::config);
    let store = Store::open(used.state())?;
    let engine = Engine::once(used, Arc::clone(&store), &used.client()?).await?;
    if arguments.dry_run {
        release_mirrors(&config, &store).await?;
    }
    let working: Working<'_> = if arguments.dry_run {
        Box::pin(engine.plan())
    } else {
        Box::pin(engine.catch_up())
    };
    let (status, interrupted) = run(&engine, working, display, &mut signals).await;
    let mut status = status?;
    // The mirrors of a dry run are not theirs.
    for (source, configured) in status.sources.iter_mut().zip(&config.sources) {
        source.mirror = configured.mirror.display().to_string();
    }
    let mut would = PlannedCounts::default();
    if arguments.dry_run {
        for source in &config.sources {
            print_planned(&store, &source.name, arguments.json, &mut would).await?;
        }
    }
    let failed = status.sources.iter().any(has_failed);
    let in_sync = if arguments.dry_run {
        !interrupted && !failed && would.is_nothing()
    } else {
        !interrupted && is_in_sync(&status)
    };
    if arguments.json {
        for source in &status.sources {
            println!("{}", json_line(&SyncLine::Source(source)));
        }
        let summary = SyncLine::Summary {
            sources: status.sources.len(),
            in_sync,
            interrupted,
            would: arguments.dry_run.then_some(would),
        };
        println!("{}", json_line(&summary));
    } else {
        for source in &status.sources {
            if arguments.dry_run {
                print_errors(source)
            } else {
                print_source(source)
            }
        }
        if arguments.dry_run {
            println!("{would}");
        } else if interrupted {
            println!("interrupted; completed changes are stored");
        }
    }
    if !arguments.dry_run && !interrupted {
        tokio::select! {
            () = engine.shrink_database() => {}
            () = signals.wait() => {}
        }
    }
    Ok(if in_sync { OK } else { FAILED })
}

/// A run of the engine.
type Working<'a> = Pin<Box<dyn Future<Output = Result<Status, StatusError>> + Send + 'a>>;

/// Shows the progress of a run until it ends; also returns whether it was interrupted.
async fn run(
    engine: &Engine,
    mut working: Working<'_>,
    mut display: ProgressDisplay,
    signals: &mut StopSignals,
) -> (Result<Status, StatusError>, bool) {
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
                    is_finished: counts.is_finished,
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

/// Whether the documents of a Source, or of a set, can't be read: then more may have changed.
fn has_failed(source: &SourceStatus) -> bool {
    let of_set = |set: &SetStatus| set.error.is_some() || set.dead_parts > 0 || set.unread > 0;
    source.error.is_some() || source.sets.is_empty() || source.sets.iter().any(of_set)
}

fn print_errors(source: &SourceStatus) {
    let name = &source.name;
    let of_sets = source.sets.iter().filter_map(|set| set.error.as_ref());
    for StatusError { code, message, .. } in source.error.iter().chain(of_sets) {
        println!("{name}: {message} [{code}]");
    }
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
        let until = up_to_date(set, None);
        println!(
            "{name}: {capability_list}: {state}, {until}; {resources} resources, {}",
            HumanBytes(*bytes)
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
                set.unavailable,
                "resources are unavailable: refused or lacking for a week, or disallowed by robots.txt",
                "resources-unavailable",
            ),
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
