//! URIs that are made to leave the mirror or to share a path: each has a path of its own inside the mirror. `RESYNCD_URIS` sets
//! how many are tried.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::path::{Component, Path};

use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestRunner};
use resyncd_core::ResourceUri;
use resyncd_mirror::{MirrorPath, made_path, plain_path};

/// How many URIs are tried by default.
const URIS: u32 = 20_000;

/// Names and parts of names that have led out of other mirrors, or to the path of another URI.
const PIECES: &[&str] = &[
    "a",
    "b",
    "A",
    "B",
    "a",
    "b",
    "file.txt",
    "File.txt",
    "FILE.TXT",
    ".",
    "..",
    "...",
    ".a",
    "a.",
    "a..",
    "a ",
    " a",
    "a%20",
    "%2e",
    "%2E",
    "%2e%2e",
    "%2E%2E",
    ".%2e",
    "%2e.",
    "%252e%252e",
    "%2f",
    "%2F",
    "%5c",
    "%5C",
    "\\",
    "..\\",
    "%00",
    "%0a",
    "%0A",
    "%7f",
    "%3f",
    "%3F",
    "%253F",
    "?",
    "?",
    "?x=1",
    "?x=/../..",
    "?%2F",
    "?%2f",
    "?\\",
    "#",
    "#x",
    ";",
    "&",
    "=",
    "*",
    "|",
    "<",
    "\"",
    "'",
    ":",
    "~",
    "%",
    "%%",
    "%2",
    "%zz",
    "%index",
    "%INDEX",
    "%index%3F",
    "%made",
    "%made/00",
    "%host",
    ".resyncd",
    ".resyncd/work/0",
    ".RESYNCD",
    "con",
    "CON",
    "nul.txt",
    "aux",
    "COM1",
    "lpt1.txt",
    "-",
    "--",
    "\u{e9}",
    "e\u{301}",
    "%C3%A9",
    "%c3%a9",
    "e%CC%81",
    "\u{ff0e}\u{ff0e}",
    "\u{2024}\u{2024}",
    "\u{ff0f}",
    "\u{202e}txt",
    "\u{200b}",
    "%C0%AF",
    "%c0%ae",
    "\u{df}",
    "SS",
    "\u{131}",
    "\u{130}",
    "\u{1f4a9}",
    "\t",
    "\n",
    "\u{7f}",
];

const HOSTS: &[&str] = &[
    "example.com",
    "example.com",
    "EXAMPLE.com",
    "example.com:80",
    "example.com:8080",
    "example.com.",
    "example.com:443",
    "user@example.com",
    "user:pass@example.com",
    "[::1]",
    "127.0.0.1",
    "0x7f.1",
    ".resyncd",
    "..",
    ".",
    "%2e%2e",
    "ex%41mple.com",
    "ex\u{e4}mple.com",
    "xn--exmple-cua.com",
    "a",
    "%made",
    "h_h",
    "-",
    "a..b",
];

fn piece() -> impl Strategy<Value = String> {
    // Mostly harmless pieces: hardly any URI of malicious pieces only has a plain path.
    prop_oneof![
        24 => prop::sample::select(&["a", "b", "A", "file.txt", "x=1", ""][..]).prop_map(str::to_owned),
        12 => prop::sample::select(PIECES).prop_map(str::to_owned),
        1 => "[ -~]{0,3}",
        1 => "\\PC{0,3}",
        1 => prop::sample::select(&[100, 241, 250, 251, 252, 253, 254, 255, 256, 300][..]).prop_map(|n| "n".repeat(n)),
    ]
}

/// Replacements that make a twin of a URI: code that decodes or normalizes too much takes the two for one.
const TWINS: &[(&str, &str)] = &[
    ("?", "%3F"),
    ("?", "%3f"),
    ("?", "/?"),
    ("?", "%index?"),
    ("/", "%2F"),
    ("/", "%2f"),
    ("/", "//"),
    ("/", "\\"),
    ("/", "%5C"),
    ("/", "/./"),
    ("/", "/%2e/"),
    ("%2F", "%2f"),
    ("%2F", "/"),
    ("%252F", "%2F"),
    ("%", "%25"),
    (" ", "%20"),
    (".", "%2E"),
    ("a", "A"),
    ("a", "%61"),
    ("\u{e9}", "e\u{301}"),
    ("\u{ff0f}", "/"),
    ("/%index", "/"),
    ("%made", "%4dade"),
    ("n", "nn"),
    ("", "/"),
    ("", "/%index"),
    ("", "?"),
    ("", "#x"),
    ("", "."),
    ("", "%20"),
    ("", "%00"),
    ("http:", "https:"),
];

fn twin(text: &str, (one, other): (&str, &str)) -> Option<String> {
    // The last occurrence, which is mostly after the host.
    let at = text.rfind(one)?;
    Some(format!("{}{other}{}", &text[..at], &text[at + one.len()..]))
}

/// A URI; a few are very long.
fn uri() -> impl Strategy<Value = String> {
    let segment = prop::collection::vec(piece(), 0..3).prop_map(|pieces| pieces.concat());
    let path = prop::collection::vec(segment, 0..5).prop_map(|segments| segments.join("/"));
    let times = prop_oneof![60 => Just(1_usize), 1 => Just(14), 1 => Just(300)];
    let scheme = prop_oneof![8 => Just("http"), 1 => Just("https")];
    let host = prop_oneof![3 => Just("example.com"), 1 => prop::sample::select(HOSTS)];
    let query = prop_oneof![3 => Just(""), 1 => prop::sample::select(&["?", "?a", "?x=1", "?a/b", "?/"][..])];
    (scheme, host, path, query, times).prop_map(|(scheme, host, path, query, times)| {
        let path = vec![path; times].join("/");
        format!("{scheme}://{host}/{path}{query}")
    })
}

/// Whether a path consists of real names and leads neither out of the mirror nor into `.resyncd/`.
fn is_inside(path: &MirrorPath) -> bool {
    let text = path.as_str();
    let mut names = Path::new(text).components();
    let is_real = names.all(|name| matches!(name, Component::Normal(name) if name.len() <= 255));
    // `Path` skips empty names and `.`, which must not occur.
    let plain: Vec<&str> = text.split('/').collect();
    is_real
        && plain.len() >= 2
        && plain.iter().all(|name| !name.is_empty() && *name != ".")
        && plain[0] != ".resyncd"
        && text.len() < 3500
        && !text.contains(['\0', '\\', '\n'])
}

/// Two resources whose URIs differ only in their scheme have the same plain path; the store gives it to one of them.
fn without_scheme(identity: &str) -> &str {
    identity.split_once("//").map_or(identity, |(_, rest)| rest)
}

#[test]
fn every_uri_has_a_path_of_its_own_inside_the_mirror() {
    let cases = std::env::var("RESYNCD_URIS").ok();
    let cases = cases.map_or(URIS, |uris| uris.parse().unwrap());
    let config = ProptestConfig {
        // Each case has two URIs.
        cases: cases / 2,
        rng_seed: RngSeed::Fixed(0),
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    // The URI of each path, as hashes: there may be a million.
    let (keys, owners) = (RandomState::new(), RefCell::new(HashMap::new()));
    let with_plain_path = RefCell::new(0_u32);
    let parsed_uris = RefCell::new(0_u32);
    let check = |text: &str| {
        let Ok(uri) = ResourceUri::parse(text) else {
            return Ok(());
        };
        *parsed_uris.borrow_mut() += 1;
        let (plain, made) = (plain_path(&uri), made_path(&uri));
        *with_plain_path.borrow_mut() += u32::from(plain.is_some());
        let identity = uri.identity();
        let of_plain = plain.as_ref().map(|path| (path, without_scheme(&identity)));
        for (path, owner) in of_plain.into_iter().chain([(&made, &*identity)]) {
            prop_assert!(is_inside(path), "{uri} is stored at {path}");
            let parsed = MirrorPath::parse(path.as_str());
            prop_assert_eq!(parsed.as_ref(), Ok(path));
            let (at, owner) = (keys.hash_one(path.as_str()), keys.hash_one(owner));
            let first = *owners.borrow_mut().entry(at).or_insert(owner);
            prop_assert!(first == owner, "{uri} and another URI are stored at {path}");
        }
        Ok(())
    };
    let twins = (uri(), prop::sample::select(TWINS));
    let run = TestRunner::new(config).run(&twins, |(text, edit)| {
        check(&text)?;
        twin(&text, edit).map_or(Ok(()), |twin| check(&twin))
    });
    run.unwrap();
    let (parsed_uris, plain) = (*parsed_uris.borrow(), *with_plain_path.borrow());
    assert!(parsed_uris > cases / 2, "{parsed_uris} of {cases} are URIs");
    println!(
        "{parsed_uris} URIs, {plain} with a plain path, {} paths",
        owners.borrow().len()
    );
    assert!(
        plain > parsed_uris / 4 && plain < parsed_uris,
        "{plain} of {parsed_uris}"
    );
}
