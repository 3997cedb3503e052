use chrono::TimeDelta;
use url::Url;

use super::*;
use crate::store::tx::receive::MOST_REMEMBERED;

impl World {
    pub(super) async fn deliver(
        &self,
        channel: ChannelId,
        body: &str,
        after: TimeDelta,
    ) -> Receipt {
        let (now, body) = (self.now + after, body.as_bytes().to_vec());
        let receiving = self.store.receive(now, channel, body, 1000, None);
        receiving.await.unwrap()
    }

    /// Processes the first delivery of the inbox.
    pub(super) async fn work_off(&self, outcome: DeliveryOutcome) {
        let deliveries = self.store.deliveries(self.set, 0, 1).await.unwrap();
        let delivery = &deliveries[0];
        let end = DocumentEnd {
            deliveries: vec![delivery.processed(outcome)],
            ..end()
        };
        let batch = self.batch(self.set, Vec::new(), Some(end));
        self.store.ingest(batch).await.unwrap();
    }

    async fn other_channel(&self) -> ChannelId {
        let topic = TopicUri::parse("https://example.org/other").unwrap();
        let kind = Capability::ChangeNotification;
        let keys = CallbackKeys {
            token: "another".to_owned(),
            secret: None,
        };
        let adding = self
            .store
            .add_channel(self.now, self.set, &kind, &topic, &[], keys);
        adding.await.unwrap().id
    }

    async fn remembered(&self) -> i64 {
        let counting = self.store.read(|sql| {
            let mut query = sql.prepare_cached("SELECT COUNT(*) FROM delivered")?;
            Ok(query.query_row([], |row| row.get(0))?)
        });
        counting.await.unwrap()
    }
}

#[tokio::test]
async fn message_of_a_connection_that_states_no_time_is_news_each_time() {
    let world = World::new().await;
    let topic = Url::parse("xmpp:pubsub.example.org?;node=changes").unwrap();
    let node = TopicUri::of_channel(topic).unwrap();
    let node = Channel::without_hubs(Transport::Xmpp, world.now, &node);
    let keys = CallbackKeys {
        token: "of a node".to_owned(),
        secret: None,
    };
    let kind = Capability::ChangeNotification;
    let node = world.store.insert_channel(world.set, &kind, node, keys);
    let node = node.await.unwrap().id;
    for connection in [world.connection().await, node] {
        expect_news_each_time(&world, connection).await;
    }
}

async fn expect_news_each_time(world: &World, connection: ChannelId) {
    let second = TimeDelta::seconds(1);
    assert_eq!(
        world.deliver(connection, "a", NO_TIME).await,
        Receipt::Stored
    );
    let waiting = world.deliver(connection, "a", second).await;
    assert_eq!(waiting, Receipt::Known, "while the first one waits");
    world.work_off(DeliveryOutcome::Undated).await;
    assert_eq!(
        world.deliver(connection, "a", second).await,
        Receipt::Stored
    );
    world.work_off(DeliveryOutcome::Applied).await;
    let dated = world.deliver(connection, "a", second).await;
    assert_eq!(dated, Receipt::Known, "it states a time");
}

#[tokio::test]
async fn connection_has_no_callback_and_is_the_same_after_a_restart() {
    let world = World::new().await;
    let connection = world.connection().await;
    let found = world.store.channel_by_token("unused").await.unwrap();
    assert!(found.is_none(), "nobody learns its token");
    let subscribed = world.store.subscribed_channels(SOURCE).await.unwrap();
    assert_eq!(subscribed.len(), 1, "it can be ended");
    let World { folder, store, .. } = world;
    drop(store);
    let store = Store::open(place(folder.path())).unwrap();
    let record = store.channel(connection).await.unwrap().unwrap();
    assert_eq!(record.transport, Transport::Websocket);
    assert_eq!(record.topic.as_str(), "wss://example.org/changes");
}

const NO_TIME: TimeDelta = TimeDelta::zero();

#[tokio::test]
async fn same_bytes_are_received_once_by_a_channel() {
    let world = World::new().await;
    let channel = world.channel().await;
    assert_eq!(world.deliver(channel, "a", NO_TIME).await, Receipt::Stored);
    assert_eq!(
        world.deliver(channel, "a", NO_TIME).await,
        Receipt::Known,
        "while the first one waits"
    );
    world.work_off(DeliveryOutcome::Applied).await;
    assert_eq!(world.deliver(channel, "a", NO_TIME).await, Receipt::Known);
    assert_eq!(world.deliver(channel, "b", NO_TIME).await, Receipt::Stored);
    let other = world.other_channel().await;
    assert_eq!(
        world.deliver(other, "a", NO_TIME).await,
        Receipt::Stored,
        "another channel's delivery is no replay"
    );
    let World {
        folder,
        store,
        set,
        now,
    } = world;
    drop(store);
    let store = Store::open(place(folder.path())).unwrap();
    let world = World {
        folder,
        store,
        set,
        now,
    };
    assert_eq!(
        world.deliver(channel, "a", TimeDelta::days(1)).await,
        Receipt::Known,
        "after a restart"
    );
    let waiting = world.store.deliveries(world.set, 0, 10).await.unwrap();
    assert_eq!(waiting.len(), 2);
    let channel = world.store.channel(channel).await.unwrap().unwrap();
    let counts = (channel.received, channel.applied, channel.duplicate);
    assert_eq!(counts, (5, 1, 3));
}

#[tokio::test]
async fn rejected_delivery_may_be_repeated() {
    let world = World::new().await;
    let channel = world.channel().await;
    for _ in 0..2 {
        assert_eq!(world.deliver(channel, "a", NO_TIME).await, Receipt::Stored);
        world.work_off(DeliveryOutcome::Rejected).await;
    }
    let full = world
        .store
        .receive(world.now, channel, b"full".to_vec(), 3, None);
    assert_eq!(full.await.unwrap(), Receipt::Full);
    assert_eq!(
        world.deliver(channel, "full", NO_TIME).await,
        Receipt::Stored
    );
}

#[tokio::test]
async fn undated_delivery_may_be_repeated_after_a_minute() {
    let world = World::new().await;
    let channel = world.channel().await;
    for (after, receipt) in [
        (TimeDelta::seconds(0), Receipt::Stored),
        (TimeDelta::seconds(59), Receipt::Known),
        (TimeDelta::seconds(61), Receipt::Stored),
        (TimeDelta::seconds(62), Receipt::Known),
        // The clock was set back.
        (TimeDelta::days(-3650), Receipt::Stored),
    ] {
        assert_eq!(world.deliver(channel, "a", after).await, receipt, "{after}");
        if receipt == Receipt::Stored {
            world.work_off(DeliveryOutcome::Undated).await;
        }
    }
}

#[tokio::test]
async fn remembered_deliveries_are_bounded_by_number_and_age() {
    let world = World::new().await;
    let channel = world.channel().await;
    assert_eq!(world.deliver(channel, "a", NO_TIME).await, Receipt::Stored);
    world.work_off(DeliveryOutcome::Applied).await;
    let days = TimeDelta::days;
    let aged = world.other_channel().await;
    assert_eq!(world.deliver(aged, "a", NO_TIME).await, Receipt::Stored);
    world.work_off(DeliveryOutcome::Applied).await;
    let again = world.deliver(aged, "a", days(31)).await;
    assert_eq!(again, Receipt::Stored, "nobody has forgotten it yet");
    world.work_off(DeliveryOutcome::Applied).await;
    assert_eq!(world.deliver(channel, "a", days(29)).await, Receipt::Known);
    // The clock may be set back by any time.
    assert_eq!(world.deliver(channel, "a", days(-99)).await, Receipt::Known);
    assert_eq!(world.deliver(channel, "b", days(31)).await, Receipt::Stored);
    assert_eq!(world.remembered().await, 2, "the first is forgotten");
    assert_eq!(world.deliver(channel, "a", days(31)).await, Receipt::Stored);

    let writing = world.store.write(move |tx| {
        let mut insert = tx.sql.prepare_cached(
            "INSERT INTO delivered (id, channel_id, nth, digest, received_at) VALUES (?2 + 1000, ?1, ?2, ?3, ?4)",
        )?;
        for nth in 100..100 + MOST_REMEMBERED {
            insert.execute(rusqlite::params![
                channel.0,
                nth,
                nth.to_be_bytes(),
                i64::MAX / 2
            ])?;
        }
        Ok(())
    });
    writing.await.unwrap();
    for number in 0..3 {
        let receipt = world.deliver(channel, &format!("{number}"), days(31)).await;
        assert_eq!(receipt, Receipt::Stored);
    }
    assert_eq!(world.remembered().await, MOST_REMEMBERED + 1);
    assert_eq!(world.deliver(channel, "2", days(31)).await, Receipt::Known);
}
