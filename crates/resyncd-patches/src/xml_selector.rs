//! Selectors of XML patches: the part of XPath 1.0 that RFC 5261 uses (section 4.1 and its schema).
//!
//! A selector has steps from the root or from an element with an id, each with a name, or `*`, and conditions: a position, or the value
//! of an attribute, of a child or of the element itself. The last step may name an attribute, a namespace, a text, a comment or an
//! instruction. Prefixes, and names without one, are those of the patch's own namespaces.

use super::error::{BYTES_A_STEP, Budget, MAX_DEPTH, PatchError};
use super::xml_tree::{Attribute, NodeId, NodeKind, Scope, Tree, split_name};

/// What a selector locates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SelectedPart {
    Node(NodeId),
    /// An attribute of an element, by its name as it is written.
    Attribute(NodeId, String),
    /// The declaration of a prefix at an element.
    Namespace(NodeId, String),
}

/// Why a selector locates nothing.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SelectorError {
    /// It is none of this form.
    Invalid,
    /// It locates nothing, or more than one node.
    NotOne,
    /// A limit, or a document that can't be read.
    Patch(PatchError),
}

impl From<PatchError> for SelectorError {
    fn from(error: PatchError) -> Self {
        Self::Patch(error)
    }
}

/// Any name, or one in a namespace.
#[derive(Debug)]
enum NameTest {
    Any,
    Name { namespace: String, local: String },
}

#[derive(Debug)]
enum Condition {
    /// From 1.
    Position(usize),
    Attribute(NameTest, String),
    Child(NameTest, String),
    Own(String),
}

#[derive(Debug)]
enum SelectorStep {
    Id(String),
    Child(NameTest, Vec<Condition>),
    Attribute(NameTest),
    Namespace(String),
    /// A child of this kind, of that name if it is an instruction, at that position.
    Leaf(NodeKind, Option<String>, Option<usize>),
}

/// A selector.
#[derive(Debug)]
pub(super) struct Selector(Vec<SelectorStep>);

impl Selector {
    /// Reads a selector. `scope`: the patch's own namespaces.
    pub(super) fn parse(
        text: &str,
        scope: &Scope<'_>,
        budget: &mut Budget,
    ) -> Result<Self, SelectorError> {
        let mut parser = SelectorParser {
            rest: text.trim(),
            scope,
            budget,
        };
        let mut steps = Vec::new();
        if parser.takes("/") && parser.rest.is_empty() {
            return Err(SelectorError::Invalid);
        }
        loop {
            let may_follow = steps
                .last()
                .is_none_or(|step| matches!(step, SelectorStep::Id(_) | SelectorStep::Child(..)));
            if !may_follow || steps.len() >= MAX_DEPTH {
                return Err(SelectorError::Invalid);
            }
            steps.push(parser.step(steps.is_empty())?);
            if parser.rest.is_empty() {
                return Ok(Self(steps));
            }
            if !parser.takes("/") {
                return Err(SelectorError::Invalid);
            }
        }
    }

    /// The one thing that it locates in a document.
    pub(super) fn locate(
        &self,
        tree: &Tree<'_>,
        budget: &mut Budget,
    ) -> Result<SelectedPart, SelectorError> {
        let mut context: Vec<NodeId> = vec![0];
        let mut targets: Vec<SelectedPart> = Vec::new();
        for step in &self.0 {
            let mut found = Vec::new();
            for &at in &context {
                match step {
                    SelectorStep::Id(id) => found.extend(with_id(tree, id, budget)?),
                    SelectorStep::Child(name, conditions) => {
                        found.extend(children(tree, at, name, conditions, budget)?);
                    }
                    SelectorStep::Leaf(kind, name, position) => {
                        let mut leaves = Vec::new();
                        for child in tree.children(at) {
                            budget.spend(1)?;
                            let is_found = tree.node(child).kind == *kind
                                && match name {
                                    Some(name) => tree.name(child, budget)? == name,
                                    None => true,
                                };
                            if is_found {
                                leaves.push(child);
                            }
                        }
                        match position {
                            Some(position) => found.extend(leaves.get(position - 1)),
                            None => found.extend(leaves),
                        }
                    }
                    SelectorStep::Attribute(name) => {
                        let found = attribute(tree, at, name, budget)?;
                        targets.extend(found.map(|(name, _)| SelectedPart::Attribute(at, name)));
                    }
                    SelectorStep::Namespace(prefix) => {
                        for declared in elements_attributes(tree, at, budget)? {
                            if declared.declares() == Some(prefix.as_str()) {
                                targets.push(SelectedPart::Namespace(at, prefix.clone()));
                            }
                        }
                    }
                }
            }
            context = found;
        }
        targets.extend(context.into_iter().map(SelectedPart::Node));
        match targets.len() {
            1 => targets.pop().ok_or(SelectorError::NotOne),
            _ => Err(SelectorError::NotOne),
        }
    }
}

/// The attributes of a node; none if it is no element.
fn elements_attributes<'a>(
    tree: &Tree<'a>,
    id: NodeId,
    budget: &mut Budget,
) -> Result<Vec<Attribute<'a>>, PatchError> {
    if tree.node(id).kind != NodeKind::Element {
        return Ok(Vec::new());
    }
    tree.attributes(id, budget)
}

/// The element whose id that is. Without a document type only `xml:id` is one; others call it `id`.
fn with_id(tree: &Tree<'_>, id: &str, budget: &mut Budget) -> Result<Vec<NodeId>, PatchError> {
    for name in ["xml:id", "id"] {
        let mut found = Vec::new();
        for at in 1..tree.len() {
            budget.spend(1)?;
            for attribute in elements_attributes(tree, at, budget)? {
                if attribute.name == name && tree.unescaped(attribute.value)? == id {
                    found.push(at);
                }
            }
        }
        if !found.is_empty() {
            return Ok(found);
        }
    }
    Ok(Vec::new())
}

/// The children of a node that meet all conditions, each of which counts positions among those that meet the ones before.
fn children(
    tree: &Tree<'_>,
    at: NodeId,
    name: &NameTest,
    conditions: &[Condition],
    budget: &mut Budget,
) -> Result<Vec<NodeId>, PatchError> {
    let mut found = Vec::new();
    for child in tree.children(at) {
        budget.spend(1)?;
        if is_named(tree, child, name, budget)? {
            found.push(child);
        }
    }
    for condition in conditions {
        let mut left = Vec::new();
        for (number, &child) in found.iter().enumerate() {
            budget.spend(1)?;
            let is_met = match condition {
                Condition::Position(position) => number + 1 == *position,
                Condition::Attribute(name, value) => {
                    let found = attribute(tree, child, name, budget)?;
                    found.is_some_and(|(_, found)| found == *value)
                }
                Condition::Own(value) => tree.value(child, budget)? == *value,
                Condition::Child(name, value) => {
                    let mut is_met = false;
                    for inner in tree.children(child) {
                        budget.spend(1)?;
                        is_met = is_met
                            || (is_named(tree, inner, name, budget)?
                                && tree.value(inner, budget)? == *value);
                    }
                    is_met
                }
            };
            if is_met {
                left.push(child);
            }
        }
        found = left;
    }
    Ok(found)
}

fn is_named(
    tree: &Tree<'_>,
    id: NodeId,
    test: &NameTest,
    budget: &mut Budget,
) -> Result<bool, PatchError> {
    if tree.node(id).kind != NodeKind::Element {
        return Ok(false);
    }
    let NameTest::Name { namespace, local } = test else {
        return Ok(true);
    };
    if split_name(tree.name(id, budget)?).1 != local {
        return Ok(false);
    }
    budget.spend_bytes(namespace.len())?;
    Ok(tree.namespace(id) == namespace)
}

/// The name of an attribute as it is written, and its value.
fn attribute(
    tree: &Tree<'_>,
    id: NodeId,
    test: &NameTest,
    budget: &mut Budget,
) -> Result<Option<(String, String)>, PatchError> {
    let NameTest::Name { namespace, local } = test else {
        return Ok(None);
    };
    for attribute in elements_attributes(tree, id, budget)? {
        let (prefix, name) = split_name(attribute.name);
        if name != local || attribute.declares().is_some() {
            continue;
        }
        let is_right = match prefix {
            "" => namespace.is_empty(),
            prefix => {
                let scope = tree.scope(id, budget)?;
                scope.uri_of(prefix, budget)? == Some(namespace)
            }
        };
        if is_right {
            let value = tree.unescaped(attribute.value)?.into_owned();
            return Ok(Some((attribute.name.to_owned(), value)));
        }
    }
    Ok(None)
}

struct SelectorParser<'a> {
    rest: &'a str,
    scope: &'a Scope<'a>,
    budget: &'a mut Budget,
}

impl<'a> SelectorParser<'a> {
    fn takes(&mut self, text: &str) -> bool {
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, text: &str) -> Result<(), SelectorError> {
        self.takes(text).then_some(()).ok_or(SelectorError::Invalid)
    }

    fn step(&mut self, is_first: bool) -> Result<SelectorStep, SelectorError> {
        if is_first && self.takes("id(") {
            let id = self.quoted()?;
            self.expect(")")?;
            return Ok(SelectorStep::Id(id));
        }
        if self.takes("@") {
            return self.name(false).map(SelectorStep::Attribute);
        }
        if self.takes("namespace::") {
            let prefix = self.plain_name()?;
            return Ok(SelectorStep::Namespace(prefix.to_owned()));
        }
        if self.takes("text()") {
            return Ok(SelectorStep::Leaf(NodeKind::Text, None, self.position()?));
        }
        if self.takes("comment()") {
            return Ok(SelectorStep::Leaf(
                NodeKind::Comment,
                None,
                self.position()?,
            ));
        }
        if self.takes("processing-instruction(") {
            let name = match self.rest.starts_with(')') {
                true => None,
                false => Some(self.quoted()?),
            };
            self.expect(")")?;
            return Ok(SelectorStep::Leaf(
                NodeKind::Instruction,
                name,
                self.position()?,
            ));
        }
        let name = match self.takes("*") {
            true => NameTest::Any,
            false => self.name(true)?,
        };
        let mut conditions = Vec::new();
        while self.rest.starts_with('[') {
            if conditions.len() >= MAX_DEPTH {
                return Err(SelectorError::Invalid);
            }
            conditions.push(self.condition()?);
        }
        Ok(SelectorStep::Child(name, conditions))
    }

    fn condition(&mut self) -> Result<Condition, SelectorError> {
        if let Some(position) = self.try_position()? {
            return Ok(Condition::Position(position));
        }
        self.expect("[")?;
        let condition = if self.takes("@") {
            let name = self.name(false)?;
            Condition::Attribute(name, self.equals()?)
        } else if self.takes(".") {
            Condition::Own(self.equals()?)
        } else {
            let name = self.name(true)?;
            Condition::Child(name, self.equals()?)
        };
        self.expect("]")?;
        Ok(condition)
    }

    fn equals(&mut self) -> Result<String, SelectorError> {
        self.expect("=")?;
        self.quoted()
    }

    fn position(&mut self) -> Result<Option<usize>, SelectorError> {
        match self.rest.starts_with('[') {
            true => self.try_position()?.map(Some).ok_or(SelectorError::Invalid),
            false => Ok(None),
        }
    }

    /// A position; `None`: it is another condition.
    fn try_position(&mut self) -> Result<Option<usize>, SelectorError> {
        let Some(inner) = self.rest.strip_prefix('[') else {
            return Ok(None);
        };
        let digits = inner.len()
            - inner
                .trim_start_matches(|it: char| it.is_ascii_digit())
                .len();
        if digits == 0 {
            return Ok(None);
        }
        let position = inner[..digits]
            .parse()
            .ok()
            .filter(|&position| position > 0);
        self.rest = &inner[digits..];
        self.expect("]")?;
        position.map(Some).ok_or(SelectorError::Invalid)
    }

    fn quoted(&mut self) -> Result<String, SelectorError> {
        let quote = self.rest.chars().next();
        let quote = quote
            .filter(|it| matches!(it, '"' | '\''))
            .ok_or(SelectorError::Invalid)?;
        let (value, rest) = self.rest[1..]
            .split_once(quote)
            .ok_or(SelectorError::Invalid)?;
        self.rest = rest;
        Ok(value.to_owned())
    }

    fn plain_name(&mut self) -> Result<&'a str, SelectorError> {
        let is_part =
            |it: char| it.is_alphanumeric() || matches!(it, '-' | '_' | '.') || !it.is_ascii();
        let end = self
            .rest
            .find(|it: char| !is_part(it))
            .unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        if name.is_empty()
            || name.starts_with(|it: char| it.is_ascii_digit() || matches!(it, '-' | '.'))
        {
            return Err(SelectorError::Invalid);
        }
        self.rest = rest;
        Ok(name)
    }

    /// A qualified name. Without a prefix an element is in the default namespace of the patch, and an attribute in none.
    fn name(&mut self, is_element: bool) -> Result<NameTest, SelectorError> {
        let first = self.plain_name()?;
        let (prefix, local) = match self.takes(":") {
            true => (first, self.plain_name()?),
            false => ("", first),
        };
        let namespace = match self.scope.uri_of(prefix, self.budget)? {
            Some(_) if prefix.is_empty() && !is_element => String::new(),
            Some(namespace) => {
                self.budget.spend(namespace.len() / BYTES_A_STEP)?;
                namespace.to_owned()
            }
            None if prefix.is_empty() => String::new(),
            None => return Err(SelectorError::Invalid),
        };
        Ok(NameTest::Name {
            namespace,
            local: local.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = r#"<?xml version="1.0"?><!--c1--><?p x?><a:doc xmlns:a="urn:a" xmlns="urn:d" xmlns:u="urn:u">
<note id="n1">one</note><note u:k="v" id="n2">t&amp;wo<!--c2--><?p y?><?q z?>tail</note><a:note/><list><foo>1</foo></list></a:doc>"#;

    fn located(selector: &str) -> Result<String, &'static str> {
        let mut budget = Budget::new();
        let tree = Tree::parse(DOCUMENT, "file", &mut budget).unwrap();
        let scope = Scope::of(&[("", "urn:d"), ("x", "urn:a"), ("w", "urn:u")]);
        let target = Selector::parse(selector, &scope, &mut budget)
            .and_then(|it| it.locate(&tree, &mut budget));
        let name = |id| tree.name(id, &mut Budget::new()).unwrap();
        match target {
            Ok(SelectedPart::Node(id)) => Ok(tree.source(id).to_owned()),
            Ok(SelectedPart::Attribute(id, attribute)) => Ok(format!("{}@{attribute}", name(id))),
            Ok(SelectedPart::Namespace(id, prefix)) => Ok(format!("{}#{prefix}", name(id))),
            Err(SelectorError::Invalid) => Err("invalid"),
            Err(SelectorError::NotOne) => Err("not one"),
            Err(SelectorError::Patch(_)) => Err("other"),
        }
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
            ("id('n2')", second),
            ("id('n2')/text()[2]", "tail"),
            ("*/x:note", "<a:note/>"),
            ("*/*[3]", "<a:note/>"),
            ("*/*[foo='1']/foo", "<foo>1</foo>"),
            ("x:doc/note[@id='n2'][1]/comment()", "<!--c2-->"),
            ("x:doc/note[2]/text()[1]", "t&amp;wo"),
            ("x:doc/note[2]/processing-instruction('q')", "<?q z?>"),
            ("x:doc/note[2]/processing-instruction()[1]", "<?p y?>"),
            ("/comment()[1]", "<!--c1-->"),
            ("processing-instruction(\"p\")", "<?p x?>"),
            ("*/note[2]/@w:k", "note@u:k"),
            ("*/note[1]/@id", "note@id"),
            ("x:doc/namespace::u", "a:doc#u"),
        ] {
            assert_eq!(located(selector).as_deref(), Ok(expected), "{selector}");
        }
        for selector in [
            "*/note",
            "*/nothing",
            "doc",
            "*/note[3]",
            "*/note[@k='v']",
            "id('x')",
            "*/note[1]/@w:id",
            "*/text()[9]",
        ] {
            assert_eq!(located(selector), Err("not one"), "{selector}");
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
            "*/text()/x",
            "count(*)",
            "*|*",
            "*/note[1]x",
            "id(n1)",
            "*/note[@id='n1]",
            "*/../x",
            ".",
            "a b",
            "*/text()[a='1']",
            "99999999999999999999",
            "*/note[99999999999999999999]",
        ] {
            assert_eq!(located(selector), Err("invalid"), "{selector}");
        }
    }

    #[test]
    fn work_of_a_selector_is_limited() {
        let document = format!("<a>{}</a>", "<b><c>x</c></b>".repeat(1000));
        let (mut budget, scope) = (Budget::new(), Scope::default());
        let tree = Tree::parse(&document, "file", &mut budget).unwrap();
        let selector = Selector::parse("*/*[c='y'][.='z']", &scope, &mut budget).unwrap();
        assert_eq!(
            selector.locate(&tree, &mut budget),
            Err(SelectorError::NotOne)
        );
        // Each form of a step and of a condition counts what it looks at.
        let many = format!("*/*{}", "[c='x']".repeat(100));
        for costly in [
            "*/*[c='y'][.='z']",
            "*/*[.='x']/c",
            "*/b[@k='v']",
            "*/b/c/text()[1]",
            "*/*/*[1]",
            "*/b[1000]/c",
            "id('x')/b",
            "*/comment()",
            "*/b/@k",
            "*/b/namespace::p",
            &many,
        ] {
            let selector = Selector::parse(costly, &scope, &mut budget).unwrap();
            let mut small = Budget::of_work(900);
            let limit = SelectorError::Patch(PatchError::Limit("too much work"));
            assert_eq!(selector.locate(&tree, &mut small), Err(limit), "{costly}");
        }
        let deep = "*/".repeat(MAX_DEPTH + 1);
        for long in [
            format!("{deep}*"),
            format!("*{}", "[1]".repeat(MAX_DEPTH + 1)),
        ] {
            assert_eq!(
                Selector::parse(&long, &scope, &mut budget).unwrap_err(),
                SelectorError::Invalid
            );
        }
    }
}
