//! What `GET /metrics` states: the metrics with their names, labels and meaning, and the status in Prometheus' text format.
//!
//! Invariants: a metric keeps its name, its labels and its meaning; no two samples have the same name and labels. The number of
//! samples is bounded: labels are names of the configuration, the sets that the status has (`[limits] sets`), and words of fixed
//! lists. No label is text of a Source but the URI of a Capability List. Everything is read from what is kept: nothing is counted
//! for an answer.
//!
//! Must not know any other module but the status.
//!
//! Specification: Prometheus, exposition formats, text format 0.0.4; Prometheus, metric and label naming.

mod counters;
mod exposition;
mod families;
mod process;
mod samples;

pub use counters::{CountedWait, Counters, PollOutcome, SourceCounters};
pub use exposition::exposition;
pub use families::{FAMILIES, Family, MetricKind};
