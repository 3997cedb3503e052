//! `GET /page/resource?uri=URI`: what is known of a resource, its file, its links, and its history in the feed.

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use resyncd_core::ResourceUri;
use serde::Deserialize;

use super::answer::{database_failed, error_page, page};
use super::display::resource_page as page_of;
use super::file::{Beginning, EXCERPT, beginning};
use super::forms::Caller;
use super::view::Shell;
use crate::http::query::Query;
use crate::http::state::OperatorState;
use crate::store::{FeedEntry, FeedSearch, ResourceView};

const ROOT: &str = "../";
/// How many changes are shown at once.
const CHANGES: usize = 50;

#[derive(Deserialize)]
pub(super) struct PageQuery {
    uri: Option<String>,
    /// The changes before that number of the feed.
    before: Option<i64>,
}

#[derive(Template)]
#[template(path = "resource.html")]
struct ResourcePage<'a> {
    root: &'static str,
    shell: Shell<'a>,
    uri: &'a str,
    /// What is known of it.
    known: Option<ResourceView>,
    /// What its file begins with.
    begins: Option<Beginning>,
    changes: Vec<FeedEntry>,
    /// Where the search for older changes goes on; `None`: there are none.
    older: Option<String>,
    /// Whether these are not the newest ones.
    is_older: bool,
}

impl PageQuery {
    pub(super) fn uri(&self) -> Option<ResourceUri> {
        let stated = self.uri.as_deref().map(str::trim);
        stated.and_then(|uri| ResourceUri::parse(uri).ok())
    }
}

pub(super) fn bad_uri() -> Response {
    let message = "The http or https URI of a resource is needed.";
    error_page(StatusCode::BAD_REQUEST, ROOT, "bad-uri", message)
}

pub(super) async fn resource_page(
    State(state): State<OperatorState>,
    Query(query): Query<PageQuery>,
) -> Result<Response, Response> {
    let uri = query.uri().ok_or_else(bad_uri)?;
    let status = state.status(ROOT).await?;
    let search = FeedSearch {
        uri: Some(uri.clone()),
        before: query.before,
        ..FeedSearch::newest(CHANGES)
    };
    let view = state.store.resource(&uri).await;
    let view = view.map_err(|error| database_failed(ROOT, &error))?;
    let begins = match &view {
        Some(view) => beginning(&state.engine, view, EXCERPT).await,
        None => None,
    };
    let newest = state.changes(ROOT, search).await?;
    let code = if view.is_none() && newest.entries.is_empty() && newest.next.is_none() {
        StatusCode::NOT_FOUND
    } else {
        StatusCode::OK
    };
    let older = newest.next;
    let template = ResourcePage {
        root: ROOT,
        shell: Shell::new(ROOT, Caller::Program, &status),
        uri: uri.as_str(),
        known: view,
        begins: begins.and_then(Result::ok),
        changes: newest.entries,
        older: older.map(|seq| format!("{}&before={seq}", page_of(ROOT, uri.as_str()))),
        is_older: query.before.is_some(),
    };
    Ok(page(code, &template))
}
