//! What is published, and to whom, for the status.

use std::cmp::Reverse;

use resourcesync::uri::parse_uri;

use super::Publisher;
use super::documents::{SetDocument, SetDocuments};
use super::uris::CHANGES;
use crate::clock;
use crate::status::{PublishStatus, PublishedSetStatus, SubscriberStatus, rfc3339};
use crate::store::StoreError;

/// How many subscribers the status shows of a set.
const MOST_SHOWN: usize = 100;

impl Publisher {
    /// What is published; `None`: it can't be read now.
    pub async fn status(&self) -> Option<PublishStatus> {
        let mut shown = PublishStatus {
            url: self.uris.at("").to_string(),
            sets: Vec::new(),
        };
        for source in &*self.sources() {
            for documents in self.sets(source).await.ok()? {
                shown.sets.push(self.status_of(documents).await.ok()?);
            }
        }
        Some(shown)
    }

    async fn status_of(&self, documents: SetDocuments) -> Result<PublishedSetStatus, StoreError> {
        let topic = documents.topic(CHANGES).to_string();
        let list = documents.uri(SetDocument::CapabilityList);
        let newest = self.state(&documents).await?.changed;
        let now = clock::now().wall;
        let (mut subscribers, mut behind) = (0, Vec::new());
        if let Some(hub) = &self.built_in {
            let known = hub.subscribers.lock();
            let first = (topic.clone(), String::new());
            let of_topic = known.told.range(first..);
            for ((_, callback), subscriber) in of_topic.take_while(|((of, _), _)| *of == topic) {
                subscribers += 1;
                if subscriber.position.number >= newest {
                    continue;
                }
                let host = parse_uri(callback).ok();
                let host = host.and_then(|url| url.host_str().map(str::to_owned));
                let since = now - subscriber.position.until;
                behind.push(SubscriberStatus {
                    host: host.unwrap_or_default(),
                    seconds: u64::try_from(since.num_seconds()).unwrap_or(0),
                    failures: subscriber.failures,
                });
            }
        }
        behind.sort_by_key(|behind| Reverse(behind.seconds));
        behind.truncate(MOST_SHOWN);
        Ok(PublishedSetStatus {
            source: documents.set.source.clone(),
            capability_list: list.to_string(),
            resources: documents.set.resources,
            since: rfc3339(documents.set.since),
            subscribers,
            behind,
        })
    }
}
