//! The parts of docs/reference that follow from the code: each is what the program states of itself.
//! `RESYNCD_WRITE_DOCS=1 cargo test --test behaviour generated_docs` writes them anew.

use std::path::Path;
use std::{env, fs};

use clap::{Arg, Command};
use resyncd::config::Config;
use resyncd::metrics::FAMILIES;
use serde_json::{Map, Value};

/// Compares the part of a page between two marks with what it is to be, or writes it.
fn check(page: &str, expected: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("docs/reference")
        .join(page);
    let text = fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once("<!-- generated -->\n").unwrap();
    let (found, after) = rest.split_once("<!-- end -->\n").unwrap();
    let expected = format!("\n{}\n\n", expected.trim());
    if env::var_os("RESYNCD_WRITE_DOCS").is_some() {
        let text = format!("{before}<!-- generated -->\n{expected}<!-- end -->\n{after}");
        fs::write(&path, text).unwrap();
    } else {
        assert_eq!(found, expected, "{page} is not what the program states");
    }
}

/// Breaks a text into lines of at most 140 characters, with an indentation from the second one on.
fn wrapped(text: &str, indentation: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.last_mut().unwrap();
        if last.chars().count() + 1 + word.chars().count() > 140 {
            lines.push(format!("{indentation}{word}"));
        } else if last.is_empty() {
            last.push_str(word);
        } else {
            last.push(' ');
            last.push_str(word);
        }
    }
    lines.join("\n")
}

fn keys(table: &Map<String, Value>) -> String {
    let mut text = String::new();
    for (name, key) in table {
        let Some(description) = key["description"].as_str() else {
            // A table of its own.
            continue;
        };
        let default = match &key["default"] {
            Value::Null => String::new(),
            default => format!(" = `{default}`"),
        };
        let item = format!("- **`{name}`**{default}: {description}");
        text.push_str(&wrapped(&item, "  "));
        text.push('\n');
    }
    text
}

#[test]
fn keys_of_the_configuration_are_those_of_the_program() {
    let schema = Config::schema();
    let top = schema["properties"].as_object().unwrap();
    let mut text = format!("### At the top\n\n{}\n", keys(top));
    for (name, table) in top {
        let is_list = table["type"] == "array";
        let table = if is_list { &table["items"] } else { table };
        let Some(properties) = table["properties"].as_object() else {
            continue;
        };
        let heading = if is_list {
            format!("[[{name}]]")
        } else {
            format!("[{name}]")
        };
        text += &format!("### `{heading}`\n\n{}\n", keys(properties));
        for (name, table) in properties {
            let (heading, properties) = match name.as_str() {
                "auth" => ("[source.auth]", &table["properties"]),
                "hook" => ("[[source.hook]]", &table["items"]["properties"]),
                _ => continue,
            };
            let properties = properties.as_object().unwrap();
            text += &format!("### `{heading}`\n\n{}\n", keys(properties));
        }
    }
    check("configuration.md", &text);
}

fn option(argument: &Arg) -> String {
    let names = argument.get_long().map(|long| format!("--{long}"));
    let value = argument.get_value_names().unwrap_or_default().join(" ");
    let takes = argument.get_action().takes_values() && !value.is_empty();
    let shown = match (names, takes) {
        (Some(name), true) => format!("{name} {value}"),
        (Some(name), false) => name,
        (None, _) => value,
    };
    let help = argument.get_help().map(ToString::to_string);
    let item = format!("- `{shown}`: {}", help.unwrap_or_default());
    wrapped(&item, "  ") + "\n"
}

#[test]
fn options_of_the_commands_are_those_of_the_program() {
    let mut program: Command = resyncd::cli::command_line().disable_help_subcommand(true);
    program.build();
    let mut text = String::new();
    for command in program.get_subcommands() {
        let about = command.get_about().map(ToString::to_string);
        text += &format!("### `{}`\n\n", command.get_name());
        text += &format!("{}.\n\n", about.unwrap_or_default());
        let own = command.get_arguments();
        let own = own.filter(|it| !["config", "help"].contains(&it.get_id().as_str()));
        let options: String = own.map(option).collect();
        if !options.is_empty() {
            text += &format!("{options}\n");
        }
    }
    check("command-line.md", &text);
}

#[test]
fn requests_of_the_interface_are_those_of_the_program() {
    let api = resyncd::http::operator_api();
    let mut text = "| request | what it does |\n|---|---|\n".to_owned();
    for (path, operations) in api["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let parameters = operation["parameters"].as_array();
            let mut of_query = parameters
                .into_iter()
                .flatten()
                .filter(|it| it["in"] == "query");
            let mut query = String::new();
            for parameter in &mut of_query {
                let mark = if query.is_empty() { '?' } else { '&' };
                query.push(mark);
                query += parameter["name"].as_str().unwrap();
                query.push('=');
            }
            let summary = operation["summary"].as_str().unwrap().trim_end_matches('.');
            let method = method.to_uppercase();
            text += &format!("| `{method} {path}{query}` | {summary} |\n");
        }
    }
    check("http-api.md", &text);
}

#[test]
fn metrics_are_those_of_the_program() {
    let mut text = "| metric | type | labels | meaning |\n|---|---|---|---|\n".to_owned();
    for family in FAMILIES {
        let labels: Vec<String> = family.labels.iter().map(|it| format!("`{it}`")).collect();
        let (name, kind, labels) = (family.name, family.kind.name(), labels.join(", "));
        text += &format!("| `{name}` | {kind} | {labels} | {} |\n", family.help);
    }
    check("metrics.md", &text);
}
