//! `audit`: compares the mirrors with their Sources, file by file, and repairs them with `--repair`.
//!
//! With `--json` each line of standard output is an object: `"type": "finding"` for each finding, `"source"` for each Source, and
//! `"summary"` at the end; with `--origin` also `"original"` for each resource that differs from its original, or may.

use std::time::Duration;

use chrono::DateTime;
use serde::Serialize;
use tokio::sync::mpsc;

use super::daemon::StartError;
use super::daemon_client::DaemonClient;
use super::daemon_requests::daemon_status;
use super::exit_status::{FAILED, OK};
use super::failure::Failure;
use super::output::json_line;
use super::progress::{ProgressDisplay, REDRAW_INTERVAL, SourceProgress};
use super::selection::select_sources;
use super::stop_signals::StopSignals;
use super::users::refuse_another_user;
use crate::config::{Config, Source};
use crate::engine::{
    Audit, Engine, OriginalOutcome, OriginalSums, RepairOptions, Reported, ReportedFinding,
    ReportedOriginal, Summary, Sums,
};
use crate::status::{AuditStatus, StatusError};
use crate::store::{FindingKind, FindingOutcome, Store};

/// How many findings of each Source are printed as text; `--json` prints all.
const SHOWN: u64 = 20;
/// How long one request to the daemon may take.
const TIMEOUT: Duration = Duration::from_secs(60);
/// How often the daemon is asked whether it is done.
const PACE: Duration = Duration::from_millis(500);

/// Arguments of `audit`.
#[derive(Debug, clap::Args)]
pub(super) struct AuditArguments {
    /// Names of Sources in the configuration; all if none is given
    #[arg(value_name = "SOURCE")]
    sources: Vec<String>,
    /// Print every finding and the totals as JSON, one object per line
    #[arg(long)]
    json: bool,
    /// Also compare republished resources with the digests stated for their originals (rel="via"); these are not requested;
    /// with --repair not while a daemon is running
    #[arg(long)]
    origin: bool,
    /// Fetch missing and altered files and correct wrong file times; a running daemon does it
    #[arg(long)]
    repair: bool,
    /// Also remove files that the Source does not have
    #[arg(long, requires = "repair")]
    delete_extra: bool,
    /// Accept a new mirror in place of one that is lost; not while a daemon is running
    #[arg(long, requires = "repair", conflicts_with = "dry_run")]
    new_mirror: bool,
    /// Only print what would be repaired and removed; also while a daemon is running
    #[arg(long, requires = "repair")]
    dry_run: bool,
}

impl AuditArguments {
    /// Whether it changes mirrors and state.
    pub(super) fn writes(&self) -> bool {
        self.repair && !self.dry_run
    }

    /// What a repair would do about a finding of a dry run; `None`: nothing.
    fn would(&self, kind: FindingKind) -> Option<&'static str> {
        match kind {
            _ if !self.dry_run => None,
            FindingKind::Missing | FindingKind::Altered => Some("repair"),
            FindingKind::Extra if self.delete_extra => Some("delete"),
            _ => None,
        }
    }
}

/// A line of `--json`.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
enum AuditLine<'a> {
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
        /// What a repair would do.
        #[serde(skip_serializing_if = "Option::is_none")]
        would: Option<&'static str>,
    },
    Original {
        source: &'a str,
        set: Option<String>,
        uri: &'a str,
        path: &'a str,
        original: &'a str,
        outcome: &'static str,
        /// In what it differs.
        differs: &'a [&'static str],
        /// Why it is unknown.
        reason: Option<&'static str>,
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

/// The result of one audit, or the total of several.
#[derive(Clone, Copy, Serialize)]
struct AuditOutcome {
    in_sync: bool,
    whole: bool,
    #[serde(flatten)]
    sums: Sums,
    #[serde(skip_serializing_if = "Option::is_none")]
    originals: Option<OriginalSums>,
}

pub(super) async fn audit(mut config: Config, arguments: &AuditArguments) -> Result<u8, Failure> {
    config.sources = select_sources(&config, &arguments.sources)?;
    if arguments.writes() {
        let daemon = DaemonClient::new(&config, TIMEOUT)?;
        let is_for_daemon = !arguments.new_mirror && !arguments.origin;
        if is_for_daemon && daemon.check_daemon().await.is_ok() {
            return repair_by_daemon(&daemon, &config, arguments).await;
        }
        refuse_another_user(&config.state_dir)?;
    }
    let names = config.sources.iter().map(|source| source.name.as_str());
    let mut display = ProgressDisplay::start(names, config.log.format);
    let mut signals = StopSignals::listen()?;
    let audits = prepare(&config, arguments).await?;
    let mut all = AuditOutcome::none();
    for index in 0..audits.len() {
        let (done, interrupted) = run(&audits, index, arguments, &mut display, &mut signals).await;
        let outcome = AuditOutcome::of(&done);
        print_result(
            &display,
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
        let line = AuditLine::Summary {
            sources,
            outcome: all,
        };
        print(&display, &line);
    }
    display.end();
    let differs = all.originals.is_some_and(|it| it.differing > 0);
    Ok(if all.in_sync && !differs { OK } else { FAILED })
}

/// Has the running daemon repair, one Source after the other, and prints each result.
async fn repair_by_daemon(
    daemon: &DaemonClient,
    config: &Config,
    arguments: &AuditArguments,
) -> Result<u8, Failure> {
    let mut all = AuditOutcome::none();
    for Source { name, .. } in &config.sources {
        let parsed = |time: &str| DateTime::parse_from_rfc3339(time).ok();
        let asked = parsed(&daemon_status(daemon).await?.now);
        let extra = arguments.delete_extra;
        let path = format!("/sources/{name}/audit?repair=true&delete_extra={extra}");
        daemon.post(&path).await?;
        let audit = loop {
            tokio::time::sleep(PACE).await;
            let mut sources = daemon_status(daemon).await?.sources.into_iter();
            let Some(source) = sources.find(|source| source.name == *name) else {
                let message = format!("the daemon does not follow {name} any more");
                return Err(Failure::coded("unknown-source", message));
            };
            // One that had begun before does not repair.
            let audit = source.audit.unwrap_or_default();
            if audit.began_at.as_deref().and_then(parsed) > asked {
                break audit;
            }
        };
        let outcome = AuditOutcome::by_daemon(&audit);
        all.add(outcome);
        if arguments.json {
            let line = AuditLine::Source {
                source: name,
                error: audit.error.as_ref(),
                outcome,
            };
            println!("{}", json_line(&line));
        } else {
            println!("{name}: {}", audit_text(&audit));
        }
    }
    if arguments.json {
        let sources = config.sources.len();
        let line = AuditLine::Summary {
            sources,
            outcome: all,
        };
        println!("{}", json_line(&line));
    }
    Ok(if all.in_sync { OK } else { FAILED })
}

/// The result of an audit by the daemon, whose log names each finding.
fn audit_text(audit: &AuditStatus) -> String {
    let AuditStatus {
        in_sync,
        compared,
        missing,
        altered,
        extra,
        unreachable,
        repaired,
        error,
        ..
    } = audit;
    if let Some(StatusError { code, message, .. }) = error {
        return format!("not audited: {message} [{code}]");
    }
    let verdict = if *in_sync { "in sync" } else { "not in sync" };
    format!(
        "{verdict}: {compared} compared, {missing} missing, {altered} altered, {extra} extra, {unreachable} unreachable, {repaired} repaired"
    )
}

async fn prepare(config: &Config, arguments: &AuditArguments) -> Result<Vec<Audit>, StartError> {
    let client = config.client()?;
    let audits = if arguments.writes() {
        let store = Store::open(config.state())?;
        let engine = Engine::once(config, store, &client).await?;
        let options = RepairOptions {
            delete_extra: arguments.delete_extra,
            new_mirror: arguments.new_mirror,
        };
        Audit::repairing(config, &client, &engine, options)
    } else {
        Audit::comparing(config, &client)
    };
    let audits = audits.into_iter();
    let audits = audits.map(|audit| audit.with_originals(arguments.origin));
    Ok(audits.collect())
}

/// Runs one audit and shows its progress; also returns whether it was interrupted.
async fn run(
    audits: &[Audit],
    index: usize,
    arguments: &AuditArguments,
    display: &mut ProgressDisplay,
    signals: &mut StopSignals,
) -> (Result<Summary, StatusError>, bool) {
    let audit = &audits[index];
    let (sender, mut findings) = mpsc::channel(64);
    let running = async {
        let done = audit.run(&sender).await;
        drop(sender);
        done
    };
    tokio::pin!(running);
    let (mut interrupted, mut shown) = (false, 0);
    let mut pace = tokio::time::interval(REDRAW_INTERVAL);
    loop {
        tokio::select! {
            biased;
            Some(reported) = findings.recv() => {
                shown += 1;
                print_reported(display, audit.source(), &reported, shown, arguments);
            }
            done = &mut running => {
                // The last findings may still be in the channel.
                while let Ok(reported) = findings.try_recv() {
                    shown += 1;
                    print_reported(display, audit.source(), &reported, shown, arguments);
                }
                if shown > SHOWN && !arguments.json {
                    display.print(&format!("  … and {} more (--json prints all)", shown - SHOWN));
                }
                return (done, interrupted);
            }
            () = signals.wait() => {
                interrupted = true;
                audit.interrupt();
            }
            _ = pace.tick() => display.show(audits.iter().enumerate().map(|(number, audit)| {
                let (counts, expected) = audit.counts();
                SourceProgress {
                    documents: counts.documents,
                    done: counts.applied,
                    known: expected.max(counts.applied),
                    bytes: counts.bytes,
                    is_finished: number < index,
                }
            })),
        }
    }
}

fn print_reported(
    display: &ProgressDisplay,
    source: &str,
    reported: &Reported,
    number: u64,
    arguments: &AuditArguments,
) {
    match reported {
        Reported::Finding(finding) => print_finding(display, source, finding, number, arguments),
        Reported::Original(original) if arguments.json => print_original(display, source, original),
        Reported::Original(original) if number <= SHOWN => display.print(&original_text(original)),
        Reported::Original(_) => {}
    }
}

fn print_original(display: &ProgressDisplay, source: &str, original: &ReportedOriginal) {
    let (differs, reason) = match &original.outcome {
        OriginalOutcome::Same => (&[][..], None),
        OriginalOutcome::Differs(differs) => (&differs[..], None),
        OriginalOutcome::Unknown(reason) => (&[][..], Some(*reason)),
    };
    let line = AuditLine::Original {
        source,
        set: original.set.as_ref().map(ToString::to_string),
        uri: &original.uri,
        path: &original.path,
        original: &original.original,
        outcome: original.outcome.as_str(),
        differs,
        reason,
    };
    print(display, &line);
}

fn original_text(reported: &ReportedOriginal) -> String {
    let ReportedOriginal { uri, original, .. } = reported;
    match &reported.outcome {
        OriginalOutcome::Same => format!("  same as its original {original}: {uri}"),
        OriginalOutcome::Differs(differs) => {
            let differs = differs.join(", ");
            format!("  differs from what is stated of its original {original}: {uri} ({differs})")
        }
        OriginalOutcome::Unknown(reason) => {
            let reason = match *reason {
                "no-digest" => "no digest is stated",
                "no-file" => "there is no file",
                "coded" => "what is stated may be of coded bytes",
                _ => "the file can't be read",
            };
            format!("  not compared with its original {original}: {uri} ({reason})")
        }
    }
}

fn print_finding(
    display: &ProgressDisplay,
    source: &str,
    reported: &ReportedFinding,
    number: u64,
    arguments: &AuditArguments,
) {
    let finding = &reported.finding;
    let mended = finding.outcome == FindingOutcome::Repaired;
    let would = arguments.would(finding.kind);
    if arguments.json {
        let line = AuditLine::Finding {
            source,
            set: reported.set.as_ref().map(ToString::to_string),
            kind: finding.kind.as_str(),
            uri: finding.uri.as_deref(),
            path: finding.path.as_deref(),
            differs: &finding.differs,
            code: finding.code.as_deref(),
            message: finding.message.as_deref(),
            mended,
            would,
        };
        return print(display, &line);
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
        finding.kind.as_str(),
        named.or(finding.path.as_deref()).unwrap_or_default()
    );
    if !finding.differs.is_empty() {
        line.push_str(&format!(" ({})", finding.differs.join(", ")));
    }
    if mended {
        line.push_str(match finding.kind {
            FindingKind::Extra => ", deleted",
            _ => ", repaired",
        });
    }
    if let Some(would) = would {
        line.push_str(&format!(", would {would}"));
    }
    if let (Some(code), Some(message)) = (&finding.code, &finding.message) {
        line.push_str(&format!(": {message} [{code}]"));
    }
    display.print(&line);
}

fn print_result(
    display: &ProgressDisplay,
    source: &str,
    done: &Result<Summary, StatusError>,
    outcome: AuditOutcome,
    json: bool,
) {
    match done {
        _ if json => print(
            display,
            &AuditLine::Source {
                source,
                error: done.as_ref().err(),
                outcome,
            },
        ),
        Ok(summary) => display.print(&format!("{source}: {}", summary_text(summary))),
        Err(StatusError { code, message, .. }) => {
            display.print(&format!("{source}: not audited: {message} [{code}]"));
        }
    }
}

/// The result of an audit as text.
pub(super) fn summary_text(summary: &Summary) -> String {
    let Sums {
        compared,
        right,
        missing,
        altered,
        extra,
        unreachable,
        kept,
        mended,
        deleted,
        adopted,
        pending,
        ..
    } = summary.sums.left();
    let verdict = if summary.is_in_sync() {
        "in sync"
    } else {
        "not in sync"
    };
    let mut text = format!(
        "{verdict}: {compared} compared, {right} right, {missing} missing, {altered} altered, {extra} extra, {unreachable} unreachable"
    );
    for (count, what) in [
        (kept, "files of deleted resources (delete = false)"),
        (mended - deleted, "repaired"),
        (deleted, "deleted"),
        (adopted, "adopted"),
        (pending, "pending in the daemon"),
    ] {
        if count > 0 {
            text.push_str(&format!(", {count} {what}"));
        }
    }
    if !summary.whole {
        text.push_str("; not all lists could be read: nothing is reported as extra");
    } else if !summary.proves_absence {
        text.push_str(
            "; not every list proves what it does not name: nothing is reported as extra",
        );
    }
    if let Some(OriginalSums {
        same,
        differing,
        unknown,
    }) = summary.originals
    {
        text.push_str(&format!(
            "; by what is stated of the originals: {same} same, {differing} differing, {unknown} unknown"
        ));
    }
    text
}

fn print(display: &ProgressDisplay, line: &AuditLine<'_>) {
    display.print(&json_line(line));
}

impl AuditOutcome {
    /// The total of no audits.
    fn none() -> Self {
        Self {
            in_sync: true,
            whole: true,
            sums: Sums::default(),
            originals: None,
        }
    }

    /// The result of one audit; an audit that failed is not in sync.
    fn of(done: &Result<Summary, StatusError>) -> Self {
        match done {
            Ok(summary) => Self {
                in_sync: summary.is_in_sync(),
                whole: summary.whole,
                sums: summary.sums,
                originals: summary.originals,
            },
            Err(_) => Self {
                in_sync: false,
                whole: false,
                sums: Sums::default(),
                originals: None,
            },
        }
    }

    /// The result of an audit by the daemon: what is left of the findings.
    fn by_daemon(audit: &AuditStatus) -> Self {
        let mut sums = Sums::default();
        (sums.compared, sums.missing) = (audit.compared, audit.missing);
        (sums.altered, sums.extra) = (audit.altered, audit.extra);
        (sums.unreachable, sums.mended) = (audit.unreachable, audit.repaired);
        let not_right = sums.missing + sums.altered;
        sums.right = sums.compared.saturating_sub(not_right);
        Self {
            in_sync: audit.in_sync,
            whole: audit.whole,
            sums,
            originals: None,
        }
    }

    fn add(&mut self, other: Self) {
        self.in_sync &= other.in_sync;
        self.whole &= other.whole;
        self.sums += other.sums;
        if let Some(originals) = other.originals {
            *self.originals.get_or_insert_default() += originals;
        }
    }
}
