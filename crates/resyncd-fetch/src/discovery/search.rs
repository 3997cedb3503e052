//! One search for the sets of a Source: from document to document along their links.

use std::collections::{HashSet, VecDeque};

use futures_util::{StreamExt, stream};
use resourcesync::{Capability, Oddities, Oddity};
use resyncd_core::Validators;
use url::Url;

use super::attempt::{DiscoveryAttempt, named, record};
use super::error::{DiscoveryError, MAX_SETS};
use super::result::Discovery;
use super::{DiscoveryCache, KnownDocuments};
use crate::capability_list::{DocumentRole, FoundDescription, examine};
use crate::{CapabilityList, Client};

/// The well-known URI of a Source Description, and a misspelling that occurs.
pub(super) const WELL_KNOWN: [&str; 2] = ["/.well-known/resourcesync", "/.wellknown/resourcesync"];

/// The file in which sites list their sitemaps.
pub(super) const ROBOTS: &str = "/robots.txt";

/// The maximum number of links from the entry point.
pub(super) const MAX_HOPS: usize = 4;

/// The maximum number of documents from one start point, Capability Lists of a Source Description not included.
const MAX_DOCUMENTS: usize = 64;

/// How deep Source Descriptions may be nested.
const MAX_LEVELS: usize = 3;

/// How many Capability Lists are fetched concurrently; the client also limits them per host.
const CONCURRENT_LISTS: usize = 16;

/// The maximum length in bytes of a document that is only guessed to be a Capability List: it may be any resource.
const MAX_GUESS: u64 = 1 << 20;

/// How many bytes the URIs may have that all documents of a discovery lead to: enough for the 10,000 sets of a Source.
const MAX_HELD_BYTES: usize = 64 << 20;

/// Where a search starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StartPoint {
    /// The configured entry point.
    Entry,
    /// The well-known URI of a Source Description.
    WellKnown,
    /// The site's robots.txt.
    Robots,
    /// The sitemaps that the page at the entry point links to.
    Page,
    /// A usual path of a sitemap.
    Sitemap,
}

/// How a document was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FoundBy {
    /// It is the start point.
    Start,
    /// A link.
    Link,
    /// The site's robots.txt, or the page at the entry point, names it as a sitemap.
    Sitemap,
    /// It is an entry of a plain sitemap, and guessed to be a Capability List.
    Guess,
}

impl FoundBy {
    /// Why a document is requested that was found so in a search from `start`.
    fn reason(self, start: StartPoint) -> &'static str {
        match (self, start) {
            (Self::Start, StartPoint::Entry) => "entry",
            (Self::Start, StartPoint::WellKnown) => "well-known",
            (Self::Start, StartPoint::Robots) => "robots",
            (Self::Start, StartPoint::Sitemap) | (Self::Sitemap, _) => "sitemap",
            (Self::Link, _) | (Self::Start, StartPoint::Page) => "link",
            (Self::Guess, _) => "guess",
        }
    }
}

/// A document to be examined.
struct Visit {
    uri: Url,
    /// The number of links from the start point.
    hops: usize,
    found_by: FoundBy,
    /// The attempt that led there.
    parent: Option<usize>,
}

/// A sitemap or Resource List that is a set itself, unless a Capability List is found.
struct StandaloneList {
    set: CapabilityList,
    /// The indexes that it links to as a part.
    indexes: Vec<Url>,
}

/// An entry point that is a Change Set of version 0.1, or may be one.
struct EntryChangeSet {
    uri: Url,
    /// The Change Sets of which its Sitemap names one.
    named: Vec<Url>,
    /// Whether a Sitemap was found that does.
    is_found: bool,
}

impl EntryChangeSet {
    /// Whether a standalone list is the Sitemap that names it.
    fn is_named_by(&self, list: &StandaloneList) -> bool {
        let mut offers = list.set.capabilities.iter();
        offers.any(|offer| {
            offer.capability == Capability::ChangeList && self.named.contains(&offer.uri)
        })
    }
}

/// One search, with the documents that it has visited.
pub(super) struct Search<'a> {
    client: &'a Client,
    limit: u64,
    visited: HashSet<Url>,
    /// The targets of links of pages.
    linked: HashSet<Url>,
    /// The host of the entry point can't be reached.
    unreachable: bool,
    /// There may be ResourceSync documents: some can't be fetched at the moment.
    may_have_documents: bool,
    /// A Source Description lists nothing, or the Capability List of the entry point offers nothing.
    is_empty: bool,
    /// The entry point is a sitemap or a Resource List itself, or a Change Set that a sitemap names.
    is_given: bool,
    /// The entry point, if it is a Change Set, or may be one: its Sitemap is searched for.
    change_set: Option<EntryChangeSet>,
    /// The sitemaps that the page at the entry point links to, and the attempt that found it.
    page_sitemaps: (Vec<Url>, Option<usize>),
    /// robots.txt, or a sitemap that it or the page lists, can't be fetched at the moment.
    robots_unavailable: bool,
    /// The standalone lists, of the first start point that leads to any.
    standalone: Vec<StandaloneList>,
    /// That start point.
    standalone_start: Option<Url>,
    /// The sitemaps of robots.txt that failed.
    failed: Vec<(Url, DiscoveryError)>,
    /// The targets of links that do not exist.
    dead_links: Vec<(Url, DiscoveryError)>,
    attempts: Vec<DiscoveryAttempt>,
    /// The documents of the previous search.
    previous: KnownDocuments,
    /// The documents of this search.
    documents: KnownDocuments,
    /// The Capability Lists that are not fetched.
    followed: &'a HashSet<Url>,
    /// How many bytes the URIs have that were found, approximately.
    held_bytes: usize,
}

impl<'a> Search<'a> {
    pub(super) fn new(
        client: &'a Client,
        limit: u64,
        previous: KnownDocuments,
        followed: &'a HashSet<Url>,
    ) -> Self {
        Self {
            client,
            limit,
            visited: HashSet::new(),
            linked: HashSet::new(),
            unreachable: false,
            may_have_documents: false,
            is_empty: false,
            is_given: false,
            change_set: None,
            page_sitemaps: (Vec::new(), None),
            robots_unavailable: false,
            standalone: Vec::new(),
            standalone_start: None,
            failed: Vec::new(),
            dead_links: Vec::new(),
            attempts: Vec::new(),
            previous,
            documents: KnownDocuments::new(),
            followed,
            held_bytes: 0,
        }
    }

    /// Counts what a document leads to; returns whether it is still within the limit.
    fn holds(&mut self, role: &DocumentRole) -> bool {
        self.held_bytes = self.held_bytes.saturating_add(role.held_bytes());
        self.held_bytes <= MAX_HELD_BYTES
    }

    /// What is left of this search. The documents are those of this search if it succeeded.
    pub(super) fn into_cache(self, succeeded: bool) -> DiscoveryCache {
        DiscoveryCache {
            documents: if succeeded {
                self.documents
            } else {
                KnownDocuments::new()
            },
            attempts: self.attempts,
        }
    }

    /// What was tried, for a message.
    pub(super) fn tried(&self) -> String {
        named(&self.attempts)
    }

    /// What was found at a URI, for a person.
    pub(super) fn answer_of(&self, uri: &Url) -> String {
        let mut attempts = self.attempts.iter();
        let attempt = attempts.find(|attempt| attempt.uri == *uri);
        attempt.map_or_else(String::new, |attempt| attempt.answer.clone())
    }

    /// Whether only the entry point itself may be followed: its Capability List offers nothing.
    pub(super) fn ends_at_entry(&self) -> bool {
        self.is_empty && self.is_given && self.change_set.is_none()
    }

    /// Whether the host of the entry point can't be reached, so that other requests to it would fail as well.
    pub(super) fn is_unreachable(&self) -> bool {
        self.unreachable
    }

    /// Whether sitemaps may be searched for elsewhere: nothing was found, and no failure leaves a doubt.
    pub(super) fn may_try_sitemaps(&self) -> bool {
        let is_found = match &self.change_set {
            Some(change_set) => change_set.is_found,
            None => !self.standalone.is_empty(),
        };
        !is_found && !self.may_have_documents && !self.is_empty && !self.robots_unavailable
    }

    /// The sets of a site without ResourceSync: its sitemaps. `None` also if it is in doubt whether there is ResourceSync:
    /// its sets would seem to be gone. The URI is where the search that led to them began.
    pub(super) fn implied(&mut self) -> Option<(Url, Discovery)> {
        // What was given is followed even where its links lead to something empty.
        let is_uncertain = self.may_have_documents || (self.is_empty && !self.is_given);
        if is_uncertain || self.standalone.is_empty() {
            return None;
        }
        let lists = std::mem::take(&mut self.standalone);
        let all: HashSet<Url> = lists.iter().map(|list| list.set.uri.clone()).collect();
        // A part is contained in its index, if that was found as well.
        let is_part = |list: &StandaloneList| {
            let mut indexes = list.indexes.iter();
            indexes.any(|index| *index != list.set.uri && all.contains(index))
        };
        let is_cycle = lists.iter().all(is_part);
        let sets = lists
            .into_iter()
            .filter(|list| is_cycle || !is_part(list))
            .map(|list| list.set);
        let discovery = Discovery {
            sets: sets.collect(),
            failed: std::mem::take(&mut self.failed),
            dead_links: std::mem::take(&mut self.dead_links),
            ..Discovery::default()
        };
        Some((self.standalone_start.take()?, discovery))
    }

    /// Follows the links from a document to all sets.
    pub(super) async fn from(
        &mut self,
        start: StartPoint,
        uri: &Url,
    ) -> Result<Discovery, DiscoveryError> {
        let mut discovery = Discovery::default();
        let mut first_error = None;
        let mut standalone = Vec::new();
        let failed_before = self.failed.len();
        let mut next = VecDeque::new();
        if start == StartPoint::Page {
            let (sitemaps, parent) = std::mem::take(&mut self.page_sitemaps);
            next.extend(sitemaps.into_iter().map(|uri| Visit {
                uri,
                hops: 1,
                found_by: FoundBy::Sitemap,
                parent,
            }));
        } else {
            next.push_back(Visit {
                uri: uri.clone(),
                hops: 0,
                found_by: FoundBy::Start,
                parent: None,
            });
        }
        // Visited only if nothing else leads to a set.
        let mut fallback = VecDeque::new();
        let mut examined = 0;
        while let Some(visit) = match next.pop_front() {
            None if discovery.is_empty() => fallback.pop_front(),
            visit => visit,
        } {
            let Visit {
                uri,
                hops,
                found_by,
                parent,
            } = visit;
            if hops > MAX_HOPS || !self.visited.insert(uri.clone()) {
                continue;
            }
            if examined == MAX_DOCUMENTS {
                if found_by == FoundBy::Sitemap {
                    self.failed.push((uri, DiscoveryError::TooManyDocuments));
                }
                continue;
            }
            if hops > 0 && self.followed.contains(&uri) {
                discovery.followed.push(uri);
                continue;
            }
            // A guess is a page of the site like any other.
            if found_by == FoundBy::Guess && !self.client.is_allowed(&uri).await {
                continue;
            }
            examined += 1;
            let limit = match found_by {
                FoundBy::Guess => self.limit.min(MAX_GUESS),
                _ => self.limit,
            };
            let found = self.examine(&uri, limit).await;
            let reason = found_by.reason(start);
            let attempt = record(&mut self.attempts, &uri, reason, parent, found.as_ref());
            let visits = |links: Vec<Url>, found_by: FoundBy| {
                let visit = move |uri| Visit {
                    uri,
                    hops: hops + 1,
                    found_by,
                    parent: attempt,
                };
                links.into_iter().map(visit)
            };
            match found {
                Ok(DocumentRole::Set(list))
                    if list.capabilities.is_empty()
                        && found_by == FoundBy::Link
                        && self.is_given =>
                {
                    self.is_empty = true;
                    first_error.get_or_insert(DiscoveryError::NoCapabilityList(uri));
                }
                Ok(DocumentRole::Set(list)) => {
                    if discovery.description.is_none() {
                        discovery.description.clone_from(&list.description);
                    }
                    discovery.sets.push(*list);
                }
                Ok(DocumentRole::Description(found)) => {
                    let FoundDescription {
                        lists,
                        mut oddities,
                        channels,
                        described_by,
                        sets_described_by,
                    } = *found;
                    if lists.is_empty() {
                        self.is_empty = true;
                        first_error.get_or_insert(DiscoveryError::NoCapabilityList(uri.clone()));
                    }
                    self.count_oddities(&uri, &mut oddities);
                    discovery.note_oddities(uri.clone(), oddities);
                    discovery.description = Some(uri);
                    discovery.channels.extend(channels);
                    discovery.described_by.extend(described_by);
                    discovery.sets_described_by.extend(sets_described_by);
                    self.expand(&mut discovery, lists, attempt).await;
                }
                Ok(DocumentRole::SetDocument {
                    capability,
                    up,
                    index,
                    guesses,
                    standalone: set,
                    change_sets,
                    mut oddities,
                }) => {
                    self.may_have_documents |=
                        start == StartPoint::WellKnown && oddities.count(Oddity::DamagedEnd) > 0;
                    // A plain sitemap may stand for the Source Description; other documents belong to a set.
                    if capability.is_none() {
                        self.count_oddities(&uri, &mut oddities);
                        discovery.note_oddities(uri.clone(), oddities);
                    }
                    let is_entry = (start, found_by) == (StartPoint::Entry, FoundBy::Start);
                    if is_entry && !change_sets.is_empty() {
                        self.change_set = Some(EntryChangeSet {
                            uri,
                            named: change_sets,
                            is_found: false,
                        });
                    } else {
                        // A Change List as entry point does not mean the site's pages.
                        self.may_have_documents |= is_entry
                            && !matches!(capability, None | Some(Capability::ResourceList));
                    }
                    if let Some(set) = set.filter(|_| found_by != FoundBy::Guess) {
                        let indexes = index.clone();
                        self.is_given |= is_entry;
                        standalone.push(StandaloneList { set: *set, indexes });
                    }
                    next.extend(visits(up, FoundBy::Link));
                    // Entries of a guess are guesses only where a Source Description is expected.
                    if found_by != FoundBy::Guess || start == StartPoint::WellKnown {
                        next.extend(visits(guesses, FoundBy::Guess));
                    }
                    fallback.extend(visits(index, FoundBy::Link));
                }
                Ok(DocumentRole::Page {
                    links, sitemaps, ..
                }) => {
                    self.linked.extend(links.iter().cloned());
                    if found_by == FoundBy::Sitemap && links.is_empty() {
                        self.failed.push((uri.clone(), DiscoveryError::NotASitemap));
                    }
                    next.extend(visits(links, FoundBy::Link));
                    if found_by == FoundBy::Start && uri.path() == ROBOTS {
                        next.extend(visits(sitemaps, FoundBy::Sitemap));
                    } else if (start, found_by) == (StartPoint::Entry, FoundBy::Start) {
                        self.page_sitemaps = (sitemaps, attempt);
                    }
                }
                Ok(DocumentRole::NotModified) => {}
                Err(error) => {
                    self.unreachable |=
                        hops == 0 && start != StartPoint::Sitemap && error.is_unreachable();
                    self.record_failure(start, found_by, &uri, &error);
                    first_error.get_or_insert(error);
                }
            }
        }
        match &mut self.change_set {
            // What names it is its Sitemap, whatever else the entry point may be. Other sitemaps are those of the site's pages.
            Some(change_set) if start != StartPoint::Entry => {
                standalone.retain(|list| change_set.is_named_by(list));
                if !change_set.is_found && !standalone.is_empty() {
                    change_set.is_found = true;
                    self.is_given = true;
                    self.standalone_start = Some(change_set.uri.clone());
                    self.standalone = standalone;
                }
                self.failed.truncate(failed_before);
            }
            _ if self.standalone.is_empty() => {
                self.standalone_start = (!standalone.is_empty()).then(|| uri.clone());
                self.standalone = standalone;
            }
            // They are not followed, read or not.
            _ => self.failed.truncate(failed_before),
        }
        if discovery.is_empty() {
            if let Some(error) = discovery.left_out {
                self.may_have_documents = true;
                return Err(error);
            }
            return Err(first_error.unwrap_or_else(|| DiscoveryError::nothing_from(uri)));
        }
        discovery.dead_links = std::mem::take(&mut self.dead_links);
        Ok(discovery)
    }

    /// Counts the oddities of the URI of a Source Description, and of links to it.
    fn count_oddities(&self, uri: &Url, oddities: &mut Oddities) {
        if uri.path() == WELL_KNOWN[1] {
            oddities.add(Oddity::WellKnownSpelling);
        }
        if self.linked.contains(uri) {
            oddities.add(Oddity::LinkToDescription);
        }
    }

    /// Examines a document, conditionally if the previous search has.
    async fn examine(&mut self, uri: &Url, limit: u64) -> Result<DocumentRole, DiscoveryError> {
        let previous = self.previous.remove(uri);
        let examined = examine_if_changed(self.client, uri, previous, limit).await?;
        if !self.holds(&examined.0) {
            return Err(DiscoveryError::TooLarge);
        }
        self.documents.insert(uri.clone(), examined.clone());
        Ok(examined.0)
    }

    /// Records whether a document that failed may be a ResourceSync document.
    fn record_failure(
        &mut self,
        start: StartPoint,
        found_by: FoundBy,
        uri: &Url,
        error: &DiscoveryError,
    ) {
        if error.is_absence() && found_by == FoundBy::Link {
            self.dead_links.push((uri.clone(), error.clone()));
        }
        if !error.is_inconclusive() {
            if found_by == FoundBy::Sitemap {
                self.failed.push((uri.clone(), error.clone()));
            }
            return;
        }
        match (start, found_by) {
            (StartPoint::Robots, FoundBy::Start) => self.robots_unavailable = true,
            (_, FoundBy::Sitemap) => {
                self.robots_unavailable = true;
                self.failed.push((uri.clone(), error.clone()));
            }
            // Entries of a sitemap are Capability Lists in place of a Source Description, and hardly elsewhere.
            (start, FoundBy::Guess) if start != StartPoint::WellKnown => {}
            _ => self.may_have_documents = true,
        }
    }

    /// Fetches the Capability Lists of a Source Description concurrently, and those of nested Source Descriptions.
    async fn expand(&mut self, discovery: &mut Discovery, lists: Vec<Url>, parent: Option<usize>) {
        let mut level = lists;
        for _ in 0..MAX_LEVELS {
            level.retain(|uri| self.visited.insert(uri.clone()));
            let (followed, others) = level
                .into_iter()
                .partition(|uri| self.followed.contains(uri));
            discovery.followed.extend::<Vec<Url>>(followed);
            level = Vec::new();
            let (client, limit) = (self.client.clone(), self.limit);
            let requested: Vec<_> = Vec::into_iter(others)
                .map(|uri| (self.previous.remove(&uri), uri))
                .collect();
            let mut examined = stream::iter(requested)
                .map(move |(previous, uri)| {
                    let client = client.clone();
                    async move {
                        let examined = examine_if_changed(&client, &uri, previous, limit).await;
                        (uri, examined)
                    }
                })
                .buffered(CONCURRENT_LISTS);
            while let Some((uri, examined)) = examined.next().await {
                let known = discovery.sets.len() + discovery.failed.len();
                if known + discovery.followed.len() >= MAX_SETS {
                    discovery.leave_out(DiscoveryError::TooManySets);
                    return;
                }
                if let Ok((role, _)) = &examined
                    && !self.holds(role)
                {
                    discovery.leave_out(DiscoveryError::TooLarge);
                    return;
                }
                let found = examined.as_ref().map(|(role, _)| role);
                record(&mut self.attempts, &uri, "listed", parent, found);
                match examined {
                    Ok((DocumentRole::Set(list), _)) => discovery.sets.push(*list),
                    Ok((DocumentRole::Description(found), validators)) => {
                        let role = DocumentRole::Description(found.clone());
                        self.documents.insert(uri.clone(), (role, validators));
                        discovery.note_oddities(uri, found.oddities);
                        discovery.channels.extend(found.channels);
                        discovery.sets_described_by.extend(found.sets_described_by);
                        level.extend(found.lists);
                    }
                    Ok((other, _)) => {
                        let error = DiscoveryError::not_a_capability_list(&uri, &other);
                        discovery.failed.push((uri, error));
                    }
                    Err(error) => discovery.failed.push((uri, error)),
                }
            }
        }
        level.retain(|uri| self.visited.insert(uri.clone()));
        let too_deep = level.into_iter().take(MAX_SETS);
        let failed = too_deep.map(|uri| (uri, DiscoveryError::NestedTooDeep));
        discovery.failed.extend(failed);
    }
}

/// Examines a document; returns the previous result if it has not changed.
async fn examine_if_changed(
    client: &Client,
    uri: &Url,
    previous: Option<(DocumentRole, Validators)>,
    limit: u64,
) -> Result<(DocumentRole, Validators), DiscoveryError> {
    let validators = previous.as_ref().map(|(_, validators)| validators);
    let examined = examine(client, uri, validators, limit).await?;
    Ok(match (examined, previous) {
        ((DocumentRole::NotModified, _), Some(previous)) => previous,
        (examined, _) => examined,
    })
}
