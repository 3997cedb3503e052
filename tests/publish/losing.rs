//! What is in front of a callback listener, and loses deliveries.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use reqwest::header::{CONTENT_LENGTH, HOST};
use reqwest::{Method, StatusCode};
use resyncd::config::Config;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use url::Url;

use crate::support::{client, eventually};

/// Forwards to a callback listener, until it is dropped.
pub(super) struct LosingProxy {
    shared: Arc<Shared>,
    server: JoinHandle<()>,
}

struct Shared {
    callback: SocketAddr,
    loses_next: AtomicBool,
}

impl LosingProxy {
    /// Puts itself in front of the callback listener of a configuration.
    pub(super) fn put_before(config: &mut Config) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let path = config.callback.public_url.as_ref().unwrap().path();
        config.callback.public_url = Url::parse(&format!("http://{address}{path}")).ok();
        let shared = Arc::new(Shared {
            callback: config.callback.listen,
            loses_next: AtomicBool::new(false),
        });
        let router = Router::new()
            .fallback(answer)
            .with_state(Arc::clone(&shared));
        let listener = TcpListener::from_std(listener).unwrap();
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { shared, server }
    }

    /// The next delivery is accepted, and lost.
    pub(super) fn lose_next(&self) {
        self.shared.loses_next.store(true, Ordering::SeqCst);
    }

    pub(super) async fn until_lost(&self) {
        eventually("a delivery is lost", None, async || {
            if self.shared.loses_next.load(Ordering::SeqCst) {
                Err("nothing was delivered".to_owned())
            } else {
                Ok(())
            }
        })
        .await;
    }
}

impl Drop for LosingProxy {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn answer(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let is_delivery = request.method() == Method::POST;
    if is_delivery && shared.loses_next.swap(false, Ordering::SeqCst) {
        return StatusCode::ACCEPTED.into_response();
    }
    let (mut parts, body) = request.into_parts();
    parts.headers.remove(HOST);
    parts.headers.remove(CONTENT_LENGTH);
    let body = to_bytes(body, usize::MAX).await.unwrap();
    let url = format!("http://{}{}", shared.callback, parts.uri);
    let forwarded = client()
        .request(parts.method, url)
        .headers(parts.headers)
        .body(body);
    match forwarded.send().await {
        Ok(answer) => (answer.status(), answer.bytes().await.unwrap()).into_response(),
        Err(_) => StatusCode::BAD_GATEWAY.into_response(),
    }
}
