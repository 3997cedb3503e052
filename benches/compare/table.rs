//! The table of results, in Markdown.

use std::fmt::{self, Display};

use super::harness::{BenchResult, Missing};

/// What a figure should be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Goal {
    AtMost(f64, &'static str),
    AtLeast(f64, &'static str),
}

impl Goal {
    fn is_reached_by(self, value: f64) -> bool {
        match self {
            Self::AtMost(most, _) => value <= most,
            Self::AtLeast(least, _) => value >= least,
        }
    }
}

impl Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(most, unit) => write!(f, "≤ {most}{unit}"),
            Self::AtLeast(least, unit) => write!(f, "≥ {least}{unit}"),
        }
    }
}

/// One row: what was measured, and how resyncd compares.
#[derive(Debug, Default)]
pub(crate) struct Line {
    measured: String,
    resyncd: String,
    peer: String,
    ratio: Option<f64>,
    goal: Option<Goal>,
    is_reached: Option<bool>,
    skipped: Option<String>,
    /// What must not be, goal or not.
    broken_limit: Option<String>,
}

impl Line {
    /// A row that reports only, until it gets a goal.
    pub(crate) fn new(measured: impl Display) -> Self {
        Self {
            measured: measured.to_string(),
            ..Self::default()
        }
    }

    /// What was not measured, and why.
    pub(crate) fn skipped(measured: impl Display, reason: impl Display) -> Self {
        Self {
            skipped: Some(reason.to_string()),
            ..Self::new(measured)
        }
    }

    /// The lines of a part of a comparison; one that names the peer if one is missing.
    pub(crate) fn or_skipped(
        measured: impl Display,
        lines: BenchResult<Vec<Self>>,
    ) -> BenchResult<Vec<Self>> {
        lines.or_else(|error| match error.downcast_ref::<Missing>() {
            Some(missing) => Ok(vec![Self::skipped(measured, missing)]),
            None => Err(error),
        })
    }

    /// The figure of resyncd.
    pub(crate) fn resyncd(mut self, figure: impl Display) -> Self {
        self.resyncd = figure.to_string();
        self
    }

    /// The figure of what it is compared with, and what that is.
    pub(crate) fn peer(mut self, figure: impl Display) -> Self {
        self.peer = figure.to_string();
        self
    }

    /// The ratio of the two figures. The goal's unit may be `" times as fast"` or nothing.
    pub(crate) fn ratio(mut self, ratio: f64, goal: Goal) -> Self {
        self.ratio = Some(ratio);
        self.goal(ratio, goal)
    }

    /// The ratio of the two figures, where it has no goal.
    pub(crate) fn ratio_only(mut self, ratio: f64) -> Self {
        self.ratio = Some(ratio);
        self
    }

    /// A goal for the figure of resyncd itself, in the unit of the goal.
    pub(crate) fn goal(mut self, value: f64, goal: Goal) -> Self {
        self.goal = Some(goal);
        self.is_reached = Some(goal.is_reached_by(value));
        self
    }

    /// A limit: beyond it the program exits with 1, in the short form too.
    pub(crate) fn limit(mut self, value: f64, limit: Goal) -> Self {
        if !limit.is_reached_by(value) {
            self.broken_limit = Some(format!("{}: {value:.1}, must be {limit}", self.measured));
        }
        self
    }

    pub(crate) fn broken_limit(&self) -> Option<&str> {
        self.broken_limit.as_deref()
    }

    /// As a row of the table. `short`: the sizes were too small to judge the goals.
    pub(crate) fn row(&self, name: &str, short: bool) -> String {
        let ratio = self.ratio.map(|ratio| format!("{ratio:.2}"));
        let goal = self.goal.map(|goal| goal.to_string());
        let verdict = match (&self.skipped, &self.broken_limit, self.is_reached) {
            (Some(reason), _, _) => format!("skipped: {reason}"),
            (_, Some(_), _) => "BROKEN LIMIT".to_owned(),
            (_, _, Some(_)) if short => "too short to tell".to_owned(),
            (_, _, Some(true)) => "reached".to_owned(),
            (_, _, Some(false)) => "missed".to_owned(),
            (_, _, None) => String::new(),
        };
        let cells = [
            name,
            &self.measured,
            &self.resyncd,
            &self.peer,
            ratio.as_deref().unwrap_or_default(),
            goal.as_deref().unwrap_or_default(),
            &verdict,
        ];
        format!("| {} |", cells.join(" | "))
    }
}

/// The first two rows.
pub(crate) const HEADING: &str = "| name | what was measured | resyncd | peer | ratio | goal | reached |\n|---|---|---|---|---|---|---|";
