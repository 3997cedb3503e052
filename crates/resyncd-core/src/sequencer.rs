//! Orders the notifications of a set, and detects that one is missing.
//!
//! A notification covers its interval of the Source's time, and consecutive ones follow each other without a hole. So the next
//! one begins at the front of the [`Coverage`]. One that begins later is early: it is held for the reorder window, because the
//! one before it may only be late. When the window ends, a gap opens.
//!
//! Invariants: every hole of the coverage is recorded as a gap, once; the coverage never shrinks; a time too far ahead of our
//! clock moves nothing; the number of held notifications is bounded.
//!
//! A notification is put in order by [`handle`](Sequencer::handle). For a Change List, [`news_of_list`](Sequencer::news_of_list)
//! returns which of its changes may be news, and [`cover_list`](Sequencer::cover_list) covers its interval.
//!
//! Must not know the entries of documents, the store, or how a document was received.
//!
//! Specification: Change Notification 1.0.1, section 3 (consecutive, non-overlapping intervals); core, sections 10.1 and 12.1
//! (`at`, `from`, `until`).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use chrono::{DateTime, TimeDelta, Utc};
use resourcesync::{Interval, SourceTime};

use super::{Coverage, NewsFilter};
use crate::Now;

/// How far a Source's clock may run ahead of ours before its intervals are rejected.
pub(super) const FUTURE_TOLERANCE: TimeDelta = TimeDelta::minutes(10);

/// How far ahead of our clock a change may be dated: the Source's clock may only be in the wrong zone.
const FARTHEST_AHEAD: TimeDelta = TimeDelta::days(1);

/// Identifies a notification; the caller assigns it.
pub type NotificationId = i64;

/// The limits on early notifications.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How long an early notification is held.
    pub reorder_window: Duration,
    /// How many early notifications may be held at once.
    pub held_notifications: usize,
}

/// Why a gap opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GapReason {
    /// A notification did not arrive within the reorder window.
    MissingNotification,
    /// More early notifications arrived than may be held.
    TooManyHeld,
    /// The Change List begins after the front of the coverage.
    ChangeListStartsLate,
}

impl GapReason {
    /// The stable code.
    pub fn code(self) -> &'static str {
        match self {
            Self::MissingNotification => "missing-notification",
            Self::TooManyHeld => "too-many-held",
            Self::ChangeListStartsLate => "change-list-starts-late",
        }
    }

    /// The reason with that code.
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

/// A hole in the coverage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The missing interval, in the Source's time.
    pub interval: Interval,
    /// Why it opened.
    pub reason: GapReason,
    /// When it was detected, on our clock.
    pub since: DateTime<Utc>,
}

/// Why a notification covers nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoCoverage {
    /// It has no `from` or no `until`.
    NoInterval,
    /// Its `until` lies before its `from`.
    Backwards,
    /// It ends too far ahead of our clock.
    Future,
    /// There is no baseline yet, so that it can't be ordered.
    NoBaseline,
}

impl NoCoverage {
    /// The stable code.
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
    /// Ingest those of its changes that are news. The coverage includes its interval now.
    Ingest(NewsFilter),
    /// It is early and held: [`Sequencer::next_ready`] will return it.
    Hold,
    /// Its interval is covered already. Changes at the very end of the coverage may still be news: times are often whole
    /// seconds, and the document that covered that second may have been written earlier within it.
    Known(NewsFilter),
    /// Apply its changes, but cover nothing, and poll.
    CoversNothing(NoCoverage),
}

#[derive(Clone, Copy, Debug)]
struct Held {
    interval: Interval,
    deadline: Instant,
    /// Whether a gap was opened for it: it is ingested in its turn, although the one before it is missing.
    overdue: bool,
}

/// The coverage, the gaps and the held notifications of one set. Cheap to clone: the engine works on a copy until it is
/// committed.
#[derive(Clone, Debug)]
pub struct Sequencer {
    limits: Limits,
    coverage: Coverage,
    gaps: Vec<Gap>,
    held: BTreeMap<(SourceTime, SourceTime, NotificationId), Held>,
    /// The time of which the Source's documents have been read without a hole. Changes after it are compared again when a later document is
    /// read, also where notifications have covered it: with times of whole seconds, a notification whose verdict was `Known`
    /// may have stated more of its last second than the document did.
    read: Option<Interval>,
}

impl Sequencer {
    /// Continues from a stored state. Notifications that were held must be [handled](Self::handle) again.
    #[must_use]
    pub fn new(limits: Limits, coverage: Coverage, gaps: Vec<Gap>) -> Self {
        Self {
            limits,
            coverage,
            gaps,
            held: BTreeMap::new(),
            read: None,
        }
    }

    /// Sets the time of which the Source's documents have been read.
    #[must_use]
    pub fn with_read(self, read: Option<Interval>) -> Self {
        Self { read, ..self }
    }

    /// The time of which the Source's documents have been read without a hole. What only notifications have covered is a hole.
    pub fn read(&self) -> Option<Interval> {
        self.read
    }

    fn read_until(&self) -> Option<SourceTime> {
        self.read.map(|read| read.until())
    }

    /// A document of that interval was read.
    fn note_read(&mut self, interval: Interval) {
        self.read = match self.read {
            Some(read) if interval.from() <= read.until() && read.from() <= interval.until() => {
                let from = read.from().min(interval.from());
                Interval::new(from, read.until().max(interval.until()))
            }
            Some(read) if interval.until() < read.from() => Some(read),
            _ => Some(interval),
        };
    }

    /// The coverage.
    pub fn coverage(&self) -> &Coverage {
        &self.coverage
    }

    /// The gaps, oldest first.
    pub fn gaps(&self) -> &[Gap] {
        &self.gaps
    }

    /// How many early notifications are held.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// The early notifications that are held, in their order.
    pub fn held_ids(&self) -> impl Iterator<Item = NotificationId> {
        self.held.keys().map(|key| key.2)
    }

    /// Decides on a change notification with the interval that it states.
    pub fn handle(
        &mut self,
        now: Now,
        id: NotificationId,
        from: Option<SourceTime>,
        until: Option<SourceTime>,
    ) -> Verdict {
        let (Some(from), Some(until)) = (from, until) else {
            return Verdict::CoversNothing(NoCoverage::NoInterval);
        };
        let Some(interval) = Interval::new(from, until) else {
            return Verdict::CoversNothing(NoCoverage::Backwards);
        };
        if is_future(now, until) {
            return Verdict::CoversNothing(NoCoverage::Future);
        }
        let Some(front) = self.coverage.front() else {
            return Verdict::CoversNothing(NoCoverage::NoBaseline);
        };
        if interval.from() > front {
            // A repeated call does not extend the wait.
            self.held.entry((from, until, id)).or_insert(Held {
                interval,
                deadline: now.mono + self.limits.reorder_window,
                overdue: false,
            });
            return Verdict::Hold;
        }
        self.accept(now, interval)
    }

    /// Covers the interval of a notification that is not early.
    fn accept(&mut self, now: Now, interval: Interval) -> Verdict {
        let mut missing = self.coverage.missing(interval);
        if interval.is_empty() {
            // An empty interval covers nothing, and its moment is never certainly covered: with times of whole seconds, the
            // next notification may begin with the same second. Its changes are always compared.
            missing.push(interval);
        }
        let is_known = missing.is_empty();
        let is_overtaken = self.coverage.contains(interval.until());
        if is_known && !is_overtaken {
            missing.extend(Interval::new(interval.until(), interval.until()));
        }
        let filter = NewsFilter {
            stated: Some(interval),
            missing,
            front: self.coverage.front(),
            overtaken_from: is_overtaken.then_some(interval.until()),
            of_change_set: false,
        };
        if is_known {
            return Verdict::Known(filter);
        }
        self.cover(now, interval, GapReason::MissingNotification);
        Verdict::Ingest(filter)
    }

    /// The next held notification that can be ingested: the one before it has arrived, or [`open_gap`](Self::open_gap) has
    /// opened a gap before it. Never returns [`Verdict::Hold`].
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
        Some((key.2, self.accept(now, held.interval)))
    }

    /// Drops a held notification that is no longer available. Its interval stays missing.
    pub fn forget(&mut self, id: NotificationId) {
        self.held.retain(|key, _| key.2 != id);
    }

    /// When the first held notification exceeds the reorder window.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.waiting().map(|held| held.deadline).min()
    }

    fn waiting(&self) -> impl DoubleEndedIterator<Item = &Held> {
        self.held.values().filter(|held| !held.overdue)
    }

    /// Opens gaps if a reorder window has ended or too many notifications are held, and returns the oldest of them. The caller
    /// should read the Change List for it, and then ingest the held notifications by [`next_ready`](Self::next_ready).
    pub fn open_gap(&mut self, now: Now) -> Option<Gap> {
        let too_many = self.held.len() > self.limits.held_notifications;
        let reason = if too_many {
            GapReason::TooManyHeld
        } else {
            GapReason::MissingNotification
        };
        let (&last, _) = self
            .held
            .iter()
            .rfind(|(_, held)| !held.overdue && (too_many || held.deadline <= now.mono))?;
        // Those held before an overdue one are overdue with it: they are ingested in order.
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

    /// Records as gaps those parts of the holes that are not recorded yet.
    fn record(&mut self, now: Now, holes: Vec<Interval>, reason: GapReason) {
        let recorded: Coverage = self.gaps.iter().map(|gap| gap.interval).collect();
        let opened = holes
            .into_iter()
            .flat_map(|hole| recorded.missing(hole))
            .map(|interval| Gap {
                interval,
                reason,
                since: now.wall,
            });
        self.gaps.extend(opened);
        self.gaps.sort_by_key(|gap| gap.interval);
    }

    /// Which changes of a Change List may be news. To be called before [`cover_list`](Self::cover_list) moves the coverage.
    ///
    /// `interval`: that of the list, or of an index of them, if it states one. `end`: where the list ends, or the time of its newest
    /// entry. If that second is covered already, its changes are marked as overtaken: the list may have been written or closed
    /// within it, and then the document that covered it is the newer one.
    pub fn news_of_list(&self, interval: Option<Interval>, end: Option<SourceTime>) -> NewsFilter {
        let overtaken_from = end.filter(|&end| self.coverage.contains(end));
        let Some(interval) = interval else {
            return NewsFilter {
                overtaken_from,
                ..NewsFilter::everything()
            };
        };
        let front = self.coverage.front();
        NewsFilter {
            stated: Some(interval),
            missing: self.coverage.missing(interval),
            front: self
                .read_until()
                .map_or(front, |read| front.map(|front| front.min(read))),
            overtaken_from,
            of_change_set: false,
        }
    }

    /// Covers the interval of a Change List, or of an index of them.
    pub fn cover_list(&mut self, now: Now, interval: Interval) {
        if let Some(front) = self.coverage.front()
            && !is_future(now, interval.until())
        {
            self.cover(now, interval, GapReason::ChangeListStartsLate);
            // A list without entries covers nothing, but it states as well that it does not reach back to the front.
            let hole = Interval::new(front, interval.from()).filter(|hole| !hole.is_empty());
            self.record(
                now,
                hole.into_iter().collect(),
                GapReason::ChangeListStartsLate,
            );
            self.note_read(interval);
        }
    }

    /// Whether a closed Change List of that interval need not be read: its interval is covered, and
    /// documents have been read beyond its end. A list that is closed within a second may be the only one that states the rest
    /// of that second. An empty interval is never fully covered: it does not state what the list contains.
    pub fn is_fully_covered(&self, interval: Interval) -> bool {
        let front = self.coverage.front();
        !interval.is_empty()
            && self.coverage.missing(interval).is_empty()
            && self.coverage.contains(interval.until())
            && self
                .read_until()
                .or(front)
                .is_some_and(|read| interval.until() < read)
    }

    /// Covers everything before the time of a Resource List that was read completely.
    pub fn cover_resource_list(&mut self, now: Now, at: SourceTime) {
        // A list can't be of a future time: covering it would make every notification until then known.
        let at = if is_future(now, at) {
            SourceTime::from(now.wall)
        } else {
            at
        };
        self.cover(now, Interval::before(at), GapReason::ChangeListStartsLate);
        self.note_read(Interval::before(at));
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

/// The latest accepted time of a Source's clock, which may run ahead of ours by ten minutes.
#[must_use]
pub fn latest_source_time(now: DateTime<Utc>) -> SourceTime {
    now.checked_add_signed(FUTURE_TOLERANCE)
        .unwrap_or(now)
        .into()
}

/// The latest accepted time of a change. A Source that marks its local time as UTC is less than a day ahead, and its changes
/// are in order. A change that is dated later would suppress all others of its resource until then, so its time counts as
/// unknown.
#[must_use]
pub fn latest_plausible(now: DateTime<Utc>) -> SourceTime {
    now.checked_add_signed(FARTHEST_AHEAD).unwrap_or(now).into()
}

/// Whether a change may have happened at that time: not later than [`latest_plausible`], and not at or before the Unix epoch,
/// which stands for a time that was not set.
#[must_use]
pub fn is_plausible(time: SourceTime, now: DateTime<Utc>) -> bool {
    time > DateTime::UNIX_EPOCH.into() && time <= latest_plausible(now)
}

/// Whether a Source's time lies too far ahead of our clock.
fn is_future(now: Now, time: SourceTime) -> bool {
    time > latest_source_time(now.wall)
}

#[cfg(test)]
mod tests;
