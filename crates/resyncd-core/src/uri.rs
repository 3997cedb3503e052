//! URIs: one type for each purpose, so that they can't be mixed up.
//!
//! One resource may be written in several ways, and the Source may write it in another one from one document to the next. What tells
//! resources apart is [`identity`] alone; what is requested and shown is the URI as it was written.
//!
//! Invariant: [`parse_uri`] and [`check_uri`] accept each of them.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use resourcesync::uri::{check_uri, parse_uri};
use url::{ParseError, Position, Url};

use crate::transport::{Transport, http_form};

/// Why a text is not a usable URI.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UriError {
    /// Not a URI, or relative without a base to resolve it against.
    #[error("{0:?} is not a URI: {1}")]
    Syntax(String, ParseError),
    /// A URI, but neither `http` nor `https`.
    #[error("{0:?} is neither http nor https")]
    Scheme(String),
}

/// Parses an absolute http or https URI. Surrounding white space and line breaks are ignored; a fragment is removed.
fn parse_web(text: &str) -> Result<Url, UriError> {
    let parsed = parse_uri(text.trim());
    let shown = || hide_userinfo(text).into_owned();
    let mut url = parsed.map_err(|error| UriError::Syntax(shown(), error))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(UriError::Scheme(shown()));
    }
    url.set_fragment(None);
    Ok(url)
}

/// Hides what may be a user name or a password in a text that may or may not be a URI.
#[must_use]
pub fn hide_userinfo(text: &str) -> Cow<'_, str> {
    match text.rsplit_once('@') {
        None => Cow::Borrowed(text),
        Some((before, after)) => {
            let scheme = before.find("//").map_or(0, |slashes| slashes + 2);
            Cow::Owned(format!("{}…@{after}", &before[..scheme]))
        }
    }
}

macro_rules! web_uri {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone)]
        pub struct $name(Url);

        impl $name {
            /// Parses an absolute http or https URI.
            pub fn parse(text: &str) -> Result<Self, UriError> {
                parse_web(text).map(Self)
            }

            /// The URI as text, as it was written: only its scheme, host, port and dot segments are normalized.
            pub fn as_str(&self) -> &str {
                self.0.as_str()
            }

            /// The URI, parsed.
            pub fn url(&self) -> &Url {
                &self.0
            }
        }

        impl TryFrom<Url> for $name {
            type Error = UriError;

            fn try_from(url: Url) -> Result<Self, UriError> {
                if !matches!(url.scheme(), "http" | "https") {
                    return Err(UriError::Scheme(url.into()));
                }
                let mut url = url;
                url.set_fragment(None);
                match check_uri(&url) {
                    Ok(()) => Ok(Self(url)),
                    Err(error) => Err(UriError::Syntax(url.into(), error)),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "<{}>", self.as_str())
            }
        }
    };
}

web_uri! {
    /// The URI of a resource that is synchronized, as it was written. Two that identify one resource are equal: see
    /// [`identity`](Self::identity).
    ResourceUri
}
web_uri! {
    /// The URI of a channel: its WebSub topic. Of one that is advertised also that of another transport.
    #[derive(PartialEq, Eq, PartialOrd, Ord, Hash)]
    TopicUri
}
web_uri! {
    /// The URI of a hub.
    #[derive(PartialEq, Eq, PartialOrd, Ord, Hash)]
    HubUri
}

impl TopicUri {
    /// The URI of a channel that is advertised, over any transport. `None`: one that is not supported.
    #[must_use]
    pub fn of_channel(uri: Url) -> Option<Self> {
        Transport::of_uri(&uri)?;
        let mut uri = uri;
        uri.set_fragment(None);
        check_uri(&uri).ok()?;
        Some(Self(uri))
    }

    /// Where its host is requested over HTTP. What a notification refers to is relative to it.
    #[must_use]
    pub fn http_form(&self) -> Url {
        http_form(&self.0)
    }
}

/// What identifies the resource of a URI: the text that all equivalent URIs have in common.
///
/// Equivalent are URIs that are equal once their percent-encoding is normalized (RFC 3986, section 6.2.2), and http and https URIs of
/// one host at the default ports of the two: their text has no scheme, as in `//example.com/a`. A port that is not the default one of
/// the scheme belongs to another service. URIs of other schemes are what they are.
#[must_use]
pub fn identity(uri: &Url) -> Cow<'_, str> {
    let is_at_default_port = matches!(uri.scheme(), "http" | "https") && uri.port().is_none();
    let begin = if is_at_default_port {
        uri.scheme().len() + 1
    } else {
        0
    };
    let text = &uri.as_str()[begin..];
    match with_normal_escapes(text) {
        Some(normal) => Cow::Owned(normal),
        None => Cow::Borrowed(text),
    }
}

/// A URI with normalized percent-encoding (RFC 3986, sections 6.2.2.1 and 6.2.2.2): digits in upper case, and no escaped letters,
/// digits, `-`, `.`, `_` and `~`. `None`: it is normal as it is, or a `%` does not begin an escape, so that another one may appear
/// where a character is no longer escaped.
fn with_normal_escapes(text: &str) -> Option<String> {
    let mut is_normal = true;
    let mut rest = text;
    while let Some(at) = rest.find('%') {
        let (escape, byte) = escape_of(&rest[at..])?;
        is_normal &= !is_unreserved(byte) && !escape.contains(|c: char| c.is_ascii_lowercase());
        rest = &rest[at + escape.len()..];
    }
    if is_normal {
        return None;
    }
    let mut normal = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('%') {
        let (escape, byte) = escape_of(&rest[at..])?;
        normal.push_str(&rest[..at]);
        if is_unreserved(byte) {
            normal.push(char::from(byte));
        } else {
            normal.push_str(&escape.to_ascii_uppercase());
        }
        rest = &rest[at + escape.len()..];
    }
    normal.push_str(rest);
    Some(normal)
}

/// The escape that a text begins with, and its byte.
fn escape_of(text: &str) -> Option<(&str, u8)> {
    let escape = text.get(..3)?;
    let digits = &escape[1..];
    if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    Some((escape, u8::from_str_radix(digits, 16).ok()?))
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

impl ResourceUri {
    /// What identifies the resource: see [`identity`].
    pub fn identity(&self) -> Cow<'_, str> {
        identity(&self.0)
    }

    /// The URI with normalized percent-encoding, and with the scheme as it was written.
    pub fn normalized(&self) -> Cow<'_, Url> {
        let normal = with_normal_escapes(self.as_str());
        match normal.and_then(|normal| parse_uri(&normal).ok()) {
            Some(normal) => Cow::Owned(normal),
            None => Cow::Borrowed(&self.0),
        }
    }

    /// The host, with the port unless it is the default of the scheme. Limits per host are counted by it.
    pub fn authority(&self) -> String {
        self.0[Position::BeforeHost..Position::AfterPort].to_owned()
    }
}

impl PartialEq for ResourceUri {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0 || self.identity() == other.identity()
    }
}

impl Eq for ResourceUri {}

impl PartialOrd for ResourceUri {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ResourceUri {
    fn cmp(&self, other: &Self) -> Ordering {
        self.identity().cmp(&other.identity())
    }
}

impl Hash for ResourceUri {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.identity().hash(state);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn equivalent_uris_have_one_identity() {
        for (one, other, expected) in [
            ("http://a.example/b", "https://a.example/b", true),
            ("http://a.example:80/b", "https://a.example:443/b", true),
            ("http://A.Example/x/../b#c", "https://a.example/b", true),
            ("http://a.example/b%2fc", "http://a.example/b%2Fc", true),
            ("http://a.example/%7Eb", "https://a.example/~b", true),
            ("http://a.example/?%7e%3d", "http://a.example/?~%3D", true),
            ("http://a.example/%41%2d", "http://a.example/A-", true),
            // What has a meaning of its own.
            ("http://a.example/b%2Fc", "http://a.example/b/c", false),
            ("http://a.example/%2541", "http://a.example/%41", false),
            ("http://a.example/b", "http://a.example/B", false),
            ("http://a.example/b", "http://a.example/b/", false),
            ("http://a.example/b", "http://a.example/b?", false),
            ("http://a.example/b", "http://b.example/b", false),
            ("http://a.example/b", "http://a.example./b", false),
            ("http://a.example/b", "http://me@a.example/b", false),
            // Other services.
            ("http://a.example:8080/b", "https://a.example:8080/b", false),
            ("http://a.example/b", "https://a.example:80/b", false),
            ("http://a.example:443/b", "https://a.example/b", false),
            ("http://a.example/b", "http://a.example:8080/b", false),
            // A `%` that begins no escape: another one would appear.
            ("http://a.example/%%34%31", "http://a.example/%41", false),
            ("http://a.example/%+F", "http://a.example/%0F", false),
            ("http://a.example/%", "http://a.example/%25", false),
        ] {
            let [one, other] = [one, other].map(|text| ResourceUri::parse(text).unwrap());
            let both = HashSet::from([one.clone(), other.clone()]);
            assert_eq!(one == other, expected, "{one} {other}");
            assert_eq!(one.cmp(&other).is_eq(), expected, "{one} {other}");
            assert_eq!(both.len() == 1, expected, "{one} {other}");
        }
        for (text, expected) in [
            ("https://a.example:443/b%2f", "//a.example/b%2F"),
            ("http://a.example:8080/%7E", "http://a.example:8080/~"),
            ("http://a.example/%/%7E", "//a.example/%/%7E"),
        ] {
            let uri = ResourceUri::parse(text).unwrap();
            assert_eq!(uri.identity(), expected);
        }
        let other = Url::parse("urn:%7E").unwrap();
        assert_eq!(identity(&other), "urn:~");
    }

    proptest! {
        #[test]
        fn normalized_uri_is_a_uri_of_the_same_identity(
            pieces in prop::collection::vec(
                prop::sample::select(vec![
                    "a", "/", "?", "%", "%4", "%41", "%2e", "%2E", ".", "%2f", "%25", "%7E", "~", "+", "\u{e9}", "%c3%A9", ":", "@",
                ]),
                0..12,
            ),
            origin in prop::sample::select(vec!["http://h", "https://h", "http://h:8080", "http://%41@h"]),
        ) {
            let uri = ResourceUri::parse(&format!("{origin}/{}", pieces.concat()));
            let uri = uri.unwrap();
            let normalized = ResourceUri::try_from(uri.normalized().into_owned());
            let normalized = normalized.unwrap();
            prop_assert_eq!(&normalized, &uri);
            let again = normalized.normalized();
            prop_assert_eq!(&*again, normalized.url());
            prop_assert!(normalized.as_str().ends_with(&*uri.identity()));
        }
    }

    #[test]
    fn only_http_and_https_are_accepted() {
        assert!(ResourceUri::parse("ftp://example.com/a").is_err());
        assert!(ResourceUri::parse("file:///etc/passwd").is_err());
        assert!(ResourceUri::parse("/a").is_err());
        assert_eq!(
            ResourceUri::parse(" http://example.com/a#top\n")
                .unwrap()
                .as_str(),
            "http://example.com/a"
        );
    }

    #[test]
    fn only_channels_that_are_advertised_have_other_schemes() {
        let socket = Url::parse("ws://example.com/channel#top").unwrap();
        assert!(TopicUri::try_from(socket.clone()).is_err());
        assert!(TopicUri::parse(socket.as_str()).is_err());
        let channel = TopicUri::of_channel(socket).unwrap();
        assert_eq!(channel.as_str(), "ws://example.com/channel");
        assert_eq!(channel.http_form().as_str(), "http://example.com/channel");
        let other = Url::parse("xmpp:pubsub.example.com").unwrap();
        assert_eq!(TopicUri::of_channel(other), None);
    }

    #[test]
    fn user_names_and_passwords_are_never_shown() {
        for (text, expected) in [
            ("http://me:secret@exa mple/", "http://…@exa mple/"),
            ("http://me:sec/ret@example.com/", "http://…@example.com/"),
            ("me:secret@example.com", "…@example.com"),
            ("http://[example.com/", "http://[example.com/"),
        ] {
            assert_eq!(hide_userinfo(text), expected);
            let message = ResourceUri::parse(text).unwrap_err().to_string();
            assert!(
                !message.contains("secret") && !message.contains("ret@"),
                "{message}"
            );
        }
    }

    #[test]
    fn hosts_that_cannot_exist_are_rejected() {
        let label = "a".repeat(64);
        for (uri, is_web) in [
            (format!("http://{label}/"), true),
            (format!("https://a.{label}/"), true),
            (format!("ws://{label}/"), false),
        ] {
            let made = Url::parse(&uri).unwrap();
            assert!(ResourceUri::parse(&uri).is_err(), "{uri}");
            assert!(HubUri::try_from(made.clone()).is_err(), "{uri}");
            assert_eq!(TopicUri::of_channel(made), None, "{uri}");
            let shorter = Url::parse(&uri.replace(&label, &label[1..])).unwrap();
            assert_eq!(ResourceUri::try_from(shorter.clone()).is_ok(), is_web);
            assert!(TopicUri::of_channel(shorter).is_some(), "{uri}");
        }
    }
}
