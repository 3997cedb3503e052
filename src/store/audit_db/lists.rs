//! The documents that an audit is still to read: so that an index may be as long as it likes.

use rusqlite::{OptionalExtension, params};
use url::Url;

use super::AuditDb;
use crate::protocol::{Capability, SourceTime};
use crate::store::{StoreError, row};

/// A document that is to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingList {
    /// Where it is.
    pub uri: Url,
    /// How many indexes lead to it.
    pub depth: u32,
    /// What the index says of its beginning, or of the time that it is of.
    pub from: Option<SourceTime>,
    /// What the index says of its end.
    pub until: Option<SourceTime>,
}

impl AuditDb {
    /// Notes documents of a set that are to be read, each once, however often it is named.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn note_lists(
        &self,
        set: u32,
        capability: &Capability,
        lists: &[PendingList],
    ) -> Result<(), StoreError> {
        self.together(|sql| {
            let mut note = sql.prepare_cached(
                "INSERT INTO list (set_number, capability, uri, depth, from_time, until_time) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
                 ON CONFLICT DO NOTHING",
            )?;
            for list in lists {
                note.execute(params![
                    set,
                    capability.as_str(),
                    list.uri.as_str(),
                    list.depth,
                    list.from.map(SourceTime::micros),
                    list.until.map(SourceTime::micros),
                ])?;
            }
            Ok(())
        })
    }

    /// The next document of a set after a number, in the order in which they were noted, with its own number.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn next_list(
        &self,
        set: u32,
        capability: &Capability,
        after: i64,
    ) -> Result<Option<(i64, PendingList)>, StoreError> {
        let sql = self.sql();
        let mut query = sql.prepare_cached(
            "SELECT id, uri, depth, from_time, until_time FROM list
             WHERE id > ?3 AND set_number = ?1 AND capability = ?2 ORDER BY id LIMIT 1",
        )?;
        let found = query
            .query_row(params![set, capability.as_str(), after], |found| {
                Ok((
                    found.get::<_, i64>(0)?,
                    found.get::<_, String>(1)?,
                    found.get::<_, u32>(2)?,
                    found.get::<_, Option<i64>>(3)?,
                    found.get::<_, Option<i64>>(4)?,
                ))
            })
            .optional()?;
        let Some((id, uri, depth, from, until)) = found else {
            return Ok(None);
        };
        let list = PendingList {
            uri: row::url(&uri)?,
            depth,
            from: row::source_time(from),
            until: row::source_time(until),
        };
        Ok(Some((id, list)))
    }
}
