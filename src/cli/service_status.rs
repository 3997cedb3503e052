//! The line that `systemctl status` shows (sd_notify(3), `STATUS=`).

use std::collections::BTreeSet;
use std::time::Duration;

use crate::status::{SetStatus, SourceStatus, Status, StatusError};

/// How often it may change. Each time costs as much as a request of the status.
const INTERVAL: Duration = Duration::from_secs(10);

/// Shows a line for ever, and again whenever it is another one.
pub(super) async fn report<F: Future<Output = Result<Status, StatusError>>>(
    mut read: impl FnMut() -> F,
    mut show: impl FnMut(&str),
) {
    let mut shown = String::new();
    let mut pace = tokio::time::interval(INTERVAL);
    pace.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        pace.tick().await;
        let line = match read().await {
            Ok(status) => line(&status),
            Err(error) => format!("the status can't be read: {}", error.code),
        };
        if line != shown {
            show(&line);
            shown = line;
        }
    }
}

/// Counts, what fails, and what waits for a person.
fn line(status: &Status) -> String {
    let sources = &status.sources;
    let sets = || sources.iter().flat_map(|source| &source.sets);
    let synced = sets().filter(|set| set.state == "in-sync").count();
    let pending: u64 = sets().map(|set| set.pending).sum();
    let mut line = format!(
        "{}, {synced} of {} in sync, {pending} pending",
        counted(sources.len(), "Source"),
        counted(sets().count(), "set")
    );
    let failing = sources.iter().filter(|source| is_failing(source));
    let failing: Vec<&str> = failing.map(|source| source.name.as_str()).collect();
    append(&mut line, "failing", &failing);
    let codes = status.attentions().map(|(_, _, found)| found.code.as_str());
    let codes: BTreeSet<&str> = codes.collect();
    let codes: Vec<&str> = codes.into_iter().collect();
    append(&mut line, "attention", &codes);
    line
}

fn is_failing(source: &SourceStatus) -> bool {
    let fails = |set: &SetStatus| matches!(set.state.as_str(), "failing" | "gap");
    source.state == "failing" || source.sets.iter().any(fails)
}

fn counted(count: usize, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

/// Appends the first few names.
fn append(line: &mut String, what: &str, names: &[&str]) {
    const MOST: usize = 3;
    if names.is_empty() {
        return;
    }
    let shown = names[..names.len().min(MOST)].join(", ");
    line.push_str(&format!("; {what}: {shown}"));
    if names.len() > MOST {
        line.push_str(&format!(" and {} more", names.len() - MOST));
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use serde_json::{Value, json};

    use super::*;
    use crate::status::Status;

    fn attention(codes: &[&str]) -> Vec<Value> {
        let row =
            |code: &&str| json!({ "code": code, "message": "m", "since": "s", "next_step": "n" });
        codes.iter().map(row).collect()
    }

    fn set(state: &str, pending: u64, codes: &[&str]) -> Value {
        json!({
            "capability_list": "list", "state": state, "synced_until": null, "gaps": [], "resources": 0, "bytes": 0,
            "pending": pending, "failed": 0, "held_deletions": 0, "channels": [], "last_poll_at": null, "next_poll_at": null,
            "error": null, "attention": attention(codes),
        })
    }

    fn status(sources: &[(&str, &str, Vec<Value>)]) -> Status {
        let source = |(name, state, sets): &(&str, &str, Vec<Value>)| json!({ "name": name, "url": "u", "mirror": "m", "state": state, "error": null, "sets": sets });
        let sources: Vec<_> = sources.iter().map(source).collect();
        let status = json!({ "version": "1", "started_at": "s", "now": "n", "sources": sources });
        serde_json::from_value(status).unwrap()
    }

    #[test]
    fn line_counts_sets_and_names_what_fails_or_waits_for_a_person() {
        let synced = || set("in-sync", 0, &[]);
        for (sources, expected) in [
            (
                vec![("a", "ok", vec![synced()])],
                "1 Source, 1 of 1 set in sync, 0 pending",
            ),
            (
                vec![
                    (
                        "a",
                        "ok",
                        vec![synced(), set("catching-up", 5, &["held-deletions"])],
                    ),
                    ("b", "failing", vec![]),
                    ("c", "ok", vec![set("gap", 2, &["held-deletions"])]),
                ],
                "3 Sources, 1 of 3 sets in sync, 7 pending; failing: b, c; attention: held-deletions",
            ),
            (
                vec![
                    ("a", "failing", vec![]),
                    ("b", "failing", vec![]),
                    ("c", "failing", vec![]),
                    ("d", "failing", vec![]),
                    ("e", "discovering", vec![]),
                ],
                "5 Sources, 0 of 0 sets in sync, 0 pending; failing: a, b, c and 1 more",
            ),
        ] {
            assert_eq!(line(&status(&sources)), expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn line_is_shown_again_only_when_it_has_changed() {
        let pending = [1, 1, 1, 2, 2, 0];
        let mut pending = pending.into_iter();
        let shown = RefCell::new(Vec::new());
        let read = || {
            let set = pending
                .next()
                .map(|pending| set("catching-up", pending, &[]));
            async move {
                match set {
                    Some(set) => Ok(status(&[("a", "ok", vec![set])])),
                    None => std::future::pending().await,
                }
            }
        };
        let reporting = report(read, |line| shown.borrow_mut().push(line.to_owned()));
        let ended = tokio::time::timeout(INTERVAL * 100, reporting).await;
        assert!(ended.is_err(), "it never ends");
        let shown = shown.into_inner();
        let ends: Vec<_> = shown.iter().map(|line| line.rsplit(", ").next()).collect();
        assert_eq!(
            ends,
            [Some("1 pending"), Some("2 pending"), Some("0 pending")]
        );
    }
}
