//! Discovery: from any entry point to the sets of resources of a Source (section 6.3).
//!
//! The Source Description leads to Capability Lists, a Capability List is one set. What else an entry point may be leads
//! to one of the two: a capability document by its `up` link, a web page by its `resourcesync` link, a site by the
//! well-known URI. Real Sources have gaps in these chains, so there is always a next thing to try; and real Sources have
//! rings in them, so nothing is looked at twice and everything is counted.
//!
//! Where nothing of ResourceSync is found, a sitemap is a set all the same: a Resource List is one by definition (section
//! 6.3.4). But a Source that has trouble for a moment must not be taken for one without ResourceSync.

mod error;
mod walk;

use std::collections::{HashMap, HashSet};

use url::Url;

use super::capability_list::{Found, look};
use super::{CapabilityList, Client};
use crate::protocol::{Oddities, Offer, Validators};
pub use error::DiscoveryError;
use walk::{Start, Walk};

/// More sets than this are not followed.
const MOST_SETS: usize = 10_000;

/// The well-known URI of a Source Description, and how some sites spell it.
const WELL_KNOWN: [&str; 2] = ["/.well-known/resourcesync", "/.wellknown/resourcesync"];

/// Where sites tell of their sitemaps.
const ROBOTS: &str = "/robots.txt";

/// Where sites have their sitemap, as often as not without telling.
const SITEMAP: &str = "/sitemap.xml";

/// What a Source offers.
#[derive(Clone, Debug, Default)]
pub struct Discovery {
    /// The Source Description, if one is known.
    pub description: Option<Url>,
    /// The channels for framework notifications that the Source Descriptions advertise.
    pub channels: Vec<Offer>,
    /// Its sets of resources, in the order in which they are advertised.
    pub sets: Vec<CapabilityList>,
    /// What was odd about the documents above the sets, for each of them that was read; none where nothing was.
    pub oddities: Vec<(Url, Oddities)>,
    /// The Capability Lists that are advertised but could not be had.
    pub failed: Vec<(Url, DiscoveryError)>,
    /// The Capability Lists that are advertised, and were not asked for because they are followed already.
    pub followed: Vec<Url>,
}

/// What is remembered from one search of a Source to the next, so that the next one is cheap: the documents that led to its
/// sets. They are few.
#[derive(Debug, Default)]
pub struct KnownWay {
    documents: HashMap<Url, (Found, Validators)>,
}

impl Discovery {
    fn is_empty(&self) -> bool {
        self.sets.is_empty() && self.failed.is_empty() && self.followed.is_empty()
    }

    /// Whether there is no ResourceSync: its sets are sitemaps that stand alone.
    pub fn is_implied(&self) -> bool {
        !self.sets.is_empty() && self.sets.iter().all(CapabilityList::is_implied)
    }
}

impl Client {
    /// Finds out what a Source offers, from any entry point: a site, its Source Description, a Capability List, any
    /// capability document, a web page, robots.txt. Documents may have `limit` bytes.
    ///
    /// A Capability List as entry point is one set; its siblings are not looked for. Sets that can't be had are in
    /// [`Discovery::failed`], and it may be that there are no others.
    ///
    /// Where there is nothing of ResourceSync, a sitemap is a set by itself: the entry point, those that robots.txt names,
    /// or the one at `/sitemap.xml`.
    ///
    /// # Errors
    /// [`DiscoveryError`], when there is not even the name of a set.
    pub async fn discover(&self, entry: &Url, limit: u64) -> Result<Discovery, DiscoveryError> {
        let mut way = KnownWay::default();
        self.rediscover(entry, limit, &mut way, &HashSet::new())
            .await
    }

    /// The same for somebody who asks again and again: documents on the way are fetched only if they have changed, and the
    /// Capability Lists that are followed not at all, unless one is the entry point. They are in [`Discovery::followed`].
    ///
    /// # Errors
    /// [`DiscoveryError`], when there is not even the name of a set.
    pub async fn rediscover(
        &self,
        entry: &Url,
        limit: u64,
        way: &mut KnownWay,
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
        let mut starts: Vec<(Start, Url)> =
            WELL_KNOWN.map(|path| (Start::WellKnown, at(path))).into();
        let first = if is_site { starts.len() } else { 0 };
        starts.insert(first, (Start::Entry, entry.clone()));
        starts.push((Start::Robots, at(ROBOTS)));

        let known = std::mem::take(&mut way.documents);
        let mut walk = Walk::new(self, limit, known, followed);
        let mut status_error = None;
        for (start, uri) in starts {
            match walk.from(start, &uri).await {
                Ok(found) => {
                    way.documents = walk.into_way();
                    return Ok(found);
                }
                Err(error) if walk.is_unreachable() => return Err(error),
                Err(error) if error.is_absence() => {}
                // robots.txt was only a last hope: that it can't be had explains nothing.
                Err(_) if start == Start::Robots => {}
                Err(error) => {
                    status_error.get_or_insert(error);
                }
            }
        }
        // A guess: that it leads nowhere explains nothing either.
        if walk.may_try_sitemap()
            && let Ok(found) = walk.from(Start::Sitemap, &at(SITEMAP)).await
        {
            way.documents = walk.into_way();
            return Ok(found);
        }
        let nothing = status_error.unwrap_or(DiscoveryError::NoSourceDescription(entry));
        let implied = walk.implied();
        if implied.is_some() {
            way.documents = walk.into_way();
        }
        implied.ok_or(nothing)
    }

    /// Fetches a Capability List; `None`: it still is the version that is `known`. It may have `limit` bytes.
    ///
    /// # Errors
    /// [`DiscoveryError`].
    pub async fn capability_list(
        &self,
        uri: &Url,
        known: Option<&Validators>,
        limit: u64,
    ) -> Result<Option<CapabilityList>, DiscoveryError> {
        match look(self, uri, known, limit).await?.0 {
            Found::NotModified => Ok(None),
            Found::Set(list) => Ok(Some(*list)),
            other => Err(DiscoveryError::NotACapabilityList(other.capability())),
        }
    }

    /// Fetches a Capability List, or a Resource List or plain sitemap that is to be a set by itself. It may have `limit`
    /// bytes.
    ///
    /// # Errors
    /// [`DiscoveryError`].
    pub async fn named_set(&self, uri: &Url, limit: u64) -> Result<CapabilityList, DiscoveryError> {
        match look(self, uri, None, limit).await?.0 {
            Found::Set(list)
            | Found::Member {
                alone: Some(list), ..
            } => Ok(*list),
            other => Err(DiscoveryError::NotACapabilityList(other.capability())),
        }
    }
}

#[cfg(test)]
mod tests;
