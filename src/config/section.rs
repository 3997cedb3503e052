//! One table of the configuration file, key by key: what is well is handed on, what is not becomes a fault with its
//! line.

use std::collections::BTreeSet;
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::config::fault::{Fault, Faults, Problem};
use crate::config::syntax::line_at;
use crate::config::value;

/// The tables and their keys, as the file names them; `""` is what stands before the first table.
const KEYS: [(&str, &[&str]); 6] = [
    (
        "",
        &[
            "state_dir",
            "callback",
            "status",
            "http",
            "limits",
            "source",
        ],
    ),
    ("callback", &["listen", "public_url"]),
    ("status", &["listen", "hosts"]),
    (
        "http",
        &[
            "connections_per_host",
            "timeout",
            "user_agent",
            "allow_private_addresses",
        ],
    ),
    (
        "limits",
        &[
            "document",
            "notification",
            "resource",
            "package",
            "inbox",
            "held_notifications",
        ],
    ),
    (
        "source",
        &[
            "name",
            "url",
            "mirror",
            "sets",
            "notifications",
            "poll_interval",
            "reorder_window",
            "lease",
            "baseline",
            "delete",
            "max_delete",
            "signatures",
            "hub",
            "hosts",
            "include",
            "exclude",
        ],
    ),
];

/// What has been found wrong in one file so far.
pub(super) struct Findings<'a> {
    file: &'a Path,
    text: &'a str,
    /// The lines that tell nothing, because they were not TOML.
    unknown: &'a BTreeSet<usize>,
    faults: Vec<Fault>,
}

impl<'a> Findings<'a> {
    pub(super) fn new(file: &'a Path, text: &'a str, unknown: &'a BTreeSet<usize>) -> Self {
        Self {
            file,
            text,
            unknown,
            faults: Vec::new(),
        }
    }

    /// The line, from 1, that a part of the text begins on.
    pub(super) fn line(&self, span: Range<usize>) -> usize {
        line_at(self.text, span.start) + 1
    }

    /// Adds a fault.
    pub(super) fn add(&mut self, line: Option<usize>, key: &str, problem: &Problem) {
        self.faults.push(fault(self.file, line, key, problem));
    }

    /// Adds a fault of a value, unless the file's own value is not known.
    fn add_at(&mut self, span: Range<usize>, key: &str, problem: &Problem) {
        let line = self.line(span);
        if !self.unknown.contains(&line) {
            self.add(Some(line), key, problem);
        }
    }

    /// All faults, in the order of their lines.
    pub(super) fn into_faults(mut self) -> Faults {
        self.faults
            .sort_by_key(|fault| (fault.line.unwrap_or(usize::MAX), fault.key.clone()));
        Faults(self.faults)
    }
}

/// A fault of a file.
pub(super) fn fault(file: &Path, line: Option<usize>, key: &str, problem: &Problem) -> Fault {
    Fault {
        file: file.to_owned(),
        line,
        key: key.to_owned(),
        code: problem.code(),
        message: problem.to_string(),
    }
}

/// A value, with its place for what is to be said of it later.
#[derive(Clone)]
pub(super) struct Placed<T> {
    pub(super) value: T,
    /// The line, from 1; `None`, when it is the default.
    pub(super) line: Option<usize>,
    /// The key, with its table.
    pub(super) key: String,
}

/// One table of the file.
pub(super) struct Section<'s, 'f> {
    findings: &'s mut Findings<'f>,
    /// Which of [`KEYS`] it is.
    kind: &'static str,
    /// What its keys go by: `http`, `source[example]`, or nothing.
    label: String,
    table: &'s DeTable<'s>,
    line: Option<usize>,
}

impl<'s, 'f> Section<'s, 'f> {
    /// `line` is where the table begins, from 1.
    pub(super) fn new(
        findings: &'s mut Findings<'f>,
        kind: &'static str,
        label: String,
        table: &'s DeTable<'s>,
        line: Option<usize>,
    ) -> Self {
        let mut section = Self {
            findings,
            kind,
            label,
            table,
            line,
        };
        section.tell_unknown_keys();
        section
    }

    /// A text, parsed; `expected` is what it should be, for a person who gave something other than a text.
    pub(super) fn text<T>(
        &mut self,
        key: &str,
        expected: &'static str,
        parse: impl FnOnce(&str) -> Result<T, Problem>,
    ) -> Option<T> {
        self.value(key, |value| match value.as_str() {
            Some(text) => parse(text),
            None => Err(wrong_type(expected, value)),
        })
    }

    /// A text that there must be.
    pub(super) fn required<T>(
        &mut self,
        key: &str,
        expected: &'static str,
        parse: impl FnOnce(&str) -> Result<T, Problem>,
    ) -> Option<T> {
        if self.table.get(key).is_none() {
            let name = self.name(key);
            self.findings.add(self.line, &name, &Problem::MissingKey);
        }
        self.text(key, expected, parse)
    }

    /// Yes or no.
    pub(super) fn flag(&mut self, key: &str) -> Option<bool> {
        self.value(key, |value| {
            let flag = value.as_bool();
            flag.ok_or_else(|| wrong_type("true or false", value))
        })
    }

    /// A whole number in a range.
    pub(super) fn number(&mut self, key: &str, range: RangeInclusive<usize>) -> Option<usize> {
        self.value(key, |value| {
            let Some(number) = value.as_integer() else {
                return Err(wrong_type("a whole number", value));
            };
            let number = usize::from_str_radix(number.as_str(), number.radix());
            value::within(range, number.ok())
        })
    }

    /// A list of texts: those that can be parsed.
    pub(super) fn list<T>(
        &mut self,
        key: &str,
        parse: impl Fn(&str) -> Result<T, Problem>,
    ) -> Option<Vec<T>> {
        const EXPECTED: &str = "a list of texts, such as [\"a\", \"b\"]";
        let entry = self.table.get(key)?;
        let name = self.name(key);
        let Some(array) = entry.get_ref().as_array() else {
            let problem = wrong_type(EXPECTED, entry.get_ref());
            self.findings.add_at(entry.span(), &name, &problem);
            return None;
        };
        let mut list = Vec::new();
        for item in array {
            let parsed = match item.get_ref().as_str() {
                Some(text) => parse(text),
                None => Err(wrong_type(EXPECTED, item.get_ref())),
            };
            match parsed {
                Ok(value) => list.push(value),
                Err(problem) => self.findings.add_at(item.span(), &name, &problem),
            }
        }
        Some(list)
    }

    /// A path, made absolute: a relative one begins at the folder.
    pub(super) fn path(&mut self, key: &str, folder: &Path) -> Option<PathBuf> {
        self.text(key, "a path", |text| parse_path(text, folder))
    }

    /// A path that there must be.
    pub(super) fn required_path(&mut self, key: &str, folder: &Path) -> Option<PathBuf> {
        self.required(key, "a path", |text| parse_path(text, folder))
    }

    /// Tells a fault of a key that was well by itself.
    pub(super) fn reject(&mut self, key: &str, problem: &Problem) {
        let name = self.name(key);
        if let Some(entry) = self.table.get(key) {
            self.findings.add_at(entry.span(), &name, problem);
        }
    }

    /// A value together with the place of its key.
    pub(super) fn placed<T>(&self, key: &str, value: T) -> Placed<T> {
        let entry = self.table.get(key);
        Placed {
            value,
            line: entry.map(|entry| self.findings.line(entry.span())),
            key: self.name(key),
        }
    }

    fn value<T>(
        &mut self,
        key: &str,
        parse: impl FnOnce(&DeValue<'_>) -> Result<T, Problem>,
    ) -> Option<T> {
        let entry = self.table.get(key)?;
        match parse(entry.get_ref()) {
            Ok(value) => Some(value),
            Err(problem) => {
                let name = self.name(key);
                self.findings.add_at(entry.span(), &name, &problem);
                None
            }
        }
    }

    fn tell_unknown_keys(&mut self) {
        let known = keys_of(self.kind);
        for (key, value) in self.table {
            if known.contains(&key.get_ref().as_ref()) {
                continue;
            }
            let problem = unknown_key(self.kind, key.get_ref(), value.get_ref());
            let name = self.name(key.get_ref());
            self.findings.add_at(key.span(), &name, &problem);
        }
    }

    fn name(&self, key: &str) -> String {
        dotted(&self.label, key)
    }
}

/// A key with what is before it.
pub(super) fn dotted(label: &str, key: &str) -> String {
    if label.is_empty() {
        key.to_owned()
    } else {
        format!("{label}.{key}")
    }
}

/// A table, or the fault that there is something else in its place.
pub(super) fn table_of<'t>(
    findings: &mut Findings<'_>,
    key: &str,
    expected: &'static str,
    value: &'t Spanned<DeValue<'t>>,
) -> Option<&'t DeTable<'t>> {
    let table = value.get_ref().as_table();
    if table.is_none() {
        findings.add_at(value.span(), key, &wrong_type(expected, value.get_ref()));
    }
    table
}

pub(super) fn wrong_type(expected: &'static str, value: &DeValue<'_>) -> Problem {
    let found = match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a datetime",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    };
    Problem::WrongType { expected, found }
}

fn parse_path(text: &str, folder: &Path) -> Result<PathBuf, Problem> {
    let bad = || Problem::BadPath(text.to_owned());
    if text.is_empty() || text.contains('\0') {
        return Err(bad());
    }
    std::path::absolute(folder.join(text)).map_err(|_| bad())
}

fn keys_of(kind: &str) -> &'static [&'static str] {
    let found = KEYS.iter().find(|(table, _)| *table == kind);
    found.map_or(&[], |(_, keys)| keys)
}

/// An unknown key or table, with what may have been meant.
fn unknown_key(kind: &str, key: &str, value: &DeValue<'_>) -> Problem {
    let tables = value.as_array().is_some_and(|array| {
        !array.is_empty() && array.iter().all(|item| item.get_ref().is_table())
    });
    let home = KEYS
        .iter()
        .find(|(table, keys)| *table != kind && keys.contains(&key));
    let hint = match (nearest(key, keys_of(kind)), home) {
        (_, Some((home, _))) => format!("; it belongs {}", place_of(home)),
        (Some(known), None) => format!("; did you mean {known}?"),
        (None, None) => String::new(),
    };
    if tables || value.is_table() {
        Problem::UnknownTable(hint)
    } else {
        Problem::UnknownKey(hint)
    }
}

fn place_of(table: &str) -> String {
    match table {
        "" => "before the first table".to_owned(),
        "source" => "in [[source]]".to_owned(),
        table => format!("in [{table}]"),
    }
}

/// The known key that is most like an unknown one, if any is like it.
fn nearest(key: &str, known: &[&'static str]) -> Option<&'static str> {
    let key: String = key.to_lowercase().replace('-', "_");
    let close = |known: &&'static str| {
        let distance = edits(&key, known);
        (distance <= 1 + known.len() / 4).then_some((distance, *known))
    };
    // A known key that the unknown one begins, or is the beginning of, is meant more often than one of a like spelling.
    let part = |known: &&&'static str| {
        key.len() >= 3 && (known.starts_with(&key) || key.starts_with(**known))
    };
    let like = known.iter().filter_map(close).min();
    like.map(|(_, known)| known)
        .or_else(|| known.iter().find(part).copied())
}

/// How many letters have to be put in, taken out or replaced to make one text the other (Levenshtein).
fn edits(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (index, letter) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = index + 1;
        for (column, other) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *other);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_counted() {
        assert_eq!(edits("", "abc"), 3);
        assert_eq!(edits("kitten", "sitting"), 3);
        assert_eq!(edits("lease", "lease"), 0);
        assert_eq!(edits("lese", "lease"), 1);
    }

    #[test]
    fn what_was_meant_is_guessed() {
        let check = |key: &str, known: Option<&str>| {
            assert_eq!(nearest(key, keys_of("source")), known, "{key}");
        };
        check("poll-interval", Some("poll_interval"));
        check("Lease", Some("lease"));
        check("poll_intervall", Some("poll_interval"));
        check("mirrors", Some("mirror"));
        check("poll", Some("poll_interval"));
        check("reorder", Some("reorder_window"));
        check("set", Some("sets"));
        check("password", None);
        check("x", None);
    }
}
