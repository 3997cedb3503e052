//! What the Capability List offers (section 9), polled like any other document.

use super::documents::{note_capability_list, note_document, record_of_list};
use super::state::SetState;
use crate::engine::EngineError;
use crate::protocol::{MAX_OFFERS, Oddities, Offer};

impl SetState {
    /// Polls the Capability List, stores what it offers, and subscribes to its channels.
    pub(super) async fn refresh_offers(&mut self) -> Result<(), EngineError> {
        if self.record.is_implied() {
            // A sitemap that stands alone has no Capability List.
            return Ok(());
        }
        let context = &self.context;
        let uri = &self.record.capability_list;
        let known = context.store.document(self.record.id, uri).await?;
        // Only the offers are stored of what it states: once after each start it is read in any case.
        let is_read = context.runtime_status.set(self.record.id).has_read_list;
        let validators = known
            .as_ref()
            .filter(|_| is_read && !self.record.offers.is_empty())
            .map(|known| &known.validators);
        let limit = context.limits.document;
        // A configured URI may be a sitemap; what was a Capability List must not become one.
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
        note_capability_list(context, self.record.id, &list);
        let mut offers = list.capabilities.clone();
        if list.oddities.damaged_entries() > 0 {
            // It may offer what it offered before.
            let is_named = |old: &Offer| list.capabilities.iter().any(|new| new.uri == old.uri);
            let before = self.record.offers.iter().filter(|old| !is_named(old));
            let left = MAX_OFFERS.saturating_sub(offers.len());
            offers.extend(before.take(left).cloned());
        }
        context
            .store
            .save_offers(self.record.id, &offers, record_of_list(&list))
            .await?;
        if offers != self.record.offers {
            let is_gone = |old: &&Offer| offers.iter().all(|offer| offer.uri != old.uri);
            for gone in self.record.offers.iter().filter(is_gone) {
                note_document(
                    context,
                    self.record.id,
                    &gone.uri,
                    None,
                    &Oddities::default(),
                );
            }
            self.record.offers = offers;
            self.channels.follow(&self.record.offers).await?;
        }
        Ok(())
    }
}
