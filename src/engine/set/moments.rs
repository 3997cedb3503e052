//! What a document states of one resource at one moment: the last entry counts, also where that is not selected.
//!
//! An update that is not selected becomes no change, but it ends the deletion before it: the resource exists. Without it the deletion would
//! delete what the mirror has, or had before the selection was another one.

use std::collections::{HashMap, VecDeque};

use chrono::{DateTime, Utc};
use resourcesync::{ChangeKind, Entry, ReadError, SourceTime};
use resyncd_core::{Selection, Standing, identity};

use super::changes::note_expiry;
use crate::engine::documents::NextEntry;

/// How many entries of one moment are in memory at once.
const MAX_ENTRIES: usize = 16_000;

/// The entries of a document that count, a moment at a time.
pub(super) struct Moments {
    /// When the document was opened.
    now: DateTime<Utc>,
    /// Whether the newest entry comes first.
    newest_first: bool,
    /// The entries of a moment that are left.
    entries: VecDeque<Entry>,
    /// The first entry of another moment.
    next: Option<Entry>,
}

impl Moments {
    pub(super) fn of(now: DateTime<Utc>, newest_first: bool) -> Self {
        Self {
            now,
            newest_first,
            entries: VecDeque::new(),
            next: None,
        }
    }

    /// The next entry; `None` after the last one. One that has expired states that. `selection`: by what the types of resources are
    /// selected; `next`: reads the document.
    pub(super) fn next(
        &mut self,
        selection: &Selection,
        next: &mut NextEntry<'_>,
    ) -> Result<Option<Entry>, ReadError> {
        if selection.is_empty() {
            return self.read(next);
        }
        while self.entries.is_empty() {
            let Some(first) = self
                .next
                .take()
                .map_or_else(|| self.read(next), |it| Ok(Some(it)))?
            else {
                return Ok(None);
            };
            let moment = first.changed_at();
            let mut entries = vec![first];
            while entries.len() < MAX_ENTRIES {
                match self.read(next)? {
                    Some(entry) if entry.changed_at() == moment => entries.push(entry),
                    other => {
                        self.next = other;
                        break;
                    }
                }
            }
            drop_ended(&mut entries, self.newest_first, selection);
            self.entries = entries.into();
        }
        Ok(self.entries.pop_front())
    }

    fn read(&self, next: &mut NextEntry<'_>) -> Result<Option<Entry>, ReadError> {
        let mut entry = next()?;
        if let Some(entry) = &mut entry {
            note_expiry(entry, self.now);
        }
        Ok(entry)
    }
}

/// Drops what a later entry of the same resource and moment ends that is not selected.
fn drop_ended(entries: &mut Vec<Entry>, newest_first: bool, selection: &Selection) {
    let is_unselected = |entry: &Entry| {
        let media_type = entry.md.content.media_type.as_deref();
        let standing = selection.standing(media_type, &entry.links);
        let is_update = entry.md.change != Some(ChangeKind::Deleted);
        is_update && standing.is_some_and(Standing::is_irrelevant)
    };
    if entries.len() < 2 || !entries.iter().any(is_unselected) {
        return;
    }
    let key = |entry: &Entry| (identity(&entry.loc).into_owned(), entry.changed_at());
    let mut ends: HashMap<(String, Option<SourceTime>), bool> = HashMap::new();
    for entry in &*entries {
        let ends_unselected = ends.entry(key(entry));
        if newest_first {
            ends_unselected.or_insert_with(|| is_unselected(entry));
        } else {
            ends_unselected.insert_entry(is_unselected(entry));
        }
    }
    entries.retain(|entry| is_unselected(entry) || !ends[&key(entry)]);
}
