//! The Source: resources that change, and the documents that tell of it.
//!
//! It keeps count of what it really did: each change of a resource raises its version, and a document's entries carry the
//! versions that they tell of. No Destination sees these numbers; they are what it is judged by.

use std::sync::Arc;

use resyncd::protocol::{Algorithm, ChangeKind, Digest, SourceTime};

/// A resource, by number.
pub(crate) type ResourceNo = usize;
/// A set, by number.
pub(crate) type SetNo = usize;

/// How many resources there are.
pub(crate) const RESOURCES: usize = 6;

/// What a document that ends at `until` does with changes that bear that very time, or a later one: where times are whole
/// seconds, some have happened already, and more of them may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Boundary {
    /// It leaves them to the next one, as half-open intervals have it.
    Exact,
    /// It tells them, and the next one tells them again.
    Eager,
    /// It tells them, and the next one does not: by the letter, the next one's interval is not true. Nobody can notice that
    /// such a change is lost, so this Source's Change Lists forget nothing.
    Loose,
}

/// How the Change Lists are published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChangeLists {
    /// There are none.
    Absent,
    /// One list, open for good.
    Open,
    /// Closed ones and an open one, in an index.
    Index,
    /// Closed ones and an open one, of which the Capability List names only the latter.
    Replaced,
}

/// A Source's ways.
#[derive(Clone, Debug)]
pub(crate) struct Habits {
    pub(crate) sets: usize,
    pub(crate) whole_seconds: bool,
    pub(crate) boundary: Boundary,
    pub(crate) hashes: bool,
    /// By how many milliseconds a notification's interval reaches back over the one before it.
    pub(crate) overlap: i64,
    pub(crate) change_lists: ChangeLists,
    pub(crate) newest_first: bool,
    /// Whether Change Lists say where they begin.
    pub(crate) lists_say_from: bool,
    /// By how many seconds its clock is ahead of ours.
    pub(crate) clock_ahead: i64,
}

/// A change, as it happened and as documents tell it.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) resource: ResourceNo,
    pub(crate) kind: ChangeKind,
    pub(crate) at: SourceTime,
    pub(crate) version: u32,
    /// The moment on the simulated clock.
    pub(crate) moment: u64,
    /// Told of in a document whose interval does not reach it, and left out of the next one's: no time is claimed for it.
    pub(crate) unclaimed: bool,
    /// The Destination's own note: told by a late document.
    pub(crate) late: bool,
}

/// A change notification.
#[derive(Debug)]
pub(crate) struct Notification {
    pub(crate) set: SetNo,
    /// `None`: it is of an old draft that does not know intervals.
    pub(crate) stated: Option<(SourceTime, SourceTime)>,
    pub(crate) entries: Vec<Change>,
}

/// A Change List as it is published.
#[derive(Clone, Debug)]
pub(crate) struct List {
    /// Which document it is.
    pub(crate) key: u32,
    pub(crate) revision: u32,
    pub(crate) from: SourceTime,
    pub(crate) until: Option<SourceTime>,
    pub(crate) entries: Arc<Vec<Change>>,
}

/// A Resource List as it is published.
#[derive(Clone, Debug)]
pub(crate) struct ResourceList {
    pub(crate) revision: u32,
    pub(crate) at: SourceTime,
    /// The last change of each resource that exists.
    pub(crate) entries: Vec<Change>,
    /// What no Destination sees: the version of every resource, gone ones included.
    pub(crate) versions: [u32; RESOURCES],
}

/// The part of the history that a Change List is being made of.
#[derive(Clone, Debug)]
struct Draft {
    key: u32,
    from: SourceTime,
    until: Option<SourceTime>,
    first: usize,
    /// Where the next one begins, once it is closed.
    last: usize,
}

/// What is published for one set.
#[derive(Clone, Debug)]
struct Published {
    /// Where the last notification ended, and the first change that the next one tells.
    told_until: SourceTime,
    told: usize,
    drafts: Vec<Draft>,
    lists: Vec<List>,
    resource_list: ResourceList,
}

#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) habits: Habits,
    pub(crate) changes: Vec<Change>,
    versions: [u32; RESOURCES],
    exists: [bool; RESOURCES],
    /// The changes of each resource, by their place.
    of: [Vec<usize>; RESOURCES],
    sets: Vec<Published>,
    keys: u32,
    revisions: u32,
}

/// The Source's time zero: 2026-01-01.
const EPOCH: i64 = 1_767_225_600_000_000;

impl Source {
    /// A Source with half of its resources, all of whose documents are of `moment`.
    pub(crate) fn new(habits: Habits, moment: u64) -> Self {
        let sets = habits.sets;
        let mut source = Self {
            habits,
            changes: Vec::new(),
            versions: [0; RESOURCES],
            exists: [false; RESOURCES],
            of: Default::default(),
            sets: Vec::new(),
            keys: 0,
            revisions: 0,
        };
        for resource in 0..RESOURCES / 2 {
            source.change(0, resource, false);
        }
        let now = source.stamp(moment);
        let first = source.changes.len();
        for _ in 0..sets {
            source.keys += 1;
            let draft = Draft {
                key: source.keys,
                from: now,
                until: None,
                first,
                last: first,
            };
            source.sets.push(Published {
                told_until: now,
                told: first,
                drafts: vec![draft],
                lists: Vec::new(),
                resource_list: ResourceList {
                    revision: 0,
                    at: now,
                    entries: Vec::new(),
                    versions: [0; RESOURCES],
                },
            });
        }
        for set in 0..sets {
            source.write_change_lists(set);
            source.write_resource_list(set, moment);
        }
        source
    }

    /// The Source's time at a moment of the simulated clock.
    pub(crate) fn stamp(&self, moment: u64) -> SourceTime {
        let millis = i64::try_from(moment).unwrap();
        let micros = EPOCH + self.habits.clock_ahead * 1_000_000 + millis * 1000;
        let unit = if self.habits.whole_seconds {
            1_000_000
        } else {
            1
        };
        SourceTime::from_micros(micros - micros.rem_euclid(unit))
    }

    pub(crate) fn is_in(&self, resource: ResourceNo, set: SetNo) -> bool {
        self.habits.sets == 1 || resource % 3 == set || resource % 3 == 2
    }

    /// The version of a resource's representation; `None` if there is none.
    pub(crate) fn content(&self, resource: ResourceNo) -> Option<u32> {
        self.exists[resource].then_some(self.versions[resource])
    }

    /// The last change of a resource before a time.
    pub(crate) fn last_before(&self, resource: ResourceNo, time: SourceTime) -> Option<&Change> {
        let mut of = self.of[resource].iter().rev().map(|&n| &self.changes[n]);
        of.find(|change| change.at < time && !change.unclaimed)
    }

    /// Changes a resource: what does not exist is created; what does is deleted or updated. Answers whether it did. Two
    /// changes that no document could tell apart don't happen: of one resource, within one second, without a digest; nor
    /// such of which no document could tell the order: of one resource of two sets, or told loosely, within one second.
    pub(crate) fn change(&mut self, moment: u64, resource: ResourceNo, delete: bool) -> bool {
        let at = self.stamp(moment);
        let last = self.of[resource].last().map(|&n| &self.changes[n]);
        let told_alike = |last: &Change| last.at == at && last.moment != moment;
        let is_shared = self.habits.sets > 1 && (0..2).all(|set| self.is_in(resource, set));
        let is_disordered = is_shared || self.habits.boundary == Boundary::Loose;
        if !self.habits.hashes && last.is_some_and(told_alike)
            || is_disordered && last.is_some_and(|last| last.at == at)
        {
            return false;
        }
        let kind = match (self.exists[resource], delete) {
            (false, _) => ChangeKind::Created,
            (true, true) => ChangeKind::Deleted,
            (true, false) => ChangeKind::Updated,
        };
        self.exists[resource] = kind != ChangeKind::Deleted;
        self.versions[resource] += 1;
        self.of[resource].push(self.changes.len());
        self.changes.push(Change {
            resource,
            kind,
            at,
            version: self.versions[resource],
            moment,
            unclaimed: false,
            late: false,
        });
        true
    }

    /// The first change of that time or later.
    fn first_at(&self, time: SourceTime) -> usize {
        self.changes.partition_point(|change| change.at < time)
    }

    /// Where the changes end that a document may tell which ends at `until`, and where the next one begins.
    fn cut(&mut self, until: SourceTime) -> (usize, usize) {
        let all = self.changes.len();
        let before = self.first_at(until);
        match self.habits.boundary {
            Boundary::Exact => (before, before),
            Boundary::Eager => (all, before),
            Boundary::Loose => {
                for change in &mut self.changes[before..] {
                    change.unclaimed = true;
                }
                (all, all)
            }
        }
    }

    fn entries(&self, set: SetNo, range: std::ops::Range<usize>) -> Vec<Change> {
        let range = range.start.min(range.end)..range.end;
        let told = self.changes[range].iter();
        told.filter(|change| self.is_in(change.resource, set))
            .cloned()
            .collect()
    }

    /// Publishes a notification of what has changed since the last one. `bare`: without its interval.
    pub(crate) fn notification(&mut self, moment: u64, set: SetNo, bare: bool) -> Notification {
        let until = self.stamp(moment);
        let published = &self.sets[set];
        let (mut from, mut first) = (published.told_until, published.told);
        if self.habits.overlap > 0 {
            from = SourceTime::from_micros(from.micros() - self.habits.overlap * 1000);
            first = first.min(self.first_at(from));
        }
        let (end, next) = self.cut(until);
        let entries = self.entries(set, first..end);
        let published = &mut self.sets[set];
        published.told_until = until;
        published.told = next.max(published.told);
        Notification {
            set,
            stated: (!bare).then_some((from, until)),
            entries,
        }
    }

    /// Writes the Change Lists anew; until then, they lag.
    pub(crate) fn write_change_lists(&mut self, set: SetNo) {
        let mut lists = Vec::new();
        for draft in self.sets[set].drafts.clone() {
            let end = draft.until.map_or(self.changes.len(), |_| draft.last);
            let mut entries = self.entries(set, draft.first..end);
            // What bears one time throughout shows no direction, and counts as oldest first.
            let one_time = entries.windows(2).all(|pair| pair[0].at == pair[1].at);
            if self.habits.newest_first && !one_time {
                entries.reverse();
            }
            let known = self.sets[set]
                .lists
                .iter()
                .find(|list| list.key == draft.key);
            let same = known.filter(|list| {
                (list.from, list.until, list.entries.len())
                    == (draft.from, draft.until, entries.len())
            });
            lists.push(same.cloned().unwrap_or_else(|| {
                self.revisions += 1;
                List {
                    key: draft.key,
                    revision: self.revisions,
                    from: draft.from,
                    until: draft.until,
                    entries: Arc::new(entries),
                }
            }));
        }
        self.sets[set].lists = lists;
    }

    /// Closes the open Change List and begins another; where there is no index, the one list begins anew.
    pub(crate) fn roll_over(&mut self, moment: u64, set: SetNo) {
        let forgets = self.habits.change_lists != ChangeLists::Index;
        let keeps = self.habits.change_lists != ChangeLists::Open;
        if forgets && self.habits.boundary == Boundary::Loose {
            return;
        }
        let until = self.stamp(moment);
        let (end, next) = match self.habits.change_lists {
            ChangeLists::Index | ChangeLists::Replaced => self.cut(until),
            _ => (0, self.first_at(until)),
        };
        self.keys += 1;
        let draft = Draft {
            key: self.keys,
            from: until,
            until: None,
            first: next,
            last: next,
        };
        let drafts = &mut self.sets[set].drafts;
        if keeps {
            let open = drafts.last_mut().unwrap();
            (open.until, open.last) = (Some(until), end);
            drafts.push(draft);
        } else {
            *drafts = vec![Draft {
                key: drafts[0].key,
                ..draft
            }];
        }
        self.write_change_lists(set);
    }

    /// Drops all closed Change Lists but the last.
    pub(crate) fn drop_old_lists(&mut self, set: SetNo) {
        if self.habits.boundary == Boundary::Loose {
            return;
        }
        let drafts = &mut self.sets[set].drafts;
        let keep = drafts.len().saturating_sub(2);
        drafts.drain(..keep);
        // What is the first of all tells everything from where it begins: no Destination could know better.
        let from = drafts[0].from;
        let first = self.first_at(from);
        let oldest = &mut self.sets[set].drafts[0];
        oldest.first = oldest.first.min(first);
        self.write_change_lists(set);
    }

    pub(crate) fn write_resource_list(&mut self, set: SetNo, moment: u64) {
        self.revisions += 1;
        let entries = (0..RESOURCES)
            .filter(|&resource| self.exists[resource] && self.is_in(resource, set))
            .map(|resource| self.changes[*self.of[resource].last().unwrap()].clone())
            .collect();
        self.sets[set].resource_list = ResourceList {
            revision: self.revisions,
            at: self.stamp(moment),
            entries,
            versions: self.versions,
        };
    }

    pub(crate) fn lists(&self, set: SetNo) -> &[List] {
        &self.sets[set].lists
    }

    pub(crate) fn resource_list(&self, set: SetNo) -> &ResourceList {
        &self.sets[set].resource_list
    }
}

/// The digest of a representation.
pub(crate) fn digest(resource: ResourceNo, version: u32) -> Digest {
    let mut bytes = vec![0; 16];
    bytes[0] = u8::try_from(resource).unwrap();
    bytes[1..5].copy_from_slice(&version.to_be_bytes());
    Digest::new(Algorithm::Md5, bytes).unwrap()
}
