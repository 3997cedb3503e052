//! Ranges of a body: which answer continues a download that was cut short (RFC 9110, sections 13.1.5 and 14).

use reqwest::header::{CONTENT_RANGE, DATE, HeaderMap};
use resourcesync::SourceTime;
use resyncd_core::Validators;
use serde::{Deserialize, Serialize};

use crate::parse_http_date;
use crate::validators::{last_modified, validators_of};

/// How much older than the response its `Last-Modified` must be to be a strong validator, in microseconds (RFC 9110, section
/// 8.8.2.2).
const DATED_AFTER: i64 = 60 * 1_000_000;

/// What the server stated of the bytes, and whether they are complete.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DownloadRecord {
    #[serde(with = "StoredValidators")]
    pub(super) validators: Validators,
    /// Whether `Last-Modified` is a strong validator (RFC 9110, section 8.8.2.2).
    pub(super) is_dated: bool,
    /// The length that the server states.
    pub(super) length: Option<u64>,
    /// Whether all bytes are on disk.
    #[serde(rename = "whole")]
    pub(super) is_complete: bool,
}

/// How validators are on disk.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Validators")]
struct StoredValidators {
    etag: Option<String>,
    last_modified: Option<String>,
}

impl DownloadRecord {
    pub(super) fn of(headers: &HeaderMap, length: Option<u64>) -> Self {
        Self {
            validators: validators_of(headers),
            is_dated: is_dated(headers),
            length,
            is_complete: false,
        }
    }

    /// The validator that distinguishes this version from every other one byte by byte.
    pub(super) fn strong_validator(&self) -> Option<&str> {
        match &self.validators.etag {
            Some(etag) => Some(etag.as_str()).filter(|etag| !etag.starts_with("W/")),
            None => self
                .validators
                .last_modified
                .as_deref()
                .filter(|_| self.is_dated),
        }
    }

    /// Whether a part continues the `received` bytes, in the same version.
    pub(super) fn is_continued_by(
        &self,
        received: u64,
        range: ContentRange,
        headers: &HeaderMap,
    ) -> bool {
        let etag = validators_of(headers).etag;
        range.continues(received, self.length) && (etag.is_none() || etag == self.validators.etag)
    }
}

/// Whether the `Last-Modified` of a version was long past when it was served, so that no other version has the same.
fn is_dated(headers: &HeaderMap) -> bool {
    let served = headers.get(DATE).and_then(|date| date.to_str().ok());
    let served = served.and_then(parse_http_date).map(SourceTime::from);
    match (served, last_modified(headers)) {
        (Some(served), Some(modified)) => served.micros() - modified.micros() >= DATED_AFTER,
        _ => false,
    }
}

/// The `Content-Range` header (RFC 9110, section 14.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ContentRange {
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) total: u64,
}

impl ContentRange {
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        Self::parse(headers.get(CONTENT_RANGE)?.to_str().ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let (unit, rest) = text.trim().split_once(' ')?;
        let (range, total) = rest.trim().split_once('/')?;
        let (first, last) = range.split_once('-')?;
        if !unit.eq_ignore_ascii_case("bytes") {
            return None;
        }
        Some(Self {
            first: first.trim().parse().ok()?,
            last: last.trim().parse().ok()?,
            // Without a total the end would be unknown.
            total: total.trim().parse().ok()?,
        })
    }

    /// Whether it begins where `received` bytes end, and its total is the `known` one.
    fn continues(self, received: u64, known: Option<u64>) -> bool {
        self.first == received
            && (self.first..self.total).contains(&self.last)
            && known.is_none_or(|known| known == self.total)
    }
}
