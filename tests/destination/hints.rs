//! Notifications as they are out in the world: what they leave out proves nothing, and is no reason to lose a change.

use std::io::Write;

use resyncd::demo::Subscription;
use resyncd::protocol::websub::{Signature, SignatureMethod};

use crate::support::{Rig, SET, client, resources, soon};

/// A rig with the subscription that the test itself delivers to.
async fn rig() -> (Rig, Subscription) {
    let rig = Rig::start(resources(3)).await;
    rig.settled().await;
    let topic = rig.changes().to_string();
    let subscription = soon("subscribed", rig.hub().wait_for_subscription(&topic)).await;
    (rig, subscription)
}

async fn deliver(to: &Subscription, body: Vec<u8>) {
    let secret = to.secret.as_ref().unwrap();
    let signature = Signature::sign(SignatureMethod::Sha256, secret.as_bytes(), &body);
    let request = client()
        .post(&to.callback)
        .header("Content-Type", "text/xml; charset=utf-8")
        .header("X-Hub-Signature", signature.to_string())
        .body(body);
    assert_eq!(request.send().await.unwrap().status(), 200);
}

/// Changes a resource, makes the notification, has `alter` change its text, and delivers that; the change is applied.
async fn check(alter: impl Fn(String) -> String) -> Rig {
    let (rig, subscription) = rig().await;
    // Nothing but the notification tells of it.
    rig.source.freeze_change_list(SET, true);
    rig.source.update(SET, "r0001.txt", "told");
    let text = String::from_utf8(rig.source.notify(SET).body.to_vec()).unwrap();
    let altered = alter(text.clone());
    assert_ne!(text, altered);
    deliver(&subscription, altered.into_bytes()).await;
    rig.until_holds("r0001.txt", "told").await;
    rig
}

/// A text without an attribute.
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
    rig.source.update(SET, "r0001.txt", "told");
    let text = String::from_utf8(rig.source.notify(SET).body.to_vec()).unwrap();
    let bare = without(&without(&text, "from"), "until");
    deliver(&subscription, bare.into_bytes()).await;
    rig.until_holds("r0001.txt", "told").await;
    let hits = rig.source.wait_for_hits("/set1/changelist.xml", polled + 1);
    soon("polled", hits).await;
    let set = rig.until("in step", |set| set.state == "in-sync").await;
    assert!(set.gaps.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn notification_of_the_far_future_proves_nothing() {
    let rig = check(|text| {
        let text = without(&text, "until");
        text.replacen(
            "capability=\"change-notification\"",
            "capability=\"change-notification\" until=\"2999-01-01T00:00:00Z\"",
            1,
        )
    })
    .await;
    // Had it been believed, the next one would be nothing new.
    let since = rig.operator.last_change().await;
    rig.source.update(SET, "r0002.txt", "the next");
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.until_in_feed(since, "r0002.txt").await;
    rig.source.freeze_change_list(SET, false);
    rig.settled().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn notification_that_is_labelled_as_a_change_list_is_taken() {
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
async fn notification_that_was_left_compressed_is_read() {
    let (rig, subscription) = rig().await;
    rig.source.freeze_change_list(SET, true);
    rig.source.update(SET, "r0001.txt", "told");
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(&rig.source.notify(SET).body).unwrap();
    deliver(&subscription, packed.finish().unwrap()).await;
    rig.until_holds("r0001.txt", "told").await;
}
