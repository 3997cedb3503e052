//! Which sets of a Source are to be followed: those that it advertises, as far as the configuration wants them.

use url::Url;

use super::EngineError;
use super::following::Following;
use super::reading::{offer_of, record_of_list};
use crate::config::Source;
use crate::fetch::{CapabilityList, Client};
use crate::store::SetRecord;

/// A set that is to be followed.
pub(super) struct FoundSet {
    /// Its Capability List.
    pub(super) uri: Url,
    /// What that says; `None` if it can't be had yet.
    pub(super) list: Option<CapabilityList>,
}

/// Whether the configuration wants a set.
pub(super) fn is_wanted(source: &Source, capability_list: &Url) -> bool {
    source.sets.is_empty() || source.sets.contains(capability_list)
}

/// Finds out which sets there are now.
///
/// What is advertised and can't be had, or is named by the configuration alone, is among them: who follows it tells what is
/// wrong with it, and goes on trying.
pub(super) async fn find_sets(
    client: &Client,
    source: &Source,
    limit: u64,
) -> Result<Vec<FoundSet>, EngineError> {
    let discovery = client.discover(&source.url, limit).await?;
    for (uri, error) in &discovery.failed {
        tracing::warn!(code = error.code(), source = source.name, set = %uri, %error, "a set can't be had yet");
    }
    let had = discovery.sets.into_iter().map(|list| FoundSet {
        uri: list.uri.clone(),
        list: Some(list),
    });
    let named = discovery
        .failed
        .into_iter()
        .map(|(uri, _)| uri)
        .chain(source.sets.iter().cloned())
        .map(|uri| FoundSet { uri, list: None });
    let mut found: Vec<FoundSet> = Vec::new();
    for set in had.chain(named) {
        if is_wanted(source, &set.uri) && !found.iter().any(|known| known.uri == set.uri) {
            found.push(set);
        }
    }
    Ok(found)
}

impl Following {
    /// The row of a set that was found, with what its Capability List offers now.
    pub(super) async fn begin_set(&self, found: &FoundSet) -> Result<SetRecord, EngineError> {
        let mut record = self.store.begin_set(self.name(), &found.uri).await?;
        if let Some(list) = &found.list {
            record.offers = list.capabilities.iter().map(offer_of).collect();
            self.store
                .save_offers(record.id, &record.offers, record_of_list(list))
                .await?;
        }
        Ok(record)
    }
}
