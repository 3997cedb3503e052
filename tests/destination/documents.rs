//! Invalid documents: they delete nothing, and the error is reported.

use std::time::Duration;

use resyncd::status::SetStatus;
use resyncd_testkit::{ChannelHub, Fault, SampleOptions};

use crate::support::{NAME, Rig, SET, client, files, resources};

const LIST: &str = "/set1/resourcelist.xml";
const CHANGES: &str = "/set1/changelist.xml";
const PAGE: &str =
    "<!DOCTYPE html><html><head><title>Sorry</title></head><body><p>We are<br>down</body></html>";

/// A Source that is polled every second, by its Change List or only by its Resource List.
async fn polled(change_list: bool) -> Rig {
    let rig = Rig::start_with(
        SampleOptions {
            change_list,
            hub: ChannelHub::None,
            ..resources(20)
        },
        |config| config.sources[0].poll_interval = Duration::from_secs(1),
    )
    .await;
    rig.settled().await;
    rig
}

/// A document becomes invalid when it would announce changes. The error is reported with this code, and no file is deleted.
/// When the document is valid again, all changes are applied. `invalidate` receives the document as it was before.
async fn check(change_list: bool, code: &str, invalidate: impl FnOnce(&Rig, &str, String)) {
    let rig = polled(change_list).await;
    let path = if change_list { CHANGES } else { LIST };
    let before = files(&rig.config.sources[0].mirror);
    let valid = fetch(&rig, path).await;
    // The daemon polls every second: it must not read the valid version with the changes.
    let pattern = format!("{path}*");
    rig.source.fail(&pattern, Fault::Status(500), usize::MAX);
    rig.source.delete(SET, "r0000.txt");
    rig.source.update(SET, "r0001.txt", "after the error");
    if !change_list {
        rig.source.refresh_resource_list(SET);
    }
    invalidate(&rig, path, valid);
    rig.source.heal(&pattern);
    let reported = |set: &SetStatus| set.error.as_ref().is_some_and(|error| error.code == code);
    let set = rig
        .until(code, |set| set.state == "failing" && reported(set))
        .await;
    let error = set.error.unwrap();
    assert!(error.message.contains(path), "{error:?} names the document");
    // A poll has ended when the next one begins.
    for _ in 0..2 {
        let last = rig.set().await.last_poll_at;
        rig.until("polled", |set| set.last_poll_at != last).await;
    }
    assert_eq!(
        files(&rig.config.sources[0].mirror),
        before,
        "the mirror has not changed"
    );

    rig.source.remove_document(path);
    rig.source.heal(path);
    rig.until_mirrored().await;
    let set = rig.until("in sync", |set| set.state == "in-sync").await;
    assert!(set.error.is_none(), "{set:?}");
    assert_eq!(set.resources, 19);
}

async fn fetch(rig: &Rig, path: &str) -> String {
    let url = rig.source.base().join(path).unwrap();
    client()
        .get(url)
        .send()
        .await
        .unwrap()
        .text()
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn web_page_in_place_of_a_resource_list_deletes_nothing() {
    check(false, "html-page", |rig, path, _| {
        rig.source.put_document(path, "text/html", PAGE);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn web_page_in_place_of_a_change_list_deletes_nothing() {
    check(true, "html-page", |rig, path, _| {
        rig.source.put_document(path, "text/html", PAGE);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn truncated_resource_list_deletes_nothing() {
    check(false, "cut-short", |rig, path, valid| {
        let half = valid[..valid.len() / 2].to_owned();
        rig.source.put_document(path, "application/xml", half);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn truncated_change_list_changes_nothing() {
    check(true, "cut-short", |rig, path, valid| {
        let uri = rig.uri("r0005.txt");
        let entry = format!("<url><loc>{uri}</loc><rs:md change=\"deleted\"/></url>");
        let cut = valid.replace("</urlset>", &entry);
        rig.source.put_document(path, "application/xml", cut);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn resource_list_on_a_dropped_connection_deletes_nothing() {
    check(false, "cut-short", |rig, path, _| {
        rig.source.fail(path, Fault::Truncated, usize::MAX);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn document_of_another_capability_is_rejected() {
    check(false, "wrong-capability", |rig, path, valid| {
        let other = valid.replace("\"resourcelist\"", "\"changelist\"");
        rig.source.put_document(path, "application/xml", other);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_document_deletes_nothing() {
    check(true, "not-found", |rig, path, _| {
        rig.source.fail(path, Fault::Status(404), usize::MAX);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn oversized_document_is_rejected() {
    let rig = Rig::start_with(resources(3), |config| config.limits.document = 20_000).await;
    rig.settled().await;
    rig.source
        .put_document(CHANGES, "application/xml", " ".repeat(20_001));
    rig.operator.poll(NAME).await;
    let set = rig.until("failing", |set| set.state == "failing").await;
    let error = set.error.unwrap();
    assert_eq!(error.code, "too-large");
    assert!(
        error.message.contains("20000 bytes ([limits] document)"),
        "{error:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn baseline_waits_for_a_valid_resource_list() {
    let source = resyncd_testkit::SampleSource::start(resources(5))
        .await
        .unwrap();
    source.put_document(LIST, "text/html", PAGE);
    let rig = Rig::follow(source, |_| {}).await;
    let set = rig.until("failing", |set| set.state == "failing").await;
    assert_eq!((set.resources, set.synced_until), (0, None));
    rig.source
        .update(SET, "r0001.txt", "notified before the baseline");
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.source.remove_document(LIST);
    rig.operator.poll(NAME).await;
    let set = rig.settled().await;
    assert_eq!((set.resources, set.error.is_none()), (5, true));
    rig.until_holds("r0001.txt", "notified before the baseline")
        .await;
}
