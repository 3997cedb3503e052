//! Logs what begins to wait for a person, once, and once when that is over.
//!
//! Must not decide what waits for a person, and changes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::followed::FollowedSources;
use super::runtime_status::RuntimeStatus;
use super::{attention, status_view};
use crate::clock;
use crate::status::{Attention, AttentionOf, ConfigurationStatus};
use crate::store::Store;

/// The time between two checks for changes. Each reads the database once, for all Sources.
const INTERVAL: Duration = Duration::from_secs(30);

/// What waits for a person: each code of the daemon, of a Source, or of one of its sets, once.
type Attentions = BTreeMap<Subject, Attention>;

/// What an attention is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Subject {
    /// The label of the Source; `None`: it is about the daemon.
    source: Option<String>,
    /// The Capability List of the set; `None`: it is about the Source, or the daemon.
    set: Option<String>,
    code: String,
}

/// Logs the attentions of the daemon and of the Sources that are followed.
#[derive(Clone)]
pub(super) struct AttentionLog {
    pub(super) store: Arc<Store>,
    pub(super) runtime_status: Arc<RuntimeStatus>,
    pub(super) configuration: Arc<Mutex<ConfigurationStatus>>,
    pub(super) sources: Arc<FollowedSources>,
    pub(super) stop: CancellationToken,
}

impl AttentionLog {
    /// Logs until it is stopped.
    pub(super) async fn run(self) {
        let mut logged = Attentions::new();
        loop {
            tokio::select! {
                () = self.stop.cancelled() => return,
                () = tokio::time::sleep(INTERVAL) => {}
            }
            let (contexts, now) = (self.sources.contexts(), clock::now().wall);
            let status = status_view::status(&self.store, &self.runtime_status, now, &contexts);
            match status.await {
                Ok(mut status) => {
                    let of_configuration = attention::of_configuration(&self.configuration.lock());
                    status.attention.extend(of_configuration);
                    logged = log_changes(&logged, attentions(status.attentions()));
                }
                Err(error) => {
                    // What the workers read fails as well, and is reported.
                    tracing::debug!(code = error.code(), %error, "database error; attention not checked");
                }
            }
        }
    }
}

fn attentions<'a>(found: impl Iterator<Item = AttentionOf<'a>>) -> Attentions {
    let mut attentions = Attentions::new();
    for (source, set, found) in found {
        let subject = Subject {
            source: source.map(|source| source.name.clone()),
            set: set.map(|set| set.capability_list.clone()),
            code: found.code.clone(),
        };
        let known = attentions.entry(subject);
        known.or_insert_with(|| found.clone());
    }
    attentions
}

/// Logs the differences; returns what was logged.
fn log_changes(before: &Attentions, now: Attentions) -> Attentions {
    for (Subject { source, set, code }, attention) in missing_in(before, &now) {
        let Attention {
            message, next_step, ..
        } = attention;
        let (source, set) = (source.as_deref(), set.as_deref());
        tracing::warn!(
            code,
            source,
            set,
            reason = message,
            next_step,
            "attention needed"
        );
    }
    for (Subject { source, set, code }, _) in missing_in(&now, before) {
        let (source, set) = (source.as_deref(), set.as_deref());
        tracing::info!(code, source, set, "attention no longer needed");
    }
    now
}

/// What is in `of` and not in `known`.
fn missing_in<'a>(
    known: &'a Attentions,
    of: &'a Attentions,
) -> impl Iterator<Item = (&'a Subject, &'a Attention)> {
    of.iter()
        .filter(|(subject, _)| !known.contains_key(subject))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::status::SourceStatus;

    fn source(attention: &[(&str, &str)], of_set: &[(&str, &str)]) -> SourceStatus {
        let rows = |rows: &[(&str, &str)]| -> Vec<serde_json::Value> {
            let row = |(code, since): &(&str, &str)| json!({ "code": code, "message": "m", "since": since, "next_step": "n" });
            rows.iter().map(row).collect()
        };
        serde_json::from_value(json!({
            "name": "example", "url": "u", "mirror": "m", "state": "ok", "error": null, "attention": rows(attention),
            "sets": [{
                "capability_list": "list", "state": "in-sync", "attention": rows(of_set), "synced_until": null, "gaps": [],
                "resources": 0, "bytes": 0, "pending": 0, "failed": 0, "held_deletions": 0, "channels": [],
                "last_poll_at": null, "next_poll_at": null, "error": null
            }]
        }))
        .unwrap()
    }

    fn subjects<'a>(
        found: impl Iterator<Item = (&'a Subject, &'a Attention)>,
    ) -> Vec<(Option<&'a str>, &'a str)> {
        found
            .map(|(subject, _)| (subject.set.as_deref(), subject.code.as_str()))
            .collect()
    }

    #[test]
    fn attention_is_logged_when_it_begins_and_when_it_is_over() {
        let of = |source: SourceStatus| attentions(source.attentions());
        let none = of(source(&[], &[]));
        let refused = Attention::new("configuration-refused", "m", "1".to_owned(), "n");
        let of_daemon = attentions([(None, None, &refused)].into_iter());
        let of_source = of(source(&[("mirror-unusable", "1")], &[]));
        let of_set = [("held-deletions", "1"), ("failed-resources", "1")];
        let of_set = of(source(&[], &of_set));
        // Two channels of a set are one subject, and another time is no other attention.
        let of_channels = [("channel-unverified", "1"), ("channel-unverified", "2")];
        let of_channels = of(source(&[], &of_channels));
        let later = of(source(&[], &[("channel-unverified", "3")]));
        let mirror = (None, "mirror-unusable");
        let configuration = (None, "configuration-refused");
        let set = |code| (Some("list"), code);
        let (failed, held) = (set("failed-resources"), set("held-deletions"));
        for (before, now, begun, over) in [
            (&none, &none, vec![], vec![]),
            (&none, &of_source, vec![mirror], vec![]),
            (&none, &of_daemon, vec![configuration], vec![]),
            (&of_daemon, &none, vec![], vec![configuration]),
            (&of_source, &of_source, vec![], vec![]),
            (&of_source, &of_set, vec![failed, held], vec![mirror]),
            (&none, &of_channels, vec![set("channel-unverified")], vec![]),
            (&of_channels, &later, vec![], vec![]),
            (&of_set, &none, vec![], vec![failed, held]),
        ] {
            assert_eq!(subjects(missing_in(before, now)), begun);
            assert_eq!(subjects(missing_in(now, before)), over);
            assert_eq!(log_changes(before, now.clone()), *now);
        }
    }
}
