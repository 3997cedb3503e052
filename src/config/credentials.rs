//! User names and passwords from the URLs of the configuration, each for the origin of its URL only.

use std::fmt;

use url::{Origin, Url};

use crate::protocol::without_userinfo;

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

    fn of(&self, url: &Url) -> Option<&BasicCredential> {
        let origin = url.origin();
        self.0.iter().find(|known| known.origin == origin)
    }
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
