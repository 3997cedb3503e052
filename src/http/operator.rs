//! The status endpoint, for operators, dashboards and scripts.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{FromRequestParts, Path, State};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{from_fn_with_state, map_response};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use resyncd_core::ResourceUri;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use utoipa::{IntoParams, OpenApi};

use super::bearer_token::{BearerToken, require_token};
use super::error_response::{ErrorBody, database_failed, error_response, operation_failed};
use super::feed::{self, NDJSON, feed_router};
use super::host_origin_guard::{HostOriginGuard, reject_foreign_pages};
use super::nodes::pass_on;
use super::page::{Caller, page_router};
use super::query::Query;
use super::rejection_counters::RejectionCounters;
use super::resource_line::{GenericResource, KnownResource, ResourceLine};
use super::state::{MAX_PAGES, MAX_STREAMS, OperatorState};
use crate::config::StatusConfig;
use crate::engine::{Engine, RepairOptions};
use crate::status::{
    FailedResource, Forgotten, HeldDeletion, Page, ResourceVersion, SeenDeletions, Status,
    StatusError, UnsubscribeResult,
};
use crate::store::Store;

/// What is answered to everybody: programs that watch the process have no token, and the answers state nothing else.
const OPEN: [&str; 2] = ["/healthz", "/readyz"];

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

/// The interface, as OpenAPI describes it.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "resyncd",
        description = "The status endpoint of a ResourceSync Destination."
    ),
    paths(
        healthy,
        ready,
        status,
        metrics,
        resource,
        versions,
        failed,
        held,
        callback_probe,
        poll,
        pause,
        resume,
        audit,
        approve,
        reject,
        undo_reject,
        retry,
        unsubscribe,
        backfill,
        forget,
        forget_former_sets,
        feed::changes,
        feed::resources,
    )
)]
struct OperatorApi;

/// The routes of the status listener, guarded by its token, and against foreign pages.
pub fn operator_router(
    routes: Router,
    store: Arc<Store>,
    config: &StatusConfig,
    rejections: RejectionCounters,
) -> Router {
    routes
        .layer(from_fn_with_state(store, pass_on))
        .layer(from_fn_with_state(
            BearerToken::new(config.token.clone(), "status", &OPEN, rejections.clone()),
            require_token,
        ))
        .layer(from_fn_with_state(
            HostOriginGuard::new(&config.hosts, rejections),
            reject_foreign_pages,
        ))
        .layer(map_response(for_no_other_page))
        .layer(map_response(without_buffering))
}

/// The same without guards, for other nodes. Event streams end when `stop` is cancelled. `rejections`: the counters of both listeners.
pub fn operator_routes(
    engine: Arc<Engine>,
    store: Arc<Store>,
    stop: CancellationToken,
    rejections: RejectionCounters,
) -> Router {
    let state = OperatorState {
        engine,
        store,
        rejections,
        stop,
        streams: Arc::new(Semaphore::new(MAX_STREAMS)),
        pages: Arc::new(Semaphore::new(MAX_PAGES)),
    };
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
        .route("/sources/{name}/pause", post(pause))
        .route("/sources/{name}/resume", post(resume))
        .route("/sources/{name}/audit", post(audit))
        .route("/sources/{name}/approve", post(approve))
        .route("/sources/{name}/reject", post(reject))
        .route("/sources/{name}/undo-reject", post(undo_reject))
        .route("/sources/{name}/retry", post(retry))
        .route("/sources/{name}/unsubscribe", post(unsubscribe))
        .route("/sources/{name}/backfill", post(backfill))
        .route("/sources/{name}/forget", post(forget))
        .route(
            "/sources/{name}/forget-former-sets",
            post(forget_former_sets),
        )
        .route("/openapi.json", get(openapi))
        .fallback(unknown_path)
        .method_not_allowed_fallback(unknown_method)
        .merge(feed_router(&state))
        .merge(page_router())
        .with_state(state)
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

/// The description of this interface, as `/openapi.json` serves it.
#[must_use]
pub fn operator_api() -> Value {
    json!(OperatorApi::openapi())
}

async fn openapi() -> Response {
    Json(operator_api()).into_response()
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

/// Whether the process answers, and its database.
#[utoipa::path(
    get, path = "/healthz",
    responses((status = 200, description = "It does", body = String, content_type = "text/plain"), ErrorBody),
)]
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

/// Whether the database and the mirrors are writable.
#[utoipa::path(
    get, path = "/readyz",
    responses((status = 200, description = "They are", body = String, content_type = "text/plain"), ErrorBody),
)]
async fn ready(State(state): State<OperatorState>) -> Response {
    // The listeners are bound and the database is open before any request is served.
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

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct StatusQuery {
    /// Whether only the Sources are shown that this node follows.
    held: Option<bool>,
    /// Whether only those of them are shown that fail or wait for a person.
    notable: Option<bool>,
}

/// The status of all Sources.
#[utoipa::path(
    get, path = "/status",
    params(StatusQuery),
    responses((status = 200, body = Status), ErrorBody),
)]
async fn status(State(state): State<OperatorState>, Query(query): Query<StatusQuery>) -> Response {
    let is_short = query.notable.unwrap_or(false);
    let status = if query.held.unwrap_or(false) {
        state.engine.own_status(is_short).await
    } else {
        state.engine.status().await
    };
    match status.map(|status| with_refused(&state, status)) {
        Ok(status) => Json(status).into_response(),
        Err(status_error) => operation_failed(&status_error),
    }
}

/// The metrics in Prometheus' text format.
#[utoipa::path(
    get, path = "/metrics",
    responses((status = 200, body = String, content_type = METRICS_TYPE), ErrorBody),
)]
async fn metrics(State(state): State<OperatorState>) -> Response {
    let status = state.engine.own_status(false).await;
    let status = status.map(|status| with_refused(&state, status));
    match status.and_then(|status| state.engine.metrics(&status)) {
        Ok(text) => ([(header::CONTENT_TYPE, METRICS_TYPE)], text).into_response(),
        Err(status_error) => operation_failed(&status_error),
    }
}

/// The status with what the listeners have rejected.
fn with_refused(state: &OperatorState, mut status: Status) -> Status {
    for (code, count) in state.rejections.counts() {
        *status.refused.entry(code).or_default() += count;
    }
    status
}

/// The Source that an operation is on, and who asks for it.
struct NamedSource {
    engine: Arc<Engine>,
    name: String,
    caller: Caller,
}

impl FromRequestParts<OperatorState> for NamedSource {
    type Rejection = Response;

    async fn from_request_parts(
        parts: &mut Parts,
        state: &OperatorState,
    ) -> Result<Self, Response> {
        let path = Path::<SourceName>::from_request_parts(parts, state).await;
        let Path(SourceName { name }) = path.map_err(IntoResponse::into_response)?;
        let Ok(caller) = Caller::from_request_parts(parts, state).await;
        Ok(Self {
            engine: Arc::clone(&state.engine),
            name,
            caller,
        })
    }
}

impl NamedSource {
    /// The answer to what was done: 202; to a form, the way back to its page. `false`: there is no such Source.
    fn accepted(&self, what: &str, done: Result<bool, StatusError>) -> Response {
        let done = done.map(|is_known| is_known.then_some(0));
        self.answer(what, done, |_| StatusCode::ACCEPTED.into_response())
    }

    /// The same for an operation on changes, of which there were so many: 202 with the number, as `what`.
    fn counted(&self, what: &str, count: Result<Option<u64>, StatusError>) -> Response {
        self.answer(what, count, |count| {
            (StatusCode::ACCEPTED, Json(json!({ what: count }))).into_response()
        })
    }

    fn answer(
        &self,
        what: &str,
        done: Result<Option<u64>, StatusError>,
        answer: impl FnOnce(u64) -> Response,
    ) -> Response {
        let form = self.caller.answer(what, &self.name, &done);
        form.unwrap_or_else(|| match done {
            Ok(Some(count)) => answer(count),
            Ok(None) => unknown_source(&self.name),
            Err(error) => operation_failed(&error),
        })
    }
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct SourceName {
    /// The name of the Source.
    name: String,
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct ResourceQuery {
    /// The URI of the resource.
    #[param(required)]
    uri: Option<String>,
    /// The name of its Source.
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

/// The stored versions of a resource, a line each.
#[utoipa::path(
    get, path = "/versions",
    params(ResourceQuery),
    responses((status = 200, body = ResourceVersion, content_type = NDJSON), ErrorBody),
)]
async fn versions(
    State(state): State<OperatorState>,
    Query(query): Query<ResourceQuery>,
) -> Response {
    let Some(uri) = query.uri() else {
        return no_uri();
    };
    let source = query.source.as_deref();
    lines(source, state.engine.versions(source, &uri).await)
}

/// Has the versions stored that the TimeMap of a resource names.
#[utoipa::path(
    post, path = "/sources/{name}/backfill",
    params(SourceName, ResourceQuery),
    responses((status = 202, description = "How many TimeMaps are read", body = HashMap<String, u64>), ErrorBody),
)]
async fn backfill(source: NamedSource, Query(query): Query<ResourceQuery>) -> Response {
    let Some(uri) = query.uri() else {
        return no_uri();
    };
    let requested = source.engine.backfill(Some(&source.name), &uri).await;
    source.counted("requested", requested)
}

/// What is known of a resource; of a URI that no list names, the representations of it that are mirrored.
#[utoipa::path(
    get, path = "/resource",
    params(ResourceQuery),
    responses((status = 200, body = KnownResource), ErrorBody),
)]
async fn resource(
    State(state): State<OperatorState>,
    Query(query): Query<ResourceQuery>,
) -> Response {
    let Some(uri) = query.uri() else {
        return no_uri();
    };
    match state.store.resource(&uri).await {
        Ok(Some(view)) => {
            let mirror = state.engine.mirror_of(&view.source);
            let mirror = mirror.filter(|mirror| mirror.objects().is_some());
            let path = view.path.as_ref().filter(|_| !view.deleted);
            let url = mirror.zip(path).map(|(mirror, path)| mirror.join(path));
            let mut line = ResourceLine::from(view);
            line.url = url.map(|url| url.display().to_string());
            Json(KnownResource::Resource(Box::new(line))).into_response()
        }
        Ok(None) => generic_resource(&state, &uri).await,
        Err(error) => database_failed(&error),
    }
}

/// The answer for a URI that no list names: there may be representations of it.
async fn generic_resource(state: &OperatorState, uri: &ResourceUri) -> Response {
    match state.store.alternates_of(uri).await {
        Ok((source, alternates)) if !alternates.is_empty() => {
            let uri = uri.as_str().to_owned();
            let known = GenericResource {
                uri,
                source,
                alternates,
            };
            Json(KnownResource::Generic(known)).into_response()
        }
        Ok(_) => error_response(
            StatusCode::NOT_FOUND,
            "unknown-resource",
            "no resource of that URI is known",
        ),
        Err(error) => database_failed(&error),
    }
}

/// The rows of a Source, or of all, as lines; `None`: there is no such Source.
fn lines<T: Serialize>(
    source: Option<&str>,
    found: Result<Option<Vec<T>>, StatusError>,
) -> Response {
    match found {
        Ok(Some(rows)) => {
            let lines = rows.iter().map(|row| json!(row).to_string() + "\n");
            let lines = Body::from(lines.collect::<String>());
            ([(header::CONTENT_TYPE, NDJSON)], lines).into_response()
        }
        Ok(None) => unknown_source(source.unwrap_or_default()),
        Err(status_error) => operation_failed(&status_error),
    }
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct ListQuery {
    /// The name of the Source whose rows are listed.
    source: Option<String>,
    /// The `id` of the last row of the page before.
    after: Option<i64>,
    /// The number of rows.
    limit: Option<usize>,
}

impl ListQuery {
    fn page(&self) -> Page {
        Page {
            after: self.after.unwrap_or(0),
            limit: self.limit.unwrap_or(DEFAULT_ROWS).min(MOST_ROWS),
        }
    }
}

/// The resources whose changes have failed, a line each.
#[utoipa::path(
    get, path = "/failed",
    params(ListQuery),
    responses((status = 200, body = FailedResource, content_type = NDJSON), ErrorBody),
)]
async fn failed(State(state): State<OperatorState>, Query(query): Query<ListQuery>) -> Response {
    let source = query.source.as_deref();
    lines(source, state.engine.failed(source, query.page()).await)
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct HeldQuery {
    /// Those that were rejected, instead of those that are held back.
    rejected: Option<bool>,
}

/// The deletions that are held back, or those that were rejected, a line each.
#[utoipa::path(
    get, path = "/held",
    params(ListQuery, HeldQuery),
    responses((status = 200, body = HeldDeletion, content_type = NDJSON), ErrorBody),
)]
async fn held(
    State(state): State<OperatorState>,
    Query(query): Query<ListQuery>,
    Query(held): Query<HeldQuery>,
) -> Response {
    let is_rejected = held.rejected.unwrap_or(false);
    let source = query.source.as_deref();
    let found = state.engine.held(source, is_rejected, query.page());
    lines(source, found.await)
}

/// Polls the documents of a Source now.
#[utoipa::path(
    post, path = "/sources/{name}/poll",
    params(SourceName),
    responses((status = 202, description = "It is polled"), ErrorBody),
)]
async fn poll(source: NamedSource) -> Response {
    let polled = source.engine.poll(&source.name);
    source.accepted("polled", polled)
}

/// Pauses a Source: nothing is requested of it until it is resumed.
#[utoipa::path(
    post, path = "/sources/{name}/pause",
    params(SourceName),
    responses((status = 202, description = "It is paused"), ErrorBody),
)]
async fn pause(source: NamedSource) -> Response {
    let paused = source.engine.pause(&source.name).await;
    source.accepted("paused", paused)
}

/// Resumes a Source that is paused.
#[utoipa::path(
    post, path = "/sources/{name}/resume",
    params(SourceName),
    responses((status = 202, description = "It is resumed"), ErrorBody),
)]
async fn resume(source: NamedSource) -> Response {
    let resumed = source.engine.resume(&source.name).await;
    source.accepted("resumed", resumed)
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct AuditQuery {
    /// Whether missing and altered files are fetched; its worker is stopped meanwhile.
    repair: Option<bool>,
    /// Whether a repair also removes files that the Source does not have.
    delete_extra: Option<bool>,
}

/// Has the daemon audit a Source; the status has the result.
#[utoipa::path(
    post, path = "/sources/{name}/audit",
    params(SourceName, AuditQuery),
    responses((status = 202, description = "It is audited as soon as no other is"), ErrorBody),
)]
async fn audit(source: NamedSource, Query(query): Query<AuditQuery>) -> Response {
    let options = RepairOptions {
        delete_extra: query.delete_extra.unwrap_or(false),
        new_mirror: false,
    };
    let repair = query.repair.unwrap_or(false).then_some(options);
    let requested = source.engine.request_audit(&source.name, repair);
    source.accepted("audited", requested)
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct ProbeQuery {
    /// The token of the callback.
    token: Option<String>,
}

/// Whether a request for a callback with that token, which no hub has, has arrived.
#[utoipa::path(
    get, path = "/callback-probe",
    params(ProbeQuery),
    responses((status = 200, body = HashMap<String, bool>), ErrorBody),
)]
async fn callback_probe(
    State(state): State<OperatorState>,
    Query(query): Query<ProbeQuery>,
) -> Response {
    let token = query.token.unwrap_or_default();
    let arrived = state.rejections.has_probe(&token);
    Json(json!({ "arrived": arrived })).into_response()
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct SeenQuery {
    /// How many deletions were shown to whoever decides about them.
    held: Option<u64>,
    /// The number up to which those were held back that were shown.
    through: Option<u64>,
}

/// Lets deletions that are held back be executed; fails if there are more of them than were shown.
#[utoipa::path(
    post, path = "/sources/{name}/approve",
    params(SourceName, SeenQuery),
    responses((status = 202, description = "How many", body = HashMap<String, u64>), ErrorBody),
)]
async fn approve(source: NamedSource, Query(seen): Query<SeenQuery>) -> Response {
    let SeenQuery { held, through } = seen;
    let approved = source
        .engine
        .approve(&source.name, SeenDeletions { held, through });
    source.counted("approved", approved.await)
}

/// Rejects deletions that are held back: their files stay.
#[utoipa::path(
    post, path = "/sources/{name}/reject",
    params(SourceName, SeenQuery),
    responses((status = 202, description = "How many", body = HashMap<String, u64>), ErrorBody),
)]
async fn reject(source: NamedSource, Query(seen): Query<SeenQuery>) -> Response {
    let rejected = source.engine.reject(&source.name, seen.through);
    source.counted("rejected", rejected.await)
}

/// Holds deletions back again that were rejected.
#[utoipa::path(
    post, path = "/sources/{name}/undo-reject",
    params(SourceName),
    responses((status = 202, description = "How many", body = HashMap<String, u64>), ErrorBody),
)]
async fn undo_reject(source: NamedSource) -> Response {
    let held = source.engine.undo_reject(&source.name).await;
    source.counted("held", held)
}

/// Tries failed changes again at once.
#[utoipa::path(
    post, path = "/sources/{name}/retry",
    params(SourceName),
    responses((status = 202, description = "How many", body = HashMap<String, u64>), ErrorBody),
)]
async fn retry(source: NamedSource) -> Response {
    source.counted("retried", source.engine.retry(&source.name).await)
}

/// Removes what only sets that are not followed any more have named.
#[utoipa::path(
    post, path = "/sources/{name}/forget-former-sets",
    params(SourceName),
    responses((status = 202, description = "How many", body = HashMap<String, u64>), ErrorBody),
)]
async fn forget_former_sets(source: NamedSource) -> Response {
    let forgotten = source.engine.forget_former_sets(&source.name).await;
    source.counted("deletions", forgotten)
}

/// Ends the subscriptions of a Source at their hubs.
#[utoipa::path(
    post, path = "/sources/{name}/unsubscribe",
    params(SourceName),
    responses((status = 200, body = Vec<UnsubscribeResult>), ErrorBody),
)]
async fn unsubscribe(source: NamedSource) -> Response {
    match source.engine.unsubscribe(&source.name).await {
        Some(endings) => Json(endings).into_response(),
        None => unknown_source(&source.name),
    }
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct ForgetQuery {
    /// Whether its files are deleted as well.
    delete_files: Option<bool>,
}

/// Deletes what is known of a Source that is not in the configuration any more.
#[utoipa::path(
    post, path = "/sources/{name}/forget",
    params(SourceName, ForgetQuery),
    responses((status = 200, body = Forgotten), ErrorBody),
)]
async fn forget(source: NamedSource, Query(query): Query<ForgetQuery>) -> Response {
    let delete_files = query.delete_files.unwrap_or(false);
    match source.engine.forget(&source.name, delete_files).await {
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
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_route_is_described() {
        let api = operator_api();
        let described: BTreeSet<&str> = api["paths"]
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        let sources = [include_str!("operator.rs"), include_str!("feed.rs")];
        let code = sources.map(|text| text.split("#[cfg(test)]").next().unwrap());
        let routes = code.iter().flat_map(|text| text.split(".route(").skip(1));
        let paths = routes.filter_map(|route| route.trim_start().strip_prefix('"'));
        let paths = paths.map(|path| path.split('"').next().unwrap());
        let routes: BTreeSet<&str> = paths.filter(|path| *path != "/openapi.json").collect();
        assert!(routes.len() > 15, "{routes:?}");
        assert_eq!(described, routes);
        let text = api.to_string();
        let schemas = api["components"]["schemas"].as_object().unwrap();
        for reference in text.split("#/components/schemas/").skip(1) {
            let name = reference.split('"').next().unwrap();
            assert!(schemas.contains_key(name), "{name}");
        }
    }

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
