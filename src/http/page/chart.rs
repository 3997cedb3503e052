//! The diagrams: changes over the last hour and day, and how long after a change it was applied.
//!
//! They are drawn on the server from counts that are kept: nothing is counted for a page. The drawing is pure.

use chrono::{DateTime, TimeDelta, Utc};

use super::display::{counted, number};
use crate::status::{Activity, AppliedCounts, DELAY_BOUNDS};

/// The height of a diagram, in units of its drawing.
const HEIGHT: u64 = 100;
/// The width of a column.
const COLUMN: u64 = 10;
/// The least height of what is more than nothing.
const LEAST: u64 = 3;

/// A rectangle of a diagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bar {
    pub(super) class: &'static str,
    pub(super) x: u64,
    pub(super) y: u64,
    pub(super) width: u64,
    pub(super) height: u64,
    /// What it shows when it is pointed at.
    pub(super) title: String,
}

/// A diagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Chart {
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    pub(super) width: u64,
    pub(super) height: u64,
    pub(super) bars: Vec<Bar>,
    /// The labels of the vertical axis, from the top.
    pub(super) axis: Vec<String>,
    /// The label of the left end.
    pub(super) begins: &'static str,
    /// What it shows, in words.
    pub(super) summary: String,
    /// The columns that are not empty, in words: the time, and what it shows.
    pub(super) rows: Vec<(String, String)>,
}

/// The columns of a diagram: their length, and what the diagrams are called.
struct Range<'a> {
    ids: [&'static str; 2],
    titles: [&'static str; 2],
    begins: &'static str,
    /// Of the sentence that sums it up.
    length: &'static str,
    column: &'static str,
    seconds: i64,
    counts: &'a [AppliedCounts],
    until: DateTime<Utc>,
}

impl Range<'_> {
    /// The columns that are not empty: their number, the time of their begin, and their counts.
    fn columns(&self) -> impl Iterator<Item = (u64, String, &AppliedCounts)> {
        let last = self.until.timestamp().div_euclid(self.seconds);
        let first = last + 1 - self.counts.len() as i64;
        let columns = self.counts.iter().zip(0u64..);
        columns
            .filter(|(counts, _)| counts.changes() > 0)
            .map(move |(counts, column)| {
                let seconds = (first + column as i64).saturating_mul(self.seconds);
                let begins = DateTime::UNIX_EPOCH + TimeDelta::seconds(seconds);
                (column, begins.format("%H:%M").to_string(), counts)
            })
    }

    fn width(&self) -> u64 {
        COLUMN * self.counts.len() as u64
    }
}

/// The diagrams: the changes of the hour and of the day, the delays of the hour and of the day.
pub(super) fn charts(activity: &Activity) -> Vec<Chart> {
    let hour = Range {
        ids: ["changes-hour", "delays-hour"],
        titles: [
            "Changes in the last hour, by minute",
            "From change to applied, in the last hour",
        ],
        begins: "1 h ago",
        length: "hour",
        column: "minute",
        seconds: 60,
        counts: &activity.hour,
        until: activity.until,
    };
    let day = Range {
        ids: ["changes-day", "delays-day"],
        titles: [
            "Changes in the last day, by quarter of an hour",
            "From change to applied, in the last day",
        ],
        begins: "24 h ago",
        length: "day",
        column: "quarter of an hour",
        seconds: 900,
        counts: &activity.day,
        until: activity.until,
    };
    vec![changes(&hour), changes(&day), delays(&hour), delays(&day)]
}

fn sum(counts: &[AppliedCounts]) -> AppliedCounts {
    let mut sum = AppliedCounts::default();
    for column in counts {
        sum.add(column);
    }
    sum
}

fn changes(range: &Range<'_>) -> Chart {
    let most = range.counts.iter().map(AppliedCounts::changes).max();
    let most = most.unwrap_or(0);
    let (mut bars, mut rows) = (Vec::new(), Vec::new());
    for (column, begins, counts) in range.columns() {
        let words = format!(
            "{} created, {} updated, {} deleted",
            number(counts.created),
            number(counts.updated),
            number(counts.deleted)
        );
        let mut y = HEIGHT;
        for (class, count) in [
            ("created", counts.created),
            ("updated", counts.updated),
            ("deleted", counts.deleted),
        ] {
            if count == 0 {
                continue;
            }
            let height = (count * HEIGHT / most.max(1)).max(LEAST).min(y);
            y -= height;
            bars.push(Bar {
                class,
                x: column * COLUMN + 1,
                y,
                width: COLUMN - 2,
                height,
                title: format!("{begins}: {words}"),
            });
        }
        rows.push((begins, words));
    }
    let total = sum(range.counts);
    let summary = match total.changes() {
        0 => format!("No change in the last {}.", range.length),
        all => format!(
            "{} in the last {}: {} created, {} updated, {} deleted. Most in a {}: {}.",
            counted(all, "change", "changes"),
            range.length,
            number(total.created),
            number(total.updated),
            number(total.deleted),
            range.column,
            number(most)
        ),
    };
    Chart {
        id: range.ids[0],
        title: range.titles[0],
        width: range.width(),
        height: HEIGHT,
        bars,
        axis: vec![number(most.max(1)), "0".to_owned()],
        begins: range.begins,
        summary,
        rows,
    }
}

/// The name of a class of delays.
fn class_name(class: usize) -> String {
    let last = DELAY_BOUNDS.len() - 1;
    let seconds = DELAY_BOUNDS[class.min(last)];
    let bound = match seconds {
        ..60.0 => format!("{seconds} s"),
        ..3600.0 => format!("{} min", seconds / 60.0),
        ..86_400.0 => format!("{} h", seconds / 3600.0),
        _ => "1 day".to_owned(),
    };
    if class > last {
        format!("more than {bound}")
    } else {
        format!("at most {bound}")
    }
}

/// The class of the median, and the greatest class; `None`: no delay is known.
fn median_and_greatest(delays: &[u64]) -> Option<(usize, usize)> {
    let all: u64 = delays.iter().sum();
    let greatest = delays.iter().rposition(|&count| count > 0)?;
    let mut so_far = 0;
    let median = delays.iter().position(|&count| {
        so_far += count;
        2 * so_far >= all
    });
    Some((median?, greatest))
}

fn delays(range: &Range<'_>) -> Chart {
    let classes = DELAY_BOUNDS.len() as u64 + 1;
    // Each class is a step of the axis, which is about logarithmic.
    let step = 8;
    let (mut bars, mut rows) = (Vec::new(), Vec::new());
    for (column, begins, counts) in range.columns() {
        let Some((median, greatest)) = median_and_greatest(&counts.delays) else {
            continue;
        };
        let words = format!(
            "half of them {}, the slowest {}",
            class_name(median),
            class_name(greatest)
        );
        let (median, greatest) = (median as u64, greatest as u64);
        for (class, from, until) in [
            ("slowest", median + 1, greatest + 1),
            ("median", 0, median + 1),
        ] {
            if until > from {
                bars.push(Bar {
                    class,
                    x: column * COLUMN + 1,
                    y: (classes - until) * step,
                    width: COLUMN - 2,
                    height: (until - from) * step,
                    title: format!("{begins}: {words}"),
                });
            }
        }
        rows.push((begins, words));
    }
    let total = sum(range.counts);
    let summary = match median_and_greatest(&total.delays) {
        None => format!("No announced change in the last {}.", range.length),
        Some((median, greatest)) => format!(
            "Of {} in the last {}, half were applied after {}, the slowest after {}.",
            counted(
                total.delays.iter().sum(),
                "announced change",
                "announced changes"
            ),
            range.length,
            class_name(median),
            class_name(greatest)
        ),
    };
    Chart {
        id: range.ids[1],
        title: range.titles[1],
        width: range.width(),
        height: classes * step,
        bars,
        axis: vec!["1 day".to_owned(), "1 min".to_owned(), "0.1 s".to_owned()],
        begins: range.begins,
        summary,
        rows,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(created: u64, updated: u64, deleted: u64, delays: &[(usize, u64)]) -> AppliedCounts {
        let mut counts = AppliedCounts {
            created,
            updated,
            deleted,
            ..AppliedCounts::default()
        };
        for &(class, count) in delays {
            counts.delays[class] = count;
        }
        counts
    }

    fn activity(hour: &[(usize, AppliedCounts)]) -> Activity {
        let mut activity = Activity {
            since: DateTime::UNIX_EPOCH,
            until: DateTime::UNIX_EPOCH + TimeDelta::seconds(3600 * 10 + 59),
            hour: vec![AppliedCounts::default(); 60],
            day: vec![AppliedCounts::default(); 96],
        };
        for (column, counts) in hour {
            activity.hour[*column] = *counts;
        }
        activity
    }

    fn bars(chart: &Chart) -> Vec<(&str, u64, u64, u64)> {
        let bars = chart.bars.iter();
        bars.map(|bar| (bar.class, bar.x, bar.y, bar.height))
            .collect()
    }

    #[test]
    fn changes_are_stacked_by_kind() {
        let activity = activity(&[(0, counts(1, 0, 0, &[])), (59, counts(50, 40, 10, &[]))]);
        let charts = charts(&activity);
        assert_eq!(charts.len(), 4);
        let chart = &charts[0];
        let expected = [
            ("created", 1, 97, 3),
            ("created", 591, 50, 50),
            ("updated", 591, 10, 40),
            ("deleted", 591, 0, 10),
        ];
        assert_eq!(bars(chart), expected);
        assert_eq!((chart.width, chart.axis[0].as_str()), (600, "100"));
        assert!(
            chart
                .summary
                .starts_with("101 changes in the last hour: 51")
        );
        let (begins, words) = &chart.rows[1];
        assert_eq!(begins, "10:00");
        assert_eq!(words, "50 created, 40 updated, 10 deleted");
        assert_eq!(charts[1].summary, "No change in the last day.");
        assert_eq!(charts[2].summary, "No announced change in the last hour.");
    }

    #[test]
    fn no_bar_leaves_its_diagram() {
        // Each is at least as high as can be seen.
        let activity = activity(&[(3, counts(1_000_000, 1, 1, &[])), (4, counts(1, 1, 1, &[]))]);
        let chart = &charts(&activity)[0];
        for bar in &chart.bars {
            assert!(bar.y + bar.height <= chart.height, "{bar:?}");
        }
        assert_eq!(chart.bars.len(), 6);
    }

    #[test]
    fn delays_show_the_median_and_the_slowest() {
        let activity = activity(&[(7, counts(4, 0, 0, &[(1, 3), (6, 1)]))]);
        let chart = &charts(&activity)[2];
        let expected = [("slowest", 71, 48, 40), ("median", 71, 88, 16)];
        assert_eq!(bars(chart), expected);
        assert_eq!(
            chart.rows[0].1,
            "half of them at most 0.3 s, the slowest at most 1 min"
        );
        assert_eq!(class_name(12), "more than 1 day");
        assert_eq!(class_name(9), "at most 1 h");
        assert_eq!(median_and_greatest(&[0, 0]), None);
        assert_eq!(median_and_greatest(&[1, 1]), Some((0, 1)));
        assert_eq!(median_and_greatest(&[0, 1, 2]), Some((2, 2)));
    }
}
