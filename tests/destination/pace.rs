//! How fast a Source is requested: no faster than its operator has configured.

use std::time::{Duration, Instant};

use resyncd_testkit::{Fault, SampleSource};

use crate::support::{Rig, SET, resources};

/// How long it takes until the Source is in sync whose pace this sets.
async fn first_copy(
    prepare: impl FnOnce(&SampleSource),
    pace: impl FnOnce(&mut resyncd_fetch::PaceLimits),
) -> (Rig, Duration) {
    let source = SampleSource::start(resources(4)).await.unwrap();
    prepare(&source);
    let began = Instant::now();
    let rig = Rig::follow(source, |config| pace(&mut config.sources[0].pace)).await;
    rig.settled().await;
    (rig, began.elapsed())
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_in_a_second_are_limited() {
    let (rig, took) = first_copy(|_| {}, |pace| pace.requests_per_second = Some(4.0)).await;
    let (requests, _) = rig.source.traffic();
    let least = Duration::from_secs_f64((requests - 1) as f64 / 4.0);
    assert!(took >= least, "{requests} requests in {took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn bandwidth_is_limited() {
    let large = "x".repeat(100_000);
    let create = |source: &SampleSource| {
        for number in 0..3 {
            source.create(SET, &format!("large-{number}.txt"), large.clone());
        }
    };
    let (_rig, took) = first_copy(create, |pace| pace.bandwidth = Some(100_000)).await;
    // The end of a body is not waited for.
    assert!(took >= Duration::from_secs(2), "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_host_gets_one_resource_at_a_time() {
    let slow = Duration::from_millis(500);
    let delay = |source: &SampleSource| {
        source.fail("/set1/res/*", Fault::Slow(slow), 4);
    };
    let (_rig, took) = first_copy(delay, |pace| pace.connections_per_host = Some(1)).await;
    assert!(took >= slow * 4, "{took:?}");
}
