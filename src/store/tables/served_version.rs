//! The validators of the version that the mirror has: three columns of `resource`.
//!
//! Each of millions of rows has them, so they are stored in a form that is shorter where it can be, and never longer:
//!
//! - `served_by` is empty where that is the resource's own URI, as nearly always.
//! - `etag` is a BLOB where it contains hexadecimal, as nearly all do: see [`packed`]; of [`MOST_OF_LENGTH`] bytes at most where it is a
//!   time and a length as nginx writes them, and the time that of `last_modified`: see [`packed_length`].
//! - `last_modified` is a BLOB of the seconds since 1970 where it is written as RFC 9110 (section 5.6.7) prefers.
//!
//! What has another form is stored as the text that it is. What is read is always the text that was stored.

use std::time::{Duration, UNIX_EPOCH};

use resyncd_core::{ResourceUri, ServedVersion, Validators};
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use url::Url;

use super::values::invalid;
use crate::store::sql::{Result, Row};

/// What the columns `served_by`, `etag` and `last_modified` of a resource, by their numbers, state.
pub(super) fn served_version(
    row: &Row<'_>,
    [served_by, etag, last_modified]: [usize; 3],
    uri: &ResourceUri,
) -> Result<Option<ServedVersion>> {
    let url = match row.get::<_, Option<ServedBy>>(served_by)? {
        None => return Ok(None),
        Some(ServedBy::Resource) => uri.url().clone(),
        Some(ServedBy::Another(url)) => url,
    };
    let last_modified = row.get::<_, Option<LastModified>>(last_modified)?;
    let last_modified = last_modified.map(|time| time.0);
    let etag = row.get::<_, Option<ETag>>(etag)?;
    let etag = etag.map(|etag| etag.text(last_modified.as_deref()));
    Ok(Some(ServedVersion {
        url,
        validators: Validators {
            etag: etag.transpose()?,
            last_modified,
        },
    }))
}

/// The column `served_by` of a version of the resource.
pub(super) fn served_by<'a>(version: &'a ServedVersion, uri: &ResourceUri) -> &'a str {
    if version.url == *uri.url() {
        ""
    } else {
        version.url.as_str()
    }
}

enum ServedBy {
    Resource,
    Another(Url),
}

impl FromSql for ServedBy {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        match value.as_str()? {
            "" => Ok(Self::Resource),
            _ => Url::column_result(value).map(Self::Another),
        }
    }
}

/// The column `etag`.
pub(super) struct PackedETag<'a> {
    etag: &'a str,
    last_modified: Option<&'a str>,
}

impl<'a> PackedETag<'a> {
    pub(super) fn of(version: &'a ServedVersion) -> Option<Self> {
        Some(Self {
            etag: version.validators.etag.as_deref()?,
            last_modified: version.validators.last_modified.as_deref(),
        })
    }
}

impl ToSql for PackedETag<'_> {
    fn to_sql(&self) -> Result<ToSqlOutput<'_>> {
        let packed = packed_length(self.etag, self.last_modified).or_else(|| packed(self.etag));
        Ok(packed.map_or_else(|| self.etag.into(), ToSqlOutput::from))
    }
}

enum ETag {
    Text(String),
    /// That of a version with such a length, and the time of `last_modified`.
    OfLength(u32),
}

impl ETag {
    fn text(self, last_modified: Option<&str>) -> Result<String, FromSqlError> {
        match self {
            Self::Text(text) => Ok(text),
            Self::OfLength(length) => last_modified
                .and_then(packed_time)
                .map(|seconds| etag_of_length(seconds, length))
                .ok_or_else(|| invalid("an ETag without its time")),
        }
    }
}

impl FromSql for ETag {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        match value {
            ValueRef::Blob(bytes) => unpacked_length(bytes)
                .map(Self::OfLength)
                .or_else(|| unpacked(bytes).map(Self::Text))
                .ok_or_else(|| invalid("an ETag")),
            _ => Ok(Self::Text(value.as_str()?.to_owned())),
        }
    }
}

/// The most bytes of a packed length. What [`packed`] makes has more.
const MOST_OF_LENGTH: usize = 4;

/// The ETag that nginx makes of the time of a file, here in seconds since 1970, and its length in bytes.
fn etag_of_length(seconds: [u8; 4], length: u32) -> String {
    format!("\"{:x}-{length:x}\"", u32::from_be_bytes(seconds))
}

/// The length that the ETag states in the way of nginx, without leading zeros; `None` where it is no such ETag, or the time is another
/// than that of `Last-Modified`.
fn packed_length(etag: &str, last_modified: Option<&str>) -> Option<Vec<u8>> {
    let seconds = packed_time(last_modified?)?;
    let (_, length) = etag.split_once('-')?;
    let length = u32::from_str_radix(length.strip_suffix('"')?, 16).ok()?;
    if etag_of_length(seconds, length) != etag {
        return None;
    }
    let bytes = length.to_be_bytes();
    Some(bytes.into_iter().skip_while(|byte| *byte == 0).collect())
}

/// The length; `None` where the BLOB has more bytes than a length can have.
fn unpacked_length(bytes: &[u8]) -> Option<u32> {
    if bytes.len() > MOST_OF_LENGTH {
        return None;
    }
    let append = |length, byte: &u8| length << 8 | u32::from(*byte);
    Some(bytes.iter().fold(0, append))
}

/// The text with its first longest stretch of hexadecimal digits in half the bytes: a byte for the length of what is before it, one
/// for its own length in pairs of digits, then the three: five bytes at least. `None` where that is not shorter.
fn packed(text: &str) -> Option<Vec<u8>> {
    let bytes = text.as_bytes();
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let (mut longest, mut begin) = (0..0, 0);
    for stretch in bytes.split_inclusive(|byte| !is_digit(byte)) {
        let digits = stretch.iter().take_while(|byte| is_digit(byte)).count();
        if digits > longest.len() {
            longest = begin..begin + digits;
        }
        begin += stretch.len();
    }
    let (before, rest) = bytes.split_at(longest.start);
    let (pairs, _) = rest[..longest.len()].as_chunks::<2>();
    if pairs.len() <= 2 {
        return None;
    }
    let value = |digit: u8| match digit {
        b'0'..=b'9' => digit - b'0',
        _ => digit - b'a' + 10,
    };
    let mut packed = vec![before.len().try_into().ok()?, pairs.len().try_into().ok()?];
    packed.extend(before);
    packed.extend(
        pairs
            .iter()
            .map(|[high, low]| value(*high) << 4 | value(*low)),
    );
    packed.extend(&rest[pairs.len() * 2..]);
    Some(packed)
}

fn unpacked(packed: &[u8]) -> Option<String> {
    let (&[before, pairs], rest) = packed.split_first_chunk()?;
    let (before, rest) = rest.split_at_checked(before.into())?;
    let (pairs, after) = rest.split_at_checked(pairs.into())?;
    let mut text = before.to_vec();
    for byte in pairs {
        text.extend([byte >> 4, byte & 15].map(|digit| b"0123456789abcdef"[usize::from(digit)]));
    }
    text.extend(after);
    String::from_utf8(text).ok()
}

/// The column `last_modified`.
pub(super) struct PackedTime<'a>(&'a str);

impl<'a> PackedTime<'a> {
    pub(super) fn of(version: &'a ServedVersion) -> Option<Self> {
        version.validators.last_modified.as_deref().map(Self)
    }
}

impl ToSql for PackedTime<'_> {
    fn to_sql(&self) -> Result<ToSqlOutput<'_>> {
        Ok(packed_time(self.0).map_or_else(|| self.0.into(), |seconds| seconds.to_vec().into()))
    }
}

struct LastModified(String);

impl FromSql for LastModified {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        match value {
            ValueRef::Blob(seconds) => unpacked_time(seconds)
                .map(Self)
                .ok_or_else(|| invalid("a time of modification")),
            _ => Ok(Self(value.as_str()?.to_owned())),
        }
    }
}

/// The seconds since 1970; `None` where the text is not exactly how they are written.
fn packed_time(text: &str) -> Option<[u8; 4]> {
    let time = httpdate::parse_http_date(text).ok()?;
    let seconds = time.duration_since(UNIX_EPOCH).ok()?.as_secs();
    let seconds = u32::try_from(seconds).ok()?.to_be_bytes();
    (unpacked_time(&seconds)? == text).then_some(seconds)
}

fn unpacked_time(seconds: &[u8]) -> Option<String> {
    let seconds = u32::from_be_bytes(seconds.try_into().ok()?);
    let time = UNIX_EPOCH + Duration::from_secs(seconds.into());
    Some(httpdate::fmt_http_date(time))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The text comes back, from so many bytes; `None`: it is stored as it is.
    fn check(text: &str, expected: Option<usize>) {
        let stored = packed(text);
        assert_eq!(stored.as_ref().map(Vec::len), expected, "{text}");
        if let Some(stored) = stored {
            assert_eq!(unpacked(&stored).as_deref(), Some(text));
        }
    }

    #[test]
    fn hexadecimal_of_etags_takes_half_the_bytes() {
        for (etag, bytes) in [
            ("", None),
            ("\"\"", None),
            ("\"1\"", None),
            ("\"12ab\"", None),
            ("\"xyz-\u{e4}\"", None),
            ("\"12abcd\"", Some(7)),
            ("W/\"12abcde\"", Some(10)),
            ("\"67430b6d-1000\"", Some(13)),
            ("\"12-9e107d9d372bb6826bd81d3542a419d6-\u{e4}\"", Some(26)),
            ("\"9E107D9D372BB6826BD81D3542A419D6\"", None),
            (&format!("\"sha-256:{}\"", "0f".repeat(32)), Some(44)),
            // Longer than the lengths can state.
            (&"0".repeat(512), None),
            (&format!("{}{}", "x".repeat(256), "0".repeat(64)), None),
        ] {
            check(etag, bytes);
        }
    }

    #[test]
    fn etag_of_the_time_and_the_length_takes_the_bytes_of_the_length() {
        let time = Some("Sun, 24 Nov 2024 11:18:05 GMT");
        for (etag, last_modified, bytes) in [
            ("\"67430b6d-0\"", time, Some(0)),
            ("\"67430b6d-ff\"", time, Some(1)),
            ("\"67430b6d-1000\"", time, Some(2)),
            ("\"67430b6d-ffffffff\"", time, Some(4)),
            ("\"67430b6d-100000000\"", time, None),
            ("\"67430b6d-01000\"", time, None),
            ("\"67430b6d-+1000\"", time, None),
            ("\"67430b6d-1000\"-gzip", time, None),
            ("W/\"67430b6d-1000\"", time, None),
            ("\"67430B6D-1000\"", time, None),
            ("\"67430b6e-1000\"", time, None),
            ("\"67430b6d-\"", time, None),
            ("\"67430b6d\"", time, None),
            ("\"67430b6d-1000\"", Some("yesterday"), None),
            ("\"67430b6d-1000\"", None, None),
        ] {
            let stored = packed_length(etag, last_modified);
            assert_eq!(stored.as_ref().map(Vec::len), bytes, "{etag}");
            let etag_column = PackedETag {
                etag,
                last_modified,
            };
            let read = match etag_column.to_sql().unwrap() {
                ToSqlOutput::Owned(value) => ETag::column_result((&value).into()),
                ToSqlOutput::Borrowed(value) => ETag::column_result(value),
                other => panic!("{other:?}"),
            };
            assert_eq!(read.unwrap().text(last_modified).as_deref(), Ok(etag));
        }
    }

    #[test]
    fn times_take_four_bytes_if_they_are_written_as_preferred() {
        for (time, is_packed) in [
            ("Tue, 24 Nov 2026 02:31:13 GMT", true),
            ("Thu, 01 Jan 1970 00:00:00 GMT", true),
            // Another day of the week, another form, another zone, before 1970, a leap second, and no time at all.
            ("Wed, 24 Nov 2026 02:31:13 GMT", false),
            ("Tue, 4 Nov 2026 02:31:13 GMT", false),
            ("Tuesday, 24-Nov-26 02:31:13 GMT", false),
            ("Tue, 24 Nov 2026 02:31:13 UTC", false),
            ("Wed, 31 Dec 1969 23:59:59 GMT", false),
            ("Sat, 31 Dec 2016 23:59:60 GMT", false),
            ("yesterday", false),
            ("", false),
        ] {
            let stored = packed_time(time);
            assert_eq!(stored.is_some(), is_packed, "{time}");
            if let Some(stored) = stored {
                assert_eq!(unpacked_time(&stored).as_deref(), Some(time));
            }
        }
    }

    proptest! {
        #[test]
        fn every_etag_comes_back(etag in "[0-9a-fA-F\"/W:é-]{0,90}") {
            if let Some(stored) = packed(&etag) {
                prop_assert!(stored.len() < etag.len() && stored.len() > MOST_OF_LENGTH);
                prop_assert_eq!(unpacked(&stored), Some(etag));
            }
        }
    }
}
