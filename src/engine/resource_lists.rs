//! Resource Lists and their indexes (section 10): the baseline, and the proof where Change Lists fail.

use url::Url;

use super::EngineError;
use super::reading::Fresh;
use super::set::SetWorker;
use super::survey::{Child, Survey};
use super::taking::Listing;
use crate::clock;
use crate::protocol::{Capability, Oddity, SourceTime};
use crate::status::Trouble;
use crate::store::{BaselineState, DocumentRecord, ListProgress, Origin};
use crate::sync::latest_believed;

/// How deep indexes may lie within indexes.
const DEPTH: u32 = 4;

impl SetWorker {
    /// Reads the Resource List, unless it is the one that was read last. `anew`: in any case.
    pub(super) async fn read_resource_list(&mut self, anew: bool) -> Result<(), EngineError> {
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
        let Some(fresh) = self.following.fresh(set, uri, anew).await? else {
            return Ok(());
        };
        fresh.expect(&Capability::ResourceList)?;
        let at = time_of(&fresh);
        if self.record.list_at.is_some_and(|known| at < known) {
            return Err(EngineError::OlderResourceList(uri.to_string()));
        }
        // Without the word that it is a Resource List, absence from it proves nothing.
        let is_stated = fresh.survey.head.md.capability.is_some();
        let record = fresh.record.clone();
        let remembers = !fresh.survey.is_index() || fresh.survey.head.md.at.is_some();
        self.following.store.begin_list(set).await?;
        let bad_entries = self.take_lists(fresh, at).await?;
        if is_stated && bad_entries == 0 {
            self.take_absences(Origin::ResourceList, at).await?;
        }
        self.notice(notice_of(is_stated, bad_entries));
        let record = remembers.then_some(record);
        self.end_list(Origin::ResourceList, at, record).await?;
        tracing::info!(source = self.following.name(), set = %self.record.capability_list, %at, "a Resource List was read");
        Ok(())
    }

    /// Keeps what a Resource List or a Resource Dump proves that was read to its end.
    pub(super) async fn end_list(
        &mut self,
        origin: Origin,
        at: SourceTime,
        record: Option<DocumentRecord>,
    ) -> Result<(), EngineError> {
        let mut trial = self.sequencer.clone();
        trial.resource_list(clock::now(), at);
        let mut end = self.end(&trial, None);
        end.listed = Some(at);
        end.documents.extend(record);
        let application = self
            .following
            .application(self.record.id, origin, Vec::new(), Some(end));
        let applied = self.following.store.apply(application).await?;
        self.sequencer = trial;
        self.record.list_at = Some(at);
        if self.record.baseline == BaselineState::Missing {
            self.record.baseline = BaselineState::Listed;
        }
        self.tell_held(applied.held);
        Ok(())
    }

    /// Takes a list, or all lists of an index; answers how many entries could not be read. A list that can't be had ends it:
    /// what is not known to be complete proves nothing.
    async fn take_lists(&mut self, fresh: Fresh, at: SourceTime) -> Result<u64, EngineError> {
        let set = self.record.id;
        let mut bad_entries = fresh.survey.oddities.count(Oddity::BadLoc);
        if !fresh.survey.is_index() {
            self.found += self
                .following
                .take_listed(
                    self.list(Origin::ResourceList, at),
                    Listing::Document(fresh.document),
                )
                .await?
                .tasks;
            return Ok(bad_entries);
        }
        let children = |survey: Survey, depth: u32| {
            survey
                .children
                .into_iter()
                .rev()
                .map(move |child| (child, depth))
        };
        let mut lists: Vec<(Child, u32)> = children(fresh.survey, 1).collect();
        while let Some((child, depth)) = lists.pop() {
            let Some(fresh) = self.following.fresh(set, &child.uri, true).await? else {
                continue;
            };
            fresh.expect(&Capability::ResourceList)?;
            bad_entries += fresh.survey.oddities.count(Oddity::BadLoc);
            if !fresh.survey.is_index() {
                self.found += self
                    .following
                    .take_listed(
                        self.list(Origin::ResourceList, at),
                        Listing::Document(fresh.document),
                    )
                    .await?
                    .tasks;
            } else if depth < DEPTH {
                lists.extend(children(fresh.survey, depth + 1));
            } else {
                return Err(EngineError::NestedIndex);
            }
        }
        Ok(bad_entries)
    }

    pub(super) fn list(&self, origin: Origin, at: SourceTime) -> ListProgress {
        ListProgress {
            set: self.record.id,
            source: self.following.name().to_owned(),
            origin,
            at,
        }
    }

    /// Deletes what the list, read whole, does not name.
    pub(super) async fn take_absences(
        &self,
        origin: Origin,
        at: SourceTime,
    ) -> Result<(), EngineError> {
        let list = self.list(origin, at);
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

/// The time that a Resource List is of: its `at`; without one, that of its newest entry.
fn time_of(fresh: &Fresh) -> SourceTime {
    let now = clock::now().wall;
    let latest = latest_believed(now);
    let survey = &fresh.survey;
    let of_lists = survey.children.iter().filter_map(|child| child.from).min();
    let told = [
        survey.head.md.at,
        of_lists,
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
