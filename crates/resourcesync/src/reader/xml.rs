//! XML as a stream of bounded events.
//!
//! quick-xml splits the text into tags and texts, but for plain ones, which need less ([`PlainToken`]). This module checks what
//! quick-xml leaves to its users: exactly one root element, matching tags, no document type declaration, limits, and an error for a
//! document that is cut short.
//!
//! Local damage stays local: a bare ampersand, an unknown entity or bytes that are no text become [`XmlEvent::Unreadable`], or
//! [`UNREADABLE`] in the value of an attribute; spaces that are not ASCII separate attributes like any other. What they are in
//! is lost, and nothing else.
//!
//! The start tag of the root element in place of its end tag ends a document, as in examples 4.3 to 4.5 of the draft of version 0.1.

use std::borrow::Cow;
use std::io::{self, BufRead};
use std::sync::Arc;

use quick_xml::XmlVersion;
use quick_xml::encoding::EncodingError;
use quick_xml::errors::{Error, IllFormedError};
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::attributes::Attribute;
use quick_xml::events::{BytesRef, BytesStart, Event};
use quick_xml::name::{Namespace, NamespaceError, NamespaceResolver, Prefix, QName, ResolveResult};
use quick_xml::reader::Reader;

use super::ReadError;
use super::error::clip;
use super::input::{DocumentInput, EventPlace, UNREADABLE};
use super::plain_token::{PlainAttribute, PlainTag, PlainToken};
use super::text_position::TextPosition;

/// The maximum depth of nested elements.
pub(super) const MAX_DEPTH: usize = 32;
/// The maximum number of attributes of an element, including namespace declarations.
pub(super) const MAX_ATTRIBUTES: usize = 64;
/// The maximum length of the name of an entity, in bytes.
const MAX_ENTITY_NAME: usize = 32;

/// The next event of a document.
pub(super) enum XmlEvent<'a> {
    /// An element begins. Every element is closed, also an empty one.
    Open(Tag<'a>),
    /// An element of this depth ends; the depth of the root is 1.
    Close { depth: usize },
    /// Text in an element, or a piece of it, without markup.
    Text(Cow<'a, str>),
    /// Text in an element that can't be read.
    Unreadable,
    /// Something without meaning, such as a comment.
    Nothing,
    /// The end of a complete document.
    End,
}

/// The start tag of an element.
pub(super) struct Tag<'a> {
    /// The depth of the element; that of the root is 1.
    pub(super) depth: usize,
    /// Which namespaces are declared: as long as it is the same, a name means the same.
    pub(super) scope: u64,
    place: EventPlace<'a>,
    namespaces: &'a NamespaceResolver,
    start: BytesStart<'a>,
    /// Its attributes, if they are plain.
    plain: Option<&'a [PlainAttribute]>,
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
    reader: Reader<DocumentInput<R>>,
    buffer: Vec<u8>,
    /// The attributes of the last tag, if it is plain.
    attributes: Vec<PlainAttribute>,
    /// Whether quick-xml expects any event next: it is neither within a text nor in front of markup that it has recognized.
    is_between: bool,
    /// How many bytes were read that quick-xml has not seen.
    unseen: u64,
    /// Whether the last tag was one of an empty element, which is to be closed.
    is_in_empty: bool,
    open: OpenElements,
    section: XmlSection,
    /// How many texts, values and tags were damaged, but for invalid bytes.
    damaged: u64,
    /// Whether another encoding than UTF-8 is declared.
    declares_encoding: bool,
}

/// The elements that are open, and the namespaces that they declare.
#[derive(Default)]
struct OpenElements {
    elements: Vec<OpenElement>,
    /// Their names, one after the other.
    names: String,
    namespaces: NamespaceResolver,
    /// Increases with each change of the namespaces.
    scope: u64,
    /// Whether an element within the root element has ended.
    has_inner: bool,
    /// Whether the last tag is the start tag of the root element once more, without attributes, and only white space has followed. It
    /// stands for the end tag if the document ends there.
    is_reopened: bool,
}

struct OpenElement {
    /// Where its name begins.
    begin: usize,
    kind: OpenedBy,
}

/// The start tag of an element.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OpenedBy {
    /// One that quick-xml has not seen: it need not see the end tag, either.
    PlainTag,
    Tag,
    /// One that declares namespaces.
    Declaration,
}

impl OpenElements {
    fn depth(&self) -> usize {
        self.elements.len()
    }

    /// Opens an element whose start tag is plain.
    fn open_plain(&mut self, name: &str, is_bare: bool) {
        let level = self.namespaces.level() + 1;
        self.namespaces.set_level(level);
        self.open(name, OpenedBy::PlainTag, is_bare);
    }

    /// Opens an element with the namespaces that its start tag declares.
    fn open_with_namespaces(&mut self, start: &BytesStart<'_>) -> Result<(), NamespaceError> {
        self.namespaces.push(start)?;
        let mut declared = self.namespaces.bindings_of(self.namespaces.level());
        let kind = match declared.next() {
            Some(_) => OpenedBy::Declaration,
            None => OpenedBy::Tag,
        };
        let is_bare = start.attributes_raw().trim_ascii().is_empty();
        self.open(start.name().into_inner(), kind, is_bare);
        Ok(())
    }

    /// Opens an element. `is_bare`: its start tag has no attributes.
    fn open(&mut self, name: &str, kind: OpenedBy, is_bare: bool) {
        self.scope += u64::from(kind == OpenedBy::Declaration);
        self.is_reopened =
            is_bare && self.has_inner && self.depth() == 1 && self.innermost() == name;
        self.elements.push(OpenElement {
            begin: self.names.len(),
            kind,
        });
        self.names.push_str(name);
    }

    /// The name of the innermost one.
    fn innermost(&self) -> &str {
        &self.names[self.elements.last().map_or(0, |element| element.begin)..]
    }

    /// Whether it is the end of the innermost one, but for a prefix that is not declared, as examples of the draft of version 0.1
    /// have it.
    fn is_misprefixed(&self, end: &str) -> bool {
        let name = QName(without_end_spaces(end));
        let is_undeclared = matches!(
            self.namespaces.resolve_element(name).0,
            ResolveResult::Unknown(_)
        );
        is_undeclared && name.local_name().into_inner() == self.innermost()
    }

    /// The name of the innermost one, if its start tag is plain.
    fn innermost_plain(&self) -> Option<&str> {
        let innermost = self.elements.last()?;
        (innermost.kind == OpenedBy::PlainTag).then(|| &self.names[innermost.begin..])
    }

    /// Closes the innermost one.
    fn close(&mut self, section: &mut XmlSection) -> XmlEvent<'static> {
        let depth = self.depth();
        self.has_inner |= depth == 2;
        self.is_reopened = false;
        if let Some(element) = self.elements.pop() {
            self.names.truncate(element.begin);
            self.namespaces.pop();
            self.scope += u64::from(element.kind == OpenedBy::Declaration);
        }
        if depth == 1 {
            *section = XmlSection::Epilog;
        }
        XmlEvent::Close { depth }
    }
}

impl<R: BufRead> XmlEvents<R> {
    pub(super) fn new(input: DocumentInput<R>) -> Self {
        let mut reader = Reader::from_reader(input);
        let config = reader.config_mut();
        config.allow_dangling_amp = true;
        // Checked here, because a name may be followed by a space that is not ASCII.
        config.check_end_names = false;
        config.allow_unmatched_ends = true;
        Self {
            reader,
            buffer: Vec::new(),
            attributes: Vec::new(),
            is_between: false,
            unseen: 0,
            is_in_empty: false,
            open: OpenElements::default(),
            section: XmlSection::Nothing,
            damaged: 0,
            declares_encoding: false,
        }
    }

    /// The number of bytes of the document that were read so far, after they were decoded.
    pub(super) fn position(&self) -> u64 {
        self.reader.buffer_position() + self.unseen
    }

    /// Where the last event begins.
    pub(super) fn place(&self) -> TextPosition {
        self.reader.get_ref().event().place()
    }

    /// Where the next event begins.
    pub(super) fn end(&self) -> TextPosition {
        self.reader.get_ref().place()
    }

    /// How many texts, values, tags and sequences of bytes were damaged so far.
    pub(super) fn damaged(&self) -> u64 {
        self.damaged + self.reader.get_ref().unreadable()
    }

    /// Whether another encoding than UTF-8 is declared.
    pub(super) fn declares_encoding(&self) -> bool {
        self.declares_encoding
    }

    /// Whether the document has ended with the start tag of its root element in place of the end tag.
    pub(super) fn ends_reopened(&self) -> bool {
        self.section == XmlSection::Epilog && self.open.is_reopened
    }

    /// The next event. After an error the events are meaningless.
    pub(super) fn next(&mut self) -> Result<XmlEvent<'_>, ReadError> {
        self.reader.get_mut().begin_event();
        if std::mem::take(&mut self.is_in_empty) {
            return Ok(self.open.close(&mut self.section));
        }
        if let Some(token) = self.find_plain() {
            return self.read_plain(token);
        }
        self.buffer.clear();
        let event = match self.reader.read_event_into(&mut self.buffer) {
            Ok(event) => event,
            Err(error) => return Err(translate(error, self.section, self.reader.get_ref())),
        };
        let place = self.reader.get_ref().event();
        self.is_in_empty = matches!(event, Event::Empty(_));
        self.is_between = !matches!(event, Event::Text(_) | Event::Eof);
        self.open.is_reopened &= may_end(&event);
        match event {
            Event::Start(start) | Event::Empty(start) => {
                if self.section == XmlSection::Epilog {
                    return Err(ReadError::TrailingContent(place.place()));
                }
                self.section = XmlSection::Root;
                if self.open.depth() == MAX_DEPTH {
                    return Err(ReadError::TooDeep(place.place()));
                }
                let start = match with_ascii_spaces(&start) {
                    None => start,
                    Some(repaired) => {
                        self.damaged += 1;
                        repaired
                    }
                };
                self.damaged += check_attributes(&start, place)?;
                let opened = self.open.open_with_namespaces(&start);
                opened.map_err(|error| match error {
                    NamespaceError::TooManyBindings(_) => {
                        ReadError::TooManyAttributes(place.place())
                    }
                    error => not_xml(place.place(), &error),
                })?;
                Ok(XmlEvent::Open(Tag {
                    depth: self.open.depth(),
                    scope: self.open.scope,
                    place: self.reader.get_ref().event(),
                    namespaces: &self.open.namespaces,
                    start,
                    plain: None,
                }))
            }
            Event::End(end) => {
                let (expected, found) = (self.open.innermost(), end.name().into_inner());
                if self.open.depth() == 0 {
                    let error = IllFormedError::UnmatchedEndTag(found.to_owned());
                    let (section, input) = (self.section, self.reader.get_ref());
                    return Err(translate(error.into(), section, input));
                }
                let is_same = found == expected || without_end_spaces(found) == expected;
                if !is_same && self.open.is_misprefixed(found) {
                    self.damaged += 1;
                } else if !is_same {
                    let error = IllFormedError::MismatchedEndTag {
                        expected: expected.to_owned(),
                        found: found.to_owned(),
                    };
                    return Err(not_xml(place.place(), &error));
                }
                Ok(self.open.close(&mut self.section))
            }
            Event::Text(text) => {
                let text = text.into_inner();
                // Only a text that begins with a bare ampersand has one.
                let is_damaged = text.starts_with('&');
                let event = self.section.text(text, place)?;
                self.damaged += u64::from(is_damaged);
                Ok(if is_damaged {
                    XmlEvent::Unreadable
                } else {
                    event
                })
            }
            Event::CData(data) => {
                self.section.expect_root(place)?;
                Ok(readable(data.into_inner()))
            }
            Event::GeneralRef(reference) => {
                self.section.expect_root(place)?;
                match resolve(&reference) {
                    Some(resolved) => Ok(readable(resolved)),
                    None => {
                        self.damaged += 1;
                        Ok(XmlEvent::Unreadable)
                    }
                }
            }
            Event::Decl(declaration) => {
                if self.section != XmlSection::Nothing {
                    return Err(not_xml(
                        place.place(),
                        &"the XML declaration is not at the beginning",
                    ));
                }
                if let Some(encoding) = declaration.encoding() {
                    let encoding = encoding.map_err(|error| not_xml(place.place(), &error))?;
                    self.declares_encoding = self.reader.get_mut().declare(&encoding)?;
                }
                self.section = XmlSection::Prolog;
                Ok(XmlEvent::Nothing)
            }
            Event::Comment(_) | Event::PI(_) => {
                if self.section == XmlSection::Nothing {
                    self.section = XmlSection::Prolog;
                }
                Ok(XmlEvent::Nothing)
            }
            Event::DocType(content) => {
                let name = content.into_inner();
                Err(if is_html(name.split(char::is_whitespace).next()) {
                    ReadError::HtmlPage(None)
                } else {
                    ReadError::Doctype(place.place())
                })
            }
            Event::Eof => match self.section {
                XmlSection::Nothing => Err(ReadError::Empty),
                XmlSection::Root if self.open.is_reopened => {
                    self.section = XmlSection::Epilog;
                    Ok(XmlEvent::End)
                }
                XmlSection::Prolog | XmlSection::Root => {
                    Err(ReadError::CutShort(self.reader.get_ref().place()))
                }
                XmlSection::Epilog => Ok(XmlEvent::End),
            },
        }
    }

    /// The next event, if it is plain and was decoded completely.
    fn find_plain(&mut self) -> Option<PlainToken> {
        if !self.is_between || self.section != XmlSection::Root {
            return None;
        }
        let (text, innermost) = (self.reader.get_ref().rest(), self.open.innermost_plain());
        PlainToken::find(text, innermost, MAX_ATTRIBUTES, &mut self.attributes)
    }

    /// Reads the next event, which is plain.
    fn read_plain(&mut self, token: PlainToken) -> Result<XmlEvent<'_>, ReadError> {
        let length = token.length();
        self.reader.get_mut().consume(length);
        self.unseen += length as u64;
        let input = self.reader.get_ref();
        match token {
            PlainToken::Text(_) => Ok(readable(Cow::Borrowed(input.last(length)))),
            PlainToken::Close(_) => Ok(self.open.close(&mut self.section)),
            PlainToken::Open(PlainTag {
                name,
                content,
                is_empty,
            }) => {
                if self.open.depth() == MAX_DEPTH {
                    return Err(ReadError::TooDeep(input.event().place()));
                }
                self.is_in_empty = is_empty;
                let start = BytesStart::from_content(&input.last(length)[1..=content], name);
                let is_bare = self.attributes.is_empty();
                self.open.open_plain(start.name().into_inner(), is_bare);
                Ok(XmlEvent::Open(Tag {
                    depth: self.open.depth(),
                    scope: self.open.scope,
                    place: input.event(),
                    namespaces: &self.open.namespaces,
                    start,
                    plain: Some(&self.attributes),
                }))
            }
        }
    }
}

impl XmlSection {
    /// Text is allowed within the root element only; elsewhere there may be white space.
    fn text<'a>(
        self,
        text: Cow<'a, str>,
        place: EventPlace<'_>,
    ) -> Result<XmlEvent<'a>, ReadError> {
        if self == Self::Root {
            return Ok(readable(text));
        }
        if text.chars().all(|c| c.is_ascii_whitespace()) {
            return Ok(XmlEvent::Nothing);
        }
        self.expect_root(place)?;
        Ok(XmlEvent::Nothing)
    }

    /// Rejects what is allowed within the root element only.
    fn expect_root(self, place: EventPlace<'_>) -> Result<(), ReadError> {
        match self {
            Self::Nothing | Self::Prolog => {
                Err(not_xml(place.place(), &"text before the root element"))
            }
            Self::Root => Ok(()),
            Self::Epilog => Err(ReadError::TrailingContent(place.place())),
        }
    }
}

/// Whether a document may end with an event: its end, or white space before that.
fn may_end(event: &Event<'_>) -> bool {
    match event {
        Event::Text(text) => text.bytes().all(|byte| byte.is_ascii_whitespace()),
        Event::Eof => true,
        _ => false,
    }
}

/// The meaning of an error of quick-xml while that section of the document was being read.
fn translate<R: BufRead>(error: Error, section: XmlSection, input: &DocumentInput<R>) -> ReadError {
    let at = input.event().place();
    match error {
        Error::Io(error) => input.error(
            Arc::try_unwrap(error).unwrap_or_else(|shared| io::Error::new(shared.kind(), shared)),
        ),
        Error::Syntax(_) if input.has_ended() => ReadError::CutShort(input.place()),
        // The input is UTF-8; only an event that it limits may end within a character.
        Error::Encoding(EncodingError::Utf8(_)) => ReadError::EventTooLarge(at),
        Error::Syntax(_) | Error::IllFormed(_) if section == XmlSection::Epilog => {
            ReadError::TrailingContent(at)
        }
        error => not_xml(at, &error),
    }
}

/// Text, unless a part of it can't be read.
fn readable(text: Cow<'_, str>) -> XmlEvent<'_> {
    if is_readable(&text) {
        XmlEvent::Text(text)
    } else {
        XmlEvent::Unreadable
    }
}

/// Whether every character of a text or a value can be read.
pub(super) fn is_readable(text: &str) -> bool {
    text.is_ascii() || !text.contains(UNREADABLE)
}

/// Whether a name is that of the root element of a web page.
pub(super) fn is_html(name: Option<&str>) -> bool {
    name.is_some_and(|name| name.eq_ignore_ascii_case("html"))
}

/// The text that a reference stands for; `None` if it is an unknown entity, or not a character.
fn resolve(reference: &BytesRef<'_>) -> Option<Cow<'static, str>> {
    match reference.resolve_char_ref() {
        Ok(Some(character)) => Some(Cow::Owned(character.to_string())),
        Ok(None) => resolve_predefined_entity(reference).map(Cow::Borrowed),
        Err(_) => None,
    }
}

/// A tag with ASCII spaces in place of others between its attributes; `None` if it has no others.
fn with_ascii_spaces(start: &BytesStart<'_>) -> Option<BytesStart<'static>> {
    let text: &str = start;
    if text.is_ascii() {
        return None;
    }
    let mut quote = None;
    let mut is_repaired = false;
    let repaired: String = text
        .chars()
        .map(|character| {
            match (quote, character) {
                (None, '"' | '\'') => quote = Some(character),
                (Some(begin), end) if begin == end => quote = None,
                (None, other) if is_wide_space(other) => {
                    is_repaired = true;
                    return ' ';
                }
                _ => {}
            }
            character
        })
        .collect();
    is_repaired.then(|| {
        let name = repaired.find(char::is_whitespace).unwrap_or(repaired.len());
        BytesStart::from_content(repaired, name)
    })
}

/// The name of an end tag. It may be followed by spaces, also by some that are not ASCII.
fn without_end_spaces(name: &str) -> &str {
    let name = name.split(is_wide_space).next();
    name.unwrap_or_default().trim_ascii_end()
}

/// Whether it looks like a space and is none to XML: a no-break space, a byte order mark in the middle.
fn is_wide_space(character: char) -> bool {
    !character.is_ascii()
        && (character.is_whitespace() || matches!(character, '\u{feff}' | '\u{200b}'))
}

impl Tag<'_> {
    /// Where it begins.
    pub(super) fn at(&self) -> TextPosition {
        self.place.place()
    }

    /// Its namespace, without surrounding white space; `Err` with the prefix if the prefix is not declared.
    pub(super) fn namespace(&self) -> Result<Option<&str>, &str> {
        let name = self.start.name();
        match self.namespaces.resolve_element(name).0 {
            ResolveResult::Bound(Namespace(namespace)) => Ok(Some(namespace.trim())),
            ResolveResult::Unbound => Ok(None),
            ResolveResult::Unknown(_) => Err(name.prefix().map_or("", Prefix::into_inner)),
        }
    }

    /// Its name.
    pub(super) fn name(&self) -> &str {
        self.start.name().into_inner()
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

    /// Names and values of its attributes without a prefix. Those with a prefix belong to other vocabularies. A value that can't be
    /// read completely contains [`UNREADABLE`].
    pub(super) fn attributes(&self) -> impl Iterator<Item = (&str, Cow<'_, str>)> {
        self.attributes_of(false)
    }

    /// Namespaces, names and values of its attributes with a prefix that is declared.
    pub(super) fn prefixed_attributes(&self) -> impl Iterator<Item = (&str, &str, Cow<'_, str>)> {
        self.attributes_of(true).filter_map(|(name, value)| {
            let (found, local_name) = self.namespaces.resolve_attribute(QName(name));
            match found {
                ResolveResult::Bound(Namespace(namespace)) => {
                    Some((namespace.trim(), local_name.into_inner(), value))
                }
                ResolveResult::Unbound | ResolveResult::Unknown(_) => None,
            }
        })
    }

    /// Names as written, and values, of its attributes with a prefix, or without; not the declarations of namespaces.
    fn attributes_of(&self, has_prefix: bool) -> impl Iterator<Item = (&str, Cow<'_, str>)> {
        let text: &str = &self.start;
        let plain = self.plain.unwrap_or_default().iter();
        let plain = plain.filter(move |attribute| attribute.has_prefix == has_prefix);
        let plain = plain.map(|PlainAttribute { name, value, .. }| {
            (&text[name.clone()], Cow::Borrowed(&text[value.clone()]))
        });
        let others = self.plain.is_none().then(|| {
            // All were checked when the tag was read, so that there are no errors here.
            let mut attributes = self.start.attributes();
            attributes.with_checks(false);
            attributes.filter_map(move |attribute| {
                let attribute = attribute.ok()?;
                let name = attribute.key.into_inner();
                let declares = name == "xmlns" || name.starts_with("xmlns:");
                let is_wanted = !declares && name.contains(':') == has_prefix;
                is_wanted.then(|| (name, value_of(&attribute)))
            })
        });
        plain.chain(others.into_iter().flatten())
    }
}

/// The value of an attribute, with [`UNREADABLE`] in place of each reference that can't be resolved.
fn value_of<'a>(attribute: &Attribute<'a>) -> Cow<'a, str> {
    strict_value_of(attribute).unwrap_or_else(|| {
        let mut pieces = attribute.value.split('&');
        let mut value = pieces.next().unwrap_or_default().to_owned();
        for piece in pieces {
            let end = piece
                .bytes()
                .take(MAX_ENTITY_NAME)
                .position(|byte| byte == b';');
            let resolved = end.and_then(|end| {
                let reference = BytesRef::new(&piece[..end]);
                Some((resolve(&reference)?, end + 1))
            });
            match resolved {
                Some((text, length)) => {
                    value.push_str(&text);
                    value.push_str(&piece[length..]);
                }
                None => {
                    value.push(UNREADABLE);
                    value.push_str(piece);
                }
            }
        }
        Cow::Owned(value)
    })
}

/// The value of an attribute; `None` if a reference in it can't be resolved.
fn strict_value_of<'a>(attribute: &Attribute<'a>) -> Option<Cow<'a, str>> {
    attribute.normalized_value(XmlVersion::Implicit1_0).ok()
}

/// Checks the attributes of a tag; returns how many values can't be read completely.
fn check_attributes(start: &BytesStart<'_>, place: EventPlace<'_>) -> Result<u64, ReadError> {
    let mut damaged = 0;
    for (n, attribute) in start.attributes().enumerate() {
        if n == MAX_ATTRIBUTES {
            return Err(ReadError::TooManyAttributes(place.place()));
        }
        let attribute = attribute.map_err(|error| not_xml(place.place(), &error))?;
        let has_reference = attribute.value.contains('&');
        damaged += u64::from(has_reference && strict_value_of(&attribute).is_none());
    }
    Ok(damaged)
}

/// The error of a document that is not well formed.
pub(super) fn not_xml(at: TextPosition, reason: &impl ToString) -> ReadError {
    ReadError::NotXml {
        at,
        reason: clip(&reason.to_string()),
    }
}
