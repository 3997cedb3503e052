//! The configuration with the defaults of what it omits, as TOML.

use std::path::Path;

use resyncd_core::hide_userinfo;
use toml::de::{DeTable, DeValue};

use super::Config;
use crate::config::environment::Environment;
use crate::config::fault::ConfigFaults;
use crate::config::file::{CLASSES, examine, read_text};
use crate::config::keys::{Key, TABLES, keys_of};
use crate::config::secret::split_variables;
use crate::config::syntax::toml_string;
use crate::config::table_reader::{Class, parse_path};

/// What all values of a file need.
struct Given<'a> {
    text: &'a str,
    folder: &'a Path,
    config: &'a Config,
}

impl Config {
    /// A configuration file with the defaults of what it omits, as TOML: each path is absolute, and user names, passwords and
    /// secrets are not shown. Secrets may be unavailable to this process.
    ///
    /// # Errors
    /// The faults of the file, as [`load`](Self::load).
    pub fn effective(path: &Path) -> Result<String, ConfigFaults> {
        let (text, environment) = (read_text(path)?, Environment::of_process());
        examine(&text, path, &environment, |file, config| {
            file.check(&["no-secret"])?;
            let given = Given {
                text: file.joined.text(),
                folder: file.folder,
                config: &config,
            };
            let (path, version) = (path.display(), env!("CARGO_PKG_VERSION"));
            let mut shown =
                format!("# {path}, with the defaults of resyncd {version} for what it omits\n");
            let found = |name: &str| {
                let found = file.tables.iter().find(|(kind, ..)| *kind == name);
                found.map(|(.., table)| *table)
            };
            given.append(&mut shown, "", found(""));
            for name in TABLES {
                shown.push_str(&format!("\n[{name}]\n"));
                given.append(&mut shown, name, found(name));
            }
            let repeated = file.tables.iter();
            let is_repeated = |kind: &str| {
                ["notify", "publish.folder"].contains(&kind) || kind.starts_with("source")
            };
            for (kind, _, table) in repeated.filter(|(kind, ..)| is_repeated(kind)) {
                shown.push_str(&match *kind {
                    "source.auth" => "\n[source.auth]\n".to_owned(),
                    kind => format!("\n[[{kind}]]\n"),
                });
                given.append(&mut shown, kind, Some(table));
            }
            Ok(shown)
        })?
    }
}

impl Given<'_> {
    /// Appends the keys of a table.
    fn append(&self, shown: &mut String, kind: &str, table: Option<&DeTable<'_>>) {
        for key in keys_of(kind) {
            let name = key.name;
            let value = table.and_then(|table| table.get(name));
            shown.push_str(&match (value, self.default_of(key)) {
                (Some(value), _) => {
                    let source = &self.text[value.span()];
                    format!("{name} = {}\n", self.value(key, value.get_ref(), source))
                }
                (None, Some(default)) => format!("{name} = {default}  # default\n"),
                (None, None) => format!("# {name} is not set\n"),
            });
        }
    }

    /// A value as it is used; `source`: as it is written.
    fn value(&self, key: &Key, value: &DeValue<'_>, source: &str) -> String {
        let text = value.as_str().unwrap_or_default();
        let class = CLASSES.get(&(key.table, key.name));
        match class.unwrap_or(&Class::Any) {
            Class::Folder | Class::PublicFile | Class::SecretFile if !text.is_empty() => {
                let path = parse_path(text, self.folder);
                let shown = path.map(|path| toml_string(&path.to_string_lossy()));
                shown.unwrap_or_else(|_| source.to_owned())
            }
            Class::Url | Class::PublicUrl => toml_string(&hide_userinfo(text)),
            Class::Secret => match text.split_once(':').filter(|_| key.name == "header") {
                Some((name, value)) => toml_string(&format!("{name}:{}", variables_of(value))),
                None => toml_string(&variables_of(text)),
            },
            _ => match value.as_array() {
                // All are of texts, which may be URLs.
                Some(array) => {
                    let texts = array.iter().filter_map(|text| text.get_ref().as_str());
                    let texts = texts.map(|text| toml_string(&hide_userinfo(text)));
                    format!("[{}]", texts.collect::<Vec<_>>().join(", "))
                }
                None => source.to_owned(),
            },
        }
    }

    /// The default of a key as TOML; `None`: it has none, or depends on something else.
    fn default_of(&self, key: &Key) -> Option<String> {
        let text = match key.name {
            // Each of the two is adapted to the other.
            "notification" => self.config.limits.notification.to_string(),
            "inbox" => self.config.limits.inbox.to_string(),
            "user_agent" => self.config.http.user_agent.clone(),
            _ => return key.default().map(str::to_owned),
        };
        Some(toml_string(&text))
    }
}

/// The environment variables that a text names as `${VARIABLE}`; what is beside them may be secret.
fn variables_of(text: &str) -> String {
    let hide = |text: &str| if text.trim().is_empty() { "" } else { "…" };
    let (variables, rest) = split_variables(text);
    let shown = variables.iter();
    let shown = shown.map(|(before, variable)| format!("{}${{{variable}}}", hide(before)));
    shown.collect::<String>() + hide(rest)
}
