//! Limits the number of concurrent requests per host: the only place that decides it.
//!
//! - A host is an origin: scheme, name and port. Each of its pools is a semaphore, so pools do not delay each other.
//! - Requests for resources over HTTP/1.1 need a connection each: at most `connections_per_host`. HTTP/2 has all of them on one
//!   connection: their number begins there too, and grows up to `streams_per_host` while it is used.
//! - An overload (429, 503, no connection, or many refusals in a row) halves the number. Requests that were started before it change
//!   nothing: a burst of answers 429 is one overload. Afterwards each round of requests that complete raises the number by one.
//! - A time-out or a broken connection may be the fault of one resource: it halves only what exceeds `connections_per_host`.
//! - An overload is followed by the pause that `Retry-After` states, up to ten seconds, and by a second where one request at once is too
//!   many.
//! - The first request for a resource over TLS to a host of which no answer is known goes alone, for a moment: if the host speaks
//!   HTTP/2, the others share one connection instead of opening one each.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use parking_lot::Mutex;
use reqwest::{StatusCode, Version};
use resourcesync::uri::has_userinfo;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use url::{Position, Url};

use super::FetchError;
use crate::Clock;

/// How long the first request goes alone. A resource that takes long must not delay the others.
const ALONE: Duration = Duration::from_secs(1);
/// The pause before a request for a resource to a host for which one at once is too many.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest `Retry-After` for which a host is paused: it is remote input, and may be that of one resource.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// From how many refusals in a row on each is an overload: as many as there are requests at once by default.
const REFUSALS: usize = 8;
/// Refusals that are farther apart are not in a row: a resource that is refused is requested again and again.
const REFUSALS_WITHIN: Duration = Duration::from_secs(60);
/// How many hosts are remembered: they are remote input.
const MOST_HOSTS: usize = 1024;

/// The pool of a permit: downloads of content must not delay documents and hubs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pool {
    /// Documents, and requests to hubs.
    Documents,
    /// Resources.
    Content,
    /// Packages: they take long, so that only one at a time is downloaded, without delaying others.
    Packages,
    /// Requests that open a WebSocket. How the host copes with requests does not show in them.
    Sockets,
}

impl Pool {
    const ALL: [Self; 4] = [
        Self::Documents,
        Self::Content,
        Self::Packages,
        Self::Sockets,
    ];

    /// Its name in the metrics.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Documents => "documents",
            Self::Content => "content",
            Self::Packages => "packages",
            Self::Sockets => "sockets",
        }
    }
}

/// Why a host gets fewer requests at once than it may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slowed {
    /// The stable code of the error.
    pub code: &'static str,
    /// The error.
    pub message: String,
    /// When it last occurred.
    pub at: DateTime<Utc>,
}

/// What is known of a host that was contacted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostLoad {
    /// Its scheme, name and port, as an origin.
    pub origin: String,
    /// `HTTP/1.1` or `HTTP/2`; `None` before its first answer.
    pub protocol: Option<&'static str>,
    /// How many requests are in progress, of all kinds.
    pub in_progress: usize,
    /// How many requests for resources it gets at once.
    pub at_once: usize,
    /// How many it may get.
    pub most: usize,
    /// Why it gets fewer.
    pub slowed: Option<Slowed>,
}

/// The permits for concurrent requests, per host and pool.
pub(super) struct Permits {
    /// `connections_per_host`, at least 1.
    connections: usize,
    /// `streams_per_host`, at least 1.
    streams: usize,
    clock: Clock,
    hosts: Mutex<HashMap<String, Arc<Host>>>,
}

impl Permits {
    pub(super) fn new(connections: usize, streams: usize, clock: Clock) -> Self {
        Self {
            connections: connections.max(1),
            streams: streams.max(1),
            clock,
            hosts: Mutex::default(),
        }
    }

    /// The same limits, with nothing known of any host.
    pub(super) fn anew(&self) -> Self {
        Self::new(self.connections, self.streams, self.clock)
    }

    /// Waits until a request to the host of the URL may start. It counts until the permit is dropped.
    pub(super) async fn acquire(&self, pool: Pool, url: &Url) -> Permit {
        const OPEN: &str = "the semaphores of a host are never closed";
        let host = self.host(url);
        let places = Arc::clone(&host.places[pool as usize]);
        let mut acquiring = std::pin::pin!(places.acquire_owned());
        let may_be_alone = pool == Pool::Content && host.state.lock().is_first_alone;
        let place = if may_be_alone
            && let Ok(place) = tokio::time::timeout(ALONE, acquiring.as_mut()).await
        {
            place
        } else {
            if may_be_alone {
                host.change(|state| state.is_first_alone = false);
            }
            acquiring.await
        };
        let mut permit = Permit {
            host,
            pool,
            place: Some(place.expect(OPEN)),
            epoch: 0,
            answers: 0,
            progress: RequestProgress::Sent,
        };
        if pool == Pool::Content {
            let now = (self.clock)().mono;
            let until = permit.host.state.lock().paused_until.unwrap_or(now);
            let pause = until.saturating_duration_since(now);
            // A pause without length would take as long as the clock of the timer needs.
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
        }
        let state = permit.host.state.lock();
        let begun = (state.epoch, state.answers);
        drop(state);
        (permit.epoch, permit.answers) = begun;
        permit
    }

    /// How many requests for resources the host of the URL gets at once.
    pub(super) fn at_once(&self, url: &Url) -> usize {
        let hosts = self.hosts.lock();
        let host = hosts.get(&*origin(url));
        host.map_or(self.connections, |host| host.state.lock().at_once)
    }

    /// Whether the host of the URL is slowed down.
    pub(super) fn is_slowed_down(&self, url: &Url) -> bool {
        let hosts = self.hosts.lock();
        let host = hosts.get(&*origin(url));
        host.is_some_and(|host| host.state.lock().slowed.is_some())
    }

    /// What is known of these hosts, those that are slowed down or busy first.
    pub(super) fn loads(&self) -> Vec<HostLoad> {
        let hosts = self.hosts.lock();
        let mut loads: Vec<HostLoad> = hosts.iter().map(|(key, host)| host.load(key)).collect();
        drop(hosts);
        loads.sort_by(|one, other| {
            let order = |load: &HostLoad| (load.slowed.is_none(), load.in_progress == 0);
            let order = order(one).cmp(&order(other));
            order.then_with(|| one.origin.cmp(&other.origin))
        });
        loads
    }

    fn host(&self, url: &Url) -> Arc<Host> {
        let mut hosts = self.hosts.lock();
        // Unused hosts are removed.
        if hosts.len() >= MOST_HOSTS {
            hosts.retain(|_, host| Arc::strong_count(host) > 1);
        }
        let origin = origin(url);
        if let Some(host) = hosts.get(&*origin) {
            return Arc::clone(host);
        }
        let host = Arc::new(Host::new(self, url.scheme() == "https"));
        hosts.insert(origin.into_owned(), Arc::clone(&host));
        host
    }
}

/// The origin of a URL (RFC 6454, section 6.2): of most it is a part of their own text.
fn origin(url: &Url) -> Cow<'_, str> {
    if has_userinfo(url) {
        Cow::Owned(url.origin().ascii_serialization())
    } else {
        Cow::Borrowed(&url[..Position::AfterPort])
    }
}

/// One host.
struct Host {
    /// Of each pool.
    places: [Arc<Semaphore>; Pool::ALL.len()],
    clock: Clock,
    state: Mutex<HostState>,
}

#[derive(Default)]
struct HostState {
    connections: usize,
    streams: usize,
    /// How many permits the places of each pool are. Only those for resources become more and fewer.
    capacities: [usize; Pool::ALL.len()],
    /// Whether requests for resources wait for the answer to the first one.
    is_first_alone: bool,
    /// Whether the last answer was one over HTTP/2; `None` if the next connection shows it.
    is_http2: Option<bool>,
    /// How many answers there have been.
    answers: u64,
    /// How many requests for resources there may be at once.
    at_once: usize,
    /// The number of overloads: a request counts only if there was none since it was started.
    epoch: u64,
    /// How many requests have completed since `at_once` last changed.
    completed: usize,
    /// How many requests for resources were refused in a row, and when the last one was.
    refusals: usize,
    refused_at: Option<Instant>,
    /// When the pause after the last overload ends.
    paused_until: Option<Instant>,
    slowed: Option<Slowed>,
}

impl Host {
    /// Only over TLS does a host choose a version.
    fn new(limits: &Permits, is_https: bool) -> Self {
        let connections = limits.connections;
        let content = if is_https { 1 } else { connections };
        let capacities = Pool::ALL.map(|pool| match pool {
            Pool::Documents | Pool::Sockets => connections,
            Pool::Content => content,
            Pool::Packages => 1,
        });
        Self {
            places: capacities.map(|places| Arc::new(Semaphore::new(places))),
            clock: limits.clock,
            state: Mutex::new(HostState {
                connections,
                streams: limits.streams,
                capacities,
                is_first_alone: is_https,
                at_once: connections,
                ..HostState::default()
            }),
        }
    }

    /// Changes the state, and how many places there are for resources. Places that are in use disappear when they are left.
    fn change(&self, change: impl FnOnce(&mut HostState)) {
        let mut state = self.state.lock();
        change(&mut state);
        let wanted = state.places_for_resources();
        let places = &self.places[Pool::Content as usize];
        let capacity = &mut state.capacities[Pool::Content as usize];
        places.add_permits(wanted.saturating_sub(*capacity));
        *capacity = wanted.max(*capacity);
        *capacity -= places.forget_permits(*capacity - wanted);
    }

    /// How many requests of a pool are in progress.
    fn in_progress(&self, state: &HostState, pool: Pool) -> usize {
        let free = self.places[pool as usize].available_permits();
        state.capacities[pool as usize].saturating_sub(free)
    }

    fn load(&self, origin: &str) -> HostLoad {
        let state = self.state.lock();
        let protocol = |is_http2| if is_http2 { "HTTP/2" } else { "HTTP/1.1" };
        let in_progress = |pool| self.in_progress(&state, pool);
        HostLoad {
            origin: origin.to_owned(),
            protocol: state.is_http2.map(protocol),
            in_progress: Pool::ALL.into_iter().map(in_progress).sum(),
            at_once: state.at_once,
            most: state.most(),
            slowed: state.slowed.clone(),
        }
    }
}

impl HostState {
    /// How many requests for resources there may be when nothing slows them down.
    fn most(&self) -> usize {
        match self.is_http2 {
            Some(true) => self.streams,
            Some(false) | None => self.connections,
        }
    }

    fn places_for_resources(&self) -> usize {
        if self.is_first_alone { 1 } else { self.at_once }
    }

    /// A request for a resource was refused. Whether that is an overload.
    fn note_refusal(&mut self, now: Instant) -> bool {
        let before = self.refused_at.replace(now);
        if before.is_some_and(|before| now.saturating_duration_since(before) > REFUSALS_WITHIN) {
            self.refusals = 0;
        }
        self.refusals = self.refusals.saturating_add(1);
        self.refusals >= REFUSALS
    }

    /// A request of this epoch has ended in order, while so many for resources were in progress.
    fn note_completion(&mut self, epoch: u64, in_progress: usize) {
        if epoch != self.epoch {
            return;
        }
        // A number that is not used is not known to be too high or too low, and delays nothing.
        let is_used = self.at_once < self.connections || in_progress * 2 >= self.at_once;
        if self.at_once >= self.most() || !is_used {
            self.slowed = None;
            return;
        }
        self.completed += 1;
        let needed = if self.epoch == 0 { 1 } else { self.at_once };
        if self.completed >= needed {
            self.at_once += 1;
            self.completed = 0;
        }
    }
}

/// How far a request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestProgress {
    Sent,
    Answered,
    /// It has failed, or its answer was a refusal.
    Failed,
}

/// The permission for one request.
pub(super) struct Permit {
    host: Arc<Host>,
    pool: Pool,
    /// `None` only while it is dropped.
    place: Option<OwnedSemaphorePermit>,
    /// The epoch of the host, and how many answers there were, when the request was started.
    epoch: u64,
    answers: u64,
    progress: RequestProgress,
}

impl Permit {
    /// Whether the request is for a resource, of a host whose last answer was one over HTTP/2.
    pub(super) fn is_for_http2(&self) -> bool {
        self.pool == Pool::Content && self.host.state.lock().is_http2 == Some(true)
    }

    /// Reports the head of the answer, with the pause that it asks for.
    pub(super) fn answered(
        &mut self,
        version: Version,
        status: StatusCode,
        retry_after: Option<Duration>,
    ) {
        if self.pool == Pool::Sockets {
            return;
        }
        let is_busy = matches!(status.as_u16(), 429 | 503);
        let is_content = self.pool == Pool::Content;
        let may_be_of_resource = matches!(status.as_u16(), 401 | 403) || status.is_server_error();
        let is_refused = is_content && may_be_of_resource && !is_busy;
        self.progress = if is_busy || is_refused {
            RequestProgress::Failed
        } else {
            RequestProgress::Answered
        };
        self.host.change(|state| {
            state.is_first_alone = false;
            state.answers += 1;
            state.is_http2 = Some(version == Version::HTTP_2);
            state.at_once = state.at_once.min(state.most());
            let is_overload = if is_refused {
                state.note_refusal((self.host.clock)().mono)
            } else {
                if is_content && !is_busy {
                    state.refusals = 0;
                }
                is_busy
            };
            if is_overload {
                let error = FetchError::Status {
                    status: status.as_u16(),
                    retry_after: retry_after.filter(|_| is_busy),
                };
                self.note_overload(state, &error, true);
            }
        });
    }

    /// Reports why there is no answer, or no further bytes of it.
    pub(super) fn failed(&mut self, error: &FetchError) {
        if self.pool == Pool::Sockets {
            return;
        }
        // A server that does not know HTTP/2, as another one behind the same balancer, may also wait for the rest of a request.
        let may_have_no_connection = self.pool == Pool::Content
            && self.progress == RequestProgress::Sent
            && matches!(
                error,
                FetchError::Connect(_)
                    | FetchError::Tls(_)
                    | FetchError::Io(_)
                    | FetchError::Timeout
            );
        self.progress = RequestProgress::Failed;
        self.host.change(|state| {
            match error {
                FetchError::Connect(_) => self.note_overload(state, error, true),
                // The server has ended the connection (GOAWAY) or the stream of the request, or it does not answer in time: too many
                // requests may have waited for a place on the connection.
                FetchError::CutShort
                | FetchError::Io(_)
                | FetchError::Timeout
                | FetchError::TooSlow { .. } => self.note_overload(state, error, false),
                _ => {}
            }
            if may_have_no_connection && state.answers == self.answers {
                // The host may speak another version now: the next connection shows it.
                state.is_http2 = None;
                state.at_once = state.at_once.min(state.most());
            }
        });
    }

    /// The request has met an overload. Unless that `is_certain`, it takes back no more than what exceeds the connections. What was
    /// started before the last overload does not count.
    fn note_overload(&self, state: &mut HostState, error: &FetchError, is_certain: bool) {
        let has_excess = is_certain || state.at_once > state.connections;
        if self.epoch != state.epoch || !has_excess {
            return;
        }
        // A number that was not used is no measure, but `connections_per_host` always is one.
        let in_progress = self.host.in_progress(state, Pool::Content);
        let used = state.at_once.min(in_progress.max(state.connections));
        let least = if is_certain { 1 } else { state.connections };
        state.at_once = (used / 2).max(least);
        state.epoch += 1;
        state.completed = 0;
        let now = (self.host.clock)();
        state.slowed = Some(Slowed {
            code: error.code(),
            message: error.to_string(),
            at: now.wall,
        });
        if is_certain {
            let is_least = state.at_once == 1;
            let own = if is_least { PAUSE } else { Duration::ZERO };
            let asked = error.retry_after().unwrap_or_default();
            state.paused_until = Some(now.mono + own.max(asked.min(LONGEST_PAUSE)));
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let place = self.place.take();
        self.host.change(|state| {
            if self.progress == RequestProgress::Answered {
                let in_progress = self.host.in_progress(state, Pool::Content);
                state.note_completion(self.epoch, in_progress);
            }
            // A place that is left goes to who has waited longest, unless there are too many places.
            let wanted = state.places_for_resources();
            let capacity = &mut state.capacities[Pool::Content as usize];
            if self.pool == Pool::Content && *capacity > wanted {
                *capacity -= 1;
                place.into_iter().for_each(OwnedSemaphorePermit::forget);
            } else {
                drop(place);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::poll;
    use resyncd_core::Now;

    use super::*;
    use crate::test_site;

    impl Permits {
        /// The requests of a pool that are in progress, of all hosts together.
        pub(crate) fn in_progress(&self, pool: Pool) -> usize {
            let hosts = self.hosts.lock();
            let hosts = hosts.values();
            hosts
                .map(|host| host.in_progress(&host.state.lock(), pool))
                .sum()
        }
    }

    /// The time of the runtime, which is paused.
    fn paused() -> Now {
        Now {
            mono: tokio::time::Instant::now().into_std(),
            ..test_site::now()
        }
    }

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn unused_hosts_are_removed() {
        let permits = Permits::new(2, 2, test_site::now);
        for n in 0..5000 {
            permits.host(&url(&format!("http://host{n}/")));
        }
        assert!(permits.hosts.lock().len() <= MOST_HOSTS);
    }

    #[tokio::test]
    async fn first_request_over_tls_goes_alone_until_its_answer_shows_the_version() {
        for (version, expected) in [(Version::HTTP_2, 3), (Version::HTTP_11, 2)] {
            let permits = Permits::new(2, 3, test_site::now);
            let site = url("https://example.org/");
            let mut first = permits.acquire(Pool::Content, &site).await;
            let mut second = pin!(permits.acquire(Pool::Content, &site));
            assert!(poll!(second.as_mut()).is_pending());
            // Documents do not wait.
            let document = permits.acquire(Pool::Documents, &site).await;
            assert!(!document.is_for_http2());
            first.answered(version, StatusCode::OK, None);
            assert_eq!(first.is_for_http2(), version == Version::HTTP_2);
            assert!(!document.is_for_http2(), "documents have their own");
            let mut second = second.await;
            let mut third = pin!(permits.acquire(Pool::Content, &site));
            assert!(poll!(third.as_mut()).is_pending(), "the limit begins at 2");
            second.answered(version, StatusCode::OK, None);
            drop(second);
            let _third = third.await;
            assert_eq!(permits.at_once(&site), expected, "{version:?}");
            let mut fourth = pin!(permits.acquire(Pool::Content, &site));
            assert_eq!(poll!(fourth.as_mut()).is_pending(), expected == 2);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn first_request_without_an_answer_does_not_delay_the_others_for_long() {
        let permits = Permits::new(2, 3, test_site::now);
        let site = url("https://example.org/");
        let _silent = permits.acquire(Pool::Content, &site).await;
        let _second = permits.acquire(Pool::Content, &site).await;
        let mut third = pin!(permits.acquire(Pool::Content, &site));
        assert!(poll!(third.as_mut()).is_pending());
    }

    #[tokio::test]
    async fn without_tls_all_go_at_once() {
        let permits = Permits::new(2, 9, test_site::now);
        let site = url("http://example.org/");
        let _first = permits.acquire(Pool::Content, &site).await;
        let mut second = pin!(permits.acquire(Pool::Content, &site));
        assert!(poll!(second.as_mut()).is_ready());
    }

    #[tokio::test]
    async fn refusals_slow_down_and_their_reason_is_shown() {
        let connect = FetchError::Connect("refused".to_owned());
        let not_found = StatusCode::NOT_FOUND;
        for (status, error, expected, code) in [
            (
                Some(StatusCode::TOO_MANY_REQUESTS),
                None,
                2,
                Some("http-status"),
            ),
            (
                Some(StatusCode::SERVICE_UNAVAILABLE),
                None,
                2,
                Some("http-status"),
            ),
            (None, Some(&connect), 2, Some("connect")),
            (Some(StatusCode::OK), Some(&FetchError::CutShort), 4, None),
            (Some(StatusCode::OK), None, 4, None),
            (Some(not_found), None, 4, None),
            (None, Some(&FetchError::Timeout), 4, None),
            (Some(StatusCode::OK), Some(&FetchError::LongUri), 4, None),
        ] {
            for pool in [Pool::Content, Pool::Documents] {
                let permits = Permits::new(4, 4, test_site::now);
                let site = url("http://example.org/");
                let mut permit = permits.acquire(pool, &site).await;
                if let Some(status) = status {
                    permit.answered(Version::HTTP_11, status, None);
                }
                if let Some(error) = error {
                    permit.failed(error);
                }
                drop(permit);
                let load = &permits.loads()[0];
                let found = (load.at_once, load.slowed.as_ref().map(|slowed| slowed.code));
                assert_eq!(found, (expected, code), "{status:?} {error:?} {pool:?}");
                assert_eq!(permits.is_slowed_down(&site), code.is_some());
                assert_eq!(permits.in_progress(pool), 0);
            }
        }
    }

    #[tokio::test]
    async fn broken_connections_and_timeouts_take_back_what_exceeds_the_connections() {
        let too_slow = FetchError::TooSlow {
            least: 1,
            within: Duration::ZERO,
        };
        let goaway = FetchError::Io("the peer sent GOAWAY".to_owned());
        for error in [goaway, too_slow, FetchError::CutShort, FetchError::Timeout] {
            let permits = Permits::new(2, 8, test_site::now);
            let site = url("https://example.org/");
            let document = permits.acquire(Pool::Documents, &site).await;
            let shown = |mut permit: Permit| {
                permit.answered(Version::HTTP_2, StatusCode::OK, None);
                drop(permit);
            };
            shown(document);
            let first = permits.acquire(Pool::Content, &site).await;
            let second = permits.acquire(Pool::Content, &site).await;
            shown(first);
            shown(second);
            assert_eq!(permits.at_once(&site), 3);
            let mut failing = permits.acquire(Pool::Content, &site).await;
            failing.answered(Version::HTTP_2, StatusCode::OK, None);
            failing.failed(&error);
            drop(failing);
            let load = &permits.loads()[0];
            assert_eq!(load.at_once, 2, "{error:?}");
            assert_eq!(load.slowed.as_ref().unwrap().code, error.code());
        }
    }

    #[tokio::test]
    async fn version_is_negotiated_again_when_no_request_is_answered_any_more() {
        let cut = FetchError::Io("cut".to_owned());
        for (error, others_are_answered, expected) in [
            (&cut, true, true),
            (&cut, false, false),
            (&FetchError::Timeout, true, true),
            (&FetchError::Timeout, false, false),
        ] {
            let permits = Permits::new(4, 4, test_site::now);
            let site = url("https://example.org/");
            let mut first = permits.acquire(Pool::Documents, &site).await;
            first.answered(Version::HTTP_2, StatusCode::OK, None);
            let mut failing = permits.acquire(Pool::Content, &site).await;
            assert!(failing.is_for_http2());
            if others_are_answered {
                let mut other = permits.acquire(Pool::Content, &site).await;
                other.answered(Version::HTTP_2, StatusCode::OK, None);
            }
            failing.failed(error);
            let next = permits.acquire(Pool::Content, &site).await;
            assert_eq!(next.is_for_http2(), expected, "{error:?}");
        }
    }

    #[tokio::test]
    async fn requests_that_are_given_up_return_their_places() {
        let permits = Permits::new(1, 1, test_site::now);
        let site = url("http://example.org/");
        let first = permits.acquire(Pool::Content, &site).await;
        {
            let mut second = pin!(permits.acquire(Pool::Content, &site));
            let mut third = pin!(permits.acquire(Pool::Content, &site));
            assert!(poll!(second.as_mut()).is_pending());
            assert!(poll!(third.as_mut()).is_pending());
            // The second one has its permit, and never learns of it.
            drop(first);
        }
        let _fourth = permits.acquire(Pool::Content, &site).await;
        assert_eq!(permits.in_progress(Pool::Content), 1);
    }

    #[tokio::test]
    async fn requests_are_admitted_in_their_order() {
        let permits = Permits::new(1, 1, test_site::now);
        let site = url("http://example.org/");
        let first = permits.acquire(Pool::Content, &site).await;
        let mut second = pin!(permits.acquire(Pool::Content, &site));
        assert!(poll!(second.as_mut()).is_pending());
        drop(first);
        let mut third = pin!(permits.acquire(Pool::Content, &site));
        assert!(poll!(third.as_mut()).is_pending());
        assert!(poll!(second.as_mut()).is_ready());
    }

    /// What happens to a host.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        /// An answer of that version to a request for a document.
        Answers(Version),
        /// As many requests as allowed are started, and complete; so often.
        Completes(usize),
        /// So many requests complete one after the other.
        OneByOne(usize),
        /// As many requests as allowed are started, and each is answered 429.
        AllBusy,
        /// As many requests as allowed are started, and the connection breaks.
        AllBreak,
        /// So many requests are started, and one of them is answered 429.
        OneBusy(usize),
        /// So many requests are refused one after the other.
        Refused(usize),
    }
    use Step::{AllBreak, AllBusy, Answers, Completes, OneBusy, OneByOne, Refused};

    async fn apply(permits: &Permits, site: &Url, step: Step) {
        const OK: StatusCode = StatusCode::OK;
        let version = || match permits.loads().first().and_then(|load| load.protocol) {
            Some("HTTP/2") => Version::HTTP_2,
            _ => Version::HTTP_11,
        };
        let start = async |count: usize| {
            let mut started = Vec::new();
            for _ in 0..count {
                started.push(permits.acquire(Pool::Content, site).await);
            }
            started
        };
        let answer = async |count: usize, busy: usize, status: StatusCode| {
            let mut started = start(count).await;
            for (number, permit) in started.iter_mut().enumerate() {
                permit.answered(version(), if number < busy { status } else { OK }, None);
            }
        };
        let all = permits.at_once(site);
        match step {
            Answers(version) => {
                let mut document = permits.acquire(Pool::Documents, site).await;
                document.answered(version, StatusCode::NOT_MODIFIED, None);
            }
            Completes(times) => {
                for _ in 0..times {
                    answer(permits.at_once(site), 0, OK).await;
                }
            }
            OneByOne(times) => {
                for _ in 0..times {
                    answer(1, 0, OK).await;
                }
            }
            AllBusy => answer(all, all, StatusCode::TOO_MANY_REQUESTS).await,
            OneBusy(count) => answer(count, 1, StatusCode::TOO_MANY_REQUESTS).await,
            AllBreak => {
                for mut permit in start(all).await {
                    permit.answered(version(), OK, None);
                    permit.failed(&FetchError::CutShort);
                }
            }
            Refused(times) => {
                for _ in 0..times {
                    answer(1, 1, StatusCode::FORBIDDEN).await;
                }
            }
        }
    }

    /// How many requests are sent at once, how many may be, and whether the host is slowed down, with 8 connections and 20 streams.
    #[tokio::test(start_paused = true)]
    async fn number_of_requests_follows_version_completions_and_overloads() {
        const HTTP1: Version = Version::HTTP_11;
        const HTTP2: Version = Version::HTTP_2;
        let cases = [
            (&[][..], (8, 8, false)),
            (&[Answers(HTTP1), Completes(9)], (8, 8, false)),
            (&[Answers(HTTP2)], (8, 20, false)),
            (&[Answers(HTTP2), Completes(9)], (20, 20, false)),
            // Not by requests that do not use it.
            (&[Answers(HTTP2), OneByOne(100)], (8, 20, false)),
            // An overload halves once, however many requests meet it.
            (&[Answers(HTTP1), AllBusy], (4, 8, true)),
            (&[Answers(HTTP1), AllBusy, AllBusy], (2, 8, true)),
            // What was in progress is halved, not what might have been.
            (&[Answers(HTTP2), Completes(9), OneBusy(12)], (6, 20, true)),
            // Afterwards a round of requests raises it by one, until the reason is not shown any longer.
            (&[Answers(HTTP1), AllBusy, Completes(1)], (5, 8, true)),
            (&[Answers(HTTP1), AllBusy, Completes(4)], (8, 8, true)),
            (&[Answers(HTTP1), AllBusy, Completes(5)], (8, 8, false)),
            // It never falls below one, from where it rises again.
            (&[AllBusy, AllBusy, AllBusy, AllBusy], (1, 8, true)),
            (&[AllBusy, AllBusy, AllBusy, OneByOne(1)], (2, 8, true)),
            // So it does where requests are few: up to the connections.
            (&[Answers(HTTP2), AllBusy, OneByOne(99)], (8, 20, false)),
            // What may be an overload takes back only what exceeds the connections.
            (&[Answers(HTTP1), AllBreak], (8, 8, false)),
            (&[Answers(HTTP2), Completes(9), AllBreak], (10, 20, true)),
            (
                &[Answers(HTTP2), Completes(9), AllBreak, AllBreak],
                (8, 20, true),
            ),
            // A refusal is that of one resource, until there are several in a row.
            (
                &[Refused(REFUSALS - 1), OneByOne(1), Refused(1)],
                (8, 8, false),
            ),
            (&[Refused(REFUSALS)], (4, 8, true)),
            // The version may change.
            (
                &[Answers(HTTP2), Completes(9), Answers(HTTP1)],
                (8, 8, false),
            ),
        ];
        for (steps, expected) in cases {
            let permits = Permits::new(8, 20, paused);
            let site = url("http://example.org/");
            permits.host(&site);
            for step in steps {
                apply(&permits, &site, *step).await;
            }
            let load = permits.loads().remove(0);
            let found = (load.at_once, load.most, load.slowed.is_some());
            assert_eq!(found, expected, "{steps:?}");
            // There are as many places as that.
            let mut held = Vec::new();
            for _ in 0..load.at_once {
                held.push(permits.acquire(Pool::Content, &site).await);
            }
            let mut next = pin!(permits.acquire(Pool::Content, &site));
            assert!(poll!(next.as_mut()).is_pending(), "{steps:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn overload_is_followed_by_the_pause_that_the_host_asks_for_within_bounds() {
        for (asked, connections, expected) in [
            (None, 8, 0),
            (None, 1, 1),
            (Some(7), 8, 7),
            (Some(7), 1, 7),
            (Some(u64::MAX), 8, 10),
        ] {
            let permits = Permits::new(connections, connections, paused);
            let site = url("http://example.org/");
            let mut refused = permits.acquire(Pool::Content, &site).await;
            let asked = asked.map(Duration::from_secs);
            refused.answered(Version::HTTP_11, StatusCode::SERVICE_UNAVAILABLE, asked);
            drop(refused);
            let began = paused().mono;
            permits.acquire(Pool::Documents, &site).await;
            assert_eq!(paused().mono, began, "documents do not wait");
            permits.acquire(Pool::Content, &site).await;
            assert_eq!((paused().mono - began).as_secs(), expected, "{asked:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn refusals_that_are_far_apart_are_no_overload() {
        let permits = Permits::new(8, 8, paused);
        let site = url("http://example.org/");
        for _ in 0..2 * REFUSALS {
            apply(&permits, &site, Refused(REFUSALS - 1)).await;
            tokio::time::sleep(2 * REFUSALS_WITHIN).await;
        }
        assert_eq!(permits.at_once(&site), 8);
    }
}
