//! Limits the connections of a listener. When all slots are in use, a connection without a request in progress is closed, so that
//! idle peers cannot block others: the oldest one of the address that has most connections. A connection has a moment to send
//! its request: a peer that opens thousands a second does not displace one that needs that moment.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::clock;

/// The connection slots of one listener.
#[derive(Clone)]
pub(super) struct ConnectionSlots {
    most: usize,
    /// How long a new connection is not closed for another one.
    grace: Duration,
    open: Arc<Mutex<OpenConnections>>,
    freed: Arc<Notify>,
}

#[derive(Default)]
struct OpenConnections {
    next: u64,
    by_number: BTreeMap<u64, OpenConnection>,
    /// The numbers of each peer, oldest first; some may be gone.
    by_peer: HashMap<IpAddr, Peer>,
}

/// The connections of one peer.
#[derive(Default)]
struct Peer {
    open: usize,
    numbers: VecDeque<u64>,
}

struct OpenConnection {
    peer: IpAddr,
    since: Instant,
    requests: RequestCount,
    close: CancellationToken,
}

impl OpenConnections {
    fn insert(&mut self, connection: OpenConnection) -> u64 {
        let number = self.next;
        self.next += 1;
        let peer = self.by_peer.entry(connection.peer).or_default();
        peer.open += 1;
        peer.numbers.push_back(number);
        self.by_number.insert(number, connection);
        number
    }

    fn remove(&mut self, number: u64) -> Option<OpenConnection> {
        let removed = self.by_number.remove(&number)?;
        if let Some(peer) = self.by_peer.get_mut(&removed.peer) {
            peer.open -= 1;
            // What is gone is removed from the front at once, and from within when it is most of the list.
            while peer
                .numbers
                .front()
                .is_some_and(|number| !self.by_number.contains_key(number))
            {
                peer.numbers.pop_front();
            }
            if peer.numbers.len() > 2 * peer.open + 16 {
                peer.numbers
                    .retain(|number| self.by_number.contains_key(number));
            }
            if peer.open == 0 {
                self.by_peer.remove(&removed.peer);
            }
        }
        Some(removed)
    }

    /// The connection to close: the oldest idle one of the peer that has most, if it is older than `grace`.
    fn to_close(&self, now: Instant, grace: Duration) -> Option<u64> {
        let mut peers: Vec<&Peer> = self.by_peer.values().collect();
        peers.sort_unstable_by_key(|peer| std::cmp::Reverse(peer.open));
        let is_idle = |number: &&u64| {
            self.by_number.get(number).is_some_and(|connection| {
                let is_old = now.saturating_duration_since(connection.since) >= grace;
                is_old && connection.requests.0.load(Ordering::Acquire) == 0
            })
        };
        let mut idle = peers
            .iter()
            .filter_map(|peer| peer.numbers.iter().find(is_idle));
        idle.next().copied()
    }
}

/// The address that counts as one peer: of IPv6 the network of a host (RFC 6177).
fn peer_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let network = address.to_bits() & !u128::from(u64::MAX);
            IpAddr::V6(Ipv6Addr::from_bits(network))
        }
        address => address,
    }
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
    pub(super) fn new(most: usize, grace: Duration) -> Self {
        Self {
            most,
            grace,
            open: Arc::default(),
            freed: Arc::default(),
        }
    }

    /// Acquires a slot for a peer. When none is free, an idle connection is closed; when none may be, waits for the first that
    /// becomes idle, ends, or is old enough.
    pub(super) async fn acquire(&self, address: IpAddr) -> ConnectionSlot {
        loop {
            let freed = self.freed.notified();
            if let Some(slot) = self.try_acquire(address, clock::now().mono) {
                return slot;
            }
            // Without a grace nothing changes with time.
            let pause = if self.grace.is_zero() {
                Duration::MAX
            } else {
                self.grace / 8
            };
            let _ = tokio::time::timeout(pause, freed).await;
        }
    }

    /// Closes an idle connection; `false` if none is idle, or all are new.
    pub(super) fn close_idle(&self) -> bool {
        self.close_one(&mut self.open.lock(), clock::now().mono)
    }

    fn close_one(&self, open: &mut OpenConnections, now: Instant) -> bool {
        let closed = open
            .to_close(now, self.grace)
            .and_then(|number| open.remove(number));
        if let Some(connection) = &closed {
            connection.close.cancel();
        }
        closed.is_some()
    }

    fn try_acquire(&self, address: IpAddr, now: Instant) -> Option<ConnectionSlot> {
        let mut open = self.open.lock();
        if open.by_number.len() >= self.most && !self.close_one(&mut open, now) {
            return None;
        }
        let (requests, close) = (RequestCount::default(), CancellationToken::new());
        let number = open.insert(OpenConnection {
            peer: peer_of(address),
            since: now,
            requests: requests.clone(),
            close: close.clone(),
        });
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
        self.slots.open.lock().remove(self.number);
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
    use std::net::Ipv4Addr;

    use super::*;

    const HUB: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1));
    const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 2));

    /// Whether a hub at an address can send its request 100 ms after it has connected, while another peer opens 3000
    /// connections a second. A connection that is not accepted is tried again with the next one.
    fn gets_through(slots: &ConnectionSlots, hub: IpAddr, other: IpAddr) -> bool {
        let began = clock::now().mono;
        let (mut hubs, mut others) = (None, Vec::new());
        for number in 0..6000 {
            let now = began + Duration::from_micros(333) * number;
            // When the other peer has all slots.
            if number > 3000 && hubs.is_none() {
                hubs = slots.try_acquire(hub, now).map(|slot| (slot, now));
            }
            others.extend(slots.try_acquire(other, now));
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
        for (most, grace, other, expected) in [
            (256, none, HUB, false),
            (256, none, OTHER, true),
            (256, grace, HUB, true),
            (1024, none, HUB, true),
            (1024, grace, HUB, true),
            (1024, grace, OTHER, true),
        ] {
            let slots = ConnectionSlots::new(most, grace);
            let found = gets_through(&slots, HUB, other);
            assert_eq!(found, expected, "{most} slots, {grace:?}, {other}");
        }
    }

    #[test]
    fn connections_are_counted_by_peer_until_they_end() {
        let slots = ConnectionSlots::new(100, Duration::ZERO);
        let now = clock::now().mono;
        let of = |text: &str| peer_of(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:198.51.100.1"), HUB);
        let kept = slots.try_acquire(HUB, now).unwrap();
        for _ in 0..1000 {
            drop(slots.try_acquire(HUB, now).unwrap());
            drop(slots.try_acquire(OTHER, now).unwrap());
        }
        let open = slots.open.lock();
        assert_eq!((open.by_number.len(), open.by_peer.len()), (1, 1));
        assert!(open.by_peer[&HUB].numbers.len() <= 20);
        drop(open);
        drop(kept);
        assert!(slots.open.lock().by_peer.is_empty());
    }

    #[tokio::test]
    async fn idle_connections_are_closed_for_new_ones_and_busy_ones_are_not() {
        let slots = ConnectionSlots::new(2, Duration::ZERO);
        let (first, second) = (slots.acquire(HUB).await, slots.acquire(HUB).await);
        first.requests.0.fetch_add(1, Ordering::AcqRel);
        let third = slots.acquire(HUB).await;
        assert!(!first.close.is_cancelled(), "its request is in progress");
        assert!(second.close.is_cancelled(), "it is idle");
        assert!(!third.close.is_cancelled());
    }

    #[tokio::test]
    async fn new_connection_is_not_closed_to_free_a_file_descriptor() {
        for (grace, expected) in [(Duration::ZERO, true), (Duration::from_secs(3600), false)] {
            let slots = ConnectionSlots::new(2, grace);
            let slot = slots.acquire(HUB).await;
            assert_eq!(slots.close_idle(), expected, "{grace:?}");
            assert_eq!(slot.close.is_cancelled(), expected, "{grace:?}");
        }
    }

    #[tokio::test]
    async fn next_connection_waits_while_all_are_busy() {
        let slots = ConnectionSlots::new(1, Duration::ZERO);
        let first = slots.acquire(HUB).await;
        first.requests.0.fetch_add(1, Ordering::AcqRel);
        let waiting = tokio::spawn({
            let slots = slots.clone();
            async move { slots.acquire(HUB).await }
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
        let slots = ConnectionSlots::new(1, Duration::ZERO);
        drop(slots.acquire(HUB).await);
        let second = slots.acquire(HUB).await;
        assert!(!second.close.is_cancelled());
        assert_eq!(slots.open.lock().by_number.len(), 1);
    }
}
