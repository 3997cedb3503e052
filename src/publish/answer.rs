//! Answers with a file: conditional requests, ranges, and what strangers' bytes may do.
//!
//! Invariants: the bytes are those of whoever made them, so that a browser gets them in a sandbox, and takes them for nothing but the stated
//! type. An answer has the bytes of one file, also if another takes its place meanwhile.

use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use chrono::{DateTime, Utc};
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::stream;
use http_range_header::{RangeUnsatisfiableError, parse_range_header};
use httpdate::{fmt_http_date, parse_http_date};
use resyncd_mirror::MirrorFile;

use super::spool::Spooled;
use crate::store::ResourceView;

/// How many bytes are read at once.
const CHUNK: u64 = 1 << 20;
/// Up to which length a file is read where the request is answered: reading it takes less than handing it over would.
const SHORT: u64 = 64 << 10;

/// A file that is sent.
pub(super) struct SentFile {
    pub(super) file: Arc<MirrorFile>,
    pub(super) length: u64,
    /// What differs for other bytes, without quotes.
    pub(super) etag: String,
    pub(super) modified: Option<DateTime<Utc>>,
    pub(super) media_type: String,
    /// The content coding of the file.
    pub(super) encoding: Option<String>,
    /// Whether it may be compressed, as XML is.
    pub(super) is_compressible: bool,
    pub(super) headers: Vec<(HeaderName, String)>,
}

/// What a browser may do with what is published: show it, without scripts, forms and the origin of this site.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src 'self' data:; media-src 'self'; sandbox";

impl SentFile {
    /// A file of a mirror or a folder, or a version of it.
    pub(super) fn of(file: MirrorFile, view: &ResourceView) -> io::Result<Self> {
        let metadata = file.metadata()?;
        let length = metadata.length;
        // A file that has just taken the place of the one that is recorded is another one.
        let mut etag = metadata.version();
        let mut hashes = view.hashes.split_ascii_whitespace();
        let sha256 = hashes.find_map(|hash| hash.strip_prefix("sha-256:")?.get(..16));
        if let Some(digest) = sha256.filter(|_| view.length == Some(length)) {
            etag = format!("{digest}-{etag}");
        }
        let media_type = view.media_type.as_deref();
        Ok(Self {
            file: Arc::new(file),
            length,
            etag,
            modified: view.lastmod.map(|at| at.to_datetime()).or(view.applied_at),
            media_type: media_type.unwrap_or("application/octet-stream").to_owned(),
            encoding: view.encoding.clone(),
            is_compressible: false,
            headers: Vec::new(),
        })
    }

    /// A document or a package that was made.
    pub(super) fn made(made: &Spooled, media_type: &str) -> Self {
        Self {
            file: Arc::clone(&made.file),
            length: made.length,
            etag: made.etag.clone(),
            modified: Some(made.modified),
            media_type: media_type.to_owned(),
            encoding: None,
            is_compressible: media_type.ends_with("xml"),
            headers: Vec::new(),
        }
    }

    /// The answer to a GET or HEAD request.
    pub(super) fn answer(self, method: &Method, request: &HeaderMap) -> Response {
        let gzip = self.is_compressible && accepts_gzip(request);
        let etag = if gzip {
            format!("\"{}-gzip\"", self.etag)
        } else {
            format!("\"{}\"", self.etag)
        };
        let mut headers = self.headers_of(&etag);
        if is_current(request, &etag, self.modified) {
            return (StatusCode::NOT_MODIFIED, headers).into_response();
        }
        let has_body = method != Method::HEAD;
        if gzip {
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            let body = if has_body {
                self.compressed()
            } else {
                Body::empty()
            };
            return (headers, body).into_response();
        }
        let (status, first, length) = match self.range(request, &etag) {
            Requested::All => (StatusCode::OK, 0, self.length),
            Requested::Part(first, last) => {
                let range = format!("bytes {first}-{last}/{}", self.length);
                insert(&mut headers, header::CONTENT_RANGE, &range);
                (StatusCode::PARTIAL_CONTENT, first, last + 1 - first)
            }
            Requested::Unsatisfiable => {
                let range = format!("bytes */{}", self.length);
                insert(&mut headers, header::CONTENT_RANGE, &range);
                return (StatusCode::RANGE_NOT_SATISFIABLE, headers).into_response();
            }
        };
        insert(&mut headers, header::CONTENT_LENGTH, &length.to_string());
        let body = if has_body {
            body_of(self.file, first, length)
        } else {
            Body::empty()
        };
        (status, headers, body).into_response()
    }

    fn headers_of(&self, etag: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        insert(&mut headers, header::ETAG, etag);
        insert(&mut headers, header::CONTENT_TYPE, &self.media_type);
        insert(&mut headers, header::ACCEPT_RANGES, "bytes");
        insert(&mut headers, header::CONTENT_SECURITY_POLICY, POLICY);
        insert(&mut headers, header::X_CONTENT_TYPE_OPTIONS, "nosniff");
        if let Some(modified) = self.modified.and_then(http_date) {
            insert(&mut headers, header::LAST_MODIFIED, &modified);
        }
        if let Some(encoding) = &self.encoding {
            insert(&mut headers, header::CONTENT_ENCODING, encoding);
        }
        if self.is_compressible {
            insert(&mut headers, header::VARY, "accept-encoding");
        }
        for (name, value) in &self.headers {
            if let Ok(value) = HeaderValue::try_from(value) {
                headers.append(name.clone(), value);
            }
        }
        headers
    }

    fn range(&self, request: &HeaderMap, etag: &str) -> Requested {
        let Some(range) = text(request, header::RANGE) else {
            return Requested::All;
        };
        let is_of_this = text(request, header::IF_RANGE).is_none_or(|stated| {
            stated == etag || self.modified.is_some_and(|at| is_date(stated, at))
        });
        let ranges = parse_range_header(range).and_then(|ranges| ranges.validate(self.length));
        match ranges {
            // Several at once are answered with everything (RFC 9110, section 14.2).
            Ok(ranges) => match &ranges[..] {
                [range] if is_of_this => Requested::Part(*range.start(), *range.end()),
                _ => Requested::All,
            },
            Err(RangeUnsatisfiableError::Unsatisfiable) if is_of_this => Requested::Unsatisfiable,
            Err(_) => Requested::All,
        }
    }

    /// The bytes as gzip, made while they are sent.
    fn compressed(self) -> Body {
        let mut offset = 0;
        let mut encoder = Some(GzEncoder::new(Vec::new(), Compression::fast()));
        let (file, length) = (self.file, self.length);
        let is_on_disk = file.is_on_disk();
        let mut next = move || -> io::Result<Option<Bytes>> {
            let Some(current) = encoder.as_mut() else {
                return Ok(None);
            };
            while offset < length && current.get_ref().len() < SHORT as usize {
                let bytes = read_part(&file, offset, (length - offset).min(CHUNK))?;
                offset += bytes.len() as u64;
                io::Write::write_all(current, &bytes)?;
            }
            if offset < length {
                return Ok(Some(std::mem::take(current.get_mut()).into()));
            }
            let last = encoder.take().map(GzEncoder::finish).transpose()?;
            Ok(last.map(Bytes::from))
        };
        if length <= SHORT && is_on_disk {
            return match next() {
                Ok(bytes) => bytes.unwrap_or_default().into(),
                Err(error) => Body::from_stream(stream::iter([Err::<Bytes, _>(error)])),
            };
        }
        streamed(next)
    }
}

/// What a request asks for.
enum Requested {
    All,
    /// From one byte to another, both of them included.
    Part(u64, u64),
    Unsatisfiable,
}

/// A time in the form of HTTP; `None`: it has none for a time before 1970 or after 9999.
pub(super) fn http_date(at: DateTime<Utc>) -> Option<String> {
    const END: i64 = 253_402_300_800;
    let is_one = (0..END).contains(&at.timestamp());
    is_one.then(|| fmt_http_date(SystemTime::from(at)))
}

fn insert(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    // A media type of a Source may have any character: without it the bytes are of no known type.
    if let Ok(value) = HeaderValue::try_from(value) {
        headers.insert(name, value);
    }
}

fn text(request: &HeaderMap, name: HeaderName) -> Option<&str> {
    request.get(name)?.to_str().ok()
}

fn accepts_gzip(request: &HeaderMap) -> bool {
    let stated = text(request, header::ACCEPT_ENCODING).unwrap_or_default();
    stated.split(',').any(|coding| {
        let (name, quality) = coding.split_once(';').unwrap_or((coding, ""));
        let quality = quality.trim().strip_prefix("q=").unwrap_or("1");
        name.trim().eq_ignore_ascii_case("gzip") && quality.parse::<f32>().is_ok_and(|it| it > 0.0)
    })
}

/// Whether who asks has the bytes already (RFC 9110, section 13).
fn is_current(request: &HeaderMap, etag: &str, modified: Option<DateTime<Utc>>) -> bool {
    if let Some(stated) = text(request, header::IF_NONE_MATCH) {
        let mut stated = stated.split(',').map(str::trim);
        return stated.any(|tag| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == etag);
    }
    let stated = text(request, header::IF_MODIFIED_SINCE);
    let since = stated.and_then(|stated| parse_http_date(stated).ok());
    match (since, modified) {
        (Some(since), Some(modified)) => seconds(modified.into()) <= seconds(since),
        _ => false,
    }
}

fn is_date(stated: &str, modified: DateTime<Utc>) -> bool {
    parse_http_date(stated).is_ok_and(|stated| seconds(stated) == seconds(modified.into()))
}

fn seconds(time: SystemTime) -> i64 {
    DateTime::<Utc>::from(time).timestamp()
}

/// A part of a file.
fn body_of(file: Arc<MirrorFile>, first: u64, length: u64) -> Body {
    if length <= SHORT && file.is_on_disk() {
        return match read_part(&file, first, length) {
            Ok(bytes) => bytes.into(),
            Err(error) => Body::from_stream(stream::iter([Err::<Bytes, _>(error)])),
        };
    }
    let mut offset = first;
    streamed(move || {
        let left = first + length - offset;
        if left == 0 {
            return Ok(None);
        }
        let bytes = read_part(&file, offset, left.min(CHUNK))?;
        offset += bytes.len() as u64;
        Ok(Some(bytes))
    })
}

/// A body of what is made on threads for blocking work, a piece at a time.
fn streamed(next: impl FnMut() -> io::Result<Option<Bytes>> + Send + 'static) -> Body {
    Body::from_stream(stream::try_unfold(next, |mut next| async move {
        let made = tokio::task::spawn_blocking(move || next().map(|bytes| (bytes, next)));
        let (bytes, next) = made.await.map_err(io::Error::other)??;
        Ok::<_, io::Error>(bytes.map(|bytes| (bytes, next)))
    }))
}

/// Some bytes of a file; an error if it has become shorter.
fn read_part(file: &MirrorFile, offset: u64, length: u64) -> io::Result<Bytes> {
    let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    file.read_exact_at(&mut bytes, offset)?;
    Ok(bytes.into())
}
