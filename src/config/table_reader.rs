//! Reads one table of the configuration file key by key. Valid values are returned; the others become faults with their line.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::config::fault::{FaultCollector, FaultKind};
use crate::config::value;

/// The keys of folders.
pub(super) const FOLDERS: [&str; 3] = ["state_dir", "mirror", "versions"];
/// The tables and their keys; `""` is the part before the first table.
const KEYS: [(&str, &[&str]); 11] = [
    (
        "",
        &[
            "state_dir",
            "callback",
            "status",
            "http",
            "limits",
            "feed",
            "log",
            "xmpp",
            "source",
        ],
    ),
    ("callback", &["listen", "public_url"]),
    ("status", &["listen", "hosts", "token_file"]),
    (
        "http",
        &[
            "connections_per_host",
            "streams_per_host",
            "timeout",
            "user_agent",
            "allow_private_addresses",
            "allow_redirects_to_http",
            "proxy",
            "no_proxy",
            "ca_file",
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
            "uri",
            "held_notifications",
            "resources",
            "sets",
            "third_party_requests",
        ],
    ),
    ("feed", &["keep"]),
    ("log", &["format"]),
    (
        "xmpp",
        &[
            "jid",
            "password",
            "password_file",
            "password_credential",
            "server",
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
            "requests_per_second",
            "connections_per_host",
            "bandwidth",
            "robots",
            "lease",
            "baseline",
            "allow_type_mismatch",
            "patches",
            "versions",
            "undated_per_day",
            "stale_after",
            "delete",
            "max_delete",
            "signatures",
            "hub",
            "trust_hub",
            "callback_protocols",
            "hosts",
            "include",
            "exclude",
            "types",
            "collections",
            "profiles",
            "metadata",
            "representations",
            "auth",
            "hook",
        ],
    ),
    (
        "source.auth",
        &[
            "bearer",
            "bearer_file",
            "bearer_credential",
            "basic",
            "basic_file",
            "basic_credential",
            "header",
            "header_file",
            "header_credential",
            "certificate",
            "certificate_file",
            "certificate_credential",
            "key",
            "key_file",
            "key_credential",
            "origins",
        ],
    ),
    (
        "source.hook",
        &[
            "name",
            "command",
            "url",
            "secret",
            "secret_file",
            "secret_credential",
            "timeout",
            "lines",
        ],
    ),
];

/// A value with its place in the file, for faults that are found later.
#[derive(Clone)]
pub(super) struct Located<T> {
    pub(super) value: T,
    /// The line, from 1; `None` if the value is the default.
    pub(super) line: Option<usize>,
    /// The key, with its table.
    pub(super) key: String,
}

/// One table of the file.
pub(super) struct TableReader<'s, 'f> {
    faults: &'s mut FaultCollector<'f>,
    /// Which of [`KEYS`] it is.
    kind: &'static str,
    /// The prefix of its keys in faults: `http`, `source[example]` or empty.
    label: String,
    table: &'s DeTable<'s>,
    line: Option<usize>,
}

impl<'s, 'f> TableReader<'s, 'f> {
    /// `line`: of the table's header, from 1.
    pub(super) fn new(
        faults: &'s mut FaultCollector<'f>,
        kind: &'static str,
        label: String,
        table: &'s DeTable<'s>,
        line: Option<usize>,
    ) -> Self {
        let mut section = Self {
            faults,
            kind,
            label,
            table,
            line,
        };
        section.reject_unknown_keys();
        section
    }

    /// Parses a string; `expected` describes it in the fault of a value of another type.
    pub(super) fn text<T>(
        &mut self,
        key: &str,
        expected: &'static str,
        parse: impl FnOnce(&str) -> Result<T, FaultKind>,
    ) -> Option<T> {
        self.value(key, |value| match value.as_str() {
            Some(text) => parse(text),
            None => Err(wrong_type(expected, value)),
        })
    }

    /// Parses a required string.
    pub(super) fn required<T>(
        &mut self,
        key: &str,
        expected: &'static str,
        parse: impl FnOnce(&str) -> Result<T, FaultKind>,
    ) -> Option<T> {
        if self.table.get(key).is_none() {
            let name = self.name(key);
            self.faults.add(self.line, &name, &FaultKind::MissingKey);
        }
        self.text(key, expected, parse)
    }

    /// A boolean.
    pub(super) fn flag(&mut self, key: &str) -> Option<bool> {
        self.value(key, |value| {
            let flag = value.as_bool();
            flag.ok_or_else(|| wrong_type("true or false", value))
        })
    }

    /// An integer in a range.
    pub(super) fn number(&mut self, key: &str, range: RangeInclusive<usize>) -> Option<usize> {
        self.value(key, |value| {
            let Some(number) = value.as_integer() else {
                return Err(wrong_type("an integer", value));
            };
            let number = usize::from_str_radix(number.as_str(), number.radix());
            value::within(range, number.ok())
        })
    }

    /// A number in a range, with or without decimals.
    pub(super) fn decimal(&mut self, key: &str, range: RangeInclusive<f64>) -> Option<f64> {
        self.value(key, |value| {
            let number = match (value.as_float(), value.as_integer()) {
                (Some(number), _) => number.as_str().parse().ok(),
                (None, Some(number)) => number.as_str().parse().ok(),
                (None, None) => return Err(wrong_type("a number", value)),
            };
            value::within(range, number)
        })
    }

    /// A list of strings; those that cannot be parsed become faults.
    pub(super) fn list<T>(
        &mut self,
        key: &str,
        parse: impl Fn(&str) -> Result<T, FaultKind>,
    ) -> Option<Vec<T>> {
        const EXPECTED: &str = "a list of strings, such as [\"a\", \"b\"]";
        let entry = self.table.get(key)?;
        let name = self.name(key);
        let Some(array) = entry.get_ref().as_array() else {
            let kind = wrong_type(EXPECTED, entry.get_ref());
            self.faults.add_at(entry.span(), &name, &kind);
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
                Err(kind) => self.faults.add_at(item.span(), &name, &kind),
            }
        }
        Some(list)
    }

    /// A path, made absolute relative to the folder.
    pub(super) fn path(&mut self, key: &str, folder: &Path) -> Option<PathBuf> {
        self.text(key, "a path", |text| parse_path(text, folder))
    }

    /// A path that is not set where the text is empty.
    pub(super) fn optional_path(&mut self, key: &str, folder: &Path) -> Option<PathBuf> {
        let parse = |text: &str| match text {
            "" => Ok(None),
            text => parse_path(text, folder).map(Some),
        };
        self.text(key, "a path", parse).flatten()
    }

    /// A required path.
    pub(super) fn required_path(&mut self, key: &str, folder: &Path) -> Option<PathBuf> {
        self.required(key, "a path", |text| parse_path(text, folder))
    }

    /// A table in this one, of another kind.
    pub(super) fn table<'t>(
        &'t mut self,
        key: &str,
        kind: &'static str,
        expected: &'static str,
    ) -> Option<TableReader<'t, 'f>> {
        let value = self.table.get(key)?;
        let name = self.name(key);
        let line = self.faults.line(value.span());
        let table = table_of(self.faults, &name, expected, value)?;
        Some(TableReader::new(self.faults, kind, name, table, Some(line)))
    }

    /// The tables of a list in this one, of another kind; `read` gets the number of each, from 1.
    pub(super) fn tables(
        &mut self,
        key: &str,
        kind: &'static str,
        expected: &'static str,
        mut read: impl FnMut(usize, TableReader<'_, 'f>),
    ) {
        let Some(value) = self.table.get(key) else {
            return;
        };
        let name = self.name(key);
        let Some(array) = value.get_ref().as_array() else {
            let wrong = wrong_type(expected, value.get_ref());
            self.faults.add_at(value.span(), &name, &wrong);
            return;
        };
        for (index, item) in array.iter().enumerate() {
            let label = format!("{name}[#{}]", index + 1);
            let line = self.faults.line(item.span());
            if let Some(table) = table_of(self.faults, &label, expected, item) {
                let section = TableReader::new(self.faults, kind, label, table, Some(line));
                read(index + 1, section);
            }
        }
    }

    /// Whether a key is there.
    pub(super) fn is_present(&self, key: &str) -> bool {
        self.table.get(key).is_some()
    }

    /// Adds a fault of the table, at its key if that is there.
    pub(super) fn reject_table(&mut self, key: &str, kind: &FaultKind) {
        if self.is_present(key) {
            self.reject(key, kind);
        } else {
            let name = self.name(key);
            self.faults.add(self.line, &name, kind);
        }
    }

    /// Whether a key is there, with anything but an empty text.
    pub(super) fn is_given(&self, key: &str) -> bool {
        let value = self.table.get(key);
        value.is_some_and(|value| value.get_ref().as_str() != Some(""))
    }

    /// Adds a fault of a value that is valid by itself.
    pub(super) fn reject(&mut self, key: &str, kind: &FaultKind) {
        let name = self.name(key);
        if let Some(entry) = self.table.get(key) {
            self.faults.add_at(entry.span(), &name, kind);
        }
    }

    /// The value with the place of its key.
    pub(super) fn located<T>(&self, key: &str, value: T) -> Located<T> {
        let entry = self.table.get(key);
        Located {
            value,
            line: entry.map(|entry| self.faults.line(entry.span())),
            key: self.name(key),
        }
    }

    fn value<T>(
        &mut self,
        key: &str,
        parse: impl FnOnce(&DeValue<'_>) -> Result<T, FaultKind>,
    ) -> Option<T> {
        let entry = self.table.get(key)?;
        match parse(entry.get_ref()) {
            Ok(value) => Some(value),
            Err(kind) => {
                let name = self.name(key);
                self.faults.add_at(entry.span(), &name, &kind);
                None
            }
        }
    }

    fn reject_unknown_keys(&mut self) {
        let known = keys_of(self.kind);
        for (key, value) in self.table {
            if known.contains(&key.get_ref().as_ref()) {
                continue;
            }
            let kind = unknown_key(self.kind, key.get_ref(), value.get_ref());
            let name = self.name(key.get_ref());
            self.faults.add_at(key.span(), &name, &kind);
        }
    }

    fn name(&self, key: &str) -> String {
        dotted(&self.label, key)
    }
}

/// The key with its prefix.
pub(super) fn dotted(label: &str, key: &str) -> String {
    if label.is_empty() {
        key.to_owned()
    } else {
        format!("{label}.{key}")
    }
}

/// The table, or a fault if the value is of another type.
pub(super) fn table_of<'t>(
    faults: &mut FaultCollector<'_>,
    key: &str,
    expected: &'static str,
    value: &'t Spanned<DeValue<'t>>,
) -> Option<&'t DeTable<'t>> {
    let table = value.get_ref().as_table();
    if table.is_none() {
        faults.add_at(value.span(), key, &wrong_type(expected, value.get_ref()));
    }
    table
}

pub(super) fn wrong_type(expected: &'static str, value: &DeValue<'_>) -> FaultKind {
    let found = match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a datetime",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    };
    FaultKind::WrongType { expected, found }
}

pub(super) fn parse_path(text: &str, folder: &Path) -> Result<PathBuf, FaultKind> {
    let bad = || FaultKind::BadPath(text.to_owned());
    if text.is_empty() || text.contains('\0') {
        return Err(bad());
    }
    std::path::absolute(folder.join(text)).map_err(|_| bad())
}

/// The keys of a table.
pub(super) fn keys_of(kind: &str) -> &'static [&'static str] {
    let found = KEYS.iter().find(|(table, _)| *table == kind);
    found.map_or(&[], |(_, keys)| keys)
}

/// The fault of an unknown key or table, with a suggestion.
fn unknown_key(kind: &str, key: &str, value: &DeValue<'_>) -> FaultKind {
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
        FaultKind::UnknownTable(hint)
    } else {
        FaultKind::UnknownKey(hint)
    }
}

fn place_of(table: &str) -> String {
    match table {
        "" => "before the first table".to_owned(),
        "source" => "in [[source]]".to_owned(),
        "source.auth" => "in [source.auth], below its [[source]]".to_owned(),
        "source.hook" => "in [[source.hook]], below its [[source]]".to_owned(),
        table => format!("in [{table}]"),
    }
}

/// The known key that is most similar to an unknown one, if any.
fn nearest(key: &str, known: &[&'static str]) -> Option<&'static str> {
    let key: String = key.to_lowercase().replace('-', "_");
    let close = |known: &&'static str| {
        let distance = strsim::osa_distance(&key, known);
        (distance <= 1 + known.len() / 4).then_some((distance, *known))
    };
    // If no spelling is close, one key may be the beginning of the other.
    let part = |known: &&&'static str| {
        key.len() >= 3 && (known.starts_with(&key) || key.starts_with(**known))
    };
    let like = known.iter().filter_map(close).min();
    // A word that is left out is likelier than two letters.
    let word = |known: &&&'static str| {
        let rest = known.strip_prefix(key.as_str());
        rest.is_some_and(|rest| rest.starts_with('_'))
    };
    like.filter(|(distance, _)| *distance < 2)
        .map(|(_, known)| known)
        .or_else(|| known.iter().find(word).copied())
        .or_else(|| like.map(|(_, known)| known))
        .or_else(|| known.iter().find(part).copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_keys_are_suggested() {
        let check = |key: &str, known: Option<&str>| {
            assert_eq!(nearest(key, keys_of("source")), known, "{key}");
        };
        check("poll-interval", Some("poll_interval"));
        check("Lease", Some("lease"));
        check("ulr", Some("url"));
        check("poll_intervall", Some("poll_interval"));
        check("mirrors", Some("mirror"));
        check("poll", Some("poll_interval"));
        check("reorder", Some("reorder_window"));
        check("set", Some("sets"));
        check("password", None);
        check("x", None);
        assert_eq!(nearest("state", keys_of("")), Some("state_dir"));
        assert_eq!(nearest("stats", keys_of("")), Some("status"));
    }
}
