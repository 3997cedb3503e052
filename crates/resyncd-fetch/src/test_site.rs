//! A small server on loopback, for tests.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use chrono::Utc;
use resyncd_core::Now;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::{Bounds, Client};
use crate::HttpSettings;

/// A request that was received.
pub(super) struct Received {
    pub(super) method: Method,
    uri: Uri,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Received {
    pub(super) fn path(&self) -> &str {
        self.uri.path()
    }

    /// Whether it is one to a proxy, which names the host of another server.
    pub(super) fn is_for_proxy(&self) -> bool {
        self.uri.host().is_some()
    }

    pub(super) fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map(|value| value.to_str().unwrap())
            .unwrap_or_default()
    }
}

/// Serves until it is dropped.
pub(super) struct TestSite {
    base: String,
    server: JoinHandle<()>,
}

impl TestSite {
    /// Answers every request with a function.
    pub(super) async fn start(
        answer: impl Fn(Received) -> Response + Send + Sync + 'static,
    ) -> Self {
        let answer = Arc::new(answer);
        let app = Router::new().fallback(move |request: Request| {
            let answer = answer.clone();
            async move {
                let (parts, body) = request.into_parts();
                answer(Received {
                    method: parts.method,
                    uri: parts.uri,
                    headers: parts.headers,
                    body: to_bytes(body, 1 << 20).await.unwrap(),
                })
            }
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let server = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { base, server }
    }

    /// Answers every connection with the same bytes, valid HTTP or not, and closes it.
    pub(super) async fn start_raw(answer: impl Into<Vec<u8>>) -> Self {
        let answer = answer.into();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let server = tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = Vec::new();
                while !request.windows(4).any(|window| window == b"\r\n\r\n") {
                    if stream.read_buf(&mut request).await.unwrap_or(0) == 0 {
                        break;
                    }
                }
                let _ = stream.write_all(&answer).await;
                let _ = stream.shutdown().await;
            }
        });
        Self { base, server }
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }
}

impl Drop for TestSite {
    fn drop(&mut self) {
        self.server.abort();
    }
}

pub(super) fn ok(body: impl Into<Body>) -> Response {
    Response::new(body.into())
}

pub(super) fn ok_with(headers: &[(&'static str, &str)], body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    for (name, value) in headers {
        response.headers_mut().append(*name, value.parse().unwrap());
    }
    response
}

pub(super) fn status(code: u16) -> Response {
    StatusCode::from_u16(code).unwrap().into_response()
}

pub(super) fn redirect(code: u16, to: &str) -> Response {
    let mut response = status(code);
    response
        .headers_mut()
        .insert(header::LOCATION, to.parse().unwrap());
    response
}

pub(super) fn http() -> HttpSettings {
    HttpSettings {
        connections_per_host: 4,
        streams_per_host: 4,
        timeout: Duration::from_secs(20),
        user_agent: "resyncd/test".into(),
        allow_private_addresses: true,
        ..HttpSettings::default()
    }
}

/// What time it is.
pub(super) fn now() -> Now {
    Now {
        wall: Utc::now(),
        mono: Instant::now(),
    }
}

/// A client that may contact loopback, with short pauses between retries.
pub(super) fn client() -> Client {
    Client::new(&http(), now)
        .unwrap()
        .with_document_retries(Bounds {
            tries: 3,
            first: Duration::from_millis(1),
            longest: Duration::from_millis(2),
        })
}
