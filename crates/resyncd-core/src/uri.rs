//! URIs: one type for each purpose, so that they can't be mixed up.
//!
//! Invariant: [`parse_uri`] and [`check_uri`] accept each of them.

use std::borrow::Cow;
use std::fmt;

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
        check_uri(&uri).ok()?;
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
