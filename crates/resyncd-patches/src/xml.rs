//! XML patch operations (RFC 5261), in the document of RFC 7351 or in any other one whose root has the operations as its children.
//!
//! An operation changes the text of the file only where its target is. A prefix in added content means what it means in the patch:
//! where the file has another prefix for the same namespace, that is written instead (section 4.2.3).
//!
//! The specification says what the nodes of the result are, not what its bytes are. Where the usual programs, which write a whole
//! document anew, write something else, that is a second result.

use std::ops::Range;

use roxmltree::{Document, Node};

use super::error::{Budget, MAX_BYTES, PatchError};
use super::xml_document::{Attribute, Tag, content, is_space, parse, span};
use super::xml_selector::{SelectorReader, Target};

/// The namespace of RFC 7351.
const OPERATIONS: &str = "urn:ietf:rfc:7351";

/// The steps of an operation, beyond those that are counted one by one.
const OPERATION_STEPS: usize = 512;

/// What is written in place of a part of a text.
type Edit = (Range<usize>, String);

/// The documents that a patch may make of one, the most likely first: one or two.
pub(super) fn apply(
    file: &str,
    patch: &str,
    budget: &mut Budget,
) -> Result<Vec<String>, PatchError> {
    let patch = parse(patch, "patch", budget)?;
    let operations = patch.root_element().children().filter(Node::is_element);
    let mut text = file.to_owned();
    for (number, node) in operations.enumerate() {
        budget.spend(OPERATION_STEPS)?;
        // The places of all nodes are those of the document as it is now.
        let document = &parse(&text, "file", budget)?;
        let operation = XmlOperation {
            number,
            node,
            document,
            budget,
        };
        let (span, new) = operation.edit()?;
        if text.len() + new.len() > MAX_BYTES {
            return Err(PatchError::Limit("it adds too much"));
        }
        text.replace_range(span, &new);
    }
    // Here a name that is none, an attribute that exists and a root that is removed are found.
    let anew = written_anew(&parse(&text, "result", budget)?, file);
    let mut results = vec![text, anew];
    results.dedup();
    Ok(results)
}

/// A document as programs write it that write all of it: an element without content is one tag, which ends as those of the file.
fn written_anew(document: &Document<'_>, file: &str) -> String {
    let end = if file.contains(" />") { " />" } else { "/>" };
    let childless = document.descendants().filter(|it| !it.has_children());
    let edits = childless.filter_map(|node| {
        let end_of_name = Tag::of(node)?.attributes_end();
        Some((end_of_name..node.range().end, end.to_owned()))
    });
    edited(document.input_text(), 0, edits.collect())
}

/// A text with its edits; their places are relative to `begin`.
fn edited(text: &str, begin: usize, mut edits: Vec<Edit>) -> String {
    edits.sort_by_key(|(span, _)| span.start);
    let mut result = String::with_capacity(text.len());
    let mut at = 0;
    for (span, new) in edits {
        result.push_str(&text[at..span.start - begin]);
        result.push_str(&new);
        at = span.end - begin;
    }
    result.push_str(&text[at..]);
    result
}

/// One operation of a patch, and the document that it changes.
pub(super) struct XmlOperation<'a> {
    pub(super) number: usize,
    pub(super) node: Node<'a, 'a>,
    pub(super) document: &'a Document<'a>,
    pub(super) budget: &'a mut Budget,
}

impl<'a> XmlOperation<'a> {
    pub(super) fn invalid(&self, reason: &'static str) -> PatchError {
        PatchError::Operation(self.number, reason)
    }

    pub(super) fn unfit(&self, reason: &'static str) -> PatchError {
        PatchError::Unfit(self.number, reason)
    }

    fn edit(mut self) -> Result<Edit, PatchError> {
        let namespace = self.node.tag_name().namespace();
        let root = self.node.document().root_element().tag_name().namespace();
        if namespace != Some(OPERATIONS) && namespace != root {
            return Err(self.invalid("it is of another namespace"));
        }
        let rest = self.node.attribute("sel").unwrap_or_default().trim();
        let operation = &mut self;
        let target = SelectorReader { rest, operation }.locate()?;
        match self.node.tag_name().name() {
            "add" => self.add(target),
            "replace" => self.replace(target),
            "remove" => self.remove(target),
            _ => Err(self.invalid("it is not add, replace or remove")),
        }
    }

    fn add(&mut self, target: Target<'_>) -> Result<Edit, PatchError> {
        let Target::Node(node) = target else {
            return Err(self.unfit("nothing can be added to its target"));
        };
        if let Some(added) = self.node.attribute("type") {
            return self.add_attribute(node, added);
        }
        let position = self.node.attribute("pos");
        let is_beside = matches!(position, Some("before" | "after"));
        let parent = node.parent().filter(|_| is_beside).unwrap_or(node);
        let added = self.adapted(content(self.node).unwrap_or_default(), parent)?;
        let at = match (position, content(node), Tag::of(node)) {
            (Some("before"), ..) => span(node).start,
            (Some("after"), ..) => span(node).end,
            (Some("prepend"), Some(inner), _) => inner.start,
            (None, Some(inner), _) => inner.end,
            (None | Some("prepend"), None, Some(tag)) => {
                // It is one tag: that gets an end.
                let name = &self.document.input_text()[tag.name.clone()];
                let span = tag.attributes_end()..node.range().end;
                return Ok((span, format!(">{added}</{name}>")));
            }
            _ => return Err(self.invalid("its position does not fit")),
        };
        Ok((at..at, added))
    }

    /// Adds an attribute or the declaration of a prefix.
    fn add_attribute(&mut self, node: Node<'_, '_>, added: &str) -> Result<Edit, PatchError> {
        let tag = Tag::of(node).filter(|_| !self.node.has_attribute("pos"));
        let tag = tag.ok_or_else(|| self.invalid("its type does not fit"))?;
        let name = if let Some(prefix) = added.strip_prefix("namespace::") {
            format!("xmlns:{prefix}")
        } else {
            let name = added.strip_prefix('@');
            let name = name.ok_or_else(|| self.invalid("its type is unknown"))?;
            self.renamed(name, false, self.node, node)?
        };
        let at = tag.attributes_end();
        let value = quoted(self.value()?, "\"");
        Ok((at..at, format!(" {name}=\"{value}\"")))
    }

    fn replace(&mut self, target: Target<'_>) -> Result<Edit, PatchError> {
        let node = match target {
            Target::Node(node) if node.is_text() => {
                return Ok((span(node), self.value()?.to_owned()));
            }
            Target::Node(node) => node,
            Target::Attribute(Attribute { value, .. }) => {
                let quote = &self.document.input_text()[value.end..=value.end];
                return Ok((value, quoted(self.value()?, quote)));
            }
        };
        let mut added = self.node.children().filter(|it| !is_space(*it));
        let only = added.next().filter(|_| added.next().is_none());
        let only = only.filter(|only| only.node_type() == node.node_type());
        let only = only.ok_or_else(|| self.invalid("its content does not fit its target"))?;
        let new = self.adapted(only.range(), node.parent().unwrap_or(node))?;
        Ok((node.range(), new))
    }

    fn remove(&self, target: Target<'_>) -> Result<Edit, PatchError> {
        let ends = self.node.attribute("ws").unwrap_or_default();
        if !["", "before", "after", "both"].contains(&ends) {
            return Err(self.invalid("its white space is unknown"));
        }
        let node = match target {
            Target::Node(node) => node,
            Target::Attribute(attribute) if ends.is_empty() => {
                let before = self.document.input_text()[..attribute.name.start].trim_ascii_end();
                return Ok((before.len()..attribute.value.end + 1, String::new()));
            }
            Target::Attribute(_) => return Err(self.invalid("no white space is at an attribute")),
        };
        let space = |sibling: Option<Node<'_, '_>>| {
            let space = sibling.filter(|it| is_space(*it)).map(span);
            space.ok_or_else(|| self.unfit("there is no white space"))
        };
        let mut removed = span(node);
        if matches!(ends, "before" | "both") {
            removed.start = space(node.prev_sibling())?.start;
        }
        if matches!(ends, "after" | "both") {
            removed.end = space(node.next_sibling())?.end;
        }
        Ok((removed, String::new()))
    }

    /// The text of the operation as it is written; it has nothing else.
    fn value(&self) -> Result<&'a str, PatchError> {
        let content = content(self.node).unwrap_or_default();
        let text = &self.node.document().input_text()[content];
        if text.contains('<') {
            return Err(self.invalid("it has more than text"));
        }
        Ok(text)
    }

    /// A part of the operation's content as it is written below a node of the file.
    fn adapted(&mut self, part: Range<usize>, parent: Node<'_, '_>) -> Result<String, PatchError> {
        let text = self.node.document().input_text();
        let mut edits = Vec::new();
        for node in self.node.descendants() {
            let tag = Tag::of(node).filter(|tag| part.contains(&tag.name.start));
            let Some(tag) = tag else { continue };
            let mut names = vec![(tag.name.clone(), true)];
            let end = tag.content.map(|it| it.end + 2);
            names.extend(end.map(|it| (it..it + tag.name.len(), true)));
            names.extend(tag.attributes.into_iter().map(|it| (it.name, false)));
            for (span, is_element) in names {
                let new = self.renamed(&text[span.clone()], is_element, node, parent)?;
                edits.push((span, new));
            }
        }
        Ok(edited(&text[part.clone()], part.start, edits))
    }

    /// A name of the patch, at a node of it, as it is written below a node of the file.
    fn renamed(
        &mut self,
        name: &str,
        is_element: bool,
        node: Node<'_, '_>,
        parent: Node<'_, '_>,
    ) -> Result<String, PatchError> {
        let (prefix, local) = match name.split_once(':') {
            Some((prefix, local)) => (Some(prefix), local),
            None => (None, name),
        };
        let scopes = [node, self.node, parent];
        let in_scope = scopes.map(|it| it.namespaces().len());
        self.budget.spend(8 + in_scope.iter().sum::<usize>())?;
        let uris = scopes.map(|it| it.lookup_namespace_uri(prefix).unwrap_or_default());
        let [uri, of_operation, of_parent] = uris;
        // What means something else at the operation is declared in the content itself.
        let is_kept = uri != of_operation || uri == of_parent;
        if is_kept || (prefix.is_none() && !is_element) {
            return Ok(name.to_owned());
        }
        let mut known = parent.namespaces();
        let known = known.find(|it| it.uri() == uri && (is_element || it.name().is_some()));
        let known = known.ok_or_else(|| self.unfit("the file has no prefix for a namespace"))?;
        let new = match known.name() {
            Some(prefix) => format!("{prefix}:{local}"),
            None => local.to_owned(),
        };
        self.budget.add(new.len())?;
        Ok(new)
    }
}

/// A text as the value of an attribute.
fn quoted(text: &str, quote: &str) -> String {
    text.replace(quote, if quote == "'" { "&apos;" } else { "&quot;" })
}

#[cfg(test)]
mod tests {
    mod examples;

    use proptest::prelude::*;

    use super::*;
    use crate::error::{MAX_NODES, MAX_WORK};

    fn patched(file: &str, operations: &str) -> Result<String, PatchError> {
        let patch = if operations.starts_with("<?") || operations.starts_with("<p:") {
            operations.to_owned()
        } else {
            format!("<diff>{operations}</diff>")
        };
        Ok(apply(file, &patch, &mut Budget::new(MAX_WORK))?.swap_remove(0))
    }

    /// Section 4.2: namespaces of selectors and of added content are those of the patch; the prefixes are those of the file.
    #[test]
    fn namespaces_are_those_of_the_patch() {
        for (file, patch, expected) in [
            (
                r#"<doc xmlns="urn:x"><elem a="1"/></doc>"#,
                r#"<p:diff xmlns="urn:x" xmlns:p="urn:diff"><p:add sel="doc/elem[@a='1']"><child id="ert4773"><node/></child></p:add></p:diff>"#,
                r#"<doc xmlns="urn:x"><elem a="1"><child id="ert4773"><node/></child></elem></doc>"#,
            ),
            (
                r#"<doc xmlns="urn:x" xmlns:q="urn:q"><elem a="1"></elem></doc>"#,
                r#"<?xml version="1.0"?><diff xmlns:pref="urn:x" xmlns:r="urn:q"><add sel="pref:doc/pref:elem"><pref:child r:k="v">t</pref:child></add></diff>"#,
                r#"<doc xmlns="urn:x" xmlns:q="urn:q"><elem a="1"><child q:k="v">t</child></elem></doc>"#,
            ),
            (
                r#"<x:doc xmlns:x="urn:x"><x:elem/></x:doc>"#,
                r#"<p:patch xmlns:p="urn:ietf:rfc:7351" xmlns="urn:x"><p:replace sel="doc/elem"><new><in xmlns="urn:y"/></new></p:replace></p:patch>"#,
                r#"<x:doc xmlns:x="urn:x"><x:new><in xmlns="urn:y"/></x:new></x:doc>"#,
            ),
            (
                r#"<doc xmlns:q="urn:q"/>"#,
                r#"<?xml version="1.0"?><diff xmlns:r="urn:q"><add sel="doc" type="@r:k">v</add></diff>"#,
                r#"<doc xmlns:q="urn:q" q:k="v"/>"#,
            ),
        ] {
            assert_eq!(patched(file, patch).as_deref(), Ok(expected), "{patch}");
        }
    }

    #[test]
    fn patch_that_does_not_fit_or_is_invalid_is_an_error() {
        for (file, operations, code) in [
            ("<doc/>", r#"<add sel="doc/x">y</add>"#, "patch-unfit"),
            (
                "<doc><a/><a/></doc>",
                r#"<remove sel="doc/a"/>"#,
                "patch-unfit",
            ),
            (
                "<doc a=\"1\"/>",
                r#"<add sel="doc" type="@a">y</add>"#,
                "patch-unreadable",
            ),
            (
                "<doc><a/> x</doc>",
                r#"<remove sel="doc/a" ws="after"/>"#,
                "patch-unfit",
            ),
            (
                "<doc><a/></doc>",
                r#"<remove sel="doc/a" ws="before"/>"#,
                "patch-unfit",
            ),
            ("<doc/>", r#"<remove sel="doc"/>"#, "patch-unreadable"),
            (
                "<doc xmlns=\"urn:x\"/>",
                r#"<add sel="*"><y/></add>"#,
                "patch-unfit",
            ),
            ("<doc/>", r#"<add>y</add>"#, "patch-invalid"),
            (
                "<doc/>",
                r#"<add sel="doc" type="@a b">v</add>"#,
                "patch-unreadable",
            ),
            (
                "<doc/>",
                r#"<add sel="doc" type="@q:b">v</add>"#,
                "patch-unreadable",
            ),
            (
                "<doc xmlns:q=\"u\"/>",
                r#"<add sel="doc" type="@q:b">v</add>"#,
                "patch-unfit",
            ),
            (
                "<doc>x</doc>",
                r#"<remove sel="doc/text()[1]" ws="both"/>"#,
                "patch-unfit",
            ),
            (
                "<doc a=\"1\"/>",
                r#"<remove sel="doc/@a" ws="both"/>"#,
                "patch-invalid",
            ),
            (
                "<doc xmlns:p=\"u\"/>",
                r#"<remove sel="doc/namespace::p" ws="both"/>"#,
                "patch-invalid",
            ),
            (
                "<doc xmlns:p=\"u\"/>",
                r#"<replace sel="doc/namespace::q">v</replace>"#,
                "patch-unfit",
            ),
            (
                "<doc><a/></doc>",
                r#"<replace sel="doc/a"><?hahaha?></replace>"#,
                "patch-invalid",
            ),
            ("<doc/>", r#"<add sel="//doc">y</add>"#, "patch-invalid"),
            ("<doc/>", r#"<move sel="doc"/>"#, "patch-invalid"),
            (
                "<doc/>",
                r#"<add sel="doc" pos="within">y</add>"#,
                "patch-invalid",
            ),
            (
                "<doc/>",
                r#"<add sel="doc" type="element">y</add>"#,
                "patch-invalid",
            ),
            (
                "<doc><a/></doc>",
                r#"<replace sel="doc/a">text</replace>"#,
                "patch-invalid",
            ),
            (
                "<doc><a/></doc>",
                r#"<replace sel="doc/a"><b/><c/></replace>"#,
                "patch-invalid",
            ),
            (
                "<doc a=\"1\"/>",
                r#"<replace sel="doc/@a"><b/></replace>"#,
                "patch-invalid",
            ),
            (
                "<doc/>",
                r#"<x:add xmlns:x="urn:x" sel="doc">y</x:add>"#,
                "patch-invalid",
            ),
            (
                "<doc/>",
                r#"<add sel="doc" pos="after">y</add>"#,
                "patch-unreadable",
            ),
            (
                "<doc/>",
                r#"<add sel="doc" pos="after"><b/></add>"#,
                "patch-unreadable",
            ),
            ("<doc>", "<remove sel=\"doc/a\"/>", "patch-unreadable"),
            ("<doc/>", "<add", "patch-unreadable"),
            (
                "<!DOCTYPE doc [<!ENTITY e \"x\">]><doc>&e;</doc>",
                "<remove sel=\"doc/a\"/>",
                "patch-unreadable",
            ),
            (
                "\u{feff}<é/>",
                "<remove sel=\"doc/a\"/>",
                "patch-unreadable",
            ),
            ("<x:doc/>", "<remove sel=\"doc/a\"/>", "patch-unreadable"),
            ("", "<remove sel=\"doc/a\"/>", "patch-unreadable"),
        ] {
            let error = patched(file, operations).unwrap_err();
            assert_eq!(error.code(), code, "{file} {operations}: {error}");
        }
    }

    #[test]
    fn costly_patches_are_stopped() {
        // Nothing of a deep document is recursive.
        let deep = format!("{}{}", "<a>".repeat(100_000), "</a>".repeat(100_000));
        let error = patched(&deep, "<remove sel=\"a/b\"/>").unwrap_err();
        assert_eq!(error.code(), "patch-unfit");
        let many = format!("<a>{}</a>", "<a/>".repeat(MAX_NODES));
        let error = patched(&many, "<remove sel=\"a/b\"/>");
        assert_eq!(error, Err(PatchError::Limit("too many nodes")));
        // A document is read again for each operation.
        let long = format!("<doc>{}</doc>", "x".repeat(100_000));
        let patch = format!("<diff>{}</diff>", "<add sel=\"doc\">y</add>".repeat(100));
        let mut budget = Budget::new(1_000_000);
        let error = apply(&long, &patch, &mut budget);
        assert_eq!(error, Err(PatchError::Limit("too much work")));
    }

    /// Each of these takes millions of comparisons, or reads millions of bytes: much more than its length.
    #[test]
    fn searches_of_a_patch_are_counted() {
        let numbered = |number: usize, each: &dyn Fn(usize) -> String| -> String {
            (0..number).map(each).collect()
        };
        let long = "p".repeat(200);
        let long_prefixes = numbered(100, &|n| format!(" xmlns:{long}{n:03}=\"u\""));
        let prefixes = numbered(100, &|n| format!(" xmlns:p{n:03}=\"u\""));
        let diff = |operations: &str| format!("<diff>{operations}</diff>");
        let conditions = |condition: &str, steps: usize| {
            format!("*{}", format!("/*{}", condition.repeat(100)).repeat(steps))
        };
        let attributes = numbered(100, &|n| format!(" q001:a{n}=\"\""));
        let name = "n".repeat(1000);
        let namespace = format!("xmlns:p=\"{}\"", "u".repeat(200));
        for (what, file, patch, work) in [
            (
                "attributes below declarations",
                "<r/>".to_owned(),
                diff(&format!(
                    "<add sel=\"r\"><a xmlns:q001=\"q\">{}{}{}</a></add>",
                    format!("<a{prefixes}>").repeat(8),
                    format!("<b{attributes}/>").repeat(50),
                    "</a>".repeat(8)
                )),
                400_000,
            ),
            (
                "long prefixes in scope",
                format!("<r{long_prefixes}><a{long_prefixes}/></r>"),
                diff("<add sel=\"r/a\"><b/></add>"),
                20_000,
            ),
            (
                "long prefixes of a document",
                format!(
                    "<r{long_prefixes}>{}</r>",
                    format!("<{long}000:a/>").repeat(200)
                ),
                diff("<remove sel=\"r/b\"/>"),
                30_000,
            ),
            (
                "long names",
                format!("<r>{}</r>", format!("<a {name}=\"\"/>").repeat(100)),
                diff(&format!(
                    "<remove sel=\"{}\"/>",
                    conditions(&format!("[@{name}='']"), 1)
                )),
                8_000_000,
            ),
            (
                "long namespaces",
                format!("<r {namespace}>{}</r>", "<a p:k=\"\"/>".repeat(1000)),
                format!(
                    "<d {namespace}><remove sel=\"{}\"/></d>",
                    conditions("[@p:k='']", 1)
                ),
                8_000_000,
            ),
            (
                "declarations that are copied",
                format!("<r{prefixes}>{}</r>", "<a xmlns:q=\"\"/>".repeat(100)),
                diff("<add sel=\"r\"/>"),
                200_000,
            ),
            (
                "operations",
                "<a/>".to_owned(),
                diff(&"<add sel=\"a\"/>".repeat(10_000)),
                2_000_000,
            ),
            (
                "nodes that are read again",
                format!("<r>{}</r>", "<a/>".repeat(10_000)),
                diff(&"<add sel=\"r\"/>".repeat(20)),
                2_000_000,
            ),
            (
                "comments that are read again",
                format!("<r>{}</r>", "<!---->".repeat(10_000)),
                diff(&"<add sel=\"r\"/>".repeat(20)),
                2_000_000,
            ),
            (
                "attributes that are compared",
                format!("<r>{}</r>", "<a k=\"\"/>".repeat(1000)),
                diff(&format!("<remove sel=\"{}\"/>", conditions("[@k='']", 1))),
                600_000,
            ),
        ] {
            let applied = apply(&file, &patch, &mut Budget::new(work));
            let limit = Err(PatchError::Limit("too much work"));
            assert!(applied == limit, "{what}");
        }
    }

    #[test]
    fn long_prefixes_namespaces_and_tags_are_limited() {
        let long = "p".repeat(2000);
        let many: String = (0..300).map(|n| format!(" a{n}=\"\"")).collect();
        let patch = "<p:d xmlns:p=\"q\" xmlns=\"u\"><p:add sel=\"*\"><a/></p:add></p:d>";
        for (file, limit) in [
            (
                format!("<doc xmlns:{long}=\"u\"/>"),
                "a prefix or a namespace is too long",
            ),
            (
                format!("<doc xmlns=\"{long}\"/>"),
                "a prefix or a namespace is too long",
            ),
            (format!("<doc{many}/>"), "too many attributes"),
        ] {
            assert_eq!(patched(&file, patch), Err(PatchError::Limit(limit)));
        }
        // What is renamed counts as added.
        let prefix = "p".repeat(240);
        let file = format!("<doc xmlns:{prefix}=\"u\"/>");
        let added = "<a/>".repeat(250_000);
        let patch =
            format!("<p:d xmlns:p=\"q\" xmlns=\"u\"><p:add sel=\"*\">{added}</p:add></p:d>");
        assert_eq!(
            patched(&file, &patch),
            Err(PatchError::Limit("it adds too much"))
        );
    }

    fn any_document() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            Just("text".to_owned()),
            Just(" \n".to_owned()),
            Just("&amp;é".to_owned()),
            Just("<!--c-->".to_owned()),
            Just("<?p q?>".to_owned()),
            Just("<![CDATA[<x>]]>".to_owned()),
            Just("<b/>".to_owned()),
        ];
        let element = leaf.prop_recursive(4, 24, 4, |inner| {
            let name = proptest::sample::select(vec!["a", "b", "p:c"]);
            let attributes = proptest::sample::select(vec![
                "",
                " a='1'",
                " p:k=\"v\"  id = 'x' ",
                " xmlns=\"urn:x\"",
            ]);
            (name, attributes, proptest::collection::vec(inner, 0..4)).prop_map(
                |(name, attributes, inner)| {
                    format!("<{name}{attributes}>{}</{name}>", inner.concat())
                },
            )
        });
        proptest::collection::vec(element, 0..4)
            .prop_map(|inner| format!("<doc xmlns:p=\"urn:p\">{}</doc>\n", inner.concat()))
    }

    fn any_operation() -> impl Strategy<Value = String> {
        let name = proptest::sample::select(vec!["add", "replace", "remove"]);
        let selector = "(doc|\\*)(/(a|b|p:c|\\*)(\\[[12]\\]|\\[@a='1'\\])?){0,2}(/@a|/text\\(\\)\\[1\\]|/comment\\(\\)|/namespace::p)?";
        let more = proptest::sample::select(vec![
            "",
            " pos='before'",
            " pos='prepend'",
            " pos='after'",
            " type='@n'",
            " ws='both'",
        ]);
        let content = proptest::sample::select(vec![
            "",
            "t",
            "<n/>",
            "<p:n p:k='1'>x</p:n>",
            "<!--n-->",
            " <n>&lt;</n> ",
        ]);
        (name, selector, more, content).prop_map(|(name, selector, more, content)| {
            format!("<{name} sel=\"{selector}\"{more}>{content}</{name}>")
        })
    }

    proptest! {
        #[test]
        fn application_is_total_and_gives_documents(file in any_document(), operations in proptest::collection::vec(any_operation(), 0..4)) {
            let patch = format!("<diff xmlns:p=\"urn:p\">{}</diff>", operations.concat());
            if let Ok(results) = apply(&file, &patch, &mut Budget::new(MAX_WORK)) {
                prop_assert!((1..=2).contains(&results.len()));
                for patched in results {
                    prop_assert!(parse(&patched, "file", &mut Budget::new(MAX_WORK)).is_ok());
                }
            }
            // The nodes of a document are its text, without a gap.
            let document = parse(&file, "file", &mut Budget::new(MAX_WORK)).unwrap();
            for node in document.descendants() {
                if let Some(content) = content(node) {
                    let children: String = node.children().map(|it| &file[span(it)]).collect();
                    prop_assert_eq!(&children, &file[content]);
                }
            }
        }

        #[test]
        fn any_text_is_a_document_or_an_error(file in any::<String>(), nearly in "[<>/a=\"' !\\-?\\[\\]&;xé:]{0,40}", selector in "[a*/@\\[\\]'=.()1: -]{0,20}") {
            let mut budget = Budget::new(MAX_WORK);
            let _ = apply(&file, &nearly, &mut budget);
            let _ = apply(&nearly, &file, &mut budget);
            let wrapped = format!("<a>{nearly}</a>");
            let patch = format!("<d><add sel=\"{selector}\">x</add></d>");
            let _ = apply(&wrapped, &patch, &mut budget);
        }
    }
}
