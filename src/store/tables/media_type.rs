//! The column `media_type` of `resource`, of which there are millions of rows: a BLOB of one byte where it is one of the usual types.
//! Every other one is stored as the text that it is. What is read is always the text that was stored.

use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};

use crate::store::sql::Result;

/// The byte of each usual type. Databases have these bytes: they never change. Another one needs another
/// number of the schema, because a version that does not know it can't read the row.
const USUAL: [(u8, &str); 32] = [
    (1, "text/plain"),
    (2, "text/html"),
    (3, "text/xml"),
    (4, "text/csv"),
    (5, "text/turtle"),
    (6, "text/markdown"),
    (7, "application/xml"),
    (8, "application/json"),
    (9, "application/pdf"),
    (10, "application/zip"),
    (11, "application/gzip"),
    (12, "application/octet-stream"),
    (13, "application/xhtml+xml"),
    (14, "application/rdf+xml"),
    (15, "application/atom+xml"),
    (16, "application/ld+json"),
    (17, "application/n-triples"),
    (18, "application/n-quads"),
    (19, "application/trig"),
    (20, "application/warc"),
    (21, "application/epub+zip"),
    (22, "application/msword"),
    (23, "application/postscript"),
    (24, "application/x-tar"),
    (25, "image/jpeg"),
    (26, "image/png"),
    (27, "image/gif"),
    (28, "image/tiff"),
    (29, "image/jp2"),
    (30, "image/svg+xml"),
    (31, "audio/mpeg"),
    (32, "video/mp4"),
];

/// What the column has for a media type.
pub(super) struct PackedMediaType<'a>(pub(super) &'a str);

impl ToSql for PackedMediaType<'_> {
    fn to_sql(&self) -> Result<ToSqlOutput<'_>> {
        let found = USUAL.iter().find(|(_, usual)| *usual == self.0);
        Ok(found.map_or_else(|| self.0.into(), |(byte, _)| vec![*byte].into()))
    }
}

/// The media type that the column of either form states.
pub(super) struct MediaType(pub(super) String);

impl FromSql for MediaType {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let ValueRef::Blob(bytes) = value else {
            return Ok(Self(value.as_str()?.to_owned()));
        };
        let found = USUAL.iter().find(|(byte, _)| bytes == [*byte]);
        let found = found.map(|(_, usual)| Self((*usual).to_owned()));
        found.ok_or(FromSqlError::InvalidType)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stored_and_read(media_type: &str) -> (String, String) {
        let sql = rusqlite::Connection::open_in_memory().unwrap();
        let read = "SELECT typeof(?1), ?1";
        sql.query_row(read, [PackedMediaType(media_type)], |row| {
            Ok((row.get(0)?, row.get::<_, MediaType>(1)?.0))
        })
        .unwrap()
    }

    #[test]
    fn usual_types_take_one_byte() {
        for (position, (byte, usual)) in USUAL.iter().enumerate() {
            assert_eq!(usize::from(*byte), position + 1);
            let expected = ("blob".to_owned(), (*usual).to_owned());
            assert_eq!(stored_and_read(usual), expected);
        }
    }

    #[test]
    fn unknown_byte_is_an_error() {
        for bytes in [&[0][..], &[33], &[], &[1, 1]] {
            assert!(MediaType::column_result(ValueRef::Blob(bytes)).is_err());
        }
    }

    proptest! {
        #[test]
        fn other_types_stay_as_they_are(media_type in "[ -~]{0,20}") {
            let (kind, read) = stored_and_read(&media_type);
            prop_assert_eq!(read, media_type.clone());
            prop_assert_eq!(kind == "blob", USUAL.iter().any(|(_, usual)| *usual == media_type));
        }
    }
}
