//! Resource Lists and Resource Dumps: entries that are held against what the mirror has, and what a whole list does not name
//! any more.
//!
//! Each reading of a list is a generation. A member that the whole list has not named in this generation is gone from the
//! set (section 10.1: a Resource List is a snapshot of all of it).

use std::sync::Arc;

use chrono::{DateTime, Utc};
use rusqlite::params;

use super::change_batch::{Change, Paths};
use super::feed::Origin;
use super::found::Found;
use super::links::save_links;
use super::parts::{IS_KEPT, PartOf, PartStep};
use super::planning::{Context, put_task};
use super::resources::{Membership, join, leave};
use super::sets::unbroken_until;
use super::writer::{Tx, Writing};
use super::{BatchResult, PartId, ResourceId, SetId, Store, StoreError, Wake, row};
use crate::protocol::{ChangeKind, ResourceUri, SourceTime};
use crate::sync::{Decision, plan_absent, plan_listed};

/// A Resource List, or a Resource Dump, that is being read.
#[derive(Clone, Debug)]
pub struct ListProgress {
    /// The set.
    pub set: SetId,
    /// The label of its Source.
    pub source: String,
    /// Which of the two it is.
    pub origin: Origin,
    /// The time of the snapshot.
    pub at: SourceTime,
}

/// How many members one step looks at, and how many of them may be absent: nobody shall wait for the writer for long.
const MEMBERS_A_STEP: i64 = 20_000;
const ABSENT_A_STEP: i64 = 1000;
const TASKS_A_STEP: usize = 10_000;

impl Store {
    /// Begins to read a set's Resource List: from now on, who is not named is absent.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn begin_list(self: &Arc<Self>, set: SetId) -> Result<(), StoreError> {
        // What holds claims back comes first, and a part of it at a time: until the last one nothing else has changed.
        while !self.write(move |tx| begin_list(tx, set)).await? {}
        Ok(())
    }

    /// Takes some entries of a list. For a caller on a blocking thread, which may wait for them later.
    pub fn list_entries(
        &self,
        list: &ListProgress,
        now: DateTime<Utc>,
        entries: Vec<Change>,
    ) -> Writing<BatchResult> {
        let list = list.clone();
        self.begin_write(move |tx| list_entries(tx, &list, now, None, &entries))
    }

    /// As [`list_entries`](Self::list_entries), for entries of a part of the list.
    pub fn list_part(
        &self,
        list: &ListProgress,
        now: DateTime<Utc>,
        entries: Vec<Change>,
        step: PartStep,
    ) -> Writing<BatchResult> {
        let list = list.clone();
        self.begin_write(move |tx| {
            let part = step.begin(tx.sql, list.set)?;
            let applied = list_entries(tx, &list, now, Some(part), &entries)?;
            step.end(tx, list.set, part)?;
            Ok(applied)
        })
    }

    /// Looks at some of the members, and takes those that the list, now read whole, did not name; answers `None` when there
    /// are no more members. Their deletions wait for the end of the document. `wants`: who was not wanted was not looked for
    /// in the list, and stays.
    ///
    /// # Errors
    /// [`StoreError`]; then none was taken.
    pub async fn list_absent(
        self: &Arc<Self>,
        list: &ListProgress,
        now: DateTime<Utc>,
        wants: impl Fn(&ResourceUri) -> bool + Send + 'static,
    ) -> Result<Option<BatchResult>, StoreError> {
        let list = list.clone();
        self.write(move |tx| list_absent(tx, &list, now, wants))
            .await
    }
}

/// Takes a step towards a new generation of a set's members; answers whether it was the last one.
pub(super) fn begin_list(tx: &mut Tx<'_>, set: SetId) -> Result<bool, StoreError> {
    // What the list covers may have happened to a resource before the change that is its task.
    if let Some(unbroken) = unbroken_until(tx.sql, set)? {
        // Few sets share resources with others, and only those are looked at.
        let own = "set_id = ?1";
        let shared = "set_id IN (SELECT other.id FROM source_set AS own
                JOIN source_set AS other ON other.source = own.source AND other.id <> own.id
                WHERE own.id = ?1 AND own.shares = 1 AND other.shares = 1)
            AND EXISTS (SELECT 1 FROM member WHERE member.set_id = ?1 AND member.resource_id = task.resource_id)";
        for tasks in [own, shared] {
            let held_back = tx
                .sql
                .prepare_cached(&format!(
                    "UPDATE task SET since = ?2 WHERE resource_id IN (
                         SELECT resource_id FROM task WHERE since > ?2 AND {tasks} LIMIT {TASKS_A_STEP})"
                ))?
                .execute(params![set.0, unbroken.micros()])?;
            if held_back >= TASKS_A_STEP {
                return Ok(false);
            }
        }
    }
    tx.sql.execute(
        "UPDATE source_set SET generation = generation + 1, absent_until = 0 WHERE id = ?1",
        [set.0],
    )?;
    Ok(true)
}

fn list_entries(
    tx: &mut Tx<'_>,
    list: &ListProgress,
    now: DateTime<Utc>,
    part: Option<PartId>,
    entries: &[Change],
) -> Result<BatchResult, StoreError> {
    let context = Context::of(tx.sql, list.set, &list.source, list.origin, now)?;
    let mut part_of = part.map(|part| PartOf::new(tx.sql, list.set, context.generation, part));
    let mut applied = BatchResult::default();
    for entry in entries {
        let found = Found::look_up(tx.sql, &context, entry)?;
        let decision = plan_listed(
            &entry.told(),
            list.at,
            found.known.as_ref(),
            found.pending_change(),
        );
        // A resource that was deleted after the snapshot is listed in it, and a member no more.
        let gone =
            found.known.as_ref().is_some_and(|known| known.deleted) && decision == Decision::Older;
        if !gone {
            match &mut part_of {
                Some(part_of) => found.join_named(tx.sql, &context, part_of)?,
                None => found.join_told(tx.sql, &context)?,
            }
        }
        if decision == Decision::Task {
            let existed = found.known.as_ref().is_some_and(|known| !known.deleted);
            let kind = if existed {
                ChangeKind::Updated
            } else {
                ChangeKind::Created
            };
            let change = Change {
                kind,
                ..entry.clone()
            };
            if put_task(tx.sql, &context, found.resource, &change)? {
                applied.tasks += 1;
            } else {
                applied.known += 1;
            }
        } else {
            if decision == Decision::Done {
                // Also a deletion that was held back, when the resource is listed again.
                found.drop_task(tx.sql)?;
                save_links(tx.sql, found.resource, &entry.links)?;
            } else {
                // What the list covers may have happened before what is pending; at an unknown time, if nothing was covered.
                found.stand_for(tx.sql, context.unbroken)?;
            }
            applied.known += 1;
        }
    }
    if applied.tasks > 0 {
        tx.wake(Wake::Tasks(list.source.clone()));
    }
    Ok(applied)
}

fn list_absent(
    tx: &mut Tx<'_>,
    list: &ListProgress,
    now: DateTime<Utc>,
    wants: impl Fn(&ResourceUri) -> bool,
) -> Result<Option<BatchResult>, StoreError> {
    let context = Context::of(tx.sql, list.set, &list.source, list.origin, now)?;
    let begin: i64 = tx
        .sql
        .prepare_cached("SELECT absent_until FROM source_set WHERE id = ?1")?
        .query_row([list.set.0], |row| row.get(0))?;
    let end: Option<i64> = tx
        .sql
        .prepare_cached(
            "SELECT MAX(resource_id) FROM (SELECT resource_id FROM member WHERE set_id = ?1 AND resource_id > ?2
                                           ORDER BY resource_id LIMIT ?3)",
        )?
        .query_row([list.set.0, begin, MEMBERS_A_STEP], |row| row.get(0))?;
    let Some(mut end) = end else {
        return Ok(None);
    };
    let absent: Vec<(i64, String)> = tx
        .sql
        .prepare_cached(&format!(
            "SELECT member.resource_id, resource.uri FROM member JOIN resource ON resource.id = member.resource_id
             WHERE member.set_id = ?1 AND member.generation < ?2 AND member.resource_id > ?3 AND member.resource_id <= ?4
               AND NOT {IS_KEPT}
             ORDER BY member.resource_id LIMIT ?5"
        ))?
        .query_map(
            params![list.set.0, context.generation, begin, end, ABSENT_A_STEP],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?
        .collect::<Result<_, _>>()?;
    if let Some(&(last, _)) = absent.get(ABSENT_A_STEP as usize - 1) {
        end = last;
    }
    // The next step goes on from here, so that the whole set is walked through once and not once a step.
    tx.sql
        .prepare_cached("UPDATE source_set SET absent_until = ?2 WHERE id = ?1")?
        .execute([list.set.0, end])?;
    let mut applied = BatchResult::default();
    for (id, uri) in absent {
        let resource = ResourceId(id);
        let uri = row::resource_uri(&uri)?;
        let is_wanted = wants(&uri);
        let deletion = Change::deletion(uri, Paths::given, Some(list.at));
        let found = Found::look_up(tx.sql, &context, &deletion)?;
        let is_going = found
            .pending
            .is_some_and(|pending| pending.kind == ChangeKind::Deleted);
        if !is_wanted || !plan_absent(list.at, found.known.as_ref(), found.pending_change()) {
            applied.known += 1;
        } else if leave(tx.sql, list.set, resource)? {
            applied.known += 1;
            continue;
        } else if is_going {
            // Whether it is held back, or has been let go on, stays as it is.
            applied.known += 1;
        } else {
            put_task(tx.sql, &context, resource, &deletion)?;
            applied.tasks += 1;
        }
        // No part names it.
        let now = Membership {
            generation: context.generation,
            part: None,
        };
        join(tx.sql, list.set, resource, found.member, now)?;
    }
    Ok(Some(applied))
}
