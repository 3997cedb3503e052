//! `audit`: compares the mirrors, file by file, with what their Sources say now, and mends them if it is told to.
//!
//! With `--json` each line of standard output is an object: `"type": "finding"` for each thing that was found, `"source"`
//! for each Source, and `"summary"` at the end.

use serde::Serialize;
use tokio::sync::mpsc;

use super::daemon::StartError;
use super::stop_signals::StopSignals;
use super::watch::{PACE, Watch, Work};
use super::{FAILED, OK, chosen};
use crate::config::Config;
use crate::engine::{Audit, Engine, ReportedFinding, Summary, Sums};
use crate::fetch::Client;
use crate::status::StatusError;
use crate::store::{FindingKind, FindingOutcome, Store};

/// How many findings a person is shown of each Source; `--json` has them all.
const SHOWN: u64 = 20;

/// What `audit` may be told.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The Sources, by their names in the configuration; all, if none is named
    #[arg(value_name = "SOURCE")]
    sources: Vec<String>,
    /// Print every finding, and the sums, as JSON: one object a line
    #[arg(long)]
    json: bool,
    /// Fetch what is missing or altered, and date what is only dated wrongly; not beside a running daemon
    #[arg(long)]
    repair: bool,
    /// Remove files that the Source does not have, too
    #[arg(long, requires = "repair")]
    delete_extra: bool,
}

/// A line of `--json`.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
enum Line<'a> {
    Finding {
        source: &'a str,
        set: Option<String>,
        kind: &'static str,
        uri: Option<&'a str>,
        path: Option<&'a str>,
        differs: &'a [String],
        code: Option<&'a str>,
        message: Option<&'a str>,
        mended: bool,
    },
    Source {
        source: &'a str,
        error: Option<&'a StatusError>,
        #[serde(flatten)]
        outcome: AuditOutcome,
    },
    Summary {
        sources: usize,
        #[serde(flatten)]
        outcome: AuditOutcome,
    },
}

/// What came of an audit, or of several.
#[derive(Clone, Copy, Serialize)]
struct AuditOutcome {
    in_sync: bool,
    whole: bool,
    #[serde(flatten)]
    sums: Sums,
}

pub(super) async fn audit(mut config: Config, arguments: &Arguments) -> u8 {
    config.sources = match chosen(&config, &arguments.sources) {
        Ok(sources) => sources,
        Err(status) => return status,
    };
    let mut watch = Watch::start(config.sources.iter().map(|source| source.name.as_str()));
    let mut signals = match StopSignals::listen() {
        Ok(signals) => signals,
        Err(error) => {
            eprintln!("resyncd: signals can't be listened to: {error} [signals]");
            return FAILED;
        }
    };
    let audits = match prepare(&config, arguments) {
        Ok(audits) => audits,
        Err(error) => {
            eprintln!("resyncd: {error} [{}]", error.code());
            return FAILED;
        }
    };
    let mut all = AuditOutcome::none();
    for index in 0..audits.len() {
        let (done, interrupted) = run(&audits, index, arguments, &mut watch, &mut signals).await;
        let outcome = AuditOutcome::of(&done);
        tell(
            &watch,
            audits[index].source(),
            &done,
            outcome,
            arguments.json,
        );
        all.add(outcome);
        if interrupted {
            all.in_sync = false;
            break;
        }
    }
    if arguments.json {
        let sources = audits.len();
        let line = Line::Summary {
            sources,
            outcome: all,
        };
        print(&watch, &line);
    }
    watch.end();
    if all.in_sync { OK } else { FAILED }
}

fn prepare(config: &Config, arguments: &Arguments) -> Result<Vec<Audit>, StartError> {
    let client = Client::new(&config.http)?;
    if !arguments.repair {
        return Ok(Audit::looking(config, &client));
    }
    let store = Store::open(&config.state_dir)?;
    let engine = Engine::once(config, store, &client);
    Ok(Audit::mending(
        config,
        &client,
        &engine,
        arguments.delete_extra,
    ))
}

/// Runs one audit and shows how far it has come; also answers whether it was interrupted.
async fn run(
    audits: &[Audit],
    index: usize,
    arguments: &Arguments,
    watch: &mut Watch,
    signals: &mut StopSignals,
) -> (Result<Summary, StatusError>, bool) {
    let audit = &audits[index];
    let (teller, mut told) = mpsc::channel(64);
    let running = async {
        let done = audit.run(&teller).await;
        drop(teller);
        done
    };
    tokio::pin!(running);
    let (mut interrupted, mut shown) = (false, 0);
    let mut pace = tokio::time::interval(PACE);
    loop {
        tokio::select! {
            biased;
            Some(told) = told.recv() => {
                shown += 1;
                tell_finding(watch, audit.source(), &told, shown, arguments.json);
            }
            done = &mut running => {
                // What was told last may not have been heard yet.
                while let Ok(told) = told.try_recv() {
                    shown += 1;
                    tell_finding(watch, audit.source(), &told, shown, arguments.json);
                }
                if shown > SHOWN && !arguments.json {
                    watch.print(&format!("  … and {} more (--json tells all)", shown - SHOWN));
                }
                return (done, interrupted);
            }
            () = signals.wait() => {
                interrupted = true;
                audit.interrupt();
            }
            _ = pace.tick() => watch.show(audits.iter().map(|audit| {
                let (counts, expected) = audit.counts();
                Work {
                    documents: counts.documents,
                    done: counts.applied,
                    known: expected.max(counts.applied),
                    bytes: counts.bytes,
                }
            })),
        }
    }
}

fn tell_finding(watch: &Watch, source: &str, told: &ReportedFinding, number: u64, json: bool) {
    let finding = &told.finding;
    let mended = finding.outcome == FindingOutcome::Repaired;
    if json {
        let line = Line::Finding {
            source,
            set: told.set.as_ref().map(ToString::to_string),
            kind: finding.kind.code(),
            uri: finding.uri.as_deref(),
            path: finding.path.as_deref(),
            differs: &finding.differs,
            code: finding.code.as_deref(),
            message: finding.message.as_deref(),
            mended,
        };
        return print(watch, &line);
    }
    if number > SHOWN {
        return;
    }
    let named = match finding.kind {
        FindingKind::Extra => finding.path.as_deref(),
        _ => finding.uri.as_deref(),
    };
    let mut line = format!(
        "  {}: {}",
        finding.kind.code(),
        named.or(finding.path.as_deref()).unwrap_or_default()
    );
    if !finding.differs.is_empty() {
        line.push_str(&format!(" ({})", finding.differs.join(", ")));
    }
    if mended {
        line.push_str(", mended");
    }
    if let (Some(code), Some(message)) = (&finding.code, &finding.message) {
        line.push_str(&format!(": {message} [{code}]"));
    }
    watch.print(&line);
}

fn tell(
    watch: &Watch,
    source: &str,
    done: &Result<Summary, StatusError>,
    outcome: AuditOutcome,
    json: bool,
) {
    match done {
        _ if json => print(
            watch,
            &Line::Source {
                source,
                error: done.as_ref().err(),
                outcome,
            },
        ),
        Ok(summary) => watch.print(&format!("{source}: {}", said(summary))),
        Err(StatusError { code, message, .. }) => {
            watch.print(&format!("{source}: not audited: {message} [{code}]"));
        }
    }
}

/// What came of an audit, for a person.
fn said(summary: &Summary) -> String {
    let Sums {
        compared,
        right,
        missing,
        altered,
        extra,
        unreachable,
        kept,
        mended,
        adopted,
    } = summary.sums;
    let verdict = match summary.is_in_sync() {
        true => "in sync",
        false => "not in sync",
    };
    let mut said = format!(
        "{verdict}: {compared} compared, {right} right, {missing} missing, {altered} altered, {extra} extra, {unreachable} unreachable"
    );
    for (count, what) in [(kept, "kept"), (mended, "mended"), (adopted, "adopted")] {
        if count > 0 {
            said.push_str(&format!(", {count} {what}"));
        }
    }
    if !summary.whole {
        said.push_str("; not all lists could be read: nothing was called extra");
    } else if !summary.proves_absence {
        said.push_str("; a list does not say that it is one: nothing was called extra");
    }
    said
}

fn print(watch: &Watch, line: &Line<'_>) {
    match serde_json::to_string(line) {
        Ok(json) => watch.print(&json),
        Err(error) => eprintln!("resyncd: a line can't be written: {error}"),
    }
}

impl AuditOutcome {
    /// Nothing is wrong yet.
    fn none() -> Self {
        Self {
            in_sync: true,
            whole: true,
            sums: Sums::default(),
        }
    }

    /// What came of one audit; nothing came of one that was not brought to its end.
    fn of(done: &Result<Summary, StatusError>) -> Self {
        match done {
            Ok(summary) => Self {
                in_sync: summary.is_in_sync(),
                whole: summary.whole,
                sums: summary.sums,
            },
            Err(_) => Self {
                in_sync: false,
                whole: false,
                sums: Sums::default(),
            },
        }
    }

    fn add(&mut self, other: Self) {
        self.in_sync &= other.in_sync;
        self.whole &= other.whole;
        self.sums += other.sums;
    }
}
