//! Limits the connections of a listener. When all slots are in use, the oldest connection without a request in progress is
//! closed, so that idle peers cannot block others.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// The connection slots of one listener.
#[derive(Clone)]
pub(super) struct ConnectionSlots {
    most: usize,
    open: Arc<Mutex<OpenConnections>>,
    freed: Arc<Notify>,
}

#[derive(Default)]
struct OpenConnections {
    next: u64,
    /// By number, so the oldest comes first.
    by_number: BTreeMap<u64, OpenConnection>,
}

struct OpenConnection {
    requests: RequestCount,
    close: CancellationToken,
}

/// The requests in progress on one connection: head received, response not sent completely.
#[derive(Clone, Default)]
pub(super) struct RequestCount(Arc<AtomicUsize>);

/// The slot of one connection; dropping it frees the slot.
pub(super) struct ConnectionSlot {
    number: u64,
    slots: ConnectionSlots,
    /// The connection's requests in progress.
    pub(super) requests: RequestCount,
    /// Cancelled when the connection has to close.
    pub(super) close: CancellationToken,
}

impl ConnectionSlots {
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            open: Arc::default(),
            freed: Arc::default(),
        }
    }

    /// Acquires a slot. When none is free, the oldest idle connection is closed; when none is idle, waits for the first that
    /// becomes idle or ends.
    pub(super) async fn acquire(&self) -> ConnectionSlot {
        loop {
            let freed = self.freed.notified();
            if let Some(slot) = self.try_acquire() {
                return slot;
            }
            freed.await;
        }
    }

    /// Closes the oldest idle connection; `false` if none is idle.
    pub(super) fn close_idle(&self) -> bool {
        let mut open = self.open.lock();
        let idle = open
            .by_number
            .iter()
            .find(|(_, connection)| connection.requests.0.load(Ordering::Acquire) == 0);
        let Some((&number, _)) = idle else {
            return false;
        };
        if let Some(connection) = open.by_number.remove(&number) {
            connection.close.cancel();
        }
        true
    }

    fn try_acquire(&self) -> Option<ConnectionSlot> {
        if self.open.lock().by_number.len() >= self.most && !self.close_idle() {
            return None;
        }
        let mut open = self.open.lock();
        let number = open.next;
        open.next += 1;
        let (requests, close) = (RequestCount::default(), CancellationToken::new());
        let connection = OpenConnection {
            requests: requests.clone(),
            close: close.clone(),
        };
        open.by_number.insert(number, connection);
        Some(ConnectionSlot {
            number,
            slots: self.clone(),
            requests,
            close,
        })
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.slots.open.lock().by_number.remove(&self.number);
        self.slots.freed.notify_one();
    }
}

/// Middleware: counts a request from its head to the last byte of its response.
pub(super) async fn count_request(
    State((requests, slots)): State<(RequestCount, ConnectionSlots)>,
    request: Request,
    next: Next,
) -> Response {
    requests.0.fetch_add(1, Ordering::AcqRel);
    let guard = RequestGuard {
        requests,
        freed: slots.freed,
    };
    let response = next.run(request).await;
    response.map(|body| {
        Body::new(CountedBody {
            body,
            _guard: guard,
        })
    })
}

/// A request in progress; dropping it ends the count.
struct RequestGuard {
    requests: RequestCount,
    freed: Arc<Notify>,
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.requests.0.fetch_sub(1, Ordering::AcqRel);
        // Its connection may be idle now.
        self.freed.notify_one();
    }
}

/// The body of a response; the request is in progress until the body is sent or dropped.
struct CountedBody {
    body: Body,
    _guard: RequestGuard,
}

impl hyper::body::Body for CountedBody {
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
    async fn idle_connections_are_closed_for_new_ones_and_busy_ones_are_not() {
        let slots = ConnectionSlots::new(2);
        let (first, second) = (slots.acquire().await, slots.acquire().await);
        first.requests.0.fetch_add(1, Ordering::AcqRel);
        let third = slots.acquire().await;
        assert!(!first.close.is_cancelled(), "its request is in progress");
        assert!(second.close.is_cancelled(), "it is idle");
        assert!(!third.close.is_cancelled());
    }

    #[tokio::test]
    async fn next_connection_waits_while_all_are_busy() {
        let slots = ConnectionSlots::new(1);
        let first = slots.acquire().await;
        first.requests.0.fetch_add(1, Ordering::AcqRel);
        let waiting = tokio::spawn({
            let slots = slots.clone();
            async move { slots.acquire().await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(RequestGuard {
            requests: first.requests.clone(),
            freed: Arc::clone(&slots.freed),
        });
        let next = waiting.await.unwrap();
        assert!(first.close.is_cancelled());
        assert!(!next.close.is_cancelled());
    }

    #[tokio::test]
    async fn slots_are_freed_when_connections_end() {
        let slots = ConnectionSlots::new(1);
        drop(slots.acquire().await);
        let second = slots.acquire().await;
        assert!(!second.close.is_cancelled());
        assert_eq!(slots.open.lock().by_number.len(), 1);
    }
}
