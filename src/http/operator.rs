//! The status endpoint, for operators, dashboards and scripts.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{from_fn_with_state, map_response};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{MethodRouter, get, post};
use futures_util::future::BoxFuture;
use resyncd_core::ResourceUri;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::bearer_token::{BearerToken, require_token};
use super::error_response::{database_failed, error_response, operation_failed};
use super::feed::feed_router;
use super::host_origin_guard::{HostOriginGuard, reject_foreign_pages};
use super::page::{Caller, page_router};
use super::query::Query;
use super::rejection_counters::RejectionCounters;
use super::resource_line::ResourceLine;
use crate::config::StatusConfig;
use crate::engine::Engine;
use crate::status::{Page, SeenDeletions, Status, StatusError};
use crate::store::Store;

/// How many rows one page of a list has by default.
const DEFAULT_ROWS: usize = 1000;
/// How many rows one page of a list has at most.
const MOST_ROWS: usize = 10_000;
/// How long the database may take to answer before the process counts as ill.
const STORE_TIME: Duration = Duration::from_secs(15);
/// The media type of Prometheus' text format.
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The media type of a stream of events.
const EVENT_STREAM: &str = "text/event-stream";

/// What the handlers need.
#[derive(Clone)]
struct OperatorState {
    engine: Arc<Engine>,
    store: Arc<Store>,
    rejections: RejectionCounters,
}

/// The routes of the status listener. Event streams end when `stop` is cancelled. `rejections`: the counters of both listeners.
pub fn operator_router(
    engine: Arc<Engine>,
    store: Arc<Store>,
    config: &StatusConfig,
    stop: CancellationToken,
    rejections: RejectionCounters,
) -> Router {
    let known = Arc::clone(&engine);
    let is_followed = move |source: Option<&str>, set: Option<&str>| known.is_followed(source, set);
    Router::new()
        .route("/healthz", get(healthy))
        .route("/readyz", get(ready))
        .route("/status", get(status))
        .route("/metrics", get(metrics))
        .route("/resource", get(resource))
        .route("/versions", get(versions))
        .route("/failed", get(failed))
        .route("/held", get(held))
        .route("/callback-probe", get(callback_probe))
        .route("/sources/{name}/poll", post(poll))
        .route(
            "/sources/{name}/approve",
            counted("approved", |engine, name, seen| {
                Box::pin(engine.approve(name, seen))
            }),
        )
        .route(
            "/sources/{name}/reject",
            counted("rejected", |engine, name, seen| {
                Box::pin(engine.reject(name, seen.through))
            }),
        )
        .route(
            "/sources/{name}/undo-reject",
            counted("held", |engine, name, _| Box::pin(engine.undo_reject(name))),
        )
        .route(
            "/sources/{name}/retry",
            counted("retried", |engine, name, _| Box::pin(engine.retry(name))),
        )
        .route("/sources/{name}/unsubscribe", post(unsubscribe))
        .route("/sources/{name}/backfill", post(backfill))
        .route("/sources/{name}/forget", post(forget))
        .route(
            "/sources/{name}/forget-former-sets",
            counted("deletions", |engine, name, _| {
                Box::pin(engine.forget_former_sets(name))
            }),
        )
        .fallback(unknown_path)
        .method_not_allowed_fallback(unknown_method)
        .with_state(OperatorState {
            engine: Arc::clone(&engine),
            store: Arc::clone(&store),
            rejections: rejections.clone(),
        })
        .merge(feed_router(
            Arc::clone(&store),
            stop.clone(),
            rejections.clone(),
            Arc::new(is_followed),
        ))
        .merge(page_router(engine, store, stop, rejections.clone()))
        .layer(from_fn_with_state(
            BearerToken::new(config.token.clone(), rejections.clone()),
            require_token,
        ))
        .layer(from_fn_with_state(
            HostOriginGuard::new(&config.hosts, rejections),
            reject_foreign_pages,
        ))
        .layer(map_response(for_no_other_page))
        .layer(map_response(without_buffering))
}

/// Makes a reverse proxy pass on the events of a stream at once: nginx buffers an answer unless the answer forbids it.
async fn without_buffering(mut response: Response) -> Response {
    let headers = response.headers_mut();
    if headers
        .get(header::CONTENT_TYPE)
        .is_some_and(|it| it == EVENT_STREAM)
    {
        headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    }
    response
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

async fn unknown_path() -> Response {
    let message = "there is nothing at this path; see / for what there is";
    error_response(StatusCode::NOT_FOUND, "unknown-path", message)
}

async fn unknown_method() -> Response {
    let message = "this path has no such method: POST changes something, GET does not";
    error_response(
        StatusCode::METHOD_NOT_ALLOWED,
        "method-not-allowed",
        message,
    )
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
    match state.engine.unwritable_mirror() {
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

async fn status(State(state): State<OperatorState>) -> Response {
    match full_status(&state).await {
        Ok(status) => Json(status).into_response(),
        Err(status_error) => operation_failed(&status_error),
    }
}

async fn metrics(State(state): State<OperatorState>) -> Response {
    let status = full_status(&state).await;
    match status.and_then(|status| state.engine.metrics(&status)) {
        Ok(text) => ([(header::CONTENT_TYPE, METRICS_TYPE)], text).into_response(),
        Err(status_error) => operation_failed(&status_error),
    }
}

/// The status with what the listeners have rejected.
async fn full_status(state: &OperatorState) -> Result<Status, StatusError> {
    let mut status = state.engine.status().await?;
    status.refused = state.rejections.counts();
    Ok(status)
}

#[derive(Deserialize)]
struct ResourceQuery {
    uri: Option<String>,
    source: Option<String>,
}

impl ResourceQuery {
    fn uri(&self) -> Option<ResourceUri> {
        let uri = self.uri.as_deref()?;
        ResourceUri::parse(uri).ok()
    }
}

fn no_uri() -> Response {
    error_response(
        StatusCode::BAD_REQUEST,
        "bad-uri",
        "?uri= must be the http or https URI of a resource",
    )
}

async fn versions(
    State(state): State<OperatorState>,
    Query(query): Query<ResourceQuery>,
) -> Response {
    let Some(uri) = query.uri() else {
        return no_uri();
    };
    let source = query.source.as_deref();
    match state.engine.versions(source, &uri).await {
        Ok(Some(rows)) => {
            let lines = rows.iter().map(|row| json!(row).to_string() + "\n");
            ndjson(lines.collect())
        }
        Ok(None) => unknown_source(source.unwrap_or_default()),
        Err(status_error) => operation_failed(&status_error),
    }
}

async fn backfill(
    State(state): State<OperatorState>,
    Path(name): Path<String>,
    Query(query): Query<ResourceQuery>,
) -> Response {
    let Some(uri) = query.uri() else {
        return no_uri();
    };
    match state.engine.backfill(Some(&name), &uri).await {
        Ok(Some(requested)) => (
            StatusCode::ACCEPTED,
            Json(json!({ "requested": requested })),
        )
            .into_response(),
        Ok(None) => unknown_source(&name),
        Err(status_error) => operation_failed(&status_error),
    }
}

async fn resource(
    State(state): State<OperatorState>,
    Query(query): Query<ResourceQuery>,
) -> Response {
    let Some(uri) = query.uri() else {
        return no_uri();
    };
    match state.store.resource(&uri).await {
        Ok(Some(view)) => Json(ResourceLine::from(view)).into_response(),
        Ok(None) => generic_resource(&state, &uri).await,
        Err(error) => database_failed(&error),
    }
}

/// The answer for a URI that no list names: there may be representations of it.
async fn generic_resource(state: &OperatorState, uri: &ResourceUri) -> Response {
    match state.store.alternates_of(uri).await {
        Ok((source, alternates)) if !alternates.is_empty() => {
            let uri = uri.as_str();
            Json(json!({ "uri": uri, "source": source, "alternates": alternates })).into_response()
        }
        Ok(_) => error_response(
            StatusCode::NOT_FOUND,
            "unknown-resource",
            "no resource of that URI is known",
        ),
        Err(error) => database_failed(&error),
    }
}

fn ndjson(lines: String) -> Response {
    let media_type = (header::CONTENT_TYPE, "application/x-ndjson");
    ([media_type], Body::from(lines)).into_response()
}

#[derive(Deserialize)]
struct ListQuery {
    source: Option<String>,
    after: Option<i64>,
    limit: Option<usize>,
}

impl ListQuery {
    fn page(&self) -> Page {
        Page {
            after: self.after.unwrap_or(0),
            limit: self.limit.unwrap_or(DEFAULT_ROWS).min(MOST_ROWS),
        }
    }

    /// The page as lines.
    fn answer<T: Serialize>(&self, found: Result<Option<Vec<T>>, StatusError>) -> Response {
        match found {
            Ok(Some(rows)) => ndjson(
                rows.iter()
                    .map(|row| json!(row).to_string() + "\n")
                    .collect(),
            ),
            Ok(None) => unknown_source(self.source.as_deref().unwrap_or_default()),
            Err(status_error) => operation_failed(&status_error),
        }
    }
}

async fn failed(State(state): State<OperatorState>, Query(query): Query<ListQuery>) -> Response {
    let found = state.engine.failed(query.source.as_deref(), query.page());
    query.answer(found.await)
}

#[derive(Deserialize)]
struct HeldQuery {
    /// Those that were rejected, instead of those that are held back.
    rejected: Option<bool>,
}

async fn held(
    State(state): State<OperatorState>,
    Query(query): Query<ListQuery>,
    Query(held): Query<HeldQuery>,
) -> Response {
    let is_rejected = held.rejected.unwrap_or(false);
    let source = query.source.as_deref();
    let found = state.engine.held(source, is_rejected, query.page());
    query.answer(found.await)
}

async fn poll(
    State(state): State<OperatorState>,
    Path(name): Path<String>,
    caller: Caller,
) -> Response {
    let is_polled = state.engine.poll(&name);
    let polled = Ok(is_polled.then_some(0));
    match caller.answer("polled", &name, &polled) {
        Some(answer) => answer,
        None if is_polled => StatusCode::ACCEPTED.into_response(),
        None => unknown_source(&name),
    }
}

#[derive(Deserialize)]
struct ProbeQuery {
    token: Option<String>,
}

/// Whether a request for a callback with that token, which no hub has, has arrived.
async fn callback_probe(
    State(state): State<OperatorState>,
    Query(query): Query<ProbeQuery>,
) -> Response {
    let token = query.token.unwrap_or_default();
    let arrived = state.rejections.has_probe(&token);
    Json(json!({ "arrived": arrived })).into_response()
}

#[derive(Deserialize)]
struct SeenQuery {
    /// How many deletions were shown to whoever decides about them.
    held: Option<u64>,
    /// The number up to which those were held back that were shown.
    through: Option<u64>,
}

/// An operation on changes of a Source, and on how many. A person may have seen some of the deletions that it is for.
type CountedOperation =
    for<'a> fn(&'a Engine, &'a str, SeenDeletions) -> BoxFuture<'a, OperationCount>;

/// `None`: there is no such Source.
type OperationCount = Result<Option<u64>, StatusError>;

/// The route of an operation: 202 with the number, as `what`; to a form, the way back to its page.
fn counted(what: &'static str, operation: CountedOperation) -> MethodRouter<OperatorState> {
    let answer = async move |State(state): State<OperatorState>,
                             Path(name): Path<String>,
                             Query(query): Query<SeenQuery>,
                             caller: Caller| {
        let SeenQuery { held, through } = query;
        let seen = SeenDeletions { held, through };
        let count = operation(&state.engine, &name, seen).await;
        if let Some(answer) = caller.answer(what, &name, &count) {
            return answer;
        }
        match count {
            Ok(Some(count)) => (StatusCode::ACCEPTED, Json(json!({ what: count }))).into_response(),
            Ok(None) => unknown_source(&name),
            Err(status_error) => operation_failed(&status_error),
        }
    };
    post(answer)
}

async fn unsubscribe(State(state): State<OperatorState>, Path(name): Path<String>) -> Response {
    match state.engine.unsubscribe(&name).await {
        Some(endings) => Json(endings).into_response(),
        None => unknown_source(&name),
    }
}

#[derive(Deserialize)]
struct ForgetQuery {
    delete_files: Option<bool>,
}

async fn forget(
    State(state): State<OperatorState>,
    Path(name): Path<String>,
    Query(query): Query<ForgetQuery>,
) -> Response {
    let delete_files = query.delete_files.unwrap_or(false);
    match state.engine.forget(&name, delete_files).await {
        Ok(forgotten) => Json(forgotten).into_response(),
        Err(status_error) => operation_failed(&status_error),
    }
}

fn unknown_source(name: &str) -> Response {
    error_response(
        StatusCode::NOT_FOUND,
        "unknown-source",
        &format!("no Source {name:?} in the configuration that the daemon uses"),
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
