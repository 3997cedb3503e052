//! Discovery: from any entry point to the sets of resources of a Source (section 6.3).
//!
//! The Source Description leads to Capability Lists, a Capability List is one set. What else an entry point may be leads
//! to one of the two: a capability document by its `up` link, a web page by its `resourcesync` link, a site by the
//! well-known URI. Real Sources have gaps in these chains, so there is always a next thing to try; and real Sources have
//! rings in them, so nothing is looked at twice and everything is counted.

use std::collections::{HashSet, VecDeque};

use futures_util::{StreamExt, stream};
use url::Url;

use super::capability_list::{Found, look};
use super::{Advertised, CapabilityList, Client, Disposition, FetchError, Validators};
use crate::protocol::{Capability, Oddities, Oddity, ReadError};

/// More sets than this are not followed.
const MOST_SETS: usize = 10_000;

/// How many steps from the entry point, by `up` and other links.
const MOST_HOPS: usize = 4;

/// How many documents are looked at on the way to a Source Description or Capability List.
const MOST_LOOKS: usize = 64;

/// How deep Source Descriptions may be nested.
const MOST_LEVELS: usize = 3;

/// How many Capability Lists are asked for at once; the client limits them for each host besides.
const AT_ONCE: usize = 16;

/// The well-known URI of a Source Description, and how some sites spell it.
const WELL_KNOWN: [&str; 2] = ["/.well-known/resourcesync", "/.wellknown/resourcesync"];

/// Where sites tell of their sitemaps.
const ROBOTS: &str = "/robots.txt";

/// What a Source offers.
#[derive(Clone, Debug, Default)]
pub struct Discovery {
    /// The Source Description, if one is known.
    pub description: Option<Url>,
    /// The channels for framework notifications that the Source Description advertises.
    pub channels: Vec<Advertised>,
    /// Its sets of resources, in the order in which they are advertised.
    pub sets: Vec<CapabilityList>,
    /// What was odd about the documents above the sets, for each of them that was read; none where nothing was.
    pub oddities: Vec<(Url, Oddities)>,
    /// The Capability Lists that are advertised but could not be had.
    pub failed: Vec<(Url, DiscoveryError)>,
}

impl Discovery {
    fn is_empty(&self) -> bool {
        self.sets.is_empty() && self.failed.is_empty()
    }
}

/// Why nothing was discovered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DiscoveryError {
    /// A document could not be fetched.
    #[error("{uri}: {error}")]
    Fetch {
        /// The document.
        uri: String,
        /// Why.
        error: FetchError,
    },
    /// A document could not be read.
    #[error("{uri} is not a document: {message}")]
    Read {
        /// The document.
        uri: String,
        /// The reader's code.
        code: &'static str,
        /// The reader's message.
        message: String,
    },
    /// Nothing that leads to a Source Description or a Capability List.
    #[error("no Source Description and no Capability List can be found from {0}")]
    NoSourceDescription(Url),
    /// A Source Description that names no Capability List.
    #[error("the Source Description {0} names no Capability List")]
    NoCapabilityList(Url),
    /// What should be a Capability List is something else.
    #[error("not a Capability List, but {}", .0.as_ref().map_or("of no capability", Capability::as_str))]
    NotACapabilityList(Option<Capability>),
    /// More than 10,000 sets; those after them are not followed.
    #[error("more than {MOST_SETS} sets")]
    TooManySets,
}

impl DiscoveryError {
    /// Its stable name.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Fetch { error, .. } => error.code(),
            Self::Read { code, .. } => code,
            Self::NoSourceDescription(_) => "no-source-description",
            Self::NoCapabilityList(_) => "no-capability-list",
            Self::NotACapabilityList(_) => "not-a-capability-list",
            Self::TooManySets => "too-many-sets",
        }
    }

    pub(super) fn fetching(uri: &Url, error: FetchError) -> Self {
        Self::Fetch {
            uri: uri.to_string(),
            error,
        }
    }

    pub(super) fn reading(uri: &Url, error: &ReadError) -> Self {
        Self::Read {
            uri: uri.to_string(),
            code: error.code(),
            message: error.to_string(),
        }
    }

    /// Whether it is worth trying again soon.
    #[must_use]
    pub fn disposition(&self) -> Disposition {
        match self {
            Self::Fetch { error, .. } => error.disposition(),
            _ => Disposition::GiveUp,
        }
    }

    /// Whether the server can't be talked to, so that asking it for something else is of no use.
    fn is_unreachable(&self) -> bool {
        matches!(
            self,
            Self::Fetch {
                error: FetchError::ForbiddenAddress(_)
                    | FetchError::Scheme(_)
                    | FetchError::Dns(_)
                    | FetchError::Connect(_)
                    | FetchError::Tls(_)
                    | FetchError::Timeout,
                ..
            }
        )
    }

    /// Whether it says no more than that there is nothing.
    fn is_absence(&self) -> bool {
        match self {
            Self::Fetch { error, .. } => error.is_absent(),
            Self::NoSourceDescription(_) => true,
            _ => false,
        }
    }
}

impl Client {
    /// Finds out what a Source offers, from any entry point: a site, its Source Description, a Capability List, any
    /// capability document, a web page, robots.txt. Documents may have `limit` bytes.
    ///
    /// A Capability List as entry point is one set; its siblings are not looked for. Sets that can't be had are in
    /// [`Discovery::failed`], and it may be that there are no others.
    ///
    /// # Errors
    /// [`DiscoveryError`], when there is not even the name of a set.
    pub async fn discover(&self, entry: &Url, limit: u64) -> Result<Discovery, DiscoveryError> {
        let mut entry = entry.clone();
        entry.set_fragment(None);
        let at = |path: &str| {
            let mut url = entry.clone();
            url.set_path(path);
            url.set_query(None);
            url
        };
        let is_site = entry.path() == "/" && entry.query().is_none();
        let mut starts: Vec<Url> = WELL_KNOWN.map(at).into();
        starts.insert(if is_site { starts.len() } else { 0 }, entry.clone());
        starts.push(at(ROBOTS));

        let mut walk = Walk {
            client: self,
            limit,
            seen: HashSet::new(),
            linked: HashSet::new(),
            unreachable: false,
        };
        let mut trouble = None;
        for start in starts {
            match walk.from(&start).await {
                Ok(found) => return Ok(found),
                Err(error) if walk.unreachable => return Err(error),
                Err(error) if error.is_absence() => {}
                // robots.txt was only a last hope: that it can't be had explains nothing.
                Err(_) if start.path() == ROBOTS && start != entry => {}
                Err(error) => {
                    trouble.get_or_insert(error);
                }
            }
        }
        Err(trouble.unwrap_or(DiscoveryError::NoSourceDescription(entry)))
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
        match look(self, uri, known, limit).await? {
            Found::NotModified => Ok(None),
            Found::Set(list) => Ok(Some(*list)),
            other => Err(DiscoveryError::NotACapabilityList(other.capability())),
        }
    }
}

/// One search; remembers what it has seen.
struct Walk<'a> {
    client: &'a Client,
    limit: u64,
    seen: HashSet<Url>,
    /// What pages have links to.
    linked: HashSet<Url>,
    /// The host of the entry point can't be talked to.
    unreachable: bool,
}

impl Walk<'_> {
    /// Goes from one document to all sets that it leads to.
    async fn from(&mut self, start: &Url) -> Result<Discovery, DiscoveryError> {
        let mut discovery = Discovery::default();
        let mut trouble = None;
        let mut next = VecDeque::from([(start.clone(), 0)]);
        // Tried only where nothing better leads anywhere.
        let mut spare = VecDeque::new();
        let mut looks = 0;
        while let Some((uri, hops)) = match next.pop_front() {
            None if discovery.is_empty() => spare.pop_front(),
            step => step,
        } {
            if looks == MOST_LOOKS || hops > MOST_HOPS || !self.seen.insert(uri.clone()) {
                continue;
            }
            looks += 1;
            let further = |links: Vec<Url>| links.into_iter().map(move |link| (link, hops + 1));
            match look(self.client, &uri, None, self.limit).await {
                Ok(Found::Set(list)) => {
                    if discovery.description.is_none() {
                        discovery.description.clone_from(&list.description);
                    }
                    discovery.sets.push(*list);
                }
                Ok(Found::Description {
                    lists,
                    channels,
                    mut oddities,
                }) => {
                    if lists.is_empty() {
                        trouble.get_or_insert(DiscoveryError::NoCapabilityList(uri.clone()));
                    }
                    self.note_place(&uri, &mut oddities);
                    discovery.oddities.push((uri.clone(), oddities));
                    discovery.description = Some(uri);
                    discovery.channels.extend(channels);
                    self.expand(&mut discovery, lists).await;
                }
                Ok(Found::Member {
                    capability,
                    up,
                    index,
                    mut oddities,
                }) => {
                    // A plain sitemap may stand for the Source Description; what else has led here belongs to a set.
                    if capability.is_none() {
                        self.note_place(&uri, &mut oddities);
                        discovery.oddities.push((uri.clone(), oddities));
                    }
                    next.extend(further(up));
                    spare.extend(further(index));
                }
                Ok(Found::Page { links }) => {
                    self.linked.extend(links.iter().cloned());
                    next.extend(further(links));
                }
                Ok(Found::NotModified) => {}
                Err(error) => {
                    self.unreachable |= hops == 0 && error.is_unreachable();
                    trouble.get_or_insert(error);
                }
            }
        }
        if discovery.is_empty() {
            return Err(trouble.unwrap_or(DiscoveryError::NoSourceDescription(start.clone())));
        }
        Ok(discovery)
    }

    /// Counts what is odd about where a Source Description is, or who links to it.
    fn note_place(&self, uri: &Url, oddities: &mut Oddities) {
        if uri.path() == WELL_KNOWN[1] {
            oddities.add(Oddity::WellKnownSpelling);
        }
        if self.linked.contains(uri) {
            oddities.add(Oddity::LinkToDescription);
        }
    }

    /// Fetches the Capability Lists of a Source Description, several at once, and those of the Source Descriptions among
    /// them.
    async fn expand(&mut self, discovery: &mut Discovery, lists: Vec<Url>) {
        let mut level = lists;
        for _ in 0..MOST_LEVELS {
            level.retain(|uri| self.seen.insert(uri.clone()));
            let (client, limit) = (self.client.clone(), self.limit);
            let mut looks = stream::iter(std::mem::take(&mut level))
                .map(move |uri| {
                    let client = client.clone();
                    async move {
                        let found = look(&client, &uri, None, limit).await;
                        (uri, found)
                    }
                })
                .buffered(AT_ONCE);
            while let Some((uri, found)) = looks.next().await {
                if discovery.sets.len() >= MOST_SETS {
                    discovery.failed.push((uri, DiscoveryError::TooManySets));
                    return;
                }
                match found {
                    Ok(Found::Set(list)) => discovery.sets.push(*list),
                    Ok(Found::Description {
                        lists,
                        channels,
                        oddities,
                    }) => {
                        discovery.oddities.push((uri, oddities));
                        discovery.channels.extend(channels);
                        level.extend(lists);
                    }
                    Ok(other) => {
                        let error = DiscoveryError::NotACapabilityList(other.capability());
                        discovery.failed.push((uri, error));
                    }
                    Err(error) => discovery.failed.push((uri, error)),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
