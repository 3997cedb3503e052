//! Content: the bytes of a resource exactly as they are served, a chunk at a time. A body that is cut short is continued by a request
//! for the rest.

use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{
    ACCEPT, ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, IF_RANGE, RANGE,
};
use reqwest::{RequestBuilder, StatusCode};
use resourcesync::SourceTime;
use resourcesync::media_type::media_type_essence;
use resyncd_core::{ResourceUri, ServedVersion};
use url::Url;

use super::client::{Answer, Client, Follow};
use super::permits::Pool;
use super::ranges::{ContentRange, DownloadRecord};
use super::validators::{last_modified, make_conditional};
use super::{FetchError, SizeLimit};
use crate::{format_http_date, parse_http_date};

/// The minimum number of bytes, or the end of the body, in [`TIMEOUTS`] time-outs. A body that is cut short after fewer bytes is not
/// continued.
const LEAST: u64 = 64 << 10;

/// In how many time-outs a minimum number of bytes is received: a server that sends single bytes must not hold a connection forever.
const TIMEOUTS: u32 = 30;

/// The hosts that resources may be fetched from.
#[derive(Clone, Copy, Debug)]
pub struct AllowedHosts<'a>(&'a [String]);

impl<'a> AllowedHosts<'a> {
    /// The configured hosts: lower case, with a port or for all ports. An empty list allows any host.
    #[must_use]
    pub fn new(hosts: &'a [String]) -> Self {
        Self(hosts)
    }

    /// Any host.
    #[must_use]
    pub fn any() -> Self {
        Self(&[])
    }

    /// Whether a URL is on one of them.
    pub fn allows(&self, url: &Url) -> bool {
        if self.0.is_empty() {
            return true;
        }
        let Some(host) = url.host_str() else {
            return false;
        };
        self.0.iter().any(|allowed| {
            let Some(rest) = allowed.strip_prefix(host) else {
                return false;
            };
            match rest.strip_prefix(':') {
                Some(port) => port.parse().ok() == url.port_or_known_default(),
                None => rest.is_empty(),
            }
        })
    }

    pub(super) fn check(&self, url: &Url) -> Result<(), FetchError> {
        if self.allows(url) {
            Ok(())
        } else {
            let host = url.host_str().unwrap_or_default();
            Err(FetchError::ForbiddenHost(match url.port() {
                Some(port) => format!("{host}:{port}"),
                None => host.to_owned(),
            }))
        }
    }
}

/// Which representation of a resource is asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted<'a> {
    /// The media type that is stated of it. Any other is accepted.
    pub media_type: Option<&'a str>,
    /// The content codings that are asked for; `None`: it is asked for as it is.
    pub coding: Option<&'a str>,
    /// As of when it is asked for (`Accept-Datetime`, RFC 7089, section 2.1.1).
    pub as_of: Option<SourceTime>,
    /// Whether caches are to ask the server again.
    pub past_caches: bool,
    /// Whether the caller compares the bytes with a digest: then parts may be joined that no validator proves to be of one version, and a
    /// redirect may lead from https to http.
    pub is_verified: bool,
}

/// The header that asks for a version of a resource, and the one that states its time (RFC 7089, section 2.1.1).
const ACCEPT_DATETIME: HeaderName = HeaderName::from_static("accept-datetime");
const MEMENTO_DATETIME: HeaderName = HeaderName::from_static("memento-datetime");

impl Wanted<'_> {
    /// The `Accept` header. Other types are accepted: a server that has no other answers 406 otherwise.
    fn accept(&self) -> HeaderValue {
        const ANY: HeaderValue = HeaderValue::from_static("*/*");
        let Some(essence) = self.media_type.map(media_type_essence) else {
            return ANY;
        };
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&^_.+-".contains(&byte);
        let is_type = essence.split_once('/').is_some_and(|(kind, subtype)| {
            let names = [kind, subtype];
            names
                .iter()
                .all(|name| !name.is_empty() && name.bytes().all(is_token))
        });
        if !is_type || essence.len() > 200 {
            return ANY;
        }
        HeaderValue::try_from(format!("{essence}, */*;q=0.1")).unwrap_or(ANY)
    }

    /// The `Accept-Encoding` header. What is no list of codings is not sent.
    fn accept_encoding(&self) -> HeaderValue {
        const IDENTITY: HeaderValue = HeaderValue::from_static("identity");
        let is_token = |name: &str| {
            let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.+".contains(&byte);
            !name.is_empty() && name.bytes().all(is_part)
        };
        let codings = self.coding.filter(|stated| {
            let mut names = stated.split(',').map(str::trim);
            names.all(is_token)
        });
        let codings = codings.and_then(|stated| HeaderValue::try_from(stated).ok());
        codings.unwrap_or(IDENTITY)
    }
}

/// A request for a resource, and for the rest of it.
struct ContentRequest<'a> {
    client: &'a Client,
    uri: &'a ResourceUri,
    hosts: AllowedHosts<'a>,
    limit: Option<SizeLimit>,
    wanted: Wanted<'a>,
}

impl ContentRequest<'_> {
    /// `more` adds what differs between the first request and those for the rest.
    async fn ask(
        &self,
        more: impl Fn(&Url, RequestBuilder) -> RequestBuilder,
    ) -> Result<Answer, FetchError> {
        let accept = self.wanted.accept();
        let as_of = self.wanted.as_of.and_then(format_http_date);
        let asking = self.client.ask(
            Pool::Content,
            self.uri.url(),
            if self.wanted.is_verified {
                Follow::Verified
            } else {
                Follow::All
            },
            |url| self.hosts.check(url),
            |http, url| {
                let mut request = http.get(url.clone()).header(ACCEPT, &accept);
                if let Some(as_of) = &as_of {
                    request = request.header(ACCEPT_DATETIME, as_of);
                }
                if self.wanted.past_caches {
                    request = request.header(CACHE_CONTROL, "no-cache");
                }
                more(&url, request)
            },
        );
        asking.await
    }

    /// Requests what follows the `received` bytes; `None`: the server has another version, or sends something else.
    async fn ask_rest(
        &self,
        received: u64,
        record: &DownloadRecord,
    ) -> Result<Option<(Answer, ContentRange)>, FetchError> {
        let answer = self.ask(|_, request| {
            let request = request
                .header(ACCEPT_ENCODING, "identity")
                .header(RANGE, format!("bytes={received}-"));
            match record.strong_validator() {
                Some(validator) => request.header(IF_RANGE, validator),
                None => request,
            }
        });
        let answer = answer.await?;
        let headers = answer.response.headers();
        match answer.response.status() {
            StatusCode::PARTIAL_CONTENT if answer.content_coding().is_none() => {
                let range = ContentRange::of(headers).filter(|range| {
                    record.is_continued_by(received, *range, headers)
                        && range.last + 1 == range.total
                });
                Ok(range.map(|range| (answer, range)))
            }
            status if status.is_success() => Ok(None),
            _ => Err(answer.into_error().await),
        }
    }
}

/// A resource that is being received. It counts as a request to its host until it is dropped.
pub struct Content<'a> {
    request: ContentRequest<'a>,
    /// `None`: it was cut short, and can't be continued.
    answer: Option<Answer>,
    url: Url,
    record: DownloadRecord,
    last_modified: Option<SourceTime>,
    memento_datetime: Option<SourceTime>,
    media_type: Option<String>,
    coding: Option<String>,
    /// Bytes that were received, and that [`chunk`](Self::chunk) has not returned.
    first: Option<Bytes>,
    received: u64,
    /// How many bytes were received before those of this answer.
    before: u64,
    pace: ThroughputGuard,
}

/// Enforces a minimum rate of a body.
pub(super) struct ThroughputGuard {
    /// The minimum number of bytes, and the time for them.
    least: u64,
    within: Duration,
    /// The time spent waiting for the server. The caller's time between two chunks does not count.
    waited: Duration,
    /// The bytes received in that time.
    received: u64,
}

impl ThroughputGuard {
    /// `timeout`: that of the client, of which thirty may pass.
    pub(super) fn new(least: u64, timeout: Duration) -> Self {
        Self {
            least,
            within: timeout.saturating_mul(TIMEOUTS),
            waited: Duration::ZERO,
            received: 0,
        }
    }

    /// The next bytes, if they are received in time.
    pub(super) async fn chunk(&mut self, answer: &mut Answer) -> Result<Option<Bytes>, FetchError> {
        let started = (answer.clock)().mono;
        let left = self.within.saturating_sub(self.waited);
        let chunk = match tokio::time::timeout(left, answer.chunk()).await {
            Ok(chunk) => chunk?,
            Err(_) => {
                let error = FetchError::TooSlow {
                    least: self.least,
                    within: self.within,
                };
                answer.given_up(&error);
                return Err(error);
            }
        };
        self.waited += (answer.clock)().mono.saturating_duration_since(started);
        self.received += chunk.as_ref().map_or(0, |chunk| chunk.len() as u64);
        if self.received >= self.least {
            (self.waited, self.received) = (Duration::ZERO, 0);
        }
        Ok(chunk)
    }
}

impl Content<'_> {
    /// The length that the server announces, in bytes.
    pub fn length(&self) -> Option<u64> {
        self.record.length
    }

    /// The `Last-Modified` header.
    pub fn last_modified(&self) -> Option<SourceTime> {
        self.last_modified
    }

    /// The `Memento-Datetime` header: the time of the version that it is.
    pub fn memento_datetime(&self) -> Option<SourceTime> {
        self.memento_datetime
    }

    /// The media type in lower case, without parameters.
    pub fn media_type(&self) -> Option<&str> {
        self.media_type.as_deref()
    }

    /// The coding that the server states of the bytes, in lower case; `None` if they are not coded.
    pub fn coding(&self) -> Option<&str> {
        self.coding.as_deref()
    }

    /// The version for a later conditional request; `None` if the server sent no validators.
    pub fn version(&self) -> Option<ServedVersion> {
        let validators = &self.record.validators;
        (!validators.is_empty()).then(|| ServedVersion {
            url: self.url.clone(),
            validators: validators.clone(),
        })
    }

    /// Its URL after redirects.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// The next bytes; `None` at the end of a body of the announced length. After an error the received bytes are unusable.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, FetchError> {
        if let Some(first) = self.first.take() {
            return Ok(Some(first));
        }
        loop {
            match self.receive().await {
                Err(error) if !self.resume_after(&error).await => return Err(error),
                Err(_) => {}
                received => return received,
            }
        }
    }

    /// The bytes that [`chunk`](Self::chunk) returns next.
    pub async fn first_bytes(&mut self) -> Result<&[u8], FetchError> {
        if self.first.is_none() {
            self.first = self.chunk().await?;
        }
        Ok(self.first.as_deref().unwrap_or_default())
    }

    /// The next bytes of this answer.
    async fn receive(&mut self) -> Result<Option<Bytes>, FetchError> {
        let answer = self.answer.as_mut().ok_or(FetchError::CutShort)?;
        let chunk = self.pace.chunk(answer).await?;
        let received = self.received + chunk.as_ref().map_or(0, |chunk| chunk.len() as u64);
        SizeLimit::check(self.request.limit, received)?;
        let is_other_length = |length| match &chunk {
            Some(_) => received > length,
            None => received != length,
        };
        if self.record.length.is_some_and(is_other_length) {
            return Err(FetchError::CutShort);
        }
        self.received = received;
        Ok(chunk)
    }

    /// Requests the rest after an error, if the received bytes can be continued: they are not coded, a validator or the caller proves
    /// that all are of one version, and this answer had enough of them. Returns whether there is more to receive.
    async fn resume_after(&mut self, error: &FetchError) -> bool {
        let is_cut = matches!(
            error,
            FetchError::CutShort | FetchError::Timeout | FetchError::Io(_)
        );
        let is_provable =
            self.request.wanted.is_verified || self.record.strong_validator().is_some();
        if !is_cut || !is_provable || self.coding.is_some() || self.received - self.before < LEAST {
            return false;
        }
        // It holds the permit that the next request may need.
        self.answer = None;
        let client = self.request.client;
        let asking = client.retry(|| self.request.ask_rest(self.received, &self.record));
        let Ok(Some((answer, range))) = asking.await else {
            return false;
        };
        if SizeLimit::check(self.request.limit, range.total).is_err() {
            return false;
        }
        self.answer = Some(answer);
        self.record.length = Some(range.total);
        self.before = self.received;
        self.pace = ThroughputGuard::new(LEAST, client.timeout());
        true
    }
}

impl std::fmt::Debug for Content<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Content")
            .field("url", &self.url.as_str())
            .field("length", &self.record.length)
            .field("received", &self.received)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// Requests a resource; `None` if it is still the version `if_changed`. The request is conditional only at the URL of that
    /// version, which may be the target of a redirect.
    ///
    /// Every redirect must lead to an allowed host too. `limit`: `None` for no limit. The total time is not
    /// limited, but the rate is at least 64 KiB in thirty time-outs. One try only: retries are up to the caller. A body that is cut
    /// short after 64 KiB or more is continued by another request, with the bounds of documents for its tries, as often as that happens.
    pub async fn get_content<'a>(
        &'a self,
        uri: &'a ResourceUri,
        hosts: &AllowedHosts<'a>,
        limit: Option<SizeLimit>,
        if_changed: Option<&ServedVersion>,
    ) -> Result<Option<Content<'a>>, FetchError> {
        let wanted = Wanted::default();
        self.get_representation(uri, hosts, limit, if_changed, wanted)
            .await
    }

    /// As [`get_content`](Self::get_content), of a certain representation. The bytes are returned as they are served, coded or not.
    pub async fn get_representation<'a>(
        &'a self,
        uri: &'a ResourceUri,
        hosts: &AllowedHosts<'a>,
        limit: Option<SizeLimit>,
        if_changed: Option<&ServedVersion>,
        wanted: Wanted<'a>,
    ) -> Result<Option<Content<'a>>, FetchError> {
        let request = ContentRequest {
            client: self,
            uri,
            hosts: *hosts,
            limit,
            wanted,
        };
        let codings = wanted.accept_encoding();
        let known_at = |url: &Url| {
            let known = if_changed.filter(|known| known.url == *url)?;
            Some(&known.validators).filter(|known| !known.is_empty())
        };
        let answer = request.ask(|url, request| {
            make_conditional(known_at(url), request.header(ACCEPT_ENCODING, &codings))
        });
        let answer = answer.await?;
        match answer.response.status() {
            StatusCode::OK | StatusCode::NON_AUTHORITATIVE_INFORMATION => {}
            StatusCode::NOT_MODIFIED if known_at(&answer.url).is_some() => return Ok(None),
            _ => return Err(answer.into_error().await),
        }
        let length = answer.response.content_length();
        SizeLimit::check(limit, length.unwrap_or_default())?;
        let headers = answer.response.headers();
        Ok(Some(Content {
            request,
            url: answer.url.clone(),
            record: DownloadRecord::of(headers, length),
            last_modified: last_modified(headers),
            memento_datetime: answer
                .header(MEMENTO_DATETIME)
                .and_then(parse_http_date)
                .map(SourceTime::from),
            media_type: answer.header(CONTENT_TYPE).and_then(media_type),
            coding: answer.content_coding(),
            first: None,
            received: 0,
            before: 0,
            pace: ThroughputGuard::new(LEAST, self.timeout()),
            answer: Some(answer),
        }))
    }
}

fn media_type(content_type: &str) -> Option<String> {
    let essence = content_type.split(';').next()?.trim();
    (!essence.is_empty()).then(|| essence.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use resyncd_core::ErrorClass;

    use super::*;
    use crate::test_site::{self, TestSite};

    async fn get(site: &TestSite, path: &str, limit: Option<u64>) -> Result<Vec<u8>, FetchError> {
        let uri = ResourceUri::parse(&site.url(path)).unwrap();
        let client = test_site::client();
        let content = client
            .get_content(
                &uri,
                &AllowedHosts::any(),
                limit.map(SizeLimit::resource),
                None,
            )
            .await?;
        let mut content = content.unwrap();
        let mut bytes = Vec::new();
        while let Some(chunk) = content.chunk().await? {
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes)
    }

    #[test]
    fn hosts_are_compared_with_and_without_port() {
        let hosts: Vec<String> = ["example.com", "data.example.net:8080", "[2001:db8::1]"]
            .map(String::from)
            .into();
        for (url, expected) in [
            ("http://example.com/a", true),
            ("https://EXAMPLE.com:8443/a", true),
            ("http://example.com.evil.net/a", false),
            ("http://sub.example.com/a", false),
            ("http://data.example.net:8080/", true),
            ("http://data.example.net/", false),
            ("http://[2001:db8::1]:81/", true),
        ] {
            let url = Url::parse(url).unwrap();
            assert_eq!(AllowedHosts::new(&hosts).allows(&url), expected, "{url}");
            assert!(AllowedHosts::any().allows(&url));
        }
        let standard = ["example.org:443".to_owned()];
        let url = Url::parse("https://example.org/").unwrap();
        assert!(AllowedHosts::new(&standard).allows(&url));
    }

    #[tokio::test]
    async fn bytes_are_returned_exactly_as_served() {
        let site = TestSite::start(|request| {
            assert_eq!(request.header("accept-encoding"), "identity");
            assert_eq!(request.header("user-agent"), "resyncd/test");
            test_site::ok_with(
                &[("content-encoding", "gzip")],
                &b"\x1f\x8bnot looked at"[..],
            )
        })
        .await;
        let bytes = get(&site, "/a.gz", None).await.unwrap();
        assert_eq!(bytes, b"\x1f\x8bnot looked at");
    }

    #[tokio::test]
    async fn the_stated_type_is_asked_for_and_any_other_is_accepted() {
        let wanted = |media_type, coding| Wanted {
            media_type,
            coding,
            ..Wanted::default()
        };
        for (stated, accept) in [
            (None, "*/*"),
            (Some("Text/Turtle; charset=utf-8"), "text/turtle, */*;q=0.1"),
            (
                Some("application/ld+json"),
                "application/ld+json, */*;q=0.1",
            ),
            (Some("html"), "*/*"),
            (Some("text/"), "*/*"),
            (Some("a/b, c/d"), "*/*"),
            (Some("text/a\r\nx: y"), "*/*"),
        ] {
            assert_eq!(wanted(stated, None).accept(), accept, "{stated:?}");
        }
        for (stated, header) in [
            (None, "identity"),
            (Some("gzip"), "gzip"),
            (Some("gzip, br"), "gzip, br"),
            (Some("gzip;q=0"), "identity"),
            (Some("gzip,"), "identity"),
            (Some("br\r\nx: y"), "identity"),
        ] {
            assert_eq!(wanted(None, stated).accept_encoding(), header, "{stated:?}");
        }
        let site = TestSite::start(|request| {
            assert_eq!(request.header("accept"), "text/turtle, */*;q=0.1");
            assert_eq!(request.header("accept-encoding"), "gzip");
            test_site::ok_with(&[("content-encoding", " GZIP ")], "coded")
        })
        .await;
        let uri = ResourceUri::parse(&site.url("/r")).unwrap();
        let any = AllowedHosts::any();
        let wanted = wanted(Some("text/turtle"), Some("gzip"));
        let client = test_site::client();
        let content = client.get_representation(&uri, &any, None, None, wanted);
        let content = content.await.unwrap().unwrap();
        assert_eq!(content.coding(), Some("gzip"));
    }

    #[tokio::test]
    async fn headers_of_the_response_are_returned() {
        let site = TestSite::start(|request| {
            if request.header("if-none-match") == "\"1\"" {
                return test_site::status(304);
            }
            test_site::ok_with(
                &[
                    ("etag", "\"1\""),
                    ("last-modified", "Sun, 06 Nov 1994 08:49:37 GMT"),
                    ("content-type", "Text/HTML; charset=utf-8"),
                ],
                "12345",
            )
        })
        .await;
        let client = test_site::client();
        let uri = ResourceUri::parse(&site.url("/r")).unwrap();
        let any = AllowedHosts::any();
        let content = client
            .get_content(&uri, &any, None, None)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(content.length(), Some(5));
        assert_eq!(content.media_type(), Some("text/html"));
        assert_eq!(
            content.last_modified(),
            Some(SourceTime::from_micros(784_111_777_000_000))
        );
        let known = content.version().unwrap();
        let again = client
            .get_content(&uri, &any, None, Some(&known))
            .await
            .unwrap();
        assert!(again.is_none(), "it has not changed");
        let elsewhere = ServedVersion {
            url: uri.url().join("/elsewhere").unwrap(),
            ..known
        };
        let again = client
            .get_content(&uri, &any, None, Some(&elsewhere))
            .await
            .unwrap();
        assert!(
            again.is_some(),
            "what is known of another place says nothing"
        );
    }

    #[tokio::test]
    async fn conditional_requests_are_sent_only_to_the_url_of_the_version() {
        let site = TestSite::start(|request| match request.path() {
            "/r" => {
                assert_eq!(request.header("if-none-match"), "", "that is another place");
                test_site::redirect(302, "/there")
            }
            _ if request.header("if-none-match") == "\"1\"" => test_site::status(304),
            _ => test_site::ok_with(&[("etag", "\"1\"")], "12345"),
        })
        .await;
        let client = test_site::client();
        let uri = ResourceUri::parse(&site.url("/r")).unwrap();
        let any = AllowedHosts::any();
        let first = client.get_content(&uri, &any, None, None).await.unwrap();
        let known = first.unwrap().version().unwrap();
        assert_eq!(known.url.as_str(), site.url("/there"));
        let again = client.get_content(&uri, &any, None, Some(&known)).await;
        assert!(again.unwrap().is_none());
    }

    #[tokio::test]
    async fn content_over_the_limit_is_rejected_announced_or_not() {
        let announced = TestSite::start(|_| test_site::ok("123456")).await;
        assert_eq!(get(&announced, "/", Some(6)).await.unwrap().len(), 6);
        assert_eq!(
            get(&announced, "/", Some(5)).await,
            Err(FetchError::TooLarge(SizeLimit::resource(5)))
        );
        let chunked = TestSite::start_raw(
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n6\r\n123456\r\n0\r\n\r\n",
        )
        .await;
        assert_eq!(get(&chunked, "/", Some(6)).await.unwrap().len(), 6);
        assert_eq!(
            get(&chunked, "/", Some(5)).await,
            Err(FetchError::TooLarge(SizeLimit::resource(5)))
        );
    }

    #[tokio::test]
    async fn content_that_is_cut_short_is_an_error() {
        for raw in [
            "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n12345",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\na\r\n12345",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\n12345\r\n",
        ] {
            let site = TestSite::start_raw(raw).await;
            assert_eq!(
                get(&site, "/", None).await,
                Err(FetchError::CutShort),
                "{raw:?}"
            );
        }
    }

    #[tokio::test]
    async fn redirects_to_hosts_that_are_not_allowed_are_rejected() {
        let elsewhere = TestSite::start(|_| test_site::ok("theirs")).await;
        let target = elsewhere.url("/theirs");
        let site = TestSite::start(move |_| test_site::redirect(302, &target)).await;
        let uri = ResourceUri::parse(&site.url("/ours")).unwrap();
        let client = test_site::client();
        let host = [uri.authority()];
        let refused = client
            .get_content(&uri, &AllowedHosts::new(&host), None, None)
            .await;
        assert_eq!(refused.unwrap_err().code(), "forbidden-host");
        assert_eq!(get(&site, "/ours", None).await.unwrap(), b"theirs");
    }

    #[tokio::test]
    async fn absence_has_its_own_codes_and_errors_carry_retry_after() {
        let site = TestSite::start(|request| match request.path() {
            "/404" => test_site::status(404),
            "/410" => test_site::status(410),
            "/204" => test_site::status(204),
            _ => {
                let mut response = test_site::ok_with(&[("retry-after", "17")], "");
                *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
                response
            }
        })
        .await;
        for (path, code) in [
            ("/404", "not-found"),
            ("/410", "gone"),
            ("/204", "http-status"),
        ] {
            let error = get(&site, path, None).await.unwrap_err();
            assert_eq!(error.code(), code);
            assert_eq!(error.class(), ErrorClass::Unusable);
        }
        let error = get(&site, "/503", None).await.unwrap_err();
        assert_eq!(error.class(), ErrorClass::Retry);
        let after = std::time::Duration::from_secs(17);
        assert_eq!(error.retry_after(), Some(after));
    }
}
