//! What the status shows of Sources, read at one moment: one query for all of them, so that a status of many Sources wakes a thread
//! that reads no more often than one of a single Source.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use chrono::{DateTime, Utc};

use super::statistics::{SetStatistics, statistics};
use crate::store::query_threads::Lane;
use crate::store::sql::Connection;
use crate::store::tables::channel::{self, ChannelRecord};
use crate::store::tables::feed;
use crate::store::tables::forgotten::{self, SetTotals};
use crate::store::tables::source_set::{self, SetRecord};
use crate::store::tables::version::{self, VersionCounts};
use crate::store::{Store, StoreError};

/// A Source whose overview is read.
#[derive(Clone, Debug)]
pub struct OverviewQuery {
    /// Its name.
    pub source: String,
    /// Whether its versions are counted.
    pub with_versions: bool,
}

/// What the database has of some Sources.
#[derive(Clone, Debug)]
pub struct Overview {
    /// Each of them, in the order of the query.
    pub sources: Vec<SourceOverview>,
    /// How many entries of the feed follow each position of a hook.
    pub behind: HashMap<i64, u64>,
}

/// What the database has of a Source; nothing if a row of it can't be read, which is [noted](Store::unreadable_row).
#[derive(Clone, Debug, Default)]
pub struct SourceOverview {
    /// The sets that are followed, in the order of their ids.
    pub sets: Vec<SetOverview>,
    /// The sets of which the mirror has resources, followed or not.
    pub totals: Vec<SetTotals>,
    /// The versions that are not stored; `None`: they were not counted.
    pub versions: Option<VersionsOverview>,
}

/// What the database has of a set.
#[derive(Clone, Debug)]
pub struct SetOverview {
    /// Its row.
    pub record: SetRecord,
    /// Its counts, coverage and gaps.
    pub statistics: SetStatistics,
    /// Its channels, also those that were left.
    pub channels: Vec<ChannelRecord>,
}

/// The versions of a Source that are not stored.
#[derive(Clone, Debug)]
pub struct VersionsOverview {
    /// How many are to be stored, and were given up.
    pub counts: VersionCounts,
    /// The last error of the latter: code, message and when.
    pub failure: Option<(String, String, DateTime<Utc>)>,
}

impl Store {
    /// What the database has of these Sources, and after these positions of hooks. The workers' queries do not delay it.
    pub async fn overview(
        self: &Arc<Self>,
        queries: Vec<OverviewQuery>,
        positions: BTreeSet<i64>,
    ) -> Result<Overview, StoreError> {
        let unreadable = Arc::clone(&self.unreadable);
        self.read_in(Lane::Reports, move |sql| {
            let sources = queries.iter().map(|query| match of_source(sql, query) {
                Err(error) if unreadable.note(&query.source, &error) => {
                    Ok(SourceOverview::default())
                }
                read => read,
            });
            let behind = positions.into_iter().map(|position| {
                let entries = feed::count_after(sql, position)?;
                Ok((position, entries))
            });
            Ok(Overview {
                sources: sources.collect::<Result<_, _>>()?,
                behind: behind.collect::<Result<_, StoreError>>()?,
            })
        })
        .await
    }
}

fn of_source(sql: &Connection, query: &OverviewQuery) -> Result<SourceOverview, StoreError> {
    let source = query.source.as_str();
    let mut sets = Vec::new();
    for record in source_set::followed(sql, source)? {
        sets.push(SetOverview {
            statistics: statistics(sql, record.id)?,
            channels: channel::of_set(sql, record.id)?,
            record,
        });
    }
    let versions = if query.with_versions {
        Some(VersionsOverview {
            counts: version::counts(sql, source)?,
            failure: version::last_failure(sql, source)?,
        })
    } else {
        None
    };
    Ok(SourceOverview {
        sets,
        totals: forgotten::set_totals(sql, source)?,
        versions,
    })
}
