//! The plans of all statements: none may scan a table that grows with the resources.
//!
//! The statements are read from the source files of `tables`, so that none is forgotten.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use syn::{Item, Lit};

use crate::store::schema;

/// How a statement begins.
const VERBS: &[&str] = &["SELECT ", "INSERT ", "UPDATE ", "DELETE ", "WITH "];
/// The tables that grow with the resources, and with their changes.
const LARGE: &[&str] = &[
    "resource",
    "member",
    "statement",
    "task",
    "feed",
    "inbox",
    "loss",
    "delivered",
    "part",
    "document",
    "package_file",
    "relation",
    "standing",
    "linked",
    "removed_resource",
];
/// What variables stand for in a statement.
const VARIABLES: &[(&str, &str)] = &[
    ("limit", "9"),
    ("column", "applied"),
    ("place", ""),
    ("condition", ""),
    (
        "deletions",
        "task INDEXED BY task_held WHERE state = 'held'",
    ),
];
/// What `condition` stands for in the statement that begins so, where it can't be left out.
const CONDITIONS: &[(&str, &str)] = &[
    (
        "UPDATE task SET since = ?2 WHERE resource_id IN",
        "set_id = ?1",
    ),
    ("SELECT path, length, hashes,", "uri = ?2 AND path IS NULL"),
    ("SELECT {TALLIED}, COUNT(*)", "set_id = ?1"),
    ("DELETE FROM task WHERE {condition}", "resource_id = ?1"),
    ("SELECT resource.id, resource.set_id,", "resource.id = ?1"),
];
/// Steps of plans that scan all the same: the beginning of the statement, the step, and the reason.
const EXPECTED: &[(&str, &str, &str)] = &[
    (
        "SELECT seq, applied_at < ?1 AND seq <= ?2 FROM feed",
        "SCAN feed",
        "it reads the oldest entries, in the order of the table, up to a limit",
    ),
    (
        "SELECT 1 FROM linked LIMIT 1",
        "SCAN linked",
        "it reads one row",
    ),
];

/// The texts that the tokens of a file have, with what `format!` puts into their unnamed places.
#[derive(Default)]
struct Texts {
    constants: BTreeMap<String, String>,
    statements: Vec<(String, Vec<String>)>,
}

impl Texts {
    fn of(file: &Path) -> Self {
        let text = fs::read_to_string(file).unwrap();
        let mut texts = Self::default();
        for item in syn::parse_file(&text).unwrap().items {
            if let Item::Const(item) = &item
                && let syn::Expr::Lit(value) = &*item.expr
                && let Lit::Str(value) = &value.lit
            {
                texts
                    .constants
                    .insert(item.ident.to_string(), value.value());
            }
        }
        texts.add(text.parse().unwrap());
        texts
    }

    fn add(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        for (index, token) in tokens.iter().enumerate() {
            match token {
                TokenTree::Group(group) => self.add(group.stream()),
                TokenTree::Literal(literal) => {
                    let Lit::Str(text) = Lit::new(literal.clone()) else {
                        continue;
                    };
                    let text = text
                        .value()
                        .split_whitespace()
                        .collect::<Vec<_>>()
                        .join(" ");
                    if is_statement(&text) || text.starts_with('{') {
                        self.statements
                            .push((text, last_names(&tokens[index + 1..])));
                    }
                }
                TokenTree::Ident(_) | TokenTree::Punct(_) => {}
            }
        }
    }
}

fn is_statement(text: &str) -> bool {
    VERBS.iter().any(|verb| text.starts_with(verb))
}

/// The last name of each argument that follows.
fn last_names(tokens: &[TokenTree]) -> Vec<String> {
    let is_comma = |token: &TokenTree| matches!(token, TokenTree::Punct(it) if it.as_char() == ',');
    let arguments = tokens.split(is_comma).skip(1);
    let last = arguments.map(|argument| match argument.last() {
        Some(TokenTree::Ident(name)) => name.to_string(),
        _ => String::new(),
    });
    last.collect()
}

fn source_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            source_files(&path, files);
        } else {
            files.push(path);
        }
    }
}

/// Every statement, with constants and variables in their places.
fn statements() -> Vec<String> {
    let tables = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store/tables");
    let mut files = Vec::new();
    source_files(&tables, &mut files);
    let texts: BTreeMap<PathBuf, Texts> = files
        .into_iter()
        .map(|file| (file.with_extension(""), Texts::of(&file)))
        .collect();
    let constant = |file: &Path, name: &str| {
        // Its own, then that of the module that it is in, then that of another module.
        let near = [Some(file), file.parent()].into_iter().flatten();
        let near = near.filter_map(|file| texts.get(file));
        let found = near
            .chain(texts.values())
            .find_map(|it| it.constants.get(name));
        found.cloned()
    };
    let mut all = Vec::new();
    for (file, of_file) in &texts {
        for (text, arguments) in &of_file.statements {
            all.push(filled(text, arguments, &|name| constant(file, name)));
        }
    }
    all
}

/// A statement with constants and variables in their places.
fn filled(text: &str, arguments: &[String], constant: &dyn Fn(&str) -> Option<String>) -> String {
    let mut arguments = arguments.iter();
    let mut statement = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        let (name, after) = after.split_once('}').unwrap();
        let unnamed = if name.is_empty() {
            arguments.next()
        } else {
            None
        };
        let name = unnamed.map_or(name, String::as_str);
        let of_condition = CONDITIONS.iter().find(|(begin, _)| text.starts_with(begin));
        let variable = match of_condition.filter(|_| name == "condition") {
            Some((_, condition)) => Some(*condition),
            None => VARIABLES
                .iter()
                .find(|(of, _)| *of == name)
                .map(|(_, it)| *it),
        };
        statement.push_str(before);
        match (variable, constant(name)) {
            (Some(value), _) => statement.push_str(value),
            (None, Some(value)) => statement.push_str(&filled(&value, &[], constant)),
            (None, None) => statement.push_str("?1"),
        }
        rest = after;
    }
    statement + rest
}

#[test]
fn no_statement_scans_a_large_table() {
    let folder = tempfile::tempdir().unwrap();
    let database = schema::open(&folder.path().join("plans.db")).unwrap();
    let database = database.sqlite().unwrap();
    let (mut explained, mut faults) = (0, Vec::new());
    for statement in statements() {
        let plan = database.prepare(&format!("EXPLAIN QUERY PLAN {statement}"));
        let mut plan = match plan {
            Ok(plan) => plan,
            // A text that begins with a constant may be no statement.
            Err(_) if !is_statement(&statement) => continue,
            Err(error) => panic!("{statement}: {error}"),
        };
        explained += 1;
        let steps = plan.raw_query().mapped(|row| row.get::<_, String>(3));
        let steps: Vec<String> = steps.collect::<Result<_, _>>().unwrap();
        for step in steps {
            let table = step
                .strip_prefix("SCAN ")
                .and_then(|it| it.split(' ').next());
            let is_large = table.is_some_and(|table| LARGE.contains(&table));
            let is_expected = EXPECTED.iter().any(|(begin, expected, _)| {
                statement.starts_with(begin) && step.starts_with(expected)
            });
            if is_large && !is_expected {
                faults.push(format!("{step}: {statement}"));
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
    assert!(explained > 150, "{explained}");
}
