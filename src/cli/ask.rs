//! How the other commands ask the running daemon: over its status endpoint.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use crate::config::Config;

/// How long the daemon may take to take a connection.
const CONNECT_TIME: Duration = Duration::from_secs(5);

/// Why the daemon did not answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum AskError {
    #[error("the daemon can't be reached at {address}: {error} [unreachable]")]
    Unreachable { address: SocketAddr, error: String },
    #[error("the daemon answers {status}: {body}")]
    Refused { status: u16, body: String },
}

/// The running daemon.
pub(super) struct Asking {
    client: reqwest::Client,
    address: SocketAddr,
}

impl Asking {
    /// Asks the daemon of that configuration; `patience`: how long an answer may take.
    pub(super) fn of(config: &Config, patience: Duration) -> Result<Self, AskError> {
        let address = reachable(config.status.listen);
        // The client insists on a provider, though nothing here is ever encrypted.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .no_proxy()
            .connect_timeout(CONNECT_TIME)
            .timeout(patience)
            .tls_certs_only([])
            .build()
            .map_err(|error| AskError::Unreachable {
                address,
                error: error.to_string(),
            })?;
        Ok(Self { client, address })
    }

    pub(super) async fn get(&self, path: &str) -> Result<String, AskError> {
        self.answer(self.client.get(self.url(path))).await
    }

    pub(super) async fn post(&self, path: &str) -> Result<String, AskError> {
        self.answer(self.client.post(self.url(path))).await
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    async fn answer(&self, request: reqwest::RequestBuilder) -> Result<String, AskError> {
        let unreachable = |error: reqwest::Error| {
            let mut cause: &dyn std::error::Error = &error;
            while let Some(deeper) = cause.source() {
                cause = deeper;
            }
            AskError::Unreachable {
                address: self.address,
                error: cause.to_string(),
            }
        };
        let response = request.send().await.map_err(unreachable)?;
        let status = response.status();
        let body = response.text().await.map_err(unreachable)?;
        if status.is_success() {
            Ok(body)
        } else {
            Err(AskError::Refused {
                status: status.as_u16(),
                body,
            })
        }
    }
}

/// An address that listens everywhere is reached here.
fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}
