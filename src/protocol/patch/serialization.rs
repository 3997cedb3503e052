//! The bytes of a JSON document, as the usual programs write them.
//!
//! The style of the file that is patched is tried first: programs seldom change it between two versions. Then come the usual ones of
//! JavaScript's `JSON.stringify` and Python's `json.dumps`.

use super::json_value::Json;

/// How a document is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Style {
    /// A byte order mark.
    bom: bool,
    layout: Layout,
    escapes: Escapes,
    /// Whether keys are written in the order of their code points.
    is_sorted: bool,
    /// What follows the document.
    end: String,
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
const MAX_STYLES: usize = 16;

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
            is_sorted: false,
            end: String::new(),
        }
    }

    /// The styles to try for the next version of a file, the most likely first. `before`: the value of the file.
    pub(super) fn likely(file: &str, before: &Json) -> Vec<Self> {
        let seen = Seen::of(file);
        let is_sorted = before.is_sorted();
        let orders: &[bool] = match is_sorted {
            Some(true) => &[true, false],
            Some(false) => &[false],
            None => &[false, true],
        };
        // What the file does not show is tried both ways.
        let non_ascii: &[bool] = match seen.escapes_non_ascii {
            Some(true) => &[true],
            Some(false) => &[false],
            None => &[false, true],
        };
        let mut ends = vec![seen.end.clone(), String::new(), "\n".to_owned()];
        ends.dedup();
        let mut styles: Vec<Self> = Vec::new();
        let mut try_style = |layout: &Layout, non_ascii, is_sorted, end: &str| {
            let style = Self {
                bom: seen.bom,
                layout: layout.clone(),
                escapes: Escapes {
                    non_ascii,
                    ..seen.escapes
                },
                is_sorted,
                end: end.to_owned(),
            };
            if styles.len() < MAX_STYLES && !styles.contains(&style) {
                styles.push(style);
            }
        };
        for &is_sorted in orders {
            for &non_ascii in non_ascii {
                try_style(&seen.layout, non_ascii, is_sorted, &seen.end);
            }
        }
        let usual = [
            Layout::compact(),
            Layout::spaced(),
            Layout::indented("  "),
            Layout::indented("    "),
        ];
        let is_sorted = orders[0];
        for layout in std::iter::once(&seen.layout).chain(&usual) {
            for &non_ascii in non_ascii {
                try_style(layout, non_ascii, is_sorted, &seen.end);
            }
        }
        for end in &ends {
            try_style(&seen.layout, non_ascii[0], is_sorted, end);
        }
        for layout in &usual {
            try_style(layout, non_ascii[0], is_sorted, "");
        }
        styles
    }
}

/// What a file shows of how it was written.
struct Seen {
    bom: bool,
    layout: Layout,
    escapes: Escapes,
    escapes_non_ascii: Option<bool>,
    end: String,
}

impl Seen {
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
    let mut writer = Writer {
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

struct Writer<'a> {
    out: String,
    style: &'a Style,
    limit: usize,
}

impl Writer<'_> {
    fn check(&self) -> Option<()> {
        (self.out.len() <= self.limit).then_some(())
    }

    fn value(&mut self, value: &Json, depth: usize) -> Option<()> {
        match value {
            Json::Null => self.out.push_str("null"),
            Json::Bool(true) => self.out.push_str("true"),
            Json::Bool(false) => self.out.push_str("false"),
            Json::Number(text) => self.out.push_str(text),
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
                if self.style.is_sorted {
                    members.sort_by(|(one, _), (other, _)| one.cmp(other));
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
            let styles = Style::likely(file, &value);
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
        let styles = Style::likely("{}", &before);
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
            for style in Style::likely(&text, &value) {
                prop_assert!(write(&value, &style, usize::MAX).is_some());
            }
        }
    }
}
