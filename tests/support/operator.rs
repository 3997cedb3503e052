//! A client of the status endpoint.

use std::net::SocketAddr;
use std::time::Duration;

use reqwest::StatusCode;
use reqwest::redirect::Policy;
use resyncd::status::Status;
use serde::Deserialize;
use serde_json::Value;

use super::eventually;

/// A line of the feed.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub(crate) struct FeedLine {
    pub(crate) feed: String,
    pub(crate) seq: i64,
    pub(crate) applied_at: String,
    pub(crate) source: String,
    pub(crate) set: String,
    pub(crate) uri: String,
    pub(crate) change: String,
    pub(crate) path: Option<String>,
    pub(crate) length: Option<u64>,
    pub(crate) changed_at: Option<String>,
    pub(crate) origin: String,
    pub(crate) describes: Option<Vec<String>>,
    pub(crate) describedby: Option<Vec<String>>,
    pub(crate) profile: Option<Vec<String>>,
    pub(crate) collections: Option<Vec<String>>,
    pub(crate) via: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) alternate_of: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) links_left_out: Option<bool>,
    #[serde(default)]
    pub(crate) by: Option<String>,
}

/// A client of one daemon's status endpoint.
#[derive(Clone)]
pub(crate) struct Operator {
    client: reqwest::Client,
    address: SocketAddr,
}

impl Operator {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self {
            client: client(),
            address,
        }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) async fn get(&self, path: &str) -> (StatusCode, String) {
        let answer = send(|| self.client.get(self.url(path))).await;
        (answer.status(), answer.text().await.unwrap())
    }

    pub(crate) async fn post(&self, path: &str) -> (StatusCode, String) {
        let answer = send(|| self.client.post(self.url(path))).await;
        (answer.status(), answer.text().await.unwrap())
    }

    /// Opens the feed as a stream of server-sent events.
    pub(crate) async fn events(&self, since: i64) -> reqwest::Response {
        self.events_of(&format!("since={since}"), None).await
    }

    /// The same with any query, and the `id` of the last event as a browser states it that reconnects.
    pub(crate) async fn events_of(&self, query: &str, last: Option<&str>) -> reqwest::Response {
        let url = self.url(&format!("/changes?{query}"));
        let request = self.client.get(url).header("Accept", "text/event-stream");
        let request = match last {
            Some(id) => request.header("Last-Event-ID", id),
            None => request,
        };
        send(|| request.try_clone().unwrap()).await
    }

    /// The answer to a GET with its headers.
    pub(crate) async fn response(&self, path: &str) -> reqwest::Response {
        send(|| self.client.get(self.url(path))).await
    }

    /// The status; `None` if the daemon can't be reached.
    pub(crate) async fn try_status(&self) -> Option<Status> {
        let answer = self.client.get(self.url("/status")).send().await.ok()?;
        serde_json::from_str(&answer.text().await.ok()?).ok()
    }

    pub(crate) async fn status(&self) -> Status {
        let (status, body) = self.get("/status").await;
        assert_eq!(status, StatusCode::OK, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    /// The lines of the feed with a number above `since`.
    pub(crate) async fn changes(&self, since: i64) -> Vec<FeedLine> {
        let (status, body) = self
            .get(&format!("/changes?since={since}&limit=100000"))
            .await;
        assert_eq!(status, StatusCode::OK, "{body}");
        body.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// The number of the feed's last line.
    pub(crate) async fn last_change(&self) -> i64 {
        self.changes(0).await.last().map_or(0, |line| line.seq)
    }

    /// The answer of `GET /resource`; `None` if the resource is unknown.
    pub(crate) async fn resource(&self, uri: &str) -> Option<Value> {
        let query: String = url::form_urlencoded::Serializer::new(String::new())
            .append_pair("uri", uri)
            .finish();
        let (status, body) = self.get(&format!("/resource?{query}")).await;
        match status {
            StatusCode::OK => Some(serde_json::from_str(&body).unwrap()),
            StatusCode::NOT_FOUND => None,
            other => panic!("{other}: {body}"),
        }
    }

    /// Requests a poll of a Source.
    pub(crate) async fn poll(&self, source: &str) {
        let (status, body) = self.post(&format!("/sources/{source}/poll")).await;
        assert_eq!(status, StatusCode::ACCEPTED, "{body}");
    }

    /// Requests that the failed changes of a Source are tried now.
    pub(crate) async fn retry(&self, source: &str) {
        let (status, body) = self.post(&format!("/sources/{source}/retry")).await;
        assert_eq!(status, StatusCode::ACCEPTED, "{body}");
    }

    /// Requests a poll until it is accepted: the daemon may be killed, or be started again.
    pub(crate) async fn poll_in_the_end(&self, source: &str) {
        eventually("the poll is accepted", None, async || {
            let url = self.url(&format!("/sources/{source}/poll"));
            let answer = self.client.post(url).send().await;
            let answer = answer.and_then(|answer| answer.error_for_status());
            answer.map_err(|error| error.to_string())
        })
        .await;
    }
}

/// Sends a request, again if it gets no answer: the daemon closes a connection whose head comes five seconds after it was opened, which
/// a busy machine may cause.
pub(crate) async fn send(request: impl Fn() -> reqwest::RequestBuilder) -> reqwest::Response {
    const TRIES: u32 = 5;
    let mut tries = 1;
    loop {
        match request().send().await {
            Ok(answer) => return answer,
            Err(error) => assert!(tries < TRIES, "{error:?}"),
        }
        tries += 1;
    }
}

/// A plain HTTP client.
pub(crate) fn client() -> reqwest::Client {
    client_with(Policy::default())
}

/// A client that follows redirects as stated.
pub(crate) fn client_with(redirects: Policy) -> reqwest::Client {
    // Fails if another test of this process has installed the same provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .no_proxy()
        .redirect(redirects)
        .tls_certs_only([])
        // A connection that is not used for long may be closed just when it is used again.
        .pool_max_idle_per_host(0)
        .timeout(Duration::from_secs(60))
        .build()
        .unwrap()
}
