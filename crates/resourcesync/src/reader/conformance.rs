//! Conformance of a complete document with its capability; the oddities are counted at its end.

use super::context::Context;
use crate::declared_list::is_list;
use crate::entries::EntryOrder;
use crate::{Capability, Entry, Head, Metadata, Oddity, Root};

/// The maximum number of entries of a document in the Sitemap protocol, which section 7 refers to.
const MOST_ENTRIES: u64 = 50_000;

/// What was seen in the entries so far. Memory does not depend on their number.
#[derive(Default)]
pub(super) struct Conformance {
    entries: u64,
    /// Entries with an `rs:md`.
    described: u64,
    /// Entries without a change time.
    undated: u64,
    /// Whether the first entry declares itself as a list: the document is an index.
    holds_lists: bool,
    /// Entries with `at` or `completed`.
    snapshots: u64,
    /// Entries with `from` or `until`.
    intervals: u64,
    /// Entries with a capability that an earlier entry has.
    twice: u64,
    named: Vec<Capability>,
    order: EntryOrder,
    /// Entries whose `until` precedes their `from`, and whose `completed` precedes their `at`.
    until_before_from: u64,
    completed_before_at: u64,
    /// The link `up` leads to an entry.
    up_is_below: bool,
}

impl Conformance {
    /// Adds the next entry.
    pub(super) fn note(&mut self, head: &Head, entry: &Entry) {
        let md = &entry.md;
        let changed_at = entry.changed_at().or(entry.expires);
        self.holds_lists |= self.entries == 0 && is_list(entry, head);
        self.entries += 1;
        self.described += u64::from(*md != Metadata::default());
        self.undated += u64::from(changed_at.is_none());
        self.snapshots += u64::from(has_snapshot(md));
        self.intervals += u64::from(has_interval(md));
        self.note_ends(md);
        if let Some(capability) = &md.capability {
            if self.named.contains(capability) {
                self.twice += 1;
            } else if !matches!(capability, Capability::Other(_)) {
                self.named.push(capability.clone());
            }
        }
        let of_intervals = head.root == Root::Sitemapindex || holds_packages(head);
        // Documents and packages have an interval, or a time of their own.
        self.order
            .note(if of_intervals { md.from } else { changed_at });
        self.up_is_below |= head.link("up") == Some(&entry.loc);
    }

    fn note_ends(&mut self, md: &Metadata) {
        self.until_before_from += u64::from(md.ends_before_from());
        self.completed_before_at += u64::from(md.is_completed_before_at());
    }

    /// Whether there are entries, and none of them states more than a sitemap can.
    pub(super) fn has_plain_entries(&self) -> bool {
        self.entries > 0 && self.described == 0
    }

    /// Counts the oddities of the complete document. `is_dialect`: whether it is of version 0.1, which asks for less.
    pub(super) fn finish(&mut self, head: &Head, is_dialect: bool, context: &mut Context) {
        let (md, up) = (&head.md, head.link("up"));
        let leads_down = self.up_is_below || up == Some(&context.base);
        let oddities = &mut context.oddities;
        self.note_ends(md);
        oddities.add_several(Oddity::UntilBeforeFrom, self.until_before_from);
        oddities.add_several(Oddity::CompletedBeforeAt, self.completed_before_at);
        oddities.add_if(Oddity::TooManyEntries, self.entries > MOST_ENTRIES);
        let Some(capability) = &md.capability else {
            return;
        };
        // The link is optional in notifications.
        let needs_up = distinguishes_entries(head) || *capability == Capability::CapabilityList;
        oddities.add_if(Oddity::NoUp, up.is_none() && needs_up && !is_dialect);
        let is_top = *capability == Capability::Description;
        oddities.add_if(Oddity::WrongUp, up.is_some() && (leads_down || is_top));
        let of_lists = head.root == Root::Sitemapindex || self.holds_lists;
        let is_list = [Capability::ResourceList, Capability::ChangeList].contains(capability);
        if head.root == Root::Urlset && (is_list || holds_packages(head)) {
            oddities.add_if(Oddity::IndexAsUrlset, self.holds_lists);
        }

        let times = Times::of(head).filter(|_| !is_dialect);
        let (misplaced, misplaced_below) = match times {
            Some(Times::Snapshot) => (has_interval(md), self.intervals),
            Some(Times::Changes) => (has_snapshot(md), self.snapshots),
            None => (false, 0),
        };
        oddities.add_if(Oddity::WrongInterval, misplaced);
        if of_lists || holds_packages(head) {
            oddities.add_several(Oddity::WrongInterval, misplaced_below);
        }
        let is_notification = *capability == Capability::ChangeNotification;
        if times == Some(Times::Changes) {
            oddities.add_if(Oddity::NoFrom, md.from.is_none() && !misplaced);
            let is_open = is_notification && md.until.is_none();
            oddities.add_if(Oddity::NoUntil, is_open && !misplaced);
            oddities.add_if(Oddity::NewestFirst, self.order.is_newest_first());
            oddities.add_if(Oddity::Unordered, self.order.is_unordered());
        } else if times == Some(Times::Snapshot) {
            oddities.add_if(Oddity::NoAt, md.at.is_none() && !misplaced);
        }
        if !of_lists && holds_changes(head) && !is_notification {
            oddities.add_several(Oddity::NoChangeTime, self.undated);
        }
        if *capability == Capability::CapabilityList {
            oddities.add_several(Oddity::CapabilityTwice, self.twice);
        }
    }
}

/// Which times belong to a document (appendix A of the specification). Others have none, or any.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Times {
    /// `at` and `completed`.
    Snapshot,
    /// `from` and `until`.
    Changes,
}

impl Times {
    fn of(head: &Head) -> Option<Self> {
        match head.md.capability.as_ref()? {
            Capability::ResourceList
            | Capability::ResourceDump
            | Capability::ResourceDumpManifest => Some(Self::Snapshot),
            Capability::ChangeList
            | Capability::ChangeDump
            | Capability::ChangeDumpManifest
            | Capability::ChangeNotification => Some(Self::Changes),
            _ => None,
        }
    }
}

fn has_snapshot(md: &Metadata) -> bool {
    md.at.is_some() || md.completed.is_some()
}

fn has_interval(md: &Metadata) -> bool {
    md.from.is_some() || md.until.is_some()
}

/// Whether it is a dump, or an index of dumps.
fn holds_packages(head: &Head) -> bool {
    let capability = head.md.capability.as_ref();
    capability.is_some_and(|it| [Capability::ResourceDump, Capability::ChangeDump].contains(it))
}

/// Whether the entries of such a document are resources, or changes of them, unless they state a capability.
pub(super) fn holds_resources(head: &Head) -> bool {
    let may_hold = head.md.capability.is_none() || Times::of(head).is_some();
    may_hold && head.root == Root::Urlset && !holds_packages(head)
}

fn holds_changes(head: &Head) -> bool {
    Times::of(head) == Some(Times::Changes) && holds_resources(head)
}

/// Whether an entry of such a document must have a `change`. An entry with a capability refers to another document and has
/// none, except in a framework notification, which reports changes of documents.
pub(crate) fn needs_change(head: &Head, md: &Metadata) -> bool {
    head.md.capability == Some(Capability::FrameworkNotification)
        || holds_changes(head) && md.capability.is_none()
}

/// Whether a `url` and a `sitemap` mean different things in such a document: the one a resource, a change or a package, the other
/// a list of them.
pub(super) fn distinguishes_entries(head: &Head) -> bool {
    let capability = head.md.capability.as_ref();
    let has_times = capability.is_none() || Times::of(head).is_some();
    has_times && capability != Some(&Capability::ChangeNotification)
}
