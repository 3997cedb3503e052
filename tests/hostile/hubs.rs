//! A hub of another origin than the Source that makes up notifications. It knows the secret, and signs them.

use std::time::Duration;

use bytes::Bytes;
use chrono::TimeDelta;
use resyncd::demo::{Fault, Notification, SampleOptions, SampleSource};
use resyncd::protocol::{Algorithm, ChangeKind, Digest, Entry, Link};

use crate::support::{NAME, Rig, SET, change, change_list, eventually, resources};

const RESOURCE: &str = "r0001.txt";

/// A notification that the hub makes up. Its interval begins where the last one ended.
fn forge(rig: &Rig, entries: &[Entry]) -> Notification {
    // An interval that the Source knows: what it would have stated is replaced.
    let genuine = rig.source.notify(SET);
    let interval = genuine.interval.unwrap();
    let body = change_list(interval.from(), Some(interval.until()), None, entries);
    Notification {
        body: Bytes::from(body),
        ..genuine
    }
}

/// An entry for content that only the hub has.
fn forged_update(rig: &Rig, bytes: &str, elsewhere: &SampleSource) -> Entry {
    let uri = rig.source.resource_uri(SET, RESOURCE);
    elsewhere.put_document("/forged", "text/plain", bytes.to_owned());
    let mut entry = change(&uri, rig.source.boundary());
    entry.md.content.length = Some(bytes.len() as u64);
    entry.md.content.hashes = vec![Digest::of(Algorithm::Sha256, bytes.as_bytes())];
    let copy = elsewhere.base().join("/forged").unwrap();
    entry.links.push(Link::new("duplicate", copy));
    entry
}

fn forged_deletion(rig: &Rig, name: &str) -> Entry {
    let uri = rig.source.resource_uri(SET, name);
    let mut entry = change(&uri, rig.source.boundary());
    entry.md.change = Some(ChangeKind::Deleted);
    entry
}

/// After so many seconds the Source changes a resource, and its Change List is polled: that covers all of them.
async fn cover(rig: &Rig, seconds: u64) {
    rig.source.advance(Duration::from_secs(seconds));
    rig.source.update(SET, "r0002.txt", "changed by the Source");
    rig.operator.poll(NAME).await;
}

async fn until_contradicted(rig: &Rig) {
    eventually("the channel shows it", None, async || {
        let channel = rig.channel().await;
        match &channel.error {
            Some(error) if error.code == "hub-contradicted" => Ok(()),
            _ => Err(format!("{channel:#?}")),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn content_that_only_the_hub_has_is_not_mirrored() {
    for trusted in [None, Some(true)] {
        let elsewhere = SampleSource::start(SampleOptions::default()).await.unwrap();
        let rig = Rig::start_with(resources(3), |config| {
            config.sources[0].trust_hub = trusted;
        })
        .await;
        rig.idle().await;
        rig.source.advance(Duration::from_secs(1));
        let before = rig.mirrored(RESOURCE);
        let entry = forged_update(&rig, "forged by the hub", &elsewhere);
        let deliveries = rig.source.publish(&forge(&rig, &[entry])).await.unwrap();
        assert!(deliveries[0].is_accepted(), "{deliveries:?}");
        if trusted.is_some() {
            // What the operator has allowed.
            rig.until_holds(RESOURCE, "forged by the hub").await;
            continue;
        }
        until_contradicted(&rig).await;
        rig.until("nothing is pending", |set| set.pending == 0)
            .await;
        assert_eq!(rig.mirrored(RESOURCE), before);
        assert_eq!(elsewhere.hits("/forged"), 0, "the hub's URI was requested");
        // The Source itself changes the resource.
        rig.source.update(SET, RESOURCE, "changed by the Source");
        rig.source.notify_and_publish(SET).await.unwrap();
        rig.until_holds(RESOURCE, "changed by the Source").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn resources_that_the_source_serves_are_not_deleted_for_a_hub() {
    let rig = Rig::start(resources(3)).await;
    rig.idle().await;
    rig.source.advance(Duration::from_secs(1));
    rig.source.delete(SET, "r0002.txt");
    let entries = [
        forged_deletion(&rig, RESOURCE),
        forged_deletion(&rig, "r0002.txt"),
    ];
    rig.source.publish(&forge(&rig, &entries)).await.unwrap();
    rig.until("the true deletion is applied", |set| set.resources == 2)
        .await;
    until_contradicted(&rig).await;
    rig.until("nothing is pending", |set| set.pending == 0)
        .await;
    assert!(rig.mirrored(RESOURCE).is_some() && rig.mirrored("r0002.txt").is_none());
}

/// The hub announces a change with the digest of the former version: the mirror has it. The Change List states the truth.
#[tokio::test(flavor = "multi_thread")]
async fn forged_digest_of_the_former_version_does_not_hide_a_change() {
    let rig = Rig::start(resources(3)).await;
    rig.idle().await;
    let former = String::from_utf8(rig.mirrored(RESOURCE).unwrap()).unwrap();
    let at = rig.source.update(SET, RESOURCE, "the newer version");
    let mut entry = change(&rig.source.resource_uri(SET, RESOURCE), at);
    entry.md.content.length = Some(former.len() as u64);
    entry.md.content.hashes = vec![Digest::of(Algorithm::Sha256, former.as_bytes())];
    let forged = forge(&rig, &[entry]);
    rig.source.publish(&forged).await.unwrap();
    rig.until("the notification is processed", |set| {
        set.channels.iter().any(|channel| channel.applied > 0)
    })
    .await;
    rig.operator.poll(NAME).await;
    rig.until_holds(RESOURCE, "the newer version").await;
}

/// The hub announces a deletion while the resource is not available for a moment. The Change List does not have the deletion.
#[tokio::test(flavor = "multi_thread")]
async fn deletion_that_the_change_list_does_not_have_is_undone_and_reported() {
    let rig = Rig::start(resources(3)).await;
    rig.idle().await;
    let before = rig.mirrored(RESOURCE);
    rig.source.advance(Duration::from_secs(1));
    let path = rig.source.resource_uri(SET, RESOURCE).path().to_owned();
    rig.source.fail(&path, Fault::Status(404), 1);
    let entry = forged_deletion(&rig, RESOURCE);
    rig.source.publish(&forge(&rig, &[entry])).await.unwrap();
    rig.until("the deletion is applied", |set| set.resources == 2)
        .await;
    cover(&rig, 5).await;
    rig.until("the resource is back", |set| set.resources == 3)
        .await;
    assert_eq!(rig.mirrored(RESOURCE), before);
    until_contradicted(&rig).await;
}

/// The hub announces a change with a time that is yet to come, and the resource is deleted before that.
#[tokio::test(flavor = "multi_thread")]
async fn deletion_that_the_time_of_a_hub_has_hidden_is_applied_and_reported() {
    let rig = Rig::start(resources(3)).await;
    rig.idle().await;
    let notification = rig.source.notify(SET);
    let ahead = notification.interval.unwrap().until().to_datetime() + TimeDelta::seconds(60);
    let entry = change(&rig.source.resource_uri(SET, RESOURCE), ahead.into());
    rig.source.publish(&forge(&rig, &[entry])).await.unwrap();
    rig.until("the notification is applied", |set| {
        set.pending == 0 && set.channels.iter().any(|channel| channel.applied > 0)
    })
    .await;
    rig.source.advance(Duration::from_secs(1));
    rig.source.delete(SET, RESOURCE);
    cover(&rig, 120).await;
    rig.until("the deletion is applied", |set| set.resources == 2)
        .await;
    assert_eq!(rig.mirrored(RESOURCE), None);
    until_contradicted(&rig).await;
}

/// The Source deletes a resource, and the hub announces a change of it with a later time: the deletion looks older.
#[tokio::test(flavor = "multi_thread")]
async fn deletion_before_an_update_that_the_hub_makes_up_is_applied_and_reported() {
    let rig = Rig::start(resources(3)).await;
    rig.idle().await;
    rig.source.advance(Duration::from_secs(1));
    rig.source.delete(SET, RESOURCE);
    rig.source.advance(Duration::from_secs(1));
    let uri = rig.source.resource_uri(SET, RESOURCE);
    let entry = change(&uri, rig.source.boundary());
    rig.source.publish(&forge(&rig, &[entry])).await.unwrap();
    rig.until("the update is given up", |set| set.failed == 1)
        .await;
    cover(&rig, 5).await;
    rig.until("the deletion is applied", |set| set.resources == 2)
        .await;
    until_contradicted(&rig).await;
}

/// A resource that the Source neither lists nor serves does not keep the set from being in sync for ever.
#[tokio::test(flavor = "multi_thread")]
async fn resource_that_the_hub_makes_up_is_forgotten() {
    let rig = Rig::start(resources(3)).await;
    rig.idle().await;
    rig.source.advance(Duration::from_secs(1));
    let nothing = rig.source.resource_uri(SET, "nothing.txt");
    let entry = change(&nothing, rig.source.boundary());
    rig.source.publish(&forge(&rig, &[entry])).await.unwrap();
    rig.until("the resource is given up", |set| set.failed == 1)
        .await;
    cover(&rig, 5).await;
    rig.until("it is forgotten", |set| set.state == "in-sync")
        .await;
    until_contradicted(&rig).await;
}
