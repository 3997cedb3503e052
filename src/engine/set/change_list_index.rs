//! Indexes of Change Lists (section 12.2), and Change Lists that are published in pages: which of their lists or pages may hold
//! news.
//!
//! A list that is closed and known is not fetched again. An index that has not changed may have an open list that has: the lists
//! that are not fully covered are remembered, and polled one by one.

use std::collections::HashMap;

use resourcesync::{Capability, SourceTime};
use resyncd_core::Span;
use url::Url;

use super::fetch_ahead::{AHEAD, FetchAhead};
use super::polled_document::{ChangedDocument, poll_document_since, poll_early_document};
use super::remembered::{ReachedList, ReadIndex, ReadList, is_fully_covered};
use super::span::{end_of, span_of};
use super::state::SetState;
use crate::engine::EngineError;
use crate::engine::documents::{Child, DocumentWalk, Entered, ListsToRead, SummarizedDocument};
use crate::store::{DocumentRecord, Origin};

/// What was found at the URI of a list that an index names.
enum ChildRead {
    /// It need not be fetched: it is closed and known.
    Covered,
    /// It was read, or has not changed.
    List(ReachedList),
    /// It is an index itself, whose covered lists reach up to that time; and the error if it has entries that can't be read.
    Index(Option<SourceTime>, Option<EngineError>),
}

/// What was found where a closed list has its index.
pub(super) enum LinkedIndex {
    /// What its lists cover.
    Read(Span),
    /// It is no index.
    NoIndex,
    /// It does not exist.
    Absent(EngineError),
}

/// An index that was polled, or what is in its place.
enum PolledIndex {
    Changed(Box<ChangedDocument>),
    Unchanged(Box<ReadIndex>),
}

impl SetState {
    /// Reads the index that a closed list belongs to.
    pub(super) async fn read_linked_index(
        &mut self,
        uri: &Url,
    ) -> Result<LinkedIndex, EngineError> {
        let remembered = self.lists.index.as_ref();
        let remembered = remembered.filter(|index| index.uri == *uri).cloned();
        let polled = match self.poll_index(uri, remembered).await {
            // Of the index itself: a list that it names may be gone as well.
            Err(error) if error.is_absence() => return Ok(LinkedIndex::Absent(error)),
            polled => polled?,
        };
        let read = self.read_polled_index(uri, polled).await?;
        Ok(read.map_or_else(|_| LinkedIndex::NoIndex, LinkedIndex::Read))
    }

    /// Polls the remembered index. If it has become a list meanwhile, returns that.
    pub(super) async fn read_index_at(
        &mut self,
        uri: &Url,
    ) -> Result<Result<Span, Box<ChangedDocument>>, EngineError> {
        let polled = self.poll_index(uri, self.lists.index.clone()).await?;
        self.read_polled_index(uri, polled).await
    }

    /// Polls an index. `remembered`: as it was read last.
    async fn poll_index(
        &self,
        uri: &Url,
        remembered: Option<ReadIndex>,
    ) -> Result<PolledIndex, EngineError> {
        let mut index = remembered;
        let record = index.as_mut().map(|index| &mut index.record);
        let changed = poll_document_since(&self.context, self.record.id, uri, record).await?;
        Ok(match (changed, index) {
            (Some(changed), _) => PolledIndex::Changed(Box::new(changed)),
            (None, Some(index)) => PolledIndex::Unchanged(Box::new(index)),
            // A document that is fetched anew is never unchanged.
            (None, None) => return Err(EngineError::Interrupted),
        })
    }

    /// Reads the lists of an index; returns the document where it is none.
    async fn read_polled_index(
        &mut self,
        uri: &Url,
        polled: PolledIndex,
    ) -> Result<Result<Span, Box<ChangedDocument>>, EngineError> {
        match polled {
            PolledIndex::Unchanged(index) => {
                // After an error it is not known up to where its lists reach.
                self.lists.index = None;
                Ok(Ok(self.read_lists(*index).await?))
            }
            PolledIndex::Changed(changed) if changed.read.summary.is_index => {
                changed.read.expect(&Capability::ChangeList)?;
                Ok(Ok(self.read_index(uri, *changed).await?))
            }
            PolledIndex::Changed(changed) => Ok(Err(changed)),
        }
    }

    /// Reads those lists of an index that may hold news.
    pub(super) async fn read_index(
        &mut self,
        uri: &Url,
        changed: ChangedDocument,
    ) -> Result<Span, EngineError> {
        let stated = span_of(&changed.read.summary);
        let until = changed.read.summary.until;
        let sequencer = &self.sequencer;
        let is_fully_covered = |child: &Child| is_fully_covered(sequencer, child);
        let next = changed.read.next_page().cloned();
        let to_read = ListsToRead::read(changed.read.document, is_fully_covered).await?;
        let mut reached = self.take_reached();
        // The list that has led here need not be read twice.
        reached.extend(self.lists.last());
        let index = ReadIndex {
            uri: uri.clone(),
            list: None,
            next,
            record: changed.record,
            bad_entries: changed.read.summary.bad_entries(),
            from: stated.from.or(changed.read.summary.lists_from),
            until,
            to_read: to_read.children,
            covered_until: to_read.covered_until,
            reached,
        };
        self.read_lists(index).await
    }

    /// Reads a Change List that names the page after it: all of its pages. What the list covers it covers only if each page
    /// was read.
    pub(super) async fn read_pages(
        &mut self,
        list: ReadList,
        changed: ChangedDocument,
    ) -> Result<Span, EngineError> {
        let ChangedDocument { read, record } = changed;
        let index = ReadIndex {
            uri: list.uri.clone(),
            next: read.next_page().cloned(),
            record: record.clone(),
            bad_entries: read.summary.oddities.damaged_entries(),
            from: list.span.from,
            until: read.summary.until,
            to_read: Vec::new(),
            covered_until: list.span.until,
            reached: self.take_reached(),
            list: Some(list),
        };
        self.ingest_part(read, record, index.from, index.until)
            .await?;
        self.read_lists(index).await
    }

    /// Up to where the lists of the index that was read last reach.
    fn take_reached(&mut self) -> HashMap<Url, ReachedList> {
        let before = self.lists.index.take();
        before.map(|before| before.reached).unwrap_or_default()
    }

    /// Reads those lists of an index that are not fully covered, the oldest first. An error of one does not keep the later ones from
    /// being read; but then the index proves nothing.
    async fn read_lists(&mut self, mut index: ReadIndex) -> Result<Span, EngineError> {
        index.drop_covered(&self.sequencer);
        let reached = std::mem::take(&mut index.reached);
        let mut span = Span {
            from: index.from,
            until: index.covered_until,
        };
        let mut failed = index.unread_entries();
        let mut walk = DocumentWalk::of(Capability::ChangeList);
        if let Some(next) = &index.next {
            walk.follow(&index.uri, next)?;
        }
        walk.push(index.to_read.clone())?;
        let mut ahead = FetchAhead::of(&self.context, self.record.id);
        while let Some(child) = walk.next().await? {
            let read = self
                .read_child(&child, &reached, &mut walk, &mut ahead)
                .await;
            match read {
                Ok(ChildRead::Covered) => span.until = span.until.max(child.until),
                Ok(ChildRead::List(list)) => {
                    span.until = span.until.max(list.until);
                    index.reached.insert(child.uri, list);
                }
                Ok(ChildRead::Index(covered_until, unread)) => {
                    failed = failed.or(unread);
                    span.until = span.until.max(covered_until);
                }
                Err(error) if error.is_fatal() => return Err(error),
                Err(error) => {
                    self.report_failed_part(&child.uri, &error);
                    failed = failed.or(Some(error));
                }
            }
        }
        self.report_repeated_indexes(&walk);
        if let Some(error) = failed {
            self.lists.remember_index(index, &self.sequencer);
            return Err(error);
        }
        span.until = index.until.or(span.until);
        self.commit_span(span, Origin::ChangeList, None).await?;
        self.lists.remember_index(index, &self.sequencer);
        Ok(span)
    }

    /// Begins to fetch the lists that come next, unless they are fully covered. It is called once the one in hand has turned out to be a
    /// list: where it is an index, what it names comes first, and those after it are likely to be indexes, too.
    async fn fetch_lists_ahead(
        &self,
        current: &Url,
        upcoming: Vec<Child>,
        reached: &HashMap<Url, ReachedList>,
        ahead: &mut FetchAhead,
    ) {
        ahead.retain(upcoming.iter().map(|next| &next.uri));
        for next in upcoming {
            let is_needed = next.uri != *current && !is_fully_covered(&self.sequencer, &next);
            if is_needed && !ahead.has_begun(&next.uri) {
                let unconditional = !reached.contains_key(&next.uri);
                ahead.begin(next.uri, unconditional).await;
            }
        }
    }

    /// Reads a list of an index. `reached`: up to where its lists reached when they were read last; one that is not there is read
    /// anew.
    async fn read_child(
        &mut self,
        child: &Child,
        reached: &HashMap<Url, ReachedList>,
        walk: &mut DocumentWalk,
        ahead: &mut FetchAhead,
    ) -> Result<ChildRead, EngineError> {
        child.expect_new()?;
        let early = ahead.take(&child.uri);
        if is_fully_covered(&self.sequencer, child) {
            return Ok(ChildRead::Covered);
        }
        let (set, before) = (self.record.id, reached.get(&child.uri));
        let unconditional = before.is_none();
        let changed =
            poll_early_document(&self.context, set, &child.uri, unconditional, early).await?;
        let Some(ChangedDocument { read, record }) = changed else {
            let mut list = before.cloned().unwrap_or_default();
            list.until = child.until.or(list.until);
            if let Some(next) = &list.next {
                walk.follow(&child.uri, next)?;
            }
            self.fetch_lists_ahead(&child.uri, walk.upcoming(AHEAD), reached, ahead)
                .await;
            return Ok(ChildRead::List(list));
        };
        let unread = read.expect_all().err();
        let sequencer = &self.sequencer;
        let is_fully_covered = |child: &Child| is_fully_covered(sequencer, child);
        let read = match walk.enter_oldest_first(read, is_fully_covered).await? {
            Entered::List(read) => *read,
            Entered::Index { covered_until } => {
                return Ok(ChildRead::Index(covered_until, unread));
            }
        };
        self.fetch_lists_ahead(&child.uri, walk.upcoming(AHEAD), reached, ahead)
            .await;
        let (next, damaged) = (read.next_page().cloned(), read.expect_undamaged());
        let read = if child.is_page {
            read
        } else {
            self.cross_check(read, child.from).await?
        };
        let span = self
            .ingest_part(read, record, child.from, child.until)
            .await?;
        damaged?;
        Ok(ChildRead::List(ReachedList {
            until: span.until,
            next,
        }))
    }

    /// Ingests what is news in a list that covers nothing by itself, but with the others of its index, or with its other pages.
    /// `from`, `until`: the interval that is stated for it where it states none. Returns its own.
    async fn ingest_part(
        &mut self,
        read: SummarizedDocument,
        record: DocumentRecord,
        from: Option<SourceTime>,
        until: Option<SourceTime>,
    ) -> Result<Span, EngineError> {
        if read.summary.packages_of_changes > 0 {
            let changed = ChangedDocument { read, record };
            // Rare, and far down the stack.
            return Box::pin(self.ingest_listed_packages(changed)).await;
        }
        let own = span_of(&read.summary);
        let span = Span {
            from: own.from.or(from),
            until: own.until.or(until),
        };
        // The index as a whole moves the coverage; here only the filter is of interest.
        let end = end_of(&read.summary);
        let filter = self.sequencer.news_of_list(span.interval(), end);
        let end = self.end_without_proof(record);
        self.ingest_news(read, filter, end).await?;
        Ok(span)
    }
}
