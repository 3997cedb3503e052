//! The walls of the house, held by a machine: which room imports which, where SQL and `backoff` may be, how long a file
//! gets and what it is called.
//!
//! It reads the sources as text. Comments and test items (`#[cfg(test)]`) may say what they like.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::ops::Range;
use std::path::Path;

/// What one room may import of ours, and which crates and modules it must not name.
struct Room {
    name: &'static str,
    may_import: &'static [&'static str],
    must_not_name: &'static [&'static str],
}

const fn room(
    name: &'static str,
    may_import: &'static [&'static str],
    must_not_name: &'static [&'static str],
) -> Room {
    Room {
        name,
        may_import,
        must_not_name,
    }
}

/// The plan. A file or folder in src that is not here fails, and so does an import that is not here.
const ROOMS: &[Room] = &[
    room("clock", &[], &["tokio", "reqwest", "axum", "rusqlite"]),
    room("config", &["protocol"], &["reqwest", "axum", "rusqlite"]),
    room(
        "protocol",
        &[],
        &["tokio", "reqwest", "axum", "hyper", "rusqlite"],
    ),
    room(
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
    room(
        "fetch",
        &["protocol", "clock", "config"],
        &["axum", "rusqlite"],
    ),
    room(
        "mirror",
        &["protocol"],
        &["tokio", "reqwest", "axum", "hyper", "rusqlite"],
    ),
    room(
        "store",
        &["protocol", "sync", "clock"],
        &["reqwest", "axum", "hyper", "std::net"],
    ),
    room("status", &["protocol"], &["reqwest", "axum", "rusqlite"]),
    room(
        "http",
        &["protocol", "status", "store", "clock", "config"],
        &["rusqlite", "reqwest", "quick_xml"],
    ),
    room(
        "engine",
        &[
            "protocol", "sync", "fetch", "mirror", "store", "http", "status", "clock", "config",
        ],
        &["rusqlite", "quick_xml", "axum"],
    ),
    room("demo", &["protocol", "clock"], &["rusqlite"]),
    room("cli", EVERYTHING, &["rusqlite", "quick_xml"]),
    room("main", EVERYTHING, &["rusqlite", "quick_xml"]),
    room("lib", EVERYTHING, &["rusqlite", "quick_xml"]),
];

const EVERYTHING: &[&str] = &[
    "clock", "config", "protocol", "sync", "sync", "fetch", "mirror", "store", "status", "http",
    "engine", "demo", "cli",
];

/// How SQL begins, as it is written here: in capitals.
const SQL: &[&str] = &[
    "SELECT ",
    "INSERT INTO ",
    "INSERT OR ",
    "DELETE FROM ",
    "CREATE TABLE ",
    "CREATE INDEX ",
    "ALTER TABLE ",
    "DROP TABLE ",
    "UPDATE ",
    "WITH RECURSIVE ",
    "PRAGMA ",
    "ON CONFLICT",
];

/// Files and folders that may have SQL text.
const SQL_PLACES: &[&str] = &["store/tables/", "store/audit_db/tables/", "store/schema.rs"];

const LONGEST_FILE: usize = 450;

/// Names that say nothing, in the singular and the plural.
const EMPTY_NAMES: &[&str] = &["util", "common", "helper", "manager", "misc"];

#[derive(Debug, PartialEq, Eq)]
struct Fault {
    file: String,
    line: usize,
    rule: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "src/{}:{}: {}", self.file, self.line, self.rule)
    }
}

/// One source file: its path below src with `/`, and its text in two views, both as long as the file.
struct Source {
    path: String,
    raw: String,
    /// Without comments, strings and test items: spaces are in their place.
    code: String,
    /// The same with the strings.
    with_strings: String,
    /// Where the test items are.
    tests: Vec<Range<usize>>,
    /// Paths, without `.rs`, of the modules that only tests have.
    test_modules: Vec<String>,
}

impl Source {
    fn new(path: &str, raw: &str) -> Self {
        let kinds = kinds(raw.as_bytes());
        let mut code = view(raw, |at| kinds[at] == Kind::Code);
        let mut with_strings = view(raw, |at| kinds[at] != Kind::Comment);
        let tests = test_items(&code);
        let folder = path
            .strip_suffix("mod.rs")
            .or_else(|| path.strip_suffix("lib.rs"))
            .or_else(|| path.strip_suffix("main.rs"))
            .map_or_else(
                || format!("{}/", path.trim_end_matches(".rs")),
                str::to_owned,
            );
        let declared = tests.iter().filter_map(|item| {
            let (_, module) = code[item.clone()].strip_suffix(';')?.rsplit_once("mod ")?;
            Some(format!("{folder}{}", module.trim()))
        });
        let test_modules = declared.collect();
        let shown = |at: usize| !tests.iter().any(|item| item.contains(&at));
        code = view(&code, shown);
        with_strings = view(&with_strings, shown);
        Self {
            path: path.to_owned(),
            raw: raw.to_owned(),
            code,
            with_strings,
            tests,
            test_modules,
        }
    }

    fn room(&self) -> &str {
        let top = self.path.split('/').next().unwrap_or_default();
        top.strip_suffix(".rs").unwrap_or(top)
    }

    /// How many modules this file is below the crate's root.
    fn depth(&self) -> usize {
        match self.path.trim_end_matches(".rs") {
            "lib" | "main" => 0,
            path => path.trim_end_matches("/mod").split('/').count(),
        }
    }

    fn fault(&self, at: usize, rule: String) -> Fault {
        Fault {
            file: self.path.clone(),
            line: 1 + self.raw[..at].matches('\n').count(),
            rule,
        }
    }

    fn is_test(&self, modules: &BTreeSet<String>) -> bool {
        let path = self.path.trim_end_matches(".rs");
        modules.iter().any(|module| {
            path.strip_prefix(module.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }

    fn check(&self) -> Vec<Fault> {
        let Some(room) = ROOMS.iter().find(|room| room.name == self.room()) else {
            let rule = format!(
                "the room `{}` is not in the table of tests/tidy.rs",
                self.room()
            );
            return vec![self.fault(0, rule)];
        };
        let mut faults = self.check_imports(room);
        faults.extend(self.check_words(room));
        faults.extend(self.check_form());
        faults
    }

    fn check_imports(&self, room: &Room) -> Vec<Fault> {
        let mut found = after(&self.code, "crate");
        found.extend(above(&self.code, self.depth()));
        let allowed = |import: &str| import == room.name || room.may_import.contains(&import);
        let of_ours = |import: &str| import == "*" || ROOMS.iter().any(|r| r.name == import);
        found
            .into_iter()
            .filter(|(_, import)| of_ours(import) && !allowed(import))
            .map(|(at, import)| {
                let may = match room.may_import {
                    [] => "nothing of ours".to_owned(),
                    rooms => rooms.join(", "),
                };
                let rule = format!(
                    "imports `{import}`; the room `{}` may import {may}",
                    room.name
                );
                self.fault(at, rule)
            })
            .collect()
    }

    fn check_words(&self, room: &Room) -> Vec<Fault> {
        let mut faults = Vec::new();
        for &name in room.must_not_name {
            let rule = || format!("names `{name}`; the room `{}` must not know it", room.name);
            let found: Vec<usize> = match name.split_once("::") {
                None => words(&self.code, name).collect(),
                Some((outer, inner)) => after(&self.code, outer)
                    .into_iter()
                    .filter(|(_, import)| *import == inner)
                    .map(|(at, _)| at)
                    .collect(),
            };
            faults.extend(found.into_iter().map(|at| self.fault(at, rule())));
        }
        if self.path != "fetch/retry.rs" {
            let outside = words(&self.code, "backoff").filter(|at| {
                // Not our own field or module of that name.
                self.code[at + "backoff".len()..].starts_with("::")
                    && !self.code[..*at].ends_with("::")
                    || self.code[..*at].ends_with("use ")
            });
            let rule = "names the crate `backoff`; only fetch/retry.rs may";
            faults.extend(outside.map(|at| self.fault(at, rule.to_owned())));
        }
        if !SQL_PLACES.iter().any(|place| self.path.starts_with(place)) {
            for sql in SQL {
                let found = self.with_strings.match_indices(sql);
                let rule = format!(
                    "has SQL text ({}); only {} may",
                    sql.trim(),
                    SQL_PLACES.join(", ")
                );
                faults.extend(found.map(|(at, _)| self.fault(at, rule.clone())));
            }
        }
        faults
    }

    fn check_form(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        let is_door = self.path.ends_with("/mod.rs") || !self.path.contains('/');
        if is_door && !self.raw.starts_with("//!") {
            let rule = "does not open with `//!`: its purpose and its invariants";
            faults.push(self.fault(0, rule.to_owned()));
        }
        for name in self.path.trim_end_matches(".rs").split('/') {
            let words = name.split('_');
            let mut empty = words.filter(|w| EMPTY_NAMES.contains(&w.trim_end_matches('s')));
            if empty.next().is_some() {
                let rule = format!("`{name}` says nothing: name it for what it holds");
                faults.push(self.fault(0, rule));
            }
        }
        let all = self.raw.lines().count();
        let of_tests = |item: &Range<usize>| self.raw[item.clone()].lines().count();
        let own = all - self.tests.iter().map(of_tests).sum::<usize>();
        if own > LONGEST_FILE {
            let rule =
                format!("has {own} lines without its tests; {LONGEST_FILE} are plenty: split it");
            faults.push(self.fault(0, rule));
        }
        faults
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Code,
    Text,
    Comment,
}

/// Which bytes are code, which are in a string or character, and which in a comment.
fn kinds(raw: &[u8]) -> Vec<Kind> {
    let mut kinds = vec![Kind::Code; raw.len()];
    let mut at = 0;
    while at < raw.len() {
        let rest = &raw[at..];
        let follows_word = at > 0 && is_word(raw[at - 1]);
        let (kind, length) = if rest.starts_with(b"//") {
            let end = rest.iter().position(|&b| b == b'\n');
            (Kind::Comment, end.unwrap_or(rest.len()))
        } else if rest.starts_with(b"/*") {
            (Kind::Comment, block_comment(rest))
        } else if let (false, Some(length)) = (follows_word, raw_string(rest)) {
            (Kind::Text, length)
        } else if rest[0] == b'"' {
            (Kind::Text, quoted(rest))
        } else if rest[0] == b'\'' {
            match character(rest) {
                Some(length) => (Kind::Text, length),
                None => (Kind::Code, 1),
            }
        } else {
            (Kind::Code, 1)
        };
        let end = raw.len().min(at + length);
        kinds[at..end].fill(kind);
        at = end;
    }
    kinds
}

fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (1, 2);
    while depth > 0 && at < rest.len() {
        let step = match &rest[at..] {
            [b'/', b'*', ..] => Some(1),
            [b'*', b'/', ..] => Some(-1),
            _ => None,
        };
        depth += step.unwrap_or(0);
        at += if step.is_some() { 2 } else { 1 };
    }
    at
}

/// The length of a raw string that begins here.
fn raw_string(rest: &[u8]) -> Option<usize> {
    let prefix = match rest {
        [b'r', ..] => 1,
        [b'b' | b'c', b'r', ..] => 2,
        _ => return None,
    };
    let hashes = rest[prefix..].iter().take_while(|&&b| b == b'#').count();
    let open = prefix + hashes;
    if rest.get(open) != Some(&b'"') {
        return None;
    }
    let close = [b"\"".as_slice(), &vec![b'#'; hashes]].concat();
    let body = &rest[open + 1..];
    let end = body
        .windows(close.len())
        .position(|window| window == close)?;
    Some(open + 1 + end + close.len())
}

fn quoted(rest: &[u8]) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != b'"' {
        at += if rest[at] == b'\\' { 2 } else { 1 };
    }
    at + 1
}

/// The length of a character literal that begins here; `None`: it is a lifetime.
fn character(rest: &[u8]) -> Option<usize> {
    if rest.get(1) == Some(&b'\\') {
        let end = rest[3..].iter().position(|&b| b == b'\'')?;
        return Some(3 + end + 1);
    }
    // One character has up to four bytes.
    let end = rest.iter().skip(2).take(4).position(|&b| b == b'\'')?;
    let text = std::str::from_utf8(&rest[1..2 + end]).ok()?;
    (text.chars().count() == 1).then_some(end + 3)
}

/// The text with spaces for what is not shown; lines stay where they are.
fn view(text: &str, shown: impl Fn(usize) -> bool) -> String {
    let bytes = text.bytes().enumerate();
    let seen = bytes.map(|(at, b)| if b == b'\n' || shown(at) { b } else { b' ' });
    String::from_utf8(seen.collect()).expect("strings and comments are blanked whole")
}

/// Where the items, fields and statements are that only tests have, with their attribute.
fn test_items(code: &str) -> Vec<Range<usize>> {
    const ATTRIBUTE: &str = "#[cfg(test)]";
    let mut items: Vec<Range<usize>> = Vec::new();
    for (start, _) in code.match_indices(ATTRIBUTE) {
        if items.last().is_some_and(|item| item.contains(&start)) {
            continue;
        }
        let body = start + ATTRIBUTE.len();
        items.push(start..body + item_length(&code[body..]));
    }
    items
}

/// How far one item goes: to its `;`, or to the brace that closes it; a field to its comma.
fn item_length(code: &str) -> usize {
    let bare = code.trim_start().trim_start_matches("pub ").trim_start();
    let name_ends = bare.find(|c: char| c != '_' && !c.is_alphanumeric());
    let rest = bare[name_ends.unwrap_or(bare.len())..].trim_start();
    let is_field = rest.starts_with(':') && !rest.starts_with("::");
    let (mut depth, mut angles, mut braces) = (0_i32, 0_i32, 0_i32);
    for (at, c) in code.char_indices() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            '<' => angles += 1,
            '>' => angles -= 1,
            '{' => braces += 1,
            '}' => {
                braces -= 1;
                if braces < 0 {
                    return at;
                }
                if braces == 0 && depth == 0 && !is_field {
                    return at + 1;
                }
            }
            ';' if depth == 0 && braces == 0 => return at + 1,
            ',' if is_field && depth == 0 && braces == 0 && angles == 0 => return at + 1,
            _ => {}
        }
    }
    code.len()
}

fn is_word(byte: u8) -> bool {
    byte == b'_' || byte.is_ascii_alphanumeric()
}

/// Where a word stands by itself.
fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let bytes = code.as_bytes();
    let found = code.match_indices(word).map(|(at, _)| at);
    found.filter(move |&at| {
        let end = at + word.len();
        (at == 0 || !is_word(bytes[at - 1])) && !bytes.get(end).is_some_and(|&b| is_word(b))
    })
}

/// What is named right behind `outer::`, also in braces, and where.
fn after<'a>(code: &'a str, outer: &'a str) -> Vec<(usize, &'a str)> {
    let found = words(code, outer);
    found.flat_map(|at| named(code, at + outer.len())).collect()
}

/// What is named behind so many `super::` that they end at the crate's root, and where.
fn above(code: &str, depth: usize) -> Vec<(usize, &str)> {
    const STEP: &str = "super::";
    let mut found = Vec::new();
    for at in words(code, "super") {
        let steps = code[at..].split(STEP).take_while(|s| s.is_empty()).count();
        if !code[..at].ends_with(STEP) && depth > 0 && steps >= depth {
            found.extend(named(code, at + depth * STEP.len() - "::".len()));
        }
    }
    found
}

/// The names behind the `::` at this place: one, or those at the top of the braces.
fn named(code: &str, at: usize) -> Vec<(usize, &str)> {
    let word_at = |at: usize| {
        let rest = &code[at..];
        let start = at + (rest.len() - rest.trim_start().len());
        let rest = &code[start..];
        let end = rest.bytes().position(|b| !is_word(b));
        let word = match end.unwrap_or(rest.len()) {
            0 => rest.get(..1).unwrap_or_default(),
            end => &rest[..end],
        };
        (start, word)
    };
    let Some(rest) = code[at..].strip_prefix("::") else {
        return Vec::new();
    };
    if !rest.starts_with('{') {
        return vec![word_at(at + 2)];
    }
    let open = at + 2;
    let mut names = vec![word_at(open + 1)];
    let mut depth = 0;
    for (offset, c) in code[open..].char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 1 => names.push(word_at(open + offset + 1)),
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    names
}

/// Every file below src, sorted.
fn read_sources(folder: &Path, below: &str, into: &mut Vec<Source>) {
    let entries = fs::read_dir(folder).expect("src can be listed");
    let mut entries: Vec<_> = entries
        .map(|entry| entry.expect("src can be listed"))
        .collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let name = entry.file_name().into_string().expect("names are UTF-8");
        let path = format!("{below}{name}");
        if entry.path().is_dir() {
            read_sources(&entry.path(), &format!("{path}/"), into);
        } else if name.ends_with(".rs") {
            let raw = fs::read_to_string(entry.path()).expect("sources can be read");
            into.push(Source::new(&path, &raw));
        }
    }
}

#[test]
fn every_room_keeps_to_the_plan() {
    let mut sources = Vec::new();
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    read_sources(&src, "", &mut sources);
    assert!(!sources.is_empty());
    let test_modules = sources.iter().flat_map(|source| &source.test_modules);
    let test_modules: BTreeSet<String> = test_modules.cloned().collect();
    let own = sources
        .iter()
        .filter(|source| !source.is_test(&test_modules));
    let faults: Vec<String> = own
        .flat_map(Source::check)
        .map(|fault| fault.to_string())
        .collect();
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

/// The lines at which a text in this place has a fault, and a word of what is said of each.
fn check(path: &str, text: &str, expected: &[(usize, &str)]) {
    let faults = Source::new(path, text).check();
    let fits = |(fault, (line, word)): (&Fault, &(usize, &str))| {
        fault.line == *line && fault.rule.contains(word)
    };
    let all = faults.len() == expected.len() && faults.iter().zip(expected).all(fits);
    assert!(
        all,
        "{path}: {text}\nexpected {expected:?}, got {faults:#?}"
    );
}

#[test]
fn imports_are_found_however_they_are_written() {
    let store = &[(1, "imports `store`")];
    check("mirror/a.rs", "use crate::protocol::X;", &[]);
    check("mirror/a.rs", "use crate::mirror::X;", &[]);
    check("mirror/a.rs", "use crate::store::X;", store);
    check("mirror/a.rs", "use crate::{protocol::X, store::Y};", store);
    check("mirror/a.rs", "use crate::{store, protocol};", store);
    check("mirror/a.rs", "fn f() { crate::store::g() }", store);
    check("mirror/a.rs", "use super::super::store::X;", store);
    check("mirror/a.rs", "use super::store::X;", &[]);
    check("mirror/mod.rs", "//!\nuse super::store;", &[(2, "`store`")]);
    check("mirror/a/b.rs", "use super::super::store;", &[]);
    check(
        "mirror/a.rs",
        "use crate::{\n    protocol::{X, Y},\n    engine::Z,\n};",
        &[(3, "imports `engine`")],
    );
    check("mirror/a.rs", "use crate::*;", &[(1, "imports `*`")]);
    check("clock.rs", "//!\nuse crate::protocol;", &[(2, "nothing")]);
    check("cli/a.rs", "use crate::{store, engine, demo};", &[]);
    check("engine/a.rs", "use crate::cli::X;", &[(1, "`cli`")]);
}

#[test]
fn comments_strings_and_tests_may_say_what_they_like() {
    for text in [
        "// use crate::store;\n/* use /* crate::store */ crate::store */",
        "const A: &str = \"crate::store\\\" crate::store\";",
        "const A: &str = r#\"crate::store\" crate::store\"#;",
        "const A: (char, char) = ('\"', '\\''); // crate::store \"",
        "#[cfg(test)]\nmod tests {\n    use crate::store::X;\n    fn f() { \"}\" }\n}",
        "#[cfg(test)]\n#[allow(x)]\nuse crate::store::{X, Y};",
        "#[cfg(test)]\nfn f<A, B>(a: [u8; 4]) -> B {\n    crate::store::g()\n}",
        "struct A {\n    #[cfg(test)]\n    a: crate::store::Map<A, B>,\n}",
    ] {
        check("mirror/a.rs", text, &[]);
    }
    let behind = "#[cfg(test)]\nmod tests;\nfn f<'a>(a: &'a str) {}\nuse crate::store;";
    check("mirror/a.rs", behind, &[(4, "`store`")]);
    let behind = "struct A {\n    #[cfg(test)]\n    a: B<C, D>,\n    b: crate::store::E,\n}";
    check("mirror/a.rs", behind, &[(4, "`store`")]);
}

#[test]
fn modules_that_only_tests_have_are_known() {
    for (path, module) in [
        ("mirror/mod.rs", "mirror/world"),
        ("mirror/a.rs", "mirror/a/world"),
        ("lib.rs", "world"),
    ] {
        let source = Source::new(path, "//!\n#[cfg(test)]\npub(crate) mod world;\n");
        assert_eq!(source.test_modules, [module]);
    }
    let modules = BTreeSet::from(["mirror/world".to_owned()]);
    let is_test = |path| Source::new(path, "").is_test(&modules);
    assert!(is_test("mirror/world.rs") && is_test("mirror/world/a.rs"));
    assert!(!is_test("mirror/worlds.rs") && !is_test("mirror/mod.rs"));
}

#[test]
fn what_a_room_must_not_know_is_found() {
    check(
        "protocol/a.rs",
        "use tokio::io;",
        &[(1, "names `tokio`; the room `protocol`")],
    );
    check("protocol/a.rs", "use serde::Serialize;", &[]);
    check("sync/a.rs", "#[derive(serde::Serialize)]", &[(1, "serde")]);
    check("sync/a.rs", "use std::path::Path;", &[(1, "std::path")]);
    check("sync/a.rs", "use std::{fmt, path::Path};", &[(1, "path")]);
    check("sync/a.rs", "use std::fmt; let path = 1;", &[]);
    check("fetch/a.rs", "use backoff::Backoff;", &[(1, "backoff")]);
    check(
        "fetch/a.rs",
        "self.backoff.next(); retry::backoff::x()",
        &[],
    );
    check("fetch/retry.rs", "use backoff::Backoff;", &[]);
    let sql = "let a = \"SELECT a FROM b\";";
    check("engine/a.rs", sql, &[(1, "SQL text (SELECT)")]);
    check("store/tx/a.rs", sql, &[(1, "SQL text (SELECT)")]);
    check("store/tables/a.rs", sql, &[]);
    check("store/schema.rs", sql, &[]);
}

#[test]
fn rooms_names_and_lengths_are_held() {
    check("cellar/mod.rs", "//!", &[(1, "`cellar` is not in")]);
    check("cellar.rs", "//!", &[(1, "`cellar` is not in")]);
    check("store/mod.rs", "use x;", &[(1, "`//!`")]);
    check("store/a.rs", "use x;", &[]);
    check("store/http_utils.rs", "", &[(1, "`http_utils`")]);
    check("store/manager/mod.rs", "//!", &[(1, "`manager`")]);
    let tests = "#[cfg(test)]\nmod tests {\n    //\n    //\n}\n";
    let full = "//\n".repeat(450);
    check("store/a.rs", &format!("{full}{tests}"), &[]);
    check("store/a.rs", &format!("{full}//\n{tests}"), &[(1, "451")]);
}
