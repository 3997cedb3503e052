//! When to poll a set: at the poll interval, sooner while a gap is open or the documents can't be read, and after notifications that
//! prove nothing.

use std::time::{Duration, Instant};

use super::{Gap, Span};
use crate::Now;

/// A gap that has been open for this long is no longer left to the Change Lists.
const GAP_PATIENCE: Duration = Duration::from_secs(3600);
/// The first pause between two polls while a gap is open or polls fail.
const FIRST_PAUSE: Duration = Duration::from_secs(2);

/// The first pause between two polls that check what hints have stated.
const CHECK_PAUSE: Duration = Duration::from_secs(60);

/// The result of a poll, as far as it decides on the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pacing {
    /// Everything is known: the next poll is due after the poll interval.
    Regular,
    /// A gap is open, or the documents could not be read: the next poll is due after 2 s, 4 s, … up to the poll interval.
    Soon,
}

/// The polls of one set. Runs on the monotonic clock.
#[derive(Clone, Debug)]
pub struct Schedule {
    interval: Duration,
    next: Instant,
    last: Option<Instant>,
    pauses: u32,
    gap_since: Option<Instant>,
    /// Whether there was a cause since the last poll.
    is_caused: bool,
    /// How many polls in a row there was a cause before.
    causes: u32,
}

impl Schedule {
    /// A schedule whose first poll is due at once.
    pub fn new(now: Now, interval: Duration) -> Self {
        Self {
            interval,
            next: now.mono,
            last: None,
            pauses: 0,
            gap_since: None,
            is_caused: false,
            causes: 0,
        }
    }

    /// When the next poll is due.
    pub fn next_deadline(&self) -> Instant {
        self.next
    }

    /// Makes a poll due at once.
    pub fn poll_now(&mut self, now: Now) {
        self.next = self.next.min(now.mono);
    }

    /// Makes a poll due at once, but at least two seconds after the last one: for causes that may be frequent.
    pub fn poll_soon(&mut self, now: Now) {
        let soonest = self.last.map_or(now.mono, |last| last + FIRST_PAUSE);
        self.next = self.next.min(soonest.max(now.mono));
    }

    /// Makes a poll due that checks what a hint has stated, over a transport whose notifications are nothing else. A minute later at
    /// the earliest, so that it checks the following ones as well; while they keep coming, 2, 4, … minutes after the last poll, up to
    /// the poll interval.
    pub fn poll_to_check(&mut self, now: Now) {
        self.poll_after_cause(now.mono + CHECK_PAUSE, CHECK_PAUSE);
    }

    /// Makes a poll due of documents that something names: at once; while such causes keep coming, 2, 4, … seconds after the last poll, up
    /// to the poll interval.
    pub fn poll_named(&mut self, now: Now) {
        self.poll_after_cause(now.mono, FIRST_PAUSE);
    }

    fn poll_after_cause(&mut self, soonest: Instant, first_pause: Duration) {
        self.is_caused = true;
        let pause = self.growing(first_pause, self.causes);
        let due = self.last.map_or(soonest, |last| soonest.max(last + pause));
        self.next = self.next.min(due);
    }

    /// The pause after so many others, each twice as long as the one before, up to the poll interval.
    fn growing(&self, first: Duration, others: u32) -> Duration {
        let factor = 1_u32.checked_shl(others).unwrap_or(u32::MAX);
        first.saturating_mul(factor).min(self.interval.max(first))
    }

    /// Records the end of a poll.
    pub fn polled(&mut self, now: Now, pacing: Pacing) {
        self.last = Some(now.mono);
        self.causes = if std::mem::take(&mut self.is_caused) {
            self.causes.saturating_add(1)
        } else {
            0
        };
        self.next = now.mono + self.pause_after(pacing);
    }

    /// Records that documents were read to fill a gap that a notification has opened. That is less than a poll, and postpones none.
    pub fn gap_read(&mut self, now: Now, pacing: Pacing) {
        self.last = Some(now.mono);
        self.next = self.next.min(now.mono + self.pause_after(pacing));
    }

    fn pause_after(&mut self, pacing: Pacing) -> Duration {
        match pacing {
            Pacing::Regular => {
                self.pauses = 0;
                self.interval
            }
            Pacing::Soon => {
                let pause = self.growing(FIRST_PAUSE, self.pauses);
                self.pauses = self.pauses.saturating_add(1);
                pause
            }
        }
    }

    /// Records whether a gap is open.
    pub fn set_gap_open(&mut self, now: Now, open: bool) {
        if open {
            if self.gap_since.is_none() {
                self.gap_since = Some(now.mono);
                self.pauses = 0;
            }
        } else {
            self.gap_since = None;
        }
    }

    /// Whether the Resource List must be read as well. A gap is closed by proof. The proof comes from the Resource List where
    /// the Change Lists prove nothing, begin after the gap, or have not covered it for an hour. `span`: what the Change Lists
    /// cover; `None` if there are none or they could not be read.
    pub fn needs_resource_list(&mut self, now: Now, span: Option<Span>, gaps: &[Gap]) -> bool {
        let Some(span) = span.filter(|span| span.from.is_some()) else {
            return true;
        };
        self.set_gap_open(now, !gaps.is_empty());
        !span.reaches(gaps) || self.is_out_of_patience(now)
    }

    /// Whether a gap has been open for longer than the Change Lists are waited for.
    fn is_out_of_patience(&self, now: Now) -> bool {
        self.gap_since
            .is_some_and(|since| now.mono.saturating_duration_since(since) >= GAP_PATIENCE)
    }
}

#[cfg(test)]
mod tests {
    use resourcesync::{Interval, SourceTime};

    use super::*;
    use crate::{GapReason, test_clock};

    fn pauses(interval: u64, polls: &[Pacing]) -> Vec<u64> {
        let start = test_clock::now();
        let mut schedule = Schedule::new(start, Duration::from_secs(interval));
        let mut pauses = Vec::new();
        for &pacing in polls {
            schedule.polled(start, pacing);
            pauses.push((schedule.next_deadline() - start.mono).as_secs());
        }
        pauses
    }

    #[test]
    fn reading_for_a_gap_postpones_no_poll() {
        let start = test_clock::now();
        let (interval, minute) = (Duration::from_secs(900), Duration::from_secs(60));
        let mut schedule = Schedule::new(start, interval);
        schedule.polled(start, Pacing::Regular);
        let later = Now {
            mono: start.mono + minute,
            ..start
        };
        schedule.gap_read(later, Pacing::Regular);
        assert_eq!(schedule.next_deadline(), start.mono + interval);
        for _ in 0..2 {
            schedule.gap_read(later, Pacing::Soon);
            assert_eq!(schedule.next_deadline(), later.mono + FIRST_PAUSE);
        }
    }

    #[test]
    fn open_gap_is_polled_with_growing_pauses_up_to_the_poll_interval() {
        use Pacing::{Regular, Soon};
        assert_eq!(pauses(900, &[Regular, Regular]), [900, 900]);
        assert_eq!(
            pauses(20, &[Soon, Soon, Soon, Soon, Soon, Regular, Soon]),
            [2, 4, 8, 16, 20, 20, 2]
        );
        assert_eq!(pauses(1, &[Soon, Soon]), [2, 2]);
        assert_eq!(pauses(900, &[Soon; 40]).last(), Some(&900));
    }

    /// The pauses of an hour in which there is a cause every half second, in seconds.
    fn pauses_with(cause: fn(&mut Schedule, Now)) -> Vec<u64> {
        let start = test_clock::now();
        let mut schedule = Schedule::new(start, Duration::from_secs(900));
        schedule.polled(start, Pacing::Regular);
        let (mut last, mut pauses) = (start.mono, Vec::new());
        for step in 1..=2 * 3600 {
            let now = start.plus(Duration::from_millis(500) * step);
            cause(&mut schedule, now);
            if schedule.next_deadline() <= now.mono {
                pauses.push((now.mono - last).as_secs());
                last = now.mono;
                schedule.polled(now, Pacing::Regular);
            }
        }
        pauses
    }

    #[test]
    fn frequent_hints_cause_polls_with_growing_pauses() {
        let checked = pauses_with(Schedule::poll_to_check);
        assert_eq!(checked, [60, 120, 240, 480, 900, 900]);
        let followed = pauses_with(Schedule::poll_named);
        let expected = [2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900];
        assert_eq!(followed, expected);
    }

    #[test]
    fn poll_without_a_hint_before_it_ends_the_growth_of_the_pauses() {
        let second = Duration::from_secs(1);
        let mut now = test_clock::now();
        let mut schedule = Schedule::new(now, 900 * second);
        schedule.polled(now, Pacing::Regular);
        for _ in 0..3 {
            for pause in [60, 120, 240] {
                schedule.poll_to_check(now);
                now = now.plus(pause * second);
                assert_eq!(schedule.next_deadline(), now.mono);
                schedule.polled(now, Pacing::Regular);
            }
            now = now.plus(900 * second);
            schedule.polled(now, Pacing::Regular);
            now = now.plus(200 * second);
            schedule.poll_named(now);
            assert_eq!(schedule.next_deadline(), now.mono, "at once");
            schedule.polled(now, Pacing::Regular);
            now = now.plus(900 * second);
            schedule.polled(now, Pacing::Regular);
        }
    }

    #[test]
    fn resource_list_is_read_after_a_gap_of_an_hour() {
        let start = test_clock::now();
        let mut schedule = Schedule::new(start, Duration::from_secs(900));
        schedule.set_gap_open(start, true);
        let later = start.plus(Duration::from_secs(3599));
        schedule.set_gap_open(later, true);
        assert!(!schedule.is_out_of_patience(later));
        assert!(schedule.is_out_of_patience(start.plus(Duration::from_secs(3600))));
        schedule.set_gap_open(later, false);
        assert!(!schedule.is_out_of_patience(start.plus(Duration::from_secs(9999))));
    }

    #[test]
    fn resource_list_is_read_where_the_change_lists_prove_too_little() {
        let time = SourceTime::from_micros;
        let start = test_clock::now();
        let gap = Gap {
            interval: Interval::new(time(5), time(9)).unwrap(),
            reason: GapReason::MissingNotification,
            since: start.wall,
        };
        let gaps = std::slice::from_ref(&gap);
        let span = |from: Option<i64>| Span {
            from: from.map(time),
            until: Some(time(20)),
        };
        for (lists, gaps, first, after_an_hour) in [
            (None, &[][..], true, true),
            (Some(span(None)), &[], true, true),
            (Some(span(Some(0))), &[], false, false),
            (Some(span(Some(5))), gaps, false, true),
            (Some(span(Some(6))), gaps, true, true),
        ] {
            let mut schedule = Schedule::new(start, Duration::from_secs(900));
            let later = start.plus(GAP_PATIENCE);
            let needed = [start, later].map(|now| schedule.needs_resource_list(now, lists, gaps));
            assert_eq!(needed, [first, after_an_hour], "{lists:?} {gaps:?}");
        }
    }
}
