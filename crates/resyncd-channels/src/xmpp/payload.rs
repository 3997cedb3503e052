//! The document that an item of a node carries, written again as it is read.
//!
//! Invariant: the bytes depend on the document alone, not on the stanza around it, nor on its prefixes: an item has the same however
//! it arrives. Only the namespaces that it uses are declared.

use bytes::Bytes;
use rxml::Encoder;
use rxml::parser::Event;
use rxml::writer::SimpleNamespaces;

use super::element::MOST_DEEP;
use super::error::XmppError;

/// A document that is not complete.
pub(super) struct StanzaPayload {
    encoder: Encoder<SimpleNamespaces>,
    text: Vec<u8>,
    deep: usize,
    /// How many bytes it may have.
    limit: usize,
}

impl StanzaPayload {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            encoder: Encoder::new(),
            text: Vec::new(),
            deep: 0,
            limit,
        }
    }

    /// Adds what was read of it.
    pub(super) fn write(&mut self, event: &Event) -> Result<(), XmppError> {
        match event {
            Event::StartElement(..) => self.deep += 1,
            Event::EndElement(_) => self.deep -= 1,
            _ => {}
        }
        if self.deep > MOST_DEEP {
            return Err(XmppError::too_deep());
        }
        let written = self.encoder.encode_event(event, &mut self.text);
        written
            .map_err(|_| XmppError::Item("its document has what XML does not allow".to_owned()))?;
        if self.text.len() > self.limit {
            return Err(XmppError::TooLarge(self.limit));
        }
        Ok(())
    }

    /// How many bytes are written of it.
    pub(super) fn len(&self) -> usize {
        self.text.len()
    }

    /// The document, once its root element has ended.
    pub(super) fn finish(&mut self) -> Option<Bytes> {
        (self.deep == 0).then(|| std::mem::take(&mut self.text).into())
    }
}

#[cfg(test)]
mod tests {
    use rxml::{Parse, Parser};

    use super::*;

    /// What is written of an element; its own document, or one below it.
    fn written(text: &str, outer: usize, limit: usize) -> Result<String, XmppError> {
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
        let document = payload.finish().unwrap();
        Ok(String::from_utf8(document.to_vec()).unwrap())
    }

    #[test]
    fn document_does_not_depend_on_what_is_around_it() {
        let expected = "<a xmlns='urn:a' k='1' xml:lang='en' xmlns:tns0='urn:r' tns0:t='&#34;&#39;'>x&amp;<tns0:b></tns0:b>\
                        <c xmlns='' xmlns:tns1='urn:&amp;' tns1:d=''><e xmlns='urn:a'></e></c>&lt;</a>";
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
            "<u xmlns='urn:s' xmlns:tns0='urn:t' tns0:v='w'><x></x></u>"
        );
    }

    #[test]
    fn document_is_bounded() {
        let deep = format!("{}{}", "<a>".repeat(101), "</a>".repeat(101));
        let wide = format!("<a>{}</a>", "<b/>".repeat(100));
        // Each has a declaration of its own.
        let declared = format!(
            "<a xmlns:x='{}'>{}</a>",
            "u".repeat(100),
            "<x:b/>".repeat(10)
        );
        for (text, expected) in [
            (deep, XmppError::too_deep()),
            (wide, XmppError::TooLarge(600)),
            (declared, XmppError::TooLarge(600)),
        ] {
            let limit = match expected {
                XmppError::TooLarge(limit) => limit,
                _ => 10_000,
            };
            assert_eq!(written(&text, 0, limit), Err(expected), "{text}");
        }
    }
}
