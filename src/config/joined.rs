//! What a configuration is read from: the file, the files that it includes, and variables of the environment, as one text.
//!
//! Invariant: a line of the text belongs to one of them, which faults name.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use globset::GlobBuilder;
use toml::de::{DeTable, DeValue};

use super::environment::Environment;
use super::fault::{ConfigFault, ConfigFaults, Parsed, Reason, line_at};
use super::file::read_text;
use super::keys::{TABLES, keys_of};
use super::syntax::{parse_toml, toml_string};

/// What the names of variables begin with that set keys.
const PREFIX: &str = "RESYNCD__";
/// The key that names other files.
const INCLUDE: &str = "include";

/// A part of the text.
#[derive(Debug)]
struct Part {
    /// The file, or the name of the variable.
    name: PathBuf,
    /// The line of the text that it begins on, from 1.
    begins: usize,
    is_variable: bool,
}

/// The text.
#[derive(Debug)]
pub(super) struct JoinedText {
    text: String,
    /// Where the variables begin, in bytes.
    variables: usize,
    /// The variables at their place, behind blanks.
    padded: String,
    parts: Vec<Part>,
    /// Where its lines end, in bytes: each value of a long file is looked for.
    line_ends: OnceLock<Vec<usize>>,
}

impl JoinedText {
    /// Joins the text of the file at that path with those that it includes, and with the variables. `folder`: of the file.
    pub(super) fn new(
        own: &str,
        path: &Path,
        folder: &Path,
        environment: &Environment,
    ) -> Result<Self, ConfigFaults> {
        let document = parse_part(own, path)?;
        let included = included(&document, folder);
        let mut joined = Self {
            text: String::new(),
            variables: 0,
            padded: String::new(),
            parts: Vec::new(),
            line_ends: OnceLock::new(),
        };
        joined.append(own, path.to_owned(), false);
        let mut faults = Vec::new();
        for file in
            included.map_err(|reason| reason.alone(path, line_of(own, &document), INCLUDE))?
        {
            let text = read_text(&file).and_then(|text| {
                let found = parse_part(&text, &file)?;
                check_included(&found, &text)
                    .map_err(|(line, key, reason)| reason.alone(&file, Some(line), &key))?;
                Ok(text)
            });
            match text {
                Ok(text) => joined.append(&text, file, false),
                Err(found) => faults.extend(found.0),
            }
        }
        joined.variables = joined.text.len();
        for (name, value) in environment.beginning_with(PREFIX) {
            match line_of_variable(&name, &value) {
                Ok(line) => joined.append(&line, name.into(), true),
                Err(reason) => faults.push(reason.at(Path::new(&name), None, "")),
            }
        }
        let blanks = joined.text[..joined.variables].chars();
        let blanks = blanks.map(|char| {
            if char == '\n' {
                "\n".to_owned()
            } else {
                " ".repeat(char.len_utf8())
            }
        });
        joined.padded = blanks.collect::<String>() + &joined.text[joined.variables..];
        if faults.is_empty() {
            Ok(joined)
        } else {
            Err(ConfigFaults(faults))
        }
    }

    fn append(&mut self, text: &str, name: PathBuf, is_variable: bool) {
        let begins = line_at(self.text.as_bytes(), self.text.len());
        self.text.push_str(text);
        if !text.ends_with('\n') {
            self.text.push('\n');
        }
        self.parts.push(Part {
            name,
            begins,
            is_variable,
        });
    }

    /// The text as a whole, to which the places of values refer.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Parses it. A variable takes precedence over the files.
    pub(super) fn parse(&self) -> Result<DeTable<'_>, ConfigFaults> {
        let parsed = parse_toml(&self.text[..self.variables]);
        let failed = |line: Option<usize>, key: &str, reason: Reason| {
            ConfigFaults(vec![self.fault(line, key, reason)])
        };
        let mut document = parsed.map_err(|fault| failed(fault.line, &fault.key, fault.value))?;
        let set = parse_toml(&self.padded);
        let set = set.map_err(|fault| failed(fault.line, &fault.key, fault.value))?;
        for (key, value) in set {
            let known = document.get_mut(key.get_ref().as_ref());
            match (known.map(|known| known.get_mut()), value.get_ref()) {
                (Some(DeValue::Table(known)), DeValue::Table(_)) => {
                    if let DeValue::Table(values) = value.into_inner() {
                        for (key, value) in values {
                            known.remove(key.get_ref().as_ref());
                            known.insert(key, value);
                        }
                    }
                }
                _ => {
                    document.remove(key.get_ref().as_ref());
                    document.insert(key, value);
                }
            }
        }
        Ok(document)
    }

    /// A fault at a line of the text.
    pub(super) fn fault(&self, line: Option<usize>, key: &str, reason: Reason) -> ConfigFault {
        let Some(line) = line else {
            return reason.at(&self.parts[0].name, None, key);
        };
        let part = self.part(line);
        let own = (!part.is_variable).then(|| line - part.begins + 1);
        reason.at(&part.name, own, key)
    }

    /// A line of the text for people.
    pub(super) fn shown_line(&self, line: usize) -> String {
        let part = self.part(line);
        let own = line - part.begins + 1;
        if part.begins == 1 {
            format!("line {own}")
        } else if part.is_variable {
            part.name.display().to_string()
        } else {
            format!("{}:{own}", part.name.display())
        }
    }

    fn part(&self, line: usize) -> &Part {
        let of_line = self.parts.iter().rev().find(|part| part.begins <= line);
        of_line.unwrap_or(&self.parts[0])
    }

    /// The line of the text, from 1, that a part of it begins on.
    pub(super) fn line(&self, span: Range<usize>) -> usize {
        let line_ends = self.line_ends.get_or_init(|| {
            let ends = self.text.match_indices('\n');
            ends.map(|(end, _)| end).collect()
        });
        1 + line_ends.partition_point(|end| *end < span.start)
    }
}

fn parse_part<'a>(text: &'a str, path: &Path) -> Result<DeTable<'a>, ConfigFaults> {
    parse_toml(text).map_err(|fault| fault.value.alone(path, fault.line, &fault.key))
}

/// The line of the key that names other files.
fn line_of(text: &str, document: &DeTable<'_>) -> Option<usize> {
    let value = document.get(INCLUDE)?;
    Some(line_at(text.as_bytes(), value.span().start))
}

/// The files that a file includes, those of each pattern in the order of their names.
fn included(document: &DeTable<'_>, folder: &Path) -> Parsed<Vec<PathBuf>> {
    let mut files = Vec::new();
    // What is not a list of strings is a fault that is found later.
    let patterns = document
        .get(INCLUDE)
        .and_then(|value| value.get_ref().as_array());
    let patterns = patterns.into_iter().flatten();
    for pattern in patterns.filter_map(|pattern| pattern.get_ref().as_str()) {
        let path = folder.join(pattern);
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        let place = path.parent().unwrap_or(folder);
        if !name.contains(['*', '?', '[', '{']) {
            files.push(path);
            continue;
        }
        let glob = GlobBuilder::new(name).build();
        let glob =
            glob.map_err(|error| reason!("bad-glob": "{pattern:?} is no glob pattern: {error}"))?;
        let matcher = glob.compile_matcher();
        let found = fs::read_dir(place).map_err(
            |error| reason!("unreadable": "cannot be read: {}: {error}", place.display()),
        )?;
        let found = found.filter_map(|entry| entry.ok().map(|entry| entry.path()));
        let is_matched =
            |path: &PathBuf| path.file_name().is_some_and(|name| matcher.is_match(name));
        let mut found: Vec<PathBuf> = found.filter(is_matched).collect();
        found.sort();
        files.extend(found);
    }
    Ok(files)
}

/// Checks that an included text has nothing but tables: its keys would be those of the last table before.
fn check_included(document: &DeTable<'_>, text: &str) -> Result<(), (usize, String, Reason)> {
    for (key, value) in document {
        let is_of_tables = match value.get_ref() {
            DeValue::Table(_) => true,
            DeValue::Array(array) => array.iter().all(|item| item.get_ref().is_table()),
            _ => false,
        };
        if !is_of_tables || key.get_ref().as_ref() == INCLUDE {
            let line = line_at(text.as_bytes(), key.span().start);
            let reason =
                reason!("bad-include": "an included file has tables only, such as [[source]]");
            return Err((line, key.get_ref().to_string(), reason));
        }
    }
    Ok(())
}

/// The line of TOML that a variable stands for.
fn line_of_variable(name: &str, value: &str) -> Parsed<String> {
    let path = name.strip_prefix(PREFIX).unwrap_or(name).to_lowercase();
    let (table, key) = path.split_once("__").unwrap_or(("", &path));
    let known = keys_of(table).find(|known| known.name == key && known.name != INCLUDE);
    let known = known.filter(|_| table.is_empty() || TABLES.contains(&table));
    let unknown = || reason!("unknown-key": "no such key: a variable sets a key of a table with single brackets, as RESYNCD__STATUS__LISTEN sets status.listen");
    let is_text = known
        .ok_or_else(unknown)?
        .example_value()
        .get_ref()
        .is_str();
    let value = if is_text {
        toml_string(value)
    } else {
        value.replace(['\r', '\n'], " ")
    };
    Ok(match table {
        "" => format!("{key} = {value}\n"),
        table => format!("{table}.{key} = {value}\n"),
    })
}
