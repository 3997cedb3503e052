//! `part`: the parts of Resource Lists, by which unchanged ones are skipped.
//!
//! Columns: `filter` is what was wanted when the part was read, NULL until it has been read completely; `stated_at` the time that
//! the index stated for it, if that is proof; `seen` the generation in which it was last read, or found unchanged; `names` the
//! resources that it named when it was last read, and those that it has named since it is being read; `misdated` is set when the part
//! had news at an unchanged `stated_at`, until that changes; `doubted` is set when a resource that it names was deleted since;
//! `bad_entries` how many of its entries could not be read; `page_at`, `page_newest` and `next_page` what the part states of itself as a
//! page of a longer list.

use std::ops::RangeInclusive;

use chrono::{DateTime, Utc};
use resourcesync::SourceTime;
use resyncd_core::KnownPart;
use url::Url;

use super::document::DocumentRecord;
use super::values::{Column, Count, Micros, column};
use crate::store::ids::{PartId, SetId};
use crate::store::named::Named;
use crate::store::sql::{Connection, OptionalExtension, Result, params};

/// A condition on a row: the current generation of the set `?1` did not name the part.
pub(super) const IS_UNNAMED: &str =
    "set_id = ?1 AND seen < (SELECT generation FROM source_set WHERE id = ?1)";

/// What a part states of itself as a page of a longer list.
#[derive(Clone, Debug, Default)]
pub struct PageEnd {
    /// The time of the snapshot.
    pub at: Option<SourceTime>,
    /// The time of its newest entry.
    pub newest: Option<SourceTime>,
    /// The page after it.
    pub next: Option<Url>,
}

/// A part that was read before.
#[derive(Clone, Debug)]
pub struct Part {
    /// Its row.
    pub id: PartId,
    /// What decides whether it must be read again.
    pub known: KnownPart,
    /// How many of its entries could not be read.
    pub bad_entries: u64,
    /// What it states of itself as a page.
    pub page: PageEnd,
    /// Whether it names any resource.
    pub names_any: bool,
}

/// By what a part is recognized as unchanged the next time.
#[derive(Clone, Copy, Debug)]
pub struct PartEvidence {
    /// The time that the index stated for the part, if it is proof.
    pub announced: Option<SourceTime>,
    /// When its server was asked for it, on our clock.
    pub asked_at: DateTime<Utc>,
}

/// What is stored of a part that was read to its end.
#[derive(Clone, Debug)]
pub struct PartEnd {
    /// The fingerprint of the filter with which it was read; `None`: it is damaged, or has links that were not followed, and counts as
    /// incomplete.
    pub filter: Option<String>,
    /// By what the part is recognized as unchanged.
    pub evidence: PartEvidence,
    /// How many of its entries could not be read.
    pub bad_entries: u64,
    /// What it states of itself as a page.
    pub page: PageEnd,
    /// Its validators; `None`: they are stored with the end of the list.
    pub document: Option<DocumentRecord>,
}

/// A part that has not changed.
#[derive(Clone, Copy, Debug)]
pub struct UnchangedPart {
    /// The part.
    pub id: PartId,
    /// New evidence, if its server was asked for it in this reading.
    pub evidence: Option<PartEvidence>,
}

/// Begins to read a part: it does not count as complete until [`end`].
pub(crate) fn begin(sql: &Connection, set: SetId, uri: &Url) -> Result<PartId> {
    sql.prepare_cached(
        "INSERT INTO part (set_id, uri) VALUES (?1, ?2)
         ON CONFLICT (set_id, uri) DO UPDATE SET filter = NULL, doubted = 0 RETURNING id",
    )?
    .query_row(params![set, uri], |row| row.get(0))
}

/// The id of a part that was begun.
pub(crate) fn id_of(sql: &Connection, set: SetId, uri: &Url) -> Result<PartId> {
    sql.prepare_cached("SELECT id FROM part WHERE set_id = ?1 AND uri = ?2")?
        .query_row(params![set, uri], |row| row.get(0))
}

/// Adds what a part that is being read has named so far: one of these may be deleted before its end.
pub(crate) fn add_names(sql: &Connection, part: PartId, named: &Named) -> Result<()> {
    let mut names: Named = sql
        .prepare_cached("SELECT names FROM part WHERE id = ?1")?
        .query_row([part], |row| row.get(0))?;
    if names.has_all_of(named) {
        return Ok(());
    }
    names.add(named);
    sql.prepare_cached("UPDATE part SET names = ?2 WHERE id = ?1")?
        .execute(params![part, names])
        .map(drop)
}

/// Marks a part as read to its end in this generation. `filter`: what was wanted; `None` if the part is damaged: it counts as
/// incomplete.
pub(crate) fn end(
    sql: &Connection,
    part: PartId,
    filter: Option<&str>,
    end: &PartEnd,
    named: &Named,
) -> Result<()> {
    sql.prepare_cached(
        "UPDATE part SET filter = ?2, stated_at = ?3, asked_at = ?4, bad_entries = ?5, page_at = ?6, next_page = ?7, page_newest = ?8,
                misdated = CASE WHEN stated_at IS NOT DISTINCT FROM ?3 THEN misdated ELSE 0 END,
                seen = (SELECT generation FROM source_set WHERE id = part.set_id),
                names = ?9 WHERE id = ?1",
    )?
    .execute(params![
        part,
        filter,
        Column(&end.evidence.announced),
        Micros(end.evidence.asked_at),
        Count(end.bad_entries),
        Column(&end.page.at),
        end.page.next,
        Column(&end.page.newest),
        named,
    ])?;
    Ok(())
}

/// Marks a part as unchanged in this generation, and returns what it names.
pub(crate) fn mark_unchanged(sql: &Connection, part: &UnchangedPart) -> Result<Named> {
    sql.prepare_cached(
        "UPDATE part SET seen = (SELECT generation FROM source_set WHERE id = part.set_id),
                misdated = CASE WHEN CAST(?2 AS BIGINT) IS NULL OR stated_at IS NOT DISTINCT FROM ?3 THEN misdated ELSE 0 END,
                stated_at = CASE WHEN CAST(?2 AS BIGINT) IS NULL THEN stated_at ELSE ?3 END, asked_at = COALESCE(?2, asked_at)
         WHERE id = ?1 RETURNING names",
    )?
    .query_row(
        params![
            part.id,
            part.evidence.map(|evidence| Micros(evidence.asked_at)),
            part.evidence.as_ref().map(|evidence| Column(&evidence.announced)),
        ],
        |row| row.get(0),
    )
}

pub(crate) fn get(sql: &Connection, set: SetId, uri: &Url) -> Result<Option<Part>> {
    sql.prepare_cached(
        "SELECT part.id, part.filter IS NOT NULL AND part.doubted = 0, part.seen = source_set.generation,
                part.stated_at, part.asked_at, part.bad_entries, part.page_at, part.next_page, part.page_newest, length(part.names) > 0
         FROM part JOIN source_set ON source_set.id = part.set_id WHERE part.set_id = ?1 AND part.uri = ?2",
    )?
    .query_row(params![set, uri], |row| {
        Ok(Part {
            id: row.get(0)?,
            known: KnownPart {
                is_complete: row.get(1)?,
                is_done: row.get(2)?,
                announced: column(row, 3)?,
                asked_at: row.get::<_, Option<Micros>>(4)?.map(DateTime::from),
            },
            bad_entries: row.get::<_, Count>(5)?.0,
            page: PageEnd {
                at: column(row, 6)?,
                next: row.get(7)?,
                newest: column(row, 8)?,
            },
            names_any: row.get(9)?,
        })
    })
    .optional()
}

/// Notes that a part had news although its index has stated the same time of it as before.
pub(crate) fn set_misdated(sql: &Connection, set: SetId, uri: &Url) -> Result<()> {
    sql.prepare_cached("UPDATE part SET misdated = 1 WHERE set_id = ?1 AND uri = ?2")?
        .execute(params![set, uri])
        .map(drop)
}

/// Whether there is such a part of which the index has stated no other time since.
pub(crate) fn any_misdated(sql: &Connection, set: SetId) -> Result<bool> {
    sql.prepare_cached("SELECT 1 FROM part WHERE set_id = ?1 AND misdated = 1")?
        .exists([set])
}

/// The parts with entries that can't be read, at most so many, and how many those are of each.
pub(crate) fn unread(sql: &Connection, set: SetId, most: usize) -> Result<Vec<(Url, u64)>> {
    sql.prepare_cached(
        "SELECT uri, bad_entries FROM part WHERE set_id = ?1 AND bad_entries > 0 LIMIT ?2",
    )?
    .query_map(params![set, Count::of_rows(most)], |row| {
        Ok((row.get(0)?, row.get::<_, Count>(1)?.0))
    })?
    .collect()
}

/// Whether a part is incomplete or was read with another filter, or relies on the time in its index although its server was
/// not asked within `asked`.
pub(crate) fn any_unproven(
    sql: &Connection,
    set: SetId,
    filter: &str,
    asked: &RangeInclusive<DateTime<Utc>>,
) -> Result<bool> {
    sql.prepare_cached(
        "SELECT 1 FROM part WHERE set_id = ?1
         AND ((filter IS DISTINCT FROM ?2 AND (doubted = 0 OR filter IS NULL)) OR (stated_at IS NOT NULL AND asked_at NOT BETWEEN ?3 AND ?4))",
    )?
    .exists(params![
        set,
        filter,
        Micros(*asked.start()),
        Micros(*asked.end())
    ])
}

/// Whether a part is incomplete or was read with another filter.
pub(crate) fn any_incomplete(sql: &Connection, set: SetId, filter: &str) -> Result<bool> {
    sql.prepare_cached(
        "SELECT 1 FROM part WHERE set_id = ?1 AND filter IS DISTINCT FROM ?2 AND (doubted = 0 OR filter IS NULL)",
    )?
    .exists(params![set, filter])
}

/// Marks the parts as incomplete that were read with another filter; `None`: all of them.
pub(crate) fn invalidate(sql: &Connection, set: SetId, except_filter: Option<&str>) -> Result<()> {
    sql.prepare_cached(
        "UPDATE part SET filter = NULL WHERE set_id = ?1 AND filter IS NOT NULL AND filter IS DISTINCT FROM ?2",
    )?
    .execute(params![set, except_filter])?;
    Ok(())
}

/// Deletes the parts that this generation did not name.
pub(crate) fn delete_unnamed(sql: &Connection, set: SetId) -> Result<()> {
    sql.prepare_cached(&format!("DELETE FROM part WHERE {IS_UNNAMED}"))?
        .execute([set])?;
    Ok(())
}

/// Requires that the parts of the Source's lists that name any of these resources are read the next time, changed or not: those resources
/// are deleted, and may come again with the same entry.
pub(crate) fn reread_parts_of(sql: &Connection, source: &str, deleted: &Named) -> Result<()> {
    if deleted.is_empty() {
        return Ok(());
    }
    let mut trusted = sql.prepare_cached(
        "SELECT part.id, part.names FROM part JOIN source_set ON source_set.id = part.set_id
         WHERE source_set.source = ?1 AND part.doubted = 0",
    )?;
    let mut rows = trusted.query([source])?;
    let mut doubted: Vec<PartId> = Vec::new();
    while let Some(row) = rows.next()?.as_ref() {
        let names: Named = row.get(1)?;
        if !names.is_disjoint(deleted) {
            doubted.push(row.get(0)?);
        }
    }
    for part in doubted {
        sql.prepare_cached("UPDATE part SET doubted = 1 WHERE id = ?1")?
            .execute([part])?;
    }
    Ok(())
}
