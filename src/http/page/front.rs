//! `GET /`: everything at a glance.

use askama::Template;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::answer::{not_rendered, operation_failed, page, wants_page};
use super::forms::{Caller, Done};
use super::rows::{Filter, SourceRow, rows};
use super::text::FrontText;
use super::view::{ATTENTIONS, Headline, Shell, first, headline};
use crate::http::error_response;
use crate::http::query::Query;
use crate::http::state::OperatorState;
use crate::status::{Activity, AttentionOf, STATES, Status};
use crate::store::{FeedEntry, FeedSearch};

const ROOT: &str = "./";
/// How many of the last changes are shown.
const CHANGES: usize = 20;

#[derive(Template)]
#[template(path = "front.html")]
struct FrontPage<'a> {
    root: &'static str,
    shell: Shell<'a>,
    headline: Headline,
    done: Option<String>,
    attention: Vec<AttentionOf<'a>>,
    more_attention: usize,
    filter: Filter,
    rows: Vec<SourceRow<'a>>,
    more_sources: usize,
    activity: Option<Activity>,
    changes: Vec<FeedEntry>,
}

pub(super) async fn front_page(
    State(state): State<OperatorState>,
    Query(done): Query<Done>,
    Query(filter): Query<Filter>,
    headers: HeaderMap,
) -> Response {
    let wants_page = wants_page(&headers);
    let done = done.unless_foreign(&headers);
    let mut response = match state.engine.status().await {
        Ok(status) if wants_page => as_page(&state, &status, &done, filter).await,
        Ok(status) => match (FrontText { status: &status }).render() {
            Ok(text) => text.into_response(),
            Err(error) => not_rendered(&error),
        },
        Err(error) if wants_page => operation_failed(ROOT, &error),
        Err(error) => error_response::operation_failed(&error),
    };
    let varies = HeaderValue::from_static("accept");
    response.headers_mut().insert(header::VARY, varies);
    response
}

async fn as_page(state: &OperatorState, status: &Status, done: &Done, filter: Filter) -> Response {
    let newest = match state.changes(ROOT, FeedSearch::newest(CHANGES)).await {
        Ok(newest) => newest,
        Err(failed) => return failed,
    };
    let (attention, more_attention) = first(status.attentions(), ATTENTIONS);
    let shell = Shell::new(ROOT, Caller::FrontPage, status);
    let activity = |name: &str| state.engine.activity(Some(name));
    let (rows, more_sources) = rows(&shell, &filter, activity);
    let template = FrontPage {
        root: ROOT,
        shell,
        headline: headline(status),
        done: done.message(|name| status.sources.iter().any(|source| source.name == name)),
        attention,
        more_attention,
        filter,
        rows,
        more_sources,
        activity: state.engine.activity(None),
        changes: newest.entries,
    };
    page(StatusCode::OK, &template)
}
