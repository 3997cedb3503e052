//! An accept loop that a slow or silent peer can't hold up, and that drains before it ends.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// How long a peer may take to send its request's head.
const HEAD_TIME: Duration = Duration::from_secs(5);
/// How many peers are served at once; more wait to be accepted.
const CONNECTIONS: usize = 256;
/// How long requests under way may go on once the listener is told to stop.
const DRAIN_TIME: Duration = Duration::from_secs(5);
/// The pause after the system refused to accept, as it does when it is out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// An address that is being listened on.
#[derive(Debug)]
pub struct Bound {
    listener: TcpListener,
    /// The address, with the port that was given where none was asked for.
    pub address: SocketAddr,
}

/// Binds an address.
///
/// # Errors
/// What the system says, as when the port is taken.
pub async fn bind(address: SocketAddr) -> std::io::Result<Bound> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    Ok(Bound { listener, address })
}

/// Serves until told to stop, and then until the requests under way are answered.
pub async fn serve(bound: Bound, router: Router, stop: CancellationToken) {
    let graceful = GracefulShutdown::new();
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let place = tokio::select! {
            () = stop.cancelled() => break,
            place = Arc::clone(&places).acquire_owned() => place.expect("the semaphore is never closed"),
        };
        let stream = tokio::select! {
            () = stop.cancelled() => break,
            accepted = bound.listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(code = "accept", %error, address = %bound.address, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            },
        };
        // Answers are small and whole: there is nothing to wait for.
        let _ = stream.set_nodelay(true);
        let mut http = hyper::server::conn::http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME);
        let service = TowerToHyperService::new(router.clone());
        let connection = graceful.watch(http.serve_connection(TokioIo::new(stream), service));
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection ended early");
            }
            drop(place);
        });
    }
    drop(bound);
    if tokio::time::timeout(DRAIN_TIME, graceful.shutdown())
        .await
        .is_err()
    {
        tracing::debug!("requests that took too long were cut off");
    }
}
