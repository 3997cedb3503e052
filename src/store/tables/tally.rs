//! `tally`: how many tasks each set has, by their state, their [`TalliedKind`], and the code of their error, which is empty without one.
//!
//! A row is there as long as its number is not zero. Who changes tasks adds what that changes to [`Tallied`], whose sums are written once,
//! before the commit: inside a transaction the table states what there was before.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Deref;

use super::task::TaskState;
use super::values::{Column, Count, column, texts};
use crate::store::ids::SetId;
use crate::store::sql::{Connection, Result, Row, params};

/// What a task is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TalliedKind {
    /// A resource that is deleted.
    Deletion,
    /// A resource that the mirror has, and that a list names without stating anything about the content.
    Check,
    /// Any other resource.
    Update,
}

texts! {
    TalliedKind:
        |kind| match kind {
            Self::Deletion => "deletion",
            Self::Check => "check",
            Self::Update => "update",
        },
        |text| match text {
            "deletion" => Some(Self::Deletion),
            "check" => Some(Self::Check),
            "update" => Some(Self::Update),
            _ => None,
        },
        "the kind of a task";
}

/// A row of the table, without its number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TallyKey {
    pub(crate) set: SetId,
    pub(crate) state: TaskState,
    pub(crate) kind: TalliedKind,
    pub(crate) code: String,
}

/// The columns of `task` that [`TallyKey::from_row`] reads first.
pub(crate) const TALLIED: &str = "set_id, state, CASE WHEN kind = 'deleted' THEN 'deletion'
    WHEN origin = 'resource-list' AND kind = 'updated' AND lastmod IS NULL AND length IS NULL AND hashes = '' THEN 'check'
    ELSE 'update' END, COALESCE(error_code, '')";

impl TallyKey {
    pub(crate) fn from_row(row: &Row<'_>) -> Result<Self> {
        Ok(Self {
            set: row.get(0)?,
            state: column(row, 1)?,
            kind: column(row, 2)?,
            code: row.get(3)?,
        })
    }
}

/// What a transaction adds to the rows of the table.
pub(crate) type Deltas = BTreeMap<TallyKey, i64>;

/// A connection inside a transaction, with what the transaction adds to the table until that is [written](Self::write).
pub(crate) struct Tallied<'a> {
    sql: &'a Connection,
    deltas: RefCell<Deltas>,
}

impl Deref for Tallied<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.sql
    }
}

impl<'a> Tallied<'a> {
    pub(crate) fn new(sql: &'a Connection) -> Self {
        Self {
            sql,
            deltas: RefCell::default(),
        }
    }

    /// Adds to the number of a row, if it is one; below zero: subtracts.
    pub(crate) fn add(&self, key: Option<TallyKey>, delta: i64) {
        if let Some(key) = key {
            *self.deltas.borrow_mut().entry(key).or_default() += delta;
        }
    }

    /// What was added so far.
    pub(crate) fn deltas(&self) -> Deltas {
        self.deltas.borrow().clone()
    }

    /// Drops what was added since: the changes of the tasks were rolled back.
    pub(crate) fn roll_back_to(&self, deltas: Deltas) {
        self.deltas.replace(deltas);
    }

    /// Writes what was added.
    pub(crate) fn write(&self) -> Result<()> {
        for (key, delta) in self.deltas.take() {
            if delta != 0 {
                write(self.sql, &key, delta)?;
            }
        }
        Ok(())
    }
}

fn write(sql: &Connection, key: &TallyKey, delta: i64) -> Result<()> {
    let (state, kind) = (Column(&key.state), Column(&key.kind));
    let number: i64 = sql
        .prepare_cached(
            "INSERT INTO tally (set_id, state, kind, code, n) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (set_id, state, kind, code) DO UPDATE SET n = tally.n + excluded.n RETURNING n",
        )?
        .query_row(params![key.set, state, kind, key.code, delta], |row| row.get(0))?;
    if number == 0 {
        sql.prepare_cached("DELETE FROM tally WHERE set_id = ?1 AND n = 0")?
            .execute([key.set])?;
    }
    Ok(())
}

/// The tasks of a set. The rows are as many as codes, and do not grow with the tasks.
pub(crate) fn of_set(sql: &Connection, set: SetId) -> Result<Vec<(TallyKey, u64)>> {
    sql.prepare_cached("SELECT set_id, state, kind, code, n FROM tally WHERE set_id = ?1")?
        .query_map([set], |row| {
            Ok((TallyKey::from_row(row)?, row.get::<_, Count>(4)?.0))
        })?
        .collect()
}

/// How many tasks of a Source are ready.
pub(crate) fn ready_of_source(sql: &Connection, source: &str) -> Result<u64> {
    sql.prepare_cached(
        "SELECT CAST(COALESCE(SUM(tally.n), 0) AS BIGINT) FROM source_set JOIN tally ON tally.set_id = source_set.id
         WHERE source_set.source = ?1 AND tally.state = 'ready'",
    )?
    .query_row([source], |row| Ok(row.get::<_, Count>(0)?.0))
}

/// How many deletions of the followed sets of a Source are held back.
pub(crate) fn held_back_of_source(sql: &Connection, source: &str) -> Result<u64> {
    sql.prepare_cached(
        "SELECT CAST(COALESCE(SUM(tally.n), 0) AS BIGINT) FROM source_set JOIN tally ON tally.set_id = source_set.id
         WHERE source_set.source = ?1 AND source_set.ended = 0 AND tally.state = 'held'",
    )?
    .query_row([source], |row| Ok(row.get::<_, Count>(0)?.0))
}
