//! User names and passwords from the URLs of the configuration, each for the origin of its URL only.

use std::fmt;

use url::{Origin, Url, form_urlencoded};

use crate::protocol::{Redaction, without_userinfo};

/// User names and passwords (HTTP Basic), each for one origin: scheme, host and port. `Debug` does not show them.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Credentials(Vec<BasicCredential>);

#[derive(Clone, PartialEq, Eq)]
struct BasicCredential {
    origin: Origin,
    // Percent-encoded, as in the URL.
    user: String,
    password: Option<String>,
}

impl Credentials {
    /// Moves user name and password from the URL into the credentials, unless its origin has some already.
    #[must_use]
    pub fn extract(&mut self, url: Url) -> Url {
        let password = url.password().map(str::to_owned);
        if !(url.username().is_empty() && password.is_none()) && self.of(&url).is_none() {
            self.0.push(BasicCredential {
                origin: url.origin(),
                user: url.username().to_owned(),
                password,
            });
        }
        without_userinfo(url)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The URL with the user name and password of its origin, if known.
    #[must_use]
    pub fn sign_in(&self, url: &Url) -> Url {
        let mut url = url.clone();
        if let Some(known) = self.of(&url) {
            // Fails only for URLs without a host, which have no credentials.
            let _ = url.set_username(&known.user);
            let _ = url.set_password(known.password.as_deref());
        }
        url
    }

    /// The redaction, which also removes the passwords.
    #[must_use]
    pub fn added_to(&self, redaction: Redaction) -> Redaction {
        self.0.iter().fold(redaction, |redaction, known| {
            let password = known.password.as_deref().map(percent_decoded);
            redaction.with_password(&percent_decoded(&known.user), &password.unwrap_or_default())
        })
    }

    fn of(&self, url: &Url) -> Option<&BasicCredential> {
        let origin = url.origin();
        self.0.iter().find(|known| known.origin == origin)
    }
}

/// The text of a part of a URL.
fn percent_decoded(encoded: &str) -> String {
    // What means something in a form, but nothing in this part of a URL.
    let encoded = encoded
        .replace('+', "%2B")
        .replace('&', "%26")
        .replace('=', "%3D");
    let mut parts = form_urlencoded::parse(encoded.as_bytes());
    parts
        .next()
        .map_or_else(String::new, |(text, _)| text.into_owned())
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials of {} origins", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redaction_removes_what_is_sent() {
        let mut credentials = Credentials::default();
        let url = Url::parse("https://me:p%40s+s&w%C3%B6rd%3D@a.example/x").unwrap();
        let _ = credentials.extract(url);
        for echo in [
            "p@s+s&wörd=",
            "p%40s+s&w%C3%B6rd%3D",
            "bWU6cEBzK3Mmd8O2cmQ9",
        ] {
            let redaction = credentials.added_to(Redaction::default());
            let redacted = redaction.redact(&format!("no ({echo})"));
            assert_eq!(redacted, "no ([redacted])", "{echo}");
        }
    }

    #[test]
    fn credentials_apply_to_their_own_origin_only() {
        let mut credentials = Credentials::default();
        let mut extract = |text: &str| credentials.extract(Url::parse(text).unwrap()).to_string();
        assert_eq!(
            extract("https://me:p%40ss@a.example/x"),
            "https://a.example/x"
        );
        assert_eq!(extract("http://only@b.example:81/"), "http://b.example:81/");
        assert_eq!(
            extract("https://other:one@a.example/y"),
            "https://a.example/y"
        );
        assert_eq!(extract("http://c.example/"), "http://c.example/");
        for (url, expected) in [
            ("https://a.example/z?q", "https://me:p%40ss@a.example/z?q"),
            ("https://a.example:443/", "https://me:p%40ss@a.example/"),
            ("http://b.example:81/", "http://only@b.example:81/"),
            ("http://a.example/", "http://a.example/"),
            ("https://a.example:8443/", "https://a.example:8443/"),
            ("https://sub.a.example/", "https://sub.a.example/"),
            ("http://b.example/", "http://b.example/"),
            ("http://c.example/", "http://c.example/"),
        ] {
            let url = Url::parse(url).unwrap();
            assert_eq!(credentials.sign_in(&url).as_str(), expected);
        }
        let shown = format!("{credentials:?}");
        assert!(!shown.contains("me") && !shown.contains("ss@"), "{shown}");
    }
}
