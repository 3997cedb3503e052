//! XML as a stream of bounded events.
//!
//! quick-xml splits the text into tags and texts, and checks that tags match. This module checks what quick-xml leaves to its users:
//! exactly one root element, no document type declaration, limits, and an error for a document that is cut short.
//!
//! Local damage stays local: a bare ampersand, an unknown entity or bytes that are no text become [`UNREADABLE`]; spaces that are not
//! ASCII separate attributes like any other. What they are in is lost, and nothing else.
//!
//! Two mistakes of the examples in the draft of version 0.1 are tolerated: the start tag of the root element in place of its end tag
//! ends a document (4.3 to 4.5), and an end tag may have a prefix that is not declared (5.7).

use std::borrow::Cow;
use std::io::{self, BufRead};
use std::sync::Arc;

use quick_xml::XmlVersion;
use quick_xml::encoding::EncodingError;
use quick_xml::errors::{Error, IllFormedError};
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesRef, BytesStart, Event, attributes};
use quick_xml::name::{Namespace, NamespaceError, NamespaceResolver, Prefix, QName, ResolveResult};
use quick_xml::reader::Reader;

use super::error::{ReadError, TextPosition, clip};
use super::input::{DocumentInput, EventPlace, UNREADABLE};

/// The maximum depth of nested elements.
pub(super) const MAX_DEPTH: usize = 32;
/// The maximum number of attributes of an element, including namespace declarations.
pub(super) const MAX_ATTRIBUTES: usize = 64;

/// The next event of a document.
pub(super) enum XmlEvent<'a> {
    /// An element begins. Every element is closed, also an empty one.
    Open(Tag<'a>),
    /// An element of this depth ends; the depth of the root is 1.
    Close { depth: usize },
    /// Text in an element, or a piece of it, without markup. [`UNREADABLE`] is in it for what can't be read.
    Text(Cow<'a, str>),
    /// Something without meaning, such as a comment.
    Nothing,
    /// The end of a complete document. `is_reopened`: it ends with the start tag of its root element in place of the end tag.
    End { is_reopened: bool },
}

/// Names of attributes as written, and their values.
type Attributes<'a> = Vec<(&'a str, Cow<'a, str>)>;

/// The start tag of an element.
pub(super) struct Tag<'a> {
    /// The depth of the element; that of the root is 1.
    pub(super) depth: usize,
    /// Where it begins.
    pub(super) place: EventPlace<'a>,
    namespaces: &'a NamespaceResolver,
    name: QName<'a>,
    /// The length of what is between its angle brackets, in bytes.
    pub(super) length: u64,
    /// Not the declarations of namespaces.
    attributes: Attributes<'a>,
}

/// The section of a document that is being read.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum XmlSection {
    /// Only white space so far.
    #[default]
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
    /// A tag with other spaces than it was written with.
    repaired: String,
    /// Whether the last tag was one of an empty element, which is to be closed. (quick-xml would allocate its name.)
    is_in_empty: bool,
    nesting: Nesting,
    /// How many texts, values and tags were damaged, but for invalid bytes.
    damaged: u64,
}

/// Where in the document the events are.
#[derive(Default)]
struct Nesting {
    section: XmlSection,
    /// How many elements are open, and which namespaces they declare.
    depth: usize,
    namespaces: NamespaceResolver,
    /// The name of the root element.
    root: String,
    /// Whether an element within the root element has ended.
    has_inner: bool,
    /// Whether the last tag is the start tag of the root element once more, without attributes, and only white space has followed. It
    /// stands for the end tag if the document ends there.
    is_reopened: bool,
}

impl Nesting {
    /// Opens the element of a start tag. `is_bare`: the tag has no attributes.
    fn open(&mut self, name: &str, is_bare: bool) {
        self.is_reopened = is_bare && self.has_inner && self.depth == 1 && self.root == name;
        if self.depth == 0 {
            name.clone_into(&mut self.root);
        }
        self.section = XmlSection::Root;
        self.depth += 1;
    }

    /// Closes the innermost element.
    fn close(&mut self) -> XmlEvent<'static> {
        let depth = self.depth;
        self.has_inner |= depth == 2;
        self.is_reopened = false;
        self.depth -= 1;
        self.namespaces.pop();
        if self.depth == 0 {
            self.section = XmlSection::Epilog;
        }
        XmlEvent::Close { depth }
    }
}

impl<R: BufRead> XmlEvents<R> {
    pub(super) fn new(input: DocumentInput<R>) -> Self {
        let mut reader = Reader::from_reader(input);
        reader.config_mut().allow_dangling_amp = true;
        Self {
            reader,
            buffer: Vec::new(),
            repaired: String::new(),
            is_in_empty: false,
            nesting: Nesting::default(),
            damaged: 0,
        }
    }

    /// The number of bytes of the document that were read so far, after they were decoded.
    pub(super) fn position(&self) -> u64 {
        self.reader.buffer_position()
    }

    /// The bytes of the document.
    pub(super) fn input(&self) -> &DocumentInput<R> {
        self.reader.get_ref()
    }

    /// How many texts, values, tags and sequences of bytes were damaged so far.
    pub(super) fn damaged(&self) -> u64 {
        self.damaged + self.input().unreadable
    }

    /// The next line of a sitemap as plain text, a URI on each line (sitemaps.org, "Other Sitemap formats"; RFC 2483, section 5).
    pub(super) fn next_line(&mut self) -> Result<Option<String>, ReadError> {
        self.reader.get_mut().next_line(&mut self.buffer)
    }

    /// The next event. After an error the events are meaningless.
    pub(super) fn next(&mut self) -> Result<XmlEvent<'_>, ReadError> {
        self.reader.get_mut().begin_event();
        let nesting = &mut self.nesting;
        if std::mem::take(&mut self.is_in_empty) {
            return Ok(nesting.close());
        }
        self.buffer.clear();
        let event = match self.reader.read_event_into(&mut self.buffer) {
            Ok(event) => event,
            Err(Error::IllFormed(IllFormedError::MismatchedEndTag { expected, found }))
                if without_wide_spaces(&found) == without_wide_spaces(&expected)
                    || is_misprefixed(&found, &expected, &nesting.namespaces) =>
            {
                self.damaged += u64::from(found.contains(':') != expected.contains(':'));
                return Ok(nesting.close());
            }
            Err(error) => return Err(translate(error, nesting.section, self.reader.get_ref())),
        };
        self.is_in_empty = matches!(event, Event::Empty(_));
        nesting.is_reopened = nesting.is_reopened && may_end(&event);
        let input = self.reader.get_ref();
        let place = input.event();
        let text = match event {
            Event::Start(start) | Event::Empty(start) => {
                if nesting.section == XmlSection::Epilog {
                    return Err(ReadError::TrailingContent(place.place()));
                }
                if nesting.depth == MAX_DEPTH {
                    return Err(ReadError::TooDeep(place.place()));
                }
                let mut text = &input.consumed()[1..=start.len()];
                let mut name = start.name().into_inner().len();
                if let Some(repaired) = with_ascii_spaces(text) {
                    self.damaged += 1;
                    self.repaired = repaired;
                    text = &self.repaired;
                    name = text.find(char::is_whitespace).unwrap_or(text.len());
                }
                let (attributes, declares) = read_attributes(text, name, place, &mut self.damaged)?;
                let is_bare = attributes.is_empty() && !declares;
                nesting.open(&text[..name], is_bare);
                let namespaces = &mut nesting.namespaces;
                if declares {
                    let declared = namespaces.push(&BytesStart::from_content(text, name));
                    declared.map_err(|error| translate(error.into(), nesting.section, input))?;
                } else {
                    namespaces.set_level(namespaces.level() + 1);
                }
                return Ok(XmlEvent::Open(Tag {
                    depth: nesting.depth,
                    place,
                    namespaces,
                    name: QName(&text[..name]),
                    length: text.len() as u64,
                    attributes,
                }));
            }
            Event::End(_) => return Ok(nesting.close()),
            Event::Text(text)
                if nesting.section != XmlSection::Root && text.trim_ascii().is_empty() =>
            {
                return Ok(XmlEvent::Nothing);
            }
            // Only a text that begins with a bare ampersand has one.
            Event::Text(text) => Some(text.into_inner()).filter(|text| !text.starts_with('&')),
            Event::CData(data) => Some(data.into_inner()),
            Event::GeneralRef(reference) => resolve(&reference),
            Event::Decl(_) if nesting.section != XmlSection::Nothing => {
                let reason = "the XML declaration is not at the beginning";
                return Err(not_xml(place.place(), &reason));
            }
            Event::Decl(_) | Event::Comment(_) | Event::PI(_) => {
                if nesting.section == XmlSection::Nothing {
                    nesting.section = XmlSection::Prolog;
                }
                return Ok(XmlEvent::Nothing);
            }
            Event::DocType(content) => {
                let is_html = is_html(content.split(char::is_whitespace).next());
                let page = is_html.then_some(ReadError::HtmlPage(None));
                return Err(page.unwrap_or_else(|| ReadError::Doctype(place.place())));
            }
            Event::Eof => {
                let is_reopened = nesting.is_reopened;
                return match nesting.section {
                    XmlSection::Nothing => Err(ReadError::Empty),
                    XmlSection::Epilog => Ok(XmlEvent::End { is_reopened }),
                    XmlSection::Root if is_reopened => Ok(XmlEvent::End { is_reopened }),
                    _ => Err(ReadError::CutShort(input.place())),
                };
            }
        };
        match nesting.section {
            XmlSection::Root => {
                self.damaged += u64::from(text.is_none());
                Ok(XmlEvent::Text(text.unwrap_or(Cow::Borrowed(UNREADABLE))))
            }
            XmlSection::Epilog => Err(ReadError::TrailingContent(place.place())),
            _ => Err(not_xml(place.place(), &"text before the root element")),
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
        Error::Syntax(_) if input.ended => ReadError::CutShort(input.place()),
        // The input is UTF-8; only an event that it limits may end within a character.
        Error::Encoding(EncodingError::Utf8(_)) => ReadError::EventTooLarge(at),
        Error::Namespace(NamespaceError::TooManyBindings(_)) => ReadError::TooManyAttributes(at),
        Error::Syntax(_) | Error::IllFormed(_) if section == XmlSection::Epilog => {
            ReadError::TrailingContent(at)
        }
        error => not_xml(at, &error),
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
fn with_ascii_spaces(tag: &str) -> Option<String> {
    if tag.is_ascii() {
        return None;
    }
    let mut quote = None;
    let repaired = tag.chars().map(|character| {
        match (quote, character) {
            (None, '"' | '\'') => quote = Some(character),
            (Some(begin), end) if begin == end => quote = None,
            (None, other) if is_wide_space(other) => return ' ',
            _ => {}
        }
        character
    });
    Some(repaired.collect()).filter(|repaired| repaired != tag)
}

/// The name of a tag that may be followed by spaces that are not ASCII.
fn without_wide_spaces(name: &str) -> &str {
    name.split(is_wide_space).next().unwrap_or_default()
}

/// Whether it is the end of that element, but for a prefix that is not declared.
fn is_misprefixed(end: &str, element: &str, namespaces: &NamespaceResolver) -> bool {
    let (namespace, local_name) = namespaces.resolve_element(QName(end));
    matches!(namespace, ResolveResult::Unknown(_)) && local_name.into_inner() == element
}

/// Whether it looks like a space and is none to XML: a no-break space, a byte order mark in the middle.
fn is_wide_space(character: char) -> bool {
    !character.is_ascii()
        && (character.is_whitespace() || matches!(character, '\u{feff}' | '\u{200b}'))
}

impl Tag<'_> {
    /// Its namespace; `Err` with the prefix if the prefix is not declared.
    pub(super) fn namespace(&self) -> Result<Option<&str>, &str> {
        match self.namespaces.resolve_element(self.name).0 {
            ResolveResult::Bound(Namespace(namespace)) => Ok(Some(namespace)),
            ResolveResult::Unbound => Ok(None),
            ResolveResult::Unknown(_) => Err(self.name.prefix().map_or("", Prefix::into_inner)),
        }
    }

    /// Its name, without a prefix.
    pub(super) fn local_name(&self) -> &str {
        self.name.local_name().into_inner()
    }

    /// Names and values of its attributes without a prefix. Those with a prefix belong to other vocabularies. A value that can't be
    /// read completely contains [`UNREADABLE`].
    pub(super) fn attributes(&self) -> impl Iterator<Item = (&str, &str)> {
        let all = self.attributes.iter();
        let plain = all.filter(|(name, _)| !name.contains(':'));
        plain.map(|(name, value)| (*name, &**value))
    }

    /// The value of an attribute without a prefix.
    pub(super) fn attribute(&self, wanted: &str) -> Option<&str> {
        let found = self.attributes().find(|(name, _)| *name == wanted);
        found.map(|(_, value)| value)
    }

    /// The value of an attribute with a prefix that is declared for such a namespace.
    pub(super) fn prefixed_attribute(
        &self,
        is_such: fn(&str) -> bool,
        wanted: &str,
    ) -> Option<&str> {
        let mut all = self.attributes.iter();
        let found = all.find(|(name, _)| {
            let (namespace, name) = self.namespaces.resolve_attribute(QName(name));
            let is_bound = matches!(namespace, ResolveResult::Bound(Namespace(it)) if is_such(it));
            is_bound && name.into_inner() == wanted
        });
        found.map(|(_, value)| &**value)
    }
}

/// Reads the attributes of a tag but for the declarations of namespaces, and counts the values that can't be read completely; also
/// returns whether there is such a declaration. `name`: the length of the name of the tag.
fn read_attributes<'a>(
    tag: &'a str,
    name: usize,
    place: EventPlace<'_>,
    damaged: &mut u64,
) -> Result<(Attributes<'a>, bool), ReadError> {
    let (mut read, mut declares) = (Vec::new(), false);
    for (n, attribute) in attributes::Attributes::new(tag, name).enumerate() {
        if n == MAX_ATTRIBUTES {
            return Err(ReadError::TooManyAttributes(place.place()));
        }
        let attribute = attribute.map_err(|error| not_xml(place.place(), &error))?;
        let value = attribute.normalized_value(XmlVersion::Implicit1_0);
        *damaged += u64::from(value.is_err());
        if attribute.key.as_namespace_binding().is_some() {
            declares = true;
        } else {
            let name = attribute.key.into_inner();
            read.push((name, value.unwrap_or(Cow::Borrowed(UNREADABLE))));
        }
    }
    Ok((read, declares))
}

/// The error of a document that is not well formed.
pub(super) fn not_xml(at: TextPosition, reason: &impl ToString) -> ReadError {
    let reason = clip(&reason.to_string());
    ReadError::NotXml { at, reason }
}
