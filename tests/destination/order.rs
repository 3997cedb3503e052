//! Notifications that arrive out of order.

use crate::support::{LIMIT, Rig, SET, eventually, resources};

const CHANGE_LIST: &str = "/set1/changelist.xml";

async fn long_window() -> Rig {
    let rig = Rig::start_with(resources(3), |config| {
        // The reorder window does not end during the test.
        config.sources[0].reorder_window = 10 * LIMIT;
    })
    .await;
    rig.idle().await;
    rig
}

async fn until_held(rig: &Rig, count: u64) {
    eventually(
        &format!("{count} notifications held"),
        Some(rig.wakes()),
        async || match rig.channel().await {
            channel if channel.held == count => Ok(()),
            channel => Err(format!("{channel:?}")),
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn swapped_notifications_are_applied_in_order() {
    let rig = long_window().await;
    let polls = rig.source.hits(CHANGE_LIST);
    let since = rig.operator.last_change().await;
    rig.source.update(SET, "r0000.txt", "old");
    rig.source.create(SET, "a.txt", "a");
    let first = rig.source.notify(SET);
    rig.source.update(SET, "r0000.txt", "new");
    rig.source.create(SET, "b.txt", "b");
    let second = rig.source.notify(SET);

    rig.source.publish(&second).await.unwrap();
    until_held(&rig, 1).await;
    assert_eq!(
        rig.mirrored("b.txt"),
        None,
        "the early notification is held"
    );
    assert_eq!(rig.set().await.state, "in-sync");
    rig.source.publish(&first).await.unwrap();
    rig.until_mirrored().await;
    until_held(&rig, 0).await;

    let set = rig
        .until("in sync", |set| {
            set.state == "in-sync" && set.channels.iter().any(|channel| channel.applied == 2)
        })
        .await;
    assert_eq!(set.channels.iter().map(|c| c.gaps).sum::<u64>(), 0);
    assert_eq!(rig.source.hits(CHANGE_LIST), polls);
    let lines = rig.operator.changes(since).await;
    let last = lines
        .iter()
        .rfind(|line| line.uri == rig.uri("r0000.txt"))
        .unwrap();
    assert_eq!(last.length, Some(3));
    assert!(lines.iter().all(|line| line.origin == "notification"));
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_notifications_in_reverse_order_are_applied_in_order() {
    let rig = long_window().await;
    let polls = rig.source.hits(CHANGE_LIST);
    let mut notifications = Vec::new();
    for number in 0..20 {
        rig.source
            .update(SET, "r0000.txt", format!("turn {number}"));
        rig.source
            .create(SET, &format!("n{number}.txt"), format!("{number}"));
        if number % 3 == 0 {
            rig.source.delete(SET, &format!("n{number}.txt"));
        }
        notifications.push(rig.source.notify(SET));
    }
    for notification in notifications[1..].iter().rev() {
        rig.source.publish(notification).await.unwrap();
    }
    until_held(&rig, 19).await;
    rig.source.publish(&notifications[0]).await.unwrap();
    rig.until_mirrored().await;
    rig.until_holds("r0000.txt", "turn 19").await;
    until_held(&rig, 0).await;
    let channel = rig.channel().await;
    assert_eq!(
        (channel.received, channel.applied, channel.gaps),
        (20, 20, 0)
    );
    assert_eq!(rig.source.hits(CHANGE_LIST), polls);
    rig.until("in sync", |set| set.state == "in-sync").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reorder_window_ends_when_too_many_notifications_are_held() {
    let rig = Rig::start_with(resources(3), |config| {
        config.sources[0].reorder_window = 10 * LIMIT;
        config.limits.held_notifications = 5;
    })
    .await;
    rig.idle().await;
    // No poll finds what is lost before the gap is known.
    rig.source.freeze_change_list(SET, true);
    rig.source.create(SET, "lost.txt", "lost");
    rig.source.notify(SET);
    for number in 0..6 {
        rig.source.create(SET, &format!("n{number}.txt"), "n");
        rig.source.notify_and_publish(SET).await.unwrap();
    }
    rig.until("gap", |set| {
        set.channels.iter().map(|channel| channel.gaps).sum::<u64>() == 1
    })
    .await;
    rig.source.freeze_change_list(SET, false);
    rig.until_mirrored().await;
    until_held(&rig, 0).await;
    assert_eq!(rig.channel().await.gaps, 1);
}
