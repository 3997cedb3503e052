//! `published_set`: the sets that are published, and where what is published of their changes begins.
//!
//! Columns: the published changes of a set are those of the feed after number `after`, of the time after `since`.

use chrono::{DateTime, Utc};
use url::Url;

use super::source_set::UriList;
use super::values::{Count, Micros};
use crate::store::ids::SetId;
use crate::store::sql::{Connection, Result, Row, params};

/// A set that is published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedSet {
    /// Its row.
    pub id: SetId,
    /// The label of its Source.
    pub source: String,
    /// The URI of its Capability List at the Source.
    pub capability_list: Url,
    /// The number of the feed after which its published changes begin.
    pub after: i64,
    /// The time after which they do.
    pub since: DateTime<Utc>,
    /// How many resources it has.
    pub resources: u64,
    /// The documents that describe it, as its Source states.
    pub described_by: Vec<Url>,
}

const SETS: &str =
    "SELECT id, source, capability_list, after, since, resources, described_by FROM source_set
    JOIN published_set ON set_id = id";

impl PublishedSet {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        Ok(Self {
            id: row.get("id")?,
            source: row.get("source")?,
            capability_list: row.get("capability_list")?,
            after: row.get("after")?,
            since: row.get::<_, Micros>("since")?.0,
            resources: row.get::<_, Count>("resources")?.0,
            described_by: row.get::<_, UriList>("described_by")?.0,
        })
    }
}

/// The published sets of a Source that are still followed.
pub(crate) fn of_source(sql: &Connection, source: &str) -> Result<Vec<PublishedSet>> {
    sql.prepare_cached(&format!(
        "{SETS} WHERE source = ?1 AND ended = 0 ORDER BY id"
    ))?
    .query_map([source], PublishedSet::from_row)?
    .collect()
}

/// Publishes the sets of a Source that have a complete copy, from now on; returns how many are new.
pub(crate) fn begin(
    sql: &Connection,
    source: &str,
    after: i64,
    since: DateTime<Utc>,
) -> Result<usize> {
    sql.prepare_cached(
        "INSERT INTO published_set (set_id, after, since) SELECT id, ?2, ?3 FROM source_set
         WHERE source = ?1 AND ended = 0 AND baseline = 'done' AND id NOT IN (SELECT set_id FROM published_set)",
    )?
    .execute(params![source, after, Micros(since)])
}

/// Whether a set of a Source has a complete copy, and is not published.
pub(crate) fn any_new(sql: &Connection, source: &str) -> Result<bool> {
    sql.prepare_cached(
        "SELECT 1 FROM source_set WHERE source = ?1 AND ended = 0 AND baseline = 'done' AND id NOT IN (SELECT set_id FROM published_set)",
    )?
    .exists([source])
}

/// The Sources of all published sets.
pub(crate) fn sources(sql: &Connection) -> Result<Vec<String>> {
    sql.prepare_cached("SELECT DISTINCT source FROM published_set JOIN source_set ON id = set_id")?
        .query_map([], |row| row.get(0))?
        .collect()
}

/// Ends the publication of all sets of a Source.
pub(crate) fn end(sql: &Connection, source: &str) -> Result<()> {
    sql.prepare_cached(
        "DELETE FROM published_set WHERE set_id IN (SELECT id FROM source_set WHERE source = ?1)",
    )?
    .execute([source])
    .map(drop)
}

/// Has the published changes of all sets begin anew.
pub(crate) fn begin_anew(sql: &Connection, after: i64, since: DateTime<Utc>) -> Result<()> {
    sql.prepare_cached("UPDATE published_set SET after = ?1, since = ?2")?
        .execute(params![after, Micros(since)])
        .map(drop)
}

pub(crate) fn delete_all(sql: &Connection) -> Result<()> {
    sql.execute("DELETE FROM published_set", []).map(drop)
}

pub(crate) fn delete(sql: &Connection, set: SetId) -> Result<()> {
    sql.prepare_cached("DELETE FROM published_set WHERE set_id = ?1")?
        .execute([set])
        .map(drop)
}
