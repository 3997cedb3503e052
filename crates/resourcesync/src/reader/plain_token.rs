//! Tags and texts in the form that nearly all have, found in one pass: a text without references, `<name>`, `</name>`, and
//! `<name attribute="value"/>` without references or namespaces.
//!
//! Invariant: what this finds, quick-xml finds as well, and nothing wrong with it. Everything else is left to quick-xml.

use std::ops::Range;

use memchr::{memchr, memchr2};

/// A tag or a text at the begin of a piece of a document, within the root element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PlainToken {
    /// A text of this length, which markup follows.
    Text(usize),
    Open(PlainTag),
    /// The end tag, of this length, of the innermost element.
    Close(usize),
}

/// The start tag of an element, or the tag of an empty one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PlainTag {
    /// The length of its name.
    pub(super) name: usize,
    /// The length of what is between its angle brackets, but for the slash of an empty element.
    pub(super) content: usize,
    pub(super) is_empty: bool,
}

/// Where an attribute is in the content of its tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PlainAttribute {
    pub(super) name: Range<usize>,
    pub(super) value: Range<usize>,
    /// Whether its name has a prefix.
    pub(super) has_prefix: bool,
}

impl PlainToken {
    /// Finds the token at the begin of `text`. `innermost`: the name of the innermost element, if its start tag was found here,
    /// too. The attributes of a tag are added to `attributes`, no more than `limit`.
    pub(super) fn find(
        text: &str,
        innermost: Option<&str>,
        limit: usize,
        attributes: &mut Vec<PlainAttribute>,
    ) -> Option<Self> {
        let Some(markup) = text.strip_prefix('<') else {
            let length = memchr2(b'<', b'&', text.as_bytes())?;
            return text.as_bytes()[length..]
                .starts_with(b"<")
                .then_some(Self::Text(length));
        };
        if let Some(end) = markup.strip_prefix('/') {
            let name = innermost?;
            let is_end = end.strip_prefix(name)?.starts_with('>');
            return is_end.then_some(Self::Close(name.len() + 3));
        }
        attributes.clear();
        find_tag(markup.as_bytes(), limit, attributes).map(Self::Open)
    }

    /// Its length, in bytes.
    pub(super) fn length(&self) -> usize {
        match self {
            Self::Text(length) | Self::Close(length) => *length,
            Self::Open(tag) => tag.content + 2 + usize::from(tag.is_empty),
        }
    }
}

/// The tag that begins with this, but for its angle bracket. Its attributes have different names, none declares a namespace, and
/// their values are what is written.
fn find_tag(markup: &[u8], limit: usize, found: &mut Vec<PlainAttribute>) -> Option<PlainTag> {
    let name = name_length(markup);
    let mut at = name;
    loop {
        let spaces = markup[at..].iter().take_while(|byte| is_space(**byte));
        let next = at + spaces.count();
        let is_empty = match markup.get(next..)? {
            [b'>', ..] => false,
            [b'/', b'>', ..] => true,
            // The first attribute is not a part of the name.
            _ if next == name => return None,
            _ => {
                let attribute = find_attribute(markup, next)?;
                let written = &markup[attribute.name.clone()];
                let is_another = |other: &PlainAttribute| markup[other.name.clone()] != *written;
                if found.len() == limit || !found.iter().all(is_another) {
                    return None;
                }
                at = attribute.value.end + 1;
                found.push(attribute);
                continue;
            }
        };
        return (name > 0).then_some(PlainTag {
            name,
            content: next,
            is_empty,
        });
    }
}

/// The attribute that begins there.
fn find_attribute(markup: &[u8], begin: usize) -> Option<PlainAttribute> {
    let name = begin..begin + name_length(&markup[begin..]);
    let written = &markup[name.clone()];
    let value = name.end + 2;
    let quote = match markup.get(name.end..value)? {
        [b'=', quote @ (b'"' | b'\'')] => *quote,
        _ => return None,
    };
    let value = value..value + memchr(quote, &markup[value..])?;
    let is_literal = markup[value.clone()]
        .iter()
        .fold(true, |is_literal, &byte| is_literal & is_value(byte));
    let is_plain = is_literal && !written.is_empty() && !written.starts_with(b"xmlns");
    is_plain.then(|| PlainAttribute {
        has_prefix: written.contains(&b':'),
        name,
        value,
    })
}

/// The length of the name at the begin of a piece of markup. Some names are longer, and not plain.
fn name_length(markup: &[u8]) -> usize {
    let end = markup.iter().position(|&byte| !IN_NAMES[usize::from(byte)]);
    end.unwrap_or(markup.len())
}

/// Which bytes are those of plain names.
const IN_NAMES: [bool; 256] = {
    let mut in_names = [false; 256];
    let mut byte = 0;
    while byte < 128 {
        let is_other = matches!(byte, b':' | b'-' | b'_' | b'.');
        in_names[byte as usize] = byte.is_ascii_alphanumeric() || is_other;
        byte += 1;
    }
    in_names
};

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

/// Whether a byte of a value stands for itself (XML 1.0, section 3.3.3).
fn is_value(byte: u8) -> bool {
    byte >= b' ' && byte != b'&'
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use quick_xml::XmlVersion;
    use quick_xml::events::{BytesStart, Event};
    use quick_xml::reader::Reader;

    use super::*;

    /// A token as text: its kind, its length, its name or content, and its attributes.
    type Shown = (&'static str, usize, String, Vec<(String, String)>);

    fn show(text: &str, innermost: Option<&str>, limit: usize) -> Option<Shown> {
        let mut attributes = Vec::new();
        let token = PlainToken::find(text, innermost, limit, &mut attributes)?;
        let length = token.length();
        Some(match token {
            PlainToken::Text(_) => ("text", length, text[..length].to_owned(), Vec::new()),
            PlainToken::Close(_) => ("close", length, text[2..length - 1].to_owned(), Vec::new()),
            PlainToken::Open(tag) => {
                let content = &text[1..=tag.content];
                let attributes = attributes.iter().map(|attribute| {
                    let name = &content[attribute.name.clone()];
                    assert_eq!(attribute.has_prefix, name.contains(':'));
                    (name.to_owned(), content[attribute.value.clone()].to_owned())
                });
                let kind = if tag.is_empty { "empty" } else { "open" };
                let attributes = attributes.collect();
                (kind, length, content[..tag.name].to_owned(), attributes)
            }
        })
    }

    /// The same, as quick-xml reads it after the start tags of two elements.
    fn show_general(text: &str) -> Option<Shown> {
        let before = "<url><b>";
        let document = format!("{before}{text}");
        let mut reader = Reader::from_str(&document);
        reader.config_mut().check_end_names = false;
        reader.config_mut().allow_dangling_amp = true;
        reader.read_event().ok()?;
        reader.read_event().ok()?;
        let event = reader.read_event().ok()?;
        let length = usize::try_from(reader.buffer_position()).unwrap() - before.len();
        let of_tag = |kind: &'static str, start: BytesStart<'_>| {
            let attributes = start.attributes().map(|attribute| {
                let attribute = attribute.ok()?;
                assert!(attribute.key.as_namespace_binding().is_none());
                let value = attribute.normalized_value(XmlVersion::Implicit1_0).ok()?;
                Some((attribute.key.into_inner().to_owned(), value.into_owned()))
            });
            let attributes = attributes.collect::<Option<_>>()?;
            let name = start.name().into_inner().to_owned();
            Some((kind, length, name, attributes))
        };
        match event {
            Event::Text(text) => Some(("text", length, text.into_inner().into_owned(), vec![])),
            Event::End(end) => Some(("close", length, end.name().into_inner().to_owned(), vec![])),
            Event::Start(start) => of_tag("open", start),
            Event::Empty(start) => of_tag("empty", start),
            _ => None,
        }
    }

    #[test]
    fn usual_tokens_are_plain_and_others_are_not() {
        for (text, expected) in [
            ("\u{e9}>\n<a>", Some(("text", 4, "\u{e9}>\n"))),
            ("<url>x", Some(("open", 5, "url"))),
            ("<a:b />", Some(("empty", 7, "a:b"))),
            ("</url>", Some(("close", 6, "url"))),
            ("<a b=\"1\" c:d='>\"'/>", Some(("empty", 19, "a"))),
            ("<a\n\tb=\"\u{e9}\"c=\"\" >", Some(("open", 16, "a"))),
            ("", None),
            ("text", None),
            ("a&amp;<", None),
            ("</b>", None),
            ("</url >", None),
            ("</urls>", None),
            ("</url", None),
            ("<a", None),
            ("<>", None),
            ("<!-- -->", None),
            ("<?a?>", None),
            ("<a/ >", None),
            ("<\u{e9}>", None),
            ("<a b=\"1\" c=\"2\" d=\"3\">", None),
            ("<a b=\"1\" b=\"1\">", None),
            ("<a b = \"1\">", None),
            ("<a b=1>", None),
            ("<a b>", None),
            ("<a b=\"1>", None),
            ("<a =\"1\">", None),
            ("<a b=\"&amp;\">", None),
            ("<a b=\"1\n2\">", None),
            ("<a xmlns=\"b\">", None),
            ("<a xmlns:b=\"c\">", None),
        ] {
            let found = show(text, Some("url"), 2);
            let shown = found.as_ref();
            let shown = shown.map(|(kind, length, name, _)| (*kind, *length, name.as_str()));
            assert_eq!(shown, expected, "{text:?}");
        }
        assert_eq!(show("</url>", None, 2), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]

        #[test]
        fn plain_tokens_are_those_that_quick_xml_reads(
            text in r#"[a &;>\n\u{e9}]{0,3}<.?|</(b|ab|b )/?>?|<[/ab:!?\u{e9}]{0,2}([ \n]{0,2}[ab:x\u{e9}=]{0,3} ?(=["'][a&;>/"' \n\u{ffff}]{0,4}["'])?){0,3} ?/?>?<?"#,
        ) {
            if let Some(plain) = show(&text, Some("b"), 8) {
                prop_assert_eq!(Some(plain), show_general(&text));
            }
        }
    }
}
