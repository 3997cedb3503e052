//! Which sets of a Source are to be followed: those that it advertises, as far as the configuration wants them.

use std::collections::HashSet;

use url::Url;

use super::EngineError;
use super::context::SourceContext;
use super::reading::record_of_list;
use crate::config::Source;
use crate::fetch::{CapabilityList, Client, Discovery, DiscoveryError, KnownWay};
use crate::protocol::Oddities;
use crate::store::SetRecord;

/// A set that is to be followed.
pub(super) struct FoundSet {
    /// Its Capability List.
    pub(super) uri: Url,
    /// What that says; `None` if it can't be had yet.
    pub(super) list: Option<CapabilityList>,
}

/// What is known of a Source before its sets are looked for.
#[derive(Clone, Copy)]
pub(super) struct KnownSets<'a> {
    /// The Capability Lists that need not be looked at.
    pub(super) followed: &'a HashSet<Url>,
    /// Whether it has had sets with Capability Lists. It is not taken for a site without ResourceSync because they can't be
    /// found for now: its sets would end, and its whole site be fetched.
    pub(super) had_resourcesync: bool,
}

/// What was found.
pub(super) struct Found {
    /// The sets that are to be followed, but for those that are.
    pub(super) sets: Vec<FoundSet>,
    /// All that the Source has now; `None`: nobody knows.
    pub(super) advertised: Option<Vec<Url>>,
    /// Whether there is more than sitemaps.
    pub(super) has_resourcesync: bool,
    /// What is odd about the documents above the sets.
    pub(super) oddities: Vec<(Url, Oddities)>,
    /// Why only the sets that the configuration names are known.
    pub(super) status_error: Option<DiscoveryError>,
}

/// Whether the configuration wants a set.
pub(super) fn is_wanted(source: &Source, capability_list: &Url) -> bool {
    source.sets.is_empty() || source.sets.contains(capability_list)
}

/// Finds out which sets there are now. `way`: what is remembered of the last time.
///
/// What is advertised and can't be had, or is named by the configuration alone, is among them: who follows it tells what is
/// wrong with it, and goes on trying.
pub(super) async fn find_sets(
    client: &Client,
    source: &Source,
    limit: u64,
    known: KnownSets<'_>,
    way: &mut KnownWay,
) -> Result<Found, EngineError> {
    let searched = client
        .rediscover(&source.url, limit, way, known.followed)
        .await;
    let searched = match searched {
        Ok(found) if found.is_implied() && known.had_resourcesync => {
            Err(DiscoveryError::NoSourceDescription(source.url.clone()))
        }
        searched => searched,
    };
    match searched {
        Ok(discovery) => Ok(found(source, discovery)),
        // What is named needs no discovery.
        Err(error) if !source.sets.is_empty() => Ok(Found {
            sets: named(source).collect(),
            advertised: None,
            has_resourcesync: !matches!(error, DiscoveryError::NoSourceDescription(_)),
            oddities: Vec::new(),
            status_error: Some(error)
                .filter(|error| !matches!(error, DiscoveryError::NoSourceDescription(_))),
        }),
        Err(error) => Err(error.into()),
    }
}

fn named(source: &Source) -> impl Iterator<Item = FoundSet> {
    let named = source.sets.iter().cloned();
    named.map(|uri| FoundSet { uri, list: None })
}

fn found(source: &Source, discovery: Discovery) -> Found {
    for (uri, error) in &discovery.failed {
        tracing::warn!(code = error.code(), source = source.name, set = %uri, %error, "a set can't be had yet");
    }
    let has_resourcesync = !discovery.is_implied();
    let failed: Vec<Url> = discovery.failed.into_iter().map(|(uri, _)| uri).collect();
    let mut advertised = discovery.followed;
    advertised.extend(discovery.sets.iter().map(|list| list.uri.clone()));
    advertised.extend(failed.iter().chain(&source.sets).cloned());
    let had = discovery.sets.into_iter().map(|list| FoundSet {
        uri: list.uri.clone(),
        list: Some(list),
    });
    // A sitemap that was never seen is not known to be one.
    let not_had = failed
        .into_iter()
        .filter(|_| has_resourcesync)
        .map(|uri| FoundSet { uri, list: None });
    let mut sets: Vec<FoundSet> = Vec::new();
    let mut met = HashSet::new();
    for set in had.chain(not_had).chain(named(source)) {
        if is_wanted(source, &set.uri) && met.insert(set.uri.clone()) {
            sets.push(set);
        }
    }
    Found {
        sets,
        advertised: Some(advertised),
        has_resourcesync,
        oddities: discovery.oddities,
        status_error: None,
    }
}

impl SourceContext {
    /// The row of a set that was found, with what its Capability List offers now.
    pub(super) async fn begin_set(&self, found: &FoundSet) -> Result<SetRecord, EngineError> {
        let mut record = self.store.begin_set(self.name(), &found.uri).await?;
        self.runtime_status.begin_set(record.id, &found.uri);
        if let Some(list) = &found.list {
            record.offers = list.capabilities.clone();
            self.store
                .save_offers(record.id, &record.offers, record_of_list(list))
                .await?;
            self.note_document(record.id, &list.uri, None, &list.oddities);
        }
        Ok(record)
    }

    /// Whether sets with Capability Lists are followed that discovery has found.
    pub(super) async fn had_resourcesync(&self) -> Result<bool, EngineError> {
        let records = self.store.sets(self.name()).await?;
        Ok(records.iter().any(|record| {
            let uri = &record.capability_list;
            is_wanted(&self.source, uri) && !self.source.sets.contains(uri) && !record.is_implied()
        }))
    }
}
