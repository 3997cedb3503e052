//! Limits the connections of a listener. When all slots are in use, the oldest connection without a request in progress is closed, so that
//! idle peers cannot block others. A connection has a moment to send its request: a peer that opens thousands a second does not displace
//! one that needs that moment. Addresses are not compared: behind a reverse proxy all peers have one.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http_body_util::BodyExt;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::clock;

/// How long a connection waits before a slot is looked for again.
const PAUSE: Duration = Duration::from_millis(30);

/// The connection slots of one listener.
#[derive(Clone)]
pub(super) struct ConnectionSlots {
    most: usize,
    /// How long a new connection is not closed for another one.
    grace: Duration,
    open: Arc<Mutex<OpenConnections>>,
}

#[derive(Default)]
struct OpenConnections {
    next: u64,
    /// Oldest first.
    by_number: BTreeMap<u64, OpenConnection>,
}

struct OpenConnection {
    since: Instant,
    /// Each request in progress holds it: head received, response not sent completely.
    requests: Arc<()>,
    close: CancellationToken,
}

/// The slot of one connection; dropping it frees the slot.
pub(super) struct ConnectionSlot {
    number: u64,
    slots: ConnectionSlots,
    /// What the connection's requests in progress hold.
    pub(super) requests: Weak<()>,
    /// Cancelled when the connection has to close.
    pub(super) close: CancellationToken,
}

impl ConnectionSlots {
    pub(super) fn new(most: usize, grace: Duration) -> Self {
        Self {
            most,
            grace,
            open: Arc::default(),
        }
    }

    /// Acquires a slot. When none is free, an idle connection is closed; when none may be, waits for the first that
    /// becomes idle, ends, or is old enough.
    pub(super) async fn acquire(&self) -> ConnectionSlot {
        loop {
            if let Some(slot) = self.try_acquire(clock::now().mono) {
                return slot;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Closes an idle connection; `false` if none is idle, or all are new.
    pub(super) fn close_idle(&self) -> bool {
        self.close_one(&mut self.open.lock(), clock::now().mono)
    }

    /// Closes the oldest idle connection, if it is older than the grace.
    fn close_one(&self, open: &mut OpenConnections, now: Instant) -> bool {
        let is_old = |connection: &OpenConnection| {
            now.saturating_duration_since(connection.since) >= self.grace
        };
        let mut old = open.by_number.iter().take_while(|(_, it)| is_old(it));
        let idle = old.find(|(_, it)| Arc::strong_count(&it.requests) == 1);
        let number = idle.map(|(&number, _)| number);
        let closed = number.and_then(|number| open.by_number.remove(&number));
        if let Some(connection) = &closed {
            connection.close.cancel();
        }
        closed.is_some()
    }

    fn try_acquire(&self, now: Instant) -> Option<ConnectionSlot> {
        let mut open = self.open.lock();
        if open.by_number.len() >= self.most && !self.close_one(&mut open, now) {
            return None;
        }
        let (requests, close) = (Arc::new(()), CancellationToken::new());
        let number = open.next;
        open.next += 1;
        let slot = ConnectionSlot {
            number,
            slots: self.clone(),
            requests: Arc::downgrade(&requests),
            close: close.clone(),
        };
        let connection = OpenConnection {
            since: now,
            requests,
            close,
        };
        open.by_number.insert(number, connection);
        Some(slot)
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.slots.open.lock().by_number.remove(&self.number);
    }
}

/// Middleware: a request is in progress from its head to the last byte of its response.
pub(super) async fn note_request(
    State(requests): State<Weak<()>>,
    request: Request,
    next: Next,
) -> Response {
    // Held until the body is sent or dropped, and so is what its errors are mapped by.
    let held = requests.upgrade();
    let in_progress = move |error| {
        let _held = &held;
        error
    };
    let response = next.run(request).await;
    response.map(|body| Body::new(body.map_err(in_progress)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a hub can send its request 100 ms after it has connected, while another peer opens 3000
    /// connections a second. A connection that is not accepted is tried again with the next one.
    fn gets_through(slots: &ConnectionSlots) -> bool {
        let began = clock::now().mono;
        let (mut hubs, mut others) = (None, Vec::new());
        for number in 0..6000 {
            let now = began + Duration::from_micros(333) * number;
            // When the other peer has all slots.
            if number > 3000 && hubs.is_none() {
                hubs = slots.try_acquire(now).map(|slot| (slot, now));
            }
            others.extend(slots.try_acquire(now));
            others.retain(|slot| !slot.close.is_cancelled());
            if let Some((slot, since)) = &hubs {
                if slot.close.is_cancelled() {
                    return false;
                }
                if now - *since >= Duration::from_millis(100) {
                    return true;
                }
            }
        }
        false
    }

    #[test]
    fn churn_does_not_keep_out_a_peer_that_needs_a_moment() {
        let (none, grace) = (Duration::ZERO, Duration::from_millis(250));
        for (most, grace, expected) in [
            (256, none, false),
            (256, grace, true),
            (1024, none, true),
            (1024, grace, true),
        ] {
            let slots = ConnectionSlots::new(most, grace);
            assert_eq!(gets_through(&slots), expected, "{most} slots, {grace:?}");
        }
    }

    #[tokio::test]
    async fn idle_connections_are_closed_for_new_ones_and_busy_ones_are_not() {
        let slots = ConnectionSlots::new(2, Duration::ZERO);
        let (first, second) = (slots.acquire().await, slots.acquire().await);
        let _request = first.requests.upgrade();
        let third = slots.acquire().await;
        assert!(!first.close.is_cancelled(), "its request is in progress");
        assert!(second.close.is_cancelled(), "it is idle");
        assert!(!third.close.is_cancelled());
    }

    #[tokio::test]
    async fn new_connection_is_not_closed_to_free_a_file_descriptor() {
        for (grace, expected) in [(Duration::ZERO, true), (Duration::from_secs(3600), false)] {
            let slots = ConnectionSlots::new(2, grace);
            let slot = slots.acquire().await;
            assert_eq!(slots.close_idle(), expected, "{grace:?}");
            assert_eq!(slot.close.is_cancelled(), expected, "{grace:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn next_connection_waits_while_all_are_busy() {
        let slots = ConnectionSlots::new(1, Duration::ZERO);
        let first = slots.acquire().await;
        let request = first.requests.upgrade();
        let waiting = tokio::spawn({
            let slots = slots.clone();
            async move { slots.acquire().await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(request);
        let next = waiting.await.unwrap();
        assert!(first.close.is_cancelled());
        assert!(!next.close.is_cancelled());
    }

    #[tokio::test]
    async fn slots_are_freed_when_connections_end() {
        let slots = ConnectionSlots::new(1, Duration::ZERO);
        drop(slots.acquire().await);
        let second = slots.acquire().await;
        assert!(!second.close.is_cancelled());
        assert_eq!(slots.open.lock().by_number.len(), 1);
    }
}
