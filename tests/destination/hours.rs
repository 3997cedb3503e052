//! The hours in which the files of a first copy are downloaded.

use chrono::{Local, TimeDelta};
use resyncd::clock;
use resyncd::config::DayHours;

use crate::support::{Rig, SET, resources};

#[tokio::test(flavor = "multi_thread")]
async fn first_copy_waits_for_its_hours_and_what_follows_does_not() {
    let now = clock::now().wall.with_timezone(&Local).time();
    let hours = |begin: i64, end: i64| {
        Some(DayHours::new(
            now + TimeDelta::hours(begin),
            now + TimeDelta::hours(end),
        ))
    };
    let mut rig = Rig::start_with(resources(3), |config| {
        config.sources[0].hours = hours(2, 4);
    })
    .await;
    rig.until("the list is read", |set| set.pending == 3).await;
    assert_eq!(rig.source.hits("/set1/res/r0001.txt"), 0);
    rig.stop_daemon().await;
    rig.config.sources[0].hours = hours(-2, 4);
    rig.start_daemon().await;
    rig.settled().await;
    assert_eq!(rig.source.hits("/set1/res/r0001.txt"), 1);
    // Outside of them again.
    rig.stop_daemon().await;
    rig.config.sources[0].hours = hours(2, 4);
    rig.start_daemon().await;
    rig.source.update(SET, "r0001.txt", "news");
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.until_holds("r0001.txt", "news").await;
}
