//! The optional token of a listener (RFC 6750, section 2.1).

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;

use super::error_response::error_response;
use super::rejection_counters::RejectionCounters;
use crate::config::Secret;

const CODE: &str = "unauthorized";

/// Checks requests for the token.
#[derive(Clone)]
pub(crate) struct BearerToken {
    /// `None`: none is required.
    token: Option<Arc<Secret>>,
    /// The table of the configuration that names its file.
    table: &'static str,
    /// What is answered to everybody.
    open: &'static [&'static str],
    rejections: RejectionCounters,
}

impl BearerToken {
    pub(crate) fn new(
        token: Option<Secret>,
        table: &'static str,
        open: &'static [&'static str],
        rejections: RejectionCounters,
    ) -> Self {
        Self {
            token: token.map(Arc::new),
            table,
            open,
            rejections,
        }
    }

    fn accepts(&self, path: &str, headers: &HeaderMap) -> bool {
        let Some(token) = &self.token else {
            return true;
        };
        let stated = headers.get(header::AUTHORIZATION);
        let stated = stated.and_then(|value| value.to_str().ok()?.split_once(' '));
        let is_token = stated.is_some_and(|(scheme, stated)| {
            scheme.eq_ignore_ascii_case("bearer") && token.is(stated.trim())
        });
        is_token || self.open.contains(&path)
    }
}

/// Middleware: answers 401 to a request without the token.
pub(crate) async fn require_token(
    State(guard): State<BearerToken>,
    request: Request,
    next: Next,
) -> Response {
    if guard.accepts(request.uri().path(), request.headers()) {
        return next.run(request).await;
    }
    guard.rejections.count(CODE);
    let message = format!(
        "the request needs the token of [{}] token_file",
        guard.table
    );
    let mut response = error_response(StatusCode::UNAUTHORIZED, CODE, &message);
    let scheme = HeaderValue::from_static("Bearer realm=\"resyncd\"");
    response
        .headers_mut()
        .insert(header::WWW_AUTHENTICATE, scheme);
    response
}
