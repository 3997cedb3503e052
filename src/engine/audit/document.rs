//! Ingests one document of a set into the audit database, a batch of entries at a time.

use url::Url;

use crate::clock;
use crate::config::Source;
use crate::engine::EngineError;
use crate::engine::set::changes::parse_change;
use crate::fetch::FetchedDocument;
use crate::protocol::{Capability, ChangeKind, DocumentSummary, Entry, SourceTime};
use crate::store::{AuditDb, PendingList, StatementKind};
use crate::sync::latest_source_time;

/// How deep indexes may be nested.
const MAX_DEPTH: u32 = 4;
/// How many entries are ingested in one transaction.
const BATCH: usize = 1000;

/// A fetched document of a set.
pub(super) struct PendingDocument {
    pub(super) set: u32,
    pub(super) number: i64,
    pub(super) list: PendingList,
    pub(super) capability: Capability,
    /// For a Resource List: the time of the newest one that was read before; an older one is outdated. For a Change List: older
    /// changes are in the Resource List.
    pub(super) since: Option<SourceTime>,
    pub(super) fetched: Box<FetchedDocument>,
}

/// What was read of one document.
pub(super) struct DocumentRead {
    pub(super) bad_entries: u64,
    pub(super) stated: bool,
    pub(super) at: Option<SourceTime>,
    pub(super) from: Option<SourceTime>,
    /// The index that a closed list belongs to: it names the list that follows.
    pub(super) index: Option<Url>,
}

impl PendingDocument {
    /// Ingests the document. For a blocking thread.
    pub(super) fn ingest(
        mut self,
        source: &Source,
        audit_db: &AuditDb,
    ) -> Result<DocumentRead, EngineError> {
        let latest = latest_source_time(clock::now().wall);
        let uri = self.fetched.url().to_string();
        let summary = self
            .fetched
            .reader()
            .and_then(|reader| DocumentSummary::read(reader, latest))
            .map_err(|error| EngineError::BadDocument { uri, error })?;
        let md = &summary.head.md;
        if let Some(found) = md
            .capability
            .as_ref()
            .filter(|&found| *found != self.capability)
        {
            return Err(EngineError::WrongCapability {
                document: self.list.uri.to_string(),
                wanted: self.capability.clone(),
                found: found.clone(),
            });
        }
        if summary.is_index && self.list.depth >= MAX_DEPTH {
            return Err(EngineError::NestedIndex);
        }
        let is_listed = self.capability == Capability::ResourceList;
        let told = self.list.from.or(md.at).filter(|&at| at <= latest);
        if is_listed && told.is_some_and(|at| self.since.is_some_and(|known| at < known)) {
            return Err(EngineError::OlderResourceList(self.list.uri.to_string()));
        }
        let at = told
            .or(summary.newest)
            .or(self.fetched.last_modified())
            .unwrap_or_else(|| SourceTime::from(clock::now().wall));
        let mut read = DocumentRead {
            bad_entries: summary.bad_entries(),
            // The index states the capability of its lists.
            stated: md.capability.is_some() || self.list.depth > 0,
            at: (is_listed && !summary.is_index).then_some(at),
            from: None,
            index: None,
        };
        if !is_listed {
            read.from = md.from.or(md.at).filter(|_| self.list.depth == 0);
            let index = summary.head.link("index");
            read.index = index
                .filter(|&index| md.until.is_some() && *index != self.list.uri)
                .cloned();
        }
        if summary.is_index {
            self.ingest_index(audit_db, told.filter(|_| is_listed))?;
        } else {
            let telling = if is_listed {
                StatementKind::ResourceList { at }
            } else {
                StatementKind::ChangeList {
                    newest_first: summary.newest_first,
                    since: self.since,
                }
            };
            self.ingest_entries(source, audit_db, telling)?;
        }
        Ok(read)
    }

    /// Records the lists of an index. `at`: the time of all of them.
    fn ingest_index(
        &mut self,
        audit_db: &AuditDb,
        at: Option<SourceTime>,
    ) -> Result<(), EngineError> {
        let since = self
            .since
            .filter(|_| self.capability != Capability::ResourceList);
        let mut reader = self.fetched.reader()?;
        let mut lists = Vec::new();
        while let Some(entry) = reader.next_entry()? {
            let until = entry.md.until.or(entry.md.completed);
            // Older changes are in the Resource List.
            if until.is_some_and(|until| since.is_some_and(|since| until < since)) {
                continue;
            }
            lists.push(PendingList {
                from: at.or(entry.md.from).or(entry.md.at),
                until,
                uri: entry.loc,
                depth: self.list.depth + 1,
            });
            if lists.len() >= BATCH {
                audit_db.note_lists(self.set, &self.capability, &lists)?;
                lists.clear();
            }
        }
        audit_db.note_lists(self.set, &self.capability, &lists)?;
        Ok(())
    }

    fn ingest_entries(
        &mut self,
        source: &Source,
        audit_db: &AuditDb,
        telling: StatementKind,
    ) -> Result<(), EngineError> {
        let since = self.since;
        let mut reader = self.fetched.reader()?;
        let mut batch = Vec::new();
        while let Some(mut entry) = reader.next_entry()? {
            batch.extend(match telling {
                StatementKind::ResourceList { .. } => {
                    entry.md.change = None;
                    let lastmod = entry.lastmod;
                    parse_change(source, entry, ChangeKind::Created, lastmod)
                }
                StatementKind::ChangeList { .. } if is_old(&entry, since) => None,
                StatementKind::ChangeList { .. } => {
                    let changed_at = entry.changed_at();
                    parse_change(source, entry, ChangeKind::Updated, changed_at)
                }
            });
            if batch.len() >= BATCH {
                audit_db.record_entries(self.set, self.number, telling, &batch)?;
                batch.clear();
            }
        }
        audit_db.record_entries(self.set, self.number, telling, &batch)?;
        Ok(())
    }
}

fn is_old(entry: &Entry, since: Option<SourceTime>) -> bool {
    let latest = entry.changed_at().map(SourceTime::latest_possible);
    latest.is_some_and(|latest| since.is_some_and(|since| latest < since))
}
