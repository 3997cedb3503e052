//! The page for people: `GET /`, a page for each Source (`/page/sources/NAME`) and each resource (`/page/resource?uri=URI`).
//!
//! | module | what it has |
//! |---|---|
//! | `front`, `source`, `resource`, `find` | the pages: what they read, and their templates |
//! | `file` | the file of a resource, in a sandbox |
//! | `rows` | the table of the first page |
//! | `first_copy` | how far a first copy is |
//! | `view` | what the templates show of the status: chosen, sorted, bounded and worded |
//! | `strip`, `chart` | the pictures |
//! | `display` | times, numbers and links |
//! | `text` | `GET /` for programs that do not ask for HTML |
//! | `forms` | what a form is answered with |
//! | `live` | the events that make the script of an open page read the page again |
//! | `assets` | the style, the script and the icon |
//! | `answer` | the headers of every page; the page of an error |
//!
//! Invariants: a page needs nothing from elsewhere, and its Content-Security-Policy allows nothing else; it works without the script.
//! Text from outside is escaped by the templates, and only `http` and `https` URIs are links. Forms are guarded as all requests to
//! the status endpoint are, by `HostOriginGuard`. What a Source publishes may be active content, and would run in the origin that may
//! approve deletions: `file` serves it as a picture or as plain text only, in a sandbox.
//!
//! A page costs as much as `GET /status` and some bounded reads. The changes of the hour and the day are counts that are kept
//! ([`Engine::activity`](crate::engine::Engine::activity)); the last changes are read from the end of the feed; those of one
//! Source or resource are looked for among a bounded number of its newest entries, and so are resources by a part of their URIs. A link
//! goes on from there.
//!
//! With `[status] token_file` these requests need the token, as all others do. A browser can't send it by itself: a reverse proxy that
//! knows who may look adds it.

mod answer;
mod assets;
mod chart;
mod display;
mod file;
mod find;
mod first_copy;
mod forms;
mod front;
mod live;
mod resource;
mod rows;
mod source;
mod strip;
mod text;
mod view;

use axum::Router;
use axum::routing::get;
pub(super) use forms::Caller;

use super::state::OperatorState;

/// Whether there is a page for people at a path: it reads, and changes nothing.
pub(super) fn is_page(path: &str) -> bool {
    matches!(path, "/" | "/page/resource") || path.starts_with("/page/sources/")
}

/// The routes of the page.
pub(super) fn page_router() -> Router<OperatorState> {
    Router::new()
        .route("/", get(front::front_page))
        .route("/page/sources/{name}", get(source::source_page))
        .route("/page/resource", get(resource::resource_page))
        .route("/page/find", get(find::find_page))
        .route("/page/file", get(file::file))
        .route("/page/events", get(live::events))
        .route("/page/style.css", get(assets::style))
        .route("/page/script.js", get(assets::script))
        .route("/page/icon.svg", get(assets::icon))
}
