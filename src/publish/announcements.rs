//! Tells another hub that a topic has news, which it then reads there.

use std::time::Duration;

use bytes::Bytes;
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

/// How often it is looked for news if nothing is applied: a set is published without a change.
const INTERVAL: Duration = Duration::from_secs(60);

/// What another hub has been told of a topic.
#[derive(Clone, Copy, Debug)]
pub(super) struct Announced {
    /// Where what the hub finds at the topic begins.
    from: TopicPosition,
    /// What it has been told of.
    until: TopicPosition,
}

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
            Ok(()) => {
                failures = 0;
                INTERVAL
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

async fn announce_news(publisher: &Publisher, hub: &WebhookReceiver) -> Result<(), AnnounceError> {
    for source in &*publisher.sources() {
        for documents in publisher.sets(source).await? {
            let after = publisher.announced(&documents).until;
            let set = documents.set.id;
            let newest = publisher
                .store
                .published(move |rows| rows.newest_change(set, after.number, i64::MAX));
            let newest = newest.await.map_err(DocumentError::from)?;
            let Some((number, until)) = newest else {
                continue;
            };
            let until = TopicPosition { number, until };
            // The hub reads it at once. Of one that is not told, `from` stays where it is.
            let before = publisher.announced(&documents);
            let topic = documents.topic(CHANGES);
            let note = |news| {
                publisher.announced.lock().insert(topic.to_string(), news);
            };
            note(Announced { from: after, until });
            let told = match hub.send(&announcement(&topic)).await {
                Ok(WebhookAnswer::Accepted) => Ok(()),
                Ok(WebhookAnswer::Gone) => Err(AnnounceError::Refused(410)),
                Ok(WebhookAnswer::Refused { status, .. }) => Err(AnnounceError::Refused(status)),
                Err(error) => Err(error.into()),
            };
            told.inspect_err(|_| note(before))?;
        }
    }
    Ok(())
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
    /// What another hub has been told of the changes of a set.
    fn announced(&self, documents: &SetDocuments) -> Announced {
        let topic = documents.topic(CHANGES);
        let known = self.announced.lock().get(topic.as_str()).copied();
        let begin = TopicPosition {
            number: documents.set.after,
            until: documents.set.since,
        };
        known.unwrap_or(Announced {
            from: begin,
            until: begin,
        })
    }

    /// What another hub finds at a topic: the news that it was told of.
    pub(super) async fn announced_notification(
        &self,
        documents: SetDocuments,
    ) -> Result<Bytes, DocumentError> {
        let from = self.announced(&documents).from;
        let making = self.store.published(move |rows| {
            let made = change_notification(&documents, rows, from);
            Ok(made.map(|made| {
                made.unwrap_or_else(|| {
                    Notification::new(
                        &documents,
                        Capability::ChangeNotification,
                        &[],
                        (from, from),
                    )
                })
            }))
        });
        Ok(making.await??.body)
    }
}
