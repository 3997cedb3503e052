//! XML as a stream of bounded events.
//!
//! quick-xml splits the text and matches the tags. This module checks what quick-xml leaves to its users: exactly one root
//! element, no document type declaration, no custom entities, UTF-8 only, limits, and an error for a document that is cut
//! short.

use std::borrow::Cow;
use std::io::{self, BufRead, Chain, Cursor, Read};
use std::sync::Arc;

use quick_xml::XmlVersion;
use quick_xml::encoding::EncodingError;
use quick_xml::errors::{Error, IllFormedError};
use quick_xml::escape::{EscapeError, resolve_predefined_entity};
use quick_xml::events::attributes::Attribute;
use quick_xml::events::{BytesDecl, BytesStart, Event};
use quick_xml::name::{Namespace, NamespaceError, ResolveResult};
use quick_xml::reader::NsReader;

use super::ReadError;

/// The maximum depth of nested elements.
pub(super) const MAX_DEPTH: usize = 32;
/// The maximum number of attributes of an element, including namespace declarations.
pub(super) const MAX_ATTRIBUTES: usize = 64;
/// The maximum length of a tag, a text, a comment or a processing instruction, in bytes.
pub(super) const MAX_EVENT_BYTES: usize = 64 * 1024;

/// The next event of a document.
pub(super) enum XmlEvent<'a> {
    /// An element begins. Every element is closed, also an empty one.
    Open(Tag<'a>),
    /// An element of this depth ends; the depth of the root is 1.
    Close { depth: usize },
    /// Text in an element, or a piece of it, without markup.
    Text(Cow<'a, str>),
    /// Something without meaning, such as a comment.
    Nothing,
    /// The end of a complete document.
    End,
}

/// The start tag of an element.
pub(super) struct Tag<'a> {
    /// The depth of the element; that of the root is 1.
    pub(super) depth: usize,
    namespace: ResolveResult<'a>,
    start: BytesStart<'a>,
}

/// The section of a document that is being read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum XmlSection {
    /// Only white space so far.
    Nothing,
    /// Before the root element.
    Prolog,
    Root,
    /// After the root element.
    Epilog,
}

/// The events of a document, one at a time, in constant memory.
pub(super) struct XmlEvents<R: BufRead> {
    reader: NsReader<Bounded<Chain<Cursor<Vec<u8>>, R>>>,
    buffer: Vec<u8>,
    depth: usize,
    section: XmlSection,
}

impl<R: BufRead> XmlEvents<R> {
    pub(super) fn new(mut input: R) -> Result<Self, ReadError> {
        let mut beginning = Vec::new();
        input.by_ref().take(4).read_to_end(&mut beginning)?;
        check_byte_order(&beginning)?;
        if beginning.starts_with(b"\xef\xbb\xbf") {
            beginning.drain(..3);
        }
        let mut reader = NsReader::from_reader(Bounded::new(Cursor::new(beginning).chain(input)));
        reader.config_mut().expand_empty_elements = true;
        Ok(Self {
            reader,
            buffer: Vec::new(),
            depth: 0,
            section: XmlSection::Nothing,
        })
    }

    /// The number of bytes of the document that were read so far.
    pub(super) fn position(&self) -> u64 {
        self.reader.buffer_position()
    }

    /// The next event. After an error the events are meaningless.
    pub(super) fn next(&mut self) -> Result<XmlEvent<'_>, ReadError> {
        self.buffer.clear();
        self.reader.get_mut().begin_event();
        let event = match self.reader.read_event_into(&mut self.buffer) {
            Ok(event) => event,
            Err(error) => return Err(translate(error, self.section, &self.reader)),
        };
        let at = self.reader.buffer_position();
        match event {
            Event::Start(start) | Event::Empty(start) => {
                if self.section == XmlSection::Epilog {
                    return Err(ReadError::TrailingContent);
                }
                self.section = XmlSection::Root;
                self.depth += 1;
                if self.depth > MAX_DEPTH {
                    return Err(ReadError::TooDeep);
                }
                check_attributes(&start, at)?;
                let (namespace, _) = self.reader.resolver().resolve_element(start.name());
                Ok(XmlEvent::Open(Tag {
                    depth: self.depth,
                    namespace,
                    start,
                }))
            }
            Event::End(_) => {
                let depth = self.depth;
                // quick-xml has rejected an end tag without a start tag.
                self.depth = depth.saturating_sub(1);
                if self.depth == 0 {
                    self.section = XmlSection::Epilog;
                }
                Ok(XmlEvent::Close { depth })
            }
            Event::Text(text) => self.section.text(text.into_inner(), at),
            Event::CData(data) => {
                self.section.expect_root(at)?;
                Ok(XmlEvent::Text(data.into_inner()))
            }
            Event::GeneralRef(reference) => {
                self.section.expect_root(at)?;
                let resolved = match reference.resolve_char_ref() {
                    Ok(Some(character)) => Cow::Owned(character.to_string()),
                    Ok(None) => Cow::Borrowed(
                        resolve_predefined_entity(&reference)
                            .ok_or_else(|| ReadError::Entity(clip(&reference)))?,
                    ),
                    Err(error) => return Err(not_xml(at, &error)),
                };
                Ok(XmlEvent::Text(resolved))
            }
            Event::Decl(declaration) => {
                if self.section != XmlSection::Nothing {
                    return Err(not_xml(at, &"the XML declaration is not at the beginning"));
                }
                check_encoding(&declaration, at)?;
                self.section = XmlSection::Prolog;
                Ok(XmlEvent::Nothing)
            }
            Event::Comment(_) | Event::PI(_) => {
                if self.section == XmlSection::Nothing {
                    self.section = XmlSection::Prolog;
                }
                Ok(XmlEvent::Nothing)
            }
            Event::DocType(_) => Err(ReadError::Doctype),
            Event::Eof => match self.section {
                XmlSection::Nothing => Err(not_xml(at, &"the document is empty")),
                XmlSection::Prolog | XmlSection::Root => Err(ReadError::CutShort),
                XmlSection::Epilog => Ok(XmlEvent::End),
            },
        }
    }
}

impl XmlSection {
    /// Text is allowed within the root element only; elsewhere there may be white space.
    fn text<'a>(self, text: Cow<'a, str>, at: u64) -> Result<XmlEvent<'a>, ReadError> {
        if self == Self::Root {
            return Ok(XmlEvent::Text(text));
        }
        if text.chars().all(|c| c.is_ascii_whitespace()) {
            return Ok(XmlEvent::Nothing);
        }
        self.expect_root(at)?;
        Ok(XmlEvent::Nothing)
    }

    /// Rejects what is allowed within the root element only.
    fn expect_root(self, at: u64) -> Result<(), ReadError> {
        match self {
            Self::Nothing | Self::Prolog => Err(not_xml(at, &"text before the root element")),
            Self::Root => Ok(()),
            Self::Epilog => Err(ReadError::TrailingContent),
        }
    }
}

/// The meaning of an error of quick-xml while that section of the document was being read.
fn translate<R: BufRead>(
    error: Error,
    section: XmlSection,
    reader: &NsReader<Bounded<R>>,
) -> ReadError {
    let at = reader.error_position();
    let input = reader.get_ref();
    match error {
        Error::Io(_) if input.overflowed => ReadError::EventTooLarge,
        Error::Io(error) => ReadError::Io(
            Arc::try_unwrap(error).unwrap_or_else(|shared| io::Error::new(shared.kind(), shared)),
        ),
        Error::Syntax(_) | Error::IllFormed(IllFormedError::UnclosedReference) if input.ended => {
            ReadError::CutShort
        }
        Error::Encoding(EncodingError::Utf8(error))
            if input.ended && error.error_len().is_none() =>
        {
            ReadError::CutShort
        }
        Error::Syntax(_) | Error::IllFormed(_) if section == XmlSection::Epilog => {
            ReadError::TrailingContent
        }
        Error::Encoding(error) if section == XmlSection::Nothing => not_xml(at, &error),
        Error::Encoding(error) => ReadError::UnsupportedEncoding(error.to_string()),
        Error::Namespace(NamespaceError::TooManyBindings(_)) => ReadError::TooManyAttributes,
        error => not_xml(at, &error),
    }
}

impl Tag<'_> {
    /// Its namespace, without surrounding white space; `Err` with the prefix if the prefix is not declared.
    pub(super) fn namespace(&self) -> Result<Option<&str>, &str> {
        match &self.namespace {
            ResolveResult::Bound(Namespace(namespace)) => Ok(Some(namespace.trim())),
            ResolveResult::Unbound => Ok(None),
            ResolveResult::Unknown(prefix) => Err(prefix),
        }
    }

    /// Its name, without a prefix.
    pub(super) fn local_name(&self) -> &str {
        self.start.local_name().into_inner()
    }

    /// Its length in bytes.
    pub(super) fn length(&self) -> u64 {
        // A tag is never longer than MAX_EVENT_BYTES.
        self.start.len() as u64
    }

    /// Names and values of its attributes without a prefix. Those with a prefix belong to other vocabularies.
    pub(super) fn attributes(&self) -> impl Iterator<Item = (&str, Cow<'_, str>)> {
        // All were checked when the tag was read, so that there are no errors here.
        let mut attributes = self.start.attributes();
        attributes.with_checks(false);
        attributes.filter_map(|attribute| {
            let attribute = attribute.ok()?;
            let name = attribute.key.into_inner();
            if name == "xmlns" || name.contains(':') {
                return None;
            }
            Some((name, value_of(&attribute).ok()?))
        })
    }
}

fn value_of<'a>(attribute: &Attribute<'a>) -> Result<Cow<'a, str>, Error> {
    attribute.normalized_value(XmlVersion::Implicit1_0)
}

fn check_attributes(start: &BytesStart<'_>, at: u64) -> Result<(), ReadError> {
    for (n, attribute) in start.attributes().enumerate() {
        if n == MAX_ATTRIBUTES {
            return Err(ReadError::TooManyAttributes);
        }
        let attribute = attribute.map_err(|error| not_xml(at, &error))?;
        if attribute.value.contains('&') {
            value_of(&attribute).map_err(|error| match error {
                Error::Escape(EscapeError::UnrecognizedEntity(_, name)) => {
                    ReadError::Entity(clip(&name))
                }
                error => not_xml(at, &error),
            })?;
        }
    }
    Ok(())
}

/// Rejects the encodings that are visible in the first bytes (XML 1.0, appendix F).
fn check_byte_order(beginning: &[u8]) -> Result<(), ReadError> {
    match beginning {
        [0xfe, 0xff, ..] | [0xff, 0xfe, ..] | [0, b'<', ..] | [b'<', 0, ..] | [0, 0, ..] => Err(
            ReadError::UnsupportedEncoding("UTF-16 or UTF-32".to_owned()),
        ),
        _ => Ok(()),
    }
}

fn check_encoding(declaration: &BytesDecl<'_>, at: u64) -> Result<(), ReadError> {
    let Some(encoding) = declaration.encoding() else {
        return Ok(());
    };
    let encoding = encoding.map_err(|error| not_xml(at, &error))?;
    let known = ["utf-8", "utf8", "us-ascii", "ascii"];
    if known
        .iter()
        .any(|known| encoding.trim().eq_ignore_ascii_case(known))
    {
        return Ok(());
    }
    Err(ReadError::UnsupportedEncoding(clip(&encoding)))
}

fn not_xml(at: u64, reason: &impl ToString) -> ReadError {
    ReadError::NotXml {
        at,
        reason: clip(&reason.to_string()),
    }
}

/// The beginning of a remote text, short enough for an error message.
pub(super) fn clip(text: &str) -> String {
    text.chars().take(200).collect()
}

/// An input that limits the length of each event: quick-xml buffers a complete event in memory.
struct Bounded<R> {
    input: R,
    left: usize,
    /// An event has exceeded its limit.
    overflowed: bool,
    /// The end was reached.
    ended: bool,
}

impl<R> Bounded<R> {
    fn new(input: R) -> Self {
        Self {
            input,
            left: MAX_EVENT_BYTES,
            overflowed: false,
            ended: false,
        }
    }

    fn begin_event(&mut self) {
        self.left = MAX_EVENT_BYTES;
    }
}

impl<R: BufRead> BufRead for Bounded<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        let available = self.input.fill_buf()?;
        if available.is_empty() {
            self.ended = true;
        } else if self.left == 0 {
            self.overflowed = true;
            return Err(io::Error::other("an event is too large"));
        }
        Ok(&available[..available.len().min(self.left)])
    }

    fn consume(&mut self, amount: usize) {
        self.left = self.left.saturating_sub(amount);
        self.input.consume(amount);
    }
}

impl<R: BufRead> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.fill_buf()?.read(buffer)?;
        self.consume(count);
        Ok(count)
    }
}
