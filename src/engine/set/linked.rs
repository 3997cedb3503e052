//! Which resources that an entry links to are to be fetched, by the configuration of its Source.

use chrono::{DateTime, Utc};
use url::Url;

use crate::config;
use crate::fetch::AllowedHosts;
use crate::protocol::{Link, LinkTargets, LinkedResource, ResourceUri};
use crate::sync::is_plausible;

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
    let named = [&source.url].into_iter().chain(&source.sets);
    let own: Vec<&str> = named.filter_map(Url::host_str).collect();
    let is_own = |uri: &ResourceUri| {
        let is_configured = !source.hosts.is_empty() && hosts.allows(uri.url());
        is_configured || uri.url().host_str().is_some_and(|host| own.contains(&host))
    };
    let targets = LinkTargets {
        allows: &|uri| hosts.allows(uri.url()) && filter.allows_linked(uri),
        is_own: &is_own,
    };
    let mut wanted = filter.linked().wanted(owner, links, &targets);
    for one in &mut wanted {
        one.modified = one.modified.filter(|&time| is_plausible(time, now));
    }
    wanted
}
