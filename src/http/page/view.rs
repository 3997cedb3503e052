//! What the pages show of the status. The templates read the status itself; here is what is chosen, sorted and bounded of it, and how
//! it is worded.
//!
//! Invariants: what a person should look at comes first. Every list is bounded, and what is left out is counted. Text from outside is
//! only shown: the templates escape it.

use std::path::Path;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

use super::chart::{Chart, charts};
use super::display::{Moment, counted, duration, resource_page, source_page, time};
use super::forms::Caller;
use super::strip::{Strip, strip};
use crate::status::{
    Activity, ClosedGapStatus, GapStatus, SetStatus, SourceStatus, Status, apply_delay, rank,
};
use crate::store::{FeedEntry, ResourceView};

/// How many attentions a page shows.
pub(super) const ATTENTIONS: usize = 50;
/// How many sets the page of a Source shows, and how many gaps of each.
const SETS: usize = 50;
const GAPS: usize = 50;

/// The first ones, and how many more there are.
pub(super) fn first<T>(all: impl IntoIterator<Item = T>, most: usize) -> (Vec<T>, usize) {
    let mut all = all.into_iter();
    (all.by_ref().take(most).collect(), all.count())
}

/// What every page has: what its template writes times, links and buttons with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shell<'a> {
    /// The way from the page to `/`, so that the page also works below a path of a reverse proxy.
    pub(super) root: &'static str,
    /// The page: the answers to its forms lead back to it.
    pub(super) page: Caller,
    pub(super) status: &'a Status,
    /// When the status was requested.
    pub(super) now: DateTime<Utc>,
}

impl<'a> Shell<'a> {
    pub(super) fn new(root: &'static str, page: Caller, status: &'a Status) -> Self {
        Self {
            root,
            page,
            status,
            now: time(&status.now).unwrap_or_default(),
        }
    }

    /// A time that the status states.
    pub(super) fn moment(&self, text: &str) -> Moment {
        Moment::parse(text, self.now)
    }

    pub(super) fn at(&self, time: &DateTime<Utc>) -> Moment {
        Moment::of(*time, self.now)
    }

    /// How long after one time another was, both as the status states them.
    pub(super) fn between(&self, from: &str, until: &str) -> String {
        let passed = time(from).zip(time(until));
        let passed = passed.map(|(from, until)| (until - from).num_seconds().max(0));
        passed.map_or_else(|| "?".to_owned(), duration)
    }

    /// The address of the page of a Source.
    pub(super) fn source_page(&self, name: &str) -> String {
        source_page(self.root, name)
    }

    /// The address of the page of a resource.
    pub(super) fn resource_page(&self, uri: &str) -> String {
        resource_page(self.root, uri)
    }

    /// The address of the file of a resource.
    pub(super) fn file_page(&self, uri: &str) -> String {
        self.resource_page(uri).replacen("resource", "file", 1)
    }

    /// The file of a resource; of a deleted one, the file that it had.
    pub(super) fn file(&self, resource: &ResourceView) -> Option<String> {
        let mut sources = self.status.sources.iter();
        let mirror = sources.find(|source| source.name == resource.source);
        let mirror = Path::new(mirror.map_or("", |source| source.mirror.as_str()));
        let path = resource.path.as_deref()?;
        Some(mirror.join(path).display().to_string())
    }

    /// A button that has something done about a Source. `action`: the operation that its form is sent to.
    pub(super) fn button(&self, source: &SourceStatus, action: &str) -> Button {
        let name = &source.name;
        let mut address = format!("{}sources/{name}/{action}{}", self.root, self.page.query());
        if matches!(action, "approve" | "reject") {
            // What is held back after the page was made is not decided by whoever has read it. Where nothing was counted nothing is
            // decided.
            address += &format!("&through={}", source.held_through().unwrap_or(0));
        }
        let warning = (action == "approve").then(|| {
            let held = source.sum(|set| set.held_deletions);
            let deletions = counted(held, "deletion", "deletions");
            format!("This approves {deletions} of {name}: the files are removed from the mirror.")
        });
        Button {
            name: format!("{action}-{name}"),
            action: address,
            label: match action {
                "poll" => "Poll now",
                "pause" => "Pause this Source",
                "resume" => "Resume",
                "retry" => "Try again now",
                "approve" => "Delete these files",
                "reject" => "Keep the files",
                _ => "Hold them back again",
            },
            warning,
        }
    }

    /// What can be done about an attention.
    pub(super) fn actions(&self, code: &str) -> &'static [&'static str] {
        match code {
            "held-deletions" => &["approve", "reject"],
            "failed-resources" => &["retry"],
            "source-paused" => &["resume"],
            "channel-unverified"
            | "channel-denied"
            | "channel-expired"
            | "channel-unconnected"
            | "channel-unregistered" => &["poll"],
            _ => &[],
        }
    }

    /// The sets of a Source, those first that a person should look at; and how many more there are.
    pub(super) fn sets(&self, source: &'a SourceStatus) -> (Vec<SetView<'a>>, usize) {
        let mut sets: Vec<(usize, &SetStatus)> = source.sets.iter().enumerate().collect();
        sets.sort_by_key(|(_, set)| (set.attention.is_empty(), rank(&set.state)));
        let (shown, more) = first(sets, SETS);
        let views = shown.into_iter().map(|(number, set)| {
            let (gaps, more_gaps) = first(&set.gaps, GAPS);
            let closed_gaps = set.closed_gaps.iter().rev();
            let (closed_gaps, more_closed) = first(closed_gaps, GAPS - gaps.len());
            let hours = [1, 24].map(TimeDelta::hours).into_iter();
            SetView {
                id: format!("set-{}-{number}", source.name),
                set,
                strips: hours.map(|it| strip(set, it, self.now)).collect(),
                gaps,
                closed_gaps,
                more_gaps: more_gaps + more_closed,
            }
        });
        (views.collect(), more)
    }

    /// How far a set is behind; `None`: it is not, or that is not known.
    pub(super) fn behind(&self, set: &SetStatus) -> Option<String> {
        let behind = set.behind(Some(self.now));
        let behind = behind.filter(|_| set.state != "in-sync")?;
        Some(duration(behind.num_seconds()))
    }

    /// The diagrams.
    pub(super) fn charts(&self, activity: &Activity) -> Vec<Chart> {
        charts(activity)
    }

    /// Since when everything is counted, if the diagrams reach further back.
    pub(super) fn counted_since(&self, activity: &Activity) -> Option<Moment> {
        let is_whole = activity.since <= self.now - TimeDelta::hours(24);
        (!is_whole).then(|| self.at(&activity.since))
    }

    /// How long after a change it was applied.
    pub(super) fn delay(&self, entry: &FeedEntry) -> Option<String> {
        let changed_at = entry.changed_at.map(|time| time.to_datetime());
        let delay = apply_delay(&entry.origin, changed_at, entry.applied_at);
        delay.map(delay_text)
    }
}

fn delay_text(delay: Duration) -> String {
    let milliseconds = delay.as_millis();
    match milliseconds {
        ..1000 => format!("{milliseconds} ms"),
        1000..10_000 => format!("{}.{} s", milliseconds / 1000, milliseconds % 1000 / 100),
        _ => duration(delay.as_secs().cast_signed()),
    }
}

/// A button.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Button {
    /// What it does, and for which Source: with its place it is unique on the page, so that the script gives the focus back to it.
    pub(super) name: String,
    /// Where its form is sent.
    pub(super) action: String,
    pub(super) label: &'static str,
    /// What has to be read before it is seen; `None`: nothing is lost by it.
    pub(super) warning: Option<String>,
}

/// A set, and what is drawn and chosen of it.
#[derive(Clone, Debug)]
pub(super) struct SetView<'a> {
    /// Unique on its page.
    pub(super) id: String,
    pub(super) set: &'a SetStatus,
    pub(super) strips: Vec<Strip>,
    pub(super) gaps: Vec<&'a GapStatus>,
    /// Those that were closed last come first.
    pub(super) closed_gaps: Vec<&'a ClosedGapStatus>,
    /// How many of both are left out.
    pub(super) more_gaps: usize,
}

/// How everything is, in a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Headline {
    /// `good`, `busy` or `bad`.
    pub(super) class: &'static str,
    pub(super) text: String,
}

pub(super) fn headline(status: &Status) -> Headline {
    let sources = |state: &str| {
        let sources = status.sources.iter();
        sources.filter(|source| source.state == state).count()
    };
    let sets = |state: &str| {
        let sets = status.sources.iter().flat_map(|source| &source.sets);
        sets.filter(|set| set.state == state).count()
    };
    let bad = [
        (
            status.attentions().count(),
            "thing needs attention",
            "things need attention",
        ),
        (
            sources("failing"),
            "Source is failing",
            "Sources are failing",
        ),
        (sets("failing"), "set is failing", "sets are failing"),
        (sets("gap"), "set has a gap", "sets have gaps"),
    ];
    let busy = [
        (
            sets("baseline"),
            "set makes its first copy",
            "sets make their first copies",
        ),
        (sets("catching-up"), "set catches up", "sets catch up"),
        (
            sources("discovering"),
            "Source is being discovered",
            "Sources are being discovered",
        ),
    ];
    let in_sync = sets("in-sync");
    let is_any = |counts: &[(usize, &str, &str)]| counts.iter().any(|(count, ..)| *count > 0);
    let (is_bad, is_busy) = (is_any(&bad), is_any(&busy));
    if !is_bad && !is_busy {
        let sets = counted(in_sync as u64, "set", "sets");
        let sources = counted(status.sources.len() as u64, "Source", "Sources");
        return Headline {
            class: "good",
            text: format!("Everything is in sync: {sets} of {sources}"),
        };
    }
    let well = [(in_sync, "set is in sync", "sets are in sync")];
    let parts = bad.into_iter().chain(busy).chain(well);
    let parts = parts.filter(|(count, ..)| *count > 0);
    let parts: Vec<String> = parts
        .map(|(count, one, several)| counted(count as u64, one, several))
        .collect();
    Headline {
        class: if is_bad { "bad" } else { "busy" },
        text: parts.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::http::page::rows::{Filter, rows};
    use crate::status::Attention;

    fn set(state: &str, codes: &[&str]) -> serde_json::Value {
        let attention = codes.iter().map(
            |code| json!({ "code": code, "message": "m", "since": "2026-01-01T00:00:00Z", "next_step": "n" }),
        );
        json!({
            "capability_list": format!("https://example.org/{state}"), "state": state,
            "attention": attention.collect::<Vec<_>>(),
            "synced_until": "2026-01-01T00:00:00Z", "gaps": [], "resources": 1, "bytes": 1, "pending": 0, "failed": 0,
            "held_deletions": 7, "held_through": 3, "channels": [], "last_poll_at": null, "next_poll_at": null, "error": null
        })
    }

    fn status(sources: &[(&str, Vec<serde_json::Value>)]) -> Status {
        let sources = sources.iter().map(|(name, sets)| {
            let state = if sets.is_empty() { "discovering" } else { "ok" };
            json!({ "name": name, "url": "u", "mirror": "m", "state": state, "error": null, "sets": sets })
        });
        serde_json::from_value(json!({
            "version": "1", "started_at": "2026-01-01T00:00:00Z", "now": "2026-01-01T00:02:00Z",
            "sources": sources.collect::<Vec<_>>()
        }))
        .unwrap()
    }

    fn front(status: &Status) -> Shell<'_> {
        Shell::new("./", Caller::FrontPage, status)
    }

    #[test]
    fn headline_states_the_worst_first() {
        for (sets, class, text) in [
            (
                vec![set("in-sync", &[])],
                "good",
                "Everything is in sync: 1 set of 1 Source",
            ),
            (
                vec![set("in-sync", &[]), set("catching-up", &[])],
                "busy",
                "1 set catches up, 1 set is in sync",
            ),
            (
                vec![set("in-sync", &[]), set("gap", &[]), set("gap", &[])],
                "bad",
                "2 sets have gaps, 1 set is in sync",
            ),
            (
                vec![set("catching-up", &["held-deletions"])],
                "bad",
                "1 thing needs attention, 1 set catches up",
            ),
            (vec![], "busy", "1 Source is being discovered"),
        ] {
            let found = headline(&status(&[("a", sets)]));
            assert_eq!((found.class, found.text.as_str()), (class, text));
        }
    }

    #[test]
    fn what_needs_attention_comes_first() {
        let status = status(&[
            ("well", vec![set("in-sync", &[])]),
            ("behind", vec![set("in-sync", &[]), set("catching-up", &[])]),
            (
                "held",
                vec![set("in-sync", &[]), set("catching-up", &["held-deletions"])],
            ),
            ("also-well", vec![set("in-sync", &[])]),
            ("failing", vec![set("failing", &[])]),
        ]);
        let shell = front(&status);
        let (found, more) = rows(&shell, &Filter::default(), |_| None);
        let names: Vec<&str> = found.iter().map(|it| it.source.name.as_str()).collect();
        assert_eq!(names, ["held", "failing", "behind", "well", "also-well"]);
        assert_eq!(more, 0);
        let states: Vec<&str> = found.iter().map(|it| it.state).collect();
        let expected = [
            "catching-up",
            "failing",
            "catching-up",
            "in-sync",
            "in-sync",
        ];
        assert_eq!(states, expected);
        assert_eq!(found[0].behind.as_deref(), Some("2 min 0 s"));
        assert_eq!(
            (found[0].held, found[3].behind.as_deref()),
            (14, None),
            "of both sets"
        );
        for (name, state, expected) in [
            ("WELL ", "", &["well", "also-well"][..]),
            ("", "failing", &["failing"]),
            ("e", "catching-up", &["held", "behind"]),
            ("", "unknown", &[]),
        ] {
            let filter = Filter {
                name: name.to_owned(),
                state: state.to_owned(),
            };
            let (found, _) = rows(&shell, &filter, |_| None);
            let names: Vec<&str> = found.iter().map(|it| it.source.name.as_str()).collect();
            assert_eq!(names, expected, "{name:?} {state:?}");
        }
        let (held, _) = shell.sets(found[0].source);
        assert_eq!(
            (held[0].set.state.as_str(), held[0].id.as_str()),
            ("catching-up", "set-held-1")
        );
        let behind = |view: &SetView<'_>| shell.behind(view.set);
        assert_eq!(behind(&held[0]).as_deref(), Some("2 min 0 s"));
        assert_eq!(behind(&held[1]), None);
    }

    #[test]
    fn attention_has_the_buttons_that_help() {
        let status = status(&[(
            "a",
            vec![set(
                "gap",
                &["held-deletions", "failed-resources", "mirror-unusable"],
            )],
        )]);
        let shell = front(&status);
        let buttons = |code: &str| -> Vec<Button> {
            let actions = shell.actions(code).iter();
            actions
                .map(|action| shell.button(&status.sources[0], action))
                .collect()
        };
        let actions =
            |code: &str| -> Vec<String> { buttons(code).into_iter().map(|it| it.action).collect() };
        assert_eq!(
            actions("held-deletions"),
            [
                "./sources/a/approve?back=front&through=3",
                "./sources/a/reject?back=front&through=3"
            ]
        );
        assert_eq!(
            actions("failed-resources"),
            ["./sources/a/retry?back=front"]
        );
        assert!(actions("mirror-unusable").is_empty());
        // What can't be undone says so.
        let held = buttons("held-deletions");
        let warning = held[0].warning.as_ref().unwrap();
        assert!(warning.contains("7 deletions of a"));
        assert_eq!(held[1].warning, None);
    }

    #[test]
    fn what_the_daemon_needs_is_shown_first_and_counted() {
        let mut status = status(&[("a", vec![set("in-sync", &["failed-resources"])])]);
        let since = "2026-01-01T00:00:00Z".to_owned();
        let refused = Attention::new("configuration-refused", "m", since, "n");
        status.attention = vec![refused];
        assert_eq!(headline(&status).class, "bad");
        assert!(
            headline(&status)
                .text
                .starts_with("2 things need attention")
        );
        let found: Vec<_> = status.attentions().collect();
        assert!(found[0].0.is_none() && found[0].2.code == "configuration-refused");
        assert_eq!(found[1].0.unwrap().name, "a");
    }

    #[test]
    fn lists_are_bounded() {
        let sets = || (0..60).map(|_| set("in-sync", &["held-deletions"]));
        let names: Vec<String> = (0..150).map(|number| format!("s{number}")).collect();
        let sources: Vec<_> = names
            .iter()
            .map(|name| (name.as_str(), sets().take(5).collect()))
            .collect();
        let many = status(&sources);
        let (found, more) = rows(&front(&many), &Filter::default(), |_| None);
        assert_eq!((found.len(), more), (100, 50));
        let (found, more) = first(many.attentions(), ATTENTIONS);
        assert_eq!((found.len(), more), (50, 700));
        let one = status(&[("a", sets().collect())]);
        let shell = Shell::new("", Caller::SourcePage, &one);
        let (views, more) = shell.sets(&one.sources[0]);
        assert_eq!((views.len(), more), (50, 10));
    }

    #[test]
    fn gaps_that_are_not_listed_are_counted() {
        let mut of_gaps = set("gap", &[]);
        let gap = json!({ "from": "2026-01-01T00:00:00Z", "until": "2026-01-01T00:00:01Z", "reason": "r", "since": "2026-01-01T00:00:00Z" });
        of_gaps["gaps"] = vec![gap.clone(); 60].into();
        let mut closed = gap;
        closed["closed_at"] = "2026-01-01T00:00:08Z".into();
        of_gaps["closed_gaps"] = vec![closed; 2].into();
        let status = status(&[("a", vec![of_gaps])]);
        let shell = Shell::new("", Caller::SourcePage, &status);
        let (sets, _) = shell.sets(&status.sources[0]);
        let closed = &sets[0].closed_gaps;
        let found = (sets[0].gaps.len(), closed.len(), sets[0].more_gaps);
        assert_eq!(found, (50, 0, 12));
    }

    #[test]
    fn delays_are_short_texts() {
        for (milliseconds, expected) in [
            (0, "0 ms"),
            (999, "999 ms"),
            (1250, "1.2 s"),
            (65_000, "1 min 5 s"),
        ] {
            let delay = Duration::from_millis(milliseconds);
            assert_eq!(delay_text(delay), expected);
        }
    }
}
