//! Configurations without a file: the defaults.

use std::path::PathBuf;

use resyncd_core::Redaction;
use resyncd_fetch::with_userinfo;
use url::Url;

use super::{Config, HookAction, Source};
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
            ..examine_here("", |_, config| config)
        }
    }

    /// Removes the credentials of all Sources and proxies, and the token of the status endpoint, from remote text.
    #[must_use]
    pub fn redaction(&self) -> Redaction {
        let mut redaction = Redaction::default();
        for token in [&self.status.token, &self.publish.token]
            .into_iter()
            .flatten()
        {
            redaction = redaction.with(token.expose());
        }
        if let Some(account) = &self.xmpp {
            redaction = redaction.with(account.password.expose());
        }
        for notify in &self.notify {
            redaction = notify.added_to(redaction);
        }
        redaction = self.http.proxies.added_to(redaction);
        if let Some(url) = &self.callback.public_url {
            redaction = with_userinfo(redaction, url);
        }
        for source in &self.sources {
            redaction = source.credentials.added_to(redaction);
            for hook in &source.hooks {
                if let HookAction::Webhook { secret, .. } = &hook.action {
                    redaction = redaction.with(secret.expose());
                }
            }
        }
        redaction
    }
}

impl Source {
    /// A Source with default settings. Not validated: the name must match `[a-z0-9-]+`, the mirror must be absolute. A user name and a
    /// password in the URL become its credentials.
    #[must_use]
    pub fn new(
        name: impl Into<String>,
        url: Url,
        mirror: impl Into<resyncd_mirror::MirrorPlace>,
    ) -> Self {
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
