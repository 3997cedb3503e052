//! The accept loop. Slow or silent peers cannot block it; it drains before it ends.

use std::net::SocketAddr;
use std::time::Duration;

use axum::http::HeaderMap;
use axum::middleware::from_fn_with_state;
use axum::{Extension, Router};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use resourcesync::uri::parse_uri;
use rustix::net::sockopt::set_tcp_user_timeout;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::connection_slots::{ConnectionSlots, note_request};
use super::rejection_counters::RejectionCounters;

/// How long a peer may take to send the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a peer may take none of what is sent to it.
const STALLED: Duration = Duration::from_secs(60);
/// How many connections are open at once. When there are more, idle ones are closed.
const MAX_CONNECTIONS: usize = 256;
/// How long a new connection may be without a request before it is closed for another one, or to free a file descriptor.
const GRACE: Duration = Duration::from_millis(250);
/// How long requests in progress may take once the listener stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause after `accept` failed, as it does without free file descriptors, and no connection could be closed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The pause after an idle connection was closed to free a file descriptor.
const CLOSE_PAUSE: Duration = Duration::from_millis(2);

/// Who has sent a request: an extension of each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(SocketAddr);

impl Peer {
    /// Whether a request is from this machine itself, and not passed on by a proxy on it.
    pub(crate) fn is_local(self, headers: &HeaderMap) -> bool {
        let is_passed_on = FORWARDED.iter().any(|name| headers.contains_key(*name));
        self.0.ip().to_canonical().is_loopback() && !is_passed_on
    }
}

/// What proxies add.
const FORWARDED: [&str; 4] = ["forwarded", "x-forwarded-for", "x-real-ip", "via"];

/// A bound socket that is not served yet.
#[derive(Debug)]
pub struct BoundListener {
    listener: TcpListener,
    /// The address, with the port that the system chose if port 0 was configured.
    pub address: SocketAddr,
}

impl BoundListener {
    /// Its URL, as this machine sees it.
    #[must_use]
    pub fn url(&self) -> Url {
        let url = parse_uri(&format!("http://{}/", self.address));
        url.expect("an address with a port is a part of a URL")
    }
}

/// Binds an address.
///
/// # Errors
/// The system's error, such as a port that is in use.
pub async fn bind(address: SocketAddr) -> std::io::Result<BoundListener> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    Ok(BoundListener { listener, address })
}

/// Serves until `stop` is cancelled, then completes the requests in progress. Connections that were closed while idle are counted
/// in `rejections`.
pub async fn serve(
    bound: BoundListener,
    router: Router,
    stop: CancellationToken,
    rejections: RejectionCounters,
) {
    let graceful = GracefulShutdown::new();
    let slots = ConnectionSlots::new(MAX_CONNECTIONS, GRACE);
    let mut failing = false;
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = bound.listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                if !std::mem::replace(&mut failing, true) {
                    tracing::warn!(code = "accept", %error, address = %bound.address, "accept failed; retrying");
                }
                // An idle connection frees a file descriptor as soon as its task has ended.
                let closed = slots.close_idle();
                tokio::time::sleep(if closed { CLOSE_PAUSE } else { ACCEPT_PAUSE }).await;
                continue;
            }
        };
        if std::mem::take(&mut failing) {
            tracing::info!(address = %bound.address, "accept works again");
        }
        let slot = tokio::select! {
            () = stop.cancelled() => break,
            slot = slots.acquire() => slot,
        };
        // Responses are small and written at once: there is nothing to coalesce.
        let _ = stream.set_nodelay(true);
        // Who reads nothing for that long is gone.
        let stalled = u32::try_from(STALLED.as_millis()).unwrap_or(u32::MAX);
        let _ = set_tcp_user_timeout(&stream, stalled);
        let mut http = hyper::server::conn::http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT);
        let noting = from_fn_with_state(slot.requests.clone(), note_request);
        let router = router.clone().layer(noting).layer(Extension(Peer(peer)));
        let service = TowerToHyperService::new(router);
        let connection = graceful.watch(http.serve_connection(TokioIo::new(stream), service));
        let rejections = rejections.clone();
        tokio::spawn(async move {
            tokio::select! {
                ended = connection => if let Err(error) = ended {
                    tracing::debug!(%error, "connection ended early");
                },
                () = slot.close.cancelled() => {
                    rejections.count("too-many-connections");
                    tracing::debug!("idle connection closed: too many connections");
                }
            }
        });
    }
    drop(bound);
    if tokio::time::timeout(DRAIN_TIMEOUT, graceful.shutdown())
        .await
        .is_err()
    {
        tracing::debug!("drain timeout; requests in progress were cut off");
    }
}
