//! TOML with slips in it, read as far as it goes: one slip must not hide what else is wrong in the file.
//!
//! The TOML parser goes on after most slips, but not after all, and after some it tells of things that are only their
//! echo (an array that is not closed swallows the tables behind it). So a line that is no TOML is told once, made
//! harmless, and the text is parsed again. Lines never move: the numbers stay those of the file.

use std::collections::BTreeSet;
use std::ops::Range;

use toml::de::{DeTable, Error};

/// After so many slips the file is not a configuration file, and the rest is not looked at.
const MAX_SLIPS: usize = 100;

/// A place where the text is not TOML.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Slip {
    /// The line, counted from 1.
    pub(super) line: usize,
    /// What the parser says to it.
    pub(super) message: String,
}

/// A text without slips, and those that it had.
pub(super) struct Mended {
    /// The text, line by line the same, without the slips.
    pub(super) text: String,
    /// The slips, in the order of their lines.
    pub(super) slips: Vec<Slip>,
    /// The lines whose values are not what the file says: nothing can be said about them.
    pub(super) unknown: BTreeSet<usize>,
    /// Whether there were so many slips that the text was given up.
    pub(super) hopeless: bool,
}

/// Takes the slips out of a text.
pub(super) fn mend(text: &str) -> Mended {
    let mut lines: Vec<String> = text.split('\n').map(str::to_owned).collect();
    let mut mended = Mended {
        text: text.to_owned(),
        slips: Vec::new(),
        unknown: BTreeSet::new(),
        hopeless: false,
    };
    while let Some(error) = first_slip(&mended.text) {
        let Some(place) = Place::of(&error, &mended.text, &lines) else {
            // Nothing can be taken out; but what can't be read has a fault, whatever it points at.
            if mended.slips.is_empty() {
                let start = error.span().map_or(0, |span| span.start);
                mended.slips.push(Slip {
                    line: line_at(&mended.text, start) + 1,
                    message: error.message().to_owned(),
                });
            }
            mended.hopeless = true;
            break;
        };
        // The echo of a line that was mended in vain is not a second slip.
        if !mended.unknown.contains(&(place.line + 1)) {
            mended.slips.push(Slip {
                line: place.line + 1,
                message: place.message,
            });
        }
        if mended.slips.len() > MAX_SLIPS {
            mended.hopeless = true;
            break;
        }
        let first = lines[place.lines.start].clone();
        let tried = mended.unknown.contains(&(place.lines.start + 1));
        for line in place.lines.clone() {
            lines[line].clear();
            mended.unknown.insert(line + 1);
        }
        mended.unknown.insert(place.line + 1);
        if !tried {
            lines[place.lines.start] = placeholder(&first).unwrap_or_default();
        }
        mended.text = lines.join("\n");
    }
    mended.slips.sort_by_key(|slip| slip.line);
    mended
}

/// The first place where the text is not TOML. Keys and tables that are given twice are TOML that is read well enough.
///
/// Arrays come before all else: one that is not closed makes slips of whatever is behind it.
fn first_slip(text: &str) -> Option<Error> {
    let (_, errors) = DeTable::parse_recoverable(text);
    errors
        .into_iter()
        .filter(|error| !is_duplicate(error))
        .min_by_key(|error| (!is_of_array(error), error.span().map(|span| span.start)))
}

/// Whether the parser complains of a key or table that was there before.
pub(super) fn is_duplicate(error: &Error) -> bool {
    let message = error.message();
    message.starts_with("duplicate key") || message.starts_with("cannot extend value")
}

/// Whether the parser complains of something within an array of values.
fn is_of_array(error: &Error) -> bool {
    let message = error.message();
    message.contains("array") && !message.contains("array table")
}

/// The line that a byte of the text is on, counted from 0.
pub(super) fn line_at(text: &str, offset: usize) -> usize {
    let before = &text.as_bytes()[..offset.min(text.len())];
    before.iter().filter(|byte| **byte == b'\n').count()
}

/// Where a slip is, lines counted from 0.
struct Place {
    /// The line to tell.
    line: usize,
    message: String,
    /// The lines that have to go, not empty; the first may keep its key.
    lines: Range<usize>,
}

impl Place {
    /// `None`, when the error points at nothing that could be taken out.
    fn of(error: &Error, text: &str, lines: &[String]) -> Option<Self> {
        let found = line_at(text, error.span()?.start);
        // At the end of the text the parser points behind what it misses something of.
        let line = (0..=found).rev().find(|line| !is_blank(&lines[*line]))?;
        let message = error.message();
        if is_of_array(error) {
            let opens = |line: &usize| opens_array(&lines[*line]);
            if let Some(start) = (0..=line).rev().find(opens) {
                let end = (start + 1..lines.len())
                    .find(|line| begins_expression(&lines[*line]))
                    .unwrap_or(lines.len());
                // What it complains of is beyond the array: the array lacks its end.
                let (line, message) = if line >= end || message.starts_with("unclosed") {
                    (start, "unclosed array, expected `]`")
                } else {
                    (line, message)
                };
                return Some(Self {
                    line,
                    message: message.to_owned(),
                    lines: start..end,
                });
            }
        }
        Some(Self {
            line,
            message: message.to_owned(),
            lines: line..line + 1,
        })
    }
}

/// What can be saved of a line: the table that it begins, or the key that it gives, with a value of no meaning.
fn placeholder(line: &str) -> Option<String> {
    let line = line.trim();
    let bare = |text: &str| {
        let end = text
            .find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')))
            .unwrap_or(text.len());
        text[..end].to_owned()
    };
    let mended = if let Some(name) = line.strip_prefix("[[") {
        format!("[[{}]]", bare(name.trim_start()))
    } else if let Some(name) = line.strip_prefix('[') {
        format!("[{}]", bare(name.trim_start()))
    } else {
        format!("{} = \"\"", bare(line))
    };
    first_slip(&mended).is_none().then_some(mended)
}

fn is_blank(line: &str) -> bool {
    line.trim().is_empty()
}

/// Whether a line gives a key or begins a table.
fn begins_expression(line: &str) -> bool {
    line.trim_start().starts_with('[') || value_of(line).is_some()
}

/// Whether a line gives a key a value that begins with `[`.
fn opens_array(line: &str) -> bool {
    value_of(line).is_some_and(|value| value.trim_start().starts_with('['))
}

/// What stands behind `key =`.
fn value_of(line: &str) -> Option<&str> {
    let (key, value) = line.split_once('=')?;
    let key = key.trim();
    let of_key = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '"' | '\'');
    (!key.is_empty() && key.chars().all(of_key)).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(text: &str, slips: &[usize], mended: &str) {
        let found = mend(text);
        let lines: Vec<usize> = found.slips.iter().map(|slip| slip.line).collect();
        assert_eq!(lines, slips, "{text}\n{:?}", found.slips);
        assert_eq!(found.text, mended);
        assert!(!found.hopeless);
    }

    #[test]
    fn sound_text_stays_as_it_is() {
        check("a = 1\r\n[b]\r\n", &[], "a = 1\r\n[b]\r\n");
        check("", &[], "");
        check("a = 1\na = 2", &[], "a = 1\na = 2");
    }

    #[test]
    fn a_line_that_is_no_toml_keeps_its_key() {
        check("a = 60s\nb = 1", &[1], "a = \"\"\nb = 1");
        check("a = \"x\nb = 1", &[1], "a = \"\"\nb = 1");
        check("a =\nb = 1", &[1], "a = \"\"\nb = 1");
        check("a\nb = 1", &[1], "a = \"\"\nb = 1");
        check("a b = 2\nb = 1", &[1], "a = \"\"\nb = 1");
        check("?!\nb = 1", &[1], "\nb = 1");
        check("= 3\nb = 1", &[1], "\nb = 1");
    }

    #[test]
    fn a_table_keeps_its_header() {
        check("[[a]\nb = 1", &[1], "[[a]]\nb = 1");
        check("[a\nb = 1", &[1], "[a]\nb = 1");
        check("[a]]\nb = 1", &[1], "[a]\nb = 1");
    }

    #[test]
    fn an_array_without_end_swallows_nothing() {
        check("a = [\"x\",\n[b]\nc = 1\n", &[1], "a = \"\"\n[b]\nc = 1\n");
        check("[b]\na = [\"x\"\n\n", &[2], "[b]\na = \"\"\n\n");
        check(
            "a = [\n  \"x\"\n  \"y\"\n]\nb = 1",
            &[3],
            "a = \"\"\n\n\n\nb = 1",
        );
    }

    #[test]
    fn every_slip_is_told_once() {
        check(
            "a = 60s\nx y\n[[s]\nn = \"a\nu = \n[t]\nb = 2013-99-99",
            &[1, 2, 3, 4, 5, 7],
            "a = \"\"\nx = \"\"\n[[s]]\nn = \"\"\nu = \"\"\n[t]\nb = \"\"",
        );
    }

    #[test]
    fn a_text_that_is_no_toml_at_all_is_given_up() {
        assert!(mend(&"<html>&nbsp;</html>\n".repeat(500)).hopeless);
    }

    proptest! {
        #[test]
        fn any_text_ends_as_toml_with_as_many_lines(
            text in "([a-c\\[\\]{}=\"'#., \n\r\t0-9\\\\é]{0,3}|\"\"\"|\\[\\[s\\]\\]\n){0,40}",
        ) {
            let found = mend(&text);
            if !found.hopeless {
                prop_assert!(first_slip(&found.text).is_none());
            }
            prop_assert_eq!(found.text.matches('\n').count(), text.matches('\n').count());
            let lines = text.split('\n').count();
            prop_assert!(found.slips.iter().all(|slip| (1..=lines).contains(&slip.line)));
        }
    }
}
