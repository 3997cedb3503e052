//! The coverage of a set as a strip on a time line, in the Source's own time.
//!
//! Invariants: what is not known to be covered is not drawn as covered. A gap is at least as wide as can be seen. The number of rectangles
//! is bounded: of more gaps, neighbours are drawn as one, and the strip says so. The strip is pure: the same status gives the same strip.

use chrono::{DateTime, TimeDelta, Utc};

use super::display::{Moment, time};
use crate::status::{SetStatus, rfc3339};

/// The width of a strip, in units of its drawing.
const WIDTH: i64 = 1000;
/// The least width of a gap.
const LEAST: i64 = 6;

/// How many gaps are drawn of each kind; more could not be distinguished.
const MOST_DRAWN: usize = 100;

/// A rectangle of a strip.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    /// `covered`: every change is known; `closed`: so it is since a gap was closed; `gap`: changes are missing.
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

/// A gap, or some that are drawn as one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Drawn {
    from: DateTime<Utc>,
    until: DateTime<Utc>,
    gaps: usize,
    title: String,
}

/// Draws neighbours as one, those with the shortest times between them first, until no more than `most` are left.
fn merge(mut gaps: Vec<Drawn>, most: usize) -> Vec<Drawn> {
    if gaps.len() <= most {
        return gaps;
    }
    gaps.sort_by_key(|gap| (gap.from, gap.until));
    let between = |pair: &[Drawn]| pair[1].from - pair[0].until;
    let mut longest: Vec<usize> = (1..gaps.len()).collect();
    longest.sort_by_key(|&at| std::cmp::Reverse(between(&gaps[at - 1..=at])));
    longest.truncate(most.saturating_sub(1));
    let mut is_begin = vec![false; gaps.len()];
    for at in longest {
        is_begin[at] = true;
    }
    let mut merged: Vec<Drawn> = Vec::new();
    for (gap, is_begin) in gaps.into_iter().zip(is_begin) {
        match merged.last_mut().filter(|_| !is_begin) {
            Some(last) => {
                last.until = last.until.max(gap.until);
                last.gaps += 1;
            }
            None => merged.push(gap),
        }
    }
    for drawn in merged.iter_mut().filter(|drawn| drawn.gaps > 1) {
        let (from, until) = (rfc3339(drawn.from), rfc3339(drawn.until));
        drawn.title = format!("{} gaps, {from} to {until}", drawn.gaps);
    }
    merged
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
        class: &'static str,
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
        (width > 0).then_some(Stretch {
            class,
            x,
            width,
            title,
        })
    }
}

/// The strip of a set for this length of time up to now, and further back if a gap is open there.
pub(super) fn strip(set: &SetStatus, length: TimeDelta, now: DateTime<Utc>) -> Strip {
    let drawn = |from: &str, until: &str, title: String| {
        let (from, until) = (time(from)?, time(until)?);
        Some(Drawn {
            from,
            until,
            gaps: 1,
            title,
        })
    };
    let open = set.gaps.iter().filter_map(|gap| {
        let (from, until) = (&gap.from, &gap.until);
        let title = format!(
            "missing: {}, {from} to {until}; open since {}",
            gap.reason, gap.since
        );
        drawn(from, until, title)
    });
    let open: Vec<Drawn> = open.collect();
    let closed = set.closed_gaps.iter().filter_map(|gap| {
        let (from, until) = (&gap.from, &gap.until);
        let title = format!(
            "was missing: {}, {from} to {until}; closed at {}",
            gap.reason, gap.closed_at
        );
        drawn(from, until, title)
    });
    let oldest = open.iter().map(|gap| gap.from).min();
    let begins = match oldest.filter(|&oldest| oldest < now - length) {
        // With something before it, so that it is seen to begin.
        Some(oldest) => oldest - (now - oldest) / 20,
        None => now - length,
    };
    let scale = Scale { begins, ends: now };
    let mut stretches = Vec::new();
    let mut is_merged = false;
    let mut draw = |class, gaps: Vec<Drawn>, stretches: &mut Vec<Stretch>| {
        let is_there = |gap: &Drawn| gap.until >= begins && gap.from <= now;
        let gaps: Vec<Drawn> = gaps.into_iter().filter(is_there).collect();
        is_merged |= gaps.len() > MOST_DRAWN;
        let drawn = merge(gaps, MOST_DRAWN).into_iter();
        stretches.extend(
            drawn.filter_map(|it| scale.stretch(class, (it.from, it.until), LEAST, it.title)),
        );
    };
    // Before the baseline nothing is proven. What the gaps leave of the time before the newest document is covered.
    let newest = set.newest_document_at.as_deref().and_then(time);
    let covered_until = newest.filter(|_| set.synced_until.is_some());
    if let Some(until) = covered_until {
        let title = "every change is known".to_owned();
        let from = begins.min(until);
        stretches.extend(scale.stretch("covered", (from, until), 0, title));
    }
    // A quiet Source has stated nothing since: that is no hole.
    let checked = set.last_request_at.as_deref().and_then(time);
    let checked = checked.filter(|_| set.state == "in-sync");
    if let Some((from, until)) = covered_until.zip(checked)
        && from < until
    {
        let title = "checked: nothing new".to_owned();
        let from = begins.max(from);
        stretches.extend(scale.stretch("covered", (from, until), 0, title));
    }
    draw("closed", closed.collect(), &mut stretches);
    draw("gap", open, &mut stretches);
    let mut summary = summary(set, covered_until, now);
    if is_merged {
        summary += " They are too many to be drawn: neighbours are drawn as one.";
    }
    Strip {
        begins: Moment::of(begins, now),
        ends: Moment::of(now, now),
        stretches,
        summary,
    }
}

fn summary(set: &SetStatus, covered_until: Option<DateTime<Utc>>, now: DateTime<Utc>) -> String {
    let Some(until) = covered_until else {
        return "No time is covered yet.".to_owned();
    };
    let until = Moment::of(until, now);
    let closed = match set.closed_gaps.len() {
        0 => String::new(),
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
        assert!(strip.summary.contains("No time is covered"));
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
    fn thousands_of_gaps_are_drawn_as_some_and_none_as_covered() {
        // One of a second each ten seconds, but for a longer pause in the middle.
        let gap = |number: i64| {
            let from = 10 * number + if number < 5000 { 0 } else { 1000 };
            (from, from + 1)
        };
        let gaps: Vec<(i64, i64)> = (0..10_000).map(gap).collect();
        let now = at(102_000);
        for (open, closed) in [(gaps.as_slice(), &[][..]), (&[], gaps.as_slice())] {
            let set = set(Some(102_000), open, closed);
            let strip = strip(&set, TimeDelta::seconds(102_000), now);
            // The first stretch is what is covered.
            let drawn = &strip.stretches[1..];
            assert_eq!(drawn.len(), MOST_DRAWN);
            let text: usize = drawn.iter().map(|it| it.title.len()).sum();
            assert!(text < 20_000, "{text}");
            assert!(drawn.iter().any(|it| it.title.contains(" gaps, ")));
            assert!(strip.summary.contains("neighbours are drawn as one"));
            let begins = time(&strip.begins.iso).unwrap();
            let scale = Scale { begins, ends: now };
            for &(from, until) in &gaps {
                let (from, until) = (scale.place(at(from)), scale.place(at(until)));
                let is_in = |it: &&Stretch| it.x <= from && until <= it.x + it.width;
                assert!(drawn.iter().any(|it| is_in(&it)), "{from} to {until}");
            }
            // The pause is the longest time between two: it is still seen.
            let pause = scale.place(at(50_500));
            let covers = |it: &&Stretch| it.x <= pause && pause < it.x + it.width;
            assert!(!drawn.iter().any(|it| covers(&it)));
        }
    }
}
