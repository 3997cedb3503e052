//! What is remembered from one poll of a set to the next, in memory: after a restart it is read again, although it may not have
//! changed.

use std::collections::HashMap;

use resourcesync::{Capability, Interval, SourceTime};
use resyncd_core::{Sequencer, Span};
use url::Url;

use crate::engine::EngineError;
use crate::engine::documents::Child;
use crate::store::DocumentRecord;

/// How many closed lists are followed to the next one within one poll.
pub(super) const MAX_CLOSED: usize = 16;
/// An index with more lists to read than this is read again at each poll.
const MAX_REMEMBERED: usize = 10_000;

/// Whether a list of an index is closed and known, as the index states its interval.
pub(super) fn is_fully_covered(sequencer: &Sequencer, child: &Child) -> bool {
    let stated = child
        .from
        .zip(child.until)
        .and_then(|(from, until)| Interval::new(from, until));
    stated.is_some_and(|interval| sequencer.is_fully_covered(interval))
}

/// The Change Lists of a set, or its Change Dumps.
#[derive(Default)]
pub(super) struct ReadLists {
    /// In the order in which they were read.
    read: Vec<ReadList>,
    /// The index that was read last.
    pub(super) index: Option<ReadIndex>,
}

impl ReadLists {
    pub(super) fn at(&self, uri: &Url) -> Option<&ReadList> {
        self.read.iter().find(|list| list.uri == *uri)
    }

    /// Forgets the index that was read last. Returns up to where its lists reach, and the list that was read last: that may have led to an
    /// index that names it.
    pub(super) fn take_reached(&mut self) -> HashMap<Url, ReachedList> {
        let before = self.index.take();
        let mut reached = before.map(|before| before.reached).unwrap_or_default();
        reached.extend(self.read.last().map(|last| {
            let (until, next) = (last.span.until, None);
            (last.uri.clone(), ReachedList { until, next })
        }));
        reached
    }

    pub(super) fn remember(&mut self, list: ReadList) {
        self.read.retain(|read| read.uri != list.uri);
        if self.read.len() > MAX_CLOSED {
            self.read.remove(0);
        }
        self.read.push(list);
    }

    /// Remembers an index, unless that would take too much memory.
    pub(super) fn remember_index(&mut self, index: ReadIndex) {
        let fits = index.to_read.len().max(index.reached.len()) <= MAX_REMEMBERED;
        self.index = fits.then_some(index);
    }
}

/// A Change List or Change Dump that was read.
#[derive(Clone)]
pub(super) struct ReadList {
    pub(super) uri: Url,
    pub(super) span: Span,
    pub(super) is_closed: bool,
    /// The index that a closed list belongs to.
    pub(super) index: Option<Url>,
}

/// An index of Change Lists or Change Dumps that was read, or one of those with pages: its pages are to it what its lists are to an index.
#[derive(Clone)]
pub(super) struct ReadIndex {
    pub(super) capability: Capability,
    pub(super) uri: Url,
    /// The list, where it is one with pages.
    pub(super) list: Option<ReadList>,
    /// The page after it.
    pub(super) next: Option<Url>,
    pub(super) record: DocumentRecord,
    /// How many of its entries can't be read.
    pub(super) bad_entries: u64,
    /// What it covered when it was read last.
    pub(super) span: Option<Span>,
    /// The interval that it states.
    pub(super) from: Option<SourceTime>,
    pub(super) until: Option<SourceTime>,
    /// Its lists that are not fully covered, the oldest first.
    pub(super) to_read: Vec<Child>,
    /// Up to where the covered ones reach.
    pub(super) covered_until: Option<SourceTime>,
    /// Those lists that were read.
    pub(super) reached: HashMap<Url, ReachedList>,
}

/// A list of an index, or a page of a list.
#[derive(Clone, Default)]
pub(super) struct ReachedList {
    /// Up to where it reaches.
    pub(super) until: Option<SourceTime>,
    /// The page after it.
    pub(super) next: Option<Url>,
}

impl ReadIndex {
    /// An index with unreadable entries proves nothing: the lists that they name are unknown.
    pub(super) fn unread_entries(&self) -> Option<EngineError> {
        (self.bad_entries > 0).then(|| EngineError::UnreadEntries {
            document: self.uri.to_string(),
            count: self.bad_entries,
        })
    }

    /// Drops the lists that are fully covered by now.
    pub(super) fn drop_covered(&mut self, sequencer: &Sequencer) {
        let covered_until = &mut self.covered_until;
        self.to_read.retain(|child| {
            let is_fully_covered = is_fully_covered(sequencer, child);
            if is_fully_covered {
                *covered_until = child.until.max(*covered_until);
            }
            !is_fully_covered
        });
    }
}

/// A Resource Dump of which entries can't be read.
pub(super) struct UnreadDump {
    pub(super) uri: Url,
    pub(super) digest: [u8; 32],
    /// The document of which entries can't be read: the dump, one of its index, or a package.
    pub(super) document: String,
    pub(super) count: u64,
}
