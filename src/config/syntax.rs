//! TOML syntax: text → table, or the parser's first error with its line and key; and a text as a string.
//!
//! A file that is not TOML has this one fault. What its keys mean is checked once the syntax is right.

use toml::de::{DeTable, Error};

use crate::config::fault::{Reason, line_at};
use crate::config::table_reader::Located;

/// Parses a text as TOML, or finds the first place where it is none, with the key or table that begins on that line.
pub(super) fn parse_toml(text: &str) -> Result<DeTable<'_>, Located<Reason>> {
    match DeTable::parse(text) {
        Ok(document) => Ok(document.into_inner()),
        Err(error) => Err(syntax_fault(text, &error)),
    }
}

/// A text as a string of TOML. JSON escapes what TOML does, in the same way.
#[must_use]
pub fn toml_string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn syntax_fault(text: &str, error: &Error) -> Located<Reason> {
    let offset = error.span().map_or(0, |span| span.start);
    // An error at the end of the text lies behind its last line break.
    let end = text.trim_end().len();
    let line = line_at(text.as_bytes(), offset.min(end));
    let found = text.lines().nth(line - 1).unwrap_or_default().trim();
    let reason = match error.message() {
        // The usual slip in a second `[[source]]`.
        "duplicate key" if is_header_of_source(found) => {
            let single = "[source]";
            reason!("wrong-type": "expected [[source]], found {single}")
        }
        "duplicate key" => reason!("duplicate-key": "defined twice"),
        message => reason!("syntax": "{message}"),
    };
    Located {
        value: reason,
        line: Some(line),
        key: key_on(text, line),
    }
}

fn is_header_of_source(line: &str) -> bool {
    line.strip_prefix('[')
        .is_some_and(|rest| leading_key(rest) == "source")
}

/// The key on this line with the table of the headers above it, or the table if the line is a header. A `[[source]]` is
/// known by its position here: its name cannot be read yet.
fn key_on(text: &str, line: usize) -> String {
    let (mut table, mut sources, mut key) = (String::new(), 0, "");
    for content in text.lines().take(line) {
        let content = content.trim_start();
        let header = leading_key(content.trim_start_matches('['));
        key = "";
        match (content.starts_with('['), header) {
            (true, "source") => {
                sources += 1;
                table = format!("source[#{sources}]");
            }
            (true, "") => {}
            (true, name) if name.starts_with("source.") => {
                table = name.replacen("source", &format!("source[#{sources}]"), 1);
            }
            (true, name) => table = name.to_owned(),
            (false, name) => key = name,
        }
    }
    match (table.as_str(), key) {
        (_, "") => table,
        ("", key) => key.to_owned(),
        (table, key) => format!("{table}.{key}"),
    }
}

/// The bare key that a text begins with, dots included; may be empty.
fn leading_key(text: &str) -> &str {
    let text = text.trim_start();
    let is_bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let end = text.find(|c| !is_bare(c)).unwrap_or(text.len());
    &text[..end]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(text: &str, expected: (usize, &str, &str)) {
        let fault = parse_toml(text).unwrap_err();
        let found = (fault.line.unwrap(), fault.key.as_str(), fault.value.code);
        assert_eq!(found, expected, "{text}\n{fault:?}");
    }

    #[test]
    fn first_error_has_its_line_and_key() {
        for (text, line, key) in [
            ("a = 60s\nb = 1", 1, "a"),
            ("a = 1\nb =\n", 2, "b"),
            ("a = 1\nb = 60s\n[c]\nd = 60s\n", 2, "b"),
            ("[http]\ntimeout = 60s\n", 2, "http.timeout"),
            ("[http\ntimeout = 1\n", 1, "http"),
            ("[[source]]\n[[source]]\nname = \"a\n", 3, "source[#2].name"),
            ("[[source]\n", 1, "source[#1]"),
            (
                "[[source]]\n[source.auth]\nbasic = a:b\n",
                3,
                "source[#1].auth.basic",
            ),
            ("?!\n", 1, ""),
            ("\u{b}", 1, ""),
            ("<p>not a configuration</p>\n", 1, ""),
            ("a = [\n  \"x\"\n  \"y\"\n]\n", 3, ""),
            ("a = \"\"\"x\n\n", 1, "a"),
        ] {
            check(text, (line, key, "syntax"));
        }
    }

    #[test]
    fn what_is_given_twice_is_a_duplicate() {
        check("a = 1\na = 2", (2, "a", "duplicate-key"));
        check("[b]\na = 1\na = 2", (3, "b.a", "duplicate-key"));
        check("[b]\n[c]\n[b]\n", (3, "b", "duplicate-key"));
    }

    #[test]
    fn single_brackets_of_a_second_source_are_named() {
        let text = "[[source]]\nname = \"a\"\n[source]\nname = \"b\"\n";
        check(text, (3, "source[#2]", "wrong-type"));
    }

    proptest! {
        #[test]
        fn fault_of_any_text_is_on_one_of_its_lines(
            text in "([a-c\\[\\]{}=\"'#., \n\r\t0-9\\\\é]{0,3}|\"\"\"|\\[\\[source\\]\\]\n){0,40}",
        ) {
            if let Err(fault) = parse_toml(&text) {
                prop_assert!((1..=text.split('\n').count()).contains(&fault.line.unwrap()));
            }
        }
    }
}
