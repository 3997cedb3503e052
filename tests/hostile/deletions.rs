//! A Source that deletes all its resources: the deletions are held back until a person approves them, however they are announced.

use resyncd_testkit::{ChannelHub, DumpOptions, SampleOptions};

use crate::hostile::PROCESSOR;
use crate::hostile::bodies::UNREACHED;
use crate::support::{NAME, Rig, SET, files, resources};

const RESOURCES: usize = 120;

/// The document that announces the deletions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Announcement {
    Notification,
    ChangeList,
    ResourceList,
    ChangeDump,
    ResourceDump,
}

fn options(announcement: Announcement) -> SampleOptions {
    let dumps = DumpOptions {
        resource_dump: announcement == Announcement::ResourceDump,
        change_dump: announcement == Announcement::ChangeDump,
        ..DumpOptions::default()
    };
    SampleOptions {
        hub: match announcement {
            Announcement::Notification => resources(0).hub,
            _ => ChannelHub::None,
        },
        change_list: matches!(
            announcement,
            Announcement::Notification | Announcement::ChangeList
        ),
        resource_list: announcement != Announcement::ResourceDump,
        dumps,
        ..resources(RESOURCES)
    }
}

async fn announce(rig: &Rig, announcement: Announcement) {
    match announcement {
        Announcement::Notification => {
            rig.source.notify_and_publish(SET).await.unwrap();
            return;
        }
        Announcement::ChangeList => {}
        Announcement::ResourceList => drop(rig.source.refresh_resource_list(SET)),
        Announcement::ChangeDump => drop(rig.source.pack_changes(SET)),
        Announcement::ResourceDump => drop(rig.source.refresh_resource_dump(SET)),
    }
    rig.operator.poll(NAME).await;
}

async fn approve(rig: &Rig) {
    let (status, body) = rig.operator.post(&format!("/sources/{NAME}/approve")).await;
    assert_eq!(status, 202, "{body}");
}

#[tokio::test(flavor = "multi_thread")]
async fn deletion_of_all_resources_is_held_back_however_it_is_announced() {
    let _permit = PROCESSOR.read().await;
    for announcement in [
        Announcement::Notification,
        Announcement::ChangeList,
        Announcement::ResourceList,
        Announcement::ChangeDump,
        Announcement::ResourceDump,
    ] {
        let rig = Rig::start(options(announcement)).await;
        rig.settled().await;
        let before = files(&rig.config.sources[0].mirror);
        for number in 0..RESOURCES {
            rig.source.delete(SET, &format!("r{number:04}.txt"));
        }
        announce(&rig, announcement).await;
        let what = format!("held back: {announcement:?}");
        let all = RESOURCES as u64;
        let set = rig.until(&what, |set| set.held_deletions == all).await;
        assert_eq!(set.resources, all, "{announcement:?}");
        assert!(
            files(&rig.config.sources[0].mirror) == before,
            "no file was removed"
        );
        approve(&rig).await;
        rig.until_mirrored().await;
        assert!(files(&rig.config.sources[0].mirror).is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_deletions_announced_one_by_one_are_held_back() {
    let rig = Rig::start_with(resources(RESOURCES), |config| {
        config.sources[0].reorder_window = UNREACHED;
    })
    .await;
    // A poll would find all of them at once.
    rig.idle().await;
    for number in 0..95 {
        rig.source.delete(SET, &format!("r{number:04}.txt"));
    }
    let first = rig.source.notify(SET);
    for number in 95..105 {
        rig.source.delete(SET, &format!("r{number:04}.txt"));
        rig.source.notify_and_publish(SET).await.unwrap();
    }
    // The others wait for the first one: all of them are applied within ten seconds, also on a busy machine.
    rig.until("the others wait", |set| {
        set.channels.iter().any(|channel| channel.held == 10)
    })
    .await;
    rig.source.publish(&first).await.unwrap();
    let set = rig
        .until("a hundred are deleted", |set| {
            set.pending == 0 && set.held_deletions == 5
        })
        .await;
    assert_eq!(set.resources, 20);
    // Other changes are applied.
    rig.source
        .update(SET, "r0110.txt", "beside held-back deletions");
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.until_holds("r0110.txt", "beside held-back deletions")
        .await;
    approve(&rig).await;
    rig.until_mirrored().await;
    // Shortly after an approval, a few more deletions need none.
    rig.source.delete(SET, "r0111.txt");
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.until_mirrored().await;
}
