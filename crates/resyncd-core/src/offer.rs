//! What a Capability List or a Source Description offers (sections 8 and 9), or a Sitemap that stands for one.

use resourcesync::uri::is_web;
use resourcesync::{Capability, Head, Root};
use url::Url;

use crate::{HubUri, Transport};

/// The maximum number of documents and channels that a set offers.
pub const MAX_OFFERS: usize = 256;

/// The maximum number of hubs of a channel.
pub const MAX_HUBS: usize = 10;

/// A document or a channel that is offered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// What it is for.
    pub capability: Capability,
    /// The URI of the document: http or https; or that of the channel: the topic, or over what [`Transport`] it comes.
    pub uri: Url,
    /// The hubs of a channel, by priority, at most [`MAX_HUBS`].
    pub hubs: Vec<HubUri>,
    /// The URI of the protocol of the interface at which a callback is registered (version 0.1, section 5.2.2); `None`: it is none.
    pub protocol: Option<String>,
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
            protocol: None,
        }
    }

    /// Over what the notifications of a channel come; `None`: that is not supported.
    #[must_use]
    pub fn transport(&self) -> Option<Transport> {
        match self.protocol {
            Some(_) => Some(Transport::Callback),
            None => Transport::of_uri(&self.uri),
        }
    }

    /// What the Sitemap of a set without a Capability List offers: itself and, if it is of version 0.1, the current Change Set, the
    /// dumps and the interfaces of pushing that this head of it names.
    #[must_use]
    pub fn of_sitemap(sitemap: &Url, head: &Head) -> Vec<Self> {
        let others = Self::named_in(sitemap, head);
        [Self::implied(sitemap)].into_iter().chain(others).collect()
    }

    /// What the Sitemap of a set without a Capability List offers, once its head, or that of the part at `naming`, was read as well as
    /// what these offers state.
    ///
    /// A part that names any is among the offers, before them: it stands for the Capability List. One document names the Change Set and
    /// the dumps: this one, and no longer another, if it `names_documents`. Each may name interfaces.
    #[must_use]
    pub fn with_names_of(
        offers: &[Self],
        sitemap: &Url,
        naming: &Url,
        head: &Head,
        names_documents: bool,
    ) -> Vec<Self> {
        let is_whole = naming == sitemap && head.root == Root::Urlset;
        let known: &[Self] = if is_whole { &[] } else { offers };
        let mut documents = documents_of(known, sitemap);
        let mut named = Self::named_in(sitemap, head);
        if names_documents && named.iter().any(Self::is_named_document) {
            for other in &mut documents {
                other.named.retain(|offer| !offer.is_named_document());
            }
        }
        let place = documents.iter().position(|it| it.naming == *naming);
        let mut own = match place {
            Some(place) => std::mem::take(&mut documents[place].named),
            None => Vec::new(),
        };
        if !names_documents {
            own.retain(Self::is_named_document);
            named.retain(|offer| !offer.is_named_document());
            own.append(&mut named);
            named = own;
        }
        match place {
            Some(place) => documents[place].named = named,
            None => documents.push(NamingDocument {
                naming: naming.clone(),
                named,
            }),
        }
        let mut offers = vec![Self::implied(sitemap)];
        // Interfaces must not displace what proves something.
        documents.sort_by_key(|it| !it.named.iter().any(Self::is_named_document));
        let (whole, parts): (Vec<_>, Vec<_>) =
            documents.into_iter().partition(|it| it.naming == *sitemap);
        offers.extend(whole.into_iter().flat_map(|it| it.named));
        for part in parts.into_iter().filter(|it| !it.named.is_empty()) {
            offers.push(Self {
                capability: Capability::CapabilityList,
                ..Self::implied(&part.naming)
            });
            offers.extend(part.named);
        }
        offers.truncate(MAX_OFFERS);
        offers
    }

    /// What the head of a Sitemap names, or that of a part.
    fn named_in(sitemap: &Url, head: &Head) -> Vec<Self> {
        let offer = |capability: Capability, uri: &Url| Self {
            capability,
            uri: uri.clone(),
            hubs: Vec::new(),
            protocol: None,
        };
        let change_set = head
            .current_change_set()
            .or_else(|| head.previous_change_set());
        let change_sets = change_set.map(|uri| offer(Capability::ChangeList, uri));
        let dumps = head.dumps().map(|uri| offer(Capability::ResourceDump, uri));
        let others = change_sets
            .into_iter()
            .chain(dumps)
            .filter(|offer| is_web(&offer.uri));
        let nodes = head
            .nodes()
            .map(|uri| offer(Capability::ChangeNotification, &uri));
        let callbacks = head.web_interfaces().map(|interface| Self {
            protocol: Some(interface.protocol.clone()),
            ..offer(Capability::ChangeNotification, &interface.href)
        });
        let others = others.chain(nodes).chain(callbacks);
        others.filter(|offer| offer.uri != *sitemap).collect()
    }

    /// The document of a set without a Capability List whose head names the Change Set and the dumps among these offers: the Sitemap, or
    /// a part of it.
    pub fn naming<'a>(offers: &'a [Self], sitemap: &'a Url) -> &'a Url {
        let mut naming = sitemap;
        for offer in offers.iter().skip(1) {
            if offer.capability == Capability::CapabilityList {
                naming = &offer.uri;
            } else if offer.is_named_document() {
                return naming;
            }
        }
        sitemap
    }

    /// Whether it is a document that the head of a Sitemap names: a Change Set or a dump.
    #[must_use]
    pub fn is_named_document(&self) -> bool {
        matches!(
            self.capability,
            Capability::ChangeList | Capability::ResourceDump
        )
    }

    /// Whether a set with these offers has no Capability List: what stands at the URI of its Capability List is its Resource List,
    /// and names the others.
    #[must_use]
    pub fn is_implied(offers: &[Self], capability_list: &Url) -> bool {
        let Some((first, others)) = offers.split_first() else {
            return false;
        };
        let is_own = first.capability == Capability::ResourceList && first.uri == *capability_list;
        let is_named_by_sitemap = |offer: &Self| match offer.capability {
            Capability::ChangeList | Capability::ResourceDump | Capability::CapabilityList => true,
            Capability::ChangeNotification => {
                let transport = offer.transport();
                transport.is_some_and(Transport::is_named_by_sitemaps)
            }
            _ => false,
        };
        is_own && others.iter().all(is_named_by_sitemap)
    }
}

/// A Sitemap or a part of it, and what its head names.
struct NamingDocument {
    naming: Url,
    named: Vec<Offer>,
}

/// The documents whose heads name these offers: the Sitemap is the first one.
fn documents_of(offers: &[Offer], sitemap: &Url) -> Vec<NamingDocument> {
    let mut current = NamingDocument {
        naming: sitemap.clone(),
        named: Vec::new(),
    };
    let mut documents = Vec::new();
    for offer in offers.iter().skip(1) {
        if offer.capability == Capability::CapabilityList {
            let next = NamingDocument {
                naming: offer.uri.clone(),
                named: Vec::new(),
            };
            documents.push(std::mem::replace(&mut current, next));
        } else {
            current.named.push(offer.clone());
        }
    }
    documents.push(current);
    documents
}

#[cfg(test)]
mod tests {
    use resourcesync::Link;
    use resourcesync::draft::PushInterface;

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

    #[test]
    fn interfaces_over_http_are_offered_with_their_protocol() {
        let sitemap = Url::parse("http://example.com/sitemap.xml").unwrap();
        let mut head = Head::new(Root::Urlset, Capability::ResourceList);
        for (href, protocol) in [
            ("xmpp:pubsub.example.com", "http://xmpp.example/"),
            (
                "http://example.com/subscribe",
                "http://example.com/callback",
            ),
        ] {
            head.interfaces.push(PushInterface {
                protocol: protocol.to_owned(),
                href: Url::parse(href).unwrap(),
                node: None,
            });
        }
        assert!(head.names_offers());
        let offers = Offer::of_sitemap(&sitemap, &head);
        assert_eq!(offers[0], Offer::implied(&sitemap));
        let transports: Vec<_> = offers[1..].iter().map(Offer::transport).collect();
        assert_eq!(transports, [Some(Transport::Callback)]);
        let protocol = offers[1].protocol.as_deref();
        assert_eq!(protocol, Some("http://example.com/callback"));
        assert!(Offer::is_implied(&offers, &sitemap));
        // One that is a topic is a channel of a Capability List.
        let topic = Offer {
            protocol: None,
            ..offers[1].clone()
        };
        assert_eq!(topic.transport(), Some(Transport::Websub));
        assert!(!Offer::is_implied(&[offers[0].clone(), topic], &sitemap));
    }

    #[test]
    fn part_that_names_the_change_set_is_among_the_offers() {
        let url = |path: &str| {
            let base = Url::parse("http://example.com").unwrap();
            base.join(path).unwrap()
        };
        let sitemap = url("/sitemap.xml");
        let mut head = Head::new(Root::Urlset, Capability::ResourceList);
        let first = [Offer::implied(&sitemap)];
        let name = |naming: &str, head: &Head| {
            Offer::with_names_of(&first, &sitemap, &url(naming), head, true)
        };
        assert_eq!(name("/1.xml", &head), first);
        let rel = "current http://www.openarchives.org/rs/changeset";
        head.links.push(Link::new(rel, url("/set.xml")));
        for (naming, count) in [("/sitemap.xml", 2), ("/1.xml", 3)] {
            let offers = name(naming, &head);
            assert_eq!(offers.len(), count, "{naming}");
            assert!(Offer::is_implied(&offers, &sitemap), "{naming}");
            assert_eq!(*Offer::naming(&offers, &sitemap), url(naming));
        }
    }

    #[test]
    fn interfaces_of_several_parts_are_offered_beside_the_change_set_of_one() {
        let url = |path: &str| {
            let base = Url::parse("http://example.com").unwrap();
            base.join(path).unwrap()
        };
        let sitemap = url("/sitemap.xml");
        let head_of = |change_set: Option<&str>, interface: Option<&str>| {
            let mut head = Head::new(Root::Sitemapindex, Capability::ResourceList);
            let rel = "current http://www.openarchives.org/rs/changeset";
            head.links = change_set
                .map(|set| Link::new(rel, url(set)))
                .into_iter()
                .collect();
            head.interfaces.extend(interface.map(|href| PushInterface {
                protocol: "http://example.com/callback".to_owned(),
                href: url(href),
                node: None,
            }));
            head
        };
        let mut offers = Offer::of_sitemap(&sitemap, &head_of(None, Some("/i0")));
        for (naming, head, names_documents, expected, named_by) in [
            (
                "/1.xml",
                head_of(None, Some("/i1")),
                false,
                "/i0 [/1.xml] /i1",
                "/sitemap.xml",
            ),
            (
                "/2.xml",
                head_of(Some("/c2"), None),
                true,
                "/i0 [/2.xml] /c2 [/1.xml] /i1",
                "/2.xml",
            ),
            // A second one that names a Change Set is not the one that counts.
            (
                "/1.xml",
                head_of(Some("/c1"), Some("/i3")),
                false,
                "/i0 [/2.xml] /c2 [/1.xml] /i3",
                "/2.xml",
            ),
            (
                "/3.xml",
                head_of(None, None),
                false,
                "/i0 [/2.xml] /c2 [/1.xml] /i3",
                "/2.xml",
            ),
            (
                "/sitemap.xml",
                head_of(None, None),
                false,
                "[/2.xml] /c2 [/1.xml] /i3",
                "/2.xml",
            ),
            (
                "/1.xml",
                head_of(Some("/c1"), None),
                true,
                "[/1.xml] /c1",
                "/1.xml",
            ),
            ("/1.xml", head_of(None, None), true, "", "/sitemap.xml"),
        ] {
            offers = Offer::with_names_of(&offers, &sitemap, &url(naming), &head, names_documents);
            let shown = offers[1..].iter().map(|offer| match offer.capability {
                Capability::CapabilityList => format!("[{}]", offer.uri.path()),
                _ => offer.uri.path().to_owned(),
            });
            assert_eq!(shown.collect::<Vec<_>>().join(" "), expected, "{naming}");
            assert!(Offer::is_implied(&offers, &sitemap), "{naming}");
            assert_eq!(*Offer::naming(&offers, &sitemap), url(named_by), "{naming}");
        }
        // One that is no index has no parts.
        let offers = Offer::with_names_of(
            &offers,
            &sitemap,
            &url("/1.xml"),
            &head_of(Some("/c1"), None),
            true,
        );
        let mut head = head_of(None, Some("/i0"));
        head.root = Root::Urlset;
        let whole = Offer::with_names_of(&offers, &sitemap, &sitemap, &head, true);
        assert_eq!(whole, Offer::of_sitemap(&sitemap, &head));
    }
}
