//! Gaps from lost notifications, and the documents that close them.

use std::time::Duration;

use resourcesync::SourceTime;
use resyncd_testkit::{ChangeListForm, ChannelHub, SampleOptions};

use super::packing::poll_twice;
use crate::support::{NAME, Rig, SET, resources, time};

/// Drops the notification of `lost.txt` and delivers the next one, of `next.txt`. Returns the time of the lost change.
async fn lose_one(rig: &Rig) -> SourceTime {
    let at = rig.source.create(SET, "lost.txt", "lost");
    let lost = rig.source.notify(SET);
    drop(lost);
    rig.source.create(SET, "next.txt", "next");
    rig.source.notify_and_publish(SET).await.unwrap();
    at
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_notification_is_a_gap_until_the_change_list_covers_it() {
    let rig = Rig::start(resources(3)).await;
    rig.idle().await;
    rig.source.freeze_change_list(SET, true);
    let since = rig.operator.last_change().await;
    let before = time(rig.set().await.synced_until.unwrap());
    let lost_at = lose_one(&rig).await;

    let set = rig
        .until("gap reported", |set| set.state == "gap" && set.pending == 0)
        .await;
    let gap = &set.gaps[0];
    assert_eq!(
        (set.gaps.len(), gap.reason.as_str()),
        (1, "missing-notification")
    );
    assert!(
        time(&gap.from) <= lost_at && lost_at < time(&gap.until),
        "{gap:?}"
    );
    assert!(
        time(set.synced_until.as_ref().unwrap()) <= time(&gap.from),
        "{:?} {gap:?}",
        set.synced_until
    );
    assert_eq!(rig.channel().await.gaps, 1);
    // The gap does not delay the changes after it.
    rig.until_holds("next.txt", "next").await;
    assert_eq!(rig.mirrored("lost.txt"), None);

    // A poll that proves nothing does not close the gap. It has ended when the next one begins.
    poll_twice(&rig, "/set1/changelist.xml").await;
    let set = rig.set().await;
    assert_eq!((set.state.as_str(), set.gaps.len()), ("gap", 1));
    assert!(time(set.synced_until.unwrap()) <= time(&set.gaps[0].from));

    rig.source.freeze_change_list(SET, false);
    rig.operator.poll(NAME).await;
    let line = rig.until_in_feed(since, "lost.txt").await;
    assert_eq!(line.origin, "change-list");
    let set = rig.until("gap closed", |set| set.state == "in-sync").await;
    assert!(set.gaps.is_empty());
    let after = time(set.synced_until.unwrap());
    assert!(after > before && after > lost_at, "{after}");
    rig.assert_mirrored();
}

#[tokio::test(flavor = "multi_thread")]
async fn stale_change_list_is_polled_again_while_there_is_a_gap() {
    let rig = Rig::start(resources(3)).await;
    rig.idle().await;
    rig.source.freeze_change_list(SET, true);
    lose_one(&rig).await;
    rig.until("gap", |set| set.state == "gap").await;
    rig.source.freeze_change_list(SET, false);
    rig.until("gap closed", |set| set.state == "in-sync").await;
    rig.until_mirrored().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn late_notification_closes_its_gap() {
    let rig = Rig::start(resources(3)).await;
    rig.idle().await;
    rig.source.freeze_change_list(SET, true);
    rig.source.create(SET, "late.txt", "late");
    let late = rig.source.notify(SET);
    rig.source.create(SET, "next.txt", "next");
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.until("gap", |set| set.state == "gap").await;
    rig.source.publish(&late).await.unwrap();
    let set = rig.until("gap closed", |set| set.state == "in-sync").await;
    assert!(set.gaps.is_empty());
    rig.until_mirrored().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gap_is_closed_by_the_change_list() {
    let rig = Rig::start(resources(3)).await;
    rig.idle().await;
    let since = rig.operator.last_change().await;
    let lists = rig.source.hits("/set1/resourcelist.xml");
    lose_one(&rig).await;
    let line = rig.until_in_feed(since, "lost.txt").await;
    assert_eq!(line.origin, "change-list");
    rig.until("gap closed", |set| {
        set.state == "in-sync" && set.channels.iter().map(|c| c.gaps).sum::<u64>() == 1
    })
    .await;
    rig.until_mirrored().await;
    assert_eq!(rig.source.hits("/set1/resourcelist.xml"), lists);
}

#[tokio::test(flavor = "multi_thread")]
async fn gap_is_closed_by_an_index_of_change_lists() {
    let rig = Rig::start(resources(3)).await;
    rig.idle().await;
    let since = rig.operator.last_change().await;
    let lists = rig.source.hits("/set1/resourcelist.xml");
    rig.source.create(SET, "lost.txt", "lost");
    rig.source.notify(SET);
    rig.source.roll_change_list(SET);
    rig.source.create(SET, "lost-too.txt", "lost");
    rig.source.notify(SET);
    rig.source.roll_change_list(SET);
    rig.source.create(SET, "next.txt", "next");
    rig.source.notify_and_publish(SET).await.unwrap();
    assert_eq!(
        rig.until_in_feed(since, "lost.txt").await.origin,
        "change-list"
    );
    assert_eq!(
        rig.until_in_feed(since, "lost-too.txt").await.origin,
        "change-list"
    );
    rig.idle().await;
    assert_eq!(rig.source.hits("/set1/resourcelist.xml"), lists);
    // A closed list that was read is not fetched again.
    let hits = rig.source.hits("/set1/changelist-0001.xml");
    poll_twice(&rig, "/set1/changelist.xml").await;
    rig.source.create(SET, "after.txt", "after");
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.until_mirrored().await;
    assert_eq!(rig.source.hits("/set1/changelist-0001.xml"), hits);
}

#[tokio::test(flavor = "multi_thread")]
async fn gap_before_the_change_list_is_closed_by_a_newer_resource_list() {
    let rig = Rig::start(resources(3)).await;
    rig.idle().await;
    let since = rig.operator.last_change().await;
    rig.source.create(SET, "lost.txt", "lost");
    rig.source.delete(SET, "r0002.txt");
    rig.source.notify(SET);
    rig.source.roll_change_list(SET);
    assert_eq!(rig.source.drop_old_change_lists(SET, 0), 1);
    rig.source.create(SET, "next.txt", "next");
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.until("gap", |set| set.state == "gap").await;
    // The published Resource List is older than the gap and does not close it.
    poll_twice(&rig, "/set1/resourcelist.xml").await;
    assert_eq!(rig.set().await.state, "gap");
    assert!(rig.mirrored("r0002.txt").is_some());

    rig.source.refresh_resource_list(SET);
    rig.operator.poll(NAME).await;
    rig.until("gap closed", |set| set.state == "in-sync").await;
    rig.until_mirrored().await;
    assert_eq!(
        rig.until_in_feed(since, "lost.txt").await.origin,
        "resource-list"
    );
    assert_eq!(
        rig.until_in_feed(since, "r0002.txt").await.origin,
        "resource-list"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn gap_of_a_set_without_change_list_is_closed_by_the_resource_list() {
    let rig = Rig::start(SampleOptions {
        change_list: false,
        ..resources(3)
    })
    .await;
    rig.idle().await;
    lose_one(&rig).await;
    rig.until("gap", |set| set.state == "gap").await;
    rig.source.refresh_resource_list(SET);
    rig.until("gap closed", |set| set.state == "in-sync").await;
    rig.until_mirrored().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn source_without_hub_and_change_list_is_followed_by_its_resource_list() {
    let rig = Rig::start_with(
        SampleOptions {
            change_list: false,
            hub: ChannelHub::None,
            ..resources(5)
        },
        |config| {
            config.sources[0].poll_interval = Duration::from_secs(1);
        },
    )
    .await;
    rig.settled().await;
    rig.source.create(SET, "new.txt", "new");
    rig.source.update(SET, "r0001.txt", "updated");
    rig.source.delete(SET, "r0002.txt");
    let at = rig.source.refresh_resource_list(SET);
    rig.until_mirrored().await;
    let set = rig
        .until("in sync", |set| {
            set.state == "in-sync" && set.synced_until.as_ref().map(time) >= Some(at)
        })
        .await;
    assert_eq!((set.resources, set.channels.len()), (5, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn source_without_hub_is_followed_by_its_change_list() {
    let rig = Rig::start_with(
        SampleOptions {
            hub: ChannelHub::None,
            ..resources(5)
        },
        |config| {
            config.sources[0].poll_interval = Duration::from_secs(1);
        },
    )
    .await;
    rig.idle().await;
    let lists = rig.source.hits("/set1/resourcelist.xml");
    rig.source.create(SET, "new.txt", "new");
    rig.source.update(SET, "r0001.txt", "updated");
    rig.source.delete(SET, "r0002.txt");
    rig.until_mirrored().await;
    rig.source.roll_change_list(SET);
    rig.source.create(SET, "newer.txt", "newer");
    rig.until_mirrored().await;
    rig.until("in sync", |set| {
        set.state == "in-sync" && set.resources == 6
    })
    .await;
    assert_eq!(rig.source.hits("/set1/resourcelist.xml"), lists);
}

/// The entries of a Change List are applied, whatever attributes it omits.
async fn check_form(form: ChangeListForm) {
    let rig = Rig::start_with(
        SampleOptions {
            hub: ChannelHub::None,
            change_list_form: form,
            ..resources(5)
        },
        |config| {
            config.sources[0].poll_interval = Duration::from_secs(1);
        },
    )
    .await;
    rig.settled().await;
    rig.source.create(SET, "new.txt", "new");
    rig.source.update(SET, "r0001.txt", "first");
    rig.source.update(SET, "r0001.txt", "second");
    rig.source.delete(SET, "r0002.txt");
    rig.until_mirrored().await;
    rig.until("in sync", |set| {
        set.state == "in-sync" && set.resources == 5
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn change_lists_without_from_are_followed() {
    check_form(ChangeListForm {
        from: false,
        ..ChangeListForm::default()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn change_lists_without_datetime_are_followed() {
    check_form(ChangeListForm {
        datetime: false,
        ..ChangeListForm::default()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn change_lists_without_any_time_are_followed() {
    check_form(ChangeListForm {
        from: false,
        until: false,
        datetime: false,
        lastmod: false,
        newest_first: false,
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn change_lists_newest_first_are_followed() {
    check_form(ChangeListForm {
        newest_first: true,
        ..ChangeListForm::default()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_change_is_lost_when_times_have_whole_seconds() {
    let rig = Rig::start(SampleOptions {
        whole_seconds: true,
        ..resources(5)
    })
    .await;
    rig.settled().await;
    for round in 0..3 {
        rig.source
            .update(SET, "r0001.txt", format!("round {round}, first"));
        rig.source
            .update(SET, "r0001.txt", format!("round {round}, second"));
        rig.source.create(SET, &format!("n{round}.txt"), "n");
        rig.source.notify_and_publish(SET).await.unwrap();
        rig.until_mirrored().await;
    }
    rig.settled().await;
}
