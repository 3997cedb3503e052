//! Baseline, push and restarts.

use resyncd::config::Config;
use resyncd::status::UnsubscribeResult;
use resyncd_channels::XmppPassword;
use resyncd_testkit::Fault;

use crate::support::{NAME, eventually};
use crate::xmpp::draft::{Draft, NODE, account};
use crate::xmpp::prosody::Prosody;
use crate::xmpp::proxy::Proxy;

#[tokio::test(flavor = "multi_thread")]
async fn changes_are_pushed_by_the_node_that_the_sitemap_names() {
    let Some((draft, mut publisher)) = Draft::start(&["/a", "/b"], |_| {}).await else {
        return;
    };
    draft.settled().await;
    draft.until_pages(&[("/a", "/a"), ("/b", "/b")]).await;
    let channel = draft.until_channel("shown", |_| true).await;
    assert_eq!(channel.transport, "xmpp");
    assert_eq!(channel.topic, "xmpp:pubsub.localhost?;node=changes");
    assert_eq!((channel.hub, channel.lease_expires_at), (None, None));
    draft.put("/a", "changed");
    let set = draft.change_set(&[("/a", "updated", "08:00:00")]);
    publisher.publish(NODE, "1", &set).await;
    draft.until_pages(&[("/a", "changed"), ("/b", "/b")]).await;
    draft.put("/c", "created");
    draft.rig.source.fail("/b", Fault::Status(404), usize::MAX);
    let set = draft.change_set(&[("/c", "created", "09:00:00"), ("/b", "deleted", "09:00:01")]);
    publisher.publish(NODE, "2", &set).await;
    draft
        .until_pages(&[("/a", "changed"), ("/c", "created")])
        .await;
    let channel = draft.until_channel("counted", |it| it.inbox == 0).await;
    assert_eq!((channel.received, channel.rejected), (2, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn restart_of_either_side_loses_nothing() {
    let Some((mut draft, mut publisher)) = Draft::start(&["/a"], |_| {}).await else {
        return;
    };
    draft.settled().await;
    draft.rig.stop_daemon().await;
    // Only the node states it.
    draft.put("/a", "missed");
    let set = draft.change_set(&[("/a", "updated", "08:00:00")]);
    publisher.publish(NODE, "1", &set).await;
    draft.rig.start_daemon().await;
    draft.until_pages(&[("/a", "missed")]).await;

    draft.server.stop();
    draft
        .until_channel("lost", |channel| channel.state == "expired")
        .await;
    draft.server.start_again().await;
    draft.settled().await;
    draft.put("/a", "pushed");
    let mut publisher = draft.server.client("publisher").await;
    let set = draft.change_set(&[("/a", "updated", "10:00:00")]);
    publisher.publish(NODE, "2", &set).await;
    draft.until_pages(&[("/a", "pushed")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn subscription_is_ended_on_request() {
    let Some((draft, mut publisher)) = Draft::start(&["/a"], |_| {}).await else {
        return;
    };
    draft.settled().await;
    let subscriptions = publisher.subscriptions(NODE).await;
    assert!(
        subscriptions.contains("resyncd@localhost/resyncd-"),
        "{subscriptions}"
    );
    let path = format!("/sources/{NAME}/unsubscribe");
    let (_, body) = draft.rig.operator.post(&path).await;
    let results: Vec<UnsubscribeResult> = serde_json::from_str(&body).unwrap();
    assert_eq!(results.len(), 1, "{results:?}");
    assert!(results[0].confirmed, "{results:?}");
    let subscriptions = publisher.subscriptions(NODE).await;
    assert!(
        !subscriptions.contains("resyncd@localhost"),
        "{subscriptions}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn set_is_polled_where_the_account_is_not_accepted() {
    let wrong = |config: &mut Config| {
        if let Some(account) = &mut config.xmpp {
            account.password = XmppPassword::new("wrong").unwrap();
        }
    };
    let Some((draft, _publisher)) = Draft::start(&["/a"], wrong).await else {
        return;
    };
    let channel = draft
        .until_channel("rejected", |channel| channel.error.is_some())
        .await;
    assert_eq!(channel.state, "pending");
    assert_eq!(channel.error.unwrap().code, "xmpp-authentication");
    draft.until("in sync", |set| set.state == "in-sync").await;
    draft.until_pages(&[("/a", "/a")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn item_of_somebody_else_is_rejected() {
    let Some((draft, mut publisher)) = Draft::start(&["/a"], |_| {}).await else {
        return;
    };
    draft.settled().await;
    let subscriptions = publisher.subscriptions(NODE).await;
    let own = subscriptions.split("jid='").nth(1).unwrap();
    let own = own.split('\'').next().unwrap();
    let mut evil = draft.server.client("evil").await;
    let set = draft.change_set(&[("/evil", "created", "08:00:00")]);
    draft.put("/evil", "evil");
    evil.send(&format!(
        "<message to='{own}'><event xmlns='http://jabber.org/protocol/pubsub#event'><items node='{NODE}'><item id='1'>{set}</item>\
         </items></event></message>"
    ))
    .await;
    let channel = draft
        .until_channel("rejected", |channel| channel.rejected > 0)
        .await;
    assert_eq!(channel.error.unwrap().code, "foreign-publisher");
    // It goes on.
    draft.put("/a", "changed");
    let set = draft.change_set(&[("/a", "updated", "08:00:00")]);
    publisher.publish(NODE, "1", &set).await;
    draft.until_pages(&[("/a", "changed")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn session_that_was_cut_off_is_resumed_after_a_refused_connection() {
    let Some(server) = Prosody::start().await else {
        return;
    };
    let proxy = Proxy::start(server.address).await;
    let mut publisher = server.client("publisher").await;
    // The node itself retains one item.
    publisher.create(NODE, 1).await;
    let at = proxy.address;
    let draft = Draft::follow(server, &["/a", "/b"], |config| {
        config.xmpp = Some(account(&at.ip().to_string(), at.port()));
    });
    let draft = draft.await;
    draft.settled().await;
    proxy.cut();
    draft
        .until_channel("lost", |channel| channel.state == "expired")
        .await;
    for (page, id, time) in [("/a", "1", "08:00:00"), ("/b", "2", "08:00:01")] {
        draft.put(page, "missed");
        let set = draft.change_set(&[(page, "updated", time)]);
        publisher.publish(NODE, id, &set).await;
    }
    eventually("a connection is refused", None, async || {
        match proxy.refused() {
            0 => Err("none".to_owned()),
            _ => Ok(()),
        }
    })
    .await;
    proxy.mend();
    draft
        .until_pages(&[("/a", "missed"), ("/b", "missed")])
        .await;
    let channel = draft.until_channel("counted", |it| it.inbox == 0).await;
    assert_eq!((channel.received, channel.rejected), (2, 0));
}
