//! Resources of which only a hub has stated the last change that is known, and whether a Change List was compared with it.

use resourcesync::SourceTime;
use resyncd_core::ResourceUri;
use rusqlite::{Connection, Result, params};

use crate::store::ids::{ResourceId, SetId};
use crate::store::tables::task::Task;
use crate::store::tables::values::{Column, Count, column};

/// What only a hub has stated of a resource, which is not trusted to speak for the Source.
#[derive(Clone, Debug)]
pub struct Unconfirmed {
    /// The resource.
    pub resource: ResourceId,
    /// Its URI.
    pub uri: ResourceUri,
    /// When it was changed, as the hub states.
    pub at: SourceTime,
    /// What became of the statement.
    pub state: UnconfirmedState,
}

/// What became of a statement that only a hub has made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnconfirmedState {
    /// The mirror has the resource, as the Source serves it.
    Live,
    /// The resource was deleted, because the Source does not serve it.
    Deleted,
    /// The hub states that the resource exists, and the Source answers that there is none: the task has failed.
    Unserved {
        /// Whether the mirror has the resource.
        live: bool,
    },
}

impl UnconfirmedState {
    /// Whether the statement was applied.
    pub(crate) fn is_applied(self) -> bool {
        matches!(self, Self::Live | Self::Deleted)
    }
}

/// Updates and creations of the set `?1` that were given up because the Source answers that there is no such resource. Where the mirror
/// does not have it, it must not be named by another document, and the task must not stand for an older change: these are
/// statements of the Source.
const IS_UNSERVED: &str = "
    task.set_id = ?1 AND task.state IN ('failed', 'unavailable') AND task.error_code IN ('not-found', 'gone') AND task.unconfirmed = 1
    AND task.kind <> 'deleted' AND (resource.applied_at IS NOT NULL AND resource.deleted = 0 OR (
        task.since >= task.changed_at AND NOT EXISTS (
            SELECT 1 FROM member WHERE member.resource_id = resource.id AND ((member.part IS NOT NULL AND member.part <> -2) OR member.set_id <> ?1))))";

/// What only a hub has stated for a time from `from` to before `until`, and what was not compared yet: up to `most` statements that were
/// applied to resources without a task, the oldest first, and as many of resources that the Source does not serve.
pub(crate) fn find(
    sql: &Connection,
    set: SetId,
    from: SourceTime,
    until: SourceTime,
    most: u64,
) -> Result<Vec<Unconfirmed>> {
    let applied = "SELECT id, uri, changed_at, deleted = 0 FROM resource
         WHERE set_id = ?1 AND unconfirmed = 1 AND compared = 0 AND changed_at >= ?2 AND changed_at < ?3
           AND NOT EXISTS (SELECT 1 FROM task WHERE task.resource_id = resource.id)
         ORDER BY changed_at LIMIT ?4";
    let unserved = format!(
        "SELECT resource.id, resource.uri, task.changed_at, resource.applied_at IS NOT NULL AND resource.deleted = 0
         FROM task JOIN resource ON resource.id = task.resource_id
         WHERE {IS_UNSERVED} AND task.changed_at >= ?2 AND task.changed_at < ?3
         ORDER BY resource.id LIMIT ?4"
    );
    let select = |query: &str, state: fn(bool) -> UnconfirmedState| {
        let values = params![set, Column(&from), Column(&until), Count(most)];
        sql.prepare_cached(query)?
            .query_map(values, |row| {
                Ok(Unconfirmed {
                    resource: row.get(0)?,
                    uri: column(row, 1)?,
                    at: column(row, 2)?,
                    state: state(row.get(3)?),
                })
            })?
            .collect::<Result<Vec<_>>>()
    };
    let mut found = select(applied, |live| {
        if live {
            UnconfirmedState::Live
        } else {
            UnconfirmedState::Deleted
        }
    })?;
    found.extend(select(&unserved, |live| UnconfirmedState::Unserved {
        live,
    })?);
    Ok(found)
}

/// Whether the Source does not serve a resource, as its task of that time has found.
pub(crate) fn is_unserved(
    sql: &Connection,
    set: SetId,
    id: ResourceId,
    at: SourceTime,
) -> Result<bool> {
    sql.prepare_cached(&format!(
        "SELECT 1 FROM task JOIN resource ON resource.id = task.resource_id
         WHERE {IS_UNSERVED} AND resource.id = ?2 AND task.changed_at = ?3"
    ))?
    .exists(params![set, id, Column(&at)])
}

/// Stores that what only a hub has stated was compared.
pub(crate) fn set_compared(sql: &Connection, id: ResourceId) -> Result<()> {
    sql.prepare_cached("UPDATE resource SET compared = 1 WHERE id = ?1")?
        .execute([id])
        .map(drop)
}

/// Stores that the Source itself has stated what only a hub had stated.
pub(crate) fn set_confirmed(sql: &Connection, id: ResourceId) -> Result<()> {
    sql.prepare_cached("UPDATE resource SET unconfirmed = 0 WHERE id = ?1")?
        .execute([id])
        .map(drop)
}

/// Stores until when a hub had stated changes of a task's resource when the Source was asked for it. Nothing, if the Source has
/// stated the change itself.
pub(crate) fn set_answered(sql: &Connection, task: &Task) -> Result<()> {
    if !task.unconfirmed {
        return Ok(());
    }
    sql.prepare_cached(
        "UPDATE resource SET answered_until = COALESCE(MAX(answered_until, ?2), ?2, answered_until) WHERE id = ?1",
    )?
    .execute(params![task.resource, Column(&task.changed_at)])
    .map(drop)
}
