//! Indexes of Change Lists (section 12.2): which of their lists hold news.
//!
//! A list that is closed and known is not asked for again. An index that has not changed may have an open list that has: the
//! lists that are not settled are remembered, and asked for by themselves.

use std::collections::HashMap;

use url::Url;

use super::change_lists::{end_of, span_of};
use crate::clock;
use crate::engine::EngineError;
use crate::engine::reading::ChangedDocument;
use crate::engine::reading::index::{Child, DEPTH, Entries};
use crate::engine::set::SetWorker;
use crate::fetch::FetchedDocument;
use crate::protocol::{Capability, Interval, SourceTime};
use crate::store::{BatchCommit, DocumentRecord, Origin};
use crate::sync::{NewsFilter, Sequencer, Span};

/// How much memory the lists may take that are known of and not read yet, in bytes: enough for the 50,000 of one index.
const MOST_WAITING: usize = 16 << 20;
/// An index with more lists that are not settled than this is read anew each time.
const MOST_REMEMBERED: usize = 10_000;

/// An index that was read.
#[derive(Clone)]
pub(in crate::engine) struct ReadIndex {
    uri: Url,
    record: DocumentRecord,
    /// How many of its entries can't be read.
    bad_entries: u64,
    /// What it covers by its own word.
    from: Option<SourceTime>,
    until: Option<SourceTime>,
    /// Its lists that are not settled, the oldest first.
    unsettled: Vec<Child>,
    /// Up to where the others reach.
    settled_until: Option<SourceTime>,
    /// Up to where those lists reach that were asked for.
    reached: HashMap<Url, Option<SourceTime>>,
}

impl ReadIndex {
    pub(in crate::engine) fn is_at(&self, uri: &Url) -> bool {
        self.uri == *uri
    }

    /// What speaks against it from the start: nobody knows which lists the entries name that can't be read.
    fn unread(&self) -> Option<EngineError> {
        (self.bad_entries > 0).then(|| EngineError::UnreadEntries {
            document: self.uri.to_string(),
            count: self.bad_entries,
        })
    }

    /// Lets go of the lists that are settled by now.
    fn settle(&mut self, sequencer: &Sequencer) {
        let settled_until = &mut self.settled_until;
        self.unsettled.retain(|child| {
            let is_settled = is_settled(sequencer, child);
            if is_settled {
                *settled_until = child.until.max(*settled_until);
            }
            !is_settled
        });
    }
}

/// Whether a list of an index is closed and known, by the index's word.
fn is_settled(sequencer: &Sequencer, child: &Child) -> bool {
    let stated = child
        .from
        .zip(child.until)
        .and_then(|(from, until)| Interval::new(from, until));
    stated.is_some_and(|interval| sequencer.is_settled(interval))
}

impl SetWorker {
    /// Reads the index that a closed list belongs to; `None` if it is none.
    pub(in crate::engine) async fn read_linked_index(
        &mut self,
        uri: &Url,
    ) -> Result<Option<Span>, EngineError> {
        if self
            .lists
            .index
            .as_ref()
            .is_some_and(|index| index.is_at(uri))
        {
            return Ok(self.read_index_at(uri).await?.ok());
        }
        match self.context.fresh_since(self.record.id, uri, None).await? {
            Some(fresh) if fresh.survey.is_index => {
                fresh.expect(&Capability::ChangeList)?;
                Ok(Some(self.read_index(uri, fresh).await?))
            }
            _ => Ok(None),
        }
    }

    /// Reads the index that is remembered, which may have become a list meanwhile: then that is the answer.
    pub(in crate::engine) async fn read_index_at(
        &mut self,
        uri: &Url,
    ) -> Result<Result<Span, Box<ChangedDocument>>, EngineError> {
        let Some(mut index) = self.lists.index.clone() else {
            return Err(EngineError::Interrupted);
        };
        match self
            .context
            .fresh_since(self.record.id, uri, Some(&mut index.record))
            .await?
        {
            None => Ok(Ok(self.read_lists(index).await?)),
            Some(fresh) if fresh.survey.is_index => {
                fresh.expect(&Capability::ChangeList)?;
                Ok(Ok(self.read_index(uri, fresh).await?))
            }
            Some(fresh) => Ok(Err(Box::new(fresh))),
        }
    }

    /// Reads those lists of an index that can hold news.
    pub(in crate::engine) async fn read_index(
        &mut self,
        uri: &Url,
        fresh: ChangedDocument,
    ) -> Result<Span, EngineError> {
        let stated = span_of(&fresh.survey);
        let until = fresh.survey.until;
        let mut waiting = Waiting::default();
        let settled_until = waiting.add(fresh.document, 1, &self.sequencer).await?;
        let before = self.lists.index.take();
        let mut reached = before.map(|before| before.reached).unwrap_or_default();
        // The list that has led here need not be read twice.
        reached.extend(self.lists.last());
        let index = ReadIndex {
            uri: uri.clone(),
            record: fresh.record,
            bad_entries: fresh.survey.bad_entries(),
            from: stated.from.or(fresh.survey.lists_from),
            until,
            unsettled: waiting.oldest_first(),
            settled_until,
            reached,
        };
        self.read_lists(index).await
    }

    /// Reads those lists of an index that are not settled, oldest first. One that can't be read does not keep the later ones
    /// from being read; but then the index proves nothing.
    async fn read_lists(&mut self, mut index: ReadIndex) -> Result<Span, EngineError> {
        index.settle(&self.sequencer);
        let reached = std::mem::take(&mut index.reached);
        let mut span = Span {
            from: index.from,
            until: index.settled_until,
        };
        let mut failed = index.unread();
        let mut waiting = Waiting::of(&index.unsettled);
        while let Some((child, depth)) = waiting.next() {
            match self.read_child(&child, reached.get(&child.uri)).await {
                Ok(Reading::Settled) => span.until = span.until.max(child.until),
                Ok(Reading::Until(until)) => {
                    span.until = span.until.max(until);
                    index.reached.insert(child.uri, until);
                }
                Ok(Reading::Index(deeper, unread)) if depth < DEPTH => {
                    failed = failed.or(unread);
                    let settled = waiting.add(deeper, depth + 1, &self.sequencer).await?;
                    span.until = span.until.max(settled);
                }
                Ok(Reading::Index(..)) => failed = failed.or(Some(EngineError::NestedIndex)),
                Err(EngineError::Store(error)) => return Err(error.into()),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        if let Some(error) = failed {
            self.remember(index);
            return Err(error);
        }
        span.until = index.until.or(span.until);
        self.cover(span, Origin::ChangeList, None).await?;
        self.remember(index);
        Ok(span)
    }

    /// Keeps what an index of Change Lists, or a Change Dump, proves as a whole.
    pub(in crate::engine) async fn cover(
        &mut self,
        span: Span,
        origin: Origin,
        record: Option<DocumentRecord>,
    ) -> Result<(), EngineError> {
        let mut trial = self.sequencer.clone();
        match span.interval() {
            Some(interval) => drop(trial.change_list(clock::now(), interval)),
            None if record.is_none() => return Ok(()),
            None => {}
        }
        let mut end = self.end(&trial, None);
        end.documents.extend(record);
        let application = self
            .context
            .application(self.record.id, origin, Vec::new(), Some(end));
        self.context.store.apply(application).await?;
        self.sequencer = trial;
        Ok(())
    }

    fn remember(&mut self, mut index: ReadIndex) {
        index.settle(&self.sequencer);
        let fits = index.unsettled.len().max(index.reached.len()) <= MOST_REMEMBERED;
        self.lists.index = fits.then_some(index);
    }

    /// Reads a list of an index. `reached`: up to where it reached when it was read last; without that it is read anew.
    async fn read_child(
        &mut self,
        child: &Child,
        reached: Option<&Option<SourceTime>>,
    ) -> Result<Reading, EngineError> {
        if is_settled(&self.sequencer, child) {
            return Ok(Reading::Settled);
        }
        let set = self.record.id;
        let anew = reached.is_none();
        let Some(fresh) = self.context.fresh(set, &child.uri, anew).await? else {
            return Ok(Reading::Until(child.until.or(reached.copied().flatten())));
        };
        fresh.expect(&Capability::ChangeList)?;
        if fresh.survey.is_index {
            let unread = fresh.expect_all().err();
            return Ok(Reading::Index(fresh.document, unread));
        }
        let own = span_of(&fresh.survey);
        let span = Span {
            from: own.from.or(child.from),
            until: own.until.or(child.until),
        };
        // The index as a whole says what is covered; this only asks which changes are news.
        let unknown = match span.interval() {
            Some(interval) => self.sequencer.clone().change_list(clock::now(), interval),
            None => NewsFilter::everything(),
        };
        let unknown = self.sequencer.lagging(unknown, end_of(&fresh.survey));
        let end = self.end_of_part(fresh.record.clone());
        self.take_news(fresh, unknown, end).await?;
        Ok(Reading::Until(span.until))
    }

    /// The end of a list that proves nothing by itself.
    pub(in crate::engine) fn end_of_part(&self, record: DocumentRecord) -> BatchCommit {
        BatchCommit {
            rules: self.context.deletion_rules(),
            progress: None,
            delivery: None,
            documents: vec![record],
            listed: None,
            read_until: None,
            missed_by: Vec::new(),
        }
    }
}

/// What reading a list of an index came to.
enum Reading {
    /// It need not be read: it is closed, and known.
    Settled,
    /// It was read, or has not changed, and reaches up to there.
    Until(Option<SourceTime>),
    /// It is an index itself; what of it can't be read.
    Index(Box<FetchedDocument>, Option<EngineError>),
}

/// The lists that may hold news and are not read yet, the oldest last. What an index within an index names comes before
/// what the outer one names next.
#[derive(Default)]
pub(in crate::engine) struct Waiting {
    lists: Vec<(Child, usize)>,
    bytes: usize,
}

impl Waiting {
    /// Those lists of the outermost index, the oldest first.
    fn of(lists: &[Child]) -> Self {
        Self {
            bytes: lists.iter().map(Self::bytes_of).sum(),
            lists: lists.iter().rev().map(|child| (child.clone(), 1)).collect(),
        }
    }

    /// Takes those lists of an index that can hold news; answers up to where the others reach.
    pub(in crate::engine) async fn add(
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
            if self.bytes > MOST_WAITING {
                return Err(EngineError::TooManyLists);
            }
            self.lists.push((child, depth));
        }
        // Not every index has the oldest first. One that tells no times is taken as it is.
        self.lists[begin..].sort_by_key(|(child, _)| child.from.or(child.until).or(child.told));
        self.lists[begin..].reverse();
        Ok(settled_until)
    }

    pub(in crate::engine) fn next(&mut self) -> Option<(Child, usize)> {
        let next = self.lists.pop()?;
        self.bytes -= Self::bytes_of(&next.0);
        Some(next)
    }

    fn oldest_first(self) -> Vec<Child> {
        let oldest_last = self.lists.into_iter();
        oldest_last.rev().map(|(child, _)| child).collect()
    }

    fn bytes_of(child: &Child) -> usize {
        size_of::<(Child, usize)>() + child.uri.as_str().len()
    }
}
