//! Rejects requests to the status endpoint that a foreign web page makes a browser send.
//!
//! The endpoint has no password; it is protected by listening on loopback only. A foreign page must not get around that, neither by
//! a host name of its own that resolves to this machine (DNS rebinding, seen in the `Host` header) nor by a form that it submits
//! (cross-site request forgery, seen in the `Origin` header; RFC 6454, section 7), nor by an image, a script or a frame that makes
//! the daemon work or shows by its success or duration what it answers (seen in `Sec-Fetch-Site`). Only a link may lead to a page for
//! people: it replaces the page that has it, or opens a window that this one gets no hold of, because the pages have a
//! `Cross-Origin-Opener-Policy`.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use resyncd_fetch::is_localhost;

use super::error_response::error_response;
use super::page::is_page;
use super::rejection_counters::{REJECTED, RejectionCounters};

/// Where the page that sends a request comes from, as browsers state it (Fetch Metadata).
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// How a browser sends a request, and what for.
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const SEC_FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// Checks requests against the host names of the endpoint.
#[derive(Clone, Debug)]
pub(super) struct HostOriginGuard {
    /// Besides IP addresses and `localhost`: lower case, without a port.
    names: Arc<[String]>,
    rejections: RejectionCounters,
}

impl HostOriginGuard {
    /// Accepts these names, besides addresses and `localhost`; their ports are ignored.
    pub(super) fn new(names: &[String], rejections: RejectionCounters) -> Self {
        Self {
            names: names.iter().map(|name| host_of(name)).collect(),
            rejections,
        }
    }

    /// The code and the message of the rejection, if the request is rejected. `is_page`: whether what is requested is a page for people.
    fn rejects(
        &self,
        method: &Method,
        is_page: bool,
        headers: &HeaderMap,
    ) -> Option<(&'static str, String)> {
        let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
        // Browsers always send it; other programs are not what is guarded against.
        let host = text(header::HOST)?;
        if !self.knows(&host_of(host)) {
            let message = format!(
                "{host:?} is not a host name of this endpoint; add it to [status] hosts in the configuration"
            );
            return Some(("forbidden-host", message));
        }
        // A browser without Fetch Metadata may send a foreign GET; it does not let the page read the answer.
        let origin = text(header::ORIGIN).filter(|_| !method.is_safe());
        let is_own = origin.is_none_or(|origin| origin.is_empty() || is_same_origin(origin, host));
        let site = text(SEC_FETCH_SITE).unwrap_or("none");
        let is_link = method == Method::GET
            && text(SEC_FETCH_MODE) == Some("navigate")
            && text(SEC_FETCH_DEST) == Some("document");
        if is_own && (matches!(site, "none" | "same-origin") || (is_page && is_link)) {
            return None;
        }
        let message = "the request was sent by a page of another site".to_owned();
        Some(("forbidden-origin", message))
    }

    /// An IP address is accepted: DNS rebinding needs a name.
    fn knows(&self, host: &str) -> bool {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        bare.parse::<IpAddr>().is_ok()
            || is_localhost(host)
            || self.names.iter().any(|name| name == host)
    }
}

/// A host without its port, lower case, and without the dot that may end it.
fn host_of(authority: &str) -> String {
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    };
    host.trim_end_matches('.').to_ascii_lowercase()
}

/// The scheme is not compared: a reverse proxy may terminate TLS.
fn is_same_origin(origin: &str, host: &str) -> bool {
    let authority = origin
        .strip_prefix("http://")
        .or_else(|| origin.strip_prefix("https://"));
    authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host))
}

/// Middleware: answers 403 to what a foreign page has sent.
pub(super) async fn reject_foreign_pages(
    State(guard): State<HostOriginGuard>,
    request: Request,
    next: Next,
) -> Response {
    let is_page = is_page(request.uri().path());
    match guard.rejects(request.method(), is_page, request.headers()) {
        None => next.run(request).await,
        Some((code, message)) => {
            guard.rejections.count(code);
            tracing::warn!(target: REJECTED, code, message, "status request rejected");
            error_response(StatusCode::FORBIDDEN, code, &message)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_foreign_pages_are_rejected() {
        let guard = HostOriginGuard::new(
            &["Status.Example.NET:8080".to_owned()],
            RejectionCounters::default(),
        );
        let own = "127.0.0.1:8462";
        for (method, host, origin, site, expected) in [
            ("GET", Some(own), None, None, None),
            ("GET", Some("127.0.0.1"), None, None, None),
            ("GET", Some("[::1]:8462"), None, None, None),
            ("GET", Some("localhost:8462"), None, None, None),
            ("GET", Some("LocalHost."), None, None, None),
            ("GET", Some("resyncd.localhost:8462"), None, None, None),
            ("GET", Some("status.example.net"), None, None, None),
            ("GET", Some("STATUS.example.net:443"), None, None, None),
            ("GET", None, None, None, None),
            (
                "GET",
                Some("evil.example"),
                None,
                None,
                Some("forbidden-host"),
            ),
            (
                "GET",
                Some("evil.example:8462"),
                None,
                None,
                Some("forbidden-host"),
            ),
            (
                "GET",
                Some("127.0.0.1.evil.example"),
                None,
                None,
                Some("forbidden-host"),
            ),
            (
                "GET",
                Some("localhost.evil.example"),
                None,
                None,
                Some("forbidden-host"),
            ),
            (
                "GET",
                Some("notlocalhost"),
                None,
                None,
                Some("forbidden-host"),
            ),
            ("GET", Some(""), None, None, Some("forbidden-host")),
            // Browsers do not let a page read this response: it has no CORS header.
            ("GET", Some(own), Some("http://evil.example"), None, None),
            ("GET", Some(own), None, Some("none"), None),
            ("GET", Some(own), None, Some("same-origin"), None),
            (
                "GET",
                Some(own),
                None,
                Some("cross-site"),
                Some("forbidden-origin"),
            ),
            (
                "HEAD",
                Some(own),
                None,
                Some("same-site"),
                Some("forbidden-origin"),
            ),
            ("POST", Some(own), None, None, None),
            (
                "POST",
                Some(own),
                Some("http://127.0.0.1:8462"),
                Some("same-origin"),
                None,
            ),
            (
                "POST",
                Some("status.example.net"),
                Some("https://status.example.net"),
                None,
                None,
            ),
            (
                "POST",
                Some("evil.example"),
                None,
                None,
                Some("forbidden-host"),
            ),
            (
                "POST",
                Some(own),
                Some("http://evil.example"),
                None,
                Some("forbidden-origin"),
            ),
            (
                "POST",
                Some(own),
                Some("null"),
                None,
                Some("forbidden-origin"),
            ),
            (
                "POST",
                Some(own),
                Some("http://127.0.0.1:9999"),
                None,
                Some("forbidden-origin"),
            ),
            (
                "POST",
                Some(own),
                Some("http://localhost:8462"),
                None,
                Some("forbidden-origin"),
            ),
            (
                "POST",
                Some(own),
                None,
                Some("cross-site"),
                Some("forbidden-origin"),
            ),
            (
                "POST",
                Some(own),
                None,
                Some("same-site"),
                Some("forbidden-origin"),
            ),
            ("POST", Some(own), None, Some("none"), None),
        ] {
            let mut headers = HeaderMap::new();
            for (name, value) in [
                (header::HOST, host),
                (header::ORIGIN, origin),
                (SEC_FETCH_SITE, site),
            ] {
                if let Some(value) = value {
                    headers.insert(name, value.parse().unwrap());
                }
            }
            let method: Method = method.parse().unwrap();
            for is_page in [false, true] {
                let rejected = guard.rejects(&method, is_page, &headers);
                let rejected = rejected.map(|(code, _)| code);
                assert_eq!(rejected, expected, "{method} {headers:?}");
            }
        }
    }

    #[test]
    fn link_of_another_site_leads_to_pages_only() {
        let guard = HostOriginGuard::new(&[], RejectionCounters::default());
        let (own, foreign) = ("localhost:8462", "evil.example");
        for (method, is_page, host, mode, dest, is_allowed) in [
            ("GET", true, own, "navigate", "document", true),
            ("GET", false, own, "navigate", "document", false),
            ("GET", true, foreign, "navigate", "document", false),
            ("POST", true, own, "navigate", "document", false),
            ("HEAD", true, own, "navigate", "document", false),
            ("GET", true, own, "navigate", "iframe", false),
            ("GET", true, own, "navigate", "embed", false),
            ("GET", true, own, "no-cors", "image", false),
            ("GET", true, own, "no-cors", "document", false),
            ("GET", true, own, "cors", "empty", false),
            ("GET", true, own, "", "", false),
        ] {
            for site in ["cross-site", "same-site"] {
                let mut headers = HeaderMap::new();
                for (name, value) in [
                    (header::HOST, host),
                    (SEC_FETCH_SITE, site),
                    (SEC_FETCH_MODE, mode),
                    (SEC_FETCH_DEST, dest),
                ] {
                    headers.insert(name, value.parse().unwrap());
                }
                let method: Method = method.parse().unwrap();
                let rejected = guard.rejects(&method, is_page, &headers);
                assert_eq!(rejected.is_none(), is_allowed, "{method} {headers:?}");
            }
        }
    }
}
