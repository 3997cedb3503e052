//! Republished resources: `via` names the original (core, section 14.8).

use resourcesync::{Algorithm, Digest, Entry, Link};
use resyncd::config::Config;
use resyncd_testkit::{ChannelHub, Fault, SampleOptions, SampleSource};
use serde_json::json;

use super::duplicates::{announce, update};
use crate::support::{Rig, resources};

const NAME: &str = "r0001.txt";
const OWN: &str = "/set1/res/r0001.txt";
const ORIGINAL: &str = "/original.txt";

/// An aggregator that is polled on request, and the original Source.
async fn rig(change: impl FnOnce(&mut Config)) -> (Rig, SampleSource) {
    let options = SampleOptions {
        hub: ChannelHub::None,
        ..resources(3)
    };
    let rig = Rig::start_with(options.clone(), change).await;
    rig.idle().await;
    (rig, SampleSource::start(options).await.unwrap())
}

/// Serves an original, and adds a link to it to the entry.
fn put(entry: &mut Entry, host: &SampleSource, bytes: &str) {
    host.put_document(ORIGINAL, "text/plain", bytes.to_owned());
    let original = host.base().join(ORIGINAL).unwrap();
    entry.links.push(Link::new("via", original));
}

fn fail_own(rig: &Rig) {
    rig.source.fail(OWN, Fault::Status(403), usize::MAX);
}

#[tokio::test(flavor = "multi_thread")]
async fn original_is_in_the_feed_and_shown_with_the_resource() {
    let (rig, host) = rig(|_| {}).await;
    let since = rig.operator.last_change().await;
    let mut entry = update(&rig, NAME, "republished");
    put(&mut entry, &host, "republished");
    announce(&rig, &[entry]).await;
    let line = rig.until_in_feed(since, NAME).await;
    let original = host.base().join(ORIGINAL).unwrap().to_string();
    assert_eq!(line.via, Some(vec![original.clone()]));
    let shown = rig.operator.resource(&rig.uri(NAME)).await.unwrap();
    assert_eq!(shown["via"], json!([original]));
    assert_eq!(shown["links"][0]["rel"], "via");
    // The resource's own URI has it.
    assert_eq!(host.traffic().0, 0);
    let since = rig.operator.last_change().await;
    announce(&rig, &[update(&rig, NAME, "no longer from elsewhere")]).await;
    assert_eq!(rig.until_in_feed(since, NAME).await.via, None);
    let shown = rig.operator.resource(&rig.uri(NAME)).await.unwrap();
    assert!(shown.get("via").is_none(), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn original_is_fetched_when_everything_else_fails_and_a_digest_is_stated() {
    let (rig, host) = rig(|_| {}).await;
    fail_own(&rig);
    let copy = SampleSource::start(resources(1)).await.unwrap();
    let mut entry = update(&rig, NAME, "republished");
    put(&mut entry, &host, "republished");
    let absent = copy.base().join("/absent").unwrap();
    entry.links.push(Link::new("duplicate", absent));
    announce(&rig, &[entry]).await;
    rig.until_holds(NAME, "republished").await;
    rig.until("in sync", |set| set.state == "in-sync" && set.pending == 0)
        .await;
    assert_eq!((copy.hits("/absent"), host.hits(ORIGINAL)), (1, 1));

    // The link states the digest, and the entry does not.
    let mut entry = update(&rig, NAME, "again");
    entry.md.content.hashes.clear();
    put(&mut entry, &host, "again");
    let digest = Digest::of(Algorithm::Sha256, b"again");
    entry.links[0].content.hashes.push(digest);
    announce(&rig, &[entry]).await;
    rig.until_holds(NAME, "again").await;
    assert_eq!(host.hits(ORIGINAL), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn original_is_not_requested_without_a_digest_or_on_a_host_that_is_not_allowed() {
    let (open, host) = rig(|_| {}).await;
    fail_own(&open);
    let mut entry = update(&open, NAME, "republished");
    entry.md.content.hashes.clear();
    put(&mut entry, &host, "republished");
    announce(&open, &[entry]).await;
    let failed = open
        .until("error reported", |set| set.error.is_some())
        .await;
    assert_eq!(failed.error.unwrap().code, "http-status");

    let options = SampleOptions {
        hub: ChannelHub::None,
        ..resources(3)
    };
    let source = SampleSource::start(options).await.unwrap();
    let allowed = format!("127.0.0.1:{}", source.base().port().unwrap());
    let rig = Rig::follow(source, |config| config.sources[0].hosts = vec![allowed]).await;
    rig.idle().await;
    fail_own(&rig);
    let mut entry = update(&rig, NAME, "republished");
    put(&mut entry, &host, "republished");
    announce(&rig, &[entry]).await;
    rig.until("error reported", |set| set.error.is_some()).await;
    assert_eq!(host.traffic().0, 0);
}

/// The original has changed since: what is published is what the aggregator states.
#[tokio::test(flavor = "multi_thread")]
async fn other_version_of_the_original_is_not_published() {
    let (rig, host) = rig(|_| {}).await;
    fail_own(&rig);
    let before = rig.mirrored(NAME).unwrap();
    let own_before = rig.source.hits(OWN);
    let mut entry = update(&rig, NAME, "republished");
    put(&mut entry, &host, "a newer one");
    announce(&rig, &[entry]).await;
    let failed = rig.until("error reported", |set| set.error.is_some()).await;
    assert_eq!(failed.error.unwrap().code, "http-status");
    // Once by each attempt, after its own URI. There may have been another attempt since.
    let of_original = host.hits(ORIGINAL);
    let of_own = rig.source.hits(OWN) - own_before;
    assert!(
        (1..=of_own).contains(&of_original),
        "{of_original} and {of_own}"
    );
    assert_eq!(rig.mirrored(NAME).unwrap(), before);
}
