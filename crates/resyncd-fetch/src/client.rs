//! The client that every request goes through.
//!
//! It follows redirects itself, because each hop must pass the guard, and does not decompress, because reqwest does so without
//! a limit.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{CONTENT_ENCODING, COOKIE, HeaderName, HeaderValue, LINK, LOCATION};
use reqwest::{RequestBuilder, Response, StatusCode};
use resourcesync::media_type::content_coding;
use resourcesync::uri::{
    BaseUri, MAX_URI_BYTES, ReferenceError, resolve_reference, without_userinfo,
};
use resyncd_core::{Now, Redaction, http_form};
use rustls::ClientConfig;
use url::Url;

use super::chain_cookies::ChainCookies;
use super::connections::{Connections, HttpVersion, Route};
use super::guard::{Guard, GuardedResolver, NameLookup, system_lookup, trusted_host_of};
use super::network::HttpNetwork;
use super::pace::{Pace, PaceLimits};
use super::permits::{HostLoad, Permit, Permits, Pool};
use super::retry::JITTER;
use super::retry_after::retry_after;
use super::robots::RobotsFiles;
use super::server_trust::ServerTrust;
use super::third_parties::ThirdParties;
use super::{Bounds, FetchError};
use crate::credentials::{AuthHeader, Credentials};
use crate::observer::{BytesObserver, RequestObserver};
use crate::{HeaderLink, HttpSettings, parse_link_header};

/// What time it is.
pub type Clock = fn() -> Now;

/// The maximum number of redirects in a row.
const MOST_REDIRECTS: usize = 5;

/// How much of an unneeded body is read, in bytes, so that its connection can be reused.
const MOST_DRAINED: usize = 16 << 10;

/// The maximum time for that.
pub(super) const DRAIN_TIME: Duration = Duration::from_secs(5);

/// Fetches documents and content, and sends requests to hubs. Cheap to clone; all clones share connections and limits.
#[derive(Clone)]
pub struct Client {
    connections: Arc<Connections>,
    /// Those to the origins that get credentials; no other Source uses them. `None`: there are no credentials.
    own_connections: Option<Arc<Connections>>,
    guard: Guard,
    credentials: Arc<Credentials>,
    redaction: Redaction,
    permits: Arc<Permits>,
    /// `None`: the requests are not those of one Source.
    third_parties: Option<Arc<ThirdParties>>,
    /// `None`: the requests may be made as fast as the hosts answer.
    pace: Option<Arc<Pace>>,
    /// `None`: no robots.txt is asked for.
    pub(super) robots: Option<Arc<RobotsFiles>>,
    /// `None`: the requests are not counted.
    counters: Option<Arc<dyn RequestObserver>>,
    /// Of documents.
    pub(super) retries: Bounds,
    package_retries: Bounds,
    /// The maximum length of a URI, in bytes.
    pub(super) max_uri_bytes: usize,
    /// What answers requests in place of connections.
    network: Option<Arc<dyn HttpNetwork>>,
    pub(super) clock: Clock,
    /// How much of the pauses between tries is random.
    pub(super) jitter: f64,
}

impl Client {
    /// Creates the client, without any request. `clock`: what time it is.
    ///
    /// Without CA certificates on the machine only https fails, with [`FetchError::Tls`].
    ///
    /// # Errors
    /// [`FetchError::Setup`] if the user agent is not a valid header or TLS can't be set up.
    pub fn new(http: &HttpSettings, clock: Clock) -> Result<Self, FetchError> {
        Self::guarded(http, Guard::new(http), system_lookup(), clock)
    }

    /// The same client, which may contact the host of a URL also where it is not public, if that is an IP address or `localhost`: a
    /// person has typed it. A name may resolve to what its owner likes. Links and redirects to other hosts are not affected.
    pub fn trusting_host_of(
        http: &HttpSettings,
        url: &Url,
        clock: Clock,
    ) -> Result<Self, FetchError> {
        let guard = Guard {
            trusted: trusted_host_of(url).into_iter().collect(),
            ..Guard::new(http)
        };
        Self::guarded(http, guard, system_lookup(), clock)
    }

    /// A client for a URL of the configuration that is no Source's: its host may be contacted wherever it is, also where its name
    /// resolves to a private address, and no other one that this client may not contact. Nothing is shared with requests of Sources,
    /// neither connections nor limits. `timeout`: that of each request, in place of the configured one.
    pub(super) fn for_own_url(&self, url: &Url, timeout: Duration) -> Result<Self, FetchError> {
        let http = HttpSettings {
            timeout,
            ..self.connections.http().clone()
        };
        let guard = Guard {
            trusted: url.host_str().map(str::to_owned).into_iter().collect(),
            ..self.guard.clone()
        };
        let trust = self.connections.trust().clone();
        let client = Self::trusting(&http, guard, self.connections.lookup(), trust, self.clock)?;
        Ok(Self {
            max_uri_bytes: self.max_uri_bytes.max(url.as_str().len()),
            network: self.network.clone(),
            jitter: self.jitter,
            ..client
        })
    }

    /// For tests: a client for which these addresses count as public. It can't be configured.
    #[doc(hidden)]
    pub fn with_public(
        http: &HttpSettings,
        as_public: &[IpAddr],
        clock: Clock,
    ) -> Result<Self, FetchError> {
        let guard = Guard {
            as_public: as_public.into(),
            ..Guard::new(http)
        };
        Self::guarded(http, guard, system_lookup(), clock)
    }

    pub(super) fn guarded(
        http: &HttpSettings,
        guard: Guard,
        lookup: NameLookup,
        clock: Clock,
    ) -> Result<Self, FetchError> {
        let trust = ServerTrust::read(&http.authorities);
        Self::trusting(http, guard, lookup, trust, clock)
    }

    fn trusting(
        http: &HttpSettings,
        guard: Guard,
        lookup: NameLookup,
        trust: ServerTrust,
        clock: Clock,
    ) -> Result<Self, FetchError> {
        // Fails only if a provider is installed already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let resolver = GuardedResolver {
            guard: guard.clone(),
            lookup,
        };
        let connections = Connections::new(http, resolver, trust)?;
        Ok(Self {
            connections: Arc::new(connections),
            own_connections: None,
            guard,
            credentials: Arc::default(),
            redaction: http.proxies.added_to(Redaction::default()),
            permits: Arc::new(Permits::new(
                http.connections_per_host,
                http.streams_per_host,
                clock,
            )),
            third_parties: None,
            pace: None,
            robots: None,
            counters: None,
            retries: Bounds::DOCUMENT,
            package_retries: Bounds::PACKAGE,
            max_uri_bytes: MAX_URI_BYTES,
            network: None,
            clock,
            jitter: JITTER,
        })
    }

    /// The same client, whose requests are answered by another network than that of this machine. It knows nothing of the hosts there,
    /// and nothing that it does is random.
    #[must_use]
    pub fn with_network(mut self, network: Arc<dyn HttpNetwork>) -> Self {
        self.network = Some(network);
        self.jitter = 0.0;
        self.apart()
    }

    /// The same client with places of its own at each host: what waits for one delays nothing of the other client.
    #[must_use]
    pub fn apart(mut self) -> Self {
        self.permits = Arc::new(self.permits.anew());
        self
    }

    /// The same client with other bounds for its own retries of documents.
    #[must_use]
    pub fn with_document_retries(mut self, bounds: Bounds) -> Self {
        self.retries = bounds;
        self
    }

    /// The same client with other bounds for the tries of a package.
    #[must_use]
    pub fn with_package_retries(mut self, bounds: Bounds) -> Self {
        self.package_retries = bounds;
        self
    }

    /// The same client with another maximum for the length of a URI in bytes, [`MAX_URI_BYTES`] unless stated: of what is
    /// requested and of what the documents state.
    #[must_use]
    pub fn with_max_uri_bytes(mut self, max_uri_bytes: usize) -> Self {
        self.max_uri_bytes = max_uri_bytes;
        self
    }

    /// The same client with these credentials: each is sent only to its own origins, over connections that are used for nothing
    /// else.
    #[must_use]
    pub fn with_credentials(&self, credentials: &Credentials) -> Self {
        let proxies = self.connections.proxies();
        let redaction = proxies.added_to(Redaction::default());
        let separate = || Arc::new(self.connections.separate(credentials.certificate()));
        Self {
            own_connections: (!credentials.is_empty()).then(separate),
            credentials: Arc::new(credentials.clone()),
            redaction: credentials.added_to(redaction),
            ..self.clone()
        }
    }

    /// The same client without credentials: nothing is sent with them, also after redirects.
    #[must_use]
    pub fn without_credentials(&self) -> Self {
        Self {
            own_connections: None,
            credentials: Arc::default(),
            ..self.clone()
        }
    }

    /// The same client for a Source: with its credentials, and with at most so many requests per hour to a host that is not its
    /// own (`[limits] third_party_requests`): those of its URLs, these others, with or without a port, and those that get credentials. All
    /// clones share that limit.
    #[must_use]
    pub fn for_source<'a>(
        &self,
        urls: impl Iterator<Item = &'a Url>,
        hosts: &[String],
        credentials: &Credentials,
        per_hour: u32,
    ) -> Self {
        let own = hosts.iter().cloned().chain(credentials.hosts());
        let third_parties = ThirdParties::new(urls, own, per_hour, self.clock);
        Self {
            third_parties: Some(Arc::new(third_parties)),
            ..self.with_credentials(credentials)
        }
    }

    /// The same client, which is no faster than these limits. All clones share them.
    #[must_use]
    pub fn with_pace(mut self, limits: &PaceLimits) -> Self {
        if limits.requests_per_second.is_some() || limits.bandwidth.is_some() {
            let seconds = limits.requests_per_second.map_or(0.0, f64::recip);
            let between = Duration::try_from_secs_f64(seconds).unwrap_or_default();
            let pace = Pace::new(between, limits.bandwidth, self.clock);
            self.pace = Some(Arc::new(pace));
        }
        if let Some(most) = limits.connections_per_host {
            self.permits = Arc::new(Permits::new(most, most, self.clock));
        }
        self
    }

    /// The same client, whose requests are counted.
    #[must_use]
    pub fn with_counters(mut self, counters: Arc<dyn RequestObserver>) -> Self {
        self.counters = Some(counters);
        self
    }

    /// Removes the credentials from remote text.
    pub fn redaction(&self) -> &Redaction {
        &self.redaction
    }

    /// TLS for connections that are none of HTTP: the same authorities are trusted.
    ///
    /// # Errors
    /// If TLS can't be set up.
    pub fn tls(&self) -> Result<ClientConfig, rustls::Error> {
        self.connections.trust().tls(None)
    }

    /// The `User-Agent` header.
    pub(super) fn user_agent(&self) -> &str {
        &self.connections.http().user_agent
    }

    /// How often a package is tried, and with what pauses, as long as no byte of it is received.
    pub fn package_retries(&self) -> &Bounds {
        &self.package_retries
    }

    /// The time-out from connect to response head, and between two chunks of a body.
    pub fn timeout(&self) -> Duration {
        self.connections.http().timeout
    }

    /// How many requests for resources the host of a URL gets at once: it depends on the version of HTTP that the host
    /// speaks, and on how it copes. One that wants a pause between two requests gets one at a time.
    pub fn at_once(&self, url: &Url) -> usize {
        match self.obeyed_robots() {
            Some(robots) if robots.has_delay(url) => 1,
            _ => self.permits.at_once(url),
        }
    }

    /// Whether the host of a URL is slowed down: it gets no more requests than are needed.
    pub fn is_slowed_down(&self, url: &Url) -> bool {
        self.permits.is_slowed_down(url)
    }

    /// The hosts that were contacted, those that are slowed down or busy first. A bounded number.
    pub fn host_loads(&self) -> Vec<HostLoad> {
        self.permits.loads()
    }

    /// As [`ask`](Self::ask), for a document or a hub, at any host.
    pub(super) async fn ask_document(
        &self,
        start: &Url,
        follow: Follow,
        request: impl Fn(&reqwest::Client, Url) -> RequestBuilder,
    ) -> Result<Answer, FetchError> {
        self.ask(Pool::Documents, start, follow, |_| Ok(()), request)
            .await
    }

    /// Sends a request and follows redirects until the answer is not a redirect. It may be an error status.
    ///
    /// `allowed` must accept every hop; `request` builds the request for each. Credentials in remote URIs are not sent; only
    /// those configured for the origin of a hop are.
    pub(super) async fn ask(
        &self,
        pool: Pool,
        start: &Url,
        follow: Follow,
        allowed: impl Fn(&Url) -> Result<(), FetchError>,
        request: impl Fn(&reqwest::Client, Url) -> RequestBuilder,
    ) -> Result<Answer, FetchError> {
        let asking = async {
            let mut url = without_userinfo(start.clone());
            url.set_fragment(None);
            let mut is_signed_in = true;
            let no_credentials = Credentials::default();
            let mut cookies = ChainCookies::default();
            let may_lose_tls = self.credentials.is_empty()
                && match follow {
                    Follow::Verified => true,
                    Follow::All => self.connections.http().allow_redirects_to_http,
                    Follow::SameMethod | Follow::SameOrigin | Follow::Never => false,
                };
            for _ in 0..=MOST_REDIRECTS {
                if url.as_str().len() > self.max_uri_bytes {
                    return Err(FetchError::LongUri);
                }
                self.guard.check(&url)?;
                let proxy = self.connections.proxies().of(&url);
                if proxy.is_some() {
                    self.guard.check_unresolved(&url)?;
                }
                allowed(&url)?;
                let rules = match self.obeyed_robots() {
                    Some(robots) => robots.admit(self, pool, &url).await?,
                    None => None,
                };
                let counted = match &self.third_parties {
                    Some(third_parties) => third_parties.wait(pool, &url).await?,
                    None => None,
                };
                let queued = self.counters.as_ref().map(|counters| counters.queue());
                if let Some(pace) = &self.pace {
                    pace.wait_for_request().await;
                }
                if let Some(rules) = rules {
                    rules.wait_for_request().await;
                }
                let mut permit = self.permits.acquire(pool, &url).await;
                drop(queued);
                let version = match pool {
                    Pool::Sockets => HttpVersion::Http1,
                    _ if permit.is_for_http2() => HttpVersion::Http2,
                    _ => HttpVersion::Negotiated,
                };
                let credentials = if is_signed_in {
                    &*self.credentials
                } else {
                    &no_credentials
                };
                let route = Route {
                    version,
                    is_proxied: proxy.is_some(),
                    is_certified: credentials.has_auth_for(&url),
                };
                let own = self.own_connections.as_deref();
                let own = own.filter(|_| credentials.has_any_for(&url));
                let http = own.unwrap_or(&self.connections).client(route)?;
                // reqwest converts the credentials in the URL to a header.
                let request = request(&http, credentials.sign_in(&url));
                let mut request = with_headers(request, credentials.headers_for(&url))?;
                if let Some(cookie) = cookies.header(&url) {
                    request = request.header(COOKIE, cookie);
                }
                let response = match counted {
                    Some(counted) => counted.while_sending(self.send(request)).await,
                    None => self.send(request).await,
                };
                self.count(pool, &response);
                let response = match response {
                    Ok(response) => response,
                    Err(error) => {
                        let error = match proxy {
                            Some(proxy) => error.through(proxy),
                            None => error,
                        };
                        let error = error.redacted(&self.redaction);
                        permit.failed(&error);
                        return Err(error);
                    }
                };
                let pause = retry_after(response.headers(), (self.clock)().wall);
                permit.answered(response.version(), response.status(), pause);
                let next = if follow.follows(response.status()) {
                    let base = BaseUri {
                        uri: &url,
                        max_bytes: self.max_uri_bytes,
                    };
                    Some(redirect_target(base, pool, may_lose_tls, &response)?)
                } else {
                    None
                };
                let is_same_origin_only = matches!(follow, Follow::SameOrigin);
                let next =
                    next.filter(|next| !is_same_origin_only || next.origin() == url.origin());
                let Some(next) = next else {
                    let counters = self.counters.as_ref();
                    return Ok(Answer {
                        response,
                        url,
                        redaction: self.redaction.clone(),
                        clock: self.clock,
                        pace: self.pace.clone(),
                        received: counters.map(|counters| counters.received(pool.name())),
                        permit,
                    });
                };
                if matches!(follow, Follow::All | Follow::Verified) {
                    cookies.store(&url, response.headers());
                }
                drain(response).await;
                // A hub must not have the Source's own API called with the credentials for it.
                let is_sent_on = matches!(follow, Follow::SameMethod);
                is_signed_in &= !is_sent_on || next.origin() == url.origin();
                url = next;
            }
            Err(FetchError::TooManyRedirects)
        };
        let answer = asking.await;
        answer.map_err(|error: FetchError| error.redacted(&self.redaction))
    }

    fn count(&self, pool: Pool, response: &Result<Response, FetchError>) {
        if let Some(counters) = &self.counters {
            let result = response.as_ref().map(|response| response.status().as_u16());
            counters.count_request(pool.name(), result.map_err(FetchError::code));
        }
    }

    /// Sends one request; returns when the head of the answer has arrived.
    async fn send(&self, request: RequestBuilder) -> Result<Response, FetchError> {
        if let Some(network) = &self.network {
            return network.send(request.build()?).await;
        }
        Ok(tokio::time::timeout(self.timeout(), request.send()).await??)
    }
}

/// The request with these headers.
fn with_headers(
    mut request: RequestBuilder,
    headers: &[AuthHeader],
) -> Result<RequestBuilder, FetchError> {
    for header in headers {
        let name = HeaderName::from_bytes(header.name.as_bytes());
        let value = HeaderValue::from_str(&header.value);
        // The configuration has checked both.
        let (Ok(name), Ok(mut value)) = (name, value) else {
            let text = "a header of [source.auth] is not valid".to_owned();
            return Err(FetchError::Setup(text));
        };
        // Such a value is not shown where headers are logged.
        value.set_sensitive(true);
        request = request.header(name, value);
    }
    Ok(request)
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

/// Which redirects are followed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Follow {
    /// All of them: a GET stays a GET.
    All,
    /// The same, also from https to http: a digest proves what is received. Not for a Source with credentials, whose resources are for
    /// nobody else to see.
    Verified,
    /// Only those that preserve the method and the body (307, 308).
    SameMethod,
    /// The same, and only those to the origin itself.
    SameOrigin,
    /// None.
    Never,
}

impl Follow {
    fn follows(self, status: StatusCode) -> bool {
        match self {
            Self::All | Self::Verified => matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308),
            Self::SameMethod | Self::SameOrigin => matches!(status.as_u16(), 307 | 308),
            Self::Never => false,
        }
    }
}

/// The head of an answer, before its body is read.
pub(super) struct Answer {
    pub(super) response: Response,
    /// Its URL after redirects.
    pub(super) url: Url,
    redaction: Redaction,
    /// What time it is.
    pub(super) clock: Clock,
    pace: Option<Arc<Pace>>,
    received: Option<BytesObserver>,
    permit: Permit,
}

impl Answer {
    /// The text of a header.
    pub(super) fn header(&self, name: reqwest::header::HeaderName) -> Option<&str> {
        self.response.headers().get(name)?.to_str().ok()
    }

    /// The links of its `Link` headers, in their order.
    pub(super) fn links(&self) -> impl Iterator<Item = HeaderLink> {
        let values = self.response.headers().get_all(LINK).iter();
        let texts = values.filter_map(|value| value.to_str().ok());
        texts.flat_map(|text| parse_link_header(text, &self.url))
    }

    /// The content codings of the body, as [`content_coding`] has them, without secrets; `None` if it is not coded.
    pub(super) fn content_coding(&self) -> Option<String> {
        let headers = self.response.headers().get_all(CONTENT_ENCODING);
        let values = headers.iter().filter_map(|value| value.to_str().ok());
        let stated = values.collect::<Vec<_>>().join(",");
        content_coding(&self.redaction.redact(&stated))
    }

    /// The pause that the server asks for.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        retry_after(self.response.headers(), (self.clock)().wall)
    }

    /// The answer as an error. Drains a short body.
    pub(super) async fn into_error(self) -> FetchError {
        let error = FetchError::Status {
            status: self.response.status().as_u16(),
            retry_after: self.retry_after(),
        };
        drain(self.response).await;
        error
    }

    /// The next bytes of the body.
    pub(super) async fn chunk(&mut self) -> Result<Option<bytes::Bytes>, FetchError> {
        if let Some(pace) = &self.pace {
            pace.wait_for_bytes().await;
        }
        let chunk = self.response.chunk().await;
        if let (Ok(Some(bytes)), Some(pace)) = (&chunk, &self.pace) {
            pace.count_bytes(bytes.len());
        }
        if let (Ok(Some(bytes)), Some(received)) = (&chunk, &self.received) {
            received(bytes.len());
        }
        chunk.map_err(|error| {
            let error = FetchError::from(error).redacted(&self.redaction);
            self.permit.failed(&error);
            error
        })
    }

    /// Notes that the body is not awaited any longer, because of an error.
    pub(super) fn given_up(&mut self, error: &FetchError) {
        self.permit.failed(error);
    }

    /// Drains a short body.
    pub(super) async fn drain(self) {
        drain(self.response).await;
    }
}

/// Reads an unneeded body, if it is short: closing the connection would cost more.
async fn drain(mut response: Response) {
    if response
        .content_length()
        .is_some_and(|length| length > MOST_DRAINED as u64)
    {
        return;
    }
    let read = async {
        let mut left = MOST_DRAINED;
        while let Ok(Some(chunk)) = response.chunk().await {
            match left.checked_sub(chunk.len()) {
                Some(rest) => left = rest,
                None => break,
            }
        }
    };
    let _ = tokio::time::timeout(DRAIN_TIME, read).await;
}

/// The text of a header that should be ASCII: UTF-8, or else ISO 8859-1 (RFC 9110, section 5.5).
fn text_of_header(value: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(value) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => value.iter().copied().map(char::from).collect(),
    }
}

fn redirect_target(
    base: BaseUri<'_>,
    pool: Pool,
    may_lose_tls: bool,
    response: &Response,
) -> Result<Url, FetchError> {
    let location = response
        .headers()
        .get(LOCATION)
        .map(|value| text_of_header(value.as_bytes()))
        .ok_or(FetchError::RedirectWithoutLocation)?;
    let mut next = resolve_reference(base, location.trim()).map_err(|error| match error {
        ReferenceError::TooLong => FetchError::LongUri,
        ReferenceError::Syntax(_) => FetchError::RedirectWithoutLocation,
    })?;
    next.set_fragment(None);
    let mut next = without_userinfo(next);
    if pool == Pool::Sockets {
        // Some servers name another WebSocket as such.
        next = http_form(&next);
    }
    if base.uri.scheme() == "https" && next.scheme() == "http" && !may_lose_tls {
        return Err(FetchError::RedirectDowngrade(next.to_string()));
    }
    Ok(next)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::FutureExt;
    use futures_util::future::BoxFuture;
    use reqwest::Request;
    use resyncd_core::{HubUri, ResourceUri};
    use websub::{Mode, SubscriptionRequest};

    use super::*;
    use crate::proxies::{Proxies, ProxyException};
    use crate::test_site::{self, TestSite};
    use crate::{AllowedHosts, Wanted};

    async fn get(client: &Client, url: &str) -> Result<Answer, FetchError> {
        let url = Url::parse(url).unwrap();
        client
            .ask(
                Pool::Documents,
                &url,
                Follow::All,
                |_| Ok(()),
                |http, url| http.get(url),
            )
            .await
    }

    #[tokio::test]
    async fn redirects_are_followed_five_times_and_no_more() {
        let site = TestSite::start(|request| match request.path() {
            "/end" => test_site::ok("here"),
            path => {
                let left: u32 = path.trim_start_matches('/').parse().unwrap();
                test_site::redirect(
                    302,
                    &if left == 1 {
                        "end#part".into()
                    } else {
                        (left - 1).to_string()
                    },
                )
            }
        })
        .await;
        let client = test_site::client();
        let answer = get(&client, &site.url("/5#top")).await.unwrap();
        assert_eq!(answer.url.as_str(), site.url("/end"));
        let error = get(&client, &site.url("/6")).await.err();
        assert_eq!(error, Some(FetchError::TooManyRedirects));
    }

    /// As the sites of publishers do that check whether a browser stores cookies.
    #[tokio::test]
    async fn cookie_of_a_redirect_is_sent_back_within_its_chain_only() {
        let site = TestSite::start(|request| match request.header("cookie") {
            "gate=open" => test_site::ok("content"),
            "" => {
                let mut answer = test_site::redirect(302, request.path());
                let cookie = "gate=open; Path=/; HttpOnly".parse().unwrap();
                let headers = answer.headers_mut();
                headers.insert(reqwest::header::SET_COOKIE, cookie);
                answer
            }
            other => test_site::ok(other.to_owned()),
        })
        .await;
        let client = test_site::client();
        let mut answer = get(&client, &site.url("/article")).await.unwrap();
        assert_eq!(answer.chunk().await.unwrap().unwrap(), "content");
        // No redirect, no cookie.
        let url = Url::parse(&site.url("/other")).unwrap();
        let asked = client.ask(
            Pool::Documents,
            &url,
            Follow::Never,
            |_| Ok(()),
            |http, url| http.get(url),
        );
        assert_eq!(asked.await.unwrap().response.status(), 302);
    }

    #[tokio::test]
    async fn user_names_of_urls_are_not_sent() {
        let site =
            TestSite::start(|request| test_site::ok(request.header("authorization").to_owned()))
                .await;
        let client = test_site::client();
        let marked = site.url("/").replace("http://", "http://them:hunter2@");
        let mut answer = get(&client, &marked).await.unwrap();
        assert_eq!(answer.chunk().await, Ok(None), "none was sent");
        assert_eq!(answer.url.as_str(), site.url("/"));
    }

    #[tokio::test]
    async fn invalid_redirects_have_different_codes() {
        let site = TestSite::start(|request| match request.path() {
            "/nowhere" => test_site::status(302),
            "/ftp" => test_site::redirect(302, "ftp://example.com/"),
            "/long" => test_site::redirect(302, &format!("/{}", "a".repeat(8 << 10))),
            _ => test_site::redirect(302, "http://[nonsense"),
        })
        .await;
        let client = test_site::client();
        for (path, code) in [
            ("/nowhere", "redirect-without-location"),
            ("/nonsense", "redirect-without-location"),
            ("/ftp", "scheme"),
            ("/long", "long-uri"),
        ] {
            let error = get(&client, &site.url(path)).await.err().unwrap();
            assert_eq!(error.code(), code, "{path}");
        }
    }

    #[test]
    fn redirects_never_lead_from_https_to_http() {
        let answer_of = |pool: Pool, location: &str| {
            let response = axum::http::Response::builder()
                .status(302)
                .header("location", location)
                .body("")
                .unwrap();
            redirect_target(
                (&Url::parse("https://example.com/a/b").unwrap()).into(),
                pool,
                false,
                &Response::from(response),
            )
        };
        let answer = |location: &str| answer_of(Pool::Documents, location);
        for (pool, location) in [
            (Pool::Documents, "http://example.com/"),
            (Pool::Sockets, "ws://example.com/"),
        ] {
            assert!(matches!(
                answer_of(pool, location),
                Err(FetchError::RedirectDowngrade(_))
            ));
        }
        for (pool, scheme) in [(Pool::Documents, "wss"), (Pool::Sockets, "https")] {
            let target = answer_of(pool, "wss://example.net/x").unwrap();
            assert_eq!(target.as_str(), format!("{scheme}://example.net/x"));
        }
        assert_eq!(
            answer("//example.net/x").unwrap().as_str(),
            "https://example.net/x"
        );
        assert_eq!(
            answer("../c?d#e").unwrap().as_str(),
            "https://example.com/c?d"
        );
    }

    /// Redirects from https to http and back.
    struct Detour;

    impl HttpNetwork for Detour {
        fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, FetchError>> {
            assert!(!request.headers().contains_key("authorization"));
            let answer = axum::http::Response::builder();
            let answer = match request.url().as_str() {
                "https://example.com/a" => answer
                    .status(307)
                    .header("location", "http://example.com/b"),
                "http://example.com/b" => answer
                    .status(302)
                    .header("location", "https://example.com/c"),
                "https://example.com/c" => answer,
                other => panic!("{other}"),
            };
            std::future::ready(Ok(answer.body("content").unwrap().into())).boxed()
        }
    }

    #[tokio::test]
    async fn redirect_leads_from_https_to_http_only_where_a_digest_or_the_configuration_allows_it()
    {
        let client_that = |allow_redirects_to_http| {
            let http = HttpSettings {
                allow_redirects_to_http,
                ..test_site::http()
            };
            let client = Client::new(&http, test_site::now).unwrap();
            client.with_network(Arc::new(Detour))
        };
        let (client, allowing) = (client_that(false), client_that(true));
        let uri = ResourceUri::parse("https://example.com/a").unwrap();
        let mut credentials = Credentials::default();
        let url = Url::parse("https://user:password@example.net/").unwrap();
        let _ = credentials.extract(url);
        let signed_in = allowing.with_credentials(&credentials);
        for (client, is_verified, expected) in [
            (&client, true, Ok("https://example.com/c")),
            (&client, false, Err("redirect-downgrade")),
            (&allowing, false, Ok("https://example.com/c")),
            (&signed_in, false, Err("redirect-downgrade")),
            (&signed_in, true, Err("redirect-downgrade")),
        ] {
            let wanted = Wanted {
                is_verified,
                ..Wanted::default()
            };
            let hosts = AllowedHosts::any();
            let answer = client.get_representation(&uri, &hosts, None, None, wanted);
            let answer = answer
                .await
                .map(|content| content.unwrap().url().to_string());
            let answer = answer.as_deref().map_err(FetchError::code);
            assert_eq!(answer, expected, "{is_verified}");
        }
        let request = SubscriptionRequest {
            mode: Mode::Subscribe,
            callback: "https://example.org/".into(),
            topic: "https://example.com/topic".into(),
            lease_seconds: None,
            secret: Some("secret".into()),
        };
        let hub = HubUri::parse("https://example.com/a").unwrap();
        let error = allowing.ask_hub(&hub, &request).await.unwrap_err();
        assert_eq!(error.code(), "redirect-downgrade", "it has a secret");
    }

    #[test]
    fn redirects_may_lead_to_bytes_that_are_not_ascii() {
        let target = |location: &[u8]| {
            let response = axum::http::Response::builder()
                .status(302)
                .header("location", location)
                .body("")
                .unwrap();
            let base = Url::parse("https://example.com/a/b").unwrap();
            redirect_target(
                (&base).into(),
                Pool::Documents,
                false,
                &Response::from(response),
            )
            .unwrap()
        };
        for (location, expected) in [
            ("/caf\u{e9}.pdf".as_bytes(), "/caf%C3%A9.pdf"),
            (b"/caf\xe9.pdf", "/caf%C3%A9.pdf"),
            (b"/na\xefve?q=\xff", "/na%C3%AFve?q=%C3%BF"),
            (b"/caf%C3%A9.pdf", "/caf%C3%A9.pdf"),
        ] {
            let expected = format!("https://example.com{expected}");
            assert_eq!(target(location).as_str(), expected);
        }
    }

    #[tokio::test]
    async fn private_addresses_are_rejected_before_anything_is_sent() {
        let asked = Arc::new(AtomicUsize::new(0));
        let counter = asked.clone();
        let site = TestSite::start(move |_| {
            counter.fetch_add(1, Ordering::SeqCst);
            test_site::ok("secret")
        })
        .await;
        let client = Client::new(
            &HttpSettings {
                allow_private_addresses: false,
                ..test_site::http()
            },
            test_site::now,
        )
        .unwrap();
        let port = Url::parse(&site.url("/")).unwrap().port().unwrap();
        for host in ["127.0.0.1", "localhost", "2130706433", "[::ffff:127.0.0.1]"] {
            let error = get(&client, &format!("http://{host}:{port}/")).await.err();
            assert_eq!(error.unwrap().code(), "forbidden-address", "{host}");
        }
        assert_eq!(asked.load(Ordering::SeqCst), 0);
    }

    #[tokio::test]
    async fn connection_errors_have_different_codes() {
        let client = test_site::client();
        // Bound, so that no other test gets the port, and not listening.
        let closed = tokio::net::TcpSocket::new_v4().unwrap();
        closed.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let port = closed.local_addr().unwrap().port();
        let refused = get(&client, &format!("http://127.0.0.1:{port}/")).await;
        assert_eq!(refused.err().unwrap().code(), "connect");

        let plain = TestSite::start(|_| test_site::ok("")).await;
        let not_tls = get(&client, &plain.url("/").replace("http:", "https:")).await;
        assert_eq!(not_tls.err().unwrap().code(), "tls");
    }

    #[tokio::test]
    async fn a_server_that_never_answers_times_out() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let client = Client::new(
            &HttpSettings {
                timeout: Duration::from_millis(50),
                ..test_site::http()
            },
            test_site::now,
        )
        .unwrap();
        let error = get(&client, &url).await.err();
        assert_eq!(error, Some(FetchError::Timeout));
    }

    #[test]
    fn an_invalid_user_agent_is_an_error() {
        let error = Client::new(
            &HttpSettings {
                user_agent: "two\nlines".into(),
                ..test_site::http()
            },
            test_site::now,
        );
        assert_eq!(error.unwrap_err().code(), "http-client");
    }

    #[tokio::test]
    async fn no_proxy_of_the_environment_is_requested_directly_and_guarded() {
        // Both the proxy and the server of every name.
        let site = TestSite::start(|received| {
            test_site::ok(if received.is_for_proxy() {
                "proxied"
            } else {
                "direct"
            })
        })
        .await;
        let port = Url::parse(&site.url("/")).unwrap().port().unwrap();
        let proxy = format!("http://proxy.example:{port}");
        let exception = |host: &str| ProxyException::Host {
            host: host.to_owned(),
            port: None,
        };
        let http = HttpSettings {
            proxies: Proxies {
                http: Some(Url::parse(&proxy).unwrap()),
                exceptions: vec![exception("direct.example"), exception("proxy.example")],
                ..Proxies::default()
            },
            ..HttpSettings::default()
        };
        for allow_private in [true, false] {
            let guard = Guard {
                allow_private,
                as_public: Arc::default(),
                trusted: Arc::default(),
            };
            let lookup: NameLookup = Arc::new(|_| {
                let found = vec![(std::net::Ipv4Addr::LOCALHOST, 0).into()];
                Box::pin(std::future::ready(Ok(found)))
            });
            let client = Client::guarded(&http, guard, lookup, test_site::now).unwrap();
            let found =
                async |host: &str| match get(&client, &format!("http://{host}:{port}/")).await {
                    Ok(mut answer) => {
                        let body = answer.chunk().await.unwrap().unwrap();
                        String::from_utf8(body.to_vec()).unwrap()
                    }
                    Err(error) => error.code().to_owned(),
                };
            // The proxy itself may be private, and is none but a proxy.
            assert_eq!(found("other.example").await, "proxied");
            let direct = if allow_private {
                "direct"
            } else {
                "forbidden-address"
            };
            assert_eq!(found("direct.example").await, direct);
            assert_eq!(found("sub.direct.example").await, direct);
            assert_eq!(found("proxy.example").await, direct);
        }
    }

    #[tokio::test]
    async fn requests_to_one_host_are_limited_and_downloads_do_not_starve_documents() {
        let site = TestSite::start(|_| test_site::ok("bytes")).await;
        let client = Client::new(
            &HttpSettings {
                connections_per_host: 1,
                ..test_site::http()
            },
            test_site::now,
        )
        .unwrap();
        let uri = ResourceUri::parse(&site.url("/r")).unwrap();
        let any = AllowedHosts::any();
        let content = client
            .get_content(&uri, &any, None, None)
            .await
            .unwrap()
            .unwrap();
        let mut second = std::pin::pin!(client.get_content(&uri, &any, None, None));
        assert!(
            futures_util::poll!(second.as_mut()).is_pending(),
            "the permit is in use"
        );
        assert_eq!(client.permits.in_progress(Pool::Content), 1);
        get(&client, &site.url("/list")).await.unwrap();
        drop(content);
        second.await.unwrap();
    }
}
