//! Change Lists (section 12.1), and Change Dumps: what they cover, and which of them comes next.
//!
//! An open list is polled again and again. A closed one states nothing more: its index names the list that follows it, or else
//! the Capability List does, which may name several. An open list that the Capability List names no longer is read once more,
//! for what was added to it before the next one began.

use resourcesync::Capability;
use resyncd_core::Span;
use url::Url;

use super::change_list_index::IndexAt;
use super::polled_document::{ChangedDocument, poll_document, read_document};
use super::remembered::{MAX_CLOSED, ReadList};
use super::span::{end_of, span_of};
use super::state::SetState;
use crate::clock;
use crate::engine::EngineError;
use crate::engine::documents::Alternatives;

/// What was found at the URI of a Change List or Change Dump, or of an index of them.
pub(super) struct ListRead {
    uri: Url,
    pub(super) span: Span,
    /// It is a list that will state more.
    is_open: bool,
    /// It is a closed list whose successor only the Capability List names.
    needs_successor: bool,
    /// It was not read before.
    is_new: bool,
}

impl SetState {
    /// Reads the Change Lists; returns what they cover, `None` if there are none.
    pub(super) async fn read_change_lists(&mut self) -> Result<Option<Span>, EngineError> {
        let mut span = self.read_former_list().await?;
        let mut closed: Vec<Url> = Vec::new();
        let list = Capability::ChangeList;
        while let Some(read) = self.read_offered_list(&list, &closed).await? {
            span = Some(match span {
                Some(before) => before.then(read.span),
                None => read.span,
            });
            self.save_open_list(read.is_open.then_some(&read.uri))
                .await?;
            if !read.needs_successor || closed.len() == MAX_CLOSED {
                break;
            }
            closed.push(read.uri);
            if !read.is_new {
                continue;
            }
            match self.refresh_offers().await {
                Err(error) if error.is_fatal() => return Err(error),
                // The next poll asks again.
                Err(_) => break,
                Ok(()) => {}
            }
        }
        Ok(span)
    }

    /// Reads an open list once more that the Capability List names no longer, if it names another one now.
    async fn read_former_list(&mut self) -> Result<Option<Span>, EngineError> {
        let list = Capability::ChangeList;
        let offered = self.offered(&list);
        let former = self.record.open_list.clone();
        let Some(former) = former.filter(|uri| !offered.is_empty() && !offered.contains(uri))
        else {
            return Ok(None);
        };
        match self.read_change_list(&list, &former).await {
            Ok(read) => Ok(Some(read.span)),
            Err(error) if error.is_fatal() => Err(error),
            Err(error) => {
                tracing::info!(code = error.code(), source = self.context.name(), document = %former, %error,
                    "replaced Change List can't be read once more");
                Ok(None)
            }
        }
    }

    /// Reads the Change List, or the Change Dump, that the Capability List names. Of several the first counts that can be read and is not
    /// known to be closed.
    pub(super) async fn read_offered_list(
        &mut self,
        capability: &Capability,
        closed: &[Url],
    ) -> Result<Option<ListRead>, EngineError> {
        let mut failed = Alternatives::default();
        let mut offered = self.offered(capability);
        offered.retain(|uri| !closed.contains(uri));
        for uri in offered {
            match self.read_change_list(capability, &uri).await {
                Ok(read) => return Ok(Some(read)),
                Err(error) => failed.add(&uri, error)?,
            }
        }
        match failed.into_first() {
            None => Ok(None),
            Some((uri, error)) if closed.is_empty() => {
                self.note_unread(&uri, &error);
                Err(error)
            }
            Some((uri, error)) => {
                tracing::info!(code = error.code(), source = self.context.name(), document = %uri, %error,
                    "Change List offered beside a closed one can't be read");
                Ok(None)
            }
        }
    }

    /// Stores which open list was read last.
    async fn save_open_list(&mut self, uri: Option<&Url>) -> Result<(), EngineError> {
        if self.record.open_list.as_ref() != uri {
            let store = &self.context.store;
            store.save_open_list(self.record.id, uri).await?;
            self.record.open_list = uri.cloned();
        }
        Ok(())
    }

    async fn read_change_list(
        &mut self,
        capability: &Capability,
        uri: &Url,
    ) -> Result<ListRead, EngineError> {
        let of_index = |span: Span| ListRead {
            uri: uri.clone(),
            span,
            is_open: false,
            needs_successor: false,
            is_new: true,
        };
        let lists = self.lists_of(capability);
        if let Some(index) = lists.index.as_ref().filter(|index| index.uri == *uri) {
            let paged = index.list.clone();
            return match (self.read_index_at(capability, uri).await?, paged) {
                (IndexAt::Read(span), None) => Ok(of_index(span)),
                (IndexAt::Read(span), Some(list)) => {
                    let list = ReadList { span, ..list };
                    self.read_index_of(capability, list, false).await
                }
                (IndexAt::List(list), _) => self.read_new_list(capability, uri, *list).await,
                (IndexAt::Absent(error), _) => Err(error),
            };
        }
        let last = lists.at(uri).cloned();
        let (context, set) = (&self.context, self.record.id);
        let changed = match last {
            None => read_document(context, set, uri).await?,
            Some(last) => match poll_document(context, set, uri).await? {
                Some(changed) => changed,
                None => return self.read_index_of(capability, last, false).await,
            },
        };
        if changed.read.summary.is_index {
            let span = self.read_named(capability, uri, None, changed).await?;
            return Ok(of_index(span));
        }
        self.read_new_list(capability, uri, changed).await
    }

    /// Whether a document that states changes is a Change Set: it says so, or names others, or a Sitemap has led to it; and it has nothing
    /// that only version 1.0 has. One element of the draft alone makes no Change Set of a Change List.
    fn is_change_set(&self, changed: &ChangedDocument) -> bool {
        let (summary, head) = (&changed.read.summary, &changed.read.summary.head);
        let is_known = head.is_change_set || head.names_change_set() || self.record.is_implied();
        let md = &head.md;
        let is_dated = md.from.or(md.until).or(md.at).is_some();
        let is_paged = changed.read.next_page().is_some();
        is_known && !is_dated && !is_paged && summary.packages_of_changes == 0
    }

    async fn read_new_list(
        &mut self,
        capability: &Capability,
        uri: &Url,
        changed: ChangedDocument,
    ) -> Result<ListRead, EngineError> {
        changed.read.expect(capability)?;
        let is_dump = *capability == Capability::ChangeDump;
        let summary = &changed.read.summary;
        let mut list = ReadList {
            uri: uri.clone(),
            span: span_of(summary),
            is_closed: summary.head.md.until.is_some(),
            index: changed.read.index_of_closed(uri).cloned(),
        };
        if !is_dump && self.is_change_set(&changed) {
            list.span = Box::pin(self.read_change_sets(uri, changed)).await?;
            self.lists.remember(list.clone());
            return self.read_index_of(capability, list, true).await;
        }
        if changed.read.next_page().is_some() {
            let first = Some(list.clone());
            list.span = self.read_named(capability, uri, first, changed).await?;
            return self.read_index_of(capability, list, true).await;
        }
        if is_dump || summary.packages_of_changes > 0 {
            list.span = Box::pin(self.ingest_dump(capability, changed)).await?;
        } else {
            self.ingest_list(changed, list.span).await?;
        }
        let before = self.lists_of(capability).at(uri).map(|list| list.span);
        self.report_older(capability, uri, before, list.span);
        self.lists_of(capability).remember(list.clone());
        self.read_index_of(capability, list, true).await
    }

    /// Continues from a list that was read with its index, if it is closed and has one.
    async fn read_index_of(
        &mut self,
        capability: &Capability,
        list: ReadList,
        is_new: bool,
    ) -> Result<ListRead, EngineError> {
        let (mut span, mut has_index) = (list.span, false);
        if let Some(index) = &list.index {
            match self.read_index_at(capability, index).await? {
                IndexAt::Read(read) => (span, has_index) = (read, true),
                // The Capability List may name what follows.
                IndexAt::List(_) => {}
                IndexAt::Absent(error) => self.report.add_dead_index(&error),
            }
        }
        Ok(ListRead {
            span,
            is_open: !list.is_closed,
            needs_successor: list.is_closed && !has_index,
            is_new,
            uri: list.uri,
        })
    }

    /// Ingests a Change List that is not part of an index: it moves the coverage by itself. One with damaged entries moves
    /// nothing, and is read again.
    async fn ingest_list(
        &mut self,
        changed: ChangedDocument,
        span: Span,
    ) -> Result<(), EngineError> {
        let ChangedDocument { read, record } = changed;
        let damaged = read.expect_undamaged();
        let end = end_of(&read.summary);
        let filter = self.sequencer.news_of_list(span.interval(), end);
        let mut trial = self.sequencer.clone();
        if let Some(interval) = span.interval().filter(|_| damaged.is_ok()) {
            trial.cover_list(clock::now(), interval);
        }
        let mut end = self.document_end(&trial, None);
        if damaged.is_ok() {
            end.documents.push(record);
        }
        self.ingest_news(read, filter, end).await?;
        self.sequencer = trial;
        damaged
    }
}
