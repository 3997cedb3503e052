//! The bytes of a document as UTF-8 text, in constant memory: decoded, with a limit for each event, and with the position for
//! error messages.
//!
//! The bytes decide, not the declaration: what is valid UTF-8 is read as UTF-8. From the first byte that is not, the declared
//! encoding applies. Where UTF-8 is declared, or nothing, or characters beyond ASCII were read as UTF-8 before, each invalid
//! sequence becomes [`UNREADABLE`], so that only what contains it is lost.

use std::io::{self, BufRead, Chain, Cursor, Read};

use encoding_rs::{Decoder, DecoderResult, Encoding, UTF_8, UTF_16BE, UTF_16LE};
use quick_xml::events::Event;
use quick_xml::reader::Reader;

use super::error::{ReadError, TextPosition, clip};

/// The maximum length of a tag, a text, a comment or a processing instruction, in bytes.
pub(super) const MAX_EVENT_BYTES: usize = 64 * 1024;

/// How much of the beginning is read to recognize what it is, in bytes.
const BEGINNING: u64 = 16 * 1024;

/// What stands for something that can't be read: invalid bytes, a bare ampersand, an unknown entity. It is not a character that
/// XML allows (XML 1.0, section 2.2).
pub(super) const UNREADABLE: &str = "\u{ffff}";

/// How many bytes are decoded at once, at most.
const PIECE: usize = 16 * 1024;

/// No invalid sequence of UTF-8 is longer, in bytes.
const MAX_INVALID: usize = 4;

/// The bytes of a document, decoded.
pub(super) struct DocumentInput<R> {
    input: Chain<Cursor<Vec<u8>>, R>,
    /// Whether another encoding than UTF-8 is declared.
    pub(super) declares_encoding: bool,
    /// The declared encoding, if it extends ASCII and is not UTF-8, until it applies.
    declared: Option<&'static Encoding>,
    decoder: Decoder,
    /// Whether all that was decoded is ASCII.
    is_ascii: bool,
    /// What was read last. Between two pieces: the last bytes of the one before, as they may turn out to be in another encoding.
    raw: Vec<u8>,
    /// What is decoded, all of the event included.
    decoded: String,
    /// Where it begins. Lines are counted when a piece is dropped or a place is asked for, not at each event.
    place: TextPosition,
    /// Where in it the event begins, and how many bytes of it are consumed.
    event: usize,
    taken: usize,
    /// How many sequences of bytes were not readable.
    pub(super) unreadable: u64,
    is_event_too_large: bool,
    /// Whether the end was reached.
    pub(super) ended: bool,
}

/// Where an event begins, not counted yet: few places are asked for. It is behind that text, which begins at that position.
#[derive(Clone, Copy, Debug)]
pub(super) struct EventPlace<'a>(TextPosition, &'a str);

impl EventPlace<'_> {
    pub(super) const BEGIN: Self = Self(TextPosition::BEGIN, "");

    pub(super) fn place(self) -> TextPosition {
        self.0.after(self.1)
    }
}

impl<R: BufRead> DocumentInput<R> {
    /// The input, and its first bytes.
    pub(super) fn new(mut input: R) -> Result<(Self, Vec<u8>), ReadError> {
        let mut beginning = Vec::new();
        input.by_ref().take(BEGINNING).read_to_end(&mut beginning)?;
        let wide = wide_encoding(&beginning)?;
        if beginning.starts_with(b"\xef\xbb\xbf") {
            beginning.drain(..3);
        }
        let label = declared_encoding(&beginning);
        let new = Self {
            input: Cursor::new(beginning.clone()).chain(input),
            declares_encoding: label.is_some() || wide.is_some(),
            declared: label.as_deref().map_or(Ok(None), encoding_of)?,
            decoder: match wide {
                Some(encoding) => encoding.new_decoder_with_bom_removal(),
                None => UTF_8.new_decoder_without_bom_handling(),
            },
            is_ascii: true,
            raw: Vec::new(),
            decoded: String::new(),
            place: TextPosition::BEGIN,
            event: 0,
            taken: 0,
            unreadable: 0,
            is_event_too_large: false,
            ended: false,
        };
        Ok((new, beginning))
    }

    pub(super) fn begin_event(&mut self) {
        self.event = self.taken;
    }

    /// Where the event begins.
    pub(super) fn event(&self) -> EventPlace<'_> {
        EventPlace(self.place, &self.decoded[..self.event])
    }

    /// Where the next byte is.
    pub(super) fn place(&self) -> TextPosition {
        self.place.after(&self.decoded[..self.taken])
    }

    /// What was consumed of the event.
    pub(super) fn consumed(&self) -> &str {
        &self.decoded[self.event..self.taken]
    }

    /// The meaning of an error that the input has returned.
    pub(super) fn error(&self, error: io::Error) -> ReadError {
        if self.is_event_too_large {
            ReadError::EventTooLarge(self.event().place())
        } else {
            ReadError::Io(error)
        }
    }

    /// The next line that is neither empty nor a comment, without surrounding white space, as the next event; `None` at the end.
    pub(super) fn next_line(&mut self, buffer: &mut Vec<u8>) -> Result<Option<String>, ReadError> {
        loop {
            buffer.clear();
            self.begin_event();
            let length = self.read_until(b'\n', buffer);
            if length.map_err(|error| self.error(error))? == 0 {
                return Ok(None);
            }
            let line = String::from_utf8_lossy(buffer);
            let line = line.trim();
            if !line.is_empty() && !line.starts_with('#') {
                return Ok(Some(line.to_owned()));
            }
        }
    }

    /// Decodes the next piece of the input.
    fn decode(&mut self) -> io::Result<()> {
        let mut at = self.raw.len();
        let available = self.input.fill_buf()?;
        self.ended = available.is_empty();
        let length = available.len().min(PIECE);
        self.raw.extend_from_slice(&available[..length]);
        self.input.consume(length);
        loop {
            let (rest, begin) = (&self.raw[at..], self.decoded.len());
            let decoder = &mut self.decoder;
            let most = decoder.max_utf8_buffer_length_without_replacement(rest.len());
            self.decoded.reserve(most.unwrap_or_default());
            let (result, read) =
                decoder.decode_to_string_without_replacement(rest, &mut self.decoded, self.ended);
            at += read;
            self.is_ascii &= self.decoded[begin..].is_ascii();
            let invalid = match result {
                DecoderResult::InputEmpty => break,
                DecoderResult::OutputFull => continue,
                DecoderResult::Malformed(length, after) => usize::from(length + after),
            };
            // What is UTF-8 elsewhere is not in another encoding here: it is damaged.
            if self.is_ascii
                && let Some(encoding) = self.declared.take()
            {
                self.decoder = encoding.new_decoder_without_bom_handling();
                at -= invalid;
            } else {
                self.unreadable += 1;
                self.decoded.push_str(UNREADABLE);
            }
        }
        self.raw.drain(..at.saturating_sub(MAX_INVALID));
        Ok(())
    }
}

/// The encoding that a document declares, unless that is UTF-8 or a part of it.
fn declared_encoding(beginning: &[u8]) -> Option<String> {
    let (mut reader, mut buffer) = (Reader::from_reader(beginning), Vec::new());
    let declaration = loop {
        match reader.read_event_into(&mut buffer) {
            Ok(Event::Text(text)) if text.trim_ascii().is_empty() => buffer.clear(),
            Ok(Event::Decl(declaration)) => break declaration,
            _ => return None,
        }
    };
    let label = declaration.encoding()?.ok()?.trim().to_ascii_lowercase();
    // Not WHATWG's meaning of ASCII, which is windows-1252.
    let is_utf8 = matches!(&*label, "" | "ascii" | "us-ascii" | "utf-8" | "utf8");
    (!is_utf8).then_some(label)
}

/// The encoding of what is not UTF-8 in a document that declares this one, if it is known.
fn encoding_of(label: &str) -> Result<Option<&'static Encoding>, ReadError> {
    match Encoding::for_label(label.as_bytes()) {
        Some(encoding) if encoding.is_ascii_compatible() => Ok(Some(encoding)),
        // It is declared in bytes that extend ASCII, or was recognized before.
        Some(encoding) if encoding == UTF_16LE || encoding == UTF_16BE => Ok(None),
        Some(_) => Err(unsupported(label)),
        None => Ok(None),
    }
}

/// The encoding of a document whose first bytes show that it is not one that extends ASCII (XML 1.0, appendix F).
fn wide_encoding(beginning: &[u8]) -> Result<Option<&'static Encoding>, ReadError> {
    match beginning {
        [0, 0, ..] | [0xff, 0xfe, 0, 0, ..] | [b'<', 0, 0, 0, ..] => Err(unsupported("UTF-32")),
        [0xfe, 0xff, ..] | [0, b'<', ..] => Ok(Some(UTF_16BE)),
        [0xff, 0xfe, ..] | [b'<', 0, ..] => Ok(Some(UTF_16LE)),
        _ => Ok(None),
    }
}

fn unsupported(label: &str) -> ReadError {
    ReadError::UnsupportedEncoding {
        name: clip(label),
        at: TextPosition::BEGIN,
    }
}

impl<R: BufRead> BufRead for DocumentInput<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.taken == self.decoded.len() && !self.ended {
            self.place = self.event().place();
            self.decoded.drain(..self.event);
            self.taken -= self.event;
            self.event = 0;
            self.decode()?;
        }
        let end = self.decoded.len().min(self.event + MAX_EVENT_BYTES);
        if self.taken == end && !(self.ended && end == self.decoded.len()) {
            self.is_event_too_large = true;
            return Err(io::Error::other("the document can't be read"));
        }
        Ok(&self.decoded.as_bytes()[self.taken..end])
    }

    fn consume(&mut self, amount: usize) {
        self.taken = self.decoded.len().min(self.taken + amount);
    }
}

impl<R: BufRead> Read for DocumentInput<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.fill_buf()?.read(buffer)?;
        self.consume(count);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use proptest::prelude::*;

    use super::*;

    /// What is read of these bytes, in pieces of that size, where that encoding is declared at the begin.
    fn read(bytes: &[u8], label: &str, piece: usize) -> Result<String, ReadError> {
        // What precedes the bytes is longer than what is read at once.
        let before = usize::try_from(BEGINNING).unwrap();
        let before = format!("{:before$}", format!("<?xml encoding='{label}'?>"));
        let bytes = [before.as_bytes(), bytes].concat();
        let (mut input, _) = DocumentInput::new(BufReader::with_capacity(piece, &bytes[..]))?;
        let mut text = Vec::new();
        loop {
            input.begin_event();
            let available = match input.fill_buf() {
                Ok(available) => available,
                Err(error) => return Err(input.error(error)),
            };
            if available.is_empty() {
                break;
            }
            text.extend_from_slice(available);
            let length = available.len();
            input.consume(length);
        }
        let text = String::from_utf8(text).unwrap();
        assert_eq!(input.place(), TextPosition::BEGIN.after(&text));
        Ok(text[before.len()..].to_owned())
    }

    fn check(bytes: &[u8], label: &str, expected: &str) {
        for piece in 1..=bytes.len().max(1) {
            let text = read(bytes, label, piece).unwrap();
            assert_eq!(text, expected, "{label} by {piece}");
        }
    }

    #[test]
    fn valid_utf8_is_utf8_whatever_is_declared() {
        for label in [
            "",
            "UTF-8",
            "utf8",
            "us-ascii",
            "utf-16",
            "ISO-8859-1",
            "x-unknown",
        ] {
            check("aé日本𝄞z".as_bytes(), label, "aé日本𝄞z");
        }
    }

    #[test]
    fn characters_at_the_end_of_a_piece_are_whole() {
        for before in 0..3 {
            let text = "a".repeat(before) + &"日".repeat(PIECE);
            let found = read(text.as_bytes(), "", 4 * PIECE).unwrap();
            assert!(found == text, "{before}");
        }
    }

    #[test]
    fn other_bytes_are_read_in_the_declared_encoding_from_there() {
        for label in ["ISO-8859-1", " windows-1252 ", "latin1"] {
            check(b"caf\xe9 \xc3\xa9", label, "café Ã©");
            check(b"\xe9", label, "é");
            check(b"\x80\xe2\x82", label, "€â‚");
        }
        check(b"a\x83\x5c\x83\x8b", "Shift_JIS", "aソル");
    }

    #[test]
    fn invalid_sequences_are_marked_where_nothing_else_is_declared() {
        check(b"caf\xe9 \xc3\xa9", "", "caf\u{ffff} é");
        check(b"\xe2\x82", "UTF-8", "\u{ffff}");
        check(b"\xe2\x82a\xf0\x9f", "", "\u{ffff}a\u{ffff}");
        for label in ["utf-16", "x-unknown"] {
            check(b"\xc0\x80", label, "\u{ffff}\u{ffff}");
        }
    }

    #[test]
    fn encoding_that_does_not_extend_ascii_is_an_error() {
        let error = read(b"cafe", "ISO-2022-JP", 7).unwrap_err();
        assert_eq!(error.code(), "unsupported-encoding");
    }

    proptest! {
        #[test]
        fn pieces_of_any_size_read_alike(
            bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(0xc3), Just(0xa9), Just(b'a')], 0..40),
            piece in 1_usize..20,
            label in prop::sample::select(vec!["", "ISO-8859-1", "Shift_JIS", "GBK"]),
        ) {
            prop_assert_eq!(read(&bytes, label, piece).unwrap(), read(&bytes, label, 100).unwrap());
        }

        #[test]
        fn long_pieces_are_decoded_as_short_ones(
            bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(0x83), Just(b'a')], 9000..9100),
            label in prop::sample::select(vec!["ISO-8859-1", "Shift_JIS", "GBK"]),
        ) {
            prop_assert_eq!(read(&bytes, label, 20_000).unwrap(), read(&bytes, label, 7).unwrap());
        }

        #[test]
        fn without_a_declaration_it_is_a_lossy_conversion(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let expected = String::from_utf8_lossy(&bytes).replace('\u{fffd}', "\u{ffff}");
            prop_assert_eq!(read(&bytes, "", 3).unwrap(), expected);
        }
    }
}
