//! The status as text: what waits for a person, then a table of the Sources, or all details of a single one. The template
//! `templates/status.txt` has the lines; here is how they are sorted, wrapped and coloured.

use askama::Template;
use chrono::{DateTime, Utc};
use indicatif::HumanBytes;

use super::colours::Colours;
use super::human::{cut, short_time, with_age, wrapped};
use super::up_to_date::{checked, up_to_date};
use crate::status::{
    Attention, CountedError, OddityStatus, SetStatus, SourceStatus, Status, StatusError,
};

/// The number of columns that a table, and a sentence, have at most.
const WIDTH: usize = 80;
/// The widths of the first columns of the table; numbers and times follow.
const NAME: usize = 20;
const STATE: usize = 11;

/// What is printed for people. A single Source has all its details, several have a line each.
pub(super) fn status_text(status: &Status, colours: Colours) -> String {
    let text = StatusText {
        status,
        now: status.now.parse().ok(),
        colours,
    };
    let text = text.render();
    text.unwrap_or_else(|error| format!("the status cannot be shown: {error}\n"))
}

#[derive(Template)]
#[template(path = "status.txt")]
struct StatusText<'a> {
    status: &'a Status,
    /// When the status was requested; `None`: that can't be read.
    now: Option<DateTime<Utc>>,
    colours: Colours,
}

impl<'a> StatusText<'a> {
    /// The lines of what waits for a person, with the next step.
    fn attention(
        &self,
        source: &Option<&SourceStatus>,
        set: &Option<&SetStatus>,
        found: &Attention,
    ) -> String {
        let Attention { code, message, .. } = found;
        let subject = source.map_or_else(String::new, |source| format!("{}: ", source.name));
        let of_set = set.map_or_else(String::new, |set| format!(" ({})", set.capability_list));
        let since = self.age(&found.since);
        let text = format!("{subject}{message}{of_set} [{code}, since {since}]");
        let alarm = wrapped(&text, "! ", WIDTH);
        let alarm = alarm.iter().map(|line| self.colours.alarm(line) + "\n");
        alarm
            .chain([self.wrapped(&found.next_step, "  ")])
            .collect()
    }

    /// The lines of a text.
    fn wrapped(&self, text: &str, first: &str) -> String {
        wrapped(text, first, WIDTH).join("\n") + "\n"
    }

    fn error(&self, error: &StatusError, indent: &str) -> String {
        let StatusError { code, message, at } = error;
        self.wrapped(&format!("{message} [{code}, {at}]"), &format!("{indent}! "))
    }

    fn notice(&self, notice: &CountedError, indent: &str) -> String {
        let CountedError { code, message, .. } = notice;
        self.wrapped(&format!("{message} [{code}]"), &format!("{indent}- "))
    }

    /// The keys that a reload could not apply.
    fn restart(&self, keys: &[String]) -> String {
        self.wrapped(&format!("restart to apply: {}", keys.join(", ")), "- ")
    }

    /// A time, with its distance from now.
    fn age(&self, time: &str) -> String {
        with_age(time, self.now)
    }

    fn known_age(&self, time: &Option<String>) -> String {
        let time = time.as_deref();
        time.map_or_else(|| "not known".to_owned(), |time| self.age(time))
    }

    fn up_to_date(&self, set: &SetStatus) -> String {
        up_to_date(set, self.now) + &checked(set, self.now)
    }

    fn state(&self, state: &str) -> String {
        self.colours.state(state, state)
    }

    fn bytes(&self, bytes: &u64) -> HumanBytes {
        HumanBytes(*bytes)
    }

    /// The Source whose details are shown.
    fn single(&self) -> Option<&'a SourceStatus> {
        match &self.status.sources[..] {
            [source] => Some(source),
            _ => None,
        }
    }

    /// The Sources, those first that fail or wait for a person.
    fn sources(&self) -> Vec<&'a SourceStatus> {
        let mut sources: Vec<&SourceStatus> = self.status.sources.iter().collect();
        sources.sort_by_key(|source| !needs_attention(source));
        sources
    }

    /// The sets of a Source, those first that fail or wait for a person.
    fn sets(&self, source: &'a SourceStatus) -> Vec<&'a SetStatus> {
        let mut sets: Vec<&SetStatus> = source.sets.iter().collect();
        sets.sort_by_key(|set| !set_needs_attention(set));
        sets
    }

    /// The current errors of a Source and of its sets.
    fn errors(&self, source: &'a SourceStatus) -> impl Iterator<Item = &'a StatusError> {
        let of_sets = source.sets.iter().filter_map(|set| set.error.as_ref());
        source.error.iter().chain(of_sets)
    }

    /// Whether an error of a set is another one than its most severe one, which is shown by itself.
    fn is_other(&self, set: &SetStatus, error: &CountedError) -> bool {
        let shown = set.error.as_ref();
        shown.is_none_or(|shown| shown.code != error.code)
    }

    fn is_of_one_document(one: &OddityStatus, next: &OddityStatus) -> bool {
        one.document == next.document
    }

    /// The row of a Source: its sets together.
    fn source_row(&self, source: &SourceStatus) -> String {
        let state = source.state_with_sets();
        let behind = source.behind(self.now).map(short_time);
        let numbers = [
            &source.sum(|set| set.resources).to_string(),
            &HumanBytes(source.sum(|set| set.bytes)).to_string(),
            &source.sum(|set| set.pending).to_string(),
            &source.sum(|set| set.failed).to_string(),
            behind.as_deref().unwrap_or("-"),
        ];
        // Colours count as characters.
        let state = self.colours.state(state, &format!("{state:STATE$}"));
        self.row(&cut(&source.name, NAME), state, &numbers)
    }

    fn row(&self, name: &str, state: String, numbers: &[&str; 5]) -> String {
        let [resources, size, pending, failed, behind] = numbers;
        format!(
            "{name:NAME$} {state:STATE$} {resources:>11} {size:>10} {pending:>8} {failed:>7} {behind:>7}"
        )
    }
}

/// Whether a Source, or one of its sets, fails or waits for a person.
fn needs_attention(source: &SourceStatus) -> bool {
    let fails = source.state == "failing" || !source.attention.is_empty();
    fails || source.sets.iter().any(set_needs_attention)
}

fn set_needs_attention(set: &SetStatus) -> bool {
    matches!(set.state.as_str(), "failing" | "gap") || !set.attention.is_empty()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The lines of the details of a Source.
    fn details(source: &SourceStatus) -> Vec<String> {
        let mut status = status(&[]);
        status.now = "2026-01-03T00:10:00Z".to_owned();
        status.sources = vec![source.clone()];
        let text = status_text(&status, Colours::NONE);
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn dead_parts_unread_entries_and_further_errors_have_lines() {
        let mut source = source("failing");
        let set = serde_json::json!({
            "capability_list": "http://example.com/", "state": "failing", "synced_until": null, "gaps": [],
            "resources": 0, "bytes": 0, "pending": 0, "failed": 0, "held_deletions": 0, "channels": [],
            "last_poll_at": null, "next_poll_at": null, "dead_parts": 4, "unread": 2,
            "error": {"code": "not-found", "message": "gone", "at": "now"},
            "errors": [
                {"code": "not-found", "message": "gone", "at": "now", "count": 3},
                {"code": "timeout", "message": "slow", "at": "now", "count": 1},
            ],
        });
        source.sets = vec![serde_json::from_value(set).unwrap()];
        assert_eq!(
            details(&source)[4..],
            [
                "    ! gone [not-found, now]",
                "    4 parts of its indexes can't be read",
                "    2 entries of its documents can't be read",
                "    ! 3 times [not-found]",
                "    ! slow [timeout, 1 times]",
            ]
        );
    }

    /// A set in that state, with an attention of each code.
    pub(crate) fn set(list: &str, state: &str, attention: &[&str]) -> serde_json::Value {
        serde_json::json!({
            "capability_list": list, "state": state, "synced_until": null, "gaps": [],
            "resources": 0, "bytes": 0, "pending": 0, "failed": 0, "held_deletions": 0, "channels": [],
            "last_poll_at": null, "next_poll_at": null, "error": null, "attention": attentions(attention),
        })
    }

    fn attentions(codes: &[&str]) -> Vec<serde_json::Value> {
        let attention = |code: &&str| serde_json::json!({ "code": code, "message": "wrong", "since": "then", "next_step": "mend it" });
        codes.iter().map(attention).collect()
    }

    pub(crate) fn status(sources: &[(&str, &str, &[&str], Vec<serde_json::Value>)]) -> Status {
        let source = |(name, state, attention, sets): &(&str, &str, &[&str], Vec<_>)| {
            serde_json::json!({
                "name": name, "url": "u", "mirror": "m", "state": state, "error": null,
                "attention": attentions(attention), "sets": sets,
            })
        };
        let sources: Vec<_> = sources.iter().map(source).collect();
        let status = serde_json::json!({ "version": "1", "started_at": "s", "now": "n", "sources": sources });
        serde_json::from_value(status).unwrap()
    }

    #[test]
    fn what_waits_for_a_person_comes_first() {
        let status = status(&[
            ("a", "ok", &[], vec![set("well", "in-sync", &[])]),
            (
                "b",
                "ok",
                &[],
                vec![
                    set("well", "in-sync", &[]),
                    set("held", "catching-up", &["held-deletions"]),
                    set("failing", "failing", &[]),
                ],
            ),
            ("c", "failing", &["mirror-unusable"], vec![]),
        ]);
        let text = status_text(&status, Colours::NONE);
        let lines: Vec<&str> = text.lines().take(4).collect();
        assert_eq!(
            lines,
            [
                "! b: wrong (held) [held-deletions, since then]",
                "  mend it",
                "! c: wrong [mirror-unusable, since then]",
                "  mend it",
            ]
        );
        let text = shown(&status);
        let names: Vec<_> = text.sources().iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["b", "c", "a"]);
        let sets = text.sets(&status.sources[1]).into_iter();
        let lists: Vec<_> = sets.map(|set| set.capability_list.as_str()).collect();
        assert_eq!(lists, ["held", "failing", "well"]);
    }

    fn shown(status: &Status) -> StatusText<'_> {
        StatusText {
            status,
            now: status.now.parse().ok(),
            colours: Colours::NONE,
        }
    }

    #[test]
    fn what_the_daemon_itself_waits_for_comes_first() {
        let mut status = status(&[("a", "failing", &["mirror-unusable"], vec![])]);
        let refused = attentions(&["configuration-refused"]);
        status.attention = serde_json::from_value(refused.into()).unwrap();
        let keys = ["http.timeout", "log.format"];
        status.configuration.restart_required = keys.map(str::to_owned).to_vec();
        let text = status_text(&status, Colours::NONE);
        let lines: Vec<&str> = text.lines().take(6).collect();
        assert_eq!(
            lines,
            [
                "! wrong [configuration-refused, since then]",
                "  mend it",
                "! a: wrong [mirror-unusable, since then]",
                "  mend it",
                "- restart to apply: http.timeout, log.format",
                "",
            ]
        );
    }

    #[test]
    fn former_source_has_what_it_left_and_the_next_step() {
        let mut status = status(&[]);
        let former = serde_json::json!([
            { "name": "gone", "url": "u", "mirror": "/srv/gone", "resources": 3, "bytes": 2048 },
            { "name": "older", "url": null, "mirror": null, "resources": 0, "bytes": 0 },
        ]);
        status.former_sources = serde_json::from_value(former).unwrap();
        let text = status_text(&status, Colours::NONE);
        let lines: Vec<&str> = text.lines().rev().take(4).collect();
        assert_eq!(
            lines,
            [
                "  `resyncd forget older` deletes its rows in the database, with --delete-files its files as well",
                "older: not followed any more; 0 resources, 0 B in its mirror",
                "  `resyncd forget gone` deletes its rows in the database, with --delete-files its files as well",
                "gone: not followed any more; 3 resources, 2.00 KiB in /srv/gone",
            ]
        );
    }

    #[test]
    fn each_document_with_oddities_has_one_line() {
        let row = |document: &str, code: &str, count| OddityStatus {
            document: document.to_owned(),
            code: code.to_owned(),
            count,
        };
        let mut source = source("in-sync");
        assert_eq!(details(&source).len(), 4);
        source.sets[0].oddities = vec![
            row("http://example.com/1.xml", "no-up", 1),
            row("http://example.com/1.xml", "bad-loc", 12),
            row("http://example.com/2.xml", "no-up", 1),
        ];
        assert_eq!(
            details(&source)[4..],
            [
                "    oddities: http://example.com/1.xml (no-up=1 bad-loc=12)",
                "    oddities: http://example.com/2.xml (no-up=1)",
            ]
        );
    }

    #[test]
    fn several_sources_are_a_table_of_80_columns() {
        let named = |name: &str, state: &str| {
            let mut source = serde_json::to_value(source(state)).unwrap();
            source["name"] = name.into();
            source
        };
        let sources: Vec<_> = (0..20)
            .map(|number| named(&format!("{number:02}-a-long-name-of-a-source"), "in-sync"))
            .chain([named("broken", "failing"), named("new", "baseline")])
            .collect();
        let status = serde_json::json!({
            "version": "1", "started_at": "s", "now": "2026-01-03T00:10:00Z", "sources": sources,
        });
        let text = status_text(&serde_json::from_value(status).unwrap(), Colours::NONE);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 1 + 22 + 2 + 2, "{text}");
        for line in &lines {
            assert!(line.chars().count() <= 80, "{line}");
        }
        assert_eq!(
            lines[..3],
            [
                "SOURCE               STATE         RESOURCES       SIZE  PENDING  FAILED  BEHIND",
                "broken               failing         2600000   1.50 TiB        7       1   5 min",
                "  ! the Capability List can't be read, because the server has answered 404 twice",
            ],
            "{text}"
        );
        assert!(
            lines[4].starts_with("00-a-long-name-of-a… in-sync "),
            "{text}"
        );
    }

    /// A Source with a set in that state.
    fn source(state: &str) -> SourceStatus {
        let error = serde_json::json!({
            "code": "not-found", "at": "now",
            "message": "the Capability List can't be read, because the server has answered 404 twice",
        });
        let mut set = set("list", state, &[]);
        set["synced_until"] = "2026-01-03T00:05:00Z".into();
        set["resources"] = 2_600_000.into();
        set["bytes"] = (3_u64 << 39).into();
        set["pending"] = 7.into();
        set["failed"] = 1.into();
        if state == "failing" {
            set["error"] = error;
        }
        let source = serde_json::json!({
            "name": "", "url": "u", "mirror": "m", "state": "ok", "error": null, "sets": [set],
        });
        serde_json::from_value(source).unwrap()
    }

    #[test]
    fn hooks_have_lines_among_the_details_of_a_source() {
        let mut source = source("in-sync");
        let hook = serde_json::json!({
            "name": "index", "kind": "command", "position": 7, "behind": 3, "running": false, "accepted": 1, "failed": 2,
            "last_accepted_at": null, "failing_since": "2026-01-03T00:05:00Z", "next_try_at": null, "stopped": false,
            "error": {"code": "command-failed", "message": "exit status: 3", "at": "now"},
        });
        source.hooks = vec![serde_json::from_value(hook).unwrap()];
        let failing = details(&source);
        let line = &failing[1];
        assert!(
            line.starts_with("  hook index (command): failing since "),
            "{failing:#?}"
        );
        assert!(
            line.ends_with("; position 7, 3 entries of the feed behind"),
            "{failing:#?}"
        );
        assert_eq!(failing[2], "    ! exit status: 3 [command-failed, now]");
        source.hooks[0].failing_since = None;
        source.hooks[0].running = true;
        assert!(details(&source)[1].contains(": running; "));
        source.hooks[0].stopped = true;
        assert!(details(&source)[1].contains(": stopped; "));
    }

    #[test]
    fn sets_of_a_source_are_one_line_with_the_worst_of_them() {
        let mut status = status(&[]);
        status.now = "2026-01-03T00:10:00Z".to_owned();
        let mut all = source("in-sync");
        all.sets.extend(source("gap").sets);
        all.sets.extend(source("catching-up").sets);
        all.sets[1].synced_until = Some("2026-01-02T00:10:00Z".to_owned());
        let row = |source: &SourceStatus| shown(&status).source_row(source);
        let words =
            |row: String| -> Vec<String> { row.split_whitespace().map(str::to_owned).collect() };
        let expected = ["gap", "7800000", "4.50", "TiB", "21", "3", "24", "h"];
        assert_eq!(words(row(&all)), expected);
        all.sets[2].synced_until = None;
        assert!(row(&all).ends_with(" -"));
        all.state = "discovering".to_owned();
        assert_eq!(words(row(&all))[0], "discovering");
    }
}
