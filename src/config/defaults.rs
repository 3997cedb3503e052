//! Configurations without a file: the defaults.

use std::path::PathBuf;

use resyncd_core::Redaction;
use resyncd_fetch::with_userinfo;
use url::Url;

use super::{Config, Hook, Source};
use crate::config::file::examine_here;
use crate::config::source::parse_source;
use crate::config::table_reader::TableReader;

impl Config {
    /// The default configuration with these Sources. Not validated: the caller ensures that names and mirrors are distinct.
    #[must_use]
    pub fn new(state_dir: impl Into<PathBuf>, sources: Vec<Source>) -> Self {
        Self {
            state_dir: state_dir.into(),
            sources,
            ..examine_here("", |_, _, config| config)
        }
    }

    /// Removes the credentials of all Sources and proxies, and the token of the status endpoint, from remote text.
    #[must_use]
    pub fn redaction(&self) -> Redaction {
        let own = match &self.status.token {
            Some(token) => Redaction::default().with(token.expose()),
            None => Redaction::default(),
        };
        let own = match &self.xmpp {
            Some(account) => own.with(account.password.expose()),
            None => own,
        };
        let sources = self.sources.iter();
        let own = self.http.proxies.added_to(own);
        let own = match &self.callback.public_url {
            Some(url) => with_userinfo(own, url),
            None => own,
        };
        sources.fold(own, |redaction, source| {
            let redaction = source.credentials.added_to(redaction);
            let secrets = source.hooks.iter().filter_map(Hook::secret);
            secrets.fold(redaction, |redaction, secret| {
                redaction.with(secret.expose())
            })
        })
    }
}

impl Source {
    /// A Source with default settings. Not validated: the name must match `[a-z0-9-]+`, the mirror must be absolute. A user name and a
    /// password in the URL become its credentials.
    #[must_use]
    pub fn new(name: impl Into<String>, url: Url, mirror: impl Into<PathBuf>) -> Self {
        let mut source = TableReader::absent("source", parse_source);
        source.name = name.into();
        source.url = source.credentials.extract(url);
        source.mirror = mirror.into();
        source
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Secret;

    #[test]
    fn token_of_the_status_endpoint_is_redacted() {
        let mut config = Config::new("/", Vec::new());
        config.status.token = Secret::new("0123456789-is-the-token");
        let text = config
            .redaction()
            .redact("echoed: Bearer 0123456789-is-the-token");
        assert!(text.starts_with("echoed: "), "{text}");
        assert!(!text.contains("is-the-token"), "{text}");
    }
}
