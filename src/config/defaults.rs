//! The default of every key. A test compares them with `config.example.toml`.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use resourcesync::uri::MAX_URI_BYTES;
use resyncd_core::Redaction;
use resyncd_fetch::{Credentials, HttpSettings, PaceLimits, with_userinfo};
use url::Url;

use super::{
    Baseline, CallbackConfig, CallbackProtocols, Config, FeedConfig, Filter, Hook, LimitsConfig,
    LogConfig, Signatures, Source, StatusConfig,
};

/// The default of `state_dir`.
pub(super) const STATE_DIR: &str = "/var/lib/resyncd";

const MIB: u64 = 1 << 20;

impl Config {
    /// The default configuration with these Sources. Not validated: the caller ensures that names and mirrors are distinct.
    #[must_use]
    pub fn new(state_dir: impl Into<PathBuf>, sources: Vec<Source>) -> Self {
        Self {
            state_dir: state_dir.into(),
            callback: CallbackConfig::default(),
            status: StatusConfig::default(),
            http: HttpSettings::default(),
            limits: LimitsConfig::default(),
            feed: FeedConfig::default(),
            log: LogConfig::default(),
            xmpp: None,
            sources,
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
            Some(url) => with_userinfo(own, url.username(), url.password().unwrap_or_default()),
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

impl Default for CallbackConfig {
    fn default() -> Self {
        Self {
            listen: loopback(8461),
            public_url: None,
        }
    }
}

impl Default for StatusConfig {
    fn default() -> Self {
        Self {
            listen: loopback(8462),
            hosts: Vec::new(),
            token: None,
        }
    }
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self {
            document: 512 * MIB,
            notification: 8 * MIB,
            uri: MAX_URI_BYTES,
            resource: None,
            package: None,
            inbox: 256 * MIB,
            held_notifications: 1024,
            resources: None,
            sets: 1000,
            third_party_requests: 600,
        }
    }
}

impl Default for FeedConfig {
    fn default() -> Self {
        Self {
            keep: Some(Duration::from_secs(90 * 24 * 60 * 60)),
        }
    }
}

impl Source {
    /// A Source with default settings. Not validated: the name must match `[a-z0-9-]+`, the mirror must be absolute. A user name and a
    /// password in the URL become its credentials.
    #[must_use]
    pub fn new(name: impl Into<String>, url: Url, mirror: impl Into<PathBuf>) -> Self {
        let mut credentials = Credentials::default();
        Self {
            name: name.into(),
            url: credentials.extract(url),
            credentials,
            mirror: mirror.into(),
            sets: Vec::new(),
            notifications: true,
            poll_interval: Duration::from_secs(15 * 60),
            reorder_window: Duration::from_secs(5),
            pace: PaceLimits::default(),
            robots: true,
            lease: Duration::from_secs(10 * 24 * 60 * 60),
            baseline: Baseline::Auto,
            allow_type_mismatch: false,
            patches: true,
            versions: None,
            undated_per_day: 10_000,
            stale_after: None,
            delete: true,
            max_delete: 0.1,
            signatures: Signatures::Required,
            hub: None,
            trust_hub: None,
            callback_protocols: CallbackProtocols::default(),
            hosts: Vec::new(),
            filter: Filter::everything(),
            hooks: Vec::new(),
        }
    }
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
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
