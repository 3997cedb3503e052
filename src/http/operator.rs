//! The status endpoint, for operators, dashboards and scripts.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{from_fn_with_state, map_response};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use futures_util::stream::{self, Stream, StreamExt};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::bearer_token::{BearerToken, require_token};
use super::error_response::{database_failed, error_response, operation_failed};
use super::host_origin_guard::{HostOriginGuard, reject_foreign_pages};
use super::rejection_counters::RejectionCounters;
use crate::config::StatusConfig;
use crate::protocol::{Digest, Link, ResourceUri};
use crate::status::{Operations, rfc3339};
use crate::store::{FeedEntry, ResourceView, Store, StoreError, Wake};

/// How many lines of the feed one response has by default.
const DEFAULT_LINES: usize = 1000;
/// How many lines of the feed one response has at most.
const MAX_LINES: usize = 100_000;
/// How many event streams are open at once: a small part of the connections of the listener, which each one occupies.
const MAX_STREAMS: usize = 64;
/// The `Retry-After` of a stream that is one too many, in seconds.
const STREAM_RETRY: &str = "10";
/// How long the database may take to answer before the process counts as ill.
const STORE_TIME: Duration = Duration::from_secs(15);
/// How often a stream without events sends a keep-alive.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// What the handlers need.
#[derive(Clone)]
struct OperatorState {
    operations: Arc<dyn Operations>,
    store: Arc<Store>,
    stop: CancellationToken,
    rejections: RejectionCounters,
    streams: Arc<Semaphore>,
}

/// The routes of the status listener. Event streams end when `stop` is cancelled. `rejections`: the counters of both listeners.
pub fn operator_router(
    operations: Arc<dyn Operations>,
    store: Arc<Store>,
    config: &StatusConfig,
    stop: CancellationToken,
    rejections: RejectionCounters,
) -> Router {
    Router::new()
        .route("/", get(front_page))
        .route("/healthz", get(healthy))
        .route("/readyz", get(ready))
        .route("/status", get(status))
        .route("/resource", get(resource))
        .route("/changes", get(changes))
        .route("/sources/{name}/poll", post(poll))
        .route("/sources/{name}/approve", post(approve))
        .route("/sources/{name}/unsubscribe", post(unsubscribe))
        .with_state(OperatorState {
            operations,
            store,
            stop,
            rejections: rejections.clone(),
            streams: Arc::new(Semaphore::new(MAX_STREAMS)),
        })
        .layer(from_fn_with_state(
            BearerToken::new(config.token.clone(), rejections.clone()),
            require_token,
        ))
        .layer(from_fn_with_state(
            HostOriginGuard::new(&config.hosts, rejections),
            reject_foreign_pages,
        ))
        .layer(map_response(for_no_other_page))
}

/// Makes browsers withhold an answer from pages of other origins, whatever they embed it as.
async fn for_no_other_page(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    headers.insert(
        HeaderName::from_static("cross-origin-resource-policy"),
        HeaderValue::from_static("same-origin"),
    );
    response
}

async fn healthy(State(state): State<OperatorState>) -> Response {
    health(&state.store, STORE_TIME).await
}

/// Whether the database answers within that time.
async fn health(store: &Arc<Store>, limit: Duration) -> Response {
    match tokio::time::timeout(limit, store.answers()).await {
        Ok(true) => "ok\n".into_response(),
        Ok(false) | Err(_) => error_response(
            StatusCode::SERVICE_UNAVAILABLE,
            "store-not-answering",
            "the database does not answer",
        ),
    }
}

/// Whether the database and the mirrors are writable. The listeners are bound and the database is open before any request is
/// served.
async fn ready(State(state): State<OperatorState>) -> Response {
    if let Err(error) = state.store.writable().await {
        return error_response(
            StatusCode::SERVICE_UNAVAILABLE,
            error.code(),
            &error.to_string(),
        );
    }
    match state.operations.unwritable_mirror() {
        Some((source, status_error)) => {
            let message = format!("the mirror of {source}: {}", status_error.message);
            error_response(
                StatusCode::SERVICE_UNAVAILABLE,
                &status_error.code,
                &message,
            )
        }
        None => "ready\n".into_response(),
    }
}

async fn front_page(State(state): State<OperatorState>) -> Response {
    let status = match state.operations.status().await {
        Ok(status) => status,
        Err(status_error) => return operation_failed(&status_error),
    };
    let mut page = format!(
        "resyncd {}, up since {}\n",
        status.version, status.started_at
    );
    for source in &status.sources {
        page.push_str(&format!(
            "\n{} ({}): {}\n",
            source.name, source.url, source.state
        ));
        for set in &source.sets {
            let until = set.synced_until.as_deref().unwrap_or("-");
            page.push_str(&format!(
                "  {}: {}, synced until {until}, {} resources, {} pending, {} failed\n",
                set.capability_list, set.state, set.resources, set.pending, set.failed
            ));
        }
    }
    page.push_str("\nMore: /status /changes /resource?uri= /healthz /readyz\n");
    page.into_response()
}

async fn status(State(state): State<OperatorState>) -> Response {
    match state.operations.status().await {
        Ok(mut status) => {
            status.refused = state.rejections.counts();
            Json(status).into_response()
        }
        Err(status_error) => operation_failed(&status_error),
    }
}

#[derive(Deserialize)]
struct ResourceQuery {
    uri: Option<String>,
}

async fn resource(
    State(state): State<OperatorState>,
    Query(query): Query<ResourceQuery>,
) -> Response {
    let Some(uri) = query
        .uri
        .as_deref()
        .and_then(|uri| ResourceUri::parse(uri).ok())
    else {
        return error_response(
            StatusCode::BAD_REQUEST,
            "bad-uri",
            "?uri= must be the http or https URI of a resource",
        );
    };
    match state.store.resource(&uri).await {
        Ok(Some(view)) => Json(ResourceLine::from(view)).into_response(),
        Ok(None) => error_response(
            StatusCode::NOT_FOUND,
            "unknown-resource",
            "no resource of that URI is known",
        ),
        Err(error) => database_failed(&error),
    }
}

#[derive(Serialize)]
struct ResourceLine {
    uri: String,
    source: String,
    set: String,
    path: Option<String>,
    length: Option<u64>,
    #[serde(rename = "type")]
    media_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    encoding: Option<String>,
    hash: Option<String>,
    lastmod: Option<String>,
    changed_at: Option<String>,
    applied_at: Option<String>,
    deleted: bool,
    links: Vec<LinkLine>,
}

#[derive(Serialize)]
struct LinkLine {
    rel: String,
    href: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pri: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    modified: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    length: Option<u64>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    media_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    encoding: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hash: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
}

impl From<Link> for LinkLine {
    fn from(link: Link) -> Self {
        let hashes: Vec<String> = link.content.hashes.iter().map(Digest::to_string).collect();
        Self {
            rel: link.rel,
            href: link.href.to_string(),
            pri: link.pri,
            modified: link.modified.map(|time| time.to_string()),
            length: link.content.length,
            media_type: link.content.media_type,
            encoding: link.encoding,
            hash: Some(hashes.join(" ")).filter(|hashes| !hashes.is_empty()),
            path: link.path,
        }
    }
}

impl From<ResourceView> for ResourceLine {
    fn from(view: ResourceView) -> Self {
        Self {
            uri: view.uri.to_string(),
            source: view.source,
            set: view.set,
            path: view.path,
            length: view.length,
            media_type: view.media_type,
            encoding: view.encoding,
            hash: Some(view.hashes).filter(|hashes| !hashes.is_empty()),
            lastmod: view.lastmod.map(|time| time.to_string()),
            changed_at: view.changed_at.map(|time| time.to_string()),
            applied_at: view.applied_at.map(rfc3339),
            deleted: view.deleted,
            links: view.links.into_iter().map(LinkLine::from).collect(),
        }
    }
}

#[derive(Deserialize)]
struct ChangesQuery {
    since: Option<i64>,
    limit: Option<usize>,
}

async fn changes(
    State(state): State<OperatorState>,
    Query(query): Query<ChangesQuery>,
    headers: HeaderMap,
) -> Response {
    let text = |name: header::HeaderName| {
        headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    };
    let is_stream = text(header::ACCEPT).contains("text/event-stream");
    if is_stream {
        // A browser that reconnects states the last event that it received.
        let last = headers
            .get("last-event-id")
            .and_then(|value| value.to_str().ok())
            .and_then(|id| id.parse().ok());
        let since = last.or(query.since);
        let Ok(permit) = state.streams.try_acquire_owned() else {
            let code = "too-many-streams";
            state.rejections.count(code);
            let message = format!("{MAX_STREAMS} event streams are open already");
            let response = error_response(StatusCode::SERVICE_UNAVAILABLE, code, &message);
            return ([(header::RETRY_AFTER, STREAM_RETRY)], response).into_response();
        };
        // Whether the stream can begin there.
        let since = match feed_after(&state.store, since, 1).await {
            Ok((since, _)) => since,
            Err(error) => return feed_failed(&error),
        };
        let stop = state.stop.clone();
        let events = events(state.store, since, permit).take_until(stop.cancelled_owned());
        return Sse::new(events)
            .keep_alive(KeepAlive::new().interval(HEARTBEAT))
            .into_response();
    }
    let limit = query.limit.unwrap_or(DEFAULT_LINES).min(MAX_LINES);
    match feed_after(&state.store, query.since, limit).await {
        Ok((_, entries)) => {
            let lines: String = entries
                .into_iter()
                .map(|entry| line(entry) + "\n")
                .collect();
            (
                [(header::CONTENT_TYPE, "application/x-ndjson")],
                Body::from(lines),
            )
                .into_response()
        }
        Err(error) => feed_failed(&error),
    }
}

/// The entries of the feed after `since`, and where that is: `None` means before the oldest one that there is.
async fn feed_after(
    store: &Arc<Store>,
    since: Option<i64>,
    limit: usize,
) -> Result<(i64, Vec<FeedEntry>), StoreError> {
    let begin = since.unwrap_or(0);
    match store.feed(begin, limit).await {
        Err(StoreError::FeedTrimmed { oldest }) if since.is_none() => {
            Ok((oldest, store.feed(oldest, limit).await?))
        }
        answer => Ok((begin, answer?)),
    }
}

/// A reader whose position was removed has missed changes: it must begin anew, with the mirror as it is.
fn feed_failed(error: &StoreError) -> Response {
    match error {
        StoreError::FeedTrimmed { .. } => {
            error_response(StatusCode::GONE, error.code(), &error.to_string())
        }
        error => database_failed(error),
    }
}

/// The feed as an endless stream of events after entry `since`. It occupies `permit` until it is dropped, and ends where
/// entries were removed before they were sent.
fn events(
    store: Arc<Store>,
    since: i64,
    permit: OwnedSemaphorePermit,
) -> impl Stream<Item = Result<Event, Infallible>> {
    let wakes = store.wakes();
    stream::unfold(
        (store, wakes, since, permit),
        |(store, mut wakes, since, permit)| async move {
            loop {
                let entries = store.feed(since, DEFAULT_LINES).await.ok()?;
                if let Some(last) = entries.last() {
                    let last = last.seq;
                    let events: Vec<_> =
                        entries.into_iter().map(|entry| Ok(event(entry))).collect();
                    return Some((stream::iter(events), (store, wakes, last, permit)));
                }
                loop {
                    match wakes.recv().await {
                        Ok(Wake::Feed(seq)) if seq > since => break,
                        Ok(_) => {}
                        Err(RecvError::Lagged(_)) => break,
                        Err(RecvError::Closed) => return None,
                    }
                }
            }
        },
    )
    .flatten()
}

fn event(entry: FeedEntry) -> Event {
    Event::default().id(entry.seq.to_string()).data(line(entry))
}

fn line(entry: FeedEntry) -> String {
    json!({
        "seq": entry.seq,
        "applied_at": rfc3339(entry.applied_at),
        "source": entry.source,
        "set": entry.set,
        "uri": entry.uri,
        "change": entry.change,
        "path": entry.path,
        "length": entry.length,
        "changed_at": entry.changed_at.map(|time| time.to_string()),
        "origin": entry.origin,
    })
    .to_string()
}

async fn poll(State(state): State<OperatorState>, Path(name): Path<String>) -> Response {
    if state.operations.poll(&name) {
        StatusCode::ACCEPTED.into_response()
    } else {
        unknown_source(&name)
    }
}

async fn approve(State(state): State<OperatorState>, Path(name): Path<String>) -> Response {
    match state.operations.approve(&name).await {
        Ok(Some(approved)) => {
            (StatusCode::ACCEPTED, Json(json!({ "approved": approved }))).into_response()
        }
        Ok(None) => unknown_source(&name),
        Err(status_error) => operation_failed(&status_error),
    }
}

async fn unsubscribe(State(state): State<OperatorState>, Path(name): Path<String>) -> Response {
    match state.operations.unsubscribe(&name).await {
        Some(endings) => Json(endings).into_response(),
        None => unknown_source(&name),
    }
}

fn unknown_source(name: &str) -> Response {
    error_response(
        StatusCode::NOT_FOUND,
        "unknown-source",
        &format!("no source {name:?} in the configuration"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(180);

    #[tokio::test]
    async fn health_fails_while_the_store_does_not_answer() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        assert_eq!(health(&store, LONG).await.status(), StatusCode::OK);
        let occupied = store.occupy_lookups();
        let ill = health(&store, Duration::from_millis(20)).await;
        assert_eq!(ill.status(), StatusCode::SERVICE_UNAVAILABLE);
        drop(occupied);
        assert_eq!(health(&store, LONG).await.status(), StatusCode::OK);
    }

    #[tokio::test]
    async fn long_reports_do_not_fail_the_health() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let _occupied = store.occupy_reports();
        assert_eq!(health(&store, LONG).await.status(), StatusCode::OK);
    }
}
