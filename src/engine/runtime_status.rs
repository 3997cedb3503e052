//! The runtime status: what the workers know and the database does not (errors, polls, held notifications). Read by the status
//! endpoint. Some decisions use it as well, such as: a channel with an error is not waited for before the baseline, a single run does not
//! wait for a mirror with a disk error, and `/readyz` reports such a mirror.
//!
//! Invariants: it is lost when the process ends; each change of it is one step under the lock.
//!
//! Must not know the database, nor how the status is served.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use parking_lot::Mutex;
use url::Url;

use super::faults::Faults;
use super::oddities::OddDocuments;
use crate::status::{HookStatus, OddityStatus, StatusError};
use crate::store::{ChannelId, ResourceId, SetId};

/// How long a disk error is reported after it last occurred; a write is retried more often than that.
const DISK_ERROR_AGE: Duration = Duration::from_secs(30);

/// The state of a Source.
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
    /// Since when the Source fails, whatever the error.
    pub(super) failing_since: Option<String>,
    /// When its sets were looked for last, and will be next while it fails.
    pub(super) last_request_at: Option<DateTime<Utc>>,
    pub(super) next_try_at: Option<DateTime<Utc>>,
    /// The panic of the executor, until it is started again.
    pub(super) executor_error: Option<StatusError>,
    /// Why the mirror could not be opened, and since when.
    pub(super) mirror_error: Option<StatusError>,
    /// Why the folder of versions could not be used, and since when.
    pub(super) versions_error: Option<StatusError>,
    /// What is notable in the last discovery, but no error.
    pub(super) notices: Faults,
    /// The documents that describe the Source.
    pub(super) described_by: Vec<Url>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct SetFacts {
    pub(super) last_poll_at: Option<DateTime<Utc>>,
    pub(super) next_poll_at: Option<DateTime<Utc>>,
    /// Whether its documents have been polled since the start.
    pub(super) polled: bool,
    /// Early notifications that are held.
    pub(super) held_notifications: u64,
    /// The error of the last database access.
    pub(super) database_error: Option<StatusError>,
    /// The error of the last poll.
    pub(super) failing: Option<StatusError>,
    /// Since when polls fail, whatever the error.
    pub(super) failing_since: Option<String>,
    /// All errors of the last poll.
    pub(super) faults: Faults,
    /// Changes that were applied by a patch since the start.
    pub(super) patched: u64,
    /// Changes of files whose patch could not be used since the start.
    pub(super) patch_missed: u64,
    /// How many parts of indexes the last poll could not read.
    pub(super) dead_parts: u64,
    /// The error that does not keep the set from being in sync.
    pub(super) notice: Option<StatusError>,
    /// What is notable, but no error.
    pub(super) notices: Faults,
    /// Whether its Capability List was read since the start.
    pub(super) has_read_list: bool,
    /// The documents that describe the set, as the Source Description and as its Capability List state.
    pub(super) described_by: [Vec<Url>; 2],
}

/// These URIs, each once.
pub(super) fn each_once(lists: &[Vec<Url>]) -> Vec<Url> {
    let mut uris = Vec::new();
    for uri in lists.iter().flatten() {
        if !uris.contains(uri) {
            uris.push(uri.clone());
        }
    }
    uris
}

/// How a hook is.
#[derive(Clone, Debug, Default)]
pub(super) struct HookFacts {
    /// Its place among all hooks of the configuration.
    pub(super) number: usize,
    /// What is shown of it, but for [`HookStatus::behind`], which the database has.
    pub(super) status: HookStatus,
    /// How many runs and requests in a row were not accepted.
    pub(super) failures: u32,
    /// The notice that entries were removed before it has accepted them.
    pub(super) missed: Option<StatusError>,
}

#[derive(Debug, Default)]
pub(super) struct RuntimeStatus(Mutex<Facts>);

#[derive(Debug, Default)]
struct Facts {
    sources: HashMap<String, SourceFacts>,
    sets: HashMap<SetId, SetFacts>,
    channels: HashMap<ChannelId, StatusError>,
    /// By Source and name.
    hooks: BTreeMap<(String, String), HookFacts>,
    odd_documents: HashMap<SetId, OddDocuments>,
    /// The Sources whose mirrors can't be written.
    disk_errors: HashMap<String, DiskError>,
}

#[derive(Debug)]
struct DiskError {
    status_error: StatusError,
    /// When it first occurred.
    since: String,
    /// When it last occurred.
    at: Instant,
    /// The resource that could not be written; `None`: the mirror itself.
    resource: Option<ResourceId>,
}

impl DiskError {
    fn is_recent(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.at) < DISK_ERROR_AGE
    }
}

impl RuntimeStatus {
    pub(super) fn source(&self, name: &str) -> SourceFacts {
        self.0.lock().sources.get(name).cloned().unwrap_or_default()
    }

    pub(super) fn set(&self, set: SetId) -> SetFacts {
        self.0.lock().sets.get(&set).cloned().unwrap_or_default()
    }

    /// What is known of all sets.
    pub(super) fn sets(&self) -> HashMap<SetId, SetFacts> {
        self.0.lock().sets.clone()
    }

    pub(super) fn oddities(&self, set: SetId) -> Vec<OddityStatus> {
        let facts = self.0.lock();
        let documents = facts.odd_documents.get(&set);
        documents.map(OddDocuments::rows).unwrap_or_default()
    }

    /// How many entries of the documents of a set can't be read.
    pub(super) fn unread(&self, set: SetId) -> u64 {
        let facts = self.0.lock();
        let documents = facts.odd_documents.get(&set);
        documents.map(OddDocuments::unread).unwrap_or_default()
    }

    pub(super) fn channel(&self, channel: ChannelId) -> Option<StatusError> {
        self.0.lock().channels.get(&channel).cloned()
    }

    /// Records that a Source fails.
    pub(super) fn fail_source(&self, name: &str, error: StatusError) {
        self.change_source(name, |facts| {
            facts.state = SourceState::Failing;
            note_failure(&mut facts.error, &mut facts.failing_since, error);
        });
    }

    /// Records that a Source does not fail; returns since when it did.
    pub(super) fn recover_source(&self, name: &str) -> Option<String> {
        let mut since = None;
        self.change_source(name, |facts| {
            facts.state = SourceState::Ok;
            (facts.error, facts.next_try_at) = (None, None);
            since = facts.failing_since.take();
        });
        since
    }

    /// Records that the polls of a set fail; returns whether that, or its reason, is news.
    pub(super) fn fail_set(&self, set: SetId, error: StatusError) -> bool {
        let mut is_news = false;
        self.note_set(set, |facts| {
            is_news = note_failure(&mut facts.failing, &mut facts.failing_since, error);
        });
        is_news
    }

    /// Records that a poll of a set has succeeded; returns since when they had failed.
    pub(super) fn recover_set(&self, set: SetId) -> Option<String> {
        let mut since = None;
        self.note_set(set, |facts| {
            facts.failing = None;
            since = facts.failing_since.take();
        });
        since
    }

    /// Records that the executor of a Source does not work, or does again.
    pub(super) fn note_executor(&self, name: &str, error: Option<StatusError>) {
        self.change_source(name, |facts| facts.executor_error = error);
    }

    pub(super) fn change_source(&self, name: &str, change: impl FnOnce(&mut SourceFacts)) {
        change(self.0.lock().sources.entry(name.to_owned()).or_default());
    }

    pub(super) fn note_hook(&self, source: &str, name: &str, change: impl FnOnce(&mut HookFacts)) {
        let key = (source.to_owned(), name.to_owned());
        change(self.0.lock().hooks.entry(key).or_default());
    }

    /// Drops what is known of a hook that was stopped.
    pub(super) fn end_hook(&self, source: &str, name: &str) {
        let key = (source.to_owned(), name.to_owned());
        self.0.lock().hooks.remove(&key);
    }

    /// The hooks of a Source, in the order of the configuration.
    pub(super) fn hooks(&self, source: &str) -> Vec<HookFacts> {
        let facts = self.0.lock();
        let hooks = facts.hooks.iter().filter(|((of, _), _)| of == source);
        let mut hooks: Vec<_> = hooks.map(|(_, facts)| facts.clone()).collect();
        drop(facts);
        hooks.sort_by_key(|facts| facts.number);
        hooks
    }

    /// Drops what is known of a Source that was stopped, and of its sets.
    pub(super) fn end_source(&self, name: &str, sets: &[SetId]) {
        let mut facts = self.0.lock();
        facts.sources.remove(name);
        facts.disk_errors.remove(name);
        for set in sets {
            facts.sets.remove(set);
            facts.odd_documents.remove(set);
        }
    }

    /// Drops what is known of a set that is not followed any more.
    pub(super) fn end_set(&self, set: SetId) {
        let mut facts = self.0.lock();
        facts.sets.remove(&set);
        facts.odd_documents.remove(&set);
    }

    /// Changes what is known of the set of a task, which may have ended.
    pub(super) fn note_set_of_task(&self, set: SetId, change: impl FnOnce(&mut SetFacts)) {
        self.0.lock().sets.get_mut(&set).map(change);
    }

    pub(super) fn note_set(&self, set: SetId, change: impl FnOnce(&mut SetFacts)) {
        change(self.0.lock().sets.entry(set).or_default());
    }

    /// Begins to record the documents of a set, unless it did already.
    pub(super) fn begin_set(&self, set: SetId, capability_list: &Url) {
        let mut facts = self.0.lock();
        let documents = facts.odd_documents.entry(set);
        documents.or_insert_with(|| OddDocuments::of(capability_list.clone()));
    }

    /// Records how many entries can't be read of documents that were read before the start.
    pub(super) fn restore_unread(&self, set: SetId, documents: &[(Url, u64)]) {
        let mut facts = self.0.lock();
        let known = facts.odd_documents.entry(set).or_default();
        for (document, count) in documents {
            known.count_unread(document, *count);
        }
    }

    /// Changes the recorded oddities of a set; returns what `change` returns: whether they are news.
    pub(super) fn note_oddities(
        &self,
        set: SetId,
        change: impl FnOnce(&mut OddDocuments) -> bool,
    ) -> bool {
        change(self.0.lock().odd_documents.entry(set).or_default())
    }

    pub(super) fn note_channel(&self, channel: ChannelId, status_error: Option<StatusError>) {
        let mut facts = self.0.lock();
        match status_error {
            Some(status_error) => facts.channels.insert(channel, status_error),
            None => facts.channels.remove(&channel),
        };
    }

    /// Records that a resource, or the mirror itself, can't be written; returns whether that is news.
    pub(super) fn note_disk_error(
        &self,
        source: &str,
        resource: Option<ResourceId>,
        status_error: StatusError,
        at: Instant,
    ) -> bool {
        let mut facts = self.0.lock();
        let before = facts.disk_errors.remove(source);
        let is_news = before.is_none();
        let error = DiskError {
            since: before.map_or_else(|| status_error.at.clone(), |before| before.since),
            status_error,
            at,
            resource,
        };
        facts.disk_errors.insert(source.to_owned(), error);
        is_news
    }

    /// Records that a resource was written, or is not needed any more; returns whether that ends the disk error. Only the resource
    /// that failed last does: a small file may fit where a large one does not.
    pub(super) fn clear_disk_error(&self, source: &str, resource: Option<ResourceId>) -> bool {
        let mut facts = self.0.lock();
        let error = facts.disk_errors.get(source);
        let is_over = error.is_some_and(|error| error.resource == resource);
        is_over && facts.disk_errors.remove(source).is_some()
    }

    /// Whether a Source's mirror can't be written.
    pub(super) fn has_disk_error(&self, source: &str) -> bool {
        self.0.lock().disk_errors.contains_key(source)
    }

    /// Records that a Source fails because its mirror can't be opened. In one step: neither is shown without the other. The time of the
    /// mirror's error stays that of the first one.
    pub(super) fn note_unopened_mirror(
        &self,
        source: &str,
        error: StatusError,
        mirror_error: StatusError,
    ) {
        self.change_source(source, |facts| {
            facts.state = SourceState::Failing;
            note_failure(&mut facts.error, &mut facts.failing_since, error);
            let since = facts.mirror_error.take().map(|before| before.at);
            facts.mirror_error = Some(StatusError {
                at: since.unwrap_or_else(|| mirror_error.at.clone()),
                ..mirror_error
            });
        });
    }

    /// Records that a Source's mirror is open.
    pub(super) fn note_opened_mirror(&self, source: &str) {
        self.change_source(source, |facts| facts.mirror_error = None);
    }

    /// What is known of a Source, and why its mirror can't be opened or written, and since when.
    pub(super) fn source_and_mirror(&self, source: &str) -> (SourceFacts, Option<StatusError>) {
        let facts = self.0.lock();
        let of_source = facts.sources.get(source).cloned().unwrap_or_default();
        // Until something is written, however long that takes.
        let of_writing = facts.disk_errors.get(source);
        let mirror_error = of_source.mirror_error.clone().or_else(|| {
            of_writing.map(|error| StatusError {
                at: error.since.clone(),
                ..error.status_error.clone()
            })
        });
        (of_source, mirror_error)
    }

    /// A mirror that can't be written: the name of its Source, and the error.
    pub(super) fn recent_disk_error(&self, now: Instant) -> Option<(String, StatusError)> {
        let facts = self.0.lock();
        let mut errors = facts.disk_errors.iter();
        let recent = errors.find(|(_, error)| error.is_recent(now));
        recent.map(|(source, error)| (source.clone(), error.status_error.clone()))
    }
}

/// Shows an error, and since when something fails. Returns whether the message is news.
fn note_failure(
    shown: &mut Option<StatusError>,
    failing_since: &mut Option<String>,
    error: StatusError,
) -> bool {
    failing_since.get_or_insert_with(|| error.at.clone());
    let before = shown.replace(error.clone());
    before.is_none_or(|before| (before.code, before.message) != (error.code, error.message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirror_that_cannot_be_opened_is_shown_with_a_source_that_fails_since_the_first_time() {
        let at = |second: i64| DateTime::UNIX_EPOCH + chrono::TimeDelta::seconds(second);
        let error = |second| StatusError::new("mirror-missing", "it is not mounted", at(second));
        let (status, name) = (RuntimeStatus::default(), "example");
        for second in [1, 2] {
            status.note_unopened_mirror(name, error(second), error(second));
            let (facts, mirror_error) = status.source_and_mirror(name);
            assert_eq!(facts.state, SourceState::Failing);
            assert_eq!(facts.error.unwrap().at, error(second).at);
            assert_eq!(mirror_error.unwrap().at, error(1).at);
        }
        status.note_opened_mirror(name);
        let (facts, mirror_error) = status.source_and_mirror(name);
        assert_eq!(facts.state, SourceState::Failing, "until it is discovered");
        assert!(mirror_error.is_none());
    }
}
