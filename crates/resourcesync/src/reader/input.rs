//! The bytes of a document as UTF-8 text, in constant memory: decoded, with a limit for each event, and with the position for
//! error messages.
//!
//! The bytes decide, not the declaration: what is valid UTF-8 is read as UTF-8. From the first byte that is not, the declared
//! encoding applies. Where UTF-8 is declared, or nothing, or characters beyond ASCII were read as UTF-8 before, each invalid
//! sequence becomes [`UNREADABLE`], so that only what contains it is lost.

use std::io::{self, BufRead, Chain, Cursor, Read};

use encoding_rs::{Decoder, DecoderResult, Encoding, UTF_8, UTF_16BE, UTF_16LE};

use super::ReadError;
use super::error::clip;
use super::text_position::TextPosition;

/// The maximum length of a tag, a text, a comment or a processing instruction, in bytes.
pub(super) const MAX_EVENT_BYTES: usize = 64 * 1024;

/// How much of the beginning is read to recognize what it is, in bytes.
const BEGINNING: u64 = 16 * 1024;

/// What stands for something that can't be read: invalid bytes, a bare ampersand, an unknown entity. It is not a character that
/// XML allows (XML 1.0, section 2.2).
pub(super) const UNREADABLE: char = '\u{ffff}';

/// How many bytes are decoded at once, at most, where they are UTF-8.
const PIECE: usize = 16 * 1024;

/// The bytes of a document, decoded.
pub(super) struct DocumentInput<R> {
    input: Chain<Cursor<Vec<u8>>, R>,
    /// The declared encoding, if it is not UTF-8.
    declared: Declared,
    /// Decodes what is not UTF-8.
    decoder: Option<Decoder>,
    /// Whether a character beyond ASCII was read as UTF-8.
    is_utf8: bool,
    /// The begin of a sequence that continues in the next piece of the input.
    partial: Vec<u8>,
    /// What is decoded. It is a copy: a tag or a text is read in many small steps, each of which would look into the input again.
    decoded: String,
    /// How many bytes of it are consumed.
    taken: usize,
    /// Up to where in it the event may reach.
    limit: usize,
    /// Where it begins: lines are counted when all of it is consumed, not at each step.
    place: TextPosition,
    event: EventBegin,
    unreadable: u64,
    fault: Option<InputFault>,
    ended: bool,
}

/// Where an event begins.
enum EventBegin {
    /// At this byte of what is decoded.
    Decoded(usize),
    /// Before that.
    Before(TextPosition),
}

/// Where an event begins, not counted yet: few places are asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct EventPlace<'a> {
    from: TextPosition,
    /// What is between that and the event.
    bytes: &'a [u8],
}

impl EventPlace<'_> {
    pub(super) fn place(self) -> TextPosition {
        let mut place = self.from;
        place.advance(self.bytes);
        place
    }
}

/// The declared encoding.
#[derive(Clone, Debug)]
enum Declared {
    /// UTF-8, or none.
    Utf8,
    Known(&'static Encoding),
    Unknown(String),
}

/// Why the input returned an error of its own.
#[derive(Clone, Debug)]
enum InputFault {
    EventTooLarge,
    Encoding(String),
}

impl<R: BufRead> DocumentInput<R> {
    /// The input, and its first bytes.
    pub(super) fn new(mut input: R) -> Result<(Self, Vec<u8>), ReadError> {
        let mut beginning = Vec::new();
        input.by_ref().take(BEGINNING).read_to_end(&mut beginning)?;
        let decoder = wide_encoding(&beginning)?.map(Encoding::new_decoder_with_bom_removal);
        if beginning.starts_with(b"\xef\xbb\xbf") {
            beginning.drain(..3);
        }
        let new = Self {
            input: Cursor::new(beginning.clone()).chain(input),
            declared: Declared::Utf8,
            decoder,
            is_utf8: false,
            partial: Vec::new(),
            decoded: String::new(),
            taken: 0,
            limit: MAX_EVENT_BYTES,
            place: TextPosition::BEGIN,
            event: EventBegin::Decoded(0),
            unreadable: 0,
            fault: None,
            ended: false,
        };
        Ok((new, beginning))
    }

    /// Notes the encoding that the document declares; returns whether it is another one than UTF-8.
    pub(super) fn declare(&mut self, label: &str) -> Result<bool, ReadError> {
        let label = label.trim();
        // Not WHATWG's meaning of ASCII, which is windows-1252.
        if ["", "ascii", "us-ascii"].contains(&label.to_ascii_lowercase().as_str()) {
            return Ok(false);
        }
        self.declared = match Encoding::for_label(label.as_bytes()) {
            Some(encoding) if encoding == UTF_8 => return Ok(false),
            // The bytes before it have shown that it is not, or it is decoded already.
            Some(encoding) if encoding == UTF_16LE || encoding == UTF_16BE => Declared::Utf8,
            Some(encoding) if encoding.is_ascii_compatible() => Declared::Known(encoding),
            Some(_) => {
                return Err(ReadError::UnsupportedEncoding {
                    name: clip(label),
                    at: self.event().place(),
                });
            }
            None => Declared::Unknown(clip(label)),
        };
        Ok(true)
    }

    pub(super) fn begin_event(&mut self) {
        self.limit = self.taken + MAX_EVENT_BYTES;
        self.event = EventBegin::Decoded(self.taken);
    }

    /// Where the event begins.
    pub(super) fn event(&self) -> EventPlace<'_> {
        match self.event {
            EventBegin::Decoded(begin) => EventPlace {
                from: self.place,
                bytes: &self.decoded.as_bytes()[..begin],
            },
            EventBegin::Before(from) => EventPlace { from, bytes: &[] },
        }
    }

    /// Where the next byte is.
    pub(super) fn place(&self) -> TextPosition {
        let mut place = self.place;
        place.advance(&self.decoded.as_bytes()[..self.taken]);
        place
    }

    /// What is decoded of the event, and of what follows it.
    pub(super) fn rest(&self) -> &str {
        let end = self.decoded.len().min(self.limit);
        self.decoded.get(self.taken..end).unwrap_or_default()
    }

    /// The last bytes that were consumed; not more than were taken from [`rest`](Self::rest) at once.
    pub(super) fn last(&self, length: usize) -> &str {
        let begin = self.taken.saturating_sub(length);
        self.decoded.get(begin..self.taken).unwrap_or_default()
    }

    /// Whether the end was reached.
    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// How many sequences of bytes were not readable.
    pub(super) fn unreadable(&self) -> u64 {
        self.unreadable
    }

    /// The meaning of an error that the input has returned.
    pub(super) fn error(&self, error: io::Error) -> ReadError {
        match &self.fault {
            Some(InputFault::EventTooLarge) => ReadError::EventTooLarge(self.event().place()),
            Some(InputFault::Encoding(name)) => ReadError::UnsupportedEncoding {
                name: name.clone(),
                at: self.place(),
            },
            None => ReadError::Io(error),
        }
    }

    fn fail(&mut self, fault: InputFault) -> io::Error {
        self.fault = Some(fault);
        io::Error::other("the document can't be read")
    }

    /// Reads until there are decoded bytes, or the end.
    fn prepare(&mut self) -> io::Result<()> {
        while self.taken == self.decoded.len() && !self.ended {
            self.event = EventBegin::Before(self.event().place());
            self.place = self.place();
            self.limit -= self.taken;
            self.taken = 0;
            self.decoded.clear();
            if self.decoder.is_some() {
                self.decode()?;
            } else if self.partial.is_empty() {
                self.validate()?;
            } else {
                self.complete()?;
            }
        }
        Ok(())
    }

    /// Decodes the next piece of the input.
    fn decode(&mut self) -> io::Result<()> {
        let available = self.input.fill_buf()?;
        let is_last = available.is_empty();
        let Some(decoder) = &mut self.decoder else {
            return Ok(());
        };
        let (read, is_finished) = decode_into(
            decoder,
            available,
            is_last,
            &mut self.decoded,
            &mut self.unreadable,
        );
        self.input.consume(read);
        if is_finished {
            // It must not be used any more. Nothing follows.
            self.decoder = None;
        }
        Ok(())
    }

    /// Copies the next bytes that are UTF-8.
    fn validate(&mut self) -> io::Result<()> {
        let available = self.input.fill_buf()?;
        if available.is_empty() {
            self.ended = true;
            return Ok(());
        }
        let available = &available[..available.len().min(PIECE)];
        let (valid, invalid) = match std::str::from_utf8(available) {
            Ok(text) => (text, None),
            Err(error) => {
                let valid = &available[..error.valid_up_to()];
                let valid = std::str::from_utf8(valid).unwrap_or_default();
                (valid, error.error_len())
            }
        };
        if !valid.is_empty() {
            self.is_utf8 |= !valid.is_ascii();
            self.decoded.push_str(valid);
            let length = valid.len();
            self.input.consume(length);
            return Ok(());
        }
        match invalid {
            // The rest is at most three bytes long.
            None => {
                self.partial.extend_from_slice(available);
                let length = available.len();
                self.input.consume(length);
            }
            Some(length) => {
                if self.replace(&[])? {
                    self.input.consume(length);
                }
            }
        }
        Ok(())
    }

    /// Completes a sequence whose begin was at the end of a piece.
    fn complete(&mut self) -> io::Result<()> {
        let next = self.input.fill_buf()?.first().copied();
        let begin = self.partial.len();
        self.partial.extend(next);
        match std::str::from_utf8(&self.partial) {
            Ok(character) => {
                self.is_utf8 = true;
                self.decoded.push_str(character);
                self.partial.clear();
                self.input.consume(1);
            }
            Err(error) if error.error_len().is_none() && next.is_some() => self.input.consume(1),
            Err(_) => {
                self.partial.truncate(begin);
                let partial = std::mem::take(&mut self.partial);
                self.replace(&partial)?;
            }
        }
        Ok(())
    }

    /// Continues where the input is not UTF-8: from there with the declared encoding, which gets `begin` first; else with
    /// [`UNREADABLE`] in place of the invalid sequence. Returns whether it was replaced.
    fn replace(&mut self, begin: &[u8]) -> io::Result<bool> {
        // What is UTF-8 elsewhere is not in another encoding here: it is damaged.
        let encoding = match &self.declared {
            Declared::Known(encoding) if !self.is_utf8 => *encoding,
            Declared::Unknown(label) if !self.is_utf8 => {
                let label = label.clone();
                return Err(self.fail(InputFault::Encoding(label)));
            }
            _ => {
                self.unreadable += 1;
                self.decoded.push(UNREADABLE);
                return Ok(true);
            }
        };
        let decoder = self
            .decoder
            .insert(encoding.new_decoder_without_bom_handling());
        let mut begin = begin;
        while !begin.is_empty() {
            let (read, _) = decode_into(
                decoder,
                begin,
                false,
                &mut self.decoded,
                &mut self.unreadable,
            );
            begin = &begin[read..];
        }
        Ok(false)
    }
}

/// Decodes a piece, or as much of it as fits; returns how many bytes were read, and whether the last one was. Where there are
/// any, at least one is read.
fn decode_into(
    decoder: &mut Decoder,
    piece: &[u8],
    is_last: bool,
    decoded: &mut String,
    unreadable: &mut u64,
) -> (usize, bool) {
    const AT_ONCE: usize = 4096;
    let (mut taken, mut filled) = (0, 0);
    let mut bytes = vec![0; AT_ONCE + UNREADABLE.len_utf8()];
    let is_finished = loop {
        let (result, read, written) = decoder.decode_to_utf8_without_replacement(
            &piece[taken..],
            &mut bytes[filled..AT_ONCE],
            is_last,
        );
        taken += read;
        filled += written;
        match result {
            DecoderResult::InputEmpty => break is_last,
            DecoderResult::OutputFull => break false,
            DecoderResult::Malformed(..) => {
                *unreadable += 1;
                filled += UNREADABLE.encode_utf8(&mut bytes[filled..]).len();
                if filled >= AT_ONCE {
                    break false;
                }
            }
        }
    };
    // The decoder writes UTF-8.
    decoded.push_str(&String::from_utf8_lossy(&bytes[..filled]));
    (taken, is_finished)
}

/// The encoding of a document whose first bytes show that it is not one that extends ASCII (XML 1.0, appendix F).
fn wide_encoding(beginning: &[u8]) -> Result<Option<&'static Encoding>, ReadError> {
    match beginning {
        [0, 0, ..] | [0xff, 0xfe, 0, 0, ..] | [b'<', 0, 0, 0, ..] => {
            Err(ReadError::UnsupportedEncoding {
                name: "UTF-32".to_owned(),
                at: TextPosition::BEGIN,
            })
        }
        [0xfe, 0xff, ..] | [0, b'<', ..] => Ok(Some(UTF_16BE)),
        [0xff, 0xfe, ..] | [b'<', 0, ..] => Ok(Some(UTF_16LE)),
        _ => Ok(None),
    }
}

impl<R: BufRead> BufRead for DocumentInput<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.taken == self.decoded.len() {
            self.prepare()?;
        }
        let end = self.decoded.len().min(self.limit);
        if self.taken == end && !self.ended {
            return Err(self.fail(InputFault::EventTooLarge));
        }
        Ok(&self.decoded.as_bytes()[self.taken..end])
    }

    fn consume(&mut self, amount: usize) {
        self.taken = self.decoded.len().min(self.limit).min(self.taken + amount);
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
        let before = vec![b' '; usize::try_from(BEGINNING).unwrap()];
        let bytes = [before.as_slice(), bytes].concat();
        let (mut input, _) = DocumentInput::new(BufReader::with_capacity(piece, &bytes[..]))?;
        input.declare(label)?;
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
        let mut place = TextPosition::BEGIN;
        place.advance(&text);
        assert_eq!(input.place(), place);
        let text = String::from_utf8(text).unwrap();
        Ok(text.trim_start_matches(' ').to_owned())
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
        check(b"\xc0\x80", "utf-16", "\u{ffff}\u{ffff}");
    }

    #[test]
    fn encodings_that_are_not_supported_are_errors_where_they_are_needed() {
        let error = read(b"caf\xe9", "x-unknown", 7).unwrap_err();
        assert_eq!(error.code(), "unsupported-encoding");
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
            let found = read(&bytes, "", 3).unwrap();
            prop_assert_eq!(found.trim_start(), expected.trim_start());
        }
    }
}
