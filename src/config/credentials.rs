//! User names and passwords: as a URL of the configuration tells them, for the origin of that URL alone.

use std::fmt;

use url::{Origin, Url};

use crate::protocol::without_userinfo;

/// User names and passwords (HTTP Basic), each for one origin: scheme, host and port. Never shown.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Credentials(Vec<SignIn>);

#[derive(Clone, PartialEq, Eq)]
struct SignIn {
    origin: Origin,
    // Percent-encoded, as they stood in the URL.
    user: String,
    password: Option<String>,
}

impl Credentials {
    /// Takes user name and password out of a URL, and keeps them for its origin. What an earlier URL told counts for more.
    #[must_use]
    pub fn take(&mut self, url: Url) -> Url {
        let password = url.password().map(str::to_owned);
        if !(url.username().is_empty() && password.is_none()) && self.of(&url).is_none() {
            self.0.push(SignIn {
                origin: url.origin(),
                user: url.username().to_owned(),
                password,
            });
        }
        without_userinfo(url)
    }

    /// The URL with the user name and password of its origin, if there are any.
    #[must_use]
    pub fn sign_in(&self, url: &Url) -> Url {
        let mut url = url.clone();
        if let Some(known) = self.of(&url) {
            // It fails only for URLs without a host, and those have no origin to be known by.
            let _ = url.set_username(&known.user);
            let _ = url.set_password(known.password.as_deref());
        }
        url
    }

    fn of(&self, url: &Url) -> Option<&SignIn> {
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
    fn credentials_are_for_their_own_origin() {
        let mut credentials = Credentials::default();
        let mut take = |text: &str| credentials.take(Url::parse(text).unwrap()).to_string();
        assert_eq!(take("https://me:p%40ss@a.example/x"), "https://a.example/x");
        assert_eq!(take("http://only@b.example:81/"), "http://b.example:81/");
        assert_eq!(take("https://other:one@a.example/y"), "https://a.example/y");
        assert_eq!(take("http://c.example/"), "http://c.example/");
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
