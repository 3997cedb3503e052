//! The headers of records (ISO 28500, section 5), and of the HTTP responses in them, within bounds.

use std::collections::HashMap;
use std::io::{self, BufRead, Read};

use chrono::{DateTime, Utc};
use httpdate::parse_http_date;
use resourcesync::SourceTime;
use resourcesync::media_type::media_type_essence;
use resourcesync::uri::parse_uri;
use url::Url;

use crate::error::PackageError;

/// The maximum length of a header, in bytes.
const MAX_HEAD: u64 = 64 << 10;

const NO_END: &str = "cut short, or a header is too long";

/// What the block of a record is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RecordKind {
    /// A representation of the resource.
    Resource,
    /// An HTTP response.
    Response,
    /// It describes something: it is no representation of the resource.
    Metadata,
    /// Its payload is that of another record.
    Revisit,
    Other,
}

/// The header of a record.
pub(super) struct RecordHead {
    pub(super) kind: RecordKind,
    pub(super) uri: Option<Url>,
    pub(super) id: Option<String>,
    /// In microseconds since 1970.
    pub(super) date: Option<i64>,
    /// The length of the block, in bytes.
    pub(super) length: u64,
    /// The media type of the block.
    pub(super) content_type: Option<String>,
    pub(super) payload_digest: Option<String>,
    pub(super) block_digest: Option<String>,
    pub(super) refers_to: Option<String>,
    pub(super) refers_to_uri: Option<Url>,
    pub(super) refers_to_date: Option<i64>,
}

impl RecordHead {
    /// Reads the header of the next record; `None` if only empty lines follow.
    pub(super) fn read(input: &mut impl BufRead) -> Result<Option<Self>, PackageError> {
        let mut input = input.take(MAX_HEAD);
        let version = loop {
            match read_line(&mut input)? {
                None => return Ok(None),
                Some(line) if line.is_empty() => {}
                Some(line) => break line,
            }
        };
        if !version.starts_with("WARC/") {
            return Err(PackageError::damaged("invalid record"));
        }
        // The last one of a name counts.
        let mut fields: HashMap<String, String> = read_fields(&mut input)?.into_iter().collect();
        let mut field = |name: &str| fields.remove(name);
        let is_segment = field("warc-segment-number").is_some();
        let content_type = field("content-type").filter(|stated| !stated.is_empty());
        let essence = content_type.as_deref().map(media_type_essence);
        let kind = field("warc-type").unwrap_or_default();
        let kind = match kind.to_ascii_lowercase().as_str() {
            "revisit" => RecordKind::Revisit,
            _ if is_segment => RecordKind::Other,
            "resource" => RecordKind::Resource,
            "metadata" => RecordKind::Metadata,
            "response" if essence.as_deref() == Some("application/http") => RecordKind::Response,
            _ => RecordKind::Other,
        };
        let length = field("content-length").and_then(|stated| stated.parse().ok());
        Ok(Some(Self {
            kind,
            uri: field("warc-target-uri").and_then(read_uri),
            id: field("warc-record-id"),
            date: field("warc-date").and_then(parse_date),
            length: length.ok_or_else(|| PackageError::damaged("a record without a length"))?,
            content_type,
            payload_digest: field("warc-payload-digest"),
            block_digest: field("warc-block-digest"),
            refers_to: field("warc-refers-to"),
            refers_to_uri: field("warc-refers-to-target-uri").and_then(read_uri),
            refers_to_date: field("warc-refers-to-date").and_then(parse_date),
        }))
    }
}

/// The status line and the headers of an HTTP response.
#[derive(Default)]
pub(super) struct HttpHead {
    pub(super) status: u16,
    pub(super) is_chunked: bool,
    /// The content codings, the last one first: the order of undoing them.
    pub(super) codings: Vec<String>,
    pub(super) content_type: Option<String>,
    pub(super) last_modified: Option<SourceTime>,
    /// Its own length, in bytes.
    pub(super) length: u64,
}

impl HttpHead {
    pub(super) fn read(input: &mut impl BufRead) -> Result<Self, PackageError> {
        let mut input = input.take(MAX_HEAD);
        let line = read_line(&mut input)?.unwrap_or_default();
        let mut head = Self::default();
        let status = line.split(' ').nth(1);
        let status = status.filter(|_| line.starts_with("HTTP/"));
        head.status = status.and_then(|it| it.parse().ok()).unwrap_or_default();
        if head.status == 0 {
            // What it holds is not used.
            return Ok(head);
        }
        for (name, value) in read_fields(&mut input)? {
            let tokens = value.split(',').map(str::trim);
            let mut tokens = tokens.map(str::to_ascii_lowercase);
            match name.as_str() {
                "transfer-encoding" => {
                    head.is_chunked |= tokens.next_back().as_deref() == Some("chunked")
                }
                "content-encoding" => {
                    let codings = tokens.filter(|it| !matches!(it.as_str(), "" | "identity"));
                    head.codings.extend(codings);
                }
                "content-type" => head.content_type = Some(value),
                "last-modified" => {
                    let date = parse_http_date(&value).ok();
                    head.last_modified = date.map(|date| DateTime::<Utc>::from(date).into());
                }
                _ => {}
            }
        }
        head.codings.reverse();
        head.length = MAX_HEAD - input.limit();
        Ok(head)
    }
}

/// The fields up to an empty line, with their names in lower case. A line that continues one is passed over.
fn read_fields(input: &mut io::Take<impl BufRead>) -> Result<Vec<(String, String)>, PackageError> {
    let mut fields = Vec::new();
    loop {
        let line = read_line(input)?.ok_or_else(|| PackageError::damaged(NO_END))?;
        if line.is_empty() {
            return Ok(fields);
        }
        if let Some((name, value)) = line.split_once(':')
            && !line.starts_with([' ', '\t'])
        {
            fields.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
        }
    }
}

/// The next line without its end; `None` at the end of the input.
fn read_line(input: &mut io::Take<impl BufRead>) -> Result<Option<String>, PackageError> {
    let mut line = Vec::new();
    let read = input.read_until(b'\n', &mut line);
    if read.map_err(PackageError::of_decoder)? == 0 {
        return Ok(None);
    }
    let text = line.strip_suffix(b"\n");
    let text = text.ok_or_else(|| PackageError::damaged(NO_END))?;
    let text = text.strip_suffix(b"\r").unwrap_or(text);
    Ok(Some(String::from_utf8_lossy(text).into_owned()))
}

/// Some programs write the URI in angle brackets.
fn read_uri(text: String) -> Option<Url> {
    let text = text.strip_prefix('<').unwrap_or(&text);
    parse_uri(text.strip_suffix('>').unwrap_or(text)).ok()
}

fn parse_date(text: String) -> Option<i64> {
    text.parse::<SourceTime>().ok().map(SourceTime::micros)
}
