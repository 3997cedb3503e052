//! Tasks in the store: a model of `src/store/tasks.rs` and of what `src/store/planning.rs` does with them.

use resyncd::protocol::{ChangeKind, Digest, SourceTime};
use resyncd::sync::{Announced, LocalState};

use super::disk::{Baseline, Disk, Origin};
use super::source::{ResourceNo, SetNo, digest};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskState {
    Ready,
    /// Given up until the next poll.
    Failed,
}

#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) set: SetNo,
    pub(crate) kind: ChangeKind,
    pub(crate) changed_at: Option<SourceTime>,
    /// The time of the oldest change that it stands for.
    pub(crate) since: Option<SourceTime>,
    pub(crate) lastmod: Option<SourceTime>,
    pub(crate) hashes: Vec<Digest>,
    pub(crate) origin: Origin,
    pub(crate) state: TaskState,
    pub(crate) version: u32,
    pub(crate) attempts: u32,
    pub(crate) not_before: u64,
    /// The version that it tells of. Not in the store.
    pub(crate) told: u32,
}

/// What came of a task.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TaskResult {
    Published(u32),
    Removed,
    Failed { retry_at: Option<u64> },
}

impl Disk {
    pub(super) fn put_task(
        &mut self,
        now: u64,
        set: SetNo,
        origin: Origin,
        told: &Announced<'_>,
        resource: ResourceNo,
        version: u32,
    ) {
        let mut task = Task {
            set,
            kind: told.kind,
            changed_at: told.changed_at,
            since: told.changed_at,
            lastmod: told.lastmod,
            hashes: told.content.hashes.clone(),
            origin,
            state: TaskState::Ready,
            version: self.resources[resource].next_version,
            attempts: 0,
            not_before: now,
            told: version,
        };
        if origin == Origin::ResourceList
            && let Some(unbroken) = self.sets[set].coverage.unbroken_until()
        {
            task.since = task.since.min(Some(unbroken)).or(Some(unbroken));
        }
        if let Some(pending) = self.tasks.get_mut(&resource) {
            let same = pending.kind == task.kind
                && pending.changed_at == task.changed_at
                && pending.lastmod == task.lastmod
                && pending.hashes == task.hashes;
            if same {
                pending.told = pending.told.max(version);
                return;
            }
            task.version = pending.version + 1;
            task.since = task.since.min(pending.since);
        }
        self.tasks.insert(resource, task);
    }

    /// The task of a resource stands for a change of that time, too.
    pub(super) fn hold_back(&mut self, resource: ResourceNo, changed_at: SourceTime) {
        if let Some(task) = self.tasks.get_mut(&resource) {
            task.since = task.since.min(Some(changed_at));
        }
    }

    pub(super) fn drop_task(&mut self, resource: ResourceNo) {
        if let Some(task) = self.tasks.remove(&resource) {
            self.resources[resource].next_version = task.version + 1;
        }
    }

    /// Makes the tasks of a set due again that were given up.
    pub(crate) fn retry_failed(&mut self, now: u64, set: SetNo) {
        for task in self.tasks.values_mut() {
            if task.set == set && task.state == TaskState::Failed {
                (task.state, task.attempts, task.not_before) = (TaskState::Ready, 0, now);
            }
        }
    }

    /// Keeps what came of a task (`store::tasks::conclude`).
    pub(crate) fn conclude(
        &mut self,
        resource: ResourceNo,
        task: &Task,
        conclusion: TaskResult,
        moment: SourceTime,
    ) {
        let applied = LocalState {
            kind: (task.origin != Origin::ResourceList).then_some(task.kind),
            ..self.resources[resource].known.clone().unwrap_or_default()
        };
        let is_current = self
            .tasks
            .get(&resource)
            .is_some_and(|now| now.version == task.version);
        let called_off = self.called_off(resource, task, conclusion);
        let row = &mut self.resources[resource];
        match conclusion {
            TaskResult::Published(version) => {
                row.known = Some(LocalState {
                    changed_at: task.changed_at.or(applied.changed_at),
                    lastmod: task.lastmod.or(task.changed_at).or(Some(moment)),
                    hashes: vec![digest(resource, version)],
                    deleted: false,
                    ..applied
                });
                row.told = task.told;
            }
            TaskResult::Removed => {
                row.known = Some(LocalState {
                    changed_at: task.changed_at.or(applied.changed_at),
                    deleted: true,
                    ..applied
                });
                row.told = task.told;
                let newer = self.tasks.get(&resource).or(called_off.as_ref());
                let newer = newer.is_some_and(|newer| {
                    newer.version > task.version && newer.kind != ChangeKind::Deleted
                });
                if !newer {
                    for set in &mut self.sets {
                        set.members.remove(&resource);
                    }
                }
            }
            TaskResult::Failed { retry_at } => {
                if let Some(current) = self.tasks.get_mut(&resource).filter(|_| is_current) {
                    current.attempts += 1;
                    match retry_at {
                        Some(at) => current.not_before = at,
                        None => current.state = TaskState::Failed,
                    }
                }
            }
        }
        if is_current && !matches!(conclusion, TaskResult::Failed { .. }) {
            self.tasks.remove(&resource);
        }
        if let Some(called_off) = called_off {
            self.tasks.insert(resource, called_off);
        }
        self.conclude_baseline();
    }

    /// What puts right what a task has done that was called off while it was under way (`store::called_off`).
    fn called_off(
        &self,
        resource: ResourceNo,
        task: &Task,
        conclusion: TaskResult,
    ) -> Option<Task> {
        let row = &self.resources[resource];
        let known = row.known.as_ref()?;
        let is_lost = match conclusion {
            TaskResult::Published(version) => {
                known.deleted || !known.hashes.contains(&digest(resource, version))
            }
            TaskResult::Removed => !known.deleted,
            TaskResult::Failed { .. } => false,
        };
        if !is_lost || self.tasks.contains_key(&resource) {
            return None;
        }
        let kind = match (known.deleted, task.kind) {
            (true, _) => ChangeKind::Deleted,
            (false, ChangeKind::Deleted) => ChangeKind::Created,
            (false, _) => ChangeKind::Updated,
        };
        let claimed = self.sets[task.set].coverage.unbroken_until();
        Some(Task {
            kind,
            changed_at: known.changed_at,
            since: claimed.max(known.changed_at),
            lastmod: known.lastmod,
            hashes: if task.hashes.is_empty() {
                Vec::new()
            } else {
                known.hashes.clone()
            },
            state: TaskState::Ready,
            version: row.next_version,
            attempts: 0,
            not_before: 0,
            told: row.told,
            ..task.clone()
        })
    }

    pub(super) fn conclude_baseline(&mut self) {
        for (set, row) in self.sets.iter_mut().enumerate() {
            let is_busy = self.tasks.values().any(|task| {
                task.set == set
                    && task.state == TaskState::Ready
                    && task.origin == Origin::ResourceList
            });
            if row.baseline == Baseline::Listed && !is_busy {
                row.baseline = Baseline::Done;
            }
        }
    }
}
