//! What a change means for the mirror: fetch, remove, or nothing. Pure: the store asks for each entry, within the
//! transaction that keeps the answer.
//!
//! Order within one resource is kept by the time of change. What is older than what the resource already has is dropped;
//! with equal times the later entry of the document wins, and the later one of two documents. Looking twice costs nothing: what was applied already is not
//! fetched again.

use crate::protocol::{ChangeKind, Digest, SourceTime};

/// What a document tells of a resource.
#[derive(Clone, Debug)]
pub struct Announced<'a> {
    /// What happened to it; an entry of a Resource List counts as created.
    pub kind: ChangeKind,
    /// When it happened.
    pub changed_at: Option<SourceTime>,
    /// When its representation was last modified.
    pub lastmod: Option<SourceTime>,
    /// The length of its representation, in bytes.
    pub length: Option<u64>,
    /// The digests of its representation.
    pub hashes: &'a [Digest],
    /// Whether what happened at that time has been told by a later document already: then, with equal times, that counts.
    pub late: bool,
}

/// What the mirror has of a resource.
#[derive(Clone, Debug, Default)]
pub struct LocalState {
    /// What the change was that was applied last; `None`: a Resource List told of it, not of how it came about.
    pub kind: Option<ChangeKind>,
    /// When the change happened that was applied last.
    pub changed_at: Option<SourceTime>,
    /// The last modification that was told with it.
    pub lastmod: Option<SourceTime>,
    /// The length of the file, in bytes.
    pub length: Option<u64>,
    /// The digests of the file.
    pub hashes: Vec<Digest>,
    /// Whether it was deleted.
    pub deleted: bool,
}

impl LocalState {
    /// The last moment at which the change may have happened. What a Resource List told is of the time of that list, and
    /// what a later one tells is later.
    fn latest_change(&self) -> Option<SourceTime> {
        match self.kind {
            Some(_) => self.changed_at.map(SourceTime::latest_possible),
            None => self.changed_at,
        }
    }
}

/// A task for the resource that is not done yet.
#[derive(Clone, Copy, Debug)]
pub struct Pending {
    /// What the task is about.
    pub kind: ChangeKind,
    /// When that change happened.
    pub changed_at: Option<SourceTime>,
}

impl Pending {
    /// The last moment at which the change may have happened.
    fn latest_change(&self) -> Option<SourceTime> {
        self.changed_at.map(SourceTime::latest_possible)
    }
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Make it the resource's task; it replaces an older one.
    Task,
    /// The mirror has it already: a task that is not newer is of no use any more.
    Done,
    /// Something newer is known: nothing changes.
    Older,
}

/// Decides what a change from a notification or a Change List means.
#[must_use]
pub fn plan_change(
    told: &Announced<'_>,
    known: Option<&LocalState>,
    pending: Option<&Pending>,
) -> Decision {
    let is_older = |than: Option<SourceTime>| {
        let is_outdone = told.late && told.changed_at.is_some() && told.changed_at == than;
        is_outdone || is_before(told.changed_at, than)
    };
    if pending.is_some_and(|pending| is_older(pending.changed_at)) {
        return Decision::Older;
    }
    // A deletion of what was never here is kept, too: a late creation that is older must not bring it back.
    let Some(known) = known else {
        return Decision::Task;
    };
    if is_older(known.changed_at) {
        return Decision::Older;
    }
    let done = match (told.kind, known.deleted) {
        (ChangeKind::Deleted, true) => told.changed_at <= known.changed_at,
        (ChangeKind::Deleted, false) => false,
        (_, true) => false,
        (_, false) => match compare(told, known) {
            Content::Same => told.changed_at == known.changed_at || told.changed_at.is_none(),
            Content::Different => false,
            // Nothing but time and kind tells one change from another.
            Content::Untold => {
                told.changed_at.is_some()
                    && told.changed_at == known.changed_at
                    && known.kind.is_none_or(|kind| kind == told.kind)
            }
        },
    };
    match pending {
        _ if !done => Decision::Task,
        // Nobody knows which of the two is newer, and what is pending may be.
        Some(pending) if pending.changed_at.is_some() != told.changed_at.is_some() => {
            Decision::Older
        }
        _ => Decision::Done,
    }
}

/// Decides what an entry of a Resource List of the time `at` means. What is pending because an earlier list told of it is
/// no objection and is left out: the newer list says it anew.
#[must_use]
pub fn plan_listed(
    told: &Announced<'_>,
    at: SourceTime,
    known: Option<&LocalState>,
    pending: Option<&Pending>,
) -> Decision {
    let update = pending.filter(|pending| pending.kind != ChangeKind::Deleted);
    // What the list itself dates later than that is no word of the time `at`, whenever the list says it was made.
    let is_newer = |changed_at: Option<SourceTime>, latest: Option<SourceTime>| {
        latest.is_some_and(|latest| latest >= at) && told.changed_at <= changed_at
    };
    if pending.is_some_and(|pending| is_newer(pending.changed_at, pending.latest_change()))
        || update.is_some_and(|update| is_before(told.lastmod, update.changed_at))
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
    let (same, proven) = match compare(told, known) {
        Content::Same => (true, true),
        Content::Different => (false, true),
        Content::Untold => {
            let seen = known.lastmod.max(known.changed_at);
            (told.lastmod.is_none() || told.lastmod <= seen, false)
        }
    };
    match update {
        _ if !same => Decision::Task,
        // A pending update is of no use any more only if it is older for certain, and its content is here.
        Some(update) if !proven || update.changed_at.is_none() => Decision::Older,
        // A pending deletion is older than the list, which names the resource: it exists.
        _ => Decision::Done,
    }
}

/// Whether a resource that a Resource List of the time `at` does not list is thereby proven to be deleted. As with
/// [`plan_listed`], what an earlier list told is left out of what is pending.
#[must_use]
pub fn plan_absent(at: SourceTime, known: Option<&LocalState>, pending: Option<&Pending>) -> bool {
    let older = |changed_at: Option<SourceTime>| changed_at.is_none_or(|changed| changed < at);
    known.is_none_or(|known| older(known.latest_change()))
        && pending.is_none_or(|pending| match pending.latest_change() {
            Some(changed) => changed < at,
            // It may be newer than the list, and then the resource exists.
            None => pending.kind == ChangeKind::Deleted,
        })
}

/// Whether so many deletions at once, out of a set that had `resources`, wait until a person lets them go on.
#[must_use]
#[allow(
    clippy::cast_precision_loss,
    reason = "a share of a set need not be exact to the last resource of 2^52"
)]
pub fn holds_back(deletions: u64, resources: u64, max_share: f64) -> bool {
    deletions > 100 && deletions as f64 > resources as f64 * max_share
}

enum Content {
    Same,
    Different,
    Untold,
}

/// Holds what is told of the bytes against the bytes that the mirror has.
fn compare(told: &Announced<'_>, known: &LocalState) -> Content {
    let lengths_differ =
        matches!((told.length, known.length), (Some(told), Some(known)) if told != known);
    let mut compared = false;
    for hash in told.hashes {
        for have in known
            .hashes
            .iter()
            .filter(|have| have.algorithm() == hash.algorithm())
        {
            if have != hash {
                return Content::Different;
            }
            compared = true;
        }
    }
    match (compared, lengths_differ) {
        (_, true) => Content::Different,
        (true, false) => Content::Same,
        (false, false) => Content::Untold,
    }
}

/// Whether both times are known, and the first is the earlier one.
fn is_before(time: Option<SourceTime>, than: Option<SourceTime>) -> bool {
    matches!((time, than), (Some(time), Some(than)) if time < than)
}

#[cfg(test)]
mod tests;
