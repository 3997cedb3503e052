//! Where the stanzas of an XMPP stream end (RFC 6120, section 4).
//!
//! Invariants: no more bytes are stored than the limit of a stanza, and what was read at once; what XMPP forbids (RFC 6120, section
//! 11.1) is rejected where it begins, and so there are no entities that could grow.

/// How deep the elements of a stanza may be nested.
const MOST_DEEP: usize = 100;
/// A buffer of more bytes than this is not retained when it is empty.
const RETAINED: usize = 64 << 10;

/// Why a stream can't be read further.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum StanzaError {
    /// A stanza is longer than allowed.
    #[error("a stanza is larger than {0} bytes")]
    TooLarge(usize),
    /// Elements are nested too deeply.
    #[error("the elements of a stanza are nested more than {MOST_DEEP} deep")]
    TooDeep,
    /// A comment, a processing instruction or a document type declaration.
    #[error("the stream has a comment, a processing instruction or a DTD, which XMPP forbids")]
    Forbidden,
    /// It is not XML.
    #[error("the stream is not well-formed")]
    Malformed,
}

/// A part of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// The start tag that begins the stream.
    Header(String),
    /// A complete element below it.
    Stanza(String),
    /// The end tag of the stream.
    End,
}

/// Where the next byte is.
#[derive(Clone, Copy, Debug)]
enum Place {
    Text,
    /// Behind `<`.
    Markup,
    StartTag {
        quote: Option<u8>,
        is_empty: bool,
    },
    EndTag,
    /// Behind `<?`.
    Declaration {
        ends: bool,
    },
    /// Behind `<!`, with so many bytes of `[CDATA[`.
    Bang(usize),
    /// In a CDATA section, behind so many `]`.
    Cdata(usize),
}

/// What a byte has completed.
enum Completed {
    Header,
    Stanza,
    Stream,
    /// What counts for nothing, such as the XML declaration.
    Nothing,
}

/// The bytes of a stream that are not processed yet.
#[derive(Debug)]
pub(super) struct StanzaBuffer {
    bytes: Vec<u8>,
    /// Where the next piece begins.
    start: usize,
    scanned: usize,
    place: Place,
    depth: usize,
    limit: usize,
}

impl StanzaBuffer {
    /// A stream that begins. `limit`: the longest stanza, in bytes.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            bytes: Vec::new(),
            start: 0,
            scanned: 0,
            place: Place::Text,
            depth: 0,
            limit,
        }
    }

    /// The same bytes with another limit.
    pub(super) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Adds what was received.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Whether nothing was received beyond the last piece.
    pub(super) fn is_empty(&self) -> bool {
        self.start == self.bytes.len()
    }

    /// The next piece that is complete.
    ///
    /// # Errors
    /// [`StanzaError`]; the stream can't be read further then.
    pub(super) fn next(&mut self) -> Result<Option<Piece>, StanzaError> {
        while let Some(&byte) = self.bytes.get(self.scanned) {
            self.scanned += 1;
            if self.scanned - self.start > self.limit {
                return Err(StanzaError::TooLarge(self.limit));
            }
            let completed = match self.step(byte)? {
                None => continue,
                Some(completed) => completed,
            };
            let piece = &self.bytes[std::mem::replace(&mut self.start, self.scanned)..self.scanned];
            let text = || match std::str::from_utf8(piece) {
                Ok(text) => Ok(text.to_owned()),
                Err(_) => Err(StanzaError::Malformed),
            };
            match completed {
                Completed::Header => return Ok(Some(Piece::Header(text()?))),
                Completed::Stanza => return Ok(Some(Piece::Stanza(text()?))),
                Completed::Stream => return Ok(Some(Piece::End)),
                Completed::Nothing => {}
            }
        }
        self.bytes.drain(..self.start);
        self.scanned -= std::mem::take(&mut self.start);
        if self.bytes.is_empty() {
            self.bytes.shrink_to(RETAINED);
        }
        Ok(None)
    }

    fn step(&mut self, byte: u8) -> Result<Option<Completed>, StanzaError> {
        let mut completed = None;
        self.place = match (self.place, byte) {
            (Place::Text, b'<') => Place::Markup,
            (Place::Text, _) if self.depth > 1 => Place::Text,
            // White space keeps a connection alive.
            (Place::Text, b' ' | b'\t' | b'\r' | b'\n') => {
                completed = Some(Completed::Nothing);
                Place::Text
            }
            (Place::Text, _) => return Err(StanzaError::Malformed),
            (Place::Markup, b'/') if self.depth > 0 => Place::EndTag,
            (Place::Markup, b'?') if self.depth == 0 => Place::Declaration { ends: false },
            (Place::Markup, b'!') if self.depth > 1 => Place::Bang(0),
            (Place::Markup, b'!' | b'?') => return Err(StanzaError::Forbidden),
            (Place::Markup, b'>' | b'<' | b'/' | b' ') => return Err(StanzaError::Malformed),
            (Place::Markup, _) => Place::StartTag {
                quote: None,
                is_empty: false,
            },
            (Place::StartTag { quote, is_empty }, byte) => {
                return self.step_in_start_tag(byte, quote, is_empty);
            }
            (Place::EndTag, b'>') => {
                self.depth -= 1;
                completed = match self.depth {
                    0 => Some(Completed::Stream),
                    1 => Some(Completed::Stanza),
                    _ => None,
                };
                Place::Text
            }
            (Place::EndTag, b'<') => return Err(StanzaError::Malformed),
            (Place::EndTag, _) => Place::EndTag,
            (Place::Declaration { ends: true }, b'>') => {
                completed = Some(Completed::Nothing);
                Place::Text
            }
            (Place::Declaration { .. }, byte) => Place::Declaration { ends: byte == b'?' },
            (Place::Bang(count), byte) => match b"[CDATA[".get(count) {
                Some(&wanted) if wanted == byte && count == 6 => Place::Cdata(0),
                Some(&wanted) if wanted == byte => Place::Bang(count + 1),
                _ => return Err(StanzaError::Forbidden),
            },
            (Place::Cdata(count), b'>') if count >= 2 => Place::Text,
            (Place::Cdata(count), b']') => Place::Cdata(count + 1),
            (Place::Cdata(_), _) => Place::Cdata(0),
        };
        Ok(completed)
    }

    fn step_in_start_tag(
        &mut self,
        byte: u8,
        quote: Option<u8>,
        is_empty: bool,
    ) -> Result<Option<Completed>, StanzaError> {
        let (quote, is_empty) = match (quote, byte) {
            (_, b'<') => return Err(StanzaError::Malformed),
            (Some(open), _) => (quote.filter(|_| byte != open), false),
            (None, b'"' | b'\'') => (Some(byte), false),
            (None, b'>') => {
                self.place = Place::Text;
                return self.end_start_tag(is_empty);
            }
            (None, _) => (None, byte == b'/'),
        };
        self.place = Place::StartTag { quote, is_empty };
        Ok(None)
    }

    fn end_start_tag(&mut self, is_empty: bool) -> Result<Option<Completed>, StanzaError> {
        match (self.depth, is_empty) {
            (0, true) => Err(StanzaError::Malformed),
            (1, true) => Ok(Some(Completed::Stanza)),
            (_, true) => Ok(None),
            (depth, false) if depth > MOST_DEEP => Err(StanzaError::TooDeep),
            (depth, false) => {
                self.depth += 1;
                Ok((depth == 0).then_some(Completed::Header))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: usize = 4096;

    /// The pieces of a stream that comes in chunks of so many bytes.
    fn pieces(stream: &str, chunk: usize) -> Result<Vec<Piece>, StanzaError> {
        let mut buffer = StanzaBuffer::new(LIMIT);
        let mut found = Vec::new();
        for chunk in stream.as_bytes().chunks(chunk) {
            buffer.add(chunk);
            while let Some(piece) = buffer.next()? {
                found.push(piece);
            }
        }
        Ok(found)
    }

    #[test]
    fn stanzas_are_found_however_they_are_received() {
        let header = "<stream:stream a='>' xmlns:stream=\"s'/\">";
        let stanzas = [
            "<a/>".to_owned(),
            "<a b='/>'><c/>x &amp; y<![CDATA[</a> ]] ]]]><d></d ></a>".to_owned(),
            "<ä>ö</ä>".to_owned(),
        ];
        let stream = format!(
            "<?xml version='1.0'?>\n{header} \n{}\n{}{}  </stream:stream>",
            stanzas[0], stanzas[1], stanzas[2]
        );
        let mut expected = vec![Piece::Header(header.to_owned())];
        expected.extend(stanzas.map(Piece::Stanza));
        expected.push(Piece::End);
        for chunk in [1, 2, 7, 1000] {
            assert_eq!(pieces(&stream, chunk).unwrap(), expected, "{chunk}");
        }
    }

    #[test]
    fn what_xmpp_forbids_and_what_has_no_end_is_rejected() {
        let long = "x".repeat(LIMIT);
        let deep = "<a>".repeat(MOST_DEEP + 1);
        for (stream, expected) in [
            ("<!DOCTYPE a [<!ENTITY b 'c'>]>", StanzaError::Forbidden),
            ("<s><!DOCTYPE a>", StanzaError::Forbidden),
            ("<s><a><!ENTITY b 'c'>", StanzaError::Forbidden),
            ("<s><a><!-- c -->", StanzaError::Forbidden),
            ("<s><a><?p i?>", StanzaError::Forbidden),
            ("<s><?p i?>", StanzaError::Forbidden),
            ("<s>text", StanzaError::Malformed),
            ("text", StanzaError::Malformed),
            ("<s/>", StanzaError::Malformed),
            ("</s>", StanzaError::Malformed),
            ("<s><a b='<'>", StanzaError::Malformed),
            (&format!("<s><a>{long}"), StanzaError::TooLarge(LIMIT)),
            (&format!("<s><a {long}"), StanzaError::TooLarge(LIMIT)),
            (&format!("<s><a b='{long}"), StanzaError::TooLarge(LIMIT)),
            (&format!("<s{long}"), StanzaError::TooLarge(LIMIT)),
            (&format!("<?xml {long}"), StanzaError::TooLarge(LIMIT)),
            (&format!("<s>{deep}"), StanzaError::TooDeep),
        ] {
            for chunk in [1, 1000] {
                assert_eq!(pieces(stream, chunk), Err(expected.clone()), "{stream}");
            }
        }
    }

    #[test]
    fn short_stanzas_of_a_long_stream_are_not_too_large() {
        let stream = format!("<s>{}", "<a/> ".repeat(LIMIT));
        assert_eq!(pieces(&stream, 1000).unwrap().len(), LIMIT + 1);
        assert_eq!(
            pieces(&format!("<s>{}", " ".repeat(2 * LIMIT)), 1000)
                .unwrap()
                .len(),
            1
        );
    }
}
