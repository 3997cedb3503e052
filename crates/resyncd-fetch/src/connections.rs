//! The connections of all requests.
//!
//! The first connection to a host negotiates the version (ALPN). Requests that begin together before that is known open a
//! connection each. Therefore those for resources of a host that has answered over HTTP/2 go through a client of their own, which
//! offers nothing else: it opens one connection to a host at a time, also when the server ends the one that there is.
//!
//! Documents, requests to hubs and packages have other connections: one that is full of resources delays none of them. A WebSocket
//! begins as a connection over HTTP/1.1.
//!
//! What gets the credentials of a Source goes over connections that no other Source uses, and a certificate of a client is shown on
//! no others. Requests through a proxy have connections of their own as well: they reach nothing but the proxy.
//!
//! Invariant: every connection goes to an address that the guard allows, or to a configured proxy.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use reqwest::redirect;
use url::Url;

use super::FetchError;
use super::error::innermost;
use super::guard::{Guard, GuardedResolver, NameLookup};
use super::server_trust::ServerTrust;
use crate::certificates::ClientCertificate;
use crate::proxies::Proxies;
use crate::settings::HttpSettings;

/// How long an unused connection stays open.
const IDLE: Duration = Duration::from_secs(60);

pub(super) struct Connections {
    settings: Arc<Settings>,
    certificate: Option<ClientCertificate>,
    /// Each is created when it is needed.
    clients: Mutex<HashMap<Route, reqwest::Client>>,
}

/// What all connections have in common.
struct Settings {
    http: HttpSettings,
    resolver: Arc<GuardedResolver>,
    trust: ServerTrust,
}

/// The version of HTTP that a request goes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum HttpVersion {
    /// The one that is negotiated.
    Negotiated,
    /// HTTP/1.1: the connection becomes a WebSocket.
    Http1,
    /// HTTP/2.
    Http2,
}

/// How a request reaches its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Route {
    /// The version that it goes over.
    pub(super) version: HttpVersion,
    /// Whether it goes through the proxy of its scheme.
    pub(super) is_proxied: bool,
    /// Whether the certificate of the client is shown to a server that asks for one.
    pub(super) is_certified: bool,
}

impl Connections {
    /// Opens none yet.
    ///
    /// # Errors
    /// [`FetchError::Setup`] if the user agent is not a valid header or TLS can't be set up.
    pub(super) fn new(
        http: &HttpSettings,
        resolver: GuardedResolver,
        trust: ServerTrust,
    ) -> Result<Self, FetchError> {
        let settings = Settings {
            http: http.clone(),
            resolver: Arc::new(resolver),
            trust,
        };
        let connections = Self {
            settings: Arc::new(settings),
            certificate: None,
            clients: Mutex::default(),
        };
        connections.client(Route {
            version: HttpVersion::Negotiated,
            is_proxied: false,
            is_certified: false,
        })?;
        Ok(connections)
    }

    /// Other connections. `certificate`: of the client.
    pub(super) fn separate(&self, certificate: Option<&ClientCertificate>) -> Self {
        Self {
            settings: Arc::clone(&self.settings),
            certificate: certificate.cloned(),
            clients: Mutex::default(),
        }
    }

    /// The proxies that requests go through.
    pub(super) fn proxies(&self) -> &Proxies {
        &self.settings.http.proxies
    }

    /// The configuration of all requests.
    pub(super) fn http(&self) -> &HttpSettings {
        &self.settings.http
    }

    /// Which certificates of servers are trusted.
    pub(super) fn trust(&self) -> &ServerTrust {
        &self.settings.trust
    }

    /// What names are resolved with.
    pub(super) fn lookup(&self) -> NameLookup {
        Arc::clone(&self.settings.resolver.lookup)
    }

    /// The client for a request.
    ///
    /// # Errors
    /// [`FetchError::Setup`] if TLS can't be set up.
    pub(super) fn client(&self, route: Route) -> Result<reqwest::Client, FetchError> {
        let mut clients = self.clients.lock();
        if let Some(client) = clients.get(&route) {
            return Ok(client.clone());
        }
        let certificate = self.certificate.as_ref().filter(|_| route.is_certified);
        let client = self.settings.build(route, certificate)?;
        clients.insert(route, client.clone());
        Ok(client)
    }
}

impl Settings {
    fn build(
        &self,
        route: Route,
        certificate: Option<&ClientCertificate>,
    ) -> Result<reqwest::Client, FetchError> {
        let tls = self.trust.tls(certificate);
        let mut tls = tls.map_err(|error| FetchError::Setup(error.to_string()))?;
        let names: &[&[u8]] = match route.version {
            HttpVersion::Negotiated => &[b"h2", b"http/1.1"],
            HttpVersion::Http1 => &[b"http/1.1"],
            HttpVersion::Http2 => &[b"h2"],
        };
        tls.alpn_protocols = names.iter().map(|name| name.to_vec()).collect();
        let http = &self.http;
        let mut builder = reqwest::Client::builder()
            .user_agent(&http.user_agent)
            .redirect(redirect::Policy::none())
            .referer(false)
            .connect_timeout(http.timeout)
            .read_timeout(http.timeout)
            .pool_max_idle_per_host(http.connections_per_host.saturating_mul(2))
            .pool_idle_timeout(IDLE)
            .tcp_nodelay(true)
            .tls_backend_preconfigured(tls)
            .tcp_keepalive(Duration::from_secs(60))
            // A connection that many requests share is replaced if its peer does not react any more.
            .http2_keep_alive_interval(http.timeout)
            .http2_keep_alive_timeout(http.timeout);
        builder = if route.is_proxied {
            let proxies = http.proxies.clone();
            let proxy = move |url: &Url| proxies.of_scheme(url.scheme()).cloned();
            // The operator has named the proxies: they may be anywhere. Nothing else is resolved.
            let resolver = GuardedResolver {
                guard: Guard {
                    allow_private: false,
                    as_public: Arc::default(),
                    trusted: http.proxies.hosts().map(str::to_owned).collect(),
                },
                lookup: Arc::clone(&self.resolver.lookup),
            };
            builder
                .proxy(reqwest::Proxy::custom(proxy))
                .dns_resolver(Arc::new(resolver))
        } else {
            builder.no_proxy().dns_resolver(Arc::clone(&self.resolver))
        };
        builder = match route.version {
            HttpVersion::Negotiated => builder,
            HttpVersion::Http1 => builder.http1_only(),
            HttpVersion::Http2 => builder.http2_prior_knowledge(),
        };
        let built = builder.build();
        built.map_err(|error| FetchError::Setup(innermost(&error)))
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::test_site;

    #[tokio::test]
    async fn connections_of_any_version_go_to_allowed_addresses_only() {
        let resolver = GuardedResolver {
            guard: Guard {
                allow_private: false,
                as_public: Arc::default(),
                trusted: Arc::default(),
            },
            lookup: Arc::new(|_| {
                let found = vec![(Ipv4Addr::LOCALHOST, 0).into()];
                Box::pin(std::future::ready(Ok(found)))
            }),
        };
        let http = test_site::http();
        let trust = ServerTrust::read(&http.authorities);
        let shared = Connections::new(&http, resolver, trust).unwrap();
        let separate = shared.separate(None);
        for connections in [&shared, &separate] {
            for version in [
                HttpVersion::Negotiated,
                HttpVersion::Http1,
                HttpVersion::Http2,
            ] {
                let route = Route {
                    version,
                    is_proxied: false,
                    is_certified: false,
                };
                let client = connections.client(route).unwrap();
                let request = client.get("https://rebinding.example/");
                let error = FetchError::from(request.send().await.unwrap_err());
                assert_eq!(error.code(), "forbidden-address", "{version:?}");
            }
        }
    }
}
