//! Which resources that an entry links to are to be fetched, by the configuration of its Source.

use chrono::{DateTime, Utc};
use resourcesync::Link;
use resyncd_core::{LinkTargets, LinkedResource, ResourceUri, is_plausible};
use resyncd_fetch::AllowedHosts;

use crate::config;

/// Whether a resource is at a host of the Source, as its configuration states.
fn is_own(source: &config::Source, uri: &ResourceUri) -> bool {
    let mut stated = [&source.url].into_iter().chain(&source.sets);
    (!source.hosts.is_empty() && AllowedHosts::new(&source.hosts).allows(uri.url()))
        || stated.any(|url| url.host_str() == uri.url().host_str())
}

/// The linked resources that are wanted of an entry of `owner`. The guard of addresses decides when they are requested.
pub(super) fn linked_of(
    source: &config::Source,
    owner: &ResourceUri,
    links: &[Link],
    now: DateTime<Utc>,
) -> Vec<LinkedResource> {
    let (filter, hosts) = (&source.filter, AllowedHosts::new(&source.hosts));
    if links.is_empty() || filter.linked().is_empty() {
        return Vec::new();
    }
    let targets = LinkTargets {
        allows: &|uri| hosts.allows(uri.url()) && filter.allows_linked(uri),
        is_own: &|uri| is_own(source, uri),
    };
    let mut wanted = filter.linked().wanted(owner, links, &targets);
    for one in &mut wanted {
        one.modified = one.modified.filter(|&time| is_plausible(time, now));
    }
    wanted
}
