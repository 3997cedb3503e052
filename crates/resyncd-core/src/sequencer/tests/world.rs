//! A sequencer, driven as the engine drives it, by scripts of events.

use super::super::*;
use crate::test_clock;

/// The zero of the scripts lies a day back, so that small numbers of seconds are in our past.
const EPOCH: TimeDelta = TimeDelta::days(-1);
const WINDOW: Duration = Duration::from_secs(5);

/// A set and its Source. The events of a script:
///
/// - `base:T`: a Resource List of time T is read
/// - `ID:F-U`: a notification is delivered; `?` stands for what it does not state
/// - `+N`: N seconds pass
/// - `list:F-U`: a Change List is read
/// - `source:F-U`: from now on, a Change List that covers this interval is read whenever a gap opens
/// - `restart`: the process ends and starts again, with the stored state
///
/// Numbers are seconds of the Source's time; `now` and `now+N` are times of our clock.
pub(super) struct World {
    pub(super) start: Now,
    pub(super) now: Now,
    limits: Limits,
    pub(super) sequencer: Sequencer,
    list: Option<Interval>,
    /// The held notifications in the inbox.
    pub(super) inbox: Vec<(NotificationId, Interval)>,
    pub(super) log: Vec<String>,
}

impl World {
    pub(super) fn new(held_notifications: usize) -> Self {
        let limits = Limits {
            reorder_window: WINDOW,
            held_notifications,
        };
        let start = test_clock::now();
        Self {
            start,
            now: start,
            limits,
            sequencer: Sequencer::new(limits, Coverage::default(), Vec::new()),
            list: None,
            inbox: Vec::new(),
            log: Vec::new(),
        }
    }

    pub(super) fn moment(&self, seconds: i64) -> SourceTime {
        SourceTime::from(self.start.wall + EPOCH + TimeDelta::seconds(seconds))
    }

    pub(super) fn span(&self, from: i64, until: i64) -> Interval {
        Interval::new(self.moment(from), self.moment(until)).unwrap()
    }

    fn seconds(&self, time: SourceTime) -> i64 {
        (time.micros() - self.moment(0).micros()).div_euclid(1_000_000)
    }

    pub(super) fn format(&self, interval: Interval) -> String {
        format!(
            "{}-{}",
            self.seconds(interval.from()),
            self.seconds(interval.until())
        )
    }

    fn time(&self, text: &str) -> Option<SourceTime> {
        if text == "?" {
            return None;
        }
        let (base, rest) = match text.strip_prefix("now") {
            Some(rest) => (
                SourceTime::from(self.now.wall),
                rest.strip_prefix('+').unwrap_or("0"),
            ),
            None => (self.moment(0), text),
        };
        let seconds: i64 = rest.parse().unwrap();
        Some(SourceTime::from_micros(base.micros() + seconds * 1_000_000))
    }

    fn both(&self, text: &str) -> (Option<SourceTime>, Option<SourceTime>) {
        let (from, until) = text.split_once('-').unwrap();
        (self.time(from), self.time(until))
    }

    fn interval(&self, text: &str) -> Interval {
        let (from, until) = self.both(text);
        Interval::new(from.unwrap(), until.unwrap()).unwrap()
    }

    pub(super) fn run(&mut self, script: &str) {
        for event in script.split_whitespace() {
            self.event(event);
            self.settle();
            assert_sound(&self.sequencer);
        }
    }

    pub(super) fn event(&mut self, event: &str) {
        if let Some(seconds) = event.strip_prefix('+') {
            self.now = self.now.plus(Duration::from_secs(seconds.parse().unwrap()));
            return;
        }
        let (name, rest) = event.split_once(':').unwrap_or((event, ""));
        match name {
            "base" => {
                let at = self.time(rest).unwrap();
                self.sequencer.cover_resource_list(self.now, at);
            }
            "list" => {
                let interval = self.interval(rest);
                self.sequencer.cover_list(self.now, interval);
            }
            "source" => self.list = Some(self.interval(rest)),
            "restart" => {
                let coverage: Coverage = self
                    .sequencer
                    .coverage()
                    .intervals()
                    .iter()
                    .copied()
                    .collect();
                let gaps = self.sequencer.gaps().to_vec();
                self.sequencer =
                    Sequencer::new(self.limits, coverage, gaps).with_read(self.sequencer.read());
                for (id, interval) in std::mem::take(&mut self.inbox) {
                    self.deliver(id, Some(interval.from()), Some(interval.until()));
                }
            }
            id => {
                let (from, until) = self.both(rest);
                self.deliver(id.parse().unwrap(), from, until);
            }
        }
    }

    pub(super) fn deliver(
        &mut self,
        id: NotificationId,
        from: Option<SourceTime>,
        until: Option<SourceTime>,
    ) -> Verdict {
        let verdict = self.sequencer.handle(self.now, id, from, until);
        if verdict == Verdict::Hold {
            self.inbox.retain(|held| held.0 != id);
            let interval = Interval::new(from.unwrap(), until.unwrap()).unwrap();
            self.inbox.push((id, interval));
        }
        self.note(id, &verdict);
        verdict
    }

    pub(super) fn settle(&mut self) {
        loop {
            if let Some((id, verdict)) = self.sequencer.next_ready(self.now) {
                assert_ne!(verdict, Verdict::Hold);
                self.inbox.retain(|held| held.0 != id);
                self.note(id, &verdict);
                continue;
            }
            let Some(gap) = self.sequencer.open_gap(self.now) else {
                break;
            };
            assert!(
                self.sequencer
                    .gaps()
                    .iter()
                    .any(|recorded| { recorded.interval.intersection(&gap.interval).is_some() })
            );
            self.log.push(format!(
                "gap:{}:{}",
                self.format(gap.interval),
                gap.reason.code()
            ));
            if let Some(list) = self.list {
                self.sequencer.cover_list(self.now, list);
            }
        }
        assert!(
            self.sequencer
                .next_deadline()
                .is_none_or(|at| at > self.now.mono),
            "nothing is overdue once no event is left"
        );
        assert_eq!(
            self.sequencer.next_deadline().is_some(),
            self.sequencer.held() > 0
        );
        assert_eq!(self.sequencer.held(), self.inbox.len());
    }

    fn note(&mut self, id: NotificationId, verdict: &Verdict) {
        let verdict = match verdict {
            Verdict::Ingest(_) => "ingest",
            Verdict::Hold => "hold",
            Verdict::Known(_) => "known",
            Verdict::CoversNothing(reason) => reason.code(),
        };
        self.log.push(format!("{id}:{verdict}"));
    }

    pub(super) fn state(&self) -> String {
        let front = self.sequencer.coverage().front();
        let front = front.map_or("none".to_owned(), |front| self.seconds(front).to_string());
        let mut state = format!("front {front}");
        for gap in self.sequencer.gaps() {
            state += &format!(", gap {} {}", self.format(gap.interval), gap.reason.code());
        }
        if self.sequencer.held() > 0 {
            state += &format!(", held {}", self.sequencer.held());
        }
        state
    }
}

/// Checks the invariants: each hole of the coverage is recorded as a gap, once, and nothing that is covered is.
pub(super) fn assert_sound(sequencer: &Sequencer) {
    let gaps = sequencer.gaps();
    let recorded: Coverage = gaps.iter().map(|gap| gap.interval).collect();
    for hole in sequencer.coverage().holes() {
        assert!(
            recorded.missing(hole).is_empty(),
            "{hole:?} is not recorded: {gaps:?}"
        );
    }
    for gap in gaps {
        assert_eq!(sequencer.coverage().missing(gap.interval), [gap.interval]);
        assert!(!gap.interval.is_empty());
    }
    assert!(
        gaps.windows(2)
            .all(|pair| pair[0].interval.until() <= pair[1].interval.from())
    );
}
