//! What the Source's documents state of its resources: the later statement replaces the earlier one.

use resourcesync::{ChangeKind, ContentInfo, SourceTime};
use resyncd_core::ResourceUri;
use resyncd_mirror::first_path;
use rusqlite::Connection;

use super::database::AuditDb;
use super::tables::expected::{self, Expectation, Presence, Statement};
use super::tables::selected;
use crate::store::StoreError;
use crate::store::change::Change;

/// A document whose entries an audit reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatementKind {
    /// A Resource List: its entries state what exists at one time.
    ResourceList {
        /// That time.
        at: SourceTime,
    },
    /// A Change List: each entry has a time of its own.
    ChangeList {
        /// Whether its newest entry comes first.
        newest_first: bool,
        /// The time of the Resource List before it. An entry of an earlier time is dated by a day that had begun by then, and
        /// counts as of this time.
        since: Option<SourceTime>,
    },
}

impl StatementKind {
    /// The time of an entry's statement.
    fn stated_at(self, entry: &Change) -> Option<SourceTime> {
        match self {
            Self::ResourceList { at } => Some(at),
            Self::ChangeList { since, .. } => entry
                .changed_at
                .map(|changed_at| since.map_or(changed_at, |since| changed_at.max(since))),
        }
    }

    fn is_newest_first(self) -> bool {
        matches!(
            self,
            Self::ChangeList {
                newest_first: true,
                ..
            }
        )
    }
}

impl AuditDb {
    /// Records the entries of a document of a set. `number`: the document's own number.
    ///
    /// The later statement counts, by the time of the list or of the change; with equal times, the one that is read later. A
    /// statement without a time only makes the expectation uncertain.
    pub fn record_entries(
        &self,
        set: u32,
        number: i64,
        document: StatementKind,
        entries: &[Change],
    ) -> Result<(), StoreError> {
        self.transaction(|sql| {
            for entry in entries {
                let standing = entry.standing.filter(|_| entry.kind != ChangeKind::Deleted);
                if let Some(standing) = standing {
                    // What the records give the resource is known at the end.
                    selected::record(sql, entry, standing)?;
                    if !standing.has_type {
                        continue;
                    }
                }
                record(sql, set, number, document, entry)?;
            }
            Ok(())
        })
    }

    /// How many files are expected.
    pub fn expected(&self) -> Result<u64, StoreError> {
        Ok(expected::count(&self.sql())?)
    }

    /// The expected files after an id, in the order of their ids.
    pub fn expectations(&self, after: i64, limit: usize) -> Result<Vec<Expectation>, StoreError> {
        Ok(expected::after(&self.sql(), after, limit)?)
    }

    /// The expected files after an id whose resources have links, in the order of their ids.
    pub fn linked(&self, after: i64, limit: usize) -> Result<Vec<Expectation>, StoreError> {
        Ok(expected::linked_after(&self.sql(), after, limit)?)
    }

    /// One expected file, by its id.
    ///
    /// # Errors
    /// [`StoreError`], also when there is none of that id.
    pub fn expectation(&self, id: i64) -> Result<Expectation, StoreError> {
        let found = expected::get(&self.sql(), id)?;
        found.ok_or(StoreError::BadRow("an expectation"))
    }
}

fn record(
    sql: &Connection,
    set: u32,
    number: i64,
    document: StatementKind,
    entry: &Change,
) -> Result<(), StoreError> {
    let Some(stated_at) = document.stated_at(entry) else {
        return record_undated(sql, set, number, entry);
    };
    let statement = Statement {
        set,
        document: number,
        presence: match entry.kind {
            ChangeKind::Deleted => Presence::Absent,
            ChangeKind::Created | ChangeKind::Updated => Presence::Present,
        },
        stated_at,
        entry,
    };
    if !expected::update_if_later(sql, &statement, document.is_newest_first())? {
        insert(sql, &statement)?;
    }
    Ok(())
}

/// Records a statement without a time. It may be older than what is expected: after a change the bytes are unknown, and after
/// a deletion also whether there are any.
fn record_undated(
    sql: &Connection,
    set: u32,
    number: i64,
    entry: &Change,
) -> Result<(), StoreError> {
    let is_deleted = entry.kind == ChangeKind::Deleted;
    if expected::make_uncertain(sql, &entry.uri, is_deleted)? {
        return Ok(());
    }
    let bare = Change {
        lastmod: None,
        content: ContentInfo::default(),
        links: Vec::new(),
        ..entry.clone()
    };
    let statement = Statement {
        set,
        document: number,
        presence: if is_deleted {
            Presence::Unknown
        } else {
            Presence::Present
        },
        stated_at: SourceTime::MIN,
        entry: &bare,
    };
    insert(sql, &statement)
}

/// How many resources are read at once.
const PAGE: usize = 1000;

/// Expects the resources that present ones link to and that are wanted, unless a document states something of them.
pub(super) fn expect_linked(sql: &Connection) -> Result<(), StoreError> {
    let mut after = 0;
    loop {
        let page = expected::linking_after(sql, after, PAGE)?;
        let Some(last) = page.last() else {
            return Ok(());
        };
        after = last.id;
        for owner in page {
            for link in owner.links {
                let Ok(uri) = ResourceUri::try_from(link.href) else {
                    continue;
                };
                let entry = Change {
                    kind: ChangeKind::Created,
                    lastmod: link.modified,
                    content: link.content,
                    ..Change::deletion(uri, link.modified.or(owner.changed_at))
                };
                let statement = Statement {
                    set: owner.set,
                    document: owner.document,
                    presence: Presence::Present,
                    stated_at: owner.stated_at,
                    entry: &entry,
                };
                insert(sql, &statement)?;
            }
        }
    }
}

/// Inserts the first statement about a resource, with a path of its own. If there is a later one, that stays.
fn insert(sql: &Connection, statement: &Statement<'_>) -> Result<(), StoreError> {
    let uri = &statement.entry.uri;
    let path = first_path(uri, |plain| expected::has_path(sql, plain.as_str()))?;
    Ok(expected::insert(sql, statement, path.as_str())?)
}
