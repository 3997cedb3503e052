//! Selectors of XML patches: the part of XPath 1.0 that the examples of RFC 5261 use.
//!
//! A selector has steps from the root, each with a name, or `*`, and conditions: a position, or the value of an attribute. Each locates
//! one node. The last step may name an attribute, a namespace, a text, a comment or an instruction. Prefixes, and names without one,
//! are those of the patch's own namespaces.

use std::num::NonZeroUsize;

use roxmltree::{Node, NodeType};

use super::error::PatchError;
use super::xml::XmlOperation;
use super::xml_document::{Attribute, Tag};

/// What a selector locates.
pub(super) enum Target<'t> {
    Node(Node<'t, 't>),
    /// An attribute of an element, or the declaration of a prefix.
    Attribute(Attribute),
}

/// The namespace of an element or attribute, empty if it has none, and its local name.
type Name<'s> = (&'s str, &'s str);

/// Reads a selector and evaluates it step by step.
pub(super) struct SelectorReader<'s, 'o> {
    pub(super) rest: &'s str,
    /// Its namespaces are in scope.
    pub(super) operation: &'o mut XmlOperation<'s>,
}

impl<'s> SelectorReader<'s, '_> {
    /// The one thing that the selector locates in the document.
    pub(super) fn locate(mut self) -> Result<Target<'s>, PatchError> {
        let mut node = self.operation.document.root();
        self.takes("/");
        loop {
            if self.takes("@") {
                let name = self.name(false)?;
                let begin = attribute(node, name).map(|it| it.range().start);
                return self.written(node, |it| Some(it.name.start) == begin);
            }
            if self.takes("namespace::") {
                let name = format!("xmlns:{}", self.plain_name()?);
                let text = node.document().input_text();
                return self.written(node, |it| text[it.name.clone()] == name);
            }
            let mut found = self.step(node)?.into_iter();
            let is_last = self.rest.is_empty();
            if !is_last {
                self.expect("/")?;
            }
            let only = found.next().filter(|_| found.next().is_none());
            node = only.ok_or_else(|| self.unfit())?;
            if is_last {
                return Ok(Target::Node(node));
            }
        }
    }

    /// The attribute or declaration of an element that the end of the selector names.
    fn written(
        &self,
        node: Node<'_, '_>,
        is_named: impl FnMut(&Attribute) -> bool,
    ) -> Result<Target<'s>, PatchError> {
        if !self.rest.is_empty() {
            return Err(self.invalid());
        }
        let found = Tag::of(node).and_then(|tag| tag.attributes.into_iter().find(is_named));
        found.map(Target::Attribute).ok_or_else(|| self.unfit())
    }

    /// Reads a step, and finds what meets it among the children of a node.
    fn step(&mut self, parent: Node<'s, 's>) -> Result<Vec<Node<'s, 's>>, PatchError> {
        let (kind, name) = if self.takes("text()") {
            (NodeType::Text, None)
        } else if self.takes("comment()") {
            (NodeType::Comment, None)
        } else if self.takes("processing-instruction(") {
            let target = self.quoted()?;
            self.expect(")")?;
            (NodeType::PI, Some(("", target)))
        } else if self.takes("*") {
            (NodeType::Element, None)
        } else {
            (NodeType::Element, Some(self.name(true)?))
        };
        let own = |node: Node<'s, 's>| match node.pi() {
            Some(instruction) => ("", instruction.target),
            None => of(node.tag_name().namespace(), node.tag_name().name()),
        };
        self.spend(parent.children().count(), name.map_or(0, length))?;
        let children = parent.children().filter(|it| it.node_type() == kind);
        let named = children.filter(|&it| name.is_none_or(|name| name == own(it)));
        let mut found: Vec<_> = named.collect();
        while self.takes("[") {
            if self.takes("@") {
                let name = self.name(false)?;
                self.expect("=")?;
                let wanted = self.quoted()?;
                self.expect("]")?;
                let compared = found.iter().map(|it| 16 + it.attributes().len());
                self.spend(compared.sum(), length(name) + wanted.len())?;
                found.retain(|&it| attribute(it, name).is_some_and(|it| it.value() == wanted));
            } else {
                let (position, rest) = self.rest.split_once(']').ok_or_else(|| self.invalid())?;
                let position = position.parse::<NonZeroUsize>();
                let index = position.map_err(|_| self.invalid())?.get() - 1;
                self.rest = rest;
                found = found.get(index).copied().into_iter().collect();
            }
        }
        Ok(found)
    }

    fn invalid(&self) -> PatchError {
        self.operation.invalid("its selector is not supported")
    }

    fn unfit(&self) -> PatchError {
        self.operation.unfit("its selector locates no single node")
    }

    /// Counts comparisons with a text of that length.
    fn spend(&mut self, comparisons: usize, length: usize) -> Result<(), PatchError> {
        let steps = comparisons.saturating_mul(1 + length / 16);
        self.operation.budget.spend(steps)
    }

    fn takes(&mut self, text: &str) -> bool {
        let rest = self.rest.strip_prefix(text);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn expect(&mut self, text: &str) -> Result<(), PatchError> {
        self.takes(text).then_some(()).ok_or_else(|| self.invalid())
    }

    fn quoted(&mut self) -> Result<&'s str, PatchError> {
        let quote = self.rest.chars().next();
        let quote = quote.filter(|it| matches!(it, '"' | '\''));
        let found = quote.and_then(|quote| self.rest[1..].split_once(quote));
        let (value, rest) = found.ok_or_else(|| self.invalid())?;
        self.rest = rest;
        Ok(value)
    }

    fn plain_name(&mut self) -> Result<&'s str, PatchError> {
        let is_part = |it: char| it.is_alphanumeric() || "-_.".contains(it) || !it.is_ascii();
        let end = self.rest.find(|it| !is_part(it));
        let (name, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        if name.is_empty() {
            return Err(self.invalid());
        }
        self.rest = rest;
        Ok(name)
    }

    /// A qualified name. Without a prefix an element is in the default namespace of the patch, and an attribute in none.
    fn name(&mut self, is_element: bool) -> Result<Name<'s>, PatchError> {
        let mut local = self.plain_name()?;
        let mut prefix = None;
        if self.takes(":") {
            prefix = Some(std::mem::replace(&mut local, self.plain_name()?));
        }
        self.spend(1 + self.operation.node.namespaces().len(), 0)?;
        let namespace = self.operation.node.lookup_namespace_uri(prefix);
        let namespace = namespace.filter(|_| is_element || prefix.is_some());
        Ok((namespace.unwrap_or_default(), local))
    }
}

fn of<'n>(namespace: Option<&'n str>, local: &'n str) -> Name<'n> {
    (namespace.unwrap_or_default(), local)
}

fn length((namespace, local): Name<'_>) -> usize {
    namespace.len() + local.len()
}

fn attribute<'t>(node: Node<'t, 't>, name: Name<'_>) -> Option<roxmltree::Attribute<'t, 't>> {
    let mut attributes = node.attributes();
    attributes.find(|it| of(it.namespace(), it.name()) == name)
}

#[cfg(test)]
mod tests {
    use roxmltree::Document;

    use super::*;
    use crate::error::{Budget, MAX_WORK};
    use crate::xml_document::{parse, span};

    const DOCUMENT: &str = r#"<?xml version="1.0"?><!--c1--><?p x?><a:doc xmlns:a="urn:a" xmlns="urn:d" xmlns:u="urn:u">
<note id="n1">one</note><note u:k="v" id="n2">t&amp;wo<!--c2--><?p y?><?q z?>tail</note><a:note/><list><foo>1</foo></list></a:doc>"#;

    fn located(selector: &str) -> Result<String, &'static str> {
        let mut budget = Budget::new(MAX_WORK);
        let document = parse(DOCUMENT, "file", &mut budget).unwrap();
        let found = locate(selector, &document, &mut budget);
        found.map_err(|error| error.code())
    }

    /// The text of what a selector locates.
    fn locate(
        selector: &str,
        document: &Document<'_>,
        budget: &mut Budget,
    ) -> Result<String, PatchError> {
        let patch = r#"<diff xmlns="urn:d" xmlns:x="urn:a" xmlns:w="urn:u"/>"#;
        let patch = Document::parse(patch).unwrap();
        let mut operation = XmlOperation {
            number: 0,
            node: patch.root_element(),
            document,
            budget,
        };
        let reader = SelectorReader {
            rest: selector,
            operation: &mut operation,
        };
        let span = match reader.locate()? {
            Target::Node(node) => span(node),
            Target::Attribute(it) => it.name.start..it.value.end,
        };
        Ok(document.input_text()[span].to_owned())
    }

    #[test]
    fn one_node_is_located() {
        let second = r#"<note u:k="v" id="n2">t&amp;wo<!--c2--><?p y?><?q z?>tail</note>"#;
        for (selector, expected) in [
            ("x:doc/note[1]", r#"<note id="n1">one</note>"#),
            ("/x:doc/note[2]", second),
            ("*/note[@id='n2']", second),
            ("*/note[@w:k=\"v\"]", second),
            ("*/x:note", "<a:note/>"),
            ("*/*[3]", "<a:note/>"),
            ("*/list/foo", "<foo>1</foo>"),
            ("x:doc/note[@id='n2'][1]/comment()", "<!--c2-->"),
            ("x:doc/note[2]/text()[1]", "t&amp;wo"),
            ("x:doc/note[2]/processing-instruction('q')", "<?q z?>"),
            ("x:doc/note[2]/processing-instruction('p')[1]", "<?p y?>"),
            ("/comment()[1]", "<!--c1-->"),
            ("processing-instruction(\"p\")", "<?p x?>"),
            ("*/note[2]/@w:k", "u:k=\"v"),
            ("*/note[1]/@id", "id=\"n1"),
            ("x:doc/namespace::u", "xmlns:u=\"urn:u"),
        ] {
            assert_eq!(located(selector).as_deref(), Ok(expected), "{selector}");
        }
        for selector in [
            "*/note",
            "*/nothing",
            "doc",
            "y:doc",
            "*/note[3]",
            "*/note[@k='v']",
            "*/note[1]/@w:id",
            "*/text()[9]",
            "*/../x",
            ".",
            "99999999999999999999",
            // Each step is to locate one node.
            "*/*/foo",
            "*/note/@w:k",
        ] {
            assert_eq!(located(selector), Err("patch-unfit"), "{selector}");
        }
        for selector in [
            "",
            "/",
            "//note",
            "*//note",
            "*/",
            "*/note[",
            "*/note[0]",
            "*/note[last()]",
            "*/note[@id]",
            "*/@id/x",
            "count(*)",
            "*|*",
            "*/note[1]x",
            "id(n1)",
            "*/note[@id='n1]",
            "a b",
            "*/note[99999999999999999999]",
            // No example of the specification has these.
            "*/note[.='one']",
            "*/*[foo='1']/foo",
            "*/note[2]/processing-instruction()[1]",
        ] {
            assert_eq!(located(selector), Err("patch-invalid"), "{selector}");
        }
    }

    #[test]
    fn work_of_a_selector_is_limited() {
        let document = format!("<a>{}</a>", "<b k='x'><c>x</c></b>".repeat(1000));
        let document = Document::parse(&document).unwrap();
        // Each form of a step and of a condition counts what it looks at.
        let many = format!("*/*{}", "[@k='x']".repeat(100));
        let long = format!("*/{}", "b".repeat(100));
        let wanted = format!("*/*[@k='{}']", "v".repeat(1000));
        for (costly, work) in [
            ("*/*[1]", 900),
            ("*/b/c/text()[1]", 900),
            ("*/b[1000]/c", 900),
            ("*/comment()", 900),
            ("*/b/@k", 900),
            ("*/b/namespace::p", 900),
            ("*/*[@k='v']", 16_000),
            (&many, 1_000_000),
            (&long, 5_000),
            (&wanted, 800_000),
        ] {
            let error = locate(costly, &document, &mut Budget::new(work)).err();
            let limit = Some(PatchError::Limit("too much work"));
            assert_eq!(error, limit, "{costly}");
        }
    }
}
