//! What the state database knows of a Source's resources, merged into what the Source's documents state.

use std::path::Path;

use resourcesync::{Link, SourceTime};
use resyncd_core::ResourceUri;
use resyncd_mirror::made_path;

use super::database::AuditDb;
use super::state::open;
use super::statements::expect_linked;
use super::tables::{expected, known, selected};
use crate::store::StoreError;
use crate::store::tables::resource::audit;

/// How many rows are copied in one transaction.
const ROWS: usize = 1000;

impl AuditDb {
    /// Copies what the state database in a folder knows of a Source; `false`: there is none. `wants` decides which resources
    /// the configuration includes, and `selects` by type and links whether one is wanted still that was not selected.
    ///
    /// # Errors
    /// [`StoreError`], also for a database that is newer than this program.
    pub fn copy_known(
        &self,
        folder: &Path,
        source: &str,
        wants: impl Fn(&ResourceUri) -> bool,
        selects: impl Fn(Option<&str>, &[Link]) -> bool,
    ) -> Result<bool, StoreError> {
        let Some(state) = open(folder)? else {
            return Ok(false);
        };
        audit::visit(&state, source, ROWS, |rows| {
            self.transaction(|sql| {
                for row in &rows {
                    let wanted = wants(&row.uri);
                    let is_unselected = row
                        .unselected
                        .as_ref()
                        .is_some_and(|(media_type, links)| !selects(media_type.as_deref(), links));
                    known::insert(sql, row, wanted && !is_unselected, is_unselected)?;
                }
                Ok(())
            })
        })?;
        Ok(true)
    }

    /// Merges what the state database knows into the expectations: a resource's path is the one that it has there, and an
    /// applied change counts that is newer than what the documents state. `since`: the time of the oldest Resource List; `None`:
    /// none could be read.
    pub fn merge_known(&self, since: Option<SourceTime>) -> Result<(), StoreError> {
        self.transaction(|sql| {
            selected::drop_unselected(sql)?;
            expected::delete_unselected(sql)?;
            expect_linked(sql)?;
            // Its plain path belongs to another: as `first_path` would have chosen, had the records been read before.
            for (id, uri) in expected::displaced(sql)? {
                expected::set_path(sql, id, made_path(&uri).as_str())?;
            }
            expected::merge_known(sql)?;
            if let Some(since) = since {
                expected::insert_known_after(sql, since)?;
            }
            Ok(())
        })
    }
}
