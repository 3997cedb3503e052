//! The applier: a model of `src/engine/applier.rs`, `download.rs` and `publisher.rs`. It works beside the sets' workers: a
//! task may be replaced or dropped while its download is under way.

use std::collections::BTreeMap;

use resyncd::protocol::ChangeKind;

use super::source::{ResourceNo, digest};
use super::tasks::{Task, TaskResult, TaskState};
use super::world::{Halt, World};

/// The tasks under way, with what will come of each, and when.
#[derive(Clone, Debug, Default)]
pub(crate) struct Downloads {
    under_way: BTreeMap<ResourceNo, (u64, Task, DownloadOutcome)>,
}

#[derive(Clone, Copy, Debug)]
enum DownloadOutcome {
    Fetched(u32),
    Same,
    Remove,
    Failed { tries: u32 },
}

/// How often a resource is tried, and how often one that is not there.
const TRIES: u32 = 6;
const TRIES_IF_ABSENT: u32 = 3;

impl World {
    /// When the applier has something to do next.
    pub(crate) fn next_download(&self) -> Option<u64> {
        let under_way = &self.downloads.under_way;
        let due = self.disk.tasks.iter().filter(|(resource, task)| {
            task.state == TaskState::Ready && !under_way.contains_key(resource)
        });
        let starts = due.map(|(_, task)| task.not_before);
        let ends = under_way.values().map(|(end, _, _)| *end);
        starts.chain(ends).min()
    }

    /// Begins what is due, and ends what is finished.
    pub(crate) fn work_downloads(&mut self) -> Result<(), Halt> {
        let now = self.moment;
        let due: Vec<(ResourceNo, Task)> = self
            .disk
            .tasks
            .iter()
            .filter(|(_, task)| task.state == TaskState::Ready && task.not_before <= now)
            .filter(|(resource, _)| !self.downloads.under_way.contains_key(resource))
            .map(|(&resource, task)| (resource, task.clone()))
            .collect();
        for (resource, task) in due {
            let (outcome, takes) = self.carry_out(resource, &task);
            let under_way = &mut self.downloads.under_way;
            under_way.insert(resource, (now + takes, task, outcome));
        }
        let under_way = self.downloads.under_way.iter();
        let finished: Vec<ResourceNo> = under_way
            .filter(|(_, (end, _, _))| *end <= now)
            .map(|(&resource, _)| resource)
            .collect();
        for resource in finished {
            if let Some((_, task, outcome)) = self.downloads.under_way.remove(&resource) {
                self.publish_file(resource, &task, outcome)?;
            }
        }
        Ok(())
    }

    fn carry_out(&mut self, resource: ResourceNo, task: &Task) -> (DownloadOutcome, u64) {
        if task.kind == ChangeKind::Deleted {
            return (DownloadOutcome::Remove, 0);
        }
        let row = &self.disk.resources[resource];
        let live = row.known.as_ref().filter(|known| !known.deleted);
        let is_same =
            live.is_some_and(|live| task.hashes.iter().any(|hash| live.hashes.contains(hash)));
        if is_same && self.disk.files.contains_key(&resource) {
            return (DownloadOutcome::Same, 0);
        }
        self.requests.contents += 1;
        let takes = self.settings.download;
        if self.contents_down {
            return (DownloadOutcome::Failed { tries: TRIES }, takes);
        }
        let outcome = match self.source.content(resource) {
            None => DownloadOutcome::Failed {
                tries: TRIES_IF_ABSENT,
            },
            Some(version)
                if task
                    .hashes
                    .iter()
                    .any(|told| *told != digest(resource, version)) =>
            {
                DownloadOutcome::Failed { tries: TRIES }
            }
            Some(version) => DownloadOutcome::Fetched(version),
        };
        (outcome, takes)
    }

    /// First the file, then the database.
    fn publish_file(
        &mut self,
        resource: ResourceNo,
        task: &Task,
        outcome: DownloadOutcome,
    ) -> Result<(), Halt> {
        let conclusion = match outcome {
            DownloadOutcome::Fetched(version) => {
                self.step()?;
                self.disk.files.insert(resource, version);
                TaskResult::Published(version)
            }
            DownloadOutcome::Same => match self.disk.files.get(&resource) {
                Some(&version) => TaskResult::Published(version),
                None => TaskResult::Failed {
                    retry_at: Some(self.moment + 10_000),
                },
            },
            DownloadOutcome::Remove => {
                self.step()?;
                self.disk.files.remove(&resource);
                TaskResult::Removed
            }
            DownloadOutcome::Failed { tries } => {
                let tried = task.attempts + 1;
                let pause = 1000 << (tried - 1).min(6);
                TaskResult::Failed {
                    retry_at: (tried < tries).then_some(self.moment + pause),
                }
            }
        };
        let stamp = self.source.stamp(self.moment);
        self.transact(|disk| disk.conclude(resource, task, conclusion, stamp))
    }
}
