//! The JSON Schema of the configuration file, for editors and programs that write it.
//!
//! Types, defaults and descriptions are those of `config.example.toml`. The schema does not state everything that is checked: paths,
//! URLs and ranges of numbers, and what several keys are together.

use std::collections::HashMap;

use serde_json::{Map, Value, json};
use toml::de::{DeTable, DeValue};

use super::Config;
use crate::config::effective::{EXAMPLE, HOOK, TABLES, WITHOUT_DEFAULT, hook_example};
use crate::config::syntax::parse_toml;
use crate::config::table_reader::keys_of;

/// The keys of durations.
const DURATIONS: [&str; 4] = ["timeout", "poll_interval", "reorder_window", "lease"];
const DURATION: &str = "^[0-9]+(ms|s|m|h|d)$";
/// The keys of durations that may be `"0"`, for never.
const DURATIONS_OR_NEVER: [&str; 2] = ["keep", "stale_after"];
const DURATION_OR_NEVER: &str = "^(0|[0-9]+(ms|s|m|h|d))$";
/// The keys of sizes.
const SIZES: [&str; 7] = [
    "bandwidth",
    "document",
    "notification",
    "resource",
    "package",
    "inbox",
    "uri",
];
const SIZE: &str = "^[0-9]+([kKMGT]?B|[KMGT]iB)?$";

impl Config {
    /// The JSON Schema (2020-12) of the configuration file.
    #[must_use]
    pub fn schema() -> Value {
        let example = parse_toml(EXAMPLE).unwrap_or_default();
        let texts = descriptions();
        let table = |kind: &str, values: Option<&DeTable<'_>>| -> Map<String, Value> {
            let keys = keys_of(kind).iter();
            let is_table =
                |key: &str| TABLES.contains(&key) || matches!(key, "source" | "auth" | "hook");
            let keys = keys.filter(|key| !is_table(key));
            keys.map(|key| {
                let value = values.and_then(|values| values.get(*key));
                let mut property = property(key, value.map(|value| value.get_ref()));
                if let Some(text) = texts.get(&(kind, *key)) {
                    property["description"] = json!(text);
                }
                ((*key).to_owned(), property)
            })
            .collect()
        };
        let mut properties = table("", Some(&example));
        for name in TABLES {
            let values = example.get(name).and_then(|it| it.get_ref().as_table());
            properties.insert(name.to_owned(), object(table(name, values), &[]));
        }
        let sources = example.get("source").and_then(|it| it.get_ref().as_array());
        let source = sources.and_then(|sources| sources.iter().next());
        let source = source.and_then(|it| it.get_ref().as_table());
        let auth = source.and_then(|source| source.get("auth"));
        let auth = table("source.auth", auth.and_then(|it| it.get_ref().as_table()));
        let mut source = table("source", source);
        source.insert("auth".to_owned(), object(auth, &[]));
        let hook = hook_example();
        let hook = parse_toml(&hook).unwrap_or_default();
        let mut hook = table("source.hook", Some(&hook));
        for (key, property) in &mut hook {
            if let Some(property) = property.as_object_mut()
                && !matches!(key.as_str(), "timeout" | "lines")
            {
                property.remove("default");
            }
        }
        let hooks = json!({ "type": "array", "items": object(hook, &[]) });
        source.insert("hook".to_owned(), hooks);
        let source = object(source, &["name", "url", "mirror"]);
        let sources = json!({ "type": "array", "minItems": 1, "items": source });
        properties.insert("source".to_owned(), sources);
        let mut schema = object(properties, &["source"]);
        schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
        schema["title"] = json!("The configuration of resyncd");
        schema
    }
}

fn object(properties: Map<String, Value>, required: &[&str]) -> Value {
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

/// The schema of a value that is like the one in the example; `None`: the example only mentions the key.
fn property(key: &str, value: Option<&DeValue<'_>>) -> Value {
    let mut property = match value {
        Some(DeValue::String(text)) => json!({ "type": "string", "default": text }),
        Some(DeValue::Integer(number)) => {
            let number = u64::from_str_radix(number.as_str(), number.radix());
            json!({ "type": "integer", "minimum": 0, "default": number.unwrap_or_default() })
        }
        Some(DeValue::Array(_)) => {
            json!({ "type": "array", "items": { "type": "string" }, "default": [] })
        }
        Some(DeValue::Boolean(flag)) => json!({ "type": "boolean", "default": flag }),
        _ => json!({ "type": "boolean" }),
    };
    if WITHOUT_DEFAULT.contains(&key)
        && let Some(property) = property.as_object_mut()
    {
        property.remove("default");
    }
    let pattern = match key {
        key if DURATIONS.contains(&key) => Some(DURATION),
        key if DURATIONS_OR_NEVER.contains(&key) => Some(DURATION_OR_NEVER),
        key if SIZES.contains(&key) => Some(SIZE),
        "max_delete" => Some("^[0-9.]+%$"),
        "name" => Some("^[a-z0-9-]+$"),
        _ => None,
    };
    if let Some(pattern) = pattern {
        property["pattern"] = json!(pattern);
    }
    match key {
        "requests_per_second" => property["type"] = json!("number"),
        "baseline" => property["enum"] = json!(["auto", "list", "dump"]),
        "format" => property["enum"] = json!(["auto", "text", "json"]),
        "metadata" => property["enum"] = json!(["listed", "follow"]),
        "signatures" => property["enum"] = json!(["required", "off"]),
        _ => {}
    }
    property
}

/// The comments of the example above each key, by table and key.
fn descriptions() -> HashMap<(&'static str, &'static str), String> {
    let (mut table, mut comment) = ("", String::new());
    let mut found = HashMap::new();
    for line in EXAMPLE.lines() {
        let content = line.strip_prefix("# ");
        let key = content.unwrap_or(line).split_once(" = ");
        let key = key.map(|(key, _)| key).filter(|key| !key.contains(' '));
        match (content, key) {
            _ if line == HOOK => {
                comment.clear();
                table = "source.hook";
            }
            (_, Some(key)) => {
                found.insert((table, key), comment.clone());
            }
            (Some(text), None) => {
                if !comment.is_empty() {
                    comment.push(' ');
                }
                comment.push_str(text);
            }
            (None, None) => {
                comment.clear();
                if line.starts_with('[') {
                    table = line.trim_matches(['[', ']']);
                }
            }
        }
    }
    found
}
