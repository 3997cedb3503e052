//! The connections of all requests.
//!
//! The first connection to a host negotiates the version (ALPN). Requests that begin together before that is known open a
//! connection each. Therefore those for resources of a host that has answered over HTTP/2 go through a client of their own, which
//! offers nothing else: it opens one connection to a host at a time, also when the server ends the one that there is.
//!
//! Documents, requests to hubs and packages have other connections: one that is full of resources delays none of them.
//!
//! Invariant: every connection goes to an address that the guard allows.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use reqwest::redirect;

use super::FetchError;
use super::error::innermost;
use super::guard::GuardedResolver;
use crate::config::HttpConfig;

/// How long an unused connection stays open.
const IDLE: Duration = Duration::from_secs(60);

pub(super) struct Connections {
    negotiating: reqwest::Client,
    /// Created when it is needed: it loads the certificates again.
    http2: OnceLock<reqwest::Client>,
    http: HttpConfig,
    resolver: Arc<GuardedResolver>,
    has_certificates: bool,
}

impl Connections {
    /// Opens none yet.
    ///
    /// # Errors
    /// [`FetchError::Setup`] if the user agent is not a valid header or TLS can't be set up.
    pub(super) fn new(http: &HttpConfig, resolver: GuardedResolver) -> Result<Self, FetchError> {
        let resolver = Arc::new(resolver);
        let build = |has_certificates| build(http, &resolver, has_certificates, false);
        let (negotiating, has_certificates) = match build(true) {
            Ok(client) => (client, true),
            Err(first) => match build(false) {
                Ok(client) => {
                    tracing::warn!(
                        error = %innermost(&first),
                        "no CA certificates found; https will fail"
                    );
                    (client, false)
                }
                Err(_) => {
                    return Err(FetchError::Setup(innermost(&first)));
                }
            },
        };
        Ok(Self {
            negotiating,
            http2: OnceLock::new(),
            http: http.clone(),
            resolver,
            has_certificates,
        })
    }

    /// The client for a request that goes over HTTP/2, or over the version that is negotiated.
    pub(super) fn client(&self, is_http2: bool) -> &reqwest::Client {
        if !is_http2 {
            return &self.negotiating;
        }
        self.http2.get_or_init(|| {
            build(&self.http, &self.resolver, self.has_certificates, true)
                .unwrap_or_else(|_| self.negotiating.clone())
        })
    }
}

fn build(
    http: &HttpConfig,
    resolver: &Arc<GuardedResolver>,
    has_certificates: bool,
    is_http2: bool,
) -> reqwest::Result<reqwest::Client> {
    let mut builder = reqwest::Client::builder()
        .user_agent(&http.user_agent)
        .no_proxy()
        .redirect(redirect::Policy::none())
        .referer(false)
        .connect_timeout(http.timeout)
        .read_timeout(http.timeout)
        .pool_max_idle_per_host(http.connections_per_host.saturating_mul(2))
        .pool_idle_timeout(IDLE)
        .tcp_nodelay(true)
        .tcp_keepalive(Duration::from_secs(60))
        // A connection that many requests share is replaced if its peer does not react any more.
        .http2_keep_alive_interval(http.timeout)
        .http2_keep_alive_timeout(http.timeout)
        .dns_resolver(Arc::clone(resolver));
    if is_http2 {
        builder = builder.http2_prior_knowledge();
    }
    if !has_certificates {
        builder = builder.tls_certs_only([]);
    }
    builder.build()
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::fetch::guard::Guard;
    use crate::fetch::test_site;

    #[tokio::test]
    async fn connections_of_either_version_go_to_allowed_addresses_only() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let resolver = GuardedResolver {
            guard: Guard {
                allow_private: false,
                as_public: Arc::default(),
                trusted_host: None,
            },
            lookup: Arc::new(|_| {
                let found = vec![(Ipv4Addr::LOCALHOST, 0).into()];
                Box::pin(std::future::ready(Ok(found)))
            }),
        };
        let connections = Connections::new(&test_site::http(), resolver).unwrap();
        for is_http2 in [false, true] {
            let request = connections
                .client(is_http2)
                .get("https://rebinding.example/");
            let error = FetchError::from_transport(&request.send().await.unwrap_err());
            assert_eq!(error.code(), "forbidden-address", "{is_http2}");
        }
    }
}
