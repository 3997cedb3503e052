//! A position in a document.

use std::fmt;

use memchr::{memchr_iter, memrchr};

/// A position in a document, for people: both numbers begin at 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextPosition {
    /// The line.
    pub line: u64,
    /// The column, in characters.
    pub column: u64,
}

impl TextPosition {
    /// The begin of a document.
    pub const BEGIN: Self = Self { line: 1, column: 1 };

    /// Moves behind these bytes, which are UTF-8.
    pub(super) fn advance(&mut self, bytes: &[u8]) {
        let tail = match memrchr(b'\n', bytes) {
            None => bytes,
            Some(last) => {
                self.line += memchr_iter(b'\n', bytes).count() as u64;
                self.column = 1;
                &bytes[last + 1..]
            }
        };
        let characters = if tail.is_ascii() {
            tail.len()
        } else {
            tail.iter().filter(|&&byte| byte & 0xc0 != 0x80).count()
        };
        self.column += characters as u64;
    }
}

impl fmt::Display for TextPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_characters_are_counted_in_pieces_of_any_size() {
        for (text, line, column) in [
            ("", 1, 1),
            ("ab", 1, 3),
            ("ab\n", 2, 1),
            ("é\r\nüé\n\n日本x", 4, 4),
        ] {
            for size in 1..=text.len().max(1) {
                let mut place = TextPosition::BEGIN;
                for piece in text.as_bytes().chunks(size) {
                    place.advance(piece);
                }
                assert_eq!(place, TextPosition { line, column }, "{text:?} by {size}");
            }
        }
        assert_eq!(TextPosition::BEGIN.to_string(), "line 1, column 1");
    }
}
