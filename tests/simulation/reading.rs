//! How a set reads Change Lists and the Resource List: a model of `src/engine/change_lists.rs`, `change_list_index.rs`,
//! `resource_lists.rs` and `reading.rs`.

use std::collections::{BTreeMap, BTreeSet};

use resyncd::protocol::EntryOrder;
use resyncd::protocol::{Digest, Interval, SourceTime};
use resyncd::sync::{NewsFilter, Span};

use super::disk::{BatchCommit, Origin};
use super::inbox::end;
use super::source::{Change, ChangeLists, List, ResourceNo, SetNo};
use super::world::{Halt, World};

/// The Resource List's place among the documents.
const RESOURCE_LIST: u32 = 0;

/// What came of reading a list.
struct Read {
    span: Span,
    is_fresh: bool,
    is_closed: bool,
}

impl World {
    /// Fetches a document; whether it is not the one that was read last. `anew`: read it in any case.
    fn fresh(&mut self, set: SetNo, key: u32, revision: u32, anew: bool) -> Result<bool, Halt> {
        self.request_document()?;
        let read_last = self.disk.sets[set].documents.get(&key);
        Ok(anew || read_last != Some(&revision))
    }

    fn span_of(&self, list: &List) -> Span {
        let from = self.source.habits.lists_say_from.then_some(list.from);
        let newest = list.entries.iter().map(|entry| entry.at).max();
        Span::new(from, list.until, newest)
    }

    pub(crate) fn read_change_lists(&mut self, set: SetNo) -> Result<Span, Halt> {
        self.requests.change_lists += 1;
        match self.source.habits.change_lists {
            ChangeLists::Index => self.read_index(set),
            _ => self.read_offered_lists(set),
        }
    }

    /// Reads the list that the Capability List names, and before it the open one that it named before.
    fn read_offered_lists(&mut self, set: SetNo) -> Result<Span, Halt> {
        let row = &self.disk.sets[set];
        let former = row.open_list.filter(|&key| row.offered != Some(key));
        let mut span = match former.map(|key| self.read_list(set, key)) {
            Some(Err(Halt::Crash)) => return Err(Halt::Crash),
            Some(Ok(read)) => Some(read.span),
            _ => None,
        };
        loop {
            let offered = self.disk.sets[set].offered.ok_or(Halt::Unreachable)?;
            let read = self.read_list(set, offered)?;
            let covered = span.map_or(read.span, |before| before.then(read.span));
            span = Some(covered);
            let open = (!read.is_closed).then_some(offered);
            if self.disk.sets[set].open_list != open {
                self.transact(|disk| disk.sets[set].open_list = open)?;
            }
            if !(read.is_closed && read.is_fresh) {
                return Ok(covered);
            }
            // The Capability List knows the next one.
            match self.refresh_offers(set) {
                Err(Halt::Crash) => return Err(Halt::Crash),
                Ok(()) if self.disk.sets[set].offered != Some(offered) => {}
                _ => return Ok(covered),
            }
        }
    }

    fn read_list(&mut self, set: SetNo, key: u32) -> Result<Read, Halt> {
        let found = self.source.lists(set).iter().find(|list| list.key == key);
        let Some(list) = found.cloned() else {
            self.request_document()?;
            return Err(Halt::Unreachable);
        };
        let known = self.workers[set].last_list.filter(|last| last.0 == key);
        let is_fresh = self.fresh(set, key, list.revision, known.is_none())?;
        let span = match known {
            Some((_, span)) if !is_fresh => span,
            _ => self.take_list(set, &list)?,
        };
        self.workers[set].last_list = Some((key, span));
        Ok(Read {
            span,
            is_fresh,
            is_closed: list.until.is_some(),
        })
    }

    fn mark_late_end(&self, set: SetNo, list: &List, unknown: NewsFilter) -> NewsFilter {
        let newest = list.entries.iter().map(|entry| entry.at).max();
        let end = list.until.or(newest);
        self.workers[set].sequencer.mark_late_end(unknown, end)
    }

    /// Takes a Change List that stands alone.
    fn take_list(&mut self, set: SetNo, list: &List) -> Result<Span, Halt> {
        let span = self.span_of(list);
        let now = self.now();
        let mut trial = self.workers[set].sequencer.clone();
        let unknown = match span.interval() {
            Some(interval) => trial.change_list(now, interval),
            None => NewsFilter::everything(),
        };
        let unknown = self.mark_late_end(set, list, unknown);
        let end = BatchCommit {
            document: Some((list.key, list.revision)),
            ..end(&trial)
        };
        self.take_changes(set, list, &unknown, end)?;
        self.workers[set].sequencer = trial;
        Ok(span)
    }

    /// Takes the changes of a list that are news, in two batches.
    fn take_changes(
        &mut self,
        set: SetNo,
        list: &List,
        unknown: &NewsFilter,
        end: BatchCommit,
    ) -> Result<(), Halt> {
        let times = list.entries.iter().map(|entry| Some(entry.at));
        let mut news = self.news(&list.entries, unknown);
        if times.collect::<EntryOrder>().is_newest_first() {
            // Of what has one time, that counts which is met first.
            let mut met = BTreeSet::new();
            news.retain(|(entry, _)| met.insert((entry.resource, entry.at)));
        }
        // Of what is told late, only the last word counts.
        let mut late: BTreeMap<ResourceNo, (Change, Vec<Digest>)> = BTreeMap::new();
        news.retain(|(entry, hashes)| {
            let is_late = unknown.is_late(Some(entry.at));
            if is_late {
                let entry = Change {
                    late: true,
                    ..entry.clone()
                };
                late.insert(entry.resource, (entry, hashes.clone()));
            }
            !is_late
        });
        news.extend(late.into_values());
        // What has one time goes into one transaction.
        let mut half = news.len() / 2;
        while (1..news.len()).contains(&half) && news[half - 1].0.at == news[half].0.at {
            half += 1;
        }
        let (first, last) = news.split_at(half);
        let moment = self.moment;
        if !first.is_empty() {
            self.transact(|disk| disk.apply(moment, set, Origin::ChangeList, first, None))?;
        }
        self.transact(|disk| disk.apply(moment, set, Origin::ChangeList, last, Some(end)))
    }

    fn read_index(&mut self, set: SetNo) -> Result<Span, Halt> {
        self.request_document()?;
        let lists = self.source.lists(set).to_vec();
        let says_from = self.source.habits.lists_say_from;
        let mut span = Span {
            from: lists.first().map(|list| list.from).filter(|_| says_from),
            until: None,
        };
        let mut failed = None;
        let before = std::mem::take(&mut self.workers[set].reached);
        for list in &lists {
            match self.read_child(set, list, before.get(&list.key)) {
                Ok(until) => span.until = span.until.max(until),
                Err(Halt::Crash) => return Err(Halt::Crash),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        if let Some(interval) = span.interval() {
            let now = self.now();
            let mut trial = self.workers[set].sequencer.clone();
            let _ = trial.change_list(now, interval);
            let end = end(&trial);
            let moment = self.moment;
            self.transact(|disk| disk.apply(moment, set, Origin::ChangeList, &[], Some(end)))?;
            self.workers[set].sequencer = trial;
        }
        Ok(span)
    }

    /// Reads a list of an index, if it can hold news; answers up to where it reaches.
    fn read_child(
        &mut self,
        set: SetNo,
        list: &List,
        reached: Option<&Option<SourceTime>>,
    ) -> Result<Option<SourceTime>, Halt> {
        let from = self.source.habits.lists_say_from.then_some(list.from);
        let stated = from
            .zip(list.until)
            .and_then(|(from, until)| Interval::new(from, until));
        let sequencer = &self.workers[set].sequencer;
        if stated.is_some_and(|interval| sequencer.is_settled(interval)) {
            return Ok(list.until);
        }
        let span = self.span_of(list);
        if !self.fresh(set, list.key, list.revision, reached.is_none())? {
            let until = list.until.or(reached.copied().flatten());
            self.workers[set].reached.insert(list.key, until);
            return Ok(until);
        }
        let now = self.now();
        let unknown = match span.interval() {
            Some(interval) => self.workers[set]
                .sequencer
                .clone()
                .change_list(now, interval),
            None => NewsFilter::everything(),
        };
        let unknown = self.mark_late_end(set, list, unknown);
        let end = BatchCommit {
            document: Some((list.key, list.revision)),
            ..BatchCommit::default()
        };
        self.take_changes(set, list, &unknown, end)?;
        self.workers[set].reached.insert(list.key, span.until);
        Ok(span.until)
    }

    /// Reads the Resource List, unless it is the one that was read last.
    pub(crate) fn read_resource_list(&mut self, set: SetNo, anew: bool) -> Result<(), Halt> {
        let list = self.source.resource_list(set).clone();
        if !self.fresh(set, RESOURCE_LIST, list.revision, anew)? {
            return Ok(());
        }
        let moment = self.moment;
        let hashed = self.source.habits.hashes;
        self.witness.new_baseline(set);
        self.transact(|disk| disk.begin_list(set))?;
        self.transact(|disk| disk.list_entries(moment, set, &list, hashed))?;
        self.transact(|disk| disk.list_absent(moment, set, &list))?;
        let now = self.now();
        let mut trial = self.workers[set].sequencer.clone();
        trial.resource_list(now, list.at);
        let end = BatchCommit {
            is_baseline: true,
            document: Some((RESOURCE_LIST, list.revision)),
            ..end(&trial)
        };
        self.transact(|disk| disk.apply(moment, set, Origin::ResourceList, &[], Some(end)))?;
        self.workers[set].sequencer = trial;
        Ok(())
    }
}
