//! The resources that the mirror has, some rows at a time.

use rusqlite::{Connection, Result, Row, params};

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
        rows: &mut rusqlite::Rows<'_>,
        key: impl Fn(&Row<'_>) -> Result<K>,
        unreadable: &UnreadableRows,
    ) -> Result<Self> {
        let (mut live, mut last) = (Vec::new(), None);
        while let Some(row) = rows.next()? {
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
