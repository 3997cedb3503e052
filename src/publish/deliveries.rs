//! Delivers what is published to the subscribers of the hub: a change notification, or a framework notification, from the position of each.
//! Or tells another hub that there are news.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use resourcesync::uri::parse_uri;
use resourcesync::{Capability, ChangeKind, Entry, Head, Link, Root, SourceTime, write_document};
use resyncd_fetch::{Bounds, WebhookAnswer, WebhookReceiver, WebhookRequest, pause};
use tokio::sync::broadcast::error::TryRecvError;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use url::Url;
use websub::{Signature, SignatureMethod};

use super::Publisher;
use super::documents::{CHANGES_A_LIST, SetDocument, SetDocuments};
use super::hub::{PublishedHub, SubscriberKey, Topic};
use super::uris::CHANGES;
use crate::clock;
use crate::store::{PublishedRows, StoreError, TopicPosition, Wake};

/// How long changes are gathered into one notification.
const GATHERED: Duration = Duration::from_secs(1);
/// How often it is looked for something to deliver if nothing happens.
const INTERVAL: Duration = Duration::from_secs(60);
/// How many changes a notification has at most: what is more follows in the next one.
const MOST_CHANGES: usize = 1000;
/// How many deliveries are on their way at once, to those who have accepted the last one.
const AT_ONCE: usize = 192;
/// The same to those who have not: slow ones delay only each other.
const FAILING_AT_ONCE: usize = 64;
/// How long a subscriber may take to answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The pauses after failed deliveries. There is no last one: a subscription ends with its lease.
const RETRIES: Bounds = Bounds {
    tries: u32::MAX,
    first: Duration::from_secs(5),
    longest: Duration::from_secs(3600),
};

/// What is sent to all that have the same position.
#[derive(Clone)]
struct Notification {
    body: Bytes,
    /// Where who has got it is.
    position: TopicPosition,
}

/// What has become of a delivery.
struct Delivered {
    key: SubscriberKey,
    /// `None`: it was not accepted; it wants nothing more if that is `Gone`.
    answer: Result<TopicPosition, Failed>,
}

enum Failed {
    Gone,
    Later(Option<Duration>),
}

/// Delivers until it is stopped.
pub(super) async fn deliver(
    publisher: Arc<Publisher>,
    hub: Arc<PublishedHub>,
    stop: CancellationToken,
) {
    match publisher.store.subscriptions().await {
        Ok(stored) => hub.restore(stored),
        Err(error) => {
            tracing::error!(code = error.code(), %error, "the subscriptions can't be read; who subscribes again is told");
        }
    }
    let permits = [AT_ONCE, FAILING_AT_ONCE].map(|most| Arc::new(Semaphore::new(most)));
    let (sender, mut answers) = mpsc::unbounded_channel();
    let mut sending = JoinSet::new();
    let mut wakes = publisher.store.wakes();
    // The days end without a change, and with a Change List that is closed.
    let mut looked_at = None;
    loop {
        let now = clock::now().mono;
        let mut is_due = looked_at.is_none_or(|at| now.saturating_duration_since(at) >= INTERVAL);
        loop {
            match wakes.try_recv() {
                Ok(Wake::Feed(_)) | Err(TryRecvError::Lagged(_)) => is_due = true,
                Ok(_) => {}
                Err(TryRecvError::Empty | TryRecvError::Closed) => break,
            }
        }
        is_due |= hub.has_retry(now);
        let mut told = Vec::new();
        while let Ok(Delivered { key, answer }) = answers.try_recv() {
            // There may be more than one notification has.
            is_due = true;
            told.extend(note(&hub, key, answer));
        }
        while sending.try_join_next().is_some() {}
        if let Err(error) = store_news(&publisher, &hub, told).await {
            tracing::debug!(code = error.code(), %error, "database error; what subscribers were told is not stored");
        }
        if !is_due {
            tokio::select! {
                () = stop.cancelled() => break,
                () = hub.subscribed.notified() => looked_at = None,
                () = tokio::time::sleep(GATHERED) => {}
            }
            continue;
        }
        looked_at = Some(now);
        if let Err(error) = begin(&publisher, &hub, &permits, &sender, &mut sending).await {
            looked_at = None;
            tracing::debug!(code = error.code(), %error, "database error; nothing is delivered");
        }
        tokio::select! {
            () = stop.cancelled() => break,
            () = tokio::time::sleep(GATHERED) => {}
        }
    }
    // What is on its way is repeated by the next process.
    sending.shutdown().await;
}

/// What another hub has been told of a topic.
#[derive(Clone, Copy, Debug)]
pub(super) struct Announced {
    /// Where what the hub finds at the topic begins.
    from: TopicPosition,
    /// What it has been told of.
    until: TopicPosition,
}

/// Tells another hub of news, until it is stopped: it reads them at the topics.
pub(super) async fn announce(publisher: Arc<Publisher>, hub: Url, stop: CancellationToken) {
    let Some(client) = publisher.client.webhook_receiver(&hub, TIMEOUT).ok() else {
        return;
    };
    let mut failures = 0;
    loop {
        let pause = match announce_news(&publisher, &client).await {
            Ok(()) => {
                failures = 0;
                GATHERED
            }
            Err(error) => {
                failures += 1;
                if failures == 1 {
                    let host = hub.host_str().unwrap_or_default();
                    tracing::warn!(
                        code = "hub-not-told",
                        host,
                        "a hub does not take news; retrying: {error}"
                    );
                }
                pause(failures, None, &RETRIES).unwrap_or(RETRIES.longest)
            }
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

async fn announce_news(publisher: &Publisher, hub: &WebhookReceiver) -> Result<(), String> {
    for source in &*publisher.sources() {
        let sets = publisher
            .sets(source)
            .await
            .map_err(|error| error.to_string())?;
        for documents in sets {
            let topic = documents.topic(CHANGES);
            let set = documents.set.clone();
            let begin = TopicPosition {
                number: set.after,
                until: set.since,
            };
            let known = publisher.announced.lock().get(topic.as_str()).copied();
            let after = known.map_or(begin, |known| known.until);
            let newest = publisher
                .store
                .published(move |rows| rows.newest_change(set.id, after.number, i64::MAX));
            let newest = newest.await.map_err(|error| error.to_string())?;
            let Some((number, until)) = newest else {
                continue;
            };
            let news = Announced {
                from: after,
                until: TopicPosition { number, until },
            };
            // The hub reads it at once.
            let before = publisher.announced.lock().insert(topic.to_string(), news);
            let answer = hub.send(&announcement(&topic)).await;
            if !matches!(answer, Ok(WebhookAnswer::Accepted)) {
                let mut announced = publisher.announced.lock();
                match before {
                    Some(before) => announced.insert(topic.to_string(), before),
                    None => announced.remove(topic.as_str()),
                };
                return Err(match answer {
                    Err(error) => error.to_string(),
                    Ok(answer) => format!("{answer:?}"),
                });
            }
        }
    }
    Ok(())
}

/// The request that tells another hub of news at a topic.
fn announcement(topic: &Url) -> WebhookRequest {
    let mut form = url::form_urlencoded::Serializer::new(String::new());
    form.append_pair("hub.mode", "publish");
    // Hubs differ in the name.
    form.append_pair("hub.url", topic.as_str());
    form.append_pair("hub.topic", topic.as_str());
    let form_type = "application/x-www-form-urlencoded".to_owned();
    WebhookRequest {
        headers: vec![("content-type", form_type)],
        body: form.finish(),
    }
}

impl Publisher {
    /// What another hub finds at a topic: the news that it was told of.
    pub(super) async fn announced_notification(
        &self,
        documents: SetDocuments,
    ) -> Result<Bytes, super::DocumentError> {
        let topic = documents.topic(CHANGES);
        let known = self.announced.lock().get(topic.as_str()).copied();
        let from = known.map_or(
            TopicPosition {
                number: documents.set.after,
                until: documents.set.since,
            },
            |known| known.from,
        );
        let making = self.store.published(move |rows| {
            let made = change_notification(&documents, rows, from);
            let empty = notification_head(&documents, Capability::ChangeNotification, from.until);
            Ok(made.map(|made| {
                made.map_or_else(|| write_document(&empty, []).into(), |made| made.body)
            }))
        });
        making.await?
    }
}

/// Notes what has become of a delivery; returns what of it is to be stored.
fn note(
    hub: &PublishedHub,
    key: SubscriberKey,
    answer: Result<TopicPosition, Failed>,
) -> Option<(SubscriberKey, Option<TopicPosition>)> {
    let mut subscribers = hub.subscribers.lock();
    let subscriber = subscribers.told.get_mut(&key)?;
    subscriber.is_busy = false;
    match answer {
        Ok(position) => {
            subscriber.position = position;
            subscriber.failures = 0;
            subscriber.next_at = None;
            Some((key, Some(position)))
        }
        Err(Failed::Later(asked)) => {
            subscriber.failures += 1;
            let pause = pause(subscriber.failures, asked, &RETRIES);
            let pause = pause.unwrap_or(RETRIES.longest);
            subscriber.next_at = Some(clock::now().mono + pause);
            None
        }
        Err(Failed::Gone) => {
            subscribers.remove(&key);
            Some((key, None))
        }
    }
}

/// Stores the positions of subscribers, and that others are gone or have let their leases run out.
async fn store_news(
    publisher: &Publisher,
    hub: &PublishedHub,
    told: Vec<(SubscriberKey, Option<TopicPosition>)>,
) -> Result<(), StoreError> {
    let mut ended = Vec::new();
    {
        let mut subscribers = hub.subscribers.lock();
        for expired in subscribers.hub.expire(clock::now().wall) {
            let key = (expired.topic, expired.callback);
            subscribers.told.remove(&key);
            ended.push(key);
        }
    }
    let mut positions = Vec::new();
    for ((topic, callback), position) in told {
        match position {
            Some(position) => positions.push((topic, callback, position)),
            None => ended.push((topic, callback)),
        }
    }
    if !positions.is_empty() {
        publisher.store.put_positions(positions).await?;
    }
    if !ended.is_empty() {
        publisher.store.delete_subscriptions(ended).await?;
    }
    Ok(())
}

/// Begins to deliver to all who have something to be told, and are not being told something.
async fn begin(
    publisher: &Arc<Publisher>,
    hub: &Arc<PublishedHub>,
    permits: &[Arc<Semaphore>; 2],
    sender: &mpsc::UnboundedSender<Delivered>,
    sending: &mut JoinSet<()>,
) -> Result<(), super::DocumentError> {
    let now = clock::now().mono;
    let topics: BTreeSet<String> = {
        let subscribers = hub.subscribers.lock();
        subscribers
            .told
            .keys()
            .map(|(topic, _)| topic.clone())
            .collect()
    };
    for name in topics {
        let Some(topic) = publisher.topic(&name).await? else {
            // It is published again, or the lease runs out.
            continue;
        };
        let mut groups: HashMap<TopicPosition, Vec<(SubscriberKey, bool)>> = HashMap::new();
        {
            let subscribers = hub.subscribers.lock();
            let first = (name.clone(), String::new());
            let of_topic = subscribers.told.range(first..);
            for (key, subscriber) in of_topic.take_while(|((topic, _), _)| *topic == name) {
                let is_due = subscriber.next_at.is_none_or(|at| at <= now);
                if is_due && !subscriber.is_busy {
                    let group = groups.entry(subscriber.position).or_default();
                    group.push((key.clone(), subscriber.failures > 0));
                }
            }
        }
        let topic = Arc::new(topic);
        for (position, group) in groups {
            let made_of = Arc::clone(&topic);
            let making = publisher
                .store
                .published(move |rows| Ok(notification(&made_of, rows, position)));
            let Some(notification) = making.await?? else {
                continue;
            };
            for (key, is_failing) in group {
                if let Some(subscriber) = hub.subscribers.lock().told.get_mut(&key) {
                    subscriber.is_busy = true;
                }
                let permits = Arc::clone(&permits[usize::from(is_failing)]);
                let (hub, sender) = (Arc::clone(hub), sender.clone());
                let (notification, link) = (notification.clone(), publisher.topic_links(&name));
                sending.spawn(async move {
                    let permit = permits.acquire_owned().await;
                    let answer = send(&hub, &key, link, &notification).await;
                    drop(permit);
                    // The receiver goes with the worker.
                    let _ = sender.send(Delivered { key, answer });
                });
            }
        }
    }
    Ok(())
}

async fn send(
    hub: &PublishedHub,
    key: &SubscriberKey,
    link: String,
    notification: &Notification,
) -> Result<TopicPosition, Failed> {
    let url = parse_uri(&key.1).map_err(|_| Failed::Gone)?;
    let secret = hub.subscribers.lock().secret(key);
    let mut headers = vec![
        ("content-type", "application/xml".to_owned()),
        ("link", link),
    ];
    if let Some(secret) = secret {
        let signature = Signature::sign(
            SignatureMethod::Sha256,
            secret.as_bytes(),
            &notification.body,
        );
        headers.push(("x-hub-signature", signature.to_string()));
    }
    let posting = hub.client.post_callback(&url, &headers, &notification.body);
    match tokio::time::timeout(TIMEOUT, posting).await {
        Ok(Ok(WebhookAnswer::Accepted)) => Ok(notification.position),
        Ok(Ok(WebhookAnswer::Gone)) => Err(Failed::Gone),
        Ok(Ok(WebhookAnswer::Refused { retry_after, .. })) => Err(Failed::Later(retry_after)),
        Ok(Err(_)) | Err(_) => Err(Failed::Later(None)),
    }
}

/// What who has that position has to be told; `None`: nothing.
fn notification(
    topic: &Topic,
    rows: &PublishedRows<'_>,
    position: TopicPosition,
) -> Result<Option<Notification>, super::DocumentError> {
    if topic.is_framework {
        framework_notification(&topic.documents, rows, position)
    } else {
        change_notification(&topic.documents, rows, position)
    }
}

fn change_notification(
    documents: &SetDocuments,
    rows: &PublishedRows<'_>,
    mut position: TopicPosition,
) -> Result<Option<Notification>, super::DocumentError> {
    let spans = rows.spans(&documents.set, documents.oldest, CHANGES_A_LIST)?;
    // What is older than the Change Lists is lost to who was away for so long: the interval says so.
    if let Some(first) = spans.first().filter(|first| first.after > position.number) {
        position = TopicPosition {
            number: first.after,
            until: first.from,
        };
    }
    let end = spans.last().map_or(position.number, |open| open.until);
    let mut head = notification_head(documents, Capability::ChangeNotification, position.until);
    let next = documents.changes_after(rows, (position.number, end), MOST_CHANGES)?;
    let Some((number, until)) = next.last else {
        return Ok(None);
    };
    head.md.until = Some(SourceTime::from(until));
    Ok(Some(Notification {
        body: write_document(&head, &next.entries).into(),
        position: TopicPosition { number, until },
    }))
}

/// The Change Lists that have been closed since: an index names the others.
fn framework_notification(
    documents: &SetDocuments,
    rows: &PublishedRows<'_>,
    position: TopicPosition,
) -> Result<Option<Notification>, super::DocumentError> {
    let spans = rows.spans(&documents.set, documents.oldest, CHANGES_A_LIST)?;
    let closed = spans
        .iter()
        .filter_map(|span| Some((span.until, span.closed?)));
    let news: Vec<(i64, DateTime<Utc>)> = closed.filter(|(_, at)| *at > position.until).collect();
    let Some(&(_, until)) = news.last() else {
        return Ok(None);
    };
    let entries: Vec<Entry> = news
        .iter()
        .map(|&(number, at)| {
            let mut entry = Entry::new(documents.uri(SetDocument::ChangeList(Some(number))));
            entry.md.capability = Some(Capability::ChangeList);
            entry.md.change = Some(ChangeKind::Created);
            entry.md.datetime = Some(SourceTime::from(at));
            let index = documents.uri(SetDocument::ChangeLists);
            entry.links.push(Link::new("index", index));
            entry
        })
        .collect();
    let mut head = notification_head(documents, Capability::FrameworkNotification, position.until);
    head.md.until = Some(SourceTime::from(until));
    Ok(Some(Notification {
        body: write_document(&head, &entries).into(),
        position: TopicPosition {
            number: position.number,
            until,
        },
    }))
}

fn notification_head(
    documents: &SetDocuments,
    capability: Capability,
    from: DateTime<Utc>,
) -> Head {
    let mut head = Head::new(Root::Urlset, capability);
    head.md.from = Some(SourceTime::from(from));
    let list = documents.uri(SetDocument::CapabilityList);
    head.links.push(Link::new("up", list));
    head
}
