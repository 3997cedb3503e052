//! Conformance of a complete document with its capability; the oddities are counted at its end.

use url::Url;

use crate::declared_list::is_list;
use crate::entries::EntryOrder;
use crate::{Capability, Entry, Head, Metadata, Oddities, Oddity, Root};

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
        self.until_before_from += u64::from(md.ends_before_from());
        self.completed_before_at += u64::from(md.is_completed_before_at());
        if let Some(capability) = &md.capability {
            if self.named.contains(capability) {
                self.twice += 1;
            } else if !matches!(capability, Capability::Other(_)) {
                self.named.push(capability.clone());
            }
        }
        self.order.note(if holds_intervals(head) {
            md.from
        } else {
            changed_at
        });
        self.up_is_below |= head.link("up") == Some(&entry.loc);
    }

    /// Whether there are entries, and none of them states more than a sitemap can.
    pub(super) fn has_plain_entries(&self) -> bool {
        self.entries > 0 && self.described == 0
    }

    /// Counts the oddities of the complete document. `is_dialect`: whether it is of version 0.1, which asks for less.
    pub(super) fn finish(
        &self,
        head: &Head,
        base: &Url,
        is_dialect: bool,
        oddities: &mut Oddities,
    ) {
        let until_before_from = self.until_before_from + u64::from(head.md.ends_before_from());
        let completed_before_at =
            self.completed_before_at + u64::from(head.md.is_completed_before_at());
        oddities.add_several(Oddity::UntilBeforeFrom, until_before_from);
        oddities.add_several(Oddity::CompletedBeforeAt, completed_before_at);
        let mut add = |oddity: Oddity, found: bool| {
            if found {
                oddities.add(oddity);
            }
        };
        add(Oddity::TooManyEntries, self.entries > MOST_ENTRIES);
        let Some(capability) = &head.md.capability else {
            return;
        };
        let up = head.link("up");
        let leads_down = self.up_is_below || up == Some(base);
        let is_top = *capability == Capability::Description;
        add(
            Oddity::NoUp,
            up.is_none() && needs_up(capability) && !is_dialect,
        );
        add(Oddity::WrongUp, up.is_some() && (leads_down || is_top));
        add(
            Oddity::IndexAsUrlset,
            head.root == Root::Urlset && self.holds_lists && is_listing(capability),
        );

        let (md, mut family) = (&head.md, TimeAttributes::of(capability));
        if is_dialect {
            family = TimeAttributes::Neither;
        }
        let (misplaced, misplaced_below) = match family {
            TimeAttributes::Snapshot => (has_interval(md), self.intervals),
            TimeAttributes::Changes => (has_snapshot(md), self.snapshots),
            TimeAttributes::Neither => (false, 0),
        };
        add(Oddity::WrongInterval, misplaced);
        match family {
            TimeAttributes::Snapshot => add(Oddity::NoAt, md.at.is_none() && !misplaced),
            TimeAttributes::Changes => {
                add(Oddity::NoFrom, md.from.is_none() && !misplaced);
                let is_closed = *capability == Capability::ChangeNotification;
                add(
                    Oddity::NoUntil,
                    is_closed && md.until.is_none() && !misplaced,
                );
                add(Oddity::NewestFirst, self.order.is_newest_first());
                add(Oddity::Unordered, self.order.is_unordered());
            }
            TimeAttributes::Neither => {}
        }

        let of_lists = head.root == Root::Sitemapindex || self.holds_lists;
        if of_lists || holds_intervals(head) {
            oddities.add_several(Oddity::WrongInterval, misplaced_below);
        }
        let of_changes = matches!(
            capability,
            Capability::ChangeList | Capability::ChangeDumpManifest
        );
        if of_changes && !of_lists {
            oddities.add_several(Oddity::NoChangeTime, self.undated);
        }
        if *capability == Capability::CapabilityList {
            oddities.add_several(Oddity::CapabilityTwice, self.twice);
        }
    }
}

/// Which times belong to a document (appendix A of the specification).
#[derive(Clone, Copy, PartialEq, Eq)]
enum TimeAttributes {
    /// `at` and `completed`.
    Snapshot,
    /// `from` and `until`.
    Changes,
    /// None, or any.
    Neither,
}

impl TimeAttributes {
    fn of(capability: &Capability) -> Self {
        match capability {
            Capability::ResourceList
            | Capability::ResourceDump
            | Capability::ResourceDumpManifest => Self::Snapshot,
            Capability::ChangeList
            | Capability::ChangeDump
            | Capability::ChangeDumpManifest
            | Capability::ChangeNotification => Self::Changes,
            Capability::Description
            | Capability::CapabilityList
            | Capability::FrameworkNotification
            | Capability::Other(_) => Self::Neither,
        }
    }
}

fn has_snapshot(md: &Metadata) -> bool {
    md.at.is_some() || md.completed.is_some()
}

fn has_interval(md: &Metadata) -> bool {
    md.from.is_some() || md.until.is_some()
}

/// Whether the entries are documents or packages, which have an interval or a time of their own.
fn holds_intervals(head: &Head) -> bool {
    head.root == Root::Sitemapindex
        || matches!(
            head.md.capability,
            Some(Capability::ResourceDump | Capability::ChangeDump)
        )
}

/// Whether documents of this capability may have an index.
fn is_listing(capability: &Capability) -> bool {
    matches!(
        capability,
        Capability::ResourceList
            | Capability::ResourceDump
            | Capability::ChangeList
            | Capability::ChangeDump
    )
}

/// Whether the link `up` is mandatory. It is optional in notifications.
fn needs_up(capability: &Capability) -> bool {
    is_listing(capability)
        || matches!(
            capability,
            Capability::CapabilityList
                | Capability::ResourceDumpManifest
                | Capability::ChangeDumpManifest
        )
}
