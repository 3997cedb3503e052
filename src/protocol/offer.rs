//! What a Capability List or a Source Description offers (sections 8 and 9), or a Sitemap that stands for one.

use url::Url;

use super::{Capability, ForeignScheme, Head, HubUri};

/// The maximum number of documents and channels that a set offers.
pub const MAX_OFFERS: usize = 256;

/// The maximum number of hubs of a channel.
pub const MAX_HUBS: usize = 10;

/// A document or a channel that is offered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// What it is for.
    pub capability: Capability,
    /// The URI of the document, or the topic of the channel: http or https.
    pub uri: Url,
    /// The hubs of a channel, by priority, at most [`MAX_HUBS`].
    pub hubs: Vec<HubUri>,
}

impl Offer {
    /// The only offer of a set without a Capability List: the Resource List or plain sitemap that stands for it (section
    /// 6.3.4).
    #[must_use]
    pub fn implied(list: &Url) -> Self {
        Self {
            capability: Capability::ResourceList,
            uri: list.clone(),
            hubs: Vec::new(),
        }
    }

    /// What the Sitemap of a set without a Capability List offers: itself and, if it is of version 0.1, the current Change Set and the
    /// dumps that its head names.
    #[must_use]
    pub fn of_sitemap(sitemap: &Url, head: &Head) -> Vec<Self> {
        let offer = |capability: Capability, uri: &Url| Self {
            capability,
            uri: uri.clone(),
            hubs: Vec::new(),
        };
        let change_set = head
            .current_change_set()
            .or_else(|| head.previous_change_set());
        let change_sets = change_set.map(|uri| offer(Capability::ChangeList, uri));
        let dumps = head.dumps().map(|uri| offer(Capability::ResourceDump, uri));
        let is_web = |offer: &Self| ForeignScheme::of(&offer.uri).is_none();
        let others = change_sets.into_iter().chain(dumps).filter(is_web);
        let mut offers = vec![Self::implied(sitemap)];
        offers.extend(others.filter(|offer| offer.uri != *sitemap));
        offers
    }

    /// Whether a set with these offers has no Capability List: what stands at the URI of its Capability List is its Resource List,
    /// and names the others.
    #[must_use]
    pub fn is_implied(offers: &[Self], capability_list: &Url) -> bool {
        let Some((first, others)) = offers.split_first() else {
            return false;
        };
        let is_own = first.capability == Capability::ResourceList && first.uri == *capability_list;
        let is_named_by_sitemap = |offer: &Self| {
            matches!(
                offer.capability,
                Capability::ChangeList | Capability::ResourceDump
            )
        };
        is_own && others.iter().all(is_named_by_sitemap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_implied_if_its_first_offer_stands_at_its_own_uri() {
        let url = |path: &str| {
            Url::parse("http://example.com")
                .unwrap()
                .join(path)
                .unwrap()
        };
        let implied = Offer::implied(&url("/list"));
        let check = |offers: &[Offer], expected: bool| {
            assert_eq!(
                Offer::is_implied(offers, &url("/list")),
                expected,
                "{offers:?}"
            );
        };
        check(&[], false);
        check(std::slice::from_ref(&implied), true);
        check(&[Offer::implied(&url("/other"))], false);
        check(&[implied.clone(), implied.clone()], false);
        let changes = Offer {
            capability: Capability::ChangeList,
            ..implied.clone()
        };
        check(std::slice::from_ref(&changes), false);
        check(&[changes.clone(), implied.clone()], false);
        check(&[implied, changes], true);
    }
}
