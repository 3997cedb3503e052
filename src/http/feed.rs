//! `GET /changes`: the feed of applied changes, in pages of lines or as a stream of events. `GET /resources`: what the mirror has, for
//! readers that begin.
//!
//! Invariants: a reader whose position is no position of this feed, or was removed, gets an error or a `reset` event, and never
//! silence; without `feed=` in the request the `id` of an event is its number alone. A listing that is cut off does not look complete.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::map_response_with_state;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures_util::stream::{self, Stream, StreamExt};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;
use utoipa::IntoParams;

use super::error_response::{ErrorBody, database_failed, error_response, too_many_streams};
use super::query::Query;
use super::resource_line::ResourceLine;
use super::state::{MAX_STREAMS, OperatorState};
use crate::clock;
use crate::store::{FeedEntry, FeedLine, ResourceListing, Store, StoreError, Wake};

/// How many lines of the feed one response has by default.
const DEFAULT_LINES: usize = 1000;
/// How many lines of the feed one response has at most.
const MAX_LINES: usize = 100_000;
/// How often a stream without events sends a keep-alive.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// The media type of one JSON object per line.
pub(super) const NDJSON: &str = "application/x-ndjson";
/// The header that states the id of the feed.
const FEED: &str = "resyncd-feed";
/// The header that states the number to continue from.
const SEQ: &str = "resyncd-seq";

/// The routes of the feed.
pub(super) fn feed_router(state: &OperatorState) -> Router<OperatorState> {
    Router::new()
        .route("/changes", get(changes))
        .route("/resources", get(resources))
        .layer(map_response_with_state(state.clone(), name_feed))
}

/// States the id of the feed, also with an error: a reader learns by it whether its position is one of this feed.
async fn name_feed(State(state): State<OperatorState>, mut response: Response) -> Response {
    if let Ok(id) = HeaderValue::from_str(state.store.feed_id()) {
        response.headers_mut().insert(FEED, id);
    }
    response
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ChangesQuery {
    /// The number of the last entry that was read; the page begins behind it.
    since: Option<i64>,
    /// The id of the feed that `since` is a number of; empty: any, but events are to name it.
    feed: Option<String>,
    /// The number of lines.
    limit: Option<usize>,
    /// `1`: also lines of resources of which only the links are others.
    links: Option<String>,
}

impl ChangesQuery {
    fn wants_links(&self) -> bool {
        matches!(self.links.as_deref(), Some("1" | "true"))
    }
}

/// Where a reader continues.
struct FeedPosition {
    /// The id of the feed; `None`: not stated.
    feed: Option<String>,
    /// The last number that it has read; `None`: it begins with the oldest entry that there is.
    since: Option<i64>,
}

impl FeedPosition {
    fn of_query(query: &ChangesQuery) -> Self {
        Self {
            feed: query.feed.clone().filter(|feed| !feed.is_empty()),
            since: query.since,
        }
    }

    /// The position that the `id` of an event states: a number, which belongs to the feed of the request if that names one, or the
    /// id of a feed and a number. `None`: it is no position of any feed.
    fn of_event(id: &str, query: &ChangesQuery) -> Option<Self> {
        let (feed, seq) = match id.rsplit_once(':') {
            Some((feed, seq)) => (Some(feed.to_owned()), seq),
            None => (Self::of_query(query).feed, id),
        };
        Some(Self {
            feed,
            since: Some(seq.parse().ok()?),
        })
    }

    /// The entries after this position, and its number.
    async fn read(
        &self,
        store: &Arc<Store>,
        limit: usize,
        links: bool,
    ) -> Result<(i64, Vec<FeedEntry>), StoreError> {
        if self.feed.as_deref().is_some_and(|it| it != store.feed_id()) {
            return Err(StoreError::OtherFeed);
        }
        let begin = self.since.unwrap_or(0);
        match store.feed_with(begin, limit, links).await {
            Err(StoreError::FeedTrimmed { oldest }) if self.since.is_none() => {
                Ok((oldest, store.feed_with(oldest, limit, links).await?))
            }
            answer => Ok((begin, answer?)),
        }
    }
}

/// The feed of applied changes: a page of lines or, where `text/event-stream` is accepted, a stream of events.
#[utoipa::path(
    get, path = "/changes",
    params(ChangesQuery),
    responses((status = 200, body = FeedLine, content_type = NDJSON), ErrorBody),
)]
pub(super) async fn changes(
    State(state): State<OperatorState>,
    Query(query): Query<ChangesQuery>,
    headers: HeaderMap,
) -> Response {
    let accepted = headers.get(header::ACCEPT).map(HeaderValue::as_bytes);
    let accepted = String::from_utf8_lossy(accepted.unwrap_or_default());
    if accepted.contains("text/event-stream") {
        // A browser that reconnects states the last event that it received.
        let last = headers.get("last-event-id").filter(|id| !id.is_empty());
        let last = last.map(|id| id.to_str().unwrap_or_default());
        return changes_as_events(state, &query, last).await;
    }
    let limit = query.limit.unwrap_or(DEFAULT_LINES).min(MAX_LINES);
    let (position, links) = (FeedPosition::of_query(&query), query.wants_links());
    let (since, entries) = match position.read(&state.store, limit, links).await {
        Ok(page) => page,
        Err(error) => return feed_failed(&error),
    };
    if query.since.is_some() {
        state.store.note_feed_reader(clock::now().wall, since);
    }
    let seq = entries.last().map_or(since, |last| last.seq);
    let lines: String = entries
        .into_iter()
        .map(|entry| entry.to_line(state.store.feed_id()) + "\n")
        .collect();
    let headers = [(SEQ, HeaderValue::from(seq))];
    (headers, [(header::CONTENT_TYPE, NDJSON)], lines).into_response()
}

/// `last`: the `id` of the last event that the reader has received.
async fn changes_as_events(
    state: OperatorState,
    query: &ChangesQuery,
    last: Option<&str>,
) -> Response {
    let Ok(permit) = Arc::clone(&state.streams).try_acquire_owned() else {
        return too_many_streams(&state.rejections, MAX_STREAMS, "streams");
    };
    let position = match last {
        Some(id) => FeedPosition::of_event(id, query),
        None => Some(FeedPosition::of_query(query)),
    };
    // Whether the stream can begin there.
    let begin = match position {
        Some(position) => position.read(&state.store, 1, query.wants_links()).await,
        None => Err(StoreError::OtherFeed),
    };
    let since = match begin {
        Ok((since, _)) => since,
        Err(error) => {
            // A browser does not show the status to the page that reconnects.
            let is_reset = is_lost(&error)
                && (last.is_some() || !matches!(error, StoreError::FeedTrimmed { .. }));
            return if is_reset {
                let event = Ok::<_, Infallible>(reset(&state.store, &error));
                Sse::new(stream::iter([event])).into_response()
            } else {
                feed_failed(&error)
            };
        }
    };
    let stop = state.stop.clone();
    let form = EventForm {
        is_named: query.feed.is_some(),
        links: query.wants_links(),
    };
    let events = events(state.store, since, form, permit);
    Sse::new(events.take_until(stop.cancelled_owned()))
        .keep_alive(KeepAlive::new().interval(HEARTBEAT))
        .into_response()
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ResourcesQuery {
    /// The name of the Source whose resources are listed.
    source: Option<String>,
    /// The Capability List of the set whose resources are listed.
    set: Option<String>,
}

/// What the mirror has, a line for each resource, for readers of the feed that begin.
#[utoipa::path(
    get, path = "/resources",
    params(ResourcesQuery),
    responses((status = 200, body = ResourceLine, content_type = NDJSON), ErrorBody),
)]
pub(super) async fn resources(
    State(state): State<OperatorState>,
    Query(ResourcesQuery { source, set }): Query<ResourcesQuery>,
) -> Response {
    let Ok(permit) = Arc::clone(&state.streams).try_acquire_owned() else {
        return too_many_streams(&state.rejections, MAX_STREAMS, "streams");
    };
    let code = match set {
        Some(_) => "unknown-set",
        None => "unknown-source",
    };
    let is_followed = state.engine.is_followed(source.as_deref(), set.as_deref());
    let (position, listing) = match state.store.begin_listing(source, set).await {
        Ok((position, Some(listing))) => (position, listing),
        // Its first set is still to be found, or to be stored.
        Ok((position, None)) if is_followed => (position, ResourceListing::default()),
        Ok((_, None)) => {
            let message = "no set of that Capability List or Source is known";
            return error_response(StatusCode::NOT_FOUND, code, message);
        }
        Err(error) => return database_failed(&error),
    };
    // The reader goes on there when it has read all of the listing.
    state.store.note_feed_reader(clock::now().wall, position);
    let headers = [(SEQ, HeaderValue::from(position))];
    let lines = Body::from_stream(listed_lines(state.store, state.stop, listing, permit));
    (headers, [(header::CONTENT_TYPE, NDJSON)], lines).into_response()
}

/// The lines of a listing, some at a time: the next ones are read when these were sent. It occupies `permit` until it is dropped. Where
/// it can't go on it fails, which cuts the connection.
fn listed_lines(
    store: Arc<Store>,
    stop: CancellationToken,
    listing: ResourceListing,
    permit: OwnedSemaphorePermit,
) -> impl Stream<Item = Result<String, StoreError>> {
    stream::unfold(Some((store, stop, listing, permit)), |rest| async move {
        let (store, stop, listing, permit) = rest?;
        let next = tokio::select! {
            biased;
            () = stop.cancelled() => Err(StoreError::Closed),
            next = store.next_listed(listing) => next,
        };
        match next {
            Ok(Some((views, listing))) => {
                let lines = views.into_iter().map(ResourceLine::from);
                Some((json_lines(lines), Some((store, stop, listing, permit))))
            }
            Ok(None) => None,
            Err(error) => {
                tracing::debug!(code = error.code(), %error, "listing of resources cut off");
                Some((Err(error), None))
            }
        }
    })
}

/// One line for each resource.
fn json_lines(resources: impl Iterator<Item = ResourceLine>) -> Result<String, StoreError> {
    let mut lines = String::new();
    for resource in resources {
        let line = serde_json::to_string(&resource);
        lines.push_str(&line.map_err(|_| StoreError::BadRow("a resource"))?);
        lines.push('\n');
    }
    Ok(lines)
}

/// Whether an error means that a reader has missed changes, or may have: it must begin anew, with the mirror as it is.
fn is_lost(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::FeedTrimmed { .. } | StoreError::OtherFeed | StoreError::BeyondFeed { .. }
    )
}

fn feed_failed(error: &StoreError) -> Response {
    let status = match error {
        StoreError::FeedTrimmed { .. } => StatusCode::GONE,
        StoreError::OtherFeed | StoreError::BeyondFeed { .. } => StatusCode::CONFLICT,
        error => return database_failed(error),
    };
    error_response(status, error.code(), &error.to_string())
}

/// Which events a reader gets.
#[derive(Clone, Copy)]
struct EventForm {
    /// Whether the `id` of an event has the id of the feed, too.
    is_named: bool,
    /// Whether there are events also of resources of which only the links are others.
    links: bool,
}

/// The feed as an endless stream of events after entry `since`. It occupies `permit` until it is dropped, and ends with a `reset`
/// where entries were removed before they were sent.
fn events(
    store: Arc<Store>,
    since: i64,
    form: EventForm,
    permit: OwnedSemaphorePermit,
) -> impl Stream<Item = Result<Event, Infallible>> {
    let wakes = store.wakes();
    stream::unfold(
        (store, wakes, Some(since), permit),
        move |(store, mut wakes, since, permit)| async move {
            let since = since?;
            loop {
                let entries = match store.feed_with(since, DEFAULT_LINES, form.links).await {
                    Ok(entries) => entries,
                    Err(error) if is_lost(&error) => {
                        let last = vec![Ok(reset(&store, &error))];
                        return Some((stream::iter(last), (store, wakes, None, permit)));
                    }
                    Err(_) => return None,
                };
                store.note_feed_reader(clock::now().wall, since);
                if let Some(last) = entries.last() {
                    let last = Some(last.seq);
                    let feed = store.feed_id();
                    let events: Vec<_> = entries
                        .into_iter()
                        .map(|entry| Ok(event(entry, feed, form.is_named)))
                        .collect();
                    return Some((stream::iter(events), (store, wakes, last, permit)));
                }
                loop {
                    match wakes.recv().await {
                        Ok(Wake::Feed(seq)) if seq > since => break,
                        Ok(_) => {}
                        Err(RecvError::Lagged(_)) => break,
                        Err(RecvError::Closed) => return None,
                    }
                }
            }
        },
    )
    .flatten()
}

fn event(entry: FeedEntry, feed: &str, is_named: bool) -> Event {
    let id = if is_named {
        format!("{feed}:{}", entry.seq)
    } else {
        entry.seq.to_string()
    };
    Event::default().id(id).data(entry.to_line(feed))
}

/// The last event of a stream whose reader must begin anew. It has no `id`: a reader that ignores it reconnects with its old
/// position, and gets another one.
fn reset(store: &Store, error: &StoreError) -> Event {
    let data = json!({
        "feed": store.feed_id(),
        "error": { "code": error.code(), "message": error.to_string() },
    });
    Event::default().event("reset").data(data.to_string())
}

#[cfg(test)]
mod tests {
    use tokio::sync::Semaphore;

    use super::*;

    /// The position that an `id` states when the request has `feed=`: the feed and the number.
    #[track_caller]
    fn check(id: &str, feed: Option<&str>, expected: Option<(Option<&str>, i64)>) {
        let query = ChangesQuery {
            since: Some(1),
            feed: feed.map(str::to_owned),
            limit: None,
            links: None,
        };
        let position = FeedPosition::of_event(id, &query);
        let found = position.map(|it| (it.feed, it.since.unwrap()));
        let expected = expected.map(|(feed, since)| (feed.map(str::to_owned), since));
        assert_eq!(found, expected, "{id}");
    }

    #[test]
    fn id_of_an_event_is_a_position() {
        check("7", None, Some((None, 7)));
        check("7", Some("ab"), Some((Some("ab"), 7)));
        check("7", Some(""), Some((None, 7)));
        check("cd:7", Some("ab"), Some((Some("cd"), 7)));
        check(":7", None, Some((Some(""), 7)));
        for id in ["", "cd:", "cd:x", "x", "7.5", "99999999999999999999"] {
            check(id, Some("ab"), None);
        }
    }

    #[tokio::test]
    async fn listing_that_is_cut_off_by_a_stop_fails() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        for is_stopped in [false, true] {
            let stop = CancellationToken::new();
            if is_stopped {
                stop.cancel();
            }
            let streams = Arc::new(Semaphore::new(1));
            let permit = Arc::clone(&streams).try_acquire_owned().unwrap();
            let (_, listing) = store.begin_listing(None, None).await.unwrap();
            let listing = listing.unwrap();
            let lines = listed_lines(Arc::clone(&store), stop, listing, permit);
            let lines: Vec<_> = lines.collect().await;
            if is_stopped {
                assert!(matches!(lines.as_slice(), [Err(StoreError::Closed)]))
            } else {
                assert!(lines.is_empty())
            }
            assert_eq!(streams.available_permits(), 1);
        }
    }
}
