//! CORE: the path of a resource's file in the mirror.
//!
//! The mapping is pure: a URI always has the same [plain path](plain_path) and the same [made path](made_path), and so has any other
//! spelling that [identifies](resyncd_core::identity) the same resource. Which of the two a
//! resource has is decided three times, each time by a function of this file, which knows neither files nor tables. Who calls it
//! states what is in the way:
//!
//! - When a resource becomes known, [`first_path`]: two resources may share a plain path. The store calls it and records the path, which
//!   stays with the resource, also after a deletion. For an audit, which may know no records, its database calls it.
//! - When an audit then reads the records, they come first: a resource that has none and whose plain path they give to another one
//!   has the made path, as it would by [`first_path`].
//! - When a file is published, [`publication_path`] and [`path_if_blocked`]: in the mirror something may be in the way. Once that is gone,
//!   [`path_if_freed`] leads back. The path that the publisher has used is recorded; the versions of the resource are stored below the same
//!   [two paths](publication_paths).
//!
//! All others use the recorded path. The tables leave it out where it is the plain one.
//!
//! Invariants: every path is below the mirror and outside its staged files; no name is longer than 255 bytes; two resources of one
//! scheme never share a path. The percent-encoding of a URI is preserved: only letters, digits, `-`, `.`, `_` and `~` are decoded, so that
//! nothing can become a `/`. What could become a `..` is one for the parser of the URI already.

use std::borrow::Cow;
use std::fmt;

use resourcesync::uri::has_userinfo;
use resyncd_core::ResourceUri;
use sha2::{Digest, Sha256};
use url::{Position, Url};

use crate::identity::hexadecimal;

/// The maximum length of a name in a file system, in bytes.
const LONGEST_NAME: usize = 255;
/// The maximum length of a path in bytes: together with the path of the mirror it stays below the 4,096 that programs can
/// open.
const LONGEST_PATH: usize = 3000;
/// The maximum number of names in a plain path, with that of the host: each may be a new folder, which takes an inode and a block.
/// So a file takes no more than these, whatever its URI is. Trees that are split by digits, such as pairtrees, have some 10 to 15.
const MOST_NAMES: usize = 24;
/// How much of the last segment a made name repeats, in bytes; file systems that encrypt names allow about 140 in all.
const READABLE: usize = 60;

/// The folder of staged files, in the mirror's root.
pub const OWN_FOLDER: &str = ".resyncd";
/// The name of the file for a URI that ends in `/`.
const INDEX: &str = "%index";
/// The folder of made paths, in the folder of the host.
const MADE: &str = "%made";
/// Replaces a host that can't be the name of a folder. No host contains a `%`.
const ODD_HOST: &str = "%host";

/// Not a valid path: it could lead out of the mirror, or to its staged files.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path:?} is not a valid path in a mirror: {reason}")]
pub struct BadPath {
    path: String,
    reason: &'static str,
}

impl BadPath {
    /// The stable name of the error.
    pub fn code(&self) -> &'static str {
        "bad-path"
    }
}

/// The path of a file below the mirror: `<host>[:<port>]/<path…>`, with `/` between the names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MirrorPath(String);

impl MirrorPath {
    /// Parses a stored path.
    ///
    /// # Errors
    /// If it could lead out of the mirror or to its staged files, or is too long.
    pub fn parse(text: &str) -> Result<Self, BadPath> {
        Self::unless(text, path_fault(text))
    }

    /// Parses the path of a file in a folder that is no mirror: it needs no folder of a host.
    ///
    /// # Errors
    /// As of [`parse`](Self::parse).
    pub fn parse_in_folder(text: &str) -> Result<Self, BadPath> {
        Self::unless(text, names_fault(text))
    }

    fn unless(text: &str, fault: Option<&'static str>) -> Result<Self, BadPath> {
        match fault {
            None => Ok(Self(text.to_owned())),
            Some(reason) => Err(BadPath {
                path: text.to_owned(),
                reason,
            }),
        }
    }

    /// The path as text, relative to the mirror.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The folder of the file, relative to the mirror; never empty.
    pub(crate) fn folder(&self) -> &str {
        self.split().0
    }

    /// The name of the file in its folder.
    pub(crate) fn name(&self) -> &str {
        self.split().1
    }

    fn split(&self) -> (&str, &str) {
        self.0
            .rsplit_once('/')
            .expect("a path has the folder of a host and a name")
    }
}

impl fmt::Display for MirrorPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a path is invalid in a mirror; `None` if it is valid.
fn path_fault(path: &str) -> Option<&'static str> {
    let fault = names_fault(path);
    fault.or_else(|| (!path.contains('/')).then_some("not below a host's folder"))
}

/// Why a path is invalid in any folder; `None` if it is valid.
fn names_fault(path: &str) -> Option<&'static str> {
    if path.len() > LONGEST_PATH {
        Some("too long")
    } else if path.split('/').next() == Some(OWN_FOLDER) {
        Some("in the folder of staged files")
    } else {
        path.split('/').find_map(name_fault)
    }
}

/// Why a name is invalid in a path; `None` if it is valid.
fn name_fault(name: &str) -> Option<&'static str> {
    if name.is_empty() {
        Some("an empty name")
    } else if matches!(name, "." | "..") {
        Some("a dot segment")
    } else if name.len() > LONGEST_NAME {
        Some("a name of more than 255 bytes")
    } else if name.bytes().any(|b| b.is_ascii_control() || b == b'\\') {
        Some("a control character or a backslash")
    } else {
        None
    }
}

/// The readable path: the host, then the path of the URI with normalized percent-encoding.
///
/// A final `/` becomes `/%index`; a query becomes part of the last name, as `%3F` and the query with its `/` as `%2F`. `None`
/// where that would be ambiguous or invalid: then [`made_path`] is used. The scheme is not part of the path, so that an http
/// and an https URI of one host and port that is the default of neither may share it; if both are stored, one of them needs the made path.
///
/// The database has only the paths that are not plain: the plain path of a URI never changes.
#[must_use]
pub fn plain_path(uri: &ResourceUri) -> Option<MirrorPath> {
    Some(MirrorPath(plain_text(uri)?.into_owned()))
}

/// Whether a path is the plain path of a URI.
pub fn is_plain_path(path: &str, uri: &ResourceUri) -> bool {
    plain_text(uri).is_some_and(|plain| plain == path)
}

/// The text of the plain path: of most URIs it is a part of their own.
fn plain_text(uri: &ResourceUri) -> Option<Cow<'_, str>> {
    match uri.normalized() {
        Cow::Borrowed(url) => plain_text_of(url),
        Cow::Owned(url) => Some(Cow::Owned(plain_text_of(&url)?.into_owned())),
    }
}

fn plain_text_of(url: &Url) -> Option<Cow<'_, str>> {
    // `user@host` and `host` must not share a path.
    if has_userinfo(url) {
        return None;
    }
    let segments = url.path().strip_prefix('/')?;
    if segments.split('/').count() >= MOST_NAMES {
        return None;
    }
    // Each of these has a `%`, which is in few paths.
    if segments.contains('%')
        && (segments.split('/').next() == Some(MADE)
            || segments.contains("%3F")
            || segments.contains("%3f")
            || segments.split('/').any(|name| name.starts_with(INDEX)))
    {
        return None;
    }
    let mut text = Cow::Borrowed(&url[Position::BeforeHost..Position::AfterPath]);
    if text.ends_with('/') {
        text.to_mut().push_str(INDEX);
    }
    if let Some(query) = url.query() {
        if query.contains("%2F") || query.contains("%2f") {
            return None;
        }
        let text = text.to_mut();
        text.push_str("%3F");
        text.push_str(&query.replace('/', "%2F"));
    }
    path_fault(&text).is_none().then_some(text)
}

/// URIs of the resources whose plain path this is: at most one of each scheme, and one if its port is the default.
#[must_use]
pub fn uris_of_plain_path(path: &str) -> Vec<ResourceUri> {
    let Some((authority, names)) = path.split_once('/') else {
        return Vec::new();
    };
    let (segments, query) = match names.split_once("%3F") {
        Some((segments, query)) => (segments, format!("?{}", query.replace("%2F", "/"))),
        None => (names, String::new()),
    };
    // As a whole name only: others may end like that.
    let folder = segments.strip_suffix(INDEX);
    let segments = folder
        .filter(|folder| folder.is_empty() || folder.ends_with('/'))
        .unwrap_or(segments);
    let uris = ["http", "https"].into_iter().filter_map(|scheme| {
        ResourceUri::parse(&format!("{scheme}://{authority}/{segments}{query}")).ok()
    });
    // What is no plain path may look like one.
    let mut uris: Vec<_> = uris.filter(|uri| is_plain_path(path, uri)).collect();
    uris.dedup();
    uris
}

/// The [identity](resyncd_core::identity) of the only other resource that may have the same plain path as one that has it: that of the
/// other scheme, if the port is the default of neither. There may be no such resource.
#[must_use]
pub fn other_of_plain_path(uri: &ResourceUri) -> Option<String> {
    uri.url().port()?;
    let identity = uri.identity();
    Some(match identity.strip_prefix("http:") {
        Some(rest) => format!("https:{rest}"),
        None => identity.replacen("https:", "http:", 1),
    })
}

/// The path of a resource whose plain path is unavailable: `<host>/%made/<2 hex>/<SHA-256 of its identity>-<name>`.
///
/// The [identity](resyncd_core::identity) is the complete URI, with its scheme unless the port is the default one. The name at the end is
/// for readability only, and may be absent. No plain path begins like this.
#[must_use]
pub fn made_path(uri: &ResourceUri) -> MirrorPath {
    let digest = hexadecimal(&Sha256::digest(uri.identity().as_bytes()));
    let mut path = format!("{}/{}/{digest}", made_folder(uri), &digest[..2]);
    if let Some(name) = readable_name(&uri.normalized()) {
        path.push('-');
        path.push_str(&name);
    }
    MirrorPath::parse(&path).expect("its names are checked, a digest, or safe characters")
}

/// The folder of the made paths of a host.
#[must_use]
pub fn made_folder(uri: &ResourceUri) -> String {
    let authority = uri.authority();
    let host = match name_fault(&authority) {
        None if authority != OWN_FOLDER => authority.as_str(),
        _ => ODD_HOST,
    };
    format!("{host}/{MADE}")
}

/// The end of the last segment that is not empty, with characters that are safe in shells and file systems.
fn readable_name(url: &Url) -> Option<String> {
    let mut segments = url.path_segments()?;
    let segment = segments.rfind(|segment| !segment.is_empty())?;
    let safe = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    // The end has the extension.
    let start = segment.len().saturating_sub(READABLE);
    let end = segment.chars().skip(start);
    Some(end.map(|c| if safe(c) { c } else { '_' }).collect())
}

/// The path of a resource that becomes known: the plain one, or the made one where there is none or it belongs to another resource.
///
/// # Errors
/// Those of `belongs_to_another`, which is called for the plain path.
pub fn first_path<E>(
    uri: &ResourceUri,
    belongs_to_another: impl FnOnce(&MirrorPath) -> Result<bool, E>,
) -> Result<MirrorPath, E> {
    match plain_path(uri) {
        Some(plain) if !belongs_to_another(&plain)? => Ok(plain),
        _ => Ok(made_path(uri)),
    }
}

/// The path at which the file of a resource is published first: the recorded one, or the made one if that is invalid.
#[must_use]
pub fn publication_path(recorded: &str, uri: &ResourceUri) -> MirrorPath {
    MirrorPath::parse(recorded).unwrap_or_else(|_| made_path(uri))
}

/// The path at which it is published where a folder or a file is in the way of that one: the made one; `None`: it was that.
#[must_use]
pub fn path_if_blocked(blocked: &str, uri: &ResourceUri) -> Option<MirrorPath> {
    let made = made_path(uri);
    (made.as_str() != blocked).then_some(made)
}

/// The plain path of a resource that has the made one because something in the mirror was in the way: it may be gone. `None`: it has the
/// plain one, there is none, or another resource may have it, of the other scheme.
#[must_use]
pub fn path_if_freed(recorded: &str, uri: &ResourceUri) -> Option<MirrorPath> {
    // Nearly every path: the other one takes a digest.
    if is_plain_path(recorded, uri) || made_path(uri).as_str() != recorded {
        return None;
    }
    plain_path(uri).filter(|_| other_of_plain_path(uri).is_none())
}

/// Both, in this order. After a crash there may be a file at each of them, of which only one has a record. The versions of the resource
/// are stored below them.
pub fn publication_paths(
    recorded: &str,
    uri: &ResourceUri,
) -> impl Iterator<Item = MirrorPath> + use<> {
    let first = publication_path(recorded, uri);
    let second = path_if_blocked(first.as_str(), uri);
    std::iter::once(first).chain(second)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn uri(text: &str) -> ResourceUri {
        ResourceUri::parse(text).unwrap()
    }

    fn check(text: &str, expected: Option<&str>) {
        let plain = plain_path(&uri(text));
        assert_eq!(plain.as_ref().map(MirrorPath::as_str), expected, "{text}");
    }

    #[test]
    fn plain_paths_resemble_their_uris() {
        for (uri, path) in [
            ("http://example.com/a/b.txt", "example.com/a/b.txt"),
            ("http://EXAMPLE.com:80/a", "example.com/a"),
            ("http://example.com:8080/a", "example.com:8080/a"),
            ("http://[::1]/a", "[::1]/a"),
            ("http://example.com", "example.com/%index"),
            ("http://example.com/a/", "example.com/a/%index"),
            ("http://example.com/?q=1", "example.com/%index%3Fq=1"),
            ("http://example.com/a?x=/y?z", "example.com/a%3Fx=%2Fy?z"),
            ("http://example.com/a?", "example.com/a%3F"),
            ("http://example.com/a?x=%3F", "example.com/a%3Fx=%3F"),
            ("http://example.com/é%2Fb c", "example.com/%C3%A9%2Fb%20c"),
            ("http://example.com/a/../../b", "example.com/b"),
            ("http://example.com/%2e%2E/b", "example.com/b"),
            ("http://example.com/a\\b", "example.com/a/b"),
            ("http://example.com/b/%made/c", "example.com/b/%made/c"),
            ("http://example.com/a%index", "example.com/a%index"),
            ("https://example.com/a", "example.com/a"),
            (
                "http://example.com/%7ea%2fb?%41%2d",
                "example.com/~a%2Fb%3FA-",
            ),
        ] {
            check(uri, Some(path));
            let of_path = uris_of_plain_path(path);
            let schemes = of_path.iter().map(|uri| uri.url().scheme());
            let expected = if path.contains(":8080") {
                vec!["http", "https"]
            } else {
                vec!["http"]
            };
            assert_eq!(schemes.collect::<Vec<_>>(), expected, "{uri}");
            assert!(of_path.contains(&self::uri(uri)), "{uri}");
        }
        // A port is part of the path where it is not the default of the scheme.
        let of_path = uris_of_plain_path("example.com:443/a");
        assert_eq!(of_path, [self::uri("http://example.com:443/a")]);
    }

    #[test]
    fn other_paths_are_plain_paths_of_no_uri() {
        let made = made_path(&uri("http://example.com/a"));
        for path in [
            made.as_str(),
            "",
            "example.com",
            "example.com/",
            "example.com/a//b",
            "example.com/%3F%3f",
            "example.com/%7Ea",
            "example.com/%2f",
            "example.com/a b",
            "EXAMPLE.com/a",
            "example.com/%made",
            ".resyncd/a",
        ] {
            let none: [ResourceUri; 0] = [];
            assert_eq!(uris_of_plain_path(path), none, "{path}");
        }
    }

    #[test]
    fn ambiguous_and_invalid_paths_are_not_plain() {
        let long_name = format!("http://example.com/{}", "n".repeat(256));
        let long_query = format!("http://example.com/a?{}", "n".repeat(252));
        let long_path = format!("http://example.com/{}", "name/".repeat(600));
        let deep_path = format!("http://example.com/{}a", "d/".repeat(MOST_NAMES - 1));
        for uri in [
            "http://example.com/a%3Fb",
            "http://example.com/a%3fb/c",
            "http://example.com/a?b%2Fc",
            "http://example.com/a?b%2fc",
            "http://example.com/%index",
            "http://example.com/%index%20/a",
            "http://example.com/a//b",
            "http://example.com//",
            "http://example.com/%made/ab/c",
            "http://example.com/%made",
            "http://example.com/a?b\\c",
            "http://user@example.com/a",
            &long_name,
            &long_query,
            &long_path,
            &deep_path,
        ] {
            check(uri, None);
        }
        // No host begins with a dot.
        assert!(ResourceUri::parse("http://.resyncd/work/1").is_err());
    }

    #[test]
    fn deep_paths_are_plain_up_to_a_limit() {
        let deep = format!("example.com/{}a", "d/".repeat(MOST_NAMES - 2));
        check(&format!("http://{deep}"), Some(&deep));
    }

    #[test]
    fn made_paths_distinguish_resources_and_are_readable() {
        let path = made_path(&uri("http://example.com/a//name%20of.tar.gz?x"));
        let (digest, name) = path.name().split_once('-').unwrap();
        assert_eq!((digest.len(), name), (64, "name_20of.tar.gz"));
        assert_eq!(
            path.folder(),
            format!("example.com/%made/{}", &digest[..2]).as_str()
        );
        for (one, other, are_equal) in [
            ("http://h:8080/a", "https://h:8080/a", false),
            ("http://h/a", "https://h/a", true),
            ("http://h/%7ea//b", "https://h/~a//b", true),
        ] {
            let [one, other] = [one, other].map(|text| made_path(&uri(text)));
            assert_eq!(one == other, are_equal, "{one} {other}");
        }
        let nameless = made_path(&uri("http://example.com/"));
        assert_eq!(nameless.name().len(), 64);
    }

    #[test]
    fn first_path_is_plain_where_that_is_no_other_resources() {
        let first = |text: &str, is_taken| {
            let path = first_path::<()>(&uri(text), |_| Ok(is_taken));
            path.unwrap().to_string()
        };
        let (plain, not_plain) = ("http://h/a", "http://h/a%3Fb");
        let made = |text: &str| made_path(&uri(text)).to_string();
        for (text, is_taken, expected) in [
            (plain, false, "h/a".to_owned()),
            (plain, true, made(plain)),
            (not_plain, false, made(not_plain)),
            (not_plain, true, made(not_plain)),
        ] {
            assert_eq!(first(text, is_taken), expected, "{text}, {is_taken}");
        }
        assert_eq!(first_path(&uri(plain), |_| Err("unknown")), Err("unknown"));
    }

    #[test]
    fn made_path_is_used_where_the_recorded_one_is_blocked_or_invalid() {
        let uri = uri("http://h/a");
        let made = made_path(&uri).to_string();
        for (recorded, expected) in [
            ("h/a", vec!["h/a", &made]),
            ("h/b", vec!["h/b", &made]),
            (&made, vec![&made]),
            ("../a", vec![&made]),
            ("", vec![&made]),
        ] {
            let paths = publication_paths(recorded, &uri);
            let paths: Vec<String> = paths.map(|path| path.to_string()).collect();
            assert_eq!(paths, expected, "{recorded:?}");
        }
    }

    #[test]
    fn plain_path_is_for_no_other_resource_where_it_may_be_free_again() {
        for (text, plain) in [
            ("http://h/a", Some("h/a")),
            ("https://h/a", Some("h/a")),
            ("http://h:8080/a", None),
            ("http://h/a%3Fb", None),
        ] {
            let uri = uri(text);
            let freed = path_if_freed(made_path(&uri).as_str(), &uri);
            assert_eq!(freed.as_ref().map(MirrorPath::as_str), plain, "{text}");
            for recorded in ["h/a", "h/b", "", "../a"] {
                assert_eq!(path_if_freed(recorded, &uri), None, "{recorded:?} {text}");
            }
        }
    }

    #[test]
    fn hosts_that_are_invalid_folder_names_have_a_made_path() {
        let long = format!("http://{}example.com/a", "label.".repeat(60));
        for text in [long.as_str(), "http://.resyncd/a", "http://../a"] {
            let Ok(uri) = ResourceUri::parse(text) else {
                continue;
            };
            assert_eq!(plain_path(&uri), None, "{text}");
            assert!(made_path(&uri).as_str().starts_with("%host/%made/"));
        }
    }

    #[test]
    fn paths_that_lead_elsewhere_are_rejected() {
        for text in [
            "",
            "h",
            "/etc/passwd",
            "h/../../etc/passwd",
            "../h/a",
            "h/./a",
            "h//a",
            "h/a/",
            ".resyncd/lock",
            "h/a\0b",
            "h/a\nb",
            "h\\a/b",
        ] {
            let parsed = MirrorPath::parse(text);
            assert_eq!(parsed.map_err(|e| e.code()), Err("bad-path"), "{text:?}");
        }
        assert!(MirrorPath::parse("h/a/.resyncd").is_ok());
    }

    /// Pieces that are chosen to collide.
    fn piece() -> impl Strategy<Value = String> {
        prop_oneof![
            4 => prop::sample::select(vec![
                "a", "b", "%", "%2", "%3", "F", "f", "%3F", "%3f", "%2F", "%2f", "%index", "%made", "%host", "index",
                ".", "..", "%2e", "/", "/", "/", "?", "?", "\\", "é", " ", "%25", "%00", "\u{1}", "-", "@", ":", "#", "%7E", "~", "%2d",
            ]).prop_map(str::to_owned),
            1 => "[ -~]{0,4}",
            1 => (1..300_usize).prop_map(|n| "n".repeat(n)),
        ]
    }

    fn any_uri() -> impl Strategy<Value = Option<ResourceUri>> {
        let hosts = [
            "h", "h:8080", "u@h", ".resyncd", "..", ".", "[::1]", "h/%made",
        ];
        let pieces = prop::collection::vec(piece(), 0..8);
        let schemes = prop::sample::select(vec!["http", "https"]);
        (schemes, prop::sample::select(hosts.to_vec()), pieces).prop_map(
            |(scheme, host, pieces)| {
                ResourceUri::parse(&format!("{scheme}://{host}/{}", pieces.concat())).ok()
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        #[test]
        fn no_two_uris_share_a_path_and_none_leaves_the_mirror(
            uris in prop::collection::vec(any_uri(), 1..60)
        ) {
            let mut owners = HashMap::new();
            for uri in uris.into_iter().flatten() {
                for path in [plain_path(&uri), Some(made_path(&uri))].into_iter().flatten() {
                    prop_assert_eq!(MirrorPath::parse(path.as_str()), Ok(path.clone()));
                    prop_assert!(path.as_str().split('/').all(|name| name.len() <= 255));
                    let is_made = path == made_path(&uri);
                    let owner = owners.entry(path).or_insert_with(|| uri.clone());
                    let is_other = other_of_plain_path(&uri).is_some_and(|other| owner.identity() == other);
                    prop_assert!(*owner == uri || is_other && !is_made, "{} {}", owner, uri);
                }
                prop_assert_ne!(plain_path(&uri), Some(made_path(&uri)));
                if let Some(plain) = plain_path(&uri) {
                    let of_path = uris_of_plain_path(plain.as_str());
                    prop_assert!(of_path.contains(&uri));
                    for other in of_path.iter().filter(|other| **other != uri) {
                        prop_assert_eq!(Some(other.identity().into_owned()), other_of_plain_path(&uri));
                        prop_assert_eq!(other_of_plain_path(other), Some(uri.identity().into_owned()));
                    }
                }
            }
        }
    }
}
