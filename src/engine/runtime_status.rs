//! What the workers know and the database does not: troubles, polls, waits. For the status only; nothing decides by it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use url::Url;

use super::reading::oddities::OddDocuments;
use crate::status::{OddityStatus, StatusError};
use crate::store::{ChannelId, ResourceId, SetId};

/// How long a disk counts as refusing what it is given after it last did: what waits for it is tried again more often.
const REFUSES: Duration = Duration::from_secs(30);

/// How a Source is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum SourceState {
    #[default]
    Discovering,
    Ok,
    Failing,
}

impl SourceState {
    pub(super) fn code(self) -> &'static str {
        match self {
            Self::Discovering => "discovering",
            Self::Ok => "ok",
            Self::Failing => "failing",
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct SourceFacts {
    pub(super) state: SourceState,
    pub(super) error: Option<StatusError>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct SetFacts {
    pub(super) last_poll_at: Option<DateTime<Utc>>,
    pub(super) next_poll_at: Option<DateTime<Utc>>,
    /// Whether its documents have been looked at since the start.
    pub(super) looked: bool,
    /// Early notifications that are held.
    pub(super) held: u64,
    /// What the database said when it refused something.
    pub(super) refused: Option<StatusError>,
    /// What kept the documents from being read.
    pub(super) failing: Option<StatusError>,
    /// What is odd, but does not keep the set from being in step.
    pub(super) notice: Option<StatusError>,
}

#[derive(Debug, Default)]
pub(super) struct RuntimeStatus {
    facts: Mutex<Facts>,
}

#[derive(Debug, Default)]
struct Facts {
    sources: HashMap<String, SourceFacts>,
    sets: HashMap<SetId, SetFacts>,
    channels: HashMap<ChannelId, StatusError>,
    odd_documents: HashMap<SetId, OddDocuments>,
    /// The Sources whose mirrors are on a disk that refuses what it is given.
    refusals: HashMap<String, Refusal>,
}

#[derive(Debug)]
struct Refusal {
    status_error: StatusError,
    /// When it was met last.
    met: Instant,
    /// What was refused last; `None`: the mirror itself.
    resource: Option<ResourceId>,
}

impl RuntimeStatus {
    pub(super) fn source(&self, name: &str) -> SourceFacts {
        self.lock().sources.get(name).cloned().unwrap_or_default()
    }

    pub(super) fn set(&self, set: SetId) -> SetFacts {
        self.lock().sets.get(&set).cloned().unwrap_or_default()
    }

    pub(super) fn oddities(&self, set: SetId) -> Vec<OddityStatus> {
        let facts = self.lock();
        let documents = facts.odd_documents.get(&set);
        documents.map(OddDocuments::rows).unwrap_or_default()
    }

    pub(super) fn channel(&self, channel: ChannelId) -> Option<StatusError> {
        self.lock().channels.get(&channel).cloned()
    }

    pub(super) fn note_source(&self, name: &str, state: SourceState, error: Option<StatusError>) {
        self.lock()
            .sources
            .insert(name.to_owned(), SourceFacts { state, error });
    }

    pub(super) fn note_set(&self, set: SetId, change: impl FnOnce(&mut SetFacts)) {
        change(self.lock().sets.entry(set).or_default());
    }

    /// Begins to note the documents of a set, unless they are noted already.
    pub(super) fn begin_set(&self, set: SetId, capability_list: &Url) {
        let mut facts = self.lock();
        let documents = facts.odd_documents.entry(set);
        documents.or_insert_with(|| OddDocuments::of(capability_list.clone()));
    }

    /// Answers what the change answers: whether there is something to tell.
    pub(super) fn note_oddities(
        &self,
        set: SetId,
        change: impl FnOnce(&mut OddDocuments) -> bool,
    ) -> bool {
        change(self.lock().odd_documents.entry(set).or_default())
    }

    pub(super) fn note_channel(&self, channel: ChannelId, status_error: Option<StatusError>) {
        let mut facts = self.lock();
        match status_error {
            Some(status_error) => facts.channels.insert(channel, status_error),
            None => facts.channels.remove(&channel),
        };
    }

    /// Notes that the disk of a Source's mirror has refused a resource, or the mirror itself; answers whether that is news.
    pub(super) fn note_refusal(
        &self,
        source: &str,
        resource: Option<ResourceId>,
        status_error: StatusError,
        met: Instant,
    ) -> bool {
        let refusal = Refusal {
            status_error,
            met,
            resource,
        };
        let before = self.lock().refusals.insert(source.to_owned(), refusal);
        before.is_none()
    }

    /// Notes that something is not refused, or wanted, any more; answers whether nothing is refused now. Only what was refused
    /// last counts: a small file finds room where a large one does not.
    pub(super) fn note_taken(&self, source: &str, resource: Option<ResourceId>) -> bool {
        let mut facts = self.lock();
        let refused = facts.refusals.get(source);
        let is_over = refused.is_some_and(|refusal| refusal.resource == resource);
        is_over && facts.refusals.remove(source).is_some()
    }

    /// Whether the disk of a Source's mirror refuses what it is given.
    pub(super) fn is_refused(&self, source: &str) -> bool {
        self.lock().refusals.contains_key(source)
    }

    /// A mirror whose disk refuses what it is given: the label of its Source, and why.
    pub(super) fn refusing_disk(&self, now: Instant) -> Option<(String, StatusError)> {
        let facts = self.lock();
        let mut refusals = facts.refusals.iter();
        let refusal =
            refusals.find(|(_, refusal)| now.saturating_duration_since(refusal.met) < REFUSES);
        refusal.map(|(source, refusal)| (source.clone(), refusal.status_error.clone()))
    }

    /// A worker that panicked has noted whole facts: each is put down in one step.
    fn lock(&self) -> MutexGuard<'_, Facts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
