//! What the nodes of one database share: the Sources, and what they ask of each other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::super::balance::{Candidate, LEAST_WEIGHT, Share, plan};
use super::super::nodes::{self, NOW, Node};
use crate::store::process_start::doubt_left;
use crate::store::sql::{Connection, OptionalExtension, params};
use crate::store::{Store, StoreError, Wake};

/// The weight of a resource, and of a task.
const WEIGHTS: [u64; 2] = [1, 10];

/// The names that the first parameter has as JSON.
const NAMES: &str = "json_array_elements_text(CAST(CAST(?1 AS TEXT) AS JSON))";

fn json(names: &[String]) -> Result<String, rusqlite::Error> {
    serde_json::to_string(names)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))
}

/// What a node holds, and is to give up as soon as nothing works on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeldSources {
    /// The Sources, and (as an empty name) what belongs to none.
    pub held: BTreeSet<String>,
    /// Those of them that go to another node.
    pub given_up: Vec<String>,
}

/// The node that holds a Source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The id of the node.
    pub id: String,
    /// Its name.
    pub name: String,
    /// For how long it has held the Source.
    pub age: Duration,
    /// Whether it is this one.
    pub is_own: bool,
}

impl Store {
    /// Whether other nodes may work on the database meanwhile: each holds some Sources.
    pub fn is_shared(&self) -> bool {
        self.node.as_ref().is_some_and(|node| !node.is_alone)
    }

    /// Takes what is free up to the share of this node. `configured`: the Sources that it can hold.
    pub async fn share_sources(
        self: &Arc<Self>,
        configured: BTreeSet<String>,
    ) -> Result<HeldSources, StoreError> {
        let Some(own) = self.node.clone() else {
            return Ok(HeldSources::default());
        };
        let unreadable = Arc::clone(&self.unreadable);
        self.write(move |tx| {
            for name in nodes::bury_dead(tx.sql, tx.sql.fence().unwrap_or_default())? {
                tracing::warn!(
                    code = "node-died",
                    node = name,
                    "a node has not renewed its lease; its Sources are taken over"
                );
            }
            nodes::trim(tx.sql)?;
            let mut shares = shares(tx.sql)?;
            let known: BTreeSet<&str> = shares.iter().map(|share| &*share.source).collect();
            let can_hold = configured.iter().map(String::as_str).chain([""]);
            let can_hold: BTreeSet<&str> = can_hold.collect();
            let missing = can_hold.difference(&known);
            let missing: Vec<String> = missing.map(|source| (*source).to_owned()).collect();
            if !missing.is_empty() {
                let added = format!(
                    "INSERT INTO held_source (source, since) SELECT source, {NOW} FROM {NAMES} AS source"
                );
                tx.sql.execute(&added, [json(&missing)?])?;
                shares.extend(missing.into_iter().map(Share::new));
            }
            let plan = plan(&own.id, &candidates(tx.sql)?, &shares, &can_hold);
            if !plan.takes.is_empty() {
                let takes = json(&plan.takes)?;
                let in_doubt: Vec<String> = tx
                    .sql
                    .prepare_cached(&format!(
                        "SELECT source FROM held_source WHERE is_in_doubt AND source IN (SELECT {NAMES})"
                    ))?
                    .query_map([&takes], |row| row.get(0))?
                    .collect::<Result<_, _>>()?;
                for source in &in_doubt {
                    doubt_left(tx.sql, &unreadable, Some(source))?;
                }
                tx.sql.execute(
                    &format!(
                        "UPDATE held_source SET node = ?2, since = {NOW}, is_in_doubt = FALSE,
                             wanted = CASE WHEN wanted = ?3 THEN wanted END WHERE source IN (SELECT {NAMES})"
                    ),
                    params![takes, own.id, own.name],
                )?;
            }
            let kept = shares
                .into_iter()
                .filter(|it| it.node.as_ref() == Some(&own.id));
            let mut held: BTreeSet<String> = kept.map(|share| share.source).collect();
            held.extend(plan.takes);
            Ok(HeldSources {
                held,
                given_up: plan.gives_up,
            })
        })
        .await
    }

    /// Whether [`share_sources`](Self::share_sources) may find something free.
    pub async fn has_free_sources(&self) -> Result<bool, StoreError> {
        self.read(|sql| Ok(nodes::has_free(sql)?)).await
    }

    /// Frees Sources that nothing of this node works on any more.
    pub async fn give_up_sources(self: &Arc<Self>, sources: Vec<String>) -> Result<(), StoreError> {
        let Some(own) = self.node.clone() else {
            return Ok(());
        };
        self.write(move |tx| {
            let freed = format!(
                "UPDATE held_source SET node = NULL, since = {NOW} WHERE node = ?2 AND source IN (SELECT {NAMES})"
            );
            tx.sql.execute(&freed, params![json(&sources)?, own.id])?;
            tx.wake(Wake::Nodes);
            Ok(())
        })
        .await
    }

    /// The nodes that hold Sources, by the names of these; none if the database is in the folder.
    pub async fn holders(&self) -> Result<BTreeMap<String, Holder>, StoreError> {
        let Some(own) = self.node.clone() else {
            return Ok(BTreeMap::new());
        };
        self.read(move |sql| {
            let holders = sql
                .prepare_cached(&format!(
                    "SELECT source, node.id, node.name, {NOW} - held_source.since FROM held_source JOIN node ON node.id = node"
                ))?
                .query_map([], |row| {
                    let id: String = row.get(1)?;
                    let holder = Holder {
                        is_own: id == own.id,
                        id,
                        name: row.get(2)?,
                        age: micros(row.get(3)?),
                    };
                    Ok((row.get(0)?, holder))
                })?
                .collect::<Result<_, _>>()?;
            Ok(holders)
        })
        .await
    }

    /// The node that holds a Source; `None`: it is free.
    pub async fn holder(&self, source: &str) -> Result<Option<Holder>, StoreError> {
        Ok(self.holders().await?.remove(source))
    }

    /// Asks another node for something, and waits for its answer.
    ///
    /// # Errors
    /// [`StoreError::NoAnswer`] after that time; an error of the database.
    pub async fn ask(
        self: &Arc<Self>,
        node: &Holder,
        request: String,
        limit: Duration,
    ) -> Result<String, StoreError> {
        let mut wakes = self.wakes();
        let id = node.id.clone();
        let asked = self.write(move |tx| {
            let number: i64 = tx.sql.query_row(
                &format!("INSERT INTO node_request (node, at, request) VALUES (?1, {NOW}, ?2) RETURNING id"),
                params![id, request],
                |row| row.get(0),
            )?;
            tx.wake(Wake::Asked(id));
            Ok(number)
        });
        let number = asked.await?;
        let answered = async {
            loop {
                let answer = self.read(move |sql| {
                    let answer = "SELECT answer FROM node_request WHERE id = ?1";
                    let answer = sql.query_row(answer, [number], |row| row.get(0));
                    Ok(answer.optional()?.flatten())
                });
                if let Some(answer) = answer.await? {
                    return Ok(answer);
                }
                Wake::until(&mut wakes, |wake| *wake == Wake::Answered(number)).await;
            }
        };
        let answer = tokio::time::timeout(limit, answered).await;
        let answer = answer.unwrap_or_else(|_| Err(StoreError::NoAnswer(node.name.clone())));
        // What nobody waits for is removed; otherwise it is after a while.
        let removing = self.write(move |tx| {
            let removed = "DELETE FROM node_request WHERE id = ?1";
            Ok(tx.sql.execute(removed, [number]).map(drop)?)
        });
        drop(removing.await);
        answer
    }

    /// What other nodes have asked of this one, each with its number. Each is returned once.
    pub async fn asked(self: &Arc<Self>) -> Result<Vec<(i64, String)>, StoreError> {
        let Some(own) = self.node.clone() else {
            return Ok(Vec::new());
        };
        let id = own.id.clone();
        let is_asked = self.read(move |sql| {
            let asked = "SELECT 1 FROM node_request WHERE node = ?1 LIMIT 1";
            Ok(sql.prepare_cached(asked)?.exists([id])?)
        });
        if !is_asked.await? {
            return Ok(Vec::new());
        }
        self.write(move |tx| {
            let rows = tx
                .sql
                .prepare_cached(
                    "UPDATE node_request SET node = NULL WHERE node = ?1 RETURNING id, request",
                )?
                .query_map([own.id], |row| Ok((row.get(0)?, row.get(1)?)))?
                .collect::<Result<_, _>>()?;
            Ok(rows)
        })
        .await
    }

    /// Answers the request of that number.
    pub async fn answer(self: &Arc<Self>, number: i64, answer: String) -> Result<(), StoreError> {
        self.write(move |tx| {
            let answered = "UPDATE node_request SET answer = ?2 WHERE id = ?1";
            tx.sql.execute(answered, params![number, answer])?;
            tx.wake(Wake::Answered(number));
            Ok(())
        })
        .await
    }
}

/// What other nodes hold: it is followed, also where a configuration lacks it.
pub(in crate::store) fn held_elsewhere(
    sql: &Connection,
    own: Option<&Node>,
) -> Result<BTreeSet<String>, rusqlite::Error> {
    let Some(own) = own else {
        return Ok(BTreeSet::new());
    };
    sql.prepare_cached("SELECT source FROM held_source WHERE node <> ?1")?
        .query_map([&own.id], |row| row.get(0))?
        .collect()
}

/// The nodes that work.
fn candidates(sql: &Connection) -> Result<Vec<Candidate>, rusqlite::Error> {
    sql.prepare_cached("SELECT id, name, drains FROM node WHERE until > 0")?
        .query_map([], |row| {
            Ok(Candidate {
                id: row.get(0)?,
                name: row.get(1)?,
                drains: row.get(2)?,
            })
        })?
        .collect()
}

/// What can be held, with its weight.
fn shares(sql: &Connection) -> Result<Vec<Share>, rusqlite::Error> {
    let [resource, task] = WEIGHTS;
    sql.prepare_cached(&format!(
        "SELECT held_source.source, held_source.node, {NOW} - held_source.since, held_source.wanted,
                CAST({LEAST_WEIGHT} + {resource} * COALESCE(resource_count.resources, 0) + {task} * COALESCE(tasks.number, 0) AS BIGINT)
         FROM held_source LEFT JOIN resource_count ON resource_count.source = held_source.source
         LEFT JOIN (SELECT source_set.source, SUM(tally.n) AS number FROM tally JOIN source_set ON source_set.id = tally.set_id
                    GROUP BY source_set.source) AS tasks ON tasks.source = held_source.source
         ORDER BY held_source.source"
    ))?
    .query_map([], |row| {
        let source: String = row.get(0)?;
        let weight: i64 = row.get(4)?;
        Ok(Share {
            weight: if source.is_empty() { 0 } else { weight.unsigned_abs() },
            source,
            node: row.get(1)?,
            age: micros(row.get(2)?),
            wanted: row.get(3)?,
        })
    })?
    .collect()
}

fn micros(micros: i64) -> Duration {
    Duration::from_micros(micros.try_into().unwrap_or_default())
}
