//! Dumps: how far the reading of a Resource Dump has come, which files of packages are of use, which entries of a manifest
//! are needed, and what has become of the tasks that a package is opened for.

use std::collections::HashSet;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use rusqlite::{Connection, OptionalExtension, params};

use super::change_batch::Change;
use super::feed::Origin;
use super::found::Found;
use super::lists::begin_list;
use super::planning::Context;
use super::tasks::{COLUMNS, Task, task};
use super::writer::Tx;
use super::{SetId, Store, StoreError, Wake, row};
use crate::protocol::{ChangeKind, ResourceUri, SourceTime};
use crate::sync::{Decision, plan_change, plan_listed};

/// A Resource Dump that is being read, or was when the process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DumpProgress {
    /// Where its document was fetched.
    pub uri: String,
    /// The SHA-256 of its document.
    pub digest: [u8; 32],
}

/// A package of a Resource Dump that need not be read again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackageRecord {
    /// Where the package is.
    pub uri: String,
    /// What the dump told of it: of another version nothing is known.
    pub version: String,
    /// Whether its manifest names all that it should: if not, what it does not name is not proven to be gone.
    pub proves: bool,
}

/// A task that a package is opened for.
#[derive(Clone, Debug)]
pub struct Awaited {
    /// The task.
    pub task: Task,
    /// Whether it was given up until the next poll.
    pub given_up: bool,
    /// Whether it is due now.
    pub due: bool,
}

impl Store {
    /// Begins to read a Resource Dump: from now on, who is not named is absent. One that was begun before, and neither
    /// became another nor was overtaken by a Resource List since, goes on; answers whether it does.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn begin_dump(
        self: &Arc<Self>,
        set: SetId,
        dump: DumpProgress,
    ) -> Result<bool, StoreError> {
        loop {
            let dump = dump.clone();
            let begun = self.write(move |tx| begin_dump(tx, set, &dump)).await?;
            if let Some(goes_on) = begun {
                return Ok(goes_on);
            }
        }
    }

    /// The Resource Dump of a set whose reading has begun and not ended.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn dump_under_way(
        self: &Arc<Self>,
        set: SetId,
    ) -> Result<Option<DumpProgress>, StoreError> {
        self.read(move |sql| under_way(sql, set)).await
    }

    /// Keeps that a package of the dump under way was read whole.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn end_package(
        self: &Arc<Self>,
        set: SetId,
        package: PackageRecord,
    ) -> Result<(), StoreError> {
        self.write(move |tx| {
            tx.sql
                .prepare_cached(
                    "INSERT INTO dump_package (set_id, uri, version, proves) VALUES (?1, ?2, ?3, ?4)
                     ON CONFLICT (set_id, uri) DO UPDATE SET version = ?3, proves = ?4",
                )?
                .execute(params![
                    set.0,
                    package.uri,
                    package.version,
                    package.proves
                ])?;
            Ok(())
        })
        .await
    }

    /// What is remembered of a package of the dump under way.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn package(
        self: &Arc<Self>,
        set: SetId,
        uri: &str,
    ) -> Result<Option<PackageRecord>, StoreError> {
        let uri = uri.to_owned();
        self.read(move |sql| {
            let mut query = sql.prepare_cached(
                "SELECT version, proves FROM dump_package WHERE set_id = ?1 AND uri = ?2",
            )?;
            let found = query.query_row(params![set.0, uri], |row| {
                Ok(PackageRecord {
                    uri: uri.clone(),
                    version: row.get(0)?,
                    proves: row.get(1)?,
                })
            });
            Ok(found.optional()?)
        })
        .await
    }

    /// Notes that the package file of that name is of use to a set from now on.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn keep_package_file(
        self: &Arc<Self>,
        set: SetId,
        name: String,
    ) -> Result<(), StoreError> {
        self.write(move |tx| {
            let note = "INSERT OR IGNORE INTO package_file (set_id, name) VALUES (?1, ?2)";
            tx.sql.prepare_cached(note)?.execute(params![set.0, name])?;
            Ok(())
        })
        .await
    }

    /// Notes that no package file is of use to a set any more; answers whether one was. Nobody who has none waits for the
    /// writer.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn drop_package_files(self: &Arc<Self>, set: SetId) -> Result<bool, StoreError> {
        let has_some = self.read(move |sql| {
            let mut query = sql.prepare_cached("SELECT 1 FROM package_file WHERE set_id = ?1")?;
            Ok(query.exists([set.0])?)
        });
        if !has_some.await? {
            return Ok(false);
        }
        self.write(move |tx| {
            tx.sql
                .execute("DELETE FROM package_file WHERE set_id = ?1", [set.0])?;
            Ok(true)
        })
        .await
    }

    /// The package files that are of use to any set of a Source.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn package_files(
        self: &Arc<Self>,
        source: &str,
    ) -> Result<HashSet<String>, StoreError> {
        let source = source.to_owned();
        self.read(move |sql| {
            let mut query = sql.prepare_cached(
                "SELECT name FROM package_file JOIN source_set ON source_set.id = package_file.set_id
                 WHERE source_set.source = ?1 AND source_set.ended = 0",
            )?;
            let names = query.query_map([source], |row| row.get(0))?;
            names.map(|name| Ok(name?)).collect()
        })
        .await
    }

    /// How many of these entries tell of content that the mirror does not have: entries of a Resource Dump of the time `at`,
    /// or, where there is none, of a Change Dump. Nothing changes. For a caller on a blocking thread.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn count_needed(
        &self,
        set: SetId,
        source: &str,
        at: Option<SourceTime>,
        entries: &[Change],
    ) -> Result<u64, StoreError> {
        self.readers.run(|sql| {
            // What told of it makes no difference: nothing is kept.
            let context = Context::of(sql, set, source, Origin::Audit, DateTime::UNIX_EPOCH)?;
            let mut needed = 0;
            for entry in entries {
                needed += u64::from(is_needed(sql, &context, at, entry)?);
            }
            Ok(needed)
        })
    }

    /// The tasks that these resources have now.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn tasks_of(
        self: &Arc<Self>,
        source: &str,
        now: DateTime<Utc>,
        resources: Vec<ResourceUri>,
    ) -> Result<Vec<Awaited>, StoreError> {
        let source = source.to_owned();
        self.read(move |sql| {
            let mut query = sql.prepare_cached(&format!(
                "SELECT {COLUMNS}, task.state, task.not_before FROM resource JOIN task ON task.resource_id = resource.id
                 WHERE resource.source = ?1 AND resource.uri = ?2 AND task.state IN ('ready', 'failed')"
            ))?;
            let mut found = Vec::new();
            for uri in &resources {
                let mut rows = query.query(params![source, uri.as_str()])?;
                if let Some(row) = rows.next()? {
                    let given_up = row.get::<_, String>("state")? == "failed";
                    let not_before: i64 = row.get("not_before")?;
                    found.push(Awaited {
                        task: task(row)?,
                        given_up,
                        due: !given_up && not_before <= row::micros(now),
                    });
                }
            }
            Ok(found)
        })
        .await
    }

    /// Makes tasks due at once that were put off or given up: there is a new way to do them.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn hurry_tasks(
        self: &Arc<Self>,
        source: &str,
        now: DateTime<Utc>,
        tasks: Vec<Task>,
    ) -> Result<(), StoreError> {
        let source = source.to_owned();
        self.write(move |tx| {
            let mut hurry = tx.sql.prepare_cached(
                "UPDATE task SET state = 'ready', attempts = 0, not_before = ?3
                 WHERE resource_id = ?1 AND version = ?2 AND state IN ('ready', 'failed')",
            )?;
            for task in &tasks {
                hurry.execute(params![task.resource.0, task.version, row::micros(now)])?;
            }
            tx.wake(Wake::Tasks(source));
            Ok(())
        })
        .await
    }
}

/// Takes a step towards the reading of a dump; after the last one answers whether the reading goes on.
fn begin_dump(
    tx: &mut Tx<'_>,
    set: SetId,
    dump: &DumpProgress,
) -> Result<Option<bool>, StoreError> {
    if under_way(tx.sql, set)?.is_some_and(|known| known == *dump) {
        return Ok(Some(true));
    }
    if !begin_list(tx, set)? {
        return Ok(None);
    }
    forget(tx.sql, set)?;
    tx.sql.execute(
        "INSERT INTO dump (set_id, uri, digest, generation)
         SELECT id, ?2, ?3, generation FROM source_set WHERE id = ?1",
        params![set.0, dump.uri, dump.digest],
    )?;
    Ok(Some(false))
}

/// A dump counts as under way as long as no other list has begun a generation of its own.
fn under_way(sql: &Connection, set: SetId) -> Result<Option<DumpProgress>, StoreError> {
    let mut query = sql.prepare_cached(
        "SELECT dump.uri, dump.digest FROM dump JOIN source_set ON source_set.id = dump.set_id
         WHERE dump.set_id = ?1 AND dump.generation = source_set.generation",
    )?;
    let found = query.query_row([set.0], |row| {
        Ok(DumpProgress {
            uri: row.get(0)?,
            digest: row.get(1)?,
        })
    });
    Ok(found.optional()?)
}

/// Ends the reading of a Resource Dump, or what is left of it.
pub(super) fn forget(sql: &Connection, set: SetId) -> Result<(), StoreError> {
    sql.prepare_cached("DELETE FROM dump_package WHERE set_id = ?1")?
        .execute([set.0])?;
    sql.prepare_cached("DELETE FROM dump WHERE set_id = ?1")?
        .execute([set.0])?;
    Ok(())
}

fn is_needed(
    sql: &Connection,
    context: &Context<'_>,
    at: Option<SourceTime>,
    entry: &Change,
) -> Result<bool, StoreError> {
    if entry.kind == ChangeKind::Deleted {
        return Ok(false);
    }
    let Some((found, _)) = Found::find(sql, context, &entry.uri)? else {
        return Ok(true);
    };
    let (told, known) = (entry.told(), found.known.as_ref());
    let decision = match at {
        Some(at) => plan_listed(&told, at, known, found.pending_change()),
        None => plan_change(&told, known, found.pending.as_ref()),
    };
    Ok(decision == Decision::Task)
}
