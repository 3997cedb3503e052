//! Resources that can't be fetched or verified: correct bytes are never replaced by wrong ones, and the failure of one
//! resource does not affect others.

use std::time::Duration;

use resyncd::status::SetStatus;
use resyncd_testkit::{Fault, SampleOptions, SampleSource};

use crate::support::{LIMIT, NAME, Rig, SET, eventually, resources};

const PATH: &str = "/set1/res/r0001.txt";

/// Waits until the status is as wanted. A resource whose tries are used up is tried again after a while, so that is requested.
pub(super) async fn until_retried(rig: &Rig, what: &str, wanted: impl Fn(&SetStatus) -> bool) {
    eventually(what, Some(rig.wakes()), async || {
        let set = rig.set().await;
        if wanted(&set) {
            return Ok(());
        }
        if set.failed > 0 {
            rig.operator.retry(NAME).await;
        }
        Err(format!("{set:#?}"))
    })
    .await;
}

/// At least two attempts at an update get wrong bytes. It is applied once, when the bytes are correct.
async fn check_wrong(fault: Fault) {
    let rig = Rig::start(resources(3)).await;
    rig.settled().await;
    let (since, before) = (
        rig.operator.last_change().await,
        rig.mirrored("r0001.txt").unwrap(),
    );
    let hits = rig.source.hits(PATH);
    rig.source.fail(PATH, fault.clone(), usize::MAX);
    rig.source.update(SET, "r0001.txt", "the new content");
    rig.source.update(SET, "r0002.txt", "another");
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.until_holds("r0002.txt", "another").await;
    rig.source.wait_for_hits(PATH, hits + 2).await;
    // On a busy machine all tries may have failed by now.
    let set = rig
        .until("not applied", |set| set.pending + set.failed == 1)
        .await;
    assert_eq!(set.state, "catching-up", "{fault:?}");
    assert_eq!(rig.mirrored("r0001.txt").unwrap(), before, "{fault:?}");
    rig.source.heal(PATH);
    until_retried(&rig, "in sync", |set| set.state == "in-sync").await;
    rig.until_holds("r0001.txt", "the new content").await;
    let lines = rig.operator.changes(since).await;
    assert_eq!(
        lines
            .iter()
            .filter(|line| line.uri == rig.uri("r0001.txt"))
            .count(),
        1
    );
    rig.assert_mirrored();
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_bytes_never_replace_correct_ones() {
    check_wrong(Fault::WrongBytes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn truncated_bytes_never_replace_correct_ones() {
    check_wrong(Fault::Truncated).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn error_page_never_replaces_correct_bytes() {
    check_wrong(Fault::Status(500)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_of_another_length_never_replace_correct_ones() {
    let rig = Rig::start(SampleOptions {
        digests: false,
        ..resources(3)
    })
    .await;
    rig.settled().await;
    let before = rig.mirrored("r0001.txt").unwrap();
    let hits = rig.source.hits(PATH);
    rig.source
        .put_document(PATH, "text/plain", "longer than announced");
    rig.source.update(SET, "r0001.txt", "as announced");
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.source.wait_for_hits(PATH, hits + 1).await;
    rig.source.put_document(PATH, "text/plain", "short");
    let hits = rig.source.hits(PATH);
    until_retried(&rig, "tried again", |_| rig.source.hits(PATH) > hits).await;
    assert_eq!(rig.mirrored("r0001.txt").unwrap(), before);
    rig.source.remove_document(PATH);
    until_retried(&rig, "in sync", |set| set.state == "in-sync").await;
    rig.until_holds("r0001.txt", "as announced").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_resource_does_not_affect_the_others() {
    let source = SampleSource::start(resources(10)).await.unwrap();
    source.fail(PATH, Fault::Status(404), usize::MAX);
    let rig = Rig::follow(source, |_| {}).await;
    let set = rig
        .until("one task failed", |set| {
            set.failed == 1 && set.resources == 9
        })
        .await;
    assert_eq!(set.pending, 0);
    let error = set.error.unwrap();
    assert!(!error.code.is_empty(), "{error:?}");
    // The set is still followed.
    rig.source.update(SET, "r0002.txt", "pushed");
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.until_holds("r0002.txt", "pushed").await;
    rig.source.heal(PATH);
    until_retried(&rig, "in sync", |set| set.state == "in-sync").await;
    rig.settled().await;
}

/// The status states since when a set fails, when it was asked last and is tried next, until it is read again.
#[tokio::test(flavor = "multi_thread")]
async fn failing_set_is_shown_since_it_began() {
    let rig = Rig::start(resources(3)).await;
    let set = rig.settled().await;
    assert_eq!((set.failing_since, set.next_try_at), (None, None));
    let list = "/set1/changelist.xml";
    rig.source.fail(list, Fault::Status(500), usize::MAX);
    rig.operator.poll(NAME).await;
    let began = rig
        .until("failing", |set| set.failing_since.is_some())
        .await;
    assert!(began.next_try_at.is_some(), "{began:#?}");
    rig.operator.poll(NAME).await;
    let later = rig
        .until("failing again", |set| {
            set.last_request_at > began.last_request_at && set.failing_since.is_some()
        })
        .await;
    assert_eq!(later.failing_since, began.failing_since);
    let source = rig.operator.status().await.sources.remove(0);
    assert!(source.last_request_at >= began.last_request_at);
    rig.source.heal(list);
    rig.operator.poll(NAME).await;
    let set = rig.until("in sync", |set| set.state == "in-sync").await;
    assert_eq!((set.failing_since, set.next_try_at), (None, None));
}

/// What has failed is tried again after pauses that grow, however often the set is polled.
#[tokio::test(flavor = "multi_thread")]
async fn polls_do_not_repeat_what_has_failed() {
    for status in [404, 403] {
        let source = SampleSource::start(resources(3)).await.unwrap();
        source.fail(PATH, Fault::Status(status), usize::MAX);
        let rig = Rig::follow(source, |_| {}).await;
        rig.until("given up", |set| set.failed == 1).await;
        let began = std::time::Instant::now();
        let hits = rig.source.hits(PATH);
        for _ in 0..20 {
            let before = rig.set().await.last_poll_at;
            rig.operator.poll(NAME).await;
            rig.until("polled", |set| set.last_poll_at != before).await;
        }
        let set = rig.set().await;
        assert_eq!((set.state.as_str(), set.failed), ("catching-up", 1));
        // Each pause is at least half as long as its turn: 1 s, 2 s, 4 s, ...
        let most = 2 + u64::from((2 * began.elapsed().as_secs() + 1).ilog2());
        let found = rig.source.hits(PATH) - hits;
        assert!(found <= most, "{status}: {found} requests, at most {most}");
        rig.source.heal(PATH);
        rig.source.update(SET, "r0001.txt", "new");
        rig.source.notify_and_publish(SET).await.unwrap();
        rig.until_holds("r0001.txt", "new").await;
        rig.settled().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn retry_after_of_the_server_is_honoured() {
    let rig = Rig::start(resources(3)).await;
    rig.settled().await;
    let (hits, before) = (rig.source.hits(PATH), rig.mirrored("r0001.txt"));
    let one_hour = Fault::Unavailable { retry_after: 3600 };
    let one_second = Fault::Unavailable { retry_after: 1 };
    rig.source.fail(PATH, one_hour, 1);
    rig.source.fail("/set1/res/r0002.txt", one_second, 3);
    rig.source.update(SET, "r0001.txt", "in an hour");
    rig.source.update(SET, "r0002.txt", "in a few seconds");
    rig.source.notify_and_publish(SET).await.unwrap();
    // Three pauses of one second end within one pause of an hour.
    rig.until_holds("r0002.txt", "in a few seconds").await;
    rig.until("one task pending", |set| set.pending == 1).await;
    assert_eq!(rig.source.hits(PATH), hits + 1);
    assert_eq!(rig.mirrored("r0001.txt"), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn stalled_resource_does_not_delay_the_others() {
    let rig = Rig::start_with(resources(3), |config| {
        // The stalled request does not time out during the test.
        config.http.timeout = 10 * LIMIT;
        config.http.connections_per_host = 2;
    })
    .await;
    rig.settled().await;
    rig.source.fail(PATH, Fault::Stalled, 1);
    rig.source.update(SET, "r0001.txt", "stalled at first");
    for number in 0..30 {
        rig.source.create(SET, &format!("n{number}.txt"), "n");
    }
    rig.source.notify_and_publish(SET).await.unwrap();
    eventually(
        "all others mirrored",
        Some(rig.wakes()),
        async || match rig.set().await {
            set if set.resources == 33 && set.pending == 1 => Ok(()),
            set => Err(format!("{set:?}")),
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stalled_resource_is_retried() {
    let rig = Rig::start_with(resources(3), |config| {
        config.http.timeout = Duration::from_secs(3);
    })
    .await;
    rig.settled().await;
    let hits = rig.source.hits(PATH);
    rig.source.fail(PATH, Fault::Stalled, 1);
    rig.source.update(SET, "r0001.txt", "stalled at first");
    rig.source.notify_and_publish(SET).await.unwrap();
    let mirrored = || {
        rig.mirrored("r0001.txt")
            .is_some_and(|it| it == b"stalled at first")
    };
    until_retried(&rig, "in sync", |set| set.state == "in-sync" && mirrored()).await;
    assert!(rig.source.hits(PATH) >= hits + 2, "at least one retry");
}

#[tokio::test(flavor = "multi_thread")]
async fn redirected_resource_is_mirrored_under_its_own_uri() {
    let rig = Rig::start(resources(3)).await;
    rig.settled().await;
    let elsewhere = rig.source.base().join("/elsewhere").unwrap().to_string();
    rig.source
        .put_document("/elsewhere", "text/plain", "from elsewhere");
    rig.source
        .fail(PATH, Fault::Redirect(elsewhere), usize::MAX);
    rig.source.update(SET, "r0001.txt", "from elsewhere");
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.until_holds("r0001.txt", "from elsewhere").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redirect_to_a_host_that_is_not_allowed_is_not_followed() {
    let other = SampleSource::start(resources(1)).await.unwrap();
    let rig = Rig::start_with(resources(3), |config| {
        let source = &mut config.sources[0];
        source.hosts =
            vec![source.url[url::Position::BeforeHost..url::Position::AfterPort].to_owned()];
    })
    .await;
    rig.settled().await;
    let elsewhere = other.resource_uri(SET, "r0000.txt").to_string();
    rig.source
        .fail(PATH, Fault::Redirect(elsewhere), usize::MAX);
    rig.source.update(SET, "r0001.txt", "x");
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.until("given up", |set| set.failed == 1).await;
    assert_eq!(other.hits("/set1/res/r0000.txt"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_file_is_fetched_again_at_the_next_change() {
    let rig = Rig::start(resources(3)).await;
    rig.settled().await;
    let path = crate::support::path_of(&rig.source.resource_uri(SET, "r0001.txt"));
    std::fs::remove_file(rig.config.sources[0].mirror.join(path)).unwrap();
    // The digest is unchanged, but the file is missing.
    let bytes = rig.source.state(SET)[&rig.uri("r0001.txt")].clone();
    rig.source.update(SET, "r0001.txt", bytes);
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.until_mirrored().await;
}
