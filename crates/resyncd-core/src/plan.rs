//! Plans what an entry means for the mirror: a task, or nothing.
//!
//! Changes of one resource are ordered by their times. A change that is older than what is known of the resource is ignored.
//! With equal times the later entry of a document wins, and the later of two documents. An entry that is read twice changes
//! nothing: a change that was applied is not fetched again.
//!
//! Invariants: the functions are pure; the store calls them for each entry, in the transaction that commits the result.
//! Absence from a list never deletes what is newer than the list.
//!
//! Must not know how documents are received, nor URIs, paths or SQL.
//!
//! Specification: core, sections 10 (Resource Lists) and 12 (Change Lists); Change Notification 1.0.1, section 3.

use resourcesync::{ChangeKind, ContentInfo, Digest, SourceTime};

use super::recorded_file::{ContentMatch, RecordedFile};

/// What a document states of a resource.
#[derive(Clone, Debug)]
pub struct Announced<'a> {
    /// What happened to it; an entry of a Resource List counts as created.
    pub kind: ChangeKind,
    /// When it happened.
    pub changed_at: Option<SourceTime>,
    /// When its representation was last modified.
    pub lastmod: Option<SourceTime>,
    /// Its representation.
    pub content: &'a ContentInfo,
    /// Whether a later document of that time has been read already: then, with equal times, the later document wins. Without a time:
    /// whether later documents cover the notification that states it.
    pub overtaken: bool,
    /// Whether only a hub states it that is not the Source.
    pub unconfirmed: bool,
}

/// What is known of a resource in the mirror.
#[derive(Clone, Debug, Default)]
pub struct LocalState {
    /// The change that was applied last; `None`: it was an entry of a Resource List, which states no change.
    pub kind: Option<ChangeKind>,
    /// When that change happened.
    pub changed_at: Option<SourceTime>,
    /// The last modification that was stated with it.
    pub lastmod: Option<SourceTime>,
    /// The length of the file, in bytes.
    pub length: Option<u64>,
    /// The digests of the file.
    pub hashes: Vec<Digest>,
    /// Whether it was deleted.
    pub deleted: bool,
    /// Whether the file may be another than the recorded one: then it matches no description.
    pub is_doubted: bool,
    /// Whether only a hub that is not the Source has stated the change. The file is the Source's own answer to a request, but the
    /// time is the hub's: it does not prove that an update which the Source states is older.
    pub unconfirmed: bool,
    /// The latest time of a change that only a hub has stated, and that the Source was asked for: its answer may have shown already
    /// what the Source states of times until then. The answer may also have shown that the hub was wrong.
    pub answered_until: Option<SourceTime>,
}

impl LocalState {
    /// The last moment at which the change may have happened. An entry of a Resource List has the time of that list, and an
    /// entry of a later list is later.
    pub fn latest_change(&self) -> Option<SourceTime> {
        match self.kind {
            Some(_) => self.changed_at.map(SourceTime::latest_possible),
            None => self.changed_at,
        }
    }

    /// What is recorded of the file.
    #[must_use]
    pub fn file(&self) -> RecordedFile<'_> {
        RecordedFile {
            length: self.length,
            hashes: &self.hashes,
            is_doubted: self.is_doubted,
        }
    }
}

/// The pending task of a resource.
#[derive(Clone, Copy, Debug)]
pub struct Pending {
    /// The change that the task applies.
    pub kind: ChangeKind,
    /// When that change happened.
    pub changed_at: Option<SourceTime>,
    /// Whether only a hub that is not the Source has stated it.
    pub unconfirmed: bool,
    /// Whether a Resource List or Resource Dump has stated it: then the time is that of the last modification, and may be long before
    /// that of the list.
    pub is_listed: bool,
}

impl Pending {
    /// Whether the Source itself now states what only a hub has stated: the entry counts then, and not the notification.
    fn is_confirmed_by(&self, announced: &Announced<'_>) -> bool {
        self.unconfirmed
            && !announced.unconfirmed
            && announced.changed_at.is_some()
            && announced.changed_at == self.changed_at
    }

    /// The last moment at which the change may have happened.
    fn latest_change(&self) -> Option<SourceTime> {
        self.changed_at.map(SourceTime::latest_possible)
    }
}

impl LocalState {
    /// Whether its time and that of an announced update can't be compared: one is a hub's, the other the Source's.
    #[must_use]
    pub fn is_unordered(&self, announced: &Announced<'_>) -> bool {
        self.unconfirmed
            && !announced.unconfirmed
            && !self.deleted
            && announced.kind != ChangeKind::Deleted
            && announced.changed_at.is_some()
    }

    /// Whether the Source itself now states the update that only a hub has stated: its entry counts, with its links.
    #[must_use]
    pub fn is_confirmed_by(&self, announced: &Announced<'_>) -> bool {
        self.is_unordered(announced) && announced.changed_at == self.changed_at
    }

    /// Whether what is here may be newer than an announced change: it is not later than what a hub has stated before the Source was
    /// asked. The Source may state it now, or the hub again.
    #[must_use]
    pub fn may_be_newer(&self, announced: &Announced<'_>) -> bool {
        announced.changed_at.is_some() && announced.changed_at <= self.answered_until
    }

    /// Whether a newer list states no other last modification than what is known. An earlier one is another one: a file may have been
    /// restored with its former time, or all times corrected.
    fn has_lastmod_of(&self, listed: &Announced<'_>) -> bool {
        // The time of a change stands for the modification that it does not state.
        let has_change_time = self.kind.is_some() || self.lastmod.is_none();
        listed.lastmod.is_none()
            || listed.lastmod == self.lastmod
            || (has_change_time && listed.lastmod == self.changed_at)
    }

    /// Whether a list of the time `at` names a resource that was deleted because only a hub has stated so, and that was not changed
    /// since, while every change until then is known. `covered`: the end of the unbroken coverage.
    #[must_use]
    pub fn is_refuted_by(
        &self,
        listed: &Announced<'_>,
        at: SourceTime,
        covered: Option<SourceTime>,
    ) -> bool {
        let modified = listed.lastmod.map(SourceTime::latest_possible);
        let is_unchanged = modified.is_some() && modified < self.changed_at;
        self.unconfirmed && self.deleted && is_unchanged && covered > Some(at.latest_possible())
    }

    /// Whether a list of the time `at` does not name a resource that only a hub has stated to exist, while every change until then
    /// is known. `covered`: the end of the unbroken coverage.
    #[must_use]
    pub fn is_refuted_by_absence(&self, at: SourceTime, covered: Option<SourceTime>) -> bool {
        self.unconfirmed && !self.deleted && covered > Some(at.latest_possible())
    }
}

/// What to do with an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Make it the resource's task; it replaces a pending one.
    Task,
    /// It was applied already: drop the pending task, which is not newer.
    Done,
    /// A newer change is known: ignore the entry.
    Older,
}

/// Plans a change from a notification or a Change List.
#[must_use]
pub fn plan_change(
    announced: &Announced<'_>,
    known: Option<&LocalState>,
    pending: Option<&Pending>,
) -> Decision {
    let is_older = |than: Option<SourceTime>| {
        let has_lost =
            announced.overtaken && announced.changed_at.is_some() && announced.changed_at == than;
        has_lost || is_before(announced.changed_at, than)
    };
    let pending = pending.filter(|pending| !pending.is_confirmed_by(announced));
    if pending.is_some_and(|pending| is_older(pending.changed_at)) {
        return Decision::Older;
    }
    if is_listed_since(announced, known, pending) {
        return Decision::Older;
    }
    // A deletion of an unknown resource is a task as well: otherwise an older creation that arrives late would bring it back.
    let Some(known) = known else {
        return Decision::Task;
    };
    let is_unordered = known.is_unordered(announced);
    let deletes = announced.kind == ChangeKind::Deleted;
    let is_older_than_known = match pending.filter(|_| deletes && known.deleted) {
        // What a list states of a deleted resource is newer than the deletion, whatever its time.
        Some(pending) if pending.is_listed => {
            announced.changed_at.is_some() && announced.changed_at <= known.changed_at
        }
        // Another set has stated the applied deletion, if what is pending is older: then this one ends that.
        Some(_) => false,
        None => is_older(known.changed_at),
    };
    if !is_unordered && is_older_than_known {
        return Decision::Older;
    }
    let done = match (announced.kind, known.deleted) {
        (ChangeKind::Deleted, true) => announced.changed_at <= known.changed_at,
        (ChangeKind::Deleted, false) => false,
        (_, true) => false,
        (_, false) => match known.file().compare(announced.content) {
            ContentMatch::Same => {
                announced.changed_at == known.changed_at || announced.changed_at.is_none()
            }
            ContentMatch::Different => false,
            // Only time and kind distinguish one change from another.
            ContentMatch::Unknown => {
                !is_unordered
                    && announced.changed_at.is_some()
                    && announced.changed_at == known.changed_at
                    && known.kind.is_none_or(|kind| kind == announced.kind)
            }
        },
    };
    match pending {
        _ if !done => Decision::Task,
        // Only one of the two has a time: the pending task may be the newer one.
        Some(pending) if pending.changed_at.is_some() != announced.changed_at.is_some() => {
            Decision::Older
        }
        _ => Decision::Done,
    }
}

/// Whether a Resource List states what an update without a time has left, because documents were read that are later than its own: the
/// representation that it describes may be gone.
fn is_listed_since(
    announced: &Announced<'_>,
    known: Option<&LocalState>,
    pending: Option<&Pending>,
) -> bool {
    let is_update = announced.kind != ChangeKind::Deleted;
    let is_listed = match (pending, known) {
        (Some(pending), _) => pending.is_listed && pending.kind != ChangeKind::Deleted,
        (None, Some(known)) => known.kind.is_none() && !known.deleted,
        (None, None) => false,
    };
    is_update && announced.changed_at.is_none() && announced.overtaken && is_listed
}

/// What an entry means whose time was covered before its document was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LateChange {
    /// It was known, or something newer is.
    Known,
    /// It is newer than what is known, and states what the mirror has: older entries of its resource are no news either.
    Same,
    /// It has appeared late: it is newer than what is known of its resource, or nothing is.
    News,
    /// It ends what a list states of the same time: see [`ends_listed`].
    Ends,
}

/// Plans an entry whose time was covered before. `listed_at`: the time of the newest Resource List that names its resource:
/// that states the resource, too, and a change before it is news only if it brings other content of a later modification.
#[must_use]
pub fn plan_late(
    announced: &Announced<'_>,
    known: Option<&LocalState>,
    pending: Option<&Pending>,
    listed_at: Option<SourceTime>,
) -> LateChange {
    let deletes = announced.kind == ChangeKind::Deleted;
    let is_known = |changed_at: Option<SourceTime>| announced.changed_at <= changed_at;
    let pending = pending.filter(|pending| !pending.is_confirmed_by(announced));
    // What has no time can't be distinguished from what was read before.
    if announced.changed_at.is_none()
        || pending
            .is_some_and(|pending| pending.changed_at.is_none() || is_known(pending.changed_at))
    {
        return LateChange::Known;
    }
    // It is older than the change, and would be applied.
    let is_overtaking =
        pending.is_some_and(|pending| !deletes || pending.kind != ChangeKind::Deleted);
    let Some(known) = known else {
        return if deletes && !is_overtaking {
            LateChange::Same
        } else {
            LateChange::News
        };
    };
    let is_unordered = known.is_unordered(announced);
    // As in `plan_change`.
    let is_listed = pending.is_some_and(|pending| pending.is_listed);
    let ends_pending = deletes && known.deleted && is_overtaking && !is_listed;
    if !is_unordered && !ends_pending && is_known(known.changed_at) {
        return LateChange::Known;
    }
    let latest = announced.changed_at.map(SourceTime::latest_possible);
    let was_listed = !known.deleted && listed_at.is_some() && latest < listed_at;
    let is_modified_later = match (announced.lastmod, known.lastmod) {
        (Some(announced), Some(known)) => Some(known < announced),
        _ => None,
    };
    match (deletes, known.deleted) {
        (true, true) if is_overtaking => LateChange::News,
        (true, true) => LateChange::Same,
        (true, false) if was_listed => LateChange::Known,
        (true, false) | (false, true) => LateChange::News,
        (false, false) => match known.file().compare(announced.content) {
            ContentMatch::Same if is_overtaking || known.is_confirmed_by(announced) => {
                LateChange::News
            }
            ContentMatch::Same => LateChange::Same,
            _ if !was_listed => LateChange::News,
            ContentMatch::Different if known.changed_at.is_none() => LateChange::Known,
            ContentMatch::Different if is_modified_later.unwrap_or(true) => LateChange::News,
            ContentMatch::Unknown if is_modified_later == Some(true) => LateChange::News,
            ContentMatch::Different | ContentMatch::Unknown => LateChange::Known,
        },
    }
}

/// Whether a deletion that a Change Set states ends what is known, or pending, by a Sitemap only, of a resource that was modified last at
/// the same time. The draft of version 0.1 has both in its examples: the Change Set alone states what has happened then.
#[must_use]
pub fn ends_listed(
    announced: &Announced<'_>,
    known: Option<&LocalState>,
    pending: Option<&Pending>,
) -> bool {
    if announced.kind != ChangeKind::Deleted || announced.changed_at.is_none() {
        return false;
    }
    match (pending, known) {
        (Some(pending), _) => {
            let exists = pending.kind != ChangeKind::Deleted;
            pending.is_listed && exists && pending.changed_at == announced.changed_at
        }
        (None, Some(known)) => {
            let is_listed = known.kind.is_none() && !known.deleted;
            is_listed && known.lastmod == announced.changed_at
        }
        (None, None) => false,
    }
}

/// Plans an entry of a Resource List of the time `at`. A task that comes from an earlier list is not passed as `pending`: the
/// newer list replaces it. `is_own`: whether the set of the list has announced what is known. Another set may state another last
/// modification: then only a later one is news.
#[must_use]
pub fn plan_listed(
    announced: &Announced<'_>,
    at: SourceTime,
    known: Option<&LocalState>,
    pending: Option<&Pending>,
    is_own: bool,
) -> Decision {
    let update = pending.filter(|pending| pending.kind != ChangeKind::Deleted);
    // An entry that is dated later than what is known is news, whatever time the list states for itself.
    let is_newer = |changed_at: Option<SourceTime>, latest: Option<SourceTime>| {
        latest.is_some_and(|latest| latest >= at) && announced.changed_at <= changed_at
    };
    if pending.is_some_and(|pending| is_newer(pending.changed_at, pending.latest_change()))
        || update.is_some_and(|update| is_before(announced.lastmod, update.changed_at))
    {
        return Decision::Older;
    }
    let Some(known) = known else {
        return Decision::Task;
    };
    if is_newer(known.changed_at, known.latest_change()) {
        return Decision::Older;
    }
    if known.deleted {
        return Decision::Task;
    }
    let (same, proven) = match known.file().compare(announced.content) {
        ContentMatch::Same => (true, true),
        ContentMatch::Different => (false, true),
        ContentMatch::Unknown if is_own => (known.has_lastmod_of(announced), false),
        ContentMatch::Unknown => {
            let seen = known.lastmod.max(known.changed_at);
            let is_later = announced.lastmod > seen;
            (!is_later, false)
        }
    };
    match update {
        _ if !same => Decision::Task,
        // A pending update is dropped only if it is older for certain, and the listed content is in the mirror.
        Some(update) if !proven || update.changed_at.is_none() => Decision::Older,
        // A pending deletion is older than the list, and the list names the resource: it exists.
        _ => Decision::Done,
    }
}

/// Plans the fetch of a resource that a link of another one's entry names, and that no document names itself. `is_new`: whether the entry
/// did not name it before; `is_listed`: whether the entry is one of a Resource List. [`Decision::Done`]: the mirror has it or will have it,
/// and a pending deletion is dropped. [`Decision::Older`]: it was deleted since.
#[must_use]
pub fn plan_linked(
    named: &Announced<'_>,
    known: Option<&LocalState>,
    pending: Option<&Pending>,
    is_new: bool,
    is_listed: bool,
) -> Decision {
    let live = known.filter(|known| !known.deleted);
    let is_verifiable = named.content.is_verifiable();
    match pending {
        // A change states that it was deleted. Without a time, the deletion follows from links that are no more.
        Some(pending) if pending.kind == ChangeKind::Deleted => {
            let is_stated = pending.changed_at.is_some();
            if is_stated && (!is_new || named.changed_at < pending.changed_at) {
                return Decision::Older;
            }
        }
        // It is not requested yet, and many entries may name it.
        Some(_) if is_listed && !is_verifiable => return Decision::Done,
        Some(pending) if named.changed_at < pending.changed_at => return Decision::Done,
        Some(_) => return Decision::Task,
        None => {}
    }
    let Some(live) = live else {
        // Only a later entry, or another one, restores what was deleted.
        let is_older = known.is_some_and(|known| named.changed_at <= known.changed_at);
        return if is_older && !is_new {
            Decision::Older
        } else {
            Decision::Task
        };
    };
    let seen = live.lastmod.max(live.changed_at);
    let is_ordered = !live.is_unordered(named) && !live.is_doubted;
    match live.file().compare(named.content) {
        ContentMatch::Same => Decision::Done,
        // Of two entries the later one counts.
        ContentMatch::Different if is_ordered && is_before(named.changed_at, seen) => {
            Decision::Done
        }
        ContentMatch::Unknown if is_ordered && named.changed_at <= seen => Decision::Done,
        ContentMatch::Different | ContentMatch::Unknown => Decision::Task,
    }
}

/// Whether absence from a Resource List of the time `at` proves that a resource was deleted. As for [`plan_listed`], a task
/// that comes from an earlier list is not passed as `pending`.
#[must_use]
pub fn plan_absent(at: SourceTime, known: Option<&LocalState>, pending: Option<&Pending>) -> bool {
    let older = |changed_at: Option<SourceTime>| changed_at.is_none_or(|changed| changed < at);
    known.is_none_or(|known| older(known.latest_change()))
        && pending.is_none_or(|pending| match pending.latest_change() {
            Some(changed) => changed < at,
            // The pending change may be newer than the list; unless it is a deletion, the resource exists then.
            None => pending.kind == ChangeKind::Deleted,
        })
}

/// Whether so many deletions at once, of a set that had `resources`, need the approval of a person: more than `few`, and more than
/// `max_share` of the resources.
#[must_use]
#[allow(
    clippy::cast_precision_loss,
    reason = "a share of a set need not be exact to the last resource of 2^52"
)]
pub fn needs_approval(deletions: u64, resources: u64, few: u64, max_share: f64) -> bool {
    deletions > few && deletions as f64 > resources as f64 * max_share
}

/// Whether both times are known and the first one is earlier.
fn is_before(time: Option<SourceTime>, than: Option<SourceTime>) -> bool {
    matches!((time, than), (Some(time), Some(than)) if time < than)
}

#[cfg(test)]
mod tests;
