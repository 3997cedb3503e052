//! The nodes of an XML document, by `roxmltree`, and where each of them is in its text.
//!
//! A patch changes the text at the places of nodes: what it does not touch stays as it is, byte by byte. Documents with a document
//! type declaration are not read, because that may change what they mean.

use std::collections::HashSet;
use std::ops::Range;

use roxmltree::{Document, Node};

use super::error::{Budget, MAX_NODES, PatchError};

/// The limit on the attributes and declarations of an element: they are compared with each other.
const MAX_ATTRIBUTES: usize = 128;
/// The limit on the length of a prefix with its namespace, in bytes: both are compared for each name.
const MAX_DECLARATION: usize = 256;
/// The steps of reading an element, beyond those of its text.
const ELEMENT_STEPS: usize = 16;

/// Reads a document. `roxmltree` compares each attribute with those of the same element, and each name with all prefixes in scope:
/// that is counted before.
pub(super) fn parse<'a>(
    text: &'a str,
    what: &'static str,
    budget: &mut Budget,
) -> Result<Document<'a>, PatchError> {
    // The reader would skip it, and its places would not be those in the text.
    if text.starts_with('\u{feff}') {
        return Err(PatchError::Syntax(what, "a second byte order mark"));
    }
    // No more prefixes than these are in scope anywhere.
    let mut prefixes = HashSet::new();
    for (at, _) in text.match_indices("xmlns") {
        budget.spend(MAX_DECLARATION / 4)?;
        let bytes = &text.as_bytes()[at..text.len().min(at + MAX_DECLARATION)];
        let begin = bytes.iter().position(|it| matches!(it, b'"' | b'\''));
        let begin = begin.filter(|&begin| bytes[begin + 1..].contains(&bytes[begin]));
        let begin = begin.ok_or(PatchError::Limit("a prefix or a namespace is too long"))?;
        prefixes.insert(&bytes[..begin]);
    }
    let declared = prefixes.len();
    budget.spend(text.len() / 4)?;
    let mut nodes = 0;
    for tag in text.split('<') {
        let attributes = tag.bytes().filter(|it| *it == b'=').count();
        if attributes > MAX_ATTRIBUTES {
            return Err(PatchError::Limit("too many attributes"));
        }
        nodes += 1 + attributes;
        if nodes > MAX_NODES {
            return Err(PatchError::Limit("too many nodes"));
        }
        let compared = attributes * (attributes + tag.len() / 16) + (1 + attributes) * declared;
        // Where something is declared, what is in scope is copied, after a search for each in the copy.
        let copied = declared * declared * usize::from(tag.contains("xmlns"));
        budget.spend(ELEMENT_STEPS + (compared + copied) / 4)?;
    }
    Document::parse(text).map_err(|_| PatchError::Syntax(what, "no XML"))
}

/// An attribute or the declaration of a prefix, and where it is in the text.
pub(super) struct Attribute {
    pub(super) name: Range<usize>,
    /// Without the quotation marks.
    pub(super) value: Range<usize>,
}

/// The start tag of an element, and where its parts are in the text.
pub(super) struct Tag {
    pub(super) name: Range<usize>,
    pub(super) attributes: Vec<Attribute>,
    /// Where the children of the element are; `None`: the tag is all of it.
    pub(super) content: Option<Range<usize>>,
}

impl Tag {
    /// The tag of an element; `None`: it is no element.
    pub(super) fn of(node: Node<'_, '_>) -> Option<Self> {
        if !node.is_element() {
            return None;
        }
        let text = node.document().input_text();
        let after_space = |at: usize| text.len() - text[at..].trim_ascii_start().len();
        let begin = node.range().start + 1;
        let ends_name = |it: char| it.is_ascii_whitespace() || matches!(it, '/' | '>' | '=');
        let name_end = |begin: usize| text[begin..].find(ends_name).map(|length| begin + length);
        let name = begin..name_end(begin)?;
        let (mut attributes, mut at) = (Vec::new(), after_space(name.end));
        while !text[at..].starts_with(['/', '>']) {
            let name = at..name_end(at)?;
            let value = name.end + text[name.end..].find(['"', '\''])? + 1;
            let quote = text[..value].chars().next_back()?;
            let value = value..value + text[value..].find(quote)?;
            at = after_space(value.end + 1);
            attributes.push(Attribute { name, value });
        }
        let begin = text[at..].starts_with('>').then_some(at + 1);
        let content = begin.and_then(|begin| Some(begin..content_end(node)?));
        Some(Self {
            name,
            attributes,
            content,
        })
    }

    /// Where another attribute is added.
    pub(super) fn attributes_end(&self) -> usize {
        let last = self.attributes.last();
        last.map_or(self.name.end, |last| last.value.end + 1)
    }
}

/// Where the children of an element are; `None`: its tag is all of it, or it is no element.
pub(super) fn content(node: Node<'_, '_>) -> Option<Range<usize>> {
    Tag::of(node)?.content
}

fn content_end(node: Node<'_, '_>) -> Option<usize> {
    node.document().input_text()[..node.range().end].rfind("</")
}

/// Where a node is. `roxmltree` states the first part only of a text that consists of several.
pub(super) fn span(node: Node<'_, '_>) -> Range<usize> {
    let range = node.range();
    if !node.is_text() {
        return range;
    }
    let next = node.next_sibling().map(|next| next.range().start);
    let end = next.or_else(|| content_end(node.parent()?));
    range.start..end.unwrap_or(range.end)
}

/// Whether a node is text that is only white space, as it is written.
pub(super) fn is_space(node: Node<'_, '_>) -> bool {
    let text = &node.document().input_text()[span(node)];
    node.is_text() && text.bytes().all(|it| it.is_ascii_whitespace())
}
