//! Limits the number of concurrent requests per host: the only place that decides it.
//!
//! - A host is an origin: scheme, name and port. Its pools do not delay each other.
//! - For resources a [`HostLimit`] follows what the host speaks and how it copes. [`Permit`]s report to it.
//! - The first request for a resource to a host of which no answer is known goes alone, for a moment: if the host speaks HTTP/2,
//!   the others share one connection instead of opening one each.
//! - A host for which one request for a resource at once is too many gets a pause before each.
//! - Requests are admitted in the order in which they came.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use reqwest::{StatusCode, Version};
use resourcesync::uri::has_userinfo;
use tokio::sync::oneshot;
use url::{Position, Url};

use super::FetchError;
use super::host_limit::{HostLimit, Most, Overload, Protocol, Slowed};
use crate::Clock;

/// How long the first request goes alone. A resource that takes long must not delay the others.
const ALONE: Duration = Duration::from_secs(1);
/// The pause before a request for a resource to a host for which one at once is too many.
const PAUSE: Duration = Duration::from_secs(1);
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

const POOLS: [Pool; 4] = [
    Pool::Documents,
    Pool::Content,
    Pool::Packages,
    Pool::Sockets,
];

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
    most: Most,
    clock: Clock,
    hosts: Mutex<HashMap<String, Arc<Host>>>,
}

impl Permits {
    pub(super) fn new(connections: usize, streams: usize, clock: Clock) -> Self {
        Self {
            most: Most {
                connections: connections.max(1),
                streams: streams.max(1),
            },
            clock,
            hosts: Mutex::default(),
        }
    }

    /// The same limits, with nothing known of any host.
    pub(super) fn anew(&self) -> Self {
        Self {
            most: self.most,
            clock: self.clock,
            hosts: Mutex::default(),
        }
    }

    /// Waits until a request to the host of the URL may start. It counts until the permit is dropped.
    pub(super) async fn acquire(&self, pool: Pool, url: &Url) -> Permit {
        let permit = self.admitted(pool, url).await;
        if pool == Pool::Content && permit.host.state.lock().limit.pauses() {
            // The others wait for this one.
            tokio::time::sleep(PAUSE).await;
        }
        permit
    }

    async fn admitted(&self, pool: Pool, url: &Url) -> Permit {
        const SENT: &str = "a host keeps the senders until it uses them";
        let host = self.host(url);
        let mut admitted = match host.enter(pool) {
            Ok(permit) => return permit,
            Err(admitted) => admitted,
        };
        if pool == Pool::Content && host.state.lock().is_first_alone {
            if let Ok(permit) = tokio::time::timeout(ALONE, &mut admitted).await {
                return permit.expect(SENT);
            }
            host.change(|state| state.is_first_alone = false);
        }
        admitted.await.expect(SENT)
    }

    /// How many requests for resources the host of the URL gets at once.
    pub(super) fn at_once(&self, url: &Url) -> usize {
        let hosts = self.hosts.lock();
        let host = hosts.get(&*origin(url));
        host.map_or(self.most.connections, |host| {
            host.state.lock().limit.at_once()
        })
    }

    /// Whether the host of the URL is slowed down.
    pub(super) fn is_slowed_down(&self, url: &Url) -> bool {
        let hosts = self.hosts.lock();
        let host = hosts.get(&*origin(url));
        host.is_some_and(|host| host.state.lock().limit.slowed().is_some())
    }

    /// What is known of these hosts, those that are slowed down or busy first.
    pub(super) fn loads(&self) -> Vec<HostLoad> {
        let hosts: Vec<(String, Arc<Host>)> = {
            let hosts = self.hosts.lock();
            let hosts = hosts.iter();
            hosts
                .map(|(origin, host)| (origin.clone(), Arc::clone(host)))
                .collect()
        };
        let hosts = hosts.into_iter();
        let mut loads: Vec<HostLoad> = hosts.map(|(origin, host)| host.load(origin)).collect();
        let order = |load: &HostLoad| (load.slowed.is_none(), load.in_progress == 0);
        loads.sort_by(|one, other| {
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
        let host = Arc::new(Host::new(self.most, url.scheme() == "https", self.clock));
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
    most: Most,
    clock: Clock,
    state: Mutex<HostState>,
}

struct HostState {
    limit: HostLimit,
    pools: [Requests; POOLS.len()],
    /// Whether requests for resources wait for the answer to the first one.
    is_first_alone: bool,
    /// How many answers there have been.
    answers: u64,
    /// When a request for a resource was refused last.
    refused_at: Option<Instant>,
}

/// The requests of one pool.
#[derive(Default)]
struct Requests {
    in_progress: usize,
    waiting: VecDeque<oneshot::Sender<Permit>>,
}

impl Host {
    /// Only over TLS does a host choose a version.
    fn new(most: Most, is_https: bool, clock: Clock) -> Self {
        Self {
            most,
            clock,
            state: Mutex::new(HostState {
                limit: HostLimit::new(most),
                pools: Default::default(),
                is_first_alone: is_https,
                answers: 0,
                refused_at: None,
            }),
        }
    }

    /// Admits a request, or returns what will receive its permit.
    fn enter(self: &Arc<Self>, pool: Pool) -> Result<Permit, oneshot::Receiver<Permit>> {
        let mut state = self.state.lock();
        let is_next = state.pools[pool as usize].waiting.is_empty();
        if is_next && self.has_room(&state, pool) {
            return Ok(self.admit(&mut state, pool));
        }
        let (sender, receiver) = oneshot::channel();
        let waiting = &mut state.pools[pool as usize].waiting;
        // Those that have been given up do not become more and more while there is no room.
        while waiting.back().is_some_and(oneshot::Sender::is_closed) {
            waiting.pop_back();
        }
        waiting.push_back(sender);
        Err(receiver)
    }

    fn has_room(&self, state: &HostState, pool: Pool) -> bool {
        let most = match pool {
            Pool::Documents | Pool::Sockets => self.most.connections,
            Pool::Content if state.is_first_alone => 1,
            Pool::Content => state.limit.at_once(),
            Pool::Packages => 1,
        };
        state.pools[pool as usize].in_progress < most
    }

    fn admit(self: &Arc<Self>, state: &mut HostState, pool: Pool) -> Permit {
        let requests = &mut state.pools[pool as usize];
        requests.in_progress += 1;
        let epoch = match pool {
            Pool::Content => state.limit.started(requests.in_progress),
            Pool::Documents | Pool::Packages | Pool::Sockets => state.limit.epoch(),
        };
        Permit {
            host: Arc::clone(self),
            pool,
            epoch,
            answers: state.answers,
            progress: RequestProgress::Sent,
        }
    }

    /// Changes the state, and admits the requests that there is room for then.
    fn change(self: &Arc<Self>, change: impl FnOnce(&mut HostState)) {
        let mut admitted = Vec::new();
        {
            let mut state = self.state.lock();
            change(&mut state);
            for pool in POOLS {
                while self.has_room(&state, pool)
                    && let Some(waiting) = state.pools[pool as usize].waiting.pop_front()
                {
                    if !waiting.is_closed() {
                        admitted.push((waiting, self.admit(&mut state, pool)));
                    }
                }
            }
        }
        for (waiting, permit) in admitted {
            // A request that has been given up meanwhile returns its permit by dropping it, which changes the state again.
            let _ = waiting.send(permit);
        }
    }

    fn load(&self, origin: String) -> HostLoad {
        let state = self.state.lock();
        HostLoad {
            origin,
            protocol: state.limit.protocol().map(|protocol| match protocol {
                Protocol::Http1 => "HTTP/1.1",
                Protocol::Http2 => "HTTP/2",
            }),
            in_progress: state.pools.iter().map(|pool| pool.in_progress).sum(),
            at_once: state.limit.at_once(),
            most: state.limit.most(),
            slowed: state.limit.slowed().cloned(),
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
    epoch: u64,
    /// How many answers of the host there were before.
    answers: u64,
    progress: RequestProgress,
}

impl Permit {
    /// Whether the request is for a resource, of a host whose last answer was one over HTTP/2.
    pub(super) fn is_for_http2(&self) -> bool {
        let is_http2 = || self.host.state.lock().limit.protocol() == Some(Protocol::Http2);
        self.pool == Pool::Content && is_http2()
    }

    /// Reports the head of the answer.
    pub(super) fn answered(&mut self, version: Version, status: StatusCode) {
        if self.pool == Pool::Sockets {
            return;
        }
        let protocol = match version {
            Version::HTTP_2 => Protocol::Http2,
            _ => Protocol::Http1,
        };
        let is_busy = matches!(
            status,
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
        );
        let is_refused = self.pool == Pool::Content
            && (matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
                || status.is_server_error() && !is_busy);
        self.progress = if is_busy || is_refused {
            RequestProgress::Failed
        } else {
            RequestProgress::Answered
        };
        let error = FetchError::Status {
            status: status.as_u16(),
            retry_after: None,
        };
        let (epoch, is_content) = (self.epoch, self.pool == Pool::Content);
        let now = (self.host.clock)().mono;
        self.host.change(|state| {
            state.is_first_alone = false;
            state.answers += 1;
            state.limit.answered(protocol);
            let is_overload = if is_refused {
                state.note_refusal(now)
            } else {
                if is_content && !is_busy {
                    state.limit.end_refusals();
                }
                is_busy
            };
            if is_overload {
                state.overloaded(epoch, Overload::Clear, self.slowed_by(&error));
            }
        });
    }

    /// Reports why there is no answer, or no further bytes of it.
    pub(super) fn failed(&mut self, error: &FetchError) {
        if self.pool == Pool::Sockets {
            return;
        }
        let overload = match error {
            FetchError::Connect(_) => Some(Overload::Clear),
            // The server has ended the connection (GOAWAY) or the stream of the request, or it does not answer in time.
            FetchError::CutShort
            | FetchError::Io(_)
            | FetchError::Timeout
            | FetchError::TooSlow { .. } => Some(Overload::Suspected),
            _ => None,
        };
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
        let (epoch, answers) = (self.epoch, self.answers);
        let slowed = self.slowed_by(error);
        self.host.change(|state| {
            if let Some(overload) = overload {
                state.overloaded(epoch, overload, slowed);
            }
            if may_have_no_connection && state.answers == answers {
                // The host may speak another version now: the next connection shows it.
                state.limit.forget_protocol();
            }
        });
    }
}

impl Permit {
    fn slowed_by(&self, error: &FetchError) -> Slowed {
        Slowed {
            code: error.code(),
            message: error.to_string(),
            at: (self.host.clock)().wall,
        }
    }
}

impl HostState {
    /// A request for a resource was refused. Whether that is an overload.
    fn note_refusal(&mut self, now: Instant) -> bool {
        let before = self.refused_at.replace(now);
        if before.is_some_and(|before| now.saturating_duration_since(before) > REFUSALS_WITHIN) {
            self.limit.end_refusals();
        }
        self.limit.refused()
    }

    fn overloaded(&mut self, epoch: u64, overload: Overload, slowed: Slowed) {
        let in_progress = self.pools[Pool::Content as usize].in_progress;
        self.limit.overloaded(epoch, overload, in_progress, slowed);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let (pool, epoch) = (self.pool, self.epoch);
        let is_complete = self.progress == RequestProgress::Answered;
        self.host.change(|state| {
            if is_complete {
                let for_resources = state.pools[Pool::Content as usize].in_progress;
                state.limit.completed(epoch, for_resources);
            }
            state.pools[pool as usize].in_progress -= 1;
        });
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::poll;

    use super::*;
    use crate::test_site;

    impl Permits {
        /// The requests of a pool that are in progress, of all hosts together.
        pub(crate) fn in_progress(&self, pool: Pool) -> usize {
            let hosts = self.hosts.lock();
            let hosts = hosts.values();
            hosts
                .map(|host| host.state.lock().pools[pool as usize].in_progress)
                .sum()
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
            first.answered(version, StatusCode::OK);
            assert_eq!(first.is_for_http2(), version == Version::HTTP_2);
            assert!(!document.is_for_http2(), "documents have their own");
            let mut second = second.await;
            let mut third = pin!(permits.acquire(Pool::Content, &site));
            assert!(poll!(third.as_mut()).is_pending(), "the limit begins at 2");
            second.answered(version, StatusCode::OK);
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
                    permit.answered(Version::HTTP_11, status);
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
                permit.answered(Version::HTTP_2, StatusCode::OK);
                drop(permit);
            };
            shown(document);
            let first = permits.acquire(Pool::Content, &site).await;
            let second = permits.acquire(Pool::Content, &site).await;
            shown(first);
            shown(second);
            assert_eq!(permits.at_once(&site), 4);
            let mut failing = permits.acquire(Pool::Content, &site).await;
            failing.answered(Version::HTTP_2, StatusCode::OK);
            failing.failed(&error);
            drop(failing);
            let load = &permits.loads()[0];
            assert_eq!(load.at_once, 2, "{error:?}");
            assert_eq!(load.slowed.as_ref().unwrap().code, error.code());
        }
    }

    #[tokio::test]
    async fn requests_that_are_given_up_do_not_become_more_and_more() {
        let permits = Permits::new(1, 1, test_site::now);
        let site = url("http://example.org/");
        let _first = permits.acquire(Pool::Content, &site).await;
        for _ in 0..100 {
            let mut given_up = Box::pin(permits.acquire(Pool::Content, &site));
            assert!(poll!(given_up.as_mut()).is_pending());
        }
        let host = permits.host(&site);
        assert_eq!(
            host.state.lock().pools[Pool::Content as usize]
                .waiting
                .len(),
            1
        );
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
            first.answered(Version::HTTP_2, StatusCode::OK);
            let mut failing = permits.acquire(Pool::Content, &site).await;
            assert!(failing.is_for_http2());
            if others_are_answered {
                let mut other = permits.acquire(Pool::Content, &site).await;
                other.answered(Version::HTTP_2, StatusCode::OK);
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
}
