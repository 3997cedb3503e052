//! `resource`: what the mirror has, and what was last applied. A row exists from the first entry that names the resource on, also while
//! nothing was applied, and goes with [`remove`].

pub(crate) mod audit;
pub(crate) mod listing;
pub(crate) mod unconfirmed;
pub(crate) mod unused;

use chrono::{DateTime, Utc};
use resourcesync::{ChangeKind, ContentInfo, Digest, Link, SourceTime};
use resyncd_core::{Decision, LocalState, Pending, ResourceUri, ServedVersion, plan_listed};
use resyncd_mirror::{other_of_plain_path, uris_of_plain_path};
use rusqlite::{CachedStatement, Connection, OptionalExtension, Result, Row, params};

use super::identity::{Identity, spelling};
use super::media_type::{MediaType, PackedMediaType};
use super::membership::Membership;
use super::relation::RelationKind;
use super::served_version::{PackedETag, PackedTime, served_by};
use super::tally::Tallied;
use super::task::{self, Task};
use super::values::{
    Column, Count, DigestList, HashAttribute, LinkList, Micros, PackedDigests, column, content_info,
};
use super::{mirrored_path, source_set};
use crate::store::change::{Change, Origin};
use crate::store::ids::{ResourceId, SetId};

/// Whether the file of a resource may be another than is recorded, or may be there although nothing is recorded.
pub(crate) const IS_DOUBTED: &str = "(resource.doubted OR (resource.applied_at IS NULL
    AND resource.id <= COALESCE((SELECT unrecorded_until FROM session WHERE session.id = 1), 0)))";

/// A resource for display.
#[derive(Clone, Debug)]
pub struct ResourceView {
    /// Its URI.
    pub uri: ResourceUri,
    /// The label of its Source.
    pub source: String,
    /// The Capability List of the set that announced it last.
    pub set: String,
    /// Its file, relative to the mirror.
    pub path: Option<String>,
    /// The length of the file, in bytes.
    pub length: Option<u64>,
    /// The announced media type, or else the served one.
    pub media_type: Option<String>,
    /// The content coding of the file; `None` if it is not coded.
    pub encoding: Option<String>,
    /// The digests of the file, as the `hash` attribute has them; empty where the Source states none.
    pub hashes: String,
    /// When it was last modified.
    pub lastmod: Option<SourceTime>,
    /// When the change happened that was applied last.
    pub changed_at: Option<SourceTime>,
    /// When that was applied, on our clock.
    pub applied_at: Option<DateTime<Utc>>,
    /// Whether it was deleted.
    pub deleted: bool,
    /// Its related resources (section 14).
    pub links: Vec<Link>,
    /// The resources whose links name it as metadata, or as what they describe; only where it is looked up by itself.
    pub named_by: Vec<(RelationKind, String)>,
}

/// The columns of a [`ResourceView`], its row, and whether the mirror has it.
const VIEW: &str = "resource.identity AS identity, resource.uri AS uri, resource.source AS source, capability_list, path, length, media_type, encoding, hashes,
    lastmod, changed_at, applied_at, deleted, links, resource.id AS id, applied_at IS NOT NULL AND deleted = 0 AS live";

impl ResourceView {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        let uri: ResourceUri = column(row, "uri")?;
        Ok(Self {
            path: mirrored_path::of(row.get("path")?, &uri),
            uri,
            source: row.get("source")?,
            set: row.get("capability_list")?,
            length: row.get::<_, Option<Count>>("length")?.map(u64::from),
            media_type: row
                .get::<_, Option<MediaType>>("media_type")?
                .map(|media_type| media_type.0),
            encoding: row.get("encoding")?,
            hashes: row.get::<_, HashAttribute>("hashes")?.0,
            lastmod: column(row, "lastmod")?,
            changed_at: column(row, "changed_at")?,
            applied_at: row
                .get::<_, Option<Micros>>("applied_at")?
                .map(DateTime::from),
            deleted: row.get("deleted")?,
            links: row.get::<_, LinkList<_>>("links")?.0,
            named_by: Vec::new(),
        })
    }
}

/// A resource that was applied at least once. Where several Sources have it, the live one and the oldest row come first.
pub(crate) fn view(sql: &Connection, uri: &ResourceUri) -> Result<Option<ResourceView>> {
    sql.prepare_cached(&format!(
        "SELECT {VIEW} FROM resource JOIN source_set ON source_set.id = resource.set_id
         WHERE resource.source IN (SELECT DISTINCT source FROM source_set) AND identity = ?1 AND applied_at IS NOT NULL
         ORDER BY deleted, resource.id LIMIT 1"
    ))?
    .query_row([Identity(uri)], ResourceView::from_row)
    .optional()
}

/// A resource as the transaction finds it that applies a change of one of its sets.
pub(crate) struct ResourceState {
    pub(crate) id: ResourceId,
    /// What was applied last; `None`: nothing yet.
    pub(crate) known: Option<LocalState>,
    /// Its task.
    pub(crate) pending: Option<Pending>,
    /// Whether the task was announced by a Resource List or Resource Dump of this set.
    pub(crate) is_pending_of_own_list: bool,
    /// The set that announced the task.
    pub(crate) pending_set: Option<SetId>,
    /// Whether the task is a deletion of a document that was not ingested to its end.
    pub(crate) is_interrupted: bool,
    /// Whether its file may be another than is recorded, or may be there although nothing is recorded.
    pub(crate) is_doubted: bool,
    /// Whether links are stored of the version that the mirror has, or with the task.
    pub(crate) has_links: bool,
    /// The set that announced it last.
    pub(crate) announced_by: SetId,
    /// Its membership in this set.
    pub(crate) membership: Option<Membership>,
    /// When it was applied, or confirmed, on our clock.
    pub(crate) applied_at: Option<DateTime<Utc>>,
    /// Whether its URI was written in another way than in what it is compared with.
    pub(crate) is_respelled: bool,
}

impl ResourceState {
    /// When the pending change happened.
    pub(crate) fn pending_at(&self) -> Option<SourceTime> {
        self.pending.as_ref().and_then(|pending| pending.changed_at)
    }

    /// Whether its task is a deletion.
    pub(crate) fn is_deletion_pending(&self) -> bool {
        (self.pending.as_ref()).is_some_and(|pending| pending.kind == ChangeKind::Deleted)
    }

    /// The pending change as a Resource List compares it: a task that an earlier list of the set announced does not count.
    pub(crate) fn pending_for_listing(&self) -> Option<&Pending> {
        self.pending
            .as_ref()
            .filter(|_| !self.is_pending_of_own_list)
    }

    /// Plans an entry of a list of a set and of the time `at`.
    pub(crate) fn planned_for_list(
        &self,
        sql: &Connection,
        set: SetId,
        at: SourceTime,
        entry: &Change,
    ) -> Result<Decision> {
        let pending = self.pending_for_listing();
        let (announced, known) = (entry.announced(), self.known.as_ref());
        // What a set has stated that has ended, no other statement contradicts any more.
        let is_own = self.announced_by == set || !source_set::is_followed(sql, self.announced_by)?;
        Ok(plan_listed(&announced, at, known, pending, is_own))
    }
}

/// The state of a resource as `set` sees it; `None`: it has no row.
pub(crate) fn state(
    sql: &Connection,
    source: &str,
    uri: &ResourceUri,
    set: SetId,
) -> Result<Option<ResourceState>> {
    StateQuery::new(sql)?.state(source, uri, set)
}

/// The query of the states of resources, prepared once for the entries of a document.
pub(crate) struct StateQuery<'a>(CachedStatement<'a>);

impl<'a> StateQuery<'a> {
    pub(crate) fn new(sql: &'a Connection) -> Result<Self> {
        // Columns go by number: this is read once an entry of a document.
        let statement = sql.prepare_cached(&format!(
            "SELECT resource.id, resource.set_id, resource.applied_at, resource.length, resource.hashes,
                    resource.lastmod, resource.changed_at, resource.deleted, resource.change,
                    task.kind, task.changed_at, task.origin, task.set_id, member.generation, member.part,
                    task.state IS 'interrupted', resource.links IS NOT NULL OR task.links IS NOT NULL, {IS_DOUBTED}, resource.unconfirmed,
                    task.unconfirmed, resource.answered_until, member.named_at, resource.spelling
             FROM resource LEFT JOIN task ON task.resource_id = resource.id
                  LEFT JOIN member ON member.set_id = ?3 AND member.resource_id = resource.id
             WHERE resource.source = ?1 AND resource.identity = ?2"
        ))?;
        Ok(Self(statement))
    }

    /// The state of a resource as `set` sees it; `None`: it has no row.
    pub(crate) fn state(
        &mut self,
        source: &str,
        uri: &ResourceUri,
        set: SetId,
    ) -> Result<Option<ResourceState>> {
        let found = self
            .0
            .query_row(params![source, Identity(uri), set], |row| {
                let applied_at: Option<Micros> = row.get(2)?;
                let is_doubted = row.get(17)?;
                let known = if applied_at.is_some() {
                    Some(LocalState {
                        length: row.get::<_, Option<Count>>(3)?.map(u64::from),
                        hashes: row.get::<_, DigestList<_>>(4)?.0,
                        lastmod: column(row, 5)?,
                        changed_at: column(row, 6)?,
                        deleted: row.get(7)?,
                        kind: column(row, 8)?,
                        is_doubted,
                        unconfirmed: row.get(18)?,
                        answered_until: column(row, 20)?,
                    })
                } else {
                    None
                };
                let pending_origin: Option<Origin> = column(row, 11)?;
                let pending = match column(row, 9)? {
                    Some(kind) => Some(Pending {
                        kind,
                        changed_at: column(row, 10)?,
                        unconfirmed: row.get(19)?,
                        is_listed: pending_origin.is_some_and(Origin::is_listing),
                    }),
                    None => None,
                };
                let pending_set: Option<SetId> = row.get(12)?;
                let membership = match row.get(13)? {
                    Some(generation) => Some(Membership {
                        generation,
                        part: row.get(14)?,
                        named_at: column(row, 21)?,
                    }),
                    None => None,
                };
                Ok(ResourceState {
                    id: row.get(0)?,
                    known,
                    pending,
                    is_pending_of_own_list: pending_origin.is_some_and(Origin::is_listing)
                        && pending_set == Some(set),
                    pending_set,
                    is_interrupted: row.get(15)?,
                    is_doubted,
                    has_links: row.get(16)?,
                    announced_by: row.get(1)?,
                    membership,
                    applied_at: applied_at.map(DateTime::from),
                    is_respelled: row.get_ref(22)?.as_str_or_null()? != spelling(uri),
                })
            });
        found.optional()
    }
}

pub(crate) fn insert(
    sql: &Connection,
    source: &str,
    uri: &ResourceUri,
    set: SetId,
    path: &str,
) -> Result<ResourceId> {
    // A number is not used again while entries of the feed may name it.
    sql.prepare_cached(
        "INSERT INTO resource (id, source, identity, spelling, set_id, path) VALUES (
             1 + MAX((SELECT COALESCE(MAX(id), 0) FROM resource), (SELECT COALESCE(MAX(id), 0) FROM removed_resource)), ?1, ?2, ?3, ?4, ?5)",
    )?
    .execute(params![
        source,
        Identity(uri),
        spelling(uri),
        set,
        mirrored_path::stored(path, uri)
    ])?;
    Ok(ResourceId(sql.last_insert_rowid()))
}

/// Removes a resource and what depends on it. Its URI moves to `removed_resource` if the feed may name it.
pub(crate) fn remove(sql: &Tallied<'_>, id: ResourceId) -> Result<()> {
    task::delete(sql, id)?;
    for statement in [
        "INSERT INTO removed_resource (id, identity, uri, last)
         SELECT id, identity, uri, (SELECT MAX(seq) FROM feed) FROM resource
         WHERE id = ?1 AND applied_at IS NOT NULL AND (length IS NOT NULL OR deleted = 0) AND (SELECT MAX(seq) FROM feed) IS NOT NULL",
        "UPDATE resource_count SET resources = resources - 1 WHERE source = (SELECT source FROM resource WHERE id = ?1)",
        "DELETE FROM dropped_task WHERE resource_id = ?1",
        "DELETE FROM loss WHERE resource_id = ?1",
        "DELETE FROM member WHERE resource_id = ?1",
        "DELETE FROM tombstone WHERE resource_id = ?1",
        "DELETE FROM relation WHERE resource_id = ?1",
        "DELETE FROM standing WHERE resource_id = ?1",
        "DELETE FROM linked WHERE owner_id = ?1",
        "DELETE FROM linked WHERE resource_id = ?1",
        "DELETE FROM version WHERE resource_id = ?1",
        "DELETE FROM version_task WHERE resource_id = ?1",
        "DELETE FROM resource WHERE id = ?1",
    ] {
        sql.prepare_cached(statement)?.execute([id])?;
    }
    Ok(())
}

/// Stores how the Source writes the URI of a resource now.
pub(crate) fn set_spelling(sql: &Connection, id: ResourceId, uri: &ResourceUri) -> Result<()> {
    sql.prepare_cached("UPDATE resource SET spelling = ?2 WHERE id = ?1")?
        .execute(params![id, spelling(uri)])
        .map(drop)
}

/// Whether a path belongs to another resource of the Source.
pub(crate) fn is_path_of_another(
    sql: &Connection,
    source: &str,
    path: &str,
    uri: &ResourceUri,
) -> Result<bool> {
    if is_stored_path_of_another(sql, source, path, uri)? {
        return Ok(true);
    }
    for other in uris_of_plain_path(path) {
        if other != *uri && has_plain_path(sql, source, &other.identity())? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether the plain path of a resource belongs to another one of the Source.
pub(crate) fn is_plain_path_of_another(
    sql: &Connection,
    source: &str,
    plain: &str,
    uri: &ResourceUri,
) -> Result<bool> {
    if is_stored_path_of_another(sql, source, plain, uri)? {
        return Ok(true);
    }
    match other_of_plain_path(uri) {
        Some(other) => has_plain_path(sql, source, &other),
        None => Ok(false),
    }
}

fn is_stored_path_of_another(
    sql: &Connection,
    source: &str,
    path: &str,
    uri: &ResourceUri,
) -> Result<bool> {
    sql.prepare_cached("SELECT 1 FROM resource WHERE source = ?1 AND path = ?2 AND identity <> ?3")?
        .exists(params![source, path, Identity(uri)])
}

fn has_plain_path(sql: &Connection, source: &str, identity: &str) -> Result<bool> {
    sql.prepare_cached(
        "SELECT 1 FROM resource WHERE source = ?1 AND identity = ?2 AND path IS NULL",
    )?
    .exists([source, identity])
}

/// The set that announced a resource last; `None`: it has no row.
pub(crate) fn set_of(sql: &Connection, source: &str, uri: &ResourceUri) -> Result<Option<SetId>> {
    sql.prepare_cached("SELECT set_id FROM resource WHERE source = ?1 AND identity = ?2")?
        .query_row(params![source, Identity(uri)], |row| row.get(0))
        .optional()
}

/// The length of the resource's file, in bytes; `None`: the mirror has none.
pub(crate) fn live_length(sql: &Connection, id: ResourceId) -> Result<Option<i64>> {
    sql.prepare_cached(
        "SELECT COALESCE(length, 0) FROM resource WHERE id = ?1 AND applied_at IS NOT NULL AND deleted = 0",
    )?
    .query_row([id], |row| row.get(0))
    .optional()
}

/// What a resource has when one of its tasks was executed.
#[derive(Clone, Copy)]
pub(crate) struct FileAndTask {
    /// The length of its file, in bytes; `None`: the mirror has none.
    pub(crate) live_length: Option<i64>,
    /// Whether it has a task, or no row at all.
    pub(crate) has_task: bool,
}

/// Whether a resource has a file and a task.
pub(crate) fn file_and_task(sql: &Connection, id: ResourceId) -> Result<FileAndTask> {
    let found = sql
        .prepare_cached(
            "SELECT CASE WHEN applied_at IS NOT NULL AND deleted = 0 THEN COALESCE(length, 0) END,
                    EXISTS (SELECT 1 FROM task WHERE resource_id = ?1)
             FROM resource WHERE id = ?1",
        )?
        .query_row([id], |row| {
            Ok(FileAndTask {
                live_length: row.get(0)?,
                has_task: row.get(1)?,
            })
        })
        .optional()?;
    Ok(found.unwrap_or(FileAndTask {
        live_length: None,
        has_task: true,
    }))
}

/// A file whose links are others now.
pub(crate) struct Relinked {
    /// Its path, relative to the mirror.
    pub(crate) path: String,
    /// Its length, in bytes.
    pub(crate) length: Option<u64>,
}

/// Stores the links that are stated of the version that the mirror has, in place of those that were stated before. `None`: they are
/// the same, or the mirror has no file.
pub(crate) fn set_links(
    sql: &Connection,
    id: ResourceId,
    links: &[Link],
) -> Result<Option<Relinked>> {
    let relinked = sql
        .prepare_cached(
            "UPDATE resource SET links = ?2 WHERE id = ?1 AND deleted = 0 AND links IS NOT ?2
             RETURNING applied_at IS NOT NULL, path, uri, length",
        )?
        .query_row(params![id, LinkList(links)], |row| {
            let is_stored: bool = row.get(0)?;
            if !is_stored {
                return Ok(None);
            }
            Ok(Some(Relinked {
                path: mirrored_path::given(row.get(1)?, &column(row, 2)?)?,
                length: row.get::<_, Option<Count>>(3)?.map(u64::from),
            }))
        })
        .optional()?;
    Ok(relinked.flatten())
}

/// Whether the mirror has a file of a resource with other links than these.
pub(crate) fn has_other_links(sql: &Connection, id: ResourceId, links: &[Link]) -> Result<bool> {
    sql.prepare_cached(
        "SELECT 1 FROM resource WHERE id = ?1 AND applied_at IS NOT NULL AND deleted = 0 AND links IS NOT ?2",
    )?
    .exists(params![id, LinkList(links)])
}

/// Makes the revision of the resource's next task greater than that of the current one, which is dropped. If the Source was to be asked
/// by it, the comparison that led to it is to be made again.
pub(crate) fn raise_next_revision(sql: &Connection, id: ResourceId) -> Result<()> {
    sql.prepare_cached(
        "UPDATE resource SET next_version = 1 + (SELECT version FROM task WHERE resource_id = ?1), unused_since = NULL,
             compared = compared AND (SELECT contradicted = 0 FROM task WHERE resource_id = ?1)
         WHERE id = ?1",
    )?
    .execute([id])?;
    Ok(())
}

/// A file that was published.
#[derive(Debug)]
pub struct Publication {
    /// The task.
    pub task: Task,
    /// The path of the file, relative to the mirror.
    pub path: String,
    /// Its length, in bytes.
    pub length: u64,
    /// The announced media type, or else the served one; `None`, where its bytes are not new: as before.
    pub media_type: Option<String>,
    /// The content coding of its bytes, if they are coded; `None`, where they are not new: as before.
    pub encoding: Option<String>,
    /// Its digests.
    pub hashes: Vec<Digest>,
    /// When it was last modified, as announced or else as served; `None`, where its bytes are not new: as before.
    pub lastmod: Option<SourceTime>,
    /// The validators with which it was served; `None`, where its bytes are not new: as before.
    pub version: Option<ServedVersion>,
    /// Whether its bytes are new; if not, the feed gets no entry.
    pub has_new_bytes: bool,
    /// Whether its bytes were made from those of the version before by a patch.
    pub is_patched: bool,
    /// Whether it is stored as a version, too.
    pub stored_version: StoredVersion,
}

impl Publication {
    /// Whether all bytes of a file that the mirror has were fetched because of its `lastmod` alone: its list states nothing else of it, and
    /// the server did not answer that it is not modified. A change of another document counts only if it was one.
    pub(crate) fn is_copy_of_lastmod(&self) -> bool {
        let task = &self.task;
        let content = &task.content;
        (task.origin == Origin::ResourceList || self.has_new_bytes && !task.origin.is_of_person())
            && task.live
            && !task.live_doubted
            && task.changed_at.is_some()
            && content.length.is_none()
            && content.hashes.is_empty()
            && (self.version.is_some() || task.live_version.is_none())
    }
}

/// What becomes of a published file as a version of its resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StoredVersion {
    /// Versions are not stored.
    #[default]
    Ignored,
    /// It has no time.
    Timeless,
    /// Other bytes are stored as the version of that time.
    Conflicting(SourceTime),
    /// It is stored as the version of that time.
    Stored(SourceTime),
    /// The version of that time is to be stored later.
    Due(SourceTime),
}

/// Stores a published file. `lastmod` replaces that of the publication. Returns whether the resource has a row still.
pub(crate) fn publish(
    sql: &Connection,
    publication: &Publication,
    lastmod: Option<SourceTime>,
    now: DateTime<Utc>,
) -> Result<bool> {
    let task = &publication.task;
    let version = publication.version.as_ref();
    let path = mirrored_path::stored(&publication.path, &task.uri);
    let store = |place: &str, condition: &str| {
        sql.prepare_cached(&format!(
            "UPDATE resource SET {place} length = ?4, hashes = ?6,
             media_type = COALESCE(?5, CASE ?11 WHEN 0 THEN media_type END),
             encoding = COALESCE(?16, CASE ?11 WHEN 0 THEN encoding END),
             lastmod = COALESCE(?7, CASE ?11 WHEN 0 THEN lastmod END),
             served_by = CASE WHEN ?11 OR ?12 IS NOT NULL THEN ?12 ELSE served_by END,
             etag = CASE WHEN ?11 OR ?12 IS NOT NULL THEN ?13 ELSE etag END,
             last_modified = CASE WHEN ?11 OR ?12 IS NOT NULL THEN ?14 ELSE last_modified END,
             links = ?15, changed_at = COALESCE(?8, changed_at), applied_at = ?9, change = ?10, deleted = 0, doubted = 0, unconfirmed = ?17,
             compared = compared AND changed_at IS COALESCE(?8, changed_at)
             WHERE id = ?1 {condition}"
        ))?
        .execute(params![
            task.resource,
            task.set,
            path,
            Count(publication.length),
            publication.media_type.as_deref().map(PackedMediaType),
            PackedDigests(&publication.hashes),
            Column(&lastmod),
            Column(&task.changed_at),
            Micros(now),
            Column(&change_of(task)),
            publication.has_new_bytes,
            version.map(|version| served_by(version, &task.uri)),
            version.and_then(PackedETag::of),
            version.and_then(PackedTime::of),
            LinkList(&task.links),
            publication.encoding,
            task.unconfirmed,
        ])
    };
    // Nearly every file is where its row has it. An update that names the path writes its index anew, also with the same path.
    let is_stored = store("", "AND set_id = ?2 AND path IS ?3")? > 0
        || store("set_id = ?2, path = ?3,", "")? > 0;
    unconfirmed::set_answered(sql, task)?;
    Ok(is_stored)
}

/// Stores that a resource was deleted.
pub(crate) fn delete(sql: &Connection, task: &Task, now: DateTime<Utc>) -> Result<()> {
    sql.prepare_cached(
        "UPDATE resource SET set_id = ?2, changed_at = COALESCE(?3, changed_at), applied_at = ?4, change = ?5, deleted = 1,
             links = NULL, doubted = 0, unconfirmed = ?6,
             compared = compared AND deleted = 1 AND changed_at IS COALESCE(?3, changed_at)
         WHERE id = ?1",
    )?
    .execute(params![
        task.resource,
        task.set,
        Column(&task.changed_at),
        Micros(now),
        Column(&change_of(task)),
        task.unconfirmed,
    ])?;
    unconfirmed::set_answered(sql, task)
}

/// Records that a resource of which nothing is recorded is deleted, although there may be a file of it. Whatever is stated of it later is
/// news. The Source's answer may be old: it is asked again before the file is removed.
pub(crate) fn record_absence(sql: &Connection, id: ResourceId, now: DateTime<Utc>) -> Result<()> {
    sql.prepare_cached(
        "UPDATE resource SET applied_at = ?2, deleted = 1, doubted = 1, unconfirmed = 1, compared = 1
         WHERE id = ?1 AND applied_at IS NULL",
    )?
    .execute(params![id, Micros(now)])
    .map(drop)
}

/// Records that the file of a resource may be another than is recorded.
pub(crate) fn doubt(sql: &Connection, id: ResourceId) -> Result<()> {
    sql.prepare_cached("UPDATE resource SET doubted = 1 WHERE id = ?1 AND doubted = 0")?
        .execute([id])
        .map(drop)
}

/// The same for every resource that has a task and of which something is recorded.
pub(crate) fn doubt_all_with_tasks(sql: &Connection) -> Result<()> {
    sql.execute(
        "UPDATE resource SET doubted = 1 WHERE doubted = 0 AND applied_at IS NOT NULL AND id IN (SELECT resource_id FROM task)",
        [],
    )
    .map(drop)
}

/// The Source and the URI of a resource, and a set that is followed: the one that has announced it last or, if that has ended, another
/// one that it belongs to. `None`: there is no such set, or it has no row.
pub(crate) fn followed(
    sql: &Connection,
    id: ResourceId,
) -> Result<Option<(String, SetId, ResourceUri)>> {
    sql.prepare_cached(
        "SELECT resource.source, source_set.id, resource.uri FROM resource
         JOIN source_set ON source_set.id IN (
             SELECT resource.set_id UNION ALL SELECT member.set_id FROM member WHERE member.resource_id = resource.id)
         WHERE resource.id = ?1 AND ended = 0 ORDER BY source_set.id <> resource.set_id, source_set.id LIMIT 1",
    )?
    .query_row([id], |row| Ok((row.get(0)?, row.get(1)?, column(row, 2)?)))
    .optional()
}

/// The kind of the change that was applied; a listing states none.
fn change_of(task: &Task) -> Option<ChangeKind> {
    match task.origin {
        Origin::ResourceList | Origin::ResourceDump | Origin::Audit | Origin::Forget => None,
        Origin::Notification | Origin::ChangeList | Origin::ChangeDump => Some(task.kind),
    }
}

/// A file that is correct although the database did not know it.
pub(crate) struct AdoptedFile<'a> {
    pub(crate) path: &'a str,
    pub(crate) length: u64,
    pub(crate) media_type: Option<&'a str>,
    pub(crate) hashes: &'a [Digest],
    pub(crate) lastmod: Option<SourceTime>,
    pub(crate) changed_at: Option<SourceTime>,
}

/// Stores an adopted file.
pub(crate) fn adopt(
    sql: &Connection,
    id: ResourceId,
    uri: &ResourceUri,
    file: &AdoptedFile<'_>,
    now: DateTime<Utc>,
) -> Result<()> {
    sql.prepare_cached(
        "UPDATE resource SET path = ?2, length = ?3, media_type = COALESCE(?4, media_type), hashes = ?5, lastmod = ?6,
             changed_at = ?7, applied_at = ?8, change = NULL, deleted = 0, served_by = NULL, etag = NULL, last_modified = NULL,
             doubted = 0, unconfirmed = 0
         WHERE id = ?1",
    )?
    .execute(params![
        id,
        mirrored_path::stored(file.path, uri),
        Count(file.length),
        file.media_type.map(PackedMediaType),
        PackedDigests(file.hashes),
        Column(&file.lastmod),
        Column(&file.changed_at),
        Micros(now),
    ])?;
    Ok(())
}

/// The last applied state of a resource that has no task.
pub(crate) struct AppliedState {
    pub(crate) deleted: bool,
    pub(crate) changed_at: Option<SourceTime>,
    pub(crate) lastmod: Option<SourceTime>,
    pub(crate) content: ContentInfo,
    pub(crate) links: Vec<Link>,
    /// Whether only a hub has stated it.
    pub(crate) unconfirmed: bool,
}

/// The last applied state of a resource; `None` if it has a task, or nothing was applied.
pub(crate) fn applied_without_task(
    sql: &Connection,
    id: ResourceId,
) -> Result<Option<AppliedState>> {
    sql.prepare_cached(
        "SELECT deleted, changed_at, lastmod, length, media_type, hashes, links, unconfirmed FROM resource
         WHERE id = ?1 AND applied_at IS NOT NULL AND NOT EXISTS (SELECT 1 FROM task WHERE resource_id = ?1)",
    )?
    .query_row([id], |row| {
        Ok(AppliedState {
            deleted: row.get("deleted")?,
            changed_at: column(row, "changed_at")?,
            lastmod: column(row, "lastmod")?,
            content: content_info(row)?,
            links: row.get::<_, LinkList<_>>("links")?.0,
            unconfirmed: row.get("unconfirmed")?,
        })
    })
    .optional()
}
