//! Bounds the feed of each Source: its newest entries stay as they are, and of the older ones those that no newer entry of the same
//! resource supersedes.
//!
//! A pass reads the feed from its end to its begin, in steps. No index names the entries of a resource: it would take bytes for each
//! resource. The next pass begins when the feed has grown by a part of what this one has left, so that an entry is read a few times only.
//!
//! Invariants: each step is short, whatever the size of the feed; a reader at any position finds the newest entry of each resource that
//! has one after it; an entry of a change of links alone supersedes its like only, because not every reader gets it.

use std::collections::HashMap;
use std::sync::Arc;

use crate::store::ids::ResourceId;
use crate::store::tables::feed::{self, EntrySubject};
use crate::store::{Store, StoreError};

/// How many of the newest entries of a Source stay as they are: more than are counted at a start for the page's diagrams, which claim
/// that none is missing.
const RECENT: usize = 10_000;
/// By how many entries the feed grows, at least, until the next pass.
const LEAST_GROWTH: usize = 5000;
/// The same, as a part of the entries that a pass has left.
const GROWTH: usize = 4;
/// How many entries are read in one step.
const READ_A_STEP: usize = 20_000;
/// How many entries are removed in one transaction.
const REMOVED_A_STEP: usize = 5000;

/// When the next pass begins, or how far this one has come.
#[derive(Debug)]
pub struct FeedCompaction {
    pass: Option<CompactionPass>,
    /// The number of the feed at which the next pass begins.
    due: i64,
}

impl Default for FeedCompaction {
    /// What was read before the start is unknown: a pass is due.
    fn default() -> Self {
        Self {
            pass: None,
            due: i64::MIN,
        }
    }
}

#[derive(Debug)]
struct CompactionPass {
    /// The last number of the feed when it began.
    end: i64,
    /// It goes on below that number.
    before: i64,
    /// How many entries it has left.
    left: usize,
    /// How many entries of each Source it has read.
    of_source: HashMap<String, usize>,
    /// The resources of the entries that it has read.
    named: ResourceIds,
    /// The same without those of which only the links are others.
    changed: ResourceIds,
}

impl CompactionPass {
    fn from_end(end: i64) -> Self {
        Self {
            end,
            before: i64::MAX,
            left: 0,
            of_source: HashMap::new(),
            named: ResourceIds::default(),
            changed: ResourceIds::default(),
        }
    }

    /// Goes on over the next older entries. Returns the numbers of those that are superseded, but for the newest `recent` of each Source.
    fn read(&mut self, entries: &[EntrySubject], recent: usize) -> Vec<i64> {
        let mut superseded = Vec::new();
        for entry in entries {
            self.before = entry.seq;
            let is_superseded = self.is_superseded(entry);
            if self.is_recent(entry, recent) || !is_superseded {
                self.left += 1;
            } else {
                superseded.push(entry.seq);
            }
        }
        superseded
    }

    fn is_superseded(&mut self, entry: &EntrySubject) -> bool {
        let was_named = !self.named.insert(entry.resource);
        if entry.is_linked {
            was_named
        } else {
            !self.changed.insert(entry.resource)
        }
    }

    fn is_recent(&mut self, entry: &EntrySubject, recent: usize) -> bool {
        let read = match self.of_source.get_mut(&entry.source) {
            Some(read) => read,
            None => self.of_source.entry(entry.source.clone()).or_default(),
        };
        *read += 1;
        *read <= recent
    }

    /// The number at which the next pass begins.
    fn next_due(&self) -> i64 {
        let growth = LEAST_GROWTH.max(self.left / GROWTH);
        let growth = i64::try_from(growth).unwrap_or(i64::MAX);
        self.end.saturating_add(growth)
    }
}

/// A set of the ids of millions of resources, a bit each. Ids are used one after the other.
#[derive(Debug, Default)]
struct ResourceIds(HashMap<i64, [u64; 16]>);

impl ResourceIds {
    /// Returns whether it is new.
    fn insert(&mut self, ResourceId(id): ResourceId) -> bool {
        // The lowest six bits are of the bit, the next four of the word.
        let block = self.0.entry(id >> 10).or_default();
        let word = &mut block[(id >> 6 & 15) as usize];
        let bit = 1 << (id & 63);
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }
}

impl Store {
    /// Goes on with a pass over the feed, or begins one if it is due: reads up to 20,000 entries, and removes those that are superseded.
    /// Returns whether the pass goes on.
    pub async fn compact_feed(
        self: &Arc<Self>,
        compaction: &mut FeedCompaction,
    ) -> Result<bool, StoreError> {
        let mut pass = match compaction.pass.take() {
            Some(pass) => pass,
            None => {
                let end = self.read(|sql| Ok(feed::last_number(sql)?)).await?;
                if end < compaction.due {
                    return Ok(false);
                }
                CompactionPass::from_end(end)
            }
        };
        let step = self.read(move |sql| {
            let entries = feed::subjects(sql, pass.before, READ_A_STEP)?;
            let superseded = pass.read(&entries, RECENT);
            Ok((pass, superseded, entries.len() < READ_A_STEP))
        });
        let (pass, superseded, is_over) = step.await?;
        for some in superseded.chunks(REMOVED_A_STEP) {
            let some = some.to_vec();
            self.write(move |tx| {
                for seq in some {
                    feed::remove_superseded(tx.sql, seq)?;
                }
                Ok(())
            })
            .await?;
        }
        if is_over {
            compaction.due = pass.next_due();
        } else {
            compaction.pass = Some(pass);
        }
        Ok(!is_over)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The changes of a feed, oldest first, as `SOURCE RESOURCE`, or `SOURCE RESOURCE linked`; how many entries of a Source stay as they
    /// are; and the changes that stay.
    #[track_caller]
    fn check(feed: &[&str], recent: usize, expected: &[&str]) {
        for step in [1, 2, feed.len()] {
            let subjects = feed.iter().zip(1..).map(|(text, seq)| {
                let mut words = text.split(' ');
                EntrySubject {
                    seq,
                    source: words.next().unwrap().to_owned(),
                    resource: ResourceId(words.next().unwrap().parse().unwrap()),
                    is_linked: words.next() == Some("linked"),
                }
            });
            let mut subjects: Vec<EntrySubject> = subjects.collect();
            subjects.reverse();
            let mut pass = CompactionPass::from_end(0);
            let mut superseded = Vec::new();
            for entries in subjects.chunks(step) {
                superseded.extend(pass.read(entries, recent));
            }
            let stays = |seq: &i64| !superseded.contains(seq);
            let left: Vec<&str> = feed
                .iter()
                .zip(1..)
                .filter_map(|(text, seq)| stays(&seq).then_some(*text))
                .collect();
            assert_eq!((left.as_slice(), pass.left), (expected, expected.len()));
        }
    }

    #[test]
    fn newest_entry_of_each_resource_and_recent_ones_stay() {
        check(&["a 1", "a 2", "a 1"], 0, &["a 2", "a 1"]);
        check(&["a 1", "a 1", "a 1", "a 1"], 2, &["a 1", "a 1"]);
        // What no newer entry supersedes, however old it is.
        let many = ["a 1", "a 2", "a 3", "a 1024", "a 1025", "a 2049"];
        check(&many, 0, &many);
        // Another Source has what it has had.
        let all = ["b 7", "b 7", "a 1", "a 1", "b 7", "a 1"];
        check(&all, 3, &all);
        check(
            &["b 7", "b 7", "a 1", "a 1", "a 1"],
            2,
            &["b 7", "b 7", "a 1", "a 1"],
        );
    }

    #[test]
    fn entry_that_some_readers_do_not_get_supersedes_no_other() {
        check(
            &["a 1", "a 1 linked", "a 1 linked"],
            0,
            &["a 1", "a 1 linked"],
        );
        check(&["a 1 linked", "a 1"], 0, &["a 1"]);
        check(
            &["a 1", "a 1 linked", "a 1", "a 1 linked"],
            0,
            &["a 1", "a 1 linked"],
        );
    }

    #[test]
    fn pass_is_due_when_the_feed_has_grown_by_a_part_of_it() {
        for (left, expected) in [(0, 5100), (20_000, 5100), (2_000_000, 500_100)] {
            let pass = CompactionPass {
                left,
                ..CompactionPass::from_end(100)
            };
            assert_eq!(pass.next_due(), expected, "{left}");
        }
    }
}
