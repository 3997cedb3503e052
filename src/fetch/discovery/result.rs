//! The result of a discovery.

use std::collections::HashMap;

use url::Url;

use super::error::DiscoveryError;
use crate::fetch::CapabilityList;
use crate::protocol::{Oddities, Offer};

/// What a Source offers.
#[derive(Clone, Debug, Default)]
pub struct Discovery {
    /// The Source Description, if one is known.
    pub description: Option<Url>,
    /// The channels for framework notifications that the Source Descriptions offer.
    pub channels: Vec<Offer>,
    /// Its sets of resources, in the order of the Source Descriptions.
    pub sets: Vec<CapabilityList>,
    /// The oddities of each document above the sets that was read; they may be empty.
    pub oddities: Vec<(Url, Oddities)>,
    /// The documents that describe the Source.
    pub described_by: Vec<Url>,
    /// The documents that describe a set, as the Source Descriptions state.
    pub sets_described_by: HashMap<Url, Vec<Url>>,
    /// The documents that links lead to and that do not exist, while others led to the sets.
    pub dead_links: Vec<(Url, DiscoveryError)>,
    /// The Capability Lists that are listed but can't be fetched or read.
    pub failed: Vec<(Url, DiscoveryError)>,
    /// The Capability Lists that are listed and were not fetched because they are followed already.
    pub followed: Vec<Url>,
}

impl Discovery {
    pub(super) fn is_empty(&self) -> bool {
        self.sets.is_empty() && self.failed.is_empty() && self.followed.is_empty()
    }

    /// Whether the site has no ResourceSync documents: its sets are standalone sitemaps.
    pub fn is_implied(&self) -> bool {
        !self.sets.is_empty() && self.sets.iter().all(CapabilityList::is_implied)
    }
}
