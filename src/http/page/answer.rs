//! The headers of every page, and the page of an error.
//!
//! Invariant: no answer that a browser shows as a page is without the Content-Security-Policy.

use askama::Template;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::http::error_response::{error_response, status_of};
use crate::http::state::OperatorState;
use crate::status::{Status, StatusError};
use crate::store::{FeedExcerpt, FeedSearch, StoreError};

/// What a page may load: its style, its script, its icon and its news, from here. No inline script or style, no frame around it, no form
/// to elsewhere.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self' data:; \
     form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// The headers of a page and of what belongs to it.
pub(super) fn page_headers(media_type: &'static str) -> [(HeaderName, HeaderValue); 5] {
    [
        (header::CONTENT_TYPE, HeaderValue::from_static(media_type)),
        (
            header::CONTENT_SECURITY_POLICY,
            HeaderValue::from_static(POLICY),
        ),
        // With `no-referrer` a browser would state no origin with a form, which the guard rejects.
        (
            header::REFERRER_POLICY,
            HeaderValue::from_static("same-origin"),
        ),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        // A page of another site that opens this one in a window gets no hold of that window.
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            HeaderValue::from_static("same-origin"),
        ),
    ]
}

/// A page.
pub(super) fn page(status: StatusCode, template: &impl Template) -> Response {
    match template.render() {
        Ok(text) => (status, page_headers("text/html; charset=utf-8"), text).into_response(),
        Err(error) => not_rendered(&error),
    }
}

pub(super) fn not_rendered(error: &askama::Error) -> Response {
    let message = format!("the page cannot be rendered: {error}");
    error_response(
        StatusCode::INTERNAL_SERVER_ERROR,
        "page-not-rendered",
        &message,
    )
}

/// Whether a browser asks, to show the answer to a person.
pub(super) fn wants_page(headers: &HeaderMap) -> bool {
    let accepted = headers.get(header::ACCEPT).map(HeaderValue::as_bytes);
    String::from_utf8_lossy(accepted.unwrap_or_default()).contains("text/html")
}

#[derive(Template)]
#[template(path = "error.html")]
struct ErrorPage<'a> {
    root: &'static str,
    title: &'a str,
    message: &'a str,
    code: &'a str,
}

/// The page of an error. `root`: the way from the page to `/`.
pub(super) fn error_page(
    status: StatusCode,
    root: &'static str,
    code: &str,
    message: &str,
) -> Response {
    let title = status.canonical_reason().unwrap_or("Error");
    let template = ErrorPage {
        root,
        title,
        message,
        code,
    };
    page(status, &template)
}

pub(super) fn unknown_source(root: &'static str, name: &str) -> Response {
    let message = format!("There is no Source {name:?} in the configuration.");
    error_page(StatusCode::NOT_FOUND, root, "unknown-source", &message)
}

/// The page of an error of the daemon.
pub(super) fn operation_failed(root: &'static str, error: &StatusError) -> Response {
    error_page(status_of(error), root, &error.code, &error.message)
}

/// The page of an error of the database.
pub(super) fn database_failed(root: &'static str, error: &StoreError) -> Response {
    tracing::error!(code = error.code(), %error, "page not shown: database error");
    let message = error.to_string();
    error_page(
        StatusCode::INTERNAL_SERVER_ERROR,
        root,
        error.code(),
        &message,
    )
}

impl OperatorState {
    /// The status; else the page of the error. `root`: the way from the page to `/`.
    pub(super) async fn status(&self, root: &'static str) -> Result<Status, Response> {
        let status = self.engine.status().await;
        status.map_err(|error| operation_failed(root, &error))
    }

    /// The last changes; else the page of the error.
    pub(super) async fn changes(
        &self,
        root: &'static str,
        search: FeedSearch,
    ) -> Result<FeedExcerpt, Response> {
        let changes = self.store.newest_changes(search).await;
        changes.map_err(|error| database_failed(root, &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn browsers_get_a_page() {
        for (accept, expected) in [
            (
                Some("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"),
                true,
            ),
            (Some("*/*"), false),
            (Some("application/json"), false),
            (None, false),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(accept) = accept {
                headers.insert(header::ACCEPT, accept.parse().unwrap());
            }
            assert_eq!(wants_page(&headers), expected, "{accept:?}");
        }
    }

    #[test]
    fn hostile_text_stays_text() {
        let template = ErrorPage {
            root: "./",
            title: "t",
            message: "<script>alert(1)</script> \" onload='x' & more",
            code: "c",
        };
        let text = template.render().unwrap();
        assert!(!text.contains("<script>alert"), "{text}");
        assert!(text.contains("&#60;script&#62;alert(1)"), "{text}");
        assert!(!text.contains("onload='x'"), "{text}");
    }
}
