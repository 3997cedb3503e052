//! What a baseline is made from, and what proves anew what there is: the Resource List or the Resource Dump.

use super::EngineError;
use super::set::SetWorker;
use crate::config::Baseline;
use crate::protocol::Capability;

/// A set of which the mirror has more than this is not made from packages: most of them would be fetched for nothing.
const HARDLY_ANY: u64 = 100;

impl SetWorker {
    /// Makes the baseline, as the configuration has it: from the Resource List or from the Resource Dump. Answers whether
    /// there is nothing else that may tell more of what there is: a Resource List is often newer than the dump.
    pub(super) async fn read_baseline(&mut self) -> Result<bool, EngineError> {
        let has_list = !self.offered(&Capability::ResourceList).is_empty();
        if !self.prefers_dump(has_list).await? {
            if !has_list {
                return Err(EngineError::NoResourceList);
            }
            self.read_resource_list(true).await?;
            return Ok(true);
        }
        match self.read_resource_dump(true).await {
            Err(error @ (EngineError::Store(_) | EngineError::Interrupted)) => Err(error),
            Err(error) if has_list => {
                tracing::warn!(code = error.code(), source = self.context.name(), set = %self.record.capability_list, %error,
                    "the Resource Dump can't be used: the Resource List is");
                self.read_resource_list(true).await?;
                let status_error = error.status_error();
                self.context
                    .runtime_status
                    .note_set(self.record.id, |facts| {
                        facts.notice = facts.notice.take().or(Some(status_error))
                    });
                Ok(true)
            }
            read => read.map(|()| !has_list),
        }
    }

    /// Reads what proves what there is: the Resource List, or, where there is none, or only an older one, the Resource Dump.
    /// Not again what was read last.
    pub(super) async fn read_snapshot(&mut self) -> Result<(), EngineError> {
        let has_list = !self.offered(&Capability::ResourceList).is_empty();
        let has_dump = !self.offered(&Capability::ResourceDump).is_empty();
        if has_dump && !has_list {
            return self.read_resource_dump(false).await;
        }
        match self.read_resource_list(false).await {
            // The dump may be the newer one. If it is not, it is refused as the list was.
            Err(error @ EngineError::OlderResourceList(_)) if has_dump => {
                self.read_resource_dump(false).await?;
                self.notice(Some(error.status_error()));
                Ok(())
            }
            read => read,
        }
    }

    /// Whether the baseline is made from the Resource Dump. Left to us, it is if most of the set is needed: the mirror has
    /// hardly anything of it, or what it has came from the dump already.
    async fn prefers_dump(&self, has_list: bool) -> Result<bool, EngineError> {
        let has_dump = !self.offered(&Capability::ResourceDump).is_empty();
        let wanted = self.context.source.baseline;
        if !has_dump {
            if wanted == Baseline::Dump && has_list {
                tracing::info!(code = "no-resource-dump", source = self.context.name(), set = %self.record.capability_list,
                    "the Capability List offers no Resource Dump: the Resource List is used");
            }
            return Ok(false);
        }
        let (store, set) = (&self.context.store, self.record.id);
        Ok(match wanted {
            _ if !has_list => true,
            Baseline::Dump => true,
            Baseline::List => false,
            Baseline::Auto => {
                store.dump_under_way(set).await?.is_some()
                    || store.set_numbers(set).await?.resources <= HARDLY_ANY
            }
        })
    }
}
