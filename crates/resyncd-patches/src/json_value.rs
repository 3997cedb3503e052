//! A JSON value that retains the order of its keys and the spelling of its numbers (RFC 8259).

use std::collections::HashSet;

use super::error::{BYTES_A_STEP, Budget, MAX_DEPTH, MAX_NODES, PatchError};

/// So many keys are compared one by one.
const FEW: usize = 16;

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Json {
    Null,
    Bool(bool),
    /// As it is spelled.
    Number(Box<str>),
    String(Box<str>),
    Array(Vec<Json>),
    /// In the order of its keys, none of them twice.
    Object(Vec<(Box<str>, Json)>),
}

/// The size of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Size {
    /// The number of values, itself included.
    pub(super) nodes: usize,
    /// The bytes of its texts.
    pub(super) bytes: usize,
    /// How many values are in one another, itself included.
    pub(super) depth: usize,
}

impl Json {
    /// Reads a document. `what` it is, for errors.
    pub(super) fn parse(text: &str, what: &'static str) -> Result<Self, PatchError> {
        let mut parser = JsonParser {
            text,
            at: 0,
            nodes: 0,
            what,
        };
        let value = parser.value(1)?;
        parser.skip_space();
        match parser.peek() {
            None => Ok(value),
            Some(_) => Err(parser.error("more than one value")),
        }
    }

    pub(super) fn size(&self) -> Size {
        let leaf = Size {
            nodes: 1,
            bytes: 0,
            depth: 1,
        };
        match self {
            Self::Null | Self::Bool(_) => leaf,
            Self::Number(text) | Self::String(text) => Size {
                bytes: text.len(),
                ..leaf
            },
            Self::Array(values) => size_of(values.iter().map(|value| (0, value))),
            Self::Object(members) => size_of(members.iter().map(|(key, value)| (key.len(), value))),
        }
    }

    /// Whether two values are the same data (RFC 6902, section 4.6): the order of keys and the spelling of numbers don't count.
    pub(super) fn is_same(&self, other: &Self, budget: &mut Budget) -> Result<bool, PatchError> {
        budget.spend(1)?;
        match (self, other) {
            (Self::Number(one), Self::Number(other)) => {
                budget.spend((one.len() + other.len()) / BYTES_A_STEP)?;
                Ok(is_same_number(one, other))
            }
            (Self::String(one), Self::String(other)) => {
                budget.spend(one.len().min(other.len()) / BYTES_A_STEP)?;
                Ok(one == other)
            }
            (Self::Array(one), Self::Array(other)) => {
                if one.len() != other.len() {
                    return Ok(false);
                }
                for (one, other) in one.iter().zip(other) {
                    if !one.is_same(other, budget)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            (Self::Object(one), Self::Object(other)) => {
                if one.len() != other.len() {
                    return Ok(false);
                }
                for (key, value) in one {
                    match find(other, key, budget)? {
                        Some(at) if value.is_same(&other[at].1, budget)? => {}
                        _ => return Ok(false),
                    }
                }
                Ok(true)
            }
            (one, other) => Ok(one == other),
        }
    }

    /// Whether a number, as it is spelled, satisfies a condition.
    pub(super) fn has_number(&self, is_wanted: &impl Fn(&str) -> bool) -> bool {
        match self {
            Self::Number(text) => is_wanted(text),
            Self::Array(values) => values.iter().any(|value| value.has_number(is_wanted)),
            Self::Object(members) => {
                let mut values = members.iter().map(|(_, value)| value);
                values.any(|value| value.has_number(is_wanted))
            }
            _ => false,
        }
    }

    /// Whether an object has a key that is an array index where JavaScript would not have it.
    pub(super) fn has_late_index(&self) -> bool {
        match self {
            Self::Array(values) => values.iter().any(Self::has_late_index),
            Self::Object(members) => {
                let places = members.iter().map(|(key, _)| array_index(key));
                let places = places.map(|index| index.unwrap_or(u32::MAX));
                !places.is_sorted() || members.iter().any(|(_, value)| value.has_late_index())
            }
            _ => false,
        }
    }

    /// Whether the keys of each object are in the order of their code points; `None`: no object has two keys.
    pub(super) fn is_sorted(&self) -> Option<bool> {
        match self {
            Self::Array(values) => are_sorted(values.iter()),
            Self::Object(members) => {
                let own = members.is_sorted_by(|(one, _), (other, _)| one < other);
                let own = (members.len() > 1).then_some(own);
                match own {
                    Some(false) => own,
                    _ => are_sorted(members.iter().map(|(_, value)| value)).or(own),
                }
            }
            _ => None,
        }
    }
}

/// The index that a key is in JavaScript, below 2^32 - 1; `None`: it is none.
pub(super) fn array_index(key: &str) -> Option<u32> {
    let is_number = key.bytes().all(|byte| byte.is_ascii_digit());
    let is_spelled = is_number && !key.is_empty() && (key == "0" || !key.starts_with('0'));
    let index = key.parse().ok().filter(|_| is_spelled);
    index.filter(|&index| index < u32::MAX)
}

/// The size of a value of these; each with the length of its key.
fn size_of<'a>(values: impl Iterator<Item = (usize, &'a Json)>) -> Size {
    let mut size = Size {
        nodes: 1,
        bytes: 0,
        depth: 1,
    };
    for (key, value) in values {
        let inner = value.size();
        size.nodes += inner.nodes;
        size.bytes += key + inner.bytes;
        size.depth = size.depth.max(1 + inner.depth);
    }
    size
}

fn are_sorted<'a>(values: impl Iterator<Item = &'a Json>) -> Option<bool> {
    let mut sorted = None;
    for value in values {
        match value.is_sorted() {
            Some(false) => return Some(false),
            inner => sorted = sorted.or(inner),
        }
    }
    sorted
}

/// Where the member with a key is.
pub(super) fn find(
    members: &[(Box<str>, Json)],
    key: &str,
    budget: &mut Budget,
) -> Result<Option<usize>, PatchError> {
    budget.spend_search(members.len(), key.len())?;
    Ok(members.iter().position(|(known, _)| **known == *key))
}

fn is_same_number(one: &str, other: &str) -> bool {
    // Where two numbers are too close for this, the digest of the result decides.
    one == other
        || matches!((one.parse::<f64>(), other.parse::<f64>()), (Ok(one), Ok(other)) if one == other)
}

struct JsonParser<'a> {
    text: &'a str,
    /// In bytes, on a boundary of characters.
    at: usize,
    nodes: usize,
    what: &'static str,
}

impl JsonParser<'_> {
    fn error(&self, reason: &'static str) -> PatchError {
        PatchError::Syntax {
            what: self.what,
            reason,
            position: self.at,
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    /// Takes a byte, after white space.
    fn takes(&mut self, byte: u8) -> bool {
        self.skip_space();
        let takes = self.peek() == Some(byte);
        self.at += usize::from(takes);
        takes
    }

    fn value(&mut self, depth: usize) -> Result<Json, PatchError> {
        self.nodes += 1;
        if depth > MAX_DEPTH {
            return Err(PatchError::Limit("too deep"));
        }
        if self.nodes > MAX_NODES {
            return Err(PatchError::Limit("too many values"));
        }
        self.skip_space();
        match self.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => Ok(Json::String(self.string()?)),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => {
                for (word, value) in [
                    ("null", Json::Null),
                    ("true", Json::Bool(true)),
                    ("false", Json::Bool(false)),
                ] {
                    if self.text[self.at..].starts_with(word) {
                        self.at += word.len();
                        return Ok(value);
                    }
                }
                Err(self.error("no value"))
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<Json, PatchError> {
        self.at += 1;
        let mut values = Vec::new();
        if self.takes(b']') {
            return Ok(Json::Array(values));
        }
        loop {
            values.push(self.value(depth + 1)?);
            if self.takes(b']') {
                return Ok(Json::Array(values));
            }
            if !self.takes(b',') {
                return Err(self.error("no comma"));
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<Json, PatchError> {
        self.at += 1;
        let mut members: Vec<(Box<str>, Json)> = Vec::new();
        if self.takes(b'}') {
            return Ok(Json::Object(members));
        }
        loop {
            self.skip_space();
            if self.peek() != Some(b'"') {
                return Err(self.error("no key"));
            }
            let key = self.string()?;
            if !self.takes(b':') {
                return Err(self.error("no colon"));
            }
            members.push((key, self.value(depth + 1)?));
            if self.takes(b'}') {
                break;
            }
            if !self.takes(b',') {
                return Err(self.error("no comma"));
            }
        }
        // Which of them counts is left open, and so is what a patch does to them.
        if has_repeated_key(&members) {
            return Err(self.error("a repeated key"));
        }
        Ok(Json::Object(members))
    }

    fn number(&mut self) -> Result<Json, PatchError> {
        let begin = self.at;
        self.at += usize::from(self.peek() == Some(b'-'));
        match self.digits() {
            0 => return Err(self.error("no digit")),
            1 => {}
            _ if self.text[begin..].trim_start_matches('-').starts_with('0') => {
                return Err(self.error("a leading zero"));
            }
            _ => {}
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            if self.digits() == 0 {
                return Err(self.error("no digit"));
            }
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            self.at += usize::from(matches!(self.peek(), Some(b'+' | b'-')));
            if self.digits() == 0 {
                return Err(self.error("no digit"));
            }
        }
        Ok(Json::Number(self.text[begin..self.at].into()))
    }

    fn digits(&mut self) -> usize {
        let begin = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        self.at - begin
    }

    fn string(&mut self) -> Result<Box<str>, PatchError> {
        self.at += 1;
        let mut text = String::new();
        loop {
            let rest = &self.text[self.at..];
            let plain = rest.find(|it: char| it < ' ' || it == '"' || it == '\\');
            let Some(plain) = plain else {
                return Err(self.error("an open string"));
            };
            text.push_str(&rest[..plain]);
            self.at += plain;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(text.into());
                }
                Some(b'\\') => {
                    self.at += 1;
                    text.push(self.escaped()?);
                }
                _ => return Err(self.error("a control character")),
            }
        }
    }

    fn escaped(&mut self) -> Result<char, PatchError> {
        let escape = self.peek();
        self.at += usize::from(escape.is_some_and(|byte| byte.is_ascii()));
        let escaped = match escape {
            Some(it @ (b'"' | b'\\' | b'/')) => char::from(it),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                let first = self.hex()?;
                let mut units = vec![first];
                if (0xd800..0xdc00).contains(&first) && self.text[self.at..].starts_with("\\u") {
                    self.at += 2;
                    units.push(self.hex()?);
                }
                let mut decoded = char::decode_utf16(units);
                match (decoded.next(), decoded.next()) {
                    (Some(Ok(decoded)), None) => decoded,
                    _ => return Err(self.error("half of a surrogate pair")),
                }
            }
            _ => return Err(self.error("an unknown escape")),
        };
        Ok(escaped)
    }

    fn hex(&mut self) -> Result<u16, PatchError> {
        let digits = self.text.get(self.at..self.at + 4);
        let digits = digits.filter(|it| it.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let unit = digits.and_then(|digits| u16::from_str_radix(digits, 16).ok());
        let unit = unit.ok_or_else(|| self.error("an unknown escape"))?;
        self.at += 4;
        Ok(unit)
    }
}

fn has_repeated_key(members: &[(Box<str>, Json)]) -> bool {
    if members.len() <= FEW {
        let mut keys = members.iter().enumerate();
        return keys.any(|(at, (key, _))| members[..at].iter().any(|(known, _)| known == key));
    }
    let mut known = HashSet::with_capacity(members.len());
    members.iter().any(|(key, _)| !known.insert(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Json, PatchError> {
        Json::parse(text, "file")
    }

    #[test]
    fn documents_that_are_none_are_rejected() {
        for text in [
            "",
            "{",
            "[1",
            "[1,]",
            "{\"a\"}",
            "{\"a\":}",
            "{a:1}",
            "{\"a\":1,}",
            "01",
            "-",
            "1.",
            "1e",
            "+1",
            "\"",
            "\"\\x\"",
            "\"\\u12g4\"",
            "\"\\ud800\"",
            "\"\\ud800\\u0041\"",
            "\"\\udc00\"",
            "\"\n\"",
            "tru",
            "1 2",
            "[1] x",
            "{\"a\":1,\"a\":2}",
            "\"\\u+123\"",
            "\"\\é\"",
            "nullx",
        ] {
            assert!(
                matches!(parse(text), Err(PatchError::Syntax { .. })),
                "{text}"
            );
        }
        let deep = |depth| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(parse(&deep(MAX_DEPTH)).is_ok());
        assert_eq!(parse(&deep(100_000)), Err(PatchError::Limit("too deep")));
        let many = format!("[{}0]", "0,".repeat(MAX_NODES));
        assert_eq!(parse(&many), Err(PatchError::Limit("too many values")));
    }

    #[test]
    fn order_of_keys_and_spelling_of_numbers_are_retained() {
        let value =
            parse(r#" {"b":1.50,"a":[ -0, 1E+2 ,"\u00e9\ud83d\ude00\/" ,null,true,false],"":{}} "#)
                .unwrap();
        let number = |text: &str| Json::Number(text.into());
        let expected = Json::Object(vec![
            ("b".into(), number("1.50")),
            (
                "a".into(),
                Json::Array(vec![
                    number("-0"),
                    number("1E+2"),
                    Json::String("é😀/".into()),
                    Json::Null,
                    Json::Bool(true),
                    Json::Bool(false),
                ]),
            ),
            ("".into(), Json::Object(Vec::new())),
        ]);
        assert_eq!(value, expected);
        let size = value.size();
        assert_eq!((size.nodes, size.depth), (10, 3));
        assert_eq!(value.is_sorted(), Some(false));
        for (text, sorted) in [
            ("[1]", None),
            (r#"{"a":1}"#, None),
            (r#"[{"a":1,"b":2}]"#, Some(true)),
            (r#"{"b":1,"c":{"b":1,"a":2}}"#, Some(false)),
        ] {
            assert_eq!(parse(text).unwrap().is_sorted(), sorted, "{text}");
        }
    }

    #[test]
    fn data_is_compared_and_not_its_spelling() {
        for (one, other, same) in [
            ("1", "1.0", true),
            ("10", "1e1", true),
            ("1", "\"1\"", false),
            (r#"{"a":1,"b":[2]}"#, r#"{"b":[2.0],"a":1}"#, true),
            (r#"{"a":1}"#, r#"{"a":1,"b":1}"#, false),
            (r#"{"a":1}"#, r#"{"b":1}"#, false),
            ("[1,2]", "[2,1]", false),
            ("null", "false", false),
        ] {
            let (one_value, other_value) = (parse(one).unwrap(), parse(other).unwrap());
            let found = one_value.is_same(&other_value, &mut Budget::new());
            assert_eq!(found, Ok(same), "{one} {other}");
        }
    }
}
