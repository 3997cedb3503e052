//! `GET /page/sources/NAME`: a Source with its sets, channels, failed resources, deletions that are held back, and last changes.

use askama::Template;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde::Deserialize;

use super::answer::{operation_failed, page, unknown_source};
use super::display::source_page as page_of;
use super::first_copy::{FirstCopy, first_copy};
use super::forms::{Caller, Done};
use super::view::{ATTENTIONS, Shell, first};
use crate::http::query::Query;
use crate::http::state::OperatorState;
use crate::status::{
    self, Activity, AttentionOf, FailedResource, HeldDeletion, SourceStatus, StatusError,
};
use crate::store::{FeedEntry, FeedSearch};

const ROOT: &str = "../../";
/// How many of the last changes are shown.
const CHANGES: usize = 50;
/// How many failed resources, and how many deletions that are held back.
const ROWS: usize = 50;

#[derive(Template)]
#[template(path = "source.html")]
struct SourcePage<'a> {
    root: &'static str,
    shell: Shell<'a>,
    done: Option<String>,
    attention: Vec<AttentionOf<'a>>,
    more_attention: usize,
    source: &'a SourceStatus,
    first_copy: Option<FirstCopy>,
    failed: Vec<FailedResource>,
    more_failed: usize,
    held: Vec<HeldDeletion>,
    /// How many more are held back than are shown.
    more_held: u64,
    /// Deletions that were rejected.
    rejected: u64,
    activity: Option<Activity>,
    changes: Vec<FeedEntry>,
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
    state: &OperatorState,
    name: &str,
) -> Result<Option<(Vec<FailedResource>, Vec<HeldDeletion>)>, StatusError> {
    let first = status::Page {
        after: 0,
        limit: ROWS + 1,
    };
    let failed = state.engine.failed(Some(name), first).await?;
    let held = state.engine.held(Some(name), false, first).await?;
    Ok(failed.zip(held))
}

pub(super) async fn source_page(
    State(state): State<OperatorState>,
    Path(name): Path<String>,
    Query(done): Query<Done>,
    Query(query): Query<SourceQuery>,
    headers: HeaderMap,
) -> Result<Response, Response> {
    let status = state.status(ROOT).await?;
    let found = status.sources.iter().find(|source| source.name == name);
    let waiting = waiting(&state, &name).await;
    let waiting = waiting.map_err(|error| operation_failed(ROOT, &error))?;
    let (source, (failed, held)) = found
        .zip(waiting)
        .ok_or_else(|| unknown_source(ROOT, &name))?;
    let search = FeedSearch {
        source: Some(name.clone()),
        before: query.before,
        ..FeedSearch::newest(CHANGES)
    };
    let newest = state.changes(ROOT, search).await?;
    let (attention, more_attention) = first(source.attentions(), ATTENTIONS);
    let (failed, more_failed) = first(failed, ROWS);
    let (held, _) = first(held, ROWS);
    let more_held = source.sum(|set| set.held_deletions);
    let more_held = more_held.saturating_sub(held.len() as u64);
    let activity = state.engine.activity(Some(&name));
    let older = newest.next;
    let template = SourcePage {
        root: ROOT,
        shell: Shell::new(ROOT, Caller::SourcePage, &status),
        done: done.unless_foreign(&headers).message(|of| of == name),
        attention,
        more_attention,
        source,
        first_copy: first_copy(source, activity.as_ref()),
        failed,
        more_failed,
        held,
        more_held,
        rejected: source.sum(|set| set.rejected),
        activity,
        changes: newest.entries,
        older: older.map(|seq| format!("{}?before={seq}", page_of(ROOT, &name))),
        is_older: query.before.is_some(),
    };
    Ok(page(StatusCode::OK, &template))
}
