//! Which document the baseline is made from, and which one proves later what there is: the Resource List or the Resource Dump.

use resourcesync::Capability;

use super::state::SetState;
use crate::config::Baseline;
use crate::engine::EngineError;

/// With more resources than this in the mirror, the baseline is not made from packages: most members would be fetched in vain.
const FEW_RESOURCES: u64 = 100;

const LIST: Capability = Capability::ResourceList;
const DUMP: Capability = Capability::ResourceDump;

impl SetState {
    /// Makes the baseline from the document that the configuration prefers. Returns whether no other document may state more:
    /// a Resource List is often newer than the dump.
    pub(super) async fn read_baseline(&mut self) -> Result<bool, EngineError> {
        let has_list = !self.offered(&LIST).is_empty();
        if !self.prefers_dump(has_list).await? {
            if !has_list {
                return Err(EngineError::NoResourceList);
            }
            self.read_offered_snapshot(&LIST, true).await?;
            return Ok(true);
        }
        match self.read_offered_snapshot(&DUMP, true).await {
            Err(error) if error.is_fatal() => Err(error),
            Err(error) if has_list => {
                tracing::warn!(code = error.code(), source = self.context.name(), set = %self.record.capability_list, %error,
                    "Resource Dump unusable; reading the Resource List");
                self.read_offered_snapshot(&LIST, true).await?;
                let status_error = error.status_error();
                self.context
                    .runtime_status
                    .note_set(self.record.id, |facts| {
                        facts.notice = facts.notice.take().or(Some(status_error))
                    });
                Ok(true)
            }
            Err(error) => Err(error),
            // Nothing states that a dump of version 0.1 has everything.
            Ok(()) if self.record.is_implied() => {
                self.read_offered_snapshot(&LIST, true).await?;
                Ok(true)
            }
            Ok(()) => Ok(!has_list),
        }
    }

    /// Reads the Resource List, or, where there is none, or only one that is older than before, the Resource Dump. Not again
    /// what was read last.
    pub(super) async fn read_snapshot(&mut self) -> Result<(), EngineError> {
        let has_list = !self.offered(&LIST).is_empty();
        let has_dump = !self.offered(&DUMP).is_empty();
        if has_dump && !has_list {
            return self.read_offered_snapshot(&DUMP, false).await;
        }
        match self.read_offered_snapshot(&LIST, false).await {
            // The dump may be newer. If it is not, it is rejected as the list was.
            Err(error @ EngineError::OlderResourceList(_)) if has_dump => {
                self.read_offered_snapshot(&DUMP, false).await?;
                self.set_notice(Some(error.status_error()));
                Ok(())
            }
            read => read,
        }
    }

    /// Whether the baseline is made from the Resource Dump. `auto` takes it if most of the set is needed: the mirror has few
    /// resources of it, or a dump has been read in part.
    async fn prefers_dump(&self, has_list: bool) -> Result<bool, EngineError> {
        let has_dump = !self.offered(&DUMP).is_empty();
        let wanted = self.context.source.baseline;
        if !has_dump {
            if wanted == Baseline::Dump && has_list {
                tracing::info!(code = "no-resource-dump", source = self.context.name(), set = %self.record.capability_list,
                    "no Resource Dump offered; reading the Resource List");
            }
            return Ok(false);
        }
        let (store, set) = (&self.context.store, self.record.id);
        Ok(match wanted {
            _ if !has_list => true,
            Baseline::Dump => true,
            Baseline::List => false,
            Baseline::Auto => {
                store.dump_in_progress(set).await?.is_some()
                    || store.set_statistics(set).await?.resources <= FEW_RESOURCES
            }
        })
    }
}
