//! Samples of metrics, and their text.
//!
//! Invariant: no two samples of a metric have the same labels, as Prometheus requires: what is added twice is added up.

use std::collections::BTreeMap;

use prometheus::proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType};
use prometheus::{Error, TextEncoder};

use super::families::{Family, MetricKind};

/// The samples of one metric, by the values of its labels.
struct Values {
    family: &'static Family,
    values: BTreeMap<Vec<String>, f64>,
}

/// The samples of all metrics.
#[derive(Default)]
pub(super) struct Samples {
    /// By name.
    values: BTreeMap<&'static str, Values>,
    /// Those that were collected elsewhere.
    collected: Vec<MetricFamily>,
}

impl Samples {
    /// Adds a sample if it has a value. The values of the labels are in the order of their names.
    pub(super) fn add(
        &mut self,
        family: &'static Family,
        labels: &[&str],
        value: impl Into<Option<f64>>,
    ) {
        debug_assert_eq!(family.labels.len(), labels.len(), "{}", family.name);
        debug_assert_ne!(family.kind, MetricKind::Histogram, "{}", family.name);
        let Some(value) = value.into() else { return };
        let of_family = self.values.entry(family.name).or_insert_with(|| Values {
            family,
            values: BTreeMap::new(),
        });
        let labels = labels.iter().map(|&value| value.to_owned()).collect();
        *of_family.values.entry(labels).or_default() += value;
    }

    /// Adds a sample for each state: 1 for the current one, 0 for the others.
    pub(super) fn add_state(
        &mut self,
        family: &'static Family,
        labels: &[&str],
        states: &[&str],
        current: &str,
    ) {
        for &state in states {
            let value = if state == current { 1.0 } else { 0.0 };
            self.add(family, &[labels, &[state]].concat(), value);
        }
    }

    /// Adds the samples of metrics that are added in no other way.
    pub(super) fn add_collected(&mut self, families: Vec<MetricFamily>) {
        // One without samples can't be encoded.
        let families = families.into_iter();
        let collected = families.filter(|family| !family.get_metric().is_empty());
        self.collected.extend(collected);
    }

    /// The text of all samples.
    pub(super) fn encode(self) -> Result<String, Error> {
        let families = self.values.into_values().map(family_of);
        let families: Vec<MetricFamily> = families.chain(self.collected).collect();
        TextEncoder::new().encode_to_string(&families)
    }
}

fn family_of(samples: Values) -> MetricFamily {
    let Values { family, values } = samples;
    let mut encoded = MetricFamily::default();
    encoded.set_name(family.name.to_owned());
    encoded.set_help(family.help.to_owned());
    encoded.set_field_type(match family.kind {
        MetricKind::Counter => MetricType::COUNTER,
        // Histograms are collected elsewhere.
        MetricKind::Gauge | MetricKind::Histogram => MetricType::GAUGE,
    });
    let metrics = values.into_iter().map(|(labels, value)| {
        let mut metric = Metric::from_label(label_pairs(family, labels));
        // The kind of the family decides which of them is encoded.
        let (mut counter, mut gauge) = (Counter::default(), Gauge::default());
        counter.set_value(value);
        gauge.set_value(value);
        metric.set_counter(counter);
        metric.set_gauge(gauge);
        metric
    });
    encoded.set_metric(metrics.collect());
    encoded
}

fn label_pairs(family: &Family, values: Vec<String>) -> Vec<LabelPair> {
    let names = family.labels.iter();
    let pair = |(name, value): (&&str, String)| {
        let mut pair = LabelPair::default();
        pair.set_name((*name).to_owned());
        pair.set_value(value);
        pair
    };
    names.zip(values).map(pair).collect()
}
