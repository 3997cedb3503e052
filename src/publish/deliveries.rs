//! Delivers what is published to the subscribers of the hub: a change notification, or a framework notification, from the position of each.

use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use resourcesync::uri::parse_uri;
use resourcesync::{Capability, ChangeKind, Entry, Link, Root, SourceTime, write_document};
use resyncd_fetch::{Bounds, Client, WebhookAnswer, pause};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use websub::{Signature, SignatureMethod};

use super::Publisher;
use super::documents::{SetDocument, SetDocuments};
use super::hub::{PublishedHub, SubscriberKey, Topic};
use super::spool::DocumentError;
use crate::clock;
use crate::store::{ChangeSpan, PublishedRows, StoreError, TopicPosition, Wake};

/// How long changes are gathered into one notification.
pub(super) const GATHERED: Duration = Duration::from_secs(1);
/// How often it is looked for something to deliver if nothing happens.
const INTERVAL: Duration = Duration::from_secs(60);
/// How many changes a notification has at most: what is more follows in the next one.
const MOST_CHANGES: usize = 1000;
/// How many deliveries are on their way at once, and how many notifications there are for them, to those who have accepted the last one.
const AT_ONCE: (usize, usize) = (192, 128);
/// The same to those who have not: slow ones delay only each other.
const FAILING_AT_ONCE: (usize, usize) = (64, 32);
/// How long a subscriber may take to answer.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);
/// The pauses after failed deliveries. There is no last one: a subscription ends with its lease.
pub(super) const RETRIES: Bounds = Bounds {
    tries: u32::MAX,
    first: Duration::from_secs(5),
    longest: Duration::from_secs(3600),
};

/// What is sent to all that have the same position.
#[derive(Clone)]
pub(super) struct Notification {
    pub(super) body: Bytes,
    /// Where who has got it is.
    pub(super) position: TopicPosition,
}

impl Notification {
    /// `from`: where who gets it has been, `to`: where it is then.
    pub(super) fn new(
        documents: &SetDocuments,
        capability: Capability,
        entries: &[Entry],
        (from, to): (TopicPosition, TopicPosition),
    ) -> Self {
        let mut head = documents.head(Root::Urlset, capability, None);
        head.md.from = Some(SourceTime::from(from.until));
        head.md.until = Some(SourceTime::from(to.until));
        Self {
            body: write_document(&head, entries).into(),
            position: to,
        }
    }
}

/// What has become of a delivery.
struct Delivered {
    key: SubscriberKey,
    /// Where it is now.
    answer: Result<TopicPosition, Failed>,
}

enum Failed {
    /// It wants nothing more.
    Gone,
    /// It may be tried again, after a time that the subscriber states.
    Later(Option<Duration>),
}

/// What bounds deliveries.
struct DeliveryPermits {
    /// One for each that is on its way.
    requests: Arc<Semaphore>,
    /// One for each notification: who has another position needs another one.
    notifications: Arc<Semaphore>,
}

/// Delivers until it is stopped.
pub(super) async fn deliver(publisher: &Publisher, hub: &PublishedHub, stop: &CancellationToken) {
    let permits = [AT_ONCE, FAILING_AT_ONCE].map(|(requests, notifications)| DeliveryPermits {
        requests: Arc::new(Semaphore::new(requests)),
        notifications: Arc::new(Semaphore::new(notifications)),
    });
    let mut sending = JoinSet::new();
    let (mut wakes, mut subscribed) = (publisher.store.wakes(), publisher.store.wakes());
    let (mut is_current, mut has_told) = (!publisher.store.is_shared(), false);
    loop {
        if !is_current {
            match publisher.store.subscriptions().await {
                Ok(stored) => {
                    hub.adopt(stored, has_told);
                    (is_current, has_told) = (true, true);
                }
                Err(error) => {
                    tracing::debug!(code = error.code(), %error, "database error; subscriptions at other nodes are looked for later");
                }
            }
        }
        if let Err(error) = begin(publisher, hub, &permits, &mut sending).await {
            tracing::debug!(code = error.code(), %error, "database error; what is not delivered is looked for later");
        }
        let due = hub.next_due(clock::now()).unwrap_or(INTERVAL).min(INTERVAL);
        let mut ended = Vec::new();
        tokio::select! {
            () = stop.cancelled() => break,
            () = Wake::applied(&mut wakes) => {}
            () = Wake::until(&mut subscribed, |wake| *wake == Wake::Subscribed) => {
                is_current = !publisher.store.is_shared();
            }
            () = hub.subscribed.notified() => {}
            Some(answer) = sending.join_next() => ended.push(answer),
            () = tokio::time::sleep(due) => {}
        }
        // What belongs together is one notification, and one commit.
        tokio::select! {
            () = stop.cancelled() => break,
            () = tokio::time::sleep(GATHERED) => {}
        }
        ended.extend(std::iter::from_fn(|| sending.try_join_next()));
        let told = ended.into_iter().flatten();
        let told = told.filter_map(|delivered: Delivered| note(hub, delivered));
        if let Err(error) = store_news(publisher, hub, told.collect()).await {
            tracing::debug!(code = error.code(), %error, "database error; what subscribers were told is not stored");
        }
    }
    // What is on its way is repeated by the next process.
    sending.shutdown().await;
}

/// Notes what has become of a delivery; returns what of it is to be stored.
fn note(
    hub: &PublishedHub,
    Delivered { key, answer }: Delivered,
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
    mut told: Vec<(SubscriberKey, Option<TopicPosition>)>,
) -> Result<(), StoreError> {
    {
        let mut subscribers = hub.subscribers.lock();
        for expired in subscribers.hub.expire(clock::now().wall) {
            let key = (expired.topic, expired.callback);
            subscribers.told.remove(&key);
            told.push((key, None));
        }
    }
    if told.is_empty() {
        return Ok(());
    }
    publisher.store.put_positions(told).await
}

/// Begins to deliver to all who have something to be told, and are not being told something.
async fn begin(
    publisher: &Publisher,
    hub: &PublishedHub,
    permits: &[DeliveryPermits; 2],
    sending: &mut JoinSet<Delivered>,
) -> Result<(), DocumentError> {
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
        let topic = match publisher.topic(&name).await {
            // It is published again, or the lease runs out.
            Err(DocumentError::Missing) => continue,
            topic => topic?,
        };
        // By whether the last delivery has failed.
        let mut groups: HashMap<(bool, TopicPosition), Vec<SubscriberKey>> = HashMap::new();
        {
            let subscribers = hub.subscribers.lock();
            let first = (name.clone(), String::new());
            let of_topic = subscribers.told.range(first..);
            for (key, subscriber) in of_topic.take_while(|((topic, _), _)| *topic == name) {
                let is_due = subscriber.next_at.is_none_or(|at| at <= now);
                if is_due && !subscriber.is_busy {
                    let group = (subscriber.failures > 0, subscriber.position);
                    groups.entry(group).or_default().push(key.clone());
                }
            }
        }
        let topic = Arc::new(topic);
        for ((is_failing, position), group) in groups {
            let permits = &permits[usize::from(is_failing)];
            // Without a place it is the turn of this one once another delivery has ended.
            let Ok(place) = Arc::clone(&permits.notifications).try_acquire_owned() else {
                continue;
            };
            let place = Arc::new(place);
            let made_of = Arc::clone(&topic);
            let making = publisher
                .store
                .published(move |rows| Ok(notification(&made_of, rows, position)));
            let Some(notification) = making.await?? else {
                continue;
            };
            let mut subscribers = hub.subscribers.lock();
            for key in group {
                if let Some(subscriber) = subscribers.told.get_mut(&key) {
                    subscriber.is_busy = true;
                }
                let secret = subscribers.secret(&key);
                let (permits, place) = (Arc::clone(&permits.requests), Arc::clone(&place));
                let request = CallbackRequest {
                    client: publisher.client.clone(),
                    link: publisher.topic_links(&name),
                    secret,
                    notification: notification.clone(),
                };
                sending.spawn(async move {
                    let _permit = permits.acquire_owned().await;
                    let answer = request.send(&key.1).await;
                    drop(place);
                    Delivered { key, answer }
                });
            }
        }
    }
    Ok(())
}

/// A delivery to one subscriber.
struct CallbackRequest {
    client: Client,
    link: String,
    secret: Option<String>,
    notification: Notification,
}

impl CallbackRequest {
    async fn send(self, callback: &str) -> Result<TopicPosition, Failed> {
        let url = parse_uri(callback).map_err(|_| Failed::Gone)?;
        let Notification { body, position } = self.notification;
        let mut headers = vec![
            ("content-type", "application/xml".to_owned()),
            ("link", self.link),
        ];
        if let Some(secret) = &self.secret {
            let signature = Signature::sign(SignatureMethod::Sha256, secret.as_bytes(), &body);
            headers.push(("x-hub-signature", signature.to_string()));
        }
        let posting = self.client.post_callback(&url, &headers, &body);
        match tokio::time::timeout(TIMEOUT, posting).await {
            Ok(Ok(WebhookAnswer::Accepted)) => Ok(position),
            Ok(Ok(WebhookAnswer::Gone)) => Err(Failed::Gone),
            Ok(Ok(WebhookAnswer::Refused { retry_after, .. })) => Err(Failed::Later(retry_after)),
            Ok(Err(_)) | Err(_) => Err(Failed::Later(None)),
        }
    }
}

/// What who has that position has to be told; `None`: nothing.
fn notification(
    topic: &Topic,
    rows: &PublishedRows<'_>,
    position: TopicPosition,
) -> Result<Option<Notification>, DocumentError> {
    if topic.is_framework {
        framework_notification(&topic.documents, rows, position)
    } else {
        change_notification(&topic.documents, rows, position, MOST_CHANGES)
    }
}

/// Where a notification begins for who has a position. `first`: the first Change List.
fn begin_at(first: &ChangeSpan, position: TopicPosition) -> TopicPosition {
    let until = match first.after.cmp(&position.number) {
        Ordering::Less => return position,
        // After a clock was set back, what follows may be earlier than what was told last.
        Ordering::Equal => position.until.min(first.from),
        // What is older is lost to who was away for so long: the interval says so.
        Ordering::Greater => first.from,
    };
    let number = first.after;
    TopicPosition { number, until }
}

/// The changes after a position, at most so many.
pub(super) fn change_notification(
    documents: &SetDocuments,
    rows: &PublishedRows<'_>,
    mut position: TopicPosition,
    most: usize,
) -> Result<Option<Notification>, DocumentError> {
    let spans = documents.spans(rows)?;
    if let Some(first) = spans.first() {
        position = begin_at(first, position);
    }
    let (mut entries, mut last) = (Vec::new(), None);
    // Those of one Change List.
    for span in spans.iter().filter(|span| span.until > position.number) {
        let range = (span.after.max(position.number), span.until);
        rows.changes(documents.set.id, range, |change| {
            last = Some((change.row.seq, change.row.at));
            entries.extend(documents.form.change(&documents.set.source, &change));
            Ok::<_, DocumentError>(entries.len() < most)
        })?;
        if last.is_some() {
            break;
        }
    }
    let Some((number, until)) = last else {
        return Ok(None);
    };
    let to = TopicPosition { number, until };
    let capability = Capability::ChangeNotification;
    let notification = Notification::new(documents, capability, &entries, (position, to));
    Ok(Some(notification))
}

/// The Change Lists that have been closed since: an index names the others.
fn framework_notification(
    documents: &SetDocuments,
    rows: &PublishedRows<'_>,
    position: TopicPosition,
) -> Result<Option<Notification>, DocumentError> {
    let spans = documents.spans(rows)?;
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
    let to = TopicPosition {
        number: position.number,
        until,
    };
    let capability = Capability::FrameworkNotification;
    let notification = Notification::new(documents, capability, &entries, (position, to));
    Ok(Some(notification))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notification_begins_where_the_last_one_ended_unless_something_is_lost() {
        let at = |second| DateTime::from_timestamp(second, 0).unwrap();
        let position = |number, second| TopicPosition {
            number,
            until: at(second),
        };
        // The Change Lists begin after number 5, at second 50.
        let first = ChangeSpan {
            after: 5,
            from: at(50),
            until: 9,
            closed: None,
        };
        for (told, expected, why) in [
            (position(7, 70), position(7, 70), "one that keeps up"),
            (position(3, 30), position(5, 50), "one that was away"),
            (position(5, 40), position(5, 40), "nothing is lost"),
            (position(5, 60), position(5, 50), "the clock was set back"),
        ] {
            assert_eq!(begin_at(&first, told), expected, "{why}");
        }
    }
}
