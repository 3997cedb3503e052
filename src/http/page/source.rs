//! `GET /page/sources/NAME`: a Source with its sets, channels, failed resources, deletions that are held back, and last changes.

use askama::Template;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde::Deserialize;

use super::answer::{database_failed, operation_failed, page, unknown_source};
use super::display::source_page as page_of;
use super::forms::{Caller, Done};
use super::state::PageState;
use super::view::{
    AttentionRow, Buttons, ChangeRow, Detail, Diagrams, FailedRow, HeldRow, Shell, SourceView,
    attention_rows, change_rows, failed_rows, held_rows, now_of,
};
use crate::http::query::Query;
use crate::status::{self, FailedResource, HeldDeletion, StatusError};
use crate::store::FeedSearch;

const ROOT: &str = "../../";
/// How many of the last changes are shown.
const CHANGES: usize = 50;
/// How many failed resources, and how many deletions that are held back.
const ROWS: usize = 50;

#[derive(Template)]
#[template(path = "source.html")]
struct SourcePage {
    root: &'static str,
    shell: Shell,
    done: Option<String>,
    attention: Vec<AttentionRow>,
    more_attention: usize,
    source: SourceView,
    failed: Vec<FailedRow>,
    has_more_failed: bool,
    held: Vec<HeldRow>,
    has_more_held: bool,
    diagrams: Option<Diagrams>,
    changes: Vec<ChangeRow>,
    /// Where the search for older changes goes on; `None`: there are none.
    older: Option<String>,
    /// Whether these are not the newest ones.
    is_older: bool,
}

#[derive(Deserialize)]
pub(super) struct SourceQuery {
    /// The changes before that number of the feed.
    before: Option<i64>,
}

/// What waits of a Source, one row more than is shown; `None`: there is no such Source.
async fn waiting(
    state: &PageState,
    name: &str,
) -> Result<Option<(Vec<FailedResource>, Vec<HeldDeletion>)>, StatusError> {
    let first = status::Page {
        after: 0,
        limit: ROWS + 1,
    };
    let failed = state.operations.failed(Some(name), first).await?;
    let held = state.operations.held(Some(name), false, first).await?;
    Ok(failed.zip(held))
}

pub(super) async fn source_page(
    State(state): State<PageState>,
    Path(name): Path<String>,
    Query(done): Query<Done>,
    Query(query): Query<SourceQuery>,
    headers: HeaderMap,
) -> Response {
    let status = match state.operations.status().await {
        Ok(status) => status,
        Err(error) => return operation_failed(ROOT, &error),
    };
    let found = status.sources.iter().find(|source| source.name == name);
    let waiting = waiting(&state, &name).await;
    let (source, (mut failed, mut held)) = match (found, waiting) {
        (_, Err(error)) => return operation_failed(ROOT, &error),
        (Some(source), Ok(Some(waiting))) => (source, waiting),
        _ => return unknown_source(ROOT, &name),
    };
    let search = FeedSearch {
        source: Some(name.clone()),
        before: query.before,
        ..FeedSearch::newest(CHANGES)
    };
    let newest = match state.store.newest_changes(search).await {
        Ok(newest) => newest,
        Err(error) => return database_failed(ROOT, &error),
    };
    let now = now_of(&status);
    let buttons = Buttons {
        root: ROOT,
        page: Caller::SourcePage,
    };
    let (attention, more_attention) = attention_rows(&[], std::iter::once(source), buttons, now);
    let (has_more_failed, has_more_held) = (failed.len() > ROWS, held.len() > ROWS);
    failed.truncate(ROWS);
    held.truncate(ROWS);
    let activity = state.operations.activity(Some(&name));
    let template = SourcePage {
        root: ROOT,
        shell: Shell::of(&status),
        done: done.unless_foreign(&headers).message(|of| of == name),
        attention,
        more_attention,
        source: SourceView::of(source, Detail::Full, buttons, now),
        failed: failed_rows(&failed, ROOT, now),
        has_more_failed,
        held: held_rows(&held, ROOT, now),
        has_more_held,
        diagrams: activity.map(|activity| Diagrams::of(&activity, now)),
        changes: change_rows(&newest.entries, ROOT, now),
        older: newest
            .next
            .map(|seq| format!("{}?before={seq}", page_of(ROOT, &name))),
        is_older: query.before.is_some(),
    };
    page(StatusCode::OK, &template)
}
