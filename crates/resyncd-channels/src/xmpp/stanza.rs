//! The stanzas of an XMPP stream (RFC 6120, section 4), read as they arrive. `rxml` parses: it knows no DTD, processing instructions,
//! comments or entities (RFC 6120, section 11.1).
//!
//! Invariants: a stanza takes bounded memory, whatever it consists of. What is wrong inside of one is an error of it, or of one of its
//! items, and the next one is read; only what makes it impossible to find the next one ends the stream. A document is written only if
//! the service itself has sent the stanza.

use rxml::error::{EndOrError, Error};
use rxml::parser::Event;
use rxml::{Options, Parse, Parser, WithOptions};

use super::element::{LONGEST_SCOPE, MOST_DEEP, MOST_PARTS, StanzaElement};
use super::error::XmppError;
use super::payload::StanzaPayload;

/// How much longer than a document a stanza may be, in bytes.
pub(super) const AROUND: usize = 64 << 10;
/// How deep a stream may be nested: each level takes time to resolve a prefix.
const DEEPEST: usize = 500;
/// How long a name, the value of an attribute, or a text that is passed on at once may be, in bytes.
pub(super) const LONGEST_TOKEN: usize = 16 << 10;
/// How long a start tag may be, in bytes.
pub(super) const LONGEST_TAG: usize = 2 * LONGEST_TOKEN;

/// A part of a stream.
#[derive(Clone, Debug)]
pub(super) enum Piece {
    /// The start tag that begins the stream.
    Header(StanzaElement),
    /// A complete element below it.
    Stanza(StanzaElement),
    /// The end tag of the stream.
    End,
}

/// Makes stanzas of bytes.
pub(super) struct StanzaReader {
    parser: Parser,
    /// The longest stanza, in bytes.
    limit: usize,
    /// Whose documents count.
    service: Option<String>,
    /// How many bytes of the stanza were read.
    length: usize,
    /// How many of them are of a part that is not complete.
    unfinished: usize,
    /// How long the start tags of the open elements are, and all of them.
    tags: Vec<usize>,
    scope: usize,
    stanza: Option<Stanza>,
}

impl StanzaReader {
    /// A stream that begins. `service`: whose documents count; without one, none do.
    pub(super) fn new(limit: usize, service: Option<String>) -> Self {
        let options = Options {
            max_token_length: LONGEST_TOKEN,
            ..Options::default()
        };
        let mut parser = Parser::with_options(options);
        // Otherwise a text waits for what follows.
        parser.set_text_buffering(false);
        Self {
            parser,
            limit,
            service,
            length: 0,
            unfinished: 0,
            tags: Vec::new(),
            scope: 0,
            stanza: None,
        }
    }

    /// Whether a stanza is incomplete.
    pub(super) fn is_in_stanza(&self) -> bool {
        self.tags.len() > 1 || self.unfinished > 0
    }

    /// The next piece that is complete; `None`: all of the input is read.
    ///
    /// # Errors
    /// [`XmppError`]; the stream can't be read further then.
    pub(super) fn next(&mut self, input: &mut &[u8]) -> Result<Option<Piece>, XmppError> {
        loop {
            if !self.is_in_stanza() {
                // White space keeps a connection alive.
                *input = input.trim_ascii_start();
            }
            let available = input.len();
            let parsed = self.parser.parse(input, false);
            let read = available - input.len();
            self.length += read;
            self.unfinished += read;
            if self.length > self.limit {
                return Err(XmppError::TooLarge(self.limit));
            }
            match parsed {
                Ok(Some(event)) => {
                    self.unfinished = 0;
                    if let Some(piece) = self.take(event)? {
                        self.length = 0;
                        return Ok(Some(piece));
                    }
                }
                Ok(None) => return Ok(Some(Piece::End)),
                Err(EndOrError::NeedMoreData) if self.unfinished > LONGEST_TAG => {
                    return Err(XmppError::LongTag);
                }
                Err(EndOrError::NeedMoreData) => return Ok(None),
                // The parser says of a value that is too long no more than that XMPP does not allow it.
                Err(EndOrError::Error(Error::RestrictedXml(_)))
                    if self.unfinished >= LONGEST_TOKEN =>
                {
                    return Err(XmppError::LongTag);
                }
                Err(EndOrError::Error(error)) => {
                    return Err(malformed(&error.to_string()));
                }
            }
        }
    }

    fn take(&mut self, event: Event) -> Result<Option<Piece>, XmppError> {
        match &event {
            Event::XmlDeclaration(..) => {
                self.length = 0;
                return Ok(None);
            }
            Event::StartElement(metrics, ..) => {
                if self.tags.len() == DEEPEST {
                    return Err(XmppError::Protocol(format!(
                        "the elements of a stanza are nested more than {DEEPEST} deep"
                    )));
                }
                self.tags.push(metrics.len());
                self.scope += metrics.len();
            }
            Event::EndElement(_) => self.scope -= self.tags.pop().unwrap_or(0),
            Event::Text(..) => {}
        }
        match (&mut self.stanza, event) {
            (Some(stanza), event) => {
                if self.scope > LONGEST_SCOPE {
                    stanza.fail(long_tags());
                }
                let complete = stanza.take(event);
                if complete.is_some() {
                    self.stanza = None;
                }
                Ok(complete.map(Piece::Stanza))
            }
            (None, Event::StartElement(_, name, attributes)) => {
                let element = StanzaElement::new(name, attributes);
                if self.tags.len() == 1 {
                    return Ok(Some(Piece::Header(element)));
                }
                let is_of_service = self.service.as_ref().is_some_and(|it| element.is_from(it));
                self.stanza = Some(Stanza::new(element, is_of_service, self.limit));
                Ok(None)
            }
            (None, Event::EndElement(_)) => Ok(Some(Piece::End)),
            (None, _) => Err(malformed("text between stanzas")),
        }
    }
}

fn long_tags() -> XmppError {
    XmppError::Item(format!(
        "the start tags of nested elements are longer than {LONGEST_SCOPE} bytes"
    ))
}

fn too_many() -> XmppError {
    XmppError::Item("it has too many elements or attributes".to_owned())
}

fn two_documents() -> XmppError {
    XmppError::Item("it has two documents".to_owned())
}

fn malformed(why: &str) -> XmppError {
    XmppError::Protocol(format!(
        "the stream is not XML, or has what XMPP forbids: {why}"
    ))
}

/// A stanza that is not complete.
struct Stanza {
    /// The elements that are open, the outermost first.
    open: Vec<StanzaElement>,
    /// How many elements are open in the innermost of them: those of a document, or of what is not retained.
    inside: usize,
    document: Option<StanzaPayload>,
    /// Whether its documents count.
    is_of_service: bool,
    /// How many elements and attributes it has.
    parts: usize,
    /// How many bytes a document may have.
    longest: usize,
    /// How many bytes its documents may have together.
    room: usize,
    /// Why nothing more is retained.
    fault: Option<XmppError>,
}

impl Stanza {
    /// `limit`: how many bytes it may have.
    fn new(element: StanzaElement, is_of_service: bool, limit: usize) -> Self {
        Self {
            open: vec![element],
            inside: 0,
            document: None,
            is_of_service,
            parts: 0,
            longest: limit.saturating_sub(AROUND),
            // With the declarations that they need on their own.
            room: limit.saturating_mul(2),
            fault: None,
        }
    }

    /// Adds what was read of it. Returns it when it is complete.
    fn take(&mut self, event: Event) -> Option<StanzaElement> {
        if self.inside > 0 {
            // The last end tag belongs to the document as well: it may be the one that is too much.
            self.write(&event);
            match event {
                Event::StartElement(..) => self.inside += 1,
                Event::EndElement(_) => self.inside -= 1,
                _ => {}
            }
            return None;
        }
        let is_in_item = self.open.last().is_some_and(StanzaElement::is_item);
        match event {
            Event::StartElement(..) if is_in_item || self.fault.is_some() => {
                self.inside = 1;
                self.begin_document();
                self.write(&event);
            }
            Event::StartElement(_, name, attributes) => {
                self.begin(StanzaElement::new(name, attributes))
            }
            Event::EndElement(_) => return self.end(),
            Event::Text(_, text) if !is_in_item && self.fault.is_none() => {
                if let Some(open) = self.open.last_mut() {
                    open.text.push_str(&text);
                }
            }
            Event::Text(..) | Event::XmlDeclaration(..) => {}
        }
        None
    }

    fn begin(&mut self, element: StanzaElement) {
        self.parts += element.parts();
        if self.open.len() == MOST_DEEP {
            self.fail(XmppError::too_deep());
        } else if self.parts > MOST_PARTS {
            self.fail(too_many());
        }
        match self.fault {
            None => self.open.push(element),
            Some(_) => self.inside = 1,
        }
    }

    fn end(&mut self) -> Option<StanzaElement> {
        let mut element = self.open.pop()?;
        match self.open.last_mut() {
            Some(parent) => {
                parent.children.push(element);
                None
            }
            None => {
                element.fault = self.fault.take();
                Some(element)
            }
        }
    }

    fn begin_document(&mut self) {
        if self.is_of_service
            && self.fault.is_none()
            && let Some(item) = self.open.last_mut()
        {
            match &item.document {
                None => self.document = Some(StanzaPayload::new(self.room.min(self.longest))),
                Some(_) => item.document = Some(Err(two_documents())),
            }
        }
    }

    /// Adds to the document, if there is one.
    fn write(&mut self, event: &Event) {
        let Some(document) = &mut self.document else {
            return;
        };
        if let Err(fault) = document.write(event) {
            return self.fail(fault);
        }
        if let Some(document) = document.finish()
            && let Some(item) = self.open.last_mut()
        {
            self.document = None;
            self.room -= document.len();
            item.document = Some(Ok(document));
        }
    }

    /// The document is not accepted; or else nothing of what follows in the stanza.
    fn fail(&mut self, fault: XmppError) {
        if self.inside == 0 {
            self.fault.get_or_insert(fault);
        } else if let Some(document) = self.document.take()
            && let Some(item) = self.open.last_mut()
        {
            // Writing it has taken time all the same.
            self.room = self.room.saturating_sub(document.len());
            item.document = Some(Err(fault));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xmpp::names::{CLIENT, PUBSUB, PUBSUB_EVENT, STREAM};

    const LIMIT: usize = 256 << 10;
    const SERVICE: &str = "pubsub.example.org";
    const HEADER: &str = "<stream:stream xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams' id='a&amp;b'>";

    /// The pieces of a stream that comes in chunks of so many bytes.
    fn pieces(stream: &str, chunk: usize) -> Result<Vec<Piece>, XmppError> {
        let mut reader = StanzaReader::new(LIMIT, Some(SERVICE.to_owned()));
        let mut found = Vec::new();
        for mut chunk in stream.as_bytes().chunks(chunk) {
            while let Some(piece) = reader.next(&mut chunk)? {
                found.push(piece);
            }
        }
        Ok(found)
    }

    /// The only stanza of a stream.
    fn stanza(text: &str) -> StanzaElement {
        let mut pieces = pieces(&format!("{HEADER}{text}"), 5000).unwrap();
        assert_eq!(pieces.len(), 2, "{pieces:?}");
        match pieces.pop() {
            Some(Piece::Stanza(element)) => element,
            other => panic!("{other:?}"),
        }
    }

    fn event(from: &str, items: &str) -> String {
        format!(
            "<message from='{from}'><event xmlns='{PUBSUB_EVENT}'><items node='n'>{items}</items></event></message>"
        )
    }

    /// What the items of a stanza carry.
    fn documents(element: &StanzaElement) -> Vec<Option<Result<String, XmppError>>> {
        let of_item = |item: &StanzaElement| {
            let document = item.document.clone()?;
            Some(document.map(|it| String::from_utf8(it.to_vec()).unwrap()))
        };
        if element.is_item() {
            vec![of_item(element)]
        } else {
            element.children.iter().flat_map(documents).collect()
        }
    }

    #[test]
    fn stanzas_are_read_however_they_are_received() {
        let stream = format!(
            "<?xml version='1.0'?>\n{HEADER} \n<a/>\n<p:b xmlns:p='urn:p' c='&lt;1&#65;/>' xml:lang='en'>x &amp; <ä/><c xmlns='urn:c'>\
             y<![CDATA[<z>]]></c></p:b><d></d >  </stream:stream>"
        );
        for chunk in [1, 2, 7, 1000] {
            let pieces = pieces(&stream, chunk).unwrap();
            let [
                Piece::Header(header),
                Piece::Stanza(a),
                Piece::Stanza(b),
                Piece::Stanza(d),
                Piece::End,
            ] = &pieces[..]
            else {
                panic!("{pieces:?}");
            };
            assert!(header.is(STREAM, "stream") && header.attribute("id") == Some("a&b"));
            assert!(a.is(CLIENT, "a") && d.is(CLIENT, "d"));
            assert!(b.is("urn:p", "b") && b.attribute("c") == Some("<1A/>"));
            assert_eq!(b.attribute("lang"), None);
            assert_eq!(b.text, "x & ");
            assert!(b.child(CLIENT, "ä").is_some());
            assert_eq!(b.child("urn:c", "c").unwrap().text, "y<z>");
        }
    }

    #[test]
    fn what_xmpp_forbids_and_what_has_no_end_is_rejected() {
        let long = "x".repeat(LIMIT);
        let (deep, tags) = ("<a>".repeat(DEEPEST), " a=''".repeat(LONGEST_TAG));
        let malformed = malformed("");
        for (stream, expected) in [
            ("<!DOCTYPE a [<!ENTITY b 'c'>]>", malformed.clone()),
            ("<s><!DOCTYPE a>", malformed.clone()),
            ("<s><a><!ENTITY b 'c'>", malformed.clone()),
            ("<s><a><!-- c -->", malformed.clone()),
            ("<s><a><?p i?>", malformed.clone()),
            ("<s><?p i?>", malformed.clone()),
            ("<s><a>&b;", malformed.clone()),
            ("<s><a b='&c;'/>", malformed.clone()),
            ("<s><a b='' b=''/>", malformed.clone()),
            ("<s><a:b/>", malformed.clone()),
            ("<s><a></b>", malformed.clone()),
            ("<s>text<", malformed.clone()),
            ("text", malformed.clone()),
            ("</s>", malformed.clone()),
            ("<s><a b='<'>", malformed.clone()),
            ("<s><a b=1>", malformed),
            (&format!("<s><a b='{long}"), XmppError::LongTag),
            (&format!("<s><a>{long}"), XmppError::TooLarge(LIMIT)),
            (
                &format!("<s><a>{}", "&lt;".repeat(LIMIT / 2)),
                XmppError::TooLarge(LIMIT),
            ),
            (
                &format!("<s><a><![CDATA[{long}"),
                XmppError::TooLarge(LIMIT),
            ),
            (
                &format!("<s><a>{}", "<b/>".repeat(LIMIT / 2)),
                XmppError::TooLarge(LIMIT),
            ),
            (&format!("<s><a{tags}"), XmppError::LongTag),
            (&format!("<s{tags}"), XmppError::LongTag),
            (
                &format!("<s>{deep}"),
                XmppError::Protocol(format!(
                    "the elements of a stanza are nested more than {DEEPEST} deep"
                )),
            ),
        ] {
            for chunk in [1, 1000] {
                let found = pieces(stream, chunk).unwrap_err();
                let start: String = stream.chars().take(60).collect();
                let is_expected = found.code() == expected.code()
                    && found.to_string().starts_with(&expected.to_string());
                assert!(is_expected, "{start} {chunk}: {found}");
            }
        }
    }

    #[test]
    fn short_stanzas_of_a_long_stream_are_not_too_large() {
        let stream = format!("<s>{}", "<a/> ".repeat(LIMIT / 2));
        assert_eq!(pieces(&stream, 1000).unwrap().len(), LIMIT / 2 + 1);
        let blank = format!("<s>{}", " ".repeat(2 * LIMIT));
        assert_eq!(pieces(&blank, 1000).unwrap().len(), 1);
    }

    #[test]
    fn keeping_a_connection_alive_is_no_stanza() {
        let mut reader = StanzaReader::new(LIMIT, None);
        for (text, is_in_stanza) in [
            (HEADER, false),
            ("\n", false),
            ("<", true),
            ("a", true),
            (">", true),
            (" ", true),
            ("</a", true),
            (">", false),
            (" ", false),
        ] {
            let mut input = text.as_bytes();
            while reader.next(&mut input).unwrap().is_some() {}
            assert_eq!(reader.is_in_stanza(), is_in_stanza, "{text}");
        }
    }

    #[test]
    fn item_has_the_same_document_however_it_arrives() {
        let item = "<item id='1'>\n<s:urlset xmlns:s='urn:s' r:t='c'><s:url/></s:urlset> </item>";
        let event = stanza(&event(SERVICE, item).replace("<message", "<message xmlns:r='urn:r'"));
        let answer = stanza(&format!(
            "<iq from='Pubsub.Example.org' xmlns:r='urn:r' xmlns:x='urn:x'><pubsub xmlns='{PUBSUB}'><items node='n'>{item}</items></pubsub></iq>"
        ));
        let expected = "<urlset xmlns='urn:s' xmlns:tns0='urn:r' tns0:t='c'><url></url></urlset>";
        let expected = [Some(Ok(expected.to_owned()))];
        assert_eq!(documents(&event), expected);
        assert_eq!(documents(&answer), expected);
        // Example 5.5, with end tags that match.
        let draft = stanza(&format!(
            "<xmpp:iq from='{SERVICE}' type='set' xmlns='urn:s' xmlns:xmpp='{PUBSUB}' xmlns:r='urn:r'><xmpp:pubsub>\
             <xmpp:publish node='n'><xmpp:item id='1'><urlset r:t='c'><url/></urlset></xmpp:item></xmpp:publish></xmpp:pubsub></xmpp:iq>"
        ));
        assert_eq!(documents(&draft), expected);
    }

    #[test]
    fn only_documents_of_the_service_are_written() {
        let item = "<item id='1'><a/></item>";
        for (from, expected) in [
            (SERVICE, Some(Ok(format!("<a xmlns='{PUBSUB_EVENT}'></a>")))),
            ("evil@example.org/r", None),
            ("pubsub.example.org/r", None),
        ] {
            let stanza = stanza(&event(from, item));
            assert!(stanza.fault.is_none());
            assert_eq!(documents(&stanza), [expected], "{from}");
        }
    }

    #[test]
    fn what_is_wrong_in_an_item_is_an_error_of_the_item() {
        let good = "<item><a xmlns='urn:a'/></item>";
        let deep = format!(
            "<item>{}{}</item>",
            "<a>".repeat(MOST_DEEP + 1),
            "</a>".repeat(MOST_DEEP + 1)
        );
        let tag = format!("<a xmlns:n='{}'>", "n".repeat(10_000));
        let scope = format!("<item>{}{}</item>", tag.repeat(7), "</a>".repeat(7));
        for (bad, fault) in [
            ("<item><a/><b/></item>", two_documents()),
            (&deep, XmppError::too_deep()),
            (&scope, long_tags()),
        ] {
            let stanza = stanza(&event(SERVICE, &format!("{good}{bad}{good}")));
            let good = Some(Ok("<a xmlns='urn:a'></a>".to_owned()));
            assert!(stanza.fault.is_none());
            assert_eq!(documents(&stanza), [good.clone(), Some(Err(fault)), good]);
        }
    }

    #[test]
    fn stanza_that_is_too_much_is_skipped() {
        let wide = "<a/>".repeat(MOST_PARTS + 1);
        let attributes: String = (0..3000).map(|i| format!(" a{i}=''")).collect();
        let deep = format!("{}{}", "<a>".repeat(200), "</a>".repeat(200));
        for (content, fault) in [
            (wide, too_many()),
            (format!("<a{attributes}/>").repeat(3), too_many()),
            (deep, XmppError::too_deep()),
        ] {
            let stanza = stanza(&format!("<message from='a@b'>{content}</message>"));
            assert_eq!(stanza.fault, Some(fault));
            assert_eq!(stanza.attribute("from"), Some("a@b"));
        }
    }

    #[test]
    fn document_whose_end_tag_is_beyond_its_limit_leaves_the_next_item() {
        let read = |length: usize| {
            let filler = "x".repeat(length);
            let items = format!("<item id='1'><d>{filler}</d></item><item id='2'><e/></item>");
            let element = stanza(&event(SERVICE, &items));
            assert_eq!(element.fault, None, "{length}");
            documents(&element)
        };
        let fits = |length: usize| matches!(read(length)[0], Some(Ok(_)));
        let longest = LIMIT - AROUND;
        let most = (longest - 200..longest)
            .rfind(|&length| fits(length))
            .unwrap();
        for length in most + 1..most + 7 {
            let [first, second] = &read(length)[..] else {
                panic!("{length}");
            };
            assert!(
                matches!(first, Some(Err(XmppError::TooLarge(_)))),
                "{length}: {first:?}"
            );
            assert!(matches!(second, Some(Ok(_))), "{length}: {second:?}");
        }
    }

    #[test]
    fn documents_of_a_stanza_are_bounded_whatever_is_declared_around_them() {
        let namespace = "n".repeat(15_000);
        let items = "<item><x:a/></item>".repeat(4000);
        let bomb =
            event(SERVICE, &items).replace("<items", &format!("<items xmlns:x='{namespace}'"));
        let documents = documents(&stanza(&bomb));
        assert_eq!(documents.len(), 4000);
        let lengths = documents.iter().flatten().flatten().map(String::len);
        assert!(lengths.sum::<usize>() <= 2 * LIMIT);
        let faults = documents.iter().flatten().filter(|it| it.is_err());
        assert!(faults.count() > 3900);
        // Those that are too long count as well: writing them takes time.
        let long = format!("<item><a xmlns='urn:a'>{}</a></item>", "<x:b/>".repeat(20));
        let small = "<item><a xmlns='urn:a'/></item>";
        let last_of = |count: usize| {
            let items = format!("{}{small}", long.repeat(count));
            let event = event(SERVICE, &items);
            let stanza = stanza(&event.replace("<items", &format!("<items xmlns:x='{namespace}'")));
            self::documents(&stanza).pop().flatten().unwrap().is_ok()
        };
        assert!(last_of(1));
        assert!(!last_of(5));
        // What is declared and not used costs nothing.
        let unused = bomb.replace("<x:a/>", "<a xmlns='urn:a'/>");
        for document in self::documents(&stanza(&unused)) {
            assert_eq!(document, Some(Ok("<a xmlns='urn:a'></a>".to_owned())));
        }
    }
}
