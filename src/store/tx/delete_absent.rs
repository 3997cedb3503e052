//! Ends a Resource List or Resource Dump that was read completely: what it does not name is not listed any more, and is deleted if that
//! is proven.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use resyncd_core::ResourceUri;

use super::batch_context::BatchContext;
use super::deletion_guard::decide_deletions_of_others;
use super::ingest::BatchResult;
use super::ingest_listed::ListProgress;
use super::list_deletion::delete_absent_or_expired;
use super::statements::Resource;
use crate::store::change::Change;
use crate::store::ids::ResourceId;
use crate::store::named::NamedSoFar;
use crate::store::sql::Connection;
use crate::store::tables::membership::{self, Membership};
use crate::store::tables::tally::Tallied;
use crate::store::{Store, StoreError};

/// How many resources one transaction checks, and how many of them may be absent, so that none keeps the writer for long.
const RESOURCES_A_STEP: usize = 20_000;
const ABSENT_A_STEP: usize = 1000;

/// The resources of a set that a list does not name, as they are looked for.
#[derive(Clone, Debug)]
pub struct AbsentSearch {
    /// Whether the list proves that they do not exist.
    pub is_proven: bool,
    /// What the reading before has named: that is not absent either.
    pub named_before: Option<NamedSoFar>,
    /// The last resource that was checked.
    after: ResourceId,
}

impl AbsentSearch {
    /// From the first resource on.
    pub fn new(is_proven: bool, named_before: Option<NamedSoFar>) -> Self {
        Self {
            is_proven,
            named_before,
            after: ResourceId(0),
        }
    }
}

impl Store {
    /// Checks the next resources of the set: those that the list, now read completely, has not named are not listed any more, and their
    /// deletion is planned if it is proven. Returns `None` when there are no more. The deletions stay undecided until the document ends.
    /// Resources that `wants` excludes were not looked for in the list, and stay.
    pub async fn delete_absent(
        self: &Arc<Self>,
        list: &ListProgress,
        now: DateTime<Utc>,
        search: &mut AbsentSearch,
        wants: impl Fn(&ResourceUri) -> bool + Send + 'static,
    ) -> Result<Option<BatchResult>, StoreError> {
        let (list, step) = (list.clone(), search.clone());
        let deleting = self.write(move |tx| delete_absent(tx.sql, &list, now, &step, wants));
        Ok(deleting.await?.map(|(result, last)| {
            search.after = last;
            result
        }))
    }

    /// Whether a set has resources that a list has not named.
    pub async fn has_absent_resources(
        self: &Arc<Self>,
        list: &ListProgress,
    ) -> Result<bool, StoreError> {
        let list = list.clone();
        self.read(move |sql| {
            let mut search = AbsentSearch::new(true, None);
            while let Some((absent, last)) = next_absent(sql, &list, &search)? {
                if !absent.is_empty() {
                    return Ok(true);
                }
                search.after = last;
            }
            Ok(false)
        })
        .await
    }
}

/// The absent ones of the next resources, and the last of all of these; `None`: there are no more.
#[expect(clippy::type_complexity, reason = "a list and its end")]
fn next_absent(
    sql: &Connection,
    list: &ListProgress,
    search: &AbsentSearch,
) -> Result<Option<(Vec<(ResourceId, Membership)>, ResourceId)>, StoreError> {
    let members = membership::next_unlinked(sql, list.set, search.after, RESOURCES_A_STEP)?;
    let Some(&(last, _)) = members.last() else {
        return Ok(None);
    };
    let named_before = search.named_before.as_ref();
    let mut absent = members;
    absent.retain(|&(id, _)| {
        !list.named.contains(id) && !named_before.is_some_and(|named| named.contains(id))
    });
    absent.truncate(ABSENT_A_STEP);
    let last = match absent.last() {
        Some(&(id, _)) if absent.len() == ABSENT_A_STEP => id,
        _ => last,
    };
    Ok(Some((absent, last)))
}

fn delete_absent(
    sql: &Tallied<'_>,
    list: &ListProgress,
    now: DateTime<Utc>,
    search: &AbsentSearch,
    wants: impl Fn(&ResourceUri) -> bool,
) -> Result<Option<(BatchResult, ResourceId)>, StoreError> {
    let (set, at) = (list.set, list.at);
    let Some((absent, last)) = next_absent(sql, list, search)? else {
        return Ok(None);
    };
    let mut context = BatchContext::read(sql, set, &list.source, list.origin, now)?;
    context.reading = Some(list);
    let mut result = BatchResult::default();
    for (id, membership) in absent {
        let resource = if search.is_proven {
            Resource::find(sql, &context, id)?.filter(|it| wants(&it.state.uri))
        } else {
            None
        };
        if let Some(resource) = resource {
            let deletion = Change::deletion(resource.state.uri.clone(), Some(at));
            let outcome = delete_absent_or_expired(sql, &context, resource, at, &deletion)?;
            result.count(outcome);
        } else if membership == Membership::Listed {
            membership::set(sql, set, id, Membership::Changed)?;
        }
    }
    decide_deletions_of_others(sql, &context)?;
    Ok(Some((result, last)))
}
