//! `source_set`: the sets of each Source, and how far they have been read.
//!
//! Column: `equal_copies` is by how many more copies that were fetched because of their `lastmod` were equal than different.

use std::collections::HashSet;

use chrono::{DateTime, Utc};
use resourcesync::uri::parse_uri;
use resourcesync::{Capability, Interval, Oddities, SourceTime};
use resyncd_core::{DOUBTED_FROM, DOUBTED_MOST, HubUri, Offer, SetFacts};
use rusqlite::types::{FromSql, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use serde::{Deserialize, Serialize};
use url::Url;

use super::values::{Column, Count, Micros, column, invalid, json, parse_json, texts};
use super::{coverage, published_set, statement};
use crate::store::ids::SetId;
use crate::store::sql::{Connection, Params, Result, Row, params};

/// How far the baseline of a set has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BaselineState {
    /// Not read yet.
    Missing,
    /// Read; its resources are being fetched.
    Listed,
    /// Done.
    Done,
}

impl BaselineState {
    fn code(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Listed => "listed",
            Self::Done => "done",
        }
    }

    fn from_code(code: &str) -> Self {
        match code {
            "done" => Self::Done,
            "listed" => Self::Listed,
            _ => Self::Missing,
        }
    }
}

texts! {
    BaselineState: |state| state.code(), |text| Some(Self::from_code(text)), "a baseline's state";
}

/// A set that is followed.
#[derive(Clone, Debug)]
pub struct SetRecord {
    /// Its row.
    pub id: SetId,
    /// The label of its Source.
    pub source: String,
    /// The URI of its Capability List.
    pub capability_list: Url,
    /// What the Capability List offered when it was last read.
    pub offers: Vec<Offer>,
    /// How far the baseline has come.
    pub baseline: BaselineState,
    /// The time of the newest Resource List that was read completely.
    pub list_at: Option<SourceTime>,
    /// The time of which the Source's documents have been read without a hole.
    pub read: Option<Interval>,
    /// The open Change List that was read last.
    pub open_list: Option<Url>,
    /// Whether it was ever read completely: a Resource List or Resource Dump, and then the changes since.
    pub was_read: bool,
    /// The fingerprint of the filter with which the newest Resource List was read, or will be, if there was none yet; `None`: an earlier
    /// version has read it.
    pub filter: Option<String>,
    /// The one with which documents are read: while a new Resource List can't be read, it is another one.
    pub read_filter: Option<String>,
}

impl SetRecord {
    /// Whether the set has no Capability List: its Sitemap or Resource List stands for one.
    pub fn is_implied(&self) -> bool {
        Offer::is_implied(&self.offers, &self.capability_list)
    }

    /// Whether no other document states anything, whatever interfaces there are.
    pub fn has_only_list(&self) -> bool {
        self.is_implied() && !self.names_document()
    }

    /// Whether its documents show that it is not followed by a plain sitemap. A Resource List without a Capability List shows it only when
    /// it is read.
    pub fn has_resourcesync(&self) -> bool {
        let is_read = !self.offers.is_empty();
        is_read && !(self.is_implied() && self.offers.len() == 1)
    }

    /// Whether a Change Set or a dump is offered besides the first document.
    pub fn names_document(&self) -> bool {
        let mut others = self.offers.iter().skip(1);
        others.any(Offer::is_named_document)
    }
}

const COLUMNS: &str = "id, source, capability_list, offers, baseline, list_at, read_from, read_until, open_list, was_read, filter, read_filter";

impl SetRecord {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        Ok(Self {
            id: row.get("id")?,
            source: row.get("source")?,
            capability_list: row.get("capability_list")?,
            offers: row.get::<_, OfferList<Vec<Offer>>>("offers")?.0,
            baseline: column(row, "baseline")?,
            list_at: column(row, "list_at")?,
            read: interval(column(row, "read_from")?, column(row, "read_until")?),
            open_list: row.get("open_list")?,
            was_read: row.get("was_read")?,
            filter: row.get("filter")?,
            read_filter: row.get("read_filter")?,
        })
    }
}

const URIS: &str = "a list of URIs";

/// A JSON array of URIs, or NULL.
pub(super) struct UriList(pub(super) Vec<Url>);

impl FromSql for UriList {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let Some(text) = value.as_str_or_null()? else {
            return Ok(Self(Vec::new()));
        };
        let texts: Vec<String> = parse_json(text, URIS)?;
        let uris: Result<_, _> = texts.iter().map(|text| parse_uri(text)).collect();
        uris.map(Self).map_err(|_| invalid(URIS))
    }
}

/// The `offers` column: JSON.
pub(super) struct OfferList<T>(pub(super) T);

#[derive(Serialize, Deserialize)]
struct OfferRow {
    capability: String,
    uri: String,
    hubs: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    protocol: Option<String>,
}

const OFFER: &str = "an offer";

impl ToSql for OfferList<&[Offer]> {
    fn to_sql(&self) -> Result<ToSqlOutput<'_>> {
        let offers = self.0.iter().map(|offer| OfferRow {
            capability: offer.capability.as_str().to_owned(),
            uri: offer.uri.to_string(),
            hubs: offer.hubs.iter().map(ToString::to_string).collect(),
            protocol: offer.protocol.clone(),
        });
        Ok(json(&offers.collect::<Vec<_>>())?.into())
    }
}

impl FromSql for OfferList<Vec<Offer>> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let offers: Vec<OfferRow> = parse_json(value.as_str()?, OFFER)?;
        let offers: Option<_> = offers.into_iter().map(OfferRow::into_offer).collect();
        offers.map(Self).ok_or_else(|| invalid(OFFER))
    }
}

impl OfferRow {
    fn into_offer(self) -> Option<Offer> {
        let hubs = self.hubs.iter().map(|hub| HubUri::parse(hub).ok());
        Some(Offer {
            capability: Capability::parse(&self.capability, &mut Oddities::default())?,
            uri: parse_uri(&self.uri).ok()?,
            hubs: hubs.collect::<Option<_>>()?,
            protocol: self.protocol,
        })
    }
}

/// Inserts the set of a Capability List, or marks the existing one as followed.
pub(crate) fn follow(sql: &Connection, source: &str, capability_list: &Url) -> Result<SetRecord> {
    sql.prepare_cached(
        "INSERT INTO source_set (source, capability_list) VALUES (?1, ?2)
         ON CONFLICT (source, capability_list) DO UPDATE SET ended = 0",
    )?
    .execute(params![source, capability_list])?;
    sql.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM source_set WHERE source = ?1 AND capability_list = ?2"
    ))?
    .query_row(params![source, capability_list], SetRecord::from_row)
}

/// The sets of a Source that are followed, in the order of their ids.
pub(crate) fn followed(sql: &Connection, source: &str) -> Result<Vec<SetRecord>> {
    sql.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM source_set WHERE source = ?1 AND ended = 0 ORDER BY id"
    ))?
    .query_map([source], SetRecord::from_row)?
    .collect()
}

/// The Sources that have sets, followed or not; or only this one, if it has any.
pub(crate) fn sources(sql: &Connection, source: Option<&str>) -> Result<Vec<String>> {
    sql.prepare_cached(
        "SELECT DISTINCT source FROM source_set WHERE CAST(?1 AS TEXT) IS NULL OR source = ?1 ORDER BY source",
    )?
    .query_map([source], |row| row.get(0))?
    .collect()
}

/// The sets of a Capability List, followed or not: one of each Source that has it, or only that of this Source.
pub(crate) fn of_list(
    sql: &Connection,
    capability_list: &str,
    source: Option<&str>,
) -> Result<Vec<SetId>> {
    sql.prepare_cached(
        "SELECT id FROM source_set WHERE capability_list = ?1 AND (CAST(?2 AS TEXT) IS NULL OR source = ?2) ORDER BY id",
    )?
    .query_map(params![capability_list, source], |row| row.get(0))?
    .collect()
}

/// Whether a URI is the Capability List of another set of the same Source that is followed.
pub(crate) fn is_list_of_another(sql: &Connection, set: SetId, uri: &Url) -> Result<bool> {
    sql.prepare_cached(
        "SELECT 1 FROM source_set AS own JOIN source_set AS other ON other.source = own.source
         WHERE own.id = ?1 AND other.id <> own.id AND other.capability_list = ?2 AND other.ended = 0",
    )?
    .exists(params![set, uri])
}

/// Marks a set as no longer followed, and drops what it has offered.
pub(crate) fn end(sql: &Connection, set: SetId) -> Result<()> {
    let end = "UPDATE source_set SET ended = 1, offers = '[]' WHERE id = ?1";
    update(sql, end, [set])
}

/// The Capability Lists of the sets of a Source that are followed, and of the former ones that have files, pending changes or channels.
pub(crate) fn counted(sql: &Connection, source: &str) -> Result<HashSet<Url>> {
    sql.prepare_cached(
            "SELECT capability_list FROM source_set AS own WHERE source = ?1 AND (ended = 0 OR resources > 0
               OR EXISTS (SELECT 1 FROM task WHERE task.set_id = own.id)
               OR EXISTS (SELECT 1 FROM channel WHERE channel.set_id = own.id))",
        )?
        .query_map([source], |row| row.get(0))?
        .collect()
}

/// The former sets of a Source, or of all.
pub(crate) fn former(sql: &Connection, source: Option<&str>) -> Result<Vec<SetId>> {
    sql.prepare_cached(
        "SELECT id FROM source_set WHERE ended = 1 AND (CAST(?1 AS TEXT) IS NULL OR source = ?1)",
    )?
    .query_map([source], |row| row.get(0))?
    .collect()
}

/// Whether nothing refers to a former set, and no result of a task of its Source may arrive that does: the task was dropped while it
/// was executed, or handed to another set.
const IS_UNNAMED: &str = "own.ended = 1
    AND NOT EXISTS (SELECT 1 FROM channel WHERE channel.set_id = own.id)
    AND NOT EXISTS (SELECT 1 FROM member WHERE member.set_id = own.id)
    AND NOT EXISTS (SELECT 1 FROM task WHERE task.set_id = own.id)
    AND NOT EXISTS (SELECT 1 FROM loss WHERE loss.set_id = own.id)
    AND NOT EXISTS (SELECT 1 FROM resource WHERE resource.set_id = own.id)
    AND NOT EXISTS (SELECT 1 FROM feed WHERE feed.set_id = own.id)
    AND NOT EXISTS (SELECT 1 FROM dropped_task CROSS JOIN resource ON resource.id = dropped_task.resource_id
                    WHERE resource.source = own.source)";

/// Whether a former set is named by nothing any more.
pub(crate) fn is_unnamed(sql: &Connection, set: SetId) -> Result<bool> {
    sql.prepare_cached(&format!(
        "SELECT 1 FROM source_set AS own WHERE own.id = ?1 AND {IS_UNNAMED}"
    ))?
    .exists([set])
}

/// Deletes a set that nothing names.
pub(crate) fn delete(sql: &Connection, set: SetId) -> Result<()> {
    statement::delete_of_set(sql, set)?;
    published_set::delete(sql, set)?;
    update(sql, "DELETE FROM source_set WHERE id = ?1", [set])
}

pub(crate) fn set_offers(sql: &Connection, set: SetId, offers: &[Offer]) -> Result<()> {
    let set_offers = "UPDATE source_set SET offers = ?2 WHERE id = ?1";
    update(sql, set_offers, params![set, OfferList(offers)])
}

/// Gives a set another Capability List.
pub(crate) fn rename(sql: &Connection, set: SetId, capability_list: &Url) -> Result<()> {
    let rename = "UPDATE source_set SET capability_list = ?2 WHERE id = ?1";
    update(sql, rename, params![set, capability_list])
}

/// Notes the documents that describe a set.
pub(crate) fn set_described_by(sql: &Connection, set: SetId, documents: &[Url]) -> Result<()> {
    let documents: Vec<&str> = documents.iter().map(Url::as_str).collect();
    let set_documents =
        "UPDATE source_set SET described_by = ?2 WHERE id = ?1 AND described_by <> ?2";
    update(sql, set_documents, params![set, json(&documents)?])
}

/// Notes that a set was read completely, if it has a baseline; whether it has.
pub(crate) fn set_read(sql: &Connection, set: SetId) -> Result<bool> {
    sql.prepare_cached(
        "UPDATE source_set SET was_read = 1 WHERE id = ?1 AND baseline <> 'missing'",
    )?
    .execute([set])
    .map(|stored| stored > 0)
}

/// Whether another set of the same Source is followed and was never read completely.
pub(crate) fn is_other_unread(sql: &Connection, set: SetId) -> Result<bool> {
    sql.prepare_cached(
        "SELECT 1 FROM source_set AS own JOIN source_set AS other ON other.source = own.source
         WHERE own.id = ?1 AND other.id <> own.id AND other.was_read = 0 AND other.ended = 0",
    )?
    .exists([set])
}

/// The open Change List that was read last.
pub(crate) fn open_list(sql: &Connection, set: SetId) -> Result<Option<Url>> {
    get(sql, "SELECT open_list FROM source_set WHERE id = ?1", set)
}

pub(crate) fn set_open_list(sql: &Connection, set: SetId, open_list: Option<&Url>) -> Result<()> {
    let set_open_list = "UPDATE source_set SET open_list = ?2 WHERE id = ?1";
    update(sql, set_open_list, params![set, open_list])
}

/// Since when deletions of a set are held back, on our clock; it counts only while some are.
pub(crate) fn held_since(sql: &Connection, set: SetId) -> Result<Option<DateTime<Utc>>> {
    let since: Option<Micros> = get(sql, "SELECT held_since FROM source_set WHERE id = ?1", set)?;
    Ok(since.map(DateTime::from))
}

pub(crate) fn set_held_since(sql: &Connection, set: SetId, since: DateTime<Utc>) -> Result<()> {
    let set_held_since = "UPDATE source_set SET held_since = ?2 WHERE id = ?1";
    update(sql, set_held_since, params![set, Micros(since)])
}

/// Begins a new reading of the Resource List.
pub(crate) fn begin_generation(sql: &Connection, set: SetId) -> Result<()> {
    let begin = "UPDATE source_set SET generation = generation + 1 WHERE id = ?1";
    update(sql, begin, [set])
}

/// How many undated entries were checked on a day, in days since 1970.
pub(crate) fn checks_on(sql: &Connection, set: SetId, day: i64) -> Result<u64> {
    sql.prepare_cached(
        "SELECT CASE checks_on WHEN ?2 THEN checks ELSE 0 END FROM source_set WHERE id = ?1",
    )?
    .query_row(params![set, day], |row| Ok(row.get::<_, Count>(0)?.0))
}

pub(crate) fn set_checks(sql: &Connection, set: SetId, day: i64, checks: u64) -> Result<()> {
    let set_checks = "UPDATE source_set SET checks_on = ?2, checks = ?3 WHERE id = ?1";
    update(sql, set_checks, params![set, day, Count(checks)])
}

/// Counts a copy that was fetched because of its `lastmod` alone.
pub(crate) fn count_copy(sql: &Connection, set: SetId, is_equal: bool) -> Result<()> {
    let count = if is_equal {
        "UPDATE source_set SET equal_copies = equal_copies + 1 WHERE id = ?1 AND equal_copies < ?2"
    } else {
        "UPDATE source_set SET equal_copies = equal_copies - 1 WHERE id = ?1 AND equal_copies BETWEEN 1 AND ?2"
    };
    sql.prepare_cached(count)?
        .execute(params![set, DOUBTED_MOST])
        .map(drop)
}

/// Whether a `lastmod` of a list of the set that has moved is not believed.
pub(crate) fn doubts_lastmod(sql: &Connection, set: SetId) -> Result<bool> {
    sql.prepare_cached("SELECT 1 FROM source_set WHERE id = ?1 AND equal_copies >= ?2")?
        .exists(params![set, DOUBTED_FROM])
}

/// Notes that a Resource List of the time `at` is being read.
pub(crate) fn set_reading(sql: &Connection, set: SetId, at: SourceTime) -> Result<()> {
    sql.prepare_cached(
        "UPDATE source_set SET reading_at = ?2 WHERE id = ?1 AND reading_at IS DISTINCT FROM ?2",
    )?
    .execute(params![set, Column(&at)])
    .map(drop)
}

/// Notes that no Resource List is being read any more, if one was that was not read completely.
pub(crate) fn end_reading(sql: &Connection, set: SetId) -> Result<()> {
    sql.prepare_cached(
        "UPDATE source_set SET reading_at = NULL
         WHERE id = ?1 AND reading_at IS NOT NULL AND (list_at IS NULL OR reading_at > list_at)",
    )?
    .execute([set])
    .map(drop)
}

/// Notes that a Resource List of the time `at` was read completely, with the filter if one is given.
pub(crate) fn set_listed(
    sql: &Connection,
    set: SetId,
    at: SourceTime,
    filter: Option<&str>,
) -> Result<()> {
    let set_listed =
        "UPDATE source_set SET list_at = ?2, reading_at = NULL, filter = COALESCE(?3, filter),
             baseline = CASE baseline WHEN 'missing' THEN 'listed' ELSE baseline END
         WHERE id = ?1";
    update(sql, set_listed, params![set, Column(&at), filter])
}

/// Stores the time of the newest Resource List of a set of which this database has nothing.
pub(crate) fn set_list_at(sql: &Connection, set: SetId, at: SourceTime) -> Result<()> {
    let set_list_at = "UPDATE source_set SET list_at = ?2 WHERE id = ?1";
    update(sql, set_list_at, params![set, Column(&at)])
}

pub(crate) fn record(sql: &Connection, set: SetId) -> Result<SetRecord> {
    sql.prepare_cached(&format!("SELECT {COLUMNS} FROM source_set WHERE id = ?1"))?
        .query_row([set], SetRecord::from_row)
}

/// Notes the filter with which documents are read from now on, also as that of the Resource List, unless one was read with another.
pub(crate) fn set_filter(sql: &Connection, set: SetId, filter: &str) -> Result<()> {
    let set_filter = "UPDATE source_set SET read_filter = ?2,
             filter = CASE WHEN filter IS NULL OR list_at IS NULL THEN ?2 ELSE filter END WHERE id = ?1";
    update(sql, set_filter, params![set, filter])
}

/// Lowers the time up to which documents have been read to that of the newest Resource List.
pub(crate) fn read_again(sql: &Connection, set: SetId) -> Result<()> {
    let read_again =
        "UPDATE source_set SET read_from = NULL, read_until = COALESCE(list_at, 0) WHERE id = ?1";
    update(sql, read_again, params![set])
}

/// Stores the time of which documents have been read.
pub(crate) fn set_read_time(sql: &Connection, set: SetId, read: Interval) -> Result<()> {
    let set_read = "UPDATE source_set SET read_from = ?2, read_until = ?3 WHERE id = ?1";
    let (from, until) = (read.from(), read.until());
    update(sql, set_read, params![set, Column(&from), Column(&until)])
}

/// `from`: `None` from any time on.
fn interval(from: Option<SourceTime>, until: Option<SourceTime>) -> Option<Interval> {
    Interval::new(from.unwrap_or(SourceTime::MIN), until?)
}

/// Ends each baseline of the set's Source of which no task is pending: tasks of one set's baseline may belong to another
/// set that has named the same resource since.
pub(crate) fn end_finished_baselines(sql: &Connection, set: SetId) -> Result<()> {
    let end_finished = "UPDATE source_set SET baseline = 'done'
         WHERE source = (SELECT source FROM source_set WHERE id = ?1) AND baseline = 'listed' AND NOT EXISTS (
             SELECT 1 FROM task WHERE set_id = source_set.id AND state = 'ready' AND origin IN ('resource-list', 'resource-dump'))";
    update(sql, end_finished, [set])
}

/// Notes that two sets have resources in common.
pub(crate) fn set_sharing(sql: &Connection, one: SetId, other: SetId) -> Result<()> {
    let set_sharing = "UPDATE source_set SET shares = 1 WHERE id IN (?1, ?2) AND shares = 0";
    update(sql, set_sharing, [one, other])
}

/// The other sets of the Source that may have resources in common with this one.
pub(crate) fn sharing_with(sql: &Connection, set: SetId) -> Result<Vec<SetId>> {
    sql.prepare_cached(&format!("{SHARING} ORDER BY other.id"))?
        .query_map([set], |row| row.get(0))?
        .collect()
}

/// Ids of the other sets that may have resources in common with the set `?1`.
pub(super) const SHARING: &str = "SELECT other.id FROM source_set AS own
    JOIN source_set AS other ON other.source = own.source AND other.id <> own.id
    WHERE own.id = ?1 AND own.shares = 1 AND other.shares = 1";

/// What the mirror has of a set.
pub(crate) struct Totals {
    pub(crate) resources: u64,
    /// In bytes.
    pub(crate) bytes: u64,
    pub(crate) baseline: BaselineState,
}

pub(crate) fn totals(sql: &Connection, set: SetId) -> Result<Totals> {
    sql.prepare_cached("SELECT resources, bytes, baseline FROM source_set WHERE id = ?1")?
        .query_row([set], |row| {
            Ok(Totals {
                resources: row.get::<_, Count>(0)?.0,
                bytes: row.get::<_, Count>(1)?.0,
                baseline: column(row, 2)?,
            })
        })
}

/// Adds to the totals of a set.
pub(crate) fn add_totals(sql: &Connection, set: SetId, resources: i64, bytes: i64) -> Result<()> {
    let add = "UPDATE source_set SET resources = resources + ?2, bytes = bytes + ?3 WHERE id = ?1";
    update(sql, add, params![set, resources, bytes])
}

/// What the statements of a set are compared with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SetTimes {
    pub(crate) facts: SetFacts,
    /// The time of the newest list, which may be one that is being read.
    pub(crate) newest_list_at: Option<SourceTime>,
}

pub(crate) fn times(sql: &Connection, set: SetId) -> Result<SetTimes> {
    let unbroken = coverage::unbroken_until(sql, set)?;
    sql.prepare_cached(
        "SELECT ended = 0, list_at, reading_at, read_from, read_until FROM source_set WHERE id = ?1",
    )?
    .query_row([set], |row| {
        let list_at: Option<SourceTime> = column(row, 1)?;
        Ok(SetTimes {
            facts: SetFacts {
                is_followed: row.get(0)?,
                list_at,
                read: interval(column(row, 3)?, column(row, 4)?),
                unbroken,
            },
            newest_list_at: list_at.max(column(row, 2)?),
        })
    })
}

/// Whether a set is known.
pub(crate) fn exists(sql: &Connection, set: SetId) -> Result<bool> {
    sql.prepare_cached("SELECT 1 FROM source_set WHERE id = ?1")?
        .exists([set])
}

fn get<T: FromSql>(sql: &Connection, query: &str, set: SetId) -> Result<T> {
    sql.prepare_cached(query)?
        .query_row([set], |row| row.get(0))
}

fn update(sql: &Connection, statement: &str, values: impl Params) -> Result<()> {
    sql.prepare_cached(statement)?.execute(values).map(drop)
}
