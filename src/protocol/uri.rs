//! URIs: one type for each purpose, so that they can't be mixed up.
//!
//! Invariant: a text becomes a URI here only ([`parse_uri`], [`resolve_reference`]). What is accepted is itself again when its text is
//! parsed, so that it can be stored, and its host can exist.

use std::borrow::Cow;
use std::fmt;

use url::{Host, ParseError, Position, Url};

use super::transport::{Transport, http_form};

/// The maximum length in bytes of a URI that is read from outside, after it is resolved, unless configured otherwise: what
/// servers accept in a request, and what links are stored with.
pub const MAX_URI_BYTES: usize = 8 << 10;

/// The maximum length of a host name without its final dot, and of a label of it, in bytes (RFC 1035, section 2.3.4).
const MAX_HOST_BYTES: usize = 253;
const MAX_LABEL_BYTES: usize = 63;

/// Parses an absolute URI of any scheme. This and [`resolve_reference`] are the only ways from a text to a URI.
///
/// # Errors
/// [`ParseError`] if it is not a URI, or not itself again when it is parsed, or has a host that is neither an address nor valid in DNS.
pub fn parse_uri(text: &str) -> Result<Url, ParseError> {
    let uri = Url::parse(text)?;
    check_parsed(text, &uri)?;
    Ok(uri)
}

/// Checks what a text was parsed to, wherever that was done.
pub(super) fn check_parsed(text: &str, uri: &Url) -> Result<(), ParseError> {
    // What is the text itself was just parsed.
    match uri.as_str() == text && has_possible_host(uri) {
        true => Ok(()),
        false => check(uri),
    }
}

fn check(uri: &Url) -> Result<(), ParseError> {
    let is_stable = Url::parse(uri.as_str()).as_ref() == Ok(uri);
    match is_stable && has_possible_host(uri) {
        true => Ok(()),
        // IDNA encodes labels that it does not decode.
        false => Err(ParseError::IdnaError),
    }
}

fn has_possible_host(uri: &Url) -> bool {
    let Some(Host::Domain(name)) = uri.host() else {
        return true;
    };
    let is_label = |label: &str| (1..=MAX_LABEL_BYTES).contains(&label.len());
    let without_dot = name.strip_suffix('.').unwrap_or(name);
    let is_name = without_dot.len() <= MAX_HOST_BYTES && without_dot.split('.').all(is_label);
    // Only a scheme that is never requested can have an empty one.
    is_name || name.is_empty()
}

/// What the references of a remote text are resolved against (RFC 3986, section 5.1), and how long they may be then.
#[derive(Clone, Copy, Debug)]
pub struct BaseUri<'a> {
    /// The URI of the text.
    pub uri: &'a Url,
    /// The maximum length of a resolved URI, in bytes.
    pub max_bytes: usize,
}

impl<'a> From<&'a Url> for BaseUri<'a> {
    fn from(uri: &'a Url) -> Self {
        Self {
            uri,
            max_bytes: MAX_URI_BYTES,
        }
    }
}

/// Why a reference of a remote text does not become a URI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    /// Longer than accepted, or it would be once it is resolved.
    #[error("too long")]
    TooLong,
    /// Not a URI that is accepted.
    #[error("not a URI: {0}")]
    Syntax(ParseError),
}

/// Resolves a reference of a remote document, page or header against the URL of that text (RFC 3986, section 5).
///
/// A few bytes may stand for a long URI: a reference such as `?` stands for the whole path of its base. What is too long
/// is rejected before it is allocated, but for what percent-encoding adds, which is bounded by the lengths of the two.
///
/// # Errors
/// [`ReferenceError`] if it is not a URI, or longer than the base allows.
pub fn resolve_reference<'a>(
    base: impl Into<BaseUri<'a>>,
    reference: &str,
) -> Result<Url, ReferenceError> {
    let BaseUri { uri, max_bytes } = base.into();
    if reference.len() > max_bytes {
        return Err(ReferenceError::TooLong);
    }
    let resolved = if uri.as_str().len() > max_bytes {
        // Only an absolute one takes nothing from its base.
        parse_uri(reference).map_err(|error| match error {
            ParseError::RelativeUrlWithoutBase => ReferenceError::TooLong,
            error => ReferenceError::Syntax(error),
        })?
    } else {
        let joined = uri.join(reference).map_err(ReferenceError::Syntax)?;
        check(&joined).map_err(ReferenceError::Syntax)?;
        joined
    };
    if resolved.as_str().len() > max_bytes {
        return Err(ReferenceError::TooLong);
    }
    Ok(resolved)
}

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

/// Whether a URI has a user name or a password.
#[must_use]
pub fn has_userinfo(url: &Url) -> bool {
    !url.username().is_empty() || url.password().is_some()
}

/// Removes user name and password from a URI (RFC 9110, section 4.2.4): in remote documents they serve to disguise the host;
/// credentials belong in the configuration.
#[must_use]
pub fn without_userinfo(mut url: Url) -> Url {
    if !has_userinfo(&url) {
        return url;
    }
    // Fails only for URIs without a host, which have nothing to remove.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url
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
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Url);

        impl $name {
            /// Parses an absolute http or https URI.
            pub fn parse(text: &str) -> Result<Self, UriError> {
                parse_web(text).map(Self)
            }

            /// The URI as text, normalized as RFC 3986 (section 6.2.2) allows.
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
                match check(&url) {
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
    /// The URI of a resource that is synchronized.
    ResourceUri
}
web_uri! {
    /// The URI of a channel: its WebSub topic. Of one that is advertised also that of another transport.
    TopicUri
}
web_uri! {
    /// The URI of a hub.
    HubUri
}

impl TopicUri {
    /// The URI of a channel that is advertised, over any transport. `None`: one that is not supported.
    #[must_use]
    pub fn of_channel(uri: Url) -> Option<Self> {
        Transport::of_uri(&uri)?;
        let mut uri = uri;
        uri.set_fragment(None);
        check(&uri).ok()?;
        Some(Self(uri))
    }

    /// Where its host is requested over HTTP. What a notification refers to is relative to it.
    #[must_use]
    pub fn http_form(&self) -> Url {
        http_form(&self.0)
    }
}

impl ResourceUri {
    /// The host, with the port unless it is the default of the scheme. Limits per host are counted by it.
    pub fn authority(&self) -> String {
        self.0[Position::BeforeHost..Position::AfterPort].to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn user_names_and_passwords_are_removed_and_never_shown() {
        for (text, expected) in [
            (
                "http://me:secret@example.com:81/a?b",
                "http://example.com:81/a?b",
            ),
            ("http://me@example.com/", "http://example.com/"),
            ("http://:secret@example.com/", "http://example.com/"),
            ("http://example.com/@me", "http://example.com/@me"),
            ("urn:me@example", "urn:me@example"),
        ] {
            let url = without_userinfo(Url::parse(text).unwrap());
            assert_eq!(url.as_str(), expected);
        }
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
        let label = |length: usize| "a".repeat(length);
        // Without the final dot.
        let name = |length: usize| format!("{}{}", "a.".repeat(length / 2), label(length % 2 + 1));
        let undecodable: String = (0..700_u32)
            .filter_map(|number| char::from_u32(0x4e00 + number * 7919 % 20_000))
            .collect();
        for (host, expected) in [
            (label(63), true),
            (label(64), false),
            (format!("{}.example", label(64)), false),
            (name(252), true),
            (format!("{}.", name(252)), true),
            (name(254), false),
            ("a..b".to_owned(), false),
            (".a".to_owned(), false),
            (".".to_owned(), false),
            ("a_b.example.".to_owned(), true),
            ("ex\u{e4}mple.org".to_owned(), true),
            ("[::1]".to_owned(), true),
            ("0x7f.1".to_owned(), true),
            (undecodable, false),
        ] {
            let base = Url::parse("http://example.com/a").unwrap();
            for scheme in ["http", "https", "ws", "ftp", "x"] {
                if scheme == "x" && host.contains('\u{e4}') {
                    // Encoded to bytes, which are not valid in DNS, but short.
                    continue;
                }
                let text = format!("{scheme}://{host}/b");
                assert_eq!(parse_uri(&text).is_ok(), expected, "{text}");
                assert_eq!(resolve_reference(&base, &text).is_ok(), expected, "{text}");
                let made = Url::parse(&text).unwrap();
                let is_web = scheme.starts_with("http");
                assert_eq!(ResourceUri::parse(&text).is_ok(), expected && is_web);
                assert_eq!(HubUri::try_from(made.clone()).is_ok(), expected && is_web);
                let is_channel = is_web || scheme == "ws";
                assert_eq!(TopicUri::of_channel(made).is_some(), expected && is_channel);
            }
        }
        for without_host in [
            "data:,a",
            "urn:a:b",
            "xmpp:a.example?;node=n",
            "file:///a",
            "x:///a",
        ] {
            assert!(parse_uri(without_host).is_ok(), "{without_host}");
        }
    }

    #[test]
    fn relative_uris_resolve_against_their_document() {
        let base = Url::parse("http://example.com/sets/1/list.xml").unwrap();
        assert_eq!(
            resolve_reference(&base, "../a").unwrap().as_str(),
            "http://example.com/sets/a"
        );
    }

    #[test]
    fn no_reference_becomes_a_long_uri() {
        let base = |bytes: usize| {
            let begin = "http://example.com/";
            Url::parse(&format!("{begin}{}", "p".repeat(bytes - begin.len()))).unwrap()
        };
        let long = "a".repeat(MAX_URI_BYTES);
        for (base, reference, expected) in [
            (base(60_000), "?", Err(ReferenceError::TooLong)),
            (base(60_000), "/a", Err(ReferenceError::TooLong)),
            (base(60_000), "http://example.org/a", Ok(20)),
            (base(MAX_URI_BYTES), "", Ok(MAX_URI_BYTES)),
            (base(MAX_URI_BYTES), "?", Err(ReferenceError::TooLong)),
            (base(MAX_URI_BYTES), "/a", Ok(20)),
            (base(100), &long, Err(ReferenceError::TooLong)),
            (base(100), &long[..8000], Ok(8019)),
            // Percent-encoding makes three bytes of one.
            (
                base(100),
                &"\u{e9}".repeat(2000),
                Err(ReferenceError::TooLong),
            ),
        ] {
            let resolved = resolve_reference(&base, reference);
            assert_eq!(resolved.map(|uri| uri.as_str().len()), expected);
        }
        assert!(matches!(
            resolve_reference(&base(60_000), "http://["),
            Err(ReferenceError::Syntax(_))
        ));
    }
}
