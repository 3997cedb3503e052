//! The bytes of a JSON document, as the usual programs write them.
//!
//! The style of the file that is patched is tried first: programs seldom change it between two versions. Then come the usual ones of
//! JavaScript's `JSON.stringify` and Python's `json.dumps`.

use super::json_value::{Json, array_index};
use super::number::Numbers;

/// How a document is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Style {
    /// A byte order mark.
    bom: bool,
    layout: Layout,
    escapes: Escapes,
    order: KeyOrder,
    numbers: Numbers,
    /// What follows the document.
    end: String,
}

/// The order in which the keys of an object are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyOrder {
    /// That of the patched document.
    Document,
    /// That of their code points.
    Sorted,
    /// Those that are array indexes come first, by their value, as in every object of JavaScript.
    IndexesFirst,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Layout {
    /// The line break and the indentation of one level; `None`: all is in one line.
    indent: Option<(String, String)>,
    comma: String,
    colon: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
struct Escapes {
    non_ascii: bool,
    /// As PHP does.
    slash: bool,
    /// `<`, `>`, `&` and the separators of lines and paragraphs, as Go does.
    html: bool,
    upper_case: bool,
}

/// The longest white space that is taken for indentation or for the end of a document, in bytes.
const LONGEST_SPACE: usize = 16;
/// How many styles are tried.
const MAX_STYLES: usize = 96;

impl Layout {
    fn compact() -> Self {
        Self {
            indent: None,
            comma: ",".to_owned(),
            colon: ":".to_owned(),
        }
    }

    fn spaced() -> Self {
        Self {
            indent: None,
            comma: ", ".to_owned(),
            colon: ": ".to_owned(),
        }
    }

    fn indented(indent: &str) -> Self {
        Self {
            indent: Some(("\n".to_owned(), indent.to_owned())),
            comma: ",".to_owned(),
            colon: ": ".to_owned(),
        }
    }
}

impl Style {
    #[cfg(test)]
    pub(super) fn compact() -> Self {
        Self {
            bom: false,
            layout: Layout::compact(),
            escapes: Escapes::default(),
            order: KeyOrder::Document,
            numbers: Numbers::Spelled,
            end: String::new(),
        }
    }

    /// The styles to try for the next version of a file, the most likely first. `was_sorted`: whether the keys of the file are in the
    /// order of their code points; `None`: it does not show. `after`: the patched document.
    pub(super) fn likely(file: &str, was_sorted: Option<bool>, after: &Json) -> Vec<Self> {
        let seen = WrittenForm::of(file);
        let mut orders = match was_sorted {
            Some(true) => vec![KeyOrder::Sorted, KeyOrder::Document],
            Some(false) | None => vec![KeyOrder::Document, KeyOrder::Sorted],
        };
        // Mostly that of the document.
        if after.has_late_index() {
            orders.insert(1, KeyOrder::IndexesFirst);
        }
        // What the file does not show is tried both ways.
        let non_ascii: &[bool] = match seen.escapes_non_ascii {
            Some(true) => &[true],
            Some(false) => &[false],
            None => &[false, true],
        };
        let mut ends = vec![seen.end.clone(), String::new(), "\n".to_owned()];
        ends.dedup();
        let mut styles: Vec<Self> = Vec::new();
        let mut try_style = |layout: &Layout, non_ascii, order, numbers, end: &str| {
            let style = Self {
                bom: seen.bom,
                layout: layout.clone(),
                escapes: Escapes {
                    non_ascii,
                    ..seen.escapes
                },
                order,
                numbers,
                end: end.to_owned(),
            };
            if styles.len() < MAX_STYLES && !styles.contains(&style) {
                styles.push(style);
            }
        };
        for &order in &orders {
            for &non_ascii in non_ascii {
                try_style(&seen.layout, non_ascii, order, Numbers::Spelled, &seen.end);
            }
        }
        let usual = [
            Layout::compact(),
            Layout::spaced(),
            Layout::indented("  "),
            Layout::indented("    "),
            Layout::indented("\t"),
        ];
        // A program that writes the numbers of a file anew that it has not written.
        for numbers in [Numbers::Python, Numbers::JavaScript] {
            if !after.has_number(&|number| numbers.spelling(number) != number) {
                continue;
            }
            for end in &ends {
                for layout in std::iter::once(&seen.layout).chain(&usual) {
                    for &non_ascii in non_ascii {
                        try_style(layout, non_ascii, orders[0], numbers, end);
                    }
                }
            }
        }
        // Then the program that writes it is another one than before.
        for end in &ends {
            for &order in &orders {
                for layout in std::iter::once(&seen.layout).chain(&usual) {
                    for &non_ascii in non_ascii {
                        try_style(layout, non_ascii, order, Numbers::Spelled, end);
                    }
                }
            }
        }
        // A program that escapes what is not ASCII, after one that did not, and the other way round.
        for end in &ends {
            for layout in &usual {
                try_style(layout, !non_ascii[0], orders[0], Numbers::Spelled, end);
            }
        }
        styles
    }
}

/// What a file shows of how it was written.
struct WrittenForm {
    bom: bool,
    layout: Layout,
    escapes: Escapes,
    escapes_non_ascii: Option<bool>,
    end: String,
}

impl WrittenForm {
    fn of(file: &str) -> Self {
        let (bom, text) = match file.strip_prefix('\u{feff}') {
            Some(text) => (true, text),
            None => (false, file),
        };
        let is_space = |it: char| matches!(it, ' ' | '\t' | '\n' | '\r');
        let body = text.trim_end_matches(is_space);
        let end = Some(&text[body.len()..]).filter(|end| end.len() <= LONGEST_SPACE);
        let (mut indent, mut comma, mut colon) = (None, None, None);
        let (mut is_in_string, mut is_escaped) = (false, false);
        let bytes = body.as_bytes();
        let space_after = |at: usize| {
            let rest = &body[at + 1..];
            &rest[..rest.len() - rest.trim_start_matches(is_space).len()]
        };
        for (at, &byte) in bytes.iter().enumerate() {
            if is_in_string {
                match byte {
                    _ if is_escaped => is_escaped = false,
                    b'\\' => is_escaped = true,
                    b'"' => is_in_string = false,
                    _ => {}
                }
                continue;
            }
            match byte {
                b'"' => is_in_string = true,
                b'{' | b'[' if indent.is_none() => {
                    let space = space_after(at);
                    let next = bytes.get(at + 1 + space.len());
                    let is_empty = matches!(next, None | Some(b'}' | b']'));
                    indent = (!is_empty).then_some(space);
                }
                b',' if comma.is_none() => comma = Some(space_after(at)),
                b':' if colon.is_none() => colon = Some(space_after(at)),
                _ => {}
            }
            if indent.is_some() && comma.is_some() && colon.is_some() {
                break;
            }
        }
        let broken =
            indent.and_then(|space| space.rsplit_once('\n').map(|(_, indent)| (space, indent)));
        let broken = broken.filter(|(space, _)| space.len() <= LONGEST_SPACE);
        let short = |space: Option<&str>| {
            space
                .filter(|it| it.len() <= 1 && !it.contains(['\n', '\r']))
                .map(str::to_owned)
        };
        let layout = Layout {
            indent: broken.map(|(space, indent)| {
                let line = if space.contains("\r\n") { "\r\n" } else { "\n" };
                (line.to_owned(), indent.to_owned())
            }),
            comma: match broken {
                Some(_) => ",".to_owned(),
                None => format!(
                    ",{}",
                    short(comma).or_else(|| short(colon)).unwrap_or_default()
                ),
            },
            colon: match short(colon) {
                Some(space) => format!(":{space}"),
                None if broken.is_some() => ": ".to_owned(),
                None => format!(":{}", short(comma).unwrap_or_default()),
            },
        };
        let has = |text: &str| body.contains(text);
        let escapes = Escapes {
            non_ascii: false,
            slash: has("\\/"),
            html: ["\\u003c", "\\u003e", "\\u0026"].iter().any(|it| has(it)),
            upper_case: ["\\u00C", "\\u00D", "\\u00E", "\\u00F"]
                .iter()
                .any(|it| has(it)),
        };
        let escapes_non_ascii = match (body.is_ascii(), has("\\u")) {
            (false, _) => Some(false),
            (true, true) if !escapes.html => Some(true),
            _ => None,
        };
        Self {
            bom,
            layout,
            escapes,
            escapes_non_ascii,
            end: end.unwrap_or_default().to_owned(),
        }
    }
}

/// Writes a document in a style; `None`: it is longer than the limit, in bytes.
pub(super) fn write(value: &Json, style: &Style, limit: usize) -> Option<Vec<u8>> {
    let mut writer = JsonWriter {
        out: String::new(),
        style,
        limit,
    };
    if style.bom {
        writer.out.push('\u{feff}');
    }
    writer.value(value, 0)?;
    writer.out.push_str(&style.end);
    writer.check()?;
    Some(writer.out.into_bytes())
}

struct JsonWriter<'a> {
    out: String,
    style: &'a Style,
    limit: usize,
}

impl JsonWriter<'_> {
    fn check(&self) -> Option<()> {
        (self.out.len() <= self.limit).then_some(())
    }

    fn value(&mut self, value: &Json, depth: usize) -> Option<()> {
        match value {
            Json::Null => self.out.push_str("null"),
            Json::Bool(true) => self.out.push_str("true"),
            Json::Bool(false) => self.out.push_str("false"),
            Json::Number(text) if self.style.numbers == Numbers::Spelled => self.out.push_str(text),
            Json::Number(text) => self.out.push_str(&self.style.numbers.spelling(text)),
            Json::String(text) => self.string(text),
            Json::Array(values) if values.is_empty() => self.out.push_str("[]"),
            Json::Object(members) if members.is_empty() => self.out.push_str("{}"),
            Json::Array(values) => {
                self.out.push('[');
                for (number, value) in values.iter().enumerate() {
                    self.begin_item(number, depth + 1);
                    self.value(value, depth + 1)?;
                }
                self.begin_line(depth);
                self.out.push(']');
            }
            Json::Object(members) => {
                self.out.push('{');
                let mut members: Vec<&(Box<str>, Json)> = members.iter().collect();
                match self.style.order {
                    KeyOrder::Document => {}
                    KeyOrder::Sorted => members.sort_by(|(one, _), (other, _)| one.cmp(other)),
                    KeyOrder::IndexesFirst => {
                        members.sort_by_key(|(key, _)| array_index(key).unwrap_or(u32::MAX));
                    }
                }
                for (number, (key, value)) in members.into_iter().enumerate() {
                    self.begin_item(number, depth + 1);
                    self.string(key);
                    self.out.push_str(&self.style.layout.colon);
                    self.value(value, depth + 1)?;
                }
                self.begin_line(depth);
                self.out.push('}');
            }
        }
        self.check()
    }

    fn begin_item(&mut self, number: usize, depth: usize) {
        if number > 0 {
            self.out.push_str(&self.style.layout.comma);
        }
        self.begin_line(depth);
    }

    fn begin_line(&mut self, depth: usize) {
        if let Some((line, indent)) = &self.style.layout.indent {
            self.out.push_str(line);
            for _ in 0..depth {
                self.out.push_str(indent);
            }
        }
    }

    fn string(&mut self, text: &str) {
        let escapes = self.style.escapes;
        self.out.push('"');
        for it in text.chars() {
            match it {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '/' if escapes.slash => self.out.push_str("\\/"),
                '<' | '>' | '&' | '\u{2028}' | '\u{2029}' if escapes.html => self.escape(it),
                // As Python does.
                '\u{7f}' if escapes.non_ascii && !escapes.slash => self.escape(it),
                it if it < ' ' || (escapes.non_ascii && !it.is_ascii()) => self.escape(it),
                it => self.out.push(it),
            }
        }
        self.out.push('"');
    }

    fn escape(&mut self, it: char) {
        for unit in it.encode_utf16(&mut [0; 2]) {
            let escaped = match self.style.escapes.upper_case {
                true => format!("\\u{unit:04X}"),
                false => format!("\\u{unit:04x}"),
            };
            self.out.push_str(&escaped);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The first style that is tried for a file is the one in which the file itself was written.
    #[test]
    fn style_of_a_file_is_tried_first() {
        for file in [
            r#"{"b":1,"a":[1,2,{}],"c":"x"}"#,
            r#"{"b": 1, "a": [1, 2, []], "c": "\u00e9"}"#,
            "{\n  \"b\": 1,\n  \"a\": [\n    1,\n    {}\n  ]\n}\n",
            "{\r\n\t\"b\": \"é\",\r\n\t\"a\": []\r\n}",
            "[\n1,\n2\n]\n",
            "{\"a\":\"x\\/y\",\"b\":\"\\u00e9\"}",
            "{\"b\":\"\\u003cp\\u003e é\",\"a\":1}\n",
            "\u{feff}[1, 2]",
            "{\"z\":{\"y\" :1}}",
            "\"text\"\n\n",
            "{}",
            "{\"a\":\"\\u00C9\"}",
        ] {
            let text = file.trim_start_matches('\u{feff}');
            let value = Json::parse(text, "file").unwrap();
            let styles = Style::likely(file, value.is_sorted(), &value);
            assert!(styles.len() <= MAX_STYLES);
            // White space before a colon is nobody's style.
            let is_usual = !file.contains("\" :");
            let written = write(&value, &styles[0], usize::MAX).unwrap();
            assert_eq!(written == file.as_bytes(), is_usual, "{file} {styles:?}");
        }
    }

    #[test]
    fn usual_styles_are_tried_where_the_file_shows_none() {
        let after = Json::parse(r#"{"a":[1,"é"],"b":2}"#, "file").unwrap();
        let before = Json::parse("{}", "file").unwrap();
        let styles = Style::likely("{}", before.is_sorted(), &after);
        for expected in [
            r#"{"a":[1,"é"],"b":2}"#,
            r#"{"a": [1, "\u00e9"], "b": 2}"#,
            r#"{"a": [1, "é"], "b": 2}"#,
            "{\n  \"a\": [\n    1,\n    \"é\"\n  ],\n  \"b\": 2\n}",
            "{\n    \"a\": [\n        1,\n        \"\\u00e9\"\n    ],\n    \"b\": 2\n}",
            "{\"a\":[1,\"é\"],\"b\":2}\n",
        ] {
            let mut written = styles
                .iter()
                .map(|style| write(&after, style, usize::MAX).unwrap());
            assert!(written.any(|it| it == expected.as_bytes()), "{expected}");
        }
    }

    /// A program writes the next version that has not written the one before: of what the usual ones write, nothing is missing.
    #[test]
    fn every_usual_style_is_tried_after_every_other_one() {
        let before = r#"{"b": [1, "é"], "a": {"d": null, "c": "x"}}"#;
        let after = r#"{"b": [1, "é", {}], "a": {"d": null, "c": "y"}, "0": []}"#;
        let parse = |text: &str| Json::parse(text, "file").unwrap();
        let layouts = [
            Layout::compact(),
            Layout::spaced(),
            Layout::indented("  "),
            Layout::indented("    "),
        ];
        let mut usual = Vec::new();
        for layout in layouts {
            for order in [KeyOrder::Document, KeyOrder::Sorted] {
                for non_ascii in [false, true] {
                    let escapes = Escapes {
                        non_ascii,
                        ..Escapes::default()
                    };
                    for end in ["", "\n"] {
                        usual.push(Style {
                            layout: layout.clone(),
                            escapes,
                            order,
                            end: end.to_owned(),
                            ..Style::compact()
                        });
                    }
                }
            }
        }
        for of_file in &usual {
            let file = String::from_utf8(write(&parse(before), of_file, usize::MAX).unwrap());
            let file = file.unwrap();
            let was_sorted = parse(&file).is_sorted();
            // As the file has its keys.
            let mut value = parse(after);
            if was_sorted == Some(true) {
                value = parse(r#"{"a": {"c": "y", "d": null}, "b": [1, "é", {}], "0": []}"#);
            }
            let tried = Style::likely(&file, was_sorted, &value);
            let tried: Vec<_> = tried
                .iter()
                .map(|it| write(&value, it, usize::MAX).unwrap())
                .collect();
            assert_eq!(tried[0], write(&value, of_file, usize::MAX).unwrap());
            for wanted in &usual {
                // Two habits at once are seldom given up.
                let changes = [
                    wanted.layout != of_file.layout,
                    wanted.order != of_file.order,
                    wanted.escapes != of_file.escapes,
                ];
                if changes.iter().filter(|it| **it).count() > 1 && changes[2] {
                    continue;
                }
                let written = write(&value, wanted, usize::MAX).unwrap();
                assert!(tried.contains(&written), "{wanted:?} after {of_file:?}");
            }
        }
    }

    #[test]
    fn keys_that_are_indexes_are_tried_first_as_in_javascript() {
        let file = r#"{"b":1}"#;
        let after = Json::parse(r#"{"b":1,"10":2,"2":3,"01":4}"#, "file").unwrap();
        let styles = Style::likely(file, None, &after);
        let mut written = styles
            .iter()
            .map(|style| write(&after, style, usize::MAX).unwrap());
        assert!(written.any(|it| it == br#"{"2":3,"10":2,"b":1,"01":4}"#));
        let without = Json::parse(r#"{"2":1,"b":[{"1":1,"a":2}]}"#, "file").unwrap();
        assert!(!without.has_late_index());
    }

    #[test]
    fn numbers_of_a_file_that_was_written_by_hand_are_tried_as_programs_write_them() {
        let file = "{\n  \"a\": 1.50,\n  \"b\": 1e2\n}\n";
        let after = Json::parse(r#"{"a":1.50,"b":1e2,"c":[]}"#, "file").unwrap();
        let styles = Style::likely(file, Some(true), &after);
        let written: Vec<_> = styles
            .iter()
            .map(|style| write(&after, style, usize::MAX).unwrap())
            .collect();
        for expected in [
            "{\n  \"a\": 1.50,\n  \"b\": 1e2,\n  \"c\": []\n}\n",
            "{\n  \"a\": 1.5,\n  \"b\": 100.0,\n  \"c\": []\n}\n",
            r#"{"a": 1.5, "b": 100.0, "c": []}"#,
            r#"{"a":1.5,"b":100,"c":[]}"#,
        ] {
            assert!(
                written.contains(&expected.as_bytes().to_vec()),
                "{expected}"
            );
        }
    }

    #[test]
    fn delete_is_escaped_as_python_does() {
        let value = Json::parse("\"\u{7f}é\"", "file").unwrap();
        let mut style = Style::compact();
        assert_eq!(write(&value, &style, 99).unwrap(), "\"\u{7f}é\"".as_bytes());
        style.escapes.non_ascii = true;
        assert_eq!(write(&value, &style, 99).unwrap(), br#""\u007f\u00e9""#);
    }

    #[test]
    fn length_of_the_output_is_limited() {
        let value = Json::parse("[1,2]", "file").unwrap();
        assert!(write(&value, &Style::compact(), 5).is_some());
        assert!(write(&value, &Style::compact(), 4).is_none());
    }

    proptest! {
        #[test]
        fn any_file_has_styles(text in "[\\[\\]{}\",:0-2a-c\\\\/ \n\r\té]{0,60}") {
            let value = Json::parse(&text, "file").unwrap_or(Json::Null);
            for style in Style::likely(&text, value.is_sorted(), &value) {
                prop_assert!(write(&value, &style, usize::MAX).is_some());
            }
        }
    }
}
