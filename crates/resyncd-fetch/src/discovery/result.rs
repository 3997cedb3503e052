//! The result of a discovery.

use std::collections::HashMap;

use resourcesync::{Oddities, Oddity};
use resyncd_core::Offer;
use url::Url;

use super::error::DiscoveryError;
use crate::CapabilityList;

/// What a Source offers.
#[derive(Clone, Debug, Default)]
pub struct Discovery {
    /// The Source Description, if one is known.
    pub description: Option<Url>,
    /// The channels for framework notifications that the Source Descriptions offer.
    pub channels: Vec<Offer>,
    /// Its sets of resources, in the order of the Source Descriptions.
    pub sets: Vec<CapabilityList>,
    /// The oddities of the documents above the sets that were read, of the first 50; they may be empty.
    pub oddities: Vec<(Url, Oddities)>,
    /// The documents that describe the Source.
    pub described_by: Vec<Url>,
    /// The documents that describe a set, as the Source Descriptions state.
    pub sets_described_by: HashMap<Url, Vec<Url>>,
    /// The documents that links lead to and that do not exist, while others led to the sets.
    pub dead_links: Vec<(Url, DiscoveryError)>,
    /// The Capability Lists that are listed but can't be fetched or read.
    pub failed: Vec<(Url, DiscoveryError)>,
    /// Why some of what is listed was not read: there is too much of it.
    pub left_out: Option<DiscoveryError>,
    /// Whether a document above the sets is damaged, or too long: it may have named others.
    pub is_uncertain: bool,
    /// The entry point itself led to nothing, and something else did.
    pub replaced_entry: Option<ReplacedEntry>,
    /// The Capability Lists that are listed and were not fetched because they are followed already.
    pub followed: Vec<Url>,
}

/// An entry point that leads to nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{entry} leads to nothing ({answer}); found instead through {through}")]
pub struct ReplacedEntry {
    /// The entry point.
    pub entry: Url,
    /// What it answers, for a person.
    pub answer: String,
    /// Where the search that led to the sets began.
    pub through: Url,
}

impl ReplacedEntry {
    /// The stable name of the notice.
    pub const CODE: &'static str = "entry-replaced";
}

/// Of how many documents above the sets the oddities are recorded.
const MAX_ODD_DOCUMENTS: usize = 50;

impl Discovery {
    /// Records the oddities of a document above the sets.
    pub(super) fn note_oddities(&mut self, uri: Url, oddities: Oddities) {
        let cut = [Oddity::TooManyOffers, Oddity::DamagedEnd];
        let is_cut = cut.iter().any(|&oddity| oddities.count(oddity) > 0);
        self.is_uncertain |= is_cut || oddities.damaged_entries() > 0;
        if self.oddities.len() < MAX_ODD_DOCUMENTS {
            self.oddities.push((uri, oddities));
        }
    }

    /// Records that there is more than is read.
    pub(super) fn leave_out(&mut self, error: DiscoveryError) {
        self.is_uncertain = true;
        self.left_out.get_or_insert(error);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sets.is_empty() && self.failed.is_empty() && self.followed.is_empty()
    }

    /// Whether the site has no ResourceSync documents: its sets are standalone sitemaps.
    pub fn is_implied(&self) -> bool {
        !self.sets.is_empty() && self.sets.iter().all(CapabilityList::is_implied)
    }
}
