//! Decides what the mirror is to do with one resource: from what all followed sets state of it, what the mirror has, and what the Source
//! has answered.
//!
//! Rows of the decision, of which the first that fits counts:
//!
//! | row | when | what |
//! |---|---|---|
//! | 1 | no followed set states anything | nothing; a file without a record is removed |
//! | 2 | a hub states something, and the Source was not asked since, nor since it has stated an earlier deletion | a request: what the Source serves counts, and is compared with what the hub states first |
//! | 3 | a deletion is stated that is not older; the Source was not asked since | what the Source serves, or whether it does if the deletion was stated last |
//! | 4 | a newer list lacks what a change states; the Source was not asked since | what the Source serves |
//! | 5 | a hub has stated its deletion, and the Source does not serve it | removal |
//! | 6 | only what the Source has denied is stated | nothing; a file without a record is removed |
//! | 7 | it is gone | removal, unless a person has rejected that, or the Source has served it since, asked for a hub |
//! | 8 | it exists | a download, unless the mirror has it |
//! | 9 | it exists, and its entry states nothing of the content | a request, if its time has come |
//!
//! Whether many removals at once wait for a person, and whether the configuration selects what is to be fetched, are not questions of one
//! resource's statements: who executes the decision asks them.
//!
//! Invariants: the answer is final, nobody overrides it; a removal needs a deletion that the Source has stated, or its answer; what a hub
//! states has the Source asked, and is never the time or digest of a file.
//!
//! Must not know URIs, paths, SQL or a clock.

use std::cmp::Reverse;

use resourcesync::{ChangeKind, Interval, SourceTime};

use super::recorded_file::{ContentMatch, RecordedFile};
use super::statement::{Entry, Revision, SetKey, Stated, Statement, Voice};

/// What the Source has answered to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The representation that the mirror has, or has now.
    Served,
    /// Another representation than the mirror has.
    Changed,
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
    /// Whether a request for it may be in progress: there may be a file in a moment.
    pub is_requested: bool,
    /// The time of what the file is.
    pub at: Option<SourceTime>,
    /// Whether the Source has stated a digest of it.
    pub is_verified: bool,
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
    /// The time of which its changes have been read, without a hole, beside what its newest list covers.
    pub read: Option<Interval>,
    /// Until when every change is known.
    pub unbroken: Option<SourceTime>,
}

impl SetFacts {
    /// Whether the documents of the set cover a time, which may be as late as `latest`.
    fn covers(&self, at: Option<SourceTime>, latest: Option<SourceTime>) -> bool {
        let is_read = self
            .read
            .is_some_and(|read| at >= Some(read.from()) && latest < Some(read.until()));
        latest.is_some() && (latest < self.list_at || is_read)
    }
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
        /// Whether the bytes must be those, as far as they are stated; else what the Source serves counts.
        verifies: bool,
        /// What a missing representation means.
        absence: Absence,
    },
    /// To ask whether the Source serves it: if not, to remove the file.
    Ask {
        /// What states that it is gone.
        stated: &'a Statement,
    },
    /// To remove the file.
    Remove {
        /// What states that it is gone; `None`: nobody states that it exists.
        stated: Option<&'a Statement>,
    },
}

/// The decision of one resource.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision<'a> {
    /// What the mirror is to do.
    pub desired: Desired<'a>,
    /// The row that has decided.
    pub row: u8,
    /// From when on the mirror is behind, while that is not done; `None`: from any time. Without a meaning for what is settled.
    pub behind: Option<SourceTime>,
}

/// Decides of one resource. `set` returns what is known of a set that states something; `may_check`: whether the resource may be asked for
/// though nothing states that it has changed.
pub fn decide<'a>(
    statements: &'a [Statement],
    set: impl Fn(SetKey) -> SetFacts,
    record: &Record<'_>,
    may_check: bool,
) -> Decision<'a> {
    Facts::new(statements, set, record, may_check).decide()
}

/// From when on the mirror is behind, while what is to be done is not done, because of a change that comes after a later one.
pub fn behind_of_older(
    statements: &[Statement],
    facts: impl Fn(SetKey) -> SetFacts,
    record: &Record<'_>,
    (set, at): (SetKey, Option<SourceTime>),
) -> Option<SourceTime> {
    Facts::new(statements, facts, record, false).behind_of(set, at)
}

struct Facts<'a, 'r, F> {
    /// The statements of followed sets.
    live: Vec<&'a Statement>,
    set: F,
    record: &'r Record<'r>,
    may_check: bool,
}

impl<'a, 'r, F: Fn(SetKey) -> SetFacts> Facts<'a, 'r, F> {
    fn new(statements: &'a [Statement], set: F, record: &'r Record<'r>, may_check: bool) -> Self {
        let is_followed = |it: &&Statement| set(it.entry.set).is_followed;
        Self {
            live: statements.iter().filter(is_followed).collect(),
            set,
            record,
            may_check,
        }
    }

    fn decide(&self) -> Decision<'a> {
        let exists = self.newest_existence();
        let gone = self.newest_absence();
        let hub = self.open_claim();
        if exists.is_none() && gone.is_none() && hub.is_none() {
            return self.nothing_is_stated(1, None);
        }
        let may_be_here = self.record.file.is_some() || self.record.may_have_file;
        // Its own entry counts where the Source has stated the same.
        let is_confirmed = |claim: &&Statement| self.is_confirmed(claim);
        let (claimed, hub) = (hub, hub.filter(|claim| !is_confirmed(claim)));
        if let Some(claim) = hub {
            let asks = claim.exists() && self.answer_since(claim.revision).is_none();
            let deleted = gone.filter(|_| exists.is_none());
            let answer = self.answer_to(claim, deleted);
            // The Source does not serve it, and what the mirror has may be an earlier version.
            let is_denied = answer == Some(Answer::Absent)
                && claim.exists()
                && gone.is_none()
                && self.record.file.is_some();
            if is_denied || answer.is_none() && (asks || may_be_here) {
                let behind = if !is_denied && self.answer_since(claim.revision).is_some() {
                    // It was claimed before that this was applied.
                    self.as_claimed(claim.entry.set, claim.entry.at)
                } else {
                    // What the documents state may be to be done yet.
                    let of_documents = exists
                        .or(gone)
                        .map(|_| self.decide_beside((exists, gone), (None, None)))
                        .filter(|it| it.desired != Desired::Settled);
                    of_documents.map_or(claim.entry.at, |it| it.behind.min(claim.entry.at))
                };
                return if claim.exists() {
                    fetch(2, claim, true, Absence::Answers, behind)
                } else {
                    decision(2, Desired::Ask { stated: claim }, behind)
                };
            }
        }
        self.decide_beside((exists, gone), (claimed, hub))
    }

    /// Rows 3 to 9, of the newest existence and absence. `claimed`: what a hub has stated, for which the Source need not be asked; `hub`:
    /// the same, if the documents do not confirm it.
    fn decide_beside(
        &self,
        (exists, gone): (Option<&'a Statement>, Option<&'a Statement>),
        (claimed, hub): (Option<&'a Statement>, Option<&'a Statement>),
    ) -> Decision<'a> {
        let mut winner = exists;
        if let Some(existing) = exists
            && let Some(deletion) = self.contradiction(existing)
        {
            match self.answer_since(existing.revision.max(deletion.revision)) {
                Some(Answer::Served | Answer::Changed) => {}
                Some(Answer::Absent) => winner = None,
                None => {
                    let behind = self.as_claimed(existing.entry.set, deletion.entry.at);
                    if existing.revision > deletion.revision {
                        let verifies = self.record.file.is_none();
                        return fetch(3, existing, verifies, Absence::Answers, behind);
                    }
                    return decision(3, Desired::Ask { stated: deletion }, behind);
                }
            }
        }
        if let Some(existing) = winner.filter(|winner| self.is_unlisted(winner)) {
            match self.answer_since(existing.revision) {
                Some(Answer::Served | Answer::Changed) => {}
                Some(Answer::Absent) => winner = None,
                None => {
                    let verifies = self.record.file.is_none();
                    let behind = existing.entry.at;
                    return fetch(4, existing, verifies, Absence::Answers, behind);
                }
            }
        }
        if let Some(claim) = hub
            && !claim.exists()
            && self.answer_to(claim, None) == Some(Answer::Absent)
            && winner.is_none_or(|winner| self.answer_since(winner.revision).is_some())
        {
            return self.removal(5, claim);
        }
        // The Source serves what only a hub has stated since, or another file than the one whose deletion it has stated.
        let served = hub.filter(|claim| {
            let is_later = gone.is_none_or(|gone| gone.entry.at <= claim.entry.at);
            let answer = self.answer_to(claim, gone);
            let is_served = match answer {
                Some(Answer::Served) => claim.exists(),
                Some(Answer::Changed) => true,
                Some(Answer::Absent) | None => false,
            };
            is_later && is_served
        });
        match (winner.or(served), gone) {
            (Some(winner), _) => self.existence(winner, claimed),
            (None, Some(gone)) if gone.is_rejected => settled(7),
            (None, Some(gone)) => {
                // The Source has served it since, as it was asked because of a hub.
                let was_served = claimed.is_some_and(|claim| {
                    let answer = self.answer_since(claim.revision);
                    let is_served = answer.is_some_and(|answer| answer != Answer::Absent);
                    // The documents confirm what it states.
                    let is_same = !claim.exists() && claim.entry.at == gone.entry.at;
                    is_served && claim.entry.at >= gone.entry.at && !is_same
                });
                if was_served && self.record.file.is_some() {
                    settled(7)
                } else {
                    self.removal(7, gone)
                }
            }
            (None, None) => self.nothing_is_stated(6, exists.or(claimed)),
        }
    }

    /// The newest statement that it exists: a document's, or else a link's.
    fn newest_existence(&self) -> Option<&'a Statement> {
        // The set of a link may have stated since that it is gone.
        let is_deleted = |link: &Statement| {
            self.live.iter().any(|s| {
                let is_deletion = s.entry.stated == Stated::Change(ChangeKind::Deleted);
                let is_of_set = s.entry.voice_in_set() == (link.entry.set, Voice::Source);
                let is_later = match link.until() {
                    Some(until) => (s.until(), s.revision) > (Some(until), link.revision),
                    None => s.revision > link.revision,
                };
                is_deletion && is_of_set && !s.is_rejected && is_later
            })
        };
        let newest = |voice| {
            let existing = self.live.iter().filter(|s| {
                let counts = voice != Voice::Link || !is_deleted(s);
                s.exists() && s.entry.voice == voice && counts
            });
            // What several sets state of one time counts as the first one has stated it, unless a later one states other content.
            let order = |s: &&&Statement| {
                let at = s.entry.at.or(s.listed);
                (at, s.content_revision, Reverse(s.revision))
            };
            existing.max_by_key(order).copied()
        };
        newest(Voice::Source).or_else(|| newest(Voice::Link))
    }

    /// The newest statement that it is gone, of a document or a link.
    fn newest_absence(&self) -> Option<&'a Statement> {
        let newest = |voice| {
            let gone = self.live.iter().filter(|s| s.entry.voice == voice);
            let gone = gone.filter(|s| !s.exists());
            gone.max_by_key(|s| (s.until(), s.revision)).copied()
        };
        match (newest(Voice::Source), newest(Voice::Link)) {
            // It has existed by the link since.
            (Some(source), Some(link)) if link.revision < source.revision => Some(source),
            (source, link) => link.or(source),
        }
    }

    /// The newest statement of a hub. It counts until the Source's own documents cover its time: they have confirmed it by then, or
    /// refuted it.
    fn open_claim(&self) -> Option<&'a Statement> {
        let claims = self.live.iter().filter(|s| {
            let latest = s.entry.at.map(SourceTime::latest_possible);
            let is_open = !(self.set)(s.entry.set).covers(s.entry.at, latest);
            s.entry.voice == Voice::Hub && is_open
        });
        claims.max_by_key(|s| (s.entry.at, s.revision)).copied()
    }

    /// Whether the documents of its set state what a hub has stated.
    fn is_confirmed(&self, claim: &Statement) -> bool {
        self.live.iter().any(|s| {
            let is_of_set = s.entry.voice_in_set() == (claim.entry.set, Voice::Source);
            let is_dated = s.entry.at.is_some() && s.entry.at == claim.entry.at;
            is_of_set && is_dated && s.exists() == claim.exists() && !s.states_other(&claim.entry)
        })
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

    /// The deletion that contradicts that a resource exists. Absence from the list of another set is no contradiction: it only ends a
    /// membership.
    fn contradiction(&self, existing: &Statement) -> Option<&'a Statement> {
        let deletions = self.live.iter().filter(|s| {
            let is_deletion = s.entry.stated == Stated::Change(ChangeKind::Deleted);
            // A set that has never named the resource ends nothing.
            let had_named = s.content_revision < s.revision;
            let counts = s.entry.voice == Voice::Source && !s.is_rejected && had_named;
            is_deletion && counts && s.until() >= existing.until()
        });
        deletions.max_by_key(|s| (s.until(), s.revision)).copied()
    }

    /// Whether the newest list of the set lacks what an earlier change states.
    fn is_unlisted(&self, existing: &Statement) -> bool {
        let Entry { set, voice, at, .. } = existing.entry;
        voice == Voice::Source
            && existing.is_change()
            && existing.listed.is_none()
            && at.is_some()
            && existing.until() < (self.set)(set).list_at
    }

    /// Whether nothing is left to do because of what a hub has stated: the Source has answered, and it is not asked for the deletion of what
    /// the mirror does not have.
    fn is_done(&self, claim: &Statement) -> bool {
        let is_without_file = !claim.exists() && self.record.file.is_none();
        is_without_file || self.answer_since(claim.revision).is_some()
    }

    /// A time that was claimed already: the claim is not lowered, and does not advance.
    fn as_claimed(&self, set: SetKey, at: Option<SourceTime>) -> Option<SourceTime> {
        at.max((self.set)(set).unbroken)
    }

    /// What the hub of a set has stated of that time, or of a later one.
    fn claims_since(
        &self,
        set: SetKey,
        at: Option<SourceTime>,
    ) -> impl Iterator<Item = &Statement> {
        let claims = self.live.iter().filter(move |s| {
            s.entry.voice_in_set() == (set, Voice::Hub) && at.is_some() && s.entry.at >= at
        });
        claims.copied()
    }

    /// From when on the mirror is behind because of a change. The claim is not lowered if the mirror may have it already.
    fn behind_of(&self, set: SetKey, at: Option<SourceTime>) -> Option<SourceTime> {
        let Record {
            file, at: recorded, ..
        } = self.record;
        // The hub may have had a file fetched that has no time.
        let is_fetched = file.is_some() && recorded.is_none();
        let may_be_here = file.is_some() && at.is_some() && at <= *recorded
            || (self.claims_since(set, at)).any(|claim| is_fetched || self.is_done(claim));
        if may_be_here {
            self.as_claimed(set, at)
        } else {
            at
        }
    }

    /// The time of what a list reveals: it has happened after the unbroken coverage, or at its own time if that is before.
    fn since_before(&self, set: SetKey, at: Option<SourceTime>) -> Option<SourceTime> {
        let unbroken = (self.set)(set).unbroken;
        unbroken.map(|unbroken| at.map_or(unbroken, |at| at.min(unbroken)))
    }

    /// Nobody states anything, or only what the Source has denied.
    fn nothing_is_stated(&self, row: u8, denied: Option<&Statement>) -> Decision<'a> {
        if self.record.file.is_some() || !self.record.may_have_file {
            return settled(row);
        }
        let behind = denied.and_then(|denied| self.as_claimed(denied.entry.set, None));
        decision(row, Desired::Remove { stated: None }, behind)
    }

    fn removal(&self, row: u8, of: &'a Statement) -> Decision<'a> {
        let Record {
            file,
            may_have_file,
            is_requested,
            ..
        } = self.record;
        if file.is_none() && !may_have_file && !is_requested {
            return settled(row);
        }
        let stated = Some(of);
        let Entry { set, voice, at, .. } = of.entry;
        let behind = match (voice, of.entry.stated) {
            // No document states when a link has ended.
            (Voice::Link, _) => self.as_claimed(set, None),
            (_, Stated::Absent(list)) => self.since_before(set, Some(list)),
            (Voice::Source, Stated::Change(_)) => self.behind_of(set, at),
            (Voice::Hub, _) | (_, Stated::Listed(_)) => at,
        };
        decision(row, Desired::Remove { stated }, behind)
    }

    /// It exists.
    fn existence(&self, winner: &'a Statement, hub: Option<&Statement>) -> Decision<'a> {
        let at = winner.entry.at;
        let may_be_later = at.is_some() && hub.is_some_and(|hub| hub.entry.at > at);
        let set = winner.entry.set;
        let behind = if winner.is_change() {
            self.behind_of(set, at)
        } else if (self.claims_since(set, at)).any(|claim| self.is_done(claim)) {
            self.as_claimed(set, at)
        } else {
            let at = at.filter(|_| at > self.record.at);
            self.since_before(set, at)
        };
        let has_changed = self.answer_since(winner.revision) == Some(Answer::Changed);
        // What is recorded may be computed from bytes that the Source does not serve any more, and what it has served once it may have
        // answered not to have since.
        let was_denied = self.answer_since(winner.revision) == Some(Answer::Absent);
        let is_stated =
            winner.revision > self.record.fetched || self.record.is_verified && !was_denied;
        let verifies = is_stated && !may_be_later && !has_changed;
        let missing = fetch(8, winner, verifies, Absence::Fails, behind);
        let Some(file) = self.record.file.filter(|file| !file.is_doubted) else {
            return missing;
        };
        if has_changed {
            return missing;
        }
        let is_news = winner.content_revision > self.record.fetched;
        // What is proven to be what another set has stated is not what this one does.
        let is_other = match file.compare(&winner.entry.content) {
            ContentMatch::Same => false,
            ContentMatch::Different => is_news || self.record.is_verified,
            ContentMatch::Unknown => is_news,
        };
        if is_other {
            return missing;
        }
        if self.may_check {
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
        behind,
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
