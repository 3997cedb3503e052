//! Baseline, push and polls.

use crate::callback::callback_site::{
    CHANGE_SET, CallbackSite, Follower, SITEMAP, SUBSCRIBE, change_set, change_set_link, changed,
    dated_index, expired, listed, sitemap,
};
use crate::support::NAME;

#[tokio::test(flavor = "multi_thread")]
async fn changes_are_pushed_to_the_callback() {
    let follower = Follower::start(CallbackSite::of(&["/a", "/b"]).await).await;
    follower.settled().await;
    follower.until_mirrored(&[("/a", "a"), ("/b", "b")]).await;
    let site = &follower.site;
    let callback = site.until_registered(1).await;
    let base = follower.destination.config.callback.public_url.clone();
    let token = callback.strip_prefix(base.unwrap().as_str()).unwrap();
    assert!(token.len() >= 32 && !token.contains('/'), "{token}");
    let channel = follower.until_channel("shown", |_| true).await;
    assert_eq!(
        (channel.kind.as_str(), channel.transport.as_str()),
        ("change-notification", "callback")
    );
    assert_eq!(channel.topic, site.url(SUBSCRIBE));
    let dates = (channel.lease_expires_at, channel.renew_at);
    assert_eq!((channel.hub, dates), (None, (None, None)));

    site.put("/a", "changed");
    let updated = change_set(&[changed("/a", "updated", "13")]);
    assert_eq!(site.push(&updated).await, 200);
    follower
        .until_mirrored(&[("/a", "changed"), ("/b", "b")])
        .await;
    site.put("/c", "created");
    site.remove("/b");
    let both = [changed("/c", "created", "14"), expired("/b", "14")];
    assert_eq!(site.push(&change_set(&both)).await, 200);
    follower
        .until_mirrored(&[("/a", "changed"), ("/c", "created")])
        .await;
    let channel = follower.processed(2).await;
    assert_eq!((channel.rejected, channel.error), (0, None));
    assert_eq!(site.registered().len(), 1);
    assert_eq!(site.posted(), [SUBSCRIBE]);
}

#[tokio::test(flavor = "multi_thread")]
async fn part_of_an_index_may_name_the_interface() {
    let site = CallbackSite::of(&["/a", "/b"]).await;
    let part = sitemap("12", &site.interface(SUBSCRIBE), &[listed("/a", "08")]);
    site.put("/1.xml", &part);
    site.put("/2.xml", &sitemap("12", "", &[listed("/b", "08")]));
    site.put(SITEMAP, &dated_index("12", "", &["/1.xml", "/2.xml"]));
    let follower = Follower::start(site).await;
    follower.site.until_registered(1).await;
    follower.settled().await;
    follower.until_mirrored(&[("/a", "a"), ("/b", "b")]).await;
    let site = &follower.site;
    site.put("/b", "changed");
    site.push(&change_set(&[changed("/b", "updated", "13")]))
        .await;
    follower
        .until_mirrored(&[("/a", "a"), ("/b", "changed")])
        .await;
}

/// Has a resource change once more than before, as the Change Set states.
fn change_again(site: &CallbackSite, number: usize) -> String {
    let text = format!("version {number}");
    site.put("/a", &text);
    let hours = (0..=number).map(|hour| format!("{}", 13 + hour));
    let mut changes = vec![changed("/a", "created", "08")];
    changes.extend(hours.map(|hour| changed("/a", "updated", &hour)));
    site.put(CHANGE_SET, &change_set(&changes));
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn restart_of_either_side_has_the_callback_registered_again() {
    let mut follower = Follower::start(CallbackSite::with_change_set(&["/a"]).await).await;
    follower.settled().await;
    let first = follower.site.until_registered(1).await;
    follower.destination.stop().await;
    let text = change_again(&follower.site, 0);
    follower.destination.start_again().await;
    follower.until_mirrored(&[("/a", &text)]).await;
    let second = follower.site.until_registered(2).await;
    assert_eq!(first, second, "the Source need not remember another one");
    follower.settled().await;
    let text = change_again(&follower.site, 1);
    let pushed = change_set(&[changed("/a", "updated", "14")]);
    assert_eq!(follower.site.push(&pushed).await, 200);
    follower.until_mirrored(&[("/a", &text)]).await;

    // The Source forgets its registrations: it pushes nothing any more.
    let mut number = 2;
    while follower.site.registered().len() < 3 {
        assert!(number < 9, "two polls are enough");
        let text = change_again(&follower.site, number);
        follower.destination.operator.poll(NAME).await;
        follower.until_mirrored(&[("/a", &text)]).await;
        follower.settled().await;
        number += 1;
    }
    let channel = follower
        .until_channel("registered again", |it| it.state == "active")
        .await;
    let error = channel.error.unwrap();
    assert_eq!(error.code, "push-silent");
    assert_eq!(
        error.message,
        "polls find changes that the Source has not sent"
    );
    let site = &follower.site;
    site.put("/b", "b");
    let pushed = change_set(&[changed("/b", "created", "23")]);
    assert_eq!(site.push(&pushed).await, 200);
    follower
        .until("pushed", |set| set.resources == 2 && set.pending == 0)
        .await;
    follower
        .until_channel("push works", |channel| channel.error.is_none())
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn set_is_polled_where_the_interface_refuses() {
    let site = CallbackSite::with_change_set(&["/a"]).await;
    site.refuse(true);
    let follower = Follower::start(site).await;
    let channel = follower
        .until_channel("refused", |channel| channel.error.is_some())
        .await;
    let error = channel.error.unwrap();
    assert_eq!(
        (channel.state.as_str(), error.code.as_str()),
        ("pending", "registration-refused")
    );
    assert!(error.message.contains("403"), "{error:?}");
    follower
        .until("in sync", |set| set.state == "in-sync")
        .await;
    let text = change_again(&follower.site, 0);
    follower.destination.operator.poll(NAME).await;
    follower.until_mirrored(&[("/a", &text)]).await;
    follower.site.refuse(false);
    follower.site.until_registered(1).await;
    follower
        .until_channel("registered", |channel| {
            channel.state == "active" && channel.error.is_none()
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn interface_does_not_hide_the_change_set_of_another_part() {
    for in_index in [false, true] {
        let site = CallbackSite::of(&["/a", "/b", "/c"]).await;
        let interface = site.interface(SUBSCRIBE);
        let (of_index, of_part) = if in_index {
            (interface.as_str(), "")
        } else {
            ("", interface.as_str())
        };
        let part = |hour: &str| sitemap(hour, of_part, &[listed("/a", hour)]);
        site.put("/1.xml", &part("08"));
        site.put("/2.xml", &sitemap("08", &change_set_link(CHANGE_SET), &[]));
        let mut changes = vec![
            changed("/a", "created", "08"),
            changed("/b", "created", "09"),
            changed("/c", "created", "10"),
        ];
        site.put(CHANGE_SET, &change_set(&changes));
        let list_at = |hour: &str| dated_index(hour, of_index, &["/1.xml", "/2.xml"]);
        site.put(SITEMAP, &list_at("08"));
        let follower = Follower::start(site).await;
        let callback = follower.site.until_registered(1).await;
        follower.settled().await;
        let all = [("/a", "a"), ("/b", "b"), ("/c", "c")];
        follower.until_mirrored(&all).await;
        let site = &follower.site;
        let operator = &follower.destination.operator;
        // Only a Change Set states deletions: what a Sitemap of this version does not list may exist.
        changes.push(expired("/b", "13"));
        site.put(CHANGE_SET, &change_set(&changes));
        operator.poll(NAME).await;
        follower.until_mirrored(&[("/a", "a"), ("/c", "c")]).await;
        // It reaches back to no change that is known, so that the Sitemap is read: but not the part that has not changed.
        site.put("/a", "changed");
        site.put("/1.xml", &part("14"));
        site.put(SITEMAP, &list_at("15"));
        changes = vec![expired("/c", "15")];
        site.put(CHANGE_SET, &change_set(&changes));
        operator.poll(NAME).await;
        follower.until_mirrored(&[("/a", "changed")]).await;
        follower.settled().await;
        changes.push(changed("/b", "created", "16"));
        site.put(CHANGE_SET, &change_set(&changes));
        operator.poll(NAME).await;
        let both = [("/a", "changed"), ("/b", "b")];
        follower.until_mirrored(&both).await;
        let set = follower.settled().await;
        assert_eq!(set.channels.len(), 1, "{set:#?}");
        // What polls find was not pushed, so that the callback is registered again.
        let registered = site.registered();
        assert!(
            registered.iter().all(|it| *it == callback),
            "{registered:?}"
        );
        assert_eq!(site.push(&change_set(&[])).await, 200, "it is not left");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn junk_does_not_hide_that_push_has_fallen_silent() {
    let follower = Follower::start(CallbackSite::with_change_set(&["/a"]).await).await;
    follower.settled().await;
    let site = &follower.site;
    site.until_registered(1).await;
    let mut number = 0;
    while site.registered().len() < 2 {
        assert!(number < 6, "two polls are enough");
        site.push(&format!("junk {number}")).await;
        let text = change_again(site, number);
        number += 1;
        follower.processed(number as u64).await;
        follower.destination.operator.poll(NAME).await;
        follower.until_mirrored(&[("/a", &text)]).await;
        follower.settled().await;
    }
    // What was delivered a moment before does not show that it works again.
    let mut tries = 0;
    while follower
        .until_channel("read", |it| it.inbox == 0)
        .await
        .duplicate
        == 0
    {
        assert!(tries < 20, "it is never known again");
        tries += 1;
        for _ in 0..2 {
            site.push("the same junk").await;
        }
    }
    follower
        .until_channel("still shown", |channel| {
            let error = channel.error.as_ref();
            channel.state == "active" && error.is_some_and(|error| error.code == "push-silent")
        })
        .await;
}
