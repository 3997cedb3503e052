//! Removes secrets from remote text before it is cut, stored, logged or shown.
//!
//! A remote may repeat the request in its answer, and so the password, the callback token or the secret that was in it. Every
//! excerpt of a remote answer passes a [`Redaction`]. A secret is found however it is written: with other capitals, divided by
//! white space, percent-encoded, escaped as in JSON, HTML or Rust, in several layers of that, and in the base64 form of HTTP
//! Basic. Of a long secret a part is found as well, and of any secret its beginning where the text ends: the text may have been
//! cut before.
//!
//! What is not found: a secret in another encoding, such as in reverse. Whoever knows a secret can publish it.
//!
//! Must not know where the secrets come from.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use super::visible_text::is_deceptive;

/// What stands in place of a secret.
const MARK: &str = "[redacted]";
/// The shortest secret that is searched for, in characters: a shorter one is part of many words.
const SHORTEST: usize = 4;
/// The length from which parts of a secret are searched for, and the length of such a part.
const LONG: usize = 16;
const PART: usize = 8;
/// How many hexadecimal digits in a row are a key: tokens and secrets of callbacks have more.
const KEY_DIGITS: usize = 32;
/// The same where the text ends.
const CUT_KEY_DIGITS: usize = 12;
/// How many layers of encodings are removed.
const LAYERS: usize = 4;
/// The longest encoded character.
const LONGEST_ENCODED: usize = 12;

/// The secrets that no excerpt may contain. `Debug` does not show them. Cheap to clone.
#[derive(Clone, Default)]
pub struct Redaction {
    /// Without white space and in lower case.
    secrets: Arc<Vec<Vec<char>>>,
    /// Whether long hexadecimal numbers are removed: the keys of other channels.
    removes_keys: bool,
}

impl Redaction {
    /// The same, which also removes this secret.
    #[must_use]
    pub fn with(&self, secret: &str) -> Self {
        let mut secrets = self.secrets.to_vec();
        let secret: Vec<char> = secret.chars().filter_map(plain).collect();
        if secret.len() >= SHORTEST && !secrets.contains(&secret) {
            secrets.push(secret);
        }
        Self {
            secrets: Arc::new(secrets),
            removes_keys: self.removes_keys,
        }
    }

    /// The same, which also removes a password, and its form in the `Authorization` header.
    #[must_use]
    pub fn with_password(&self, user: &str, password: &str) -> Self {
        let both = format!("{user}:{password}");
        self.with(password).with(&base64(both.as_bytes()))
    }

    /// The same, which also removes whatever may be a key of a callback: long hexadecimal numbers.
    #[must_use]
    pub fn with_keys(&self) -> Self {
        Self {
            secrets: Arc::clone(&self.secrets),
            removes_keys: true,
        }
    }

    /// The text without the secrets, and without what stands before the host of a URL in it.
    #[must_use]
    pub fn redact(&self, text: &str) -> String {
        let hidden = self.hidden(text);
        let mut redacted = String::with_capacity(text.len());
        let mut end = 0;
        for range in hidden {
            redacted.push_str(&text[end..range.start]);
            redacted.push_str(MARK);
            end = range.end;
        }
        redacted.push_str(&text[end..]);
        redacted
    }

    /// The beginning of the text as one line of at most `longest` characters, without the secrets.
    #[must_use]
    pub fn excerpt(&self, text: &str, longest: usize) -> String {
        let redacted = self.redact(text);
        let words = redacted.split(|c: char| c.is_whitespace() || c.is_control());
        let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
        words.join(" ").chars().take(longest).collect()
    }

    /// The parts of the text that are hidden, in their order and disjoint.
    fn hidden(&self, text: &str) -> Vec<Range<usize>> {
        let mut found = Vec::new();
        let mut layer: Vec<Unit> = text
            .char_indices()
            .map(|(at, char)| Unit {
                char,
                bytes: at..at + char.len_utf8(),
            })
            .collect();
        for _ in 0..LAYERS {
            find_userinfo(&layer, &mut found);
            let plain: Vec<Unit> = layer.iter().filter_map(Unit::plain).collect();
            self.find_secrets(&plain, &mut found);
            if self.removes_keys {
                find_keys(&plain, &mut found);
            }
            match decode(&layer) {
                Some(decoded) => layer = decoded,
                None => break,
            }
        }
        merge(found)
    }

    fn find_secrets(&self, text: &[Unit], found: &mut Vec<Range<usize>>) {
        let mut parts: HashSet<&[char]> = HashSet::new();
        let chars: Vec<char> = text.iter().map(|unit| unit.char).collect();
        for secret in self.secrets.iter() {
            if secret.len() >= LONG {
                parts.extend(secret.windows(PART));
            }
            for (at, window) in chars.windows(secret.len()).enumerate() {
                if window == secret.as_slice() {
                    found.push(bytes_of(text, at..at + secret.len()));
                }
            }
            for end in ends_of(&chars) {
                let longest = secret.len().min(end);
                let mut cut = (SHORTEST..=longest).rev();
                if let Some(cut) = cut.find(|&len| chars[..end].ends_with(&secret[..len])) {
                    found.push(bytes_of(text, end - cut..chars.len()));
                }
            }
        }
        if parts.is_empty() {
            return;
        }
        for (at, window) in chars.windows(PART).enumerate() {
            if parts.contains(window) {
                found.push(bytes_of(text, at..at + PART));
            }
        }
    }
}

impl std::fmt::Debug for Redaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Redaction of {} secrets", self.secrets.len())
    }
}

/// A character, and the bytes of the text that stand for it.
#[derive(Clone, Debug)]
struct Unit {
    char: char,
    bytes: Range<usize>,
}

impl Unit {
    fn plain(&self) -> Option<Self> {
        let char = plain(self.char)?;
        Some(Self {
            char,
            bytes: self.bytes.clone(),
        })
    }
}

/// A character for comparison; `None` if it may stand between the characters of a secret. A form writes a space as a plus.
fn plain(char: char) -> Option<char> {
    let is_ignored = char.is_whitespace()
        || is_deceptive(char)
        || matches!(char, '+' | '\u{2026}' | char::REPLACEMENT_CHARACTER);
    // The two alphabets of base64.
    let char = match char {
        '-' => return None,
        '_' => '/',
        char => char.to_ascii_lowercase(),
    };
    (!is_ignored).then_some(char)
}

fn bytes_of(text: &[Unit], units: Range<usize>) -> Range<usize> {
    text[units.start].bytes.start..text[units.end - 1].bytes.end
}

/// Where the text ends: at its end, or before an encoded character that has been cut, in any layer.
fn ends_of(chars: &[char]) -> Vec<usize> {
    let recent = chars.len().saturating_sub(LONGEST_ENCODED);
    let mut ends = vec![chars.len()];
    for at in (recent..chars.len()).rev() {
        let is_cut = |&end: &usize| {
            let rest = &chars[at + 1..end];
            match chars[at] {
                '%' => rest.len() < 2,
                '\\' => rest
                    .iter()
                    .all(|&char| char == '{' || char.is_ascii_alphanumeric()),
                '&' => rest
                    .iter()
                    .all(|&char| char == '#' || char.is_ascii_alphanumeric()),
                _ => false,
            }
        };
        if ends.iter().any(is_cut) {
            ends.push(at);
        }
    }
    ends
}

/// Finds what stands between `://` and `@` of a URL.
fn find_userinfo(text: &[Unit], found: &mut Vec<Range<usize>>) {
    let ends = |char: char| {
        char.is_whitespace() || matches!(char, '/' | '?' | '#' | '<' | '>' | '"' | '\'' | '\\')
    };
    for (at, scheme) in text.windows(3).enumerate() {
        if !scheme.iter().map(|unit| unit.char).eq("://".chars()) {
            continue;
        }
        let authority = &text[at + 3..];
        let end = authority.iter().position(|unit| ends(unit.char));
        let authority = &authority[..end.unwrap_or(authority.len())];
        if let Some(last @ 1..) = authority.iter().rposition(|unit| unit.char == '@') {
            found.push(bytes_of(authority, 0..last));
        }
    }
}

/// Finds long hexadecimal numbers.
fn find_keys(text: &[Unit], found: &mut Vec<Range<usize>>) {
    let mut begin = 0;
    for at in 0..=text.len() {
        if text
            .get(at)
            .is_some_and(|unit| unit.char.is_ascii_hexdigit())
        {
            continue;
        }
        let least = if at == text.len() {
            CUT_KEY_DIGITS
        } else {
            KEY_DIGITS
        };
        if at - begin >= least {
            found.push(bytes_of(text, begin..at));
        }
        begin = at + 1;
    }
}

/// Removes one layer of encodings; `None` if there is none.
fn decode(text: &[Unit]) -> Option<Vec<Unit>> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut at = 0;
    let mut has_changed = false;
    while at < text.len() {
        let (chars, len) = match text[at].char {
            '%' => percent(&text[at..]),
            '\\' => escape(&text[at..]),
            '&' => reference(&text[at..]),
            char => (vec![char], 1),
        };
        has_changed |= len > 1;
        let bytes = bytes_of(text, at..at + len);
        decoded.extend(chars.into_iter().map(|char| Unit {
            char,
            bytes: bytes.clone(),
        }));
        at += len;
    }
    has_changed.then_some(decoded)
}

/// The characters for a run of percent-encoded bytes, and the length of the run.
fn percent(text: &[Unit]) -> (Vec<char>, usize) {
    let mut bytes = Vec::new();
    let mut len = 0;
    while let [mark, high, low, ..] = &text[len..]
        && mark.char == '%'
        && let Some(byte) = number(&[high.clone(), low.clone()], 16)
        && let Ok(byte) = u8::try_from(byte)
    {
        bytes.push(byte);
        len += 3;
    }
    if len == 0 {
        return (vec!['%'], 1);
    }
    (String::from_utf8_lossy(&bytes).chars().collect(), len)
}

/// The character for an escape of JSON or Rust, and its length: `\n`, `\/`, `\xHH`, `\uHHHH`, `\u{H…}`.
fn escape(text: &[Unit]) -> (Vec<char>, usize) {
    let digits = |from: usize, to: usize| {
        let found = text.get(from..to).and_then(|digits| number(digits, 16));
        found.and_then(char::from_u32)
    };
    let char_at = |at: usize| text.get(at).map(|unit| unit.char);
    match char_at(1) {
        Some('n' | 'r' | 't' | 'f' | 'b' | '0') => (vec![' '], 2),
        Some('x') => match digits(2, 4) {
            Some(char) => (vec![char], 4),
            None => (vec!['\\'], 1),
        },
        Some('u') if char_at(2) == Some('{') => {
            let end = text
                .iter()
                .take(LONGEST_ENCODED)
                .position(|unit| unit.char == '}');
            match end.and_then(|end| Some((digits(3, end)?, end + 1))) {
                Some((char, len)) => (vec![char], len),
                None => (vec!['\\'], 1),
            }
        }
        Some('u') => match digits(2, 6) {
            Some(char) => (vec![char], 6),
            None => (vec!['\\'], 1),
        },
        Some(char @ ('\\' | '/' | '"' | '\'' | '\n' | '\r')) => (vec![char], 2),
        _ => (vec!['\\'], 1),
    }
}

/// The character for a reference of HTML or XML, and its length.
fn reference(text: &[Unit]) -> (Vec<char>, usize) {
    let Some(end @ 2..) = text
        .iter()
        .take(LONGEST_ENCODED)
        .position(|unit| unit.char == ';')
    else {
        return (vec!['&'], 1);
    };
    let name = &text[1..end];
    let word: String = name.iter().map(|unit| unit.char).collect();
    let char = match word.as_str() {
        "amp" => Some('&'),
        "lt" => Some('<'),
        "gt" => Some('>'),
        "quot" => Some('"'),
        "apos" => Some('\''),
        "nbsp" | "shy" => Some(' '),
        _ if word.starts_with("#x") || word.starts_with("#X") => {
            number(&name[2..], 16).and_then(char::from_u32)
        }
        _ if word.starts_with('#') => number(&name[1..], 10).and_then(char::from_u32),
        _ => None,
    };
    match char {
        Some(char) => (vec![char], end + 1),
        None => (vec!['&'], 1),
    }
}

/// The number that the digits state.
fn number(digits: &[Unit], radix: u32) -> Option<u32> {
    if digits.is_empty() || digits.len() > 7 {
        return None;
    }
    digits.iter().try_fold(0_u32, |sum, unit| {
        Some(sum * radix + unit.char.to_digit(radix)?)
    })
}

/// Joins ranges that overlap or touch.
fn merge(mut ranges: Vec<Range<usize>>) -> Vec<Range<usize>> {
    ranges.sort_by_key(|range| range.start);
    let mut merged: Vec<Range<usize>> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

/// The base64 form of bytes (RFC 4648, section 4), without padding.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let group = (0..3).fold(0_u32, |group, at| {
            group << 8 | chunk.get(at).copied().map_or(0, u32::from)
        });
        for digit in 0..=chunk.len() {
            let index = group >> (18 - 6 * digit) & 63;
            text.push(char::from(ALPHABET[index as usize]));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(redaction: &Redaction, text: &str, expected: &str) {
        assert_eq!(redaction.redact(text), expected, "{text:?}");
    }

    #[test]
    fn secrets_are_found_however_they_are_written() {
        let redaction = Redaction::default().with_password("me", "s@cret&so/on");
        for echo in [
            "s@cret&so/on",
            "S@CRET&SO/ON",
            "s%40cret%26so%2Fon",
            "s%2540cret%2526so%252fon",
            "s@cret&amp;so/on",
            "s&#64;cret&#x26;so/on",
            "s\\u0040cret\\u0026so\\/on",
            "s\\u{40}cret\\x26so/on",
            "s@cr\n  et&so\u{200b}/on",
            "s@cr\\n\\tet&so/on",
            "bWU6c0BjcmV0JnNvL29u",
            "bWU6c0Bj cmV0JnNvL29u==",
        ] {
            check(
                &redaction,
                &format!("no ({echo}), sorry"),
                &format!(
                    "no ([redacted]{}), sorry",
                    if echo.ends_with('=') { "==" } else { "" }
                ),
            );
        }
        check(&redaction, "no secret", "no secret");
        check(&redaction, "ends with s@cr", "ends with [redacted]");
        check(&redaction, "ends with s@c", "ends with s@c");
        check(
            &redaction,
            "see https://a:b@c.example/?x=http%3A%2F%2Fd:e%40f.example",
            "see https://[redacted]@c.example/?x=http%3A%2F%2F[redacted]%40f.example",
        );
        assert_eq!(format!("{redaction:?}"), "Redaction of 2 secrets");
    }

    #[test]
    fn keys_of_other_channels_are_removed() {
        let key = "0123456789abcdef".repeat(3);
        let redaction = Redaction::default().with_keys();
        check(&redaction, &format!("at /{key}."), "at /[redacted].");
        check(&redaction, &format!("at {}", &key[..20]), "at [redacted]");
        check(
            &redaction,
            "face 0123456789abcdef, no key",
            "face 0123456789abcdef, no key",
        );
        check(&Redaction::default(), &key, &key);
    }

    #[test]
    fn excerpt_is_cut_after_the_secrets_are_removed() {
        let redaction = Redaction::default().with("hunter2-hunter2-hunter2");
        let text = format!("{}hunter2-hunter2-hunter2", "x".repeat(15));
        assert_eq!(
            redaction.excerpt(&text, 20),
            format!("{}[reda", "x".repeat(15))
        );
        assert_eq!(redaction.excerpt(" a\r\n\u{1b} b ", 20), "a b");
    }

    #[test]
    fn base64_is_that_of_the_header() {
        assert_eq!(base64(b"me:s@cret"), "bWU6c0BjcmV0");
        assert_eq!(base64(b"a:b"), "YTpi");
        assert_eq!(base64(b"ab:c"), "YWI6Yw");
        assert_eq!(base64(b"abc:d"), "YWJjOmQ");
    }

    /// One way to write a character.
    fn write(char: char, way: u8) -> String {
        let encode = |char: char| -> String {
            let mut bytes = [0; 4];
            let bytes = char.encode_utf8(&mut bytes).bytes();
            bytes.map(|byte| format!("%{byte:02x}")).collect()
        };
        match way {
            0 => encode(char),
            1 => encode(char).chars().map(encode).collect(),
            2 => format!("\\u{:04x}", u32::from(char)),
            3 => format!("&#{};", u32::from(char)),
            4 => char.to_ascii_uppercase().to_string(),
            5 => format!("{char} \n"),
            _ => char.to_string(),
        }
    }

    /// Whether a text shows a part of a secret, in any layer of encodings.
    fn shows(text: &str, secret: &str) -> bool {
        let secret: Vec<char> = secret.chars().filter_map(plain).collect();
        // The beginning of a short one that was cut, or any part of a long one.
        let parts: Vec<&[char]> = match secret.len() {
            LONG.. => secret.windows(PART).collect(),
            _ => vec![&secret[..SHORTEST]],
        };
        let units = text.chars().map(|char| Unit { char, bytes: 0..0 });
        let mut layer: Vec<Unit> = units.collect();
        loop {
            let chars: Vec<char> = layer.iter().filter_map(|unit| plain(unit.char)).collect();
            let is_shown = |part: &&[char]| chars.windows(part.len()).any(|it| it == *part);
            if parts.iter().any(is_shown) {
                return true;
            }
            match decode(&layer) {
                Some(decoded) => layer = decoded,
                None => return false,
            }
        }
    }

    proptest! {
        /// Whatever is written around it, in whatever way it is written and wherever the text is cut, no secret is left.
        #[test]
        fn no_secret_survives(
            key in "[0-9a-f]{48}",
            password in "[a-zA-Z0-9@:/é._~!]{8,24}",
            noise in "[ ;\n=,|]{0,40}",
            ways in proptest::collection::vec(0..8_u8, 48),
            which in 0..3,
            cut in 0..600_usize,
            longest in 1..400_usize,
        ) {
            let redaction = Redaction::default().with(&key).with_password("me", &password);
            let secret = match which {
                0 => key,
                1 => base64(format!("me:{password}").as_bytes()),
                _ => password,
            };
            prop_assume!(secret.chars().filter_map(plain).count() >= SHORTEST);
            let ways = ways.iter().cycle();
            let written: String = secret.chars().zip(ways).map(|(char, &way)| write(char, way)).collect();
            let text = format!("{noise}{written}{noise}");
            let cut: String = text.chars().take(cut).collect();
            for text in [text, cut] {
                prop_assert!(!shows(&redaction.redact(&text), &secret), "{text:?}");
                prop_assert!(!shows(&redaction.excerpt(&text, longest), &secret), "{text:?}");
            }
        }

        #[test]
        fn any_text_is_redacted(text in ".{0,200}", secret in ".{0,20}") {
            let redaction = Redaction::default().with_keys().with(&secret).with_password(&secret, &text);
            let _ = redaction.excerpt(&text, 100);
            let _ = redaction.redact(&format!("{secret}%{text}\\{secret}&{text};"));
        }
    }
}
