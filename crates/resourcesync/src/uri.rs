//! URIs of remote texts.
//!
//! Invariant: a text becomes a URI here only ([`parse_uri`], [`resolve_reference`]). What is accepted is itself again when its text is
//! parsed, so that it can be stored, and its host can exist.

use url::{Host, ParseError, Url};

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
    if uri.as_str() == text && has_possible_host(uri) {
        Ok(())
    } else {
        check_uri(uri)
    }
}

/// Checks a URI that was made in another way than by [`parse_uri`].
///
/// # Errors
/// [`ParseError`] if its text would not be parsed to it, or if its host is neither an address nor valid in DNS.
pub fn check_uri(uri: &Url) -> Result<(), ParseError> {
    let is_stable = Url::parse(uri.as_str()).as_ref() == Ok(uri);
    if is_stable && has_possible_host(uri) {
        Ok(())
    } else {
        // IDNA encodes labels that it does not decode.
        Err(ParseError::IdnaError)
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
        check_uri(&joined).map_err(ReferenceError::Syntax)?;
        joined
    };
    if resolved.as_str().len() > max_bytes {
        return Err(ReferenceError::TooLong);
    }
    Ok(resolved)
}

/// Whether it is an http or https URI: resources can be fetched from no other.
#[must_use]
pub fn is_web(uri: &Url) -> bool {
    matches!(uri.scheme(), "http" | "https")
}

/// A URI that names a namespace, a relation or a protocol, without what is often misspelt in it: http or https, `www.`, and a slash at
/// its end. `None` if it is in another scheme.
pub(super) fn well_known(name: &str) -> Option<&str> {
    let name = name.trim();
    let name = name.strip_suffix('/').unwrap_or(name);
    let name = name
        .strip_prefix("http://")
        .or_else(|| name.strip_prefix("https://"))?;
    Some(name.strip_prefix("www.").unwrap_or(name))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_names_and_passwords_are_removed() {
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
                assert_eq!(check_uri(&Url::parse(&text).unwrap()).is_ok(), expected);
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
