//! HTTP client of the running daemon's status endpoint, for the other commands.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use crate::config::{Config, Secret};

/// How long connecting to the daemon may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a request to the daemon failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum DaemonError {
    #[error("daemon not reachable at {address}: {error} [unreachable]")]
    Unreachable { address: SocketAddr, error: String },
    #[error("the daemon answered {status}: {body}")]
    Rejected { status: u16, body: String },
}

/// A client of the running daemon.
pub(super) struct DaemonClient {
    client: reqwest::Client,
    address: SocketAddr,
    token: Option<Secret>,
}

impl DaemonClient {
    /// A client of the daemon with this configuration; `timeout`: for a complete request.
    pub(super) fn new(config: &Config, timeout: Duration) -> Result<Self, DaemonError> {
        let address = reachable(config.status.listen);
        // reqwest requires a TLS provider, although this connection is never encrypted.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .no_proxy()
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(timeout)
            .tls_certs_only([])
            .build()
            .map_err(|error| DaemonError::Unreachable {
                address,
                error: error.to_string(),
            })?;
        let token = config.status.token.clone();
        Ok(Self {
            client,
            address,
            token,
        })
    }

    pub(super) async fn get(&self, path: &str) -> Result<String, DaemonError> {
        self.send(self.client.get(self.url(path))).await
    }

    pub(super) async fn post(&self, path: &str) -> Result<String, DaemonError> {
        self.send(self.client.post(self.url(path))).await
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> Result<String, DaemonError> {
        let unreachable = |error: reqwest::Error| {
            let mut cause: &dyn std::error::Error = &error;
            while let Some(deeper) = cause.source() {
                cause = deeper;
            }
            DaemonError::Unreachable {
                address: self.address,
                error: cause.to_string(),
            }
        };
        let request = match &self.token {
            Some(token) => request.bearer_auth(token.expose()),
            None => request,
        };
        let response = request.send().await.map_err(unreachable)?;
        let status = response.status();
        let body = response.text().await.map_err(unreachable)?;
        if status.is_success() {
            Ok(body)
        } else {
            Err(DaemonError::Rejected {
                status: status.as_u16(),
                body,
            })
        }
    }
}

/// The address to connect to: loopback if the daemon listens on all addresses.
fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}
