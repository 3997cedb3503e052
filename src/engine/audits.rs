//! The audits that the daemon makes: of each Source as often as `audit_every` states, and when a person asks for one.
//!
//! Invariants: there is one audit at a time. One that only compares rests between files, and changes nothing. While one repairs, the
//! worker of the Source is stopped, as while it is paused: nothing else writes to the mirror.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use resourcesync::{Algorithm, Digest};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::audit::{Audit, RepairOptions, Reported, Summary};
use super::context::SourceContext;
use super::lifecycle::Engine;
use super::operations::store_failed;
use crate::clock;
use crate::config::{self, Config};
use crate::status::{AuditStatus, StatusError, rfc3339};
use crate::store::{Store, StoreError};

/// How often it is checked whether an audit is due.
const INTERVAL: Duration = Duration::from_secs(20);

/// After how long an audit that could not be completed is tried again at most.
const RETRY: Duration = Duration::from_secs(24 * 3600);

/// The last audit of a Source.
#[derive(Clone, Debug)]
pub(super) struct AuditRecord {
    /// When it began, or since when the first one is waited for.
    pub(super) at: DateTime<Utc>,
    pub(super) result: Option<AuditStatus>,
}

/// What is known of the audits of each Source.
pub(super) type AuditRecords = BTreeMap<String, AuditRecord>;

/// The audits that persons have asked for, by Source, and what each repairs; `None`: nothing.
pub(super) type AuditRequests = BTreeMap<String, Option<RepairOptions>>;

impl Engine {
    /// Has the daemon audit a Source as soon as no other is audited, and repair what is stated; `false` if there is no such Source. One
    /// that is paused is an error.
    pub fn request_audit(
        &self,
        source: &str,
        repair: Option<RepairOptions>,
    ) -> Result<bool, StatusError> {
        if self.sources.find(source).is_none() {
            return Ok(false);
        }
        self.refuse_paused(source)?;
        self.audit_requests.lock().insert(source.to_owned(), repair);
        self.audit_requested.notify_one();
        Ok(true)
    }

    /// The state of the audits of a Source; `None`: there was none, and it is not known yet when the first one is due.
    pub(super) fn audit_status(&self, source: &config::Source) -> Option<AuditStatus> {
        let records = self.audits.lock();
        let record = records.get(&source.name)?;
        let every = source.audit_every;
        let next_at = every.map(|every| rfc3339(next_audit(&source.name, record, every)));
        let status = record.result.clone().unwrap_or_default();
        let is_known = record.result.is_some() || next_at.is_some();
        is_known.then_some(AuditStatus { next_at, ..status })
    }

    /// The configuration with this Source alone.
    fn config_of(&self, source: &config::Source) -> Config {
        Config {
            sources: vec![source.clone()],
            ..Config::clone(&self.config.lock())
        }
    }
}

/// What the database knows of audits. What can't be read of a result is no result.
pub(super) async fn stored_audits(store: &Arc<Store>) -> Result<AuditRecords, StoreError> {
    let records = store.audits().await?.into_iter();
    let records = records.map(|(source, at, result)| {
        let result = result.and_then(|result| serde_json::from_str(&result).ok());
        (source, AuditRecord { at, result })
    });
    Ok(records.collect())
}

/// Audits until the engine stops or is gone.
pub(super) async fn audit_sources(engine: Weak<Engine>, stop: CancellationToken) {
    loop {
        let Some(engine) = engine.upgrade() else {
            return;
        };
        if let Some((context, repair)) = next_source(&engine).await {
            audit(&engine, &context, repair).await;
            continue;
        }
        let requested = Arc::clone(&engine.audit_requested);
        drop(engine);
        tokio::select! {
            () = stop.cancelled() => return,
            () = requested.notified() => {}
            () = tokio::time::sleep(INTERVAL) => {}
        }
    }
}

/// The Source whose audit was requested, with what it repairs, or has been due for longest. One that is being stopped has to wait.
async fn next_source(engine: &Engine) -> Option<(Arc<SourceContext>, Option<RepairOptions>)> {
    let mut contexts = engine.sources.contexts();
    contexts.retain(|it| !it.stop.is_cancelled() && engine.held.has(it.name()));
    for context in &contexts {
        let request = engine.audit_requests.lock().remove(context.name());
        if let Some(repair) = request {
            return Some((Arc::clone(context), repair));
        }
    }
    let now = clock::now().wall;
    let mut first: Option<(DateTime<Utc>, Arc<SourceContext>)> = None;
    for context in contexts {
        let name = context.name();
        let is_paused = engine.paused.lock().contains_key(name);
        let every = engine.config.lock().audit_every(name);
        let Some(every) = every.filter(|_| !is_paused) else {
            continue;
        };
        let Some(known) = engine.audits.lock().get(name).cloned() else {
            let (at, result) = (now, None);
            note(engine, name, AuditRecord { at, result }).await;
            continue;
        };
        let next = next_audit(name, &known, every);
        if next <= now && first.as_ref().is_none_or(|(at, _)| next < *at) {
            first = Some((next, context));
        }
    }
    first.map(|(_, context)| (context, None))
}

/// When the next audit of a Source is due. The Sources are spread over the period by their names.
fn next_audit(source: &str, known: &AuditRecord, every: Duration) -> DateTime<Utc> {
    let result = known.result.as_ref();
    if result.is_some_and(|result| result.error.is_some()) {
        return known.at + TimeDelta::from_std(every.min(RETRY)).unwrap_or_default();
    }
    let period = i64::try_from(every.as_secs().max(1)).unwrap_or(i64::MAX);
    let digest = Digest::of(Algorithm::Sha256, source.as_bytes());
    let number = digest.bytes().iter().take(6);
    let number = number.fold(0_i64, |number, byte| number << 8 | i64::from(*byte));
    let after = (known.at.timestamp() - number % period).rem_euclid(period);
    known.at + TimeDelta::seconds(period - after)
}

async fn note(engine: &Engine, source: &str, record: AuditRecord) {
    let result = record.result.as_ref();
    let result = result.and_then(|result| serde_json::to_string(result).ok());
    if let Err(error) = engine.store.put_audit(source, record.at, result).await {
        tracing::debug!(code = error.code(), source, %error, "database error; the result of an audit is not stored");
    }
    engine.audits.lock().insert(source.to_owned(), record);
}

/// Audits a Source, and notes the result.
async fn audit(engine: &Arc<Engine>, context: &Arc<SourceContext>, repair: Option<RepairOptions>) {
    let (source, began) = (context.name(), clock::now().wall);
    tracing::info!(source, repair = repair.is_some(), "audit begun");
    // Where it repairs, the Source is stopped by that.
    let stop = if repair.is_some() {
        &engine.stop
    } else {
        &context.stop
    };
    let done = match repair {
        None => {
            let config = engine.config_of(&context.source);
            let audits = Audit::comparing(&config, engine.shared.transports.client());
            run(source, single(audits).resting(), stop).await
        }
        Some(options) => repair_stopped(engine, context, options).await,
    };
    if stop.is_cancelled() && done.is_err() {
        // A reload, a pause, or the stop of the daemon: it is due still.
        return;
    }
    let now = clock::now().wall;
    let result = status_of(&done, began, now);
    let AuditStatus {
        in_sync,
        compared,
        missing,
        altered,
        extra,
        ..
    } = result;
    match &result.error {
        None => tracing::info!(
            source,
            in_sync,
            compared,
            missing,
            altered,
            extra,
            "audit done"
        ),
        Some(StatusError { code, message, .. }) => {
            tracing::warn!(code, source, reason = message, "audit not completed");
        }
    }
    let result = Some(result);
    note(engine, source, AuditRecord { at: began, result }).await;
}

/// The audit of the only Source of a configuration.
fn single(mut audits: Vec<Audit>) -> Audit {
    audits.pop().expect("the configuration has one Source")
}

/// Runs an audit until it is done or stopped.
async fn run(source: &str, audit: Audit, stop: &CancellationToken) -> Result<Summary, StatusError> {
    let (sender, mut findings) = mpsc::channel(64);
    let running = async {
        let done = audit.run(&sender).await;
        drop(sender);
        done
    };
    let logging = async {
        while let Some(reported) = findings.recv().await {
            log(source, &reported);
        }
    };
    let stopping = async {
        stop.cancelled().await;
        audit.interrupt();
        std::future::pending().await
    };
    let both = async { tokio::join!(running, logging).0 };
    tokio::select! {
        done = both => done,
        never = stopping => never,
    }
}

fn log(source: &str, reported: &Reported) {
    if let Reported::Finding(reported) = reported {
        let finding = &reported.finding;
        tracing::warn!(
            source,
            kind = finding.kind.as_str(),
            uri = finding.uri,
            path = finding.path,
            differs = finding.differs.join(" "),
            "audit finding"
        );
    }
}

/// Stops the worker of a Source, repairs, and starts the worker again.
async fn repair_stopped(
    engine: &Arc<Engine>,
    context: &Arc<SourceContext>,
    options: RepairOptions,
) -> Result<Summary, StatusError> {
    let source = context.name();
    // A reload is not delayed by a repair: it finds the Source without a worker.
    let configuring = engine.configuring.lock().await;
    engine.repairing.lock().insert(source.to_owned());
    if let Some(followed) = engine.sources.find(source) {
        followed.stop().await;
    }
    drop(configuring);
    let config = engine.config_of(&context.source);
    let (store, client) = (Arc::clone(&engine.store), engine.shared.transports.client());
    let done = match Engine::once(&config, store, client).await {
        Ok(once) => {
            let audits = Audit::repairing(&config, client, &once, options);
            run(source, single(audits), &engine.stop).await
        }
        Err(error) => Err(store_failed(error)),
    };
    let _configuring = engine.configuring.lock().await;
    engine.repairing.lock().remove(source);
    if let Some(followed) = engine.sources.find(source) {
        engine.restart_configured(&followed.context).await;
    }
    done
}

fn status_of(
    done: &Result<Summary, StatusError>,
    began: DateTime<Utc>,
    ended: DateTime<Utc>,
) -> AuditStatus {
    let mut status = AuditStatus {
        began_at: Some(rfc3339(began)),
        ended_at: Some(rfc3339(ended)),
        ..AuditStatus::default()
    };
    match done {
        Ok(summary) => {
            let sums = summary.sums.left();
            status.in_sync = summary.is_in_sync();
            status.whole = summary.whole;
            (status.compared, status.missing) = (sums.compared, sums.missing);
            (status.altered, status.extra) = (sums.altered, sums.extra);
            (status.unreachable, status.repaired) = (sums.unreachable, sums.mended);
        }
        Err(error) => status.error = Some(error.clone()),
    }
    status
}

impl Config {
    /// How often a Source is audited; `None`: never. A reload changes it without a new worker of the Source.
    fn audit_every(&self, source: &str) -> Option<Duration> {
        let mut sources = self.sources.iter();
        let found = sources.find(|known| known.name == source)?;
        found.audit_every
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn audits_of_sources_are_spread_over_the_period() {
        let every = Duration::from_secs(30 * 24 * 3600);
        let since = DateTime::UNIX_EPOCH + TimeDelta::days(20_000);
        let record = AuditRecord {
            at: since,
            result: None,
        };
        let mut days = std::collections::BTreeSet::new();
        for number in 0..100 {
            let name = format!("source-{number}");
            let next = next_audit(&name, &record, every);
            let waits = next - since;
            assert!(
                waits > TimeDelta::zero() && waits <= TimeDelta::days(30),
                "{waits}"
            );
            days.insert(waits.num_days());
            // The next one is a period later.
            let done = AuditRecord {
                at: next,
                result: None,
            };
            let period = TimeDelta::days(30);
            assert_eq!(next_audit(&name, &done, every), next + period);
            // Also if one has begun later than it was due.
            let late = AuditRecord {
                at: next + TimeDelta::hours(1),
                result: None,
            };
            assert_eq!(next_audit(&name, &late, every), next + period);
        }
        assert!(days.len() > 20, "{days:?}");
    }
}
