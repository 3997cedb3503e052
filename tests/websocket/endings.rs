//! Connections that are not wanted any more.

use resyncd::status::UnsubscribeResult;

use crate::support::socket_site::{CHANGES, Follower, SocketSite};
use crate::support::{NAME, was_polled_since};

#[tokio::test(flavor = "multi_thread")]
async fn channel_that_is_no_longer_offered_is_closed() {
    let follower = Follower::start(SocketSite::of(&["/a"]).await).await;
    follower.settled(2).await;
    follower.site.offer(&[], &[]);
    follower.destination.operator.poll(NAME).await;
    follower.site.until_ended().await;
    follower
        .until("no channel is shown", |set| set.channels.is_empty())
        .await;
    let channels = [(follower.site.socket(CHANGES), "change-notification")];
    follower.site.offer(&[], &channels);
    follower.destination.operator.poll(NAME).await;
    follower.site.until_opened(3).await;
    follower.settled(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unsubscribe_closes_connections_for_good() {
    let follower = Follower::start(SocketSite::of(&["/a"]).await).await;
    follower.settled(2).await;
    let path = format!("/sources/{NAME}/unsubscribe");
    let (_, body) = follower.destination.operator.post(&path).await;
    let results: Vec<UnsubscribeResult> = serde_json::from_str(&body).unwrap();
    assert_eq!(results.len(), 2, "{results:?}");
    for result in results {
        assert!(result.confirmed, "{result:?}");
        assert_eq!(
            (result.message.as_str(), result.hub.as_str()),
            ("closed", "")
        );
    }
    follower.site.until_ended().await;
    let before = follower.until("the status", |_| true).await;
    follower.destination.operator.poll(NAME).await;
    let followed = &follower.destination.config.sources[0];
    follower
        .until("ended, and polled", |set| {
            let mut states = set.channels.iter().map(|channel| &channel.state);
            let have_ended = states.all(|state| state == "unsubscribed");
            have_ended && was_polled_since(&before, set, followed)
        })
        .await;
    assert_eq!(follower.site.opened(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_of_the_daemon_closes_connections() {
    let mut follower = Follower::start(SocketSite::of(&["/a"]).await).await;
    follower.settled(2).await;
    follower.destination.stop().await;
    follower.site.until_ended().await;
}
