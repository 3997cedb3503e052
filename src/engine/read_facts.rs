//! What a single run has read of a Source's documents, and which of them it could not read, or not completely: an audit reports it.
//!
//! A daemon reads again what it could not read, and shows that in the status: it collects nothing here.

use std::collections::{HashMap, HashSet};

use parking_lot::Mutex;
use resourcesync::SourceTime;
use resyncd_core::AbsenceProof;
use url::Url;

use crate::status::StatusError;
use crate::store::SetId;

/// A document that could not be read, or not completely.
#[derive(Clone, Debug)]
pub(super) struct UnreadDocument {
    /// The set that it belongs to; `None`: it is above the sets.
    pub(super) set: Option<SetId>,
    pub(super) uri: Url,
    pub(super) error: StatusError,
}

/// A Resource List or Resource Dump of which something was read.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadList {
    /// Its time.
    pub(super) at: SourceTime,
    /// The time as of which its entries count: the end of time, if nothing else states anything of the set.
    pub(super) entries_at: SourceTime,
    /// What absence from it proves, once it was read completely.
    pub(super) proof: Option<AbsenceProof>,
}

/// What a run has read of a Source; nothing, in a daemon.
#[derive(Debug)]
pub(super) struct ReadFacts(Option<Mutex<Facts>>);

#[derive(Debug, Default)]
struct Facts {
    knows_all_sets: bool,
    lists: HashMap<SetId, ReadList>,
    unread: Vec<UnreadDocument>,
    /// Set, document and code of each of these.
    noted: HashSet<(Option<SetId>, Url, String)>,
}

impl ReadFacts {
    /// `collects`: whether this is a single run.
    pub(super) fn new(collects: bool) -> Self {
        Self(collects.then(Mutex::default))
    }

    /// Notes that there are no other sets than those that were found.
    pub(super) fn note_all_sets(&self) {
        if let Some(facts) = &self.0 {
            facts.lock().knows_all_sets = true;
        }
    }

    /// Notes the Resource List or Resource Dump of a set.
    pub(super) fn note_list(&self, set: SetId, list: ReadList) {
        if let Some(facts) = &self.0 {
            facts.lock().lists.insert(set, list);
        }
    }

    /// Notes an error of a document.
    pub(super) fn note_unread(&self, set: Option<SetId>, uri: &Url, error: StatusError) {
        let Some(facts) = &self.0 else { return };
        let mut facts = facts.lock();
        if facts.noted.insert((set, uri.clone(), error.code.clone())) {
            let uri = uri.clone();
            facts.unread.push(UnreadDocument { set, uri, error });
        }
    }

    /// Whether an error of a document of the set is noted, with that message if one is given.
    pub(super) fn has_unread(&self, set: Option<SetId>, message: Option<&str>) -> bool {
        let is_message = |known: &str| message.is_none_or(|message| message == known);
        self.0.as_ref().is_some_and(|facts| {
            let facts = facts.lock();
            let mut unread = facts.unread.iter();
            unread.any(|it| it.set == set && is_message(&it.error.message))
        })
    }

    /// Whether there are no other sets than those that were found.
    pub(super) fn knows_all_sets(&self) -> bool {
        (self.0.as_ref()).is_some_and(|facts| facts.lock().knows_all_sets)
    }

    /// The Resource Lists and Resource Dumps.
    pub(super) fn lists(&self) -> HashMap<SetId, ReadList> {
        let lists = self.0.as_ref().map(|facts| facts.lock().lists.clone());
        lists.unwrap_or_default()
    }

    /// The documents that could not be read, or not completely.
    pub(super) fn unread(&self) -> Vec<UnreadDocument> {
        let unread = self.0.as_ref().map(|facts| facts.lock().unread.clone());
        unread.unwrap_or_default()
    }
}
