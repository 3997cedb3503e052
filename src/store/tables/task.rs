//! `task`: one pending change a resource.
//!
//! Columns: `since` is the time from which the mirror is behind because of the task, NULL if unknown; `version` is the revision of
//! the task, which grows with each change of it, so that the result of an older one is recognized; `not_before` is when it is due, on our clock,
//! `awaits_since` since when a deletion waits for another set, `given_up_since` when the task was given up for the first time, and
//! `refused_since` when the Source refused the resource, or answered that there is none, for the first time. `hold`
//! is the number that a deletion got when it was held back first; it counts only while it is, and while it is decided again because the
//! same was stated once more.
//!
//! A deletion that a person has rejected stays as a task that nothing executes: what states the same again makes no new one. The
//! mirror is not behind because of it, so its `since` does not count. The same holds for an update that the configuration does not
//! select; of one that is served in a type that is not selected, `media_type` is that type, and `error_code` [`UNSELECTED_TYPE`].

pub(crate) mod queue;
pub(crate) mod report;
pub(crate) mod status;

use chrono::{DateTime, TimeDelta, Utc};
use resourcesync::{ChangeKind, ContentInfo, Digest, Link, SourceTime};
use resyncd_core::{RecordedFile, ResourceUri, Revision, ServedVersion};
use url::Url;

use super::media_type::MediaType;
use super::mirrored_path;
use super::served_version::served_version;
use super::source_set::{SHARING, UriList};
use super::tally::{TALLIED, Tallied, TallyKey};
use super::values::{
    Column, ContentColumns, Count, DigestList, LinkList, Micros, column, content_info_of,
    link_text, texts,
};
use crate::store::change::{Change, Origin};
use crate::store::ids::{ResourceId, SetId};
use crate::store::sql::{Connection, OptionalExtension, Params, Result, Row, params};
use crate::store::tx::settle::Decided;

/// A pending change of one resource.
#[derive(Clone, Debug)]
pub struct Task {
    /// The resource.
    pub resource: ResourceId,
    /// Which task of the resource it is: a newer change raises it. Not the version of the resource.
    pub revision: i64,
    /// The label of the Source.
    pub source: String,
    /// The set that announced the change.
    pub set: SetId,
    /// The resource's URI.
    pub uri: ResourceUri,
    /// The host of its first candidate.
    pub authority: String,
    /// What happened.
    pub kind: ChangeKind,
    /// When it happened.
    pub changed_at: Option<SourceTime>,
    /// When the representation was last modified.
    pub lastmod: Option<SourceTime>,
    /// The representation: the length and the digests that it must have.
    pub content: ContentInfo,
    /// The content codings of the representation.
    pub encoding: Option<String>,
    /// Its related resources; of an unconfirmed change those that the Source has stated before.
    pub links: Vec<Link>,
    /// The kind of document that announced it.
    pub origin: Origin,
    /// Whether only a hub states it that is not the Source.
    pub unconfirmed: bool,
    /// Whether a document of the Source states the change, or names the resource.
    pub is_named: bool,
    /// The number of failed attempts.
    pub attempts: u32,
    /// The path of the file, relative to the mirror.
    pub path: String,
    /// Whether the mirror has a file of the resource now.
    pub live: bool,
    /// The length of that file, in bytes.
    pub live_length: Option<u64>,
    /// The media type of that file.
    pub live_type: Option<String>,
    /// The digests of that file.
    pub live_hashes: Vec<Digest>,
    /// The validators of the version that the file is.
    pub live_version: Option<ServedVersion>,
    /// Whether the file may be another than is recorded: then length, digests and validators state nothing about it. Also whether
    /// there may be a file although the mirror has none as far as is recorded.
    pub live_doubted: bool,
    /// Whether it has taken the place of an older change of the resource that was not applied.
    pub has_replaced: bool,
    /// Whether what the Source serves now counts: a deletion removes the resource only if it is not served, because something else states
    /// that it exists; of an update the bytes are those that are served, whatever is stated of them.
    pub asks: bool,
    /// For a deletion: the Capability Lists of the other sets of the Source that are followed and were never read completely.
    pub unread_sets: Vec<Url>,
    /// Since when the deletion has waited for such sets, on our clock.
    pub awaits_since: Option<DateTime<Utc>>,
    /// Whether it was given up before.
    pub was_given_up: bool,
    /// The statements of the resource that were known when it was read.
    pub statements: Revision,
    /// Which of them it executes.
    pub stated: Revision,
}

impl Task {
    /// What is recorded of the file that the mirror has. `None`: it has none, or an audit has found that the file is not as recorded.
    pub fn recorded_file(&self) -> Option<RecordedFile<'_>> {
        (self.live && self.origin != Origin::Audit).then_some(RecordedFile {
            length: self.live_length,
            hashes: &self.live_hashes,
            is_doubted: self.live_doubted,
        })
    }

    /// Columns go by number, those of [`COLUMNS`]: this is read once for each resource of a first copy.
    fn from_row(row: &Row<'_>) -> Result<Self> {
        let uri: ResourceUri = column(row, 0)?;
        Ok(Self {
            resource: row.get(1)?,
            revision: row.get(2)?,
            source: row.get(3)?,
            set: row.get(4)?,
            authority: row.get(5)?,
            kind: column(row, 6)?,
            changed_at: column(row, 7)?,
            lastmod: column(row, 8)?,
            content: content_info_of(row, [9, 10, 11])?,
            encoding: row.get(12)?,
            links: row.get::<_, LinkList<_>>(13)?.0,
            origin: column(row, 14)?,
            unconfirmed: row.get(15)?,
            attempts: row.get(16)?,
            path: mirrored_path::given(row.get(17)?, &uri)?,
            live: row.get(18)?,
            live_length: row.get::<_, Option<Count>>(19)?.map(u64::from),
            live_hashes: row.get::<_, DigestList<_>>(20)?.0,
            live_version: served_version(row, [21, 22, 23], &uri)?,
            has_replaced: row.get(24)?,
            asks: row.get(25)?,
            unread_sets: row.get::<_, UriList>(26)?.0,
            awaits_since: row.get::<_, Option<Micros>>(27)?.map(DateTime::from),
            is_named: row.get(28)?,
            live_type: row.get::<_, Option<MediaType>>(29)?.map(|it| it.0),
            was_given_up: row.get(30)?,
            statements: column(row, 31)?,
            stated: column(row, 32)?,
            live_doubted: row.get(33)?,
            uri,
        })
    }
}

/// What [`Task::from_row`] reads, in this order; [`IS_DOUBTED`] follows.
///
/// [`IS_DOUBTED`]: crate::store::tables::resource::IS_DOUBTED
const COLUMNS: &str = "resource.uri, task.resource_id, task.version, task.source, task.set_id, task.authority, task.kind,
    task.changed_at, task.lastmod, task.length, task.media_type, task.hashes, task.encoding,
    CASE WHEN task.unconfirmed = 1 THEN resource.links ELSE task.links END, task.origin, task.unconfirmed, task.attempts,
    resource.path, resource.applied_at IS NOT NULL AND resource.deleted = 0,
    resource.length, resource.hashes, resource.served_by, resource.etag, resource.last_modified,
    task.version > resource.next_version,
    task.asks,
    CASE WHEN task.kind = 'deleted' THEN (SELECT json_group_array(other.capability_list) FROM source_set AS other
        WHERE other.source = task.source AND other.id <> task.set_id AND other.was_read = 0 AND other.ended = 0) END,
    task.awaits_since,
    task.unconfirmed = 0 OR EXISTS (SELECT 1 FROM member JOIN source_set ON source_set.id = member.set_id
        WHERE member.resource_id = task.resource_id AND member.named_by <> 3 AND source_set.ended = 0),
    resource.media_type, task.given_up_since IS NOT NULL, resource.revision, task.stated";

/// The task of a resource, as it is compared with what is stated of the resource.
#[derive(Clone, Debug)]
pub(crate) struct PendingTask {
    /// Which task of the resource it is.
    pub(crate) version: i64,
    /// The set that announced it.
    pub(crate) set: SetId,
    /// What happened.
    pub(crate) kind: ChangeKind,
    /// When it happened.
    pub(crate) changed_at: Option<SourceTime>,
    /// When the representation was last modified.
    pub(crate) lastmod: Option<SourceTime>,
    /// The representation that it must have.
    pub(crate) content: ContentInfo,
    /// The kind of document that announced it.
    pub(crate) origin: Origin,
    /// Its state.
    pub(crate) state: TaskState,
    /// Whether only a hub states it that is not the Source.
    pub(crate) unconfirmed: bool,
    /// Whether what the Source serves now counts.
    pub(crate) asks: bool,
    /// Which statement of the resource it executes.
    pub(crate) stated: Revision,
    /// The revision of what that states of the content.
    pub(crate) content_stated: Revision,
}

impl PendingTask {
    /// What a new task is, of that revision.
    pub(crate) fn of(new: &NewTask<'_>, version: i64) -> Self {
        Self {
            version,
            set: new.set,
            kind: new.change.kind,
            changed_at: new.change.changed_at,
            lastmod: new.change.lastmod,
            content: new.change.content.clone(),
            origin: new.origin,
            state: new.state,
            unconfirmed: new.change.unconfirmed,
            asks: new.asks,
            stated: new.stated.0,
            content_stated: new.stated.1,
        }
    }

    /// Whether it requests the resource though nothing states that it has changed.
    pub(crate) fn is_check(&self) -> bool {
        self.origin == Origin::ResourceList
            && self.kind == ChangeKind::Updated
            && self.lastmod.is_none()
            && self.content.length.is_none()
            && self.content.hashes.is_empty()
    }
}

/// The state of a task. Some of the words in the database are older than the names here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TaskState {
    /// To be executed when it is due.
    Ready,
    /// Given up for now: due with pauses that grow.
    Failed,
    /// An update that the Source has refused, or lacked, for [`UNAVAILABLE_AFTER`], or that its robots.txt disallows: due once a day. Its
    /// `since` does not count.
    Unavailable,
    /// A deletion that waits for approval.
    HeldBack,
    /// A deletion whose document has not ended: it is released or held back then.
    Undecided,
    /// A deletion of a document of which only a part was ingested: it waits until the document, or another one, states it again.
    Interrupted,
    /// A deletion that a person has rejected, or an update that is not selected: the mirror stays as it is until the Source states
    /// something else of the resource, or something else is selected.
    Unwanted,
}

impl TaskState {
    /// Those that are executed when they are due, in this order.
    pub(crate) const QUEUED: [Self; 3] = [Self::Ready, Self::Failed, Self::Unavailable];

    fn code(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Failed => "failed",
            Self::Unavailable => "unavailable",
            Self::HeldBack => "held",
            Self::Undecided => "undecided",
            Self::Interrupted => "interrupted",
            Self::Unwanted => "rejected",
        }
    }

    fn from_code(code: &str) -> Option<Self> {
        [
            Self::Ready,
            Self::Failed,
            Self::Unavailable,
            Self::HeldBack,
            Self::Undecided,
            Self::Interrupted,
            Self::Unwanted,
        ]
        .into_iter()
        .find(|state| state.code() == code)
    }
}

texts! {
    TaskState: |state| state.code(), Self::from_code, "a task's state";
}

/// A change that becomes the task of its resource.
pub(crate) struct NewTask<'a> {
    pub(crate) resource: ResourceId,
    pub(crate) source: &'a str,
    pub(crate) set: SetId,
    pub(crate) origin: Origin,
    pub(crate) change: &'a Change,
    pub(crate) state: TaskState,
    pub(crate) not_before: DateTime<Utc>,
    pub(crate) since: Option<SourceTime>,
    /// Whether what the Source serves now counts.
    pub(crate) asks: bool,
    /// Which statement of the resource it executes, and that of what it states of the content.
    pub(crate) stated: (Revision, Revision),
}

/// How the task of a resource is tallied; `None`: it has none.
fn tallied(sql: &Connection, resource: ResourceId) -> Result<Option<TallyKey>> {
    sql.prepare_cached(&format!(
        "SELECT {TALLIED} FROM task WHERE resource_id = ?1"
    ))?
    .query_row([resource], TallyKey::from_row)
    .optional()
}

/// Executes a statement that puts or changes the task of a resource, and tallies that; returns whether it did so.
fn change(
    sql: &Tallied<'_>,
    resource: ResourceId,
    statement: &str,
    params: impl Params,
) -> Result<bool> {
    let before = tallied(sql, resource)?;
    let after = sql
        .prepare_cached(&format!("{statement} RETURNING {TALLIED}"))?
        .query_row(params, TallyKey::from_row)
        .optional()?;
    let is_changed = after.is_some();
    if is_changed {
        sql.add(before, -1);
        sql.add(after, 1);
    }
    Ok(is_changed)
}

/// Deletes the task that meets a condition, if there is one, and tallies that.
fn delete_where(sql: &Tallied<'_>, condition: &str, params: impl Params) -> Result<()> {
    let deleted = sql
        .prepare_cached(&format!(
            "DELETE FROM task WHERE {condition} RETURNING {TALLIED}"
        ))?
        .query_row(params, TallyKey::from_row)
        .optional()?;
    sql.add(deleted, -1);
    Ok(())
}

/// Tallies that all tasks that meet a condition get another state.
fn tally_all(
    sql: &Tallied<'_>,
    condition: &str,
    params: impl Params,
    state: TaskState,
) -> Result<()> {
    let mut query = sql.prepare_cached(&format!(
        "SELECT {TALLIED}, COUNT(*) FROM task WHERE {condition} GROUP BY 1, 2, 3, 4"
    ))?;
    let mut rows = query.query(params)?;
    while let Some(row) = rows.next()?.as_ref() {
        let (before, tasks): (_, i64) = (TallyKey::from_row(row)?, row.get(4)?);
        let after = TallyKey {
            state,
            ..before.clone()
        };
        sql.add(Some(before), -tasks);
        sql.add(Some(after), tasks);
    }
    Ok(())
}

/// Whose links a task gets.
#[derive(Clone, Copy)]
pub(crate) enum TaskLinks {
    /// Those of its change.
    Stated,
    /// Those of the task whose place it takes, or else of the resource.
    Known,
}

/// Makes a change the task of a resource, in place of any other. A deletion that was held back keeps its number while the same is stated.
pub(crate) fn put(
    sql: &Tallied<'_>,
    task: &NewTask<'_>,
    links: TaskLinks,
    _: Decided,
) -> Result<()> {
    let change = task.change;
    let content = ContentColumns::from(&change.content);
    let (links, kept): (Option<String>, _) = match (links, change.kind) {
        (TaskLinks::Stated, ChangeKind::Deleted) => (None, "excluded.links"),
        (TaskLinks::Stated, _) => (link_text(&change.links)?, "excluded.links"),
        (TaskLinks::Known, _) => {
            let links = sql
                .prepare_cached("SELECT links FROM resource WHERE id = ?1")?
                .query_row([task.resource], |row| row.get(0))?;
            (links, "task.links")
        }
    };
    let statement = format!(
        "INSERT INTO task (resource_id, source, set_id, authority, kind, changed_at, lastmod, length, media_type, hashes, origin, state,
             not_before, since, links, encoding, unconfirmed, asks, stated, content_stated, version)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20,
                 (SELECT next_version FROM resource WHERE id = ?1))
         ON CONFLICT (resource_id) DO UPDATE SET
             set_id = excluded.set_id, authority = excluded.authority, kind = excluded.kind, changed_at = excluded.changed_at,
             lastmod = excluded.lastmod, length = excluded.length, media_type = excluded.media_type, hashes = excluded.hashes,
             origin = excluded.origin, state = excluded.state, not_before = excluded.not_before, encoding = excluded.encoding,
             since = CASE WHEN task.state IN ('rejected', 'unavailable') OR task.since >= excluded.since THEN excluded.since
                          WHEN task.since < excluded.since THEN task.since END,
             version = task.version + 1, attempts = 0, error_code = NULL, error_message = NULL,
             awaits_since = NULL, given_up_since = NULL, refused_since = NULL,
             unconfirmed = excluded.unconfirmed, asks = excluded.asks, stated = excluded.stated, content_stated = excluded.content_stated, links = {kept},
             hold = CASE WHEN task.kind = 'deleted' AND excluded.kind = 'deleted' AND task.changed_at IS NOT DISTINCT FROM excluded.changed_at
                              AND task.state IN ('held', 'undecided', 'interrupted') THEN task.hold END"
    );
    let params = params![
        task.resource,
        task.source,
        task.set,
        change.authority,
        Column(&change.kind),
        Column(&change.changed_at),
        Column(&change.lastmod),
        content.length,
        content.media_type,
        content.hashes,
        Column(&task.origin),
        Column(&task.state),
        Micros(task.not_before),
        Column(&task.since),
        links,
        change.encoding,
        change.unconfirmed,
        task.asks,
        Column(&task.stated.0),
        Column(&task.stated.1),
    ];
    self::change(sql, task.resource, &statement, params).map(drop)
}

/// Stores whether the Source is asked before the task of a resource deletes it.
pub(crate) fn set_asks(sql: &Connection, resource: ResourceId, asks: bool) -> Result<()> {
    sql.prepare_cached("UPDATE task SET asks = ?2, version = version + 1 WHERE resource_id = ?1")?
        .execute(params![resource, asks])
        .map(drop)
}

/// Whether the task of a resource has the links of a change, and its content codings, if it states any.
pub(crate) fn states(sql: &Connection, resource: ResourceId, change: &Change) -> Result<bool> {
    sql.prepare_cached(
        "SELECT 1 FROM task WHERE resource_id = ?1 AND links IS NOT DISTINCT FROM ?2 AND authority = ?4
           AND (CAST(?3 AS TEXT) IS NULL OR encoding IS NOT DISTINCT FROM ?3)",
    )?
    .exists(params![
        resource,
        LinkList(&change.links),
        change.encoding,
        change.authority
    ])
}

/// Drops the links of a task which are stated no longer.
pub(crate) fn drop_links(sql: &Connection, resource: ResourceId) -> Result<()> {
    sql.prepare_cached("UPDATE task SET links = NULL WHERE resource_id = ?1 AND links IS NOT NULL")?
        .execute([resource])
        .map(drop)
}

/// The code of tasks whose resources are served in a type that is not selected.
pub const UNSELECTED_TYPE: &str = "unselected-type";

/// Lets a task wait that the configuration does not select any more. One that is being executed is completed.
pub(crate) fn unselect(sql: &Tallied<'_>, resource: ResourceId) -> Result<()> {
    let statement = "UPDATE task SET state = 'rejected', error_code = NULL, error_message = NULL, given_up_since = NULL, refused_since = NULL
         WHERE resource_id = ?1 AND kind <> 'deleted' AND state IN ('ready', 'failed', 'unavailable')";
    change(sql, resource, statement, [resource]).map(drop)
}

/// Makes an update ready that was not selected, and returns whether it was so. One that is served in another type stays.
pub(crate) fn select(sql: &Tallied<'_>, resource: ResourceId) -> Result<bool> {
    let statement = "UPDATE task SET state = 'ready', attempts = 0
         WHERE resource_id = ?1 AND kind <> 'deleted' AND state = 'rejected' AND error_code IS NULL";
    change(sql, resource, statement, [resource])
}

/// Makes an update ready that was not selected, whatever type it was served in.
pub(crate) fn reselect(sql: &Tallied<'_>, resource: ResourceId) -> Result<()> {
    let statement = "UPDATE task SET state = 'ready', attempts = 0, error_code = NULL, media_type = CASE WHEN error_code IS NULL THEN media_type END
         WHERE resource_id = ?1 AND kind <> 'deleted' AND state = 'rejected'";
    change(sql, resource, statement, [resource]).map(drop)
}

/// Lets a task wait whose resource is served in a type that is not selected, unless a newer change has taken its place.
pub(crate) fn unselect_type(sql: &Tallied<'_>, task: &Task, served: &str) -> Result<()> {
    let statement = "UPDATE task SET state = 'rejected', error_code = ?3, media_type = ?4, error_message = NULL, given_up_since = NULL, refused_since = NULL
         WHERE resource_id = ?1 AND version = ?2";
    let params = params![task.resource, task.revision, UNSELECTED_TYPE, served];
    change(sql, task.resource, statement, params).map(drop)
}

/// An update that is not selected.
pub(crate) struct UnselectedTask {
    pub(crate) resource: ResourceId,
    pub(crate) origin: String,
    pub(crate) uri: ResourceUri,
    pub(crate) media_type: Option<String>,
    pub(crate) links: Vec<Link>,
}

/// The updates of a set that are not selected, after one, in the order of their origins and resources.
pub(crate) fn unselected(
    sql: &Connection,
    set: SetId,
    (origin, resource): (&str, ResourceId),
    limit: usize,
) -> Result<Vec<UnselectedTask>> {
    sql.prepare_cached(
        "SELECT task.resource_id, task.origin, resource.uri, task.media_type, task.links
         FROM task INDEXED BY task_of_set CROSS JOIN resource ON resource.id = task.resource_id
         WHERE task.set_id = ?1 AND task.state = 'rejected' AND (task.origin, task.resource_id) > (?2, ?3)
           AND task.kind <> 'deleted'
         ORDER BY task.origin, task.resource_id LIMIT ?4",
    )?
    .query_map(
        params![set, origin, resource, Count::of_rows(limit)],
        |row| {
            Ok(UnselectedTask {
                resource: row.get(0)?,
                origin: row.get(1)?,
                uri: column(row, 2)?,
                media_type: row.get(3)?,
                links: row.get::<_, LinkList<_>>(4)?.0,
            })
        },
    )?
    .collect()
}

/// The undecided deletions of a set.
const UNDECIDED: &str = "set_id = ?1 AND state = 'undecided'";

fn decide_undecided(sql: &Tallied<'_>, set: SetId, state: TaskState) -> Result<()> {
    tally_all(sql, UNDECIDED, [set], state)?;
    sql.prepare_cached(&format!("UPDATE task SET state = ?2 WHERE {UNDECIDED}"))?
        .execute(params![set, Column(&state)])
        .map(drop)
}

/// Marks the undecided deletions of a set: the document that stated them was not ingested to its end.
pub(crate) fn interrupt_undecided(sql: &Tallied<'_>, set: SetId) -> Result<()> {
    decide_undecided(sql, set, TaskState::Interrupted)
}

/// Makes an interrupted deletion undecided again: a document states it anew.
pub(crate) fn resume_interrupted(sql: &Tallied<'_>, resource: ResourceId) -> Result<()> {
    let statement =
        "UPDATE task SET state = 'undecided' WHERE resource_id = ?1 AND state = 'interrupted'";
    change(sql, resource, statement, [resource]).map(drop)
}

/// Makes a task due now, under another origin, with its attempts counted anew.
pub(crate) fn expedite(
    sql: &Tallied<'_>,
    resource: ResourceId,
    origin: Origin,
    now: DateTime<Utc>,
) -> Result<()> {
    let statement = "UPDATE task SET origin = ?2, state = 'ready', attempts = 0, not_before = ?3, version = version + 1
         WHERE resource_id = ?1 AND (state <> 'rejected' OR kind = 'deleted')";
    let params = params![resource, Column(&origin), Micros(now)];
    change(sql, resource, statement, params).map(drop)
}

/// Lowers a task's `since` to the time of an older change that it stands for; `None`: unknown.
pub(crate) fn lower_since(
    sql: &Connection,
    resource: ResourceId,
    since: Option<SourceTime>,
) -> Result<()> {
    sql.prepare_cached(
        "UPDATE task SET since = ?2 WHERE resource_id = ?1 AND (since > ?2 OR since IS NOT NULL AND CAST(?2 AS BIGINT) IS NULL)",
    )?
    .execute(params![resource, Column(&since)])
    .map(drop)
}

/// Which tasks of a set.
#[derive(Clone, Copy)]
pub(crate) enum TasksOf {
    /// Those that the set announced.
    Set,
    /// Those that other sets announced, of resources that belong to this one.
    SharingSets,
}

/// Lowers `since` of at most `limit` tasks that have a later one, and returns of how many.
pub(crate) fn lower_all_since(
    sql: &Connection,
    set: SetId,
    tasks: TasksOf,
    since: SourceTime,
    limit: usize,
) -> Result<usize> {
    let condition = match tasks {
        TasksOf::Set => "set_id = ?1".to_owned(),
        TasksOf::SharingSets => format!(
            "set_id IN ({SHARING})
             AND EXISTS (SELECT 1 FROM member WHERE member.set_id = ?1 AND member.resource_id = task.resource_id)"
        ),
    };
    sql.prepare_cached(&format!(
        "UPDATE task SET since = ?2 WHERE resource_id IN (
             SELECT resource_id FROM task WHERE since > ?2 AND state NOT IN ('rejected', 'unavailable') AND {condition} LIMIT {limit})"
    ))?
    .execute(params![set, Column(&since)])
}

/// `until`, or the oldest `since` of the set's tasks, if that is earlier. `None`: of any time.
pub(crate) fn before_oldest(
    sql: &Connection,
    set: SetId,
    until: Option<SourceTime>,
) -> Result<Option<SourceTime>> {
    let oldest = "SELECT since FROM task WHERE set_id = ?1 AND state NOT IN ('rejected', 'unavailable') ORDER BY since NULLS FIRST LIMIT 1";
    before_first(sql, oldest, [set], until)
}

/// As [`before_oldest`], of the tasks of `set` whose resources also belong to `shared_with`.
pub(crate) fn before_oldest_shared(
    sql: &Connection,
    (set, shared_with): (SetId, SetId),
    until: Option<SourceTime>,
) -> Result<Option<SourceTime>> {
    let oldest = "SELECT since FROM task WHERE set_id = ?1 AND state NOT IN ('rejected', 'unavailable')
         AND EXISTS (SELECT 1 FROM member WHERE member.set_id = ?2 AND member.resource_id = task.resource_id)
         ORDER BY since NULLS FIRST LIMIT 1";
    before_first(sql, oldest, [set, shared_with], until)
}

fn before_first(
    sql: &Connection,
    oldest: &str,
    sets: impl Params,
    until: Option<SourceTime>,
) -> Result<Option<SourceTime>> {
    let mut query = sql.prepare_cached(oldest)?;
    let oldest = query.query_row(sets, |row| column(row, 0)).optional()?;
    // NULL is the least, in SQL as here.
    Ok(oldest.map_or(until, |oldest: Option<SourceTime>| oldest.min(until)))
}

/// Deletes the task of a resource that is to have none.
pub(crate) fn delete(sql: &Tallied<'_>, resource: ResourceId, _: Decided) -> Result<()> {
    delete_with_resource(sql, resource)
}

/// Deletes the task of a resource that is removed itself.
pub(super) fn delete_with_resource(sql: &Tallied<'_>, resource: ResourceId) -> Result<()> {
    delete_where(sql, "resource_id = ?1", [resource])
}

/// How long a resource is refused, or absent, before it is unavailable.
const UNAVAILABLE_AFTER: TimeDelta = TimeDelta::days(7);

/// What a Source has answered to a request for a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceAnswer {
    /// That it does not exist (404, 410).
    Absent,
    /// That it is not served (another 4xx that does not pass by itself).
    Refused,
    /// In its robots.txt, that it is not to be requested.
    Disallowed,
    /// A representation, which could not be used.
    Served,
}

/// Why a task failed.
#[derive(Clone, Debug)]
pub struct TaskFailure {
    /// The stable code of the error.
    pub code: &'static str,
    /// The error, for a person.
    pub message: String,
    /// When to try again.
    pub retry_at: DateTime<Utc>,
    /// Whether it is given up until then, and counts as failed.
    pub is_given_up: bool,
    /// Whether the attempt counts: it does not if the failure is ours, as with a full disk.
    pub counts: bool,
    /// What the Source has answered; `None`: nothing that says whether it serves the resource.
    pub answer: Option<SourceAnswer>,
    /// Whether the file may have been changed all the same.
    pub is_in_doubt: bool,
    /// Whether it is a deletion that waits for other sets.
    pub awaits_sets: bool,
}

/// Stores why a task failed and when it is due again, unless a newer change has taken its place.
pub(crate) fn fail(
    sql: &Tallied<'_>,
    task: &Task,
    failure: &TaskFailure,
    now: DateTime<Utc>,
) -> Result<()> {
    let state = if failure.is_given_up {
        TaskState::Failed
    } else {
        TaskState::Ready
    };
    let is_refused = matches!(
        failure.answer,
        Some(SourceAnswer::Absent | SourceAnswer::Refused | SourceAnswer::Disallowed)
    );
    // What robots.txt states holds at once.
    let unavailable_since = match failure.answer {
        Some(SourceAnswer::Disallowed) => now,
        _ => now - UNAVAILABLE_AFTER,
    };
    let is_served = failure.answer == Some(SourceAnswer::Served);
    let statement = "UPDATE task SET attempts = attempts + ?4, not_before = ?5, error_code = ?6, error_message = ?7, error_at = ?8,
         state = CASE WHEN state = 'unavailable' AND NOT ?11 THEN state
                      WHEN ?3 = 'failed' AND ?10 AND kind <> 'deleted' AND COALESCE(refused_since, ?8) <= ?12 THEN 'unavailable' ELSE ?3 END,
         refused_since = CASE WHEN ?10 THEN COALESCE(refused_since, ?8) WHEN ?11 THEN NULL ELSE refused_since END,
         given_up_since = CASE ?3 WHEN 'failed' THEN COALESCE(given_up_since, ?8) ELSE given_up_since END,
         awaits_since = CASE WHEN NOT ?9 OR awaits_since < ?8 THEN awaits_since ELSE ?8 END
         WHERE resource_id = ?1 AND version = ?2 AND state <> 'rejected'";
    let params = params![
        task.resource,
        task.revision,
        Column(&state),
        failure.counts,
        Micros(failure.retry_at),
        failure.code,
        failure.message,
        Micros(now),
        failure.awaits_sets,
        is_refused,
        is_served,
        Micros(unavailable_since)
    ];
    change(sql, task.resource, statement, params).map(drop)
}

/// At most `limit` resources with an update of a set that is given up and not due, or not selected, and of each whether its result is
/// known: one that is not selected any more may be in progress.
pub(crate) fn updates_at_rest(
    sql: &Connection,
    set: SetId,
    now: DateTime<Utc>,
    limit: usize,
) -> Result<Vec<(ResourceId, bool)>> {
    sql.prepare_cached(
        "SELECT task.resource_id, task.error_code IS NOT NULL FROM task CROSS JOIN resource ON resource.id = task.resource_id
         WHERE task.set_id = ?1 AND task.state IN ('failed', 'unavailable', 'rejected') AND (task.state = 'rejected' OR task.not_before > ?3)
           AND task.kind <> 'deleted' AND resource.doubted = 0
         LIMIT ?2",
    )?
    .query_map(params![set, Count::of_rows(limit), Micros(now)], |row| {
        Ok((row.get(0)?, row.get(1)?))
    })?
    .collect()
}

/// The resources after one, at most `limit`, of which a set has announced the task, no person has, and another set is followed that has them.
pub(crate) fn of_shared(
    sql: &Connection,
    set: SetId,
    after: ResourceId,
    limit: usize,
) -> Result<Vec<ResourceId>> {
    sql.prepare_cached(
        "SELECT task.resource_id FROM task WHERE task.set_id = ?1 AND task.resource_id > ?2 AND task.origin NOT IN ('audit', 'forget')
           AND EXISTS (SELECT 1 FROM member JOIN source_set ON source_set.id = member.set_id
                       WHERE member.resource_id = task.resource_id AND member.set_id <> ?1 AND source_set.ended = 0)
         ORDER BY task.resource_id LIMIT ?3",
    )?
    .query_map(params![set, after, Count::of_rows(limit)], |row| row.get(0))?
    .collect()
}

/// Makes the deletions of a Source due that wait for its sets.
pub(crate) fn release_awaiting(sql: &Connection, source: &str, now: DateTime<Utc>) -> Result<()> {
    sql.prepare_cached(
        "UPDATE task SET not_before = ?2 WHERE source = ?1 AND awaits_since IS NOT NULL AND state = 'ready'",
    )?
    .execute(params![source, Micros(now)])
    .map(drop)
}

/// Whether a resource has a task that was given up and is not due: it is not in progress.
pub(crate) fn is_at_rest(
    sql: &Connection,
    resource: ResourceId,
    now: DateTime<Utc>,
) -> Result<bool> {
    sql.prepare_cached(
        "SELECT 1 FROM task WHERE resource_id = ?1 AND state IN ('failed', 'unavailable') AND not_before > ?2",
    )?
    .exists(params![resource, Micros(now)])
}

/// Whether a resource has an update that is not selected.
pub(crate) fn is_unselected(sql: &Connection, resource: ResourceId) -> Result<bool> {
    sql.prepare_cached(
        "SELECT 1 FROM task WHERE resource_id = ?1 AND state = 'rejected' AND kind <> 'deleted'",
    )?
    .exists([resource])
}

/// A later time than now (`?2`) is one before the clock was set back.
const RETRIED: &str = "set_id = ?1 AND state = 'failed' AND (CAST(?3 AS BIGINT) IS NULL OR error_at NOT BETWEEN ?3 AND ?2)";

/// Makes the failed tasks of a set ready, for one more try each, and returns their number. `but_since`: those that have failed since
/// then stay failed.
pub(crate) fn retry_failed(
    sql: &Tallied<'_>,
    set: SetId,
    now: DateTime<Utc>,
    but_since: Option<DateTime<Utc>>,
) -> Result<usize> {
    let params = params![set, Micros(now), but_since.map(Micros)];
    tally_all(sql, RETRIED, params, TaskState::Ready)?;
    sql.prepare_cached(&format!(
        "UPDATE task SET state = 'ready', not_before = ?2 WHERE {RETRIED}"
    ))?
    .execute(params)
}

/// The tasks of a Source's followed sets that were given up, also those that are being tried again: their resources.
pub(crate) fn given_up(sql: &Connection, source: &str) -> Result<Vec<ResourceId>> {
    sql.prepare_cached(
        "SELECT resource_id FROM task INDEXED BY task_given_up
         WHERE source = ?1 AND given_up_since IS NOT NULL AND state IN ('ready', 'failed', 'unavailable')
           AND set_id IN (SELECT id FROM source_set WHERE source = ?1 AND ended = 0)",
    )?
    .query_map([source], |row| row.get(0))?
    .collect()
}

/// Makes a task due now if it was given up, and is not being decided; returns whether it was. One that is unavailable stays so until
/// the Source serves it.
pub(crate) fn retry_given_up(
    sql: &Tallied<'_>,
    resource: ResourceId,
    now: DateTime<Utc>,
) -> Result<bool> {
    let statement = "UPDATE task SET not_before = ?2, state = CASE state WHEN 'failed' THEN 'ready' ELSE state END,
             attempts = CASE state WHEN 'unavailable' THEN attempts ELSE 0 END
         WHERE resource_id = ?1 AND given_up_since IS NOT NULL AND state IN ('ready', 'failed', 'unavailable')";
    change(sql, resource, statement, params![resource, Micros(now)])
}

/// Makes a task due again that is delayed or failed, unless a newer change has taken its place.
pub(crate) fn make_due(sql: &Tallied<'_>, task: &Task, now: DateTime<Utc>) -> Result<()> {
    let statement = "UPDATE task SET state = 'ready', attempts = 0, not_before = ?3
         WHERE resource_id = ?1 AND version = ?2 AND state IN ('ready', 'failed', 'unavailable')";
    let params = params![task.resource, task.revision, Micros(now)];
    change(sql, task.resource, statement, params).map(drop)
}

/// Subtracts `setback` from the times at which delayed tasks are due; those that are then after `latest` are due now.
pub(crate) fn shift_due_times(
    sql: &Connection,
    source: &str,
    now: DateTime<Utc>,
    setback: TimeDelta,
    latest: DateTime<Utc>,
) -> Result<()> {
    sql.prepare_cached(
        "UPDATE task SET not_before = CASE WHEN not_before - ?3 > ?4 THEN ?2 ELSE not_before - ?3 END
         WHERE source = ?1 AND not_before > ?2 AND (CAST(?3 AS BIGINT) > 0 OR not_before > ?4)",
    )?
    .execute(params![
        source,
        Micros(now),
        setback.num_microseconds().unwrap_or(i64::MAX / 4),
        Micros(latest),
    ])?;
    Ok(())
}

/// The deletions of a Source's followed sets that are held back, those that [`report::held_back`] names: their resources. `through`:
/// only those that were held back up to that number.
pub(crate) fn held_back(
    sql: &Connection,
    source: &str,
    through: Option<u64>,
) -> Result<Vec<ResourceId>> {
    sql.prepare_cached(
        "SELECT resource_id FROM task INDEXED BY task_held WHERE source = ?1 AND state = 'held'
           AND (CAST(?2 AS BIGINT) IS NULL OR hold <= ?2)
           AND set_id IN (SELECT id FROM source_set WHERE source = ?1 AND ended = 0)",
    )?
    .query_map(params![source, through.map(Count)], |row| row.get(0))?
    .collect()
}

/// The rejected deletions of a Source's followed sets: their resources.
pub(crate) fn rejected(sql: &Connection, source: &str) -> Result<Vec<ResourceId>> {
    sql.prepare_cached(
        "SELECT resource_id FROM task INDEXED BY task_rejected
         WHERE source = ?1 AND state = 'rejected' AND kind = 'deleted'
           AND set_id IN (SELECT id FROM source_set WHERE source = ?1 AND ended = 0)",
    )?
    .query_map([source], |row| row.get(0))?
    .collect()
}

/// Releases or rejects a deletion if it is held back, up to that number; returns whether it was.
pub(crate) fn decide_held_back(
    sql: &Tallied<'_>,
    resource: ResourceId,
    through: u64,
    state: TaskState,
) -> Result<bool> {
    let statement = "UPDATE task SET state = ?3 WHERE resource_id = ?1 AND state = 'held' AND hold <= ?2 AND kind = 'deleted'";
    let params = params![resource, Count(through), Column(&state)];
    change(sql, resource, statement, params)
}

/// Has a deletion held back again that was rejected, with that number; returns whether it was rejected.
pub(crate) fn hold_rejected(sql: &Tallied<'_>, resource: ResourceId, hold: u64) -> Result<bool> {
    let statement = "UPDATE task SET state = 'held', hold = ?2 WHERE resource_id = ?1 AND state = 'rejected' AND kind = 'deleted'";
    change(sql, resource, statement, params![resource, Count(hold)])
}

/// Whether a set has deletions that are held back.
pub(crate) fn any_held_back(sql: &Connection, set: SetId) -> Result<bool> {
    sql.prepare_cached("SELECT 1 FROM task WHERE set_id = ?1 AND state = 'held'")?
        .exists([set])
}

/// Whether a set has deletions that are not decided yet.
pub(crate) fn has_undecided(sql: &Connection, set: SetId) -> Result<bool> {
    sql.prepare_cached("SELECT 1 FROM task WHERE set_id = ?1 AND state = 'undecided'")?
        .exists([set])
}

/// Whether the set has undecided deletions that only a hub states.
pub(crate) fn has_unconfirmed_deletions(sql: &Connection, set: SetId) -> Result<bool> {
    sql.prepare_cached(
        "SELECT 1 FROM task WHERE set_id = ?1 AND kind = 'deleted' AND unconfirmed = 1 AND state = 'undecided'",
    )?
    .exists([set])
}

/// How many deletions of files that the mirror has are held back or not decided yet. Those that count as deletions
/// since a time are left out.
pub(crate) fn count_unreleased(sql: &Connection, set: SetId, since: DateTime<Utc>) -> Result<u64> {
    sql.prepare_cached(
        "SELECT COUNT(*) FROM task JOIN resource ON resource.id = task.resource_id
         WHERE task.set_id = ?1 AND task.kind = 'deleted' AND task.state IN ('undecided', 'held')
           AND resource.applied_at IS NOT NULL AND resource.deleted = 0
           AND NOT EXISTS (SELECT 1 FROM loss WHERE loss.resource_id = task.resource_id AND loss.let_go_at >= ?2)",
    )?
    .query_row(params![set, Micros(since)], |row| Ok(row.get::<_, Count>(0)?.0))
}

/// Releases the undecided deletions of a set.
pub(crate) fn release_undecided(sql: &Tallied<'_>, set: SetId) -> Result<()> {
    decide_undecided(sql, set, TaskState::Ready)
}

/// Holds the undecided deletions of a set back, and returns how many they are. Those that were held back before keep their number, the
/// others get that one.
pub(crate) fn hold_undecided(sql: &Tallied<'_>, set: SetId, hold: u64) -> Result<usize> {
    tally_all(sql, UNDECIDED, [set], TaskState::HeldBack)?;
    sql.prepare_cached(&format!(
        "UPDATE task SET state = 'held', hold = COALESCE(hold, ?2) WHERE {UNDECIDED}"
    ))?
    .execute(params![set, Count(hold)])
}
