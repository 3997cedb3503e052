//! The client of the operator's API, for the other commands: of the running daemon, or, where none runs, of its handlers in this process,
//! on its state. An action is implemented once.

use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Method, Request, header};
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use super::daemon::{RunningListener, StartError, bind_callback};
use crate::config::{Config, Secret};
use crate::engine::Engine;
use crate::http::{RejectionCounters, SharedRedaction, operator_routes};
use crate::store::Store;

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
    #[error("{text}")]
    Rejected { status: u16, text: String },
}

impl DaemonError {
    fn unreachable(address: SocketAddr, error: impl Display) -> Self {
        let error = error.to_string();
        Self::Unreachable { address, error }
    }

    /// Whether there is no daemon at the address.
    pub(super) fn is_unreachable(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::NotResyncd { .. })
    }
}

/// A client of the running daemon, or of its handlers in this process.
pub(super) struct DaemonClient {
    address: SocketAddr,
    server: Server,
}

/// What answers the requests.
enum Server {
    Daemon {
        client: reqwest::Client,
        token: Option<Secret>,
    },
    /// The handlers on the state of a daemon that does not run.
    State {
        engine: Arc<Engine>,
        handlers: TowerToHyperService<Router>,
        /// Where hubs verify the end of subscriptions, if some are to be ended.
        callback: RunningListener,
    },
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
            .map_err(|error| DaemonError::unreachable(address, error))?;
        let token = config.status.token.clone();
        Ok(Self {
            address,
            server: Server::Daemon { client, token },
        })
    }

    /// A client of the handlers on the state of a daemon that does not run. `ends`: whether subscriptions of a Source are to be ended.
    pub(super) async fn of_state(
        config: &Config,
        ends: impl Fn(&str) -> bool,
    ) -> Result<Self, StartError> {
        let mut config = config.clone();
        let store = Store::open(config.state())?;
        let client = config.client()?;
        let subscribed = store.subscribed_sources().await?;
        let bound = if subscribed.iter().any(|name| ends(name)) {
            Some(bind_callback(&mut config).await?)
        } else {
            None
        };
        let engine = Engine::once(&config, Arc::clone(&store), &client).await?;
        let rejections = RejectionCounters::default();
        let secrets = SharedRedaction::new(&config.redaction());
        let callback =
            RunningListener::start_callback(bound, &config, &store, rejections.clone(), secrets);
        let stop = CancellationToken::new();
        // Nobody else can send requests to it.
        let handlers = operator_routes(Arc::clone(&engine), store, stop, rejections);
        Ok(Self {
            address: reachable(config.status.listen),
            server: Server::State {
                engine,
                handlers: TowerToHyperService::new(handlers),
                callback,
            },
        })
    }

    /// What works on the state, if no daemon does.
    pub(super) fn engine(&self) -> Option<&Engine> {
        match &self.server {
            Server::Daemon { .. } => None,
            Server::State { engine, .. } => Some(engine),
        }
    }

    /// Completes what is in progress at the callback listener.
    pub(super) async fn end(self) {
        if let Server::State { callback, .. } = self.server {
            callback.stop().await;
        }
    }

    /// Why no daemon answers; `Ok`: one does.
    pub(super) async fn check_daemon(&self) -> Result<(), DaemonError> {
        match self.has_probe("").await {
            // Whatever the daemon refuses, it is there.
            Ok(_) | Err(DaemonError::Rejected { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Whether a probe with that token has arrived at the callback listener.
    pub(super) async fn has_probe(&self, token: &str) -> Result<bool, DaemonError> {
        #[derive(Deserialize)]
        struct Probed {
            arrived: bool,
        }
        let path = format!("/callback-probe?token={token}");
        let probed: Probed = self.read(&path).await?;
        Ok(probed.arrived)
    }

    /// Requests JSON.
    pub(super) async fn read<T: DeserializeOwned>(&self, path: &str) -> Result<T, DaemonError> {
        self.parse(&self.get(path).await?)
    }

    /// Parses what was answered.
    pub(super) fn parse<T: DeserializeOwned>(&self, json: &str) -> Result<T, DaemonError> {
        serde_json::from_str(json).map_err(|_| self.not_resyncd())
    }

    pub(super) async fn get(&self, path: &str) -> Result<String, DaemonError> {
        self.request(Method::GET, path).await
    }

    pub(super) async fn post(&self, path: &str) -> Result<String, DaemonError> {
        self.request(Method::POST, path).await
    }

    async fn request(&self, method: Method, path: &str) -> Result<String, DaemonError> {
        let (status, body) = match &self.server {
            Server::Daemon { client, token } => {
                let url = format!("http://{}{path}", self.address);
                self.send(client.request(method, url), token.as_ref())
                    .await?
            }
            Server::State { handlers, .. } => self.handle(handlers, method, path).await?,
        };
        self.answer(status, body)
    }

    async fn handle(
        &self,
        handlers: &TowerToHyperService<Router>,
        method: Method,
        path: &str,
    ) -> Result<(u16, String), DaemonError> {
        let request = Request::builder().method(method).uri(path);
        let request = request.header(header::HOST, self.address.to_string());
        let request = request.body(Body::empty());
        let request = request.map_err(|error| DaemonError::unreachable(self.address, error))?;
        let Ok(response) = handlers.call(request).await;
        let status = response.status().as_u16();
        let body = to_bytes(response.into_body(), usize::MAX).await;
        let body = body.map_err(|error| DaemonError::unreachable(self.address, error))?;
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    }

    async fn send(
        &self,
        request: reqwest::RequestBuilder,
        token: Option<&Secret>,
    ) -> Result<(u16, String), DaemonError> {
        let failed = |error: reqwest::Error| {
            let mut cause: &dyn std::error::Error = &error;
            while let Some(deeper) = cause.source() {
                // Something listens, and does not speak HTTP.
                let received = deeper.downcast_ref::<hyper::Error>();
                if received.is_some_and(hyper::Error::is_parse) {
                    return self.not_resyncd();
                }
                cause = deeper;
            }
            DaemonError::unreachable(self.address, cause)
        };
        let request = match token {
            Some(token) => request.bearer_auth(token.expose()),
            None => request,
        };
        let response = request.send().await.map_err(failed)?;
        let status = response.status().as_u16();
        let body = response.text().await.map_err(failed)?;
        Ok((status, body))
    }

    /// The body of an answer with that status, if it is a success.
    fn answer(&self, status: u16, body: String) -> Result<String, DaemonError> {
        if (200..300).contains(&status) {
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
        let answered = match self.server {
            Server::Daemon { .. } => format!("the daemon answered {status}: "),
            Server::State { .. } => String::new(),
        };
        Err(DaemonError::Rejected {
            status,
            text: format!("{answered}{message}{step} [{code}]"),
        })
    }

    /// The error of an answer that is none of resyncd.
    pub(super) fn not_resyncd(&self) -> DaemonError {
        let address = self.address;
        DaemonError::NotResyncd { address }
    }
}

/// The address to connect to: loopback if the daemon listens on all addresses.
pub(super) fn reachable(listen: SocketAddr) -> SocketAddr {
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
