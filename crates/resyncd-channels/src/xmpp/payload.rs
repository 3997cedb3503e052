//! The document that an item of a node carries, written again as it is read.
//!
//! Invariant: the bytes depend on the document alone, not on the stanza around it, nor on its prefixes: an item has the same however
//! it arrives. Only the namespaces that it uses are declared, each once: that of the root element as the default.

use bytes::{BufMut, Bytes};
use rxml::parser::Event;
use rxml::writer::{PrefixError, TrackNamespace};
use rxml::{Encoder, Item, Namespace, NcName, NcNameStr, PREFIX_XML, XMLNS_XML};

use super::element::{MOST_DEEP, MOST_NAMESPACES, StanzaFault};

/// A document that is not complete.
pub(super) struct StanzaPayload {
    encoder: Encoder<Prefixes>,
    text: Vec<u8>,
    /// Where the declarations of prefixes belong: in the start tag of the root element.
    declarations: usize,
    deep: usize,
    /// How many bytes it may have.
    limit: usize,
}

impl StanzaPayload {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            encoder: Encoder::from(Prefixes::default()),
            text: Vec::new(),
            declarations: 0,
            deep: 0,
            limit,
        }
    }

    /// Adds what was read of it.
    pub(super) fn write(&mut self, event: &Event) -> Result<(), StanzaFault> {
        match event {
            Event::StartElement(..) => self.deep += 1,
            Event::EndElement(..) => self.deep -= 1,
            _ => {}
        }
        if self.deep > MOST_DEEP {
            return Err(StanzaFault::TooDeep);
        }
        self.encode(event).map_err(|_| StanzaFault::Unwritable)?;
        if self.encoder.ns_tracker().known.len() > MOST_NAMESPACES {
            return Err(StanzaFault::TooMany);
        }
        self.check_length()
    }

    /// Whether its root element has ended.
    pub(super) fn is_complete(&self) -> bool {
        self.deep == 0
    }

    /// The document.
    pub(super) fn finish(mut self) -> Result<Bytes, StanzaFault> {
        let rest = self.text.split_off(self.declarations);
        for (namespace, prefix) in &self.encoder.ns_tracker().known {
            let namespace = quick_xml::escape::escape(namespace.as_str());
            self.text
                .put_slice(format!(" xmlns:{}='{namespace}'", prefix.as_str()).as_bytes());
        }
        self.text.put_slice(&rest);
        self.check_length()?;
        Ok(Bytes::from(self.text))
    }

    fn encode(&mut self, event: &Event) -> rxml::Result<()> {
        let (encoder, text) = (&mut self.encoder, &mut self.text);
        match event {
            Event::StartElement(_, (namespace, name), attributes) if self.declarations == 0 => {
                encoder.encode(Item::ElementHeadStart(namespace.borrow(), name), text)?;
                self.declarations = text.len();
                for ((namespace, name), value) in attributes {
                    encoder.encode(Item::Attribute(namespace.borrow(), name, value), text)?;
                }
                encoder.encode(Item::ElementHeadEnd, text)
            }
            event => encoder.encode_event(event, text),
        }
    }

    fn check_length(&self) -> Result<(), StanzaFault> {
        if self.text.len() > self.limit {
            Err(StanzaFault::TooLong(self.limit))
        } else {
            Ok(())
        }
    }
}

/// The namespaces of a document. Each but the one of the root element has a prefix in all of it.
#[derive(Default)]
struct Prefixes {
    /// Those that have a prefix, in the order in which they are used.
    known: Vec<(Namespace<'static>, NcName)>,
    /// The default namespaces of the elements that are open.
    defaults: Vec<Namespace<'static>>,
    /// The one that the next element declares.
    declared: Option<Namespace<'static>>,
}

impl Prefixes {
    fn current(&self) -> &Namespace<'static> {
        self.defaults.last().unwrap_or(Namespace::none())
    }

    fn prefix_of(&mut self, namespace: Namespace<'static>) -> &NcNameStr {
        if namespace == XMLNS_XML {
            return PREFIX_XML;
        }
        let place = self.known.iter().position(|(known, _)| *known == namespace);
        let place = place.unwrap_or_else(|| {
            let prefix = NcName::try_from(format!("ns{}", self.known.len() + 1));
            let prefix = prefix.expect("letters and digits are a name");
            self.known.push((namespace, prefix));
            self.known.len() - 1
        });
        &self.known[place].1
    }
}

impl TrackNamespace for Prefixes {
    fn declare_fixed(&mut self, _: Option<&NcNameStr>, _: Namespace<'static>) -> bool {
        false
    }

    fn declare_auto(&mut self, namespace: Namespace<'static>) -> (bool, Option<&NcNameStr>) {
        if namespace == *self.current() {
            return (false, None);
        }
        if namespace == XMLNS_XML {
            return (false, Some(PREFIX_XML));
        }
        // There is no prefix for no namespace.
        if self.defaults.is_empty() || namespace.is_none() {
            self.declared = Some(namespace);
            return (true, None);
        }
        (false, Some(self.prefix_of(namespace)))
    }

    fn declare_with_auto_prefix(&mut self, namespace: Namespace<'static>) -> (bool, &NcNameStr) {
        (false, self.prefix_of(namespace))
    }

    fn get_prefix_or_default(
        &self,
        namespace: Namespace<'static>,
    ) -> Result<Option<&NcNameStr>, PrefixError> {
        if namespace == *self.current() {
            Ok(None)
        } else {
            self.get_prefix(namespace).map(Some)
        }
    }

    fn get_prefix(&self, namespace: Namespace<'static>) -> Result<&NcNameStr, PrefixError> {
        let mut known = self.known.iter();
        let found = known.find(|(known, _)| *known == namespace);
        found.map_or(Err(PrefixError::Undeclared), |(_, prefix)| Ok(&**prefix))
    }

    fn push(&mut self) {
        let default = self.declared.take();
        let default = default.unwrap_or_else(|| self.current().clone());
        self.defaults.push(default);
    }

    fn pop(&mut self) {
        self.defaults.pop();
    }

    fn new_default_declaration(&self) -> Option<&Namespace<'static>> {
        self.declared.as_ref()
    }

    fn new_prefix_declarations(
        &self,
    ) -> Box<dyn Iterator<Item = (&Namespace<'static>, &NcNameStr)> + '_> {
        Box::new(std::iter::empty())
    }
}

#[cfg(test)]
mod tests {
    use rxml::{Parse, Parser};

    use super::*;

    /// What is written of an element; its own document, or one below it.
    fn written(text: &str, outer: usize, limit: usize) -> Result<String, StanzaFault> {
        let (mut parser, mut input) = (Parser::new(), text.as_bytes());
        let mut payload = StanzaPayload::new(limit);
        let mut deep = 0;
        while let Some(event) = parser.parse(&mut input, true).unwrap() {
            if matches!(event, Event::EndElement(_)) {
                deep -= 1;
            }
            let is_inside = deep >= outer && !matches!(event, Event::Text(..) if deep == outer);
            if matches!(event, Event::StartElement(..)) {
                deep += 1;
            }
            if is_inside {
                payload.write(&event)?;
            }
        }
        assert!(payload.is_complete());
        Ok(String::from_utf8(payload.finish()?.to_vec()).unwrap())
    }

    #[test]
    fn document_does_not_depend_on_what_is_around_it() {
        let expected = "<a xmlns='urn:a' xmlns:ns1='urn:r' xmlns:ns2='urn:&amp;' xmlns:ns3='urn:a' k='1' xml:lang='en' \
                        ns1:t='&#34;&#39;'>x&amp;<ns1:b></ns1:b><c xmlns='' ns2:d=''><ns3:e></ns3:e></c>&lt;</a>";
        for text in [
            "<a xmlns='urn:a' xmlns:r='urn:r' xmlns:unused='urn:u' k='1' xml:lang='en' r:t='\"&apos;'>x&#38;<r:b/>\
             <c xmlns='' xmlns:p='urn:&amp;' p:d=''><e xmlns='urn:a'/></c><![CDATA[<]]></a>",
            "<q:a xmlns:q='urn:a' xmlns:s='urn:r' s:t=\"&quot;'\" xml:lang='en' k='1'>x&amp;<b xmlns='urn:r'></b>\
             <c z:d='' xmlns:z='urn:&#38;'><q:e></q:e></c>&lt;</q:a>",
        ] {
            assert_eq!(written(text, 0, 1000).unwrap(), expected, "{text}");
        }
        let around = "<m xmlns='urn:m' xmlns:s='urn:s' xmlns:t='urn:t'><i> <s:u t:v='w'><s:x/></s:u> </i></m>";
        assert_eq!(
            written(around, 2, 1000).unwrap(),
            "<u xmlns='urn:s' xmlns:ns1='urn:t' ns1:v='w'><x></x></u>"
        );
    }

    #[test]
    fn document_is_bounded() {
        let deep = format!("{}{}", "<a>".repeat(101), "</a>".repeat(101));
        let wide = format!("<a>{}</a>", "<b/>".repeat(100));
        let many: String = (0..=MOST_NAMESPACES)
            .map(|i| format!("<a xmlns='urn:{i}'/>"))
            .collect();
        let many = format!("<x>{many}</x>");
        let long = format!("<a xmlns:x='{}'><x:b/></a>", "u".repeat(500));
        for (text, expected) in [
            (deep.as_str(), StanzaFault::TooDeep),
            (&wide, StanzaFault::TooLong(600)),
            (&many, StanzaFault::TooMany),
            (&long, StanzaFault::TooLong(520)),
        ] {
            let limit = match expected {
                StanzaFault::TooLong(limit) => limit,
                _ => 10_000,
            };
            assert_eq!(written(text, 0, limit), Err(expected), "{text}");
        }
        let once = written(
            &format!("<x>{}</x>", "<a xmlns='urn:1'/>".repeat(100)),
            0,
            2000,
        );
        assert_eq!(once.unwrap().matches("urn:1").count(), 1);
    }
}
