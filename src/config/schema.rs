//! The JSON Schema of the configuration file, for editors and programs that write it.
//!
//! Types, defaults and descriptions are those of `config.example.toml`. The schema does not state everything that is checked: paths,
//! URLs and ranges of numbers, and what several keys are together.

use serde_json::{Map, Value, json};
use toml::de::DeValue;

use super::Config;
use crate::config::file::CLASSES;
use crate::config::keys::{Key, TABLES, keys_of};
use crate::config::table_reader::Class;

impl Config {
    /// The JSON Schema (2020-12) of the configuration file.
    #[must_use]
    pub fn schema() -> Value {
        let table = |name: &str| -> Map<String, Value> {
            let class = |key: &Key| CLASSES.get(&(key.table, key.name)).unwrap_or(&Class::Any);
            let properties =
                keys_of(name).map(|key| (key.name.to_owned(), property(key, class(key))));
            properties.collect()
        };
        let mut properties = table("");
        for name in TABLES {
            properties.insert(name.to_owned(), object(table(name), &[]));
        }
        let folder = object(table("publish.folder"), &["name", "path"]);
        properties["publish"]["properties"]["folder"] = json!({ "type": "array", "items": folder });
        let mut source = table("source");
        source.insert("auth".to_owned(), object(table("source.auth"), &[]));
        let hooks = json!({ "type": "array", "items": object(table("source.hook"), &[]) });
        source.insert("hook".to_owned(), hooks);
        let notify = json!({ "type": "array", "items": object(table("notify"), &["name"]) });
        properties.insert("notify".to_owned(), notify);
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

/// The schema of a value that is like the one in the example.
fn property(key: &Key, class: &Class) -> Value {
    let (mut property, default) = match key.example_value().get_ref() {
        DeValue::Integer(number) => {
            let number = u64::from_str_radix(number.as_str(), number.radix());
            let property = json!({ "type": "integer", "minimum": 0 });
            (property, json!(number.unwrap_or_default()))
        }
        DeValue::Array(texts) => {
            let property = json!({ "type": "array", "items": { "type": "string" } });
            let texts = texts.iter().filter_map(|text| text.get_ref().as_str());
            (property, texts.collect())
        }
        DeValue::Boolean(flag) => (json!({ "type": "boolean" }), json!(flag)),
        other => (json!({ "type": "string" }), json!(other.as_str())),
    };
    if key.default().is_some() {
        property["default"] = default;
    }
    match class {
        Class::Pattern(pattern) => property["pattern"] = json!(pattern),
        Class::Choice(choices) => property["enum"] = json!(choices),
        Class::Decimal => property["type"] = json!("number"),
        _ => {}
    }
    property["description"] = json!(key.description);
    property
}
