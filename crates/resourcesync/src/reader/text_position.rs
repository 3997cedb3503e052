//! A position in a document.

use std::fmt;

use memchr::memchr_iter;

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

    /// The position after this text, which begins here.
    pub(super) fn after(self, text: &str) -> Self {
        let count = |text: &str| text.chars().count() as u64;
        match text.rsplit_once('\n') {
            None => Self {
                line: self.line,
                column: self.column + count(text),
            },
            Some((before, last)) => Self {
                line: self.line + memchr_iter(b'\n', before.as_bytes()).count() as u64 + 1,
                column: count(last) + 1,
            },
        }
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
            let cuts = (0..=text.len()).filter(|&at| text.is_char_boundary(at));
            for (begin, end) in cuts.map(|at| text.split_at(at)) {
                let place = TextPosition::BEGIN.after(begin).after(end);
                assert_eq!(place, TextPosition { line, column }, "{begin:?} {end:?}");
            }
        }
        assert_eq!(TextPosition::BEGIN.to_string(), "line 1, column 1");
    }
}
