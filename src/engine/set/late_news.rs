//! Entries of a document whose time was covered before it was read: which of them have appeared late.
//!
//! A Source may list a change after others that happened later, and a document that is read again lists what it listed before.
//! Coverage does not distinguish the two: each entry is compared with what is known of its own resource.
//!
//! Invariants: of a resource only the newest entry counts; how many resources are remembered is bounded.

use std::collections::HashMap;

use resourcesync::SourceTime;
use resyncd_core::{LateChange, ResourceUri};

use super::changes::ListedChange;
use crate::engine::EngineError;
use crate::engine::context::SourceContext;
use crate::store::{Change, SetId};

/// How many entries are compared at once.
const AT_ONCE: usize = 1000;
/// Of how many resources the newest entry is remembered. Beyond that each entry counts by itself.
const MAX_RESOURCES: usize = 50_000;

/// How many changes of one document are in memory until its end, besides the newest of each resource.
const MAX_CHANGES: usize = 200_000;

/// Whether one more change may be remembered until the end of its document, besides so many.
pub(super) fn check_remembered(changes: usize) -> Result<(), EngineError> {
    if changes < MAX_CHANGES {
        Ok(())
    } else {
        Err(EngineError::TooManyLateChanges(MAX_CHANGES))
    }
}

/// Collects the entries of one document that may have appeared late.
pub(super) struct LateNews {
    set: SetId,
    /// Of entries of one time the later one in the document counts, or the earlier one where the newest comes first.
    newest_first: bool,
    is_change_set: bool,
    /// Those that are not compared yet.
    entries: Vec<ListedChange>,
    /// The newest entry of each resource that states what the mirror does not have, or has.
    newest: HashMap<ResourceUri, Newest>,
    /// News that are not remembered by their resource.
    others: Vec<ListedChange>,
}

struct Newest {
    changed_at: Option<SourceTime>,
    /// `None`: the mirror has it, or it is a deletion that counts by itself.
    news: Option<ListedChange>,
}

impl LateNews {
    /// Of a document of this set. `newest_first`: whether its newest entry comes first; `is_change_set`: of version 0.1.
    pub(super) fn of(set: SetId, newest_first: bool, is_change_set: bool) -> Self {
        Self {
            set,
            newest_first,
            is_change_set,
            entries: Vec::new(),
            newest: HashMap::new(),
            others: Vec::new(),
        }
    }

    /// Adds an entry, in the order of the document. For a blocking thread.
    pub(super) fn add(
        &mut self,
        context: &SourceContext,
        entry: ListedChange,
    ) -> Result<(), EngineError> {
        check_remembered(self.others.len())?;
        self.entries.push(entry);
        if self.entries.len() >= AT_ONCE {
            self.compare(context)?;
        }
        Ok(())
    }

    /// Adds a deletion whose time was not covered: no older entry of its resource in the document is news. The deletion itself may
    /// leave no trace, where only another set still has the resource.
    pub(super) fn supersede(&mut self, deletion: &Change) {
        self.note(deletion.uri.clone(), deletion.changed_at, None);
    }

    /// After the last entry: those that are news. For a blocking thread.
    pub(super) fn finish(
        &mut self,
        context: &SourceContext,
    ) -> Result<Vec<ListedChange>, EngineError> {
        self.compare(context)?;
        let mut news = std::mem::take(&mut self.others);
        let newest = std::mem::take(&mut self.newest);
        news.extend(newest.into_values().filter_map(|newest| newest.news));
        Ok(news)
    }

    fn compare(&mut self, context: &SourceContext) -> Result<(), EngineError> {
        let entries = std::mem::take(&mut self.entries);
        let changes = entries.iter().map(|(change, _)| change);
        let (store, source) = (&context.store, context.name());
        let compared = if self.is_change_set {
            store.compare_late_of_change_set(self.set, source, changes)?
        } else {
            store.compare_late(self.set, source, changes)?
        };
        context.counters.step();
        for ((change, path), planned) in entries.into_iter().zip(compared) {
            // What ends a listed resource of the same time is the later statement.
            let overtaken = planned != LateChange::Ends;
            let entry = (
                Change {
                    overtaken,
                    ..change
                },
                path,
            );
            match planned {
                LateChange::Known => {}
                LateChange::Same => self.remember(entry, false),
                LateChange::News | LateChange::Ends => self.remember(entry, true),
            }
        }
        Ok(())
    }

    fn remember(&mut self, (change, path): ListedChange, is_news: bool) {
        let (uri, changed_at) = (change.uri.clone(), change.changed_at);
        self.note(uri, changed_at, is_news.then_some((change, path)));
    }

    fn note(
        &mut self,
        uri: ResourceUri,
        changed_at: Option<SourceTime>,
        news: Option<ListedChange>,
    ) {
        let newest = Newest { changed_at, news };
        let is_full = self.newest.len() >= MAX_RESOURCES;
        match self.newest.get_mut(&uri) {
            Some(before) => {
                let is_replaced = if self.newest_first {
                    before.changed_at < newest.changed_at
                } else {
                    before.changed_at <= newest.changed_at
                };
                if is_replaced {
                    *before = newest;
                }
            }
            None if is_full => self.others.extend(newest.news),
            None => drop(self.newest.insert(uri, newest)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_that_are_remembered_are_limited() {
        assert!(check_remembered(MAX_CHANGES - 1).is_ok());
        let error = check_remembered(MAX_CHANGES).unwrap_err();
        assert_eq!(error.code(), "too-many-late-changes");
    }
}
