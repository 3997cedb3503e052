//! The parts of a Resource List: the lists that its index names, or the one list that it is. A part that is the same as when
//! it was read last need not be read again: what it named then, it names now.
//!
//! A member keeps in mind the part that named it. Three things must never happen:
//! - That a member goes because a part that names it was passed over. Who is named by several parts belongs to
//!   [`SEVERAL`]; whether those are gone, only a reading of all parts can tell.
//! - That a member stays because of a part that does not name it any more: a part speaks for those that it named when it
//!   was read last (`member.generation >= part.read`).
//! - That a part is passed over that was read half: it is whole (it has a `filter`) only from its end on.

use std::ops::RangeInclusive;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use rusqlite::{Connection, OptionalExtension, params};
use url::Url;

use super::resources::Membership;
use super::sets::{DocumentRecord, save_document};
use super::writer::Tx;
use super::{PartId, ResourceId, SetId, Store, StoreError, row};
use crate::protocol::SourceTime;
use crate::sync::KnownPart;

/// Stands for the part of a member that several parts name. No row has this number.
const SEVERAL: i64 = 0;

/// What is known of a part.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Its row.
    pub id: PartId,
    /// What decides whether it must be read again.
    pub known: KnownPart,
    /// How many of its entries could not be read.
    pub bad_entries: u64,
}

/// A part that has not changed.
#[derive(Clone, Copy, Debug)]
pub struct KeptPart {
    /// The part.
    pub id: PartId,
    /// What is told of it, if its server was asked for it just now.
    pub asked: Option<PartWord>,
}

/// What there is to go by the next time.
#[derive(Clone, Copy, Debug)]
pub struct PartWord {
    /// The time that the index told, if it proves something.
    pub told: Option<SourceTime>,
    /// When its server was asked, on our clock.
    pub asked_at: DateTime<Utc>,
}

/// What is kept of a part that was read to its end.
#[derive(Clone, Debug)]
pub struct PartEnd {
    /// What was wanted when it was read.
    pub filter: String,
    /// What there is to go by the next time.
    pub word: PartWord,
    /// How many of its entries could not be read.
    pub bad_entries: u64,
    /// So as not to read it again while it stays the same; `None`: that is not for the part to say.
    pub document: Option<DocumentRecord>,
}

/// Some entries of a part are taken.
#[derive(Clone, Debug)]
pub struct PartStep {
    /// Where the part was fetched.
    pub uri: Url,
    /// Whether they are its first ones. From now on it does not count as read.
    pub begins: bool,
    /// Whether they are its last ones. From now on it counts as read whole.
    pub end: Option<PartEnd>,
}

impl PartStep {
    pub(super) fn begin(&self, sql: &Connection, set: SetId) -> Result<PartId, StoreError> {
        let begin = if self.begins {
            "INSERT INTO part (set_id, uri) VALUES (?1, ?2)
             ON CONFLICT (set_id, uri) DO UPDATE SET filter = NULL, doubted = 0 RETURNING id"
        } else {
            "SELECT id FROM part WHERE set_id = ?1 AND uri = ?2"
        };
        let id = sql
            .prepare_cached(begin)?
            .query_row(params![set.0, self.uri.as_str()], |row| row.get(0))?;
        Ok(PartId(id))
    }

    pub(super) fn end(&self, tx: &mut Tx<'_>, set: SetId, part: PartId) -> Result<(), StoreError> {
        let Some(end) = &self.end else { return Ok(()) };
        tx.sql
            .prepare_cached(
                "UPDATE part SET filter = ?2, told = ?3, asked_at = ?4, bad_entries = ?5,
                        read = (SELECT generation FROM source_set WHERE id = part.set_id) WHERE id = ?1",
            )?
            .execute(params![
                part.0,
                end.filter,
                end.word.told.map(SourceTime::micros),
                row::micros(end.word.asked_at),
                row::signed(end.bad_entries),
            ])?;
        match &end.document {
            Some(document) => save_document(tx, set, document),
            None => Ok(()),
        }
    }
}

impl Store {
    /// Whether the parts that were read are no proof any more, although their index is the same: something else is wanted
    /// now, or the server was not asked for one of them within `asked`, or they were not all read to their end.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn must_look_at_parts(
        self: &Arc<Self>,
        set: SetId,
        filter: &str,
        asked: RangeInclusive<DateTime<Utc>>,
    ) -> Result<bool, StoreError> {
        let filter = filter.to_owned();
        self.read(move |sql| {
            let mut query = sql.prepare_cached(
                "SELECT 1 FROM part WHERE set_id = ?1
                 AND ((filter IS NOT ?2 AND doubted = 0) OR (told IS NOT NULL AND asked_at NOT BETWEEN ?3 AND ?4))",
            )?;
            Ok(query.exists(params![
                set.0,
                filter,
                row::micros(*asked.start()),
                row::micros(*asked.end())
            ])?)
        })
        .await
    }

    /// Whether a part was read last when something else was wanted, or was not read to its end.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn lacks_parts(
        self: &Arc<Self>,
        set: SetId,
        filter: &str,
    ) -> Result<bool, StoreError> {
        let filter = filter.to_owned();
        self.read(move |sql| {
            let mut query = sql.prepare_cached(
                "SELECT 1 FROM part WHERE set_id = ?1 AND filter IS NOT ?2 AND doubted = 0",
            )?;
            Ok(query.exists(params![set.0, filter])?)
        })
        .await
    }

    /// Begins to read a Resource List with its parts: until its end it does not count as read, whatever it was before. Parts
    /// that were read with another filter than `trusted` are no longer trusted; `None`: none is.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn begin_parts(
        self: &Arc<Self>,
        set: SetId,
        uri: &Url,
        trusted: Option<&str>,
    ) -> Result<(), StoreError> {
        let (uri, trusted) = (uri.to_string(), trusted.map(str::to_owned));
        self.write(move |tx| {
            tx.sql.execute(
                "DELETE FROM document WHERE set_id = ?1 AND uri = ?2",
                params![set.0, uri],
            )?;
            tx.sql.execute(
                "UPDATE part SET filter = NULL WHERE set_id = ?1 AND filter IS NOT NULL AND filter IS NOT ?2",
                params![set.0, trusted],
            )?;
            Ok(())
        })
        .await
    }

    /// What is known of a part; `None` if it was never begun to be read.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn part(self: &Arc<Self>, set: SetId, uri: &Url) -> Result<Option<Part>, StoreError> {
        let uri = uri.to_string();
        self.read(move |sql| {
            let mut query = sql.prepare_cached(
                "SELECT part.id, part.filter IS NOT NULL AND part.doubted = 0, MAX(part.read, part.kept) = source_set.generation, part.told,
                        part.asked_at, part.bad_entries
                 FROM part JOIN source_set ON source_set.id = part.set_id WHERE part.set_id = ?1 AND part.uri = ?2",
            )?;
            let found = query.query_row(params![set.0, uri], |found| {
                Ok(Part {
                    id: PartId(found.get(0)?),
                    known: KnownPart {
                        is_whole: found.get(1)?,
                        is_done: found.get(2)?,
                        told: row::source_time(found.get(3)?),
                        asked_at: found.get::<_, Option<i64>>(4)?.map(row::datetime),
                    },
                    bad_entries: found.get::<_, i64>(5).map(row::unsigned)?,
                })
            });
            Ok(found.optional()?)
        })
        .await
    }

    /// Notes that parts are unchanged: whom they named is named in this reading, too.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn keep_parts(self: &Arc<Self>, parts: Vec<KeptPart>) -> Result<(), StoreError> {
        self.write(move |tx| {
            let mut keep = tx.sql.prepare_cached(
                "UPDATE part SET kept = (SELECT generation FROM source_set WHERE id = part.set_id),
                        told = CASE WHEN ?2 IS NULL THEN told ELSE ?3 END, asked_at = COALESCE(?2, asked_at)
                 WHERE id = ?1",
            )?;
            for KeptPart { id, asked } in parts {
                keep.execute(params![
                    id.0,
                    asked.map(|word| row::micros(word.asked_at)),
                    asked.and_then(|word| word.told).map(SourceTime::micros),
                ])?;
            }
            Ok(())
        })
        .await
    }

    /// Whether there are members of which this reading can't tell whether they are gone: several parts named them, none of
    /// those that were read does any more, and others were passed over.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn list_has_doubts(self: &Arc<Self>, set: SetId) -> Result<bool, StoreError> {
        self.read(move |sql| {
            let mut query = sql.prepare_cached(
                "SELECT 1 FROM source_set WHERE id = ?1
                 AND EXISTS (SELECT 1 FROM part WHERE set_id = ?1 AND kept = source_set.generation)
                 AND EXISTS (SELECT 1 FROM member WHERE set_id = ?1 AND part = ?2 AND generation < source_set.generation)",
            )?;
            Ok(query.exists(params![set.0, SEVERAL])?)
        })
        .await
    }

    /// Whether any member is named by a part that is unchanged in this reading.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn kept_parts_name_any(self: &Arc<Self>, set: SetId) -> Result<bool, StoreError> {
        self.read(move |sql| {
            let generation: i64 = sql
                .prepare_cached("SELECT generation FROM source_set WHERE id = ?1")?
                .query_row([set.0], |row| row.get(0))?;
            let mut query = sql.prepare_cached(&format!(
                "SELECT 1 FROM member WHERE set_id = ?1 AND {IS_KEPT} LIMIT 1"
            ))?;
            Ok(query.exists([set.0, generation])?)
        })
        .await
    }

    /// Forgets the parts that the Resource List, now read whole, does not have any more.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn drop_parts(self: &Arc<Self>, set: SetId) -> Result<(), StoreError> {
        self.write(move |tx| {
            let gone = "set_id = ?1 AND MAX(read, kept) < (SELECT generation FROM source_set WHERE id = ?1)";
            tx.sql.execute(
                &format!("DELETE FROM document WHERE set_id = ?1 AND uri IN (SELECT uri FROM part WHERE {gone})"),
                [set.0],
            )?;
            // Numbers of parts never come again: whoever is still a member of one is a member of none.
            tx.sql.execute(&format!("DELETE FROM part WHERE {gone}"), [set.0])?;
            Ok(())
        })
        .await
    }
}

/// A condition on a member: an unchanged part speaks for it. `?2` is the generation.
pub(super) const IS_KEPT: &str =
    "EXISTS (SELECT 1 FROM part WHERE part.id = member.part AND part.kept = ?2
    AND member.generation >= part.read)";

/// The part of a member that something else than a part tells of: its own, if that named it when it was read last.
pub(super) fn part_if_named(
    sql: &Connection,
    member: Membership,
) -> Result<Option<i64>, StoreError> {
    let Some(part) = member.part.filter(|&part| part != SEVERAL) else {
        return Ok(member.part);
    };
    let mut query = sql.prepare_cached("SELECT 1 FROM part WHERE id = ?1 AND read > ?2")?;
    let was_left_out = query.exists([part, member.generation])?;
    Ok(member.part.filter(|_| !was_left_out))
}

/// A resource is being deleted, or was: the parts that name it must be read the next time, changed or not, for it may come
/// again with the same entry.
pub(super) fn doubt_parts_of(sql: &Connection, resource: ResourceId) -> Result<(), StoreError> {
    sql.prepare_cached(
        "UPDATE part SET doubted = 1 WHERE id IN (SELECT part FROM member WHERE resource_id = ?1 AND part > 0)",
    )?
    .execute([resource.0])?;
    sql.prepare_cached(
        "UPDATE part SET doubted = 1
         WHERE set_id IN (SELECT set_id FROM member WHERE resource_id = ?1 AND part = ?2) AND doubted = 0",
    )?
    .execute([resource.0, SEVERAL])?;
    Ok(())
}

/// Finds out which part a member belongs to that a part names.
pub(super) struct PartOf<'a> {
    sql: &'a Connection,
    set: SetId,
    generation: i64,
    part: PartId,
    /// Whether some part may still be passed over in this reading, once that was asked.
    may_pass_over: Option<bool>,
}

impl<'a> PartOf<'a> {
    pub(super) fn new(sql: &'a Connection, set: SetId, generation: i64, part: PartId) -> Self {
        Self {
            sql,
            set,
            generation,
            part,
            may_pass_over: None,
        }
    }

    /// `before`: how it was a member until now.
    pub(super) fn member(&mut self, before: Option<Membership>) -> Result<i64, StoreError> {
        let Some(member) = before else {
            return Ok(self.part.0);
        };
        let is_named_anew = member.generation < self.generation;
        let may_name_it = match member.part {
            None => false,
            Some(part) if part == self.part.0 => false,
            _ if !is_named_anew => true,
            Some(SEVERAL) => self.may_pass_over()?,
            Some(other) => self.speaks_still(other)?,
        };
        Ok(if may_name_it { SEVERAL } else { self.part.0 })
    }

    /// Whether another part is passed over in this reading, or may yet be.
    fn speaks_still(&self, part: i64) -> Result<bool, StoreError> {
        let mut query = self.sql.prepare_cached(
            "SELECT 1 FROM part WHERE id = ?1 AND filter IS NOT NULL AND doubted = 0 AND read < ?2",
        )?;
        Ok(query.exists([part, self.generation])?)
    }

    fn may_pass_over(&mut self) -> Result<bool, StoreError> {
        if let Some(known) = self.may_pass_over {
            return Ok(known);
        }
        let mut query = self.sql.prepare_cached(
            "SELECT 1 FROM part WHERE set_id = ?1 AND filter IS NOT NULL AND doubted = 0 AND read < ?2 LIMIT 1",
        )?;
        let known = query.exists([self.set.0, self.generation])?;
        self.may_pass_over = Some(known);
        Ok(known)
    }
}
