//! What the sets of a Source state of one resource, and what a new entry means beside that.
//!
//! Each set states for itself: its documents, a hub that may not speak for it, and the links of its entries are its voices, and of each
//! the latest statement is kept. A deletion stays as a statement, so that an older creation which arrives late brings nothing back. What
//! the mirror is to do follows from the statements of all sets together: see [`decide`](mod@super::decide).
//!
//! Statements are ordered by their times, and with equal times by the order of arrival. A [`Revision`] orders them against what the
//! Source has answered: an answer counts for the statements that were known when it was asked for.
//!
//! Invariants: an entry is ignored only if its own set has stated something at least as new; what a hub states never replaces what the
//! Source states; absence from a list ends nothing that is newer than the list.
//!
//! Must not know other resources, how documents are received, URIs, paths or SQL.
//!
//! Specification: core, sections 10 (Resource Lists) and 12 (Change Lists); Change Notification 1.0.1, section 3.

use std::cmp::Ordering;

use resourcesync::{ChangeKind, ContentInfo, SourceTime};

use super::recorded_file::{ContentMatch, RecordedFile};

/// A set of a Source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SetKey(pub i64);

/// Rises with each statement of a resource that is news.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Revision(pub u64);

/// Who states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Voice {
    /// The set's documents, or a hub that may speak for them.
    Source,
    /// A hub that may not speak for the Source: a reason to ask it.
    Hub,
    /// A link of another resource's entry.
    Link,
}

/// What is stated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stated {
    /// A change, by a Change List or a notification.
    Change(ChangeKind),
    /// A Resource List of that time names the resource.
    Listed(SourceTime),
    /// A complete Resource List of that time does not name it.
    Absent(SourceTime),
}

impl Stated {
    /// Whether the resource exists then.
    #[must_use]
    pub fn exists(self) -> bool {
        !matches!(self, Self::Change(ChangeKind::Deleted) | Self::Absent(_))
    }

    /// The time of the list that names the resource, or does not.
    fn list(self) -> Option<SourceTime> {
        match self {
            Self::Change(_) => None,
            Self::Listed(at) | Self::Absent(at) => Some(at),
        }
    }
}

/// An entry of a document, or what follows from a document that has none for the resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The set of the document.
    pub set: SetKey,
    /// Who states it.
    pub voice: Voice,
    /// What is stated.
    pub stated: Stated,
    /// When it happened; of a listed resource, its last modification; of an absence, the time of the list.
    pub at: Option<SourceTime>,
    /// When the representation was last modified.
    pub lastmod: Option<SourceTime>,
    /// The representation.
    pub content: ContentInfo,
}

impl Entry {
    /// Whose statement it is: of each there is one, the latest.
    #[must_use]
    pub fn voice_in_set(&self) -> (SetKey, Voice) {
        (self.set, self.voice)
    }

    /// Whether it states nothing that distinguishes one version of the representation from another.
    fn is_bare(&self) -> bool {
        self.at.is_none() && super::undated::is_undated(self.lastmod, &self.content)
    }
}

/// The latest statement of one voice of one set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// What is stated.
    pub entry: Entry,
    /// The time of the newest list that names the resource.
    pub listed: Option<SourceTime>,
    /// Which statement of the resource it is.
    pub revision: Revision,
    /// Of the last statement of what the representation is: a deletion, and an entry that states nothing of it, leave it.
    pub content_revision: Revision,
    /// Whether a person has rejected this deletion.
    pub is_rejected: bool,
}

impl Statement {
    fn of(entry: &Entry, revision: Revision) -> Self {
        let list = entry.stated.list();
        Self {
            entry: entry.clone(),
            listed: list.filter(|_| entry.stated.exists()),
            revision,
            content_revision: revision,
            is_rejected: false,
        }
    }

    /// Whether the resource exists then.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.entry.stated.exists()
    }

    /// Whether a change states it, and no list.
    #[must_use]
    pub fn is_change(&self) -> bool {
        matches!(self.entry.stated, Stated::Change(_))
    }

    /// The last moment for which it speaks.
    #[must_use]
    pub fn until(&self) -> Option<SourceTime> {
        let at = if self.is_change() {
            self.latest_change()
        } else {
            self.entry.at
        };
        at.max(self.listed)
    }

    /// The time for which it speaks for certain.
    fn covered(&self) -> Option<SourceTime> {
        self.entry.at.max(self.listed)
    }

    /// The last moment at which the change may have happened.
    fn latest_change(&self) -> Option<SourceTime> {
        self.entry.at.map(SourceTime::latest_possible)
    }

    /// Whether an entry states another representation.
    pub(crate) fn states_other(&self, entry: &Entry) -> bool {
        let both_exist = self.exists() && entry.stated.exists();
        both_exist && self.compare(&entry.content) == ContentMatch::Different
    }

    fn compare(&self, content: &ContentInfo) -> ContentMatch {
        let own = RecordedFile {
            length: self.entry.content.length,
            hashes: &self.entry.content.hashes,
            is_doubted: false,
        };
        own.compare(content)
    }

    /// Whether an entry of a newer list states no other modification. An earlier one is another one: a file may have been restored with
    /// its former time. The time of a change stands for the modification that it does not state.
    fn has_lastmod_of(&self, listed: &Entry) -> bool {
        listed.at == self.entry.at || listed.at == self.entry.lastmod
    }
}

/// What became of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// It is the latest statement now.
    News,
    /// It states what is stated already.
    Known,
    /// Something newer is stated. The time is that of the change; of an entry of a list there is none.
    Older(Option<SourceTime>),
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
    /// It ends what a list states of the same time.
    Ends,
}

/// What a new entry means beside what the same voice of the same set has stated before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Merge {
    News,
    /// The list names what is stated already.
    Refresh,
    Known,
    Older,
}

fn merge(old: &Statement, new: &Entry, overtaken: bool) -> Merge {
    match new.stated {
        Stated::Absent(_) if !old.exists() => Merge::Known,
        Stated::Absent(list) if outlasts(old, list) => Merge::Older,
        Stated::Absent(_) => Merge::News,
        Stated::Listed(list) => merge_listed(old, new, list),
        Stated::Change(_) if new.at.is_none() => merge_undated(old, new, overtaken),
        Stated::Change(_) => match merge_dated(old, new, overtaken) {
            merged if old.is_change() && merged != Merge::News => merged,
            merged => match names_later(old, new, overtaken) {
                Some(true) => Merge::Older,
                Some(false) => Merge::News,
                None => merged,
            },
        },
    }
}

/// Whether a statement is not ended by the resource's absence from the list of that time.
fn outlasts(old: &Statement, list: SourceTime) -> bool {
    // A change of an unknown time may be newer.
    let is_newer_change = old.is_change() && old.latest_change().is_none_or(|at| at >= list);
    is_newer_change || old.listed >= Some(list)
}

fn merge_listed(old: &Statement, new: &Entry, list: SourceTime) -> Merge {
    // An entry that is dated later than what is stated is news, whatever time the list states for itself.
    let is_known = match old.listed.cmp(&Some(list)) {
        Ordering::Greater => new.at <= old.entry.at,
        // The newer one of two entries of a list counts.
        Ordering::Equal if !old.is_change() => new.at < old.entry.at,
        Ordering::Equal | Ordering::Less => old.until() >= Some(list) && new.at <= old.entry.at,
    };
    if is_known {
        return Merge::Older;
    }
    if !old.exists() {
        return Merge::News;
    }
    match old.compare(&new.content) {
        ContentMatch::Same => Merge::Refresh,
        ContentMatch::Different => Merge::News,
        // A time that is impossible is no time of the entry, but another modification nevertheless.
        ContentMatch::Unknown if new.at.is_none() => match new.lastmod {
            Some(lastmod) if old.entry.lastmod != Some(lastmod) => Merge::News,
            _ => Merge::Refresh,
        },
        ContentMatch::Unknown if old.has_lastmod_of(new) => Merge::Refresh,
        ContentMatch::Unknown => Merge::News,
    }
}

/// A change without a time can't be distinguished from what was read before.
fn merge_undated(old: &Statement, new: &Entry, overtaken: bool) -> Merge {
    let is_listed = old.listed.is_some_and(|listed| {
        !old.is_change() || old.latest_change().is_some_and(|changed| listed > changed)
    });
    let is_listed_since = old.exists() && is_listed && overtaken;
    let compared = old.compare(&new.content);
    // Many entries may link to a resource, and each entry is read again and again.
    let is_repeated = compared == ContentMatch::Same
        || new.voice == Voice::Link && compared == ContentMatch::Unknown;
    match (new.stated.exists(), old.exists()) {
        (true, true) if is_listed_since => Merge::Older,
        (true, true) if is_repeated => Merge::Known,
        (false, false) => Merge::Known,
        (_, _) => Merge::News,
    }
}

/// Whether a list that was made after a change states what that has left; `None`: no such list names the resource.
fn names_later(old: &Statement, new: &Entry, overtaken: bool) -> Option<bool> {
    let is_named = old.exists() && new.at.map(SourceTime::latest_possible) < old.listed;
    // What a list states of the very time of a deletion that follows is ended by that.
    let is_of_its_time = [old.entry.at, old.entry.lastmod].contains(&new.at);
    let ends = !new.stated.exists() && !overtaken && !old.is_change() && is_of_its_time;
    if !is_named || ends {
        return None;
    }
    let is_modified_later = match (new.lastmod, old.entry.lastmod) {
        (Some(new), Some(old)) => Some(old < new),
        _ => None,
    };
    let is_later = old.entry.at.is_some() && new.at > old.entry.at;
    Some(match old.compare(&new.content) {
        _ if !new.stated.exists() => true,
        ContentMatch::Same => true,
        ContentMatch::Different => !(is_later && is_modified_later.unwrap_or(true)),
        ContentMatch::Unknown => is_modified_later != Some(true),
    })
}

/// A change of a known time.
fn merge_dated(old: &Statement, new: &Entry, overtaken: bool) -> Merge {
    match new.at.cmp(&old.entry.at) {
        Ordering::Less => return Merge::Older,
        Ordering::Greater => return Merge::News,
        Ordering::Equal => {}
    }
    let states_the_same = match (new.stated.exists(), old.exists()) {
        (true, true) => match old.compare(&new.content) {
            ContentMatch::Same => true,
            ContentMatch::Different => false,
            // Only time and kind distinguish one change from another.
            ContentMatch::Unknown => !old.is_change() || old.entry.stated == new.stated,
        },
        (true, false) | (false, true) => false,
        (false, false) => true,
    };
    if states_the_same {
        Merge::Known
    } else if overtaken {
        Merge::Older
    } else {
        Merge::News
    }
}

/// Applies an entry to the statements of a resource. `overtaken`: whether a later document of the entry's time has been read already: then,
/// with equal times, the later document wins; without a time, whether later documents cover the notification that states it. `revision` is
/// the resource's; it rises if the entry is news.
pub fn apply(
    statements: &mut Vec<Statement>,
    entry: &Entry,
    overtaken: bool,
    revision: &mut Revision,
) -> Applied {
    let place_of = |statements: &[Statement], voice| {
        let mut entries = statements.iter().map(|statement| &statement.entry);
        entries.position(|other| other.voice_in_set() == (entry.set, voice))
    };
    let of_source = place_of(statements, Voice::Source);
    // What the Source has stated of that time or later counts.
    let is_covered = |it: usize| {
        let stated = &statements[it];
        let is_as_new = match stated.entry.at.cmp(&entry.at) {
            Ordering::Greater => true,
            Ordering::Equal => !stated.states_other(entry),
            Ordering::Less => stated.listed > entry.at,
        };
        entry.at.is_some() && is_as_new
    };
    if entry.voice == Voice::Hub && of_source.is_some_and(is_covered) {
        return Applied::Older(entry.at);
    }
    let own = place_of(statements, entry.voice);
    let merged = own.map_or(Merge::News, |own| merge(&statements[own], entry, overtaken));
    match (merged, own) {
        (Merge::Known, _) => return Applied::Known,
        (Merge::Older, _) => {
            let is_change = matches!(entry.stated, Stated::Change(_));
            return Applied::Older(entry.at.filter(|_| is_change));
        }
        (Merge::Refresh, Some(own)) => {
            let own = &mut statements[own];
            own.listed = own.listed.max(entry.stated.list());
            if let (Stated::Listed(_), Some(list)) = (own.entry.stated, own.listed) {
                own.entry.stated = Stated::Listed(list);
            }
            own.entry.at = own.entry.at.max(entry.at);
            own.entry.lastmod = own.entry.lastmod.max(entry.lastmod);
        }
        (Merge::Refresh | Merge::News, own) => {
            revision.0 += 1;
            let new = successor(statements, own, entry, *revision);
            match own {
                Some(own) => statements[own] = new,
                None => statements.push(new),
            }
        }
    }
    if entry.voice == Voice::Source {
        let of_source = place_of(statements, Voice::Source);
        let until = of_source.and_then(|it| statements[it].covered());
        // A person has rejected the deletion already that a hub had stated.
        let was_rejected = statements.iter().any(|it| {
            let is_claim = it.entry.set == entry.set && it.entry.voice == Voice::Hub;
            let is_of_it = it.entry.at == entry.at || matches!(entry.stated, Stated::Absent(_));
            is_claim && it.is_rejected && is_of_it
        });
        if let Some(own) = of_source.filter(|_| was_rejected && !entry.stated.exists()) {
            statements[own].is_rejected = true;
        }
        statements.retain(|Statement { entry: other, .. }| {
            let is_of_other = other.set != entry.set || other.voice != Voice::Hub;
            // Of one moment the Source may state more.
            is_of_other || other.at.is_some() && other.at >= until
        });
    }
    match merged {
        Merge::News => Applied::News,
        Merge::Refresh | Merge::Known | Merge::Older => Applied::Known,
    }
}

/// The statement that an entry makes: `own` is the place of the one that it replaces.
fn successor(
    statements: &[Statement],
    own: Option<usize>,
    entry: &Entry,
    revision: Revision,
) -> Statement {
    let mut new = Statement::of(entry, revision);
    if let Some(own) = own.map(|own| &statements[own]) {
        let states_again = matches!(entry.stated, Stated::Listed(_)) || entry.voice == Voice::Link;
        let is_bare = states_again && entry.is_bare();
        // A set that has never named the resource has not named it either now.
        let was_named = own.exists() || own.content_revision < own.revision;
        if !new.exists() && was_named || is_bare {
            new.content_revision = own.content_revision;
        }
        if new.exists() && own.exists() {
            new.listed = new.listed.max(own.listed);
        }
    }
    // Another set has stated the same, or a later version, and this entry states nothing that would be another one.
    let others = statements.iter().filter(|other| {
        let is_of_another = other.entry.voice == Voice::Source && other.entry.set != entry.set;
        is_of_another && other.exists() == new.exists()
    });
    let known = others.filter(|other| {
        let is_dated = other.entry.at.is_some();
        let states_the_same = is_dated
            && (other.entry.stated, other.entry.at, &other.entry.content)
                == (entry.stated, entry.at, &entry.content);
        let is_listed_before = is_dated
            && matches!(entry.stated, Stated::Listed(_))
            && entry.at == other.entry.at
            && other.compare(&entry.content) == ContentMatch::Unknown;
        let states_nothing = matches!(entry.stated, Stated::Listed(_)) && entry.is_bare();
        states_the_same || is_listed_before || states_nothing
    });
    if let Some(known) = known.max_by_key(|other| other.content_revision) {
        new.content_revision = known.content_revision;
    }
    new
}

#[cfg(test)]
pub(crate) mod tests;
