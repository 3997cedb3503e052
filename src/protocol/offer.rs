//! What a Capability List or a Source Description offers (sections 8 and 9).

use url::Url;

use super::{Capability, HubUri};

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

    /// Whether a set with these offers has no Capability List: what stands at the URI of its Capability List is its only
    /// list.
    #[must_use]
    pub fn is_implied(offers: &[Self], capability_list: &Url) -> bool {
        matches!(offers, [only]
            if only.capability == Capability::ResourceList && only.uri == *capability_list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_implied_if_its_only_offer_stands_at_its_own_uri() {
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
        check(
            &[Offer {
                capability: Capability::ChangeList,
                ..implied
            }],
            false,
        );
    }
}
