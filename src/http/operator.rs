//! The status endpoint: what operators, dashboards and scripts ask.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use futures_util::stream::{self, Stream, StreamExt};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

use super::host_origin_guard::{HostOriginGuard, keep_out};
use super::rejection_counters::RejectionCounters;
use crate::protocol::{Digest, Link, ResourceUri};
use crate::status::{Operations, StatusError, rfc3339};
use crate::store::{FeedEntry, ResourceView, Store, StoreError, Wake};

/// Lines of the feed that one answer holds unless asked otherwise.
const LINES: usize = 1000;
/// The most lines that one answer holds.
const MOST_LINES: usize = 100_000;
/// How often a silent stream of events says that it is still there.
const HEARTBEAT: Duration = Duration::from_secs(15);

#[derive(Clone)]
struct Desk {
    operations: Arc<dyn Operations>,
    store: Arc<Store>,
    stop: CancellationToken,
    tally: RejectionCounters,
}

/// The routes of the status listener. `hosts`: the names that it may be called by. Streams end when `stop` is given. `tally`:
/// what both listeners refuse.
pub fn operator_router(
    operations: Arc<dyn Operations>,
    store: Arc<Store>,
    hosts: &[String],
    stop: CancellationToken,
    tally: RejectionCounters,
) -> Router {
    Router::new()
        .route("/", get(front_page))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/status", get(status))
        .route("/resource", get(resource))
        .route("/changes", get(changes))
        .route("/sources/{name}/poll", post(poll))
        .route("/sources/{name}/approve", post(approve))
        .route("/sources/{name}/unsubscribe", post(unsubscribe))
        .with_state(Desk {
            operations,
            store,
            stop,
            tally: tally.clone(),
        })
        .layer(from_fn_with_state(
            HostOriginGuard::new(hosts, tally),
            keep_out,
        ))
}

/// Nothing is served before the listeners are bound and the database is open; what is left to tell is whether what comes in
/// can be written.
async fn ready(State(desk): State<Desk>) -> Response {
    if let Err(error) = desk.store.writable().await {
        return told(
            StatusCode::SERVICE_UNAVAILABLE,
            error.code(),
            &error.to_string(),
        );
    }
    match desk.operations.refusing_mirror() {
        Some((source, status_error)) => {
            let message = format!("the mirror of {source}: {}", status_error.message);
            told(
                StatusCode::SERVICE_UNAVAILABLE,
                &status_error.code,
                &message,
            )
        }
        None => "ready\n".into_response(),
    }
}

async fn front_page(State(desk): State<Desk>) -> Response {
    let status = match desk.operations.status().await {
        Ok(status) => status,
        Err(status_error) => return broken(&status_error),
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

async fn status(State(desk): State<Desk>) -> Response {
    match desk.operations.status().await {
        Ok(mut status) => {
            status.refused = desk.tally.counts();
            Json(status).into_response()
        }
        Err(status_error) => broken(&status_error),
    }
}

#[derive(Deserialize)]
struct ResourceQuery {
    uri: Option<String>,
}

async fn resource(State(desk): State<Desk>, Query(query): Query<ResourceQuery>) -> Response {
    let Some(uri) = query
        .uri
        .as_deref()
        .and_then(|uri| ResourceUri::parse(uri).ok())
    else {
        return told(
            StatusCode::BAD_REQUEST,
            "bad-uri",
            "give a resource's http or https URI as ?uri=",
        );
    };
    match desk.store.resource(&uri).await {
        Ok(Some(view)) => Json(ResourceLine::from(view)).into_response(),
        Ok(None) => told(
            StatusCode::NOT_FOUND,
            "unknown-resource",
            "no resource of that URI is known",
        ),
        Err(error) => out_of_order(&error),
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
        let hashes: Vec<String> = link.hashes.iter().map(Digest::to_string).collect();
        Self {
            rel: link.rel,
            href: link.href.to_string(),
            pri: link.pri,
            modified: link.modified.map(|time| time.to_string()),
            length: link.length,
            media_type: link.media_type,
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
    State(desk): State<Desk>,
    Query(query): Query<ChangesQuery>,
    headers: HeaderMap,
) -> Response {
    let text = |name: header::HeaderName| {
        headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    };
    if text(header::ACCEPT).contains("text/event-stream") {
        // A browser that lost its connection says where it was.
        let last = headers
            .get("last-event-id")
            .and_then(|value| value.to_str().ok())
            .and_then(|id| id.parse().ok());
        let since = last.or(query.since).unwrap_or(0);
        let stop = desk.stop.clone();
        let events = events(desk.store, since).take_until(stop.cancelled_owned());
        return Sse::new(events)
            .keep_alive(KeepAlive::new().interval(HEARTBEAT))
            .into_response();
    }
    let limit = query.limit.unwrap_or(LINES).min(MOST_LINES);
    match desk.store.feed(query.since.unwrap_or(0), limit).await {
        Ok(entries) => {
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
        Err(error) => out_of_order(&error),
    }
}

/// The feed as events, from a number on and without end.
fn events(store: Arc<Store>, since: i64) -> impl Stream<Item = Result<Event, Infallible>> {
    let wakes = store.wakes();
    stream::unfold(
        (store, wakes, since),
        |(store, mut wakes, since)| async move {
            loop {
                let entries = store.feed(since, LINES).await.ok()?;
                if let Some(last) = entries.last() {
                    let last = last.seq;
                    let events: Vec<_> =
                        entries.into_iter().map(|entry| Ok(event(entry))).collect();
                    return Some((stream::iter(events), (store, wakes, last)));
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

async fn poll(State(desk): State<Desk>, Path(name): Path<String>) -> Response {
    if desk.operations.poll(&name) {
        StatusCode::ACCEPTED.into_response()
    } else {
        unknown_source(&name)
    }
}

async fn approve(State(desk): State<Desk>, Path(name): Path<String>) -> Response {
    match desk.operations.approve(&name).await {
        Ok(Some(approved)) => {
            (StatusCode::ACCEPTED, Json(json!({ "approved": approved }))).into_response()
        }
        Ok(None) => unknown_source(&name),
        Err(status_error) => broken(&status_error),
    }
}

async fn unsubscribe(State(desk): State<Desk>, Path(name): Path<String>) -> Response {
    match desk.operations.unsubscribe(&name).await {
        Some(endings) => Json(endings).into_response(),
        None => unknown_source(&name),
    }
}

fn unknown_source(name: &str) -> Response {
    told(
        StatusCode::NOT_FOUND,
        "unknown-source",
        &format!("the configuration names no source {name:?}"),
    )
}

fn out_of_order(error: &StoreError) -> Response {
    tracing::error!(code = error.code(), %error, "a question could not be answered");
    told(
        StatusCode::INTERNAL_SERVER_ERROR,
        error.code(),
        &error.to_string(),
    )
}

fn broken(status_error: &StatusError) -> Response {
    (
        StatusCode::INTERNAL_SERVER_ERROR,
        Json(json!({ "error": status_error })),
    )
        .into_response()
}

pub(super) fn told(status: StatusCode, code: &str, message: &str) -> Response {
    (
        status,
        Json(json!({ "error": { "code": code, "message": message } })),
    )
        .into_response()
}
