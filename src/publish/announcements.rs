//! Tells another hub that a topic has news, which it then reads there.

use std::time::Duration;

use resourcesync::Capability;
use resyncd_fetch::{FetchError, WebhookAnswer, WebhookReceiver, WebhookRequest, pause};
use tokio_util::sync::CancellationToken;
use url::Url;

use super::Publisher;
use super::deliveries::{GATHERED, Notification, RETRIES, TIMEOUT, change_notification};
use super::documents::SetDocuments;
use super::spool::DocumentError;
use super::uris::CHANGES;
use crate::store::{TopicPosition, Wake};

/// How many changes the hub finds at once.
const MOST_CHANGES: usize = 10_000;
/// How often it is looked for news if nothing is applied: a set is published without a change.
const INTERVAL: Duration = Duration::from_secs(60);

/// Why a hub is not told.
#[derive(Debug, thiserror::Error)]
enum AnnounceError {
    #[error(transparent)]
    Document(#[from] DocumentError),
    #[error(transparent)]
    Request(#[from] FetchError),
    #[error("it answers {0}")]
    Refused(u16),
}

/// Tells a hub of news, until it is stopped.
pub(super) async fn announce(publisher: &Publisher, hub: &Url, stop: &CancellationToken) {
    let mut wakes = publisher.store.wakes();
    let mut failures = 0;
    loop {
        let told = async {
            let receiver = publisher.client.webhook_receiver(hub, TIMEOUT)?;
            announce_news(publisher, &receiver).await
        };
        let wait = match told.await {
            Ok(has_told) => {
                failures = 0;
                // There may be more.
                if has_told { TIMEOUT } else { INTERVAL }
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
        let waiting = async {
            if failures > 0 {
                std::future::pending::<()>().await;
            }
            Wake::applied(&mut wakes).await;
            tokio::time::sleep(GATHERED).await;
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = waiting => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Tells a hub of the next changes of each set; returns whether there may be more.
async fn announce_news(
    publisher: &Publisher,
    hub: &WebhookReceiver,
) -> Result<bool, AnnounceError> {
    let mut has_told = false;
    for source in &*publisher.sources() {
        for documents in publisher.sets(source).await? {
            let topic = documents.topic(CHANGES);
            let before = publisher.announced(&documents).await?;
            let from = before.position;
            let making = publisher.store.published(move |rows| {
                Ok(change_notification(&documents, rows, from, MOST_CHANGES))
            });
            let Some(news) = making.await.map_err(DocumentError::from)?? else {
                continue;
            };
            let note = |news| {
                publisher.announced.lock().insert(topic.to_string(), news);
            };
            // The hub reads it at once. Of one that is not told, the topic has what it had.
            note(news);
            let told = match hub.send(&announcement(&topic)).await {
                Ok(WebhookAnswer::Accepted) => Ok(()),
                Ok(WebhookAnswer::Gone) => Err(AnnounceError::Refused(410)),
                Ok(WebhookAnswer::Refused { status, .. }) => Err(AnnounceError::Refused(status)),
                Err(error) => Err(error.into()),
            };
            told.inspect_err(|_| note(before))?;
            has_told = true;
        }
    }
    Ok(has_told)
}

/// The request that tells a hub of news at a topic.
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
    /// What another hub finds at the topic of the changes of a set: what it was told of last. At first that is nothing. Of a set that an
    /// earlier process has published, what has changed until now is not told: the next interval shows that it is missing.
    pub(super) async fn announced(
        &self,
        documents: &SetDocuments,
    ) -> Result<Notification, DocumentError> {
        let topic = documents.topic(CHANGES).to_string();
        if let Some(known) = self.announced.lock().get(&topic) {
            return Ok(known.clone());
        }
        let state = self.state(documents).await?;
        let (mut number, mut until) = (documents.set.after, documents.set.since);
        if until < self.started_at {
            (number, until) = (state.changed, state.at);
        }
        let newest = TopicPosition { number, until };
        let capability = Capability::ChangeNotification;
        let nothing = Notification::new(documents, capability, &[], (newest, newest));
        let mut announced = self.announced.lock();
        Ok(announced.entry(topic).or_insert(nothing).clone())
    }
}
