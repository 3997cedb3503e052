//! Examines one document in a discovery: what it is, and which documents it leads to (sections 8 and 9).

use std::fmt;

use resourcesync::draft::{ChangeSetEvidence, PushInterface};
use resourcesync::uri::is_web;
use resourcesync::{Capability, Entry, Head, Link, Oddities, Oddity, ReadError, Root};
use resyncd_core::{HubUri, MAX_HUBS, MAX_OFFERS, Offer, Transport, Validators};
use url::Url;

use super::error::on_blocking_thread;
use super::web_page::{links_of_page, sitemaps_of_page};
use super::{Client, DiscoveryError, FetchError, FetchedDocument};
use crate::HeaderLink;

/// The maximum number of entries that are read of a Source Description or Capability List.
const MAX_ENTRIES: usize = 20_000;

/// How many bytes their URIs may have in total.
const MAX_ENTRY_BYTES: usize = 8 << 20;

/// How many bytes the URIs of the documents, channels and hubs of a set may have in total.
const MAX_OFFER_BYTES: usize = 256 << 10;

/// A plain sitemap with at most this many entries may be a Source Description.
const MAX_GUESSES: usize = 20;

/// The maximum number of documents that describe one thing.
const MAX_DESCRIBED_BY: usize = 10;

/// The maximum number of channels of a set whose transports are not supported.
const MAX_UNSUPPORTED: usize = 20;

/// The maximum number of channels of a Source Description.
const MAX_CHANNELS: usize = 20;

/// How much of a page or robots.txt is searched for links, in bytes.
const MAX_PAGE: u64 = 512 << 10;

/// A Capability List: a set of resources, and what the Source offers for it (section 9). Without one, a standalone Resource
/// List or plain sitemap implies it: see [`is_implied`](Self::is_implied).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapabilityList {
    /// Its URI, as it was requested.
    pub uri: Url,
    /// The Source Description that its `up` link refers to.
    pub description: Option<Url>,
    /// Whether it is a sitemap with nothing of ResourceSync, neither of 1.0 nor of the draft of version 0.1.
    pub is_plain_sitemap: bool,
    /// What it offers, in its order; a capability may occur several times.
    pub capabilities: Vec<Offer>,
    /// The channels that it offers over transports that are not supported.
    pub unsupported_channels: Vec<Offer>,
    /// The documents that describe the set.
    pub described_by: Vec<Url>,
    /// Its deviations from the specification.
    pub oddities: Oddities,
    /// The validators for a later conditional request.
    pub validators: Validators,
    /// The SHA-256 of the document.
    pub digest: [u8; 32],
}

impl CapabilityList {
    /// The set of a Resource List or plain sitemap without a Capability List.
    fn implied(uri: &Url, document: &FetchedDocument, head: &Head, oddities: Oddities) -> Self {
        // The others are offered.
        let is_unsupported = |it: &&PushInterface| it.as_node().is_none() && !is_web(&it.href);
        let interfaces = head.interfaces.iter().filter(is_unsupported);
        let is_draft =
            head.names_documents() || !head.interfaces.is_empty() || head.md.modified.is_some();
        let interfaces = interfaces.map(|interface| Offer {
            capability: Capability::ChangeNotification,
            uri: interface.href.clone(),
            hubs: Vec::new(),
            protocol: Some(interface.protocol.clone()),
        });
        Self {
            uri: uri.clone(),
            description: None,
            is_plain_sitemap: head.md.capability.is_none() && !is_draft,
            capabilities: Offer::of_sitemap(uri, head),
            unsupported_channels: interfaces.take(MAX_UNSUPPORTED).collect(),
            described_by: Vec::new(),
            oddities,
            validators: document.validators().clone(),
            digest: *document.digest(),
        }
    }

    /// Whether it is not a Capability List, but the Sitemap or the Resource List of a set that has none.
    pub fn is_implied(&self) -> bool {
        Offer::is_implied(&self.capabilities, &self.uri)
    }
}

/// The role of a document in a discovery.
#[derive(Clone, Debug)]
pub(super) enum DocumentRole {
    /// It has not changed.
    NotModified,
    /// A Capability List.
    Set(Box<CapabilityList>),
    /// A Source Description, or something that may be one.
    Description(Box<FoundDescription>),
    /// A document of a set, or a plain sitemap.
    SetDocument {
        capability: Option<Capability>,
        /// The targets of its `up` links.
        up: Vec<Url>,
        /// The targets of its `index` and `resourcesync` links.
        index: Vec<Url>,
        /// The entries of a short plain sitemap: they may be Capability Lists.
        guesses: Vec<Url>,
        /// The set that it implies if no link leads to a Capability List; only of a Resource List or a plain sitemap.
        standalone: Option<Box<CapabilityList>>,
        /// If it is a Change Set of version 0.1, or may be one: the Change Sets of which a Sitemap names one, its own URIs among them.
        change_sets: Vec<Url>,
        /// The deviations from the specification in what was read.
        oddities: Oddities,
    },
    /// Not a document: a web page or robots.txt.
    Page {
        /// What it is, for a person, with advice; `None`: a text, or a resource that is not read.
        what: Option<String>,
        /// The targets of its `resourcesync` links.
        links: Vec<Url>,
        /// The sitemaps that it names.
        sitemaps: Vec<Url>,
    },
}

/// A Source Description, or something that may be one.
#[derive(Clone, Debug)]
pub(super) struct FoundDescription {
    /// The URIs of its entries.
    pub(super) lists: Vec<Url>,
    /// The channels for framework notifications.
    pub(super) channels: Vec<Offer>,
    /// The documents that describe the Source.
    pub(super) described_by: Vec<Url>,
    /// The documents that describe its sets.
    pub(super) sets_described_by: Vec<(Url, Vec<Url>)>,
    /// Its deviations from the specification.
    pub(super) oddities: Oddities,
}

impl fmt::Display for DocumentRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotModified => f.write_str("unchanged"),
            Self::Set(list) => write!(
                f,
                "a Capability List that offers {} documents and channels",
                list.capabilities.len()
            ),
            Self::Description(found) => write!(
                f,
                "a Source Description that lists {} Capability Lists",
                found.lists.len()
            ),
            Self::SetDocument {
                change_sets,
                standalone: None,
                ..
            } if !change_sets.is_empty() => f.write_str("a Change Set of the draft of version 0.1"),
            Self::SetDocument {
                capability: Some(capability),
                ..
            } => write!(f, "a document with the capability {capability}"),
            Self::SetDocument { oddities, .. } if oddities.count(Oddity::Draft01) > 0 => {
                f.write_str("a Sitemap of the draft of version 0.1")
            }
            Self::SetDocument { .. } => f.write_str("a plain sitemap"),
            Self::Page {
                what: Some(what),
                links,
                sitemaps,
            } if links.is_empty() && sitemaps.is_empty() => f.write_str(what),
            Self::Page {
                what,
                links,
                sitemaps,
            } => write!(
                f,
                "{}; it links to {} documents",
                what.as_deref().unwrap_or("no document, but a text"),
                links.len() + sitemaps.len()
            ),
        }
    }
}

impl DocumentRole {
    /// The approximate size of the URIs that it holds, in bytes.
    pub(super) fn held_bytes(&self) -> usize {
        let sum = |uris: &[Url]| uris.iter().map(bytes_of).sum::<usize>();
        let offered = |offers: &[Offer]| offers.iter().map(bytes_of_offer).sum::<usize>();
        match self {
            Self::NotModified => 0,
            Self::Set(list) => {
                let offered = offered(&list.capabilities) + offered(&list.unsupported_channels);
                bytes_of(&list.uri) + offered + sum(&list.described_by)
            }
            Self::Description(found) => {
                let of_sets = found.sets_described_by.iter();
                let of_sets = of_sets.map(|(set, uris)| bytes_of(set) + sum(uris));
                let offered = offered(&found.channels);
                sum(&found.lists) + offered + sum(&found.described_by) + of_sets.sum::<usize>()
            }
            Self::SetDocument {
                up,
                index,
                guesses,
                change_sets,
                ..
            } => sum(up) + sum(index) + sum(guesses) + sum(change_sets),
            Self::Page {
                links, sitemaps, ..
            } => sum(links) + sum(sitemaps),
        }
    }
}

/// Fetches a document, conditionally if `known` is given; returns its role and its validators. Reads it on a blocking thread.
pub(super) async fn examine(
    client: &Client,
    uri: &Url,
    known: Option<&Validators>,
    limit: u64,
) -> Result<(DocumentRole, Validators), DiscoveryError> {
    let fetched = match known {
        Some(known) => {
            let fetching = || client.try_document_if_changed(uri, known, limit, MAX_PAGE);
            client.retry(fetching).await
        }
        None => {
            let fetching = || client.try_document(uri, limit, MAX_PAGE);
            client.retry(fetching).await.map(Some)
        }
    };
    if let Err(FetchError::TooLarge(_)) = fetched {
        // A resource of any length may name its Capability List in a header.
        let links = client.link_header(uri).await.unwrap_or_default();
        let links = links_of(&links, "resourcesync");
        if !links.is_empty() {
            let page = DocumentRole::Page {
                what: None,
                links,
                sitemaps: Vec::new(),
            };
            return Ok((page, Validators::default()));
        }
    }
    match fetched.map_err(|error| DiscoveryError::fetching(uri, error))? {
        None => Ok((DocumentRole::NotModified, Validators::default())),
        Some(document) => {
            let validators = document.validators().clone();
            let of_reading = uri.clone();
            let reading = on_blocking_thread(move || role_of(&of_reading, document));
            let role = reading.await;
            let role = role.map_err(|error| DiscoveryError::fetching(uri, error))?;
            Ok((role?, validators))
        }
    }
}

/// For a blocking thread.
fn role_of(uri: &Url, mut document: Box<FetchedDocument>) -> Result<DocumentRole, DiscoveryError> {
    match read(uri, &mut document) {
        Ok(role) => Ok(role),
        Err(error) => page(uri, *document, error),
    }
}

/// What can't be read as a document is a web page, unless it is clearly a damaged document, or a feed.
fn page(
    uri: &Url,
    mut document: FetchedDocument,
    error: ReadError,
) -> Result<DocumentRole, DiscoveryError> {
    let text = document
        .text(MAX_PAGE)
        .map_err(|error| DiscoveryError::fetching(uri, error))?;
    let mut links = links_of(document.links(), "resourcesync");
    let is_feed = matches!(error, ReadError::Feed(_));
    if links.is_empty() && (is_feed || text.contains("<urlset") || text.contains("<sitemapindex")) {
        return Err(DiscoveryError::reading(uri, error, document.redaction()));
    }
    links.extend(links_of_page(&text, document.url()));
    let what = advice_on(&error).map(|advice| {
        let error = error.map_text(|text| document.redaction().redact(text));
        format!("{error}; {advice}")
    });
    Ok(DocumentRole::Page {
        what,
        links,
        sitemaps: sitemaps_of_page(&text, document.url()),
    })
}

/// What to do about something that is no document at all.
fn advice_on(error: &ReadError) -> Option<&'static str> {
    match error {
        ReadError::HtmlPage(_) => Some(
            "a login page or an error page may be in the way: check `url`, `sets` and [source.auth]",
        ),
        ReadError::Json => Some("it may be the answer of an API: check `url` and `sets`"),
        ReadError::Empty => Some("check `url` and `sets`, or ask the operator of the Source"),
        _ => None,
    }
}

fn read(uri: &Url, document: &mut FetchedDocument) -> Result<DocumentRole, ReadError> {
    let links_up = links_of(document.links(), "up");
    let resourcesync_links = links_of(document.links(), "resourcesync");
    let mut reader = document.reader()?;
    let mut entries = Vec::new();
    let mut is_cut = false;
    // Other documents may be very long, and only their head is needed.
    let is_short = |head: &Head| {
        matches!(
            head.md.capability,
            None | Some(Capability::Description | Capability::CapabilityList)
        )
    };
    if is_short(reader.head()) {
        let mut left = MAX_ENTRY_BYTES;
        while let Some(mut entry) = reader.next_entry()? {
            entry.links.retain(is_used);
            let uris = entry.links.iter().map(|link| &link.href);
            let bytes: usize = uris.chain([&entry.loc]).map(bytes_of).sum();
            let fits = left.checked_sub(bytes);
            let Some(rest) = fits.filter(|_| entries.len() < MAX_ENTRIES) else {
                is_cut = true;
                break;
            };
            left = rest;
            entries.push(entry);
        }
    }
    let head = reader.head().clone();
    let all_state_changes = (!entries.is_empty()).then(|| entries.iter().all(Entry::states_change));
    let mut oddities = reader.oddities().clone();
    // It is counted once, at the end of a document.
    if is_cut && reader.is_draft() && oddities.count(Oddity::Draft01) == 0 {
        oddities.add(Oddity::Draft01);
    }
    // A plain sitemap may be as long as it is.
    if is_cut && head.md.capability.is_some() {
        oddities.add(Oddity::TooManyOffers);
    }
    drop(reader);

    let capability = head
        .md
        .capability
        .clone()
        .or_else(|| capability_of_entries(&head, &entries));
    match capability {
        Some(Capability::Description) => Ok(description(&head, &entries, oddities)),
        Some(Capability::CapabilityList) => Ok(DocumentRole::Set(Box::new(CapabilityList {
            uri: uri.clone(),
            description: web_links(&head.links, "up").next().cloned(),
            is_plain_sitemap: false,
            capabilities: offers(&head, &entries, &mut oddities),
            unsupported_channels: unsupported_channels(&entries),
            described_by: describing(&head.links),
            oddities,
            validators: document.validators().clone(),
            digest: *document.digest(),
        }))),
        capability => {
            let uris = [uri, document.url()];
            let evidence = if capability == head.md.capability {
                head.change_set_evidence(&uris, all_state_changes)
            } else {
                ChangeSetEvidence::None
            };
            let is_certain = evidence == ChangeSetEvidence::Certain;
            let capability = capability.or(is_certain.then_some(Capability::ChangeList));
            let change_sets = match evidence {
                ChangeSetEvidence::None => Vec::new(),
                _ => change_sets_of(&uris, &head, is_certain),
            };
            let up = web_links(&head.links, "up").cloned().chain(links_up);
            let up: Vec<Url> = up.collect();
            let index = web_links(&head.links, "index").cloned();
            let index = index.chain(resourcesync_links).collect();
            let mut guesses = Vec::new();
            let is_draft = head.names_offers() || head.md.modified.is_some();
            let may_list = capability.is_none() && up.is_empty() && !is_draft;
            if may_list && entries.len() <= MAX_GUESSES {
                // Some sites have a plain sitemap as Source Description: its entries may be Capability Lists. What expires is none.
                let entries = entries.into_iter().filter(|it| it.expires.is_none());
                guesses.extend(entries.map(|entry| entry.loc).filter(is_web));
            }
            let is_list = matches!(capability, None | Some(Capability::ResourceList));
            let standalone = is_list.then(|| {
                let list = CapabilityList::implied(uri, document, &head, oddities.clone());
                Box::new(list)
            });
            Ok(DocumentRole::SetDocument {
                capability,
                up,
                index,
                guesses,
                standalone,
                change_sets,
                oddities,
            })
        }
    }
}

/// The Change Sets of which the Sitemap of a Change Set names one: the current one, or else the latest of those that are historical.
fn change_sets_of(uris: &[&Url], head: &Head, is_certain: bool) -> Vec<Url> {
    let others = [head.current_change_set(), head.previous_change_set()];
    // A Sitemap names the current one as well.
    let others = others.into_iter().flatten().filter(|_| is_certain);
    uris.iter().copied().chain(others).cloned().collect()
}

/// The capability of a document that states none, derived from those of its entries.
fn capability_of_entries(head: &Head, entries: &[Entry]) -> Option<Capability> {
    let mut named = entries
        .iter()
        .filter_map(|entry| entry.md.capability.as_ref());
    let first = named.next()?;
    let alike = named.clone().count() > 0 && named.all(|other| other == first);
    match first {
        Capability::Description | Capability::CapabilityList => Some(Capability::Description),
        // Several documents of one kind are the parts of an index of that kind.
        part if alike || head.root == Root::Sitemapindex => Some(part.clone()),
        _ => Some(Capability::CapabilityList),
    }
}

fn description(head: &Head, entries: &[Entry], mut oddities: Oddities) -> DocumentRole {
    let mut lists = Vec::new();
    let mut channels = Vec::new();
    for entry in entries.iter().filter(|entry| is_usable(entry)) {
        match &entry.md.capability {
            None | Some(Capability::CapabilityList | Capability::Description) => {
                lists.push(entry.loc.clone());
            }
            Some(capability) if capability.is_channel() => {
                if channels.len() < MAX_CHANNELS {
                    channels.push(offer_of(head, entry, capability, &mut oddities));
                } else {
                    oddities.add(Oddity::TooManyOffers);
                }
            }
            Some(_) => {}
        }
    }
    let sets_described_by = entries.iter().filter_map(|entry| {
        let described_by = describing(&entry.links);
        (!described_by.is_empty()).then(|| (entry.loc.clone(), described_by))
    });
    DocumentRole::Description(Box::new(FoundDescription {
        lists,
        channels,
        described_by: describing(&head.links),
        sets_described_by: sets_described_by.collect(),
        oddities,
    }))
}

/// The targets of `describedby` links, the first ones.
fn describing(links: &[Link]) -> Vec<Url> {
    let targets = web_links(links, "describedby");
    targets.take(MAX_DESCRIBED_BY).cloned().collect()
}

/// The channels over transports that are not supported, the first ones.
fn unsupported_channels(entries: &[Entry]) -> Vec<Offer> {
    let channels = entries.iter().filter_map(|entry| {
        let capability = entry.md.capability.clone()?;
        let is_other = capability.is_channel() && !is_usable(entry);
        is_other.then(|| Offer {
            capability,
            uri: entry.loc.clone(),
            hubs: Vec::new(),
            protocol: None,
        })
    });
    channels.take(MAX_UNSUPPORTED).collect()
}

/// Whether a link of an entry of a Capability List or a Source Description is used.
fn is_used(link: &Link) -> bool {
    let used = ["hub", "describedby"];
    used.iter().any(|rel| link.rel.eq_ignore_ascii_case(rel))
}

/// The approximate size of a URI in memory, in bytes.
pub(super) fn bytes_of(uri: &Url) -> usize {
    size_of::<Url>() + uri.as_str().len()
}

/// What a Capability List offers, within the limits: at most 256 offers with ten hubs each.
pub fn offers(head: &Head, entries: &[Entry], oddities: &mut Oddities) -> Vec<Offer> {
    let mut offers = Vec::new();
    let mut left = MAX_OFFER_BYTES;
    for entry in entries {
        match &entry.md.capability {
            // Reported as what it is.
            Some(capability) if capability.is_channel() && !is_usable(entry) => {}
            _ if !is_usable(entry) => oddities.add(Oddity::BadLoc),
            None => oddities.add(Oddity::NoCapability),
            Some(_) if offers.len() == MAX_OFFERS => oddities.add(Oddity::TooManyOffers),
            Some(capability) => {
                let offer = offer_of(head, entry, capability, oddities);
                match left.checked_sub(bytes_of_offer(&offer)) {
                    Some(rest) => {
                        left = rest;
                        offers.push(offer);
                    }
                    None => oddities.add(Oddity::TooManyOffers),
                }
            }
        }
    }
    offers
}

fn bytes_of_offer(offer: &Offer) -> usize {
    let hubs = offer.hubs.iter().map(HubUri::url);
    let uris: usize = hubs.chain([&offer.uri]).map(bytes_of).sum();
    uris + offer.protocol.as_ref().map_or(0, String::len)
}

fn offer_of(head: &Head, entry: &Entry, capability: &Capability, oddities: &mut Oddities) -> Offer {
    let mut hubs: Vec<HubUri> = Vec::new();
    let mut has_more = false;
    let mut add = |link: &Link| {
        let hub = HubUri::try_from(link.href.clone()).ok();
        let Some(hub) = hub.filter(|hub| !hubs.contains(hub)) else {
            return;
        };
        if hubs.len() < MAX_HUBS {
            hubs.push(hub);
        } else {
            has_more = true;
        }
    };
    if capability.is_channel() && is_web(&entry.loc) {
        entry.links("hub").for_each(&mut add);
        if entry.links("hub").next().is_none() {
            // Some state the hub once, for all channels.
            let links = head.links.iter();
            links
                .filter(|link| link.rel.eq_ignore_ascii_case("hub"))
                .for_each(add);
        }
    }
    if has_more {
        oddities.add(Oddity::TooManyHubs);
    }
    Offer {
        capability: capability.clone(),
        uri: entry.loc.clone(),
        hubs,
        protocol: None,
    }
}

/// Whether what an entry is for can be used: it is a document, or a channel over a transport that is supported.
fn is_usable(entry: &Entry) -> bool {
    match &entry.md.capability {
        Some(capability) if capability.is_channel() => Transport::of_uri(&entry.loc).is_some(),
        _ => is_web(&entry.loc),
    }
}

/// The targets of links.
fn web_links<'a>(links: &'a [Link], rel: &'a str) -> impl Iterator<Item = &'a Url> {
    let targets = links.iter().map(|link| (&link.rel, &link.href));
    let related = targets.filter(move |(it, _)| it.eq_ignore_ascii_case(rel));
    related.map(|(_, href)| href).filter(|href| is_web(href))
}

fn links_of(links: &[HeaderLink], rel: &str) -> Vec<Url> {
    links
        .iter()
        .filter(|link| link.rel == rel && is_web(&link.href))
        .map(|link| link.href.clone())
        .collect()
}
