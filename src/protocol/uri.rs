//! URIs, one type for each thing that must not be mistaken for another.

use std::fmt;

use url::Url;

/// Why a text is not a URI that can be used here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UriError {
    /// Not a URI, or relative without a base to resolve it against.
    #[error("{0:?} is not a URI: {1}")]
    Syntax(String, url::ParseError),
    /// A URI, but neither `http` nor `https`.
    #[error("{0:?} is neither http nor https")]
    Scheme(String),
}

/// Parses an absolute http or https URI; white space around it and line breaks within it are passed over, a fragment is cut off.
fn parse_web(text: &str, base: Option<&Url>) -> Result<Url, UriError> {
    let parsed = Url::options().base_url(base).parse(text.trim());
    let mut url = parsed.map_err(|error| UriError::Syntax(text.to_owned(), error))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(UriError::Scheme(text.to_owned()));
    }
    url.set_fragment(None);
    Ok(url)
}

macro_rules! web_uri {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Url);

        impl $name {
            /// Parses an absolute http or https URI.
            ///
            /// # Errors
            /// [`UriError`], when it is not a URI or of another scheme.
            pub fn parse(text: &str) -> Result<Self, UriError> {
                parse_web(text, None).map(Self)
            }

            /// Parses a URI that may be relative to the document it was found in.
            ///
            /// # Errors
            /// [`UriError`], when it is not a URI or of another scheme.
            pub fn resolve(base: &Url, text: &str) -> Result<Self, UriError> {
                parse_web(text, Some(base)).map(Self)
            }

            /// The URI as text, normalised as RFC 3986 (section 6.2.2) allows.
            #[must_use]
            pub fn as_str(&self) -> &str {
                self.0.as_str()
            }

            /// The URI, parsed.
            #[must_use]
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
                Ok(Self(url))
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
    /// The URI of a resource that is subject to synchronization.
    ResourceUri
}
web_uri! {
    /// The URI of a channel: what WebSub calls its topic.
    TopicUri
}
web_uri! {
    /// The URI of a hub.
    HubUri
}

impl ResourceUri {
    /// The host, with the port where it is not the scheme's own: what limits and politeness are counted by.
    #[must_use]
    pub fn authority(&self) -> String {
        let host = self.0.host_str().unwrap_or_default();
        match self.0.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_http_and_https_are_taken() {
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
    fn relative_uris_resolve_against_their_document() {
        let base = Url::parse("http://example.com/sets/1/list.xml").unwrap();
        assert_eq!(
            ResourceUri::resolve(&base, "../a").unwrap().as_str(),
            "http://example.com/sets/a"
        );
    }
}
