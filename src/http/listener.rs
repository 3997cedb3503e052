//! An accept loop that a slow or silent peer can't hold up, and that drains before it ends.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::middleware::from_fn_with_state;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::connection_slots::{ConnectionSlots, count};
use super::rejection_counters::RejectionCounters;

/// How long a peer may take to send its request's head.
const HEAD_TIME: Duration = Duration::from_secs(5);
/// How many peers are served at once. When there are more, those that ask for nothing make way.
const CONNECTIONS: usize = 256;
/// How long requests under way may go on once the listener is told to stop.
const DRAIN_TIME: Duration = Duration::from_secs(5);
/// The pause after the system refused to accept, as it does when it is out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The pause after a connection was ended to make room.
const ROOM_PAUSE: Duration = Duration::from_millis(2);

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

/// Serves until told to stop, and then until the requests under way are answered. `tally`: where peers are counted that had to
/// make way.
pub async fn serve(
    bound: Bound,
    router: Router,
    stop: CancellationToken,
    tally: RejectionCounters,
) {
    let graceful = GracefulShutdown::new();
    let places = ConnectionSlots::new(CONNECTIONS);
    let mut refused = false;
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = bound.listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                if !std::mem::replace(&mut refused, true) {
                    tracing::warn!(code = "accept", %error, address = %bound.address, "connections can't be accepted for now");
                }
                // Whoever asks for nothing gives back a file descriptor, as soon as its task has ended.
                let made_room = places.make_room();
                tokio::time::sleep(if made_room { ROOM_PAUSE } else { ACCEPT_PAUSE }).await;
                continue;
            }
        };
        if std::mem::take(&mut refused) {
            tracing::info!(address = %bound.address, "connections are accepted again");
        }
        let place = tokio::select! {
            () = stop.cancelled() => break,
            place = places.take() => place,
        };
        // Answers are small and whole: there is nothing to wait for.
        let _ = stream.set_nodelay(true);
        let mut http = hyper::server::conn::http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME);
        let counting = from_fn_with_state((place.requests.clone(), places.clone()), count);
        let service = TowerToHyperService::new(router.clone().layer(counting));
        let connection = graceful.watch(http.serve_connection(TokioIo::new(stream), service));
        let tally = tally.clone();
        tokio::spawn(async move {
            tokio::select! {
                ended = connection => if let Err(error) = ended {
                    tracing::debug!(%error, "a connection ended early");
                },
                () = place.leave.cancelled() => {
                    tally.count("too-many-connections");
                    tracing::debug!("an idle connection made way");
                }
            }
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
