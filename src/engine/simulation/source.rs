//! The Source: resources that change, and the documents that announce the changes.
//!
//! It records what really happened: each change of a resource raises its version, and an entry of a document stands for one
//! version. No Destination sees these numbers; they are what it is judged by. `documents` renders what is published as XML.

use std::collections::HashMap;
use std::sync::Arc;

use resourcesync::{Algorithm, Capability, ChangeKind, Digest, SourceTime};

/// A resource, by number.
pub(super) type ResourceNo = usize;
/// A set, by number.
pub(super) type SetNo = usize;

/// How many resources change; half of them exist at first.
pub(super) const RESOURCES: usize = 6;

/// The resource that the operator may exclude.
pub(super) const EXCLUDED: ResourceNo = 4;

/// The type of a resource: only that of the one that may be excluded is another.
pub(super) fn type_of(resource: ResourceNo) -> &'static str {
    match resource {
        EXCLUDED => "text/csv",
        _ => "application/pdf",
    }
}

/// What a document that ends at `until` does with changes that bear that very time, or a later one: where times are whole
/// seconds, some have happened already, and more of them may follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Boundary {
    /// It leaves them to the next one, as half-open intervals require.
    Exact,
    /// It lists them, and the next one lists them again.
    Eager,
    /// It lists them, and the next one does not: taken literally, the next one's interval is not true. No Destination can
    /// notice that such a change is lost, so this Source's Change Lists drop nothing.
    Loose,
}

/// How the Change Lists are published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChangeLists {
    /// There are none.
    Absent,
    /// One list, open for good.
    Open,
    /// Closed ones and an open one, in an index.
    Index,
    /// Closed ones and an open one, of which the Capability List names only the latter.
    Replaced,
}

/// Whether there are dumps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DumpOffer {
    Absent,
    /// Beside the lists.
    Beside,
    /// The Capability List names them, and no lists.
    InPlace,
}

/// What the server of the documents sends to ask with later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServerValidators {
    Nothing,
    Etag,
    LastModified,
}

/// What the Capability List of a set names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offered {
    Everything,
    /// No Resource List, and no Resource Dump.
    ChangeListsOnly,
    Nothing,
}

/// How the parts of a Resource List are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartForm {
    /// By an index that states when each of them was changed.
    Dated,
    /// By an index that does not.
    Undated,
    /// By an index that states the type of what each of them names: the last one names the only resource of another type.
    Typed,
    /// Each by the one before it: they are pages.
    Pages,
}

/// The properties of a Source.
#[derive(Clone, Debug)]
pub(super) struct Habits {
    pub(super) sets: usize,
    pub(super) whole_seconds: bool,
    pub(super) boundary: Boundary,
    pub(super) hashes: bool,
    /// By how many milliseconds a notification's interval reaches back over the one before it.
    pub(super) overlap: i64,
    pub(super) change_lists: ChangeLists,
    pub(super) newest_first: bool,
    /// Whether Change Lists state where they begin.
    pub(super) lists_say_from: bool,
    /// By how many seconds its clock is ahead of ours.
    pub(super) clock_ahead: i64,
    /// Into how many lists the Resource List is divided; 0: it is one.
    pub(super) parts: usize,
    pub(super) part_form: PartForm,
    /// The Resource Dump: as many packages as the Resource List has parts, but at least one.
    pub(super) resource_dump: DumpOffer,
    /// The Change Dump: a package for each Change List.
    pub(super) change_dump: DumpOffer,
    /// Whether dumps name copies of the manifests of their packages.
    pub(super) manifest_copies: bool,
    /// Whether Change Lists and notifications state no time of each change.
    pub(super) undated: bool,
    /// Whether Change Lists and notifications write the URIs of resources in another way than lists.
    pub(super) respells: bool,
    pub(super) validators: ServerValidators,
    /// What the Capability Lists name at first.
    pub(super) offered_first: Offered,
    /// What of the first set can't be read at first.
    pub(super) faulty_first: Option<(SimulatedDocument, Fault)>,
    /// How many more resources there are, which exist at first and may only be deleted.
    pub(super) more: usize,
}

impl Default for Habits {
    fn default() -> Self {
        Self {
            sets: 1,
            whole_seconds: false,
            boundary: Boundary::Exact,
            hashes: true,
            overlap: 0,
            change_lists: ChangeLists::Open,
            newest_first: false,
            lists_say_from: true,
            clock_ahead: 0,
            parts: 0,
            part_form: PartForm::Undated,
            resource_dump: DumpOffer::Absent,
            change_dump: DumpOffer::Absent,
            manifest_copies: false,
            undated: false,
            respells: false,
            validators: ServerValidators::Etag,
            offered_first: Offered::Everything,
            faulty_first: None,
            more: 0,
        }
    }
}

/// A document of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SimulatedDocument {
    CapabilityList,
    /// The Resource List, or its index, or its first page.
    ResourceList,
    /// A list that the index of the Resource List names, or a page after the first.
    Part(usize),
    /// The index of the Change Lists.
    ChangeListIndex,
    /// The Change Lists, but not their index.
    ChangeLists,
    /// Those of them that are closed.
    ClosedChangeLists,
    ResourceDump,
    ChangeDump,
    /// The packages of both, and the copies of their manifests.
    Packages,
}

/// What is wrong with a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Gone,
    Unavailable,
    /// It ends in the middle.
    CutShort,
}

/// A change, as it happened and as documents announce it.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) resource: ResourceNo,
    pub(super) kind: ChangeKind,
    pub(super) at: SourceTime,
    pub(super) version: u32,
    /// The moment on the simulated clock.
    pub(super) moment: u64,
    /// Listed in a document whose interval does not reach it, and left out of the next one, or listed late: no document covers
    /// its time.
    pub(super) unclaimed: bool,
    /// Not listed yet: it appears in Change Lists after later ones.
    withheld: bool,
    /// The sets whose documents list it.
    pub(super) sets: Vec<SetNo>,
    /// It leaves the set, and is served as before.
    leaves: bool,
}

/// A notification.
#[derive(Debug)]
pub(super) struct Notification {
    pub(super) set: SetNo,
    pub(super) content: Content,
}

/// What a notification announces.
#[derive(Debug)]
pub(super) enum Content {
    Changes {
        /// `None`: it is of an old draft that does not know intervals.
        interval: Option<(SourceTime, SourceTime)>,
        entries: Vec<Change>,
    },
    /// A document of the set was published anew, at that time.
    Framework(Capability, SourceTime),
}

/// A Change List as it is published.
#[derive(Clone, Debug)]
pub(super) struct List {
    /// Which document it is.
    pub(super) key: u32,
    pub(super) from: SourceTime,
    pub(super) until: Option<SourceTime>,
    pub(super) entries: Arc<Vec<Change>>,
    /// The moment at which it was written.
    pub(super) written: u64,
}

/// A Resource List as it is published.
#[derive(Clone, Debug)]
pub(super) struct ResourceList {
    pub(super) at: SourceTime,
    pub(super) written: u64,
    /// The last change of each resource that exists, by part; one part if there is no index.
    pub(super) parts: Vec<Part>,
}

#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) at: SourceTime,
    pub(super) written: u64,
    pub(super) entries: Vec<Change>,
}

/// The part of the history that a Change List is made of.
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
#[derive(Debug)]
pub(super) struct Published {
    /// Where the last notification ended, and the first change that the next one announces.
    notified_until: SourceTime,
    notified: usize,
    drafts: Vec<Draft>,
    pub(super) lists: Vec<List>,
    /// When a list was begun or dropped last.
    pub(super) index_written: u64,
    pub(super) resource_list: ResourceList,
    /// The one before.
    former_list: Option<ResourceList>,
    /// Its parts are packages.
    pub(super) resource_dump: ResourceList,
    former_dump: Option<ResourceList>,
    pub(super) offered: Offered,
    pub(super) capability_list_written: u64,
}

#[derive(Debug)]
pub(super) struct Source {
    pub(super) habits: Habits,
    pub(super) changes: Vec<Change>,
    versions: Vec<u32>,
    exists: Vec<bool>,
    /// The changes of each resource, by their place.
    of: Vec<Vec<usize>>,
    /// The version of each representation, by its digests.
    digests: HashMap<Digest, u32>,
    sets: Vec<Published>,
    keys: u32,
    lists_late: bool,
    /// The resources that have left one of their sets, and which.
    left: Vec<(ResourceNo, SetNo)>,
}

/// The Source's time zero: 2026-01-01.
pub(super) const EPOCH_SECONDS: i64 = 1_767_225_600;

impl Source {
    /// A Source with half of its resources, all of whose documents are of `moment`.
    pub(super) fn new(habits: Habits, moment: u64) -> Self {
        let (sets, offered) = (habits.sets, habits.offered_first);
        let all = RESOURCES + habits.more;
        let mut source = Self {
            habits,
            changes: Vec::new(),
            versions: vec![0; all],
            exists: vec![false; all],
            of: vec![Vec::new(); all],
            digests: HashMap::new(),
            sets: Vec::new(),
            keys: 0,
            lists_late: false,
            left: Vec::new(),
        };
        for resource in (0..RESOURCES / 2).chain(RESOURCES..all) {
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
            let unwritten = ResourceList {
                at: now,
                written: moment,
                parts: Vec::new(),
            };
            source.sets.push(Published {
                notified_until: now,
                notified: first,
                drafts: vec![draft],
                lists: Vec::new(),
                index_written: moment,
                resource_list: unwritten.clone(),
                former_list: None,
                resource_dump: unwritten,
                former_dump: None,
                offered,
                capability_list_written: moment,
            });
        }
        for set in 0..sets {
            source.write_change_lists(moment, set);
            source.write_resource_list(moment, set);
            source.write_resource_dump(moment, set);
        }
        source
    }

    /// The Source's time at a moment of the simulated clock.
    pub(super) fn stamp(&self, moment: u64) -> SourceTime {
        let millis = i64::try_from(moment).unwrap();
        let micros = (EPOCH_SECONDS + self.habits.clock_ahead) * 1_000_000 + millis * 1000;
        let unit = if self.habits.whole_seconds {
            1_000_000
        } else {
            1
        };
        SourceTime::from_micros(micros - micros.rem_euclid(unit))
    }

    /// All resources.
    pub(super) fn resources(&self) -> std::ops::Range<ResourceNo> {
        0..self.versions.len()
    }

    pub(super) fn is_in(&self, resource: ResourceNo, set: SetNo) -> bool {
        let is_in = self.habits.sets == 1 || resource % 3 == set || resource % 3 == 2;
        is_in && !self.left.contains(&(resource, set))
    }

    /// The version of a resource's representation; `None` if there is none.
    pub(super) fn content(&self, resource: ResourceNo) -> Option<u32> {
        self.exists[resource].then_some(self.versions[resource])
    }

    /// The changes of a resource itself, the last one first.
    fn changes_of(&self, resource: ResourceNo) -> impl Iterator<Item = &Change> {
        let all = self.of[resource].iter().rev().map(|&n| &self.changes[n]);
        all.filter(|change| !change.leaves)
    }

    /// The last change of a resource.
    pub(super) fn last_change(&self, resource: ResourceNo) -> Option<&Change> {
        self.changes_of(resource).next()
    }

    /// The last change of a resource before a time.
    pub(super) fn last_before(&self, resource: ResourceNo, time: SourceTime) -> Option<&Change> {
        self.changes_of(resource)
            .find(|change| change.at < time && !change.unclaimed)
    }

    /// Whether a resource was deleted by the change of that version or a later one.
    pub(super) fn was_deleted_since(&self, resource: ResourceNo, version: u32) -> bool {
        self.changes_of(resource)
            .any(|change| change.kind == ChangeKind::Deleted && change.version >= version)
    }

    /// Whether a resource has left a set with that version or a later one, and is served on.
    pub(super) fn has_left_since(&self, resource: ResourceNo, version: u32) -> bool {
        let mut of = self.of[resource].iter().map(|&n| &self.changes[n]);
        of.any(|change| change.leaves && change.version >= version)
    }

    /// The version that a statement about a resource stands for: the one with a digest of these, or else the last one of that
    /// time or before.
    pub(super) fn version_stated(
        &self,
        resource: ResourceNo,
        deleted: bool,
        changed_at: Option<SourceTime>,
        hashes: &[Digest],
    ) -> u32 {
        let by_digest = hashes.iter().find_map(|hash| self.digests.get(hash));
        if let Some(&version) = by_digest.filter(|_| !deleted) {
            return version;
        }
        let of = self.of[resource].iter().map(|&n| &self.changes[n]);
        let stated = of.filter(|change| {
            (change.kind == ChangeKind::Deleted) == deleted
                && changed_at.is_none_or(|at| change.at <= at)
        });
        stated
            .map(|change| change.version)
            .max()
            .unwrap_or_default()
    }

    /// Changes a resource: one that does not exist is created; one that does is deleted or updated. Returns whether it did.
    /// Two changes that no document could distinguish don't happen: two of one resource, without a digest, that bear the same time; within
    /// one moment they may, unless there are packages, which may be made between them. Nor do changes whose order no document could
    /// state: of one resource of two sets, or listed loosely, within one second.
    pub(super) fn change(&mut self, moment: u64, resource: ResourceNo, delete: bool) -> bool {
        let at = self.stamp(moment);
        let sets = self.sets_of(resource);
        let last = self.of[resource].last().map(|&n| &self.changes[n]);
        let Habits {
            resource_dump,
            change_dump,
            ..
        } = self.habits;
        let is_packed = (resource_dump, change_dump) != (DumpOffer::Absent, DumpOffer::Absent);
        let is_same_entry = |last: &Change| last.at == at && (last.moment != moment || is_packed);
        // Of two sets now, or until it has left one.
        let was_shared = sets.len() > 1 || last.is_some_and(|last| last.sets != sets);
        let is_disordered = was_shared || self.habits.boundary == Boundary::Loose;
        if !self.habits.hashes && last.is_some_and(is_same_entry)
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
        let version = self.versions[resource];
        let bytes = bytes(resource, version);
        for algorithm in [Algorithm::Md5, Algorithm::Sha256] {
            self.digests.insert(Digest::of(algorithm, &bytes), version);
        }
        self.of[resource].push(self.changes.len());
        self.changes.push(Change {
            resource,
            kind,
            at,
            version,
            moment,
            unclaimed: false,
            withheld: false,
            sets,
            leaves: false,
        });
        true
    }

    /// A resource of two sets leaves one of them, whose documents state a deletion; its URI serves it as before.
    pub(super) fn leave(&mut self, moment: u64, resource: ResourceNo, set: SetNo) {
        let at = self.stamp(moment);
        let last = self.last_change(resource).cloned();
        let Some(last) = last.filter(|last| last.at < at) else {
            return;
        };
        if self.exists[resource] && self.sets_of(resource).len() > 1 {
            self.left.push((resource, set));
            self.of[resource].push(self.changes.len());
            self.changes.push(Change {
                kind: ChangeKind::Deleted,
                at,
                moment,
                unclaimed: false,
                withheld: false,
                sets: vec![set],
                leaves: true,
                ..last
            });
        }
    }

    /// The sets that a resource is in.
    fn sets_of(&self, resource: ResourceNo) -> Vec<SetNo> {
        let sets = 0..self.habits.sets;
        sets.filter(|&set| self.is_in(resource, set)).collect()
    }

    /// Whether changes were listed after others that happened later.
    pub(super) fn lists_late(&self) -> bool {
        self.lists_late
    }

    /// Withholds the last change of a resource from all documents that list changes.
    pub(super) fn withhold_last(&mut self, resource: ResourceNo) {
        if let Some(&last) = self.of[resource].last() {
            let change = &mut self.changes[last];
            (change.withheld, change.unclaimed) = (true, true);
            self.lists_late = true;
        }
    }

    /// Lists withheld changes from now on, each in its place among those that happened later.
    pub(super) fn list_withheld(&mut self) {
        for change in &mut self.changes {
            change.withheld = false;
        }
    }

    /// The version of these bytes.
    pub(super) fn version_of(&self, bytes: &[u8]) -> Option<u32> {
        let digest = Digest::of(Algorithm::Md5, bytes);
        self.digests.get(&digest).copied()
    }

    /// The first change of that time or later.
    fn first_at(&self, time: SourceTime) -> usize {
        self.changes.partition_point(|change| change.at < time)
    }

    /// Where the changes end that a document may list which ends at `until`, and where the next one begins.
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
        let of_set = self.changes[range].iter();
        of_set
            .filter(|change| change.sets.contains(&set) && !change.withheld)
            .cloned()
            .collect()
    }

    /// Publishes a notification of what has changed since the last one. `bare`: without its interval.
    pub(super) fn notification(&mut self, moment: u64, set: SetNo, bare: bool) -> Notification {
        let until = self.stamp(moment);
        let published = &self.sets[set];
        let (mut from, mut first) = (published.notified_until, published.notified);
        if self.habits.overlap > 0 {
            from = SourceTime::from_micros(from.micros() - self.habits.overlap * 1000);
            first = first.min(self.first_at(from));
        }
        let (end, next) = self.cut(until);
        let entries = self.entries(set, first..end);
        let published = &mut self.sets[set];
        published.notified_until = until;
        published.notified = next.max(published.notified);
        Notification {
            set,
            content: Content::Changes {
                interval: (!bare).then_some((from, until)),
                entries,
            },
        }
    }

    /// Writes the Change Lists anew; until then, they lag.
    pub(super) fn write_change_lists(&mut self, moment: u64, set: SetNo) {
        let mut lists = Vec::new();
        for draft in self.sets[set].drafts.clone() {
            let end = draft.until.map_or(self.changes.len(), |_| draft.last);
            let mut entries = self.entries(set, draft.first..end);
            // Entries of one time throughout show no order, and count as oldest first.
            let one_time = entries.windows(2).all(|pair| pair[0].at == pair[1].at);
            if self.habits.newest_first && !one_time && !self.habits.undated {
                entries.reverse();
            }
            let mut known = self.sets[set].lists.iter();
            let same = known.find(|list| {
                (list.key, list.from, list.until, list.entries.len())
                    == (draft.key, draft.from, draft.until, entries.len())
            });
            lists.push(same.cloned().unwrap_or_else(|| List {
                key: draft.key,
                from: draft.from,
                until: draft.until,
                entries: Arc::new(entries),
                written: moment,
            }));
        }
        self.sets[set].lists = lists;
    }

    /// Closes the open Change List and begins another; where there is no index, the one list begins anew.
    pub(super) fn roll_over(&mut self, moment: u64, set: SetNo) {
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
        self.lists_changed(moment, set);
    }

    /// Drops all closed Change Lists but the last.
    pub(super) fn drop_old_lists(&mut self, moment: u64, set: SetNo) {
        if self.habits.boundary == Boundary::Loose {
            return;
        }
        let drafts = &mut self.sets[set].drafts;
        let keep = drafts.len().saturating_sub(2);
        drafts.drain(..keep);
        // The first of all lists everything from where it begins: no Destination could know better.
        let from = drafts[0].from;
        let first = self.first_at(from);
        let oldest = &mut self.sets[set].drafts[0];
        oldest.first = oldest.first.min(first);
        self.lists_changed(moment, set);
    }

    fn lists_changed(&mut self, moment: u64, set: SetNo) {
        self.sets[set].index_written = moment;
        if self.habits.change_lists == ChangeLists::Replaced {
            self.sets[set].capability_list_written = moment;
        }
        self.write_change_lists(moment, set);
    }

    /// The number of the part that names a resource.
    fn part_of(&self, resource: ResourceNo, parts: usize) -> usize {
        match self.habits.part_form {
            PartForm::Typed if parts > 1 && resource == EXCLUDED => parts - 1,
            PartForm::Typed if parts > 1 => resource % (parts - 1),
            _ => resource % parts,
        }
    }

    pub(super) fn write_resource_list(&mut self, moment: u64, set: SetNo) {
        // The pages of a list are of one time, the lists of an index each of their own.
        let may_stay = self.habits.parts > 0 && self.habits.part_form != PartForm::Pages;
        let known = Some(&self.sets[set].resource_list).filter(|_| may_stay);
        let list = self.snapshot(moment, set, known);
        let published = &mut self.sets[set];
        published.former_list = Some(std::mem::replace(&mut published.resource_list, list));
    }

    pub(super) fn write_resource_dump(&mut self, moment: u64, set: SetNo) {
        let dump = self.snapshot(moment, set, None);
        let published = &mut self.sets[set];
        published.former_dump = Some(std::mem::replace(&mut published.resource_dump, dump));
    }

    /// Publishes the Resource Dump once more that was published before.
    pub(super) fn restore_resource_dump(&mut self, moment: u64, set: SetNo) {
        let published = &mut self.sets[set];
        if let Some(former) = published.former_dump.take() {
            published.resource_dump = former;
            published.resource_dump.written = moment;
        }
    }

    /// All that a set has, in parts. `known`: where those that have not changed are taken from.
    fn snapshot(&self, moment: u64, set: SetNo, known: Option<&ResourceList>) -> ResourceList {
        let at = self.stamp(moment);
        let parts = self.habits.parts.max(1);
        let versions = |entries: &[Change]| -> Vec<(ResourceNo, u32)> {
            let of = entries.iter();
            of.map(|entry| (entry.resource, entry.version)).collect()
        };
        let written = (0..parts).map(|number| {
            let here = self.resources().filter(|&resource| {
                let is_here = self.part_of(resource, parts) == number;
                is_here && self.exists[resource] && self.is_in(resource, set)
            });
            let entries: Vec<Change> = here
                .filter_map(|resource| self.last_change(resource).cloned())
                .collect();
            let same = known
                .and_then(|known| known.parts.get(number))
                .filter(|part| versions(&part.entries) == versions(&entries));
            same.cloned().unwrap_or(Part {
                at,
                written: moment,
                entries,
            })
        });
        ResourceList {
            at,
            written: moment,
            parts: written.collect(),
        }
    }

    /// Publishes the Resource List once more that was published before, as a cache or a backup does.
    pub(super) fn restore_resource_list(&mut self, moment: u64, set: SetNo) {
        let published = &mut self.sets[set];
        if let Some(former) = published.former_list.take() {
            published.resource_list = former;
            published.resource_list.written = moment;
        }
    }

    /// Changes what the Capability List names.
    pub(super) fn offer(&mut self, moment: u64, set: SetNo, offered: Offered) {
        let published = &mut self.sets[set];
        if published.offered != offered {
            published.offered = offered;
            published.capability_list_written = moment;
        }
    }

    pub(super) fn published(&self, set: SetNo) -> &Published {
        &self.sets[set]
    }
}

/// A representation.
pub(super) fn bytes(resource: ResourceNo, version: u32) -> Vec<u8> {
    format!("resource {resource}, version {version:06}\n").into_bytes()
}

/// The digest of a representation, as the Source announces it: of some resources that which the Destination computes by itself.
pub(super) fn digest(resource: ResourceNo, version: u32) -> Digest {
    let algorithm = [Algorithm::Sha256, Algorithm::Md5][resource % 2];
    Digest::of(algorithm, &bytes(resource, version))
}
