//! Logs: to standard error, one line an event; as the journal likes them when standard error leads there.

use std::fmt;
use std::io::{self, Write};

use indicatif::MultiProgress;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::{FormatFields, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, MakeWriter};
use tracing_subscriber::registry::LookupSpan;

use crate::status::one_line;

/// How long a line may be, in bytes.
const LONGEST_LINE: usize = 4096;

/// Whether only warnings are logged unless `RUST_LOG` says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quiet {
    Yes,
    No,
}

/// Starts logging. Once; what comes later changes nothing.
pub(super) fn start(quiet: Quiet) {
    start_on(quiet, std::io::stderr);
}

/// The same beside bars that are drawn on a terminal: they make room for each line.
pub(super) fn start_beside(quiet: Quiet, bars: MultiProgress) {
    start_on(quiet, move || Beside { bars: bars.clone() });
}

fn start_on<W>(quiet: Quiet, writer: W)
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let default = if quiet == Quiet::Yes { "warn" } else { "info" };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    let logs = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .with_writer(writer);
    let started = if leads_to_journal() {
        logs.event_format(OneLine(JournalLine)).try_init()
    } else {
        let line = tracing_subscriber::fmt::format().with_target(false);
        logs.event_format(OneLine(line.with_ansi(false))).try_init()
    };
    if let Err(error) = started {
        eprintln!("resyncd: logging can't be set up: {error}");
    }
}

/// Standard error, with bars on it.
struct Beside {
    bars: MultiProgress,
}

impl Write for Beside {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.bars
            .suspend(|| io::stderr().write_all(line))
            .map(|()| line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Whether `JOURNAL_STREAM` names the file that standard error is (systemd.exec(5)).
fn leads_to_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else {
        return false;
    };
    let Ok(found) = rustix::fs::fstat(std::io::stderr()) else {
        return false;
    };
    stream == format!("{}:{}", found.st_dev, found.st_ino)
}

/// One line an event, whatever strangers have put into it: control characters are escaped, and what is too long is cut.
struct OneLine<F>(F);

impl<S, N, F> FormatEvent<S, N> for OneLine<F>
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
        let mut whole = String::new();
        self.0
            .format_event(context, Writer::new(&mut whole), event)?;
        writeln!(
            line,
            "{}",
            one_line(whole.trim_end_matches('\n'), LONGEST_LINE)
        )
    }
}

/// A line with the priority in front that the journal reads (sd-daemon(3)), and without the time, which it knows.
struct JournalLine;

impl<S, N> FormatEvent<S, N> for JournalLine
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
