//! Limits how many packages are in progress: from the first byte of the download until the last of its members was tried.
//!
//! A package in progress costs up to 50 MB for the directory of its members, a file, disk space, and tasks that are executed from
//! it. Each Source has a permit of its own, which no other Source can occupy; further permits are shared. So a Source whose
//! packages take for ever delays no other.
//!
//! Invariant: who has a permit never waits for another one. A package waits for its permit before anything else: it has no
//! connection, no thread and no download slot yet.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many packages of a Source are in progress at once, over all its sets: while one is downloaded, the members of another are
/// published.
pub(super) const OF_A_SOURCE: usize = 2;
/// How many packages are in progress beyond one of each Source: with those, at most 200 MB.
pub(super) const SHARED: usize = 4;

/// The permits that all Sources share.
pub(super) fn shared_permits() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(SHARED))
}

/// The permits for the packages of one Source.
pub(super) struct PackagePermits {
    of_source: Arc<Semaphore>,
    own: Arc<Semaphore>,
    shared: Arc<Semaphore>,
}

/// The permit of one package; dropping it frees the permit.
#[derive(Debug)]
pub(super) struct PackagePermit {
    _of_source: OwnedSemaphorePermit,
    _own_or_shared: OwnedSemaphorePermit,
}

impl PackagePermits {
    pub(super) fn new(shared: Arc<Semaphore>) -> Self {
        Self {
            of_source: Arc::new(Semaphore::new(OF_A_SOURCE)),
            own: Arc::new(Semaphore::new(1)),
            shared,
        }
    }

    /// Waits for a permit, in the order of the calls. `None`: the daemon ends.
    pub(super) async fn acquire(&self) -> Option<PackagePermit> {
        let of_source = Arc::clone(&self.of_source).acquire_owned().await.ok()?;
        let own_or_shared = tokio::select! {
            biased;
            own = Arc::clone(&self.own).acquire_owned() => own,
            shared = Arc::clone(&self.shared).acquire_owned() => shared,
        };
        Some(PackagePermit {
            _of_source: of_source,
            _own_or_shared: own_or_shared.ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn acquire(permits: &PackagePermits) -> Option<PackagePermit> {
        permits.acquire().now_or_never().flatten()
    }

    /// Sources that have as many packages in progress as they can have.
    fn occupy(
        shared: &Arc<Semaphore>,
        sources: usize,
    ) -> Vec<(PackagePermits, Vec<PackagePermit>)> {
        let mut occupied = Vec::new();
        for _ in 0..sources {
            let permits = PackagePermits::new(shared.clone());
            let mut taken = Vec::new();
            while let Some(permit) = acquire(&permits) {
                taken.push(permit);
            }
            occupied.push((permits, taken));
        }
        occupied
    }

    #[test]
    fn packages_are_bounded_per_source_and_in_total() {
        for sources in [1, 2, 4, 5, 50] {
            let occupied = occupy(&shared_permits(), sources);
            let counts = occupied.iter().map(|(_, taken)| taken.len());
            assert!(
                counts
                    .clone()
                    .all(|count| (1..=OF_A_SOURCE).contains(&count))
            );
            assert!(counts.sum::<usize>() <= sources + SHARED, "{sources}");
        }
    }

    #[test]
    fn source_has_a_permit_whatever_the_others_do() {
        let shared = shared_permits();
        let _occupied = occupy(&shared, 50);
        let late = PackagePermits::new(shared);
        let permit = acquire(&late);
        assert!(permit.is_some());
        assert!(acquire(&late).is_none());
    }

    #[tokio::test]
    async fn permit_that_becomes_free_is_for_the_one_who_waits() {
        let shared = shared_permits();
        let mut occupied = occupy(&shared, SHARED + 1);
        // The last one has only its own permit: it waits for that, or for a shared one.
        let (last, mut taken) = occupied.pop().unwrap();
        assert_eq!(taken.len(), 1);
        let mut waiting = Box::pin(last.acquire());
        assert!(futures_util::poll!(&mut waiting).is_pending());
        taken.clear();
        let own = waiting.await;
        assert!(own.is_some());
        let mut waiting = Box::pin(last.acquire());
        assert!(futures_util::poll!(&mut waiting).is_pending());
        occupied.clear();
        assert!(waiting.await.is_some());
    }

    #[tokio::test]
    async fn wait_that_is_abandoned_costs_no_permit() {
        let permits = PackagePermits::new(shared_permits());
        for _ in 0..3 {
            let taken: Vec<_> = std::iter::from_fn(|| acquire(&permits)).collect();
            assert_eq!(taken.len(), OF_A_SOURCE);
            let mut waiting = Box::pin(permits.acquire());
            assert!(futures_util::poll!(&mut waiting).is_pending());
        }
    }
}
