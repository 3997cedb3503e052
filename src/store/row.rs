//! How values stand in rows.

use chrono::{DateTime, Utc};
use url::Url;

use super::StoreError;
use crate::protocol::{
    Capability, ChangeKind, Digest, Oddities, ResourceUri, SourceTime, parse_hashes,
};

pub(super) fn micros(time: DateTime<Utc>) -> i64 {
    time.timestamp_micros()
}

pub(super) fn datetime(micros: i64) -> DateTime<Utc> {
    SourceTime::from_micros(micros).to_datetime()
}

pub(super) fn source_time(micros: Option<i64>) -> Option<SourceTime> {
    micros.map(SourceTime::from_micros)
}

pub(super) fn hashes_text(hashes: &[Digest]) -> String {
    let hashes: Vec<_> = hashes.iter().map(ToString::to_string).collect();
    hashes.join(" ")
}

pub(super) fn hashes(text: &str) -> Vec<Digest> {
    parse_hashes(text, &mut Oddities::default())
}

pub(super) fn kind(text: &str) -> Result<ChangeKind, StoreError> {
    ChangeKind::parse(text).ok_or(StoreError::BadRow("a kind of change"))
}

pub(super) fn capability(text: &str) -> Result<Capability, StoreError> {
    Capability::parse(text, &mut Oddities::default()).ok_or(StoreError::BadRow("a capability"))
}

pub(super) fn resource_uri(text: &str) -> Result<ResourceUri, StoreError> {
    ResourceUri::parse(text).map_err(|_| StoreError::BadRow("a resource's URI"))
}

pub(super) fn url(text: &str) -> Result<Url, StoreError> {
    Url::parse(text).map_err(|_| StoreError::BadRow("a URI"))
}

/// SQLite counts in signed numbers; what is counted here never comes near their end.
pub(super) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
