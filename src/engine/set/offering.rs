//! Offers the members of an open package to the executor while the entries of its manifest are ingested.
//!
//! A batch of entries is offered and ingested; then the ingestion waits until the executor has tried every task of
//! the batch, or of the batch before. Then the offers are withdrawn.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use resourcesync::{ChangeKind, Link};
use resyncd_core::ResourceUri;
use resyncd_packages::Package;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::changes::ListedChange;
use super::entry_batches::EntrySource;
use crate::clock;
use crate::engine::EngineError;
use crate::engine::apply::members::PackageMember;
use crate::engine::apply::patching::patch_kind;
use crate::engine::context::SourceContext;
use crate::store::{Change, Origin, PackageTask, Task, VersionRule, Wake};

/// How many of the awaited members are queried at once.
const LAST: usize = 32;

/// The members of a package on offer, batch by batch; of none where there is no package. Dropping it withdraws the offers.
pub(super) struct Offering {
    context: Arc<SourceContext>,
    package: Option<Package>,
    /// The origin of the tasks.
    origin: Origin,
    /// Those of each batch that is on offer, the earliest first.
    batches: VecDeque<Vec<Arc<PackageMember>>>,
    /// Whether an unusable member of the package was logged.
    is_logged: Arc<AtomicBool>,
}

impl Offering {
    /// The package that entries are read from, for tasks of that origin.
    pub(super) fn of(context: &Arc<SourceContext>, entries: &EntrySource, origin: Origin) -> Self {
        Self {
            context: Arc::clone(context),
            package: match entries {
                EntrySource::Document(_) => None,
                EntrySource::Package(opened) => Some(opened.package.clone()),
            },
            origin,
            batches: VecDeque::new(),
            is_logged: Arc::default(),
        }
    }

    /// Offers the bytes of a batch of entries, each for the change that it states, and returns the changes.
    pub(super) fn offer(&mut self, entries: Vec<ListedChange>) -> Vec<Change> {
        let mut members = Vec::new();
        let offered = entries.into_iter().map(|(change, path)| {
            members.extend(self.offer_one(&change, path));
            change
        });
        let changes = offered.collect();
        self.batches.push_back(members);
        changes
    }

    fn offer_one(&self, change: &Change, path: Option<String>) -> Option<Arc<PackageMember>> {
        let package = self.package.as_ref()?;
        let path = package.path_of(path, change.uri.as_str());
        let is_packed = |link: &Link| link.path.is_some() && patch_kind(link).is_some();
        let has_patch = self.context.source.patches && change.links.iter().any(is_packed);
        let is_no_task =
            change.kind == ChangeKind::Deleted || change.version == VersionRule::OnlyStored;
        if is_no_task || (path.is_none() && !has_patch) {
            return None;
        }
        let is_logged = Arc::clone(&self.is_logged);
        let member = PackageMember::new(change, path, package.clone(), self.origin, is_logged);
        let member = Arc::new(member);
        self.context.members.offer(&member);
        Some(member)
    }

    /// Waits until the executor has tried the tasks of the members of all batches, and withdraws the offers.
    pub(super) async fn wait_for_tasks(&mut self) -> Result<(), EngineError> {
        self.wait_for_all_but(0).await
    }

    /// As [`wait_for_tasks`](Self::wait_for_tasks), but for the last batch: it is executed while the next one is read and ingested.
    pub(super) async fn wait_for_earlier_tasks(&mut self) -> Result<(), EngineError> {
        self.wait_for_all_but(1).await
    }

    async fn wait_for_all_but(&mut self, batches: usize) -> Result<(), EngineError> {
        while self.batches.len() > batches
            && let Some(members) = self.batches.front()
        {
            let tried = if members.is_empty() {
                Ok(())
            } else {
                self.all_tried(members).await
            };
            self.withdraw_first();
            tried?;
        }
        Ok(())
    }

    /// Waits for each task until it is executed, replaced by a newer one or given up, or its member is withdrawn. On a full disk
    /// that may take any time.
    async fn all_tried(&self, members: &[Arc<PackageMember>]) -> Result<(), EngineError> {
        let mut wakes = self.context.store.wakes();
        let found = self.tasks_of(members.iter().collect()).await?;
        self.retry_now(&found).await?;
        let mut awaited: Vec<&Arc<PackageMember>> =
            found.into_iter().map(|(member, _)| member).collect();
        while !awaited.is_empty() {
            // Wakes queued so far report only what the query finds anyway.
            wakes = wakes.resubscribe();
            // They are tried in about their order: while the last ones are pending, the others need not be queried.
            let last = awaited.split_off(awaited.len().saturating_sub(LAST));
            let found = self.tasks_of(last).await?;
            let pending = found.into_iter().filter(|(_, task)| !task.given_up);
            let pending: Vec<&Arc<PackageMember>> = pending.map(|(member, _)| member).collect();
            // Only a daemon waits for a full disk.
            let runtime_status = &self.context.runtime_status;
            let has_disk_error = runtime_status.has_disk_error(self.context.name());
            if !self.context.subscribes && has_disk_error {
                return Err(EngineError::UnwrittenMembers);
            }
            if !pending.is_empty() && !self.woken(&mut wakes).await {
                return Err(EngineError::Interrupted);
            }
            awaited.extend(pending);
        }
        Ok(())
    }

    /// Those of the members that are still on offer and have a task, with that.
    async fn tasks_of<'a>(
        &self,
        mut members: Vec<&'a Arc<PackageMember>>,
    ) -> Result<Vec<(&'a Arc<PackageMember>, PackageTask)>, EngineError> {
        let (context, now) = (&self.context, clock::now().wall);
        members.retain(|member| context.members.is_offered(member));
        let uris = members.iter().map(|member| member.uri.clone()).collect();
        let tasks = context.store.tasks_of(context.name(), now, uris);
        let tasks: HashMap<ResourceUri, PackageTask> = tasks
            .await?
            .into_iter()
            .map(|found| (found.task.uri.clone(), found))
            .collect();
        let found = members.into_iter().filter_map(|member| {
            let found = tasks.get(&member.uri)?;
            member.is_of(&found.task).then(|| (member, found.clone()))
        });
        Ok(found.collect())
    }

    /// Makes tasks due that wait for a retry: the package has their bytes now.
    async fn retry_now(
        &self,
        found: &[(&Arc<PackageMember>, PackageTask)],
    ) -> Result<(), EngineError> {
        let waiting = found.iter().filter(|(_, found)| !found.due);
        let waiting: Vec<Task> = waiting.map(|(_, found)| found.task.clone()).collect();
        if !waiting.is_empty() {
            let (store, now) = (&self.context.store, clock::now().wall);
            store.make_due(self.context.name(), now, waiting).await?;
        }
        Ok(())
    }

    /// Waits for a change of the Source's tasks; `false` if the work on the Source ends.
    async fn woken(&self, wakes: &mut Receiver<Wake>) -> bool {
        let _waiting = self.context.counters.wait();
        loop {
            tokio::select! {
                () = self.context.stop.cancelled() => return false,
                wake = wakes.recv() => match wake {
                    Ok(Wake::Tasks(source)) if source == self.context.name() => return true,
                    Err(RecvError::Lagged(_)) => return true,
                    Ok(_) => {}
                    Err(RecvError::Closed) => return false,
                },
            }
        }
    }

    /// Withdraws the members of the earliest batch.
    fn withdraw_first(&mut self) {
        for member in self.batches.pop_front().unwrap_or_default() {
            self.context.members.withdraw(&member);
        }
    }
}

impl Drop for Offering {
    fn drop(&mut self) {
        while !self.batches.is_empty() {
            self.withdraw_first();
        }
    }
}
