//! The Source's HTTP server: conditional requests, ranges, and planned faults.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{
    ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, IF_NONE_MATCH, LAST_MODIFIED,
    LINK, LOCATION, RETRY_AFTER, VARY,
};
use axum::http::response::Builder;
use axum::http::{HeaderMap, Response, StatusCode, Uri};
use axum::routing::get;
use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures_util::{StreamExt, stream};

use super::fault::Fault;
use super::range::RequestedRange;
use super::related::http_date;
use super::served::{Negotiated, Representation};
use super::state::SharedSource;

/// Answers GET and HEAD for every path of the Source.
pub(super) fn router(shared: Arc<SharedSource>) -> Router {
    Router::new().fallback(get(answer)).with_state(shared)
}

async fn answer(
    State(shared): State<Arc<SharedSource>>,
    uri: Uri,
    headers: HeaderMap,
) -> Response<Body> {
    let path = uri
        .path_and_query()
        .map_or_else(|| uri.path(), |path| path.as_str());
    let (found, fault, is_current, negotiated) = {
        let mut state = shared.state.lock();
        let negotiated = state.negotiate(path, accepted_time(&headers));
        let (found, fault) = (state.find(path), state.faults().take(path));
        let is_current = match (&found, &fault) {
            (Some(found), None | Some(Fault::Slow(_))) => is_current(&headers, found),
            _ => false,
        };
        let sent = found.as_ref().filter(|_| !is_current);
        state.hit(
            path,
            is_current,
            sent.map_or(0, |sent| sent.file.body.len()),
        );
        (found, fault, is_current, negotiated)
    };
    shared.requests.send_modify(|count| *count += 1);
    if let Some(Fault::Slow(by)) = fault {
        tokio::time::sleep(by).await;
    }
    let response = match (found, fault) {
        (_, Some(Fault::Status(status))) => empty(status).body(Body::empty()),
        (_, Some(Fault::Unavailable { retry_after })) => empty(503)
            .header(RETRY_AFTER, retry_after)
            .body(Body::empty()),
        (_, Some(Fault::Redirect(to))) => empty(302).header(LOCATION, to).body(Body::empty()),
        (None, _) => match negotiated {
            Some(Negotiated { location, links }) => empty(302)
                .header(LOCATION, location)
                .header(VARY, "accept-datetime")
                .header(LINK, links)
                .body(Body::empty()),
            None => empty(404).body(Body::empty()),
        },
        (Some(found), None | Some(Fault::Slow(_))) if is_current => {
            empty(304).header(ETAG, &found.etag).body(Body::empty())
        }
        (Some(found), fault) => {
            let (head, bytes) = part_of(&found, &RequestedRange::of(&headers, &found));
            head.body(body_with(fault, bytes))
        }
    };
    response.unwrap_or_else(|error| {
        // A test configured a header or status that HTTP does not allow.
        let mut response = Response::new(Body::from(error.to_string()));
        *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        response
    })
}

fn empty(status: u16) -> Builder {
    Response::builder().status(status)
}

/// The head and the bytes of the answer to a range request.
fn part_of(found: &Representation, asked: &RequestedRange) -> (Builder, Bytes) {
    let body = &found.file.body;
    let length = body.len();
    match asked {
        RequestedRange::Full => (head_of(found, length).status(200), body.clone()),
        RequestedRange::Part(part) => {
            let range = format!("bytes {}-{}/{length}", part.start, part.end - 1);
            let head = head_of(found, part.len()).status(206);
            (head.header(CONTENT_RANGE, range), body.slice(part.clone()))
        }
        RequestedRange::Unsatisfiable => {
            let head = empty(416).header(CONTENT_RANGE, format!("bytes */{length}"));
            (head, Bytes::new())
        }
    }
}

/// The body with the planned fault applied.
fn body_with(fault: Option<Fault>, bytes: Bytes) -> Body {
    let half = bytes.slice(..bytes.len() / 2);
    let first_half = stream::once(std::future::ready(Ok::<_, std::io::Error>(half)));
    match fault {
        Some(Fault::WrongBytes) => Body::from(bytes.iter().map(|byte| !byte).collect::<Vec<u8>>()),
        Some(Fault::Truncated) => {
            let cut = stream::once(async {
                // Lets the first half be sent before the connection is cut.
                tokio::task::yield_now().await;
                Err(std::io::Error::other("cut on purpose"))
            });
            Body::from_stream(first_half.chain(cut))
        }
        Some(Fault::Stalled) => Body::from_stream(first_half.chain(stream::pending())),
        _ => Body::from(bytes),
    }
}

/// The head of a representation with a body of that length.
fn head_of(found: &Representation, length: usize) -> Builder {
    let mut head = Response::builder()
        .header(CONTENT_TYPE, &found.file.media_type)
        .header(CONTENT_LENGTH, length)
        .header(ACCEPT_RANGES, "bytes")
        .header(ETAG, &found.etag);
    if let Some(lastmod) = found.lastmod {
        head = head.header(LAST_MODIFIED, http_date(lastmod));
    }
    if let Some(time) = found.memento {
        head = head.header("memento-datetime", http_date(time));
    }
    if let Some(links) = &found.links {
        head = head.header(LINK, links);
    }
    head
}

/// The time of the version that a request to a TimeGate asks for (RFC 7089).
fn accepted_time(headers: &HeaderMap) -> Option<DateTime<Utc>> {
    let value = headers.get("accept-datetime")?.to_str().ok()?;
    let time = DateTime::parse_from_rfc2822(value).ok()?;
    Some(time.to_utc())
}

fn is_current(headers: &HeaderMap, found: &Representation) -> bool {
    headers
        .get_all(IF_NONE_MATCH)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|tag| tag.trim().trim_start_matches("W/"))
        .any(|tag| tag == found.etag || tag == "*")
}
