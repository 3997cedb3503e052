//! Sources that a person pauses and resumes.

use std::time::Duration;

use resyncd::status::SourceStatus;

use crate::support::{NAME, Rig, SET, eventually, resources};

async fn source(rig: &Rig) -> SourceStatus {
    let status = rig.operator.status().await;
    status.sources.into_iter().next().unwrap()
}

/// Requests an operation on the Source; returns the status of the answer.
async fn post(rig: &Rig, operation: &str) -> u16 {
    let path = format!("/sources/{NAME}/{operation}");
    rig.operator.post(&path).await.0.as_u16()
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_requested_of_a_source_that_is_paused_until_it_is_resumed() {
    let mut rig = Rig::start_with(resources(3), |config| {
        config.sources[0].poll_interval = Duration::from_secs(1);
    })
    .await;
    rig.settled().await;
    let last = rig.operator.last_change().await;
    assert_eq!(post(&rig, "pause").await, 202);
    let requests = rig.source.traffic().0;
    rig.source.update(SET, "r0001.txt", "while it is paused");
    rig.source.notify_and_publish(SET).await.unwrap();
    // The delivery is accepted, and waits.
    eventually("the delivery", None, async || {
        let source = source(&rig).await;
        let waiting: u64 = source.sets[0].channels.iter().map(|it| it.inbox).sum();
        if waiting == 1 {
            Ok(())
        } else {
            Err(format!("{source:#?}"))
        }
    })
    .await;
    let paused = source(&rig).await;
    let codes: Vec<_> = paused.attention.iter().map(|it| it.code.as_str()).collect();
    assert_eq!(codes, ["source-paused"]);
    assert_eq!(
        paused.paused_since.as_ref(),
        Some(&paused.attention[0].since)
    );
    assert_eq!(post(&rig, "poll").await, 409);
    assert_eq!(post(&rig, "audit").await, 409);
    // Once more changes nothing.
    assert_eq!(post(&rig, "pause").await, 202);

    rig.stop_daemon().await;
    rig.start_daemon().await;
    assert_eq!(source(&rig).await.paused_since, paused.paused_since);
    assert_eq!(rig.source.traffic().0, requests);
    assert_eq!(rig.operator.last_change().await, last);

    assert_eq!(post(&rig, "resume").await, 202);
    rig.until_holds("r0001.txt", "while it is paused").await;
    let resumed = source(&rig).await;
    assert!(
        resumed.paused_since.is_none() && resumed.attention.is_empty(),
        "{resumed:#?}"
    );
    assert_eq!(post(&rig, "resume").await, 202);
    let unknown = rig.operator.post("/sources/unknown/pause").await.0;
    assert_eq!(unknown.as_u16(), 404);
}
