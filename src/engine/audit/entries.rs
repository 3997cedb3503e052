//! Records the entries of a list in the audit database, a batch at a time.

use resourcesync::{ChangeKind, Entry, SourceTime};

use crate::clock;
use crate::config::Source;
use crate::engine::EngineError;
use crate::engine::documents::NextEntry;
use crate::engine::set::changes::{note_expiry, note_listed, parse_change};
use crate::store::{AuditDb, StatementKind};

/// How many entries are recorded in one transaction.
const BATCH: usize = 1000;

/// Records all entries of a list of a set. `number`: of the list. For a blocking thread.
pub(super) fn record_entries(
    source: &Source,
    audit_db: &AuditDb,
    (set, number): (u32, i64),
    kind: StatementKind,
    next: &mut NextEntry<'_>,
) -> Result<(), EngineError> {
    let mut batch = Vec::new();
    let now = clock::now().wall;
    let is_list = matches!(kind, StatementKind::ResourceList { .. });
    while let Some(mut entry) = next()? {
        if !is_list {
            note_expiry(&mut entry, now);
        }
        let change = match kind {
            StatementKind::ResourceList { .. } => {
                let changed_at = note_listed(&mut entry, now);
                parse_change(source, entry, ChangeKind::Created, changed_at)
            }
            StatementKind::ChangeList { since, .. } if is_old(&entry, since) => None,
            StatementKind::ChangeList { .. } => {
                let changed_at = entry.changed_at();
                parse_change(source, entry, ChangeKind::Updated, changed_at)
            }
        };
        batch.extend(change);
        if batch.len() >= BATCH {
            audit_db.record_entries(set, number, kind, &batch)?;
            batch.clear();
        }
    }
    audit_db.record_entries(set, number, kind, &batch)?;
    Ok(())
}

fn is_old(entry: &Entry, since: Option<SourceTime>) -> bool {
    let latest = entry.changed_at().map(SourceTime::latest_possible);
    latest.is_some_and(|latest| since.is_some_and(|since| latest < since))
}
