//! What is counted since the start of the process and nothing else keeps.
//!
//! Invariants: counting does no I/O, waits for nobody that does, and cannot fail. What is counted of a set is dropped with it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use prometheus::core::{Collector, MetricVec, MetricVecBuilder};
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts};
use resyncd_fetch::{BytesObserver, RequestObserver};

use super::families::{
    APPLY_DELAY, CHANGES, COMMIT_TASKS, Family, POLLS, RECEIVED_BYTES, REQUESTS,
};
use super::samples::Samples;

/// The upper bounds of delays, in seconds: from a notification that is applied at once to a poll once a week.
const DELAYS: &[f64] = &[
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 300.0, 900.0, 3600.0,
    86400.0, 604_800.0,
];
/// The upper bounds of the number of tasks of a commit.
const TASKS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];

/// The counters of all Sources. Clones share them.
#[derive(Clone)]
pub struct Counters {
    requests: IntCounterVec,
    received: IntCounterVec,
    delays: HistogramVec,
    commits: HistogramVec,
    sets: Arc<Mutex<CountsOfSets>>,
    /// The steps of all Sources.
    steps: Arc<AtomicU64>,
}

/// By the label of the Source and the number of the set.
type CountsOfSets = BTreeMap<(Arc<str>, i64), SetCounts>;

/// What is counted of one set.
#[derive(Debug)]
struct SetCounts {
    capability_list: String,
    polls: [u64; PollOutcome::ALL.len()],
    /// By origin and kind of change.
    changes: BTreeMap<(&'static str, &'static str), u64>,
}

/// The outcome of a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollOutcome {
    /// Every document was read, and no gap is open.
    Complete,
    /// A gap stays open.
    Incomplete,
    /// A document could not be read.
    Failed,
}

impl PollOutcome {
    /// In the order of their discriminants.
    const ALL: [Self; 3] = [Self::Complete, Self::Incomplete, Self::Failed];

    fn code(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Incomplete => "incomplete",
            Self::Failed => "failed",
        }
    }
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            requests: counters_of(&REQUESTS),
            received: counters_of(&RECEIVED_BYTES),
            delays: histograms_of(&APPLY_DELAY, DELAYS),
            commits: histograms_of(&COMMIT_TASKS, TASKS),
            sets: Arc::default(),
            steps: Arc::default(),
        }
    }
}

fn counters_of(family: &Family) -> IntCounterVec {
    let options = Opts::new(family.name, family.help);
    IntCounterVec::new(options, family.labels).expect("a constant name is valid")
}

fn histograms_of(family: &Family, bounds: &[f64]) -> HistogramVec {
    let options = HistogramOpts::new(family.name, family.help).buckets(bounds.to_vec());
    HistogramVec::new(options, family.labels).expect("constant names and bounds are valid")
}

impl Counters {
    /// The counters of one Source of the configuration.
    #[must_use]
    pub fn of_source(&self, name: &str) -> SourceCounters {
        SourceCounters {
            source: name.into(),
            all: self.clone(),
            own: Arc::default(),
        }
    }

    /// Drops what was counted of a Source that is not followed any more.
    pub fn end_source(&self, name: &str) {
        for counts in [&self.requests, &self.received] {
            remove_labelled(counts, name);
        }
        for counts in [&self.delays, &self.commits] {
            remove_labelled(counts, name);
        }
        let mut sets = self.sets.lock();
        sets.retain(|(source, _), _| &**source != name);
    }

    /// Adds the samples of everything that was counted.
    pub(super) fn add_to(&self, samples: &mut Samples) {
        samples.add_collected(self.requests.collect());
        samples.add_collected(self.received.collect());
        samples.add_collected(self.delays.collect());
        samples.add_collected(self.commits.collect());
        for ((source, _), counts) in &*self.sets.lock() {
            let labels: [&str; 2] = [source, &counts.capability_list];
            for (outcome, &polls) in PollOutcome::ALL.iter().zip(&counts.polls) {
                samples.add(
                    &POLLS,
                    &[labels[0], labels[1], outcome.code()],
                    polls as f64,
                );
            }
            for (&(origin, change), &changes) in &counts.changes {
                let labels = [labels[0], labels[1], origin, change];
                samples.add(&CHANGES, &labels, changes as f64);
            }
        }
    }
}

/// Removes the samples of a Source from a metric.
fn remove_labelled<T: MetricVecBuilder>(metric: &MetricVec<T>, source: &str) {
    for family in metric.collect() {
        for sample in family.get_metric() {
            let labels = sample.get_label().iter();
            let labels: HashMap<&str, &str> =
                labels.map(|label| (label.name(), label.value())).collect();
            if labels.get("source") == Some(&source) {
                // Fails only if it is gone already.
                let _ = metric.remove(&labels);
            }
        }
    }
}

/// The counters of one Source. Clones share them.
#[derive(Clone)]
pub struct SourceCounters {
    source: Arc<str>,
    all: Counters,
    own: Arc<Steps>,
}

/// The steps of the work on one Source, by which it is seen that it goes on.
#[derive(Debug, Default)]
struct Steps {
    taken: AtomicU64,
    /// How many requests wait until others to the same host have ended.
    queued: AtomicUsize,
    /// How many pieces of work wait for what may take any time.
    waiting: AtomicUsize,
}

impl SourceCounters {
    /// Notes that the work on the Source has come further.
    pub fn step(&self) {
        self.own.taken.fetch_add(1, Ordering::Relaxed);
        self.all.steps.fetch_add(1, Ordering::Relaxed);
    }

    /// A number that changes with each step of the Source, and with each of any Source while a request waits for others. `None`: it
    /// waits for what may take any time.
    #[must_use]
    pub fn steps(&self) -> Option<u64> {
        if self.waits() > 0 {
            return None;
        }
        let Steps { taken, queued, .. } = &*self.own;
        let all = match queued.load(Ordering::Relaxed) {
            0 => 0,
            _ => self.all.steps.load(Ordering::Relaxed),
        };
        Some(taken.load(Ordering::Relaxed).wrapping_add(all))
    }

    /// Something waits for what may take any time, until the result is dropped.
    #[must_use]
    pub fn wait(&self) -> CountedWait {
        CountedWait::new(&self.own, |steps| &steps.waiting)
    }

    /// How many waits there are that may take any time.
    #[must_use]
    pub fn waits(&self) -> usize {
        self.own.waiting.load(Ordering::Relaxed)
    }

    /// Counts the tasks whose results were committed together.
    pub fn observe_commit(&self, tasks: usize) {
        self.step();
        let commits = self.all.commits.with_label_values(&[&*self.source]);
        commits.observe(tasks as f64);
    }

    /// Counts how long after the time of a change it was applied. `origin`: the kind of document that has announced it.
    pub fn observe_delay(&self, origin: &'static str, delay: Duration) {
        let labels = [&*self.source, origin];
        let delays = self.all.delays.with_label_values(&labels);
        delays.observe(delay.as_secs_f64());
    }

    /// Begins to count for a set, unless that has begun. `set`: a number that no other set has.
    pub fn begin_set(&self, set: i64, capability_list: &str) {
        let mut sets = self.all.sets.lock();
        let counts = sets.entry((Arc::clone(&self.source), set));
        counts.or_insert_with(|| SetCounts {
            capability_list: capability_list.to_owned(),
            polls: Default::default(),
            changes: BTreeMap::new(),
        });
    }

    /// Drops the counts of a set.
    pub fn end_set(&self, set: i64) {
        let key = (Arc::clone(&self.source), set);
        self.all.sets.lock().remove(&key);
    }

    /// Counts a poll of a set.
    pub fn count_poll(&self, set: i64, outcome: PollOutcome) {
        self.change_set(set, |counts| {
            counts.polls[outcome as usize] += 1;
        });
    }

    /// Counts an applied change of a set. `origin`: the kind of document that has announced it; `change`: what happened.
    pub fn count_change(&self, set: i64, origin: &'static str, change: &'static str) {
        self.change_set(set, |counts| {
            *counts.changes.entry((origin, change)).or_default() += 1;
        });
    }

    fn change_set(&self, set: i64, change: impl FnOnce(&mut SetCounts)) {
        let key = (Arc::clone(&self.source), set);
        if let Some(counts) = self.all.sets.lock().get_mut(&key) {
            change(counts);
        }
    }
}

impl RequestObserver for SourceCounters {
    fn queue(&self) -> Box<dyn Send + Sync> {
        Box::new(CountedWait::new(&self.own, |steps| &steps.queued))
    }

    fn count_request(&self, kind: &'static str, result: Result<u16, &'static str>) {
        self.step();
        let result = result.map_or_else(str::to_owned, result_of_status);
        let labels = [&*self.source, kind, &result];
        self.all.requests.with_label_values(&labels).inc();
    }

    fn received(&self, kind: &'static str) -> BytesObserver {
        let received = self.all.received.with_label_values(&[&*self.source, kind]);
        let counters = self.clone();
        Box::new(move |bytes| {
            received.inc_by(bytes as u64);
            counters.step();
        })
    }
}

/// Something that waits; dropping it ends the wait.
#[derive(Debug)]
pub struct CountedWait {
    steps: Arc<Steps>,
    count: fn(&Steps) -> &AtomicUsize,
}

impl CountedWait {
    fn new(steps: &Arc<Steps>, count: fn(&Steps) -> &AtomicUsize) -> Self {
        count(steps).fetch_add(1, Ordering::Relaxed);
        Self {
            steps: Arc::clone(steps),
            count,
        }
    }
}

impl Drop for CountedWait {
    fn drop(&mut self) {
        (self.count)(&self.steps).fetch_sub(1, Ordering::Relaxed);
    }
}

/// The statuses that are counted by themselves.
const COMMON: [u16; 21] = [
    200, 202, 204, 206, 301, 302, 303, 304, 307, 308, 400, 401, 403, 404, 410, 416, 429, 500, 502,
    503, 504,
];

/// The result of a request that was answered: the status, or the class of one that is rare. A server can't make up others.
fn result_of_status(status: u16) -> String {
    match status {
        _ if COMMON.contains(&status) => status.to_string(),
        100..=599 => format!("{}xx", status / 100),
        _ => "other".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    impl SourceCounters {
        /// How many changes of a set were counted; `None`: nothing is counted for it.
        pub(crate) fn changes(&self, set: i64) -> Option<u64> {
            let key = (Arc::clone(&self.source), set);
            let sets = self.all.sets.lock();
            sets.get(&key).map(|counts| counts.changes.values().sum())
        }
    }

    fn lines(counters: &Counters) -> Vec<String> {
        let mut samples = Samples::default();
        counters.add_to(&mut samples);
        let text = samples.encode().unwrap();
        text.lines().map(str::to_owned).collect()
    }

    #[track_caller]
    fn assert_lines(counters: &Counters, expected: &[&str]) {
        let lines = lines(counters);
        for expected in expected {
            assert!(
                lines.iter().any(|line| line == expected),
                "{expected}: {lines:#?}"
            );
        }
    }

    #[test]
    fn nothing_is_stated_before_anything_is_counted() {
        assert_eq!(lines(&Counters::default()), [""; 0]);
    }

    #[test]
    fn what_is_counted_is_stated_with_its_source_and_set() {
        let counters = Counters::default();
        let source = counters.of_source("example");
        let other = counters.of_source("other");
        source.begin_set(7, "https://example.org/a");
        other.begin_set(7, "https://example.org/b");
        source.count_request("content", Ok(404));
        source.count_request("content", Err("timeout"));
        let received = source.received("documents");
        received(5);
        received(6);
        source.observe_commit(3);
        source.observe_delay("notification", Duration::from_millis(30));
        source.count_poll(7, PollOutcome::Complete);
        source.count_change(7, "notification", "deleted");
        source.count_change(7, "notification", "deleted");
        other.count_poll(7, PollOutcome::Failed);
        // It is not followed.
        source.count_poll(8, PollOutcome::Complete);
        let set = r#"source="example",set="https://example.org/a""#;
        assert_lines(
            &counters,
            &[
                r#"resyncd_http_client_requests_total{kind="content",result="404",source="example"} 1"#,
                r#"resyncd_http_client_requests_total{kind="content",result="timeout",source="example"} 1"#,
                r#"resyncd_http_client_received_bytes_total{kind="documents",source="example"} 11"#,
                r#"resyncd_commit_tasks_bucket{source="example",le="2"} 0"#,
                r#"resyncd_commit_tasks_bucket{source="example",le="4"} 1"#,
                r#"resyncd_commit_tasks_sum{source="example"} 3"#,
                r#"resyncd_commit_tasks_count{source="example"} 1"#,
                "# TYPE resyncd_change_apply_delay_seconds histogram",
                r#"resyncd_change_apply_delay_seconds_bucket{origin="notification",source="example",le="0.05"} 1"#,
                r#"resyncd_change_apply_delay_seconds_bucket{origin="notification",source="example",le="+Inf"} 1"#,
                &format!(r#"resyncd_polls_total{{{set},outcome="complete"}} 1"#),
                &format!(r#"resyncd_polls_total{{{set},outcome="failed"}} 0"#),
                &format!(
                    r#"resyncd_changes_applied_total{{{set},origin="notification",change="deleted"}} 2"#
                ),
                r#"resyncd_polls_total{source="other",set="https://example.org/b",outcome="failed"} 1"#,
            ],
        );
    }

    #[test]
    fn counts_of_a_set_end_with_it() {
        let counters = Counters::default();
        let source = counters.of_source("example");
        for set in 0..1000 {
            source.begin_set(set, &format!("https://example.org/{set}"));
            source.count_change(set, "notification", "created");
            // A worker that is started again goes on.
            source.begin_set(set, &format!("https://example.org/{set}"));
            source.count_change(set, "notification", "created");
            if set > 0 {
                source.end_set(set - 1);
            }
        }
        let lines = lines(&counters);
        let changes = lines
            .iter()
            .filter(|line| line.starts_with("resyncd_changes"));
        let changes: Vec<&String> = changes.collect();
        assert_eq!(changes.len(), 1);
        assert!(
            changes[0].ends_with(r#",change="created"} 2"#),
            "{}",
            changes[0]
        );
    }

    #[test]
    fn results_of_requests_are_few() {
        let results: BTreeSet<String> = (0..=u16::MAX).map(result_of_status).collect();
        assert_eq!(results.len(), 27);
        assert_eq!(result_of_status(299), "2xx");
        assert_eq!(result_of_status(999), "other");
    }
}
