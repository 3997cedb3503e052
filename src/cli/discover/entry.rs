//! The entry point, as a person types it.

use std::str::FromStr;

use url::Url;

/// An entry point. One that is typed without a scheme may be meant in two ways.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// What to try first.
    pub(super) url: Url,
    /// What to try if nobody answers there.
    pub(super) otherwise: Option<Url>,
}

impl FromStr for Entry {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        if text.contains("://") {
            let url = Url::parse(text).map_err(|error| error.to_string())?;
            if !matches!(url.scheme(), "http" | "https") {
                return Err(format!(
                    "the scheme {:?} is neither http nor https",
                    url.scheme()
                ));
            }
            return Ok(Self {
                url,
                otherwise: None,
            });
        }
        // `example.org:8080` would parse as a scheme and a path, and a file's name as a host.
        if text.starts_with(['/', '.', '?', '#']) || text.contains('@') {
            return Err("not a web address".to_owned());
        }
        let with = |scheme: &str| Url::parse(&format!("{scheme}://{text}"));
        Ok(Self {
            url: with("https").map_err(|error| error.to_string())?,
            otherwise: with("http").ok(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_may_be_left_out() {
        for (text, url, otherwise) in [
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
            let entry: Entry = text.parse().unwrap();
            assert_eq!(entry.url.as_str(), url);
            assert_eq!(entry.otherwise.as_ref().map(Url::as_str), otherwise);
        }
    }

    #[test]
    fn what_is_no_web_address_is_refused() {
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
            assert!(text.parse::<Entry>().is_err(), "{text}");
        }
    }
}
