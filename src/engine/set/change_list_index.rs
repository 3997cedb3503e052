//! Indexes of Change Lists and of Change Dumps (sections 12.2 and 13.2), and those that are published in pages: which of their lists or
//! pages may hold news.
//!
//! A list that is closed and known is not fetched again. An index that has not changed may have an open list that has: the lists
//! that are not fully covered are remembered, and polled one by one.

use std::collections::HashMap;

use resourcesync::{Capability, SourceTime};
use resyncd_core::Span;
use url::Url;

use super::fetch_ahead::FetchAhead;
use super::polled_document::{
    ChangedDocument, poll_document_since, poll_early_document, read_document, read_early_document,
};
use super::remembered::{ReachedList, ReadIndex, ReadList, is_fully_covered};
use super::span::{end_of, span_of};
use super::state::SetState;
use crate::engine::EngineError;
use crate::engine::documents::{Child, DocumentWalk, SummarizedDocument, lists_to_read};
use crate::store::DocumentRecord;

/// What was found where there may be an index.
pub(super) enum IndexAt {
    /// What its lists cover.
    Read(Span),
    /// It is no index.
    List(Box<ChangedDocument>),
    /// It does not exist.
    Absent(EngineError),
}

/// One reading of the lists of an index.
struct IndexReading {
    capability: Capability,
    walk: DocumentWalk,
    ahead: FetchAhead,
    /// Up to where its lists reached when they were read last; one that is not there is read anew.
    before: HashMap<Url, ReachedList>,
    reached: HashMap<Url, ReachedList>,
    span: Span,
    /// Why the index proves nothing.
    failed: Option<EngineError>,
}

impl IndexReading {
    /// Adds what one of them covers, and why it proves nothing.
    fn add(&mut self, span: Span, failed: Option<EngineError>) {
        if self.capability == Capability::ChangeDump {
            self.span.from = self.span.from.or(span.from);
        }
        self.span.until = self.span.until.max(span.until);
        self.failed = self.failed.take().or(failed);
    }
}

impl SetState {
    /// Reads an index, which may be the one that was read last.
    pub(super) async fn read_index_at(
        &mut self,
        capability: &Capability,
        uri: &Url,
    ) -> Result<IndexAt, EngineError> {
        let index = self.lists_of(capability).index.clone();
        let (context, set) = (&self.context, self.record.id);
        let polled = match index.filter(|index| index.uri == *uri) {
            None => read_document(context, set, uri).await,
            Some(mut index) => {
                match poll_document_since(context, set, uri, &mut index.record).await {
                    Ok(Some(changed)) => Ok(changed),
                    Ok(None) => {
                        // After an error it is not known up to where its lists reach.
                        self.lists_of(capability).index = None;
                        return self.read_lists(index, None).await.map(IndexAt::Read);
                    }
                    Err(error) => Err(error),
                }
            }
        };
        match polled {
            // Of the index itself: a list that it names may be gone as well.
            Err(error) if error.is_absence() => Ok(IndexAt::Absent(error)),
            Err(error) => Err(error),
            Ok(changed) if changed.read.summary.is_index => {
                let span = self.read_named(capability, uri, None, changed).await?;
                Ok(IndexAt::Read(span))
            }
            Ok(changed) => Ok(IndexAt::List(Box::new(changed))),
        }
    }

    /// Reads those lists of an index that may hold news, or all pages of a list that names the page after it: what that covers it covers
    /// only if each page was read. `list`: `None` of an index.
    pub(super) async fn read_named(
        &mut self,
        capability: &Capability,
        uri: &Url,
        list: Option<ReadList>,
        changed: ChangedDocument,
    ) -> Result<Span, EngineError> {
        let ChangedDocument { read, record } = changed;
        read.expect(capability)?;
        let summary = &read.summary;
        let lists = self.lists_of(capability);
        let last = lists.index.as_ref().filter(|index| index.uri == *uri);
        let before = last.and_then(|index| index.span);
        let mut index = ReadIndex {
            span: before,
            capability: capability.clone(),
            uri: uri.clone(),
            next: read.next_page().cloned(),
            record: record.clone(),
            bad_entries: match list {
                Some(_) => summary.oddities.damaged_entries(),
                None => summary.bad_entries(),
            },
            from: span_of(summary).from.or(summary.lists_from),
            until: summary.until,
            to_read: Vec::new(),
            covered_until: None,
            reached: lists.take_reached(),
            list,
        };
        let mut failed = None;
        if index.list.is_some() {
            let stated = (index.from, index.until);
            let ingested = self.ingest_part(capability, read, record, stated, true);
            let span;
            (span, failed) = ingested.await?;
            (index.from, index.covered_until) = (span.from, span.until);
        } else {
            let sequencer = &self.sequencer;
            let is_fully_covered = |child: &Child| is_fully_covered(sequencer, child);
            (index.to_read, index.covered_until) =
                lists_to_read(read.document, is_fully_covered).await?;
        }
        let span = self.read_lists(index, failed).await?;
        self.report_older(capability, uri, before, span);
        Ok(span)
    }

    /// Reads those lists of an index that are not fully covered, the oldest first. An error of one does not keep the later ones from
    /// being read; but then the index proves nothing. `failed`: the error of its first page, which is not remembered.
    async fn read_lists(
        &mut self,
        mut index: ReadIndex,
        failed: Option<EngineError>,
    ) -> Result<Span, EngineError> {
        index.drop_covered(&self.sequencer);
        let is_remembered = failed.is_none();
        let before = std::mem::take(&mut index.reached);
        let mut reading = IndexReading {
            capability: index.capability.clone(),
            walk: DocumentWalk::of(index.capability.clone()),
            ahead: FetchAhead::of(&self.context, self.record.id),
            reached: HashMap::new(),
            before,
            span: Span {
                from: index.from,
                until: index.covered_until,
            },
            failed: failed.or(index.unread_entries()),
        };
        if let Some(next) = &index.next {
            reading.walk.follow(&index.uri, next)?;
        }
        reading.walk.push(index.to_read.clone())?;
        while let Some(child) = reading.walk.next().await? {
            match self.read_child(&child, &mut reading).await {
                Ok(()) => {}
                Err(error) if error.is_fatal() => return Err(error),
                Err(error) => {
                    self.report_failed_part(&child.uri, &error);
                    reading.failed.get_or_insert(error);
                }
            }
        }
        self.report_repeated_indexes(&reading.walk);
        let mut span = reading.span;
        span.until = index.until.or(span.until);
        if reading.failed.is_none() {
            self.commit_span(span, None).await?;
            index.span = Some(span);
        }
        index.reached = reading.reached;
        if is_remembered {
            index.drop_covered(&self.sequencer);
            self.lists_of(&reading.capability).remember_index(index);
        }
        reading.failed.map_or(Ok(span), Err)
    }

    /// Reads a list of an index, or a page.
    async fn read_child(
        &mut self,
        child: &Child,
        reading: &mut IndexReading,
    ) -> Result<(), EngineError> {
        child.expect_new()?;
        let early = reading.ahead.take(&child.uri);
        if is_fully_covered(&self.sequencer, child) {
            reading.span.until = reading.span.until.max(child.until);
            return Ok(());
        }
        let (set, before) = (self.record.id, reading.before.get(&child.uri).cloned());
        let (context, uri) = (&self.context, &child.uri);
        let changed = match before {
            None => Some(read_early_document(context, set, uri, early).await?),
            Some(_) => poll_early_document(context, set, uri, early).await?,
        };
        let mut list = None;
        if let Some(ChangedDocument { read, record }) = changed {
            let (unread, from) = (read.expect_all().err(), read.summary.lists_from);
            let sequencer = &self.sequencer;
            let is_fully_covered = |child: &Child| is_fully_covered(sequencer, child);
            let entering = reading.walk.enter_oldest_first(read, is_fully_covered);
            let (entered, until) = entering.await?;
            let Some(read) = entered else {
                reading.add(Span { from, until }, unread);
                return Ok(());
            };
            list = Some((read, record));
        }
        let before = before.unwrap_or_default();
        let next = match &list {
            Some((read, _)) => read.next_page().cloned(),
            None => before.next,
        };
        if let Some(next) = next.as_ref().filter(|_| list.is_none()) {
            reading.walk.follow(&child.uri, next)?;
        }
        // Where it was an index, what it names comes first, and those after it are likely to be indexes, too.
        for next in reading.ahead.not_begun(&child.uri, &mut reading.walk) {
            if !is_fully_covered(&self.sequencer, &next) {
                let unconditional = !reading.before.contains_key(&next.uri);
                reading.ahead.begin(next.uri, unconditional).await;
            }
        }
        let mut span = Span {
            from: None,
            until: child.until.or(before.until),
        };
        let mut failed = None;
        if let Some((read, record)) = list {
            let damaged = read.expect_undamaged();
            let stated = (child.from, child.until);
            let may_prove = reading.failed.is_none();
            let ingesting = self.ingest_part(&reading.capability, read, record, stated, may_prove);
            (span, failed) = ingesting.await?;
            if failed.is_none() {
                damaged?;
            }
        }
        if failed.is_none() {
            let until = span.until;
            let reached = ReachedList { until, next };
            reading.reached.insert(child.uri.clone(), reached);
        }
        reading.add(span, failed);
        Ok(())
    }

    /// Ingests what is news in a list that covers nothing by itself, but with the others of its index, or with its other pages.
    /// `stated`: the begin and the end that are stated for it where it states none; `may_prove`: whether nothing before it is missing.
    /// Returns what it covers, and why it was not read completely.
    async fn ingest_part(
        &mut self,
        capability: &Capability,
        read: SummarizedDocument,
        record: DocumentRecord,
        (from, until): (Option<SourceTime>, Option<SourceTime>),
        may_prove: bool,
    ) -> Result<(Span, Option<EngineError>), EngineError> {
        if *capability == Capability::ChangeDump || read.summary.packages_of_changes > 0 {
            // Far down the stack.
            let ingesting = self.ingest_change_packages(capability, read, Some(record), may_prove);
            return Box::pin(ingesting).await;
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
        Ok((span, None))
    }
}
