//! The resources that the mirror has, some rows at a time.

use crate::store::sql::{Connection, Result, Row, Rows, params};

use super::{ResourceView, VIEW};
use crate::store::ids::{ResourceId, SetId};
use crate::store::tables::values::Count;
use crate::store::unreadable::UnreadableRows;

/// Some rows of resources, in the order of the listing.
pub(crate) struct ListedRows<K> {
    /// Those that the mirror has.
    pub(crate) live: Vec<ResourceView>,
    /// The last row, also if the mirror does not have it; `None`: there are no more.
    pub(crate) last: Option<K>,
}

impl<K> ListedRows<K> {
    fn read(
        rows: &mut Rows<'_>,
        key: impl Fn(&Row<'_>) -> Result<K>,
        unreadable: &UnreadableRows,
    ) -> Result<Self> {
        let (mut live, mut last) = (Vec::new(), None);
        while let Some(row) = rows.next()?.as_ref() {
            if row.get("live")? {
                live.extend(unreadable.read(row, "source", ResourceView::from_row)?);
            }
            last = Some(key(row)?);
        }
        Ok(Self { live, last })
    }
}

/// The next rows of a Source, by their identity: at most so many, also if the mirror has none of them.
pub(crate) fn of_source(
    sql: &Connection,
    source: &str,
    after: &str,
    rows: usize,
    unreadable: &UnreadableRows,
) -> Result<ListedRows<String>> {
    let mut statement = sql.prepare_cached(&format!(
        "SELECT {VIEW} FROM resource JOIN source_set ON source_set.id = resource.set_id
         WHERE resource.source = ?1 AND resource.identity > ?2 ORDER BY resource.identity LIMIT ?3"
    ))?;
    let mut rows = statement.query(params![source, after, Count::of_rows(rows)])?;
    ListedRows::read(&mut rows, |row| row.get("identity"), unreadable)
}

/// The next resources of a set, by row.
pub(crate) fn of_set(
    sql: &Connection,
    set: SetId,
    after: ResourceId,
    rows: usize,
    unreadable: &UnreadableRows,
) -> Result<ListedRows<ResourceId>> {
    let mut statement = sql.prepare_cached(&format!(
        "SELECT {VIEW} FROM member JOIN resource ON resource.id = member.resource_id
              JOIN source_set ON source_set.id = resource.set_id
         WHERE member.set_id = ?1 AND member.resource_id > ?2 ORDER BY member.resource_id LIMIT ?3"
    ))?;
    let mut rows = statement.query(params![set, after, Count::of_rows(rows)])?;
    ListedRows::read(&mut rows, |row| row.get("id"), unreadable)
}

/// About how many bytes what is stated of the resources of a set has, of so many of them at most.
pub(crate) fn bytes_of_set(sql: &Connection, set: SetId, most: u64) -> Result<u64> {
    let Count(bytes) = sql
        .prepare_cached(
            "SELECT COALESCE(CAST(SUM(400 + 2 * length(identity) + length(COALESCE(links, ''))) AS BIGINT), 0) FROM (
                 SELECT identity, links FROM member JOIN resource ON resource.id = member.resource_id WHERE member.set_id = ?1 LIMIT ?2) AS found",
        )?
        .query_row(params![set, Count(most)], |row| row.get(0))?;
    Ok(bytes)
}

/// The resources of a Source that were applied and have a part in their identity, by their identity, from that one on. `begin`: what it
/// begins with. Only the index is read of the others. `room`: how many rows may still be read, and how many found. Returns where the search
/// goes on; `None`: all were looked at.
pub(crate) fn with_part(
    sql: &Connection,
    (source, from): (&str, &str),
    (begin, part): (&str, &str),
    (rows_left, found): (&mut usize, &mut Vec<ResourceView>),
    most_found: usize,
    unreadable: &UnreadableRows,
) -> Result<Option<String>> {
    let mut identities = sql.prepare_cached(
        "SELECT identity, id FROM resource WHERE source = ?1 AND identity >= ?2 ORDER BY identity LIMIT ?3",
    )?;
    let mut view = sql.prepare_cached(&format!(
        "SELECT {VIEW} FROM resource JOIN source_set ON source_set.id = resource.set_id
         WHERE resource.id = ?1 AND applied_at IS NOT NULL"
    ))?;
    // One more shows where to go on.
    let most = Count::of_rows(rows_left.saturating_add(1));
    let mut rows = identities.query(params![source, from.max(begin), most])?;
    while let Some(row) = rows.next()?.as_ref() {
        let identity = row.get_ref(0)?.as_str()?;
        if !identity.starts_with(begin) {
            return Ok(None);
        }
        if *rows_left == 0 || found.len() >= most_found {
            return Ok(Some(identity.to_owned()));
        }
        *rows_left -= 1;
        if identity.contains(part) {
            let id: ResourceId = row.get(1)?;
            let mut views = view.query([id])?;
            while let Some(row) = views.next()?.as_ref() {
                found.extend(unreadable.read(row, "source", ResourceView::from_row)?);
            }
        }
    }
    Ok(None)
}
