//! `GET /page/find?part=PART`: the resources with a part in their URIs.

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use resyncd_core::ResourceUri;
use serde::Deserialize;
use url::form_urlencoded;

use super::answer::{database_failed, page};
use super::display::resource_page;
use super::forms::Caller;
use super::view::Shell;
use crate::http::query::Query;
use crate::http::state::OperatorState;
use crate::store::ResourceView;

const ROOT: &str = "../";

#[derive(Deserialize)]
pub(super) struct FindQuery {
    #[serde(default)]
    part: String,
    /// Where the search goes on: a Source, and what identifies its next resource.
    #[serde(default)]
    source: String,
    #[serde(default)]
    from: String,
}

#[derive(Template)]
#[template(path = "find.html")]
struct FindPage<'a> {
    root: &'static str,
    shell: Shell<'a>,
    part: &'a str,
    found: Vec<ResourceView>,
    /// Where the search goes on; `None`: all were looked at.
    further: Option<String>,
}

pub(super) async fn find_page(
    State(state): State<OperatorState>,
    Query(query): Query<FindQuery>,
) -> Result<Response, Response> {
    let part = query.part.trim();
    let failed = |error| database_failed(ROOT, &error);
    if let Ok(uri) = ResourceUri::parse(part)
        && state.store.resource(&uri).await.map_err(failed)?.is_some()
    {
        return Ok(Redirect::to(&resource_page(ROOT, part)).into_response());
    }
    let status = state.status(ROOT).await?;
    let from = (query.source, query.from);
    let found = state.store.find_resources(part.to_owned(), from).await;
    let found = found.map_err(failed)?;
    let further = found.next.map(|(source, from)| {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query
            .append_pair("part", part)
            .append_pair("source", &source);
        format!("?{}", query.append_pair("from", &from).finish())
    });
    let template = FindPage {
        root: ROOT,
        shell: Shell::new(ROOT, Caller::Program, &status),
        part,
        found: found.found,
        further,
    };
    Ok(page(StatusCode::OK, &template))
}
