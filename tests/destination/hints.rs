//! Incomplete and deviating notifications: their changes are applied, but what they omit proves nothing.

use std::io::Write;

use resyncd_testkit::Subscription;
use websub::{Signature, SignatureMethod};

use crate::support::{Rig, SET, client, resources, send, soon};

/// A rig, and the subscription to which the test delivers.
async fn rig() -> (Rig, Subscription) {
    let rig = Rig::start(resources(3)).await;
    rig.idle().await;
    let topic = rig.changes().to_string();
    let subscription = soon("subscribed", rig.hub().wait_for_subscription(&topic)).await;
    (rig, subscription)
}

async fn deliver(to: &Subscription, body: Vec<u8>) {
    let secret = to.secret.as_ref().unwrap();
    let signature = Signature::sign(SignatureMethod::Sha256, secret.as_bytes(), &body);
    let request = || {
        client()
            .post(&to.callback)
            .header("Content-Type", "text/xml; charset=utf-8")
            .header("X-Hub-Signature", signature.to_string())
            .body(body.clone())
    };
    assert_eq!(send(request).await.status(), 200);
}

/// Updates a resource, alters the text of the notification, delivers it, and waits until the update is applied.
async fn check(alter: impl Fn(String) -> String) -> Rig {
    let (rig, subscription) = rig().await;
    // Only the notification announces the update.
    rig.source.freeze_change_list(SET, true);
    rig.source.update(SET, "r0001.txt", "announced");
    let text = String::from_utf8(rig.source.notify(SET).body.to_vec()).unwrap();
    let altered = alter(text.clone());
    assert_ne!(text, altered);
    deliver(&subscription, altered.into_bytes()).await;
    rig.until_holds("r0001.txt", "announced").await;
    rig
}

/// The text without the first occurrence of an attribute.
fn without(text: &str, attribute: &str) -> String {
    let at = text.find(&format!(" {attribute}=\"")).unwrap();
    let end = at + attribute.len() + 3;
    let close = end + text[end..].find('"').unwrap();
    text[..at].to_owned() + &text[close + 1..]
}

#[tokio::test(flavor = "multi_thread")]
async fn notification_without_interval_is_applied_and_the_set_is_polled() {
    let (rig, subscription) = rig().await;
    let polled = rig.source.hits("/set1/changelist.xml");
    rig.source.update(SET, "r0001.txt", "announced");
    let text = String::from_utf8(rig.source.notify(SET).body.to_vec()).unwrap();
    let bare = without(&without(&text, "from"), "until");
    deliver(&subscription, bare.into_bytes()).await;
    rig.until_holds("r0001.txt", "announced").await;
    let hits = rig.source.wait_for_hits("/set1/changelist.xml", polled + 1);
    soon("polled", hits).await;
    let set = rig.until("in sync", |set| set.state == "in-sync").await;
    assert!(set.gaps.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn interval_in_the_far_future_proves_nothing() {
    let rig = check(|text| {
        let text = without(&text, "until");
        text.replacen(
            "capability=\"change-notification\"",
            "capability=\"change-notification\" until=\"2999-01-01T00:00:00Z\"",
            1,
        )
    })
    .await;
    // If the interval had been accepted, the next notification would be a duplicate.
    let since = rig.operator.last_change().await;
    rig.source.update(SET, "r0002.txt", "the next");
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.until_in_feed(since, "r0002.txt").await;
    rig.source.freeze_change_list(SET, false);
    rig.settled().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn notification_labelled_changelist_is_accepted() {
    let rig = check(|text| {
        text.replace(
            "capability=\"change-notification\"",
            "capability=\"changelist\"",
        )
    })
    .await;
    assert_eq!(rig.channel().await.applied, 1);
    assert_eq!(rig.channel().await.rejected, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn gzip_notification_without_content_encoding_is_read() {
    let (rig, subscription) = rig().await;
    rig.source.freeze_change_list(SET, true);
    rig.source.update(SET, "r0001.txt", "announced");
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&rig.source.notify(SET).body).unwrap();
    deliver(&subscription, gzip.finish().unwrap()).await;
    rig.until_holds("r0001.txt", "announced").await;
}
