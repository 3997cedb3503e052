//! `statement`: the latest statements of resources that neither the resource's row nor its task has: what a second set states, a hub that
//! may not speak for the Source, or the link of another resource's entry; and what the Source states, while the mirror has something else.
//!
//! Columns: `stated` is the kind of the change, or whether a list names the resource or does not; `at` the time of the change, of the last
//! modification in a list, or of the list that does not name it; `revision` and `content_revision` as of [`Statement`].

use resourcesync::{ChangeKind, SourceTime};
use resyncd_core::{Entry, SetKey, Stated, Statement, Voice};

use super::membership::Membership;
use super::values::{Column, ContentColumns, Count, column, content_info_of, texts};
use crate::store::ids::{ResourceId, SetId};
use crate::store::sql::{Connection, Result, params};

texts! {
    Voice:
        |voice| match voice {
            Voice::Source => "source",
            Voice::Hub => "hub",
            Voice::Link => "link",
        },
        |text| match text {
            "source" => Some(Voice::Source),
            "hub" => Some(Voice::Hub),
            "link" => Some(Voice::Link),
            _ => None,
        },
        "who states it";
}

/// What the column `stated` has of a [`Stated`].
#[derive(Clone, Copy)]
enum StatedKind {
    Change(ChangeKind),
    Listed,
    Absent,
}

texts! {
    StatedKind:
        |stated| match stated {
            Self::Change(kind) => kind.as_str(),
            Self::Listed => "listed",
            Self::Absent => "absent",
        },
        |text| match text {
            "created" => Some(Self::Change(ChangeKind::Created)),
            "updated" => Some(Self::Change(ChangeKind::Updated)),
            "deleted" => Some(Self::Change(ChangeKind::Deleted)),
            "listed" => Some(Self::Listed),
            "absent" => Some(Self::Absent),
            _ => None,
        },
        "what is stated";
}

/// The statements of a resource that are rows. `listed`: the time of the newest list of a set that names a resource with that membership.
pub(crate) fn of_resource<E: From<rusqlite::Error>>(
    sql: &Connection,
    id: ResourceId,
    listed: impl Fn(SetId, Option<Membership>) -> std::result::Result<Option<SourceTime>, E>,
) -> std::result::Result<Vec<Statement>, E> {
    let mut query = sql.prepare_cached(
        "SELECT statement.set_id, voice, stated, at, lastmod, length, media_type, hashes, revision, content_revision, rejected,
             member.named_by
         FROM statement LEFT JOIN member ON member.set_id = statement.set_id AND member.resource_id = statement.resource_id
         WHERE statement.resource_id = ?1",
    )?;
    let mut rows = query.query([id])?;
    let mut statements = Vec::new();
    while let Some(row) = rows.next()?.as_ref() {
        let set: SetId = row.get(0)?;
        let at: Option<SourceTime> = column(row, 3)?;
        let voice = column(row, 1)?;
        let listed = if voice == Voice::Source {
            listed(set, row.get(11)?)?
        } else {
            None
        };
        let time = listed.or(at).unwrap_or(SourceTime::MIN);
        let stated = match column(row, 2)? {
            StatedKind::Change(kind) => Stated::Change(kind),
            StatedKind::Listed => Stated::Listed(time),
            StatedKind::Absent => Stated::Absent(at.unwrap_or(time)),
        };
        statements.push(Statement {
            listed: listed.filter(|_| stated.exists()),
            entry: Entry {
                set: SetKey(set.0),
                voice,
                stated,
                at,
                lastmod: column(row, 4)?,
                content: content_info_of(row, [5, 6, 7])?,
            },
            revision: column(row, 8)?,
            content_revision: column(row, 9)?,
            is_rejected: row.get(10)?,
        });
    }
    Ok(statements)
}

pub(crate) fn put(sql: &Connection, id: ResourceId, statement: &Statement) -> Result<()> {
    let entry = &statement.entry;
    let stated = match entry.stated {
        Stated::Change(kind) => StatedKind::Change(kind),
        Stated::Listed(_) => StatedKind::Listed,
        Stated::Absent(_) => StatedKind::Absent,
    };
    let content = ContentColumns::from(&entry.content);
    sql.prepare_cached(
        "INSERT INTO statement (resource_id, set_id, voice, stated, at, lastmod, length, media_type, hashes, revision, content_revision, rejected)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
         ON CONFLICT (resource_id, set_id, voice) DO UPDATE SET
             stated = excluded.stated, at = excluded.at, lastmod = excluded.lastmod, length = excluded.length,
             media_type = excluded.media_type, hashes = excluded.hashes, revision = excluded.revision,
             content_revision = excluded.content_revision, rejected = excluded.rejected",
    )?
    .execute(params![
        id,
        entry.set.0,
        Column(&entry.voice),
        Column(&stated),
        Column(&entry.at),
        Column(&entry.lastmod),
        content.length,
        content.media_type,
        content.hashes,
        Column(&statement.revision),
        Column(&statement.content_revision),
        statement.is_rejected,
    ])
    .map(drop)
}

pub(crate) fn delete(
    sql: &Connection,
    id: ResourceId,
    (set, voice): (SetKey, Voice),
) -> Result<()> {
    sql.prepare_cached(
        "DELETE FROM statement WHERE resource_id = ?1 AND set_id = ?2 AND voice = ?3",
    )?
    .execute(params![id, set.0, Column(&voice)])
    .map(drop)
}

/// The resources of which a hub has stated something of a time that the documents of the set cover, at most so many.
pub(crate) fn covered_claims(
    sql: &Connection,
    set: SetId,
    limit: usize,
) -> Result<Vec<ResourceId>> {
    sql.prepare_cached(
        "SELECT resource_id FROM statement JOIN source_set ON source_set.id = statement.set_id
         WHERE set_id = ?1 AND voice = 'hub' AND (at < list_at OR at < read_until AND (read_from IS NULL OR at >= read_from))
         LIMIT ?2",
    )?
    .query_map(params![set, Count::of_rows(limit)], |row| row.get(0))?
    .collect()
}

pub(crate) fn delete_of_set(sql: &Connection, set: SetId) -> Result<()> {
    sql.prepare_cached("DELETE FROM statement WHERE set_id = ?1")?
        .execute([set])
        .map(drop)
}
