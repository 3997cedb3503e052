//! What is published: the resources of a set, its changes, and single files.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use resyncd_core::ResourceUri;

use crate::store::ids::{ResourceId, SetId};
use crate::store::query_threads::Lane;
use crate::store::sql::Connection;
use crate::store::tables::feed::{self, SetChange};
use crate::store::tables::published_set::{self, PublishedSet};
use crate::store::tables::resource::listing;
use crate::store::tables::resource::{self, ResourceView};
use crate::store::tables::{membership, version};
use crate::store::unreadable::UnreadableRows;
use crate::store::{Store, StoreError};

/// How many rows one query reads.
const ROWS: usize = 500;

/// A resource that the mirror has, as it is published.
#[derive(Clone, Debug)]
pub struct PublishedResource {
    /// What is known of it.
    pub view: ResourceView,
    /// Of each of its links, the path of the target, if the mirror of the Source has it.
    pub targets: Vec<Option<String>>,
}

/// A change, as it is published.
#[derive(Clone, Debug)]
pub struct PublishedChange {
    /// What the feed has of it.
    pub row: SetChange,
    /// What the mirror has now; `None`: it has been deleted.
    pub resource: Option<PublishedResource>,
}

/// A stretch of the changes of a set: those after a number of the feed, up to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangeSpan {
    /// The number after which it begins.
    pub after: i64,
    /// The time after which it begins.
    pub from: DateTime<Utc>,
    /// The number that it ends with.
    pub until: i64,
    /// The time that it ends with; `None`: the next changes belong to it as well.
    pub closed: Option<DateTime<Utc>>,
}

/// How far the feed has come, and what else decides what is published of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishedState {
    /// The number of the newest entry of the feed.
    pub seq: i64,
    /// The time of that entry, or of the begin of the publication: what is later is not in any document yet.
    pub at: DateTime<Utc>,
    /// The number of the newest change of the set.
    pub changed: i64,
    /// The last row of a resource.
    pub last: ResourceId,
}

/// What is published, at one moment.
pub struct PublishedRows<'a> {
    sql: &'a Connection,
    unreadable: &'a UnreadableRows,
}

impl Store {
    /// Runs a query of what is published that takes little time.
    ///
    /// # Errors
    /// Those of the query.
    pub async fn published<T, F>(self: &Arc<Self>, query: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&PublishedRows<'_>) -> Result<T, StoreError> + Send + 'static,
    {
        self.published_in(Lane::Files, query).await
    }

    /// The same, of as many rows as a document has entries.
    ///
    /// # Errors
    /// Those of the query.
    pub async fn published_document<T, F>(self: &Arc<Self>, query: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&PublishedRows<'_>) -> Result<T, StoreError> + Send + 'static,
    {
        self.published_in(Lane::Documents, query).await
    }

    async fn published_in<T, F>(self: &Arc<Self>, lane: Lane, query: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&PublishedRows<'_>) -> Result<T, StoreError> + Send + 'static,
    {
        let unreadable = Arc::clone(&self.unreadable);
        self.read_in(lane, move |sql| {
            let unreadable = &unreadable;
            query(&PublishedRows { sql, unreadable })
        })
        .await
    }
}

impl PublishedRows<'_> {
    /// The published sets of a Source.
    pub fn sets(&self, source: &str) -> Result<Vec<PublishedSet>, StoreError> {
        Ok(published_set::of_source(self.sql, source)?)
    }

    /// How far what is published of a set has come.
    pub fn state(&self, set: &PublishedSet) -> Result<PublishedState, StoreError> {
        let newest = feed::last(self.sql)?.filter(|(seq, _)| *seq > set.after);
        let (seq, at) = newest.unwrap_or((set.after, set.since));
        let changed = feed::newest_of_set(self.sql, set.id, (set.after, seq))?;
        Ok(PublishedState {
            seq,
            at,
            changed: changed.map_or(set.after, |(number, _)| number),
            last: resource::last_row(self.sql)?,
        })
    }

    /// Passes on the resources of a set after a row and up to another one, until that returns an error.
    pub fn resources<E: From<StoreError>>(
        &self,
        set: SetId,
        (mut after, until): (ResourceId, ResourceId),
        mut each: impl FnMut(PublishedResource) -> Result<(), E>,
    ) -> Result<(), E> {
        let failed = |error: rusqlite::Error| E::from(StoreError::from(error));
        while after < until {
            let rows = listing::of_set(self.sql, set, after, ROWS, self.unreadable);
            let rows = rows.map_err(failed)?;
            for view in rows.live {
                if view.id <= until {
                    each(self.resource(view)?)?;
                }
            }
            let Some(last) = rows.last else { break };
            after = last;
        }
        Ok(())
    }

    /// The first resource of a set after a row.
    pub fn first_after(
        &self,
        set: SetId,
        after: ResourceId,
    ) -> Result<Option<ResourceId>, StoreError> {
        Ok(membership::first_after(self.sql, set, after)?)
    }

    /// About how many bytes the entries of a set have, of so many resources at most.
    pub fn bytes_of_entries(&self, set: SetId, most: u64) -> Result<u64, StoreError> {
        Ok(listing::bytes_of_set(self.sql, set, most)?)
    }

    /// Passes on the changes of a set with a number after `after` and up to `until`, oldest first, until that returns `false` or an error.
    pub fn changes<E: From<StoreError>>(
        &self,
        set: SetId,
        (mut after, until): (i64, i64),
        mut each: impl FnMut(PublishedChange) -> Result<bool, E>,
    ) -> Result<(), E> {
        let failed = |error: rusqlite::Error| E::from(StoreError::from(error));
        loop {
            let rows = feed::of_set(self.sql, set, (after, until), ROWS).map_err(failed)?;
            let is_end = rows.len() < ROWS;
            after = rows.last().map_or(after, |last| last.seq);
            for row in rows {
                if !each(self.change(row)?)? {
                    return Ok(());
                }
            }
            if is_end {
                return Ok(());
            }
        }
    }

    /// The resource of a Source that has a path in the mirror; `None`: there never was one, or it is long gone.
    pub fn file(&self, source: &str, path: &str) -> Result<Option<ResourceView>, StoreError> {
        Ok(resource::view_at(self.sql, source, path)?)
    }

    /// The resource of a Source with a URI, if the mirror has it.
    pub fn of_uri(
        &self,
        source: &str,
        uri: &ResourceUri,
    ) -> Result<Option<ResourceView>, StoreError> {
        match resource::live_path(self.sql, source, uri)? {
            Some(path) => self.file(source, &path),
            None => Ok(None),
        }
    }

    /// The times of the stored versions of a resource, oldest first.
    pub fn versions(&self, resource: ResourceId) -> Result<Vec<DateTime<Utc>>, StoreError> {
        let times = version::times(self.sql, resource)?.into_iter();
        Ok(times.map(|at| at.to_datetime()).collect())
    }

    /// The time of the newest entry of the feed.
    pub fn newest_time(&self) -> Result<Option<DateTime<Utc>>, StoreError> {
        self.time_of(i64::MAX)
    }

    /// The time of the newest entry of the feed up to a number.
    pub fn time_of(&self, seq: i64) -> Result<Option<DateTime<Utc>>, StoreError> {
        Ok(feed::last_until(self.sql, seq)?.map(|(_, at)| at))
    }

    /// The spans of the changes of a set: closed at the end of each day and wherever `most` numbers are complete, then the open one. They
    /// begin where the publication did, or after what the feed has lost, or at `oldest`; one without changes is joined to the next.
    pub fn spans(
        &self,
        set: &PublishedSet,
        oldest: Option<DateTime<Utc>>,
        most: i64,
    ) -> Result<Vec<ChangeSpan>, StoreError> {
        Ok(spans(self.sql, set, oldest, most)?)
    }

    /// A resource as it is published.
    pub fn resource(&self, view: ResourceView) -> Result<PublishedResource, StoreError> {
        let mut targets = Vec::with_capacity(view.links.len());
        for link in &view.links {
            targets.push(match ResourceUri::try_from(link.href.clone()) {
                Ok(target) => resource::live_path(self.sql, &view.source, &target)?,
                Err(_) => None,
            });
        }
        Ok(PublishedResource { view, targets })
    }

    fn change(&self, row: SetChange) -> Result<PublishedChange, StoreError> {
        let view = resource::view_of(self.sql, row.resource)?;
        let view = view.filter(|view| !view.deleted && view.applied_at.is_some());
        let resource = view.map(|view| self.resource(view)).transpose()?;
        Ok(PublishedChange { row, resource })
    }
}

fn spans(
    sql: &Connection,
    set: &PublishedSet,
    oldest: Option<DateTime<Utc>>,
    most: i64,
) -> rusqlite::Result<Vec<ChangeSpan>> {
    let (mut after, mut from) = (set.after, set.since);
    if let Some(lost) = feed::trimmed(sql)?.filter(|lost| *lost > after) {
        after = lost;
        from = match feed::first_after(sql, lost)? {
            Some((_, at)) => at - TimeDelta::microseconds(1),
            None => feed::floor(sql)?.max(from),
        };
    }
    if let Some(oldest) = oldest.filter(|oldest| *oldest > from) {
        after = feed::last_before(sql, after, oldest)?;
        from = oldest;
    }
    let Some((end, newest)) = feed::last(sql)?.filter(|(seq, _)| *seq > after) else {
        let (until, closed) = (after, None);
        return Ok(vec![ChangeSpan {
            after,
            from,
            until,
            closed,
        }]);
    };
    let mut all = Vec::new();
    while after < end {
        let day = day_after(from);
        let of_day = if newest < day {
            end
        } else {
            feed::last_before(sql, after, day)?
        };
        // A multiple of `most`: the same in all spans that are made of these changes.
        let full = (after.div_euclid(most) + 1) * most;
        let (until, closed) = if full <= of_day {
            let last = feed::last_until(sql, full)?;
            (full, last.map_or(from, |(_, at)| at.max(from)))
        } else if newest < day {
            break;
        } else {
            (of_day, day)
        };
        if feed::newest_of_set(sql, set.id, (after, until))?.is_some() {
            all.push(ChangeSpan {
                after,
                from,
                until,
                closed: Some(closed),
            });
            from = closed;
        } else if until == of_day && until != full {
            // Nothing has happened on that day: the next span begins with it, and goes on to the next day that has changes.
            from = closed;
        }
        after = until;
    }
    all.push(ChangeSpan {
        after,
        from,
        until: end,
        closed: None,
    });
    Ok(all)
}

/// The begin of the next day, in UTC.
fn day_after(time: DateTime<Utc>) -> DateTime<Utc> {
    let next = time.date_naive().succ_opt();
    next.and_then(|day| day.and_hms_opt(0, 0, 0))
        .map_or(DateTime::<Utc>::MAX_UTC, |begin| begin.and_utc())
}
