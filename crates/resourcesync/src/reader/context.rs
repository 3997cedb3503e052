//! What the parts of a document have in common while they are read: the oddities found so far, and what URIs are resolved against.
//!
//! A document of a few kilobytes must not become gigabytes: a reference of one byte may stand for a long URI.

use std::borrow::Cow;
use std::collections::BTreeMap;

use memchr::memchr3;
use url::{ParseError, Position, Url};

use super::element::Vocabulary;
use super::error::TextPosition;
use super::input::EventPlace;
use super::xml::is_readable;
use crate::entries::LinkLimit;
use crate::uri::{
    BaseUri, ReferenceError, check_parsed, has_userinfo, is_web, parse_uri, resolve_reference,
    without_userinfo,
};
use crate::{Link, Oddities, Oddity};

/// How many bytes relative URIs may add to any document: 50,000 entries with a base of 300 bytes.
const ADDED: u64 = 16 << 20;
/// How many bytes they may add for each byte of the document beyond that.
const ADDED_PER_BYTE: u64 = 4;

/// What the parts of a document are read with.
pub(super) struct Context {
    /// The URL of the document.
    pub(super) base: Url,
    /// The maximum length of a URI, in bytes.
    max_bytes: usize,
    /// How many bytes longer relative URIs have become.
    added: u64,
    neighbor: Option<Neighbor>,
    /// The root element has no namespace: then elements without one are those of the Sitemap protocol and of ResourceSync.
    pub(super) without_namespace: bool,
    /// What has a misspelt namespace.
    pub(super) misspelt: Vec<Vocabulary>,
    pub(super) oddities: Oddities,
    /// The place where each kind of oddity was found first.
    pub(super) places: BTreeMap<Oddity, TextPosition>,
}

impl Context {
    pub(super) fn of(base: BaseUri<'_>) -> Self {
        Self {
            base: base.uri.clone(),
            max_bytes: base.max_bytes,
            added: 0,
            neighbor: None,
            without_namespace: false,
            misspelt: Vec::new(),
            oddities: Oddities::default(),
            places: BTreeMap::new(),
        }
    }

    /// Counts an oddity once.
    pub(super) fn add(&mut self, oddity: Oddity) {
        self.oddities.add(oddity);
    }

    /// Counts an oddity once if it is there.
    pub(super) fn add_if(&mut self, oddity: Oddity, is_there: bool) {
        self.oddities.add_if(oddity, is_there);
    }

    /// Notes a place for the kinds of oddities that have none.
    pub(super) fn note_places(&mut self, place: EventPlace<'_>) {
        if self.oddities.kinds() > self.places.len() {
            let place = place.place();
            for (oddity, _) in self.oddities.iter() {
                self.places.entry(oddity).or_insert(place);
            }
        }
    }

    /// Reads a link, unless the limit is reached: then it is counted, and takes no memory.
    pub(super) fn admitted_link(
        &mut self,
        limit: &mut LinkLimit,
        read: impl FnOnce(&mut Self) -> Option<Link>,
    ) -> Option<Link> {
        if limit.is_reached() {
            limit.exceed();
            self.add(Oddity::TooManyLinks);
            return None;
        }
        let link = read(self)?;
        let fits = limit.admit(&link);
        self.add_if(Oddity::TooManyLinks, !fits);
        fits.then_some(link)
    }

    /// Whether a reference is too long, resolved or not.
    pub(super) fn is_too_long(&self, text: &str) -> bool {
        text.len() > self.max_bytes
    }

    /// Whether the URIs so far are too long for what was read of the document. `position`: how many bytes were read.
    pub(super) fn are_expanded(&self, position: u64) -> bool {
        self.added > ADDED.saturating_add(position.saturating_mul(ADDED_PER_BYTE))
    }

    /// The URI of a `loc` or `href`, resolved against the document. Line breaks with their indentation are removed. `None` if it
    /// is not a URI, or too long.
    pub(super) fn resolve(&mut self, text: &str) -> Option<Url> {
        let text = text.trim();
        let text = if memchr3(b'\n', b'\r', b'\t', text.as_bytes()).is_some() {
            let lines = text.split(['\n', '\r', '\t']).map(str::trim);
            Cow::Owned(lines.collect::<String>())
        } else {
            Cow::Borrowed(text)
        };
        if text.is_empty() || !is_readable(&text) {
            return None;
        }
        let url = self.resolve_text(&text);
        self.add_if(Oddity::LongUri, url == Err(ReferenceError::TooLong));
        let url = url.ok()?;
        if !has_userinfo(&url) {
            return Some(url);
        }
        self.add(Oddity::UserInfo);
        Some(without_userinfo(url))
    }

    fn resolve_text(&mut self, text: &str) -> Result<Url, ReferenceError> {
        if self.is_too_long(text) {
            return Err(ReferenceError::TooLong);
        }
        match self.parse(text) {
            Ok(url) if self.is_too_long(url.as_str()) => Err(ReferenceError::TooLong),
            Ok(url) => Ok(url),
            Err(ParseError::RelativeUrlWithoutBase) => {
                let (uri, max_bytes) = (&self.base, self.max_bytes);
                let url = resolve_reference(BaseUri { uri, max_bytes }, text)?;
                let more = url.as_str().len().saturating_sub(text.len());
                self.added = self.added.saturating_add(more as u64);
                self.add(Oddity::RelativeUri);
                Ok(url)
            }
            Err(error) => Err(ReferenceError::Syntax(error)),
        }
    }

    /// Parses a URI, only its path and query if it is one of the same server as one before.
    fn parse(&mut self, text: &str) -> Result<Url, ParseError> {
        let known = self.neighbor.as_mut();
        if let Some(url) = known.and_then(|neighbor| neighbor.parse(text)) {
            check_parsed(text, &url)?;
            return Ok(url);
        }
        let url = parse_uri(text)?;
        self.neighbor = Neighbor::of(text, &url).or(self.neighbor.take());
        Ok(url)
    }
}

/// A URI of the server that most URIs of a document are of. To parse an authority takes as long as the rest of a URI.
struct Neighbor {
    uri: Url,
    /// The length of its scheme and authority, in bytes.
    origin: usize,
}

impl Neighbor {
    /// `None` if a text is not an http or https URI whose authority is normalized and without a user name.
    fn of(text: &str, url: &Url) -> Option<Self> {
        let origin = &url[..Position::BeforePath];
        let rest = text.strip_prefix(origin)?;
        let is_known = rest.starts_with('/') && !has_userinfo(url) && is_web(url);
        is_known.then(|| {
            let origin = origin.len();
            let mut uri = url.clone();
            uri.set_fragment(None);
            Self { uri, origin }
        })
    }

    /// Parses a URI of the same server; `None` if it is not certain to be one, or unusual.
    fn parse(&mut self, text: &str) -> Option<Url> {
        let rest = text.strip_prefix(&self.uri.as_str()[..self.origin])?;
        // White space and control characters at the end belong to no URI.
        let is_usual = |byte: u8| byte > b' ' && byte != b'#' && byte != b'\\';
        let are_usual = rest.bytes().fold(true, |all, byte| all & is_usual(byte));
        if !are_usual || !rest.starts_with('/') {
            return None;
        }
        let parts = rest.split_once('?');
        self.uri.set_query(None);
        self.uri.set_path(parts.map_or(rest, |(path, _)| path));
        self.uri.set_query(parts.map(|(_, query)| query));
        Some(self.uri.clone())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn uris_of_the_same_server_are_known_by_a_normalized_authority() {
        for (text, expected) in [
            ("http://example.com/a", true),
            ("https://example.com:81/a?b#c", true),
            ("http://127.0.0.1:81/", true),
            ("http://example.com", false),
            ("http://example.com?a", false),
            ("HTTP://example.com/a", false),
            ("http://Example.com/a", false),
            ("http://example.com:80/a", false),
            ("http://me@example.com/a", false),
            ("http:/example.com/a", false),
            ("ftp://example.com/a", false),
            ("urn:a/b", false),
        ] {
            let url = Url::parse(text).unwrap();
            assert_eq!(Neighbor::of(text, &url).is_some(), expected, "{text}");
        }
        let first = "http://example.com/a?b#c";
        let mut neighbor = Neighbor::of(first, &Url::parse(first).unwrap()).unwrap();
        for (text, expected) in [
            ("http://example.com/", true),
            ("http://example.com/b/../\u{e9}?x=%20", true),
            ("http://example.com", false),
            ("http://example.com.evil.example/a", false),
            ("http://example.com:81/a", false),
            ("http://example.com@evil.example/a", false),
            ("http://example.com/a#b", false),
            ("http://example.com/a\\b", false),
            ("http://example.com/a b", false),
            ("http://example.com/a\u{1}", false),
            ("https://example.com/a", false),
            ("/a", false),
        ] {
            let parsed = neighbor.parse(text);
            assert_eq!(parsed.is_some(), expected, "{text}");
            if let Some(parsed) = parsed {
                assert_eq!(parsed, Url::parse(text).unwrap());
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn uris_are_parsed_alike_after_others(
            texts in prop::collection::vec(
                r"(https?://(a\.example|A\.example|1\.2\.3\.4|\[::1\]|\u{e9}\.example|u@a\.example)(:80|:81|:443)?)?(/(\.|\.\.|%2e|%2E\.|a|B|%zz|\u{e9}|[!-~]{0,5}|.{0,3})){0,4}(\?.{0,4})?(#.{0,3})?",
                1..5,
            ),
        ) {
            let base = Url::parse("http://base.example/lists/1").unwrap();
            let mut context = Context::of((&base).into());
            for text in &texts {
                let found = context.parse(text);
                prop_assert_eq!(&found, &Url::parse(text));
                // Not only its text: where its parts are, too.
                let parts = |url: &Url| {
                    let origin = url.origin().ascii_serialization();
                    let path = url.path().to_owned();
                    let query = url.query().map(str::to_owned);
                    (origin, path, query, url.fragment().map(str::to_owned))
                };
                prop_assert_eq!(found.ok().as_ref().map(parts), Url::parse(text).ok().as_ref().map(parts));
            }
        }
    }
}
