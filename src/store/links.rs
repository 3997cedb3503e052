//! The related resources of a resource (section 14), as they stand in a row: JSON.

use rusqlite::{Connection, params};
use serde::{Deserialize, Serialize};

use super::{ResourceId, StoreError, row};
use crate::protocol::{Link, SourceTime};

const BAD: StoreError = StoreError::BadRow("the links of a resource");

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
            length: link.length,
            media_type: link.media_type.clone(),
            encoding: link.encoding.clone(),
            path: link.path.clone(),
            hashes: row::hashes_text(&link.hashes),
        }
    }
}

impl TryFrom<LinkRow> for Link {
    type Error = StoreError;

    fn try_from(row: LinkRow) -> Result<Self, StoreError> {
        Ok(Self {
            href: row::url(&row.href)?,
            rel: row.rel,
            pri: row.pri,
            modified: row::source_time(row.modified),
            length: row.length,
            media_type: row.media_type,
            encoding: row.encoding,
            path: row.path,
            hashes: row::hashes(&row.hashes),
        })
    }
}

/// The value of a `links` column; nothing where there are none.
pub(super) fn links_text(links: &[Link]) -> Result<Option<String>, StoreError> {
    if links.is_empty() {
        return Ok(None);
    }
    let rows: Vec<LinkRow> = links.iter().map(LinkRow::from).collect();
    serde_json::to_string(&rows).map(Some).map_err(|_| BAD)
}

/// The links of a `links` column.
pub(super) fn links(text: Option<&str>) -> Result<Vec<Link>, StoreError> {
    let Some(text) = text else {
        return Ok(Vec::new());
    };
    let rows: Vec<LinkRow> = serde_json::from_str(text).map_err(|_| BAD)?;
    rows.into_iter().map(Link::try_from).collect()
}

/// Keeps the links that are told of what the mirror has already.
pub(super) fn save_links(
    sql: &Connection,
    resource: ResourceId,
    links: &[Link],
) -> Result<(), StoreError> {
    if let Some(links) = links_text(links)? {
        sql.prepare_cached(
            "UPDATE resource SET links = ?2 WHERE id = ?1 AND deleted = 0 AND links IS NOT ?2",
        )?
        .execute(params![resource.0, links])?;
    }
    Ok(())
}
