//! XML patch operations (RFC 5261), in the document of RFC 7351 or in any other one whose root has the operations as its children.
//!
//! An operation changes the text of the file only where its target is. A prefix in added content means what it means in the patch:
//! where the file has another prefix for the same namespace, that is written instead (section 4.2.3).
//!
//! The specification says what the nodes of the result are, not what its bytes are. Where the usual programs, which write a whole
//! document anew, write something else, that is a second result.

use std::borrow::Cow;
use std::cell::Cell;
use std::ops::Range;

use super::error::{Budget, MAX_BYTES, PatchError};
use super::xml_selector::{SelectedPart, Selector, SelectorError};
use super::xml_tree::{NodeId, NodeKind, Tree, split_name};

/// The namespace of RFC 7351.
const OPERATIONS: &str = "urn:ietf:rfc:7351";

/// The steps of an operation, beyond those that are counted one by one.
const OPERATION_STEPS: usize = 512;

/// What a program writes where the specification leaves it open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WritingStyle {
    /// Only what the patch names is changed.
    InPlace,
    /// An element without content is one tag, which ends as those of the file, and declarations of namespaces come before attributes.
    Anew,
}

/// The documents that a patch may make of one, the most likely first: one or two.
pub(super) fn apply(
    file: &str,
    patch: &str,
    budget: &mut Budget,
) -> Result<Vec<String>, PatchError> {
    let patch = Tree::parse(patch, "patch", budget)?;
    let has_choice = Cell::new(false);
    let in_place = apply_writing(file, &patch, (WritingStyle::InPlace, &has_choice), budget)?;
    let mut results = vec![in_place];
    // It may take more than a patch may: then there is one result.
    if has_choice.get()
        && let Ok(anew) = apply_writing(file, &patch, (WritingStyle::Anew, &has_choice), budget)
        && anew != results[0]
    {
        results.push(anew);
    }
    Ok(results)
}

/// Applies the operations of a patch to a document, one after the other. Notes whether it has a choice what to write.
fn apply_writing(
    file: &str,
    patch: &Tree<'_>,
    (writing, has_choice): (WritingStyle, &Cell<bool>),
    budget: &mut Budget,
) -> Result<String, PatchError> {
    let mut text = file.to_owned();
    let root = patch
        .children(0)
        .find(|&id| patch.node(id).kind == NodeKind::Element);
    let Some(root) = root else {
        return Err(patch.error("no root", 0));
    };
    let elements = patch.children(root);
    let elements = elements.filter(|&id| patch.node(id).kind == NodeKind::Element);
    for (number, id) in elements.enumerate() {
        budget.spend(OPERATION_STEPS)?;
        // The places of all nodes are those of the document as it is now.
        let tree = Tree::parse(&text, "file", budget)?;
        let operation = XmlOperation {
            number,
            writing,
            has_choice,
            patch,
            root,
            id,
            tree: &tree,
        };
        let edit = operation.edit(budget)?;
        if text.len() + edit.iter().map(|(_, new)| new.len()).sum::<usize>() > MAX_BYTES {
            return Err(PatchError::Limit("it adds too much"));
        }
        text = edited(&text, edit);
    }
    // The result is to be a document.
    Tree::parse(&text, "file", budget)?;
    Ok(text)
}

/// What is written in place of which parts of a text.
type Edit = Vec<(Range<usize>, String)>;

fn edited(text: &str, mut edit: Edit) -> String {
    edit.sort_by_key(|(span, _)| span.start);
    let mut result = String::with_capacity(text.len());
    let mut at = 0;
    for (span, new) in edit {
        result.push_str(text.get(at..span.start).unwrap_or_default());
        result.push_str(&new);
        at = span.end;
    }
    result.push_str(text.get(at..).unwrap_or_default());
    result
}

/// One operation of a patch.
struct XmlOperation<'a> {
    number: usize,
    writing: WritingStyle,
    has_choice: &'a Cell<bool>,
    patch: &'a Tree<'a>,
    root: NodeId,
    id: NodeId,
    tree: &'a Tree<'a>,
}

impl XmlOperation<'_> {
    fn invalid(&self, reason: &'static str) -> PatchError {
        PatchError::invalid(self.number, reason)
    }

    fn unfit(&self, reason: &'static str) -> PatchError {
        PatchError::unfit(self.number, reason)
    }

    /// The value of an attribute of the operation.
    fn attribute(&self, name: &str, budget: &mut Budget) -> Result<Option<String>, PatchError> {
        let attributes = self.patch.attributes(self.id, budget)?;
        let found = attributes.into_iter().find(|it| it.name == name);
        let value = found.map(|it| self.patch.unescaped(it.value));
        Ok(value.transpose()?.map(Cow::into_owned))
    }

    fn edit(&self, budget: &mut Budget) -> Result<Edit, PatchError> {
        let namespace = self.patch.namespace(self.id);
        if namespace != OPERATIONS && namespace != self.patch.namespace(self.root) {
            return Err(self.invalid("it is of another namespace"));
        }
        let scope = self.patch.scope(self.id, budget)?;
        let selector = self.attribute("sel", budget)?;
        let selector = selector.ok_or_else(|| self.invalid("`sel` is missing"))?;
        let located = Selector::parse(&selector, &scope, budget)
            .and_then(|selector| selector.locate(self.tree, budget));
        let target = located.map_err(|error| match error {
            SelectorError::Invalid => self.invalid("`sel` is not a valid selector"),
            SelectorError::NotOne => self.unfit("its selector does not locate one node"),
            SelectorError::Patch(error) => error,
        })?;
        match split_name(self.patch.name(self.id, budget)?).1 {
            "add" => self.add(&target, budget),
            "replace" => self.replace(&target, budget),
            "remove" => self.remove(&target, budget),
            _ => Err(self.invalid("it is not add, replace or remove")),
        }
    }

    fn add(&self, target: &SelectedPart, budget: &mut Budget) -> Result<Edit, PatchError> {
        let SelectedPart::Node(id) = *target else {
            return Err(self.unfit("nothing can be added to its target"));
        };
        let node = self.tree.node(id);
        let is_element = node.kind == NodeKind::Element;
        let position = self.attribute("pos", budget)?;
        if let Some(added) = self.attribute("type", budget)? {
            if !is_element || position.is_some() {
                return Err(self.invalid("its type does not fit"));
            }
            let declared = added.strip_prefix("namespace::");
            let name = match declared {
                Some(prefix) if is_name(prefix) => declaration(prefix),
                Some(_) => return Err(self.invalid("its type is unknown")),
                None => match added.strip_prefix('@') {
                    Some(name) => self.attribute_name(name, id, budget)?,
                    None => return Err(self.invalid("its type is unknown")),
                },
            };
            let attributes = self.tree.attributes(id, budget)?;
            if attributes.iter().any(|it| it.name == name) {
                return Err(self.unfit("the attribute exists"));
            }
            let value = quoted(self.value(budget)?, '"');
            if declared.is_some() && value.is_empty() {
                return Err(self.invalid("a prefix has no namespace"));
            }
            let after_name = self.tree.tag(id).start + 1 + self.tree.name(id, budget)?.len();
            if declared.is_some() && !attributes.is_empty() {
                self.has_choice.set(true);
            }
            let last = match (self.writing, declared) {
                (WritingStyle::Anew, Some(_)) => {
                    attributes.iter().rfind(|it| it.declares().is_some())
                }
                _ => attributes.last(),
            };
            let at = last.map_or(after_name, |last| last.span.end);
            return Ok(vec![(at..at, format!(" {name}=\"{value}\""))]);
        }
        let (parent, at) = match position.as_deref() {
            None if is_element => (id, node.content.end),
            Some("prepend") if is_element => (id, node.content.start),
            Some("before") => (node.parent, node.span.start),
            Some("after") => (node.parent, node.span.end),
            _ => return Err(self.invalid("its position does not fit")),
        };
        let content = self.patch.node(self.id).content.clone();
        let content = self.adapted(content, parent, budget)?;
        if parent == id && node.content.start == node.span.end {
            return self.filled(id, &content, budget);
        }
        Ok(vec![(at..at, content)])
    }

    /// Gives content to an element that is one tag.
    fn filled(&self, id: NodeId, content: &str, budget: &mut Budget) -> Result<Edit, PatchError> {
        let span = &self.tree.node(id).span;
        if content.is_empty() {
            return Ok(Vec::new());
        }
        let tag = self.tree.source(id);
        let open = tag.strip_suffix("/>").unwrap_or(tag).trim_end();
        let name = self.tree.name(id, budget)?;
        let at = span.start + open.len();
        Ok(vec![(at..span.end, format!(">{content}</{name}>"))])
    }

    /// The name of an attribute that is added, with the file's prefix.
    fn attribute_name(
        &self,
        name: &str,
        id: NodeId,
        budget: &mut Budget,
    ) -> Result<String, PatchError> {
        let (prefix, local) = split_name(name);
        if !is_name(local) || !(prefix.is_empty() || is_name(prefix)) {
            return Err(self.invalid("its type is unknown"));
        }
        if prefix.is_empty() || prefix == "xml" {
            return Ok(name.to_owned());
        }
        let known = self.patch.scope(self.id, budget)?;
        let uri = known.uri_of(prefix, budget)?;
        let uri = uri.ok_or_else(|| self.invalid("a prefix is not declared"))?;
        let scope = self.tree.scope(id, budget)?;
        let prefix = scope.prefix_of(uri, prefix, false, budget)?;
        let prefix = prefix.ok_or_else(|| self.unfit("the file has no prefix for a namespace"))?;
        Ok(format!("{prefix}:{local}"))
    }

    /// The text of the operation as it is written; it has nothing else.
    fn value(&self, budget: &mut Budget) -> Result<&str, PatchError> {
        budget.spend_bytes(self.patch.source(self.id).len())?;
        let mut children = self.patch.children(self.id);
        let is_text = children.all(|id| {
            self.patch.node(id).kind == NodeKind::Text
                && !self.patch.source(id).contains("<![CDATA[")
        });
        match is_text {
            true => Ok(&self.patch.text[self.patch.node(self.id).content.clone()]),
            false => Err(self.invalid("it has more than text")),
        }
    }

    /// The only child of the operation that is of that kind, apart from white space.
    fn only(&self, kind: NodeKind, budget: &mut Budget) -> Result<NodeId, PatchError> {
        let unfit = || self.invalid("its content does not fit its target");
        let mut only = None;
        for id in self.patch.children(self.id) {
            if !self.patch.is_space(id, budget)? && only.replace(id).is_some() {
                return Err(unfit());
            }
        }
        let only = only.filter(|&only| self.patch.node(only).kind == kind);
        only.ok_or_else(unfit)
    }

    fn replace(&self, target: &SelectedPart, budget: &mut Budget) -> Result<Edit, PatchError> {
        let (id, attribute) = match target {
            SelectedPart::Node(id) => (*id, None),
            SelectedPart::Attribute(id, name) => (*id, Some(name.clone())),
            SelectedPart::Namespace(id, prefix) => (*id, Some(declaration(prefix))),
        };
        if let Some(name) = attribute {
            let attributes = self.tree.attributes(id, budget)?;
            let found = attributes.into_iter().find(|it| it.name == name);
            let found = found.ok_or_else(|| self.unfit("there is no such attribute"))?;
            let value = quoted(self.value(budget)?, found.quote);
            return Ok(vec![(found.value_span, value)]);
        }
        let node = self.tree.node(id);
        let new = match node.kind {
            NodeKind::Text => self.value(budget)?.to_owned(),
            NodeKind::Document => return Err(self.unfit("nothing replaces the document")),
            kind => {
                let only = self.patch.node(self.only(kind, budget)?).span.clone();
                self.adapted(only, node.parent, budget)?
            }
        };
        let span = node.span.clone();
        if new.is_empty() {
            self.removed(id, span, budget)
        } else {
            Ok(vec![(span, new)])
        }
    }

    /// Removes a part of the content of a node's parent.
    fn removed(
        &self,
        id: NodeId,
        span: Range<usize>,
        budget: &mut Budget,
    ) -> Result<Edit, PatchError> {
        let parent = self.tree.node(self.tree.node(id).parent);
        let is_emptied = parent.kind == NodeKind::Element && parent.content == span;
        if is_emptied {
            self.has_choice.set(true);
        }
        if self.writing == WritingStyle::InPlace || !is_emptied {
            return Ok(vec![(span, String::new())]);
        }
        // The tag ends before the content.
        let end = self.tag_end(budget)?.to_owned();
        Ok(vec![(span.start - 1..parent.span.end, end)])
    }

    /// How an element without content ends: as those of the file do.
    fn tag_end(&self, budget: &mut Budget) -> Result<&'static str, PatchError> {
        budget.spend_bytes(self.tree.text.len())?;
        let ends = self.tree.text.match_indices("/>").map(|(at, _)| at);
        let mut before = ends.map(|at| self.tree.text[..at].ends_with(' '));
        Ok(match before.next() {
            Some(true) if before.all(|is_space| is_space) => " />",
            _ => "/>",
        })
    }

    /// Where an element of the patch ends that has no content, if it is written in another way than [`tag_end`](Self::tag_end).
    fn other_end(&self, id: NodeId, tag_end: &str) -> Option<Range<usize>> {
        let node = self.patch.node(id);
        if !node.content.is_empty() {
            return None;
        }
        let end = match self.patch.source(id).strip_suffix("/>") {
            Some(open) => node.span.start + open.trim_end().len()..node.span.end,
            None => node.content.start - 1..node.span.end,
        };
        (&self.patch.text[end.clone()] != tag_end).then_some(end)
    }

    fn remove(&self, target: &SelectedPart, budget: &mut Budget) -> Result<Edit, PatchError> {
        let space = self.attribute("ws", budget)?;
        let (id, attribute) = match target {
            SelectedPart::Node(id) => (*id, None),
            SelectedPart::Attribute(id, name) => (*id, Some(name.clone())),
            SelectedPart::Namespace(id, prefix) => (*id, Some(declaration(prefix))),
        };
        if let Some(name) = attribute {
            let attributes = self.tree.attributes(id, budget)?;
            let found = attributes.into_iter().find(|it| it.name == name);
            let found = found.ok_or_else(|| self.unfit("there is no such attribute"))?;
            return match space {
                None => Ok(vec![(found.span, String::new())]),
                Some(_) => Err(self.invalid("there is no white space at an attribute")),
            };
        }
        let node = self.tree.node(id);
        let is_root = node.parent == 0 && node.kind == NodeKind::Element;
        if node.kind == NodeKind::Document || is_root {
            return Err(self.unfit("the root element can't be removed"));
        }
        let mut span = node.span.clone();
        let (before, after) = match space.as_deref() {
            None => (false, false),
            Some("before") => (true, false),
            Some("after") => (false, true),
            Some("both") => (true, true),
            Some(_) => return Err(self.invalid("its white space is unknown")),
        };
        if node.kind == NodeKind::Text && space.is_some() {
            return Err(self.invalid("there is no white space at a text"));
        }
        // Its siblings are looked through.
        budget.spend(id - node.parent)?;
        let mut space = |sibling: Option<NodeId>| match sibling {
            Some(at) if self.tree.is_space(at, budget)? => Ok(self.tree.node(at).span.clone()),
            _ => Err(self.unfit("there is no white space")),
        };
        if before {
            let siblings = self.tree.children(node.parent);
            span.start = space(siblings.take_while(|&it| it < id).last())?.start;
        }
        if after {
            let is_sibling = node.after < self.tree.node(node.parent).after;
            span.end = space(Some(node.after).filter(|_| is_sibling))?.end;
        }
        self.removed(id, span, budget)
    }

    /// Content of the patch as it is written below an element of the file.
    fn adapted(
        &self,
        content: Range<usize>,
        parent: NodeId,
        budget: &mut Budget,
    ) -> Result<String, PatchError> {
        let text = &self.patch.text[content.clone()];
        let (known, scope) = (
            self.patch.scope(self.id, budget)?,
            self.tree.scope(parent, budget)?,
        );
        let mut edit = Edit::new();
        let tag_end = self.tag_end(budget)?;
        for id in self.id + 1..self.patch.node(self.id).after {
            let node = self.patch.node(id);
            if node.kind != NodeKind::Element || !content.contains(&node.span.start) {
                continue;
            }
            // What is declared in the content itself.
            let mut declared: Vec<&str> = Vec::new();
            let mut at = id;
            while at != self.id {
                let attributes = self.patch.attributes(at, budget)?;
                declared.extend(attributes.iter().filter_map(|it| it.declares()));
                at = self.patch.node(at).parent;
            }
            let name = self.patch.name(id, budget)?;
            let attributes = self.patch.attributes(id, budget)?;
            let mut rename = |name: &str, begin: usize, is_element: bool| {
                let (prefix, local) = split_name(name);
                budget.spend_search(declared.len(), prefix.len())?;
                if declared.contains(&prefix)
                    || prefix == "xml"
                    || (prefix.is_empty() && !is_element)
                {
                    return Ok(());
                }
                let uri = match known.uri_of(prefix, budget)? {
                    Some(uri) => uri,
                    None if prefix.is_empty() => "",
                    None => return Err(self.invalid("a prefix is not declared")),
                };
                let new = scope.prefix_of(uri, prefix, is_element, budget)?;
                let new =
                    new.ok_or_else(|| self.unfit("the file has no prefix for a namespace"))?;
                if new != prefix {
                    budget.add(0, new.len() + 1 + local.len())?;
                    let name_span = begin..begin + name.len();
                    let new = match new {
                        "" => local.to_owned(),
                        new => format!("{new}:{local}"),
                    };
                    edit.push((name_span, new));
                }
                Ok(())
            };
            rename(name, node.span.start + 1, true)?;
            let other_end = self.other_end(id, tag_end);
            if other_end.is_some() {
                self.has_choice.set(true);
            }
            let other_end = other_end.filter(|_| self.writing == WritingStyle::Anew);
            if node.content.start < node.span.end && other_end.is_none() {
                rename(name, node.content.end + 2, true)?;
            }
            for attribute in attributes {
                if attribute.declares().is_none() {
                    let space = self.patch.text[attribute.span.clone()].trim_start();
                    let begin = attribute.span.end - space.len();
                    rename(attribute.name, begin, false)?;
                }
            }
            edit.extend(other_end.map(|end| (end, tag_end.to_owned())));
        }
        let moved = edit.into_iter().map(|(span, new)| {
            let (start, end) = (span.start - content.start, span.end - content.start);
            (start..end, new)
        });
        Ok(edited(text, moved.collect()))
    }
}

/// Whether a text can be a name without a prefix.
fn is_name(text: &str) -> bool {
    !text.is_empty() && !text.contains(|it: char| it.is_whitespace() || "=\"'<>/:&".contains(it))
}

/// The attribute that declares a prefix.
fn declaration(prefix: &str) -> String {
    format!("xmlns:{prefix}")
}

/// A text as the value of an attribute.
fn quoted(text: &str, quote: char) -> String {
    match quote {
        '"' => text.replace('"', "&quot;"),
        _ => text.replace('\'', "&apos;"),
    }
}

#[cfg(test)]
mod examples;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::xml_tree::Scope;
    use super::*;

    fn patched(file: &str, operations: &str) -> Result<String, PatchError> {
        let patch = match operations.starts_with("<?") || operations.starts_with("<p:") {
            true => operations.to_owned(),
            false => format!("<diff>{operations}</diff>"),
        };
        Ok(apply(file, &patch, &mut Budget::new())?.swap_remove(0))
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
                "patch-unfit",
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
            ("<doc/>", r#"<remove sel="doc"/>"#, "patch-unfit"),
            (
                "<doc xmlns=\"urn:x\"/>",
                r#"<add sel="*"><y/></add>"#,
                "patch-unfit",
            ),
            ("<doc/>", r#"<add>y</add>"#, "patch-invalid"),
            (
                "<doc/>",
                r#"<add sel="doc" type="namespace::p"></add>"#,
                "patch-invalid",
            ),
            (
                "<doc/>",
                r#"<add sel="doc" type='namespace::p="u" q'>v</add>"#,
                "patch-invalid",
            ),
            (
                "<doc>x</doc>",
                r#"<remove sel="doc/text()[1]" ws="both"/>"#,
                "patch-invalid",
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
        let deep = format!("{}{}", "<a>".repeat(10_000), "</a>".repeat(10_000));
        assert_eq!(
            patched(&deep, "<remove sel=\"a/b\"/>"),
            Err(PatchError::Limit("too deep"))
        );
        // A document is read again for each operation.
        let long = format!("<doc>{}</doc>", "x".repeat(100_000));
        let patch = format!("<diff>{}</diff>", "<add sel=\"doc\">y</add>".repeat(100));
        let mut budget = Budget::of_work(1_000_000);
        let error = apply(&long, &patch, &mut budget);
        assert_eq!(error, Err(PatchError::Limit("too much work")));
    }

    /// Each of these takes millions of comparisons, or reads millions of bytes: much more than its length.
    #[test]
    fn searches_of_a_patch_are_counted() {
        let numbered = |number: usize, each: &dyn Fn(usize) -> String| -> String {
            (0..number).map(each).collect()
        };
        let long = "p".repeat(1000);
        let long_prefixes = numbered(250, &|n| format!(" xmlns:{long}{n:03}=\"u\""));
        let prefixes = numbered(250, &|n| format!(" xmlns:p{n:03}=\"u\""));
        let diff = |operations: &str| format!("<diff>{operations}</diff>");
        let conditions = |condition: &str, steps: usize| {
            format!("*{}", format!("/*{}", condition.repeat(100)).repeat(steps))
        };
        let attributes = numbered(250, &|n| format!(" q001:a{n}=\"\""));
        let names = format!("<{}/>", "n".repeat(100_000));
        let namespaces = [1, 2].map(|n| format!("xmlns=\"{}{n}\"", "u".repeat(1000)));
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
                5_000_000,
            ),
            (
                "names of a selector",
                "<r/>".to_owned(),
                format!(
                    "<diff{prefixes}><add sel=\"{}\"/></diff>",
                    conditions("[@p249:a='']", 20)
                ),
                500_000,
            ),
            (
                "long prefixes in scope",
                format!("<r{long_prefixes}><a{long_prefixes}/></r>"),
                diff("<add sel=\"r/a\"><b/></add>"),
                5_000_000,
            ),
            (
                "long prefixes of a document",
                format!(
                    "<r{long_prefixes}>{}</r>",
                    format!("<{long}000:a/>").repeat(200)
                ),
                diff("<remove sel=\"r/b\"/>"),
                5_000_000,
            ),
            (
                "long names",
                format!("<r><a>{}<x/></a></r>", names.repeat(10)),
                diff(&format!("<remove sel=\"{}\"/>", conditions("[x='']", 1))),
                8_000_000,
            ),
            (
                "long namespaces",
                format!(
                    "<r><a {}>{}<x {}/></a></r>",
                    namespaces[0],
                    "<x/>".repeat(1000),
                    namespaces[1]
                ),
                format!(
                    "<p:d xmlns:p=\"q\" {}><p:remove sel=\"{}\"/></p:d>",
                    namespaces[1],
                    conditions("[x='']", 1)
                ),
                5_000_000,
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
                "texts that are compared",
                format!("<r>{}</r>", "<a/>".repeat(1000)),
                diff(&format!("<remove sel=\"{}\"/>", conditions("[.='']", 1))),
                600_000,
            ),
        ] {
            let applied = apply(&file, &patch, &mut Budget::of_work(work));
            let limit = Err(PatchError::Limit("too much work"));
            assert_eq!(applied, limit, "{what}");
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
        let prefix = "p".repeat(1000);
        let file = format!("<doc xmlns:{prefix}=\"u\"/>");
        let added = "<a/>".repeat(40_000);
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
        let selector = "(doc|\\*)(/(a|b|p:c|\\*)(\\[[12]\\]|\\[@a='1'\\]|\\[\\.='text'\\]|\\[b=''\\])?){0,2}(/@a|/text\\(\\)\\[1\\]|/comment\\(\\)|/namespace::p)?";
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
            if let Ok(results) = apply(&file, &patch, &mut Budget::new()) {
                prop_assert!((1..=2).contains(&results.len()));
                for patched in results {
                    prop_assert!(Tree::parse(&patched, "file", &mut Budget::new()).is_ok());
                }
            }
            // The nodes of a document are its text, without a gap.
            let tree = Tree::parse(&file, "file", &mut Budget::new()).unwrap();
            for id in 0..tree.len() {
                let children: String = tree.children(id).map(|child| tree.source(child)).collect();
                let node = tree.node(id);
                prop_assert!(node.kind != NodeKind::Element || children == file[node.content.clone()]);
            }
        }

        #[test]
        fn any_text_is_a_document_or_an_error(file in any::<String>(), nearly in "[<>/a=\"' !\\-?\\[\\]&;xé:]{0,40}", selector in "[a*/@\\[\\]'=.()1: -]{0,20}") {
            let mut budget = Budget::new();
            let _ = apply(&file, &nearly, &mut budget);
            let _ = apply(&nearly, &file, &mut budget);
            let wrapped = format!("<a>{nearly}</a>");
            let patch = format!("<d><add sel=\"{selector}\">x</add></d>");
            let _ = apply(&wrapped, &patch, &mut budget);
            let _ = Selector::parse(&selector, &Scope::default(), &mut budget);
        }
    }
}
