//! Members of packages on offer: a task whose bytes lie in a package that is at hand is carried out from there, and not over
//! HTTP.
//!
//! The worker of a set offers what a batch of entries tells, makes tasks of the entries, and waits until the applier has
//! tried each of them. An offer is for the change that its entry tells, not for the resource: what a package has of an
//! older version must never be taken for the newer one.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::unpack::UnpackError;
use crate::clock;
use crate::engine::EngineError;
use crate::engine::context::SourceContext;
use crate::fetch::Package;
use crate::protocol::{ChangeKind, Digest, ResourceUri, SourceTime};
use crate::store::{Awaited, Change, Origin, Task, Wake};

/// How many of the members that are waited for are asked about at once.
const LAST: usize = 32;

/// The bytes that an entry of a manifest tells of.
pub(in crate::engine) struct Member {
    uri: ResourceUri,
    /// Where they are in the package.
    pub(in crate::engine) path: String,
    pub(in crate::engine) package: Package,
    origin: Origin,
    changed_at: Option<SourceTime>,
    lastmod: Option<SourceTime>,
    length: Option<u64>,
    hashes: Vec<Digest>,
    /// Whether a member of this package has been told to be of no use.
    told: Arc<AtomicBool>,
}

impl Member {
    /// Whether a task is about the very change that the entry told.
    fn is_of(&self, task: &Task) -> bool {
        let same = task.kind != ChangeKind::Deleted
            && task.changed_at == self.changed_at
            && task.lastmod == self.lastmod
            && task.length == self.length
            && task.hashes == self.hashes;
        // Where neither a time nor a digest tells one change from another, only that it comes from here does.
        let is_told = self.changed_at.is_some() || !self.hashes.is_empty();
        same && (is_told || task.origin == self.origin)
    }
}

/// All members that are on offer for the tasks of one Source.
#[derive(Default)]
pub(in crate::engine) struct Members(Mutex<HashMap<ResourceUri, Vec<Arc<Member>>>>);

impl Members {
    /// The member that has the bytes of a task.
    pub(in crate::engine) fn of(&self, task: &Task) -> Option<Arc<Member>> {
        let members = self.lock();
        let offered = members.get(&task.uri)?;
        // Of entries that nothing tells apart, the later one counts.
        offered
            .iter()
            .rev()
            .find(|member| member.is_of(task))
            .cloned()
    }

    /// Takes back a member that turned out to be of no use: its resource is fetched by itself. Told once a package.
    pub(in crate::engine) fn refuse(
        &self,
        source: &str,
        member: &Arc<Member>,
        error: &UnpackError,
    ) {
        self.withdraw(member);
        let (code, uri, path) = (error.code(), &member.uri, &member.path);
        if member.told.swap(true, Ordering::Relaxed) {
            tracing::debug!(code, source, %uri, path, %error, "a member of a package is of no use: its resource is fetched");
        } else {
            tracing::warn!(code, source, %uri, path, %error, "a member of a package is of no use: its resource is fetched");
        }
    }

    fn offer(&self, member: &Arc<Member>) {
        let mut members = self.lock();
        let offered = members.entry(member.uri.clone()).or_default();
        offered.push(Arc::clone(member));
    }

    fn is_offered(&self, member: &Arc<Member>) -> bool {
        let members = self.lock();
        let offered = members.get(&member.uri);
        offered.is_some_and(|offered| offered.iter().any(|other| Arc::ptr_eq(other, member)))
    }

    fn withdraw(&self, member: &Arc<Member>) {
        let mut members = self.lock();
        if let Some(offered) = members.get_mut(&member.uri) {
            offered.retain(|other| !Arc::ptr_eq(other, member));
            if offered.is_empty() {
                members.remove(&member.uri);
            }
        }
    }

    /// Every change of the map is one step.
    fn lock(&self) -> MutexGuard<'_, HashMap<ResourceUri, Vec<Arc<Member>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What of a package is on offer, if there is one: its members are offered batch by batch. For a blocking thread; what is
/// on offer is withdrawn when it goes.
pub(in crate::engine) struct Offering {
    context: Arc<SourceContext>,
    package: Option<(Package, Origin)>,
    members: Vec<Arc<Member>>,
    told: Arc<AtomicBool>,
    runtime: Handle,
    /// Ends the wait when nobody waits for the package any more.
    stop: CancellationToken,
}

impl Offering {
    /// Where there is no package.
    pub(in crate::engine) fn nothing(
        context: &Arc<SourceContext>,
        stop: CancellationToken,
    ) -> Self {
        Self {
            context: Arc::clone(context),
            package: None,
            members: Vec::new(),
            told: Arc::default(),
            runtime: Handle::current(),
            stop,
        }
    }

    /// Of a package, for tasks of that origin.
    pub(in crate::engine) fn of(
        context: &Arc<SourceContext>,
        package: Package,
        origin: Origin,
        stop: CancellationToken,
    ) -> Self {
        let mut offering = Self::nothing(context, stop);
        offering.package = Some((package, origin));
        offering
    }

    /// Offers the bytes that an entry tells of, for the change that was made of it.
    pub(in crate::engine) fn offer(&mut self, change: &Change, path: Option<String>) {
        let (Some((package, origin)), Some(path)) = (&self.package, path) else {
            return;
        };
        if change.kind == ChangeKind::Deleted {
            return;
        }
        let member = Arc::new(Member {
            uri: change.uri.clone(),
            path,
            package: package.clone(),
            origin: *origin,
            changed_at: change.changed_at,
            lastmod: change.lastmod,
            length: change.length,
            hashes: change.hashes.clone(),
            told: Arc::clone(&self.told),
        });
        self.context.members.offer(&member);
        self.members.push(member);
    }

    /// Waits until the applier has tried what has become a task of what is on offer, and withdraws it.
    pub(in crate::engine) fn settle(&mut self) -> Result<(), EngineError> {
        if self.members.is_empty() {
            return Ok(());
        }
        let settled = self.runtime.block_on(self.tried());
        self.withdraw();
        settled
    }

    /// A task is waited for as long as it is one, is about a member that is on offer, and is to be tried: it may be replaced
    /// by a newer one, be given up, or its member be of no use. When the disk is full, that is as long as it takes.
    async fn tried(&self) -> Result<(), EngineError> {
        let mut wakes = self.context.store.wakes();
        let found = self.tasks_of(self.members.iter().collect()).await?;
        self.hurry(&found).await?;
        let mut awaited: Vec<&Arc<Member>> = found.into_iter().map(|(member, _)| member).collect();
        while !awaited.is_empty() {
            // They are tried in about their order, so that the last ones tell most. Nobody asks for all of them each time.
            let last = awaited.split_off(awaited.len().saturating_sub(LAST));
            let found = self.tasks_of(last).await?;
            let still = found.into_iter().filter(|(_, task)| !task.given_up);
            let still: Vec<&Arc<Member>> = still.map(|(member, _)| member).collect();
            if !still.is_empty() && !self.woken(&mut wakes).await {
                return Err(EngineError::Interrupted);
            }
            // A disk that refuses files is waited for, but not by those who go through once.
            let is_refused = self.context.runtime_status.is_refused(self.context.name());
            if !self.context.subscribes && is_refused {
                return Err(EngineError::Interrupted);
            }
            awaited.extend(still);
        }
        Ok(())
    }

    /// Those of the members that are on offer still and have a task, with it.
    async fn tasks_of<'a>(
        &self,
        mut members: Vec<&'a Arc<Member>>,
    ) -> Result<Vec<(&'a Arc<Member>, Awaited)>, EngineError> {
        let (context, now) = (&self.context, clock::now().wall);
        members.retain(|member| context.members.is_offered(member));
        let uris = members.iter().map(|member| member.uri.clone()).collect();
        let tasks = context.store.tasks_of(context.name(), now, uris);
        let tasks: HashMap<ResourceUri, Awaited> = tasks
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

    /// What could not be fetched before, and was put off, can be had now.
    async fn hurry(&self, found: &[(&Arc<Member>, Awaited)]) -> Result<(), EngineError> {
        let put_off = found.iter().filter(|(_, found)| !found.due);
        let put_off: Vec<Task> = put_off.map(|(_, found)| found.task.clone()).collect();
        if !put_off.is_empty() {
            let (store, now) = (&self.context.store, clock::now().wall);
            store.hurry_tasks(self.context.name(), now, put_off).await?;
        }
        Ok(())
    }

    /// Waits until something has become of the Source's tasks; `false` if the wait is over.
    async fn woken(&self, wakes: &mut Receiver<Wake>) -> bool {
        loop {
            tokio::select! {
                () = self.stop.cancelled() => return false,
                wake = wakes.recv() => match wake {
                    Ok(Wake::Tasks(source)) if source == self.context.name() => return true,
                    Err(RecvError::Lagged(_)) => return true,
                    Ok(_) => {}
                    Err(RecvError::Closed) => return false,
                },
            }
        }
    }

    fn withdraw(&mut self) {
        for member in self.members.drain(..) {
            self.context.members.withdraw(&member);
        }
    }
}

impl Drop for Offering {
    fn drop(&mut self) {
        self.withdraw();
    }
}

/// A package that is at hand, and where it came from.
pub(in crate::engine) struct Opened {
    pub(in crate::engine) package: Package,
    /// What its manifest's relative URIs are relative to.
    pub(in crate::engine) uri: Url,
}
