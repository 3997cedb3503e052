//! Which sets of a Source are followed: those that it advertises, as far as the configuration wants them.

use std::collections::HashSet;

use url::Url;

use crate::config::Source;
use crate::engine::EngineError;
use crate::engine::context::SourceContext;
use crate::engine::set::documents::{note_document, record_of_list};
use crate::fetch::{CapabilityList, Client, Discovery, DiscoveryCache, DiscoveryError};
use crate::protocol::Oddities;
use crate::store::SetRecord;

/// A set that is to be followed.
pub(in crate::engine) struct DiscoveredSet {
    /// Its Capability List.
    pub(in crate::engine) uri: Url,
    /// Its content; `None` if it can't be read yet.
    pub(in crate::engine) list: Option<CapabilityList>,
}

/// What is known of a Source before its sets are looked for.
#[derive(Clone, Copy)]
pub(in crate::engine) struct KnownSets<'a> {
    /// The Capability Lists that need not be fetched.
    pub(in crate::engine) followed: &'a HashSet<Url>,
    /// Whether it has had sets with Capability Lists. Such a Source does not become a site without ResourceSync when they can't be
    /// found for a while: its sets would end, and its complete site be fetched.
    pub(in crate::engine) had_resourcesync: bool,
}

/// The sets of a Source.
pub(in crate::engine) struct DiscoveredSets {
    /// The sets that are to be followed and are not yet.
    pub(in crate::engine) sets: Vec<DiscoveredSet>,
    /// All Capability Lists that the Source advertises; `None`: unknown.
    pub(in crate::engine) advertised: Option<Vec<Url>>,
    /// Whether there is more than sitemaps.
    pub(in crate::engine) has_resourcesync: bool,
    /// The oddities of the documents above the sets.
    pub(in crate::engine) oddities: Vec<(Url, Oddities)>,
    /// The error because of which only the configured sets are known.
    pub(in crate::engine) error: Option<DiscoveryError>,
}

/// Whether the configuration wants a set.
pub(in crate::engine) fn is_wanted(source: &Source, capability_list: &Url) -> bool {
    source.sets.is_empty() || source.sets.contains(capability_list)
}

/// Discovers the sets. `cache`: the documents of the previous discovery.
///
/// A set that is advertised and can't be read, or is only configured, is among them: its worker reports the error and retries.
pub(in crate::engine) async fn find_sets(
    client: &Client,
    source: &Source,
    limit: u64,
    known: KnownSets<'_>,
    cache: &mut DiscoveryCache,
) -> Result<DiscoveredSets, EngineError> {
    let searched = client
        .rediscover(&source.url, limit, cache, known.followed)
        .await;
    let searched = match searched {
        Ok(found) if found.is_implied() && known.had_resourcesync => {
            Err(DiscoveryError::NoSourceDescription(source.url.clone()))
        }
        searched => searched,
    };
    match searched {
        Ok(discovery) => Ok(wanted_sets(source, discovery)),
        // A configured set needs no discovery.
        Err(error) if !source.sets.is_empty() => Ok(DiscoveredSets {
            sets: configured(source).collect(),
            advertised: None,
            has_resourcesync: !matches!(error, DiscoveryError::NoSourceDescription(_)),
            oddities: Vec::new(),
            error: Some(error)
                .filter(|error| !matches!(error, DiscoveryError::NoSourceDescription(_))),
        }),
        Err(error) => Err(error.into()),
    }
}

fn configured(source: &Source) -> impl Iterator<Item = DiscoveredSet> {
    let configured = source.sets.iter().cloned();
    configured.map(|uri| DiscoveredSet { uri, list: None })
}

fn wanted_sets(source: &Source, discovery: Discovery) -> DiscoveredSets {
    for (uri, error) in &discovery.failed {
        tracing::warn!(code = error.code(), source = source.name, set = %uri, %error, "Capability List can't be read yet");
    }
    let has_resourcesync = !discovery.is_implied();
    let failed: Vec<Url> = discovery.failed.into_iter().map(|(uri, _)| uri).collect();
    let mut advertised = discovery.followed;
    advertised.extend(discovery.sets.iter().map(|list| list.uri.clone()));
    advertised.extend(failed.iter().chain(&source.sets).cloned());
    let read = discovery.sets.into_iter().map(|list| DiscoveredSet {
        uri: list.uri.clone(),
        list: Some(list),
    });
    // A sitemap that was never read is not known to be one.
    let unread = failed
        .into_iter()
        .filter(|_| has_resourcesync)
        .map(|uri| DiscoveredSet { uri, list: None });
    let mut sets: Vec<DiscoveredSet> = Vec::new();
    let mut met = HashSet::new();
    for set in read.chain(unread).chain(configured(source)) {
        if is_wanted(source, &set.uri) && met.insert(set.uri.clone()) {
            sets.push(set);
        }
    }
    DiscoveredSets {
        sets,
        advertised: Some(advertised),
        has_resourcesync,
        oddities: discovery.oddities,
        error: None,
    }
}

/// The row of a set that was discovered, with what its Capability List offers now.
pub(in crate::engine) async fn begin_set(
    context: &SourceContext,
    found: &DiscoveredSet,
) -> Result<SetRecord, EngineError> {
    let store = &context.store;
    let mut record = store.begin_set(context.name(), &found.uri).await?;
    context.runtime_status.begin_set(record.id, &found.uri);
    if let Some(list) = &found.list {
        record.offers = list.capabilities.clone();
        store
            .save_offers(record.id, &record.offers, record_of_list(list))
            .await?;
        note_document(context, record.id, &list.uri, None, &list.oddities);
    }
    Ok(record)
}

/// Whether the database has sets with Capability Lists that were discovered, not configured.
pub(in crate::engine) async fn had_resourcesync(
    context: &SourceContext,
) -> Result<bool, EngineError> {
    let records = context.store.sets(context.name()).await?;
    let source = &context.source;
    Ok(records.iter().any(|record| {
        let uri = &record.capability_list;
        is_wanted(source, uri) && !source.sets.contains(uri) && !record.is_implied()
    }))
}
