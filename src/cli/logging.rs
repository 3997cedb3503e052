//! Logs go to standard error, one line per event: as text, in the journal's format, or as JSON. Events that are repeated too often are
//! summarized.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, IsTerminal, Write};

use indicatif::MultiProgress;
use resyncd_core::{one_line, visible_json};
use serde_json::{Map, Value};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::{FormatFields, JsonFields, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

use super::colours::Colours;
use super::log_throttle::{LogThrottleLayer, Summaries};
use crate::config::LogFormat;

/// The longest line, in bytes.
const MAX_LINE: usize = 4096;

/// Starts logging to standard error, from this level unless `RUST_LOG` sets another. The result must be dropped after the last event.
#[must_use]
pub(super) fn start(level: LevelFilter, format: LogFormat) -> Summaries {
    start_on(level, format, io::stderr)
}

/// Starts logging warnings to standard error; on a terminal above progress bars, which are returned.
#[must_use]
pub(super) fn start_with_bars(format: LogFormat) -> (Option<MultiProgress>, Summaries) {
    if !io::stderr().is_terminal() {
        return (None, start(LevelFilter::WARN, format));
    }
    let bars = MultiProgress::new();
    let shown = bars.clone();
    let writer = move || BarWriter {
        bars: shown.clone(),
    };
    (Some(bars), start_on(LevelFilter::WARN, format, writer))
}

fn start_on<W>(level: LevelFilter, format: LogFormat, writer: W) -> Summaries
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let default = level.to_string();
    let filter = EnvFilter::try_from_default_env();
    // An error without the variable: it is not set.
    let is_set = std::env::var_os(EnvFilter::DEFAULT_ENV).is_some_and(|it| !it.is_empty());
    let misread = filter
        .as_ref()
        .err()
        .filter(|_| is_set)
        .map(ToString::to_string);
    let filter = filter.unwrap_or_else(|_| EnvFilter::new(&default));
    let (throttle, summaries) = LogThrottleLayer::new();
    let registry = tracing_subscriber::registry().with(filter).with(throttle);
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .with_writer(writer);
    let started = match format {
        LogFormat::Json => {
            let line = tracing_subscriber::fmt::format().json();
            let line = line.flatten_event(true).with_target(false);
            let lines = lines
                .fmt_fields(JsonFields::new())
                .event_format(BoundedLine {
                    format: line,
                    bound: bounded_json,
                    colours: Colours::NONE,
                });
            registry.with(lines).try_init()
        }
        LogFormat::Auto if is_journal() => {
            let lines = lines.event_format(BoundedLine {
                format: JournalFormat,
                bound: bounded_text,
                colours: Colours::NONE,
            });
            registry.with(lines).try_init()
        }
        LogFormat::Auto | LogFormat::Text => {
            let line = tracing_subscriber::fmt::format().with_target(false);
            let lines = lines.event_format(BoundedLine {
                format: line.with_ansi(false),
                bound: bounded_text,
                colours: Colours::of_stderr(),
            });
            registry.with(lines).try_init()
        }
    };
    if let Err(error) = started {
        eprintln!("resyncd: logging cannot be set up: {error}");
    }
    if let Some(error) = misread {
        tracing::warn!(
            code = "rust-log-ignored",
            error,
            level = default,
            "RUST_LOG is not understood, and is ignored"
        );
    }
    summaries
}

/// Standard error with progress bars.
struct BarWriter {
    bars: MultiProgress,
}

impl Write for BarWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.bars
            .suspend(|| io::stderr().write_all(line))
            .map(|()| line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Whether `JOURNAL_STREAM` identifies standard error (systemd.exec(5)).
fn is_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else {
        return false;
    };
    let Ok(file) = rustix::fs::fstat(std::io::stderr()) else {
        return false;
    };
    stream == format!("{}:{}", file.st_dev, file.st_ino)
}

/// One bounded line per event, because events contain remote text.
struct BoundedLine<F> {
    format: F,
    /// Makes a line of what the format has written.
    bound: fn(&str) -> Cow<'_, str>,
    colours: Colours,
}

impl<S, N, F> FormatEvent<S, N> for BoundedLine<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut line: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut text = String::new();
        self.format
            .format_event(context, Writer::new(&mut text), event)?;
        let text = (self.bound)(text.trim_end_matches('\n'));
        let level = *event.metadata().level();
        writeln!(line, "{}", self.colours.log_line(level, &text))
    }
}

/// The text with what is deceptive escaped, and without its end if it is longer than a line.
fn bounded_text(text: &str) -> Cow<'_, str> {
    one_line(text, MAX_LINE).into()
}

/// An object with what is deceptive escaped, and without its ends of texts, if it is longer than a line.
fn bounded_json(text: &str) -> Cow<'_, str> {
    if text.len() <= MAX_LINE {
        return visible_json(text).into();
    }
    let Ok(mut object) = serde_json::from_str::<Map<String, Value>>(text) else {
        return one_line(text, MAX_LINE).into();
    };
    let most = MAX_LINE / object.len().max(1);
    for value in object.values_mut() {
        if let Value::String(text) = value {
            *text = one_line(text, most);
        }
    }
    visible_json(&Value::Object(object).to_string()).into()
}

/// The journal's format: with a priority prefix (sd-daemon(3)) and without the time, which the journal adds.
struct JournalFormat;

impl<S, N> FormatEvent<S, N> for JournalFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut line: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let priority = match *event.metadata().level() {
            Level::ERROR => 3,
            Level::WARN => 4,
            Level::INFO => 6,
            Level::DEBUG | Level::TRACE => 7,
        };
        write!(line, "<{priority}>")?;
        context.field_format().format_fields(line.by_ref(), event)?;
        writeln!(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_object_is_cut_and_still_one() {
        let short = r#"{"level":"INFO","message":"short"}"#;
        assert_eq!(bounded_json(short), short);
        let long = "\u{1b}é".repeat(MAX_LINE);
        let object = serde_json::json!({ "level": "WARN", "count": 7, "message": long, "code": "not-found" });
        let cut = bounded_json(&object.to_string()).into_owned();
        assert!(cut.len() <= 2 * MAX_LINE, "{}", cut.len());
        let cut: Map<String, Value> = serde_json::from_str(&cut).unwrap();
        assert_eq!(cut["level"], "WARN");
        assert_eq!(cut["count"], 7);
        assert_eq!(cut["code"], "not-found");
        assert!(cut["message"].as_str().unwrap().len() <= MAX_LINE);
    }
}
