//! A strict reader of Prometheus' text format 0.0.4: it panics at what Prometheus would not read, and at what
//! `promtool check metrics` objects to.

use std::collections::{BTreeMap, BTreeSet};

type Labels = BTreeMap<String, String>;

/// The answer of `GET /metrics`.
#[derive(Debug, Default)]
pub(crate) struct Exposition {
    /// The kind of each metric.
    kinds: BTreeMap<String, String>,
    samples: BTreeMap<(String, Labels), f64>,
}

impl Exposition {
    #[track_caller]
    pub(crate) fn parse(text: &str) -> Self {
        let mut read = Self::default();
        let (mut family, mut help) = (String::new(), String::new());
        assert!(text.ends_with('\n'), "the last line has no end");
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, meaning) = rest.split_once(' ').unwrap();
                assert!(!meaning.is_empty(), "{line}");
                help = name.to_owned();
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                assert_eq!(
                    help, name,
                    "a metric has a help text, directly before its type"
                );
                let kinds = ["counter", "gauge", "histogram"];
                assert!(kinds.contains(&kind), "{line}");
                assert_eq!(name.ends_with("_total"), kind == "counter", "{line}");
                let before = read.kinds.insert(name.to_owned(), kind.to_owned());
                assert_eq!(before, None, "{name}: samples of a metric are together");
                family = name.to_owned();
            } else {
                let (name, labels, value) = sample(line);
                let suffixes: &[&str] = match read.kinds.get(&family).map(String::as_str) {
                    Some("histogram") => &["_bucket", "_sum", "_count"],
                    _ => &[""],
                };
                let is_own = |suffix: &&str| name == format!("{family}{suffix}");
                assert!(suffixes.iter().any(is_own), "{line}: not of {family}");
                let before = read.samples.insert((name, labels), value);
                assert_eq!(before, None, "{line}: another sample has these labels");
            }
        }
        read.check_histograms();
        read
    }

    /// The buckets of a histogram grow, and the last one has everything.
    #[track_caller]
    fn check_histograms(&self) {
        let is_histogram = |(_, kind): &(&String, &String)| *kind == "histogram";
        for (family, _) in self.kinds.iter().filter(is_histogram) {
            let mut by_labels: BTreeMap<Labels, Vec<(f64, f64)>> = BTreeMap::new();
            for ((name, labels), &count) in &self.samples {
                if *name == format!("{family}_bucket") {
                    let mut labels = labels.clone();
                    let bound = labels.remove("le").unwrap().parse().unwrap();
                    by_labels.entry(labels).or_default().push((bound, count));
                }
            }
            assert!(!by_labels.is_empty(), "{family}");
            for (labels, mut buckets) in by_labels {
                buckets.sort_by(|one, other| one.0.total_cmp(&other.0));
                let grow = buckets.is_sorted_by(|one, other| one.1 <= other.1);
                assert!(grow, "{family}: {buckets:?}");
                let last = buckets.last().unwrap();
                let all = self.samples[&(format!("{family}_count"), labels.clone())];
                assert_eq!(*last, (f64::INFINITY, all), "{family}");
                assert!(
                    self.samples
                        .contains_key(&(format!("{family}_sum"), labels))
                );
            }
        }
    }

    /// Whether there is a metric of that name.
    pub(crate) fn has(&self, family: &str) -> bool {
        self.kinds.contains_key(family)
    }

    /// The names of all metrics.
    pub(crate) fn families(&self) -> impl Iterator<Item = &str> {
        self.kinds.keys().map(String::as_str)
    }

    /// The sum of the samples of that name that have these labels, among others; `None`: there is none.
    pub(crate) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let has = |of_sample: &Labels| {
            let mut labels = labels.iter();
            labels.all(|&(name, value)| of_sample.get(name).is_some_and(|it| it == value))
        };
        let samples = self.samples.iter();
        let found = samples.filter(|((of, of_sample), _)| *of == *name && has(of_sample));
        found
            .map(|(_, &value)| value)
            .reduce(|sum, value| sum + value)
    }

    /// The values that a label has.
    pub(crate) fn values_of(&self, label: &str) -> BTreeSet<&str> {
        let labels = self.samples.keys().map(|(_, labels)| labels);
        let values = labels.filter_map(|labels| labels.get(label));
        values.map(String::as_str).collect()
    }

    /// How many samples have these labels, among others.
    pub(crate) fn count(&self, label: &str, value: &str) -> usize {
        let labels = self.samples.keys().map(|(_, labels)| labels);
        let has = |labels: &&Labels| labels.get(label).is_some_and(|it| it == value);
        labels.filter(has).count()
    }
}

/// A line of a sample: its name, its labels and its value.
#[track_caller]
fn sample(line: &str) -> (String, Labels, f64) {
    let end = line.find(['{', ' ']).unwrap_or_else(|| panic!("{line}"));
    let (name, mut rest) = line.split_at(end);
    assert!(is_name(name), "{line}");
    let mut labels = Labels::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        loop {
            let (label, after) = rest.split_once("=\"").unwrap_or_else(|| panic!("{line}"));
            assert!(is_name(label), "{line}: {label}");
            let (value, after) = unescaped(after).unwrap_or_else(|| panic!("{line}"));
            assert_eq!(labels.insert(label.to_owned(), value), None, "{line}");
            match after.split_at_checked(1) {
                Some((",", after)) => rest = after,
                Some(("}", after)) => {
                    rest = after;
                    break;
                }
                _ => panic!("{line}"),
            }
        }
    }
    let value = rest.strip_prefix(' ').unwrap_or_else(|| panic!("{line}"));
    let value: f64 = value.parse().unwrap_or_else(|_| panic!("{line}: {value}"));
    assert!(value.is_finite() && value >= 0.0, "{line}");
    (name.to_owned(), labels, value)
}

/// The value of a label, and what follows the quotation mark that ends it.
fn unescaped(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    loop {
        match characters.next()? {
            (at, '"') => return Some((value, &text[at + 1..])),
            (_, '\\') => value.push(match characters.next()?.1 {
                'n' => '\n',
                character @ ('"' | '\\') => character,
                _ => return None,
            }),
            (_, character) => value.push(character),
        }
    }
}

fn is_name(name: &str) -> bool {
    let is_letter = |character: char| character.is_ascii_alphabetic() || character == '_';
    name.starts_with(is_letter) && name.chars().all(|it| is_letter(it) || it.is_ascii_digit())
}
