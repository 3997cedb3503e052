//! The JSON body of an error of the status endpoint.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use serde_json::json;

use crate::status::StatusError;
use crate::store::StoreError;

/// `{"error": {"code", "message"}}` with that status.
pub(super) fn error_response(status: StatusCode, code: &str, message: &str) -> Response {
    let error = json!({ "error": { "code": code, "message": message } });
    (status, Json(error)).into_response()
}

/// 500 with an error of the daemon.
pub(super) fn operation_failed(status_error: &StatusError) -> Response {
    (
        StatusCode::INTERNAL_SERVER_ERROR,
        Json(json!({ "error": status_error })),
    )
        .into_response()
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
