//! The entry point of discovery, as given on the command line.

use std::str::FromStr;

use resourcesync::uri::parse_uri;
use url::Url;

/// An entry point. Without a scheme, https is tried first and then http.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EntryPoint {
    /// The URL to try first.
    pub(super) url: Url,
    /// The URL to try if the first does not answer.
    pub(super) fallback: Option<Url>,
}

impl FromStr for EntryPoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        if text.contains("://") {
            let url = parse_uri(text).map_err(|error| error.to_string())?;
            if !matches!(url.scheme(), "http" | "https") {
                return Err(format!(
                    "the scheme {:?} is neither http nor https",
                    url.scheme()
                ));
            }
            return Ok(Self {
                url,
                fallback: None,
            });
        }
        // A path is not a host. (`example.org:8080` without `//` would parse as a scheme and a path.)
        if text.starts_with(['/', '.', '?', '#']) || text.contains('@') {
            return Err("not a web address".to_owned());
        }
        let with = |scheme: &str| parse_uri(&format!("{scheme}://{text}"));
        Ok(Self {
            url: with("https").map_err(|error| error.to_string())?,
            fallback: with("http").ok(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scheme_may_be_omitted() {
        for (text, url, fallback) in [
            ("http://example.org", "http://example.org/", None),
            (" https://example.org/a?b ", "https://example.org/a?b", None),
            (
                "example.org",
                "https://example.org/",
                Some("http://example.org/"),
            ),
            (
                "localhost:8080/sitemap.xml",
                "https://localhost:8080/sitemap.xml",
                Some("http://localhost:8080/sitemap.xml"),
            ),
        ] {
            let entry: EntryPoint = text.parse().unwrap();
            assert_eq!(entry.url.as_str(), url);
            assert_eq!(entry.fallback.as_ref().map(Url::as_str), fallback);
        }
    }

    #[test]
    fn text_that_is_no_web_address_is_rejected() {
        for text in [
            "",
            " ",
            "http://",
            "ftp://example.org/",
            "file:///etc/passwd",
            "mailto:somebody@example.org",
            "/etc/passwd",
            "./sitemap.xml",
            "two words",
            "data:text/plain,a",
        ] {
            assert!(text.parse::<EntryPoint>().is_err(), "{text}");
        }
    }
}
