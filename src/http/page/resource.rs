//! `GET /page/resource?uri=URI`: what is known of a resource, its file, its links, and its history in the feed.

use std::path::Path;

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use chrono::{DateTime, Utc};
use resyncd_core::ResourceUri;
use serde::Deserialize;

use super::answer::{database_failed, error_page, operation_failed, page};
use super::display::{Moment, ShownLink, bytes, resource_page as page_of, source_page};
use super::state::PageState;
use super::view::{ChangeRow, Shell, change_rows, now_of};
use crate::http::query::Query;
use crate::status::Status;
use crate::store::{FeedSearch, ResourceView};

const ROOT: &str = "../";
/// How many changes are shown at once.
const CHANGES: usize = 50;

#[derive(Deserialize)]
pub(super) struct PageQuery {
    uri: Option<String>,
    /// The changes before that number of the feed.
    before: Option<i64>,
}

/// A link of a resource.
struct RelatedLink {
    rel: String,
    href: ShownLink,
    /// The page of the resource that it leads to.
    page: String,
    media_type: Option<String>,
    length: Option<String>,
    modified: Option<String>,
    digests: Vec<String>,
    path: Option<String>,
}

impl RelatedLink {
    fn of(link: &resourcesync::Link) -> Self {
        let href = link.href.to_string();
        Self {
            rel: link.rel.clone(),
            page: page_of(ROOT, &href),
            href: ShownLink::of(&href),
            media_type: link.content.media_type.clone(),
            length: link.content.length.map(bytes),
            modified: link.modified.map(|time| time.to_string()),
            digests: link
                .content
                .hashes
                .iter()
                .map(ToString::to_string)
                .collect(),
            path: link.path.clone(),
        }
    }
}

/// What is known of it.
struct KnownResource {
    source: String,
    source_page: String,
    set: ShownLink,
    is_deleted: bool,
    /// Its file; of a deleted resource, the file that it had.
    file: Option<String>,
    length: Option<String>,
    media_type: Option<String>,
    encoding: Option<String>,
    digests: Vec<String>,
    lastmod: Option<Moment>,
    changed: Option<Moment>,
    applied: Option<Moment>,
    links: Vec<RelatedLink>,
}

impl KnownResource {
    fn of(view: &ResourceView, status: &Status, now: DateTime<Utc>) -> Self {
        let mut sources = status.sources.iter();
        let mirror = sources.find(|source| source.name == view.source);
        let mirror = mirror.map_or("", |source| source.mirror.as_str());
        let path = view.path.as_deref();
        let file = path.map(|path| Path::new(mirror).join(path).display().to_string());
        let digests = view.hashes.split_whitespace();
        Self {
            source: view.source.clone(),
            source_page: source_page(ROOT, &view.source),
            set: ShownLink::of(&view.set),
            is_deleted: view.deleted,
            file,
            length: view.length.map(bytes),
            media_type: view.media_type.clone(),
            encoding: view.encoding.clone(),
            digests: digests.map(str::to_owned).collect(),
            lastmod: view.lastmod.map(|it| Moment::of(it.to_datetime(), now)),
            changed: view.changed_at.map(|it| Moment::of(it.to_datetime(), now)),
            applied: view.applied_at.map(|it| Moment::of(it, now)),
            links: view.links.iter().map(RelatedLink::of).collect(),
        }
    }
}

#[derive(Template)]
#[template(path = "resource.html")]
struct ResourcePage {
    root: &'static str,
    shell: Shell,
    uri: ShownLink,
    known: Option<KnownResource>,
    changes: Vec<ChangeRow>,
    /// Where the search for older changes goes on; `None`: there are none.
    older: Option<String>,
    /// Whether these are not the newest ones.
    is_older: bool,
}

pub(super) async fn resource_page(
    State(state): State<PageState>,
    Query(query): Query<PageQuery>,
) -> Response {
    let stated = query.uri.as_deref().map(str::trim);
    let Some(uri) = stated.and_then(|uri| ResourceUri::parse(uri).ok()) else {
        let message = "The http or https URI of a resource is needed.";
        return error_page(StatusCode::BAD_REQUEST, ROOT, "bad-uri", message);
    };
    let status = match state.operations.status().await {
        Ok(status) => status,
        Err(error) => return operation_failed(ROOT, &error),
    };
    let search = FeedSearch {
        uri: Some(uri.clone()),
        before: query.before,
        ..FeedSearch::newest(CHANGES)
    };
    let found = match state.store.resource(&uri).await {
        Ok(view) => state
            .store
            .newest_changes(search)
            .await
            .map(|it| (view, it)),
        Err(error) => Err(error),
    };
    let (view, newest) = match found {
        Ok(found) => found,
        Err(error) => return database_failed(ROOT, &error),
    };
    let now = now_of(&status);
    let code = if view.is_none() && newest.entries.is_empty() && newest.next.is_none() {
        StatusCode::NOT_FOUND
    } else {
        StatusCode::OK
    };
    let older = newest.next;
    let template = ResourcePage {
        root: ROOT,
        shell: Shell::of(&status),
        known: view.map(|view| KnownResource::of(&view, &status, now)),
        changes: change_rows(&newest.entries, ROOT, now),
        older: older.map(|seq| format!("{}&before={seq}", page_of(ROOT, uri.as_str()))),
        is_older: query.before.is_some(),
        uri: ShownLink::of(uri.as_str()),
    };
    page(code, &template)
}
