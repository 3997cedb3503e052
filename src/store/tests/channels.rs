use chrono::TimeDelta;
use resyncd_core::{CallbackOwner, CallbackSlot, Channel, ChannelState, DeliveryFaultKind};
use websub::Intent;

use super::*;

fn keys(token: &str) -> CallbackKeys {
    CallbackKeys {
        token: token.to_owned(),
        secret: Some(format!("secret of {token}")),
    }
}

fn owner(hub: &str) -> CallbackOwner {
    CallbackOwner {
        hub: HubUri::parse(&format!("https://{hub}.example/")).unwrap(),
        topic: TopicUri::parse("https://example.org/notifications").unwrap(),
        base: "https://destination.example/".to_owned(),
    }
}

fn followed(source: &str, sets: &[&str], notifications: bool) -> FollowedSets {
    let uri = |name: &&str| format!("https://example.org/{name}").parse().unwrap();
    FollowedSets {
        source: source.to_owned(),
        sets: sets.iter().map(uri).collect(),
        notifications,
    }
}

impl World {
    async fn record(&self, channel: ChannelId) -> ChannelRecord {
        self.store.channel(channel).await.unwrap().unwrap()
    }

    /// A channel with an active subscription at the hub `a`.
    async fn subscribed(&self) -> ChannelId {
        let id = self.channel().await;
        let now = self.now;
        let activate = move |channel: &mut Channel| {
            channel.callbacks.own = Some(owner("a"));
            channel.lease.state = ChannelState::Active;
            channel.lease.next_try_at = None;
            channel.lease.expires_at = Some(now + TimeDelta::days(10));
        };
        let changing = self.store.change_channel(id, false, activate);
        changing.await.unwrap();
        id
    }

    async fn slot(&self, token: &str) -> Option<(ChannelId, CallbackSlot, bool)> {
        let found = self.store.channel_by_token(token).await.unwrap();
        found.map(|record| (record.id, record.slot_of(token), record.is_unwanted))
    }
}

#[tokio::test]
async fn each_subscription_is_found_by_its_own_callback() {
    use CallbackSlot::{Next, Own};
    let world = World::new().await;
    let id = world.subscribed().await;
    let request = |fresh: &str, hub: &'static str| {
        world.store.step_channel(id, keys(fresh), move |channel| {
            channel.callbacks.next = Some(owner(hub));
            channel.lease.asked = Some(resyncd_core::PendingRequest {
                intent: Intent::Subscribe,
                lease_seconds: 60,
            });
        })
    };
    let (_, record) = request("first", "b").await.unwrap();
    assert_eq!(record.keys(Next), keys("first"));
    assert_eq!(world.slot("token").await, Some((id, Own, false)));
    assert_eq!(world.slot("first").await, Some((id, Next, false)));
    // The same request keeps its callback, another one has a new one.
    request("unused", "b").await.unwrap();
    assert_eq!(world.slot("unused").await, None);
    request("second", "c").await.unwrap();
    assert_eq!(world.slot("first").await, None);
    // It is verified: the other subscription is left, and keeps its callback.
    let topics = [owner("c").topic];
    let verify = |slot| {
        world
            .store
            .verify_channel((id, slot), (&topics, ""), Intent::Subscribe, None, 0.0)
    };
    assert!(verify(Next).await.unwrap());
    assert_eq!(world.slot("second").await, Some((id, Own, false)));
    let (former, slot, left) = world.slot("token").await.unwrap();
    assert_eq!((slot, left), (Own, true));
    let former = world.record(former).await;
    assert_eq!(former.former_of, Some(id));
    assert_eq!(former.callbacks.own, Some(owner("a")));
    assert_eq!(former.hub, Some(owner("a").hub));
    assert!(world.store.has_ending_channels().await.unwrap());
    assert_eq!(world.record(id).await.secret, keys("second").secret);
    // A refused verification is counted.
    assert!(!verify(Next).await.unwrap());
    assert_eq!(world.record(id).await.rejected_verifications, 1);
}

#[tokio::test]
async fn fault_ends_with_the_next_accepted_delivery() {
    let world = World::new().await;
    let id = world.subscribed().await;
    let reject = |fault| world.store.count_rejected(id, world.now, fault);
    reject(None).await.unwrap();
    assert_eq!(world.record(id).await.fault, None);
    reject(Some(DeliveryFaultKind::Unsigned)).await.unwrap();
    for outcome in [DeliveryOutcome::Rejected, DeliveryOutcome::Applied] {
        let fault = world.record(id).await.fault.unwrap();
        assert_eq!(
            (fault.kind, fault.at),
            (DeliveryFaultKind::Unsigned, world.now)
        );
        let body = format!("{outcome:?}").into_bytes();
        let receiving = world.store.receive(world.now, id, body, 100, None);
        assert_eq!(receiving.await.unwrap(), Receipt::Stored);
        let delivery = world
            .store
            .deliveries(world.set, 0, 1)
            .await
            .unwrap()
            .remove(0);
        let commit = DocumentEnd {
            deliveries: vec![delivery.processed(outcome)],
            ..end()
        };
        let batch = world.batch(world.set, Vec::new(), Some(commit));
        world.store.ingest(batch).await.unwrap();
    }
    let record = world.record(id).await;
    assert_eq!(
        (record.fault, record.working_hub),
        (None, Some(owner("a").hub))
    );
    assert_eq!(record.rejected, 3);
}

#[tokio::test]
async fn what_is_not_followed_is_left_and_its_deliveries_are_dropped() {
    let list = "capabilitylist.xml";
    for (configured, is_left, is_unfollowed) in [
        (vec![followed(SOURCE, &[], true)], false, false),
        (vec![followed(SOURCE, &[list], true)], false, false),
        (vec![followed(SOURCE, &["other.xml"], true)], true, true),
        (vec![followed("other", &[], true)], true, true),
        (vec![], true, true),
        // Its own worker ends the subscription.
        (vec![followed(SOURCE, &[], false)], true, false),
    ] {
        let world = World::new().await;
        let id = world.subscribed().await;
        let receive = || world.store.receive(world.now, id, b"one".to_vec(), 5, None);
        assert_eq!(receive().await.unwrap(), Receipt::Stored);
        let leaving = world.store.leave_unfollowed(world.now, configured.clone());
        leaving.await.unwrap();
        assert_eq!(
            world.record(id).await.is_unwanted,
            is_left,
            "{configured:?}"
        );
        let inbox = world.store.deliveries(world.set, 0, 9).await.unwrap();
        assert_eq!(inbox.is_empty(), is_left, "{configured:?}");
        let unfollowed = world.store.unfollowed_channels(configured.clone());
        assert_eq!(unfollowed.await.unwrap().len(), usize::from(is_unfollowed));
        let ending = world.store.has_ending_channels().await.unwrap();
        assert_eq!(ending, is_left, "{configured:?}");
        let sources = world.store.subscribed_sources().await.unwrap();
        assert!(sources.contains(SOURCE));
        // The same bytes have news if the set is followed again, and there is room for them.
        let again = if is_left {
            Receipt::Stored
        } else {
            Receipt::Known
        };
        assert_eq!(receive().await.unwrap(), again, "{configured:?}");
    }
}

#[tokio::test]
async fn set_that_ends_drops_its_deliveries() {
    let world = World::new().await;
    let id = world.subscribed().await;
    let receiving = world.store.receive(world.now, id, b"one".to_vec(), 5, None);
    assert_eq!(receiving.await.unwrap(), Receipt::Stored);
    let ending = world.store.end_set(SOURCE, world.set, world.now);
    ending.await.unwrap();
    assert!(
        world
            .store
            .deliveries(world.set, 0, 9)
            .await
            .unwrap()
            .is_empty()
    );
    // Its subscription is ended at the next start, if it has not been before.
    let configured = vec![followed(SOURCE, &[], true)];
    let unfollowed = world.store.unfollowed_channels(configured).await.unwrap();
    assert_eq!(unfollowed.len(), 1);
}

#[tokio::test]
async fn subscriptions_are_renewed_after_a_downtime_of_more_than_a_minute() {
    let world = World::new().await;
    let id = world.subscribed().await;
    let mut now = world.now;
    // The first start after an upgrade: for how long it was down is not known.
    for (downtime, renewed) in [(0, 1), (60, 0), (61, 1), (-1, 1), (0, 0), (86_400, 1)] {
        now += TimeDelta::seconds(downtime);
        let found = world.store.note_start(now).await.unwrap();
        assert_eq!(found, renewed, "{downtime}");
        let due = world.record(id).await.lease.next_try_at;
        assert_eq!(due.is_some(), renewed == 1, "{downtime}");
        let settle = |channel: &mut Channel| channel.lease.next_try_at = None;
        let settling = world.store.change_channel(id, false, settle);
        settling.await.unwrap();
    }
    now += TimeDelta::hours(1);
    world.store.note_running(now).await.unwrap();
    now += TimeDelta::seconds(30);
    assert_eq!(world.store.note_start(now).await.unwrap(), 0);
}

#[tokio::test]
async fn uri_of_another_channel_or_set_is_recognised() {
    let world = World::new().await;
    let id = world.channel().await;
    let record = world.record(id).await;
    let other_set = begin(&world.store, "other.xml").await;
    let topic = TopicUri::parse("https://example.org/other-topic").unwrap();
    let kind = Capability::ChangeNotification;
    let adding = world
        .store
        .add_channel(world.now, other_set, &kind, &topic, &[], keys("x"));
    adding.await.unwrap();
    for (uri, expected) in [
        ("https://example.org/notifications", false),
        ("https://example.org/capabilitylist.xml", false),
        ("https://example.org/unknown", false),
        ("https://example.org/other-topic", true),
        ("https://example.org/other.xml", true),
    ] {
        let uri = TopicUri::parse(uri).unwrap();
        let found = world.store.names_another(&record, &uri).unwrap();
        assert_eq!(found, expected, "{uri}");
    }
}

#[tokio::test]
async fn channel_is_unverified_from_its_first_request_until_it_is_verified_or_denied() {
    let world = World::new().await;
    let id = world.channel().await;
    let since = world.record(id).await.unverified_since;
    assert_eq!(since, Some(world.now), "its first request is due");
    let later = world.now + TimeDelta::minutes(5);
    for state in [ChannelState::Active, ChannelState::Denied] {
        let asked = move |channel: &mut Channel| {
            channel.lease.state = ChannelState::Pending;
            channel.lease.asked_at = Some(later);
        };
        world.store.change_channel(id, false, asked).await.unwrap();
        // Another request does not begin anew.
        let again = move |channel: &mut Channel| {
            channel.lease.asked_at = Some(later + TimeDelta::minutes(1));
        };
        let before = world.record(id).await.unverified_since;
        world.store.change_channel(id, false, again).await.unwrap();
        assert_eq!(world.record(id).await.unverified_since, before);
        let ended = move |channel: &mut Channel| channel.lease.state = state;
        world.store.change_channel(id, false, ended).await.unwrap();
        assert_eq!(world.record(id).await.unverified_since, None, "{state:?}");
    }
    // One that expires is unverified from the time at which its request is due.
    for (due, expected) in [(later, later), (later + TimeDelta::minutes(9), later)] {
        let expired = move |channel: &mut Channel| {
            channel.lease.state = ChannelState::Expired;
            channel.lease.next_try_at = Some(due);
        };
        world
            .store
            .change_channel(id, false, expired)
            .await
            .unwrap();
        let since = world.record(id).await.unverified_since;
        assert_eq!(since, Some(expected));
    }
}

#[tokio::test]
async fn connection_that_was_open_is_missing_since_the_start_of_the_process() {
    let world = World::new().await;
    let id = world.connection().await;
    let opened = world.now;
    let open = move |channel: &mut Channel| {
        channel.next_connection_step(opened);
        channel.connected();
    };
    world.store.change_channel(id, false, open).await.unwrap();
    assert_eq!(world.record(id).await.unverified_since, None);
    let world = world.reopened();
    let (days, minute) = (TimeDelta::days(3), TimeDelta::minutes(1));
    // A driver that is started again does not begin anew.
    for now in [opened + days, opened + days + minute] {
        let start = move |channel: &mut Channel| channel.begin_connecting(now);
        world.store.change_channel(id, false, start).await.unwrap();
        let since = world.record(id).await.unverified_since;
        assert_eq!(since, Some(opened + days));
    }
}

#[tokio::test]
async fn no_connection_is_active_after_the_start_however_short_the_downtime() {
    let world = World::new().await;
    let id = world.connection().await;
    world.store.note_running(world.now).await.unwrap();
    let now = world.now;
    let open = move |channel: &mut Channel| {
        channel.next_connection_step(now);
        channel.connected();
    };
    world.store.change_channel(id, false, open).await.unwrap();
    assert_eq!(world.record(id).await.lease.state, ChannelState::Active);
    let renewed = world.store.note_start(now + TimeDelta::seconds(1)).await;
    assert_eq!(renewed.unwrap(), 0, "it has no lease");
    assert_eq!(world.record(id).await.lease.state, ChannelState::Pending);
}
