//! Selectors of XML patches: the part of XPath 1.0 that the examples of RFC 5261 use.
//!
//! A selector has steps from the root, each with a name, or `*`, and conditions: a position, or the value of an attribute, of a child
//! or of the element itself. The last step may name an attribute, a namespace, a text, a comment or an instruction. Prefixes, and
//! names without one, are those of the patch's own namespaces.

use roxmltree::Node;

use super::error::{Budget, PatchError};
use super::xml_document::{Attribute, Tag};

/// What a selector locates.
pub(super) enum Target<'t> {
    Node(Node<'t, 't>),
    /// An attribute of an element, or the declaration of a prefix.
    Attribute(Attribute),
}

/// The name of an element or attribute. `namespace`: empty if it has none.
struct Name<'s> {
    namespace: &'s str,
    local: &'s str,
}

impl Name<'_> {
    fn length(&self) -> usize {
        self.namespace.len() + self.local.len()
    }

    fn is_of(&self, namespace: Option<&str>, local: &str) -> bool {
        self.local == local && self.namespace == namespace.unwrap_or_default()
    }

    fn is_of_element(&self, node: Node<'_, '_>) -> bool {
        node.is_element() && self.is_of(node.tag_name().namespace(), node.tag_name().name())
    }

    fn attribute<'t>(&self, node: Node<'t, 't>) -> Option<roxmltree::Attribute<'t, 't>> {
        let mut attributes = node.attributes();
        attributes.find(|it| self.is_of(it.namespace(), it.name()))
    }
}

/// What a condition compares.
enum Compared<'s> {
    Own,
    Child(Name<'s>),
    Attribute(Name<'s>),
}

/// Reads a selector and evaluates it step by step.
pub(super) struct SelectorReader<'s, 'b> {
    pub(super) rest: &'s str,
    /// The operation, whose namespaces are in scope, and its number.
    pub(super) operation: Node<'s, 's>,
    pub(super) number: usize,
    pub(super) budget: &'b mut Budget,
}

impl<'s> SelectorReader<'s, '_> {
    /// The one thing that the selector locates in a document.
    pub(super) fn locate<'t>(mut self, root: Node<'t, 't>) -> Result<Target<'t>, PatchError> {
        let mut found = vec![root];
        self.takes("/");
        loop {
            if self.takes("@") {
                let name = self.name(false)?;
                return self.only(found.into_iter().filter_map(|node| {
                    let begin = name.attribute(node)?.range().start;
                    let mut written = Tag::of(node)?.attributes.into_iter();
                    let found = written.find(|it| it.name.start == begin);
                    found.map(Target::Attribute)
                }));
            }
            if self.takes("namespace::") {
                let name = format!("xmlns:{}", self.plain_name()?);
                return self.only(found.into_iter().filter_map(|node| {
                    let text = node.document().input_text();
                    let mut written = Tag::of(node)?.attributes.into_iter();
                    let found = written.find(|it| text[it.name.clone()] == name);
                    found.map(Target::Attribute)
                }));
            }
            // Those of each node by themselves: positions count among them.
            let mut groups = self.children(&found)?;
            while self.takes("[") {
                self.condition(&mut groups)?;
                self.expect("]")?;
            }
            found = groups.concat();
            if self.rest.is_empty() {
                return self.only(found.into_iter().map(Target::Node));
            }
            self.expect("/")?;
        }
    }

    fn only<'t>(
        &self,
        mut found: impl Iterator<Item = Target<'t>>,
    ) -> Result<Target<'t>, PatchError> {
        if !self.rest.is_empty() {
            return Err(self.invalid());
        }
        let only = found.next().filter(|_| found.next().is_none());
        let reason = "its selector does not locate one node";
        only.ok_or_else(|| PatchError::Unfit(self.number, reason))
    }

    /// Reads the test of a step.
    fn children<'t>(
        &mut self,
        parents: &[Node<'t, 't>],
    ) -> Result<Vec<Vec<Node<'t, 't>>>, PatchError> {
        if self.takes("text()") {
            return self.children_that(parents, 0, |it| it.is_text());
        }
        if self.takes("comment()") {
            return self.children_that(parents, 0, |it| it.is_comment());
        }
        if self.takes("processing-instruction(") {
            let target = if self.rest.starts_with(')') {
                None
            } else {
                Some(self.quoted()?)
            };
            self.expect(")")?;
            return self.children_that(parents, target.map_or(0, str::len), |it| {
                let found = it.pi();
                found.is_some_and(|it| target.is_none_or(|target| it.target == target))
            });
        }
        if self.takes("*") {
            return self.children_that(parents, 0, |it| it.is_element());
        }
        let name = self.name(true)?;
        self.children_that(parents, name.length(), |it| name.is_of_element(it))
    }

    /// `length`: that of what is compared with each child, in bytes.
    fn children_that<'t>(
        &mut self,
        parents: &[Node<'t, 't>],
        length: usize,
        is_wanted: impl Fn(Node<'t, 't>) -> bool,
    ) -> Result<Vec<Vec<Node<'t, 't>>>, PatchError> {
        let mut groups = Vec::new();
        for parent in parents {
            let mut group = Vec::new();
            for child in parent.children() {
                self.budget.spend(1 + length / 16)?;
                if is_wanted(child) {
                    group.push(child);
                }
            }
            groups.push(group);
        }
        Ok(groups)
    }

    /// Leaves those that meet a condition.
    fn condition(&mut self, groups: &mut [Vec<Node<'_, '_>>]) -> Result<(), PatchError> {
        let digits = self.rest.find(|it: char| !it.is_ascii_digit());
        let (digits, rest) = self.rest.split_at(digits.unwrap_or_default());
        if let Ok(position) = digits.parse::<usize>() {
            let index = position.checked_sub(1).ok_or_else(|| self.invalid())?;
            self.rest = rest;
            for group in groups {
                *group = group.get(index).copied().into_iter().collect();
            }
            return Ok(());
        }
        let compared = if self.takes("@") {
            Compared::Attribute(self.name(false)?)
        } else if self.takes(".") {
            Compared::Own
        } else {
            Compared::Child(self.name(true)?)
        };
        self.expect("=")?;
        let wanted = self.quoted()?;
        let length = match &compared {
            Compared::Own => 0,
            Compared::Child(name) | Compared::Attribute(name) => name.length(),
        };
        for group in groups {
            for node in &*group {
                let steps = 16 + node.range().len() / 4;
                self.budget.spend(steps.saturating_mul(1 + length / 16))?;
            }
            group.retain(|&node| match &compared {
                Compared::Own => value(node) == wanted,
                Compared::Attribute(name) => {
                    let found = name.attribute(node);
                    found.is_some_and(|found| found.value() == wanted)
                }
                Compared::Child(name) => {
                    let mut named = node.children().filter(|&it| name.is_of_element(it));
                    named.any(|child| value(child) == wanted)
                }
            });
        }
        Ok(())
    }

    fn invalid(&self) -> PatchError {
        PatchError::Operation(self.number, "`sel` is not a valid selector")
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
        let quote = self
            .rest
            .chars()
            .next()
            .filter(|it| matches!(it, '"' | '\''));
        let found = quote.and_then(|quote| self.rest[1..].split_once(quote));
        let (value, rest) = found.ok_or_else(|| self.invalid())?;
        self.rest = rest;
        Ok(value)
    }

    fn plain_name(&mut self) -> Result<&'s str, PatchError> {
        let is_part = |it: char| it.is_alphanumeric() || "-_.".contains(it) || !it.is_ascii();
        let end = self.rest.find(|it| !is_part(it));
        let (name, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        let is_invalid = |it: char| it.is_ascii_digit() || matches!(it, '-' | '.');
        if name.is_empty() || name.starts_with(is_invalid) {
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
        self.budget.spend(1 + self.operation.namespaces().count())?;
        let namespace = match self.operation.lookup_namespace_uri(prefix) {
            Some(namespace) if is_element || prefix.is_some() => namespace,
            _ if prefix.is_none() => "",
            _ => return Err(self.invalid()),
        };
        Ok(Name { namespace, local })
    }
}

/// The characters of all texts in an element (XPath 1.0, section 5).
fn value(node: Node<'_, '_>) -> String {
    let texts = node.descendants().filter(|it| it.is_text());
    texts.filter_map(|it| it.text()).collect()
}

#[cfg(test)]
mod tests {
    use roxmltree::Document;

    use super::*;
    use crate::xml_document::{parse, span};

    const DOCUMENT: &str = r#"<?xml version="1.0"?><!--c1--><?p x?><a:doc xmlns:a="urn:a" xmlns="urn:d" xmlns:u="urn:u">
<note id="n1">one</note><note u:k="v" id="n2">t&amp;wo<!--c2--><?p y?><?q z?>tail</note><a:note/><list><foo>1</foo></list></a:doc>"#;

    fn located(selector: &str) -> Result<String, &'static str> {
        let mut budget = Budget::new();
        let document = parse(DOCUMENT, "file", &mut budget).unwrap();
        let found = locate(selector, &document, &mut budget);
        found
            .map_err(|error| error.code())
            .map(|target| match target {
                Target::Node(node) => DOCUMENT[span(node)].to_owned(),
                Target::Attribute(it) => DOCUMENT[it.name.start..it.value.end].to_owned(),
            })
    }

    fn locate<'t>(
        selector: &str,
        document: &'t Document<'t>,
        budget: &mut Budget,
    ) -> Result<Target<'t>, PatchError> {
        let patch = r#"<diff xmlns="urn:d" xmlns:x="urn:a" xmlns:w="urn:u"/>"#;
        let patch = Document::parse(patch).unwrap();
        let reader = SelectorReader {
            rest: selector,
            operation: patch.root_element(),
            number: 0,
            budget,
        };
        reader.locate(document.root())
    }

    #[test]
    fn one_node_is_located() {
        let second = r#"<note u:k="v" id="n2">t&amp;wo<!--c2--><?p y?><?q z?>tail</note>"#;
        for (selector, expected) in [
            ("x:doc/note[1]", r#"<note id="n1">one</note>"#),
            ("/x:doc/note[2]", second),
            ("*/note[@id='n2']", second),
            ("*/note[@w:k=\"v\"]", second),
            ("*/note[.='one']", r#"<note id="n1">one</note>"#),
            ("*/note[.='t&wotail']", second),
            ("*/x:note", "<a:note/>"),
            ("*/*[3]", "<a:note/>"),
            ("*/*[foo='1']/foo", "<foo>1</foo>"),
            ("x:doc/note[@id='n2'][1]/comment()", "<!--c2-->"),
            ("x:doc/note[2]/text()[1]", "t&amp;wo"),
            ("x:doc/note[2]/processing-instruction('q')", "<?q z?>"),
            ("x:doc/note[2]/processing-instruction()[1]", "<?p y?>"),
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
            "*/note[3]",
            "*/note[@k='v']",
            "*/note[1]/@w:id",
            "*/text()[9]",
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
            "y:doc",
            "*/@id/x",
            "count(*)",
            "*|*",
            "*/note[1]x",
            "id(n1)",
            "*/note[@id='n1]",
            "*/../x",
            ".",
            "a b",
            "99999999999999999999",
            "*/note[99999999999999999999]",
        ] {
            assert_eq!(located(selector), Err("patch-invalid"), "{selector}");
        }
    }

    #[test]
    fn work_of_a_selector_is_limited() {
        let document = format!("<a>{}</a>", "<b><c>x</c></b>".repeat(1000));
        let document = Document::parse(&document).unwrap();
        // Each form of a step and of a condition counts what it looks at.
        let many = format!("*/*{}", "[c='x']".repeat(100));
        for costly in [
            "*/*[c='y'][.='z']",
            "*/*[.='x']/c",
            "*/b[@k='v']",
            "*/b/c/text()[1]",
            "*/*/*[1]",
            "*/b[1000]/c",
            "*/comment()",
            "*/b/@k",
            "*/b/namespace::p",
            &many,
        ] {
            let error = locate(costly, &document, &mut Budget::of_work(900)).err();
            let limit = Some(PatchError::Limit("too much work"));
            assert_eq!(error, limit, "{costly}");
        }
    }
}
