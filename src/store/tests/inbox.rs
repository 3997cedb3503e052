use super::*;

#[tokio::test]
async fn delivery_stays_in_the_inbox_until_its_changes_are_tasks() {
    let world = World::new().await;
    let channel = world.channel().await;
    let mut wakes = world.store.wakes();
    for body in [b"one".to_vec(), b"two".to_vec(), b"three".to_vec()] {
        let receipt = world
            .store
            .receive(world.now, channel, body, 100, None)
            .await
            .unwrap();
        assert_eq!(receipt, Receipt::Stored);
        assert_eq!(woken(&mut wakes), [Wake::Inbox(world.set)]);
    }
    let pending = world.store.channel(channel).await.unwrap().unwrap();
    assert_eq!((pending.inbox, pending.inbox_bytes), (3, 3 + 3 + 5));
    let deliveries = world.store.deliveries(world.set, 0, 2).await.unwrap();
    let bodies: Vec<_> = deliveries
        .iter()
        .map(|delivery| delivery.body.as_slice())
        .collect();
    assert_eq!(bodies, [b"one", b"two"]);
    let rest = world
        .store
        .deliveries(world.set, deliveries[1].id, 10)
        .await
        .unwrap();
    assert_eq!(rest.len(), 1);

    for (delivery, outcome) in deliveries.iter().chain(&rest).zip([
        DeliveryOutcome::Applied,
        DeliveryOutcome::Duplicate,
        DeliveryOutcome::Rejected,
    ]) {
        let end = DocumentEnd {
            deliveries: vec![delivery.processed(outcome)],
            progress: Some((coverage(delivery.id), Vec::new())),
            ..end()
        };
        world
            .store
            .ingest(world.batch(world.set, Vec::new(), Some(end)))
            .await
            .unwrap();
        assert!(world.store.delivery(delivery.id).await.unwrap().is_none());
    }
    assert!(
        world
            .store
            .deliveries(world.set, 0, 10)
            .await
            .unwrap()
            .is_empty()
    );
    let channel = world.store.channel(channel).await.unwrap().unwrap();
    assert_eq!((channel.inbox, channel.inbox_bytes), (0, 0));
    assert_eq!(
        (
            channel.received,
            channel.applied,
            channel.duplicate,
            channel.rejected
        ),
        (3, 1, 1, 1)
    );
    assert_eq!(channel.last_notification_at, Some(world.now));
    assert_eq!(
        world.store.progress(world.set).await.unwrap().0,
        coverage(rest[0].id)
    );
}

#[tokio::test]
async fn delivery_leaves_the_inbox_with_as_many_bytes_as_it_had() {
    let world = World::new().await;
    let channel = world.channel().await;
    // As a document in UTF-16 begins: a database may mark such bytes.
    for body in [b"\xff\xfe<\0", b"rest"] {
        let received = world
            .store
            .receive(world.now, channel, body.to_vec(), 100, None);
        assert_eq!(received.await.unwrap(), Receipt::Stored);
    }
    let deliveries = world.store.deliveries(world.set, 0, 1).await.unwrap();
    assert_eq!(deliveries[0].body, b"\xff\xfe<\0");
    let end = DocumentEnd {
        deliveries: vec![deliveries[0].processed(DeliveryOutcome::Rejected)],
        ..end()
    };
    let batch = world.batch(world.set, Vec::new(), Some(end));
    world.store.ingest(batch).await.unwrap();
    let channel = world.store.channel(channel).await.unwrap().unwrap();
    assert_eq!((channel.inbox, channel.inbox_bytes), (1, 4));
}

#[tokio::test]
async fn full_inbox_receives_nothing_until_there_is_room() {
    let world = World::new().await;
    let channel = world.channel().await;
    // All bodies differ.
    let count = std::cell::Cell::new(b'a');
    let receive = |length: usize| {
        let letter = count.replace(count.get() + 1);
        world
            .store
            .receive(world.now, channel, vec![letter; length], 10, None)
    };
    assert_eq!(receive(6).await.unwrap(), Receipt::Stored);
    assert_eq!(receive(5).await.unwrap(), Receipt::Full);
    assert_eq!(receive(4).await.unwrap(), Receipt::Stored);
    assert_eq!(receive(1).await.unwrap(), Receipt::Full);
    let first = world
        .store
        .deliveries(world.set, 0, 1)
        .await
        .unwrap()
        .remove(0);
    for _ in 0..2 {
        // Ending it again changes nothing.
        let deliveries = vec![first.processed(DeliveryOutcome::Applied)];
        let batch = world.batch(
            world.set,
            Vec::new(),
            Some(DocumentEnd {
                deliveries,
                ..end()
            }),
        );
        world.store.ingest(batch).await.unwrap();
    }
    assert_eq!(receive(6).await.unwrap(), Receipt::Stored);
    assert_eq!(receive(1).await.unwrap(), Receipt::Full);
    let channel = world.store.channel(channel).await.unwrap().unwrap();
    assert_eq!((channel.received, channel.applied), (3, 1));
}

#[tokio::test]
async fn failing_job_does_not_undo_others_of_its_commit() {
    let world = World::new().await;
    let channel = world.channel().await;
    let mut wakes = world.store.wakes();
    let (release, busy) = world.busy_writer().await;
    let good = |body: &'static [u8]| {
        world
            .store
            .receive(world.now, channel, body.to_vec(), 100, None)
    };
    let bad = world.store.write(|tx| {
        tx.sql.execute(
            "INSERT INTO source_set (source, capability_list) VALUES ('half', 'done')",
            [],
        )?;
        tx.wake(Wake::Tasks("half".to_owned()));
        tx.wake(Wake::Feed(7));
        tx.sql.execute("INSERT INTO no_such_table VALUES (1)", [])?;
        Ok(())
    });
    let unknown = world
        .store
        .receive(world.now, ChannelId(99), b"x".to_vec(), 100, None);
    let release = async {
        drop(release);
    };
    let (first, bad, unknown, second, ()) =
        tokio::join!(good(b"1"), bad, unknown, good(b"2"), release);
    busy.await.unwrap().unwrap();
    assert_eq!(
        (first.unwrap(), second.unwrap()),
        (Receipt::Stored, Receipt::Stored)
    );
    assert!(matches!(bad, Err(StoreError::Sqlite(_))));
    assert!(unknown.is_err());
    assert!(world.store.sets("half").await.unwrap().is_empty());
    assert_eq!(
        world
            .store
            .deliveries(world.set, 0, 10)
            .await
            .unwrap()
            .len(),
        2
    );
    assert_eq!(woken(&mut wakes), [Wake::Inbox(world.set)]);
}

/// When the disk is full, SQLite rolls back the transaction by itself. No write of it may remain, and no caller may get a
/// success.
#[tokio::test]
async fn nothing_remains_of_a_transaction_that_sqlite_has_rolled_back() {
    let world = World::new().await;
    let channel = world.channel().await;
    let (release, busy) = world.busy_writer().await;
    let good = |body: &'static [u8]| {
        world
            .store
            .receive(world.now, channel, body.to_vec(), 100, None)
    };
    let fatal = world.store.write(|tx| {
        tx.sql.roll_back()?;
        Ok(())
    });
    let release = async { drop(release) };
    let (first, fatal, second, ()) = tokio::join!(good(b"1"), fatal, good(b"2"), release);
    let _ = busy.await.unwrap();
    assert!(fatal.is_err());
    let stored = world.store.deliveries(world.set, 0, 10).await.unwrap();
    let succeeded = [first, second].into_iter().filter(Result::is_ok).count();
    assert_eq!(
        stored.len(),
        succeeded,
        "a caller gets a success if and only if its delivery is on disk"
    );
    assert_eq!(
        good(b"3").await.unwrap(),
        Receipt::Stored,
        "the next transaction goes on"
    );
}

/// The first job of a transaction has no savepoint.
#[tokio::test]
async fn failing_first_job_does_not_undo_others_of_its_commit() {
    let world = World::new().await;
    let channel = world.channel().await;
    let mut wakes = world.store.wakes();
    let (begun, begins) = oneshot::channel();
    let (release, released) = mpsc::channel::<()>();
    let bad = world.store.begin_write(move |tx| {
        tx.sql.execute(
            "INSERT INTO source_set (source, capability_list) VALUES ('half', 'done')",
            [],
        )?;
        tx.wake(Wake::Tasks("half".to_owned()));
        tx.wake(Wake::Feed(7));
        let _ = begun.send(());
        let _ = released.recv();
        Err::<(), _>(StoreError::Panicked)
    });
    begins.await.unwrap();
    let good = world.store.receive(world.now, channel, "1", 100, None);
    let release = async { drop(release) };
    let (bad, good, ()) = tokio::join!(bad.done(), good, release);
    assert!(matches!(bad, Err(StoreError::Panicked)));
    assert_eq!(good.unwrap(), Receipt::Stored);
    assert!(world.store.sets("half").await.unwrap().is_empty());
    assert_eq!(woken(&mut wakes), [Wake::Inbox(world.set)]);
}

#[tokio::test]
async fn deliveries_that_wait_are_received_together() {
    let world = World::new().await;
    let channel = world.channel().await;
    let topic = TopicUri::parse("https://example.org/other").unwrap();
    let keys = CallbackKeys {
        token: "other".to_owned(),
        secret: None,
    };
    let kind = Capability::FrameworkNotification;
    let adding = world
        .store
        .add_channel(world.now, world.set, &kind, &topic, &[], keys);
    let other = adding.await.unwrap().id;
    let mut wakes = world.store.wakes();
    let (release, busy) = world.busy_writer().await;
    let receive =
        |channel, body: &'static str| world.store.receive(world.now, channel, body, 8, None);
    let waiting = futures_util::future::join_all([
        receive(channel, "one"),
        receive(other, "one"),
        receive(ChannelId(99), "one"),
        receive(channel, "one"),
        receive(channel, "four"),
        receive(channel, "five5"),
        receive(other, "six"),
        receive(channel, "7"),
    ]);
    let (receipts, ()) = tokio::join!(waiting, async { drop(release) });
    busy.await.unwrap().unwrap();
    let receipts: Vec<_> = receipts
        .into_iter()
        .map(|receipt| receipt.map_err(|error| error.code()))
        .collect();
    assert_eq!(
        receipts,
        [
            Ok(Receipt::Stored),
            Ok(Receipt::Stored),
            Err("no-channel"),
            Ok(Receipt::Known),
            Ok(Receipt::Stored),
            Ok(Receipt::Full),
            Ok(Receipt::Stored),
            Ok(Receipt::Stored),
        ]
    );
    assert_eq!(woken(&mut wakes), [Wake::Inbox(world.set)]);
    let stored = world.store.deliveries(world.set, 0, 10).await.unwrap();
    let stored: Vec<_> = stored
        .iter()
        .map(|delivery| (delivery.channel, delivery.body.as_slice()))
        .collect();
    assert_eq!(
        stored,
        [
            (channel, &b"one"[..]),
            (other, b"one"),
            (channel, b"four"),
            (other, b"six"),
            (channel, b"7"),
        ]
    );
    for (id, received, duplicate, bytes) in [(channel, 4, 1, 8), (other, 2, 0, 6)] {
        let record = world.store.channel(id).await.unwrap().unwrap();
        let counts = (record.received, record.duplicate, record.inbox_bytes);
        assert_eq!(counts, (received, duplicate, bytes));
        assert_eq!(record.inbox, received - duplicate);
    }
}

#[tokio::test]
async fn delivery_is_outdated_once_its_channel_has_other_keys_or_is_left() {
    let world = World::new().await;
    let channel = world.channel().await;
    let keys = |token: &str, secret: Option<&str>| CallbackKeys {
        token: token.to_owned(),
        secret: secret.map(str::to_owned),
    };
    let mut bodies = (0..).map(|number: u64| number.to_string());
    let mut receive = |keys: CallbackKeys| {
        let recipient = Recipient {
            channel,
            keys: Some(keys),
        };
        let body = bodies.next().unwrap();
        world.store.receive(world.now, recipient, body, 100, None)
    };
    let (own, next) = (keys("token", None), keys("next", Some("secret")));
    for (keys, expected) in [
        (own.clone(), Receipt::Stored),
        (keys("token", Some("secret")), Receipt::Outdated),
        (next.clone(), Receipt::Outdated),
    ] {
        assert_eq!(receive(keys).await.unwrap(), expected);
    }
    let topic = TopicUri::parse("https://example.org/notifications").unwrap();
    let owner = resyncd_core::CallbackOwner {
        hub: HubUri::parse("https://hub.example.org/").unwrap(),
        topic,
        base: "https://destination.example/".to_owned(),
    };
    let stepping = world.store.step_channel(channel, next.clone(), |channel| {
        channel.callbacks.own = Some(owner.clone());
        channel.callbacks.next = Some(owner);
    });
    stepping.await.unwrap();
    assert_eq!(receive(own.clone()).await.unwrap(), Receipt::Stored);
    assert_eq!(receive(next.clone()).await.unwrap(), Receipt::Stored);
    let leaving = world
        .store
        .change_channel(channel, false, |channel| channel.is_unwanted = true);
    leaving.await.unwrap();
    assert_eq!(receive(own).await.unwrap(), Receipt::Outdated);
    assert_eq!(receive(next).await.unwrap(), Receipt::Outdated);
    let stored = world.store.deliveries(world.set, 0, 10).await.unwrap();
    assert_eq!(stored.len(), 3);
}
