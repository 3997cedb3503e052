//! Conditional requests for resources: unchanged bytes are not downloaded again, and bytes that must have changed are
//! requested unconditionally.

use std::time::Duration;

use resyncd_testkit::{ChannelHub, SampleOptions};

use super::faults::until_retried;
use crate::support::{NAME, Rig, SET, path_of, resources, time};

const PATH: &str = "/set1/res/r0001.txt";

async fn rig(digests: bool) -> Rig {
    let rig = Rig::start_with(
        SampleOptions {
            digests,
            hub: ChannelHub::None,
            // Of the last day, it would be asked for again whether a resource is unchanged.
            start: Some(time("2020-01-01T00:00:00Z")),
            ..resources(3)
        },
        |_| {},
    )
    .await;
    rig.settled().await;
    rig
}

/// Announces an update of `r0001.txt` whose bytes are the same. Returns the numbers of its requests and of 304 answers.
async fn touch(rig: &Rig) -> (u64, u64) {
    let bytes = rig.source.state(SET)[&rig.uri("r0001.txt")].clone();
    rig.source.advance(Duration::from_secs(1));
    let at = rig.source.update(SET, "r0001.txt", bytes);
    rig.operator.poll(NAME).await;
    rig.until("in sync", |set| {
        set.state == "in-sync"
            && set
                .synced_until
                .as_ref()
                .is_some_and(|until| crate::support::time(until) >= at)
    })
    .await;
    let known = rig.operator.resource(&rig.uri("r0001.txt")).await.unwrap();
    assert_eq!(known["changed_at"], at.to_string(), "{known}");
    assert_eq!(known["lastmod"], at.to_string(), "{known}");
    assert_eq!(known["type"], "text/plain", "{known}");
    rig.assert_mirrored();
    (rig.source.hits(PATH), rig.source.hits_not_modified(PATH))
}

#[tokio::test(flavor = "multi_thread")]
async fn unchanged_resource_is_not_downloaded_again() {
    let mut rig = rig(false).await;
    let since = rig.operator.last_change().await;
    assert_eq!(touch(&rig).await, (2, 1));
    assert_eq!(touch(&rig).await, (3, 2), "validators are stored");
    rig.stop_daemon().await;
    rig.start_daemon().await;
    assert_eq!(touch(&rig).await, (4, 3), "validators survive a restart");
    assert!(
        rig.operator.changes(since).await.is_empty(),
        "no line in the feed"
    );

    // Without the file, the request is unconditional.
    let file = rig.config.sources[0]
        .mirror
        .join(path_of(&rig.source.resource_uri(SET, "r0001.txt")));
    std::fs::remove_file(file).unwrap();
    assert_eq!(touch(&rig).await, (5, 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn announced_digest_of_the_mirrored_file_needs_no_request() {
    let rig = rig(true).await;
    assert_eq!(touch(&rig).await, (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn old_bytes_from_a_stale_cache_are_rejected() {
    let rig = rig(false).await;
    let old = rig.mirrored("r0001.txt").unwrap();
    // The cache still serves the old bytes, and would answer a conditional request with 304.
    rig.source.put_document(PATH, "text/plain", old);
    rig.source.update(SET, "r0001.txt", "new");
    rig.operator.poll(NAME).await;
    let set = rig
        .until("error reported", |set| {
            set.pending + set.failed == 1 && set.error.is_some()
        })
        .await;
    assert_eq!(set.error.unwrap().code, "length-mismatch");
    assert_eq!(rig.source.hits_not_modified(PATH), 0);
    rig.source.remove_document(PATH);
    until_retried(&rig, "in sync", |set| set.state == "in-sync").await;
    rig.until_holds("r0001.txt", "new").await;
}
