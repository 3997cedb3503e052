//! `GET /page/events`: notifies the script of an open page of changes. It reads the page again then: what a page shows is made
//! in one place.
//!
//! Invariants: whatever happens, an open page is notified a few times a second at most, and every few seconds at least, the first time at
//! once: a page that hears nothing takes the stream for dead. The number of streams is bounded.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream, StreamExt};
use tokio::sync::broadcast::error::RecvError;

use crate::http::error_response::too_many_streams;
use crate::http::state::{MAX_PAGES, OperatorState};
use crate::store::Store;

/// What happens within that time after something new is one event.
const GATHER: Duration = Duration::from_millis(250);
/// What changes without a commit, such as the error of a poll, is seen after that time.
const STEADY: Duration = Duration::from_secs(5);

pub(super) async fn events(State(state): State<OperatorState>) -> Response {
    let Ok(permit) = Arc::clone(&state.pages).try_acquire_owned() else {
        return too_many_streams(&state.rejections, MAX_PAGES, "pages");
    };
    // Subscribed to before the first event is sent: the page is read after it.
    let later = news(&state.store);
    let news = stream::iter([Ok(event())]).chain(later).map(move |event| {
        // Occupied until the stream is dropped.
        let _occupied = &permit;
        event
    });
    Sse::new(news.take_until(state.stop.clone().cancelled_owned())).into_response()
}

/// An event after each commit, but not more than one in that time, and at least one in the longer time.
fn news(store: &Store) -> impl Stream<Item = Result<Event, Infallible>> + use<> {
    stream::unfold(store.wakes(), |mut wakes| async move {
        let woken = tokio::time::timeout(STEADY, wakes.recv()).await;
        if matches!(woken, Ok(Err(RecvError::Closed))) {
            return None;
        }
        tokio::time::sleep(GATHER).await;
        let wakes = wakes.resubscribe();
        Some((Ok(event()), wakes))
    })
}

fn event() -> Event {
    // Browsers ignore events without data.
    Event::default().event("news").data("1")
}
