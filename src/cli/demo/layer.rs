//! What is in front of the callback listener of the demo: it loses, duplicates and reorders some of what the hub delivers.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use fastrand::Rng;
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};

/// The longest delivery, in bytes.
const LONGEST: usize = 16 << 20;
/// How many deliveries of a hundred are lost, delivered twice, and delivered after the next one.
const LOST: u32 = 4;
const DOUBLED: u32 = 4;
const REORDERED: u32 = 4;

/// A request of the hub.
struct Delivery {
    method: Method,
    path: String,
    headers: HeaderMap,
    body: Bytes,
}

struct Layer {
    client: reqwest::Client,
    /// The callback listener, once there is one.
    callback: watch::Receiver<Option<SocketAddr>>,
    random: Mutex<Rng>,
    /// A delivery that comes after the next one.
    late: Mutex<Option<Delivery>>,
    events: mpsc::UnboundedSender<&'static str>,
}

/// Forwards what the hub sends, and tells what it does with a delivery on purpose.
///
/// # Errors
/// Those of a client that can't be made.
pub(super) fn lossy_router(
    callback: watch::Receiver<Option<SocketAddr>>,
    events: mpsc::UnboundedSender<&'static str>,
) -> reqwest::Result<Router> {
    let layer = Layer {
        // It stays on this machine.
        client: reqwest::Client::builder().no_proxy().build()?,
        callback,
        random: Mutex::new(Rng::with_seed(1)),
        late: Mutex::default(),
        events,
    };
    Ok(Router::new().fallback(answer).with_state(Arc::new(layer)))
}

async fn answer(State(layer): State<Arc<Layer>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let mut headers = parts.headers;
    for name in [header::HOST, header::CONTENT_LENGTH, header::CONNECTION] {
        headers.remove(name);
    }
    let Ok(body) = to_bytes(body, LONGEST).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    let delivery = Delivery {
        method: parts.method,
        path: parts.uri.to_string(),
        headers,
        body,
    };
    if delivery.method != Method::POST {
        return layer.forward(&delivery).await;
    }
    let late = layer.late.lock().take();
    let drawn = layer.random.lock().u32(..100);
    let answer = if drawn < LOST {
        layer.tell("a notification is lost on purpose");
        StatusCode::ACCEPTED.into_response()
    } else if drawn < LOST + DOUBLED {
        layer.tell("a notification is delivered twice on purpose");
        layer.forward(&delivery).await;
        layer.forward(&delivery).await
    } else if drawn < LOST + DOUBLED + REORDERED {
        layer.tell("a notification is delivered after the next one on purpose");
        *layer.late.lock() = Some(delivery);
        StatusCode::ACCEPTED.into_response()
    } else {
        layer.forward(&delivery).await
    };
    if let Some(late) = late {
        layer.forward(&late).await;
    }
    answer
}

impl Layer {
    fn tell(&self, event: &'static str) {
        // Nobody listens at the end.
        let _ = self.events.send(event);
    }

    async fn forward(&self, delivery: &Delivery) -> Response {
        let mut callback = self.callback.clone();
        let known = callback.wait_for(Option::is_some).await;
        let address = known.ok().and_then(|address| *address);
        let Some(address) = address else {
            return StatusCode::SERVICE_UNAVAILABLE.into_response();
        };
        let url = format!("http://{address}{}", delivery.path);
        let request = self
            .client
            .request(delivery.method.clone(), url)
            .headers(delivery.headers.clone())
            .body(delivery.body.clone());
        let answering = async {
            let answer = request.send().await?;
            let (status, body) = (answer.status(), answer.bytes().await?);
            Ok::<_, reqwest::Error>((status, body))
        };
        match answering.await {
            Ok(answer) => answer.into_response(),
            Err(_) => StatusCode::BAD_GATEWAY.into_response(),
        }
    }
}
