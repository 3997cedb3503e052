//! How all requests are made.

use std::time::Duration;

use crate::certificates::Authorities;
use crate::proxies::Proxies;

/// How requests are made.
#[derive(Clone, Debug)]
pub struct HttpSettings {
    /// Concurrent requests to one host, at least 1.
    pub connections_per_host: usize,
    /// Concurrent requests for resources to one host that speaks HTTP/2, at least 1.
    pub streams_per_host: usize,
    /// From connect to response head, and between two body chunks.
    pub timeout: Duration,
    /// The `User-Agent` header.
    pub user_agent: String,
    /// Whether loopback and private-range addresses may be fetched.
    pub allow_private_addresses: bool,
    /// Whether redirects from https to http are followed also where nothing proves what is received.
    pub allow_redirects_to_http: bool,
    /// The proxies that requests go through.
    pub proxies: Proxies,
    /// The certificates of authorities that are trusted besides those of the system.
    pub authorities: Authorities,
}

impl Default for HttpSettings {
    fn default() -> Self {
        Self {
            connections_per_host: 8,
            // Servers should allow 100 streams (RFC 9113, section 6.5.2). Requests that were just given up may still count.
            streams_per_host: 90,
            timeout: Duration::from_secs(60),
            user_agent: concat!("resyncd/", env!("CARGO_PKG_VERSION")).to_owned(),
            allow_private_addresses: false,
            allow_redirects_to_http: false,
            proxies: Proxies::default(),
            authorities: Authorities::default(),
        }
    }
}
