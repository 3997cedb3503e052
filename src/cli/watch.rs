//! What a person sees while a command works on Sources: bars on a terminal, plain lines elsewhere. Both on standard error:
//! standard output is for results.

use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

use indicatif::{HumanBytes, HumanDuration, MultiProgress, ProgressBar, ProgressStyle};

use super::logging::{self, Quiet};
use crate::clock;

/// How often bars are drawn anew.
pub(super) const PACE: Duration = Duration::from_millis(250);
/// How often a line is printed, while something happens.
const LINES: Duration = Duration::from_secs(5);
/// Over what stretch the rate is taken.
const RATE: Duration = Duration::from_secs(1);

/// How far the work on a Source has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Work {
    /// Documents that were read.
    pub(super) documents: u64,
    /// Resources that are done.
    pub(super) done: u64,
    /// Resources that are known, with those that are done.
    pub(super) known: u64,
    /// Bytes that were fetched, or read.
    pub(super) bytes: u64,
}

/// One Source's line.
struct Line {
    name: String,
    bar: Option<ProgressBar>,
    shown: Work,
    /// When the rate was taken last, with what was done then.
    since: (Instant, u64),
    /// Resources a second.
    rate: f64,
}

/// The lines of all Sources.
pub(super) struct Watch {
    bars: Option<MultiProgress>,
    lines: Vec<Line>,
    printed_at: Instant,
}

impl Watch {
    /// Starts logging, and begins to show what is done for these Sources.
    pub(super) fn start<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        let bars = stderr().is_terminal().then(MultiProgress::new);
        match &bars {
            Some(bars) => logging::start_beside(Quiet::Yes, bars.clone()),
            None => logging::start(Quiet::Yes),
        }
        let now = clock::now().mono;
        let lines = names.map(|name| Line {
            name: name.to_owned(),
            bar: bars
                .as_ref()
                .map(|bars| bars.add(ProgressBar::new(1).with_style(style()))),
            shown: Work::default(),
            since: (now, 0),
            rate: 0.0,
        });
        let lines = lines.collect();
        Self {
            bars,
            lines,
            printed_at: now,
        }
    }

    /// Shows where the work stands now, Source by Source in the order they were named.
    pub(super) fn show(&mut self, work: impl Iterator<Item = Work>) {
        let now = clock::now().mono;
        let is_due = now.saturating_duration_since(self.printed_at) >= LINES;
        if self.bars.is_none() && !is_due {
            return;
        }
        self.printed_at = now;
        for (line, work) in self.lines.iter_mut().zip(work) {
            let has_moved = line.shown != work;
            line.note(now, work);
            let told = line.told();
            match &line.bar {
                Some(bar) => {
                    bar.set_prefix(line.name.clone());
                    // Nothing of nothing would be shown as all.
                    bar.set_length(work.known.max(1));
                    bar.set_position(work.done);
                    bar.set_message(told);
                    bar.tick();
                }
                None if has_moved => eprintln!("{}: {told}", line.name),
                None => {}
            }
        }
    }

    /// Prints something on standard output; bars make room for it.
    pub(super) fn print(&self, text: &str) {
        match &self.bars {
            Some(bars) => bars.suspend(|| println!("{text}")),
            None => println!("{text}"),
        }
    }

    /// Takes the bars away.
    pub(super) fn end(self) {
        if let Some(bars) = self.bars {
            // A terminal that is gone needs no tidying.
            let _ = bars.clear();
        }
    }
}

impl Line {
    fn note(&mut self, now: Instant, work: Work) {
        let passed = now.saturating_duration_since(self.since.0);
        if passed >= RATE {
            #[allow(clippy::cast_precision_loss, reason = "a rate for people")]
            let rate = work.done.saturating_sub(self.since.1) as f64 / passed.as_secs_f64();
            self.rate = rate;
            self.since = (now, work.done);
        }
        self.shown = work;
    }

    fn told(&self) -> String {
        let Work {
            documents,
            done,
            known,
            bytes,
        } = self.shown;
        let left = known.saturating_sub(done);
        let mut told = format!(
            "{documents} documents, {done} of {known} resources, {}",
            HumanBytes(bytes)
        );
        if self.rate > 0.0 {
            told.push_str(&format!(", {:.0}/s", self.rate));
            #[allow(clippy::cast_precision_loss, reason = "an estimate for people")]
            let seconds = left as f64 / self.rate;
            // What takes longer than a Duration holds is not worth telling.
            if let Some(time) = Duration::try_from_secs_f64(seconds)
                .ok()
                .filter(|_| left > 0)
            {
                told.push_str(&format!(", {:#} left", HumanDuration(time)));
            }
        }
        told
    }
}

fn style() -> ProgressStyle {
    ProgressStyle::with_template("{prefix} {bar:20} {wide_msg}")
        .expect("the template is one")
        .progress_chars("=> ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(works: &[(u64, Work)]) -> String {
        let start = clock::now().mono;
        let mut line = Line {
            name: "example".to_owned(),
            bar: None,
            shown: Work::default(),
            since: (start, 0),
            rate: 0.0,
        };
        for &(seconds, work) in works {
            line.note(start + Duration::from_secs(seconds), work);
        }
        line.told()
    }

    #[test]
    fn rate_and_time_left_are_told_once_they_are_known() {
        let work = |done, known| Work {
            documents: 2,
            done,
            known,
            bytes: 2048,
        };
        for (works, expected) in [
            (
                vec![(0, work(0, 0))],
                "2 documents, 0 of 0 resources, 2.00 KiB",
            ),
            (
                vec![(0, work(0, 9)), (3, work(30, 630))],
                "2 documents, 30 of 630 resources, 2.00 KiB, 10/s, 60s left",
            ),
            (
                vec![(2, work(20, 20))],
                "2 documents, 20 of 20 resources, 2.00 KiB, 10/s",
            ),
        ] {
            assert_eq!(told(&works), expected);
        }
    }
}
