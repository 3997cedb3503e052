//! The optional token of the status endpoint (RFC 6750, section 2.1).

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;

use super::error_response::error_response;
use super::rejection_counters::RejectionCounters;
use crate::config::Secret;

/// What is answered to everybody: programs that watch the process have no token, and the answers state nothing else.
const OPEN: [&str; 2] = ["/healthz", "/readyz"];
const CODE: &str = "unauthorized";

/// Checks requests for the token.
#[derive(Clone)]
pub(super) struct BearerToken {
    /// `None`: none is required.
    token: Option<Arc<Secret>>,
    rejections: RejectionCounters,
}

impl BearerToken {
    pub(super) fn new(token: Option<Secret>, rejections: RejectionCounters) -> Self {
        Self {
            token: token.map(Arc::new),
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
        is_token || OPEN.contains(&path)
    }
}

/// Middleware: answers 401 to a request without the token.
pub(super) async fn require_token(
    State(guard): State<BearerToken>,
    request: Request,
    next: Next,
) -> Response {
    if guard.accepts(request.uri().path(), request.headers()) {
        return next.run(request).await;
    }
    guard.rejections.count(CODE);
    let message = "the request needs the token of [status] token_file";
    let mut response = error_response(StatusCode::UNAUTHORIZED, CODE, message);
    let scheme = HeaderValue::from_static("Bearer realm=\"resyncd\"");
    response
        .headers_mut()
        .insert(header::WWW_AUTHENTICATE, scheme);
    response
}
