//! Limits how many packages are in progress: from the first byte of the download until the last of its members was tried.
//!
//! A package in progress costs up to 50 MB for the directory of its members, a file, disk space, and tasks that are executed from
//! it. Each Source has a place of its own, which no other Source can occupy; further places are shared. So a Source whose
//! packages take for ever delays no other.
//!
//! Invariant: who has a place never waits for another one. A package waits for its place before anything else: it has no
//! connection, no thread and no download slot yet.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many packages of a Source are in progress at once, over all its sets: while one is downloaded, the members of another are
/// published.
pub(super) const OF_A_SOURCE: usize = 2;
/// How many packages are in progress beyond one of each Source: with those, at most 200 MB.
pub(super) const SHARED: usize = 4;

/// The places that all Sources share.
#[derive(Clone)]
pub(super) struct SharedPlaces(Arc<Semaphore>);

impl Default for SharedPlaces {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(SHARED)))
    }
}

/// The places for the packages of one Source.
pub(super) struct PackagePlaces {
    of_source: Arc<Semaphore>,
    own: Arc<Semaphore>,
    shared: SharedPlaces,
}

/// The place of one package; dropping it frees the place.
#[derive(Debug)]
pub(super) struct PackagePlace {
    _of_source: OwnedSemaphorePermit,
    _own_or_shared: OwnedSemaphorePermit,
}

impl PackagePlaces {
    pub(super) fn new(shared: SharedPlaces) -> Self {
        Self {
            of_source: Arc::new(Semaphore::new(OF_A_SOURCE)),
            own: Arc::new(Semaphore::new(1)),
            shared,
        }
    }

    /// Waits for a place, in the order of the calls. `None`: the daemon ends.
    pub(super) async fn acquire(&self) -> Option<PackagePlace> {
        let of_source = Arc::clone(&self.of_source).acquire_owned().await.ok()?;
        let own_or_shared = tokio::select! {
            biased;
            own = Arc::clone(&self.own).acquire_owned() => own,
            shared = Arc::clone(&self.shared.0).acquire_owned() => shared,
        };
        Some(PackagePlace {
            _of_source: of_source,
            _own_or_shared: own_or_shared.ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn acquire(places: &PackagePlaces) -> Option<PackagePlace> {
        places.acquire().now_or_never().flatten()
    }

    /// Sources that have as many packages in progress as they can have.
    fn occupy(shared: &SharedPlaces, sources: usize) -> Vec<(PackagePlaces, Vec<PackagePlace>)> {
        let mut occupied = Vec::new();
        for _ in 0..sources {
            let places = PackagePlaces::new(shared.clone());
            let mut taken = Vec::new();
            while let Some(place) = acquire(&places) {
                taken.push(place);
            }
            occupied.push((places, taken));
        }
        occupied
    }

    #[test]
    fn packages_are_bounded_per_source_and_in_total() {
        for sources in [1, 2, 4, 5, 50] {
            let occupied = occupy(&SharedPlaces::default(), sources);
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
    fn source_has_a_place_whatever_the_others_do() {
        let shared = SharedPlaces::default();
        let _occupied = occupy(&shared, 50);
        let late = PackagePlaces::new(shared);
        let place = acquire(&late);
        assert!(place.is_some());
        assert!(acquire(&late).is_none());
    }

    #[tokio::test]
    async fn place_that_becomes_free_is_for_the_one_who_waits() {
        let shared = SharedPlaces::default();
        let mut occupied = occupy(&shared, SHARED + 1);
        // The last one has only its own place: it waits for that, or for a shared one.
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
    async fn wait_that_is_abandoned_costs_no_place() {
        let places = PackagePlaces::new(SharedPlaces::default());
        for _ in 0..3 {
            let taken: Vec<_> = std::iter::from_fn(|| acquire(&places)).collect();
            assert_eq!(taken.len(), OF_A_SOURCE);
            let mut waiting = Box::pin(places.acquire());
            assert!(futures_util::poll!(&mut waiting).is_pending());
        }
    }
}
