//! Conversion of values to and from columns.
//!
//! URIs, times of a Source, kinds and states implement [`ColumnValue`]: [`Column`] stores a value, [`column()`] reads one. They can't implement
//! [`ToSql`] and [`FromSql`], as most are of other crates. Ids do, and the wrappers: [`Micros`], [`Count`], [`DigestList`],
//! [`PackedDigests`], [`HubList`], [`LinkList`]. A value that can't be read is an error that counts as damage of the row.

use chrono::{DateTime, Utc};
use resourcesync::uri::parse_uri;
use resourcesync::{
    Algorithm, Capability, ChangeKind, ContentInfo, Digest, Interval, Link, Oddities, SourceTime,
};
use resyncd_core::{
    ChannelState, DeliveryFaultKind, GapReason, HubUri, ResourceUri, Revision, TopicUri, Transport,
};
use rusqlite::types::{
    FromSql, FromSqlError, FromSqlResult, Null, ToSql, ToSqlOutput, Type, ValueRef,
};
use serde::{Deserialize, Serialize};
use websub::Intent;

use super::media_type::MediaType;
use crate::store::change::Origin;
use crate::store::ids::{ChannelId, PartId, ResourceId, SetId};
use crate::store::sql::{Result, Row, RowIndex};

/// A column holds a value that this program never writes.
#[derive(Debug, thiserror::Error)]
#[error("{0} can't be read")]
struct InvalidValue(&'static str);

pub(crate) fn invalid(what: &'static str) -> FromSqlError {
    FromSqlError::other(InvalidValue(what))
}

macro_rules! integers {
    ($($name:ident),*) => {$(
        impl ToSql for $name {
            fn to_sql(&self) -> Result<ToSqlOutput<'_>> {
                Ok(self.0.into())
            }
        }

        impl FromSql for $name {
            fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
                i64::column_result(value).map(Self)
            }
        }
    )*};
}

integers!(SetId, ChannelId, PartId, ResourceId);

/// How a column has the values of a type.
pub(crate) trait ColumnValue: Sized {
    fn to_column(&self) -> ToSqlOutput<'_>;
    fn from_column(value: ValueRef<'_>) -> FromSqlResult<Self>;
}

/// A value that is stored in a column: `Column(&value)`. [`column()`] reads it.
pub(crate) struct Column<T>(pub(crate) T);

impl<T: ColumnValue> ToSql for Column<&T> {
    fn to_sql(&self) -> Result<ToSqlOutput<'_>> {
        Ok(self.0.to_column())
    }
}

impl<T: ColumnValue> FromSql for Column<T> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        T::from_column(value).map(Self)
    }
}

/// The value that a column of a row holds.
pub(crate) fn column<T: ColumnValue>(row: &Row<'_>, index: impl RowIndex) -> Result<T> {
    row.get(index).map(|Column(value)| value)
}

/// `None` is NULL.
impl<T: ColumnValue> ColumnValue for Option<T> {
    fn to_column(&self) -> ToSqlOutput<'_> {
        self.as_ref().map_or(Null.into(), T::to_column)
    }

    fn from_column(value: ValueRef<'_>) -> FromSqlResult<Self> {
        match value {
            ValueRef::Null => Ok(None),
            _ => T::from_column(value).map(Some),
        }
    }
}

/// Microseconds since 1970, in the Source's time.
impl ColumnValue for SourceTime {
    fn to_column(&self) -> ToSqlOutput<'_> {
        self.micros().into()
    }

    fn from_column(value: ValueRef<'_>) -> FromSqlResult<Self> {
        i64::column_result(value).map(Self::from_micros)
    }
}

impl ColumnValue for Revision {
    fn to_column(&self) -> ToSqlOutput<'_> {
        i64::try_from(self.0).unwrap_or(i64::MAX).into()
    }

    fn from_column(value: ValueRef<'_>) -> FromSqlResult<Self> {
        Count::column_result(value).map(|Count(revision)| Self(revision))
    }
}

/// A time of our clock, in microseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Micros(pub(crate) DateTime<Utc>);

impl From<Micros> for DateTime<Utc> {
    fn from(micros: Micros) -> Self {
        micros.0
    }
}

impl ToSql for Micros {
    fn to_sql(&self) -> Result<ToSqlOutput<'_>> {
        Ok(self.0.timestamp_micros().into())
    }
}

impl FromSql for Micros {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        SourceTime::from_column(value).map(|time| Self(time.to_datetime()))
    }
}

/// A number of bytes or rows. SQLite has signed integers only: what is beyond them is stored as the greatest one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Count(pub(crate) u64);

impl Count {
    /// The limit of a query.
    pub(crate) fn of_rows(rows: usize) -> Self {
        Self(rows as u64)
    }
}

impl From<Count> for u64 {
    fn from(count: Count) -> Self {
        count.0
    }
}

impl ToSql for Count {
    fn to_sql(&self) -> Result<ToSqlOutput<'_>> {
        Ok(i64::try_from(self.0).unwrap_or(i64::MAX).into())
    }
}

impl FromSql for Count {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let number = i64::column_result(value)?;
        Ok(Self(u64::try_from(number).unwrap_or_default()))
    }
}

/// Implements [`ColumnValue`] for types whose column is text: `$to` gives the text of a value, `$from` the value of a text
/// if it has one, `$what` names it in the error. Types of the tables use it where they are defined.
macro_rules! texts {
    ($($name:ident: $to:expr, $from:expr, $what:literal;)*) => {$(
        impl $crate::store::tables::values::ColumnValue for $name {
            fn to_column(&self) -> rusqlite::types::ToSqlOutput<'_> {
                let to: fn(&Self) -> &str = $to;
                to(self).into()
            }

            fn from_column(
                value: rusqlite::types::ValueRef<'_>,
            ) -> rusqlite::types::FromSqlResult<Self> {
                let from: fn(&str) -> Option<Self> = $from;
                from(value.as_str()?).ok_or_else(|| $crate::store::tables::values::invalid($what))
            }
        }
    )*};
}
pub(crate) use texts;

texts! {
    Capability: Self::as_str, |text| Self::parse(text, &mut Oddities::default()), "a capability";
    ChangeKind: |kind| kind.as_str(), Self::parse, "a kind of change";
    ChannelState: |state| state.code(), Self::from_code, "a channel's state";
    DeliveryFaultKind: |kind| kind.code(), Self::from_code, "a fault of deliveries";
    GapReason: |reason| reason.code(), Self::from_code, "a gap's reason";
    HubUri: Self::as_str, |text| Self::parse(text).ok(), "a hub's URI";
    Origin: |origin| origin.code(), Self::from_code, "an origin";
    ResourceUri: Self::as_str, |text| Self::parse(text).ok(), "a resource's URI";
    TopicUri: Self::as_str, |text| Self::of_channel(parse_uri(text).ok()?), "a topic's URI";
    Transport: |transport| transport.code(), Self::from_code, "a channel's transport";
}

/// What a hub was asked for; an unknown word counts as nothing.
pub(super) struct RequestedIntent(pub(super) Option<Intent>);

impl ToSql for RequestedIntent {
    fn to_sql(&self) -> Result<ToSqlOutput<'_>> {
        Ok(match self.0 {
            Some(Intent::Subscribe) => "subscribe".into(),
            Some(Intent::Unsubscribe) => "unsubscribe".into(),
            None => Null.into(),
        })
    }
}

impl FromSql for RequestedIntent {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        Ok(Self(match value.as_str_or_null()? {
            Some("subscribe") => Some(Intent::Subscribe),
            Some("unsubscribe") => Some(Intent::Unsubscribe),
            _ => None,
        }))
    }
}

/// Digests as a `hash` attribute has them.
pub(crate) struct DigestList<T>(pub(crate) T);

impl<T: AsRef<[Digest]>> ToSql for DigestList<T> {
    fn to_sql(&self) -> Result<ToSqlOutput<'_>> {
        Ok(hash_attribute(self.0.as_ref()).into())
    }
}

/// From a text, or as [`PackedDigests`] are stored.
impl FromSql for DigestList<Vec<Digest>> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        match value {
            ValueRef::Blob(bytes) => unpacked(bytes).map(Self).ok_or_else(|| invalid("digests")),
            _ => Ok(Self(digests(value.as_str()?))),
        }
    }
}

/// Digests in half the bytes of a [`DigestList`]: for each one a byte for the algorithm, and its own. None at all are an empty
/// text. For `resource`, which has a row for each of millions; the queries of other tables compare the text.
pub(crate) struct PackedDigests<'a>(pub(crate) &'a [Digest]);

/// The byte of each algorithm. Databases have them: they never change.
const ALGORITHMS: [(u8, Algorithm); 5] = [
    (1, Algorithm::Md5),
    (2, Algorithm::Sha1),
    (3, Algorithm::Sha256),
    (4, Algorithm::Sha384),
    (5, Algorithm::Sha512),
];

impl ToSql for PackedDigests<'_> {
    fn to_sql(&self) -> Result<ToSqlOutput<'_>> {
        if self.0.is_empty() {
            return Ok("".into());
        }
        let mut packed = Vec::new();
        for digest in self.0 {
            let known = ALGORITHMS.iter().find(|(_, it)| *it == digest.algorithm());
            packed.extend(known.map(|(byte, _)| byte));
            packed.extend(digest.bytes());
        }
        Ok(packed.into())
    }
}

fn unpacked(mut bytes: &[u8]) -> Option<Vec<Digest>> {
    let mut digests = Vec::new();
    while let Some((first, rest)) = bytes.split_first() {
        let (_, algorithm) = ALGORITHMS.iter().find(|(byte, _)| byte == first)?;
        let (digest, rest) = rest.split_at_checked(algorithm.digest_length())?;
        digests.push(Digest::new(*algorithm, digest)?);
        bytes = rest;
    }
    Some(digests)
}

/// Digests as a `hash` attribute has them, from a column of either form.
pub(crate) struct HashAttribute(pub(crate) String);

impl FromSql for HashAttribute {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        DigestList::column_result(value).map(|digests| Self(hash_attribute(&digests.0)))
    }
}

fn hash_attribute(digests: &[Digest]) -> String {
    let digests: Vec<String> = digests.iter().map(ToString::to_string).collect();
    digests.join(" ")
}

fn digests(hash_attribute: &str) -> Vec<Digest> {
    Digest::parse_hashes(hash_attribute, &mut Oddities::default())
}

/// A [`ContentInfo`] as the columns `length`, `media_type` and `hashes` have it.
pub(crate) struct ContentColumns<'a> {
    pub(crate) length: Option<Count>,
    pub(crate) media_type: Option<&'a str>,
    pub(crate) hashes: DigestList<&'a [Digest]>,
}

impl<'a> From<&'a ContentInfo> for ContentColumns<'a> {
    fn from(content: &'a ContentInfo) -> Self {
        Self {
            length: content.length.map(Count),
            media_type: content.media_type.as_deref(),
            hashes: DigestList(&content.hashes),
        }
    }
}

/// What the columns `length`, `media_type` and `hashes` of a row state.
pub(crate) fn content_info(row: &Row<'_>) -> Result<ContentInfo> {
    content_info_of(row, ["length", "media_type", "hashes"])
}

/// The same of these columns.
pub(crate) fn content_info_of(
    row: &Row<'_>,
    [length, media_type, hashes]: [impl RowIndex; 3],
) -> Result<ContentInfo> {
    Ok(ContentInfo {
        length: row.get::<_, Option<Count>>(length)?.map(u64::from),
        media_type: row
            .get::<_, Option<MediaType>>(media_type)?
            .map(|media_type| media_type.0),
        hashes: row.get::<_, DigestList<_>>(hashes)?.0,
    })
}

/// URIs of hubs with spaces between them, which none of them can contain.
pub(crate) struct HubList<T>(pub(crate) T);

impl<T: AsRef<[HubUri]>> ToSql for HubList<T> {
    fn to_sql(&self) -> Result<ToSqlOutput<'_>> {
        let hubs: Vec<&str> = self.0.as_ref().iter().map(HubUri::as_str).collect();
        Ok(hubs.join(" ").into())
    }
}

impl FromSql for HubList<Vec<HubUri>> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let hubs = value.as_str()?.split(' ').filter(|hub| !hub.is_empty());
        let hubs = hubs.map(|hub| HubUri::parse(hub).map_err(|_| invalid("a hub's URI")));
        hubs.collect::<Result<_, _>>().map(Self)
    }
}

/// Related resources (section 14) as JSON; NULL where there are none.
pub(crate) struct LinkList<T>(pub(crate) T);

const LINKS: &str = "the links of a resource";

impl<T: AsRef<[Link]>> ToSql for LinkList<T> {
    fn to_sql(&self) -> Result<ToSqlOutput<'_>> {
        Ok(link_text(self.0.as_ref())?.map_or(Null.into(), ToSqlOutput::from))
    }
}

/// What a [`LinkList`] is in a column.
pub(crate) fn link_text(links: &[Link]) -> Result<Option<String>> {
    let links: Vec<LinkRow> = links.iter().map(LinkRow::from).collect();
    if links.is_empty() {
        return Ok(None);
    }
    json(&links).map(Some)
}

impl FromSql for LinkList<Vec<Link>> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let Some(text) = value.as_str_or_null()? else {
            return Ok(Self(Vec::new()));
        };
        let rows: Vec<LinkRow> = parse_json(text, LINKS)?;
        let links: Option<_> = rows.into_iter().map(LinkRow::into_link).collect();
        links.map(Self).ok_or_else(|| invalid(LINKS))
    }
}

#[derive(Serialize, Deserialize)]
struct LinkRow {
    rel: String,
    href: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pri: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    modified: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    length: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    media_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    encoding: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    hashes: String,
}

impl From<&Link> for LinkRow {
    fn from(link: &Link) -> Self {
        Self {
            rel: link.rel.clone(),
            href: link.href.to_string(),
            pri: link.pri,
            modified: link.modified.map(SourceTime::micros),
            length: link.content.length,
            media_type: link.content.media_type.clone(),
            encoding: link.encoding.clone(),
            path: link.path.clone(),
            hashes: hash_attribute(&link.content.hashes),
        }
    }
}

impl LinkRow {
    fn into_link(self) -> Option<Link> {
        Some(Link {
            href: parse_uri(&self.href).ok()?,
            rel: self.rel,
            pri: self.pri,
            modified: self.modified.map(SourceTime::from_micros),
            content: ContentInfo {
                length: self.length,
                media_type: self.media_type,
                hashes: digests(&self.hashes),
            },
            encoding: self.encoding,
            path: self.path,
        })
    }
}

/// The JSON of a column.
pub(super) fn json(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))
}

/// The value of a column that holds JSON; `what` names it in the error.
pub(super) fn parse_json<'a, T: Deserialize<'a>>(
    text: &'a str,
    what: &'static str,
) -> FromSqlResult<T> {
    serde_json::from_str(text).map_err(|_| invalid(what))
}

/// The interval that two columns hold.
pub(super) fn interval(from: SourceTime, until: SourceTime) -> Result<Interval> {
    Interval::new(from, until).ok_or_else(|| {
        let error = InvalidValue("an interval");
        rusqlite::Error::FromSqlConversionFailure(0, Type::Integer, error.into())
    })
}
