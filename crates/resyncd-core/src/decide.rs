//! Decides what the mirror is to do with one resource: from what all followed sets state of it, what the mirror has, and what the Source
//! has answered.
//!
//! Rows of the decision, of which the first that fits counts:
//!
//! | row | when | what |
//! |---|---|---|
//! | 1 | no followed set states anything | nothing; a file without a record is removed |
//! | 2 | it exists, and is not selected | nothing |
//! | 3 | a hub states something, and the Source was not asked since, nor since it has stated an earlier deletion | what the Source serves |
//! | 4 | a deletion is stated that is not older, or a newer list lacks what a change states; the Source was not asked since | what the Source serves |
//! | 5 | a hub has stated its deletion, and the Source does not serve it | removal |
//! | 6 | only what the Source has denied is stated | nothing; a file without a record is removed |
//! | 7 | it is gone | removal; held, or asked for first, where the policy says so |
//! | 8 | it exists | a download, unless the mirror has it |
//! | 9 | it exists, and its entry states nothing of the content | a request, if its time has come |
//!
//! Invariants: the answer is final, nobody overrides it; a removal needs a deletion that the Source has stated, or its answer; what a hub
//! states is never content, time or digest of a file.
//!
//! Must not know URIs, paths, SQL or a clock.

use resourcesync::{ChangeKind, SourceTime};

use super::recorded_file::{ContentMatch, RecordedFile};
use super::statement::{Entry, Revision, SetKey, Stated, Statement, Voice};

/// What the Source has answered to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A representation.
    Served,
    /// That it has none.
    Absent,
}

/// What the mirror has of a resource, and what the Source has answered.
#[derive(Clone, Copy, Debug, Default)]
pub struct Record<'a> {
    /// The file; `None`: the mirror has none. One in doubt may be another than is recorded.
    pub file: Option<RecordedFile<'a>>,
    /// Whether there may be a file without a record.
    pub may_have_file: bool,
    /// The last answer, and the statements that were known when it was asked for.
    pub answer: Option<(Answer, Revision)>,
    /// The statements that were known when the file was fetched, or found to be what is served.
    pub fetched: Revision,
}

/// What is known of a set that states something.
#[derive(Clone, Copy, Debug, Default)]
pub struct SetFacts {
    /// Whether it is followed.
    pub is_followed: bool,
    /// The time of its newest list.
    pub list_at: Option<SourceTime>,
    /// The time up to which its documents have been read.
    pub read_until: Option<SourceTime>,
    /// Until when every change is known.
    pub unbroken: Option<SourceTime>,
}

/// What is to become of a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// It may be executed.
    Released,
    /// Its document has not ended.
    Undecided,
    /// So many are removed at once that a person must approve.
    Held,
}

/// What decides beside statements and record.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// Whether the resource is selected.
    pub is_selected: bool,
    /// What is to become of its removal.
    pub guard: Guard,
    /// Whether another followed set was never read completely, and its removal has not waited for that for a day.
    pub awaits_set: bool,
    /// Whether it may be asked for though nothing states that it has changed.
    pub may_check: bool,
}

/// What a missing representation means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// The request has failed.
    Fails,
    /// That is the answer.
    Answers,
}

/// What the mirror is to do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Desired<'a> {
    /// Nothing.
    Settled,
    /// To fetch what is stated.
    Fetch {
        /// What is fetched.
        stated: &'a Statement,
        /// Whether the bytes must be those; else what the Source serves counts.
        verifies: bool,
        /// What a missing representation means.
        absence: Absence,
    },
    /// To ask whether the Source serves it; the file stays.
    Ask,
    /// To remove the file.
    Remove,
    /// To keep the file until the guard releases its removal.
    Hold(Guard),
}

/// The decision of one resource.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision<'a> {
    /// What the mirror is to do.
    pub desired: Desired<'a>,
    /// The row that has decided.
    pub row: u8,
    /// From when on the mirror is behind, while that is not done; the inner `None`: from any time. Of what is settled there is none.
    pub behind: Option<Option<SourceTime>>,
}

/// Decides of one resource. `set` returns what is known of a set that states something.
pub fn decide<'a>(
    statements: &'a [Statement],
    set: impl Fn(SetKey) -> SetFacts,
    record: &Record<'_>,
    policy: &Policy,
) -> Decision<'a> {
    let facts = Facts {
        live: statements
            .iter()
            .filter(|statement| set(statement.entry.set).is_followed)
            .collect(),
        set,
        record,
        policy,
    };
    facts.decide()
}

struct Facts<'a, 'r, F> {
    /// The statements of followed sets.
    live: Vec<&'a Statement>,
    set: F,
    record: &'r Record<'r>,
    policy: &'r Policy,
}

impl<'a, F: Fn(SetKey) -> SetFacts> Facts<'a, '_, F> {
    fn decide(&self) -> Decision<'a> {
        let exists = self.newest_existence();
        let gone = self.newest_absence();
        let hub = self.open_claim();
        if exists.is_none() && gone.is_none() && hub.is_none() {
            return self.nothing_is_stated(1, None);
        }
        if exists.is_some() && !self.policy.is_selected {
            return settled(2);
        }
        let may_be_here = self.record.file.is_some() || self.record.may_have_file;
        if let Some(claim) = hub {
            let asks = claim.exists() && self.answer_since(claim.revision).is_none();
            let deleted = gone.filter(|_| exists.is_none());
            if self.answer_to(claim, deleted).is_none() && (asks || may_be_here) {
                return fetch(3, claim, false, Absence::Answers, claim.entry.at);
            }
        }
        let mut winner = exists;
        if let Some(existing) = exists
            && let Some((contradicted, behind)) = self.contradiction(existing)
        {
            match self.answer_since(contradicted) {
                Some(Answer::Served) => {}
                Some(Answer::Absent) => winner = None,
                None => {
                    let verifies =
                        self.record.file.is_none() && !existing.entry.content.hashes.is_empty();
                    return fetch(4, existing, verifies, Absence::Answers, behind);
                }
            }
        }
        if let Some(claim) = hub
            && !claim.exists()
            && self.answer_to(claim, None) == Some(Answer::Absent)
            && winner.is_none_or(|winner| self.answer_since(winner.revision).is_some())
        {
            return self.removal(5, claim, false);
        }
        // The Source serves what only a hub has stated since.
        let served = hub.filter(|claim| {
            let is_later = gone.is_none_or(|gone| gone.entry.at <= claim.entry.at);
            let is_served = self.answer_to(claim, gone) == Some(Answer::Served);
            claim.exists() && is_later && is_served
        });
        match (winner.or(served), gone) {
            (Some(winner), _) => self.existence(winner, hub),
            (None, Some(gone)) if gone.is_rejected => settled(7),
            (None, Some(gone)) => {
                let is_denied = self.answer_since(gone.revision) == Some(Answer::Absent);
                self.removal(7, gone, self.policy.awaits_set && !is_denied)
            }
            (None, None) => self.nothing_is_stated(6, exists),
        }
    }

    /// The newest statement that it exists: a document's, or else a link's.
    fn newest_existence(&self) -> Option<&'a Statement> {
        let newest = |voice| {
            let existing = self
                .live
                .iter()
                .filter(|s| s.exists() && s.entry.voice == voice);
            existing.max_by_key(|s| (s.entry.at, s.revision)).copied()
        };
        newest(Voice::Source).or_else(|| newest(Voice::Link))
    }

    /// The newest statement of a document that it is gone.
    fn newest_absence(&self) -> Option<&'a Statement> {
        let of_source = self.live.iter().filter(|s| s.entry.voice == Voice::Source);
        let gone = of_source.filter(|s| !s.exists());
        gone.max_by_key(|s| (s.until(), s.revision)).copied()
    }

    /// The newest statement of a hub. It counts until the Source's own documents cover its time: they have confirmed it by then, or
    /// refuted it.
    fn open_claim(&self) -> Option<&'a Statement> {
        let claims = self.live.iter().filter(|s| {
            let latest = s.entry.at.map(SourceTime::latest_possible);
            let set = (self.set)(s.entry.set);
            s.entry.voice == Voice::Hub && latest >= set.read_until.max(set.list_at)
        });
        claims.max_by_key(|s| (s.entry.at, s.revision)).copied()
    }

    /// The answer of the Source, if it was asked since these statements are known.
    fn answer_since(&self, revision: Revision) -> Option<Answer> {
        let answer = self.record.answer.filter(|(_, asked)| *asked >= revision);
        answer.map(|(answer, _)| answer)
    }

    /// The answer of the Source to what a hub has stated. If its documents state an earlier deletion, it must have been asked since: what
    /// it has served before may be what it has deleted.
    fn answer_to(&self, claim: &Statement, gone: Option<&Statement>) -> Option<Answer> {
        let earlier = gone.filter(|gone| gone.entry.at <= claim.entry.at);
        let deleted = earlier.map_or(claim.revision, |gone| gone.revision);
        self.answer_since(claim.revision.max(deleted))
    }

    /// What contradicts that a resource exists: the revision of the newest of both statements, and from when on the mirror is behind.
    /// Absence from the list of another set is no contradiction: it only ends a membership.
    fn contradiction(&self, existing: &Statement) -> Option<(Revision, Option<SourceTime>)> {
        let deletions = self.live.iter().filter(|s| {
            let is_deletion = s.entry.stated == Stated::Change(ChangeKind::Deleted);
            is_deletion && s.entry.voice == Voice::Source && s.until() >= existing.until()
        });
        let deletion = deletions.max_by_key(|s| (s.until(), s.revision));
        let Entry { set, voice, at, .. } = existing.entry;
        let is_unlisted = voice == Voice::Source
            && existing.is_change()
            && existing.listed.is_none()
            && at.is_some()
            && existing.until() < (self.set)(set).list_at;
        let behind = match deletion {
            _ if is_unlisted => at,
            Some(deletion) => self.as_claimed(set, deletion.entry.at),
            None => return None,
        };
        let deleted = deletion.map_or(existing.revision, |deletion| deletion.revision);
        Some((existing.revision.max(deleted), behind))
    }

    /// A time that was claimed already: the claim is not lowered, and does not advance.
    fn as_claimed(&self, set: SetKey, at: Option<SourceTime>) -> Option<SourceTime> {
        at.max((self.set)(set).unbroken)
    }

    /// Nobody states anything, or only what the Source has denied.
    fn nothing_is_stated(&self, row: u8, denied: Option<&Statement>) -> Decision<'a> {
        if !self.record.may_have_file {
            return settled(row);
        }
        let behind = denied.and_then(|denied| self.as_claimed(denied.entry.set, None));
        decision(row, Desired::Remove, behind)
    }

    fn removal(&self, row: u8, of: &Statement, asks_first: bool) -> Decision<'a> {
        if self.record.file.is_none() && !self.record.may_have_file {
            return settled(row);
        }
        let desired = match self.policy.guard {
            Guard::Released if asks_first => Desired::Ask,
            Guard::Released => Desired::Remove,
            guard @ (Guard::Undecided | Guard::Held) => Desired::Hold(guard),
        };
        decision(row, desired, of.entry.at)
    }

    /// It exists.
    fn existence(&self, winner: &'a Statement, hub: Option<&Statement>) -> Decision<'a> {
        let at = winner.entry.at;
        // What the Source has answered because of a hub may have been what is stated now already.
        let may_be_here = at.is_some() && hub.is_some_and(|hub| hub.entry.at >= at);
        let unbroken = (self.set)(winner.entry.set).unbroken;
        let behind = if may_be_here {
            at.max(unbroken)
        } else if winner.is_change() {
            at
        } else {
            // A list was claimed to hold only what its own time says.
            unbroken.map(|unbroken| at.map_or(unbroken, |at| at.min(unbroken)))
        };
        let verifies = !may_be_here && winner.entry.content.is_verifiable();
        let missing = fetch(8, winner, verifies, Absence::Fails, behind);
        let Some(file) = self.record.file.filter(|file| !file.is_doubted) else {
            return missing;
        };
        if winner.content_revision > self.record.fetched
            && file.compare(&winner.entry.content) != ContentMatch::Same
        {
            return missing;
        }
        if self.policy.may_check {
            return fetch(9, winner, false, Absence::Fails, behind);
        }
        settled(8)
    }
}

fn settled<'a>(row: u8) -> Decision<'a> {
    Decision {
        desired: Desired::Settled,
        row,
        behind: None,
    }
}

fn decision<'a>(row: u8, desired: Desired<'a>, behind: Option<SourceTime>) -> Decision<'a> {
    Decision {
        desired,
        row,
        behind: Some(behind),
    }
}

fn fetch<'a>(
    row: u8,
    stated: &'a Statement,
    verifies: bool,
    absence: Absence,
    behind: Option<SourceTime>,
) -> Decision<'a> {
    let desired = Desired::Fetch {
        stated,
        verifies,
        absence,
    };
    decision(row, desired, behind)
}

#[cfg(test)]
mod tests;
