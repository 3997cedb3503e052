//! Executes tasks with the functions of the applier, one after the other. A download takes its time: meanwhile, its task may
//! be replaced or dropped.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use resyncd_mirror::MirrorPath;
use tokio::sync::broadcast;

use super::daemon::{Inside, NAME};
use super::documents::Target;
use super::stage::Stage;
use crate::clock;
use crate::engine::apply::stepping::Executed;
use crate::store::{ResourceId, Store, StoreError, TaskResult, TasksInProgress, Wake};

/// How many tasks are taken from the database at once.
const AT_ONCE: usize = 64;

/// The tasks under way, with what came of each, and when.
pub(super) struct Downloads {
    under_way: BTreeMap<ResourceId, (u64, Executed)>,
    next_due: Option<u64>,
    look: bool,
    wakes: broadcast::Receiver<Wake>,
    /// How long a download takes, in milliseconds.
    duration: u64,
}

impl Downloads {
    pub(super) fn new(store: &Store, duration: u64) -> Self {
        Self {
            under_way: BTreeMap::new(),
            next_due: None,
            look: true,
            wakes: store.wakes(),
            duration,
        }
    }

    /// The store has tasks, or may have.
    pub(super) fn look(&mut self) {
        self.look = true;
    }

    /// When there is something to do next.
    pub(super) fn next_event(&self) -> Option<u64> {
        if self.look {
            return Some(0);
        }
        let ends = self.under_way.values().map(|(end, ..)| *end);
        ends.chain(self.next_due).min()
    }
}

impl Inside {
    /// Begins what is due, and ends what is finished. Fails only if the store does.
    pub(super) async fn work_downloads(&self, stage: &Stage) -> Result<(), StoreError> {
        let Ok(mut downloads) = self.downloads.try_lock() else {
            // They are being worked on.
            return Ok(());
        };
        loop {
            while let Ok(wake) = downloads.wakes.try_recv() {
                downloads.look |= matches!(wake, Wake::Tasks(_));
            }
            let now = stage.moment();
            if downloads.next_event().is_none_or(|next| next > now) {
                return Ok(());
            }
            self.begin(&mut downloads, stage, now).await?;
            self.end(&mut downloads, stage, now).await?;
        }
    }

    async fn begin(
        &self,
        downloads: &mut Downloads,
        stage: &Stage,
        now: u64,
    ) -> Result<(), StoreError> {
        let taken = TasksInProgress {
            resources: downloads.under_way.keys().copied().collect(),
            queued: HashMap::new(),
        };
        let wall = clock::now().wall;
        let due = self.store.due_tasks(NAME, wall, AT_ONCE, taken).await?;
        downloads.look = false;
        downloads.next_due = due.next_due.map(|next| {
            let wait = (next - wall).num_milliseconds();
            now + u64::try_from(wait).unwrap_or_default() + 1
        });
        for task in due.tasks {
            let before = stage.scene().requests.contents;
            let resource = task.resource;
            let executed = self.stepper.execute(task).await;
            let is_fetched = stage.scene().requests.contents > before;
            let takes = if is_fetched { downloads.duration } else { 0 };
            downloads
                .under_way
                .insert(resource, (now + takes, executed));
        }
        Ok(())
    }

    /// First the file, then the database.
    async fn end(
        &self,
        downloads: &mut Downloads,
        stage: &Stage,
        now: u64,
    ) -> Result<(), StoreError> {
        let ended = downloads.under_way.iter();
        let ended: Vec<ResourceId> = ended
            .filter(|(_, (end, ..))| *end <= now)
            .map(|(&resource, _)| resource)
            .collect();
        for resource in ended {
            let Some((_, executed)) = downloads.under_way.remove(&resource) else {
                continue;
            };
            if !self.store.commit_hook().step() {
                return Err(StoreError::Closed);
            }
            let results = self.stepper.publish(executed);
            results.iter().for_each(|result| self.note(stage, result));
            self.store
                .complete(clock::now().wall, Arc::new(results))
                .await?;
            downloads.look = true;
        }
        Ok(())
    }

    /// Notes what the mirror has now.
    fn note(&self, stage: &Stage, result: &TaskResult) {
        let (task, path) = match result {
            TaskResult::Published(publication) => (&publication.task, &publication.path),
            TaskResult::Removed { task, .. } => (task, &task.path),
            TaskResult::Served { .. }
            | TaskResult::Unselected { .. }
            | TaskResult::Failed { .. } => return,
        };
        let resource = Target::resource(task.uri.as_str());
        let mirror = self.stepper.mirror();
        let path = mirror
            .root()
            .join(MirrorPath::parse(path).unwrap().to_string());
        let mut scene = stage.scene();
        match std::fs::read(path) {
            Ok(bytes) => {
                let version = scene.source.version_of(&bytes);
                let version = version.expect("a file has what the Source has served");
                scene.files.insert(resource, version);
            }
            Err(_) => drop(scene.files.remove(&resource)),
        }
    }
}
