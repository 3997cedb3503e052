//! The JSON body of an error of the status endpoint.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use serde::Serialize;
use utoipa::{IntoResponses, ToSchema};

use super::rejection_counters::RejectionCounters;
use crate::status::StatusError;
use crate::store::StoreError;

/// The `Retry-After` of a stream that is one too many, in seconds.
const STREAM_RETRY: &str = "10";

/// The body of an error.
#[derive(Serialize, ToSchema, IntoResponses)]
#[response(status = "default", description = "An error")]
pub(super) struct ErrorBody<'a> {
    // A response names no schema but its own, so that this one has to be a part of it.
    #[schema(inline)]
    error: ErrorOfRequest<'a>,
}

#[derive(Serialize, ToSchema)]
struct ErrorOfRequest<'a> {
    /// Its stable code.
    code: &'a str,
    /// The explanation for the operator.
    message: &'a str,
    /// When it occurred, of what was not caused by the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<&'a str>,
}

fn answer(status: StatusCode, error: ErrorOfRequest<'_>) -> Response {
    (status, Json(ErrorBody { error })).into_response()
}

/// The answer with an error of the request.
pub(super) fn error_response(status: StatusCode, code: &str, message: &str) -> Response {
    let at = None;
    answer(status, ErrorOfRequest { code, message, at })
}

/// The answer to a request for a stream that is one too many, which is counted. `most` of those are open: `streams`, or `pages`.
pub(super) fn too_many_streams(
    rejections: &RejectionCounters,
    most: usize,
    streams: &str,
) -> Response {
    let code = "too-many-streams";
    rejections.count(code);
    let message = format!("{most} {streams} are open already");
    let response = error_response(StatusCode::SERVICE_UNAVAILABLE, code, &message);
    ([(header::RETRY_AFTER, STREAM_RETRY)], response).into_response()
}

/// The status of the answer with an error of the daemon: what the request is about may be unknown, or not as the request expects.
pub(super) fn status_of(status_error: &StatusError) -> StatusCode {
    match status_error.code.as_str() {
        "unknown-source" | "unknown-resource" | "no-time-map" => StatusCode::NOT_FOUND,
        "more-deletions-held"
        | "no-versions"
        | "source-followed"
        | "forget-running"
        | "source-paused"
        | "mirror-unknown"
        | "mirror-shared"
        | "mirror-missing" => StatusCode::CONFLICT,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// The answer with an error of the daemon.
pub(super) fn operation_failed(status_error: &StatusError) -> Response {
    let StatusError { code, message, at } = status_error;
    let at = Some(at.as_str());
    answer(
        status_of(status_error),
        ErrorOfRequest { code, message, at },
    )
}

/// 500 with an error of the database.
pub(super) fn database_failed(error: &StoreError) -> Response {
    tracing::error!(code = error.code(), %error, "status request failed: database error");
    error_response(
        StatusCode::INTERNAL_SERVER_ERROR,
        error.code(),
        &error.to_string(),
    )
}
