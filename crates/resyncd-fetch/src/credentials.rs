//! What a Source gets to let this client in, each for its origins only: user names and passwords from the URLs of the
//! configuration, and `[source.auth]`.
//!
//! Invariants: nothing is for an origin that the configuration does not name; `Debug` shows none of it.

use std::fmt;

use resourcesync::uri::{has_userinfo, without_userinfo};
use resyncd_core::{Redaction, percent_decoded};
use url::{Origin, Url};

use crate::certificates::ClientCertificate;

/// A user name that is as long as this may be a token, in characters.
const SHORTEST_TOKEN: usize = 16;

/// The credentials of a Source, each for one or more origins: scheme, host and port. `Debug` does not show them.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Credentials {
    /// URLs with a user name or a password, one for each origin.
    passwords: Vec<Url>,
    auth: Option<SourceAuth>,
}

/// `[source.auth]`: what is sent to the Source's own origins.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SourceAuth {
    /// The origins: scheme, host and port.
    pub origins: Vec<Origin>,
    /// The headers that are sent to them.
    pub headers: Vec<AuthHeader>,
    /// The certificate that is shown to them.
    pub certificate: Option<ClientCertificate>,
    /// What no text may repeat.
    pub secrets: Vec<String>,
}

/// A header of a request, with a secret. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct AuthHeader {
    /// The name, in lower case.
    pub name: String,
    /// The value: visible ASCII characters, spaces and tabs.
    pub value: String,
}

impl fmt::Debug for AuthHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AuthHeader(…)")
    }
}

impl Credentials {
    /// Moves user name and password from the URL into the credentials, unless its origin has some already.
    #[must_use]
    pub fn extract(&mut self, url: Url) -> Url {
        if has_userinfo(&url) && self.of(&url).is_none() {
            self.passwords.push(url.clone());
        }
        without_userinfo(url)
    }

    /// Adds what `[source.auth]` states.
    pub fn set_auth(&mut self, auth: SourceAuth) {
        self.auth = Some(auth);
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.passwords.is_empty() && self.auth.is_none()
    }

    /// Whether a URL had a user name or a password.
    #[must_use]
    pub fn has_passwords(&self) -> bool {
        !self.passwords.is_empty()
    }

    /// Whether there are some for the origin of a URL.
    #[must_use]
    pub fn has_any_for(&self, url: &Url) -> bool {
        self.of(url).is_some() || self.has_auth_for(url)
    }

    /// Whether `[source.auth]` is for the origin of a URL.
    #[must_use]
    pub fn has_auth_for(&self, url: &Url) -> bool {
        self.auth_of(url).is_some()
    }

    /// The hosts of the origins of `[source.auth]`, each with its port.
    pub fn hosts(&self) -> impl Iterator<Item = String> {
        let origins = self.auth.iter().flat_map(|auth| &auth.origins);
        origins.filter_map(|origin| match origin {
            Origin::Tuple(_, host, port) => Some(format!("{host}:{port}")),
            Origin::Opaque(_) => None,
        })
    }

    /// The URL with the user name and password of its origin, if known.
    #[must_use]
    pub fn sign_in(&self, url: &Url) -> Url {
        let mut url = url.clone();
        if let Some(known) = self.of(&url) {
            // Fails only for URLs without a host, which have no credentials.
            let _ = url.set_username(known.username());
            let _ = url.set_password(known.password());
        }
        url
    }

    /// The headers for the origin of a URL; none for any other origin than the Source's own.
    pub fn headers_for(&self, url: &Url) -> &[AuthHeader] {
        self.auth_of(url).map_or(&[], |auth| &auth.headers)
    }

    /// The certificate of the client. It is for the origins of [`has_auth_for`](Self::has_auth_for) only.
    #[must_use]
    pub fn certificate(&self) -> Option<&ClientCertificate> {
        self.auth.as_ref()?.certificate.as_ref()
    }

    /// The redaction, which also removes what is secret.
    #[must_use]
    pub fn added_to(&self, redaction: Redaction) -> Redaction {
        let passwords = self.passwords.iter();
        let redaction = passwords.fold(redaction, with_userinfo);
        let secrets = self.auth.iter().flat_map(|auth| &auth.secrets);
        secrets.fold(redaction, |redaction, secret| redaction.with(secret))
    }

    fn of(&self, url: &Url) -> Option<&Url> {
        if self.passwords.is_empty() {
            return None;
        }
        let origin = url.origin();
        self.passwords.iter().find(|known| known.origin() == origin)
    }

    fn auth_of(&self, url: &Url) -> Option<&SourceAuth> {
        let auth = self.auth.as_ref()?;
        auth.origins.contains(&url.origin()).then_some(auth)
    }
}

/// The redaction, which also removes the user name and the password of a URL.
pub fn with_userinfo(redaction: Redaction, url: &Url) -> Redaction {
    let user = percent_decoded(url.username());
    let password = percent_decoded(url.password().unwrap_or_default());
    let redaction = redaction.with_password(&user, &password);
    // A token may stand in place of the name, with or without something behind it. The name of a person is part of many words.
    if password.is_empty() || user.chars().count() >= SHORTEST_TOKEN {
        redaction.with(&user)
    } else {
        redaction
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let auth = self.auth.as_ref().map_or(0, |auth| auth.origins.len());
        let passwords = self.passwords.len();
        write!(f, "Credentials of {passwords} URLs and {auth} origins")
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
        credentials.set_auth(SourceAuth {
            secrets: vec!["t0ken-of-the-source".to_owned()],
            ..SourceAuth::default()
        });
        for (echo, expected) in [
            ("p@s+s&wörd=", "no ([redacted])"),
            ("p%40s+s&w%C3%B6rd%3D", "no [redacted]"),
            ("bWU6cEBzK3Mmd8O2cmQ9", "no ([redacted])"),
            ("t0ken-of-the-source", "no ([redacted])"),
        ] {
            let redaction = credentials.added_to(Redaction::default());
            let redacted = redaction.redact(&format!("no ({echo})"));
            assert_eq!(redacted, expected, "{echo}");
        }
    }

    #[test]
    fn token_in_place_of_the_user_name_is_redacted() {
        for (url, secret, other) in [
            ("https://t%30ken@a.example/", "t0ken", ""),
            ("https://t0ken:@a.example/", "t0ken", ""),
            (
                "https://0123456789abcdefghij:x-oauth-basic@a.example/",
                "0123456789abcdefghij",
                "x-oauth-basic",
            ),
            // A name is none.
            ("https://library:s3cret@a.example/", "s3cret", "s3cret"),
        ] {
            let mut credentials = Credentials::default();
            let _ = credentials.extract(Url::parse(url).unwrap());
            let redaction = credentials.added_to(Redaction::default());
            let redacted = redaction.redact(&format!("no ({secret}) ({other}) library"));
            assert!(!redacted.contains(secret), "{url}: {redacted}");
            assert!(other.is_empty() || !redacted.contains(other), "{redacted}");
            assert!(redacted.ends_with(" library"), "{url}: {redacted}");
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
        assert_eq!(shown, "Credentials of 2 URLs and 0 origins");
    }
}
