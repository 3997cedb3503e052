//! Discovery: from any entry point to the sets of resources of a Source (section 6.3).
//!
//! A Source Description leads to Capability Lists; a Capability List is one set. Any other entry point leads to one of the two:
//! a capability document by its `up` link, a web page by its `resourcesync` link, a site by the well-known URI. The chains of
//! real Sources have gaps, so that there is always a next thing to try, and cycles, so that no document is fetched twice and
//! everything is counted.
//!
//! If no ResourceSync document is found, a sitemap is a set: a Resource List is one by definition (section 6.3.4). But a
//! temporary failure of a Source must not make it a Source without ResourceSync.

mod attempt;
mod error;
mod result;
mod search;

use std::collections::{HashMap, HashSet};

pub use attempt::DiscoveryAttempt;
pub use error::DiscoveryError;
pub use result::{Discovery, ReplacedEntry};
use resyncd_core::Validators;
use search::{ROBOTS, Search, StartPoint, WELL_KNOWN};
use url::Url;

use super::capability_list::{DocumentRole, examine};
use super::{CapabilityList, Client};

/// The usual paths of a sitemap, often not listed anywhere.
const SITEMAPS: [&str; 4] = [
    "/sitemap.xml",
    "/sitemap_index.xml",
    "/wp-sitemap.xml",
    "/sitemap.xml.gz",
];

/// The documents that led to the sets of a Source, stored from one discovery to the next so that unchanged ones are not
/// fetched again. They are few.
#[derive(Debug, Default)]
pub struct DiscoveryCache {
    documents: KnownDocuments,
    /// Everything that the last discovery has requested.
    attempts: Vec<DiscoveryAttempt>,
}

type KnownDocuments = HashMap<Url, (DocumentRole, Validators)>;

impl DiscoveryCache {
    /// The error that nothing but sitemaps was found where there has been more, with what was tried.
    #[must_use]
    pub fn nothing_but_sitemaps(&self, entry: &Url) -> DiscoveryError {
        let tried = attempt::named(&self.attempts);
        DiscoveryError::nothing_from(entry).having_tried(tried)
    }

    /// Everything that the last discovery has requested, whether it succeeded or not; the first 500 requests.
    pub fn attempts(&self) -> &[DiscoveryAttempt] {
        &self.attempts
    }
}

impl Client {
    /// Discovers what a Source offers, from any entry point: a site, its Source Description, a Capability List, any
    /// capability document, a web page, robots.txt. A document has at most `limit` bytes.
    ///
    /// A Capability List as entry point is one set; its siblings are not searched. Sets that fail are in
    /// [`Discovery::failed`], possibly all of them.
    ///
    /// Without any ResourceSync document, a sitemap is a set: the entry point, those that robots.txt lists, those that the page at the
    /// entry point links to, or the one at a usual path such as `/sitemap.xml`.
    ///
    /// # Errors
    /// [`DiscoveryError`] if not even the URI of a set is found.
    pub async fn discover(&self, entry: &Url, limit: u64) -> Result<Discovery, DiscoveryError> {
        let mut cache = DiscoveryCache::default();
        self.rediscover(entry, limit, &mut cache, &HashSet::new())
            .await
    }

    /// As [`discover`](Self::discover), for repeated use: documents that led to the sets are fetched only if they have
    /// changed, and Capability Lists that are followed not at all, unless one is the entry point. They are in
    /// [`Discovery::followed`].
    pub async fn rediscover(
        &self,
        entry: &Url,
        limit: u64,
        cache: &mut DiscoveryCache,
        followed: &HashSet<Url>,
    ) -> Result<Discovery, DiscoveryError> {
        let mut entry = entry.clone();
        entry.set_fragment(None);
        let at = |path: &str| {
            let mut url = entry.clone();
            url.set_path(path);
            url.set_query(None);
            url
        };
        let is_site = entry.path() == "/" && entry.query().is_none();
        let folders = folders_of(&entry).into_iter();
        let below: Vec<Url> = folders
            .map(|folder| at(&(folder + WELL_KNOWN[0])))
            .collect();
        let well_known = below.iter().cloned().chain(WELL_KNOWN.map(at));
        let mut starts: Vec<(StartPoint, Url)> =
            well_known.map(|uri| (StartPoint::WellKnown, uri)).collect();
        let first = if is_site { starts.len() } else { 0 };
        starts.insert(first, (StartPoint::Entry, entry.clone()));
        starts.push((StartPoint::Robots, at(ROBOTS)));
        starts.push((StartPoint::Page, entry.clone()));
        starts.extend(SITEMAPS.map(|path| (StartPoint::Sitemap, at(path))));

        let known = std::mem::take(&mut cache.documents);
        let mut search = Search::new(self, limit, known, followed);
        let found = search_from(&mut search, starts, &entry).await;
        let found = found.map(|(through, mut discovery)| {
            // Whoever names a site, or a folder, means what it has at the usual places.
            let is_below = entry.path().ends_with('/') && below.contains(&through);
            let is_replaced = !is_site && through != entry && !is_below;
            discovery.replaced_entry = is_replaced.then(|| ReplacedEntry {
                answer: search.answer_of(&entry),
                entry: entry.clone(),
                through,
            });
            discovery
        });
        let found = found.map_err(|error| error.having_tried(search.tried()));
        *cache = search.into_cache(found.is_ok());
        found
    }

    /// Fetches a Capability List of at most `limit` bytes; `None` if it is still the `known` version.
    pub async fn capability_list(
        &self,
        uri: &Url,
        known: Option<&Validators>,
        limit: u64,
    ) -> Result<Option<CapabilityList>, DiscoveryError> {
        match examine(self, uri, known, limit).await?.0 {
            DocumentRole::NotModified => Ok(None),
            DocumentRole::Set(list) => Ok(Some(*list)),
            other => Err(DiscoveryError::not_a_capability_list(uri, &other)),
        }
    }

    /// Fetches a configured set: a Capability List, or a Resource List or plain sitemap that is a set itself, of at most
    /// `limit` bytes.
    pub async fn named_set(&self, uri: &Url, limit: u64) -> Result<CapabilityList, DiscoveryError> {
        match examine(self, uri, None, limit).await?.0 {
            DocumentRole::Set(list)
            | DocumentRole::SetDocument {
                standalone: Some(list),
                ..
            } => Ok(*list),
            other => Err(DiscoveryError::not_a_capability_list(uri, &other)),
        }
    }
}

/// Searches from one start point after the other until one leads to sets; also returns which one.
async fn search_from(
    search: &mut Search<'_>,
    starts: Vec<(StartPoint, Url)>,
    entry: &Url,
) -> Result<(Url, Discovery), DiscoveryError> {
    let mut first_error = None;
    for (start, uri) in starts {
        let is_guess = matches!(start, StartPoint::Page | StartPoint::Sitemap);
        if search.ends_at_entry() || (is_guess && !search.may_try_sitemaps()) {
            break;
        }
        match search.from(start, &uri).await {
            Ok(discovery) => return Ok((uri, discovery)),
            Err(error) if search.is_unreachable() => return Err(error),
            Err(error) if error.is_absence() => {}
            // robots.txt is optional: its error is not the reason, and no more are those of guesses.
            Err(_) if is_guess || start == StartPoint::Robots => {}
            Err(error) => {
                first_error.get_or_insert(error);
            }
        }
    }
    let error = first_error.unwrap_or_else(|| DiscoveryError::nothing_from(entry));
    search.implied().ok_or(error)
}

/// The folders in which a Source below a path may have its well-known document: the entry point's own path if it may be one,
/// and the folder that it is in. Without the slash at their ends, and without the root.
fn folders_of(entry: &Url) -> Vec<String> {
    let path = entry.path();
    let (parent, name) = path.rsplit_once('/').unwrap_or_default();
    let mut folders = Vec::new();
    if !name.is_empty() && !name.contains('.') {
        folders.push(path.to_owned());
    }
    if !parent.is_empty() && !parent.contains("/.") {
        folders.push(parent.to_owned());
    }
    folders
}

#[cfg(test)]
mod tests;
