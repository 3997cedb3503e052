//! Formats a report as an indented tree.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use resyncd_core::one_line;
use resyncd_fetch::DiscoveryAttempt;

use super::report::{
    AdvertisedChannel, DiscoveryReport, DocumentFacts, OddityCounts, OfferReport, PartsReport,
    SetReport,
};
use crate::status::StatusError;

/// How many media types, and how many collections, a document shows.
const MAX_VALUES: usize = 10;

/// The lines of a report.
pub(super) fn of(report: &DiscoveryReport) -> String {
    let mut tree = DiscoveryTree::default();
    tree.line(0, &report.url);
    if report.error.is_some() {
        tree.tried(&report.tried, None, 1);
        return tree.0;
    }
    match &report.description {
        Some(description) => tree.line(1, &format!("Source Description {description}")),
        None if report.implied => match report.dialect {
            Some(version) => {
                let text = "a Sitemap stands for the Source Description";
                tree.line(1, &format!("ResourceSync {version} (draft): {text}"));
            }
            None => tree.line(1, "no ResourceSync: sitemaps, followed by polling"),
        },
        None => tree.line(1, "no Source Description"),
    }
    for StatusError { code, message, .. } in &report.notices {
        tree.line(1, &format!("- {message} [{code}]"));
    }
    tree.described_by(1, &report.describedby);
    for document in &report.oddities {
        tree.line(
            2,
            &format!(
                "oddities: {} in {}",
                listed(&document.oddities),
                document.document
            ),
        );
    }
    for channel in &report.channels {
        tree.channel(1, channel);
    }
    for set in &report.sets {
        tree.set(set);
    }
    for failed in &report.failed {
        tree.line(1, &format!("set {}", failed.capability_list));
        tree.status_error(2, Some(&failed.error));
    }
    if report.left_out > 0 {
        let text = format!(
            "{} documents were not read: there are too many",
            report.left_out
        );
        tree.line(0, &text);
    }
    tree.0
}

#[derive(Default)]
struct DiscoveryTree(String);

impl DiscoveryTree {
    fn line(&mut self, depth: usize, text: &str) {
        self.0.extend(std::iter::repeat_n("  ", depth));
        self.0.push_str(&one_line(text, usize::MAX));
        self.0.push('\n');
    }

    fn set(&mut self, set: &SetReport) {
        self.line(1, &format!("set {}", set.capability_list));
        if let Some(version) = set.dialect {
            self.line(2, &format!("of the draft of version {version}"));
        }
        self.described_by(2, &set.describedby);
        self.oddities(2, &set.oddities);
        for offered in &set.capabilities {
            self.offered(offered);
        }
        for channel in &set.channels {
            self.channel(2, channel);
        }
    }

    fn offered(&mut self, offered: &OfferReport) {
        let index = offered.facts.as_ref().is_some_and(|facts| facts.index);
        let kind = if index { " index" } else { "" };
        self.line(2, &format!("{}{kind} {}", offered.capability, offered.uri));
        if let Some(facts) = &offered.facts {
            self.line(3, &document_text(&offered.capability, facts));
            self.tally(3, "type", &facts.types, facts.other_types);
            self.tally(3, "collection", &facts.collections, facts.other_collections);
            self.oddities(3, &facts.oddities);
        } else if !offered.looked_into {
            self.line(3, "not read");
        }
        self.status_error(3, offered.error.as_ref());
        if let Some(parts) = &offered.parts {
            self.parts(parts);
        }
    }

    /// The most frequent values that entries state.
    fn tally(&mut self, depth: usize, what: &str, counted: &BTreeMap<String, u64>, others: u64) {
        let mut values: Vec<_> = counted.iter().collect();
        values.sort_by_key(|&(value, &count)| (Reverse(count), value));
        for (value, count) in values.iter().take(MAX_VALUES) {
            self.line(depth, &format!("{what} {value}: {count}"));
        }
        let rest: u64 = values
            .iter()
            .skip(MAX_VALUES)
            .map(|(_, count)| **count)
            .sum();
        if rest + others > 0 {
            self.line(depth, &format!("other {what}s: {}", rest + others));
        }
    }

    fn parts(&mut self, parts: &PartsReport) {
        let PartsReport {
            dead_parts,
            parts_not_tried,
        } = parts;
        if !dead_parts.is_empty() {
            self.line(3, &format!("{} parts can't be fetched", dead_parts.len()));
        }
        for part in dead_parts {
            self.status_error(4, Some(&part.error));
        }
        if *parts_not_tried > 0 {
            self.line(
                3,
                &format!("{parts_not_tried} parts were not tried: there are too many"),
            );
        }
    }

    /// What an attempt led to, with what that led to below it.
    fn tried(&mut self, tried: &[DiscoveryAttempt], parent: Option<usize>, depth: usize) {
        for (number, attempt) in tried.iter().enumerate() {
            if attempt.parent == parent {
                let DiscoveryAttempt {
                    uri,
                    reason,
                    answer,
                    ..
                } = attempt;
                self.line(depth, &format!("{reason} {uri}: {answer}"));
                self.tried(tried, Some(number), depth + 1);
            }
        }
    }

    fn described_by(&mut self, depth: usize, documents: &[String]) {
        for document in documents {
            self.line(depth, &format!("described by {document}"));
        }
    }

    fn channel(&mut self, depth: usize, channel: &AdvertisedChannel) {
        self.line(depth, &format!("{} {}", channel.kind, channel.topic));
        if let Some(protocol) = &channel.protocol {
            self.line(depth + 1, &format!("protocol {protocol}"));
        }
        for hub in &channel.hubs {
            self.line(depth + 1, &format!("hub {hub}"));
        }
        if let Some(transport) = channel.transport {
            self.line(depth + 1, &format!("transport {transport}"));
        }
        if channel.has_hubs() && channel.hubs.is_empty() {
            self.line(depth + 1, "no hub is advertised");
        }
        self.status_error(depth + 1, channel.error.as_ref());
    }

    fn oddities(&mut self, depth: usize, oddities: &OddityCounts) {
        if !oddities.is_empty() {
            self.line(depth, &format!("oddities: {}", listed(oddities)));
        }
    }

    fn status_error(&mut self, depth: usize, status_error: Option<&StatusError>) {
        if let Some(StatusError { code, message, .. }) = status_error {
            self.line(depth, &format!("! {message} [{code}]"));
        }
    }
}

fn listed(oddities: &OddityCounts) -> String {
    let parts: Vec<_> = oddities
        .iter()
        .map(|(code, count)| format!("{code} {count}"))
        .collect();
    parts.join(", ")
}

/// A document in one line: its times, then its entries.
fn document_text(capability: &str, facts: &DocumentFacts) -> String {
    let mut parts = Vec::new();
    for (name, time) in [
        ("at", &facts.at),
        ("completed", &facts.completed),
        ("from", &facts.from),
        ("until", &facts.until),
    ] {
        parts.extend(time.as_ref().map(|time| format!("{name} {time}")));
    }
    let is_dump = capability.ends_with("dump");
    let many = match (facts.index, is_dump, capability) {
        (true, true, _) => "dumps",
        (true, false, _) => "lists",
        (false, true, _) => "packages",
        (false, false, "changelist") => "changes",
        (false, false, _) => "resources",
    };
    let mut entries = format!("{} {many}", facts.entries);
    let changes = [
        (facts.created, "created"),
        (facts.updated, "updated"),
        (facts.deleted, "deleted"),
    ];
    let counted: Vec<_> = changes
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, kind)| format!("{count} {kind}"))
        .collect();
    if !counted.is_empty() {
        entries += &format!(" ({})", counted.join(", "));
    }
    parts.push(entries);
    if let (Some(earliest), Some(latest)) = (&facts.earliest, &facts.latest) {
        parts.push(format!("dated {earliest} to {latest}"));
    }
    if facts.bytes > 0 {
        parts.push(format!("{} bytes", facts.bytes));
    }
    parts.join(", ")
}
