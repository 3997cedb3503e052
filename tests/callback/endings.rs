//! Callbacks that are not wanted any more. The draft has no request to end a registration.

use resyncd::status::UnsubscribeResult;

use crate::callback::callback_site::{
    CallbackSite, Follower, SITEMAP, SUBSCRIBE, change_set, deliver, listed, sitemap,
};
use crate::support::{NAME, was_polled_since};

#[tokio::test(flavor = "multi_thread")]
async fn interface_that_is_no_longer_named_gets_410() {
    let follower = Follower::start(CallbackSite::of(&["/a"]).await).await;
    follower.settled().await;
    let site = &follower.site;
    let former = site.until_registered(1).await;
    let document = change_set(&[]);
    assert_eq!(site.push(&document).await, 200);
    site.put(SITEMAP, &sitemap("13", "", &[listed("/a", "08")]));
    follower.destination.operator.poll(NAME).await;
    follower
        .until("no channel is shown", |set| set.channels.is_empty())
        .await;
    assert_eq!(site.push(&document).await, 410);
    let again = sitemap("14", &site.interface(SUBSCRIBE), &[listed("/a", "08")]);
    site.put(SITEMAP, &again);
    follower.destination.operator.poll(NAME).await;
    let renewed = site.until_registered(2).await;
    follower.settled().await;
    assert_eq!(site.push(&document).await, 200);
    // Whoever has learnt the former address can deliver no more.
    assert_ne!(renewed, former);
    assert_eq!(deliver(&former, document).await, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn unsubscribe_has_deliveries_answered_with_410() {
    let mut follower = Follower::start(CallbackSite::of(&["/a"]).await).await;
    follower.settled().await;
    let former = follower.site.until_registered(1).await;
    let path = format!("/sources/{NAME}/unsubscribe");
    let (_, body) = follower.destination.operator.post(&path).await;
    let results: Vec<UnsubscribeResult> = serde_json::from_str(&body).unwrap();
    assert_eq!(results.len(), 1, "{results:?}");
    assert!(results[0].confirmed, "{results:?}");
    assert_eq!(results[0].message, "deliveries are answered 410");
    assert_eq!(follower.site.push(&change_set(&[])).await, 410);
    let before = follower.until("the status", |_| true).await;
    follower.destination.operator.poll(NAME).await;
    let followed = &follower.destination.config.sources[0];
    let set = follower
        .until("polled", |set| was_polled_since(&before, set, followed))
        .await;
    let mut states = set.channels.iter().map(|channel| &channel.state);
    assert!(states.all(|state| state == "unsubscribed"), "{set:#?}");
    assert_eq!(follower.site.posted(), [SUBSCRIBE]);
    // So the operator gets another address.
    follower.destination.stop().await;
    follower.destination.start_again().await;
    let renewed = follower.site.until_registered(2).await;
    follower.settled().await;
    assert_ne!(renewed, former);
    assert_eq!(deliver(&former, change_set(&[])).await, 404);
    assert_eq!(follower.site.push(&change_set(&[])).await, 200);
}
