//! Random histories of two sets, with a hub that lies, stale lists, documents that are late or in reversed order, times of whole seconds
//! that several changes share, superseded tasks and kills: nothing is removed without proof, what was read is never claimed in vain, and
//! with the last documents the mirror has what the Source has. `RESYNCD_SIMULATIONS` sets how many.

use std::collections::BTreeMap;

use resourcesync::{ChangeKind, ContentInfo, SourceTime};

use super::super::*;
use super::Resource;
use crate::statement::tests::{content, time};
use crate::statement::{Entry, apply};

const RESOURCES: usize = 4;

/// A sequence of numbers that a seed determines.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = self.0.wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % limit
    }

    fn one_in(&mut self, number: usize) -> bool {
        self.below(number) == 0
    }

    fn set(&mut self) -> i64 {
        if self.one_in(2) { 1 } else { 2 }
    }
}

/// A change as the Source has recorded it.
#[derive(Clone, Debug)]
struct Change {
    /// When it happened, in a time that no two changes share.
    moment: i64,
    resource: usize,
    set: i64,
    kind: ChangeKind,
    version: u32,
}

/// What the Source has: the sets of a resource, its version, and both as of each moment of a change.
#[derive(Clone, Debug, Default)]
struct Truth {
    sets: Vec<i64>,
    version: u32,
    history: Vec<(i64, Vec<i64>, u32)>,
}

impl Truth {
    fn served(&self) -> Option<u32> {
        (!self.sets.is_empty()).then_some(self.version)
    }

    /// The sets and the version before a moment.
    fn before(&self, moment: i64) -> Option<(&[i64], u32)> {
        let earlier = self.history.iter().rev().find(|(at, ..)| *at < moment);
        earlier.map(|(_, sets, version)| (sets.as_slice(), *version))
    }

    /// When a version was made.
    fn begin_of(&self, version: u32) -> i64 {
        let made = self
            .history
            .iter()
            .find(|(_, sets, of)| *of == version && !sets.is_empty());
        made.map_or(0, |(at, ..)| *at)
    }
}

/// What the executor does with a task.
#[derive(Clone, Debug)]
enum Act {
    Fetch {
        exactly: Option<ContentInfo>,
        answers: bool,
    },
    Ask,
    Remove,
}

/// A task that was begun: what the Source has answered then, and the statements that were known.
#[derive(Clone, Debug)]
struct Running {
    resource: usize,
    act: Act,
    revision: Revision,
    served: Option<u32>,
}

struct History {
    random: Random,
    now: i64,
    /// How many moments share a second of the Source's documents.
    moments_a_second: i64,
    states_digests: bool,
    truth: Vec<Truth>,
    changes: Vec<Change>,
    resources: BTreeMap<usize, Resource>,
    /// The version of the file on the disk, whatever is recorded.
    on_disk: [u32; RESOURCES],
    lists: BTreeMap<i64, i64>,
    read: BTreeMap<i64, i64>,
    running: Vec<Running>,
    broken: Option<String>,
}

impl History {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed.wrapping_mul(77_777) + 13);
        for _ in 0..4 {
            random.below(2);
        }
        let shares_seconds = random.one_in(3);
        Self {
            now: 100,
            moments_a_second: if shares_seconds { 3 } else { 1 },
            // Two updates of one second are distinguished by nothing else.
            states_digests: shares_seconds || random.one_in(2),
            random,
            truth: vec![Truth::default(); RESOURCES],
            changes: Vec::new(),
            resources: BTreeMap::new(),
            on_disk: [0; RESOURCES],
            lists: BTreeMap::new(),
            read: BTreeMap::new(),
            running: Vec::new(),
            broken: None,
        }
    }

    /// The time that the Source's documents state for a moment.
    fn stated(&self, moment: i64) -> Option<SourceTime> {
        time(moment - moment % self.moments_a_second)
    }

    fn bytes(&self, resource: usize, version: u32) -> ContentInfo {
        if self.states_digests {
            content(&format!("{resource}.{version}"))
        } else {
            ContentInfo::default()
        }
    }

    /// A resource changes, or joins or leaves a set.
    fn change(&mut self) {
        self.now += 1 + i64::try_from(self.random.below(3)).unwrap();
        let (now, resource) = (self.now, self.random.below(RESOURCES));
        let what = self.random.below(4);
        let joined = self.random.below(2);
        let truth = &mut self.truth[resource];
        let mut stated = Vec::new();
        match (truth.sets.len(), what) {
            (0, _) => {
                truth.version += 1;
                truth.sets = [vec![1, 2], vec![1], vec![2], vec![1]][what].clone();
                stated.extend(truth.sets.iter().map(|&set| (set, ChangeKind::Created)));
            }
            (_, 0) => {
                let sets = std::mem::take(&mut truth.sets);
                stated.extend(sets.into_iter().map(|set| (set, ChangeKind::Deleted)));
            }
            (2, 1) => stated.push((truth.sets.remove(joined), ChangeKind::Deleted)),
            (1, 2) => {
                let other = 3 - truth.sets[0];
                truth.sets.push(other);
                stated.push((other, ChangeKind::Created));
            }
            _ => {
                truth.version += 1;
                stated.extend(truth.sets.iter().map(|&set| (set, ChangeKind::Updated)));
            }
        }
        let version = truth.version;
        truth.history.push((now, truth.sets.clone(), version));
        self.changes
            .extend(stated.into_iter().map(|(set, kind)| Change {
                moment: now,
                resource,
                set,
                kind,
                version,
            }));
    }

    fn entry(&self, change: &Change, voice: Voice) -> Entry {
        let content = if change.kind == ChangeKind::Deleted {
            ContentInfo::default()
        } else {
            self.bytes(change.resource, change.version)
        };
        Entry {
            set: SetKey(change.set),
            voice,
            stated: Stated::Change(change.kind),
            at: self.stated(change.moment),
            lastmod: None,
            content,
        }
    }

    fn apply(&mut self, resource: usize, entry: &Entry, overtaken: bool) {
        let known = self.resources.entry(resource).or_default();
        apply(&mut known.statements, entry, overtaken, &mut known.revision);
        self.settle(resource);
    }

    /// An entry of a change. One of a time that was read already is overtaken.
    fn say(&mut self, change: &Change, voice: Voice) {
        let read = self.read.get(&change.set);
        let overtaken = read.is_some_and(|read| change.moment < *read);
        let entry = self.entry(change, voice);
        self.apply(change.resource, &entry, overtaken);
    }

    /// One of the last changes is announced, by the Source or by a hub; or the hub makes one up.
    fn announce(&mut self, hub_lies: bool) {
        let made_up = hub_lies && self.random.one_in(3);
        if made_up {
            let kind = if self.random.one_in(2) {
                ChangeKind::Deleted
            } else {
                ChangeKind::Updated
            };
            let change = Change {
                moment: self.now - 3 + i64::try_from(self.random.below(5)).unwrap(),
                resource: self.random.below(RESOURCES),
                set: self.random.set(),
                kind,
                version: u32::try_from(self.random.below(5)).unwrap(),
            };
            self.say(&change, Voice::Hub);
        } else if let Some(newest) = self.changes.len().checked_sub(1) {
            let back = self.random.below(self.changes.len().min(4));
            let change = self.changes[newest - back].clone();
            // Of what happened in one second, only documents state the order.
            let is_of_hub = self.moments_a_second > 1 || hub_lies && self.random.one_in(2);
            let voice = if is_of_hub { Voice::Hub } else { Voice::Source };
            self.say(&change, voice);
        }
    }

    /// A Change List with every change of the set is read, in its order.
    fn read_changes(&mut self, set: i64) {
        let of_set: Vec<Change> = self
            .changes
            .iter()
            .filter(|c| c.set == set)
            .cloned()
            .collect();
        for change in of_set {
            self.say(&change, Voice::Source);
        }
        self.read.insert(set, self.now + 1);
        self.settle_all();
    }

    /// A Resource List is read that was made at that moment.
    fn read_list(&mut self, set: i64, moment: i64) {
        let Some(list) = self.stated(moment) else {
            return;
        };
        if self.lists.get(&set).is_some_and(|newest| *newest > moment) {
            return;
        }
        for resource in 0..RESOURCES {
            let found = self.truth[resource].before(list.micros() / 1_000_000);
            let named = found
                .filter(|(sets, _)| sets.contains(&set))
                .map(|(_, version)| version);
            let known = self.resources.get(&resource);
            let is_absent = known.is_some_and(|known| known.is_to_be_named(set, Some(list)));
            let (stated, at, content) = match named {
                Some(version) => {
                    let modified = self.stated(self.truth[resource].begin_of(version));
                    (
                        Stated::Listed(list),
                        modified,
                        self.bytes(resource, version),
                    )
                }
                None if is_absent => (Stated::Absent(list), Some(list), ContentInfo::default()),
                None => continue,
            };
            let entry = Entry {
                set: SetKey(set),
                voice: Voice::Source,
                stated,
                at,
                lastmod: named.and(at),
                content,
            };
            self.apply(resource, &entry, false);
        }
        self.lists.insert(set, moment);
        self.settle_all();
    }

    fn decision(&self, resource: usize) -> Decision<'_> {
        let known = &self.resources[&resource];
        let set = |set: SetKey| {
            let read_until = self.read.get(&set.0).and_then(|at| self.stated(*at));
            SetFacts {
                is_followed: true,
                list_at: self.lists.get(&set.0).and_then(|at| self.stated(*at)),
                read: read_until.map(Interval::before),
                unbroken: read_until,
            }
        };
        let mut running = self.running.iter().filter(|it| it.resource == resource);
        let record = Record {
            is_requested: running.any(|task| matches!(task.act, Act::Fetch { .. })),
            ..known.record()
        };
        decide(&known.statements, set, &record, false)
    }

    fn settle(&mut self, resource: usize) {
        let is_settled = self.decision(resource).desired == Desired::Settled;
        let is_running = self.running.iter().any(|task| task.resource == resource);
        let known = self.resources.get_mut(&resource).unwrap();
        // Only the executor ends what it may be executing.
        known.is_wanted = !is_settled || (is_running && known.is_wanted);
        known.has_failed &= known.is_wanted;
    }

    fn settle_all(&mut self) {
        for resource in self.resources.keys().copied().collect::<Vec<_>>() {
            self.settle(resource);
        }
    }

    /// A task is begun: the Source is asked now, and the result is stored later, or never.
    fn begin(&mut self, resource: usize) {
        let is_running = self.running.iter().any(|task| task.resource == resource);
        if is_running
            || self
                .resources
                .get(&resource)
                .is_none_or(|r| !r.is_wanted || r.has_failed)
        {
            return;
        }
        let act = match self.decision(resource).desired {
            Desired::Settled => {
                self.resources.get_mut(&resource).unwrap().is_wanted = false;
                return;
            }
            Desired::Fetch {
                stated,
                verifies,
                absence,
            } => Act::Fetch {
                exactly: Some(stated.entry.content.clone())
                    .filter(|content| verifies && content.is_verifiable()),
                answers: absence == Absence::Answers,
            },
            Desired::Ask { .. } => Act::Ask,
            Desired::Remove { .. } => Act::Remove,
        };
        self.running.push(Running {
            resource,
            act,
            revision: self.resources[&resource].revision,
            served: self.truth[resource].served(),
        });
    }

    /// A task ends. After a kill its effect is there and its result is not.
    fn end(&mut self, place: usize, is_killed: bool) {
        let task = self.running.remove(place);
        // What was asked for is removed in the same step, if there is none.
        let is_denied = matches!(task.act, Act::Ask) && task.served.is_none();
        if is_denied || matches!(task.act, Act::Remove) {
            self.check_removal(&task);
            self.on_disk[task.resource] = 0;
        }
        let known = self.resources.get_mut(&task.resource).unwrap();
        let served = task
            .served
            .map(|version| (version, content(&format!("{}.{version}", task.resource))));
        match (&task.act, served) {
            (Act::Remove, _) if is_killed => {}
            (Act::Remove, _) => known.remove(),
            (
                Act::Fetch {
                    exactly: Some(stated),
                    ..
                },
                Some((_, bytes)),
            ) if *stated != bytes => {
                known.has_failed = !is_killed;
            }
            (Act::Fetch { exactly, .. }, Some((version, bytes))) => {
                let verifies = exactly.is_some();
                self.on_disk[task.resource] = version;
                if !is_killed {
                    known.publish(bytes, task.revision, verifies);
                }
            }
            _ if is_killed => {}
            (Act::Ask, Some((_, bytes))) => known.note_served(&bytes, task.revision),
            (act, None) => {
                known.answer = Some((Answer::Absent, task.revision));
                known.has_failed = matches!(act, Act::Fetch { answers: false, .. });
                if is_denied {
                    known.remove();
                }
            }
        }
        if !is_killed {
            self.settle(task.resource);
        }
    }

    fn kill(&mut self) {
        while let Some(last) = self.running.len().checked_sub(1) {
            let place = self.random.below(last + 1);
            self.end(place, true);
        }
        for known in self.resources.values_mut() {
            known.is_doubted |= known.is_wanted;
        }
        self.settle_all();
    }

    /// A file is removed only if its resource was deleted, or has left a set, since the version that it is was made. Not promised: that it
    /// stays for the sake of a set whose documents have not named it yet.
    fn check_removal(&mut self, task: &Running) {
        let known = &self.resources[&task.resource];
        let is_named = known
            .statements
            .iter()
            .any(|s| s.entry.voice == Voice::Source && s.exists() && s.revision <= task.revision);
        let since = self.truth[task.resource].begin_of(self.on_disk[task.resource]);
        let was_deleted = self.changes.iter().any(|change| {
            let is_deletion = change.kind == ChangeKind::Deleted;
            change.resource == task.resource && is_deletion && change.moment >= since
        });
        if self.on_disk[task.resource] != 0 && is_named && !was_deleted {
            let broken = format!("{} is removed without proof: {known:?}", task.resource);
            self.broken.get_or_insert(broken);
        }
    }

    /// What was read of a set the mirror has, or it is wanted.
    fn check_claims(&mut self) {
        for (&set, &until) in &self.read {
            for (resource, truth) in self.truth.iter().enumerate() {
                let Some((sets, version)) = truth.before(until) else {
                    continue;
                };
                let is_deleted_since = self.changes.iter().any(|change| {
                    let is_deletion = change.kind == ChangeKind::Deleted;
                    change.resource == resource && is_deletion && change.moment >= until
                });
                let known = self.resources.get(&resource);
                let is_missing =
                    known.is_none_or(|known| !known.is_wanted && self.on_disk[resource] < version);
                if sets.contains(&set) && !is_deleted_since && is_missing {
                    let broken = format!(
                        "{resource} v{version} is claimed by set {set} until {until}: {known:?}"
                    );
                    self.broken.get_or_insert(broken);
                }
            }
        }
    }

    fn work(&mut self) {
        for round in 0..12 {
            if round % 4 == 3 {
                self.retry();
            }
            (0..RESOURCES).for_each(|resource| self.begin(resource));
            while !self.running.is_empty() {
                self.end(0, false);
            }
        }
    }

    fn retry(&mut self) {
        self.resources
            .values_mut()
            .for_each(|known| known.has_failed = false);
    }

    fn step(&mut self, hub_lies: bool) {
        match self.random.below(12) {
            0..=3 => self.change(),
            4..=6 => self.announce(hub_lies),
            7 => {
                let set = self.random.set();
                self.read_changes(set);
            }
            8 => {
                let (set, is_stale) = (self.random.set(), self.random.one_in(3));
                let age = if is_stale { self.random.below(6) } else { 0 };
                let moment = self.now + 1 - i64::try_from(age).unwrap();
                self.now += 1;
                self.read_list(set, moment);
            }
            9 | 10 => {
                let resource = self.random.below(RESOURCES);
                self.begin(resource);
            }
            _ if self.running.is_empty() => {}
            _ if self.random.one_in(5) => self.kill(),
            _ => {
                let place = self.random.below(self.running.len());
                self.end(place, false);
            }
        }
        self.check_claims();
    }

    /// The last documents are read, and everything is done that is left: the mirror has what the Source has.
    fn finish(mut self, hub_lies: bool) -> Result<(), String> {
        while !self.running.is_empty() {
            self.end(0, false);
        }
        self.now += 2 + self.moments_a_second;
        self.retry();
        let last = self.random.below(3);
        for set in [1, 2] {
            if last != 0 || hub_lies {
                self.read_list(set, self.now);
            }
            if last != 1 {
                self.read_changes(set);
            }
        }
        self.work();
        if let Some(broken) = self.broken {
            return Err(broken);
        }
        for (resource, truth) in self.truth.iter().enumerate() {
            let known = self.resources.get(&resource);
            let on_disk = self.on_disk[resource];
            let is_wanted = known.is_some_and(|known| known.is_wanted);
            if on_disk != truth.served().unwrap_or(0) || is_wanted {
                let of_resource = self.changes.iter().filter(|c| c.resource == resource);
                let changes: Vec<_> = of_resource.collect();
                return Err(format!(
                    "{resource}: {truth:?}\n{known:?}\n{changes:?}\n{:?}",
                    self.lists
                ));
            }
        }
        Ok(())
    }
}

#[test]
fn any_history_ends_in_sync() {
    let asked = std::env::var("RESYNCD_SIMULATIONS");
    let histories = asked.map_or(1_000, |histories| histories.parse().unwrap());
    for seed in 0..histories {
        let mut history = History::new(seed);
        let hub_lies = history.random.one_in(2);
        for _ in 0..10 + seed % 140 {
            history.step(hub_lies);
        }
        if let Err(broken) = history.finish(hub_lies) {
            panic!("seed {seed}: {broken}");
        }
    }
}
