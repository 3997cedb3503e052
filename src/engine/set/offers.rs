//! What the Capability List offers (section 9), polled like any other document.

use std::sync::Arc;

use resourcesync::{Capability, Head, Oddities, Root};
use resyncd_core::{MAX_OFFERS, Offer};
use url::Url;

use super::notices::{note_capability_list, note_document};
use super::polled_document::{ChangedDocument, poll_document_since, read_document, record_of_list};
use super::state::SetState;
use crate::engine::EngineError;
use crate::store::{BaselineState, SetRecord};

impl SetState {
    /// Polls the Capability List, stores what it offers, and subscribes to its channels.
    pub(super) async fn refresh_offers(&mut self) -> Result<(), EngineError> {
        if self.record.is_implied() {
            return self.refresh_names().await;
        }
        let context = Arc::clone(&self.context);
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
        note_capability_list(&context, self.record.id, &list).await?;
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
        self.adopt_offers(offers).await
    }

    /// Polls the Sitemap that stands for the Capability List, or the part of it that does, for what its head names: that may be another
    /// Change Set, while the one before it is served as well as ever. Its entries are not ingested, so that nothing remembers it as read.
    async fn refresh_names(&mut self) -> Result<(), EngineError> {
        // The baseline is made from it in any case. Where it names nothing but interfaces, each poll reads it.
        let names_document = self.record.names_document();
        if !names_document || self.record.baseline == BaselineState::Missing {
            return Ok(());
        }
        let sitemap = &self.record.capability_list;
        let uri = Offer::naming(&self.record.offers, sitemap).clone();
        let is_part = uri != *sitemap;
        let last = self.naming.take();
        let mut last = last.filter(|last| last.uri == uri.as_str());
        let context = Arc::clone(&self.context);
        let set = self.record.id;
        let polled = match &mut last {
            Some(last) => poll_document_since(&context, set, &uri, last).await,
            None => read_document(&context, set, &uri).await.map(Some),
        };
        let ChangedDocument { read, record } = match polled {
            Ok(Some(changed)) => changed,
            Ok(None) => {
                self.naming = last;
                return Ok(());
            }
            // The Sitemap is polled then; a part that changes may name others.
            Err(error) if is_part && error.is_absence() => {
                let nothing = Head::new(Root::Urlset, Capability::ResourceList);
                return self.follow_sitemap(&uri, &nothing, true).await;
            }
            Err(error) => return Err(error),
        };
        read.expect(&Capability::ResourceList)?;
        let at = read.stated_time(None).filter(|_| !is_part);
        if at.is_some_and(|at| self.record.list_at.is_some_and(|known| at < known)) {
            // A cache serves an older version: what it names is known.
            return Ok(());
        }
        self.follow_sitemap(&uri, &read.summary.head, true).await?;
        self.naming = Some(record);
        Ok(())
    }

    /// Follows what the head of a Sitemap names that stands for the Capability List, or the head of a part of it (version 0.1). A plain
    /// one names nothing. `naming`: where it is; `names_documents`: whether it is the one that names the Change Set and the dumps.
    pub(super) async fn follow_sitemap(
        &mut self,
        naming: &Url,
        head: &Head,
        names_documents: bool,
    ) -> Result<(), EngineError> {
        let SetRecord {
            offers,
            capability_list,
            ..
        } = &self.record;
        let offers = Offer::with_names_of(offers, capability_list, naming, head, names_documents);
        if offers != self.record.offers {
            let store = &self.context.store;
            store.save_offers(self.record.id, &offers, None).await?;
        }
        self.adopt_offers(offers).await
    }

    async fn adopt_offers(&mut self, offers: Vec<Offer>) -> Result<(), EngineError> {
        if offers == self.record.offers {
            return Ok(());
        }
        if offers.len() > 1 {
            // A part of a sitemap names a Change Set or a dump.
            self.context.client.disregard_robots();
        }
        let is_gone = |old: &&Offer| offers.iter().all(|offer| offer.uri != old.uri);
        for gone in self.record.offers.iter().filter(is_gone) {
            let (context, nothing) = (&self.context, Oddities::default());
            note_document(context, self.record.id, &gone.uri, None, &nothing);
        }
        self.record.offers = offers;
        self.channels.follow(&self.record.offers).await?;
        Ok(())
    }
}
