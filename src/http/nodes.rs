//! Requests about a Source that another node of the database follows: they are passed on to it, and its answer is the answer.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use percent_encoding::percent_decode_str;
use tokio_util::sync::CancellationToken;

use super::error_response::{database_failed, error_response};
use crate::engine::{NodeAnswer, NodeRequest, ask_node};
use crate::store::{Store, Wake};

/// What the paths begin with that go on with the name of a Source.
const PATHS: [&str; 2] = ["/sources/", "/page/sources/"];
/// The headers that an answer depends on.
const HEADERS: [&str; 2] = ["accept", "sec-fetch-site"];
/// How long another node may take: as long as hubs that confirm the end of subscriptions.
const TIME: Duration = Duration::from_secs(120);
/// The longest answer, in bytes.
const LONGEST: usize = 64 << 20;

/// Middleware: has a request about a Source answered by the node that follows it.
pub(super) async fn pass_on(
    State(store): State<Arc<Store>>,
    request: Request,
    next: Next,
) -> Response {
    let Some(name) = source_of(request.uri().path()).filter(|_| store.is_shared()) else {
        return next.run(request).await;
    };
    let holder = match store.holder(&name).await {
        Ok(Some(holder)) if !holder.is_own => holder,
        Ok(_) => return next.run(request).await,
        Err(error) => return database_failed(&error),
    };
    let headers = HEADERS.into_iter().filter_map(|name| {
        let value = request.headers().get(name)?.to_str().ok()?;
        Some((name.to_owned(), value.to_owned()))
    });
    let uri = request.uri().path_and_query();
    let request = NodeRequest {
        method: request.method().to_string(),
        uri: uri.map_or_else(|| "/".to_owned(), ToString::to_string),
        headers: headers.collect(),
    };
    match ask_node(&store, &holder, &request, TIME).await {
        Ok(answer) => response(answer),
        Err(error) if error.code() == "node-not-answering" => error_response(
            StatusCode::SERVICE_UNAVAILABLE,
            error.code(),
            &error.to_string(),
        ),
        Err(error) => database_failed(&error),
    }
}

/// The name of the Source that a path is about.
fn source_of(path: &str) -> Option<String> {
    let rest = PATHS.iter().find_map(|begin| path.strip_prefix(begin))?;
    let name = rest.split('/').next()?;
    let name = percent_decode_str(name).decode_utf8().ok()?;
    Some(name.into_owned())
}

fn response(answer: NodeAnswer) -> Response {
    let mut response = Response::new(Body::from(answer.body));
    *response.status_mut() =
        StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    for (name, value) in answer.headers {
        let header = HeaderName::try_from(name).ok();
        if let Some((name, value)) = header.zip(HeaderValue::try_from(value).ok()) {
            response.headers_mut().append(name, value);
        }
    }
    response
}

/// Answers what other nodes ask of this one, with these routes, until the stop.
pub async fn answer_nodes(store: Arc<Store>, routes: Router, stop: CancellationToken) {
    let mut wakes = store.wakes();
    loop {
        match store.asked().await {
            Ok(asked) => {
                for (number, request) in asked {
                    tokio::spawn(answer(Arc::clone(&store), routes.clone(), number, request));
                }
            }
            Err(error) => {
                tracing::debug!(code = error.code(), %error, "database error; other nodes are not answered");
            }
        }
        let asked = Wake::until(&mut wakes, |wake| matches!(wake, Wake::Asked(_)));
        if stop.run_until_cancelled(asked).await.is_none() {
            return;
        }
    }
}

async fn answer(store: Arc<Store>, routes: Router, number: i64, request: String) {
    let answer = match serde_json::from_str(&request) {
        Ok(request) => answer_of(routes, request).await,
        Err(_) => None,
    };
    let answer = answer.and_then(|answer| serde_json::to_string(&answer).ok());
    // Whoever asks gets an error in time.
    let Some(answer) = answer else {
        return;
    };
    if let Err(error) = store.answer(number, answer).await {
        tracing::debug!(code = error.code(), %error, "database error; another node is not answered");
    }
}

/// The answer of these routes; `None`: it is not a text of bounded length.
async fn answer_of(routes: Router, request: NodeRequest) -> Option<NodeAnswer> {
    let mut asked = Request::builder().method(&*request.method).uri(request.uri);
    for (name, value) in request.headers {
        asked = asked.header(name, value);
    }
    let asked = asked.body(Body::empty()).ok()?;
    // It is infallible.
    let Ok(answer) = TowerToHyperService::new(routes).call(asked).await;
    let (parts, body) = answer.into_parts();
    let body = to_bytes(body, LONGEST).await.ok()?;
    let headers = parts.headers.iter().filter_map(|(name, value)| {
        let is_own = name == header::CONTENT_LENGTH;
        let value = value.to_str().ok().filter(|_| !is_own)?;
        Some((name.to_string(), value.to_owned()))
    });
    Some(NodeAnswer {
        status: parts.status.as_u16(),
        headers: headers.collect(),
        body: String::from_utf8(body.into()).ok()?,
    })
}
