//! The bytes of a JSON document, in the style of the file that is patched.
//!
//! A style counts as that of the file if it gives the file's own bytes: compact, as JavaScript's `JSON.stringify`, in one line, as
//! Python's `json.dumps`, or indented by two spaces; each with or without what is not ASCII.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::Value;
use serde_json::ser::{PrettyFormatter, Serializer};

/// How a document is written.
pub(super) struct Style<'a> {
    layout: Layout,
    is_ascii: bool,
    /// The white space after the document.
    end: &'a str,
}

#[derive(Clone, Copy)]
enum Layout {
    Compact,
    /// With a space after each comma and colon.
    Spaced,
    /// By two spaces.
    Indented,
}

impl<'a> Style<'a> {
    /// The styles in which a file may be written, by its text and its value.
    pub(super) fn of(file: &'a str, value: &Value) -> Vec<Self> {
        let end = &file[file.trim_ascii_end().len()..];
        let mut styles = Vec::new();
        for layout in [Layout::Compact, Layout::Spaced, Layout::Indented] {
            for is_ascii in [false, true] {
                let style = Self {
                    layout,
                    is_ascii,
                    end,
                };
                if style.write(value, file.len()).as_deref() == Some(file) {
                    styles.push(style);
                }
            }
        }
        styles
    }

    /// Writes a document; `None`: it is longer than the limit, in bytes.
    pub(super) fn write(&self, value: &Value, limit: usize) -> Option<String> {
        // Of what is spaced each list and object has two line breaks more at first.
        let mut buffer = vec![0; 2 * limit];
        let mut free = &mut buffer[..];
        let written = match self.layout {
            Layout::Compact => serde_json::to_writer(&mut free, value),
            Layout::Spaced => {
                let lines = PrettyFormatter::with_indent(b"");
                value.serialize(&mut Serializer::with_formatter(&mut free, lines))
            }
            Layout::Indented => serde_json::to_writer_pretty(&mut free, value),
        };
        written.ok()?;
        let length = 2 * limit - free.len();
        buffer.truncate(length);
        let mut text = String::from_utf8(buffer).ok()?;
        if matches!(self.layout, Layout::Spaced) {
            // In texts a line break is escaped.
            text = text.replace(",\n", ", ").replace('\n', "");
        }
        if self.is_ascii {
            text = ascii(&text);
        }
        text.push_str(self.end);
        Some(text).filter(|text| text.len() <= limit)
    }
}

/// Escapes what Python escapes in texts; nothing of it can be outside of them.
fn ascii(text: &str) -> String {
    let mut written = String::with_capacity(text.len());
    for character in text.chars() {
        if character < '\u{7f}' {
            written.push(character);
        } else {
            for unit in character.encode_utf16(&mut [0; 2]) {
                // Writing to a text can't fail.
                let _ = write!(written, "\\u{unit:04x}");
            }
        }
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A document in each style that a file may have.
    fn written(file: &str, document: &str) -> Vec<String> {
        let parse = |text| serde_json::from_str::<Value>(text).unwrap();
        let styles = Style::of(file, &parse(file)).into_iter();
        let written = styles.map(|style| style.write(&parse(document), 1000).unwrap());
        written.collect()
    }

    #[test]
    fn style_is_that_of_the_file() {
        let document = "{\"b\":[1.50,{},\"é\\u007f😀\"],\"a\":[]}";
        for (file, expected) in [
            (
                "{\"z\":1,\"y\":\"ü\"}\n",
                "{\"b\":[1.50,{},\"é\u{7f}😀\"],\"a\":[]}\n",
            ),
            (
                r#"{"z": 1, "y": "\u00fc"}"#,
                r#"{"b": [1.50, {}, "\u00e9\u007f\ud83d\ude00"], "a": []}"#,
            ),
            (
                "{\n  \"z\": 1,\n  \"y\": \"ü\"\n}",
                "{\n  \"b\": [\n    1.50,\n    {},\n    \"é\u{7f}😀\"\n  ],\n  \"a\": []\n}",
            ),
        ] {
            assert_eq!(written(file, document), [expected], "{file}");
        }
        // A file may not show it.
        assert_eq!(written("[\"é\"]", "[1,2]"), ["[1,2]", "[1, 2]"]);
        // Of other styles the resource is fetched.
        for file in [
            "{\"a\" : 1}",
            "[1,\n2]",
            "[\n    1\n]",
            "[\n\t1\n]",
            "[1E+2]",
            "[\"\\/\"]",
            " [1]",
        ] {
            assert!(written(file, "[]").is_empty(), "{file}");
        }
    }

    #[test]
    fn long_results_are_not_written() {
        let (file, document) = ("[\"\\u00e9\"]", "[\"éé\"]");
        let document: Value = serde_json::from_str(document).unwrap();
        let style = &Style::of(file, &serde_json::from_str(file).unwrap())[0];
        assert!(style.write(&document, 16).is_some());
        assert_eq!(style.write(&document, 15), None);
    }
}
