//! A stanza as elements, and the documents that it carries.
//!
//! What is inside of an item of a node (XEP-0060) is a document: it is not parsed here, whatever it consists of, but cut out as it
//! was sent. Declarations of namespaces around it count for it, and are added to its root element.

use bytes::Bytes;
use quick_xml::XmlVersion;
use quick_xml::escape::{escape, resolve_predefined_entity};
use quick_xml::events::{BytesStart, Event};
use quick_xml::reader::Reader;

use super::names::{PUBSUB, PUBSUB_EVENT, XML};

/// How many elements a stanza may have, without its documents.
const MOST_ELEMENTS: usize = 4096;
/// How many attributes an element may have.
const MOST_ATTRIBUTES: usize = 64;
/// How many declarations of namespaces may be in scope.
const MOST_DECLARATIONS: usize = 64;

/// A stanza that can't be processed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ElementError {
    /// It is not XML.
    #[error("a stanza is not well-formed")]
    Malformed,
    /// It has too many elements, attributes or declarations.
    #[error("a stanza has too many elements or attributes")]
    TooMany,
}

/// The declarations of namespaces that are in scope: prefix, empty for the default, and namespace.
pub(super) type Scope = Vec<(String, String)>;

/// An element.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Element {
    pub(super) namespace: String,
    pub(super) name: String,
    attributes: Vec<(String, String)>,
    pub(super) children: Vec<Element>,
    pub(super) text: String,
    /// Of an item: what it contains, as a document.
    pub(super) document: Option<Bytes>,
}

impl Element {
    /// Parses a stanza. `scope`: the declarations of the stream.
    pub(super) fn parse(text: &str, scope: &Scope) -> Result<Self, ElementError> {
        let mut parsing = Parsing {
            text,
            scope: scope.clone(),
            open: Vec::new(),
            elements: 0,
        };
        parsing.run()
    }

    /// The declarations of the start tag of a stream.
    pub(super) fn scope_of_header(header: &str) -> Result<(Self, Scope), ElementError> {
        let mut parsing = Parsing {
            text: header,
            scope: Vec::new(),
            open: Vec::new(),
            elements: 0,
        };
        let mut reader = Reader::from_str(header);
        match reader.read_event() {
            Ok(Event::Start(tag)) => {
                let element = parsing.start(&tag)?;
                Ok((element, parsing.scope))
            }
            _ => Err(ElementError::Malformed),
        }
    }

    /// Whether it has this name.
    pub(super) fn is(&self, namespace: &str, name: &str) -> bool {
        self.namespace == namespace && self.name == name
    }

    /// The first child of this name.
    pub(super) fn child(&self, namespace: &str, name: &str) -> Option<&Self> {
        self.children.iter().find(|child| child.is(namespace, name))
    }

    /// An attribute without a prefix.
    pub(super) fn attribute(&self, name: &str) -> Option<&str> {
        let mut attributes = self.attributes.iter();
        let found = attributes.find(|(other, _)| other == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Whether its child is a document.
    fn is_item(&self) -> bool {
        self.name == "item" && [PUBSUB, PUBSUB_EVENT].contains(&self.namespace.as_str())
    }
}

/// An element whose end tag was not read.
struct Open {
    element: Element,
    /// The name with its prefix.
    tag: String,
    /// How many declarations are in scope outside of it.
    outside: usize,
}

struct Parsing<'a> {
    text: &'a str,
    scope: Scope,
    open: Vec<Open>,
    elements: usize,
}

impl Parsing<'_> {
    fn run(&mut self) -> Result<Element, ElementError> {
        let mut reader = Reader::from_str(self.text);
        // The reader of documents decides what is inside of one.
        reader.config_mut().check_end_names = false;
        loop {
            let begin = position(&reader);
            let event = reader.read_event().map_err(|_| ElementError::Malformed)?;
            match event {
                Event::Start(tag) if self.is_in_item() => {
                    skip(&mut reader)?;
                    self.cut(&tag, begin..position(&reader))?;
                }
                Event::Empty(tag) if self.is_in_item() => {
                    self.cut(&tag, begin..position(&reader))?;
                }
                Event::Start(tag) => self.begin(&tag)?,
                Event::Empty(tag) => {
                    self.begin(&tag)?;
                    if let Some(element) = self.end(None)? {
                        return Ok(element);
                    }
                }
                Event::End(tag) => {
                    if let Some(element) = self.end(Some(tag.name().as_ref()))? {
                        return Ok(element);
                    }
                }
                Event::Text(text) => self.add_text(&text.xml10_content()),
                Event::CData(text) => self.add_text(&text.xml10_content()),
                Event::GeneralRef(reference) => {
                    let resolved = match reference.resolve_char_ref() {
                        Ok(Some(letter)) => Some(letter.to_string()),
                        _ => resolve_predefined_entity(&reference).map(str::to_owned),
                    };
                    self.add_text(&resolved.ok_or(ElementError::Malformed)?);
                }
                _ => return Err(ElementError::Malformed),
            }
        }
    }

    fn is_in_item(&self) -> bool {
        self.open.last().is_some_and(|open| open.element.is_item())
    }

    fn begin(&mut self, tag: &BytesStart<'_>) -> Result<(), ElementError> {
        let outside = self.scope.len();
        let element = self.start(tag)?;
        let tag = tag.name().as_ref().to_owned();
        self.open.push(Open {
            element,
            tag,
            outside,
        });
        Ok(())
    }

    /// Ends the innermost element. Returns it if it is the outermost one, too.
    fn end(&mut self, tag: Option<&str>) -> Result<Option<Element>, ElementError> {
        let open = self.open.pop().ok_or(ElementError::Malformed)?;
        if tag.is_some_and(|tag| tag != open.tag) {
            return Err(ElementError::Malformed);
        }
        self.scope.truncate(open.outside);
        match self.open.last_mut() {
            None => Ok(Some(open.element)),
            Some(parent) => {
                parent.element.children.push(open.element);
                Ok(None)
            }
        }
    }

    /// The element of a start tag. Its declarations are in scope then.
    fn start(&mut self, tag: &BytesStart<'_>) -> Result<Element, ElementError> {
        self.elements += 1;
        if self.elements > MOST_ELEMENTS {
            return Err(ElementError::TooMany);
        }
        let mut attributes = Vec::new();
        for (name, value) in attributes_of(tag)? {
            match declared(&name) {
                Some(prefix) => self.scope.push((prefix.to_owned(), value)),
                None => attributes.push((name, value)),
            }
        }
        if self.scope.len() > MOST_DECLARATIONS {
            return Err(ElementError::TooMany);
        }
        let name = tag.name();
        let name: &str = name.as_ref();
        let (prefix, name) = name.split_once(':').unwrap_or(("", name));
        let namespace = self.namespace(prefix).ok_or(ElementError::Malformed)?;
        Ok(Element {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            attributes,
            ..Element::default()
        })
    }

    fn namespace(&self, prefix: &str) -> Option<&str> {
        let mut scope = self.scope.iter().rev();
        match scope.find(|(other, _)| other == prefix) {
            Some((_, namespace)) => Some(namespace),
            None if prefix.is_empty() => Some(""),
            None if prefix == "xml" => Some(XML),
            None => None,
        }
    }

    fn add_text(&mut self, text: &str) {
        if let Some(open) = self.open.last_mut() {
            open.element.text.push_str(text);
        }
    }

    /// Makes a document of what is in an item: `tag` is its start tag, `span` where it is.
    fn cut(
        &mut self,
        tag: &BytesStart<'_>,
        span: std::ops::Range<usize>,
    ) -> Result<(), ElementError> {
        let attributes = attributes_of(tag)?;
        let is_own = |prefix: &str| {
            attributes
                .iter()
                .any(|(name, _)| declared(name) == Some(prefix))
        };
        let mut around: Vec<(&str, &str)> = Vec::new();
        for (prefix, namespace) in self.scope.iter().rev() {
            let is_known = around.iter().any(|(known, _)| known == prefix);
            if !is_known && !is_own(prefix) && prefix != "xml" {
                around.push((prefix, namespace));
            }
        }
        around.sort_unstable();
        let declarations: String = around
            .into_iter()
            // There is no way to take back the declaration of a prefix, nor a need for that of no namespace.
            .filter(|(_, namespace)| !namespace.is_empty())
            .map(|(prefix, namespace)| match prefix {
                "" => format!(" xmlns=\"{}\"", escape(namespace)),
                prefix => format!(" xmlns:{prefix}=\"{}\"", escape(namespace)),
            })
            .collect();
        let text = &self.text[span];
        let (before, after) = text.split_at(1 + tag.name().as_ref().len());
        let document = Bytes::from([before, &declarations, after].concat());
        match self.open.last_mut() {
            // An item has one payload (XEP-0060, section 7.1.3.6).
            Some(open) if open.element.document.is_some() => Err(ElementError::Malformed),
            Some(open) => {
                open.element.document = Some(document);
                Ok(())
            }
            None => Err(ElementError::Malformed),
        }
    }
}

/// The prefix that an attribute declares, empty for the default namespace; `None`: it declares none.
fn declared(name: &str) -> Option<&str> {
    match name.strip_prefix("xmlns") {
        Some("") => Some(""),
        Some(rest) => rest.strip_prefix(':'),
        None => None,
    }
}

fn attributes_of(tag: &BytesStart<'_>) -> Result<Vec<(String, String)>, ElementError> {
    let mut found = Vec::new();
    for attribute in tag.attributes().with_checks(false) {
        let attribute = attribute.map_err(|_| ElementError::Malformed)?;
        let name: &str = attribute.key.as_ref();
        let value = attribute.normalized_value(XmlVersion::Implicit1_0);
        let value = value.map_err(|_| ElementError::Malformed)?;
        if found.len() == MOST_ATTRIBUTES {
            return Err(ElementError::TooMany);
        }
        found.push((name.to_owned(), value.into_owned()));
    }
    Ok(found)
}

/// Reads to the end of the element whose start tag was read, whatever it consists of.
fn skip(reader: &mut Reader<&[u8]>) -> Result<(), ElementError> {
    let mut depth = 1;
    while depth > 0 {
        match reader.read_event().map_err(|_| ElementError::Malformed)? {
            Event::Start(_) => depth += 1,
            Event::End(_) => depth -= 1,
            Event::Eof => return Err(ElementError::Malformed),
            _ => {}
        }
    }
    Ok(())
}

fn position(reader: &Reader<&[u8]>) -> usize {
    usize::try_from(reader.buffer_position()).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream() -> Scope {
        let header = "<stream:stream xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams' id='a&amp;b'>";
        let (element, scope) = Element::scope_of_header(header).unwrap();
        assert_eq!(element.attribute("id"), Some("a&b"));
        scope
    }

    fn document_of(stanza: &str) -> String {
        fn find(element: &Element) -> Option<&Bytes> {
            let of_children = || element.children.iter().find_map(find);
            element.document.as_ref().or_else(of_children)
        }
        let element = Element::parse(stanza, &stream()).unwrap();
        String::from_utf8(find(&element).unwrap().to_vec()).unwrap()
    }

    #[test]
    fn elements_have_namespaces_attributes_and_text() {
        let text = "<p:a xmlns:p='urn:p' b='&lt;1&#65;' xml:lang='en'>x &amp; <c/><c xmlns='urn:c'>y<![CDATA[<z>]]></c></p:a>";
        let element = Element::parse(text, &stream()).unwrap();
        assert!(element.is("urn:p", "a"));
        assert_eq!(element.attribute("b"), Some("<1A"));
        assert_eq!(element.text, "x & ");
        assert!(element.child("jabber:client", "c").unwrap().text.is_empty());
        assert_eq!(element.child("urn:c", "c").unwrap().text, "y<z>");
    }

    #[test]
    fn namespaces_declared_around_a_document_count_for_it() {
        let document = document_of(
            "<message xmlns:rs='urn:rs' xmlns:x='urn:1'><event xmlns='http://jabber.org/protocol/pubsub#event' xmlns:x='urn:&quot;2'>\
             <items node='n'><item id='1'>\n <urlset xmlns='urn:s' x:a='b>'><url/>&amp;</urlset> </item></items></event></message>",
        );
        assert_eq!(
            document,
            "<urlset xmlns:rs=\"urn:rs\" xmlns:stream=\"http://etherx.jabber.org/streams\" xmlns:x=\"urn:&quot;2\" \
             xmlns='urn:s' x:a='b>'><url/>&amp;</urlset>"
        );
        let own = "<message><event xmlns='http://jabber.org/protocol/pubsub#event'><items><item><a xmlns=''/></item></items></event></message>";
        assert!(document_of(own).ends_with(" xmlns=''/>"));
    }

    #[test]
    fn stanza_of_the_draft_is_understood() {
        // Example 5.5, with end tags that match.
        let stanza = "<xmpp:iq from=\"sender@example.com\" type=\"set\" to=\"destination.com\" id=\"liAJUz3S\"
            xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" xmlns:xmpp=\"http://jabber.org/protocol/pubsub\"
            xmlns:rs=\"http://www.openarchives.org/rs/terms/\"><xmpp:pubsub><xmpp:publish node=\"PubSub_NodeName\">
            <xmpp:item id=\"3294\"><urlset rs:type=\"changeset\"><url/></urlset></xmpp:item></xmpp:publish></xmpp:pubsub></xmpp:iq>";
        assert_eq!(
            document_of(stanza),
            "<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" xmlns:rs=\"http://www.openarchives.org/rs/terms/\" \
             xmlns:stream=\"http://etherx.jabber.org/streams\" xmlns:xmpp=\"http://jabber.org/protocol/pubsub\" \
             rs:type=\"changeset\"><url/></urlset>"
        );
    }

    #[test]
    fn what_is_no_stanza_and_what_is_too_much_is_rejected() {
        let many = format!("<a>{}</a>", "<b/>".repeat(MOST_ELEMENTS));
        let attributes: String = (0..=MOST_ATTRIBUTES).map(|i| format!(" a{i}=''")).collect();
        let nested: String = (0..MOST_DECLARATIONS)
            .map(|i| format!("<a xmlns:n{i}='u'>"))
            .collect();
        let two = "<message><event xmlns='http://jabber.org/protocol/pubsub#event'><item><a/><b/></item></event></message>";
        for (text, expected) in [
            (many.as_str(), ElementError::TooMany),
            (&format!("<a{attributes}/>"), ElementError::TooMany),
            (&nested, ElementError::TooMany),
            ("<a><b></a></b>", ElementError::Malformed),
            ("<p:a/>", ElementError::Malformed),
            ("<a>&unknown;</a>", ElementError::Malformed),
            ("<a b='&unknown;'/>", ElementError::Malformed),
            ("<a b=1/>", ElementError::Malformed),
            (two, ElementError::Malformed),
        ] {
            assert_eq!(Element::parse(text, &stream()), Err(expected), "{text}");
        }
    }
}
