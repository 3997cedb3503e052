//! Lists and notifications with entries that can't be read: the others are applied, and nothing is covered.

use resourcesync::Capability;
use resyncd::config::Filter;
use resyncd_testkit::{ChannelHub, Notification, SampleOptions};

use super::packing::{LIST, damage, poll_twice};
use crate::support::{NAME, Rig, SET, capability_list, change, change_list, resources, time};

const XML: &str = "application/xml";

/// A document whose entry of this resource has a bare ampersand in its URI.
fn damaged(document: &[u8], name: &str) -> Vec<u8> {
    let text = String::from_utf8(document.to_vec()).unwrap();
    let (whole, broken) = (format!("{name}</loc>"), format!("{name}?a=1&b=2</loc>"));
    assert!(text.contains(&whole), "{text}");
    text.replace(&whole, &broken).into_bytes()
}

#[tokio::test(flavor = "multi_thread")]
async fn change_list_with_a_damaged_entry_covers_nothing() {
    let options = SampleOptions {
        change_list: false,
        hub: ChannelHub::None,
        ..resources(3)
    };
    let rig = Rig::start_with(options, |_| {}).await;
    let claimed = rig.settled().await.synced_until.unwrap();
    let base = rig.source.base();
    let capabilities = capability_list(&[
        (
            &base.join("/set1/resourcelist.xml").unwrap(),
            Capability::ResourceList,
        ),
        (&base.join("/changes.xml").unwrap(), Capability::ChangeList),
    ]);
    rig.source
        .put_document("/set1/capabilitylist.xml", XML, capabilities);
    let entries = ["r0000.txt", "r0001.txt"].map(|name| {
        let at = rig.source.update(SET, name, "changed");
        change(&rig.source.resource_uri(SET, name), at)
    });
    let whole = change_list(time(&claimed), None, None, &entries);
    rig.source
        .put_document("/changes.xml", XML, damaged(&whole, "r0001.txt"));
    rig.operator.poll(NAME).await;
    rig.until_holds("r0000.txt", "changed").await;
    let set = rig.until("error", |set| set.error.is_some()).await;
    assert_eq!(set.error.unwrap().code, "bad-entries");
    assert_eq!(set.synced_until, Some(claimed));
    rig.source.put_document("/changes.xml", XML, whole);
    rig.operator.poll(NAME).await;
    rig.until_mirrored().await;
    rig.until("in sync", |set| {
        set.state == "in-sync" && set.error.is_none()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_list_is_read_at_each_poll_beside_a_change_list() {
    let options = SampleOptions {
        hub: ChannelHub::None,
        ..resources(3)
    };
    let filter = |exclude: &[&str]| Filter::matching(&[], exclude).unwrap();
    let mut rig = Rig::start_with(options, |config| {
        config.sources[0].filter = filter(&["*/r0002.txt"]);
    })
    .await;
    rig.until("in sync", |set| {
        set.state == "in-sync" && set.resources == 2
    })
    .await;
    damage(&rig, LIST, "r0001.txt").await;
    // With another filter the list is needed again.
    rig.stop_daemon().await;
    rig.config.sources[0].filter = filter(&[]);
    rig.start_daemon().await;
    rig.until("failing", |set| {
        set.state == "failing" && set.resources == 3
    })
    .await;
    poll_twice(&rig, LIST).await;
    let set = rig.set().await;
    assert_eq!(set.state, "failing");
    assert_eq!(set.error.unwrap().code, "bad-entries");
    // Also after a resource was deleted that it names.
    rig.source.delete(SET, "r0000.txt");
    rig.operator.poll(NAME).await;
    rig.until("deleted", |set| set.resources == 2).await;
    poll_twice(&rig, LIST).await;
    assert_eq!(rig.set().await.state, "failing");
    rig.source.remove_document(LIST);
    rig.operator.poll(NAME).await;
    rig.settled().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn notification_with_a_damaged_entry_causes_a_poll() {
    let rig = Rig::start(resources(3)).await;
    rig.settled().await;
    for name in ["r0000.txt", "r0001.txt"] {
        rig.source.update(SET, name, "changed");
    }
    let whole = rig.source.notify(SET);
    let notification = Notification {
        body: damaged(&whole.body, "r0001.txt").into(),
        ..whole
    };
    rig.source.publish(&notification).await.unwrap();
    rig.until_mirrored().await;
    rig.until("in sync", |set| set.state == "in-sync").await;
}
