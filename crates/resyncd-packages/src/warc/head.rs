//! The headers of records (ISO 28500, section 5), and of the HTTP responses in them, within bounds.

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

/// What the block of a record is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum RecordKind {
    /// A representation of the resource.
    Resource,
    /// An HTTP response.
    Response,
    /// It describes something: it is no representation of the resource.
    Metadata,
    /// Its payload is that of another record.
    Revisit,
    #[default]
    Other,
}

/// The header of a record.
#[derive(Debug, Default)]
pub(super) struct RecordHead {
    pub(super) kind: RecordKind,
    pub(super) uri: Option<Url>,
    pub(super) id: Option<String>,
    /// In microseconds since 1970.
    pub(super) date: Option<i64>,
    /// The length of the block, in bytes.
    pub(super) length: u64,
    content_type: String,
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
            return Err(damaged("invalid record"));
        }
        let (mut head, mut length) = (Self::default(), None);
        let (mut kind, mut is_segment) = (String::new(), false);
        for (name, value) in read_fields(&mut input)? {
            let text = || Some(value.clone());
            match name.as_str() {
                "warc-type" => kind = value.to_ascii_lowercase(),
                "warc-target-uri" => head.uri = read_uri(&value),
                "warc-record-id" => head.id = text(),
                "warc-date" => head.date = parse_date(&value),
                "warc-payload-digest" => head.payload_digest = text(),
                "warc-block-digest" => head.block_digest = text(),
                "warc-refers-to" => head.refers_to = text(),
                "warc-refers-to-target-uri" => head.refers_to_uri = read_uri(&value),
                "warc-refers-to-date" => head.refers_to_date = parse_date(&value),
                "warc-segment-number" => is_segment = true,
                "content-type" => head.content_type = value,
                "content-length" => length = value.parse().ok(),
                _ => {}
            }
        }
        head.length = length.ok_or_else(|| damaged("a record without a length"))?;
        let is_http = media_type_essence(&head.content_type) == "application/http";
        head.kind = match kind.as_str() {
            "revisit" => RecordKind::Revisit,
            _ if is_segment => RecordKind::Other,
            "resource" => RecordKind::Resource,
            "metadata" => RecordKind::Metadata,
            "response" if is_http => RecordKind::Response,
            _ => RecordKind::Other,
        };
        Ok(Some(head))
    }

    /// The media type of a `resource` record.
    pub(super) fn content_type(&self) -> Option<String> {
        Some(self.content_type.clone()).filter(|stated| !stated.is_empty())
    }
}

/// The status line and the headers of an HTTP response.
#[derive(Debug, Default)]
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
        let status = line
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        let mut head = Self {
            status: status.unwrap_or_default(),
            ..Self::default()
        };
        if !line.starts_with("HTTP/") || head.status == 0 {
            // Its status is unknown: what it holds is not used.
            return Ok(Self::default());
        }
        for (name, value) in read_fields(&mut input)? {
            let mut tokens = value
                .split(',')
                .map(|token| token.trim().to_ascii_lowercase());
            match name.as_str() {
                "transfer-encoding" => {
                    head.is_chunked |= tokens.next_back().as_deref() == Some("chunked")
                }
                "content-encoding" => head.codings.extend(tokens.filter(|it| is_coding(it))),
                "content-type" => head.content_type = Some(value),
                "last-modified" => {
                    let date = parse_http_date(value.trim())
                        .ok()
                        .map(DateTime::<Utc>::from);
                    head.last_modified = date.map(SourceTime::from);
                }
                _ => {}
            }
        }
        head.codings.reverse();
        head.length = MAX_HEAD - input.limit();
        Ok(head)
    }
}

fn is_coding(token: &str) -> bool {
    !matches!(token, "" | "identity")
}

/// The fields up to an empty line, with their names in lower case. A line that continues one is passed over.
fn read_fields(input: &mut io::Take<impl BufRead>) -> Result<Vec<(String, String)>, PackageError> {
    let mut fields = Vec::new();
    loop {
        let line = match read_line(input)? {
            // A header without an end.
            None => return Err(damaged("cut short, or a header is too long")),
            Some(line) if line.is_empty() => return Ok(fields),
            Some(line) => line,
        };
        if line.starts_with([' ', '\t']) {
            continue;
        }
        if let Some((name, value)) = line.split_once(':') {
            fields.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
        }
    }
}

/// The next line without its end; `None` at the end of the input.
fn read_line(input: &mut io::Take<impl BufRead>) -> Result<Option<String>, PackageError> {
    let mut line = Vec::new();
    input
        .read_until(b'\n', &mut line)
        .map_err(PackageError::of_decoder)?;
    let Some(text) = line.strip_suffix(b"\n") else {
        return if line.is_empty() {
            Ok(None)
        } else {
            Err(damaged("cut short, or a header is too long"))
        };
    };
    let text = text.strip_suffix(b"\r").unwrap_or(text);
    Ok(Some(String::from_utf8_lossy(text).into_owned()))
}

/// Some programs write the URI in angle brackets.
fn read_uri(text: &str) -> Option<Url> {
    let text = text.strip_prefix('<').unwrap_or(text);
    parse_uri(text.strip_suffix('>').unwrap_or(text)).ok()
}

fn parse_date(text: &str) -> Option<i64> {
    text.parse::<SourceTime>().ok().map(SourceTime::micros)
}

fn damaged(reason: &str) -> PackageError {
    PackageError::Damaged(reason.to_owned())
}
