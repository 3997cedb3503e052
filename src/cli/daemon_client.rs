//! HTTP client of the running daemon's status endpoint, for the other commands.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use crate::config::{Config, Secret};

/// How long connecting to the daemon may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Where the running daemon is, for those who can't read its configuration.
#[derive(Debug, clap::Args)]
pub(super) struct DaemonAddress {
    /// Address of the daemon's status listener, such as 127.0.0.1:8462, instead of the configuration file
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address)]
    address: Option<SocketAddr>,
    /// File with the token of the status listener, if it requires one
    #[arg(long, value_name = "FILE", requires = "address")]
    token_file: Option<PathBuf>,
}

impl DaemonAddress {
    /// Whether the command line states where the daemon is.
    pub(super) fn is_given(&self) -> bool {
        self.address.is_some()
    }

    /// A configuration without Sources that leads to this daemon; `None` if no address is given.
    pub(super) fn config(&self) -> Option<Result<Config, String>> {
        let mut config = Config::new("", Vec::new());
        config.status.listen = self.address?;
        let token = self.token_file.as_deref().map(Secret::of_file);
        Some(token.transpose().map(|token| {
            config.status.token = token;
            config
        }))
    }
}

/// An address with a port, also as a URL or with the name `localhost`.
fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let address = text.strip_prefix("http://").unwrap_or(text);
    let address = address.strip_suffix('/').unwrap_or(address);
    let address = match address.strip_prefix("localhost:") {
        Some(port) => format!("{}:{port}", Ipv4Addr::LOCALHOST),
        None => address.to_owned(),
    };
    let parsed = address.parse();
    parsed.map_err(|_| "not an IP address with a port, such as 127.0.0.1:8462".to_owned())
}

/// Why a request to the daemon failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum DaemonError {
    #[error(
        "daemon not reachable at {address}: {error}; if it runs, compare [status] listen with the address that it logs at its \
         start [unreachable]"
    )]
    Unreachable { address: SocketAddr, error: String },
    #[error(
        "what answers at {address} is not resyncd: compare [status] listen with the address that the daemon logs at its \
         start [not-resyncd]"
    )]
    NotResyncd { address: SocketAddr },
    /// `body`: the message of the error, and its code.
    #[error("the daemon answered {status}: {body}")]
    Rejected { status: u16, body: String },
}

impl DaemonError {
    /// Whether there is no daemon at the address.
    pub(super) fn is_unreachable(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::NotResyncd { .. })
    }
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
        let response = request.send().await.map_err(|error| {
            // Something listens, and does not speak HTTP.
            match is_no_http(&error) {
                true => self.not_resyncd(),
                false => unreachable(error),
            }
        })?;
        let status = response.status();
        let body = response.text().await.map_err(unreachable)?;
        if status.is_success() {
            return Ok(body);
        }
        // Every error of resyncd has a code.
        let answer: serde_json::Value = serde_json::from_str(&body).unwrap_or_default();
        let text = |key: &str| answer["error"][key].as_str();
        let (Some(code), Some(message)) = (text("code"), text("message")) else {
            return Err(self.not_resyncd());
        };
        let step = match code {
            "unauthorized" => {
                "; name its file with --token-file, or the configuration with --config"
            }
            _ => "",
        };
        Err(DaemonError::Rejected {
            status: status.as_u16(),
            body: format!("{message}{step} [{code}]"),
        })
    }

    /// The error of an answer that is none of resyncd.
    pub(super) fn not_resyncd(&self) -> DaemonError {
        let address = self.address;
        DaemonError::NotResyncd { address }
    }
}

/// Whether what was received is no answer of HTTP.
fn is_no_http(error: &reqwest::Error) -> bool {
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<hyper::Error>() {
            return error.is_parse();
        }
        cause = error.source();
    }
    false
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_accepted_as_they_are_printed() {
        let expected: SocketAddr = "127.0.0.1:8462".parse().unwrap();
        for text in [
            "127.0.0.1:8462",
            "localhost:8462",
            "http://127.0.0.1:8462",
            "http://127.0.0.1:8462/",
        ] {
            assert_eq!(parse_address(text), Ok(expected), "{text}");
        }
        assert!(parse_address("[::1]:8462").is_ok());
        for text in ["", "8462", "127.0.0.1", "example.org:8462", "localhost"] {
            assert!(parse_address(text).is_err(), "{text}");
        }
    }
}
