//! A database in which one step of a poll fails: the poll is repeated as soon as the database works again, before the next one is
//! due.

use std::time::Duration;

use resyncd_testkit::{Fault, SampleSource};
use rusqlite::Connection;

use crate::support::{NAME, Rig, SET, resources, soon};

const PATH: &str = "/set1/res/r0001.txt";

/// A statement on the daemon's database that fails until [`allow`](Self::allow) is called.
struct FailingStatement(Connection);

impl FailingStatement {
    /// `step`: the statement that fails, in the syntax of SQLite's `CREATE TRIGGER`.
    fn start(rig: &Rig, step: &str) -> Self {
        let database = Connection::open(rig.config.state_dir.join("resyncd.db")).unwrap();
        database.busy_timeout(Duration::from_secs(60)).unwrap();
        let trigger = format!(
            "CREATE TRIGGER failing {step} BEGIN SELECT RAISE(ABORT, 'failed by a test'); END"
        );
        database.execute_batch(&trigger).unwrap();
        Self(database)
    }

    /// Waits until the status reports the failure, and ends it.
    async fn allow(self, rig: &Rig) {
        rig.until("the failure is reported", |set| {
            let error = set.error.as_ref();
            error.is_some_and(|error| error.message.contains("failed by a test"))
        })
        .await;
        self.end();
    }

    /// Ends the failure.
    fn end(self) {
        self.0.execute_batch("DROP TRIGGER failing").unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn gap_repair_is_retried_after_a_database_error() {
    let rig = Rig::start(resources(5)).await;
    // A poll between the changes would find them, and no gap.
    rig.idle().await;
    // The Change Lists do not reach back to the gap, so that the Resource List must be read.
    let failing = FailingStatement::start(&rig, "BEFORE UPDATE OF generation ON source_set");
    rig.source.delete(SET, "r0003.txt");
    rig.source.notify(SET);
    rig.source.roll_change_list(SET);
    rig.source.drop_old_change_lists(SET, 0);
    rig.source.update(SET, "r0001.txt", "after the gap");
    rig.source.refresh_resource_list(SET);
    rig.source.notify_and_publish(SET).await.unwrap();
    failing.allow(&rig).await;
    rig.settled().await;
    assert_eq!(rig.set().await.gaps.len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn retry_of_a_failed_resource_survives_a_database_error() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    source.fail(PATH, Fault::Status(404), usize::MAX);
    // A subscription that is verified late causes a poll, which would try the resource again before that is to fail.
    let rig = Rig::follow(source, |config| config.sources[0].notifications = false).await;
    rig.until("one has failed since the first poll", |set| {
        set.failed == 1 && set.next_poll_at.is_some()
    })
    .await;
    let failing = FailingStatement::start(&rig, "BEFORE DELETE ON task");
    rig.source.heal(PATH);
    let hits = rig.source.hits(PATH);
    rig.operator.retry(NAME).await;
    // What was fetched can't be recorded.
    soon("requested", rig.source.wait_for_hits(PATH, hits + 1)).await;
    failing.end();
    rig.settled().await;
}
