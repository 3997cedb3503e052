//! What a Capability List or a Source Description offers (sections 8 and 9), or a Sitemap that stands for one.

use url::Url;

use super::{Capability, ForeignScheme, Head, HubUri, PushInterface};

/// The maximum number of documents and channels that a set offers.
pub const MAX_OFFERS: usize = 256;

/// The maximum number of hubs of a channel.
pub const MAX_HUBS: usize = 10;

/// A document or a channel that is offered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// What it is for.
    pub capability: Capability,
    /// The URI of the document: http or https; or that of the channel: the topic, or over what [`Transport`](super::Transport) it comes.
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
    /// dumps and the PubSub nodes that this head names, of itself or of the part at `naming`. Such a part is among the offers: it stands
    /// for the Capability List.
    #[must_use]
    pub fn of_sitemap(sitemap: &Url, naming: &Url, head: &Head) -> Vec<Self> {
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
        let nodes = head.interfaces.iter().filter_map(PushInterface::as_node);
        let nodes = nodes.map(|uri| offer(Capability::ChangeNotification, &uri));
        let others = others.filter(|offer| offer.uri != *sitemap);
        let others: Vec<_> = others.chain(nodes).collect();
        let part = offer(Capability::CapabilityList, naming);
        let part = Some(part).filter(|_| naming != sitemap && !others.is_empty());
        let mut offers = vec![Self::implied(sitemap)];
        offers.extend(part.into_iter().chain(others));
        offers
    }

    /// The document of a set without a Capability List whose head names what these offers are: the Sitemap, or a part of it.
    pub fn naming<'a>(offers: &'a [Self], sitemap: &'a Url) -> &'a Url {
        let mut offers = offers.iter();
        let part = offers.find(|offer| offer.capability == Capability::CapabilityList);
        part.map_or(sitemap, |part| &part.uri)
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
                Capability::ChangeList
                    | Capability::ResourceDump
                    | Capability::CapabilityList
                    | Capability::ChangeNotification
            )
        };
        is_own && others.iter().all(is_named_by_sitemap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Link, Root};

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

    #[test]
    fn part_that_names_the_change_set_is_among_the_offers() {
        let url = |path: &str| {
            let base = Url::parse("http://example.com").unwrap();
            base.join(path).unwrap()
        };
        let sitemap = url("/sitemap.xml");
        let mut head = Head::new(Root::Urlset, Capability::ResourceList);
        let none = Offer::of_sitemap(&sitemap, &url("/1.xml"), &head);
        assert_eq!(none, [Offer::implied(&sitemap)]);
        let rel = "current http://www.openarchives.org/rs/changeset";
        head.links.push(Link::new(rel, url("/set.xml")));
        for (naming, count) in [("/sitemap.xml", 2), ("/1.xml", 3)] {
            let offers = Offer::of_sitemap(&sitemap, &url(naming), &head);
            assert_eq!(offers.len(), count, "{naming}");
            assert!(Offer::is_implied(&offers, &sitemap), "{naming}");
            assert_eq!(*Offer::naming(&offers, &sitemap), url(naming));
        }
    }
}
