//! What the Destination has committed: a model of `src/store` (planning, lists, tasks, sets, inbox) and of the mirror's
//! files. Each method is one transaction.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use resyncd::protocol::{ChangeKind, ContentInfo, Digest, SourceTime};
use resyncd::sync::{
    Announced, Coverage, Decision, Gap, LocalState, NotificationId, Pending, plan_absent,
    plan_change, plan_listed,
};

use super::source::{
    Change, Notification, RESOURCES, ResourceList, ResourceNo, SetNo, Source, digest,
};
use super::tasks::Task;

/// So few deliveries are remembered that some come again when they are forgotten.
const MOST_REMEMBERED: usize = 3;

/// How far the baseline of a set has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Baseline {
    Missing,
    Listed,
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Notification,
    ChangeList,
    ResourceList,
}

#[derive(Clone, Debug)]
pub(crate) struct SetRow {
    pub(crate) coverage: Coverage,
    pub(crate) gaps: Vec<Gap>,
    pub(crate) baseline: Baseline,
    pub(crate) read_until: Option<SourceTime>,
    generation: u32,
    pub(crate) members: BTreeMap<ResourceNo, u32>,
    /// The revision of each document that need not be read again while it stays the same.
    pub(crate) documents: BTreeMap<u32, u32>,
    /// The Change List that the Capability List named last.
    pub(crate) offered: Option<u32>,
    /// The open Change List that was read last.
    pub(crate) open_list: Option<u32>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct ResourceRow {
    /// `None`: nothing was applied yet.
    pub(crate) known: Option<LocalState>,
    pub(crate) next_version: u32,
    /// The version that the applied change told of. Not in the store: what it is judged by.
    pub(crate) told: u32,
}

/// What becomes true when all of a document's changes have become tasks.
#[derive(Clone, Debug, Default)]
pub(crate) struct BatchCommit {
    pub(crate) progress: Option<(Coverage, Vec<Gap>)>,
    pub(crate) delivery: Option<NotificationId>,
    pub(crate) document: Option<(u32, u32)>,
    pub(crate) is_baseline: bool,
    pub(crate) read_until: Option<SourceTime>,
}

#[derive(Clone, Debug)]
pub(crate) struct Disk {
    pub(crate) sets: Vec<SetRow>,
    pub(crate) resources: [ResourceRow; RESOURCES],
    pub(crate) tasks: BTreeMap<ResourceNo, Task>,
    pub(crate) inbox: BTreeMap<NotificationId, Arc<Notification>>,
    received: NotificationId,
    delivered: VecDeque<Arc<Notification>>,
    /// The mirror: the version of each file. It moves before the database does.
    pub(crate) files: BTreeMap<ResourceNo, u32>,
}

impl Disk {
    pub(crate) fn new(sets: usize) -> Self {
        let set = SetRow {
            coverage: Coverage::default(),
            gaps: Vec::new(),
            baseline: Baseline::Missing,
            read_until: None,
            generation: 0,
            members: BTreeMap::new(),
            documents: BTreeMap::new(),
            offered: None,
            open_list: None,
        };
        Self {
            sets: vec![set; sets],
            resources: Default::default(),
            tasks: BTreeMap::new(),
            inbox: BTreeMap::new(),
            received: 0,
            delivered: VecDeque::new(),
            files: BTreeMap::new(),
        }
    }

    pub(crate) fn receive(&mut self, notification: Arc<Notification>) {
        // One without an interval is remembered for so short a time that it always comes too late.
        if notification.stated.is_some() {
            let mut delivered = self.delivered.iter();
            if delivered.any(|known| Arc::ptr_eq(known, &notification)) {
                return;
            }
            self.delivered.push_back(Arc::clone(&notification));
            if self.delivered.len() > MOST_REMEMBERED {
                self.delivered.pop_front();
            }
        }
        self.received += 1;
        self.inbox.insert(self.received, notification);
    }

    /// Makes tasks of changes; with its end, moves all that moves with them (`store::planning::apply`).
    pub(crate) fn apply(
        &mut self,
        now: u64,
        set: SetNo,
        origin: Origin,
        changes: &[(Change, Vec<Digest>)],
        end: Option<BatchCommit>,
    ) {
        for (change, hashes) in changes {
            let content = content_of(hashes.clone());
            let told = Announced {
                kind: change.kind,
                changed_at: Some(change.at),
                lastmod: None,
                content: &content,
                late: change.late,
            };
            let known = self.resources[change.resource].known.clone();
            let known = known.as_ref();
            let decision = plan_change(&told, known, self.pending(change.resource).as_ref());
            let known_gone = known.is_some_and(|known| known.deleted);
            let gone = decision == Decision::Older && known_gone;
            if !gone && change.kind != ChangeKind::Deleted {
                self.join(set, change.resource);
            }
            match decision {
                Decision::Task => {
                    self.put_task(now, set, origin, &told, change.resource, change.version)
                }
                // Older than what is pending, and newer than what is here: it is done with what is pending, not before.
                Decision::Older if known.is_none_or(|known| known.changed_at < Some(change.at)) => {
                    self.hold_back(change.resource, change.at);
                }
                // One of the same second as what is here may come before that, or after it: nothing more is claimed.
                Decision::Older if plan_change(&told, known, None) == Decision::Task => {
                    let claimed = self.sets[set].coverage.unbroken_until();
                    let at = claimed.map_or(change.at, |claimed| claimed.max(change.at));
                    self.hold_back(change.resource, at);
                }
                Decision::Older => {}
                Decision::Done => self.drop_task(change.resource),
            }
        }
        if let Some(end) = end {
            self.finish(set, end);
        }
    }

    fn finish(&mut self, set: SetNo, end: BatchCommit) {
        let row = &mut self.sets[set];
        if let Some((coverage, gaps)) = end.progress {
            (row.coverage, row.gaps) = (coverage, gaps);
        }
        row.documents.extend(end.document);
        row.read_until = end.read_until.or(row.read_until);
        if end.is_baseline && row.baseline == Baseline::Missing {
            row.baseline = Baseline::Listed;
        }
        if let Some(delivery) = end.delivery {
            self.inbox.remove(&delivery);
        }
        self.conclude_baseline();
    }

    /// Begins to read a Resource List (`store::lists::begin_list`).
    pub(crate) fn begin_list(&mut self, set: SetNo) {
        let row = &mut self.sets[set];
        row.generation += 1;
        // What it covers may have happened to a resource before the change that is its task.
        let Some(unbroken) = row.coverage.unbroken_until() else {
            return;
        };
        for (resource, task) in &mut self.tasks {
            if task.set == set || row.members.contains_key(resource) {
                task.since = task.since.min(Some(unbroken));
            }
        }
    }

    /// Takes the entries of a Resource List (`store::lists::list_entries`).
    pub(crate) fn list_entries(&mut self, now: u64, set: SetNo, list: &ResourceList, hashed: bool) {
        for entry in &list.entries {
            let digest = hashed.then(|| digest(entry.resource, entry.version));
            let content = content_of(digest.into_iter().collect());
            let mut told = Announced {
                kind: ChangeKind::Created,
                changed_at: Some(entry.at),
                lastmod: Some(entry.at),
                content: &content,
                late: false,
            };
            let known = self.resources[entry.resource].known.as_ref();
            let pending = self.pending_but_listed(set, entry.resource);
            let decision = plan_listed(&told, list.at, known, pending.as_ref());
            let gone = known.is_some_and(|known| known.deleted) && decision == Decision::Older;
            if known.is_some_and(|known| !known.deleted) {
                told.kind = ChangeKind::Updated;
            }
            if !gone {
                self.join(set, entry.resource);
            }
            match decision {
                Decision::Task => {
                    self.put_task(
                        now,
                        set,
                        Origin::ResourceList,
                        &told,
                        entry.resource,
                        entry.version,
                    );
                }
                Decision::Done => self.drop_task(entry.resource),
                Decision::Older => {
                    if let Some(unbroken) = self.sets[set].coverage.unbroken_until() {
                        self.hold_back(entry.resource, unbroken);
                    }
                }
            }
        }
    }

    /// Deletes what the list, read whole, does not name (`store::lists::list_absent`).
    pub(crate) fn list_absent(&mut self, now: u64, set: SetNo, list: &ResourceList) {
        let generation = self.sets[set].generation;
        let members = self.sets[set].members.iter();
        let absent: Vec<ResourceNo> = members
            .filter(|&(_, &seen)| seen < generation)
            .map(|(&resource, _)| resource)
            .collect();
        for resource in absent {
            let known = self.resources[resource].known.as_ref();
            let pending = self.pending_but_listed(set, resource);
            if plan_absent(list.at, known, pending.as_ref()) {
                let others = (0..self.sets.len()).filter(|&other| other != set);
                if others
                    .into_iter()
                    .any(|other| self.sets[other].members.contains_key(&resource))
                {
                    self.sets[set].members.remove(&resource);
                    continue;
                }
                let going = self
                    .pending(resource)
                    .is_some_and(|task| task.kind == ChangeKind::Deleted);
                if !going {
                    let told = Announced {
                        kind: ChangeKind::Deleted,
                        changed_at: Some(list.at),
                        lastmod: None,
                        content: &ContentInfo::default(),
                        late: false,
                    };
                    self.put_task(
                        now,
                        set,
                        Origin::ResourceList,
                        &told,
                        resource,
                        list.versions[resource],
                    );
                }
            }
            self.join(set, resource);
        }
    }

    fn pending(&self, resource: ResourceNo) -> Option<Pending> {
        self.tasks.get(&resource).map(|task| Pending {
            kind: task.kind,
            changed_at: task.changed_at,
        })
    }

    /// What is pending, as a Resource List looks at it.
    fn pending_but_listed(&self, set: SetNo, resource: ResourceNo) -> Option<Pending> {
        let task = self.tasks.get(&resource)?;
        let is_outdone = task.origin == Origin::ResourceList && task.set == set;
        self.pending(resource).filter(|_| !is_outdone)
    }

    fn join(&mut self, set: SetNo, resource: ResourceNo) {
        let row = &mut self.sets[set];
        row.members.insert(resource, row.generation);
    }

    /// The end of the first interval, held back to the oldest change in it that is not applied yet
    /// (`store::sets::synced_until`).
    pub(crate) fn synced_until(&self, set: SetNo) -> Option<SourceTime> {
        let row = &self.sets[set];
        if row.baseline != Baseline::Done {
            return None;
        }
        let unbroken = row.coverage.unbroken_until()?;
        let tasks = self
            .tasks
            .iter()
            .filter(|(resource, task)| task.set == set || row.members.contains_key(resource));
        let oldest: Vec<Option<SourceTime>> = tasks.map(|(_, task)| task.since).collect();
        match oldest.iter().min() {
            None => Some(unbroken),
            Some(&oldest) => oldest.map(|oldest| oldest.min(unbroken)),
        }
    }

    /// Whether a resource is gone from a set and is kept because it belongs to another.
    pub(crate) fn is_left_to_others(&self, set: SetNo, resource: ResourceNo) -> bool {
        let members: Vec<bool> = self
            .sets
            .iter()
            .map(|row| row.members.contains_key(&resource))
            .collect();
        !members[set] && members.contains(&true)
    }

    /// Whether the mirror is where the Source is.
    pub(crate) fn difference(&self, source: &Source) -> BTreeSet<ResourceNo> {
        (0..RESOURCES)
            .filter(|&resource| self.files.get(&resource).copied() != source.content(resource))
            .collect()
    }
}

fn content_of(hashes: Vec<Digest>) -> ContentInfo {
    ContentInfo {
        hashes,
        ..ContentInfo::default()
    }
}
