//! The keys of the file: what `config.example.toml` shows, with their defaults and descriptions.
//!
//! A key is written twice: in the example, and where its value is read.

use std::sync::LazyLock;

use toml::Spanned;
use toml::de::DeValue;

const EXAMPLE: &str = include_str!("../../config.example.toml");

/// The tables with single brackets outside of a Source, in the order of the example.
pub(super) const TABLES: [&str; 10] = [
    "callback", "status", "http", "limits", "feed", "log", "xmpp", "store", "objects", "publish",
];

/// The keys whose value in the example is no default.
const WITHOUT_DEFAULT: [&str; 12] = [
    "public_url",
    "name",
    "url",
    "mirror",
    "path",
    "trust_hub",
    "command",
    "mail",
    "ping",
    "secret",
    "secret_file",
    "secret_credential",
];

static KEYS: LazyLock<Vec<Key>> = LazyLock::new(|| parse_example(EXAMPLE));

/// A key of a table.
pub(super) struct Key {
    /// Its table: empty before the first one, or such as `source.auth`.
    pub(super) table: &'static str,
    pub(super) name: &'static str,
    /// Its value in the example, as TOML.
    pub(super) example: &'static str,
    /// The comment above it.
    pub(super) description: String,
}

impl Key {
    /// What counts where the file has no value, as TOML.
    pub(super) fn default(&self) -> Option<&'static str> {
        (!WITHOUT_DEFAULT.contains(&self.name)).then_some(self.example)
    }

    /// Its value in the example.
    pub(super) fn example_value(&self) -> Spanned<DeValue<'static>> {
        DeValue::parse(self.example).expect("the example is TOML")
    }
}

/// The keys of a table, without the tables in it.
pub(super) fn keys_of(table: &str) -> impl Iterator<Item = &'static Key> {
    KEYS.iter().filter(move |key| key.table == table)
}

/// A key of a table.
pub(super) fn key(table: &str, name: &str) -> &'static Key {
    let found = keys_of(table).find(|key| key.name == name);
    found.unwrap_or_else(|| panic!("config.example.toml has no key {name} in [{table}]"))
}

/// The names that a table can have: its keys, and the tables in it.
pub(super) fn names_of(table: &str) -> Vec<&'static str> {
    let mut names: Vec<_> = keys_of(table).map(|key| key.name).collect();
    match table {
        "" => names.extend(TABLES.into_iter().chain(["notify", "source"])),
        "publish" => names.push("folder"),
        "source" => names.extend(["auth", "hook"]),
        _ => {}
    }
    names
}

/// The first other table that has a key.
pub(super) fn home_of(name: &str, other_than: &str) -> Option<&'static str> {
    let mut tables = KEYS.iter().map(|key| key.table);
    tables.find(|table| *table != other_than && names_of(table).contains(&name))
}

/// Reads the keys of the example. Those that are commented out, as a hook, are keys as well.
fn parse_example(text: &'static str) -> Vec<Key> {
    let (mut table, mut description) = ("", String::new());
    let mut keys = Vec::new();
    for line in text.lines() {
        let comment = line.strip_prefix("# ");
        let content = comment.unwrap_or(line);
        let key = content.split_once(" = ");
        if let Some((name, example)) = key.filter(|(name, _)| !name.contains(' ')) {
            keys.push(Key {
                table,
                name,
                example,
                description: description.clone(),
            });
        } else if line.starts_with('[') || line.starts_with("# [[") {
            table = content.trim_matches(['[', ']']);
            description.clear();
        } else if let Some(text) = comment {
            let space = if description.is_empty() { "" } else { " " };
            description.extend([space, text]);
        } else {
            description.clear();
        }
    }
    keys
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use resourcesync::uri::MAX_URI_BYTES;
    use resyncd_fetch::HttpSettings;

    use super::*;
    use crate::config::file::CLASSES;
    use crate::config::{Config, LimitsConfig};

    /// What is read and not there is a panic of the first test that needs a default.
    #[test]
    fn every_key_of_the_example_is_read() {
        let shown: BTreeSet<_> = KEYS.iter().map(|key| (key.table, key.name)).collect();
        let read: BTreeSet<_> = CLASSES.keys().copied().collect();
        assert_eq!(shown, read);
        assert_eq!(shown.len(), KEYS.len());
    }

    #[test]
    fn defaults_are_those_of_the_libraries() {
        assert_eq!(LimitsConfig::default().uri, MAX_URI_BYTES);
        let text = "[[source]]\nname = \"a\"\nurl = \"http://a.example/\"\nmirror = \"a\"\n";
        let config = Config::parse(text, std::path::Path::new("/etc/config.toml")).unwrap();
        let expected = format!("{:?}", HttpSettings::default());
        assert_eq!(format!("{:?}", config.http), expected);
    }
}
