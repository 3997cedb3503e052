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

/// What is more than so many times a usual column would flatten it.
const FLATTENING: u64 = 100;

/// How high a number is drawn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    most: u64,
    /// Whether it is drawn by its logarithm.
    is_logarithmic: bool,
}

impl Scale {
    /// One on which the greatest number flattens no other.
    pub(super) fn logarithmic(most: u64) -> Self {
        Self {
            most: most.max(1),
            is_logarithmic: true,
        }
    }

    /// That of these columns: logarithmic only where the greatest would flatten most others, as a first copy does.
    fn of(columns: impl Iterator<Item = u64>) -> Self {
        let mut columns: Vec<u64> = columns.filter(|&column| column > 0).collect();
        columns.sort_unstable();
        let usual = columns.get(columns.len() / 4).copied().unwrap_or(0);
        let scale = Self::logarithmic(columns.last().copied().unwrap_or(0));
        Self {
            is_logarithmic: scale.most > usual.saturating_mul(FLATTENING) && usual > 0,
            ..scale
        }
    }

    /// The height of a number where the greatest has that height.
    pub(super) fn height(&self, number: u64, greatest: u64) -> u64 {
        if self.is_logarithmic {
            let part = (number as f64).ln_1p() / (self.most as f64).ln_1p();
            (part * greatest as f64).round() as u64
        } else {
            number * greatest / self.most
        }
    }

    /// The labels of its axis, from the top.
    fn axis(&self) -> Vec<String> {
        let middle = ((self.most as f64).ln_1p() / 2.0).exp_m1().round();
        let middle = self.is_logarithmic.then(|| number(middle as u64));
        let labels = [Some(number(self.most)), middle, Some("0".to_owned())];
        labels.into_iter().flatten().collect()
    }
}

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
    pub(super) id: String,
    pub(super) title: String,
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

/// A diagram of each kind is drawn of these columns.
struct Range<'a> {
    /// `hour` or `day`.
    length: &'static str,
    begins: &'static str,
    /// What a column is called, and its length.
    column: &'static str,
    seconds: i64,
    counts: &'a [AppliedCounts],
    until: DateTime<Utc>,
}

/// What a column shows: words, and its rectangles as class, upper end and height.
type Column = (String, Vec<(&'static str, u64, u64)>);

impl Range<'_> {
    /// A diagram of the columns that are not empty. `column`: what one shows; `None`: nothing.
    fn chart(
        &self,
        [kind, title, summary]: [String; 3],
        (height, axis): (u64, Vec<String>),
        column: impl Fn(&AppliedCounts) -> Option<Column>,
    ) -> Chart {
        let last = self.until.timestamp().div_euclid(self.seconds);
        let first = last + 1 - self.counts.len() as i64;
        let (mut bars, mut rows) = (Vec::new(), Vec::new());
        for (counts, number) in self.counts.iter().zip(0u64..) {
            let Some((words, shown)) = column(counts).filter(|_| counts.changes() > 0) else {
                continue;
            };
            let seconds = (first + number as i64).saturating_mul(self.seconds);
            let begins = DateTime::UNIX_EPOCH + TimeDelta::seconds(seconds);
            let begins = begins.format("%H:%M").to_string();
            bars.extend(shown.into_iter().map(|(class, y, height)| Bar {
                class,
                x: number * COLUMN + 1,
                y,
                width: COLUMN - 2,
                height,
                title: format!("{begins}: {words}"),
            }));
            rows.push((begins, words));
        }
        Chart {
            id: format!("{kind}-{}", self.length),
            title,
            width: COLUMN * self.counts.len() as u64,
            height,
            bars,
            axis,
            begins: self.begins,
            summary,
            rows,
        }
    }

    fn sum(&self) -> AppliedCounts {
        let mut sum = AppliedCounts::default();
        for column in self.counts {
            sum.add(column);
        }
        sum
    }
}

/// The diagrams: the changes of the hour and of the day, the delays of the hour and of the day.
pub(super) fn charts(activity: &Activity) -> Vec<Chart> {
    let hour = Range {
        length: "hour",
        begins: "1 h ago",
        column: "minute",
        seconds: 60,
        counts: &activity.hour,
        until: activity.until,
    };
    let day = Range {
        length: "day",
        begins: "24 h ago",
        column: "quarter of an hour",
        seconds: 900,
        counts: &activity.day,
        until: activity.until,
    };
    vec![changes(&hour), changes(&day), delays(&hour), delays(&day)]
}

fn words(counts: &AppliedCounts) -> String {
    format!(
        "{} created, {} updated, {} deleted",
        number(counts.created),
        number(counts.updated),
        number(counts.deleted)
    )
}

fn changes(range: &Range<'_>) -> Chart {
    let scale = Scale::of(range.counts.iter().map(AppliedCounts::changes));
    let (length, column, total) = (range.length, range.column, range.sum());
    let summary = match total.changes() {
        0 => format!("No change in the last {length}."),
        all => format!(
            "{} in the last {length}: {}. Most in a {column}: {}.",
            counted(all, "change", "changes"),
            words(&total),
            number(scale.most)
        ),
    };
    let kind = if scale.is_logarithmic {
        ", logarithmic"
    } else {
        ""
    };
    let title = format!("Changes in the last {length}, by {column}{kind}");
    let texts = ["changes".to_owned(), title, summary];
    range.chart(texts, (HEIGHT, scale.axis()), |counts| {
        let (mut y, all) = (HEIGHT, counts.changes());
        let kinds = [
            ("created", counts.created),
            ("updated", counts.updated),
            ("deleted", counts.deleted),
        ];
        let kinds = kinds.into_iter().filter(|(_, count)| *count > 0);
        let bars = kinds.map(|(class, count)| {
            let height = scale.height(all, HEIGHT) * count / all;
            let height = height.max(LEAST).min(y);
            y -= height;
            (class, y, height)
        });
        Some((words(counts), bars.collect()))
    })
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
    let (length, total) = (range.length, range.sum());
    let summary = match median_and_greatest(&total.delays) {
        None => format!("No announced change in the last {length}."),
        Some((median, greatest)) => format!(
            "Of {} in the last {length}, half were applied after {}, the slowest after {}.",
            counted(
                total.delays.iter().sum(),
                "announced change",
                "announced changes"
            ),
            class_name(median),
            class_name(greatest)
        ),
    };
    let title = format!("From change to applied, in the last {length}");
    let axis = ["1 day", "1 min", "0.1 s"].map(str::to_owned).to_vec();
    let texts = ["delays".to_owned(), title, summary];
    range.chart(texts, (classes * step, axis), |counts| {
        let (median, greatest) = median_and_greatest(&counts.delays)?;
        let words = format!(
            "half of them {}, the slowest {}",
            class_name(median),
            class_name(greatest)
        );
        let (median, greatest) = (median as u64, greatest as u64);
        let bars = [
            ("slowest", median + 1, greatest + 1),
            ("median", 0, median + 1),
        ];
        let bars = bars.into_iter().filter(|(_, from, until)| until > from);
        let bars = bars
            .map(|(class, from, until)| (class, (classes - until) * step, (until - from) * step));
        Some((words, bars.collect()))
    })
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
    fn first_copy_does_not_flatten_what_follows() {
        let busy = counts(100_000, 0, 0, &[]);
        let activity = activity(&[
            (3, busy),
            (4, counts(5, 5, 0, &[])),
            (5, counts(9, 0, 0, &[])),
        ]);
        let chart = &charts(&activity)[0];
        assert!(chart.title.ends_with(", logarithmic"), "{}", chart.title);
        assert_eq!(chart.axis, ["100,000", "315", "0"]);
        let expected = [
            ("created", 31, 0, 100),
            ("created", 41, 90, 10),
            ("updated", 41, 80, 10),
            ("created", 51, 80, 20),
        ];
        assert_eq!(bars(chart), expected);
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
