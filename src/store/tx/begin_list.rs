//! Begins to read a Resource List or a Resource Dump.
//!
//! Each reading is a generation. A resource of the set that the complete list has not named in this generation is absent from the set
//! (section 10.1: a Resource List is a snapshot of all of it).

use std::sync::Arc;

use crate::store::ids::SetId;
use crate::store::tables::dump::{self, DumpProgress};
use crate::store::tables::tally::Tallied;
use crate::store::tables::task::{self, TasksOf};
use crate::store::tables::{coverage, dump_package, source_set};
use crate::store::{Store, StoreError};

/// How many tasks one transaction changes, so that none keeps the writer for long.
const TASKS_A_STEP: usize = 10_000;

impl Store {
    /// Begins to read a set's Resource List: from now on, a resource of the set that is not named is absent.
    pub async fn begin_list(self: &Arc<Self>, set: SetId) -> Result<(), StoreError> {
        // Until the last step nothing but `since` of tasks has changed.
        while !self.write(move |tx| begin_list(tx.sql, set)).await? {}
        Ok(())
    }

    /// Begins to read a Resource Dump: from now on, a resource of the set that is not named is absent. Returns whether the reading of this
    /// same dump continues, which was begun before and not superseded by a Resource List.
    pub async fn begin_dump(
        self: &Arc<Self>,
        set: SetId,
        dump: DumpProgress,
    ) -> Result<bool, StoreError> {
        loop {
            let dump = dump.clone();
            let begun = self.write(move |tx| begin_dump(tx.sql, set, &dump)).await?;
            if let Some(continues) = begun {
                return Ok(continues);
            }
        }
    }
}

/// Does one step towards a new generation and returns whether it was the last.
fn begin_list(sql: &Tallied<'_>, set: SetId) -> Result<bool, StoreError> {
    // A change that the list reveals may have happened to a resource before the change that is its task.
    if let Some(unbroken) = coverage::unbroken_until(sql, set)? {
        for tasks in [TasksOf::Set, TasksOf::SharingSets] {
            if task::lower_all_since(sql, set, tasks, unbroken, TASKS_A_STEP)? >= TASKS_A_STEP {
                return Ok(false);
            }
        }
    }
    task::interrupt_undecided(sql, set)?;
    source_set::begin_generation(sql, set)?;
    Ok(true)
}

/// Does one step towards the reading of a dump; after the last one returns whether an earlier reading continues.
fn begin_dump(
    sql: &Tallied<'_>,
    set: SetId,
    dump: &DumpProgress,
) -> Result<Option<bool>, StoreError> {
    if dump::in_progress(sql, set)?.is_some_and(|known| known == *dump) {
        return Ok(Some(true));
    }
    if !begin_list(sql, set)? {
        return Ok(None);
    }
    dump_package::delete_all(sql, set)?;
    dump::delete(sql, set)?;
    dump::insert(sql, set, dump)?;
    Ok(Some(false))
}
