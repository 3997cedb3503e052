//! The progress of a command on standard error: bars on a terminal, plain lines elsewhere. Standard output is for results.

use std::time::{Duration, Instant};

use indicatif::{HumanBytes, HumanDuration, MultiProgress, ProgressBar, ProgressStyle};

use super::log_throttle::Summaries;
use super::logging;
use crate::clock;
use crate::config::LogFormat;

/// How often bars are redrawn.
pub(super) const REDRAW_INTERVAL: Duration = Duration::from_millis(250);
/// How often a plain line is printed while there is progress.
const LINE_INTERVAL: Duration = Duration::from_secs(5);
/// The time over which the rate is measured.
const RATE_INTERVAL: Duration = Duration::from_secs(1);

/// The progress of one Source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SourceProgress {
    /// Documents read.
    pub(super) documents: u64,
    /// Resources applied or failed.
    pub(super) done: u64,
    /// Resources known, including those done.
    pub(super) known: u64,
    /// Bytes fetched or read.
    pub(super) bytes: u64,
    /// Whether nothing is left to do.
    pub(super) is_finished: bool,
}

/// The line of one Source.
struct ProgressLine {
    name: String,
    bar: Option<ProgressBar>,
    shown: SourceProgress,
    /// When the rate was last measured, and `done` then.
    measured: (Instant, u64),
    /// Resources per second.
    rate: f64,
}

/// The lines of all Sources.
pub(super) struct ProgressDisplay {
    bars: Option<MultiProgress>,
    lines: Vec<ProgressLine>,
    printed_at: Instant,
    /// Logs what was suppressed when the display ends.
    _summaries: Summaries,
}

impl ProgressDisplay {
    /// Starts logging and shows the progress of these Sources.
    pub(super) fn start<'a>(names: impl Iterator<Item = &'a str>, format: LogFormat) -> Self {
        let (bars, summaries) = logging::start_with_bars(format);
        let now = clock::now().mono;
        let lines = names.map(|name| ProgressLine {
            name: name.to_owned(),
            bar: bars.as_ref().map(|bars| {
                bars.add(ProgressBar::new(1).with_style(style("{prefix} {bar:20} {wide_msg}")))
            }),
            shown: SourceProgress::default(),
            measured: (now, 0),
            rate: 0.0,
        });
        let lines = lines.collect();
        Self {
            bars,
            lines,
            printed_at: now,
            _summaries: summaries,
        }
    }

    /// Updates the display; `progress`: of each Source, in the order of `start`.
    pub(super) fn show(&mut self, progress: impl Iterator<Item = SourceProgress>) {
        let now = clock::now().mono;
        let is_due = now.saturating_duration_since(self.printed_at) >= LINE_INTERVAL;
        if self.bars.is_none() && !is_due {
            return;
        }
        self.printed_at = now;
        for (line, progress) in self.lines.iter_mut().zip(progress) {
            let has_changed = line.shown != progress;
            line.update(now, progress);
            let text = line.text();
            match &line.bar {
                Some(bar) if bar.is_finished() => {}
                Some(bar) if progress.is_finished => {
                    bar.set_prefix(line.name.clone());
                    bar.set_style(style("{prefix} {wide_msg}"));
                    bar.abandon_with_message(text);
                }
                Some(bar) => {
                    bar.set_prefix(line.name.clone());
                    // A length of 0 would be shown as complete.
                    bar.set_length(progress.known.max(1));
                    bar.set_position(progress.done);
                    bar.set_message(text);
                    bar.tick();
                }
                None if has_changed => eprintln!("{}: {text}", line.name),
                None => {}
            }
        }
    }

    /// Prints a line on standard output, above the bars.
    pub(super) fn print(&self, text: &str) {
        match &self.bars {
            Some(bars) => bars.suspend(|| println!("{text}")),
            None => println!("{text}"),
        }
    }

    /// Removes the bars.
    pub(super) fn end(self) {
        if let Some(bars) = self.bars {
            let _ = bars.clear();
        }
    }
}

impl ProgressLine {
    fn update(&mut self, now: Instant, progress: SourceProgress) {
        let passed = now.saturating_duration_since(self.measured.0);
        if passed >= RATE_INTERVAL {
            #[allow(clippy::cast_precision_loss, reason = "a rate for people")]
            let rate = progress.done.saturating_sub(self.measured.1) as f64 / passed.as_secs_f64();
            self.rate = rate;
            self.measured = (now, progress.done);
        }
        self.shown = progress;
    }

    fn text(&self) -> String {
        let SourceProgress {
            documents,
            done,
            known,
            bytes,
            is_finished,
        } = self.shown;
        let mut counted = format!("{done} of {known} resources, {}", HumanBytes(bytes));
        if documents > 0 {
            counted += &format!(", {documents} documents");
        }
        if is_finished {
            return format!("done: {counted}");
        }
        if self.rate <= 0.0 {
            return counted;
        }
        #[allow(clippy::cast_precision_loss, reason = "an estimate for people")]
        let seconds = known.saturating_sub(done) as f64 / self.rate;
        let rate = format!("{:.0}/s", self.rate);
        // First what people look for, because the end is cut off where the terminal is narrow. An error: longer than a Duration can
        // state.
        match Duration::try_from_secs_f64(seconds) {
            Ok(time) if known > done => {
                format!("{:#} left, {rate}, {counted}", HumanDuration(time))
            }
            _ => format!("{rate}, {counted}"),
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template)
        .expect("the template is one")
        .progress_chars("=> ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_after(updates: &[(u64, SourceProgress)]) -> String {
        let start = clock::now().mono;
        let mut line = ProgressLine {
            name: "example".to_owned(),
            bar: None,
            shown: SourceProgress::default(),
            measured: (start, 0),
            rate: 0.0,
        };
        for &(seconds, progress) in updates {
            line.update(start + Duration::from_secs(seconds), progress);
        }
        line.text()
    }

    #[test]
    fn rate_and_time_left_are_shown_once_they_are_known() {
        let work = |done, known| SourceProgress {
            documents: 2,
            done,
            known,
            bytes: 2048,
            is_finished: false,
        };
        for (works, expected) in [
            (
                vec![(0, work(0, 0))],
                "0 of 0 resources, 2.00 KiB, 2 documents",
            ),
            (
                vec![(0, work(0, 9)), (3, work(30, 630))],
                "60s left, 10/s, 30 of 630 resources, 2.00 KiB, 2 documents",
            ),
            (
                vec![(2, work(20, 20))],
                "10/s, 20 of 20 resources, 2.00 KiB, 2 documents",
            ),
            (
                vec![
                    (2, work(20, 20)),
                    (
                        3,
                        SourceProgress {
                            is_finished: true,
                            ..work(20, 20)
                        },
                    ),
                ],
                "done: 20 of 20 resources, 2.00 KiB, 2 documents",
            ),
        ] {
            assert_eq!(text_after(&works), expected);
        }
    }
}
