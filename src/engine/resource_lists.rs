//! Resource Lists and their indexes (section 10): the baseline, and the proof where Change Lists fail.

use url::Url;

use super::EngineError;
use super::reading::Fresh;
use super::set::SetWorker;
use super::survey::{Child, Survey};
use crate::clock;
use crate::config::Baseline;
use crate::protocol::{Capability, Oddity, SourceTime};
use crate::status::Trouble;
use crate::store::{BaselineState, ListProgress, Origin};
use crate::sync::latest_believed;

/// How deep indexes may lie within indexes.
const DEPTH: u32 = 4;

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
        let Some(fresh) = self.following.fresh(set, uri, anew).await? else {
            return Ok(());
        };
        fresh.expect(&Capability::ResourceList)?;
        let (at, tells_time) = time_of(&fresh);
        let is_older = self.record.list_at.is_some_and(|known| at < known);
        if is_older && tells_time {
            return Err(EngineError::OlderResourceList(uri.to_string()));
        }
        let proof = Proof::of(&fresh, is_older);
        let record = fresh.record.clone();
        let remembers = !fresh.survey.is_index() || fresh.survey.head.md.at.is_some();
        self.following.store.begin_list(set).await?;
        // A plain sitemap is the only one to tell of its resources: what it tells is never older than what is known.
        let only_voice = self.record.is_implied() && !tells_time;
        let taken_at = if only_voice { SourceTime::MAX } else { at };
        let taken = self.take_lists(fresh, taken_at, proof).await?;
        let proof = proof.but(taken.bad_entries);
        if proof == Proof::Whole {
            self.take_absences(at).await?;
        }
        let passed_over = taken.passed_over.map(|error| error.trouble());
        self.notice(passed_over.or(proof.notice()));

        let mut trial = self.sequencer.clone();
        trial.resource_list(clock::now(), at);
        let mut end = self.end(&trial, None);
        let list_at = self.record.list_at.max(Some(at));
        end.listed = list_at;
        end.documents.extend(remembers.then_some(record));
        let application =
            self.following
                .application(set, Origin::ResourceList, Vec::new(), Some(end));
        let applied = self.following.store.apply(application).await?;
        self.sequencer = trial;
        self.record.list_at = list_at;
        if self.record.baseline == BaselineState::Missing {
            self.record.baseline = BaselineState::Listed;
        }
        tracing::info!(source = self.following.name(), set = %self.record.capability_list, %at, "a Resource List was read");
        self.tell_held(applied.held);
        Ok(())
    }

    /// Takes a list, or all lists of an index. A list that can't be had ends it: what is not known to be complete proves
    /// nothing. Where nothing is to be proven, one that is not there for good is passed over.
    async fn take_lists(
        &mut self,
        fresh: Fresh,
        at: SourceTime,
        proof: Proof,
    ) -> Result<Taken, EngineError> {
        let set = self.record.id;
        let mut taken = Taken {
            bad_entries: fresh.survey.oddities.count(Oddity::BadLoc),
            passed_over: None,
        };
        if !fresh.survey.is_index() {
            self.found += self
                .following
                .take_listed(set, fresh.document, at)
                .await?
                .tasks;
            return Ok(taken);
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
            let fresh = match self.following.fresh(set, &child.uri, true).await {
                Ok(Some(fresh)) => fresh,
                Ok(None) => continue,
                Err(error) if proof == Proof::Unstated && error.is_lasting() => {
                    taken.passed_over.get_or_insert(error);
                    continue;
                }
                Err(error) => return Err(error),
            };
            fresh.expect(&Capability::ResourceList)?;
            taken.bad_entries += fresh.survey.oddities.count(Oddity::BadLoc);
            if !fresh.survey.is_index() {
                self.found += self
                    .following
                    .take_listed(set, fresh.document, at)
                    .await?
                    .tasks;
            } else if depth < DEPTH {
                lists.extend(children(fresh.survey, depth + 1));
            } else {
                return Err(EngineError::NestedIndex);
            }
        }
        Ok(taken)
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

/// The time that a Resource List is of, and whether it tells that itself. Without an `at` it is that of its newest entry: the
/// list may be of any later time, and may seem to go back when its newest resource goes.
fn time_of(fresh: &Fresh) -> (SourceTime, bool) {
    let now = clock::now().wall;
    let latest = latest_believed(now);
    let survey = &fresh.survey;
    let of_lists = survey.children.iter().filter_map(|child| child.from).min();
    let believed = |times: [Option<SourceTime>; 2]| {
        let mut times = times.into_iter().flatten();
        times.find(|&at| at <= latest)
    };
    if let Some(at) = believed([survey.head.md.at, of_lists]) {
        return (at, true);
    }
    // A list that tells no time at all, as an empty one may, leaves only the time at which it was read.
    let guessed = believed([survey.newest, fresh.document.last_modified()]);
    (guessed.unwrap_or_else(|| SourceTime::from(now)), false)
}

/// What came of taking a list, or the lists of an index.
struct Taken {
    /// How many entries can't be read.
    bad_entries: u64,
    /// Why a list of the index was passed over.
    passed_over: Option<EngineError>,
}

/// What absence from a Resource List proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proof {
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
    fn of(fresh: &Fresh, is_older: bool) -> Self {
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
    fn notice(self) -> Option<Trouble> {
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
        Some(Trouble::new(code, message, clock::now().wall))
    }
}
