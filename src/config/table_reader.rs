//! Reads one table of the configuration file key by key. Valid values are returned; the others become faults with their line.

use std::net::SocketAddr;
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use std::time::Duration;

use resyncd_mirror::MirrorPlace;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use crate::config::fault::{Parsed, Reason};
use crate::config::file::{FileReader, examine_here};
use crate::config::keys;
use crate::config::place::parse_place;
use crate::config::value::{self, parse_address, parse_duration_or_never, parse_name, parse_share};

/// What is known of the values of a key besides their type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// Nothing else.
    Any,
    /// A number that may have decimals.
    Decimal,
    /// A text that a regular expression matches.
    Pattern(&'static str),
    /// One of these texts.
    Choice(Vec<&'static str>),
    /// The path of a folder.
    Folder,
    /// The path of a file that everybody may read.
    PublicFile,
    /// The path of a file that holds a secret.
    SecretFile,
    /// The name of a credential that systemd loads.
    Credential,
    /// A text that names the environment variables of a secret.
    Secret,
    /// A URL, perhaps with a user name and a password.
    Url,
    /// One that this daemon requests, or that requests this daemon.
    PublicUrl,
}

const DURATION: Class = Class::Pattern("^[0-9]+(ms|s|m|h|d)$");
const DURATION_OR_NEVER: Class = Class::Pattern("^(0|[0-9]+(ms|s|m|h|d))$");
const A_DURATION: &str = "a duration such as \"15m\"";
const SIZE: Class = Class::Pattern("^[0-9]+([kKMGT]?B|[KMGT]iB)?$");
const SHARE: Class = Class::Pattern("^[0-9.]+%$");
const NAME: Class = Class::Pattern("^[a-z0-9-]+$");

/// A value with its place in the file, for faults that are found later.
#[derive(Debug)]
pub(super) struct Located<T> {
    pub(super) value: T,
    /// The line, from 1; `None` if the value is the default.
    pub(super) line: Option<usize>,
    /// The key, with its table.
    pub(super) key: String,
}

/// One table of the file, which may be absent. Methods that return a plain value return the default where there is none.
pub(super) struct TableReader<'s, 'f> {
    pub(super) file: &'s mut FileReader<'f>,
    /// Which table it is: `source` of `[[source]]`, or empty.
    kind: &'static str,
    /// The prefix of its keys in faults: `http`, `source[example]` or empty.
    label: String,
    table: Option<&'f DeTable<'f>>,
    line: Option<usize>,
}

impl<'s, 'f> TableReader<'s, 'f> {
    /// `line`: of the table's header, from 1.
    pub(super) fn new(
        file: &'s mut FileReader<'f>,
        kind: &'static str,
        label: String,
        table: Option<&'f DeTable<'f>>,
        line: Option<usize>,
    ) -> Self {
        let found = table.map(|table| (kind, label.clone(), table));
        file.tables.extend(found);
        let mut section = Self {
            file,
            kind,
            label,
            table,
            line,
        };
        section.reject_unknown_keys();
        section
    }

    /// Reads a table that is absent: every key has its default.
    pub(super) fn absent<T>(kind: &'static str, read: fn(&mut TableReader<'_, '_>) -> T) -> T {
        examine_here("", |file, _| {
            read(&mut TableReader::new(file, kind, String::new(), None, None))
        })
    }

    /// What a value is parsed to, if it is there.
    pub(super) fn optional<T>(
        &mut self,
        key: &str,
        class: Class,
        parse: impl Fn(&DeValue<'_>) -> Parsed<T>,
    ) -> Option<T> {
        self.classify(key, class);
        let value = self.get(key)?;
        self.accept(key, value.span(), parse(value.get_ref()))
    }

    /// What a value is parsed to, or else its default.
    pub(super) fn value<T>(
        &mut self,
        key: &str,
        class: Class,
        parse: impl Fn(&DeValue<'_>) -> Parsed<T>,
    ) -> T {
        self.optional(key, class, &parse).unwrap_or_else(|| {
            let example = keys::key(self.kind, key).example_value();
            parse(example.get_ref()).expect("the values of the example are valid")
        })
    }

    /// A duration.
    pub(super) fn duration(&mut self, key: &str, parse: fn(&str) -> Parsed<Duration>) -> Duration {
        let expected = match self.kind {
            "source.hook" => "a duration such as \"60s\"",
            _ => A_DURATION,
        };
        self.value(key, DURATION, text(expected, parse))
    }

    /// A duration; `None`: never.
    pub(super) fn duration_or_never(&mut self, key: &str) -> Option<Duration> {
        let parse = text(A_DURATION, parse_duration_or_never);
        unless_zero(self.value(key, DURATION_OR_NEVER, parse))
    }

    /// A size.
    pub(super) fn size<T>(&mut self, key: &str, parse: fn(&str) -> Parsed<T>) -> T {
        let expected = match self.kind {
            "source" => "a size such as \"2MiB\"",
            _ => "a size such as \"64MiB\"",
        };
        self.value(key, SIZE, text(expected, parse))
    }

    /// A size; `None`: no limit.
    pub(super) fn size_or_none(
        &mut self,
        key: &str,
        parse: fn(&str) -> Parsed<u64>,
    ) -> Option<u64> {
        unless_zero(self.size(key, parse))
    }

    /// A share, 0 to 1.
    pub(super) fn share(&mut self, key: &str) -> f64 {
        let parse = text("a percentage such as \"10%\"", parse_share);
        self.value(key, SHARE, parse)
    }

    /// A label, if it is there.
    pub(super) fn label(&mut self, key: &str) -> Option<String> {
        self.optional(key, NAME, text("a name", parse_name))
    }

    /// The address of a listener.
    pub(super) fn address(&mut self, key: &str) -> SocketAddr {
        let expected = "an address such as \"127.0.0.1:8461\"";
        self.value(key, Class::Any, text(expected, parse_address))
    }

    /// One of several texts.
    pub(super) fn choice<T: Copy>(&mut self, key: &str, choices: &[(&'static str, T)]) -> T {
        let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
        let quoted = names.iter().map(|name| format!("{name:?}"));
        let mut expected = quoted.collect::<Vec<_>>().join(", ");
        if let Some(last) = expected.rfind(", ") {
            expected.replace_range(last..last + 1, " or");
        }
        let parse = |text: &str| {
            let found = choices.iter().find(|(name, _)| *name == text);
            let found = found.map(|(_, value)| *value);
            found.ok_or_else(|| reason!("bad-choice": "{text:?} is not one of {expected}"))
        };
        self.value(key, Class::Choice(names), self::text(&expected, parse))
    }

    /// A boolean.
    pub(super) fn flag(&mut self, key: &str) -> bool {
        self.value(key, Class::Any, flag)
    }

    /// An integer in a range.
    pub(super) fn number<N: TryFrom<usize>>(
        &mut self,
        key: &str,
        range: RangeInclusive<usize>,
    ) -> N {
        self.value(key, Class::Any, |value| {
            let number = value.as_integer();
            let number = number.ok_or_else(|| wrong_type("an integer", value))?;
            let number = usize::from_str_radix(number.as_str(), number.radix());
            value::within(&range, number.ok())
        })
    }

    /// An integer in a range from 0; `None`: 0, for no limit.
    pub(super) fn number_or_none<N: TryFrom<usize> + Default + PartialEq>(
        &mut self,
        key: &str,
        range: RangeInclusive<usize>,
    ) -> Option<N> {
        unless_zero(self.number(key, range))
    }

    /// A number from 0, with or without decimals; `None`: 0, for no limit.
    pub(super) fn decimal_or_none(&mut self, key: &str, range: RangeInclusive<f64>) -> Option<f64> {
        unless_zero(self.value(key, Class::Decimal, |value| {
            let number = match value {
                DeValue::Float(number) => number.as_str(),
                DeValue::Integer(number) => number.as_str(),
                other => return Err(wrong_type("a number", other)),
            };
            value::within(&range, number.parse().ok())
        }))
    }

    /// A list of strings; those that cannot be parsed become faults.
    pub(super) fn list<T>(&mut self, key: &str, parse: impl Fn(&str) -> Parsed<T>) -> Vec<T> {
        self.optional_list(key, &parse).unwrap_or_else(|| {
            let example = keys::key(self.kind, key).example_value();
            let texts = example.get_ref().as_array().into_iter().flatten();
            let texts = texts.filter_map(|text| text.get_ref().as_str());
            let parsed =
                texts.map(|text| parse(text).expect("the values of the example are valid"));
            parsed.collect()
        })
    }

    /// A list of strings, if it is there.
    pub(super) fn optional_list<T>(
        &mut self,
        key: &str,
        parse: impl Fn(&str) -> Parsed<T>,
    ) -> Option<Vec<T>> {
        const EXPECTED: &str = "a list of strings, such as [\"a\", \"b\"]";
        self.classify(key, Class::Any);
        let parse = text(EXPECTED, parse);
        let items = self.array(key, EXPECTED)?.iter();
        let parsed = items.filter_map(|it| self.accept(key, it.span(), parse(it.get_ref())));
        Some(parsed.collect())
    }

    /// The path of a folder.
    pub(super) fn folder(&mut self, key: &str) -> PathBuf {
        let folder = self.file.folder;
        let parse = text("a path", |text| parse_path(text, folder));
        self.value(key, Class::Folder, parse)
    }

    /// The place of a mirror; the empty path if there is none.
    pub(super) fn place(&mut self, key: &str) -> MirrorPlace {
        let folder = self.file.folder;
        let parse = text("a path or a URL", |text| match text {
            "" if key != "mirror" => Ok(PathBuf::new().into()),
            text => parse_place(text, folder),
        });
        self.value(key, Class::Folder, parse)
    }

    /// What a path stands for; the default of an empty one.
    pub(super) fn content<T: Default>(
        &mut self,
        key: &str,
        class: Class,
        read: fn(&Path) -> Parsed<T>,
    ) -> T {
        let folder = self.file.folder;
        let parse = |text: &str| match text {
            "" => Ok(T::default()),
            path => read(&parse_path(path, folder)?),
        };
        self.value(key, class, text("a path", parse))
    }

    /// A table in this one, perhaps absent.
    pub(super) fn table(&mut self, key: &'static str) -> TableReader<'_, 'f> {
        let (kind, expected) = match self.kind {
            "" => (key, "a table with its name in single brackets"),
            _ => ("source.auth", "[source.auth]"),
        };
        let value = self.get(key);
        let line = value.map(|value| self.file.line(value.span()));
        let table =
            value.and_then(|value| self.nested(key, expected, value, value.get_ref().as_table()));
        let label = self.name(key);
        TableReader::new(self.file, kind, label, table, line)
    }

    /// The tables of a list in this one, and how long it is; `read` gets the number of each, from 1.
    pub(super) fn tables(
        &mut self,
        key: &str,
        kind: &'static str,
        mut read: impl FnMut(usize, TableReader<'_, 'f>),
    ) -> usize {
        let expected = format!("[[{kind}]]");
        let array = self.array(key, &expected);
        let items: Vec<_> = match array {
            Some(array) => array.iter().collect(),
            // `[source]` instead of `[[source]]`: its keys are still checked.
            None if kind == "source" => self.get(key).into_iter().collect(),
            None => Vec::new(),
        };
        for (number, item) in (1..).zip(&items) {
            let numbered = format!("{key}[#{number}]");
            let mut table = item.get_ref().as_table();
            if array.is_some() {
                table = self.nested(&numbered, &expected, item, table);
            }
            let Some(table) = table else { continue };
            let name = table.get("name").and_then(|it| it.get_ref().as_str());
            let label = match name {
                Some(name) if kind == "source" && !name.is_empty() => format!("{key}[{name}]"),
                _ => self.name(&numbered),
            };
            let line = Some(self.file.line(item.span()));
            let section = TableReader::new(self.file, kind, label, Some(table), line);
            read(number, section);
        }
        items.len()
    }

    /// The value of a key as a list, or a fault.
    fn array(&mut self, key: &str, expected: &str) -> Option<&'f DeArray<'f>> {
        let value = self.get(key)?;
        self.nested(key, expected, value, value.get_ref().as_array())
    }

    /// The table or the list that a value is, or a fault.
    fn nested<T>(
        &mut self,
        key: &str,
        expected: &str,
        value: &Spanned<DeValue<'_>>,
        found: Option<T>,
    ) -> Option<T> {
        let found = found.ok_or_else(|| wrong_type(expected, value.get_ref()));
        self.accept(key, value.span(), found)
    }

    /// Whether a key is there.
    pub(super) fn is_present(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// Adds a fault at a key, or at the table if that is not there.
    pub(super) fn reject(&mut self, key: &str, reason: Reason) {
        let line = self.located(key, ()).line.or(self.line);
        self.file.add(line, &self.name(key), reason);
    }

    /// Whether a key is there, with anything but an empty text.
    pub(super) fn is_given(&self, key: &str) -> bool {
        self.is_present(key) && !self.has_text(key, "")
    }

    /// The value with the place of its key.
    pub(super) fn located<T>(&self, key: &str, value: T) -> Located<T> {
        let entry = self.get(key);
        Located {
            value,
            line: entry.map(|entry| self.file.line(entry.span())),
            key: self.name(key),
        }
    }

    /// Whether a key is there with this text.
    pub(super) fn has_text(&self, key: &str, text: &str) -> bool {
        let value = self.get(key);
        value.is_some_and(|value| value.get_ref().as_str() == Some(text))
    }

    /// States the class of a key.
    pub(super) fn classify(&mut self, key: &str, class: Class) {
        let known = keys::key(self.kind, key);
        self.file.classes.insert((self.kind, known.name), class);
    }

    /// Whether a key is there with a valid value.
    pub(super) fn is_set(&self, key: &str) -> bool {
        let place = self.located(key, ());
        let has_fault = |line| self.file.has_fault(line, &place.key);
        place.line.is_some_and(|line| !has_fault(line))
    }

    /// The value of a key with its place, if it is there and valid.
    pub(super) fn valid<T: Clone>(&self, key: &str, value: &T) -> Option<Located<T>> {
        self.is_set(key).then(|| self.located(key, value.clone()))
    }

    fn get(&self, key: &str) -> Option<&'f Spanned<DeValue<'f>>> {
        self.table?.get(key)
    }

    /// What was parsed, or a fault.
    fn accept<T>(&mut self, key: &str, span: Range<usize>, parsed: Parsed<T>) -> Option<T> {
        let name = self.name(key);
        let add = |reason| self.file.add_at(span, &name, reason);
        parsed.map_err(add).ok()
    }

    fn reject_unknown_keys(&mut self) {
        let known = keys::names_of(self.kind);
        for (key, value) in self.table.into_iter().flatten() {
            let (span, key) = (key.span(), key.get_ref().as_ref());
            if !known.contains(&key) {
                let reason = unknown_key(self.kind, key, value.get_ref());
                self.file.add_at(span, &self.name(key), reason);
            }
        }
    }

    fn name(&self, key: &str) -> String {
        dotted(&self.label, key)
    }
}

/// The key with its prefix.
pub(super) fn dotted(label: &str, key: &str) -> String {
    match label {
        "" => key.to_owned(),
        label => format!("{label}.{key}"),
    }
}

/// Parses a string; `expected` describes it in the fault of a value of another type.
pub(super) fn text<T>(
    expected: &str,
    parse: impl Fn(&str) -> Parsed<T>,
) -> impl Fn(&DeValue<'_>) -> Parsed<T> {
    move |value| {
        let text = value.as_str().ok_or_else(|| wrong_type(expected, value));
        text.and_then(&parse)
    }
}

pub(super) fn flag(value: &DeValue<'_>) -> Parsed<bool> {
    let flag = value.as_bool();
    flag.ok_or_else(|| wrong_type("true or false", value))
}

/// 0 is no limit.
fn unless_zero<T: Default + PartialEq>(value: T) -> Option<T> {
    Some(value).filter(|value| *value != T::default())
}

fn wrong_type(expected: &str, value: &DeValue<'_>) -> Reason {
    let found = match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a datetime",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    };
    reason!("wrong-type": "expected {expected}, found {found}")
}

pub(super) fn parse_path(text: &str, folder: &Path) -> Parsed<PathBuf> {
    if text.is_empty() || text.contains('\0') {
        return Err(bad_path(text));
    }
    std::path::absolute(folder.join(text)).map_err(|_| bad_path(text))
}

pub(super) fn bad_path(text: &str) -> Reason {
    reason!("bad-path": "{text:?} is not a path")
}

/// The fault of an unknown key or table, with a suggestion.
fn unknown_key(kind: &str, key: &str, value: &DeValue<'_>) -> Reason {
    let tables = value.as_array().is_some_and(|array| {
        !array.is_empty() && array.iter().all(|item| item.get_ref().is_table())
    });
    let home = keys::home_of(key, kind);
    let hint = match (nearest(key, &keys::names_of(kind)), home) {
        (_, Some(home)) => format!("; it belongs {}", place_of(home)),
        (Some(known), None) => format!("; did you mean {known}?"),
        (None, None) => String::new(),
    };
    if tables || value.is_table() {
        reason!("unknown-table": "unknown table{hint}")
    } else {
        reason!("unknown-key": "unknown key{hint}")
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
    let like = known.iter().filter_map(close).min();
    // A word that is left out is likelier than two letters.
    let is_longer = |known: &&&'static str| {
        let rest = known.strip_prefix(key.as_str());
        rest.is_some_and(|rest| rest.starts_with('_'))
    };
    // If no spelling is close, one key may be the beginning of the other.
    let is_part = |known: &&&'static str| {
        key.len() >= 3 && (known.starts_with(&key) || key.starts_with(**known))
    };
    match (like, known.iter().find(is_longer).copied()) {
        (Some((0 | 1, known)), _) | (_, Some(known)) | (Some((_, known)), None) => Some(known),
        (None, None) => known.iter().find(is_part).copied(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_keys_are_suggested() {
        let check = |key: &str, known: Option<&str>| {
            assert_eq!(nearest(key, &keys::names_of("source")), known, "{key}");
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
        assert_eq!(nearest("state", &keys::names_of("")), Some("state_dir"));
        assert_eq!(nearest("stats", &keys::names_of("")), Some("status"));
    }
}
