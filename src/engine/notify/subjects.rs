//! What people are told of: what waits for them, and Sources that fail.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::config::Notify;
use crate::status::{Attention, SourceStatus, Status};

/// What a message is about: a code of the daemon, of a Source, or of one of its sets.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Subject {
    /// The label of the Source; `None`: it is about the daemon.
    pub(super) source: Option<String>,
    /// The Capability List of the set; `None`: it is about the Source, or the daemon.
    pub(super) set: Option<String>,
    /// The code of the attention, or [`Notify::FAILING`].
    pub(super) code: String,
}

/// What there is to tell, each once.
pub(super) type Subjects = BTreeMap<Subject, Attention>;

/// What waits for a person: each code of the daemon, of a Source, or of one of its sets, once.
pub(super) fn attentions(status: &Status) -> Subjects {
    let mut subjects = Subjects::new();
    for (source, set, found) in status.attentions() {
        let subject = Subject {
            source: source.map(|source| source.name.clone()),
            set: set.map(|set| set.capability_list.clone()),
            code: found.code.clone(),
        };
        let known = subjects.entry(subject);
        known.or_insert_with(|| found.clone());
    }
    subjects
}

/// The Sources that fail, also if only one of their sets does.
pub(super) fn failures(status: &Status) -> Subjects {
    let failing = |source: &SourceStatus| {
        let of_source = source.error.as_ref().filter(|_| source.state == "failing");
        let mut sets = source.sets.iter().filter(|set| set.state == "failing");
        let (error, since) = match of_source {
            Some(error) => (error, source.failing_since.as_ref()),
            None => sets.find_map(|set| Some((set.error.as_ref()?, set.failing_since.as_ref())))?,
        };
        let name = &source.name;
        let attention = Attention {
            code: Notify::FAILING.to_owned(),
            message: format!("{} [{}]", error.message, error.code),
            since: since.unwrap_or(&error.at).clone(),
            next_step: format!(
                "`resyncd explain {}` says what it means, `resyncd status {name}` when it is tried next",
                error.code
            ),
        };
        let subject = Subject {
            source: Some(name.clone()),
            set: None,
            code: Notify::FAILING.to_owned(),
        };
        Some((subject, attention))
    };
    status.sources.iter().filter_map(failing).collect()
}

/// Logs what begins to wait for a person, and what does not any more.
pub(super) fn log_changes(before: &Subjects, now: &Subjects) {
    for (Subject { source, set, code }, attention) in missing_in(before, now) {
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
    for (Subject { source, set, code }, _) in missing_in(now, before) {
        let (source, set) = (source.as_deref(), set.as_deref());
        tracing::info!(code, source, set, "attention no longer needed");
    }
}

/// What is in `of` and not in `known`.
fn missing_in<'a>(
    known: &'a Subjects,
    of: &'a Subjects,
) -> impl Iterator<Item = (&'a Subject, &'a Attention)> {
    of.iter()
        .filter(|(subject, _)| !known.contains_key(subject))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn status(of_daemon: &[&str], of_source: &[(&str, &str)], of_set: &[(&str, &str)]) -> Status {
        let row = |(code, since): &(&str, &str)| json!({ "code": code, "message": "m", "since": since, "next_step": "n" });
        let rows = |rows: &[(&str, &str)]| -> Vec<Value> { rows.iter().map(row).collect() };
        let of_daemon: Vec<_> = of_daemon.iter().map(|code| (*code, "1")).collect();
        serde_json::from_value(json!({
            "version": "v", "started_at": "1", "now": "2", "attention": rows(&of_daemon),
            "sources": [{
                "name": "example", "url": "u", "mirror": "m", "state": "ok", "error": null, "attention": rows(of_source),
                "sets": [{
                    "capability_list": "list", "state": "in-sync", "attention": rows(of_set), "synced_until": null, "gaps": [],
                    "resources": 0, "bytes": 0, "pending": 0, "failed": 0, "held_deletions": 0, "channels": [],
                    "last_poll_at": null, "next_poll_at": null, "error": null
                }]
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
        let of = |status: Status| attentions(&status);
        let none = of(status(&[], &[], &[]));
        let of_daemon = of(status(&["configuration-refused"], &[], &[]));
        let of_source = of(status(&[], &[("mirror-unusable", "1")], &[]));
        let of_set = [("held-deletions", "1"), ("failed-resources", "1")];
        let of_set = of(status(&[], &[], &of_set));
        // Two channels of a set are one subject, and another time is no other attention.
        let of_channels = [("channel-unverified", "1"), ("channel-unverified", "2")];
        let of_channels = of(status(&[], &[], &of_channels));
        let later = of(status(&[], &[], &[("channel-unverified", "3")]));
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
        }
    }

    #[test]
    fn source_fails_if_it_does_or_one_of_its_sets() {
        let error = |code: &str| json!({ "code": code, "message": "no answer", "at": "2" });
        let found = |of_source: Option<&str>, of_set: Option<&str>| {
            let mut value = serde_json::to_value(status(&[], &[], &[])).unwrap();
            let source = &mut value["sources"][0];
            if let Some(code) = of_source {
                source["state"] = json!("failing");
                source["error"] = error(code);
                source["failing_since"] = json!("1");
            }
            if let Some(code) = of_set {
                source["sets"][0]["state"] = json!("failing");
                source["sets"][0]["error"] = error(code);
            }
            let failures = failures(&serde_json::from_value(value).unwrap());
            let rows = failures.into_iter();
            let rows = rows.map(|(subject, found)| {
                assert_eq!((subject.set, subject.code.as_str()), (None, "failing"));
                (found.message, found.since)
            });
            rows.collect::<Vec<_>>()
        };
        let row = |message: &str, since: &str| vec![(message.to_owned(), since.to_owned())];
        assert_eq!(found(None, None), []);
        assert_eq!(found(Some("dns"), None), row("no answer [dns]", "1"));
        assert_eq!(found(None, Some("tls")), row("no answer [tls]", "2"));
        assert_eq!(found(Some("dns"), Some("tls")), row("no answer [dns]", "1"));
    }
}
