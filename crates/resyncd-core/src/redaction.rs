//! Removes secrets from remote text before it is cut, stored, logged or shown.
//!
//! A remote may repeat the request in its answer, and so the password, the callback token or the secret that was in it. Every
//! excerpt of a remote answer passes a [`Redaction`]. A secret is replaced where it is written as it is. A word that contains one in
//! another way is replaced as a whole, and so is a text whose words together contain one: with other capitals, divided by white space,
//! percent-encoded, escaped as in JSON, HTML or Rust, in several layers of that, in the base64 form of HTTP Basic, a part of a long
//! secret, or the beginning of one where the text ends: the text may have been cut before.
//!
//! What is not found: a secret in another encoding, such as in reverse. Whoever knows a secret can publish it.
//!
//! Must not know where the secrets come from.

use std::cmp::Reverse;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use url::form_urlencoded;

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
/// The longest encoded character, in bytes.
const LONGEST_ENCODED: usize = 12;

/// The secrets that no excerpt may contain. `Debug` does not show them. Cheap to clone.
#[derive(Clone, Default)]
pub struct Redaction {
    secrets: Arc<Vec<Secret>>,
    /// Whether long hexadecimal numbers are removed: the keys of other channels.
    removes_keys: bool,
}

#[derive(Clone)]
struct Secret {
    text: String,
    /// Of the [`plain`] text: what shows the secret anywhere, and what shows it where the text ends.
    parts: Vec<String>,
    beginnings: Vec<String>,
}

impl Redaction {
    /// The same, which also removes this secret.
    #[must_use]
    pub fn with(&self, secret: &str) -> Self {
        let chars: Vec<char> = plain(secret).chars().collect();
        let is_known = self.secrets.iter().any(|known| known.text == secret);
        if chars.len() < SHORTEST || is_known {
            return self.clone();
        }
        let part = if chars.len() < LONG {
            chars.len()
        } else {
            PART
        };
        let beginnings = (SHORTEST..part).map(|length| chars[..length].iter().collect());
        let mut secrets = self.secrets.to_vec();
        secrets.push(Secret {
            text: secret.to_owned(),
            parts: chars.windows(part).map(String::from_iter).collect(),
            beginnings: beginnings.collect(),
        });
        // One that contains another is replaced first.
        secrets.sort_by_key(|secret| Reverse(secret.text.len()));
        Self {
            secrets: Arc::new(secrets),
            removes_keys: self.removes_keys,
        }
    }

    /// The same, which also removes a password, and its form in the `Authorization` header.
    #[must_use]
    pub fn with_password(&self, user: &str, password: &str) -> Self {
        let both = format!("{user}:{password}");
        self.with(password).with(&STANDARD_NO_PAD.encode(both))
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
        let mut redacted = text.to_owned();
        let mut searched = 0;
        while let Some((start, end)) = userinfo(&redacted[searched..]) {
            redacted.replace_range(searched + start..searched + end, MARK);
            searched += start;
        }
        for secret in self.secrets.iter() {
            redacted = redacted.replace(&secret.text, MARK);
        }
        let length = redacted.trim_end().len();
        let mut at = 0;
        let words = redacted.split_inclusive(char::is_whitespace).map(|word| {
            at += word.len();
            let bare = word.trim_end();
            if self.is_shown_in(bare, at >= length) {
                format!("{MARK}{}", &word[bare.len()..])
            } else {
                word.to_owned()
            }
        });
        let redacted: String = words.collect();
        if self.is_shown_in(&redacted, true) {
            MARK.to_owned()
        } else {
            redacted
        }
    }

    /// The beginning of the text as one line of at most `longest` characters, without the secrets.
    #[must_use]
    pub fn excerpt(&self, text: &str, longest: usize) -> String {
        let redacted = self.redact(text);
        let words = redacted.split(|c: char| c.is_whitespace() || c.is_control());
        let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
        words.join(" ").chars().take(longest).collect()
    }

    /// Whether a text shows a secret in any layer of encodings; at its end the text may have been cut.
    fn is_shown_in(&self, text: &str, may_be_cut: bool) -> bool {
        let mut layer = text.replace(MARK, "[]");
        for _ in 0..=LAYERS {
            if userinfo(&layer).is_some() || self.is_plain_in(&plain(&layer), may_be_cut) {
                return true;
            }
            let decoded = decode(&layer);
            if decoded == layer {
                break;
            }
            layer = decoded;
        }
        false
    }

    fn is_plain_in(&self, text: &str, may_be_cut: bool) -> bool {
        let has_part = |secret: &Secret| secret.parts.iter().any(|part| text.contains(part));
        if self.secrets.iter().any(has_part) || self.removes_keys && has_key(text) {
            return true;
        }
        // The text ends where it ends, or before an encoded character that has been cut, in several layers.
        let mut end = Some(text).filter(|_| may_be_cut);
        for _ in 0..=LAYERS {
            let Some(cut) = end else { break };
            let mut beginnings = self.secrets.iter().flat_map(|it| &it.beginnings);
            let digits = cut.trim_end_matches(|char: char| char.is_ascii_hexdigit());
            let is_key = cut.len() - digits.len() >= CUT_KEY_DIGITS;
            if beginnings.any(|beginning| cut.ends_with(beginning)) || self.removes_keys && is_key {
                return true;
            }
            let mark = cut.rfind(['%', '\\', '&']);
            let mark = mark.filter(|at| cut.len() - at <= LONGEST_ENCODED);
            end = mark.map(|at| &cut[..at]);
        }
        false
    }
}

impl std::fmt::Debug for Redaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Redaction of {} secrets", self.secrets.len())
    }
}

/// A text for comparison: in lower case, without what may stand between the characters of a secret, and with one alphabet of base64.
/// A form writes a space as a plus.
fn plain(text: &str) -> String {
    let is_ignored = |char: char| {
        char.is_whitespace()
            || is_deceptive(char)
            || matches!(char, '+' | '-' | '\u{2026}' | char::REPLACEMENT_CHARACTER)
    };
    let chars = text.chars().filter(|&char| !is_ignored(char));
    let chars = chars.map(|char| if char == '_' { '/' } else { char });
    chars.map(|char| char.to_ascii_lowercase()).collect()
}

/// Where a user name and a password stand in the first URL of a text that has any: between `://` and `@`.
fn userinfo(text: &str) -> Option<(usize, usize)> {
    let mut starts = text.match_indices("://").map(|(at, mark)| at + mark.len());
    starts.find_map(|start| {
        let is_end = |char: char| char.is_whitespace() || "/?#<>\"'\\".contains(char);
        let authority = text[start..].split(is_end).next()?;
        let length = authority.rfind('@')?;
        let is_hidden = matches!(&authority[..length], "" | MARK | "[]");
        (!is_hidden).then_some((start, start + length))
    })
}

/// Whether a text has as many hexadecimal digits in a row as a key.
fn has_key(text: &str) -> bool {
    let mut runs = text.split(|char: char| !char.is_ascii_hexdigit());
    runs.any(|run| run.len() >= KEY_DIGITS)
}

/// The text with one layer of encodings less: percent-encoding, references of HTML, escapes of JSON and Rust.
fn decode(text: &str) -> String {
    let text = percent_decoded(text);
    let mut decoded = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(at) = rest.find(['\\', '&']) {
        let (before, encoded) = rest.split_at(at);
        decoded.push_str(before);
        let (char, length) =
            decode_first(encoded).unwrap_or((char::from(encoded.as_bytes()[0]), 1));
        decoded.push(char);
        rest = &encoded[length..];
    }
    decoded + rest
}

/// The character that a text begins with and that is an escape or a reference, and the length of that.
fn decode_first(text: &str) -> Option<(char, usize)> {
    let number = |from: usize, to: usize, radix: u32| {
        let digits = u32::from_str_radix(text.get(from..to)?, radix);
        char::from_u32(digits.ok()?)
    };
    let end = || {
        let mut bytes = text.bytes().take(LONGEST_ENCODED);
        bytes.position(|byte| matches!(byte, b';' | b'}'))
    };
    Some(match text.as_bytes() {
        [b'\\', b'n' | b'r' | b't' | b'f' | b'b' | b'0', ..] => (' ', 2),
        [b'\\', b'x', ..] => (number(2, 4, 16)?, 4),
        [b'\\', b'u', b'{', ..] => (number(3, end()?, 16)?, end()? + 1),
        [b'\\', b'u', ..] => (number(2, 6, 16)?, 6),
        [
            b'\\',
            char @ (b'\\' | b'/' | b'"' | b'\'' | b'\n' | b'\r'),
            ..,
        ] => (char::from(*char), 2),
        [b'&', b'#', b'x' | b'X', ..] => (number(3, end()?, 16)?, end()? + 1),
        [b'&', b'#', ..] => (number(2, end()?, 10)?, end()? + 1),
        [b'&', ..] => {
            let char = match text.get(1..end()?)? {
                "amp" => '&',
                "lt" => '<',
                "gt" => '>',
                "quot" => '"',
                "apos" => '\'',
                "nbsp" | "shy" => ' ',
                _ => return None,
            };
            (char, end()? + 1)
        }
        _ => return None,
    })
}

/// The text of a part of a URL, or of a text that has such parts.
#[must_use]
pub fn percent_decoded(encoded: &str) -> String {
    // What means something in a form, but nothing here.
    let form = encoded
        .replace('+', "%2B")
        .replace('&', "%26")
        .replace('=', "%3D");
    let text = form_urlencoded::parse(form.as_bytes()).next();
    text.map_or_else(String::new, |(text, _)| text.into_owned())
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
        for (echo, expected) in [
            // As it is, it is replaced itself.
            ("s@cret&so/on", "no ([redacted]), sorry"),
            // In another way, the word is.
            ("S@CRET&SO/ON", "no [redacted] sorry"),
            ("s%40cret%26so%2Fon", "no [redacted] sorry"),
            ("s%2540cret%2526so%252fon", "no [redacted] sorry"),
            ("s@cret&amp;so/on", "no [redacted] sorry"),
            ("s&#64;cret&#x26;so/on", "no [redacted] sorry"),
            ("s\\u0040cret\\u0026so\\/on", "no [redacted] sorry"),
            ("s\\u{40}cret\\x26so/on", "no [redacted] sorry"),
            ("s@cr\\n\\tet&so/on", "no [redacted] sorry"),
            ("bWU6c0BjcmV0JnNvL29u", "no ([redacted]), sorry"),
            ("bWU6c0Bj cmV0JnNvL29u==", "no [redacted] [redacted] sorry"),
            // Over several words, the text is.
            ("s@cr\n  et&so\u{200b}/on", "[redacted]"),
        ] {
            check(&redaction, &format!("no ({echo}), sorry"), expected);
        }
        check(&redaction, "no secret", "no secret");
        check(&redaction, "ends with s@cr", "ends with [redacted]");
        check(&redaction, "ends with s@c", "ends with s@c");
        check(
            &redaction,
            "see https://a:b@c.example/ and https://d:e@f.example",
            "see https://[redacted]@c.example/ and https://[redacted]@f.example",
        );
        check(
            &redaction,
            "see /?x=http%3A%2F%2Fd:e%40f.example",
            "see [redacted]",
        );
        assert_eq!(format!("{redaction:?}"), "Redaction of 2 secrets");
    }

    #[test]
    fn keys_of_other_channels_are_removed() {
        let key = "0123456789abcdef".repeat(3);
        let redaction = Redaction::default().with_keys();
        check(&redaction, &format!("at /{key}."), "at [redacted]");
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
        let secret: Vec<char> = plain(secret).chars().collect();
        // The beginning of a short one that was cut, or any part of a long one.
        let parts: Vec<String> = match secret.len() {
            LONG.. => secret.windows(PART).map(String::from_iter).collect(),
            _ => vec![secret[..SHORTEST].iter().collect()],
        };
        let mut layer = text.to_owned();
        loop {
            if parts.iter().any(|part| plain(&layer).contains(part)) {
                return true;
            }
            let decoded = decode(&layer);
            if decoded == layer {
                return false;
            }
            layer = decoded;
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
                1 => STANDARD_NO_PAD.encode(format!("me:{password}")),
                _ => password,
            };
            prop_assume!(plain(&secret).chars().count() >= SHORTEST);
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
