//! Looks at one document on the way of discovery: what it is, and where it leads (sections 8 and 9).

use url::Url;

use super::web_page::links_of_page;
use super::{Client, DiscoveryError, Fetched, FetchedDocument};
use crate::protocol::{
    Capability, Entry, Head, HubUri, Link, Oddities, Oddity, Offer, ReadError, Root, Validators,
};

/// More entries than this are not read of a Source Description or Capability List.
const MOST_ENTRIES: usize = 20_000;

/// A sitemap that says nothing of itself may be a Source Description if it is no longer than this.
const MOST_GUESSES: usize = 20;

/// How much of a page or robots.txt is searched for links, in bytes.
const MOST_PAGE: u64 = 512 << 10;

/// A Capability List: a set of resources, and what the Source offers for it (section 9). Where there is none, one is
/// implied by a Resource List or a plain sitemap that stands alone: see [`is_implied`](Self::is_implied).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapabilityList {
    /// Where it is, as it was asked for.
    pub uri: Url,
    /// The Source Description that it points up to.
    pub description: Option<Url>,
    /// What it advertises, in its order; the same capability may come several times.
    pub capabilities: Vec<Offer>,
    /// What was odd about it.
    pub oddities: Oddities,
    /// To ask later whether it is still the same.
    pub validators: Validators,
    /// The SHA-256 of the document.
    pub digest: [u8; 32],
}

impl CapabilityList {
    /// The set of a Resource List, or a plain sitemap, that no Capability List names: it is all that is known of it.
    fn implied(uri: &Url, document: &FetchedDocument, oddities: Oddities) -> Self {
        Self {
            uri: uri.clone(),
            description: None,
            capabilities: vec![Offer::implied(uri)],
            oddities,
            validators: document.validators().clone(),
            digest: *document.digest(),
        }
    }

    /// Whether it is no Capability List, but the only list of a set that has none.
    pub fn is_implied(&self) -> bool {
        Offer::is_implied(&self.capabilities, &self.uri)
    }
}

/// What a document turned out to be.
#[derive(Clone, Debug)]
pub(super) enum Found {
    /// It has not changed.
    NotModified,
    /// A Capability List.
    Set(Box<CapabilityList>),
    /// A Source Description, or something that may be one.
    Description {
        /// What it points at.
        lists: Vec<Url>,
        /// The channels for framework notifications.
        channels: Vec<Offer>,
        /// What was odd about it.
        oddities: Oddities,
    },
    /// A capability document of some set, or a plain sitemap.
    Member {
        capability: Option<Capability>,
        /// What it points up to.
        up: Vec<Url>,
        /// What else may lead on.
        index: Vec<Url>,
        /// The entries of a short plain sitemap: they may be Capability Lists.
        guesses: Vec<Url>,
        /// The set that it is, if nothing leads to a Capability List; only of a Resource List or a plain sitemap.
        alone: Option<Box<CapabilityList>>,
        /// What was odd about what was read of it.
        oddities: Oddities,
    },
    /// Not a document at all.
    Page {
        /// What it points at.
        links: Vec<Url>,
    },
}

impl Found {
    /// The capability that it names.
    pub(super) fn capability(self) -> Option<Capability> {
        match self {
            Self::Set(_) => Some(Capability::CapabilityList),
            Self::Description { .. } => Some(Capability::Description),
            Self::Member { capability, .. } => capability,
            Self::NotModified | Self::Page { .. } => None,
        }
    }
}

/// Fetches a document and tells what it is, and what to ask with whether it still is.
pub(super) async fn look(
    client: &Client,
    uri: &Url,
    known: Option<&Validators>,
    limit: u64,
) -> Result<(Found, Validators), DiscoveryError> {
    let fetched = client.get_document(uri, known, limit).await;
    match fetched.map_err(|error| DiscoveryError::fetching(uri, error))? {
        Fetched::NotModified => Ok((Found::NotModified, Validators::default())),
        Fetched::Document(mut document) => {
            let validators = document.validators().clone();
            let found = match read(uri, &mut document) {
                Ok(found) => found,
                Err(error) => page(uri, *document, &error)?,
            };
            Ok((found, validators))
        }
    }
}

/// Something that can't be read as a document is a web page, unless it was clearly meant to be a document.
fn page(
    uri: &Url,
    mut document: FetchedDocument,
    error: &ReadError,
) -> Result<Found, DiscoveryError> {
    let text = document
        .text(MOST_PAGE)
        .map_err(|error| DiscoveryError::fetching(uri, error))?;
    let mut links = header_links(&document, "resourcesync");
    if links.is_empty() && (text.contains("<urlset") || text.contains("<sitemapindex")) {
        return Err(DiscoveryError::reading(uri, error));
    }
    links.extend(links_of_page(&text, document.url()));
    Ok(Found::Page { links })
}

fn read(uri: &Url, document: &mut FetchedDocument) -> Result<Found, ReadError> {
    let mut links_up = header_links(document, "up");
    let mut links_on = header_links(document, "resourcesync");
    let mut reader = document.reader()?;
    let mut entries = Vec::new();
    // Other documents may be very long, and only what stands at their head matters here.
    let is_short = |head: &Head| {
        matches!(
            head.md.capability,
            None | Some(Capability::Description | Capability::CapabilityList)
        )
    };
    if is_short(reader.head()) {
        while entries.len() < MOST_ENTRIES {
            match reader.next_entry()? {
                Some(entry) => entries.push(entry),
                None => break,
            }
        }
    }
    let head = reader.head().clone();
    let mut oddities = reader.oddities().clone();
    drop(reader);

    let capability = head
        .md
        .capability
        .clone()
        .or_else(|| capability_of_entries(&head, &entries));
    match capability {
        Some(Capability::Description) => Ok(description(&head, &entries, oddities)),
        Some(Capability::CapabilityList) => Ok(Found::Set(Box::new(CapabilityList {
            uri: uri.clone(),
            description: web_links(&head, "up").into_iter().next(),
            capabilities: advertised(&head, &entries, &mut oddities),
            oddities,
            validators: document.validators().clone(),
            digest: *document.digest(),
        }))),
        capability => {
            let mut up = web_links(&head, "up");
            up.append(&mut links_up);
            let mut index = web_links(&head, "index");
            index.append(&mut links_on);
            let mut guesses = Vec::new();
            if capability.is_none() && up.is_empty() && entries.len() <= MOST_GUESSES {
                // A plain sitemap, as some sites have it for a Source Description: its entries may be Capability Lists.
                guesses.extend(entries.into_iter().map(|entry| entry.loc).filter(is_web));
            }
            let is_list = matches!(capability, None | Some(Capability::ResourceList));
            let alone =
                is_list.then(|| Box::new(CapabilityList::implied(uri, document, oddities.clone())));
            Ok(Found::Member {
                capability,
                up,
                index,
                guesses,
                alone,
                oddities,
            })
        }
    }
}

/// What a document that does not say it must be, by what its entries say of themselves.
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

fn description(head: &Head, entries: &[Entry], oddities: Oddities) -> Found {
    let mut lists = Vec::new();
    let mut channels = Vec::new();
    for entry in entries.iter().filter(|entry| is_web(&entry.loc)) {
        match &entry.md.capability {
            None | Some(Capability::CapabilityList | Capability::Description) => {
                lists.push(entry.loc.clone());
            }
            Some(capability) if is_channel(capability) => {
                channels.push(advertise(head, entry, capability));
            }
            Some(_) => {}
        }
    }
    Found::Description {
        lists,
        channels,
        oddities,
    }
}

fn advertised(head: &Head, entries: &[Entry], oddities: &mut Oddities) -> Vec<Offer> {
    let mut found = Vec::new();
    for entry in entries {
        match &entry.md.capability {
            _ if !is_web(&entry.loc) => oddities.add(Oddity::BadLoc),
            None => oddities.add(Oddity::NoCapability),
            Some(capability) => found.push(advertise(head, entry, capability)),
        }
    }
    found
}

fn advertise(head: &Head, entry: &Entry, capability: &Capability) -> Offer {
    let mut hubs: Vec<HubUri> = Vec::new();
    let mut add = |link: &Link| {
        if let Ok(hub) = HubUri::try_from(link.href.clone())
            && !hubs.contains(&hub)
        {
            hubs.push(hub);
        }
    };
    if is_channel(capability) {
        entry.links("hub").for_each(&mut add);
        if entry.links("hub").next().is_none() {
            // Some name the hub once, for all channels.
            let of_all = head.links.iter();
            of_all
                .filter(|link| link.rel.eq_ignore_ascii_case("hub"))
                .for_each(add);
        }
    }
    Offer {
        capability: capability.clone(),
        uri: entry.loc.clone(),
        hubs,
    }
}

fn is_channel(capability: &Capability) -> bool {
    matches!(
        capability,
        Capability::ChangeNotification | Capability::FrameworkNotification
    )
}

fn is_web(url: &Url) -> bool {
    matches!(url.scheme(), "http" | "https")
}

fn web_links(head: &Head, rel: &str) -> Vec<Url> {
    head.links
        .iter()
        .filter(|link| link.rel.eq_ignore_ascii_case(rel) && is_web(&link.href))
        .map(|link| link.href.clone())
        .collect()
}

fn header_links(document: &FetchedDocument, rel: &str) -> Vec<Url> {
    document
        .links()
        .iter()
        .filter(|link| link.rel == rel && is_web(&link.href))
        .map(|link| link.href.clone())
        .collect()
}
