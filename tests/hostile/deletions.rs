//! A Source that deletes all it has, however it tells so: that waits until a person has looked.

use resyncd::demo::{ChannelHub, DumpOptions, SampleOptions};

use crate::PROCESSOR;
use crate::support::{NAME, Rig, SET, files, resources};

const RESOURCES: usize = 120;

/// How it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Notification,
    ChangeList,
    ResourceList,
    ChangeDump,
    ResourceDump,
}

fn options(told: Told) -> SampleOptions {
    let dumps = DumpOptions {
        resource_dump: told == Told::ResourceDump,
        change_dump: told == Told::ChangeDump,
        ..DumpOptions::default()
    };
    SampleOptions {
        hub: match told {
            Told::Notification => resources(0).hub,
            _ => ChannelHub::None,
        },
        change_list: matches!(told, Told::Notification | Told::ChangeList),
        resource_list: told != Told::ResourceDump,
        dumps,
        ..resources(RESOURCES)
    }
}

async fn tell(rig: &Rig, told: Told) {
    match told {
        Told::Notification => {
            rig.source.notify_and_publish(SET).await.unwrap();
            return;
        }
        Told::ChangeList => {}
        Told::ResourceList => drop(rig.source.refresh_resource_list(SET)),
        Told::ChangeDump => drop(rig.source.pack_changes(SET)),
        Told::ResourceDump => drop(rig.source.refresh_resource_dump(SET)),
    }
    rig.operator.poll(NAME).await;
}

async fn approve(rig: &Rig) {
    let (status, body) = rig.operator.post(&format!("/sources/{NAME}/approve")).await;
    assert_eq!(status, 202, "{body}");
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_tells_that_all_is_gone_is_not_believed_at_once() {
    let _turn = PROCESSOR.read().await;
    for told in [
        Told::Notification,
        Told::ChangeList,
        Told::ResourceList,
        Told::ChangeDump,
        Told::ResourceDump,
    ] {
        let rig = Rig::start(options(told)).await;
        rig.settled().await;
        let before = files(&rig.config.sources[0].mirror);
        for number in 0..RESOURCES {
            rig.source.delete(SET, &format!("r{number:04}.txt"));
        }
        tell(&rig, told).await;
        let what = format!("held back: {told:?}");
        let all = RESOURCES as u64;
        let set = rig.until(&what, |set| set.held_deletions == all).await;
        assert_eq!(set.resources, all, "{told:?}");
        assert!(
            files(&rig.config.sources[0].mirror) == before,
            "nothing is gone"
        );
        approve(&rig).await;
        rig.until_mirrored().await;
        assert!(files(&rig.config.sources[0].mirror).is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deletions_that_are_told_one_by_one_are_held_back_too() {
    let rig = Rig::start(resources(RESOURCES)).await;
    rig.settled().await;
    for number in 0..105 {
        rig.source.delete(SET, &format!("r{number:04}.txt"));
        rig.source.notify_and_publish(SET).await.unwrap();
    }
    let set = rig
        .until("a hundred are gone", |set| {
            set.pending == 0 && set.held_deletions == 5
        })
        .await;
    assert_eq!(set.resources, 20);
    // Others go on.
    rig.source.update(SET, "r0110.txt", "goes on");
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.until_holds("r0110.txt", "goes on").await;
    approve(&rig).await;
    rig.until_mirrored().await;
    // Somebody has looked just now: a few more go on by themselves.
    rig.source.delete(SET, "r0111.txt");
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.until_mirrored().await;
}
