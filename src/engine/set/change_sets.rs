//! Change Sets (version 0.1, sections 5.1 and 6.1): Change Lists without an interval, each of which names the one before it.
//!
//! They are followed backwards until one states a change that is known and was covered, and then ingested, the oldest first. So all of
//! them together reach from what was covered to the newest change. Where none of them states a known change, they begin at their earliest
//! change that was not covered, and what is before it is a gap.
//!
//! Invariants: how many sets are read back, and how long they are in total, is bounded; no set is read twice in one poll, nor again
//! because a gap before it is open.

use std::collections::HashSet;
use std::sync::Arc;

use resourcesync::{Capability, Interval, SourceTime};
use resyncd_core::Span;
use url::Url;

use super::changes::{change_of, note_change};
use super::polled_document::{ChangedDocument, read_document};
use super::span::end_of;
use super::state::SetState;
use crate::engine::EngineError;
use crate::engine::documents::NextEntry;
use crate::store::{Change, DocumentEnd};
use crate::{clock, config};

/// How many sets are read back in one poll.
const MAX_SETS: usize = 1000;
/// How many changes are looked up at once.
const AT_ONCE: usize = 1000;

/// The Change Sets of one poll.
#[derive(Default)]
struct Chain {
    /// The newest first.
    sets: Vec<ChangedDocument>,
    /// The earliest covered interval of which the oldest set states a known change.
    known: Option<Interval>,
    /// The earliest change that no covered interval has.
    begins: Option<SourceTime>,
    /// Why the set before the oldest one is not read, although there should be one.
    cut: Option<String>,
    /// The error that may pass by itself because of which it could not be fetched.
    failed: Option<EngineError>,
}

/// What the changes of one set are to what is known.
#[derive(Clone, Copy, Default)]
struct Seen {
    known: Option<Interval>,
    begins: Option<SourceTime>,
}

impl Chain {
    fn add(&mut self, set: ChangedDocument, seen: Seen) {
        self.known = seen.known;
        self.begins = earliest(self.begins, seen.begins);
        self.sets.push(set);
    }

    fn newest(&self) -> Option<SourceTime> {
        let sets = self.sets.iter();
        sets.filter_map(|set| set.read.summary.newest).max()
    }

    /// What all sets cover together: what has happened since a change that is known, or else since their earliest one.
    fn span(&self) -> Span {
        let known = self.known.map(|known| known.until());
        Span {
            from: earliest(known, self.begins),
            until: self.newest(),
        }
    }

    /// Takes the error because of which nothing is proven.
    fn take_error(&mut self) -> Option<EngineError> {
        let mut sets = self.sets.iter();
        let damaged = sets.find_map(|set| set.read.expect_undamaged().err());
        damaged.or(self.failed.take())
    }
}

impl SetState {
    /// Reads a Change Set that has changed, and those before it, as far as their changes are not known. Returns what they cover.
    pub(super) async fn read_change_sets(
        &mut self,
        uri: &Url,
        changed: ChangedDocument,
    ) -> Result<Span, EngineError> {
        let covered: Arc<[Interval]> = self.sequencer.coverage().intervals().into();
        let mut chain = self.collect_change_sets(uri, changed, &covered).await?;
        // The notice that the chain was cut stays while a gap remains before the known change.
        let is_behind_gap = chain.known.is_some_and(|known| covered[0] < known);
        let cut = chain.cut.take();
        if cut.is_some() || !is_behind_gap {
            self.note_cut_change_sets(cut);
        }
        let (span, failed) = (chain.span(), chain.take_error());
        let mut trial = self.sequencer.clone();
        if let Some(interval) = span.interval().filter(|_| failed.is_none()) {
            trial.cover_list(clock::now(), interval);
        }
        // What was covered before is compared with what is known, as a newer Sitemap has it.
        let interval = span.until.map(Interval::before);
        let mut left = chain.sets.len();
        for ChangedDocument { read, record } in chain.sets.into_iter().rev() {
            left -= 1;
            let filter = self.sequencer.news_of_list(interval, end_of(&read.summary));
            let filter = filter.of_change_set();
            let mut end = DocumentEnd::new(self.deletion_rules());
            if left == 0 && failed.is_none() {
                end = self.document_end(&trial, None);
                end.documents.push(record);
            }
            self.ingest_news(read, filter, end).await?;
        }
        match failed {
            Some(error) => Err(error),
            None => {
                self.sequencer = trial;
                Ok(span)
            }
        }
    }

    /// Follows Change Sets backwards. `covered`: the covered intervals.
    async fn collect_change_sets(
        &self,
        uri: &Url,
        changed: ChangedDocument,
        covered: &Arc<[Interval]>,
    ) -> Result<Chain, EngineError> {
        let mut chain = Chain::default();
        let mut named = HashSet::from([uri.clone(), changed.read.document.url().clone()]);
        let (mut bytes, mut next) = (0, Some(changed));
        while let Some(ChangedDocument { read, record }) = next.take() {
            let (context, covered) = (Arc::clone(&self.context), Arc::clone(covered));
            let set = self.record.id;
            let comparing = read.with_entries(move |next| {
                compare_changes(&context.source, &covered, next, |changes| {
                    context.counters.step();
                    let (store, source) = (&context.store, context.name());
                    Ok(store.earliest_known(set, source, changes)?)
                })
            });
            let (read, seen) = comparing.await?;
            let before = read.summary.head.previous_change_set().cloned();
            bytes += read.document.bytes_len();
            chain.add(ChangedDocument { read, record }, seen);
            let Some(before) = before.filter(|_| seen.known.is_none()) else {
                break;
            };
            if !named.insert(before.clone()) {
                chain.cut = Some(format!("{before} was read already, and is named again"));
            } else if chain.sets.len() >= MAX_SETS || bytes >= self.context.limits.document {
                chain.cut = Some(format!("there are too many; {before} is not read"));
            } else {
                let fetched = read_document(&self.context, self.record.id, &before).await;
                match fetched.and_then(|set| set.read.expect(&Capability::ChangeList).map(|()| set))
                {
                    Ok(read) => next = Some(read),
                    Err(error) if error.is_fatal() => return Err(error),
                    Err(error) if error.is_transient() => chain.failed = Some(error),
                    Err(error) => chain.cut = Some(error.to_string()),
                }
            }
        }
        Ok(chain)
    }
}

/// Compares the changes of a set with what is known; few at once are in memory. `find`: the earliest interval with a change that is known.
/// For a blocking thread.
fn compare_changes(
    source: &config::Source,
    covered: &[Interval],
    next: &mut NextEntry<'_>,
    find: impl Fn(&[(Interval, Change)]) -> Result<Option<Interval>, EngineError>,
) -> Result<Seen, EngineError> {
    let now = clock::now().wall;
    let (mut seen, mut changes) = (Seen::default(), Vec::new());
    let (mut unwanted, mut has_wanted) = (None, false);
    loop {
        let entry = next()?;
        let is_last = entry.is_none();
        if let Some(mut entry) = entry
            && let Some(changed_at) = note_change(&mut entry, now)
        {
            match interval_of(covered, changed_at) {
                None => seen.begins = earliest(seen.begins, Some(changed_at)),
                // Another would prove no more than what is known by now.
                Some(interval) if seen.known.is_some_and(|known| known <= interval) => {}
                Some(interval) => match change_of(source, entry, Some(changed_at)) {
                    Some(change) => changes.push((interval, change)),
                    None => unwanted = earliest(unwanted, Some(interval)),
                },
            }
        }
        has_wanted |= !changes.is_empty();
        if changes.len() >= AT_ONCE || (is_last && !changes.is_empty()) {
            seen.known = earliest(seen.known, find(&changes)?);
            changes.clear();
        }
        if is_last {
            // What is not wanted is not known, whenever it happened.
            seen.known = seen.known.or(unwanted.filter(|_| !has_wanted));
            return Ok(seen);
        }
    }
}

fn earliest<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
    one.into_iter().chain(other).min()
}

/// The covered interval that a moment belongs to, perhaps as its end.
fn interval_of(covered: &[Interval], moment: SourceTime) -> Option<Interval> {
    let before = covered.partition_point(|interval| interval.until() < moment);
    let interval = covered.get(before)?;
    interval.touches(moment).then_some(*interval)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use resourcesync::{ChangeKind, Entry};

    use super::*;

    fn time(seconds: i64) -> SourceTime {
        SourceTime::from_micros(seconds * 1_000_000)
    }

    fn span(from: i64, until: i64) -> Interval {
        Interval::new(time(from), time(until)).unwrap()
    }

    #[test]
    fn moment_belongs_to_the_interval_that_it_touches() {
        let covered = [span(0, 10), span(20, 30)];
        for (moment, expected) in [
            (0, Some(covered[0])),
            (10, Some(covered[0])),
            (11, None),
            (20, Some(covered[1])),
            (30, Some(covered[1])),
            (31, None),
        ] {
            assert_eq!(interval_of(&covered, time(moment)), expected, "{moment}");
        }
        assert_eq!(interval_of(&[], time(0)), None);
    }

    /// How many changes are held at most, and what is known in the end, of a set with these changes: the number of each resource, `None` if it
    /// is not wanted, and the time. The database knows the change of one of them.
    fn compare(
        changes: impl IntoIterator<Item = (Option<usize>, i64)>,
        known: usize,
    ) -> (usize, Option<Interval>) {
        let uri = |number: usize| Url::parse(&format!("https://example.org/{number}")).unwrap();
        let source = config::Source::new("source", uri(0), "mirror");
        let most = Cell::new(0);
        let find = |changes: &[(Interval, Change)]| {
            most.set(most.get().max(changes.len()));
            let mut changes = changes.iter();
            let found = changes.find(|(_, change)| *change.uri.url() == uri(known));
            Ok(found.map(|(interval, _)| *interval))
        };
        let mut entries = changes.into_iter().map(|(number, changed_at)| {
            let unwanted = || Url::parse("mailto:nobody@example.org").unwrap();
            let mut entry = Entry::new(number.map_or_else(unwanted, uri));
            entry.md.change = Some(ChangeKind::Updated);
            entry.md.datetime = Some(time(changed_at));
            entry
        });
        let covered = [span(0, 10), span(20, 30)];
        let seen = compare_changes(&source, &covered, &mut || Ok(entries.next()), find).unwrap();
        (most.get(), seen.known)
    }

    #[test]
    fn few_changes_are_held_at_once_and_the_earliest_known_one_counts() {
        for (known, expected) in [
            (0, Some(span(20, 30))),
            (6 * AT_ONCE, Some(span(0, 10))),
            (10 * AT_ONCE, None),
        ] {
            let time = |number| if number < 5 * AT_ONCE { 25 } else { 5 };
            let changes = (0..10 * AT_ONCE).map(|number| (Some(number), time(number)));
            let (most, found) = compare(changes, known);
            assert!(most <= AT_ONCE, "{most} changes at once");
            assert_eq!(found, expected, "{known}");
        }
    }

    #[test]
    fn unwanted_changes_prove_something_only_where_none_is_wanted() {
        let unwanted = [(None, 25), (None, 5)];
        assert_eq!(compare(unwanted, 1).1, Some(span(0, 10)));
        let wanted = unwanted.into_iter().chain([(Some(0), 25)]);
        assert_eq!(compare(wanted, 1).1, None);
    }
}
