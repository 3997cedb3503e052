//! Colours of what people read on a terminal. `NO_COLOR`, `CLICOLOR`, `CLICOLOR_FORCE` and `TERM` count as
//! [no-color.org](https://no-color.org) and [bixense.com/clicolors](https://bixense.com/clicolors/) describe them.
//!
//! Invariant: a colour says nothing that a word does not say as well, and what is no terminal gets none unless it is forced.

use std::io::{stderr, stdout};

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use tracing::Level;

/// Whether there are colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Colours(bool);

impl Colours {
    /// None.
    pub(super) const NONE: Self = Self(false);

    /// Those of standard output.
    pub(super) fn of_stdout() -> Self {
        Self(AutoStream::choice(&stdout()) != ColorChoice::Never)
    }

    /// Those of standard error.
    pub(super) fn of_stderr() -> Self {
        Self(AutoStream::choice(&stderr()) != ColorChoice::Never)
    }

    /// The name of a state of a Source, a set, a channel or a hook, which `shown` contains.
    pub(super) fn state(self, state: &str, shown: &str) -> String {
        let colour = match state {
            "ok" | "in-sync" | "active" => AnsiColor::Green,
            "failing" | "gap" | "denied" | "expired" | "stopped" => AnsiColor::Red,
            "discovering" | "baseline" | "catching-up" | "pending" => AnsiColor::Yellow,
            _ => return shown.to_owned(),
        };
        self.styled(colour.on_default(), shown)
    }

    /// What a person should look at.
    pub(super) fn alarm(self, shown: &str) -> String {
        self.styled(AnsiColor::Red.on_default().bold(), shown)
    }

    /// A line of the log in which the level is named.
    pub(super) fn log_line(self, level: Level, line: &str) -> String {
        let colour = match level {
            Level::ERROR => AnsiColor::Red.on_default(),
            Level::WARN => AnsiColor::Yellow.on_default(),
            Level::INFO => AnsiColor::Green.on_default(),
            Level::DEBUG | Level::TRACE => Style::new().dimmed(),
        };
        // The time before it has no such word.
        line.replacen(level.as_str(), &self.styled(colour, level.as_str()), 1)
    }

    fn styled(self, style: Style, shown: &str) -> String {
        if self.0 {
            format!("{style}{shown}{style:#}")
        } else {
            shown.to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_and_levels_are_coloured_and_stay_words() {
        let (all, none) = (Colours(true), Colours::NONE);
        assert_eq!(all.state("gap", "gap   "), "\u{1b}[31mgap   \u{1b}[0m");
        assert_eq!(all.state("unknown", "unknown"), "unknown");
        assert_eq!(none.state("gap", "gap   "), "gap   ");
        let line = "2026-01-01T00:00:00Z  WARN a WARN b";
        let coloured = "2026-01-01T00:00:00Z  \u{1b}[33mWARN\u{1b}[0m a WARN b";
        assert_eq!(all.log_line(Level::WARN, line), coloured);
        assert_eq!(none.log_line(Level::WARN, line), line);
        assert!(all.alarm("!").contains("\u{1b}[31m"));
    }
}
