//! How the Source answers: conditional requests, ranges, and the faults that a test planned.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{
    ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, IF_NONE_MATCH, LAST_MODIFIED,
    LINK, LOCATION, RETRY_AFTER,
};
use axum::http::response::Builder;
use axum::http::{HeaderMap, Response, StatusCode, Uri};
use axum::routing::get;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream;

use super::Shared;
use super::fault::Fault;
use super::range::Asked;
use super::world::Found;
use crate::demo::serving::lock;

/// The Source's routes: it answers GET and HEAD of everything it has.
pub(super) fn router(shared: Arc<Shared>) -> Router {
    Router::new().fallback(get(answer)).with_state(shared)
}

async fn answer(State(shared): State<Arc<Shared>>, uri: Uri, headers: HeaderMap) -> Response<Body> {
    let path = uri
        .path_and_query()
        .map_or_else(|| uri.path(), |path| path.as_str());
    let (found, fault, is_current) = {
        let mut world = lock(&shared.world);
        let (found, fault) = (world.find(path), world.faults().take(path));
        let is_current = match (&found, &fault) {
            (Some(found), None | Some(Fault::Slow(_))) => is_current(&headers, found),
            _ => false,
        };
        let sent = found.as_ref().filter(|_| !is_current);
        world.hit(
            path,
            is_current,
            sent.map_or(0, |sent| sent.document.body.len()),
        );
        (found, fault, is_current)
    };
    shared.requests.send_modify(|count| *count += 1);
    if let Some(Fault::Slow(by)) = fault {
        tokio::time::sleep(by).await;
    }
    let response = match (found, fault) {
        (_, Some(Fault::Status(status))) => refusal(status).body(Body::empty()),
        (_, Some(Fault::Unavailable { retry_after })) => refusal(503)
            .header(RETRY_AFTER, retry_after)
            .body(Body::empty()),
        (_, Some(Fault::Redirect(to))) => refusal(302).header(LOCATION, to).body(Body::empty()),
        (None, _) => refusal(404).body(Body::empty()),
        (Some(found), None | Some(Fault::Slow(_))) if is_current => {
            refusal(304).header(ETAG, &found.etag).body(Body::empty())
        }
        (Some(found), fault) => {
            let (head, bytes) = part_of(&found, &Asked::of(&headers, &found));
            head.body(body_with(fault, bytes))
        }
    };
    response.unwrap_or_else(|error| {
        // A test asked for a header or status that HTTP doesn't know.
        let mut response = Response::new(Body::from(error.to_string()));
        *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        response
    })
}

fn refusal(status: u16) -> Builder {
    Response::builder().status(status)
}

/// The head of an answer, and the bytes that are to follow.
fn part_of(found: &Found, asked: &Asked) -> (Builder, Bytes) {
    let whole = &found.document.body;
    let length = whole.len();
    match asked {
        Asked::Whole => (head_of(found, length).status(200), whole.clone()),
        Asked::Part(part) => {
            let told = format!("bytes {}-{}/{length}", part.start, part.end - 1);
            let head = head_of(found, part.len()).status(206);
            (head.header(CONTENT_RANGE, told), whole.slice(part.clone()))
        }
        Asked::Beyond => {
            let head = refusal(416).header(CONTENT_RANGE, format!("bytes */{length}"));
            (head, Bytes::new())
        }
    }
}

/// The bytes as they are sent, with the fault that was planned.
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

/// The head of what was found, of which so many bytes follow.
fn head_of(found: &Found, length: usize) -> Builder {
    let mut head = Response::builder()
        .header(CONTENT_TYPE, &found.document.media_type)
        .header(CONTENT_LENGTH, length)
        .header(ACCEPT_RANGES, "bytes")
        .header(ETAG, &found.etag);
    if let Some(lastmod) = found.lastmod {
        let date = lastmod.to_datetime().format("%a, %d %b %Y %H:%M:%S GMT");
        head = head.header(LAST_MODIFIED, date.to_string());
    }
    if let Some(links) = &found.links {
        head = head.header(LINK, links);
    }
    head
}

fn is_current(headers: &HeaderMap, found: &Found) -> bool {
    headers
        .get_all(IF_NONE_MATCH)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|tag| tag.trim().trim_start_matches("W/"))
        .any(|tag| tag == found.etag || tag == "*")
}
