//! `resource`: what the mirror has, and what was last applied. A row exists from the first entry that names the resource on, also while
//! nothing was applied, and goes with [`remove`].

pub(crate) mod audit;
pub(crate) mod listing;
pub(crate) mod unused;

use chrono::{DateTime, Utc};
use resourcesync::{ChangeKind, Digest, Link, SourceTime};
use resyncd_core::{
    Answer, Entry, LocalState, ResourceUri, Revision, ServedVersion, Stated, Statement, Voice,
    latest_plausible,
};
use resyncd_mirror::{other_of_plain_path, uris_of_plain_path};
use rusqlite::types::Null;

use super::identity::{Identity, spelling};
use super::media_type::{MediaType, PackedMediaType};
use super::membership::Membership;
use super::mirrored_path;
use super::relation::RelationKind;
use super::served_version::{PackedETag, PackedTime, served_by};
use super::tally::Tallied;
use super::task::{self, PendingTask, Task};
use super::values::{
    Column, Count, DigestList, HashAttribute, LinkList, Micros, PackedDigests, column,
    content_info_of, texts,
};
use crate::store::change::Origin;
use crate::store::ids::{ResourceId, SetId};
use crate::store::sql::{self, Connection, OptionalExtension, Result, Row, params};

/// Whether the file of a resource may be another than is recorded, or may be there although nothing is recorded.
pub(crate) const IS_DOUBTED: &str = "(resource.doubted = 1 OR (resource.applied_at IS NULL
    AND resource.id <= COALESCE((SELECT unrecorded_until FROM session WHERE session.id = 1), 0)))";

/// A resource for display.
#[derive(Clone, Debug)]
pub struct ResourceView {
    /// Its row.
    pub id: ResourceId,
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
            id: row.get("id")?,
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

/// The resource of a row; `None`: there is none.
pub(crate) fn view_of(sql: &Connection, id: ResourceId) -> Result<Option<ResourceView>> {
    sql.prepare_cached(&format!(
        "SELECT {VIEW} FROM resource JOIN source_set ON source_set.id = resource.set_id WHERE resource.id = ?1"
    ))?
    .query_row([id], ResourceView::from_row)
    .optional()
}

/// The resource of a Source that has a path in the mirror, and was applied at least once.
pub(crate) fn view_at(sql: &Connection, source: &str, path: &str) -> Result<Option<ResourceView>> {
    let stored = sql
        .prepare_cached(&format!(
            "SELECT {VIEW} FROM resource JOIN source_set ON source_set.id = resource.set_id
             WHERE resource.source = ?1 AND path = ?2 AND applied_at IS NOT NULL"
        ))?
        .query_row([source, path], ResourceView::from_row)
        .optional()?;
    if stored.is_some() {
        return Ok(stored);
    }
    for uri in uris_of_plain_path(path) {
        let plain = sql
            .prepare_cached(&format!(
                "SELECT {VIEW} FROM resource JOIN source_set ON source_set.id = resource.set_id
                 WHERE resource.source = ?1 AND identity = ?2 AND path IS NULL AND applied_at IS NOT NULL"
            ))?
            .query_row(params![source, Identity(&uri)], ResourceView::from_row)
            .optional()?;
        if plain.is_some() {
            return Ok(plain);
        }
    }
    Ok(None)
}

/// The greatest row; 0: there is none.
pub(crate) fn last_row(sql: &Connection) -> Result<ResourceId> {
    let last: Option<i64> = sql
        .prepare_cached("SELECT MAX(id) FROM resource")?
        .query_row([], |row| row.get(0))?;
    Ok(ResourceId(last.unwrap_or(0)))
}

/// The path of a resource that the mirror of a Source has.
pub(crate) fn live_path(
    sql: &Connection,
    source: &str,
    uri: &ResourceUri,
) -> Result<Option<String>> {
    let path = sql
        .prepare_cached(
            "SELECT path FROM resource WHERE source = ?1 AND identity = ?2 AND applied_at IS NOT NULL AND deleted = 0",
        )?
        .query_row(params![source, Identity(uri)], |row| row.get(0))
        .optional()?;
    Ok(path.and_then(|path| mirrored_path::of(path, uri)))
}

/// A resource as a transaction finds it: what the mirror has, what the Source has answered, and the task.
#[derive(Clone, Debug)]
pub(crate) struct ResourceState {
    pub(crate) id: ResourceId,
    /// What was applied last; `None`: nothing yet.
    pub(crate) known: Option<LocalState>,
    /// Who has stated it. Of a hub it is only the Source's answer to that.
    pub(crate) voice: Voice,
    /// Its task.
    pub(crate) task: Option<PendingTask>,
    /// Whether its file may be another than is recorded, or may be there although nothing is recorded.
    pub(crate) is_doubted: bool,
    /// Whether links are stored of the version that the mirror has, or with the task.
    pub(crate) has_links: bool,
    /// The set that announced what was applied last.
    pub(crate) announced_by: SetId,
    /// Its membership in this set.
    pub(crate) membership: Option<Membership>,
    /// When it was applied, or confirmed, on our clock.
    pub(crate) applied_at: Option<DateTime<Utc>>,
    /// Its URI, as the Source writes it.
    pub(crate) uri: ResourceUri,
    /// How many statements about it there have been.
    pub(crate) revision: Revision,
    /// The statements that were known when the file was fetched, or found to be what is served.
    pub(crate) fetched: Revision,
    /// The last answer of the Source, and the statements that were known when it was asked.
    pub(crate) answer: Option<(Answer, Revision)>,
    /// How many of its statements are rows.
    pub(crate) statements: i64,
    /// Whether the Source has stated a digest of the file.
    pub(crate) is_verified: bool,
}

impl ResourceState {
    /// Of a resource of which nothing is known but its row.
    pub(crate) fn new(id: ResourceId, uri: ResourceUri, set: SetId) -> Self {
        Self {
            id,
            known: None,
            voice: Voice::Source,
            task: None,
            is_doubted: false,
            has_links: false,
            announced_by: set,
            membership: None,
            applied_at: None,
            uri,
            revision: Revision::default(),
            fetched: Revision::default(),
            answer: None,
            statements: 0,
            is_verified: false,
        }
    }

    /// Whether its task is a deletion.
    pub(crate) fn is_deletion_pending(&self) -> bool {
        (self.task.as_ref()).is_some_and(|task| task.kind == ChangeKind::Deleted)
    }

    /// Whether the mirror has a file of it.
    pub(crate) fn is_live(&self) -> bool {
        self.known.as_ref().is_some_and(|known| !known.deleted)
    }
}

texts! {
    Answer:
        |answer| match answer {
            Self::Served => "served",
            Self::Changed => "changed",
            Self::Absent => "absent",
        },
        |text| match text {
            "served" => Some(Self::Served),
            "changed" => Some(Self::Changed),
            "absent" => Some(Self::Absent),
            _ => None,
        },
        "an answer of the Source";
}

/// The state of a resource as `set` sees it, by its row; `None`: it has none.
pub(crate) fn state_of(
    sql: &Connection,
    id: ResourceId,
    set: SetId,
) -> Result<Option<ResourceState>> {
    sql.prepare_cached(&state_query(
        "resource.id = ?1 AND CAST(?2 AS TEXT) IS NULL",
    ))?
    .query_row(params![id, Null, set], read_state)
    .optional()
}

/// The query of the states of resources, prepared once for the entries of a document.
pub(crate) struct StateQuery<'a>(sql::Statement<'a>);

impl<'a> StateQuery<'a> {
    pub(crate) fn new(sql: &'a Connection) -> Result<Self> {
        let condition = "resource.source = ?1 AND resource.identity = ?2";
        sql.prepare_cached(&state_query(condition)).map(Self)
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
            .query_row(params![source, Identity(uri), set], read_state);
        found.optional()
    }
}

/// Columns go by number: this is read once an entry of a document.
fn state_query(condition: &str) -> String {
    format!(
        "SELECT resource.id, resource.set_id, resource.applied_at, resource.length, resource.hashes,
                resource.lastmod, resource.changed_at, resource.deleted, resource.change, resource.voice, resource.uri,
                resource.revision, resource.fetched, resource.answer, resource.answered, resource.statements,
                resource.links IS NOT NULL OR task.links IS NOT NULL, {IS_DOUBTED}, member.named_by,
                task.set_id, task.kind, task.changed_at, task.lastmod, task.length, task.media_type, task.hashes, task.origin, task.state,
                task.unconfirmed, task.asks, task.stated, task.content_stated, task.version, resource.verified
         FROM resource LEFT JOIN task ON task.resource_id = resource.id
              LEFT JOIN member ON member.set_id = ?3 AND member.resource_id = resource.id
         WHERE {condition}"
    )
}

fn read_state(row: &Row<'_>) -> Result<ResourceState> {
    let applied_at: Option<Micros> = row.get(2)?;
    let is_doubted = row.get(17)?;
    let voice = voice_of(row.get(9)?);
    // The time that a hub states is none of the Source.
    let is_of_hub = voice == Voice::Hub;
    let known = if applied_at.is_some() {
        Some(LocalState {
            length: row.get::<_, Option<Count>>(3)?.map(u64::from),
            hashes: row.get::<_, DigestList<_>>(4)?.0,
            lastmod: column(row, 5)?,
            changed_at: column::<Option<SourceTime>>(row, 6)?.filter(|_| !is_of_hub),
            deleted: row.get(7)?,
            kind: column(row, 8)?,
            is_doubted,
        })
    } else {
        None
    };
    let answer: Option<Answer> = column(row, 13)?;
    let answered = column(row, 14)?;
    let task = match row.get(19)? {
        Some(set) => Some(PendingTask {
            set,
            kind: column(row, 20)?,
            changed_at: column(row, 21)?,
            lastmod: column(row, 22)?,
            content: content_info_of(row, [23, 24, 25])?,
            origin: column(row, 26)?,
            state: column(row, 27)?,
            unconfirmed: row.get(28)?,
            asks: row.get(29)?,
            stated: column(row, 30)?,
            content_stated: column(row, 31)?,
            version: row.get(32)?,
        }),
        None => None,
    };
    Ok(ResourceState {
        id: row.get(0)?,
        known,
        voice,
        task,
        is_doubted,
        has_links: row.get(16)?,
        announced_by: row.get(1)?,
        membership: row.get(18)?,
        applied_at: applied_at.map(DateTime::from),
        uri: column(row, 10)?,
        revision: column(row, 11)?,
        fetched: column(row, 12)?,
        answer: answer.map(|answer| (answer, answered)),
        statements: row.get(15)?,
        is_verified: row.get(33)?,
    })
}

pub(crate) fn insert(
    sql: &Connection,
    source: &str,
    uri: &ResourceUri,
    set: SetId,
    path: &str,
) -> Result<ResourceId> {
    sql.prepare_cached(
        "INSERT INTO resource (source, identity, spelling, set_id, path) VALUES (?1, ?2, ?3, ?4, ?5) RETURNING id",
    )?
    .query_row(
        params![source, Identity(uri), spelling(uri), set, mirrored_path::stored(path, uri)],
        |row| row.get(0),
    )
}

/// Removes a resource and what depends on it. Its URI moves to `removed_resource` if the feed may name it.
pub(crate) fn remove(sql: &Tallied<'_>, id: ResourceId) -> Result<()> {
    task::delete_with_resource(sql, id)?;
    for statement in [
        "INSERT INTO removed_resource (id, identity, uri, last)
         SELECT id, identity, uri, (SELECT MAX(seq) FROM feed) FROM resource
         WHERE id = ?1 AND applied_at IS NOT NULL AND (length IS NOT NULL OR deleted = 0) AND (SELECT MAX(seq) FROM feed) IS NOT NULL",
        "UPDATE resource_count SET resources = resources - 1 WHERE source = (SELECT source FROM resource WHERE id = ?1)",
        "DELETE FROM dropped_task WHERE resource_id = ?1",
        "DELETE FROM loss WHERE resource_id = ?1",
        "DELETE FROM member WHERE resource_id = ?1",
        "DELETE FROM statement WHERE resource_id = ?1",
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
            "UPDATE resource SET links = ?2 WHERE id = ?1 AND deleted = 0 AND links IS DISTINCT FROM ?2
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
        "SELECT 1 FROM resource WHERE id = ?1 AND applied_at IS NOT NULL AND deleted = 0 AND links IS DISTINCT FROM ?2",
    )?
    .exists(params![id, LinkList(links)])
}

/// Makes the revision of the resource's next task greater than that of the current one, which is dropped.
pub(crate) fn raise_next_revision(sql: &Connection, id: ResourceId) -> Result<()> {
    sql.prepare_cached(
        "UPDATE resource SET next_version = 1 + (SELECT version FROM task WHERE resource_id = ?1), unused_since = NULL WHERE id = ?1",
    )?
    .execute([id])?;
    Ok(())
}

/// Stores how many statements of a resource there have been, and how many of them are rows.
pub(crate) fn set_statements(
    sql: &Connection,
    id: ResourceId,
    revision: Revision,
    statements: usize,
) -> Result<()> {
    sql.prepare_cached("UPDATE resource SET revision = ?2, statements = ?3 WHERE id = ?1")?
        .execute(params![id, Column(&revision), Count::of_rows(statements)])
        .map(drop)
}

/// Stores what the Source has answered when the statements up to `asked` were known.
pub(crate) fn set_answer(
    sql: &Connection,
    id: ResourceId,
    answer: Answer,
    asked: Revision,
) -> Result<()> {
    sql.prepare_cached(
        "UPDATE resource SET answer = ?2, answered = ?3, fetched = CASE WHEN ?2 = 'served' THEN ?3 ELSE fetched END WHERE id = ?1",
    )?
    .execute(params![id, Column(&answer), Column(&asked)])
    .map(drop)
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

/// Stores a published file. `lastmod` replaces that of the publication.
pub(crate) fn publish(
    sql: &Connection,
    publication: &Publication,
    (voice, lastmod): (Voice, Option<SourceTime>),
    now: DateTime<Utc>,
) -> Result<()> {
    let task = &publication.task;
    let version = publication.version.as_ref();
    let path = mirrored_path::stored(&publication.path, &task.uri);
    let store = |place: &str, condition: &str| {
        sql.prepare_cached(&format!(
            "UPDATE resource SET {place} length = ?4, hashes = ?6,
             media_type = COALESCE(?5, CASE WHEN NOT ?11 THEN media_type END),
             encoding = COALESCE(?16, CASE WHEN NOT ?11 THEN encoding END),
             lastmod = COALESCE(?7, CASE WHEN NOT ?11 THEN lastmod END),
             served_by = CASE WHEN ?11 OR CAST(?12 AS TEXT) IS NOT NULL THEN ?12 ELSE served_by END,
             etag = CASE WHEN ?11 OR CAST(?12 AS TEXT) IS NOT NULL THEN ?13 ELSE etag END,
             last_modified = CASE WHEN ?11 OR CAST(?12 AS TEXT) IS NOT NULL THEN ?14 ELSE last_modified END,
             links = ?15, changed_at = COALESCE(?8, changed_at), applied_at = ?9, change = CASE WHEN ?17 THEN change ELSE ?10 END, deleted = 0, doubted = 0, voice = ?20,
             fetched = ?18, answer = 'served', answered = ?18, verified = CASE WHEN ?19 THEN 1 WHEN ?11 THEN 0 ELSE verified END
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
            Column(&task.statements),
            !task.unconfirmed && !task.content.hashes.is_empty(),
            number_of(voice),
        ])
    };
    // Nearly every file is where its row has it. An update that names the path writes its index anew, also with the same path.
    if store("", "AND set_id = ?2 AND path IS NOT DISTINCT FROM ?3")? == 0 {
        store("set_id = ?2, path = ?3,", "")?;
    }
    Ok(())
}

/// Stores that the file is what a statement of a set's documents states, and its media type, if that is stated.
pub(crate) fn confirm(
    sql: &Connection,
    id: ResourceId,
    (stated, media_type): (&Statement, Option<&str>),
    now: DateTime<Utc>,
) -> Result<()> {
    let Entry {
        set, at, lastmod, ..
    } = stated.entry;
    let kind = match stated.entry.stated {
        Stated::Change(kind) => Some(kind),
        Stated::Listed(_) | Stated::Absent(_) => None,
    };
    sql.prepare_cached(
        "UPDATE resource SET set_id = ?2, change = ?3, changed_at = COALESCE(?4, changed_at), lastmod = COALESCE(?5, lastmod),
             media_type = COALESCE(?6, media_type), applied_at = ?7, voice = ?8, fetched = MAX(fetched, ?9), verified = 1
         WHERE id = ?1",
    )?
    .execute(params![
        id,
        set.0,
        Column(&kind),
        Column(&at),
        Column(&lastmod.filter(|&at| at <= latest_plausible(now))),
        media_type.map(PackedMediaType),
        Micros(now),
        number_of(Voice::Source),
        Column(&stated.revision),
    ])
    .map(drop)
}

/// Stores that a resource was deleted.
pub(crate) fn delete(
    sql: &Connection,
    task: &Task,
    voice: Voice,
    now: DateTime<Utc>,
) -> Result<()> {
    sql.prepare_cached(
        "UPDATE resource SET set_id = ?2, changed_at = COALESCE(?3, changed_at), applied_at = ?4, change = CASE WHEN ?6 THEN change ELSE ?5 END, deleted = 1,
             links = NULL, doubted = 0, voice = ?7
         WHERE id = ?1",
    )?
    .execute(params![
        task.resource,
        task.set,
        Column(&task.changed_at),
        Micros(now),
        Column(&change_of(task)),
        task.unconfirmed,
        number_of(voice),
    ])
    .map(drop)
}

/// Records that the file of a resource may be another than is recorded.
pub(crate) fn doubt(sql: &Connection, id: ResourceId) -> Result<()> {
    sql.prepare_cached("UPDATE resource SET doubted = 1 WHERE id = ?1 AND doubted = 0")?
        .execute([id])
        .map(drop)
}

/// The same for every resource of a Source, or of all, that has a task and of which something is recorded.
pub(crate) fn doubt_all_with_tasks(sql: &Connection, source: Option<&str>) -> Result<()> {
    let doubted = match source {
        Some(source) => sql.execute(
            "UPDATE resource SET doubted = 1 WHERE doubted = 0 AND applied_at IS NOT NULL AND id IN (SELECT resource_id FROM task WHERE source = ?1)",
            [source],
        ),
        None => sql.execute(
            "UPDATE resource SET doubted = 1 WHERE doubted = 0 AND applied_at IS NOT NULL AND id IN (SELECT resource_id FROM task)",
            [],
        ),
    };
    doubted.map(drop)
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

fn number_of(voice: Voice) -> i64 {
    match voice {
        Voice::Source => 0,
        Voice::Hub => 1,
        Voice::Link => 2,
    }
}

fn voice_of(number: i64) -> Voice {
    match number {
        1 => Voice::Hub,
        2 => Voice::Link,
        _ => Voice::Source,
    }
}

/// The kind of the change that was applied; a listing states none.
fn change_of(task: &Task) -> Option<ChangeKind> {
    match task.origin {
        Origin::ResourceList
        | Origin::ResourceDump
        | Origin::Audit
        | Origin::Forget
        | Origin::Folder => None,
        Origin::Notification | Origin::ChangeList | Origin::ChangeDump => Some(task.kind),
    }
}

/// A file that is correct although the database did not know it.
pub(crate) struct AdoptedFile<'a> {
    /// The set that announces it, unless another one has announced a file that is live.
    pub(crate) set: SetId,
    pub(crate) path: &'a str,
    pub(crate) length: u64,
    pub(crate) media_type: Option<&'a str>,
    pub(crate) hashes: &'a [Digest],
    pub(crate) lastmod: Option<SourceTime>,
    pub(crate) changed_at: Option<SourceTime>,
    /// The statements that were known when it was found to be what they state.
    pub(crate) fetched: Revision,
}

/// What is recorded of a file of a folder that is published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FolderEntry {
    /// Its row.
    pub id: ResourceId,
    /// Its URI.
    pub uri: ResourceUri,
    /// Its path in the folder.
    pub path: String,
    /// Its length; `None`: it is gone.
    pub length: Option<u64>,
    /// Its digests.
    pub hashes: Vec<Digest>,
    /// When it was modified.
    pub modified: Option<SourceTime>,
    /// The number of the file.
    pub inode: Option<u64>,
}

const FOLDER_ENTRY: &str = "resource.id AS id, uri, path, CASE WHEN deleted = 1 THEN NULL ELSE length END AS length, hashes, lastmod, etag";

impl FolderEntry {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        let uri: ResourceUri = column(row, "uri")?;
        let inode: Option<String> = row.get("etag")?;
        Ok(Self {
            id: row.get("id")?,
            path: mirrored_path::given(row.get("path")?, &uri)?,
            uri,
            length: row.get::<_, Option<Count>>("length")?.map(u64::from),
            hashes: row.get::<_, DigestList<_>>("hashes")?.0,
            modified: column(row, "lastmod")?,
            inode: inode.and_then(|inode| inode.parse().ok()),
        })
    }
}

/// What is recorded of the file of a folder at a path.
pub(crate) fn folder_entry(
    sql: &Connection,
    source: &str,
    path: &str,
) -> Result<Option<FolderEntry>> {
    sql.prepare_cached(&format!(
        "SELECT {FOLDER_ENTRY} FROM resource WHERE source = ?1 AND path = ?2"
    ))?
    .query_row(params![source, path], FolderEntry::from_row)
    .optional()
}

/// The next recorded files of a folder after a row, without those that are gone.
pub(crate) fn folder_entries(
    sql: &Connection,
    set: SetId,
    after: ResourceId,
    most: usize,
) -> Result<Vec<FolderEntry>> {
    sql.prepare_cached(&format!(
        "SELECT {FOLDER_ENTRY} FROM member JOIN resource ON resource.id = member.resource_id
         WHERE member.set_id = ?1 AND member.resource_id > ?2 AND deleted = 0 ORDER BY member.resource_id LIMIT ?3"
    ))?
    .query_map(params![set, after, Count::of_rows(most)], FolderEntry::from_row)?
    .collect()
}

/// The recorded files of a folder at a path and in the folder of that name, without those that are gone.
pub(crate) fn folder_entries_at(
    sql: &Connection,
    source: &str,
    path: &str,
) -> Result<Vec<FolderEntry>> {
    // `0` follows `/`.
    sql.prepare_cached(&format!(
        "SELECT {FOLDER_ENTRY} FROM resource
         WHERE source = ?1 AND path >= ?2 AND path < ?2 || '0' AND (path = ?2 OR path > ?2 || '/') AND deleted = 0"
    ))?
    .query_map([source, path], FolderEntry::from_row)?
    .collect()
}

/// Stores the number of the file of a folder, where those of Sources have their entity tag.
pub(crate) fn set_inode(sql: &Connection, id: ResourceId, inode: u64) -> Result<()> {
    sql.prepare_cached("UPDATE resource SET etag = ?2 WHERE id = ?1")?
        .execute(params![id, inode.to_string()])
        .map(drop)
}

/// Stores that the file of a folder is gone.
pub(crate) fn set_file_gone(sql: &Connection, id: ResourceId, now: DateTime<Utc>) -> Result<()> {
    sql.prepare_cached(
        "UPDATE resource SET deleted = 1, applied_at = ?2, changed_at = ?2 WHERE id = ?1",
    )?
    .execute(params![id, Micros(now)])
    .map(drop)
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
             doubted = 0, voice = 0, fetched = ?9, verified = 1, set_id = CASE WHEN applied_at IS NULL OR deleted = 1 THEN ?10 ELSE set_id END
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
        Column(&file.fetched),
        file.set,
    ])?;
    Ok(())
}
