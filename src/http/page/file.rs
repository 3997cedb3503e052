//! `GET /page/file?uri=URI`: the beginning of the file of a resource, as a picture or as text.
//!
//! Invariants: what a Source publishes may be active content, and this origin may approve deletions. So a file is a picture only by its
//! first bytes, of a format that has no script; anything else is plain text, which no browser takes for something else (`nosniff`). Both
//! are in a sandbox: another origin, without scripts and forms. No symlink in the mirror is followed, and the length is bounded.

use std::io::Read;

use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use resyncd_mirror::{MirrorError, MirrorPath, MirrorReader};

use super::answer::{database_failed, error_page, page_headers};
use super::resource::{PageQuery, bad_uri};
use crate::engine::Engine;
use crate::http::query::Query;
use crate::http::state::OperatorState;
use crate::store::ResourceView;

const ROOT: &str = "../";
/// How much of a file is sent at most.
const MOST: u64 = 4 << 20;
/// How much of a text the page of a resource shows.
pub(super) const EXCERPT: u64 = 2048;

/// The pictures that are shown as such: raster formats, by what they begin with, and what follows four bytes later.
const PICTURES: [(&str, &[u8], &[u8]); 5] = [
    ("image/png", b"\x89PNG", b"\r\n\x1a\n"),
    ("image/jpeg", b"\xff\xd8\xff", b""),
    ("image/gif", b"GIF8", b"7a"),
    ("image/gif", b"GIF8", b"9a"),
    ("image/webp", b"RIFF", b""),
];

/// The beginning of a file.
#[derive(Debug)]
pub(super) struct Beginning(Vec<u8>);

impl Beginning {
    /// Its media type, if it is a picture.
    pub(super) fn picture(&self) -> Option<&'static str> {
        let is = |(kind, first, then): &&(&str, &[u8], &[u8])| {
            let rest = self.0.get(4..).unwrap_or_default();
            let is_webp = *kind != "image/webp" || rest.get(4..8) == Some(b"WEBP");
            self.0.starts_with(first) && rest.starts_with(then) && is_webp
        };
        PICTURES.iter().find(is).map(|(kind, ..)| *kind)
    }

    /// It, if it is text; a character that is cut at the end is left out.
    pub(super) fn text(&self) -> Option<&str> {
        let text = match std::str::from_utf8(&self.0) {
            Ok(text) => text,
            Err(error) if error.error_len().is_none() => {
                std::str::from_utf8(&self.0[..error.valid_up_to()]).ok()?
            }
            Err(_) => return None,
        };
        (!text.is_empty() && !text.contains('\0')).then_some(text)
    }
}

/// The beginning of the file of a resource; `None`: it has none, or its Source is not followed.
pub(super) async fn beginning(
    engine: &Engine,
    resource: &ResourceView,
    most: u64,
) -> Option<Result<Beginning, MirrorError>> {
    let mirror = engine.mirror_of(&resource.source)?;
    let path = resource.path.clone().filter(|_| !resource.deleted)?;
    let read = move || {
        let path = MirrorPath::parse(&path)?;
        let file = MirrorReader::open(&mirror)?.open_file(&path)?;
        let mut bytes = Vec::new();
        let read = file.take(most).read_to_end(&mut bytes);
        read.map_err(|error| MirrorError::reading(path.as_str(), &error))?;
        Ok(Beginning(bytes))
    };
    tokio::task::spawn_blocking(read).await.ok()
}

pub(super) async fn file(
    State(state): State<OperatorState>,
    Query(query): Query<PageQuery>,
) -> Result<Response, Response> {
    let uri = query.uri().ok_or_else(bad_uri)?;
    let known = state.store.resource(&uri).await;
    let known = known.map_err(|error| database_failed(ROOT, &error))?;
    let begins = match &known {
        Some(known) => beginning(&state.engine, known, MOST).await,
        None => None,
    };
    let (code, message) = match begins {
        Some(Ok(begins)) => {
            let kind = begins.picture().unwrap_or("text/plain; charset=utf-8");
            let mut response = (page_headers(kind), begins.0).into_response();
            let policy = HeaderValue::from_static("default-src 'none'; sandbox");
            let headers = response.headers_mut();
            headers.insert(header::CONTENT_SECURITY_POLICY, policy);
            let nosniff = HeaderValue::from_static("nosniff");
            headers.insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
            return Ok(response);
        }
        Some(Err(error)) => (error.code(), error.to_string()),
        None => (
            "missing-file",
            "There is no file of this resource.".to_owned(),
        ),
    };
    Err(error_page(StatusCode::NOT_FOUND, ROOT, code, &message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_raster_formats_are_pictures() {
        for (bytes, expected) in [
            (&b"\x89PNG\r\n\x1a\n...."[..], Some("image/png")),
            (b"\xff\xd8\xff\xe0....", Some("image/jpeg")),
            (b"GIF89a..", Some("image/gif")),
            (b"RIFF....WEBPVP8 ", Some("image/webp")),
            (b"RIFF....WAVEfmt ", None),
            (b"<svg xmlns='http://www.w3.org/2000/svg'>", None),
            (b"<!DOCTYPE html><script>", None),
            (b"%PDF-1.7", None),
            (b"", None),
        ] {
            assert_eq!(Beginning(bytes.to_vec()).picture(), expected, "{bytes:?}");
        }
    }

    #[test]
    fn text_is_cut_between_characters() {
        let text = |bytes: &[u8]| Beginning(bytes.to_vec()).text().map(str::to_owned);
        assert_eq!(text("a\u{e4}".as_bytes()).as_deref(), Some("a\u{e4}"));
        assert_eq!(text(b"a\xc3").as_deref(), Some("a"));
        assert_eq!(text(b"a\xc3b"), None);
        assert_eq!(text(b"a\0b"), None);
        assert_eq!(text(b""), None);
    }
}
