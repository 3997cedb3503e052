//! `GET /`: everything at a glance.

use askama::Template;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::answer::{database_failed, operation_failed, page, wants_page};
use super::forms::{Caller, Done};
use super::state::PageState;
use super::text::front_text;
use super::view::{
    AttentionRow, Buttons, ChangeRow, Diagrams, Headline, Shell, SourceView, attention_rows,
    change_rows, headline, now_of, source_views,
};
use crate::http::error_response;
use crate::http::query::Query;
use crate::status::Status;
use crate::store::FeedSearch;

const ROOT: &str = "./";
/// How many of the last changes are shown.
const CHANGES: usize = 20;

#[derive(Template)]
#[template(path = "front.html")]
struct FrontPage {
    root: &'static str,
    shell: Shell,
    headline: Headline,
    done: Option<String>,
    attention: Vec<AttentionRow>,
    more_attention: usize,
    sources: Vec<SourceView>,
    more_sources: usize,
    diagrams: Option<Diagrams>,
    changes: Vec<ChangeRow>,
}

pub(super) async fn front_page(
    State(state): State<PageState>,
    Query(done): Query<Done>,
    headers: HeaderMap,
) -> Response {
    let wants_page = wants_page(&headers);
    let done = done.unless_foreign(&headers);
    let mut response = match state.operations.status().await {
        Ok(status) if wants_page => as_page(&state, &status, &done).await,
        Ok(status) => front_text(&status).into_response(),
        Err(error) if wants_page => operation_failed(ROOT, &error),
        Err(error) => error_response::operation_failed(&error),
    };
    let varies = HeaderValue::from_static("accept");
    response.headers_mut().insert(header::VARY, varies);
    response
}

async fn as_page(state: &PageState, status: &Status, done: &Done) -> Response {
    let newest = state.store.newest_changes(FeedSearch::newest(CHANGES));
    let newest = match newest.await {
        Ok(newest) => newest,
        Err(error) => return database_failed(ROOT, &error),
    };
    let now = now_of(status);
    let buttons = Buttons {
        root: ROOT,
        page: Caller::FrontPage,
    };
    let (attention, more_attention) =
        attention_rows(&status.attention, status.sources.iter(), buttons, now);
    let (sources, more_sources) = source_views(status, buttons, now);
    let activity = state.operations.activity(None);
    let template = FrontPage {
        root: ROOT,
        shell: Shell::of(status),
        headline: headline(status),
        done: done.message(|name| status.sources.iter().any(|source| source.name == name)),
        attention,
        more_attention,
        sources,
        more_sources,
        diagrams: activity.map(|activity| Diagrams::of(&activity, now)),
        changes: change_rows(&newest.entries, ROOT, now),
    };
    page(StatusCode::OK, &template)
}
