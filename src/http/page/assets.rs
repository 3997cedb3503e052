//! The style, the script and the icon. They are part of the program.

use axum::response::{IntoResponse, Response};

use super::answer::page_headers;

const STYLE: &str = include_str!("assets/style.css");
const SCRIPT: &str = include_str!("assets/script.js");
const ICON: &str = include_str!("assets/icon.svg");

pub(super) async fn style() -> Response {
    (page_headers("text/css; charset=utf-8"), STYLE).into_response()
}

pub(super) async fn script() -> Response {
    (page_headers("text/javascript; charset=utf-8"), SCRIPT).into_response()
}

pub(super) async fn icon() -> Response {
    (page_headers("image/svg+xml"), ICON).into_response()
}
