//! The findings of an audit.

use super::database::AuditDb;
use super::tables::finding::{self, Finding};
use super::tables::{expected, known};
use crate::store::StoreError;

/// What is known of a path that has a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathState {
    /// Whether a file is, or may be, expected there.
    pub expected: bool,
    /// The resource that has, or had, this path.
    pub uri: Option<String>,
    /// The number of the set that announced it.
    pub set: Option<u32>,
    /// Whether the state database has the resource, and the configuration includes it.
    pub known: bool,
    /// Whether the state database has the file as live.
    pub live: bool,
}

impl AuditDb {
    /// What is known of a path.
    pub fn path_state(&self, path: &str) -> Result<PathState, StoreError> {
        let sql = self.sql();
        let mut state = PathState::default();
        if let Some(owner) = expected::at_path(&sql, path)? {
            state.expected = owner.may_be_present;
            state.uri = Some(owner.uri);
            state.set = Some(owner.set);
        }
        if let Some(owner) = known::at_path(&sql, path)? {
            state.uri = Some(owner.uri);
            state.known = owner.wanted;
            state.live = owner.live;
        }
        Ok(state)
    }

    /// Adds findings.
    pub fn add_findings(&self, findings: &[Finding]) -> Result<(), StoreError> {
        self.transaction(|sql| {
            for finding in findings {
                finding::insert(sql, finding)?;
            }
            Ok(())
        })
    }

    /// The findings after an id, in the order of their ids.
    pub fn findings(&self, after: i64, limit: usize) -> Result<Vec<Finding>, StoreError> {
        Ok(finding::after(&self.sql(), after, limit)?)
    }

    /// The next page of a walk through all findings; `None`: there are no more. `after` starts at 0.
    pub fn next_findings(
        &self,
        after: &mut i64,
        limit: usize,
    ) -> Result<Option<Vec<Finding>>, StoreError> {
        let page = self.findings(*after, limit)?;
        let Some(last) = page.last() else {
            return Ok(None);
        };
        *after = last.id;
        Ok(Some(page))
    }

    /// Stores the kind, outcome and error of findings.
    pub fn change_findings(&self, findings: &[Finding]) -> Result<(), StoreError> {
        self.transaction(|sql| {
            for finding in findings {
                finding::update(sql, finding)?;
            }
            Ok(())
        })
    }

    /// Deletes findings.
    pub fn drop_findings(&self, ids: &[i64]) -> Result<(), StoreError> {
        self.transaction(|sql| {
            for &id in ids {
                finding::delete(sql, id)?;
            }
            Ok(())
        })
    }
}
