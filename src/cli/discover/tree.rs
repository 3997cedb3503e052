//! Formats a report as an indented tree.

use super::report::{
    AdvertisedChannel, DiscoveryReport, DocumentFacts, OddityCounts, OfferReport, SetReport,
};
use crate::status::StatusError;

/// The lines of a report.
pub(super) fn of(report: &DiscoveryReport) -> String {
    let mut tree = Tree::default();
    tree.line(0, &report.url);
    match &report.description {
        Some(description) => tree.line(1, &format!("Source Description {description}")),
        None if report.implied => tree.line(1, "no ResourceSync: sitemaps, followed by polling"),
        None => tree.line(1, "no Source Description"),
    }
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
struct Tree(String);

impl Tree {
    fn line(&mut self, depth: usize, text: &str) {
        self.0.extend(std::iter::repeat_n("  ", depth));
        // Remote text must not control the terminal.
        self.0.extend(text.chars().filter(|c| !c.is_control()));
        self.0.push('\n');
    }

    fn set(&mut self, set: &SetReport) {
        self.line(1, &format!("set {}", set.capability_list));
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
            self.oddities(3, &facts.oddities);
        } else if !offered.looked_into {
            self.line(3, "not read");
        }
        self.status_error(3, offered.error.as_ref());
    }

    fn channel(&mut self, depth: usize, channel: &AdvertisedChannel) {
        self.line(depth, &format!("{} {}", channel.kind, channel.topic));
        for hub in &channel.hubs {
            self.line(depth + 1, &format!("hub {hub}"));
        }
        if channel.hubs.is_empty() {
            self.line(depth + 1, "no hub is advertised");
        }
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
