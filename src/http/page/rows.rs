//! The table of the first page: a row a Source.
//!
//! Invariants: what a person should look at comes first. The rows are bounded, and those that are left out are counted.

use serde::Deserialize;

use super::chart::Scale;
use super::display::{Moment, counted, duration};
use super::first_copy::{FirstCopy, first_copy};
use super::view::{Shell, first};
use crate::status::{Activity, AppliedCounts, SourceStatus, rank};

/// How many Sources the first page shows.
const SOURCES: usize = 100;
/// The height of a sparkline; each hour has a width of 1.
const HEIGHT: u64 = 20;

/// Which Sources are wanted.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Filter {
    /// A part of their names.
    #[serde(default)]
    pub(super) name: String,
    /// Their state; empty: any.
    #[serde(default)]
    pub(super) state: String,
}

impl Filter {
    fn selects(&self, source: &SourceStatus) -> bool {
        let name = self.name.trim().to_lowercase();
        let is_wanted = self.state.is_empty() || self.state == source.state_with_sets();
        is_wanted && source.name.to_lowercase().contains(&name)
    }
}

/// The changes of the last day, drawn as a stroke an hour; the heights are logarithmic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sparkline {
    /// The strokes, as the data of a path.
    pub(super) path: String,
    /// What it shows, in words.
    pub(super) summary: String,
}

fn sparkline(activity: &Activity) -> Sparkline {
    let hours = activity.day.chunks(4);
    let hours: Vec<u64> = hours
        .map(|hour| hour.iter().map(AppliedCounts::changes).sum())
        .collect();
    let scale = Scale::logarithmic(hours.iter().copied().max().unwrap_or(0));
    let changed = hours
        .iter()
        .enumerate()
        .filter(|(_, changes)| **changes > 0);
    let strokes = changed.map(|(hour, &changes)| {
        let height = scale.height(changes, HEIGHT).max(2);
        format!("M{hour}.5 {HEIGHT}v-{height}")
    });
    let changes = counted(hours.iter().sum(), "change", "changes");
    Sparkline {
        path: strokes.collect(),
        summary: format!("{changes} in the last 24 hours"),
    }
}

/// A row.
#[derive(Clone, Debug)]
pub(super) struct SourceRow<'a> {
    pub(super) source: &'a SourceStatus,
    pub(super) state: &'a str,
    /// The code of the current error.
    pub(super) error: Option<&'a str>,
    /// When it is tried next.
    pub(super) next_try: Option<Moment>,
    /// How far its first copies are.
    pub(super) first_copy: Option<FirstCopy>,
    /// How far it is behind; `None`: it is not, or that is not known.
    pub(super) behind: Option<String>,
    pub(super) checked: Option<Moment>,
    pub(super) pending: u64,
    pub(super) failed: u64,
    pub(super) held: u64,
    pub(super) sparkline: Option<Sparkline>,
}

/// The rows of the Sources that are wanted, what needs attention first, else in the order of the configuration; and how many more there
/// are. `activity`: that of a Source.
pub(super) fn rows<'a>(
    shell: &Shell<'a>,
    filter: &Filter,
    activity: impl Fn(&str) -> Option<Activity>,
) -> (Vec<SourceRow<'a>>, usize) {
    let sources = shell.status.sources.iter();
    let mut sources: Vec<_> = sources.filter(|source| filter.selects(source)).collect();
    sources.sort_by_key(|source| {
        let is_quiet = source.attentions().next().is_none();
        (is_quiet, rank(source.state_with_sets()))
    });
    let (sources, more) = first(sources, SOURCES);
    let row = |source: &'a SourceStatus| {
        let activity = activity(&source.name);
        let errors = source.sets.iter().filter_map(|set| set.error.as_ref());
        let error = source.error.iter().chain(errors).next();
        let behind = source.behind(Some(shell.now));
        let behind = behind.map_or(0, |behind| behind.num_seconds());
        let moment = |time: &Option<String>| time.as_deref().map(|time| shell.moment(time));
        SourceRow {
            source,
            state: source.state_with_sets(),
            error: error.map(|error| error.code.as_str()),
            next_try: moment(&source.next_try_at),
            first_copy: first_copy(source, activity.as_ref()),
            behind: (behind > 0).then(|| duration(behind)),
            checked: moment(&source.last_request_at),
            pending: source.sum(|set| set.pending),
            failed: source.sum(|set| set.failed),
            held: source.sum(|set| set.held_deletions),
            sparkline: activity.as_ref().map(sparkline),
        }
    };
    (sources.into_iter().map(row).collect(), more)
}
