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
use crate::clock;
use crate::engine::EngineError;
use crate::engine::context::SourceContext;
use crate::engine::documents::NextEntry;
use crate::store::{Change, DocumentEnd, SetId};

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
        self.begins = [self.begins, seen.begins].into_iter().flatten().min();
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
            from: [known, self.begins].into_iter().flatten().min(),
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
            let comparing =
                read.with_entries(move |next| compare_changes(&context, set, next, &covered));
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

/// Compares the changes of a set with what is known. For a blocking thread.
fn compare_changes(
    context: &SourceContext,
    set: SetId,
    next: &mut NextEntry<'_>,
    covered: &[Interval],
) -> Result<Seen, EngineError> {
    let now = clock::now().wall;
    let mut lookup = Lookup::default();
    let find = |changes: &[(Interval, Change)]| {
        context.counters.step();
        context
            .store
            .earliest_known(set, context.name(), changes)
            .map_err(EngineError::from)
    };
    while let Some(mut entry) = next()? {
        let Some(changed_at) = note_change(&mut entry, now) else {
            continue;
        };
        let Some(interval) = interval_of(covered, changed_at) else {
            lookup.begin_at(changed_at);
            continue;
        };
        if lookup.needs(interval) {
            let change = change_of(&context.source, entry, Some(changed_at));
            lookup.add(interval, change, find)?;
        }
    }
    lookup.finish(find)
}

/// The covered interval that a moment belongs to, perhaps as its end.
fn interval_of(covered: &[Interval], moment: SourceTime) -> Option<Interval> {
    let before = covered.partition_point(|interval| interval.until() < moment);
    let interval = covered.get(before)?;
    interval.touches(moment).then_some(*interval)
}

/// The changes of one set whose times were covered, as they are looked up: few at once.
#[derive(Default)]
struct Lookup {
    seen: Seen,
    /// Those that are not looked up yet.
    changes: Vec<(Interval, Change)>,
    /// The earliest interval of a change that is not wanted.
    unwanted: Option<Interval>,
    has_wanted: bool,
}

impl Lookup {
    fn begin_at(&mut self, moment: SourceTime) {
        let begins = self.seen.begins.unwrap_or(moment);
        self.seen.begins = Some(begins.min(moment));
    }

    /// Whether a change in that interval would prove more than what is known by now.
    fn needs(&self, interval: Interval) -> bool {
        self.seen.known.is_none_or(|known| interval < known)
    }

    /// Adds a change; `None`: one that is not wanted. `find`: the earliest interval with a change that is known.
    fn add<E>(
        &mut self,
        interval: Interval,
        change: Option<Change>,
        find: impl Fn(&[(Interval, Change)]) -> Result<Option<Interval>, E>,
    ) -> Result<(), E> {
        let Some(change) = change else {
            let unwanted = self.unwanted.unwrap_or(interval);
            self.unwanted = Some(unwanted.min(interval));
            return Ok(());
        };
        self.has_wanted = true;
        self.changes.push((interval, change));
        match self.changes.len() {
            AT_ONCE.. => self.look_up(find),
            _ => Ok(()),
        }
    }

    fn look_up<E>(
        &mut self,
        find: impl Fn(&[(Interval, Change)]) -> Result<Option<Interval>, E>,
    ) -> Result<(), E> {
        let found = find(&self.changes)?;
        self.seen.known = [self.seen.known, found].into_iter().flatten().min();
        self.changes.clear();
        Ok(())
    }

    fn finish<E>(
        mut self,
        find: impl Fn(&[(Interval, Change)]) -> Result<Option<Interval>, E>,
    ) -> Result<Seen, E> {
        if !self.changes.is_empty() {
            self.look_up(find)?;
        }
        // What is not wanted is not known, whenever it happened.
        let unwanted = self.unwanted.filter(|_| !self.has_wanted);
        self.seen.known = self.seen.known.or(unwanted);
        Ok(self.seen)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use resyncd_core::ResourceUri;

    use super::*;

    fn time(seconds: i64) -> SourceTime {
        SourceTime::from_micros(seconds * 1_000_000)
    }

    fn span(from: i64, until: i64) -> Interval {
        Interval::new(time(from), time(until)).unwrap()
    }

    fn change(number: usize) -> Change {
        let uri = format!("https://example.org/{number}");
        let uri = ResourceUri::try_from(Url::parse(&uri).unwrap()).unwrap();
        Change::deletion(uri, Some(time(15)))
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

    /// How many changes are held at most, and what is known in the end, of a set of many changes in two intervals of which the
    /// database knows the one at that place.
    fn look_up(known: usize) -> (usize, Option<Interval>) {
        let (early, late) = (span(0, 10), span(20, 30));
        let find = |changes: &[(Interval, Change)]| {
            let wanted = change(known).uri;
            let mut changes = changes.iter();
            let found = changes.find(|(_, change)| change.uri == wanted);
            Ok::<_, Infallible>(found.map(|(interval, _)| *interval))
        };
        let (mut lookup, mut most) = (Lookup::default(), 0);
        for number in 0..10 * AT_ONCE {
            let interval = if number < 5 * AT_ONCE { late } else { early };
            if lookup.needs(interval) {
                let Ok(()) = lookup.add(interval, Some(change(number)), find);
            }
            most = most.max(lookup.changes.len());
        }
        let Ok(seen) = lookup.finish(find);
        (most, seen.known)
    }

    #[test]
    fn few_changes_are_held_at_once_and_the_earliest_known_one_counts() {
        for (known, expected) in [
            (0, Some(span(20, 30))),
            (6 * AT_ONCE, Some(span(0, 10))),
            (10 * AT_ONCE, None),
        ] {
            let (most, found) = look_up(known);
            assert!(most < AT_ONCE, "{most} changes at once");
            assert_eq!(found, expected, "{known}");
        }
    }

    #[test]
    fn unwanted_changes_prove_something_only_where_none_is_wanted() {
        let (early, late) = (span(0, 10), span(20, 30));
        for (wanted, known) in [(false, Some(early)), (true, None)] {
            let mut lookup = Lookup::default();
            let find = |_: &[(Interval, Change)]| Ok::<_, Infallible>(None);
            for interval in [late, early] {
                lookup.add(interval, None, find).unwrap();
            }
            if wanted {
                lookup.add(late, Some(change(0)), find).unwrap();
            }
            assert_eq!(lookup.finish(find).unwrap().known, known);
        }
    }
}
