//! Which sets of a Source are followed: those that it advertises, as far as the configuration wants them.

use std::collections::{HashMap, HashSet};

use resourcesync::{Capability, Oddities};
use resyncd_core::Offer;
use resyncd_fetch::{
    CapabilityList, Client, Discovery, DiscoveryCache, DiscoveryError, ReplacedEntry,
};
use url::Url;

use crate::clock;
use crate::config::{LimitsConfig, Source};
use crate::engine::EngineError;
use crate::engine::context::SourceContext;
use crate::engine::set::notices::{note_capability_list, note_described_by};
use crate::engine::set::polled_document::record_of_list;
use crate::engine::source::new_sets::NewSets;
use crate::status::StatusError;
use crate::store::SetRecord;

/// The code of the notice that a link leads to nothing.
const DEAD_LINK: &str = "dead-link";

/// The code of the notice that there are too many sets.
pub(crate) const TOO_MANY_SETS: &str = "too-many-sets";
/// The codes of the notices that not all sets are followed.
const LEFT_OUT: [&str; 3] = [TOO_MANY_SETS, "too-many-new-sets", "discovery-too-large"];

/// A set that is to be followed.
pub(crate) struct DiscoveredSet {
    /// Its Capability List.
    pub(crate) uri: Url,
    /// Its content; `None` if it can't be read yet.
    pub(crate) list: Option<CapabilityList>,
    /// Whether it is a sitemap, read or not.
    pub(crate) is_sitemap: bool,
}

impl DiscoveredSet {
    /// What it offers; `None` if that is unknown. A sitemap needs not be read to be known as the only list of its set.
    fn offers(&self) -> Option<Vec<Offer>> {
        let implied = || self.is_sitemap.then(|| vec![Offer::implied(&self.uri)]);
        let stated = self.list.as_ref().map(|list| list.capabilities.clone());
        stated.or_else(implied)
    }
}

/// What is known of a Source before its sets are looked for.
#[derive(Clone, Copy)]
pub(crate) struct KnownSets<'a> {
    /// The Capability Lists that need not be fetched.
    pub(crate) followed: &'a HashSet<Url>,
    /// Whether it has had sets with Capability Lists. Such a Source does not become a site without ResourceSync when they can't be
    /// found for a while: its sets would end, and its complete site be fetched.
    pub(crate) had_resourcesync: bool,
}

/// The sets of a Source.
#[derive(Default)]
pub(crate) struct DiscoveredSets {
    /// The sets that are to be followed and are not yet.
    pub(crate) sets: Vec<DiscoveredSet>,
    /// All Capability Lists that the Source advertises; `None`: unknown.
    pub(crate) advertised: Option<Vec<Url>>,
    /// Whether there is more than sitemaps.
    pub(crate) has_resourcesync: bool,
    /// The oddities of the documents above the sets.
    pub(crate) oddities: Vec<(Url, Oddities)>,
    /// The documents that describe the Source.
    pub(crate) described_by: Vec<Url>,
    /// The documents that describe a set, as the Source Descriptions state.
    pub(crate) sets_described_by: HashMap<Url, Vec<Url>>,
    /// The targets of links that do not exist, while others led to the sets.
    pub(crate) dead_links: Vec<(Url, DiscoveryError)>,
    /// The entry point itself led to nothing, and something else did.
    pub(crate) replaced_entry: Option<ReplacedEntry>,
    /// Why some sets are not followed: there are too many.
    pub(crate) left_out: Option<DiscoveryError>,
    /// The error because of which only the configured sets are known.
    pub(crate) error: Option<DiscoveryError>,
}

/// Discovers the sets. `cache`: the documents of the previous discovery.
///
/// A set that is advertised and can't be read, or is only configured, is among them: its worker reports the error and retries.
pub(crate) async fn find_sets(
    client: &Client,
    source: &Source,
    limits: &LimitsConfig,
    known: KnownSets<'_>,
    cache: &mut DiscoveryCache,
) -> Result<DiscoveredSets, EngineError> {
    let searched = client
        .rediscover(&source.url, limits.document, cache, known.followed)
        .await;
    let searched = match searched {
        Ok(found) if found.is_implied() && known.had_resourcesync => {
            Err(cache.nothing_but_sitemaps(&source.url))
        }
        searched => searched,
    };
    match searched {
        Ok(discovery) => Ok(wanted_sets(source, discovery)),
        // A configured set needs no discovery.
        Err(error) if !source.sets.is_empty() => {
            let is_absence = matches!(error, DiscoveryError::NoSourceDescription { .. });
            Ok(DiscoveredSets {
                sets: configured(source).collect(),
                has_resourcesync: !is_absence,
                error: Some(error).filter(|_| !is_absence),
                ..DiscoveredSets::default()
            })
        }
        Err(error) => Err(error.into()),
    }
}

/// Ends what former sets have left behind, and leaves out the sets that are not to be followed now: those beyond the limit and the pace,
/// but none that is configured.
pub(crate) async fn leave_out(
    context: &SourceContext,
    found: &mut DiscoveredSets,
    new_sets: &mut NewSets,
) -> Result<(), EngineError> {
    let (store, source, now) = (&context.store, &context.source, clock::now());
    store.trim_sets(Some(context.name()), now.wall).await?;
    let mut counted = store.counted_sets(context.name()).await?;
    let (mut configured, discovered): (Vec<_>, Vec<_>) = std::mem::take(&mut found.sets)
        .into_iter()
        .partition(|set| source.sets.contains(&set.uri));
    counted.extend(configured.iter().map(|set| set.uri.clone()));
    let uris = discovered.iter().map(|set| &set.uri);
    let (admitted, left_out) = new_sets.admit(uris, &counted, context.limits.sets, now.mono);
    let admitted = discovered.into_iter().zip(admitted);
    configured.extend(admitted.filter_map(|(set, is_admitted)| is_admitted.then_some(set)));
    found.sets = configured;
    found.left_out = left_out.or(found.left_out.take());
    Ok(())
}

fn configured(source: &Source) -> impl Iterator<Item = DiscoveredSet> {
    let configured = source.sets.iter().cloned();
    configured.map(|uri| unread_set(uri, false))
}

fn unread_set(uri: Url, is_sitemap: bool) -> DiscoveredSet {
    DiscoveredSet {
        uri,
        list: None,
        is_sitemap,
    }
}

fn wanted_sets(source: &Source, discovery: Discovery) -> DiscoveredSets {
    for (uri, error) in &discovery.failed {
        tracing::warn!(code = error.code(), source = source.name, set = %uri, %error, "set can't be read yet");
    }
    let has_resourcesync = !discovery.is_implied();
    let failed: Vec<Url> = discovery.failed.into_iter().map(|(uri, _)| uri).collect();
    let mut advertised = discovery.followed;
    advertised.extend(discovery.sets.iter().map(|list| list.uri.clone()));
    advertised.extend(failed.iter().chain(&source.sets).cloned());
    let read = discovery.sets.into_iter().map(|list| DiscoveredSet {
        uri: list.uri.clone(),
        is_sitemap: list.is_implied(),
        list: Some(list),
    });
    let unread = failed
        .into_iter()
        .map(|uri| unread_set(uri, !has_resourcesync));
    let mut sets: Vec<DiscoveredSet> = Vec::new();
    let mut met = HashSet::new();
    for set in read.chain(unread).chain(configured(source)) {
        if source.wants_set(&set.uri) && met.insert(set.uri.clone()) {
            sets.push(set);
        }
    }
    DiscoveredSets {
        sets,
        advertised: Some(advertised).filter(|_| !discovery.is_uncertain),
        has_resourcesync,
        oddities: discovery.oddities,
        described_by: discovery.described_by,
        sets_described_by: discovery.sets_described_by,
        dead_links: discovery.dead_links,
        replaced_entry: discovery.replaced_entry,
        left_out: discovery.left_out,
        error: None,
    }
}

/// The row of a set that was discovered, with what its Capability List offers now.
pub(crate) async fn begin_set(
    context: &SourceContext,
    found: &DiscoveredSet,
) -> Result<SetRecord, EngineError> {
    let store = &context.store;
    let mut record = store.begin_set(context.name(), &found.uri).await?;
    context.runtime_status.begin_set(record.id, &found.uri);
    // What was read before is not replaced by what is only known to be a sitemap.
    let offers = found.offers();
    let offers = offers.filter(|_| found.list.is_some() || record.offers.is_empty());
    if let Some(offers) = offers {
        let read = found.list.as_ref().and_then(record_of_list);
        record.offers = offers;
        store.save_offers(record.id, &record.offers, read).await?;
    }
    if let Some(list) = &found.list {
        note_capability_list(context, record.id, list).await?;
    }
    Ok(record)
}

/// Shows in the status what was found beside the sets: what describes the Source and its sets, and dead links.
pub(crate) async fn note_found(
    context: &SourceContext,
    found: &DiscoveredSets,
) -> Result<(), EngineError> {
    let (runtime_status, name) = (&context.runtime_status, context.name());
    let left_out = found.left_out.as_ref().map(|error| {
        let message = format!("not all sets are followed: {error}");
        (
            StatusError::new(error.code(), message, clock::now().wall),
            1,
        )
    });
    let replaced = found.replaced_entry.as_ref().map(|replaced| {
        let notice = StatusError::new(ReplacedEntry::CODE, replaced.to_string(), clock::now().wall);
        (notice, 1)
    });
    let notices: Vec<_> = dead_link(&found.dead_links)
        .into_iter()
        .chain(left_out)
        .chain(replaced)
        .collect();
    let mut news = Vec::new();
    runtime_status.change_source(name, |facts| {
        facts.described_by.clone_from(&found.described_by);
        for code in LEFT_OUT.into_iter().chain([DEAD_LINK, ReplacedEntry::CODE]) {
            if notices.iter().all(|(notice, _)| notice.code != code) {
                facts.notices.clear(code);
            }
        }
        for (notice, count) in notices {
            if facts.notices.replace(notice.clone(), count) {
                news.push(notice);
            }
        }
    });
    for notice in news {
        if notice.code == ReplacedEntry::CODE {
            // What is mirrored is not what was configured: `sync`, which logs no information, shows it as well.
            tracing::warn!(
                code = notice.code,
                source = name,
                notice = notice.message,
                "the URL of the Source leads to no sets; following what was found elsewhere on its site"
            );
            continue;
        }
        tracing::info!(
            code = notice.code,
            source = name,
            notice = notice.message,
            "notice of the Source"
        );
    }
    if found.sets_described_by.is_empty() {
        return Ok(());
    }
    for record in context.store.sets(name).await? {
        if let Some(described_by) = found.sets_described_by.get(&record.capability_list) {
            note_described_by(context, record.id, Capability::Description, described_by).await?;
        }
    }
    Ok(())
}

fn dead_link(dead_links: &[(Url, DiscoveryError)]) -> Option<(StatusError, u64)> {
    let (_, error) = dead_links.first()?;
    let message = format!("a link of the Source leads to nothing: {error}");
    let notice = StatusError::new(DEAD_LINK, message, clock::now().wall);
    Some((notice, dead_links.len() as u64))
}

/// Whether the database has sets with Capability Lists that were discovered, not configured.
pub(crate) async fn had_resourcesync(context: &SourceContext) -> Result<bool, EngineError> {
    let records = context.store.sets(context.name()).await?;
    let source = &context.source;
    Ok(records.iter().any(|record| {
        let uri = &record.capability_list;
        source.wants_set(uri) && !source.sets.contains(uri) && !record.is_implied()
    }))
}
