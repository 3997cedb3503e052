//! The proxies that requests go through, and what is requested directly.
//!
//! Invariants: requests to this machine never go through a proxy; only proxies that speak plain HTTP are used, to which no
//! certificate of a client can be shown; `Debug` does not show passwords.

use std::fmt;

use ipnet::IpNet;
use resourcesync::uri::has_userinfo;
use resyncd_core::{Redaction, hide_userinfo};
use url::{Host, Url};

use crate::credentials::with_userinfo;
use crate::host::{address_of, is_at_or_below, is_own_machine};

/// Which requests go through which proxy; none of them by default.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Proxies {
    /// For http.
    pub http: Option<Url>,
    /// For https.
    pub https: Option<Url>,
    /// What is requested directly.
    pub exceptions: Vec<ProxyException>,
    /// Whether the configuration file names them, not the environment.
    pub is_of_file: bool,
}

/// What is requested directly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProxyException {
    /// Everything.
    Everything,
    /// A name and the names below it, or an address.
    Host {
        /// The name or the address.
        host: String,
        /// Only at this port.
        port: Option<u16>,
    },
    /// The addresses of a network.
    Network(IpNet),
}

impl Proxies {
    /// The proxy for the requests to a URL; `None`: they go to its host directly.
    pub fn of(&self, url: &Url) -> Option<&Url> {
        let proxy = self.of_scheme(url.scheme())?;
        let host = url.host()?;
        // To a proxy, this machine would be another one.
        let is_direct = is_own_machine(&host) || self.exceptions.iter().any(|it| it.is(&host, url));
        (!is_direct).then_some(proxy)
    }

    /// The proxy for the requests of a scheme.
    pub fn of_scheme(&self, scheme: &str) -> Option<&Url> {
        match scheme {
            "https" => self.https.as_ref(),
            _ => self.http.as_ref(),
        }
    }

    /// The hosts of the proxies.
    pub(super) fn hosts(&self) -> impl Iterator<Item = &str> {
        self.http
            .iter()
            .chain(&self.https)
            .filter_map(Url::host_str)
    }

    /// Whether the configuration file has a password of a proxy, or a token in place of the user name.
    #[must_use]
    pub fn has_password_in_file(&self) -> bool {
        self.is_of_file && self.http.iter().chain(&self.https).any(has_userinfo)
    }

    /// The redaction, which also removes the passwords of the proxies.
    #[must_use]
    pub fn added_to(&self, redaction: Redaction) -> Redaction {
        let proxies = self.http.iter().chain(&self.https);
        let proxies = proxies.filter(|proxy| has_userinfo(proxy));
        proxies.fold(redaction, with_userinfo)
    }
}

impl fmt::Debug for Proxies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |proxy: &Option<Url>| {
            let proxy = proxy.as_ref();
            proxy.map(|proxy| hide_userinfo(proxy.as_str()).into_owned())
        };
        f.debug_struct("Proxies")
            .field("http", &shown(&self.http))
            .field("https", &shown(&self.https))
            .field("exceptions", &self.exceptions)
            .finish()
    }
}

impl ProxyException {
    fn is(&self, host: &Host<&str>, url: &Url) -> bool {
        match self {
            Self::Everything => true,
            Self::Host { host: own, port } => {
                let is_at_port = port.is_none() || *port == url.port_or_known_default();
                is_at_port && is_at_or_below(&host.to_string(), own)
            }
            Self::Network(network) => {
                address_of(host).is_some_and(|address| network.contains(&address))
            }
        }
    }
}
