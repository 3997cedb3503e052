//! Who may talk to the status endpoint through a person's browser: nobody but the endpoint's own pages.
//!
//! The endpoint has no password: that it can only be reached from this machine is what protects it. A web page from
//! elsewhere must not get around that, neither by a name of its own that it lets point here (DNS rebinding; the `Host` header
//! tells) nor by a form that it sends here (the `Origin` header tells; RFC 6454, section 7).

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;

use super::operator::told;
use super::refusals::Refusals;
use super::rejection_counters::RejectionCounters;
use crate::clock;

/// What browsers say of where a request comes from (Fetch Metadata).
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The names that the endpoint may be called by, besides addresses and `localhost`: lower case, without a port.
#[derive(Clone, Debug)]
pub(super) struct HostOriginGuard {
    names: Arc<[String]>,
    refusals: Refusals<&'static str>,
    tally: RejectionCounters,
}

impl HostOriginGuard {
    /// Lets those names through; a port that they tell does not count.
    pub(super) fn new(names: &[String], tally: RejectionCounters) -> Self {
        Self {
            names: names.iter().map(|name| host_of(name)).collect(),
            refusals: Refusals::default(),
            tally,
        }
    }

    fn refuses(&self, method: &Method, headers: &HeaderMap) -> Option<(&'static str, String)> {
        let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
        // Only programs leave it out, and a web page is what is guarded against.
        let host = text(header::HOST)?;
        if !self.knows(&host_of(host)) {
            let message = format!(
                "{host:?} is not a name of this endpoint; name it in the configuration, as [status] hosts"
            );
            return Some(("forbidden-host", message));
        }
        if method.is_safe() {
            return None;
        }
        let origin = text(header::ORIGIN).unwrap_or_default();
        let is_own = origin.is_empty() || is_same_origin(origin, host);
        let site = text(SEC_FETCH_SITE).unwrap_or("none");
        if is_own && matches!(site, "none" | "same-origin") {
            return None;
        }
        let message = "this comes from a page of another site".to_owned();
        Some(("forbidden-origin", message))
    }

    /// A page can only be rebound by a name that its author controls, and nobody's page has an address for a name.
    fn knows(&self, host: &str) -> bool {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        bare.parse::<IpAddr>().is_ok()
            || host == "localhost"
            || host.ends_with(".localhost")
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

/// A reverse proxy may speak TLS for us, so that the scheme is not compared.
fn is_same_origin(origin: &str, host: &str) -> bool {
    let authority = origin
        .strip_prefix("http://")
        .or_else(|| origin.strip_prefix("https://"));
    authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host))
}

/// Refuses, with 403, what a web page from elsewhere has sent.
pub(super) async fn keep_out(
    State(gate): State<HostOriginGuard>,
    request: Request,
    next: Next,
) -> Response {
    match gate.refuses(request.method(), request.headers()) {
        None => next.run(request).await,
        Some((code, message)) => {
            gate.tally.count(code);
            if gate.refusals.is_news(code, clock::now().mono) {
                tracing::warn!(
                    code,
                    message,
                    "a request to the status endpoint was refused"
                );
            }
            told(StatusCode::FORBIDDEN, code, &message)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_from_elsewhere_are_kept_out() {
        let gate = HostOriginGuard::new(
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
            // Reading across sites is what browsers forbid by themselves: no answer allows it.
            ("GET", Some(own), Some("http://evil.example"), None, None),
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
            let refused = gate.refuses(&method, &headers).map(|(code, _)| code);
            assert_eq!(refused, expected, "{method} {headers:?}");
        }
    }
}
