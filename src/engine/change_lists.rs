//! Change Lists and their indexes (section 12): what they cover, and which of them hold news.

use url::Url;

use super::EngineError;
use super::reading::Fresh;
use super::set::SetWorker;
use super::survey::{Child, Survey};
use super::taking::{Changes, Listing};
use crate::clock;
use crate::protocol::{Capability, Interval, SourceTime};
use crate::store::{DocumentRecord, End, Origin};
use crate::sync::{Span, Unknown};

/// How deep indexes may lie within indexes.
const DEPTH: u32 = 4;

/// What a Change List covers by its own word.
pub(super) fn span_of(survey: &Survey) -> Span {
    let md = &survey.head.md;
    Span::new(md.from.or(md.at), md.until.or(md.completed), survey.newest)
}

/// The last moment that a list tells of, and may not tell all of: its end, or its newest entry's.
pub(super) fn end_of(survey: &Survey) -> Option<SourceTime> {
    let md = &survey.head.md;
    md.until.or(md.completed).or(survey.newest)
}

impl SetWorker {
    /// Reads the Change Lists; answers what they cover, `None` if there are none. Where a Capability List names several,
    /// the first one that can be read counts: others have been seen to be something else.
    pub(super) async fn read_change_lists(&mut self) -> Result<Option<Span>, EngineError> {
        let mut failed = None;
        for uri in self.offered(&Capability::ChangeList) {
            match self.read_change_list(&uri).await {
                Ok(span) => return Ok(Some(span)),
                Err(EngineError::Store(error)) => return Err(error.into()),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(None), Err)
    }

    /// The documents of a capability that the Capability List names.
    pub(super) fn offered(&self, capability: &Capability) -> Vec<Url> {
        let offers = self
            .record
            .offers
            .iter()
            .filter(|offer| offer.capability == *capability);
        offers.map(|offer| offer.uri.clone()).collect()
    }

    async fn read_change_list(&mut self, uri: &Url) -> Result<Span, EngineError> {
        // After a start nobody remembers what an unchanged list covers.
        let Some(fresh) = self
            .following
            .fresh(self.record.id, uri, self.span.is_none())
            .await?
        else {
            return Ok(self.span.unwrap_or(Span {
                from: None,
                until: None,
            }));
        };
        fresh.expect(&Capability::ChangeList)?;
        let is_closed = fresh.survey.head.md.until.is_some();
        let index = fresh
            .survey
            .head
            .link("index")
            .filter(|index| is_closed && *index != uri)
            .cloned();
        let span = if fresh.survey.is_index() {
            self.read_index(fresh.survey).await?
        } else {
            self.take_list(fresh).await?
        };
        // A closed list tells no more: its index knows the one that follows.
        let span = match index {
            Some(index) => self.read_linked_index(&index).await?.unwrap_or(span),
            None => span,
        };
        self.span = Some(span);
        Ok(span)
    }

    async fn read_linked_index(&mut self, index: &Url) -> Result<Option<Span>, EngineError> {
        match self.following.fresh(self.record.id, index, true).await? {
            Some(fresh) if fresh.survey.is_index() => {
                fresh.expect(&Capability::ChangeList)?;
                Ok(Some(self.read_index(fresh.survey).await?))
            }
            _ => Ok(None),
        }
    }

    /// Takes a Change List that stands alone.
    async fn take_list(&mut self, fresh: Fresh) -> Result<Span, EngineError> {
        let span = span_of(&fresh.survey);
        let mut trial = self.sequencer.clone();
        let unknown = match span.interval() {
            Some(interval) => trial.change_list(clock::now(), interval),
            None => Unknown::everything(),
        };
        let unknown = self.sequencer.lagging(unknown, end_of(&fresh.survey));
        let mut end = self.end(&trial, None);
        end.documents.push(fresh.record.clone());
        let applied = self
            .following
            .take_changes(
                self.record.id,
                Listing::Document(fresh.document),
                Changes {
                    origin: Origin::ChangeList,
                    newest_first: fresh.survey.newest_first,
                    unknown,
                    end,
                },
            )
            .await?;
        self.sequencer = trial;
        self.found += applied.tasks;
        self.tell_held(applied.held);
        Ok(span)
    }

    /// Reads those lists of an index that can hold news, oldest first. One that can't be read does not keep the later ones
    /// from being read; but then the index proves nothing.
    async fn read_index(&mut self, survey: Survey) -> Result<Span, EngineError> {
        let stated = Span {
            until: survey.head.md.until.or(survey.head.md.completed),
            ..span_of(&survey)
        };
        let mut span = Span {
            from: stated
                .from
                .or(survey.children.first().and_then(|child| child.from)),
            until: None,
        };
        let mut failed = None;
        let mut lists: Vec<(Child, u32)> = survey
            .children
            .into_iter()
            .rev()
            .map(|child| (child, 1))
            .collect();
        while let Some((child, depth)) = lists.pop() {
            match self.read_child(&child).await {
                Ok(Reading::Until(until)) => span.until = span.until.max(until),
                Ok(Reading::Index(children)) if depth < DEPTH => {
                    lists.extend(children.into_iter().rev().map(|child| (child, depth + 1)));
                }
                Ok(Reading::Index(_)) => failed = failed.or(Some(EngineError::NestedIndex)),
                Err(EngineError::Store(error)) => return Err(error.into()),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        span.until = stated.until.or(span.until);
        self.cover(span, Origin::ChangeList, None).await?;
        Ok(span)
    }

    /// Keeps what an index of Change Lists, or a Change Dump, proves as a whole.
    pub(super) async fn cover(
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
            .following
            .application(self.record.id, origin, Vec::new(), Some(end));
        self.following.store.apply(application).await?;
        self.sequencer = trial;
        Ok(())
    }

    async fn read_child(&mut self, child: &Child) -> Result<Reading, EngineError> {
        let stated = child
            .from
            .zip(child.until)
            .and_then(|(from, until)| Interval::new(from, until));
        if stated.is_some_and(|interval| self.sequencer.is_settled(interval)) {
            return Ok(Reading::Until(child.until));
        }
        let Some(fresh) = self
            .following
            .fresh(self.record.id, &child.uri, self.span.is_none())
            .await?
        else {
            return Ok(Reading::Until(
                child.until.or(self.span.and_then(|span| span.until)),
            ));
        };
        fresh.expect(&Capability::ChangeList)?;
        if fresh.survey.is_index() {
            return Ok(Reading::Index(fresh.survey.children));
        }
        let own = span_of(&fresh.survey);
        let span = Span {
            from: own.from.or(child.from),
            until: own.until.or(child.until),
        };
        // The index as a whole says what is covered; this only asks which changes are news.
        let unknown = match span.interval() {
            Some(interval) => self.sequencer.clone().change_list(clock::now(), interval),
            None => Unknown::everything(),
        };
        let unknown = self.sequencer.lagging(unknown, end_of(&fresh.survey));
        let end = self.end_of_part(fresh.record.clone());
        let applied = self
            .following
            .take_changes(
                self.record.id,
                Listing::Document(fresh.document),
                Changes {
                    origin: Origin::ChangeList,
                    newest_first: fresh.survey.newest_first,
                    unknown,
                    end,
                },
            )
            .await?;
        self.found += applied.tasks;
        self.tell_held(applied.held);
        Ok(Reading::Until(span.until))
    }

    /// The end of a list that proves nothing by itself.
    pub(super) fn end_of_part(&self, record: DocumentRecord) -> End {
        End {
            rules: self.following.deletion_rules(),
            progress: None,
            delivery: None,
            documents: vec![record],
            listed: None,
            read_until: None,
        }
    }
}

/// What reading a list of an index came to.
enum Reading {
    /// It was read, or need not be, and reaches up to there.
    Until(Option<SourceTime>),
    /// It is an index itself.
    Index(Vec<Child>),
}
