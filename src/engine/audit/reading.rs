//! Reads what the Source states now: the normal reading, into the empty database of a scratch folder, without an executor.
//!
//! What an earlier reading has found does not count, but for the sets that there were, and for the time of the newest Resource List where
//! there are no Change Lists: nothing else shows that an older one is served.

use std::collections::HashMap;
use std::sync::Arc;

use resyncd_core::AbsenceProof;
use resyncd_fetch::Client;
use url::Url;

use super::context::{AuditContext, blocking};
use crate::config::Baseline;
use crate::engine::EngineError;
use crate::engine::lifecycle::Engine;
use crate::engine::one_shot::in_scratch_folder;
use crate::engine::read_facts::{ReadList, UnreadDocument};
use crate::store::{
    Finding, FindingKind, KnownFiles, ListTimes, ScratchFolder, SetId, SetRecord, Store,
};

/// What was read of a Source.
pub(super) struct SourceReading {
    pub(super) sets: Vec<SetRecord>,
    /// What has read the documents, and knows the robots.txt.
    pub(super) client: Client,
    lists: HashMap<SetId, ReadList>,
    unread: Vec<UnreadDocument>,
    knows_all_sets: bool,
}

impl SourceReading {
    /// Whether everything was read.
    pub(super) fn is_complete(&self) -> bool {
        let is_read = |set: &SetRecord| {
            let list = self.lists.get(&set.id);
            list.is_some_and(|list| list.proof.is_some())
        };
        self.knows_all_sets && self.unread.is_empty() && self.sets.iter().all(is_read)
    }

    /// Whether a file that is not expected is extra.
    pub(super) fn proves_extras(&self) -> bool {
        let mut lists = self.lists.values();
        self.is_complete() && lists.all(|list| list.proof.is_some_and(AbsenceProof::is_complete))
    }

    /// The times of the Resource Lists.
    pub(super) fn list_times(&self) -> Vec<ListTimes> {
        let lists = self.lists.iter().map(|(&set, list)| ListTimes {
            set,
            at: list.at,
            entries_at: list.entries_at,
        });
        lists.collect()
    }

    /// The documents that could not be read, or not completely.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let unread = self.unread.iter().map(|document| Finding {
            set: document.set,
            uri: Some(document.uri.to_string()),
            code: Some(document.error.code.clone()),
            message: Some(document.error.message.clone()),
            ..Finding::new(FindingKind::Unreachable)
        });
        unread.collect()
    }

    /// The Capability List of a set.
    pub(super) fn set(&self, id: Option<SetId>) -> Option<Url> {
        let set = self.sets.iter().find(|set| Some(set.id) == id);
        set.map(|set| set.capability_list.clone())
    }
}

impl AuditContext {
    /// Has the documents read. Fails only if the database does, or if the audit is interrupted: a document that can't be read is a finding.
    pub(super) async fn read(&self, scratch: &ScratchFolder) -> Result<SourceReading, EngineError> {
        let mut config = in_scratch_folder(&self.config, scratch);
        // Which sets and resources are left out depends on those that are followed.
        (config.limits.sets, config.limits.resources) = (usize::MAX, None);
        for source in &mut config.sources {
            (source.baseline, source.versions) = (Baseline::List, None);
        }
        let (known, name, state) = (
            self.config.state(),
            self.source.name.clone(),
            config.state_dir.clone(),
        );
        let opening = blocking(move || {
            let known = match KnownFiles::open(&known)? {
                Some(known) => known.sets(&name)?,
                None => Vec::new(),
            };
            Ok::<_, EngineError>((Store::open(&state)?, known))
        });
        let (store, known) = opening.await??;
        for set in known {
            if self.source.wants_set(&set.capability_list) {
                store.begin_known_set(set).await?;
            }
        }
        let engine = Engine::once(&config, Arc::clone(&store), &self.client).await?;
        let mut contexts = engine.sources.contexts();
        let context = contexts.pop().expect("the configuration has one Source");
        let _ = self.reading.set(Arc::clone(&context.progress));
        let reading = engine.plan();
        tokio::pin!(reading);
        tokio::select! {
            _ = &mut reading => {}
            () = self.stop.cancelled() => {
                engine.interrupt();
                let _ = reading.await;
                return Err(EngineError::Interrupted);
            }
        }
        let mut sets = store.sets(&self.source.name).await?;
        sets.retain(|set| self.source.wants_set(&set.capability_list));
        let facts = &context.read_facts;
        Ok(SourceReading {
            sets,
            client: context.client.clone(),
            lists: facts.lists(),
            unread: facts.unread(),
            knows_all_sets: facts.knows_all_sets(),
        })
    }
}
