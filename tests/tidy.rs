//! Architecture rules that the compiler can't enforce: which module imports which, that no two files import each other,
//! where SQL and the crate `backoff` may be used, where texts become URIs, and that the table of a module's children names each of them.
//!
//! Test items (`#[cfg(test)]`) are exempt. Paths within macro calls are read token by token.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use proc_macro2::{TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Item, UseTree, Visibility};

/// A top-level module: which of ours it may import, and which crates and modules it must not name.
struct Rule {
    module: &'static str,
    may_import: &'static [&'static str],
    must_not_name: &'static [&'static str],
}

const fn rule(
    module: &'static str,
    may_import: &'static [&'static str],
    must_not_name: &'static [&'static str],
) -> Rule {
    Rule {
        module,
        may_import,
        must_not_name,
    }
}

/// A module that is not in this table fails, and so does an import that is not in it.
const RULES: &[Rule] = &[
    rule("clock", &[], &["tokio", "reqwest", "axum", "rusqlite"]),
    rule(
        "error_class",
        &[],
        &["tokio", "reqwest", "axum", "rusqlite", "std"],
    ),
    rule("file_lock", &[], &["tokio", "reqwest", "axum", "rusqlite"]),
    rule("random", &[], &["tokio", "reqwest", "axum", "rusqlite"]),
    rule("config", &["protocol"], &["reqwest", "axum", "rusqlite"]),
    rule(
        "protocol",
        &[],
        &["tokio", "reqwest", "axum", "hyper", "rusqlite"],
    ),
    rule(
        "sync",
        &["protocol", "clock"],
        &[
            "tokio",
            "reqwest",
            "axum",
            "hyper",
            "rusqlite",
            "serde",
            "serde_json",
            "quick_xml",
            "std::path",
            "std::fs",
            "std::net",
        ],
    ),
    rule(
        "fetch",
        &[
            "protocol",
            "clock",
            "config",
            "error_class",
            "metrics",
            "random",
        ],
        &["axum", "rusqlite"],
    ),
    rule(
        "mirror_path",
        &["protocol"],
        &[
            "tokio",
            "reqwest",
            "axum",
            "hyper",
            "rusqlite",
            "std::path",
            "std::fs",
        ],
    ),
    rule(
        "mirror",
        &["protocol", "mirror_path", "error_class", "file_lock"],
        &["tokio", "reqwest", "axum", "hyper", "rusqlite"],
    ),
    rule(
        "store",
        &["protocol", "sync", "mirror_path", "clock", "file_lock"],
        &["reqwest", "axum", "hyper", "std::net"],
    ),
    rule("status", &["protocol"], &["reqwest", "axum", "rusqlite"]),
    rule(
        "metrics",
        &["status"],
        &["tokio", "reqwest", "axum", "hyper", "rusqlite"],
    ),
    rule(
        "http",
        &["protocol", "status", "store", "clock", "config", "random"],
        &["rusqlite", "reqwest", "quick_xml"],
    ),
    rule(
        "engine",
        &[
            "protocol",
            "sync",
            "fetch",
            "mirror_path",
            "mirror",
            "store",
            "status",
            "metrics",
            "clock",
            "config",
            "error_class",
            "file_lock",
            "random",
        ],
        &["rusqlite", "quick_xml", "axum"],
    ),
    rule("demo", &["protocol", "clock"], &["rusqlite"]),
    rule("cli", ALL, &["rusqlite", "quick_xml"]),
    rule("main", ALL, &["rusqlite", "quick_xml"]),
    rule("lib", ALL, &["rusqlite", "quick_xml"]),
];

const ALL: &[&str] = &[
    "clock",
    "config",
    "protocol",
    "sync",
    "fetch",
    "mirror_path",
    "mirror",
    "store",
    "status",
    "metrics",
    "http",
    "engine",
    "demo",
    "cli",
    "error_class",
    "file_lock",
    "random",
];

/// How SQL begins, in capitals.
const SQL: &[&str] = &[
    "SELECT ",
    "INSERT INTO ",
    "INSERT OR ",
    "UPDATE ",
    "DELETE FROM ",
    "CREATE TABLE ",
    "CREATE INDEX ",
    "ALTER TABLE ",
    "DROP TABLE ",
    "PRAGMA ",
    "ON CONFLICT",
];

/// Where SQL may be.
const SQL_FILES: &[&str] = &[
    "store/tables/",
    "store/audit_db/tables/",
    "store/schema.rs",
    "store/schema/",
];

/// Where texts become URIs.
const URI_FILE: &str = "protocol/uri.rs";

/// The functions that make one.
const URI_PARSERS: &[&str] = &[
    "Url::parse",
    "Url::parse_with_params",
    "Url::options",
    "Url::from_str",
];

/// The methods of a URI that make another one with another host. `join` of nothing else may fail.
const URI_SETTERS: &[&str] = &["set_host", "set_ip_host"];

/// How the docs of a module begin the table of its children.
const MAP: &str = "//! | module |";

/// File names that say nothing, in the singular.
const EMPTY_NAMES: &[&str] = &["util", "common", "helper", "manager", "misc"];

/// One source file.
#[derive(Default)]
struct Source {
    /// Below `src`, with `/`.
    file: String,
    /// The module that it is, as `["store", "schema"]`.
    module: Vec<String>,
    /// The paths that it names, with their lines; those of our own from the root of the crate.
    ours: Vec<(Vec<String>, usize)>,
    others: Vec<(Vec<String>, usize)>,
    strings: Vec<(String, usize)>,
    /// What it exports of other modules: the name, and the path from the root of the crate.
    exports: BTreeMap<String, Vec<String>>,
    /// What it imports: the name, and the path from the root of the crate.
    names: BTreeMap<String, Vec<String>>,
    /// The single names that it uses.
    used: BTreeSet<String>,
    /// The lines where a method of a URI makes another one of a text.
    made_uris: Vec<usize>,
    /// The modules that it declares.
    children: BTreeSet<String>,
    /// Modules that only tests have.
    test_modules: Vec<Vec<String>>,
    has_docs: bool,
    /// Where its docs have a table of its children: those that are files of their own and are not in it.
    unmapped: Vec<String>,
}

impl Source {
    fn parse(file: &str, text: &str) -> Self {
        let syntax = syn::parse_file(text).unwrap_or_else(|error| panic!("{file}: {error}"));
        let mut module: Vec<String> = file
            .trim_end_matches(".rs")
            .split('/')
            .map(str::to_owned)
            .collect();
        if module.last().is_some_and(|last| last == "mod") || file == "lib.rs" || file == "main.rs"
        {
            module.pop();
        }
        let children = syntax.items.iter().filter_map(|item| match item {
            Item::Mod(module) => Some(module.ident.to_string()),
            _ => None,
        });
        let docs: Vec<&str> = text
            .lines()
            .take_while(|it| it.starts_with("//!"))
            .collect();
        let has_map = docs.iter().any(|line| line.starts_with(MAP));
        let of_file = syntax.items.iter().filter_map(|item| match item {
            Item::Mod(module) if module.content.is_none() => Some(module.ident.to_string()),
            _ => None,
        });
        // In the table or in a diagram.
        let is_named = |child: &String| {
            docs.iter().any(|line| {
                let is_of_diagram = line.contains('─');
                let mut words = line.split(|it: char| !it.is_alphanumeric() && it != '_');
                line.contains(&format!("`{child}`")) || is_of_diagram && words.any(|it| it == child)
            })
        };
        let mut source = Self {
            file: file.to_owned(),
            children: children.collect(),
            has_docs: syntax.attrs.iter().any(|it| it.path().is_ident("doc")),
            unmapped: of_file.filter(|it| has_map && !is_named(it)).collect(),
            module,
            ..Self::default()
        };
        source.visit_file(&syntax);
        // What is exported may also be used here.
        let used = source.exports.iter();
        let used = used.filter(|(name, _)| source.used.contains(*name));
        let used: Vec<_> = used.map(|(_, path)| (path.clone(), 1)).collect();
        source.ours.extend(used);
        source
    }

    fn top(&self) -> &str {
        let top = self.file.split('/').next().unwrap_or_default();
        top.trim_end_matches(".rs")
    }

    fn add(&mut self, path: Vec<String>, line: usize) {
        match self.rooted(&path) {
            Some(ours) => self.ours.push((ours, line)),
            None => self.others.push((path, line)),
        }
    }

    /// A path that begins with `crate`, `self`, `super`, a module that this file declares, or a name that it imports, from the root of the
    /// crate.
    fn rooted(&self, path: &[String]) -> Option<Vec<String>> {
        let mut base = self.module.clone();
        let mut rest = path;
        match path.first()?.as_str() {
            "crate" => base.clear(),
            "self" => {}
            "super" => {
                while rest.first().is_some_and(|step| step == "super") {
                    base.pop();
                    rest = &rest[1..];
                }
                return Some([base, rest.to_vec()].concat());
            }
            child if self.children.contains(child) => return Some([base, rest.to_vec()].concat()),
            name => base.clone_from(self.names.get(name)?),
        }
        Some([base, rest[1..].to_vec()].concat())
    }

    fn add_use(&mut self, tree: &UseTree, prefix: Vec<String>, is_export: bool) {
        match tree {
            UseTree::Path(path) => {
                let prefix = [prefix, vec![path.ident.to_string()]].concat();
                self.add_use(&path.tree, prefix, is_export);
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.add_use(tree, prefix.clone(), is_export);
                }
            }
            UseTree::Name(name) => self.add_leaf(prefix, &name.ident, &name.ident, is_export),
            UseTree::Rename(it) => self.add_leaf(prefix, &it.ident, &it.rename, is_export),
            UseTree::Glob(glob) => self.add(prefix, glob.span().start().line),
        }
    }

    fn add_leaf(
        &mut self,
        prefix: Vec<String>,
        name: &syn::Ident,
        exported: &syn::Ident,
        is_export: bool,
    ) {
        // `a::{self}` imports `a`.
        let is_prefix = name == "self";
        let exported = match prefix.last().filter(|_| is_prefix && exported == "self") {
            Some(last) => last.clone(),
            None => exported.to_string(),
        };
        let own = (!is_prefix).then(|| name.to_string());
        let path: Vec<String> = prefix.into_iter().chain(own).collect();
        if !is_export {
            if let Some(ours) = self.rooted(&path) {
                self.names.insert(exported, ours);
            }
            return self.add(path, name.span().start().line);
        }
        let path = match self.rooted(&path) {
            Some(path) => path,
            None => [self.module.clone(), path].concat(),
        };
        self.exports.insert(exported, path);
    }

    fn add_names(&mut self, mut path: Vec<String>, line: usize) {
        if path.len() > 1 {
            self.add(path, line);
        } else {
            self.used.extend(path.pop());
        }
    }

    fn add_tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut line = 0;
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) if path.is_empty() || colons == 2 => {
                    line = ident.span().start().line;
                    path.push(ident.to_string());
                    colons = 0;
                    continue;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' && !path.is_empty() => {
                    colons += 1;
                    continue;
                }
                TokenTree::Group(group) => self.add_tokens(group.stream()),
                TokenTree::Literal(literal) => {
                    let line = literal.span().start().line;
                    self.strings.push((literal.to_string(), line));
                }
                TokenTree::Ident(_) | TokenTree::Punct(_) => {}
            }
            self.add_names(std::mem::take(&mut path), line);
            colons = 0;
        }
        self.add_names(path, line);
    }
}

/// Whether an expression joins something with one other thing.
fn is_join(joined: &syn::Expr) -> bool {
    matches!(joined, syn::Expr::MethodCall(call) if call.method == "join" && call.args.len() == 1)
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute
                .parse_args::<syn::Path>()
                .is_ok_and(|path| path.is_ident("test"))
    })
}

impl<'ast> Visit<'ast> for Source {
    fn visit_item(&mut self, item: &'ast Item) {
        let attributes = match item {
            Item::Mod(it) => &it.attrs,
            Item::Fn(it) => &it.attrs,
            Item::Impl(it) => &it.attrs,
            Item::Use(it) => &it.attrs,
            Item::Struct(it) => &it.attrs,
            Item::Enum(it) => &it.attrs,
            Item::Const(it) => &it.attrs,
            Item::Static(it) => &it.attrs,
            Item::Macro(it) => &it.attrs,
            _ => return visit::visit_item(self, item),
        };
        if !is_test(attributes) {
            return visit::visit_item(self, item);
        }
        if let Item::Mod(module) = item {
            let path = [self.module.clone(), vec![module.ident.to_string()]].concat();
            self.test_modules.push(path);
        }
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        if !is_test(&field.attrs) {
            visit::visit_field(self, field);
        }
    }

    fn visit_pat_type(&mut self, argument: &'ast syn::PatType) {
        if !is_test(&argument.attrs) {
            visit::visit_pat_type(self, argument);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !is_test(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let is_export = !matches!(item.vis, Visibility::Inherited);
        self.add_use(&item.tree, Vec::new(), is_export);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.segments.len() > 1 {
            let line = path.span().start().line;
            let segments = path.segments.iter();
            self.add(segments.map(|it| it.ident.to_string()).collect(), line);
        } else if let Some(segment) = path.segments.first() {
            self.used.insert(segment.ident.to_string());
        }
        visit::visit_path(self, path);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        let is_setter = URI_SETTERS.iter().any(|it| call.method == it);
        let is_result = ["map_err", "ok", "and_then", "expect", "is_ok", "is_ok_and"];
        let is_result = is_result.iter().any(|it| call.method == it);
        if is_setter || is_result && is_join(&call.receiver) {
            self.made_uris.push(call.span().start().line);
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_expr_try(&mut self, tried: &'ast syn::ExprTry) {
        if is_join(&tried.expr) {
            self.made_uris.push(tried.span().start().line);
        }
        visit::visit_expr_try(self, tried);
    }

    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.add_tokens(call.tokens.clone());
    }

    fn visit_lit_str(&mut self, text: &'ast syn::LitStr) {
        self.strings.push((text.value(), text.span().start().line));
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        // Doc comments may name what they like; derives may not.
        if attribute.path().is_ident("derive")
            && let syn::Meta::List(list) = &attribute.meta
        {
            self.add_tokens(list.tokens.clone());
        }
    }
}

/// The rules that a file breaks, each with its line.
fn check_file(source: &Source) -> Vec<String> {
    let Some(rule) = RULES.iter().find(|rule| rule.module == source.top()) else {
        return vec![format!("the module `{}` has no rule", source.top())];
    };
    let mut faults = Vec::new();
    for (path, line) in &source.ours {
        let Some(import) = path.first().filter(|import| ALL.contains(&import.as_str())) else {
            continue;
        };
        if import != rule.module && !rule.may_import.contains(&import.as_str()) {
            let allowed = rule.may_import.join(", ");
            faults.push(format!(
                "{line}: `{}` imports `{import}`; allowed: {allowed}",
                rule.module
            ));
        }
    }
    for (path, line) in &source.others {
        let path = path.join("::");
        let names = |it: &str| path == it || path.starts_with(&format!("{it}::"));
        for banned in rule.must_not_name.iter().filter(|banned| names(banned)) {
            faults.push(format!(
                "{line}: `{}` must not name `{banned}`",
                rule.module
            ));
        }
        let is_parser = URI_PARSERS
            .iter()
            .any(|parser| names(parser) || names(&format!("url::{parser}")));
        if is_parser && source.file != URI_FILE {
            faults.push(format!(
                "{line}: only {URI_FILE} makes URIs of texts: see `parse_uri`"
            ));
        }
        if names("backoff") && source.file != "fetch/retry.rs" {
            faults.push(format!("{line}: only fetch/retry.rs may name `backoff`"));
        }
    }
    if source.file != URI_FILE {
        let made = source.made_uris.iter();
        faults.extend(made.map(|line| {
            format!("{line}: only {URI_FILE} makes URIs of texts: see `resolve_reference`")
        }));
    }
    if !SQL_FILES.iter().any(|it| source.file.starts_with(it)) {
        for (text, line) in &source.strings {
            if let Some(sql) = SQL.iter().find(|sql| text.contains(*sql)) {
                faults.push(format!(
                    "{line}: SQL ({}) outside of the tables",
                    sql.trim()
                ));
            }
        }
    }
    let is_module = source.file.ends_with("/mod.rs") || !source.file.contains('/');
    if is_module && !source.has_docs {
        faults.push("1: a module begins with `//!`: its purpose and its invariants".to_owned());
    }
    for child in &source.unmapped {
        faults.push(format!("1: the table of modules lacks `{child}`"));
    }
    let mut words = source.file.trim_end_matches(".rs").split(['/', '_']);
    if words.any(|word| EMPTY_NAMES.contains(&word.trim_end_matches('s'))) {
        faults.push("1: the name says nothing: name it for what it contains".to_owned());
    }
    faults
}

/// The file that defines what a path names, through the exports of the modules on the way.
fn defining_file<'a>(
    modules: &BTreeMap<&[String], &'a Source>,
    path: &[String],
) -> Option<&'a str> {
    let mut path = path.to_vec();
    for _ in 0..8 {
        let length = (0..=path.len())
            .rev()
            .find(|&length| modules.contains_key(&path[..length]))?;
        let source = modules[&path[..length]];
        match path.get(length).and_then(|name| source.exports.get(name)) {
            Some(export) => path = [export.clone(), path[length + 1..].to_vec()].concat(),
            None => return Some(&source.file),
        }
    }
    None
}

/// Which files each file imports.
fn imports(sources: &[Source]) -> BTreeMap<&str, BTreeSet<&str>> {
    let modules: BTreeMap<&[String], &Source> = sources
        .iter()
        .filter(|source| source.file != "main.rs")
        .map(|source| (source.module.as_slice(), source))
        .collect();
    let mut imports = BTreeMap::new();
    for source in sources {
        let found = source.ours.iter();
        let found = found.filter_map(|(path, _)| defining_file(&modules, path));
        let found = found.filter(|file| *file != source.file);
        imports.insert(source.file.as_str(), found.collect());
    }
    imports
}

/// The groups of files that import each other, directly or not.
fn cycles(imports: &BTreeMap<&str, BTreeSet<&str>>) -> BTreeSet<BTreeSet<String>> {
    let reach = |start: &str| {
        let mut reached = BTreeSet::new();
        let mut pending = vec![start];
        while let Some(file) = pending.pop() {
            for &next in imports.get(file).into_iter().flatten() {
                if reached.insert(next) {
                    pending.push(next);
                }
            }
        }
        reached
    };
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        imports.keys().map(|&file| (file, reach(file))).collect();
    let in_cycle = reached.iter().filter(|(file, all)| all.contains(*file));
    in_cycle
        .map(|(&file, all)| {
            let back = all.iter().filter(|other| reached[*other].contains(file));
            back.map(|&other| other.to_owned()).collect()
        })
        .collect()
}

fn read_sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut folders, mut sources) = (vec![root.clone()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == "rs") {
                let file = path.strip_prefix(&root).unwrap().to_str().unwrap();
                sources.push(Source::parse(file, &fs::read_to_string(&path).unwrap()));
            }
        }
    }
    let tests: Vec<Vec<String>> = sources
        .iter()
        .flat_map(|source| source.test_modules.clone())
        .collect();
    sources.retain(|source| !tests.iter().any(|test| source.module.starts_with(test)));
    sources
}

#[test]
fn every_file_keeps_to_the_rules() {
    let sources = read_sources();
    assert!(sources.len() > 100);
    let faults = sources.iter().flat_map(|source| {
        let faults = check_file(source).into_iter();
        faults.map(|fault| format!("src/{}:{fault}", source.file))
    });
    let faults: Vec<String> = faults.collect();
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

#[test]
fn no_two_files_import_each_other() {
    let sources = read_sources();
    let cycles = cycles(&imports(&sources));
    assert!(cycles.is_empty(), "{cycles:#?}");
}

#[test]
fn rules_find_what_breaks_them() {
    for (file, text, expected) in [
        ("mirror/a.rs", "use crate::protocol::X;", None),
        (
            "mirror/a.rs",
            "use crate::{protocol::X, store::Y};",
            Some("imports `store`"),
        ),
        (
            "mirror/a.rs",
            "fn f() { crate::store::g() }",
            Some("imports `store`"),
        ),
        (
            "mirror/a.rs",
            "fn f() { x!(1, crate::store::g()) }",
            Some("imports `store`"),
        ),
        (
            "mirror/a.rs",
            "use super::super::store::X;",
            Some("imports `store`"),
        ),
        ("mirror/a.rs", "use super::store::X;", None),
        (
            "mirror/a.rs",
            "#[cfg(test)] mod tests { use crate::store::X; }",
            None,
        ),
        ("mirror/a.rs", "#[cfg(test)] use crate::store::X;", None),
        (
            "mirror/a.rs",
            "fn a(#[cfg(test)] x: crate::store::X) {}",
            None,
        ),
        (
            "protocol/a.rs",
            "use tokio::io;",
            Some("must not name `tokio`"),
        ),
        (
            "sync/a.rs",
            "#[derive(serde::Serialize)] struct A;",
            Some("`serde`"),
        ),
        (
            "sync/a.rs",
            "use std::{fmt, path::Path};",
            Some("`std::path`"),
        ),
        ("fetch/a.rs", "use backoff::Backoff;", Some("backoff")),
        ("fetch/retry.rs", "use backoff::Backoff;", None),
        (
            "engine/a.rs",
            "const A: &str = \"SELECT a FROM b\";",
            Some("SQL (SELECT)"),
        ),
        (
            "engine/a.rs",
            "fn f() { format!(\"DELETE FROM b\") }",
            Some("SQL (DELETE"),
        ),
        (
            "fetch/a.rs",
            "fn f() { a.map(Url::parse) }",
            Some("see `parse_uri`"),
        ),
        (
            "fetch/a.rs",
            "fn f() { url::Url::options() }",
            Some("see `parse_uri`"),
        ),
        (
            "fetch/a.rs",
            "fn f() { base.join(a)?; b.join(\"c\").len(); thread.join().ok() }",
            Some("see `resolve_reference`"),
        ),
        (
            "fetch/a.rs",
            "fn f() { base.join(a).map_err(b) }",
            Some("see `resolve_reference`"),
        ),
        (
            "fetch/a.rs",
            "fn f() { uri.set_host(a) }",
            Some("see `resolve_reference`"),
        ),
        (
            "protocol/uri.rs",
            "fn f() { base.join(a)?; Url::parse(b) }",
            None,
        ),
        ("store/mod.rs", "use x;", Some("begins with `//!`")),
        (
            "store/mod.rs",
            "//! | module | what it has |\n//! | `a` | A |\nmod a; mod b;",
            Some("lacks `b`"),
        ),
        ("store/mod.rs", "//! A.\nmod a; mod tests { }", None),
        ("store/http_utils.rs", "", Some("says nothing")),
        ("cellar/a.rs", "", Some("has no rule")),
    ] {
        let faults = check_file(&Source::parse(file, text));
        match expected {
            None => assert_eq!(faults, [""; 0], "{file}: {text}"),
            Some(part) => {
                assert_eq!(faults.len(), 1, "{file}: {text}: {faults:?}");
                assert!(faults[0].contains(part), "{file}: {text}: {faults:?}");
            }
        }
    }
}

#[test]
fn cycles_are_found_through_exports() {
    let check = |b: &str, expected: usize| {
        let sources = [
            Source::parse("store/mod.rs", "//!\nmod a; mod b; pub use a::A;"),
            Source::parse("store/a.rs", "use super::b::B;"),
            Source::parse("store/b.rs", b),
        ];
        assert_eq!(cycles(&imports(&sources)).len(), expected, "{b}");
    };
    check("", 0);
    check("use super::a::A;", 1);
    check("use super::A;", 1);
    check("fn f() { crate::store::A::new() }", 1);
    check("#[cfg(test)] use super::A;", 0);
}

#[test]
fn cycles_are_found_through_used_exports_and_imported_modules() {
    let check = |files: &[(&str, &str)], expected: usize| {
        let sources = files.iter().map(|(file, text)| Source::parse(file, text));
        let sources: Vec<Source> = sources.collect();
        assert_eq!(cycles(&imports(&sources)).len(), expected, "{files:?}");
    };
    let user = ("store/a.rs", "use super::C; pub struct A;");
    for (parent, expected) in [
        ("//!\nmod a; pub use a::A; pub struct C;", 0),
        ("//!\nmod a; pub use a::A; pub struct C(A);", 1),
        (
            "//!\nmod a; pub use a::A; pub struct C; fn f() { g!(A) }",
            1,
        ),
    ] {
        check(&[("store/mod.rs", parent), user], expected);
    }
    let parent = ("store/mod.rs", "//!\nmod a; mod b;");
    let x = ("store/a/x.rs", "use crate::store::b::B;");
    for (b, expected) in [
        ("use super::a;", 0),
        ("use super::a; fn f() { a::x::new() }", 1),
        ("use super::a::{self}; fn f() { a::x::new() }", 1),
    ] {
        check(
            &[parent, ("store/a.rs", "pub mod x;"), x, ("store/b.rs", b)],
            expected,
        );
    }
}
