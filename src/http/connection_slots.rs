//! Who is being served, and who makes way: peers that have asked for nothing yet hold up nobody.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// The connections of a listener, so many at once and no more.
#[derive(Clone)]
pub(super) struct ConnectionSlots {
    most: usize,
    taken: Arc<Mutex<Taken>>,
    freed: Arc<Notify>,
}

#[derive(Default)]
struct Taken {
    next: u64,
    /// By number: the longest connected comes first.
    peers: BTreeMap<u64, Peer>,
}

struct Peer {
    requests: Requests,
    leave: CancellationToken,
}

/// The requests of one connection whose head has come and whose answer has not gone out whole.
#[derive(Clone, Default)]
pub(super) struct Requests(Arc<AtomicUsize>);

/// A connection's place; it is free again when this is dropped.
pub(super) struct ConnectionSlot {
    number: u64,
    places: ConnectionSlots,
    /// For the connection's requests.
    pub(super) requests: Requests,
    /// Given to a connection that is to make way.
    pub(super) leave: CancellationToken,
}

impl ConnectionSlots {
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            taken: Arc::default(),
            freed: Arc::default(),
        }
    }

    /// Takes a place. When all are taken, the longest connected peer that asks for nothing makes way; when all of them are
    /// being answered, waits for the first that is done.
    pub(super) async fn take(&self) -> ConnectionSlot {
        loop {
            let freed = self.freed.notified();
            if let Some(place) = self.try_take() {
                return place;
            }
            freed.await;
        }
    }

    /// Makes the longest connected peer that asks for nothing go; `false` if there is none.
    pub(super) fn make_room(&self) -> bool {
        let mut taken = self.lock();
        let idle = taken
            .peers
            .iter()
            .find(|(_, peer)| peer.requests.0.load(Ordering::Acquire) == 0);
        let Some((&number, _)) = idle else {
            return false;
        };
        if let Some(peer) = taken.peers.remove(&number) {
            peer.leave.cancel();
        }
        true
    }

    fn try_take(&self) -> Option<ConnectionSlot> {
        if self.lock().peers.len() >= self.most && !self.make_room() {
            return None;
        }
        let mut taken = self.lock();
        let number = taken.next;
        taken.next += 1;
        let (requests, leave) = (Requests::default(), CancellationToken::new());
        let peer = Peer {
            requests: requests.clone(),
            leave: leave.clone(),
        };
        taken.peers.insert(number, peer);
        Some(ConnectionSlot {
            number,
            places: self.clone(),
            requests,
            leave,
        })
    }

    /// Each change is made in one step, so that one who panicked has left nothing half done.
    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.places.lock().peers.remove(&self.number);
        self.places.freed.notify_one();
    }
}

/// Counts a request from its head to the last byte of its answer.
pub(super) async fn count(
    State((requests, places)): State<(Requests, ConnectionSlots)>,
    request: Request,
    next: Next,
) -> Response {
    requests.0.fetch_add(1, Ordering::AcqRel);
    let answering = Answering {
        requests,
        freed: places.freed,
    };
    let response = next.run(request).await;
    response.map(|body| {
        Body::new(Counted {
            body,
            _answering: answering,
        })
    })
}

/// A request that is being answered.
struct Answering {
    requests: Requests,
    freed: Arc<Notify>,
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.requests.0.fetch_sub(1, Ordering::AcqRel);
        // Its connection may make way now.
        self.freed.notify_one();
    }
}

/// The body of an answer.
struct Counted {
    body: Body,
    _answering: Answering,
}

impl hyper::body::Body for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn idle_peers_make_way_and_busy_ones_do_not() {
        let places = ConnectionSlots::new(2);
        let (first, second) = (places.take().await, places.take().await);
        first.requests.0.fetch_add(1, Ordering::AcqRel);
        let third = places.take().await;
        assert!(!first.leave.is_cancelled(), "it is being answered");
        assert!(second.leave.is_cancelled(), "it has asked for nothing");
        assert!(!third.leave.is_cancelled());
    }

    #[tokio::test]
    async fn when_all_are_busy_the_next_waits_for_the_first_that_is_done() {
        let places = ConnectionSlots::new(1);
        let first = places.take().await;
        first.requests.0.fetch_add(1, Ordering::AcqRel);
        let waiting = tokio::spawn({
            let places = places.clone();
            async move { places.take().await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(Answering {
            requests: first.requests.clone(),
            freed: Arc::clone(&places.freed),
        });
        let next = waiting.await.unwrap();
        assert!(first.leave.is_cancelled());
        assert!(!next.leave.is_cancelled());
    }

    #[tokio::test]
    async fn places_are_free_again_when_connections_end() {
        let places = ConnectionSlots::new(1);
        drop(places.take().await);
        let second = places.take().await;
        assert!(!second.leave.is_cancelled());
        assert_eq!(places.lock().peers.len(), 1);
    }
}
