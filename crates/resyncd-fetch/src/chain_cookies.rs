//! The cookies of one chain of redirects (RFC 6265): some servers answer with content only where the cookie comes back that a redirect
//! of theirs has set.
//!
//! A cookie is sent to the host that has set it and to no other one, also where it names a domain, and is forgotten with the chain.

use reqwest::header::{HeaderMap, HeaderValue, SET_COOKIE};
use url::Url;

/// The maximum number of cookies of a chain.
const MAX_COOKIES: usize = 20;

/// The maximum length of a `Set-Cookie` header, in bytes.
const MAX_COOKIE_BYTES: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct ChainCookies(Vec<ChainCookie>);

#[derive(Debug)]
struct ChainCookie {
    name: String,
    value: String,
    host: String,
    path: String,
    is_secure: bool,
}

impl ChainCookies {
    /// Stores the cookies of an answer to a request for that URL.
    pub(super) fn store(&mut self, url: &Url, headers: &HeaderMap) {
        for header in headers.get_all(SET_COOKIE) {
            let Ok(text) = header.to_str() else { continue };
            if text.len() > MAX_COOKIE_BYTES {
                continue;
            }
            let Some(cookie) = ChainCookie::parse(url, text) else {
                continue;
            };
            self.0.retain(|known| !known.is_replaced_by(&cookie));
            if self.0.len() < MAX_COOKIES {
                self.0.push(cookie);
            }
        }
    }

    /// The `Cookie` header of a request for that URL.
    pub(super) fn header(&self, url: &Url) -> Option<HeaderValue> {
        let sent = self.0.iter().filter(|cookie| cookie.is_for(url));
        let pairs: Vec<String> = sent
            .map(|cookie| format!("{}={}", cookie.name, cookie.value))
            .collect();
        let mut header = HeaderValue::from_str(&pairs.join("; ")).ok()?;
        header.set_sensitive(true);
        (!pairs.is_empty()).then_some(header)
    }
}

impl ChainCookie {
    fn parse(url: &Url, text: &str) -> Option<Self> {
        let mut parts = text.split(';').map(str::trim);
        let (name, value) = parts.next()?.split_once('=')?;
        let name = name.trim();
        // Section 5.1.4.
        let folder = url.path().rsplit_once('/').map_or("", |(folder, _)| folder);
        let mut path = if folder.is_empty() { "/" } else { folder };
        let mut is_secure = false;
        for part in parts {
            let (attribute, value) = part.split_once('=').unwrap_or((part, ""));
            match attribute.trim().to_ascii_lowercase().as_str() {
                "path" if value.trim().starts_with('/') => path = value.trim(),
                "secure" => is_secure = true,
                _ => {}
            }
        }
        (!name.is_empty()).then_some(Self {
            name: name.to_owned(),
            value: value.trim().to_owned(),
            host: url.host_str()?.to_owned(),
            path: path.to_owned(),
            is_secure,
        })
    }

    fn is_replaced_by(&self, other: &Self) -> bool {
        (&self.name, &self.host, &self.path) == (&other.name, &other.host, &other.path)
    }

    fn is_for(&self, url: &Url) -> bool {
        let below = url.path().strip_prefix(self.path.as_str());
        let is_below = below.is_some_and(|below| {
            below.is_empty() || below.starts_with('/') || self.path.ends_with('/')
        });
        let is_host = url.host_str() == Some(&self.host);
        is_host && is_below && (!self.is_secure || url.scheme() == "https")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    /// What is sent to the second URL after the first one has set these cookies.
    fn sent(from: &str, set: &[&str], to: &str) -> Option<String> {
        let mut headers = HeaderMap::new();
        for cookie in set {
            headers.append(SET_COOKIE, cookie.parse().unwrap());
        }
        let mut cookies = ChainCookies::default();
        cookies.store(&url(from), &headers);
        let header = cookies.header(&url(to))?;
        assert!(header.is_sensitive());
        Some(header.to_str().unwrap().to_owned())
    }

    #[test]
    fn cookies_are_sent_only_where_they_were_set_for() {
        let from = "https://example.com/a/b";
        for (set, to, expected) in [
            (&["x=1"][..], "https://example.com/a/c", Some("x=1")),
            (&["x=1"], "https://example.com/a", Some("x=1")),
            (&["x=1"], "https://example.com/ab", None),
            (&["x=1"], "https://example.com/", None),
            (&["x=1; Path=/"], "https://example.com/", Some("x=1")),
            (
                &["x=1; path=/c/; HttpOnly"],
                "https://example.com/c/d",
                Some("x=1"),
            ),
            (
                &["x=1; Path=/; Domain=example.com"],
                "https://www.example.com/",
                None,
            ),
            (&["x=1; Path=/"], "https://example.net/", None),
            (&["x=1; Path=/; Secure"], "http://example.com/", None),
            (
                &["x=1; Path=/; Secure"],
                "https://example.com/",
                Some("x=1"),
            ),
            (
                &["x=1", "y = a=b", "x=2"],
                "https://example.com/a/",
                Some("y=a=b; x=2"),
            ),
            (&["=1", "nonsense", ""], "https://example.com/a/", None),
        ] {
            assert_eq!(sent(from, set, to).as_deref(), expected, "{set:?} {to}");
        }
    }

    #[test]
    fn cookies_are_bounded_in_number_and_length() {
        let many: Vec<String> = (0..100).map(|n| format!("c{n}=1")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let found = sent("https://example.com/", &many, "https://example.com/").unwrap();
        assert_eq!(found.split("; ").count(), MAX_COOKIES);
        let long = format!("x={}", "a".repeat(MAX_COOKIE_BYTES));
        assert_eq!(
            sent("https://example.com/", &[&long], "https://example.com/"),
            None
        );
    }
}
