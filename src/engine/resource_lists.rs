//! Resource Lists and their indexes (section 10): the baseline, and the proof where Change Lists fail.

use url::Url;

use super::EngineError;
use super::reading::Fresh;
use super::set::SetWorker;
use crate::clock;
use crate::config::Baseline;
use crate::protocol::{Capability, SourceTime};
use crate::status::Trouble;
use crate::store::{BaselineState, ListProgress, Origin};
use crate::sync::{believed_since, latest_believed};

impl SetWorker {
    /// Reads the Resource List, unless it is the one that was read last. `anew`: in any case.
    pub(super) async fn read_resource_list(&mut self, anew: bool) -> Result<(), EngineError> {
        if anew && self.following.source.baseline == Baseline::Dump {
            tracing::warn!(
                code = "dump-not-supported",
                source = self.following.name(),
                "baselines from Resource Dumps are not supported yet: the Resource List is used"
            );
        }
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
        let filter = self.following.source.filter.fingerprint();
        let since = believed_since(clock::now().wall);
        let must_look = self
            .following
            .store
            .must_look_at_parts(set, filter, since)
            .await?;
        let Some(fresh) = self.following.fresh(set, uri, anew || must_look).await? else {
            return Ok(());
        };
        if self.take_resource_list(uri, fresh, !anew).await? == Outcome::Doubtful
            && let Some(fresh) = self.following.fresh(set, uri, true).await?
        {
            self.take_resource_list(uri, fresh, false).await?;
        }
        Ok(())
    }

    /// Takes a Resource List, and what it proves. `trusts`: parts that are unchanged may be passed over.
    async fn take_resource_list(
        &mut self,
        uri: &Url,
        fresh: Fresh,
        trusts: bool,
    ) -> Result<Outcome, EngineError> {
        let set = self.record.id;
        fresh.expect(&Capability::ResourceList)?;
        let at = time_of(&fresh);
        if self.record.list_at.is_some_and(|known| at < known) {
            return Err(EngineError::OlderResourceList(uri.to_string()));
        }
        // Without the word that it is a Resource List, absence from it proves nothing.
        let is_stated = fresh.survey.head.md.capability.is_some();
        let record = fresh.record.clone();
        let filter = self.following.source.filter.fingerprint();
        let store = &self.following.store;
        store
            .begin_parts(set, uri, trusts.then_some(filter))
            .await?;
        store.begin_list(set).await?;
        let parts = self.take_parts(uri, fresh, at).await?;
        if is_stated && parts.bad_entries == 0 {
            if self.following.store.list_has_doubts(set).await? {
                return Ok(Outcome::Doubtful);
            }
            self.take_absences(at).await?;
        }
        self.notice(notice_of(is_stated, parts.bad_entries));
        self.following.store.drop_parts(set).await?;

        let mut trial = self.sequencer.clone();
        trial.resource_list(clock::now(), at);
        let mut end = self.end(&trial, None);
        end.listed = Some(at);
        end.documents
            .extend((!parts.may_change_unseen).then_some(record));
        let application =
            self.following
                .application(set, Origin::ResourceList, Vec::new(), Some(end));
        let applied = self.following.store.apply(application).await?;
        self.sequencer = trial;
        self.record.list_at = Some(at);
        if self.record.baseline == BaselineState::Missing {
            self.record.baseline = BaselineState::Listed;
        }
        tracing::info!(source = self.following.name(), set = %self.record.capability_list, %at, "a Resource List was read");
        self.tell_held(applied.held);
        Ok(Outcome::Taken)
    }

    /// Deletes what the list, read whole, does not name.
    async fn take_absences(&self, at: SourceTime) -> Result<(), EngineError> {
        let list = ListProgress {
            set: self.record.id,
            source: self.following.name().to_owned(),
            at,
        };
        while self
            .following
            .store
            .list_absent(&list, clock::now().wall)
            .await?
            .is_some()
        {}
        Ok(())
    }
}

/// What came of a Resource List.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// It was taken.
    Taken,
    /// Members may be gone from it that parts named which were passed over: nothing is proven until all are read.
    Doubtful,
}

/// The time that a Resource List is of: its `at`; without one, that of its newest entry.
fn time_of(fresh: &Fresh) -> SourceTime {
    let now = clock::now().wall;
    let latest = latest_believed(now);
    let survey = &fresh.survey;
    let told = [
        survey.head.md.at,
        survey.lists_from,
        survey.newest,
        fresh.document.last_modified(),
    ];
    // A list that tells no time at all, as an empty one may, leaves only the time at which it was read.
    told.into_iter()
        .flatten()
        .find(|&at| at <= latest)
        .unwrap_or_else(|| SourceTime::from(now))
}

fn notice_of(is_stated: bool, bad_entries: u64) -> Option<Trouble> {
    let now = clock::now().wall;
    if !is_stated {
        let message =
            "the Resource List does not say that it is one: what it does not name is kept";
        Some(Trouble::new("unstated-capability", message, now))
    } else if bad_entries > 0 {
        let message = format!(
            "{bad_entries} entries of the Resource List can't be read: what it does not name is kept"
        );
        Some(Trouble::new("bad-entries", message, now))
    } else {
        None
    }
}
