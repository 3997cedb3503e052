//! One search for the sets of a Source: from document to document, by whatever links there are.

use std::collections::{HashMap, HashSet, VecDeque};

use futures_util::{StreamExt, stream};
use url::Url;

use super::{Discovery, DiscoveryError, MOST_SETS, ROBOTS, WELL_KNOWN};
use crate::fetch::capability_list::{Found, look};
use crate::fetch::{CapabilityList, Client};
use crate::protocol::{Capability, Oddities, Oddity, Validators};

/// How many steps from the entry point, by `up` and other links.
pub(super) const MOST_HOPS: usize = 4;

/// How many documents are looked at on the way to a Source Description or Capability List.
const MOST_LOOKS: usize = 64;

/// How deep Source Descriptions may be nested.
const MOST_LEVELS: usize = 3;

/// How many Capability Lists are asked for at once; the client limits them for each host besides.
const AT_ONCE: usize = 16;

/// What is only guessed to be a Capability List may have so many bytes: it may as well be somebody's film.
const LONGEST_GUESS: u64 = 1 << 20;

/// Where a search starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// What a person has named.
    Entry,
    /// Where a Source Description should be.
    WellKnown,
    /// The site's robots.txt.
    Robots,
    /// The usual place of a sitemap.
    Sitemap,
}

/// How a document was come upon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Via {
    /// It is where the search starts.
    Start,
    /// Something links to it.
    Link,
    /// The site's robots.txt names it as a sitemap.
    Robots,
    /// It is an entry of a plain sitemap.
    Guess,
}

struct Step {
    uri: Url,
    hops: usize,
    via: Via,
}

/// A sitemap that may be a set by itself.
struct Alone {
    set: CapabilityList,
    /// The indexes that it says it is part of.
    indexes: Vec<Url>,
}

/// One search; remembers what it has seen.
pub(super) struct Walk<'a> {
    client: &'a Client,
    limit: u64,
    seen: HashSet<Url>,
    /// What pages have links to.
    linked: HashSet<Url>,
    /// The host of the entry point can't be talked to.
    unreachable: bool,
    /// There may be ResourceSync, of which nothing can be had for now; or there is, and it leads nowhere.
    in_doubt: bool,
    /// robots.txt, or a sitemap that it names, can't be had for now.
    robots_in_doubt: bool,
    /// The sitemaps without ResourceSync, of the first start that leads to any.
    alone: Vec<Alone>,
    /// The sitemaps of robots.txt that can't be had.
    failed: Vec<(Url, DiscoveryError)>,
    /// What was met on the way of the last search.
    known: HashMap<Url, (Found, Validators)>,
    /// What was met on the way of this one.
    met: HashMap<Url, (Found, Validators)>,
    /// The Capability Lists that need not be looked at.
    followed: &'a HashSet<Url>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(
        client: &'a Client,
        limit: u64,
        known: HashMap<Url, (Found, Validators)>,
        followed: &'a HashSet<Url>,
    ) -> Self {
        Self {
            client,
            limit,
            seen: HashSet::new(),
            linked: HashSet::new(),
            unreachable: false,
            in_doubt: false,
            robots_in_doubt: false,
            alone: Vec::new(),
            failed: Vec::new(),
            known,
            met: HashMap::new(),
            followed,
        }
    }

    /// What was met on the way, for the next search.
    pub(super) fn into_way(self) -> HashMap<Url, (Found, Validators)> {
        self.met
    }

    /// Whether the host of the entry point can't be talked to, so that asking it for something else is of no use.
    pub(super) fn is_unreachable(&self) -> bool {
        self.unreachable
    }

    /// Whether the usual place of a sitemap is worth a look: nothing has been found, and nothing may be found there later.
    pub(super) fn may_try_sitemap(&self) -> bool {
        self.alone.is_empty() && !self.in_doubt && !self.robots_in_doubt
    }

    /// The sets of a site without ResourceSync: its sitemaps. `None` also where it only seems to have no ResourceSync: who
    /// follows its sets would be told that they are gone.
    pub(super) fn implied(&mut self) -> Option<Discovery> {
        if self.in_doubt || self.alone.is_empty() {
            return None;
        }
        let all: Vec<Url> = self.alone.iter().map(|one| one.set.uri.clone()).collect();
        // A part of an index that is here, too, tells nothing of its own.
        let is_part = |one: &Alone| {
            let mut indexes = one.indexes.iter();
            indexes.any(|index| *index != one.set.uri && all.contains(index))
        };
        let is_ring = self.alone.iter().all(is_part);
        let whole = std::mem::take(&mut self.alone)
            .into_iter()
            .filter(|one| is_ring || !is_part(one));
        let sets = whole.map(|one| one.set);
        Some(Discovery {
            sets: sets.collect(),
            failed: std::mem::take(&mut self.failed),
            ..Discovery::default()
        })
    }

    /// Goes from one document to all sets that it leads to.
    pub(super) async fn from(
        &mut self,
        start: Start,
        uri: &Url,
    ) -> Result<Discovery, DiscoveryError> {
        let mut discovery = Discovery::default();
        let mut status_error = None;
        let mut alone = Vec::new();
        let mut next = VecDeque::from([Step {
            uri: uri.clone(),
            hops: 0,
            via: Via::Start,
        }]);
        // Tried only where nothing better leads anywhere.
        let mut spare = VecDeque::new();
        let mut looks = 0;
        while let Some(step) = match next.pop_front() {
            None if discovery.is_empty() => spare.pop_front(),
            step => step,
        } {
            let Step { uri, hops, via } = step;
            if hops > MOST_HOPS || !self.seen.insert(uri.clone()) {
                continue;
            }
            if looks == MOST_LOOKS {
                if via == Via::Robots {
                    self.failed.push((uri, DiscoveryError::TooManyDocuments));
                }
                continue;
            }
            if hops > 0 && self.followed.contains(&uri) {
                discovery.followed.push(uri);
                continue;
            }
            looks += 1;
            let further = |links: Vec<Url>, via: Via| {
                let step = move |uri| Step {
                    uri,
                    hops: hops + 1,
                    via,
                };
                links.into_iter().map(step)
            };
            let limit = match via {
                Via::Guess => self.limit.min(LONGEST_GUESS),
                _ => self.limit,
            };
            match self.look(&uri, limit).await {
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
                        self.in_doubt = true;
                        status_error.get_or_insert(DiscoveryError::NoCapabilityList(uri.clone()));
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
                    guesses,
                    alone: set,
                    mut oddities,
                }) => {
                    // A plain sitemap may stand for the Source Description; what else has led here belongs to a set.
                    if capability.is_none() {
                        self.note_place(&uri, &mut oddities);
                        discovery.oddities.push((uri.clone(), oddities));
                    }
                    // Who names a Change List does not want the site's pages.
                    self.in_doubt |= (start, via) == (Start::Entry, Via::Start)
                        && !matches!(capability, None | Some(Capability::ResourceList));
                    if let Some(set) = set.filter(|_| via != Via::Guess) {
                        let indexes = index.clone();
                        alone.push(Alone { set: *set, indexes });
                    }
                    next.extend(further(up, Via::Link));
                    // Only a Source Description is worth guessing twice.
                    if via != Via::Guess || start == Start::WellKnown {
                        next.extend(further(guesses, Via::Guess));
                    }
                    spare.extend(further(index, Via::Link));
                }
                Ok(Found::Page { links }) => {
                    self.linked.extend(links.iter().cloned());
                    let is_robots = via == Via::Start && uri.path() == ROBOTS;
                    let via = if is_robots { Via::Robots } else { Via::Link };
                    next.extend(further(links, via));
                }
                Ok(Found::NotModified) => {}
                Err(error) => {
                    self.unreachable |=
                        hops == 0 && start != Start::Sitemap && error.is_unreachable();
                    self.note_trouble(start, via, &uri, &error);
                    status_error.get_or_insert(error);
                }
            }
        }
        if self.alone.is_empty() {
            self.alone = alone;
        }
        if discovery.is_empty() {
            return Err(status_error.unwrap_or(DiscoveryError::NoSourceDescription(uri.clone())));
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

    /// Looks at a document, unless it is as it was.
    async fn look(&mut self, uri: &Url, limit: u64) -> Result<Found, DiscoveryError> {
        let known = self.known.remove(uri);
        let looked = look_again(self.client, uri, known, limit).await?;
        self.met.insert(uri.clone(), looked.clone());
        Ok(looked.0)
    }

    /// Notes whether a document that can't be had may be one of ResourceSync.
    fn note_trouble(&mut self, start: Start, via: Via, uri: &Url, error: &DiscoveryError) {
        if !error.leaves_doubt() {
            return;
        }
        match (start, via) {
            (Start::Robots, Via::Start) => self.robots_in_doubt = true,
            (_, Via::Robots) => {
                self.robots_in_doubt = true;
                self.failed.push((uri.clone(), error.clone()));
            }
            // An entry of a sitemap is a Capability List where a Source Description should be, and hardly elsewhere.
            (Start::Entry | Start::Robots | Start::Sitemap, Via::Guess) => {}
            _ => self.in_doubt = true,
        }
    }

    /// Fetches the Capability Lists of a Source Description, several at once, and those of the Source Descriptions among
    /// them.
    async fn expand(&mut self, discovery: &mut Discovery, lists: Vec<Url>) {
        let mut level = lists;
        for _ in 0..MOST_LEVELS {
            level.retain(|uri| self.seen.insert(uri.clone()));
            let (followed, others) = level
                .into_iter()
                .partition(|uri| self.followed.contains(uri));
            discovery.followed.extend::<Vec<Url>>(followed);
            level = Vec::new();
            let (client, limit) = (self.client.clone(), self.limit);
            let asked: Vec<_> = Vec::into_iter(others)
                .map(|uri| (self.known.remove(&uri), uri))
                .collect();
            let mut looks = stream::iter(asked)
                .map(move |(known, uri)| {
                    let client = client.clone();
                    async move {
                        let found = look_again(&client, &uri, known, limit).await;
                        (uri, found)
                    }
                })
                .buffered(AT_ONCE);
            while let Some((uri, found)) = looks.next().await {
                if discovery.sets.len() + discovery.followed.len() >= MOST_SETS {
                    discovery.failed.push((uri, DiscoveryError::TooManySets));
                    return;
                }
                match found {
                    Ok((Found::Set(list), _)) => discovery.sets.push(*list),
                    Ok((
                        Found::Description {
                            lists,
                            channels,
                            oddities,
                        },
                        validators,
                    )) => {
                        let found = Found::Description {
                            lists: lists.clone(),
                            channels: channels.clone(),
                            oddities: oddities.clone(),
                        };
                        self.met.insert(uri.clone(), (found, validators));
                        discovery.oddities.push((uri, oddities));
                        discovery.channels.extend(channels);
                        level.extend(lists);
                    }
                    Ok((other, _)) => {
                        let error = DiscoveryError::NotACapabilityList(other.capability());
                        discovery.failed.push((uri, error));
                    }
                    Err(error) => discovery.failed.push((uri, error)),
                }
            }
        }
        level.retain(|uri| self.seen.insert(uri.clone()));
        let too_deep = level.into_iter().take(MOST_SETS);
        let failed = too_deep.map(|uri| (uri, DiscoveryError::NestedTooDeep));
        discovery.failed.extend(failed);
    }
}

/// Looks at a document; what is known of it stands if it has not changed.
async fn look_again(
    client: &Client,
    uri: &Url,
    known: Option<(Found, Validators)>,
    limit: u64,
) -> Result<(Found, Validators), DiscoveryError> {
    let validators = known.as_ref().map(|(_, validators)| validators);
    let looked = look(client, uri, validators, limit).await?;
    Ok(match (looked, known) {
        ((Found::NotModified, _), Some(known)) => known,
        (looked, _) => looked,
    })
}
