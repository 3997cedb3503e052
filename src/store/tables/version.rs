//! `version`: the versions of resources that are stored. `version_task`: those that are to be stored, and the TimeMaps that are to be
//! read for that (section 14.6).
//!
//! Columns: `at` is the time of the version, or [`TIME_MAP`] of a TimeMap; `links` are those to the places of the version. The states:
//! `waiting` for the resource's own task, `ready`, `failed`: given up, and `unwanted`: not selected, which is remembered so that it is not
//! requested again; its `error_message` is the type in which it is served.
//!
//! What is stored once is not stored again, also where its file is gone: a person may have removed it.

use chrono::{DateTime, TimeDelta, Utc};
use resourcesync::{ContentInfo, Digest, Link, SourceTime};
use resyncd_core::ResourceUri;

use super::identity::Identity;
use super::mirrored_path;
use super::resource::IS_DOUBTED;
use super::values::{
    Column, ContentColumns, Count, DigestList, LinkList, Micros, column, content_info, invalid,
};
use crate::store::ids::{ResourceId, SetId};
use crate::store::sql::{Connection, OptionalExtension, Result, Row, params};

/// How many announced versions of one resource wait.
pub(crate) const MAX_WAITING: usize = 1000;
/// The code of a version that the Source has replaced before it was fetched, and that is nowhere else.
pub const VERSION_MISSED: &str = "version-missed";
/// The code of a version that is stored, and of which the Source has served other bytes. The error of the mirror has the same.
const CONFLICT: &str = "version-conflict";
/// The code of a version beyond [`MAX_WAITING`].
const TOO_MANY: &str = "too-many-versions";
/// What is due later than this was dated by a clock that was set back since: no pause is so long.
const LONGEST_PAUSE: TimeDelta = TimeDelta::days(1);
/// The time of a row that stands for a TimeMap.
const TIME_MAP: SourceTime = SourceTime::MIN;

/// What is to be done for the versions of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionKind {
    /// To store a version that an entry has announced.
    Announced,
    /// To store a version that a TimeMap names.
    Listed,
    /// To read a TimeMap.
    TimeMap,
}

impl VersionKind {
    fn number(self) -> i64 {
        match self {
            Self::Announced => 0,
            Self::Listed => 1,
            Self::TimeMap => 2,
        }
    }

    fn of(number: i64) -> Result<Self> {
        let all = [Self::Announced, Self::Listed, Self::TimeMap];
        let found = all.into_iter().find(|kind| kind.number() == number);
        Ok(found.ok_or_else(|| invalid("the kind of a version"))?)
    }
}

/// A version that is to be stored, or a TimeMap that is to be read, and what the mirror has of its resource.
#[derive(Clone, Debug)]
pub struct VersionTask {
    /// The resource.
    pub resource: ResourceId,
    /// The time of the version.
    pub at: SourceTime,
    /// What it is.
    pub kind: VersionKind,
    /// The resource's URI.
    pub uri: ResourceUri,
    /// The label of the Source.
    pub source: String,
    /// The set that announced the resource last.
    pub set: SetId,
    /// The representation: the length and the digests that it must have.
    pub content: ContentInfo,
    /// The content codings of the representation.
    pub encoding: Option<String>,
    /// The links to its places.
    pub links: Vec<Link>,
    /// The number of failed attempts.
    pub attempts: u32,
    /// The path of the resource's file, relative to the mirror.
    pub path: String,
    /// Whether the mirror has a file of the resource, and that is recorded without doubt.
    pub live: bool,
    /// The digests of that file.
    pub live_hashes: Vec<Digest>,
    /// The times that are recorded of that file: of its last modification, and of its change.
    pub live_at: [Option<SourceTime>; 2],
    /// Whether a change of the resource is pending that has the time of the version.
    pub is_pending: bool,
}

impl VersionTask {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        let uri: ResourceUri = column(row, "uri")?;
        Ok(Self {
            resource: row.get("resource_id")?,
            at: column(row, "at")?,
            kind: VersionKind::of(row.get("kind")?)?,
            source: row.get("source")?,
            set: row.get("set_id")?,
            content: content_info(row)?,
            encoding: row.get("encoding")?,
            links: row.get::<_, LinkList<_>>("links")?.0,
            attempts: row.get("attempts")?,
            path: mirrored_path::given(row.get("path")?, &uri)?,
            live: row.get("live")?,
            live_hashes: row.get::<_, DigestList<_>>("live_hashes")?.0,
            live_at: [
                column(row, "live_lastmod")?,
                column(row, "live_changed_at")?,
            ],
            is_pending: row.get("is_pending")?,
            uri,
        })
    }
}

/// A version that is announced, or named by a TimeMap, or a TimeMap.
pub(crate) struct NewVersion<'a> {
    pub(crate) resource: ResourceId,
    pub(crate) source: &'a str,
    pub(crate) at: SourceTime,
    pub(crate) kind: VersionKind,
    pub(crate) content: &'a ContentInfo,
    pub(crate) encoding: Option<&'a str>,
    pub(crate) links: &'a [Link],
    /// Whether it waits for the resource's own task.
    pub(crate) waits: bool,
    pub(crate) now: DateTime<Utc>,
}

impl<'a> NewVersion<'a> {
    /// The reading of a TimeMap.
    pub(crate) fn time_map(
        resource: ResourceId,
        source: &'a str,
        links: &'a [Link],
        now: DateTime<Utc>,
    ) -> Self {
        const NOTHING: &ContentInfo = &ContentInfo {
            length: None,
            media_type: None,
            hashes: Vec::new(),
        };
        Self {
            resource,
            source,
            at: TIME_MAP,
            kind: VersionKind::TimeMap,
            content: NOTHING,
            encoding: None,
            links,
            waits: false,
            now,
        }
    }
}

/// The times of the stored versions of a resource, oldest first.
pub(crate) fn times(sql: &Connection, resource: ResourceId) -> Result<Vec<SourceTime>> {
    sql.prepare_cached("SELECT at FROM version WHERE resource_id = ?1 ORDER BY at")?
        .query_map([resource], |row| column(row, "at"))?
        .collect()
}

/// Whether a version is stored.
pub(crate) fn is_stored(sql: &Connection, resource: ResourceId, at: SourceTime) -> Result<bool> {
    sql.prepare_cached("SELECT 1 FROM version WHERE resource_id = ?1 AND at = ?2")?
        .exists(params![resource, Column(&at)])
}

/// Whether a version is to be stored, or was given up.
pub(crate) fn is_known(sql: &Connection, resource: ResourceId, at: SourceTime) -> Result<bool> {
    sql.prepare_cached("SELECT 1 FROM version_task WHERE resource_id = ?1 AND at = ?2")?
        .exists(params![resource, Column(&at)])
}

/// What became of a version that is to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PutVersion {
    /// Something is to be done.
    Put,
    /// It is stored, or the same is to be stored already.
    Known,
    /// As many versions of the resource wait as may.
    TooMany,
}

/// Has a version stored, unless it is stored, or the same is to be stored already, or too many are: then that is reported.
pub(crate) fn put(sql: &Connection, version: &NewVersion<'_>) -> Result<PutVersion> {
    if is_stored(sql, version.resource, version.at)? {
        return Ok(PutVersion::Known);
    }
    let is_announced = version.kind == VersionKind::Announced;
    if is_announced
        && announced(sql, version.resource)? >= MAX_WAITING
        && !is_pending(sql, version.resource, version.at)?
    {
        let message = format!("more than {MAX_WAITING} versions wait; it is not stored");
        give_up(sql, version, TOO_MANY, &message)?;
        return Ok(PutVersion::TooMany);
    }
    let content = ContentColumns::from(version.content);
    let state = if version.waits { "waiting" } else { "ready" };
    // A TimeMap names another place of a version that was given up. What was announced of its bytes holds.
    let put = sql
        .prepare_cached(
            "INSERT INTO version_task (resource_id, at, source, kind, length, media_type, hashes, encoding, links, state, not_before)
             SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11 FROM resource WHERE id = ?1
             ON CONFLICT (resource_id, at) DO UPDATE SET
                 length = CASE WHEN version_task.kind < ?4 THEN version_task.length ELSE ?5 END,
                 media_type = CASE WHEN version_task.kind < ?4 THEN version_task.media_type ELSE ?6 END,
                 hashes = CASE WHEN version_task.kind < ?4 THEN version_task.hashes ELSE ?7 END,
                 encoding = CASE WHEN version_task.kind < ?4 THEN version_task.encoding ELSE ?8 END,
                 kind = ?4, links = ?9, state = ?10, not_before = ?11, attempts = 0,
                 error_code = NULL, error_message = NULL, error_at = NULL
             WHERE (version_task.kind = ?4 AND (version_task.length IS DISTINCT FROM ?5 OR version_task.hashes IS DISTINCT FROM ?7
                                              OR version_task.links IS DISTINCT FROM ?9))
                OR version_task.kind > ?4 OR version_task.kind = 2
                OR (version_task.kind <= 1 AND ?4 = 1 AND version_task.state = 'failed')
                OR version_task.error_code IS NOT DISTINCT FROM ?12",
        )?
        .execute(params![
            version.resource,
            Column(&version.at),
            version.source,
            version.kind.number(),
            content.length,
            content.media_type,
            content.hashes,
            version.encoding,
            LinkList(version.links),
            state,
            Micros(version.now),
            TOO_MANY,
        ])?;
    Ok(match put {
        0 => PutVersion::Known,
        _ => PutVersion::Put,
    })
}

/// Records a version as given up, unless it is known.
fn give_up(
    sql: &Connection,
    version: &NewVersion<'_>,
    code: &'static str,
    message: &str,
) -> Result<()> {
    let content = ContentColumns::from(version.content);
    sql.prepare_cached(
        "INSERT INTO version_task (resource_id, at, source, kind, length, media_type, hashes, encoding, links, state, not_before,
             error_code, error_message, error_at)
         SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, 'failed', ?10, ?11, ?12, ?10 FROM resource WHERE id = ?1
         ON CONFLICT DO NOTHING",
    )?
    .execute(params![
        version.resource,
        Column(&version.at),
        version.source,
        version.kind.number(),
        content.length,
        content.media_type,
        content.hashes,
        version.encoding,
        LinkList(version.links),
        Micros(version.now),
        code,
        message,
    ])?;
    bound_given_up(sql, version.resource)
}

/// Forgets the oldest announced versions of a resource that were given up, or not wanted, beyond a limit.
fn bound_given_up(sql: &Connection, resource: ResourceId) -> Result<()> {
    sql.prepare_cached(
        "DELETE FROM version_task WHERE resource_id = ?1 AND kind = 0 AND state IN ('failed', 'unwanted')
           AND at <= (SELECT at FROM version_task WHERE resource_id = ?1 AND kind = 0 AND state IN ('failed', 'unwanted')
                      ORDER BY at DESC LIMIT 1 OFFSET ?2)",
    )?
    .execute(params![resource, Count::of_rows(MAX_WAITING)])
    .map(drop)
}

/// Whether a version is to be stored, and is not given up.
fn is_pending(sql: &Connection, resource: ResourceId, at: SourceTime) -> Result<bool> {
    sql.prepare_cached(
        "SELECT 1 FROM version_task WHERE resource_id = ?1 AND at = ?2 AND state IN ('waiting', 'ready')",
    )?
    .exists(params![resource, Column(&at)])
}

/// The time of the version that a TimeMap names, whose times are whole seconds: of one that was announced within that second, or the
/// same.
pub(crate) fn time_in_second(
    sql: &Connection,
    resource: ResourceId,
    at: SourceTime,
) -> Result<SourceTime> {
    let next = SourceTime::from_micros(at.micros().saturating_add(1_000_000));
    let stored: Option<SourceTime> = sql
        .prepare_cached(
            "SELECT MIN(at) FROM version WHERE resource_id = ?1 AND at >= ?2 AND at < ?3",
        )?
        .query_row(params![resource, Column(&at), Column(&next)], |row| {
            column(row, 0)
        })?;
    // Beside one that is stored, only a digest proves that it is another one.
    let announced: Option<SourceTime> = sql
        .prepare_cached(
            "SELECT at FROM version_task WHERE resource_id = ?1 AND at >= ?2 AND at < ?3 AND kind < 2 AND (?4 OR hashes <> '')
             ORDER BY state = 'failed' DESC, at LIMIT 1",
        )?
        .query_row(params![resource, Column(&at), Column(&next), stored.is_none()], |row| column(row, 0))
        .optional()?;
    Ok(announced.or(stored).unwrap_or(at))
}

/// How many announced versions of a resource wait, up to the limit.
fn announced(sql: &Connection, resource: ResourceId) -> Result<usize> {
    let found: i64 = sql
        .prepare_cached(
            "SELECT COUNT(*) FROM (SELECT 1 FROM version_task WHERE resource_id = ?1 AND kind = 0 AND state IN ('waiting', 'ready')
                                   LIMIT ?2) AS found",
        )?
        .query_row(params![resource, Count::of_rows(MAX_WAITING)], |row| row.get(0))?;
    Ok(usize::try_from(found).unwrap_or_default())
}

/// Records that a version is nowhere any more, unless it is stored or waits to be.
pub(crate) fn put_missed(
    sql: &Connection,
    resource: ResourceId,
    source: &str,
    at: SourceTime,
    now: DateTime<Utc>,
) -> Result<()> {
    if is_stored(sql, resource, at)? {
        return Ok(());
    }
    let missed = NewVersion {
        at,
        kind: VersionKind::Announced,
        ..NewVersion::time_map(resource, source, &[], now)
    };
    let message =
        "the Source has replaced it before it was fetched, and links to no other place of it";
    give_up(sql, &missed, VERSION_MISSED, message)
}

/// Records that the Source has served other bytes than those of a stored version.
pub(crate) fn put_conflict(
    sql: &Connection,
    resource: ResourceId,
    source: &str,
    at: SourceTime,
    now: DateTime<Utc>,
) -> Result<()> {
    let conflict = NewVersion {
        at,
        kind: VersionKind::Announced,
        ..NewVersion::time_map(resource, source, &[], now)
    };
    let message = "the Source has served other bytes of the same time; the first ones stay stored";
    give_up(sql, &conflict, CONFLICT, message)
}

/// The time of the version that a pending update of a resource announces, if that is the only place of it.
pub(crate) fn pending_time(sql: &Connection, resource: ResourceId) -> Result<Option<SourceTime>> {
    let found = sql
        .prepare_cached(
            "SELECT COALESCE(lastmod, changed_at) FROM task WHERE resource_id = ?1 AND kind <> 'deleted' AND unconfirmed = 0
               AND state IN ('ready', 'failed')",
        )?
        .query_row([resource], |row| column(row, 0))
        .optional()?;
    Ok(found.flatten())
}

/// Lets the versions of a resource be fetched that wait for its task; not that of `except`. Returns whether there are any.
pub(crate) fn release(
    sql: &Connection,
    resource: ResourceId,
    except: Option<SourceTime>,
) -> Result<bool> {
    let released = sql
        .prepare_cached(
            "UPDATE version_task SET state = 'ready' WHERE resource_id = ?1 AND state = 'waiting' AND at IS DISTINCT FROM ?2",
        )?
        .execute(params![resource, Column(&except)])?;
    Ok(released > 0)
}

/// The versions of a resource that wait for its task are not wanted, as the resource is not. `served`: its type.
pub(crate) fn unselect_waiting(sql: &Connection, resource: ResourceId, served: &str) -> Result<()> {
    sql.prepare_cached(
        "UPDATE version_task SET state = 'unwanted', error_code = NULL, error_message = ?2
         WHERE resource_id = ?1 AND state = 'waiting'",
    )?
    .execute(params![resource, served])?;
    bound_given_up(sql, resource)
}

/// Records that a version is not wanted: it is served in that type, which is not selected.
pub(crate) fn unselect(
    sql: &Connection,
    resource: ResourceId,
    at: SourceTime,
    served: &str,
) -> Result<()> {
    sql.prepare_cached(
        "UPDATE version_task SET state = 'unwanted', error_code = NULL, error_message = ?3
         WHERE resource_id = ?1 AND at = ?2",
    )?
    .execute(params![resource, Column(&at), served])?;
    bound_given_up(sql, resource)
}

/// The types in which the versions of a Source are served that are not wanted.
pub(crate) fn unwanted_types(sql: &Connection, source: &str) -> Result<Vec<String>> {
    sql.prepare_cached(
        "SELECT DISTINCT error_message FROM version_task WHERE source = ?1 AND state = 'unwanted' AND error_message IS NOT NULL",
    )?
    .query_map([source], |row| row.get(0))?
    .collect()
}

/// Has the versions of a Source fetched that were not wanted because of that type.
pub(crate) fn reselect(
    sql: &Connection,
    source: &str,
    served: &str,
    now: DateTime<Utc>,
) -> Result<()> {
    sql.prepare_cached(
        "UPDATE version_task SET state = 'ready', attempts = 0, not_before = ?3, error_message = NULL
         WHERE source = ?1 AND state = 'unwanted' AND error_message = ?2",
    )?
    .execute(params![source, served, Micros(now)])
    .map(drop)
}

/// Whether versions of a Source wait for tasks that are no more, or for a time that only a clock has shown that was set back.
pub(crate) fn any_overdue(sql: &Connection, source: &str, now: DateTime<Utc>) -> Result<bool> {
    sql.prepare_cached(
        "SELECT 1 WHERE EXISTS (SELECT 1 FROM version_task WHERE source = ?1 AND state = 'waiting'
               AND NOT EXISTS (SELECT 1 FROM task WHERE task.resource_id = version_task.resource_id AND task.state = 'ready'))
           OR EXISTS (SELECT 1 FROM version_task WHERE source = ?1 AND state = 'ready' AND not_before > ?2)",
    )?
    .exists(params![source, Micros(now + LONGEST_PAUSE)])
}

/// Lets the versions of a Source be fetched for which [`any_overdue`] holds.
pub(crate) fn release_overdue(sql: &Connection, source: &str, now: DateTime<Utc>) -> Result<()> {
    sql.prepare_cached(
        "UPDATE version_task SET state = 'ready' WHERE source = ?1 AND state = 'waiting'
           AND NOT EXISTS (SELECT 1 FROM task WHERE task.resource_id = version_task.resource_id AND task.state = 'ready')",
    )?
    .execute([source])?;
    sql.prepare_cached(
        "UPDATE version_task SET not_before = ?2 WHERE source = ?1 AND state = 'ready' AND not_before > ?3",
    )?
    .execute(params![source, Micros(now), Micros(now + LONGEST_PAUSE)])
    .map(drop)
}

/// Tries again now what has failed of a Source; returns how many. What is nowhere stays, and what is stored otherwise.
pub(crate) fn retry(sql: &Connection, source: &str, now: DateTime<Utc>) -> Result<usize> {
    sql.prepare_cached(
        "UPDATE version_task SET state = 'ready', attempts = 0, not_before = ?2
         WHERE source = ?1 AND state IN ('ready', 'failed') AND error_code NOT IN (?3, ?4)",
    )?
    .execute(params![source, Micros(now), VERSION_MISSED, CONFLICT])
}

/// Records that a version is stored.
pub(crate) fn set_stored(sql: &Connection, resource: ResourceId, at: SourceTime) -> Result<()> {
    // Its resource may have been forgotten meanwhile.
    sql.prepare_cached(
        "INSERT INTO version (resource_id, at) SELECT id, ?2 FROM resource WHERE id = ?1 ON CONFLICT DO NOTHING",
    )?
    .execute(params![resource, Column(&at)])?;
    delete(sql, resource, at)
}

/// Deletes what is to be done.
pub(crate) fn delete(sql: &Connection, resource: ResourceId, at: SourceTime) -> Result<()> {
    sql.prepare_cached("DELETE FROM version_task WHERE resource_id = ?1 AND at = ?2")?
        .execute(params![resource, Column(&at)])
        .map(drop)
}

/// Why something could not be done, and when it is tried again.
#[derive(Clone, Debug)]
pub struct VersionFailure {
    /// The stable name of the error.
    pub code: &'static str,
    /// The message.
    pub message: String,
    /// `None`: not before a person asks for it.
    pub retry_at: Option<DateTime<Utc>>,
    /// Whether it counts as a try: a full disk does not.
    pub counts: bool,
}

pub(crate) fn fail(
    sql: &Connection,
    task: &VersionTask,
    failure: &VersionFailure,
    now: DateTime<Utc>,
) -> Result<()> {
    sql.prepare_cached(
        "UPDATE version_task SET state = CASE WHEN CAST(?3 AS BIGINT) IS NULL THEN 'failed' ELSE 'ready' END, attempts = attempts + ?4,
             not_before = COALESCE(?3, not_before), error_code = ?5, error_message = ?6, error_at = ?7
         WHERE resource_id = ?1 AND at = ?2",
    )?
    .execute(params![
        task.resource,
        Column(&task.at),
        failure.retry_at.map(Micros),
        failure.counts,
        failure.code,
        failure.message,
        Micros(now),
    ])?;
    match failure.retry_at {
        Some(_) => Ok(()),
        None => bound_given_up(sql, task.resource),
    }
}

/// What is due of a Source, the longest due first.
pub(crate) fn due(
    sql: &Connection,
    source: &str,
    now: DateTime<Utc>,
    limit: usize,
) -> Result<Vec<VersionTask>> {
    sql.prepare_cached(&format!(
        "SELECT version_task.resource_id AS resource_id, version_task.at AS at, version_task.source AS source, version_task.kind AS kind,
                resource.set_id AS set_id, resource.uri AS uri, version_task.length AS length, version_task.media_type AS media_type,
                version_task.hashes AS hashes, version_task.encoding AS encoding, version_task.links AS links,
                version_task.attempts AS attempts, resource.path AS path,
                resource.applied_at IS NOT NULL AND resource.deleted = 0 AND NOT {IS_DOUBTED} AS live,
                resource.hashes AS live_hashes, resource.lastmod AS live_lastmod, resource.changed_at AS live_changed_at,
                EXISTS (SELECT 1 FROM task WHERE task.resource_id = version_task.resource_id AND task.state = 'ready'
                    AND COALESCE(task.lastmod, task.changed_at) = version_task.at) AS is_pending
         FROM version_task CROSS JOIN resource ON resource.id = version_task.resource_id
         WHERE version_task.source = ?1 AND version_task.state = 'ready' AND version_task.not_before <= ?2
         ORDER BY version_task.not_before LIMIT ?3"
    ))?
    .query_map(
        params![source, Micros(now), Count::of_rows(limit)],
        VersionTask::from_row,
    )?
    .collect()
}

/// When the first of what is ready is, or was, due. `after`: of what is due later than that.
pub(crate) fn next_due(
    sql: &Connection,
    source: &str,
    after: Option<DateTime<Utc>>,
) -> Result<Option<DateTime<Utc>>> {
    // As in `due`: what has no resource is never due.
    let next: Option<Micros> = sql
        .prepare_cached(
            "SELECT not_before FROM version_task WHERE source = ?1 AND state = 'ready' AND not_before > ?2
               AND EXISTS (SELECT 1 FROM resource WHERE resource.id = version_task.resource_id)
             ORDER BY not_before LIMIT 1",
        )?
        .query_row(
            params![source, after.map_or(i64::MIN, |after| after.timestamp_micros())],
            |row| row.get(0),
        )
        .optional()?;
    Ok(next.map(DateTime::from))
}

/// The greatest time of a stored version of a resource that is before `at`.
pub(crate) fn stored_before(
    sql: &Connection,
    resource: ResourceId,
    at: SourceTime,
) -> Result<Option<SourceTime>> {
    sql.prepare_cached("SELECT MAX(at) FROM version WHERE resource_id = ?1 AND at < ?2")?
        .query_row(params![resource, Column(&at)], |row| column(row, 0))
}

/// A version that is to be stored, for display.
#[derive(Clone, Debug)]
pub struct WaitingVersion {
    /// Its time; `None`: it is a TimeMap that is to be read.
    pub at: Option<SourceTime>,
    /// Whether it was given up.
    pub failed: bool,
    /// Code and message of the last error.
    pub error: Option<(String, String)>,
    /// When it is tried next; `None`: it is not, or it waits for the resource itself.
    pub next_try_at: Option<DateTime<Utc>>,
}

/// What is to be stored of a resource, by time.
pub(crate) fn waiting(sql: &Connection, resource: ResourceId) -> Result<Vec<WaitingVersion>> {
    sql.prepare_cached(
        "SELECT at, state, error_code, error_message, not_before FROM version_task
         WHERE resource_id = ?1 AND state <> 'unwanted' ORDER BY at",
    )?
    .query_map([resource], |row| {
        let (at, state): (SourceTime, String) = (column(row, 0)?, row.get(1)?);
        let code: Option<String> = row.get(2)?;
        let message: Option<String> = row.get(3)?;
        let not_before: Micros = row.get(4)?;
        Ok(WaitingVersion {
            at: (at != TIME_MAP).then_some(at),
            failed: state == "failed",
            error: code.map(|code| (code, message.unwrap_or_default())),
            next_try_at: (state == "ready").then_some(not_before.0),
        })
    })?
    .collect()
}

/// How many versions of a Source are to be stored, and how many were given up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VersionCounts {
    /// Those that are to be stored, and TimeMaps that are to be read.
    pub pending: u64,
    /// Those that were given up.
    pub failed: u64,
}

pub(crate) fn counts(sql: &Connection, source: &str) -> Result<VersionCounts> {
    sql.prepare_cached(
        "SELECT COUNT(*) FILTER (WHERE state IN ('waiting', 'ready')), COUNT(*) FILTER (WHERE state = 'failed') FROM version_task WHERE source = ?1",
    )?
    .query_row([source], |row| {
        Ok(VersionCounts {
            pending: row.get::<_, Count>(0)?.into(),
            failed: row.get::<_, Count>(1)?.into(),
        })
    })
}

/// The last error of what was given up of a Source: code, message and when.
pub(crate) fn last_failure(
    sql: &Connection,
    source: &str,
) -> Result<Option<(String, String, DateTime<Utc>)>> {
    sql.prepare_cached(
        "SELECT error_code, error_message, error_at FROM version_task WHERE source = ?1 AND state = 'failed' AND error_code IS NOT NULL
         ORDER BY error_at DESC LIMIT 1",
    )?
    .query_row([source], |row| {
        let (code, message): (String, Option<String>) = (row.get(0)?, row.get(1)?);
        let at: Micros = row.get(2)?;
        Ok((code, message.unwrap_or_default(), at.0))
    })
    .optional()
}

/// A resource whose versions are shown or requested.
#[derive(Clone, Debug)]
pub struct VersionedResource {
    /// Its number.
    pub id: ResourceId,
    /// The path of its file, relative to the mirror.
    pub path: String,
    /// Its links, of the version that the mirror has or of a pending change.
    pub links: Vec<Link>,
}

pub(crate) fn resource(
    sql: &Connection,
    source: &str,
    uri: &ResourceUri,
) -> Result<Option<VersionedResource>> {
    sql.prepare_cached(
        "SELECT resource.id, resource.path, resource.links, task.links FROM resource LEFT JOIN task ON task.resource_id = resource.id
         WHERE resource.source = ?1 AND resource.identity = ?2",
    )?
    .query_row(params![source, Identity(uri)], |row| {
        let mut links = row.get::<_, LinkList<Vec<Link>>>(2)?.0;
        links.extend(row.get::<_, LinkList<Vec<Link>>>(3)?.0);
        Ok(VersionedResource {
            id: row.get(0)?,
            path: mirrored_path::given(row.get(1)?, uri)?,
            links,
        })
    })
    .optional()
}
