//! The entries of a Change List, of whichever document led to it.

use resyncd_core::NewsFilter;

use super::entry_batches::EntrySource;
use super::ingest::{DocumentChanges, ingest_changes};
use super::state::SetState;
use crate::engine::EngineError;
use crate::engine::documents::SummarizedDocument;
use crate::store::{DocumentEnd, Origin};

impl SetState {
    /// Ingests what is news in a Change List.
    pub(super) async fn ingest_news(
        &mut self,
        read: SummarizedDocument,
        filter: NewsFilter,
        end: DocumentEnd,
    ) -> Result<(), EngineError> {
        let changes = DocumentChanges {
            origin: Origin::ChangeList,
            newest_first: read.summary.newest_first,
            filter,
            end,
        };
        let (document, entries) = (read.document.url().clone(), read.summary.entries);
        let source = EntrySource::Document(read.document);
        let result = ingest_changes(&self.context, self.record.id, source, changes).await?;
        self.found += result.tasks;
        self.report_held_back(result.held_back);
        tracing::info!(source = self.context.name(), set = %self.record.capability_list, %document, entries,
            news = result.tasks, "Change List read");
        Ok(())
    }
}
