//! Plans the candidates of a task: the URIs from which a representation may be fetched, and their order.
//!
//! Candidates are the duplicates and mementos that the Source links to, and the resource's own URI. A duplicate takes load off the Source,
//! so it comes first, in the order of `pri`. This holds only if its bytes can be verified against an announced length or
//! digest: otherwise an outdated duplicate would not be detected. A duplicate that can't be verified comes after the
//! resource's own URI. The caller does not use it if the Source answers that there is no such resource.
//!
//! A memento is the version that the entry announces, at a URI of its own. It comes after the resource's own URI, which may
//! serve a newer version by now.
//!
//! The original of a republished resource (`via`) is the last candidate, and only where a digest is stated: the Source may have changed
//! what it republishes.
//!
//! Invariants: the resource's own URI is always a candidate; the number of candidates is bounded.
//!
//! Must not know how a candidate is fetched, and not the members of packages.
//!
//! Specification: core, sections 14.2 (mirrored content), 14.6 (versions) and 14.8 (republishing).

use resourcesync::{ContentInfo, Link, SourceTime};

use crate::ResourceUri;

/// The relation of a duplicate.
const DUPLICATE: &str = "duplicate";
/// The relation of the announced version at its own URI.
const MEMENTO: &str = "memento";
/// The relation of the original of a republished resource.
const VIA: &str = "via";
/// The limit on originals: an aggregator states the one that is the first of a chain.
const MAX_ORIGINALS: usize = 2;
/// The relation of what serves the version of a given time.
const TIMEGATE: &str = "timegate";
/// The limit on mementos: an entry announces one version.
const MAX_MEMENTOS: usize = 2;
/// The limit on duplicates: each of them may fail only after a time-out.
const MAX_DUPLICATES: usize = 8;

/// What is announced of the bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// Their length and digests.
    pub content: ContentInfo,
    /// The content codings of the representation.
    pub encoding: Option<String>,
    /// When they were last modified: an older representation is another version.
    pub modified: Option<SourceTime>,
}

impl Expected {
    /// What is expected of the target of a link; `None` if the link contradicts the entry.
    fn of_target(&self, link: &Link) -> Option<Self> {
        let lengths_differ = matches!((self.content.length, link.content.length), (Some(own), Some(other)) if own != other);
        let mut hashes = self.content.hashes.clone();
        for hash in &link.content.hashes {
            let announced = hashes
                .iter()
                .find(|announced| announced.algorithm() == hash.algorithm());
            match announced {
                Some(announced) if announced != hash => return None,
                Some(_) => {}
                None => hashes.push(hash.clone()),
            }
        }
        (!lengths_differ).then(|| Self {
            content: ContentInfo {
                length: self.content.length.or(link.content.length),
                media_type: self.content.media_type.clone(),
                hashes,
            },
            encoding: link.encoding.clone().or_else(|| self.encoding.clone()),
            modified: link.modified.or(self.modified),
        })
    }
}

/// A URI from which a representation may be fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The URI to fetch.
    pub uri: ResourceUri,
    /// Whether it is the resource's own URI.
    pub is_own: bool,
    /// What is announced of its bytes.
    pub expected: Expected,
}

/// Returns the candidates of a resource in the order in which to try them. Ignored are duplicates that are neither http nor
/// https, and those whose links contradict the entry.
#[must_use]
pub fn plan_candidates(uri: &ResourceUri, expected: &Expected, links: &[Link]) -> Vec<Candidate> {
    let duplicates = targets(uri, expected, links, DUPLICATE, MAX_DUPLICATES);
    let (mut candidates, unverifiable): (Vec<Candidate>, Vec<Candidate>) = duplicates
        .into_iter()
        .partition(|duplicate| duplicate.expected.content.is_verifiable());
    candidates.push(Candidate {
        uri: uri.clone(),
        is_own: true,
        expected: expected.clone(),
    });
    // Without a length or a digest, nothing shows that the URI serves another version than a memento.
    let mementos = targets(uri, expected, links, MEMENTO, MAX_MEMENTOS).into_iter();
    let mementos = mementos.filter(|memento| memento.expected.content.is_verifiable());
    // What is as long may still be another representation.
    let originals = targets(uri, expected, links, VIA, MAX_ORIGINALS).into_iter();
    let originals = originals.filter(|original| !original.expected.content.hashes.is_empty());
    for candidate in mementos.chain(unverifiable).chain(originals) {
        if candidates
            .iter()
            .all(|known| known.uri.url() != candidate.uri.url())
        {
            candidates.push(candidate);
        }
    }
    candidates
}

/// Where a version can be fetched that a Source has announced, beside the resource's own URI, which may serve another one by now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VersionPlaces {
    /// The version itself, at URIs of its own.
    pub mementos: Vec<Candidate>,
    /// What serves the version of a given time.
    pub timegate: Option<ResourceUri>,
}

/// The places of an announced version. Ignored are those that are neither http nor https, and mementos whose links contradict the entry.
#[must_use]
pub fn plan_version(uri: &ResourceUri, expected: &Expected, links: &[Link]) -> VersionPlaces {
    let timegates = targets(uri, &Expected::default(), links, TIMEGATE, 1);
    VersionPlaces {
        mementos: targets(uri, expected, links, MEMENTO, MAX_MEMENTOS),
        timegate: timegates.into_iter().next().map(|timegate| timegate.uri),
    }
}

/// Whether a link names a place of the version that its entry announces.
#[must_use]
pub fn names_version(link: &Link) -> bool {
    link.is(MEMENTO) || link.is(TIMEGATE)
}

/// The first targets of the links of a relation, by priority.
fn targets(
    uri: &ResourceUri,
    expected: &Expected,
    links: &[Link],
    rel: &str,
    most: usize,
) -> Vec<Candidate> {
    let mut related: Vec<&Link> = links
        .iter()
        .filter(|link| link.rel.eq_ignore_ascii_case(rel))
        .collect();
    related.sort_by_key(|link| link.pri.unwrap_or(u32::MAX));
    let mut targets: Vec<Candidate> = Vec::new();
    for link in related {
        if targets.len() == most {
            break;
        }
        let Ok(target) = ResourceUri::try_from(link.href.clone()) else {
            continue;
        };
        // Another spelling of its URI is another place.
        let is_known = |known: &ResourceUri| known.url() == target.url();
        if is_known(uri) || targets.iter().any(|known| is_known(&known.uri)) {
            continue;
        }
        targets.extend(expected.of_target(link).map(|expected| Candidate {
            uri: target,
            is_own: false,
            expected,
        }));
    }
    targets
}

#[cfg(test)]
mod tests {
    use resourcesync::{Algorithm, Digest};
    use url::Url;

    use super::*;

    const OWN: &str = "http://example.com/res1";

    fn duplicate(href: &str, pri: Option<u32>) -> Link {
        Link {
            pri,
            ..Link::new("duplicate", Url::parse(href).unwrap())
        }
    }

    fn digest(content: &str) -> Digest {
        Digest::of(Algorithm::Sha256, content.as_bytes())
    }

    fn verifiable() -> Expected {
        Expected {
            content: ContentInfo {
                length: Some(7),
                media_type: None,
                hashes: vec![digest("content")],
            },
            encoding: None,
            modified: None,
        }
    }

    fn check(expected: &Expected, links: &[Link], order: &[&str]) {
        let uri = ResourceUri::parse(OWN).unwrap();
        let candidates = plan_candidates(&uri, expected, links);
        let uris: Vec<&str> = candidates.iter().map(|it| it.uri.as_str()).collect();
        assert_eq!(uris, order);
        let own: Vec<bool> = candidates.iter().map(|it| it.is_own).collect();
        assert_eq!(own, order.iter().map(|&uri| uri == OWN).collect::<Vec<_>>());
    }

    #[test]
    fn duplicates_come_in_the_order_of_their_priority_and_the_own_uri_last() {
        let links = [
            duplicate("http://third.example.com/res1", None),
            duplicate("http://second.example.com/res1", Some(2)),
            Link::new(
                "alternate",
                Url::parse("http://example.com/res1.html").unwrap(),
            ),
            duplicate("http://first.example.com/res1", Some(1)),
            duplicate("http://fourth.example.com/res1", None),
        ];
        check(
            &verifiable(),
            &links,
            &[
                "http://first.example.com/res1",
                "http://second.example.com/res1",
                "http://third.example.com/res1",
                "http://fourth.example.com/res1",
                OWN,
            ],
        );
        check(&verifiable(), &[], &[OWN]);
    }

    #[test]
    fn mementos_come_after_the_own_uri() {
        let memento = |href: &str| Link::new("Memento", Url::parse(href).unwrap());
        let links = [
            memento("http://example.com/1/res1"),
            duplicate("http://b.example.com/res1", None),
            memento("ftp://example.com/1/res1"),
            memento(OWN),
            memento("http://example.com/2/res1"),
            memento("http://example.com/3/res1"),
        ];
        let mementos = ["http://example.com/1/res1", "http://example.com/2/res1"];
        let copy = "http://b.example.com/res1";
        check(
            &verifiable(),
            &links,
            &[copy, OWN, mementos[0], mementos[1]],
        );
        // Nothing shows that the URI serves another version.
        check(&Expected::default(), &links, &[OWN, copy]);
    }

    #[test]
    fn original_is_the_last_candidate_and_only_with_a_digest() {
        let via = |href: &str| Link::new("Via", Url::parse(href).unwrap());
        let (copy, version) = ("http://b.example.com/res1", "http://example.com/1/res1");
        let links = [
            via("http://original.example.com/res1"),
            via("http://b.example.com/res1"),
            via("http://third.example.com/res1"),
            Link::new("memento", Url::parse(version).unwrap()),
            duplicate(copy, None),
        ];
        let originals = ["http://original.example.com/res1", copy];
        check(&verifiable(), &links, &[copy, OWN, version, originals[0]]);
        // Nothing but a length: it may be another representation.
        let mut short = verifiable();
        short.content.hashes.clear();
        check(&short, &links, &[copy, OWN, version]);
        check(&Expected::default(), &links, &[OWN, copy]);
        // The link itself may state the digest, and must not contradict the entry.
        let mut stating = via(originals[0]);
        stating.content.hashes = vec![digest("content")];
        let links = std::slice::from_ref(&stating);
        check(&Expected::default(), links, &[OWN, originals[0]]);
        let mut other = stating.clone();
        other.content.hashes = vec![digest("other")];
        check(&verifiable(), &[other], &[OWN]);
    }

    #[test]
    fn duplicates_of_other_schemes_and_repeated_ones_are_ignored() {
        let links = [
            duplicate("gsiftp://gridftp.example.com/res1", Some(1)),
            duplicate("ftp://example.com/res1", Some(2)),
            duplicate("magnet:?xt=urn:btih:1", Some(2)),
            duplicate(OWN, Some(3)),
            duplicate("http://b.example.com/res1", Some(4)),
            duplicate("http://b.example.com/res1#part", Some(5)),
        ];
        check(&verifiable(), &links, &["http://b.example.com/res1", OWN]);
    }

    #[test]
    fn duplicates_that_cannot_be_verified_come_after_the_own_uri() {
        let link = duplicate("http://b.example.com/res1", None);
        let links = std::slice::from_ref(&link);
        check(
            &Expected::default(),
            links,
            &[OWN, "http://b.example.com/res1"],
        );
        for content in [
            ContentInfo {
                length: Some(7),
                ..ContentInfo::default()
            },
            ContentInfo {
                hashes: vec![digest("content")],
                ..ContentInfo::default()
            },
        ] {
            let verifiable = Expected {
                content,
                encoding: None,
                modified: None,
            };
            check(&verifiable, links, &["http://b.example.com/res1", OWN]);
        }
        let mut verifiable = link.clone();
        verifiable.content.hashes = vec![digest("content")];
        check(
            &Expected::default(),
            &[
                link,
                duplicate("http://c.example.com/res1", None),
                Link {
                    href: Url::parse("http://d.example.com/").unwrap(),
                    ..verifiable
                },
            ],
            &[
                "http://d.example.com/",
                OWN,
                "http://b.example.com/res1",
                "http://c.example.com/res1",
            ],
        );
    }

    #[test]
    fn duplicates_that_contradict_the_entry_are_ignored() {
        let base = duplicate("http://b.example.com/res1", None);
        let mut other_length = base.clone();
        other_length.content.length = Some(8);
        let mut other_digest = base.clone();
        other_digest.content.hashes = vec![digest("other")];
        check(&verifiable(), &[other_length, other_digest], &[OWN]);
        let md5 = Digest::of(Algorithm::Md5, b"content");
        let uri = ResourceUri::parse(OWN).unwrap();
        let mut more = base;
        more.content.hashes = vec![digest("content"), md5.clone()];
        let candidates = plan_candidates(&uri, &verifiable(), &[more]);
        assert_eq!(
            candidates[0].expected.content.hashes,
            [digest("content"), md5]
        );
        assert_eq!(candidates[1].expected, verifiable());
    }

    #[test]
    fn number_of_duplicates_is_limited() {
        let links: Vec<Link> = (0..1000)
            .map(|n| duplicate(&format!("http://m{n}.example.com/"), None))
            .collect();
        let uri = ResourceUri::parse(OWN).unwrap();
        let candidates = plan_candidates(&uri, &verifiable(), &links);
        assert_eq!(candidates.len(), MAX_DUPLICATES + 1);
        assert!(candidates[MAX_DUPLICATES].is_own);
    }

    #[test]
    fn mementos_of_an_entry_are_bounded() {
        let uri = ResourceUri::parse(OWN).unwrap();
        let links = (0..5000).flat_map(|number| {
            let href = |kind: &str| Url::parse(&format!("http://a.example/{kind}/{number}"));
            [
                Link::new("memento", href("memento").unwrap()),
                Link::new("timegate", href("timegate").unwrap()),
            ]
        });
        let links: Vec<Link> = links.collect();
        let places = plan_version(&uri, &verifiable(), &links);
        assert_eq!(places.mementos.len(), MAX_MEMENTOS);
        let timegate = places.timegate.unwrap();
        assert_eq!(timegate.as_str(), "http://a.example/timegate/0");
    }

    #[test]
    fn mementos_that_contradict_the_entry_are_no_places_of_a_version() {
        let uri = ResourceUri::parse(OWN).unwrap();
        let place = |rel: &str, href: &str| Link::new(rel, Url::parse(href).unwrap());
        let mut other = place("memento", "http://a.example/1");
        other.content.hashes = vec![digest("other")];
        let links = [
            other,
            place("memento", "ftp://a.example/2"),
            place("memento", OWN),
            place("timegate", "urn:x:1"),
            place("original", "http://a.example/3"),
        ];
        let places = plan_version(&uri, &verifiable(), &links);
        assert_eq!(places, VersionPlaces::default());
        assert!(links.iter().filter(|link| names_version(link)).count() == 4);
    }
}
