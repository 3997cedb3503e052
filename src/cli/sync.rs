//! `sync`: brings the Sources in step once, without subscribing, and tells how they stand.

use std::sync::Arc;

use super::daemon::StartError;
use super::stop_signals::StopSignals;
use super::watch::{PACE, Watch, Work};
use super::{FAILED, OK, chosen};
use crate::clock;
use crate::config::Config;
use crate::engine::{Counts, Engine};
use crate::fetch::Client;
use crate::status::{SetStatus, SourceStatus, Status, StatusError};
use crate::store::Store;

/// What `sync` may be told.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The Sources, by their names in the configuration; all, if none is named
    #[arg(value_name = "SOURCE")]
    sources: Vec<String>,
}

pub(super) async fn sync(mut config: Config, arguments: &Arguments) -> u8 {
    config.sources = match chosen(&config, &arguments.sources) {
        Ok(sources) => sources,
        Err(status) => return status,
    };
    let watch = Watch::start(config.sources.iter().map(|source| source.name.as_str()));
    let mut signals = match StopSignals::listen() {
        Ok(signals) => signals,
        Err(error) => {
            eprintln!("resyncd: signals can't be listened to: {error} [signals]");
            return FAILED;
        }
    };
    let engine = match prepare(&config) {
        Ok(engine) => engine,
        Err(error) => {
            eprintln!("resyncd: {error} [{}]", error.code());
            return FAILED;
        }
    };
    let (status, interrupted) = watched(&engine, watch, &mut signals).await;
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
        println!("interrupted: what was finished is kept");
    }
    if !interrupted && is_in_step(&status) {
        OK
    } else {
        FAILED
    }
}

fn prepare(config: &Config) -> Result<Arc<Engine>, StartError> {
    let store = Store::open(&config.state_dir)?;
    let client = Client::new(&config.http)?;
    Ok(Engine::once(config, store, &client))
}

/// Works, and shows how far it has come; also answers whether it was interrupted.
async fn watched(
    engine: &Engine,
    mut watch: Watch,
    signals: &mut StopSignals,
) -> (Result<Status, StatusError>, bool) {
    let working = engine.catch_up();
    tokio::pin!(working);
    let mut interrupted = false;
    let mut pace = tokio::time::interval(PACE);
    let mut known = vec![0; engine.counts().len()];
    let mut asked = None;
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
                // Counting them all is no more than a person needs once a second.
                if asked.is_none_or(|asked| now.saturating_duration_since(asked) >= PACE * 4) {
                    asked = Some(now);
                    for ((known, left), counts) in known.iter_mut().zip(engine.pending().await).zip(&counts) {
                        *known = (*known).max(done(counts) + left);
                    }
                }
                watch.show(counts.iter().zip(&known).map(|(counts, &known)| Work {
                    documents: counts.documents,
                    done: done(counts),
                    known: known.max(done(counts)),
                    bytes: counts.bytes,
                }));
            }
        }
    };
    watch.end();
    (status, interrupted)
}

fn is_in_step(status: &Status) -> bool {
    status.sources.iter().all(|source| {
        source.state == "ok"
            && !source.sets.is_empty()
            && source.sets.iter().all(|set| set.state == "in-sync")
    })
}

/// A line a set, and below it what keeps it from being in step.
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
        let until = set.synced_until.as_deref().unwrap_or("not yet");
        println!(
            "{name}: {capability_list}: {state}, in step until {until}; {resources} resources, {bytes} bytes"
        );
        for gap in &set.gaps {
            println!("  missing: {} to {} [{}]", gap.from, gap.until, gap.reason);
        }
        for (count, what, code) in [
            (set.pending, "changes are not applied yet", "pending"),
            (set.failed, "resources can't be had", "resources-failed"),
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
