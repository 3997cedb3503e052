//! Change Lists (section 12.1): what they cover, and which of them is the next.
//!
//! An open list is read again and again. A closed one tells no more: its index knows the list that follows it, or else the
//! Capability List does, which may name several. An open one that the Capability List names no longer is read once more, for
//! what was added to it before the next one was begun.

use url::Url;

use super::change_list_index::ReadIndex;
use crate::clock;
use crate::engine::EngineError;
use crate::engine::reading::ChangedDocument;
use crate::engine::reading::ingest::{Changes, Listing};
use crate::engine::set::SetWorker;
use crate::protocol::{Capability, DocumentSummary, SourceTime};
use crate::status::StatusError;
use crate::store::{BatchCommit, Origin};
use crate::sync::{NewsFilter, Span};

/// How many closed lists are followed to the next one within one poll.
const MOST_CLOSED: usize = 16;

/// What is remembered of the Change Lists from one poll to the next. Nobody remembers it after a start: what they cover is
/// read again then, although they may be the same.
#[derive(Default)]
pub(in crate::engine) struct ReadLists {
    /// The lists that were read, the last one last.
    read: Vec<ReadList>,
    /// The index that was read last.
    pub(in crate::engine) index: Option<ReadIndex>,
}

impl ReadLists {
    /// The list that was read last, and up to where it reaches.
    pub(in crate::engine) fn last(&self) -> Option<(Url, Option<SourceTime>)> {
        let last = self.read.last()?;
        Some((last.uri.clone(), last.span.until))
    }

    fn at(&self, uri: &Url) -> Option<&ReadList> {
        self.read.iter().find(|list| list.uri == *uri)
    }

    fn note(&mut self, list: ReadList) {
        self.read.retain(|read| read.uri != list.uri);
        if self.read.len() > MOST_CLOSED {
            self.read.remove(0);
        }
        self.read.push(list);
    }
}

/// A Change List that was read.
#[derive(Clone)]
struct ReadList {
    uri: Url,
    span: Span,
    is_closed: bool,
    /// The index that a closed one belongs to.
    index: Option<Url>,
}

/// What came of reading a Change List or an index of them.
struct Reading {
    uri: Url,
    span: Span,
    /// Whether it is a list that will tell more.
    is_open: bool,
    /// Whether it is a closed list whose next one only the Capability List knows.
    leads_back: bool,
    /// Whether it was not read before.
    is_fresh: bool,
}

/// What a Change List covers by its own word.
pub(in crate::engine) fn span_of(survey: &DocumentSummary) -> Span {
    let md = &survey.head.md;
    Span::new(md.from.or(md.at), survey.until, survey.newest)
}

/// The last moment that a list tells of, and may not tell all of: its end, or its newest entry's, unless that may stand for
/// a day which is not over.
pub(in crate::engine) fn end_of(survey: &DocumentSummary) -> Option<SourceTime> {
    let newest = survey.newest.filter(|newest| !newest.may_be_a_date());
    survey.until.or(newest)
}

impl SetWorker {
    /// Reads the Change Lists; answers what they cover, `None` if there are none.
    pub(in crate::engine) async fn read_change_lists(
        &mut self,
    ) -> Result<Option<Span>, EngineError> {
        let mut span = self.read_former_list().await?;
        let mut closed: Vec<Url> = Vec::new();
        while let Some(reading) = self.read_offered_list(&closed).await? {
            span = Some(match span {
                Some(before) => before.then(reading.span),
                None => reading.span,
            });
            self.note_open(reading.is_open.then_some(&reading.uri))
                .await?;
            if !reading.leads_back || closed.len() == MOST_CLOSED {
                break;
            }
            closed.push(reading.uri);
            if !reading.is_fresh {
                continue;
            }
            match self.refresh_offers().await {
                Err(EngineError::Store(error)) => return Err(error.into()),
                // The next poll asks again.
                Err(_) => break,
                Ok(()) => {}
            }
        }
        Ok(span)
    }

    /// The documents of a capability that the Capability List names.
    pub(in crate::engine) fn offered(&self, capability: &Capability) -> Vec<Url> {
        let offers = self
            .record
            .offers
            .iter()
            .filter(|offer| offer.capability == *capability);
        offers.map(|offer| offer.uri.clone()).collect()
    }

    /// Reads an open list once more that the Capability List names no longer, if there is another one now. It may be gone.
    async fn read_former_list(&mut self) -> Result<Option<Span>, EngineError> {
        let offered = self.offered(&Capability::ChangeList);
        let former = self.record.open_list.clone();
        let Some(former) = former.filter(|uri| !offered.is_empty() && !offered.contains(uri))
        else {
            return Ok(None);
        };
        match self.read_change_list(&former).await {
            Ok(reading) => Ok(Some(reading.span)),
            Err(EngineError::Store(error)) => Err(error.into()),
            Err(error) => {
                tracing::info!(code = error.code(), source = self.context.name(), document = %former, %error,
                    "a Change List was replaced, and can't be read once more");
                Ok(None)
            }
        }
    }

    /// Reads the list that the Capability List names. Where it names several, the first one counts that can be read and is
    /// not known to be closed: others have been seen to be something else.
    async fn read_offered_list(&mut self, closed: &[Url]) -> Result<Option<Reading>, EngineError> {
        let mut failed = None;
        let mut offered = self.offered(&Capability::ChangeList);
        offered.retain(|uri| !closed.contains(uri));
        for uri in offered {
            match self.read_change_list(&uri).await {
                Ok(reading) => return Ok(Some(reading)),
                Err(EngineError::Store(error)) => return Err(error.into()),
                Err(error) => failed = failed.or(Some((uri, error))),
            }
        }
        match failed {
            None => Ok(None),
            Some((_, error)) if closed.is_empty() => Err(error),
            Some((uri, error)) => {
                tracing::info!(code = error.code(), source = self.context.name(), document = %uri, %error,
                    "what is named beside a closed Change List can't be read");
                Ok(None)
            }
        }
    }

    /// Keeps which open list was read last.
    async fn note_open(&mut self, uri: Option<&Url>) -> Result<(), EngineError> {
        if self.record.open_list.as_ref() != uri {
            let store = &self.context.store;
            store.save_open_list(self.record.id, uri).await?;
            self.record.open_list = uri.cloned();
        }
        Ok(())
    }

    async fn read_change_list(&mut self, uri: &Url) -> Result<Reading, EngineError> {
        let of_index = |span: Span| Reading {
            uri: uri.clone(),
            span,
            is_open: false,
            leads_back: false,
            is_fresh: true,
        };
        if self
            .lists
            .index
            .as_ref()
            .is_some_and(|index| index.is_at(uri))
        {
            return match self.read_index_at(uri).await? {
                Ok(span) => Ok(of_index(span)),
                Err(list) => self.read_fresh_list(uri, *list).await,
            };
        }
        let last = self.lists.at(uri).cloned();
        let context = &self.context;
        let fresh = context.fresh(self.record.id, uri, last.is_none()).await?;
        match (fresh, last) {
            (Some(fresh), _) if fresh.survey.is_index => {
                fresh.expect(&Capability::ChangeList)?;
                Ok(of_index(self.read_index(uri, fresh).await?))
            }
            (Some(fresh), _) => self.read_fresh_list(uri, fresh).await,
            (None, Some(last)) => self.follow(last, false).await,
            // What is read anew is never unchanged.
            (None, None) => Err(EngineError::Interrupted),
        }
    }

    async fn read_fresh_list(
        &mut self,
        uri: &Url,
        fresh: ChangedDocument,
    ) -> Result<Reading, EngineError> {
        fresh.expect(&Capability::ChangeList)?;
        let head = &fresh.survey.head;
        let is_closed = head.md.until.is_some();
        let index = head.link("index");
        let index = index.filter(|index| is_closed && *index != uri).cloned();
        let span = self.take_list(fresh).await?;
        let before = self.lists.at(uri).map(|list| list.span);
        self.tell_older("older-change-list", uri, before, span);
        let list = ReadList {
            uri: uri.clone(),
            span,
            is_closed,
            index,
        };
        self.lists.note(list.clone());
        self.follow(list, true).await
    }

    /// Tells of a list, or a dump, that has gone back to what it was: a cache or a backup serves it. It takes nothing back, for
    /// all that it tells is known.
    pub(in crate::engine) fn tell_older(
        &self,
        code: &'static str,
        uri: &Url,
        before: Option<Span>,
        span: Span,
    ) {
        let is_older = before.is_some_and(|before| {
            before.from == span.from && span.until.is_some() && span.until < before.until
        });
        if is_older {
            tracing::warn!(code, source = self.context.name(), document = %uri, "what tells of changes is older than it was");
            let message = format!("{uri} is older than it was when it was read before");
            self.notice(Some(StatusError::new(code, message, clock::now().wall)));
        } else {
            self.end_notice(code);
        }
    }

    /// Goes on from a list that was read to its index, if it is closed and has one.
    async fn follow(&mut self, list: ReadList, is_fresh: bool) -> Result<Reading, EngineError> {
        let span = match &list.index {
            Some(index) => self.read_linked_index(index).await?.unwrap_or(list.span),
            None => list.span,
        };
        Ok(Reading {
            span,
            is_open: !list.is_closed,
            leads_back: list.is_closed && list.index.is_none(),
            is_fresh,
            uri: list.uri,
        })
    }

    /// Takes a Change List that stands alone.
    async fn take_list(&mut self, fresh: ChangedDocument) -> Result<Span, EngineError> {
        let span = span_of(&fresh.survey);
        let mut trial = self.sequencer.clone();
        let unknown = match span.interval() {
            Some(interval) => trial.change_list(clock::now(), interval),
            None => NewsFilter::everything(),
        };
        let unknown = self.sequencer.lagging(unknown, end_of(&fresh.survey));
        let mut end = self.end(&trial, None);
        end.documents.push(fresh.record.clone());
        self.take_news(fresh, unknown, end).await?;
        self.sequencer = trial;
        Ok(span)
    }

    /// Takes what is news in a Change List.
    pub(super) async fn take_news(
        &mut self,
        fresh: ChangedDocument,
        unknown: NewsFilter,
        end: BatchCommit,
    ) -> Result<(), EngineError> {
        let changes = Changes {
            origin: Origin::ChangeList,
            newest_first: fresh.survey.newest_first,
            unknown,
            end,
        };
        let listing = Listing::Document(fresh.document);
        let taking = self.context.take_changes(self.record.id, listing, changes);
        let applied = taking.await?;
        self.found += applied.tasks;
        self.tell_held(applied.held);
        Ok(())
    }
}
