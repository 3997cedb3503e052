//! The gaps of a set that were closed: shown from the commit on that closes them.

use super::*;

impl World {
    /// A document after which the set has these gaps.
    fn document(&self, gaps: &[Gap]) -> ChangeBatch {
        let end = DocumentEnd {
            progress: Some((coverage(10), gaps.to_vec())),
            ..end()
        };
        self.batch(self.set, Vec::new(), Some(end))
    }

    /// How many gaps are open, and how many were closed, as the status shows them.
    async fn gaps(&self) -> (usize, usize) {
        let open = self.statistics().await.gaps;
        let closed = self.store.closed_gaps(self.set, &open);
        (open.len(), closed.len())
    }
}

fn gap(world: &World) -> Gap {
    Gap {
        interval: Interval::new(at(10), at(20)).unwrap(),
        reason: GapReason::MissingNotification,
        since: world.now,
    }
}

#[tokio::test]
async fn gap_is_open_or_closed_at_every_moment() {
    let world = World::new().await;
    let opening = world.store.ingest(world.document(&[gap(&world)]));
    opening.await.unwrap();
    let (release, busy) = world.busy_writer().await;
    let mut closing = Box::pin(world.store.ingest(world.document(&[])));
    // It is queued, and whoever waits for it does not go on after its commit.
    assert!(futures_util::poll!(&mut closing).is_pending());
    assert_eq!(world.gaps().await, (1, 0));
    drop(release);
    busy.await.unwrap().unwrap();
    while world.gaps().await == (1, 0) {}
    assert_eq!(world.gaps().await, (0, 1));
    closing.await.unwrap();
    assert_eq!(world.gaps().await, (0, 1));
}

#[tokio::test]
async fn gap_whose_end_is_not_committed_was_not_closed() {
    let world = World::new().await;
    let hook = world.store.commit_hook();
    hook.let_fail(true);
    // As for a set without a gap so far, and for one that has one.
    for gaps in [&[gap(&world)][..], &[]] {
        hook.fail_after(0);
        let failing = world.store.ingest(world.document(gaps)).await;
        failing.unwrap_err();
        let known = world.store.closed_gaps(world.set, &[]);
        assert!(known.is_empty(), "{known:?}");
        let opening = world.store.ingest(world.document(&[gap(&world)]));
        opening.await.unwrap();
    }
    let closing = world.store.ingest(world.document(&[]));
    closing.await.unwrap();
    assert_eq!(world.gaps().await, (0, 1), "once");
}
