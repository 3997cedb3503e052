//! The nodes of an XML document and where each of them is in its text.
//!
//! A patch changes the text at the places of nodes: what it does not touch stays as it is, byte by byte. Documents with a document
//! type declaration are not read, because that may change what they mean.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use quick_xml::escape::unescape;
use quick_xml::events::Event;
use quick_xml::reader::Reader;

use super::error::{BYTES_A_STEP, Budget, MAX_DEPTH, MAX_NODES, PatchError};

/// The namespace of the prefix `xml`.
const XML: &str = "http://www.w3.org/XML/1998/namespace";
/// The steps of reading a node, beyond those of its text: an event of the reader, and its place in memory.
const NODE_STEPS: usize = 16;
/// The limit on the attributes of an element: each is compared with all declarations that are in scope.
const MAX_ATTRIBUTES: usize = 256;
/// The limit on the length of a prefix and of a namespace, in bytes: both are copied for each element that has them.
const MAX_NAME_BYTES: usize = 1024;

/// The index of a node. That of the document is 0; each node comes before its children, and these before its next sibling.
pub(super) type NodeId = usize;

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeKind {
    Document,
    Element,
    /// With character data sections and references.
    Text,
    Comment,
    Instruction,
}

/// A node.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) kind: NodeKind,
    /// Where it is.
    pub(super) span: Range<usize>,
    /// Where its children are. Of an element that is one tag: empty, at its end.
    pub(super) content: Range<usize>,
    pub(super) parent: NodeId,
    /// The node after its last descendant.
    pub(super) after: NodeId,
    /// The number of its namespace; 0: none.
    namespace: u32,
}

/// An attribute, and where it is.
#[derive(Clone, Debug)]
pub(super) struct Attribute<'a> {
    pub(super) name: &'a str,
    /// As it is written.
    pub(super) value: &'a str,
    /// The quotation mark around the value.
    pub(super) quote: char,
    /// Where it is, with the white space before it.
    pub(super) span: Range<usize>,
    /// Where its value is, without quotation marks.
    pub(super) value_span: Range<usize>,
}

impl<'a> Attribute<'a> {
    /// The prefix that it declares, empty for the default namespace; `None`: it declares none.
    pub(super) fn declares(&self) -> Option<&'a str> {
        match self.name.strip_prefix("xmlns") {
            Some("") => Some(""),
            Some(rest) => rest.strip_prefix(':'),
            None => None,
        }
    }
}

/// A document.
#[derive(Debug)]
pub(super) struct Tree<'a> {
    pub(super) text: &'a str,
    /// What it is, for errors.
    what: &'static str,
    nodes: Vec<Node>,
    namespaces: Vec<String>,
}

/// Prefix and local name.
pub(super) fn split_name(name: &str) -> (&str, &str) {
    name.split_once(':').unwrap_or(("", name))
}

impl<'a> Tree<'a> {
    /// Reads a document.
    pub(super) fn parse(
        text: &'a str,
        what: &'static str,
        budget: &mut Budget,
    ) -> Result<Self, PatchError> {
        budget.spend_bytes(text.len())?;
        // The reader would skip it, and its positions would not be those in the text.
        if text.starts_with('\u{feff}') {
            return Err(PatchError::Syntax {
                what,
                reason: "a second byte order mark",
                position: 0,
            });
        }
        let mut reading = TreeBuilder {
            tree: Self {
                text,
                what,
                nodes: vec![Node {
                    kind: NodeKind::Document,
                    span: 0..text.len(),
                    content: 0..text.len(),
                    parent: 0,
                    after: 0,
                    namespace: 0,
                }],
                namespaces: vec![String::new()],
            },
            numbers: HashMap::from([(String::new(), 0)]),
            open: vec![0],
            scopes: vec![(0, "xml", XML.to_owned())],
            has_root: false,
        };
        let mut reader = Reader::from_str(text);
        let position = |reader: &Reader<&[u8]>| {
            let position = usize::try_from(reader.buffer_position()).unwrap_or(usize::MAX);
            position.min(text.len())
        };
        loop {
            let begin = position(&reader);
            let Ok(event) = reader.read_event() else {
                return Err(reading.tree.error("no XML", begin));
            };
            let span = begin..position(&reader);
            match event {
                Event::Start(_) => reading.element(span, false, budget)?,
                Event::Empty(_) => reading.element(span, true, budget)?,
                Event::End(_) => reading.close(span)?,
                Event::Text(_) | Event::CData(_) | Event::GeneralRef(_) => {
                    reading.text(span, budget)?;
                }
                Event::Comment(_) => reading.leaf(NodeKind::Comment, span, budget)?,
                Event::PI(_) => reading.leaf(NodeKind::Instruction, span, budget)?,
                Event::Decl(_) => {}
                Event::DocType(_) => {
                    return Err(reading.tree.error("a document type declaration", begin));
                }
                Event::Eof => return reading.end(),
            }
        }
    }

    pub(super) fn error(&self, reason: &'static str, position: usize) -> PatchError {
        PatchError::Syntax {
            what: self.what,
            reason,
            position,
        }
    }

    pub(super) fn node(&self, id: NodeId) -> &Node {
        // The ids are those of this tree.
        &self.nodes[id]
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The children of a node, the first one first.
    pub(super) fn children(&self, id: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        let end = self.nodes[id].after;
        let first = Some(id + 1).filter(|&first| first < end);
        std::iter::successors(first, move |&at| {
            Some(self.nodes[at].after).filter(|&next| next < end)
        })
    }

    pub(super) fn namespace(&self, id: NodeId) -> &str {
        &self.namespaces[self.nodes[id].namespace as usize]
    }

    /// The text of a node as it is written.
    pub(super) fn source(&self, id: NodeId) -> &'a str {
        &self.text[self.nodes[id].span.clone()]
    }

    /// The name of an element or of an instruction as it is written.
    pub(super) fn name(&self, id: NodeId, budget: &mut Budget) -> Result<&'a str, PatchError> {
        budget.spend_bytes(self.tag(id).len())?;
        Ok(self.written_name(id))
    }

    /// As [`name`](Self::name), where the tag is counted already.
    fn written_name(&self, id: NodeId) -> &'a str {
        let begin = match self.nodes[id].kind {
            NodeKind::Instruction => 2,
            _ => 1,
        };
        let tag = self.source(id).get(begin..).unwrap_or_default();
        let end = tag.find(|it: char| it.is_ascii_whitespace() || matches!(it, '/' | '>' | '?'));
        &tag[..end.unwrap_or(tag.len())]
    }

    /// The start tag of an element; of other nodes all.
    pub(super) fn tag(&self, id: NodeId) -> Range<usize> {
        self.nodes[id].span.start..self.nodes[id].content.start
    }

    /// The attributes of an element, in their order.
    pub(super) fn attributes(
        &self,
        id: NodeId,
        budget: &mut Budget,
    ) -> Result<Vec<Attribute<'a>>, PatchError> {
        let tag = self.tag(id);
        budget.spend_bytes(tag.len())?;
        let begin = tag.start + 1 + self.written_name(id).len();
        let mut attributes = Vec::new();
        let mut at = begin;
        let is_space = |it: char| it.is_ascii_whitespace();
        loop {
            let rest = &self.text[at..tag.end];
            let space = rest.len() - rest.trim_start_matches(is_space).len();
            let rest = &rest[space..];
            if rest.starts_with('>') || rest.starts_with("/>") {
                return Ok(attributes);
            }
            let error = self.error("a damaged tag", at);
            let Some((name, _)) = rest.split_once('=').filter(|_| space > 0) else {
                return Err(error);
            };
            let value = &rest[name.len() + 1..];
            let skipped = value.len() - value.trim_start_matches(is_space).len();
            let value = &value[skipped..];
            let quote = value.chars().next().filter(|it| matches!(it, '"' | '\''));
            let Some((quote, value)) = quote.zip(value.get(1..)) else {
                return Err(error);
            };
            let Some(end) = value.find(quote) else {
                return Err(error);
            };
            let value_begin = at + space + name.len() + 1 + skipped + 1;
            let name = name.trim_end_matches(is_space);
            if name.is_empty() || name.contains(is_space) {
                return Err(error);
            }
            if attributes.len() >= MAX_ATTRIBUTES {
                return Err(PatchError::Limit("too many attributes"));
            }
            attributes.push(Attribute {
                name,
                value: &value[..end],
                quote,
                span: at..value_begin + end + 1,
                value_span: value_begin..value_begin + end,
            });
            at = value_begin + end + 1;
        }
    }

    /// The namespaces that are in scope at a node.
    pub(super) fn scope(&self, id: NodeId, budget: &mut Budget) -> Result<Scope<'a>, PatchError> {
        let mut scope = Scope(Vec::new());
        let mut at = id;
        while at != 0 {
            if self.nodes[at].kind == NodeKind::Element {
                for attribute in self.attributes(at, budget)? {
                    if let Some(prefix) = attribute.declares()
                        && scope.uri_of(prefix, budget)?.is_none()
                    {
                        let uri = self.unescaped(attribute.value)?.into_owned();
                        scope.0.push((prefix, uri));
                    }
                }
            }
            at = self.nodes[at].parent;
        }
        scope.0.push(("xml", XML.to_owned()));
        Ok(scope)
    }

    /// The characters that a text states.
    pub(super) fn unescaped<'t>(&self, text: &'t str) -> Result<Cow<'t, str>, PatchError> {
        unescape(text).map_err(|_| self.error("an unknown reference", 0))
    }

    /// The characters of all texts in a node (XPath 1.0, section 5).
    pub(super) fn value(&self, id: NodeId, budget: &mut Budget) -> Result<String, PatchError> {
        budget.spend_bytes(self.source(id).len())?;
        let mut value = String::new();
        for at in id..self.nodes[id].after {
            if self.nodes[at].kind != NodeKind::Text {
                continue;
            }
            let mut text = self.source(at);
            while let Some((before, rest)) = text.split_once("<![CDATA[") {
                value.push_str(&self.unescaped(before)?);
                let (data, rest) = rest.split_once("]]>").unwrap_or((rest, ""));
                value.push_str(data);
                text = rest;
            }
            value.push_str(&self.unescaped(text)?);
        }
        Ok(value)
    }

    /// Whether a node is text that is only white space.
    pub(super) fn is_space(&self, id: NodeId, budget: &mut Budget) -> Result<bool, PatchError> {
        if self.nodes[id].kind != NodeKind::Text {
            return Ok(false);
        }
        let text = self.source(id);
        budget.spend_bytes(text.len())?;
        Ok(text.bytes().all(|it| it.is_ascii_whitespace()))
    }
}

/// The namespaces that are in scope at a node, by prefix; the innermost declaration of each first.
#[derive(Debug, Default)]
pub(super) struct Scope<'a>(Vec<(&'a str, String)>);

impl<'a> Scope<'a> {
    #[cfg(test)]
    pub(super) fn of(declared: &[(&'a str, &str)]) -> Self {
        let declared = declared.iter();
        Self(
            declared
                .map(|&(prefix, uri)| (prefix, uri.to_owned()))
                .collect(),
        )
    }

    /// The namespace of a prefix.
    pub(super) fn uri_of(
        &self,
        prefix: &str,
        budget: &mut Budget,
    ) -> Result<Option<&str>, PatchError> {
        budget.spend_search(self.0.len(), prefix.len())?;
        let found = self.0.iter().find(|(known, _)| *known == prefix);
        Ok(found.map(|(_, uri)| uri.as_str()))
    }

    /// The prefix of a namespace, for an attribute or an element: the same one if that is right, or else the innermost one.
    pub(super) fn prefix_of<'s>(
        &'s self,
        uri: &str,
        prefix: &'s str,
        is_element: bool,
        budget: &mut Budget,
    ) -> Result<Option<&'s str>, PatchError> {
        match self.uri_of(prefix, budget)? {
            Some(known) if known == uri => return Ok(Some(prefix)),
            None if prefix.is_empty() && uri.is_empty() => return Ok(Some(prefix)),
            _ => {}
        }
        if uri.is_empty() {
            return Ok(None);
        }
        budget.spend_search(self.0.len(), uri.len())?;
        let mut others = self.0.iter();
        let found = others.find(|(known, other)| other == uri && (is_element || !known.is_empty()));
        Ok(found.map(|(known, _)| *known))
    }
}

/// A document while it is read.
struct TreeBuilder<'a> {
    tree: Tree<'a>,
    /// The namespaces by name.
    numbers: HashMap<String, u32>,
    open: Vec<NodeId>,
    /// The declarations in scope: depth, prefix and namespace.
    scopes: Vec<(usize, &'a str, String)>,
    has_root: bool,
}

impl<'a> TreeBuilder<'a> {
    fn add(
        &mut self,
        kind: NodeKind,
        span: Range<usize>,
        budget: &mut Budget,
    ) -> Result<NodeId, PatchError> {
        budget.spend(NODE_STEPS)?;
        let id = self.tree.nodes.len();
        if id >= MAX_NODES {
            return Err(PatchError::Limit("too many nodes"));
        }
        self.tree.nodes.push(Node {
            kind,
            content: span.end..span.end,
            span,
            parent: self.open.last().copied().unwrap_or_default(),
            after: id + 1,
            namespace: 0,
        });
        Ok(id)
    }

    fn leaf(
        &mut self,
        kind: NodeKind,
        span: Range<usize>,
        budget: &mut Budget,
    ) -> Result<(), PatchError> {
        self.add(kind, span, budget).map(drop)
    }

    fn text(&mut self, span: Range<usize>, budget: &mut Budget) -> Result<(), PatchError> {
        if span.is_empty() {
            return Ok(());
        }
        if self.open.len() == 1 {
            // It is no node there.
            let text = &self.tree.text[span.clone()];
            return match text.bytes().all(|it| it.is_ascii_whitespace()) {
                true => Ok(()),
                false => Err(self.tree.error("text outside of the root", span.start)),
            };
        }
        let parent = self.open.last().copied();
        if let Some(last) = self.tree.nodes.last_mut()
            && last.kind == NodeKind::Text
            && last.span.end == span.start
            && Some(last.parent) == parent
        {
            last.span.end = span.end;
            last.content = span.end..span.end;
            return Ok(());
        }
        self.leaf(NodeKind::Text, span, budget)
    }

    fn element(
        &mut self,
        span: Range<usize>,
        is_empty: bool,
        budget: &mut Budget,
    ) -> Result<(), PatchError> {
        if self.open.len() > MAX_DEPTH {
            return Err(PatchError::Limit("too deep"));
        }
        if self.open.len() == 1 {
            if self.has_root {
                return Err(self.tree.error("a second root", span.start));
            }
            self.has_root = true;
        }
        let begin = span.start;
        let id = self.add(NodeKind::Element, span, budget)?;
        let depth = self.open.len();
        for attribute in self.tree.attributes(id, budget)? {
            if let Some(prefix) = attribute.declares() {
                if prefix.len().max(attribute.value.len()) > MAX_NAME_BYTES {
                    return Err(PatchError::Limit("a prefix or a namespace is too long"));
                }
                let uri = self.tree.unescaped(attribute.value)?.into_owned();
                self.scopes.push((depth, prefix, uri));
            }
        }
        let (prefix, _) = split_name(self.tree.name(id, budget)?);
        budget.spend_search(self.scopes.len(), prefix.len())?;
        let mut scopes = self.scopes.iter().rev();
        let uri = match scopes.find(|(_, known, _)| *known == prefix) {
            Some((.., uri)) => {
                budget.spend(uri.len() / BYTES_A_STEP)?;
                uri.clone()
            }
            None if prefix.is_empty() => String::new(),
            None => return Err(self.tree.error("an undeclared prefix", begin)),
        };
        let next = u32::try_from(self.tree.namespaces.len()).unwrap_or(u32::MAX);
        let number = match self.numbers.get(&uri) {
            Some(&number) => number,
            None => {
                self.numbers.insert(uri.clone(), next);
                self.tree.namespaces.push(uri);
                next
            }
        };
        self.tree.nodes[id].namespace = number;
        match is_empty {
            true => self.end_scope(depth),
            false => self.open.push(id),
        }
        Ok(())
    }

    fn end_scope(&mut self, depth: usize) {
        while self
            .scopes
            .last()
            .is_some_and(|(at, ..)| *at >= depth && depth > 0)
        {
            self.scopes.pop();
        }
    }

    fn close(&mut self, span: Range<usize>) -> Result<(), PatchError> {
        let after = self.tree.nodes.len();
        let Some(id) = self.open.pop().filter(|&id| id != 0) else {
            return Err(self.tree.error("no open element", span.start));
        };
        let node = &mut self.tree.nodes[id];
        node.content.end = span.start;
        node.span.end = span.end;
        node.after = after;
        self.end_scope(self.open.len());
        Ok(())
    }

    fn end(mut self) -> Result<Tree<'a>, PatchError> {
        if self.open.len() != 1 || !self.has_root {
            return Err(self
                .tree
                .error("no complete document", self.tree.text.len()));
        }
        self.tree.nodes[0].after = self.tree.nodes.len();
        Ok(self.tree)
    }
}
