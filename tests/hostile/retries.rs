//! A database that refuses one step of a poll: the poll is repeated as soon as the database works again, and not only when the
//! next one is due.

use std::time::Duration;

use resyncd::demo::{Fault, SampleSource};
use rusqlite::Connection;

use crate::support::{NAME, Rig, SET, resources};

const PATH: &str = "/set1/res/r0001.txt";

/// A statement of the daemon's database that fails until [`allow`](Self::allow) is called.
struct Refusing(Connection);

impl Refusing {
    /// `step`: what fails, as SQLite's `CREATE TRIGGER` says it.
    fn start(rig: &Rig, step: &str) -> Self {
        let database = Connection::open(rig.config.state_dir.join("resyncd.db")).unwrap();
        database.busy_timeout(Duration::from_secs(60)).unwrap();
        let trigger = format!(
            "CREATE TRIGGER refusing {step} BEGIN SELECT RAISE(ABORT, 'refused by a test'); END"
        );
        database.execute_batch(&trigger).unwrap();
        Self(database)
    }

    /// Waits until the status reports the refusal, and ends it.
    async fn allow(self, rig: &Rig) {
        rig.until("the refusal is reported", |set| {
            let error = set.error.as_ref();
            error.is_some_and(|error| error.message.contains("refused by a test"))
        })
        .await;
        self.0.execute_batch("DROP TRIGGER refusing").unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn gap_whose_filling_the_database_refused_is_filled_when_it_works_again() {
    let rig = Rig::start(resources(5)).await;
    rig.settled().await;
    // The Change Lists do not reach back to the gap: the Resource List must be read.
    let refusing = Refusing::start(&rig, "BEFORE UPDATE OF generation ON source_set");
    rig.source.delete(SET, "r0003.txt");
    rig.source.notify(SET);
    rig.source.roll_change_list(SET);
    rig.source.drop_old_change_lists(SET, 0);
    rig.source.update(SET, "r0001.txt", "after the gap");
    rig.source.refresh_resource_list(SET);
    rig.source.notify_and_publish(SET).await.unwrap();
    refusing.allow(&rig).await;
    rig.settled().await;
    assert_eq!(rig.set().await.gaps.len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_resource_that_the_database_kept_from_a_retry_is_retried_when_it_works_again() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    source.fail(PATH, Fault::Status(404), usize::MAX);
    let rig = Rig::follow(source, |_| {}).await;
    rig.until("one has failed", |set| set.failed == 1).await;
    let step = "BEFORE UPDATE OF state ON task WHEN OLD.state = 'failed'";
    let refusing = Refusing::start(&rig, step);
    rig.source.heal(PATH);
    rig.operator.poll(NAME).await;
    refusing.allow(&rig).await;
    rig.settled().await;
}
