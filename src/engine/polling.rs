//! How a set looks at its documents: first the Capability List, then the Change Lists and Change Dumps, and where those prove
//! too little, the Resource List or the Resource Dump.

use super::EngineError;
use super::reading::record_of_list;
use super::set::SetWorker;
use crate::clock;
use crate::protocol::Offer;
use crate::store::BaselineState;
use crate::sync::Pacing;

impl SetWorker {
    /// Looks at everything that may tell of changes. What fails does not keep the rest from being looked at.
    pub(super) async fn look(&mut self) -> Result<Pacing, EngineError> {
        let refreshed = self.refresh_offers().await;
        if self.record.offers.is_empty() {
            refreshed?;
            return Err(EngineError::NoResourceList);
        }
        let begins = self.record.baseline == BaselineState::Missing;
        let (mut list_is_fresh, mut baseless) = (false, None);
        if begins {
            match self.read_baseline().await {
                Ok(is_fresh) => list_is_fresh = is_fresh,
                // Nobody knows when there will be one: what changes is followed meanwhile.
                Err(error) if error.is_source_fault() => {
                    (list_is_fresh, baseless) = (true, Some(error))
                }
                Err(error) => return Err(error),
            }
        }
        self.baseline_failed = baseless.is_some();
        let filled = self.fill_gaps(list_is_fresh).await;
        refreshed?;
        match baseless {
            Some(error) => filled.and(Err(error)),
            None => filled,
        }
    }

    /// Reads the Change Lists and Change Dumps, and the Resource List if a gap needs it, or if nothing else tells of changes;
    /// unless that was read just now.
    pub(super) async fn fill_gaps(&mut self, list_is_fresh: bool) -> Result<Pacing, EngineError> {
        let (span, read) = self.read_changes().await;
        if let Err(EngineError::Store(error)) = read {
            // That says nothing about what the Source tells.
            return Err(error.into());
        }
        let gaps = self.sequencer.gaps();
        let is_needed = self.schedule.needs_resource_list(clock::now(), span, gaps);
        if !list_is_fresh && (is_needed || self.wants_other_resources().await?) {
            self.read_snapshot().await?;
        }
        let now = clock::now();
        let is_open = !self.sequencer.gaps().is_empty();
        self.schedule.gap(now, is_open);
        read.map(|()| {
            if is_open {
                Pacing::Soon
            } else {
                Pacing::Regular
            }
        })
    }

    /// Whether the Resource List was read with another filter, or not to its end: what is wanted now, and was not then, no
    /// Change List may tell of again.
    async fn wants_other_resources(&self) -> Result<bool, EngineError> {
        let context = &self.context;
        let filter = context.source.filter.fingerprint();
        Ok(context.store.lacks_parts(self.record.id, filter).await?)
    }

    /// Looks whether the Capability List still offers what it did, and follows what it offers now.
    pub(super) async fn refresh_offers(&mut self) -> Result<(), EngineError> {
        if self.record.is_implied() {
            // There is no Capability List: the only list is all that there is to look at.
            return Ok(());
        }
        let context = &self.context;
        let uri = &self.record.capability_list;
        let known = context.store.document(self.record.id, uri).await?;
        let validators = known
            .as_ref()
            .filter(|_| !self.record.offers.is_empty())
            .map(|known| &known.validators);
        let limit = context.limits.document;
        // What a person has named may be a sitemap; what was a Capability List must not become one.
        let may_be_list = self.record.offers.is_empty() && context.source.sets.contains(uri);
        let found = if may_be_list {
            Some(context.client.named_set(uri, limit).await?)
        } else {
            let client = &context.client;
            client.capability_list(uri, validators, limit).await?
        };
        let Some(list) = found else {
            return Ok(());
        };
        context.note_document(self.record.id, uri, None, &list.oddities);
        let offers = list.capabilities.clone();
        context
            .store
            .save_offers(self.record.id, &offers, record_of_list(&list))
            .await?;
        if offers != self.record.offers {
            let is_gone = |old: &&Offer| offers.iter().all(|offer| offer.uri != old.uri);
            for gone in self.record.offers.iter().filter(is_gone) {
                context.forget_document(self.record.id, &gone.uri);
            }
            self.record.offers = offers;
            self.channels.follow(&self.record.offers).await?;
        }
        Ok(())
    }
}
