//! The gaps that were closed since the start, for people to see what has happened.
//!
//! Invariants: of each set the newest ones are remembered, a bounded number, and a set that never had a gap takes no room. The open gaps
//! are in the database; what is closed is lost when the process ends. A gap is noted as closed before that is committed, and shown as
//! closed only to whoever does not find it open: so it is never shown as neither.

use std::collections::{HashMap, VecDeque};

use chrono::{DateTime, Utc};
use parking_lot::Mutex;
use resyncd_core::{Coverage, Gap};

use super::ids::SetId;

/// How many closed gaps of a set are remembered.
const REMEMBERED: usize = 50;

/// A gap, or a part of one, that was closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClosedGap {
    /// What was missing.
    pub gap: Gap,
    /// When a document closed it, on our clock.
    pub closed_at: DateTime<Utc>,
}

#[derive(Debug, Default)]
pub(super) struct GapHistory(Mutex<HashMap<SetId, GapsOfSet>>);

#[derive(Clone, Debug, Default)]
struct GapsOfSet {
    open: Vec<Gap>,
    closed: VecDeque<ClosedGap>,
}

/// What was known of some sets, and of which sets nothing was.
#[derive(Debug)]
pub(super) struct FormerGaps(Vec<(SetId, Option<GapsOfSet>)>);

impl GapHistory {
    /// What is known of these sets, for [`restore`](Self::restore).
    pub(super) fn of_sets(&self, sets: impl Iterator<Item = SetId>) -> FormerGaps {
        let known = self.0.lock();
        let gaps = sets.map(|set| (set, known.get(&set).cloned()));
        FormerGaps(gaps.collect())
    }

    /// Takes back what was noted of these sets since: it was not committed.
    pub(super) fn restore(&self, former: FormerGaps) {
        let mut sets = self.0.lock();
        for (set, gaps) in former.0 {
            match gaps {
                Some(gaps) => sets.insert(set, gaps),
                None => sets.remove(&set),
            };
        }
    }

    /// The gaps of a set are these now, or once they are committed: what is missing of those before was closed.
    pub(super) fn note(&self, set: SetId, gaps: &[Gap], now: DateTime<Utc>) {
        let mut sets = self.0.lock();
        if gaps.is_empty() && !sets.contains_key(&set) {
            return;
        }
        let known = sets.entry(set).or_default();
        if known.open == gaps {
            return;
        }
        let still_open: Coverage = gaps.iter().map(|gap| gap.interval).collect();
        for gap in std::mem::replace(&mut known.open, gaps.to_vec()) {
            for interval in still_open.missing(gap.interval) {
                let gap = Gap {
                    interval,
                    ..gap.clone()
                };
                let closed_at = now;
                known.closed.push_back(ClosedGap { gap, closed_at });
            }
        }
        while known.closed.len() > REMEMBERED {
            known.closed.pop_front();
        }
    }

    /// Drops what is known of a set.
    pub(super) fn end(&self, set: SetId) {
        self.0.lock().remove(&set);
    }

    /// The gaps of a set that were closed, the one that was closed first at the begin; not those that the caller has found `open`.
    pub(super) fn closed(&self, set: SetId, open: &[Gap]) -> Vec<ClosedGap> {
        let sets = self.0.lock();
        let closed = sets.get(&set).map(|gaps| &gaps.closed);
        let is_open = |closed: &ClosedGap| {
            let interval = closed.gap.interval;
            let mut open = open.iter();
            open.any(|gap| gap.interval.intersection(&interval).is_some())
        };
        let closed = closed.into_iter().flatten();
        closed.filter(|gap| !is_open(gap)).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;
    use resourcesync::{Interval, SourceTime};
    use resyncd_core::GapReason;

    use super::*;

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::seconds(seconds)
    }

    fn gap(from: i64, until: i64, since: i64) -> Gap {
        let time = SourceTime::from_micros;
        Gap {
            interval: Interval::new(time(from), time(until)).unwrap(),
            reason: GapReason::MissingNotification,
            since: at(since),
        }
    }

    /// Each step: the gaps from then on. Expected: from, until, when it was detected, when it was closed.
    #[track_caller]
    fn check(steps: &[&[(i64, i64, i64)]], expected: &[(i64, i64, i64, i64)]) {
        let history = GapHistory::default();
        for (now, gaps) in steps.iter().enumerate() {
            let gaps: Vec<Gap> = gaps.iter().map(|&(a, b, c)| gap(a, b, c)).collect();
            history.note(SetId(1), &gaps, at(i64::try_from(now).unwrap()));
        }
        let expected = expected
            .iter()
            .map(|&(from, until, since, closed)| ClosedGap {
                gap: gap(from, until, since),
                closed_at: at(closed),
            });
        assert_eq!(history.closed(SetId(1), &[]), expected.collect::<Vec<_>>());
        assert_eq!(history.closed(SetId(2), &[]), []);
    }

    #[test]
    fn what_is_no_longer_open_was_closed() {
        check(&[&[]], &[]);
        check(&[&[(10, 20, 0)], &[(10, 20, 0)]], &[]);
        check(&[&[(10, 20, 0)], &[]], &[(10, 20, 0, 1)]);
        // A document covers a part of it, another one the rest.
        check(
            &[&[(10, 20, 0)], &[(10, 12, 0), (15, 20, 0)], &[]],
            &[(12, 15, 0, 1), (10, 12, 0, 2), (15, 20, 0, 2)],
        );
        // One opens while another one closes.
        check(&[&[(10, 20, 0)], &[(30, 40, 1)]], &[(10, 20, 0, 1)]);
    }

    #[test]
    fn only_the_newest_ones_are_remembered() {
        let history = GapHistory::default();
        for number in 0..1000 {
            let gaps = [gap(10 * number, 10 * number + 5, number)];
            history.note(SetId(1), &gaps, at(number));
        }
        let closed = history.closed(SetId(1), &[]);
        assert_eq!(closed.len(), REMEMBERED);
        assert_eq!(closed[REMEMBERED - 1].closed_at, at(999));
        // Most sets never have a gap.
        history.note(SetId(2), &[], at(0));
        assert_eq!(history.0.lock().len(), 1);
    }
}
