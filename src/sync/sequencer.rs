//! Puts notifications in order, and notices when one is missing.
//!
//! A notification covers its interval of the Source's time; consecutive ones follow each other without a hole (Change
//! Notification 1.0.1, section 3). So the next one begins at the front of the [`Coverage`]. One that begins later is held
//! for a while: the one before it may only be late. When the wait is over, a gap opens.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use chrono::{DateTime, TimeDelta, Utc};

use super::{Coverage, NewsFilter};
use crate::clock::Now;
use crate::protocol::{Interval, SourceTime};

/// How far ahead of our clock a Source's clock may run before its intervals are no longer believed.
pub(super) const FUTURE_TOLERANCE: TimeDelta = TimeDelta::minutes(10);

/// How far ahead of our clock a change may be dated by a clock that is only in the wrong zone.
const FARTHEST_AHEAD: TimeDelta = TimeDelta::days(1);

/// How the engine tells one notification from another.
pub type NotificationId = i64;

/// What is tolerated.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How long an early notification waits for the one before it.
    pub reorder_window: Duration,
    /// How many early notifications are held at once.
    pub held_notifications: usize,
}

/// Why a stretch of time is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GapReason {
    /// A notification did not come within the reorder window.
    MissingNotification,
    /// More early notifications arrived than may be held.
    TooManyHeld,
    /// The Change List begins after what was known.
    ChangeListStartsLate,
}

impl GapReason {
    /// Its stable name.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::MissingNotification => "missing-notification",
            Self::TooManyHeld => "too-many-held",
            Self::ChangeListStartsLate => "change-list-starts-late",
        }
    }

    /// The reason of that name.
    #[must_use]
    pub fn from_code(code: &str) -> Option<Self> {
        [
            Self::MissingNotification,
            Self::TooManyHeld,
            Self::ChangeListStartsLate,
        ]
        .into_iter()
        .find(|r| r.code() == code)
    }
}

/// A stretch of the Source's time that is known to be missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// What is missing of it by now.
    pub interval: Interval,
    /// Why it opened.
    pub reason: GapReason,
    /// When it was noticed, on our clock.
    pub since: DateTime<Utc>,
}

/// Why a notification proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hint {
    /// It has no `from` or no `until`.
    NoInterval,
    /// Its `until` lies before its `from`.
    Backwards,
    /// It ends too far ahead of our clock.
    Future,
    /// It is in a form that can't be put in order before there is a baseline.
    NoBaseline,
}

impl Hint {
    /// Its stable name.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::NoInterval => "no-interval",
            Self::Backwards => "backwards-interval",
            Self::Future => "future-interval",
            Self::NoBaseline => "no-baseline",
        }
    }
}

/// What to do with a notification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Apply those of its changes that are news. The coverage has moved.
    Apply(NewsFilter),
    /// It is early: ask again with [`Sequencer::next_ready`].
    Hold,
    /// All of its interval is known. What it tells of the very end of what is known may still be news: times are often
    /// whole seconds, and a document that covered the same may have been written a moment earlier.
    Known(NewsFilter),
    /// Apply its changes, but rely on nothing, and poll.
    Hint(Hint),
}

#[derive(Clone, Copy, Debug)]
struct Held {
    interval: Interval,
    deadline: Instant,
    /// Whether it waits no more: it is applied in its turn, although the one before it is missing.
    overdue: bool,
}

/// The order of one set's notifications. Cheap to clone: the engine works on a copy until the database has it.
#[derive(Clone, Debug)]
pub struct Sequencer {
    limits: Limits,
    coverage: Coverage,
    gaps: Vec<Gap>,
    held: BTreeMap<(SourceTime, SourceTime, NotificationId), Held>,
    /// Up to where the Source's documents have been read. What a later one tells of the time after that is looked at
    /// again, also where notifications have covered it: with times of whole seconds, a notification that was taken for
    /// known may have told more of its last second than the document did.
    read_until: Option<SourceTime>,
}

impl Sequencer {
    /// Continues from what was known; notifications that were held must be handed in again.
    #[must_use]
    pub fn new(limits: Limits, coverage: Coverage, gaps: Vec<Gap>) -> Self {
        Self {
            limits,
            coverage,
            gaps,
            held: BTreeMap::new(),
            read_until: None,
        }
    }

    /// Continues where the Source's documents have been read up to that time.
    #[must_use]
    pub fn having_read(self, read_until: Option<SourceTime>) -> Self {
        Self { read_until, ..self }
    }

    /// Up to where the Source's documents have been read.
    #[must_use]
    pub fn read_until(&self) -> Option<SourceTime> {
        self.read_until
    }

    /// What is known.
    #[must_use]
    pub fn coverage(&self) -> &Coverage {
        &self.coverage
    }

    /// What is known to be missing, oldest first.
    #[must_use]
    pub fn gaps(&self) -> &[Gap] {
        &self.gaps
    }

    /// How many early notifications are held.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Takes a change notification with the interval that it states.
    pub fn handle(
        &mut self,
        now: Now,
        id: NotificationId,
        from: Option<SourceTime>,
        until: Option<SourceTime>,
    ) -> Verdict {
        let (Some(from), Some(until)) = (from, until) else {
            return Verdict::Hint(Hint::NoInterval);
        };
        let Some(interval) = Interval::new(from, until) else {
            return Verdict::Hint(Hint::Backwards);
        };
        if is_future(now, until) {
            return Verdict::Hint(Hint::Future);
        }
        let Some(front) = self.coverage.front() else {
            return Verdict::Hint(Hint::NoBaseline);
        };
        if interval.from() > front {
            // One that is handed in twice waits no longer for that.
            self.held.entry((from, until, id)).or_insert(Held {
                interval,
                deadline: now.mono + self.limits.reorder_window,
                overdue: false,
            });
            return Verdict::Hold;
        }
        self.take(now, interval)
    }

    /// Applies a notification that is not early.
    fn take(&mut self, now: Now, interval: Interval) -> Verdict {
        let mut missing = self.coverage.missing(interval);
        if interval.is_empty() {
            // A moment covers nothing and is never covered for sure: where times are whole seconds, the next notification
            // begins with the same one. It is looked at whenever it comes.
            missing.push(interval);
        }
        let is_known = missing.is_empty();
        let is_late = self.coverage.contains(interval.until());
        if is_known && !is_late {
            missing.extend(Interval::new(interval.until(), interval.until()));
        }
        let unknown = NewsFilter {
            stated: Some(interval),
            missing,
            front: self.coverage.front(),
            late_from: is_late.then_some(interval.until()),
        };
        if is_known {
            return Verdict::Known(unknown);
        }
        self.cover(now, interval, GapReason::MissingNotification);
        Verdict::Apply(unknown)
    }

    /// The next held notification whose turn has come: because the one before it has arrived, or because its wait is over
    /// and [`open_gap`](Self::open_gap) has been called for it. Never [`Verdict::Hold`].
    pub fn next_ready(&mut self, now: Now) -> Option<(NotificationId, Verdict)> {
        let (&key, &held) = self.held.first_key_value()?;
        let in_order = self
            .coverage
            .front()
            .is_some_and(|front| held.interval.from() <= front);
        if !in_order && !held.overdue {
            return None;
        }
        self.held.remove(&key);
        Some((key.2, self.take(now, held.interval)))
    }

    /// Holds a notification no longer that can't be had any more. What it covered stays unknown.
    pub fn forget(&mut self, id: NotificationId) {
        self.held.retain(|key, _| key.2 != id);
    }

    /// When the first wait of a held notification is over.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.waiting().map(|held| held.deadline).min()
    }

    fn waiting(&self) -> impl DoubleEndedIterator<Item = &Held> {
        self.held.values().filter(|held| !held.overdue)
    }

    /// Opens a gap if a wait is over or too many notifications are held, and says which; the oldest one, if there are
    /// several between what is held. The Change List should be read over it, and then [`next_ready`](Self::next_ready) be
    /// asked for what was held.
    pub fn open_gap(&mut self, now: Now) -> Option<Gap> {
        let flooded = self.held.len() > self.limits.held_notifications;
        let reason = if flooded {
            GapReason::TooManyHeld
        } else {
            GapReason::MissingNotification
        };
        let (&last, _) = self
            .held
            .iter()
            .rfind(|(_, held)| !held.overdue && (flooded || held.deadline <= now.mono))?;
        // What comes before an overdue one, and was held, is overdue with it: they are applied in order.
        let mut reached = self.coverage.front()?;
        let mut holes = Vec::new();
        for held in self.held.range(..=last).map(|(_, held)| held.interval) {
            holes.extend(Interval::new(reached, held.from()).filter(|hole| !hole.is_empty()));
            reached = reached.max(held.until());
        }
        let &first = holes.first()?;
        for (_, held) in self.held.range_mut(..=last) {
            held.overdue = true;
        }
        self.record(now, holes, reason);
        Some(Gap {
            interval: first,
            reason,
            since: now.wall,
        })
    }

    /// Puts on record what is not yet of some holes.
    fn record(&mut self, now: Now, holes: Vec<Interval>, reason: GapReason) {
        let recorded: Coverage = self.gaps.iter().map(|gap| gap.interval).collect();
        let news = holes
            .into_iter()
            .flat_map(|hole| recorded.missing(hole))
            .map(|interval| Gap {
                interval,
                reason,
                since: now.wall,
            });
        self.gaps.extend(news);
        self.gaps.sort_by_key(|gap| gap.interval);
    }

    /// Takes a Change List (or an index of them) that covers an interval, and says which of its changes are news.
    pub fn change_list(&mut self, now: Now, interval: Interval) -> NewsFilter {
        let front = self.coverage.front();
        let known = NewsFilter {
            stated: Some(interval),
            missing: self.coverage.missing(interval),
            front: self
                .read_until
                .map_or(front, |read| front.map(|front| front.min(read))),
            late_from: None,
        };
        if let Some(front) = front
            && !is_future(now, interval.until())
        {
            self.cover(now, interval, GapReason::ChangeListStartsLate);
            // One that has no entries yet covers nothing, but tells as well that it does not reach back.
            let late = Interval::new(front, interval.from()).filter(|late| !late.is_empty());
            self.record(
                now,
                late.into_iter().collect(),
                GapReason::ChangeListStartsLate,
            );
            self.read_until = self.read_until.max(Some(interval.until()));
        }
        known
    }

    /// Whether a closed Change List of that interval need not be read: all of it is known, and documents have been read
    /// from beyond its end. A list that is closed within a second may be the only one to tell of the rest of that second.
    /// What says of itself that it covers nothing does not say what it tells.
    #[must_use]
    pub fn is_settled(&self, interval: Interval) -> bool {
        let front = self.coverage.front();
        !interval.is_empty()
            && self.coverage.missing(interval).is_empty()
            && self.coverage.contains(interval.until())
            && self
                .read_until
                .or(front)
                .is_some_and(|read| interval.until() < read)
    }

    /// What a Change List tells that is news, as [`change_list`](Self::change_list) says, but for its last second: it may
    /// have been written or closed within that second, and where something else has covered it, that has the last word. To
    /// be asked before the coverage moves. `end`: where the list ends, or the time of its newest entry.
    #[must_use]
    pub fn lagging(&self, unknown: NewsFilter, end: Option<SourceTime>) -> NewsFilter {
        NewsFilter {
            late_from: end.filter(|&end| self.coverage.contains(end)),
            ..unknown
        }
    }

    /// Takes a Resource List of that time: everything before it is known.
    pub fn resource_list(&mut self, now: Now, at: SourceTime) {
        // A list can't be of a time that has not come. To believe it would be to drop all notifications until then.
        let at = if is_future(now, at) {
            SourceTime::from(now.wall)
        } else {
            at
        };
        self.cover(now, Interval::before(at), GapReason::ChangeListStartsLate);
        self.read_until = self.read_until.max(Some(at));
    }

    fn cover(&mut self, now: Now, interval: Interval, reason: GapReason) {
        self.coverage.cover(interval);
        let gaps = std::mem::take(&mut self.gaps);
        let pieces = |gap: Gap| {
            let missing = self.coverage.missing(gap.interval);
            missing.into_iter().map(move |interval| Gap {
                interval,
                ..gap.clone()
            })
        };
        self.gaps = gaps.into_iter().flat_map(pieces).collect();
        let holes = self.coverage.holes().collect();
        self.record(now, holes, reason);
    }
}

/// The latest time of a Source that is believed: its clock may run ahead of ours by ten minutes.
#[must_use]
pub fn latest_believed(now: DateTime<Utc>) -> SourceTime {
    now.checked_add_signed(FUTURE_TOLERANCE)
        .unwrap_or(now)
        .into()
}

/// The latest time at which a change is believed to have happened. A Source that marks its local time as UTC is less than a
/// day ahead of everybody, in good order. What is dated later would be the last word on its resource for as long, so that its
/// time counts as unknown.
#[must_use]
pub fn latest_plausible(now: DateTime<Utc>) -> SourceTime {
    now.checked_add_signed(FARTHEST_AHEAD).unwrap_or(now).into()
}

/// Whether a change may have happened at that time: not later than [`latest_plausible`], and not at the beginning of a clock
/// or of a calendar, which stands for a time that nobody has set.
#[must_use]
pub fn is_plausible(time: SourceTime, now: DateTime<Utc>) -> bool {
    time > DateTime::UNIX_EPOCH.into() && time <= latest_plausible(now)
}

/// Whether a Source's time lies too far ahead of our clock to be believed.
fn is_future(now: Now, time: SourceTime) -> bool {
    time > latest_believed(now.wall)
}

#[cfg(test)]
mod tests;
