//! Package members on offer: a task whose bytes are in an open package is executed from there, and not over HTTP.
//!
//! An offer is for the change that the manifest's entry states, not for the resource: a package's older version must never be
//! published as the newer one.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use resourcesync::{ChangeKind, ContentInfo, SourceTime};
use resyncd_core::ResourceUri;
use resyncd_packages::Package;

use crate::store::{Change, Origin, Task};

/// The bytes of one entry of a manifest.
pub(crate) struct PackageMember {
    pub(crate) uri: ResourceUri,
    /// The path of the representation in the package; `None`: the package has only a patch.
    pub(super) path: Option<String>,
    pub(super) package: Package,
    origin: Origin,
    changed_at: Option<SourceTime>,
    lastmod: Option<SourceTime>,
    content: ContentInfo,
    /// Whether an unusable member of this package was logged as a warning.
    is_logged: Arc<AtomicBool>,
}

impl PackageMember {
    /// The member of a package that has the bytes of a change.
    pub(crate) fn new(
        change: &Change,
        path: Option<String>,
        package: Package,
        origin: Origin,
        is_logged: Arc<AtomicBool>,
    ) -> Self {
        Self {
            uri: change.uri.clone(),
            path,
            package,
            origin,
            changed_at: change.changed_at,
            lastmod: change.lastmod,
            content: change.content.clone(),
            is_logged,
        }
    }

    /// Whether a task is for the very change that the entry states, and not for whatever the Source answers.
    pub(crate) fn is_of(&self, task: &Task) -> bool {
        let same = task.kind != ChangeKind::Deleted
            && !task.asks
            && task.changed_at == self.changed_at
            && task.lastmod == self.lastmod
            && task.content.states_same_bytes(&self.content);
        // Without a time and a digest only the origin distinguishes the change from another one.
        let is_distinct = self.changed_at.is_some() || !self.content.hashes.is_empty();
        same && (is_distinct || task.origin == self.origin)
    }
}

/// All members on offer for the tasks of one Source.
#[derive(Default)]
pub(crate) struct Members {
    pub(super) offered: Mutex<HashMap<ResourceUri, Vec<Arc<PackageMember>>>>,
    /// Whether there is nobody to take them: nothing is on offer then, and nobody waits.
    is_closed: AtomicBool,
}

impl Members {
    /// The member that has the bytes of a task.
    pub(super) fn of(&self, task: &Task) -> Option<Arc<PackageMember>> {
        let members = self.offered.lock();
        let offered = members.get(&task.uri)?;
        // Of entries that are the same the later one counts.
        offered
            .iter()
            .rev()
            .find(|member| member.is_of(task))
            .cloned()
    }

    /// Withdraws an unusable member: its resource is fetched by its own URI. Warns once a package.
    pub(super) fn withdraw_unusable(
        &self,
        source: &str,
        member: &Arc<PackageMember>,
        code: &str,
        error: &dyn Display,
    ) {
        self.withdraw(member);
        let (uri, path) = (&member.uri, member.path.as_deref().unwrap_or("a patch"));
        if member.is_logged.swap(true, Ordering::Relaxed) {
            tracing::debug!(code, source, %uri, path, %error, "package member unusable; fetching its resource");
        } else {
            tracing::warn!(code, source, %uri, path, %error, "package member unusable; fetching its resource");
        }
    }

    /// Lets nothing be offered, where no executor works.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn offer(&self, member: &Arc<PackageMember>) {
        if self.is_closed.load(Ordering::Relaxed) {
            return;
        }
        let mut members = self.offered.lock();
        let offered = members.entry(member.uri.clone()).or_default();
        offered.push(Arc::clone(member));
    }

    pub(crate) fn is_offered(&self, member: &Arc<PackageMember>) -> bool {
        let members = self.offered.lock();
        let offered = members.get(&member.uri);
        offered.is_some_and(|offered| offered.iter().any(|other| Arc::ptr_eq(other, member)))
    }

    pub(crate) fn withdraw(&self, member: &Arc<PackageMember>) {
        let mut members = self.offered.lock();
        if let Some(offered) = members.get_mut(&member.uri) {
            offered.retain(|other| !Arc::ptr_eq(other, member));
            if offered.is_empty() {
                members.remove(&member.uri);
            }
        }
    }
}
