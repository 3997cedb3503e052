//! The lists of an index that may hold news and are not read yet.

use crate::engine::EngineError;
use crate::engine::documents::{Child, Entries};
use crate::fetch::FetchedDocument;
use crate::protocol::{Interval, SourceTime};
use crate::sync::Sequencer;

/// How much memory they may take, in bytes: enough for the 50,000 lists of one index.
const MAX_BYTES: usize = 16 << 20;

/// Whether a list of an index is closed and known, as the index states its interval.
pub(super) fn is_settled(sequencer: &Sequencer, child: &Child) -> bool {
    let stated = child
        .from
        .zip(child.until)
        .and_then(|(from, until)| Interval::new(from, until));
    stated.is_some_and(|interval| sequencer.is_settled(interval))
}

/// A stack with the oldest list on top. What an index within an index names comes before what the outer one names next.
#[derive(Default)]
pub(super) struct PendingLists {
    lists: Vec<(Child, usize)>,
    bytes: usize,
}

impl PendingLists {
    /// Those lists of the outermost index, the oldest first.
    pub(super) fn of(lists: &[Child]) -> Self {
        Self {
            bytes: lists.iter().map(Self::bytes_of).sum(),
            lists: lists.iter().rev().map(|child| (child.clone(), 1)).collect(),
        }
    }

    /// Adds those lists of an index that may hold news; returns up to where the settled ones reach.
    pub(super) async fn add(
        &mut self,
        index: Box<FetchedDocument>,
        depth: usize,
        sequencer: &Sequencer,
    ) -> Result<Option<SourceTime>, EngineError> {
        let begin = self.lists.len();
        let mut settled_until = None;
        let mut entries = Entries::of(index);
        while let Some(entry) = entries.next().await? {
            let child = Child::from(entry);
            if is_settled(sequencer, &child) {
                settled_until = child.until.max(settled_until);
                continue;
            }
            self.bytes += Self::bytes_of(&child);
            if self.bytes > MAX_BYTES {
                return Err(EngineError::TooManyLists);
            }
            self.lists.push((child, depth));
        }
        // Not every index has the oldest first. One without times keeps its order.
        self.lists[begin..].sort_by_key(|(child, _)| child.from.or(child.until).or(child.modified));
        self.lists[begin..].reverse();
        Ok(settled_until)
    }

    pub(super) fn next(&mut self) -> Option<(Child, usize)> {
        let next = self.lists.pop()?;
        self.bytes -= Self::bytes_of(&next.0);
        Some(next)
    }

    pub(super) fn oldest_first(self) -> Vec<Child> {
        let oldest_last = self.lists.into_iter();
        oldest_last.rev().map(|(child, _)| child).collect()
    }

    fn bytes_of(child: &Child) -> usize {
        size_of::<(Child, usize)>() + child.uri.as_str().len()
    }
}
