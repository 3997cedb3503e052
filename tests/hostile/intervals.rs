//! Signed notifications and valid documents that state impossible times.

use std::time::Duration;

use resourcesync::{
    Capability, ChangeKind, Entry, Head, Interval, Root, SourceTime, write_document,
};
use resyncd_testkit::{ChannelHub, SampleOptions, Subscription};
use url::Url;
use websub::{Signature, SignatureMethod};

use crate::support::{
    NAME, Rig, SET, change, change_list, change_list_index, client, eventually, resources, send,
    soon, time,
};

const LAST: &str = "9999-12-31T23:59:59Z";
const LIST: &str = "/set1/changelist.xml";

async fn rig() -> (Rig, Subscription) {
    let rig = Rig::start(resources(3)).await;
    rig.idle().await;
    let topic = rig.changes();
    let subscribed = rig.hub().wait_for_subscription(topic.as_str());
    let subscription = soon("subscribed", subscribed).await;
    (rig, subscription)
}

fn notification(from: Option<SourceTime>, until: Option<SourceTime>, entries: &[Entry]) -> Vec<u8> {
    let mut head = Head::new(Root::Urlset, Capability::ChangeNotification);
    (head.md.from, head.md.until) = (from, until);
    write_document(&head, entries)
}

async fn deliver(to: &Subscription, body: Vec<u8>) {
    let secret = to.secret.as_ref().unwrap();
    let signature = Signature::sign(SignatureMethod::Sha256, secret.as_bytes(), &body);
    let request = client()
        .post(&to.callback)
        .header("X-Hub-Signature", signature.to_string())
        .body(body);
    assert_eq!(send(|| request.try_clone().unwrap()).await.status(), 200);
}

/// Waits until this number of deliveries has been processed.
async fn until_processed(rig: &Rig, count: u64) {
    eventually("processed", Some(rig.wakes()), async || {
        let channel = rig.channel().await;
        let processed = channel.applied + channel.duplicate + channel.rejected;
        if processed == count {
            Ok(())
        } else {
            Err(format!("{channel:?}"))
        }
    })
    .await;
}

fn later(than: SourceTime, micros: i64) -> SourceTime {
    SourceTime::from_micros(than.micros() + micros)
}

fn url(rig: &Rig, name: &str) -> Url {
    rig.source.resource_uri(SET, name)
}

#[tokio::test(flavor = "multi_thread")]
async fn impossible_interval_does_not_block_the_next_notification() {
    const HOUR: i64 = 3_600_000_000;
    let (rig, subscription) = rig().await;
    rig.source.freeze_change_list(SET, true);
    let front = time(rig.set().await.synced_until.unwrap());
    let impossible = [
        ("far future", later(front, HOUR), time(LAST)),
        ("the year 9999", time("9999-01-01"), time(LAST)),
        ("until far back", time(LAST), time("0001-01-01")),
        ("until a little back", front, later(front, -1)),
        ("empty, now", front, front),
        ("empty, far back", time("1970-01-01"), time("1970-01-01")),
        ("empty, far ahead", time(LAST), time(LAST)),
        ("all time", time("0001-01-01"), time(LAST)),
        ("known", later(front, -HOUR), front),
        ("overlapping", later(front, -HOUR), later(front, 1)),
        ("a microsecond", later(front, 1), later(front, 2)),
        ("the same again", later(front, 1), later(front, 2)),
        (
            "inverted by a microsecond",
            later(front, 2),
            later(front, 1),
        ),
    ];
    for (round, (what, from, until)) in (1..).zip(impossible) {
        // It announces a change that has not happened.
        let entry = change(&url(&rig, "r0002.txt"), later(front, round as i64));
        let body = notification(Some(from), Some(until), &[entry]);
        deliver(&subscription, body).await;
        until_processed(&rig, 2 * round - 1).await;
        let since = rig.operator.last_change().await;
        rig.source.update(SET, "r0001.txt", what);
        rig.source.notify_and_publish(SET).await.unwrap();
        let line = rig.until_in_feed(since, "r0001.txt").await;
        assert_eq!(line.origin, "notification", "{what}");
        rig.until_holds("r0001.txt", what).await;
        until_processed(&rig, 2 * round).await;
        let set = rig.set().await;
        assert_eq!(set.gaps.len(), 0, "{what}: {set:#?}");
    }
    assert_eq!(rig.channel().await.gaps, 0);
    rig.source.freeze_change_list(SET, false);
    rig.settled().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn impossible_interval_of_a_polled_list_does_not_stop_polling() {
    let rig = Rig::start(SampleOptions {
        hub: ChannelHub::None,
        ..resources(3)
    })
    .await;
    rig.settled().await;
    let front = time(rig.set().await.synced_until.unwrap());
    let other = rig.source.document_uri(SET, "other.xml");
    let (far, last) = (time("9998-01-01"), time(LAST));
    for (round, (from, until)) in [
        (far, None),
        (far, Some(last)),
        (time("0001-01-01"), Some(last)),
        (last, Some(time("0001-01-01"))),
        (front, Some(front)),
        (later(front, 2), Some(later(front, 1))),
    ]
    .into_iter()
    .enumerate()
    {
        let entry = change(&url(&rig, "r0002.txt"), last);
        let list = change_list(from, until, None, &[entry]);
        let index = change_list_index(&[(&other, from, until)]);
        rig.source
            .put_document("/set1/other.xml", "application/xml", list.clone());
        for (form, document) in [("list", list), ("index", index)] {
            let what = format!("{form} {round}: {from} {until:?}");
            let hits = rig.source.hits(LIST);
            rig.source.put_document(LIST, "application/xml", document);
            rig.operator.poll(NAME).await;
            soon("polled", rig.source.wait_for_hits(LIST, hits + 1)).await;
            rig.source.update(SET, "r0001.txt", what.clone());
            rig.source.remove_document(LIST);
            rig.operator.poll(NAME).await;
            rig.until_holds("r0001.txt", &what).await;
        }
    }
    rig.source.refresh_resource_list(SET);
    rig.operator.poll(NAME).await;
    rig.settled().await;
}

/// A change of the far future or past is announced, and then a real change of the same resource.
#[tokio::test(flavor = "multi_thread")]
async fn change_dated_in_the_far_future_does_not_block_later_changes() {
    let (rig, subscription) = rig().await;
    let front = time(rig.set().await.synced_until.unwrap());
    rig.source.freeze_change_list(SET, true);
    let dates = [
        LAST,
        "2999-01-01",
        "+262000-01-01",
        "0001-01-01",
        "1970-01-01",
    ];
    for (round, date) in dates.into_iter().enumerate() {
        let (announced, real) = (format!("announced {round}"), format!("real {round}"));
        let Ok(date) = date.parse() else { continue };
        rig.source.update(SET, "r0001.txt", announced.clone());
        let entry = change(&url(&rig, "r0001.txt"), date);
        let until = later(front, 1);
        let interval = Interval::new(front, until).unwrap();
        let body = notification(Some(interval.from()), Some(until), &[entry]);
        deliver(&subscription, body).await;
        rig.until_holds("r0001.txt", &announced).await;
        rig.source.update(SET, "r0001.txt", real.clone());
        rig.source.notify_and_publish(SET).await.unwrap();
        rig.until_holds("r0001.txt", &real).await;
        rig.until("nothing pending", |set| set.pending == 0).await;
        let known = rig.operator.resource(&rig.uri("r0001.txt")).await.unwrap();
        for date in ["lastmod", "changed_at"] {
            let stated = known[date].as_str().unwrap();
            assert!(time(stated) < time("2900-01-01"), "{date} {stated}");
        }
    }
    rig.source.freeze_change_list(SET, false);
    rig.settled().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn resource_list_entry_dated_in_the_far_future_can_change_later() {
    // Without digests and with the same length, only the times show that it has changed.
    let rig = Rig::start(SampleOptions {
        hub: ChannelHub::None,
        change_list: false,
        digests: false,
        ..resources(3)
    })
    .await;
    rig.settled().await;
    let mut head = Head::new(Root::Urlset, Capability::ResourceList);
    head.md.at = Some(rig.source.boundary());
    let entries: Vec<Entry> = ["r0000.txt", "r0001.txt", "r0002.txt"]
        .iter()
        .map(|name| {
            let mut entry = Entry::new(url(&rig, name));
            entry.lastmod = Some(time(LAST));
            // Another length than that of the file, so that it is fetched.
            entry.md.content.length = Some(5);
            entry
        })
        .collect();
    for name in ["r0000.txt", "r0001.txt", "r0002.txt"] {
        rig.source
            .put_document(&format!("/set1/res/{name}"), "text/plain", "12345");
    }
    let path = "/set1/resourcelist.xml";
    rig.source
        .put_document(path, "application/xml", write_document(&head, &entries));
    rig.operator.poll(NAME).await;
    rig.until_holds("r0001.txt", "12345").await;
    for name in ["r0000.txt", "r0001.txt", "r0002.txt"] {
        rig.source.remove_document(&format!("/set1/res/{name}"));
        rig.source.update(SET, name, "67890");
    }
    rig.source.refresh_resource_list(SET);
    rig.source.remove_document(path);
    rig.operator.poll(NAME).await;
    rig.until_mirrored().await;
    rig.settled().await;
}

/// A Change List is read repeatedly: an entry of an impossible time must not be applied again each time.
#[tokio::test(flavor = "multi_thread")]
async fn deletion_dated_in_the_far_future_is_applied_once() {
    let rig = Rig::start_with(
        SampleOptions {
            hub: ChannelHub::None,
            ..resources(3)
        },
        |config| config.sources[0].poll_interval = Duration::from_secs(900),
    )
    .await;
    rig.settled().await;
    let front = time(rig.set().await.synced_until.unwrap());
    let first = change(&url(&rig, "r0000.txt"), later(front, 1));
    let mut deletion = change(&url(&rig, "r0001.txt"), time(LAST));
    deletion.lastmod = None;
    deletion.md.change = Some(ChangeKind::Deleted);
    let mut entries = vec![first, deletion];
    let put = |entries: &[Entry]| {
        let list = change_list(front, None, None, entries);
        rig.source.put_document(LIST, "application/xml", list);
    };
    put(&entries);
    rig.operator.poll(NAME).await;
    eventually("deleted", Some(rig.wakes()), async || {
        match rig.mirrored("r0001.txt") {
            None => Ok(()),
            Some(bytes) => Err(format!("{bytes:?}")),
        }
    })
    .await;
    rig.source.update(SET, "r0001.txt", "created anew");
    let mut creation = change(&url(&rig, "r0001.txt"), later(front, 2));
    creation.md.change = Some(ChangeKind::Created);
    entries.push(creation);
    put(&entries);
    rig.operator.poll(NAME).await;
    rig.until_holds("r0001.txt", "created anew").await;
    let since = rig.operator.last_change().await;
    rig.source.update(SET, "r0002.txt", "the last");
    entries.push(change(&url(&rig, "r0002.txt"), later(front, 3)));
    put(&entries);
    rig.operator.poll(NAME).await;
    rig.until_holds("r0002.txt", "the last").await;
    rig.until("nothing pending", |set| set.pending == 0).await;
    assert_eq!(rig.mirrored("r0001.txt").unwrap(), b"created anew");
    let lines = rig.operator.changes(since).await;
    assert!(
        lines.iter().all(|line| line.change != "deleted"),
        "{lines:#?}"
    );
}
