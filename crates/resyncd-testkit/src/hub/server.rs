//! The hub's HTTP server: requests to subscribe and unsubscribe, and notifications that a Source submits.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::header::{CONTENT_TYPE, LINK, LOCATION};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::Bytes;
use websub::SubscriptionRequest;

use super::event::HubEvent;
use super::options::{Granting, Verifying};
use super::state::{InProgress, SharedHub};
use super::{delivery, subscription};

/// The path of the hub's URI.
pub(super) const PATH: &str = "/hub";

/// The hub's only route.
pub(super) fn router(shared: Arc<SharedHub>) -> Router {
    Router::new().route(PATH, post(answer)).with_state(shared)
}

async fn answer(State(shared): State<Arc<SharedHub>>, headers: HeaderMap, body: Bytes) -> Response {
    let content_type = headers.get(CONTENT_TYPE).and_then(|it| it.to_str().ok());
    if content_type.is_some_and(|it| it.starts_with("application/xml")) {
        return relay(&shared, &headers, body).await.into_response();
    }
    let request = std::str::from_utf8(&body)
        .ok()
        .and_then(SubscriptionRequest::parse_form);
    match request {
        Some(request) => subscribe_or_unsubscribe(shared, request).await,
        None => StatusCode::BAD_REQUEST.into_response(),
    }
}

/// Relays a notification that a Source submits (Change Notification, section 4.1).
async fn relay(shared: &SharedHub, headers: &HeaderMap, body: Bytes) -> StatusCode {
    let links = headers
        .get_all(LINK)
        .iter()
        .filter_map(|it| it.to_str().ok());
    let topic = links.flat_map(|links| links.split(',')).find_map(|link| {
        link.trim()
            .strip_suffix(">; rel=\"self\"")?
            .strip_prefix('<')
    });
    match topic {
        Some(topic) => {
            delivery::deliver_all(shared, topic, body).await;
            StatusCode::OK
        }
        None => StatusCode::BAD_REQUEST,
    }
}

async fn subscribe_or_unsubscribe(
    shared: Arc<SharedHub>,
    request: SubscriptionRequest,
) -> Response {
    let options = shared.options();
    let (status, accepted) = match &options.granting {
        Granting::Accept(status) => (*status, true),
        Granting::Refuse(status) => (*status, false),
        Granting::RefuseLease(status) if request.lease_seconds.is_some() => (*status, false),
        Granting::RefuseLease(_) => (202, true),
        Granting::Redirect(status, _) => (*status, false),
    };
    shared.events.add(HubEvent::Requested {
        request: request.clone(),
        status,
    });
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if let Granting::Redirect(_, to) = options.granting {
        return (status, [(LOCATION, to)]).into_response();
    }
    if accepted {
        let in_progress = InProgress::begin(&shared);
        if options.verifying == Verifying::AfterAnswer {
            tokio::spawn(async move {
                let _in_progress = in_progress;
                subscription::process(&shared, &request).await;
            });
        } else {
            subscription::process(&shared, &request).await;
        }
    }
    status.into_response()
}
