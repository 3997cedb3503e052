//! Resource Lists and their indexes (section 10): the baseline, and the proof where Change Lists fail.

use url::Url;

use crate::clock;
use crate::engine::EngineError;
use crate::engine::reading::ChangedDocument;
use crate::engine::set::SetWorker;
use crate::protocol::{Capability, ResourceUri, SourceTime};
use crate::status::StatusError;
use crate::store::{BaselineState, DocumentRecord, ListProgress, Origin};
use crate::sync::{believed, latest_believed};

impl SetWorker {
    /// Reads the Resource List, unless it is the one that was read last. `anew`: in any case.
    pub(in crate::engine) async fn read_resource_list(
        &mut self,
        anew: bool,
    ) -> Result<(), EngineError> {
        let offered = self.offered(&Capability::ResourceList);
        if offered.is_empty() {
            return if anew {
                Err(EngineError::NoResourceList)
            } else {
                Ok(())
            };
        }
        let mut failed = None;
        for uri in offered {
            match self.read_resource_list_at(&uri, anew).await {
                Ok(()) => return Ok(()),
                Err(EngineError::Store(error)) => return Err(error.into()),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(()), Err)
    }

    async fn read_resource_list_at(&mut self, uri: &Url, anew: bool) -> Result<(), EngineError> {
        let set = self.record.id;
        let filter = self.context.source.filter.fingerprint();
        let asked = believed(clock::now().wall);
        let must_look = self
            .context
            .store
            .must_look_at_parts(set, filter, asked)
            .await?;
        let Some(fresh) = self.context.fresh(set, uri, anew || must_look).await? else {
            return Ok(());
        };
        if self.take_resource_list(uri, fresh, !anew).await? == ListOutcome::Doubtful
            && let Some(fresh) = self.context.fresh(set, uri, true).await?
        {
            self.take_resource_list(uri, fresh, false).await?;
        }
        Ok(())
    }

    /// Takes a Resource List, and what it proves. `trusts`: parts that are unchanged may be passed over.
    async fn take_resource_list(
        &mut self,
        uri: &Url,
        fresh: ChangedDocument,
        trusts: bool,
    ) -> Result<ListOutcome, EngineError> {
        let set = self.record.id;
        fresh.expect(&Capability::ResourceList)?;
        if !self.record.is_implied() {
            fresh.expect_something()?;
        }
        let (at, tells_time) = time_of(&fresh);
        let is_older = self.record.list_at.is_some_and(|known| at < known);
        if is_older && tells_time {
            return Err(EngineError::OlderResourceList(uri.to_string()));
        }
        let proof = Proof::of(&fresh, is_older);
        let record = fresh.record.clone();
        let filter = self.context.source.filter.fingerprint();
        let store = &self.context.store;
        store
            .begin_parts(set, uri, trusts.then_some(filter))
            .await?;
        store.begin_list(set).await?;
        // A plain sitemap is the only one to tell of its resources: what it tells is never older than what is known.
        let only_voice = self.record.is_implied() && !tells_time;
        let taken_at = if only_voice { SourceTime::MAX } else { at };
        let parts = self.take_parts(uri, fresh, taken_at, proof).await?;
        let proof = proof.but(parts.bad_entries);
        if proof == Proof::Whole {
            if self.context.store.list_has_doubts(set).await? {
                return Ok(ListOutcome::Doubtful);
            }
            self.take_absences(Origin::ResourceList, at).await?;
        }
        let passed_over = parts.passed_over.map(|error| error.status_error());
        self.notice(passed_over.or(proof.notice()));
        self.context.store.drop_parts(set).await?;
        let record = (!parts.may_change_unseen).then_some(record);
        self.end_list(Origin::ResourceList, at, record, parts.names_any)
            .await?;
        tracing::info!(source = self.context.name(), set = %self.record.capability_list, %at, "a Resource List was read");
        Ok(ListOutcome::Taken)
    }

    /// Keeps what a Resource List or a Resource Dump proves that was read to its end. One that names nothing may come of a
    /// Source that could not make it: then what is here stays until somebody has looked.
    pub(in crate::engine) async fn end_list(
        &mut self,
        origin: Origin,
        at: SourceTime,
        record: Option<DocumentRecord>,
        names_any: bool,
    ) -> Result<(), EngineError> {
        let mut trial = self.sequencer.clone();
        trial.resource_list(clock::now(), at);
        let mut end = self.end(&trial, None);
        let list_at = self.record.list_at.max(Some(at));
        end.listed = list_at;
        end.documents.extend(record);
        end.rules.holds_all = !names_any;
        let application = self
            .context
            .application(self.record.id, origin, Vec::new(), Some(end));
        let applied = self.context.store.apply(application).await?;
        self.sequencer = trial;
        self.record.list_at = list_at;
        if self.record.baseline == BaselineState::Missing {
            self.record.baseline = BaselineState::Listed;
        }
        self.tell_held(applied.held);
        Ok(())
    }

    pub(in crate::engine) fn list(&self, origin: Origin, at: SourceTime) -> ListProgress {
        ListProgress {
            set: self.record.id,
            source: self.context.name().to_owned(),
            origin,
            at,
        }
    }

    /// Deletes what the list, read whole, does not name. What the filter leaves out was not looked for.
    pub(in crate::engine) async fn take_absences(
        &self,
        origin: Origin,
        at: SourceTime,
    ) -> Result<(), EngineError> {
        let list = self.list(origin, at);
        loop {
            let filter = self.context.source.filter.clone();
            let wants = move |uri: &ResourceUri| filter.wants(uri);
            let (store, now) = (&self.context.store, clock::now().wall);
            if store.list_absent(&list, now, wants).await?.is_none() {
                return Ok(());
            }
        }
    }
}

/// What came of a Resource List.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListOutcome {
    /// It was taken.
    Taken,
    /// Members may be gone from it that parts named which were passed over: nothing is proven until all are read.
    Doubtful,
}

/// The time that a Resource List is of, and whether it tells that itself. Without an `at` it is that of its newest entry: the
/// list may be of any later time, and may seem to go back when its newest resource goes.
fn time_of(fresh: &ChangedDocument) -> (SourceTime, bool) {
    let now = clock::now().wall;
    let latest = latest_believed(now);
    let survey = &fresh.survey;
    let first_believed = |times: [Option<SourceTime>; 2]| {
        let mut times = times.into_iter().flatten();
        times.find(|&at| at <= latest)
    };
    if let Some(at) = first_believed([survey.head.md.at, survey.lists_from]) {
        return (at, true);
    }
    // A list that tells no time at all, as an empty one may, leaves only the time at which it was read.
    let guessed = first_believed([survey.newest, fresh.document.last_modified()]);
    (guessed.unwrap_or_else(|| SourceTime::from(now)), false)
}

/// What absence from a Resource List proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Proof {
    /// What it does not name is gone.
    Whole,
    /// Nothing: it does not say that it is one.
    Unstated,
    /// Nothing: it tells no time, and its newest entry is older than one that was read before.
    Older,
    /// Nothing: so many of its entries can't be read.
    BadEntries(u64),
}

impl Proof {
    fn of(fresh: &ChangedDocument, is_older: bool) -> Self {
        if fresh.survey.head.md.capability.is_none() {
            Self::Unstated
        } else if is_older {
            Self::Older
        } else {
            Self::Whole
        }
    }

    fn but(self, bad_entries: u64) -> Self {
        match self {
            Self::Whole if bad_entries > 0 => Self::BadEntries(bad_entries),
            proof => proof,
        }
    }

    /// As the status tells it.
    fn notice(self) -> Option<StatusError> {
        let (code, why) = match self {
            Self::Whole => return None,
            Self::Unstated => (
                "unstated-capability",
                "the list does not say that it is a Resource List, as a plain sitemap does not"
                    .to_owned(),
            ),
            Self::Older => (
                "older-resource-list",
                "the Resource List tells no time, and its newest entry is older than before"
                    .to_owned(),
            ),
            Self::BadEntries(count) => (
                "bad-entries",
                format!("{count} entries of the Resource List can't be read"),
            ),
        };
        let message = format!("{why}: what it does not name is kept");
        Some(StatusError::new(code, message, clock::now().wall))
    }
}
