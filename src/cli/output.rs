//! Standard output and standard error of the commands.
//!
//! The macros of the standard library panic when the reader of a pipe has closed it (`resyncd status | head`). Those of this
//! module's parent, of the same names, call these functions: what can't be printed changes nothing about what a command does and
//! how it ends. But a result that is lost for any other reason, such as a full disk, is a failure.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use resyncd_core::{one_line, visible_json};
use serde::Serialize;
use serde_json::json;

/// Whether the reader of standard output has closed it.
static CLOSED: AtomicBool = AtomicBool::new(false);
/// Whether something could not be written to standard output although it is open.
static LOST: AtomicBool = AtomicBool::new(false);

/// Prints a line on standard output.
pub(super) fn print_line(line: Arguments<'_>) {
    print_text(&format!("{line}\n"));
}

/// Prints a text on standard output.
pub(super) fn print_text(text: &str) {
    print_as_is(&visible_lines(text));
}

/// A value as JSON on a line, which printing does not alter.
pub(super) fn json_line(value: &impl Serialize) -> String {
    visible_json(&json!(value).to_string())
}

/// Prints a text that has nothing remote in it, or nothing that is not escaped: it may have colours.
pub(super) fn print_as_is(text: &str) {
    if is_closed() || is_lost() {
        return;
    }
    let mut output = io::stdout().lock();
    let written = output.write_all(text.as_bytes());
    match written.and_then(|()| output.flush()) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {
            CLOSED.store(true, Ordering::Relaxed);
        }
        Err(error) => {
            LOST.store(true, Ordering::Relaxed);
            print_error(format_args!(
                "resyncd: cannot write to standard output: {error} [output]"
            ));
        }
    }
}

/// Prints a line on standard error. There is no place left to report that it can't be written.
pub(super) fn print_error(line: Arguments<'_>) {
    let line = visible_lines(&format!("{line}\n"));
    let _ = io::stderr().lock().write_all(line.as_bytes());
}

/// The lines of a text, escaped: whoever prints something remote need not think of the terminal. JSON must be printed as
/// [`visible_json`], which nothing here alters.
fn visible_lines(text: &str) -> String {
    let lines = text.split('\n').map(|line| one_line(line, usize::MAX));
    lines.collect::<Vec<_>>().join("\n")
}

/// Whether nobody reads standard output any more.
pub(super) fn is_closed() -> bool {
    CLOSED.load(Ordering::Relaxed)
}

/// Whether a part of the result was lost.
pub(super) fn is_lost() -> bool {
    LOST.load(Ordering::Relaxed)
}
