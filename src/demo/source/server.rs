//! How the Source answers: conditional requests, and the faults that a test planned.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{
    CONTENT_LENGTH, CONTENT_TYPE, ETAG, IF_NONE_MATCH, LAST_MODIFIED, LINK, LOCATION, RETRY_AFTER,
};
use axum::http::response::Builder;
use axum::http::{HeaderMap, Response, StatusCode, Uri};
use axum::routing::get;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream;

use super::Shared;
use super::fault::Fault;
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
        (Some(found), None | Some(Fault::Slow(_))) => {
            if is_current {
                refusal(304).header(ETAG, &found.etag).body(Body::empty())
            } else {
                let body = found.document.body.clone();
                head_of(&found).body(Body::from(body))
            }
        }
        (Some(found), Some(Fault::WrongBytes)) => {
            let wrong: Vec<u8> = found.document.body.iter().map(|byte| !byte).collect();
            head_of(&found).body(Body::from(wrong))
        }
        (Some(found), Some(Fault::Truncated)) => {
            let cut = stream::once(async {
                // Lets the first half be sent before the connection is cut.
                tokio::task::yield_now().await;
                Err(std::io::Error::other("cut on purpose"))
            });
            let sent = first_half(&found).map(|sent| sent.map_err(|never| match never {}));
            head_of(&found).body(Body::from_stream(sent.chain(cut)))
        }
        (Some(found), Some(Fault::Stalled)) => head_of(&found).body(Body::from_stream(
            first_half(&found).chain(stream::pending()),
        )),
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

fn head_of(found: &Found) -> Builder {
    let mut head = Response::builder()
        .header(CONTENT_TYPE, &found.document.media_type)
        .header(CONTENT_LENGTH, found.document.body.len())
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

fn first_half(found: &Found) -> impl stream::Stream<Item = Result<Bytes, Infallible>> + use<> {
    let body = &found.document.body;
    stream::once(std::future::ready(Ok(body.slice(..body.len() / 2))))
}
