//! The coverage of a set as a strip on a time line, in the Source's own time.
//!
//! Invariants: what is not known to be covered is not drawn as covered. A gap is at least as wide as can be seen. The strip is pure: the
//! same status gives the same strip.

use chrono::{DateTime, TimeDelta, Utc};

use super::display::{Moment, duration, time};
use crate::status::SetStatus;

/// The width of a strip, in units of its drawing.
const WIDTH: i64 = 1000;
/// The least width of a gap.
const LEAST: i64 = 6;

/// What is known of a stretch of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Knowledge {
    /// Every change is known.
    Covered,
    /// Every change is known since a gap was closed.
    Closed,
    /// Changes are missing.
    Gap,
}

impl Knowledge {
    /// The class of its rectangle.
    fn class(self) -> &'static str {
        match self {
            Self::Covered => "covered",
            Self::Closed => "closed",
            Self::Gap => "gap",
        }
    }
}

/// A rectangle of a strip.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    pub(super) class: &'static str,
    pub(super) x: i64,
    pub(super) width: i64,
    /// What it shows when it is pointed at.
    pub(super) title: String,
}

/// The strip.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Strip {
    /// Its first moment.
    pub(super) begins: Moment,
    /// Its last moment.
    pub(super) ends: Moment,
    pub(super) stretches: Vec<Stretch>,
    /// What it shows, in words.
    pub(super) summary: String,
}

/// A gap, open or closed, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GapRow {
    pub(super) from: Moment,
    pub(super) until: Moment,
    pub(super) reason: String,
    /// When it was detected.
    pub(super) since: Moment,
    /// When it was closed; `None`: it is open.
    pub(super) closed_at: Option<Moment>,
    /// How long it was open.
    pub(super) open_for: String,
}

/// The gaps of a set, the open ones first, then those that were closed last.
pub(super) fn gap_rows(set: &SetStatus, now: DateTime<Utc>) -> Vec<GapRow> {
    let open_for = |since: &str, until: Option<DateTime<Utc>>| {
        let seconds = time(since).zip(until).map(|(since, until)| until - since);
        seconds.map_or_else(|| "?".to_owned(), |it| duration(it.num_seconds().max(0)))
    };
    let open = set.gaps.iter().map(|gap| GapRow {
        from: Moment::parse(&gap.from, now),
        until: Moment::parse(&gap.until, now),
        reason: gap.reason.clone(),
        since: Moment::parse(&gap.since, now),
        closed_at: None,
        open_for: open_for(&gap.since, Some(now)),
    });
    let closed = set.closed_gaps.iter().rev().map(|gap| GapRow {
        from: Moment::parse(&gap.from, now),
        until: Moment::parse(&gap.until, now),
        reason: gap.reason.clone(),
        since: Moment::parse(&gap.since, now),
        closed_at: Some(Moment::parse(&gap.closed_at, now)),
        open_for: open_for(&gap.since, time(&gap.closed_at)),
    });
    open.chain(closed).collect()
}

/// Where times are on a strip.
struct Scale {
    begins: DateTime<Utc>,
    ends: DateTime<Utc>,
}

impl Scale {
    /// The place of a time, if need be at an end of the strip.
    fn place(&self, time: DateTime<Utc>) -> i64 {
        let length = (self.ends - self.begins).num_milliseconds().max(1);
        let before = (time.clamp(self.begins, self.ends) - self.begins).num_milliseconds();
        before.saturating_mul(WIDTH) / length
    }

    /// A stretch, at least that wide; `None`: it is outside.
    fn stretch(
        &self,
        knowledge: Knowledge,
        (from, until): (DateTime<Utc>, DateTime<Utc>),
        least: i64,
        title: String,
    ) -> Option<Stretch> {
        if until < self.begins || from > self.ends {
            return None;
        }
        let (from, until) = (self.place(from), self.place(until));
        let width = (until - from).max(least);
        let x = from.min(WIDTH - width);
        (width > 0).then(|| Stretch {
            class: knowledge.class(),
            x,
            width,
            title,
        })
    }
}

/// The strip of a set for this length of time up to now, and further back if a gap is open there.
pub(super) fn strip(set: &SetStatus, length: TimeDelta, now: DateTime<Utc>) -> Strip {
    let gaps = set.gaps.iter();
    let open: Vec<_> = gaps
        .filter_map(|gap| Some((time(&gap.from)?, time(&gap.until)?, gap)))
        .collect();
    let oldest = open.iter().map(|(from, ..)| *from).min();
    let begins = match oldest.filter(|&oldest| oldest < now - length) {
        // With something before it, so that it is seen to begin.
        Some(oldest) => oldest - (now - oldest) / 20,
        None => now - length,
    };
    let scale = Scale { begins, ends: now };
    let mut stretches = Vec::new();
    // Before the baseline nothing is proven. What the gaps leave of the time before the newest document is covered.
    let newest = set.newest_document_at.as_deref().and_then(time);
    let covered_until = newest.filter(|_| set.synced_until.is_some());
    if let Some(until) = covered_until {
        let title = "every change is known".to_owned();
        let from = begins.min(until);
        stretches.extend(scale.stretch(Knowledge::Covered, (from, until), 0, title));
    }
    for gap in &set.closed_gaps {
        if let Some((from, until)) = time(&gap.from).zip(time(&gap.until)) {
            let (reason, closed_at) = (&gap.reason, &gap.closed_at);
            let title = format!(
                "was missing: {reason}, {} to {}; closed at {closed_at}",
                gap.from, gap.until
            );
            stretches.extend(scale.stretch(Knowledge::Closed, (from, until), LEAST, title));
        }
    }
    for (from, until, gap) in &open {
        let (reason, since) = (&gap.reason, &gap.since);
        let title = format!(
            "missing: {reason}, {} to {}; open since {since}",
            gap.from, gap.until
        );
        stretches.extend(scale.stretch(Knowledge::Gap, (*from, *until), LEAST, title));
    }
    Strip {
        begins: Moment::of(begins, now),
        ends: Moment::of(now, now),
        stretches,
        summary: summary(set, covered_until, now),
    }
}

fn summary(set: &SetStatus, covered_until: Option<DateTime<Utc>>, now: DateTime<Utc>) -> String {
    let Some(until) = covered_until else {
        return "Nothing is proven to be covered yet.".to_owned();
    };
    let until = Moment::of(until, now);
    let closed = match set.closed_gaps.len() {
        0 => String::new(),
        1 => ", 1 closed".to_owned(),
        closed => format!(", {closed} closed"),
    };
    let open = match set.gaps.len() {
        0 => "no gap is open".to_owned(),
        1 => "1 gap is open".to_owned(),
        open => format!("{open} gaps are open"),
    };
    format!(
        "Covered up to {} UTC ({}); {open}{closed}.",
        until.shown, until.ago
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::status::rfc3339;

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::seconds(1_000_000 + seconds)
    }

    fn set(newest: Option<i64>, gaps: &[(i64, i64)], closed: &[(i64, i64)]) -> SetStatus {
        let newest = newest.map(|it| rfc3339(at(it)));
        let gap = |&(from, until): &(i64, i64)| {
            json!({
                "from": rfc3339(at(from)), "until": rfc3339(at(until)), "reason": "missing-notification",
                "since": rfc3339(at(until)), "closed_at": rfc3339(at(until + 7))
            })
        };
        serde_json::from_value(json!({
            "capability_list": "list", "state": "in-sync", "synced_until": newest, "newest_document_at": newest,
            "gaps": gaps.iter().map(gap).collect::<Vec<_>>(),
            "closed_gaps": closed.iter().map(gap).collect::<Vec<_>>(),
            "resources": 0, "bytes": 0, "pending": 0, "failed": 0, "held_deletions": 0, "channels": [],
            "last_poll_at": null, "next_poll_at": null, "error": null
        }))
        .unwrap()
    }

    /// The strip of the last 1000 seconds: class, place and width of each stretch.
    #[track_caller]
    fn check(
        newest: Option<i64>,
        gaps: &[(i64, i64)],
        closed: &[(i64, i64)],
        expected: &[(&str, i64, i64)],
    ) -> Strip {
        let set = set(newest, gaps, closed);
        let strip = strip(&set, TimeDelta::seconds(1000), at(1000));
        let stretches = strip.stretches.iter();
        let found: Vec<_> = stretches.map(|it| (it.class, it.x, it.width)).collect();
        assert_eq!(found, expected, "{strip:#?}");
        strip
    }

    #[test]
    fn strip_shows_what_is_known() {
        let strip = check(None, &[], &[], &[]);
        assert!(strip.summary.contains("Nothing is proven"));
        check(Some(900), &[], &[], &[("covered", 0, 900)]);
        // Nothing newer is stated for long; or the Source's clock is ahead.
        check(Some(-5), &[], &[], &[]);
        check(Some(2000), &[], &[], &[("covered", 0, 1000)]);
    }

    #[test]
    fn gap_is_seen_opening_and_closing() {
        let open = check(
            Some(900),
            &[(500, 600)],
            &[],
            &[("covered", 0, 900), ("gap", 500, 100)],
        );
        assert!(open.summary.ends_with("1 gap is open."), "{}", open.summary);
        assert!(open.stretches[1].title.contains("missing-notification"));
        let closed = check(
            Some(900),
            &[],
            &[(500, 600)],
            &[("covered", 0, 900), ("closed", 500, 100)],
        );
        assert!(
            closed.summary.ends_with("no gap is open, 1 closed."),
            "{}",
            closed.summary
        );
    }

    #[test]
    fn short_gap_is_wide_enough_to_be_seen() {
        let covered = ("covered", 0, 1000);
        check(Some(1000), &[(500, 500)], &[], &[covered, ("gap", 500, 6)]);
        check(Some(1000), &[(999, 1000)], &[], &[covered, ("gap", 994, 6)]);
        // What was closed before the strip begins is not shown.
        check(Some(1000), &[], &[(-50, -10)], &[covered]);
    }

    #[test]
    fn strip_reaches_back_to_the_oldest_open_gap() {
        let strip = check(
            Some(1000),
            &[(-1000, -900), (500, 600)],
            &[],
            &[("covered", 0, 1000), ("gap", 47, 48), ("gap", 761, 48)],
        );
        assert_eq!(strip.begins.iso, rfc3339(at(-1100)));
    }

    #[test]
    fn gaps_are_listed_open_ones_first() {
        let set = set(Some(900), &[(1, 2)], &[(3, 4), (5, 6)]);
        let rows = gap_rows(&set, at(10));
        let found: Vec<_> = rows
            .iter()
            .map(|row| {
                (
                    row.from.iso.clone(),
                    row.closed_at.is_some(),
                    row.open_for.as_str(),
                )
            })
            .collect();
        let expected = [
            (rfc3339(at(1)), false, "8 s"),
            (rfc3339(at(5)), true, "7 s"),
            (rfc3339(at(3)), true, "7 s"),
        ];
        assert_eq!(found, expected);
    }
}
