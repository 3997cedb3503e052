//! The bytes of a JSON document, in the style of the file that is patched.
//!
//! A style counts as that of the file if it gives the file's own bytes: those of JavaScript's `JSON.stringify` and of Python's
//! `json.dumps`, in one line or indented, with or without what is not ASCII, with the keys in their order or sorted.

use std::fmt::Write as _;
use std::io;

use serde::Serialize;
use serde_json::Value;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};

/// How a document is written.
pub(super) struct Style<'a> {
    is_sorted: bool,
    is_ascii: bool,
    layout: Layout<'a>,
    /// The white space after the document.
    end: &'a str,
}

#[derive(Clone, Copy)]
enum Layout<'a> {
    Compact,
    /// With a space after each comma and colon.
    Spaced,
    Indented(&'a str),
}

impl<'a> Style<'a> {
    /// The styles in which a file may be written, by its text and its value.
    pub(super) fn of(file: &'a str, mut value: Value) -> Vec<Self> {
        let body = file.trim_end_matches(is_space);
        let end = &file[body.len()..];
        let indented = body.split_once('\n').map(|(_, rest)| {
            let indent = &rest[..rest.len() - rest.trim_start_matches(is_space).len()];
            Layout::Indented(indent)
        });
        let one_line = [Layout::Compact, Layout::Spaced];
        let layouts = indented
            .as_ref()
            .map_or(&one_line[..], std::slice::from_ref);
        let mut styles = Vec::new();
        for is_sorted in [false, true] {
            for &layout in layouts {
                for is_ascii in [false, true] {
                    let style = Self {
                        is_sorted,
                        is_ascii,
                        layout,
                        end,
                    };
                    if style.write(&mut value, file.len()).as_deref() == Some(file) {
                        styles.push(style);
                    }
                }
            }
        }
        styles
    }

    /// Writes a document, and leaves it sorted if that is the style; `None`: it is longer than the limit, in bytes.
    pub(super) fn write(&self, value: &mut Value, limit: usize) -> Option<String> {
        if self.is_sorted {
            value.sort_all_objects();
        }
        let mut buffer = vec![0; limit];
        let mut free = &mut buffer[..];
        let written = match self.layout {
            Layout::Compact => value.serialize(&mut Serializer::new(&mut free)),
            Layout::Spaced => {
                value.serialize(&mut Serializer::with_formatter(&mut free, SpacedFormatter))
            }
            Layout::Indented(indent) => {
                let formatter = PrettyFormatter::with_indent(indent.as_bytes());
                value.serialize(&mut Serializer::with_formatter(&mut free, formatter))
            }
        };
        written.ok()?;
        let length = limit - free.len();
        buffer.truncate(length);
        let mut text = String::from_utf8(buffer).ok()?;
        if self.is_ascii {
            text = ascii(&text);
        }
        text.push_str(self.end);
        Some(text).filter(|text| text.len() <= limit)
    }
}

fn is_space(character: char) -> bool {
    character.is_ascii_whitespace()
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

struct SpacedFormatter;

impl Formatter for SpacedFormatter {
    fn begin_array_value<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        is_first: bool,
    ) -> io::Result<()> {
        if is_first {
            return Ok(());
        }
        writer.write_all(b", ")
    }

    fn begin_object_key<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        is_first: bool,
    ) -> io::Result<()> {
        self.begin_array_value(writer, is_first)
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A document in each style that a file may have.
    fn written(file: &str, document: &str) -> Vec<String> {
        let parse = |text| serde_json::from_str::<Value>(text).unwrap();
        let styles = Style::of(file, parse(file)).into_iter();
        let written = styles.map(|style| style.write(&mut parse(document), 1000).unwrap());
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
                "{\n\t\"z\": 1,\n\t\"y\": \"ü\"\n}",
                "{\n\t\"b\": [\n\t\t1.50,\n\t\t{},\n\t\t\"é\u{7f}😀\"\n\t],\n\t\"a\": []\n}",
            ),
        ] {
            assert_eq!(written(file, document), [expected], "{file}");
        }
        // Where a file does not show it, the order of the document comes first.
        let sorted = written(r#"{"y":"ü","z":1}"#, r#"{"b":1,"a":2}"#);
        assert_eq!(sorted, [r#"{"b":1,"a":2}"#, r#"{"a":2,"b":1}"#]);
        for file in ["{\"a\" : 1}", "[1,\n2]", "[1E+2]", "[\"\\/\"]", " [1]"] {
            assert!(written(file, "[]").is_empty(), "{file}");
        }
    }

    #[test]
    fn long_results_are_not_written() {
        let (file, document) = ("[\"\\u00e9\"]", "[\"éé\"]");
        let document: Value = serde_json::from_str(document).unwrap();
        let style = &Style::of(file, serde_json::from_str(file).unwrap())[0];
        assert!(style.write(&mut document.clone(), 16).is_some());
        assert_eq!(style.write(&mut document.clone(), 15), None);
    }
}
