//! The listing of what the mirror has, for readers that begin with it and go on with the feed.
//!
//! Each step is a short query of its own, so that no reader, however slow, holds a snapshot of the database. What changes between two
//! steps is listed in its old or its new state, or not; the feed states it after the position with which the listing began.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::store::ids::{ResourceId, SetId};
use crate::store::query_threads::Lane;
use crate::store::tables::resource::{ResourceView, listing};
use crate::store::tables::{feed, source_set};
use crate::store::{Store, StoreError};

/// How many rows one step reads: with their URIs and links, at most 3 MiB of the database.
const ROWS: usize = 100;

/// What remains to be listed; by default nothing.
#[derive(Debug, Default)]
pub struct ResourceListing(VecDeque<Remaining>);

#[derive(Debug)]
enum Remaining {
    /// All resources of a Source after that identity.
    Source { source: String, after: String },
    /// All resources of a set after that row.
    Set { set: SetId, after: ResourceId },
}

impl Store {
    /// Begins to list the resources that the mirror has: those of a set, by its Capability List, or of a Source, or all. Returns the
    /// position of the feed after which changes may be missing in the listing. `None` for the listing: no such set, or no set of such a
    /// Source, is known.
    pub async fn begin_listing(
        self: &Arc<Self>,
        source: Option<String>,
        set: Option<String>,
    ) -> Result<(i64, Option<ResourceListing>), StoreError> {
        self.read_in(Lane::Reports, move |sql| {
            let source = source.as_deref();
            let parts: VecDeque<Remaining> = match &set {
                Some(list) => source_set::of_list(sql, list, source)?
                    .into_iter()
                    .map(|set| Remaining::Set {
                        set,
                        after: ResourceId(0),
                    })
                    .collect(),
                None => source_set::sources(sql, source)?
                    .into_iter()
                    .map(|source| Remaining::Source {
                        source,
                        after: String::new(),
                    })
                    .collect(),
            };
            let is_known = !parts.is_empty() || (source.is_none() && set.is_none());
            let position = feed::last_number(sql)?;
            Ok((position, is_known.then_some(ResourceListing(parts))))
        })
        .await
    }

    /// The next resources of a listing, perhaps none, and what remains after them; `None`: it has ended.
    pub async fn next_listed(
        self: &Arc<Self>,
        mut listing: ResourceListing,
    ) -> Result<Option<(Vec<ResourceView>, ResourceListing)>, StoreError> {
        let unreadable = Arc::clone(&self.unreadable);
        self.read_in(Lane::Reports, move |sql| {
            let (live, is_ended) = match listing.0.front_mut() {
                None => return Ok(None),
                Some(Remaining::Source { source, after }) => {
                    let rows = listing::of_source(sql, source, after, ROWS, &unreadable)?;
                    (rows.live, advance(after, rows.last))
                }
                Some(Remaining::Set { set, after }) => {
                    let rows = listing::of_set(sql, *set, *after, ROWS, &unreadable)?;
                    (rows.live, advance(after, rows.last))
                }
            };
            if is_ended {
                listing.0.pop_front();
            }
            Ok(Some((live, listing)))
        })
        .await
    }
}

/// Moves on to the last row; returns whether there was none.
fn advance<K>(after: &mut K, last: Option<K>) -> bool {
    match last {
        Some(last) => {
            *after = last;
            false
        }
        None => true,
    }
}
