//! The tasks of a Source that are due, host by host.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use chrono::{DateTime, Utc};
use resyncd_core::ResourceUri;

use crate::store::ids::ResourceId;
use crate::store::sql::Connection;
use crate::store::tables::task::{Task, TaskState, queue, status};
use crate::store::{Store, StoreError};

/// How many tasks of a Source are queued in memory, over all its hosts.
const MOST_QUEUED: usize = 8192;
/// How many tasks of a host may be queued, however many hosts there are.
const FEWEST_A_HOST: usize = 8;

/// Tasks that were read before and are not completed.
#[derive(Clone, Debug, Default)]
pub struct TasksInProgress {
    /// Their resources: these tasks are not returned again.
    pub resources: HashSet<ResourceId>,
    /// How many of them have not been started, for each host.
    pub queued: HashMap<String, usize>,
}

/// Tasks that are due, read host by host.
#[derive(Clone, Debug, Default)]
pub struct DueTasks {
    /// The tasks.
    pub tasks: Vec<Task>,
    /// When the next task is due that is not due yet, if no host was left out.
    pub next_due: Option<DateTime<Utc>>,
    /// The hosts that may have more tasks that are due.
    pub full: HashSet<String>,
}

/// A task that a package member may be a candidate for.
#[derive(Clone, Debug)]
pub struct PackageTask {
    /// The task.
    pub task: Task,
    /// Whether it was given up for now.
    pub given_up: bool,
    /// Whether it is due now.
    pub due: bool,
}

impl Store {
    /// Tasks of a Source that are due, without those in progress: for each host so many that at most `a_host` of them are
    /// queued, fewer where there are many hosts.
    pub async fn due_tasks(
        self: &Arc<Self>,
        source: &str,
        now: DateTime<Utc>,
        a_host: usize,
        in_progress: TasksInProgress,
    ) -> Result<DueTasks, StoreError> {
        let source = source.to_owned();
        self.read(move |sql| due_tasks(sql, &source, now, a_host, &in_progress))
            .await
    }

    /// When the first of a Source's ready tasks is, or was, due; `None`: there are none.
    pub async fn next_due(
        self: &Arc<Self>,
        source: &str,
    ) -> Result<Option<DateTime<Utc>>, StoreError> {
        let source = source.to_owned();
        self.read(move |sql| {
            let mut first = None;
            for authority in queue::authorities(sql, &source, TaskState::Ready)? {
                first = earliest(first, queue::first_due(sql, &source, &authority)?);
            }
            Ok(first)
        })
        .await
    }

    /// The tasks of these resources that are executed when they are due.
    pub async fn tasks_of(
        self: &Arc<Self>,
        source: &str,
        now: DateTime<Utc>,
        resources: Vec<ResourceUri>,
    ) -> Result<Vec<PackageTask>, StoreError> {
        let source = source.to_owned();
        self.read(move |sql| {
            let mut tasks = Vec::new();
            for uri in &resources {
                if let Some((task, state, not_before)) = queue::of_resource(sql, &source, uri)? {
                    let given_up = state != TaskState::Ready;
                    tasks.push(PackageTask {
                        task,
                        given_up,
                        due: !given_up && not_before <= now,
                    });
                }
            }
            Ok(tasks)
        })
        .await
    }

    /// The last error of a resource's task, code and message, or else its state; `None`: it has no task.
    pub async fn task_error(
        self: &Arc<Self>,
        source: &str,
        uri: &ResourceUri,
    ) -> Result<Option<(String, String)>, StoreError> {
        let (source, uri) = (source.to_owned(), uri.clone());
        self.read(move |sql| Ok(status::error_of(sql, &source, &uri)?))
            .await
    }
}

fn due_tasks(
    sql: &Connection,
    source: &str,
    now: DateTime<Utc>,
    a_host: usize,
    in_progress: &TasksInProgress,
) -> Result<DueTasks, StoreError> {
    let mut due = DueTasks::default();
    // Host by host, because the index is by host: otherwise a million tasks would be read.
    let mut hosts = BTreeSet::new();
    for state in TaskState::QUEUED {
        hosts.extend(queue::authorities(sql, source, state)?);
    }
    let a_host = a_host.min((MOST_QUEUED / hosts.len().max(1)).max(FEWEST_A_HOST));
    let mut room = MOST_QUEUED.saturating_sub(in_progress.queued.values().sum());
    for host in hosts {
        if room == 0 {
            // The caller asks again as soon as one of the queued tasks is completed.
            break;
        }
        let queued = in_progress.queued.get(&host).copied().unwrap_or_default();
        let limit = room.min(a_host.saturating_sub(queued));
        let mut tasks = Vec::new();
        for state in TaskState::QUEUED {
            let (of, taken) = ((host.as_str(), state), &in_progress.resources);
            let rest = limit - tasks.len();
            tasks.extend(queue::due_of_host(sql, source, of, now, rest, taken)?);
            due.next_due = earliest(due.next_due, queue::next_due(sql, source, of, now)?);
        }
        room -= tasks.len();
        if tasks.len() == limit {
            due.full.insert(host);
        }
        due.tasks.extend(tasks);
    }
    Ok(due)
}

fn earliest(one: Option<DateTime<Utc>>, other: Option<DateTime<Utc>>) -> Option<DateTime<Utc>> {
    [one, other].into_iter().flatten().min()
}
