//! The files that a Source's documents let one expect: the tasks of the normal reading, with what the state database knows of later
//! changes.

use resourcesync::{ContentInfo, Link, SourceTime};
use resyncd_core::ResourceUri;
use resyncd_mirror::{made_path, plain_path};

use super::AuditDb;
use crate::store::StoreError;
use crate::store::ids::{ResourceId, SetId};
use crate::store::sql::{Connection, OptionalExtension, Result, Row, params};
use crate::store::tables::identity::Identity;
use crate::store::tables::mirrored_path;
use crate::store::tables::resource::audit::PathOwners;
use crate::store::tables::values::{
    Column, Count, LinkList, column, content_info, content_info_of,
};

/// The resources that the state database knows not to be selected, as they were served.
pub(super) const TABLE: &str = "CREATE TABLE unselected (identity TEXT PRIMARY KEY) WITHOUT ROWID;";

/// Whether a change states no time: then it may be older than what is known, and the bytes are unknown; after a deletion also whether there
/// are any.
const IS_UNDATED: &str =
    "(task.changed_at IS NULL AND task.origin NOT IN ('resource-list', 'resource-dump'))";

/// The time of what is stated of a resource, or of the list that states it. An entry that is dated by a day which had begun when the list
/// was made counts as of the time of the list.
const STATED_AT: &str =
    "COALESCE((SELECT CASE WHEN task.origin IN ('resource-list', 'resource-dump') THEN reading_at
        ELSE MAX(COALESCE(task.changed_at, list_at), COALESCE(list_at, task.changed_at)) END
    FROM main.source_set WHERE id = task.set_id), -9223372036854775808)";

/// The times of the Resource List or Resource Dump of a set.
#[derive(Clone, Copy, Debug)]
pub struct ListTimes {
    /// The set.
    pub set: SetId,
    /// Its own.
    pub at: SourceTime,
    /// That as of which its entries count: the end of time, if nothing else states anything of the set.
    pub entries_at: SourceTime,
}

/// An expected file of the mirror.
#[derive(Clone, Debug)]
pub struct Expectation {
    /// The row of its resource.
    pub id: ResourceId,
    /// The set that announced it; `None`: only the state database has it.
    pub set: Option<SetId>,
    /// The resource.
    pub uri: ResourceUri,
    /// The path of its file, relative to the mirror.
    pub path: String,
    /// When it changed, if that is stated.
    pub changed_at: Option<SourceTime>,
    /// When it was last modified.
    pub lastmod: Option<SourceTime>,
    /// Its content, as far as that is stated.
    pub content: ContentInfo,
    /// Its related resources.
    pub links: Vec<Link>,
    /// Whether the state database has its file as live.
    pub is_known: bool,
}

const EXPECTATION: &str = "SELECT resource.id AS id, NULLIF(task.set_id, 0) AS set_id, resource.uri AS uri, resource.path AS path,
        task.changed_at AS changed_at, task.lastmod AS lastmod, task.length AS length, task.media_type AS media_type, task.hashes AS hashes,
        task.links AS links, EXISTS (SELECT 1 FROM known.resource AS file WHERE file.source = resource.source
            AND file.identity = resource.identity AND file.applied_at IS NOT NULL AND file.deleted = 0) AS is_known
    FROM main.task NOT INDEXED JOIN main.resource ON resource.id = task.resource_id WHERE task.kind <> 'deleted'";

impl Expectation {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        let uri: ResourceUri = column(row, "uri")?;
        Ok(Self {
            id: row.get("id")?,
            set: row.get("set_id")?,
            path: mirrored_path::given(row.get("path")?, &uri)?,
            uri,
            changed_at: column(row, "changed_at")?,
            lastmod: column(row, "lastmod")?,
            content: content_info(row)?,
            links: row.get::<_, LinkList<_>>("links")?.0,
            is_known: row.get("is_known")?,
        })
    }
}

/// What is known of a path that has a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathState {
    /// Whether a file is, or may be, expected there.
    pub expected: bool,
    /// The resource that has, or had, this path.
    pub uri: Option<ResourceUri>,
    /// The set that announced it.
    pub set: Option<SetId>,
    /// Whether the state database has the resource, unless it is not selected.
    pub known: bool,
    /// Whether the state database has the file as live.
    pub live: bool,
}

impl AuditDb {
    /// Merges what the state database knows into what the documents state: a resource's path is the one that it has there, and an applied
    /// change counts that is newer than what the documents state. `lists`: the Resource Lists that were read. `wants` decides which
    /// resources the configuration includes, and `selects` by type and links whether one is wanted still that was not selected.
    pub fn merge_known(
        &self,
        lists: &[ListTimes],
        wants: impl Fn(&ResourceUri) -> bool,
        selects: impl Fn(Option<&str>, &[Link]) -> bool,
    ) -> Result<(), StoreError> {
        let source = &self.source;
        self.transaction(|sql| {
            for list in lists {
                sql.execute(
                    "UPDATE source_set SET list_at = ?2, reading_at = ?3 WHERE id = ?1",
                    params![list.set, Column(&list.at), Column(&list.entries_at)],
                )?;
            }
            drop_unselected(sql, source, selects)?;
            drop_unnamed(sql)?;
            take_paths(sql, source)?;
            take_later(sql)?;
            if let Some(since) = lists.iter().map(|list| list.at).min() {
                add_later(sql, source, since, wants)?;
            }
            Ok(())
        })
    }

    /// How many files are expected.
    pub fn expected(&self) -> Result<u64, StoreError> {
        let count = "SELECT COUNT(*) FROM main.task WHERE kind <> 'deleted'";
        let Count(count) = self
            .connection
            .lock()
            .query_row(count, [], |row| row.get(0))?;
        Ok(count)
    }

    /// The expected files after an id, in the order of their ids.
    pub fn expectations(
        &self,
        after: ResourceId,
        limit: usize,
    ) -> Result<Vec<Expectation>, StoreError> {
        self.page("", after, limit)
    }

    /// The same, of resources that have links.
    pub fn linked(&self, after: ResourceId, limit: usize) -> Result<Vec<Expectation>, StoreError> {
        self.page("AND task.links IS NOT NULL", after, limit)
    }

    fn page(
        &self,
        condition: &str,
        after: ResourceId,
        limit: usize,
    ) -> Result<Vec<Expectation>, StoreError> {
        let sql = self.connection.lock();
        let mut query = sql.prepare_cached(&format!(
            "{EXPECTATION} AND task.resource_id > ?1 {condition} ORDER BY task.resource_id LIMIT ?2"
        ))?;
        let found =
            query.query_map(params![after, Count::of_rows(limit)], Expectation::from_row)?;
        Ok(found.collect::<Result<_>>()?)
    }

    /// One expected file, by its id.
    ///
    /// # Errors
    /// [`StoreError`], also when there is none of that id.
    pub fn expectation(&self, id: ResourceId) -> Result<Expectation, StoreError> {
        let sql = self.connection.lock();
        let mut query = sql.prepare_cached(&format!("{EXPECTATION} AND task.resource_id = ?1"))?;
        Ok(query.query_row([id], Expectation::from_row)?)
    }

    /// What is known of a path.
    pub fn path_state(&self, path: &str) -> Result<PathState, StoreError> {
        let (sql, path) = (self.connection.lock(), PathOwners::of(path));
        let mut state = PathState::default();
        let stated = path.find(|condition, name| {
            sql.prepare_cached(&format!(
                "SELECT uri, NULLIF(resource.set_id, 0), task.kind <> 'deleted' OR {IS_UNDATED}
                 FROM main.resource LEFT JOIN main.task ON task.resource_id = resource.id WHERE resource.source = ?1 AND {condition}"
            ))?
            .query_row(params![self.source, name], |row| {
                let expected: Option<bool> = row.get(2)?;
                Ok((column(row, 0)?, row.get(1)?, expected.unwrap_or_default()))
            })
            .optional()
        })?;
        if let Some((uri, set, expected)) = stated {
            (state.uri, state.set, state.expected) = (Some(uri), set, expected);
        }
        let known = path.find(|condition, name| {
            sql.prepare_cached(&format!(
                "SELECT uri, identity NOT IN (SELECT identity FROM main.unselected), applied_at IS NOT NULL AND deleted = 0
                 FROM known.resource WHERE source = ?1 AND {condition}"
            ))?
            .query_row(params![self.source, name], |row| {
                Ok((column(row, 0)?, row.get(1)?, row.get(2)?))
            })
            .optional()
        })?;
        if let Some((uri, known, live)) = known {
            (state.uri, state.known, state.live) = (Some(uri), known, live);
        }
        Ok(state)
    }
}

/// Removes the tasks of what is not selected, by what is stated of it or as it was served, and what an entry without a time states of the
/// bytes.
fn drop_unselected(
    sql: &Connection,
    source: &str,
    selects: impl Fn(Option<&str>, &[Link]) -> bool,
) -> Result<()> {
    let mut query = sql.prepare_cached(
        "SELECT identity, task.links, task.length, task.media_type, task.hashes FROM known.task JOIN known.resource ON resource.id = task.resource_id
         WHERE task.source = ?1 AND task.state = 'rejected' AND task.kind <> 'deleted'",
    )?;
    let mut rows = query.query([source])?;
    while let Some(row) = rows.next()?.as_ref() {
        let (content, LinkList(links)) = (content_info_of(row, [2, 3, 4])?, row.get(1)?);
        if !selects(content.media_type.as_deref(), &links) {
            sql.prepare_cached("INSERT INTO unselected VALUES (?1)")?
                .execute([row.get::<_, String>(0)?])?;
        }
    }
    sql.execute_batch(&format!(
        "DELETE FROM main.task WHERE kind <> 'deleted' AND state = 'rejected' OR resource_id IN (
             SELECT id FROM main.resource JOIN unselected ON unselected.identity = resource.identity);
         UPDATE main.task SET lastmod = NULL, length = NULL, hashes = '', links = NULL WHERE kind <> 'deleted' AND {IS_UNDATED};"
    ))
}

/// Removes the tasks of what only links name, of resources that are not expected: a reading ends links with what it applies.
fn drop_unnamed(sql: &Connection) -> Result<()> {
    let drop_next =
        "DELETE FROM main.task WHERE kind <> 'deleted' AND resource_id IN (SELECT resource_id FROM main.linked) AND NOT EXISTS (
             SELECT 1 FROM main.member WHERE member.resource_id = task.resource_id AND member.named_by <> 2)
         AND NOT EXISTS (SELECT 1 FROM main.linked JOIN main.task AS owner ON owner.resource_id = linked.owner_id
                         WHERE linked.resource_id = task.resource_id AND owner.kind <> 'deleted')";
    while sql.execute(drop_next, [])? > 0 {}
    Ok(())
}

/// Takes the paths of the state database. One that another resource has there is not that of a new one.
fn take_paths(sql: &Connection, source: &str) -> Result<()> {
    let set_path = |id: ResourceId, path: Option<&str>| {
        sql.prepare_cached("UPDATE main.resource SET path = ?2 WHERE id = ?1")?
            .execute(params![id, path])
    };
    let mut query = sql.prepare_cached(
        "SELECT resource.id, resource.uri, file.path FROM main.resource JOIN known.resource AS file
             ON file.source = resource.source AND file.identity = resource.identity WHERE file.path IS NOT resource.path",
    )?;
    let mut rows = query.query([])?;
    while let Some(row) = rows.next()?.as_ref() {
        let path: Option<String> = row.get(2)?;
        if path.is_some() || plain_path(&column(row, 1)?).is_some() {
            set_path(row.get(0)?, path.as_deref())?;
        }
    }
    let mut query = sql.prepare_cached(
        "SELECT resource.id, resource.uri FROM main.resource WHERE resource.path IS NULL AND NOT EXISTS (
             SELECT 1 FROM known.resource AS file WHERE file.source = resource.source AND file.identity = resource.identity)",
    )?;
    let mut rows = query.query([])?;
    while let Some(row) = rows.next()?.as_ref() {
        let uri: ResourceUri = column(row, 1)?;
        let Some(plain) = plain_path(&uri) else {
            continue;
        };
        let owner = PathOwners::of(plain.as_str()).find(|condition, name| {
            sql.prepare_cached(&format!(
                "SELECT 1 FROM known.resource WHERE source = ?1 AND {condition}"
            ))?
            .query_row([source, name], |_| Ok(()))
            .optional()
        });
        if owner?.is_some() {
            set_path(row.get(0)?, Some(made_path(&uri).as_str()))?;
        }
    }
    Ok(())
}

/// Takes the state of resources of which a later change was applied.
fn take_later(sql: &Connection) -> Result<()> {
    sql.execute_batch(&format!(
        "UPDATE main.task SET kind = CASE WHEN file.deleted THEN 'deleted' ELSE 'updated' END, changed_at = file.changed_at,
             lastmod = file.lastmod, length = file.length, media_type = file.media_type, hashes = file.hashes, links = file.links
         FROM main.resource JOIN known.resource AS file ON file.source = resource.source AND file.identity = resource.identity
         WHERE resource.id = task.resource_id AND file.applied_at IS NOT NULL AND file.changed_at > {STATED_AT}"
    ))
}

/// Adds the live resources that changed after a time and of which no document states anything.
fn add_later(
    sql: &Connection,
    source: &str,
    since: SourceTime,
    wants: impl Fn(&ResourceUri) -> bool,
) -> Result<()> {
    let mut query = sql.prepare_cached(
        "SELECT id, uri, path FROM known.resource AS file
         WHERE source = ?1 AND applied_at IS NOT NULL AND deleted = 0 AND changed_at > ?2 AND identity NOT IN (SELECT identity FROM unselected)
           AND NOT EXISTS (SELECT 1 FROM main.resource JOIN main.task ON task.resource_id = resource.id
                           WHERE resource.source = file.source AND resource.identity = file.identity)",
    )?;
    let mut rows = query.query(params![source, Column(&since)])?;
    while let Some(row) = rows.next()?.as_ref() {
        let (id, uri): (ResourceId, ResourceUri) = (row.get(0)?, column(row, 1)?);
        if !wants(&uri) || mirrored_path::of(row.get(2)?, &uri).is_none() {
            continue;
        }
        sql.prepare_cached(
            "INSERT INTO main.resource (source, identity, set_id, path, spelling)
             SELECT source, identity, 0, path, spelling FROM known.resource WHERE id = ?1
             ON CONFLICT (source, identity) DO UPDATE SET set_id = 0",
        )?
        .execute([id])?;
        sql.prepare_cached(
            "INSERT INTO main.task (resource_id, source, set_id, authority, kind, changed_at, lastmod, length, media_type, hashes, origin,
                                    state, links)
             SELECT (SELECT id FROM main.resource WHERE source = file.source AND identity = ?2), source, 0, '', 'updated', changed_at,
                 lastmod, length, media_type, hashes, 'audit', 'ready', links FROM known.resource AS file WHERE id = ?1",
        )?
        .execute(params![id, Identity(&uri)])?;
    }
    Ok(())
}
