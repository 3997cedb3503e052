//! Plans the candidates of a task: the URIs from which a representation may be fetched, and their order.
//!
//! Candidates are the duplicates that the Source links to, and the resource's own URI. A duplicate takes load off the Source,
//! so it comes first, in the order of `pri`. This holds only if its bytes can be verified against an announced length or
//! digest: otherwise an outdated duplicate would not be detected. A duplicate that can't be verified comes after the
//! resource's own URI. The caller does not use it if the Source answers that there is no such resource.
//!
//! Invariants: the resource's own URI is always a candidate; the number of candidates is bounded.
//!
//! Must not know how a candidate is fetched, and not the members of packages.
//!
//! Specification: core, section 14.2 (mirrored content).

use crate::protocol::{Digest, Link, ResourceUri, SourceTime};

/// The relation of a duplicate.
const DUPLICATE: &str = "duplicate";
/// The limit on duplicates: each of them may fail only after a time-out.
const MAX_DUPLICATES: usize = 8;

/// What is announced of the bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// Their number, in bytes.
    pub length: Option<u64>,
    /// Their digests.
    pub hashes: Vec<Digest>,
    /// When they were last modified: an older representation is another version.
    pub modified: Option<SourceTime>,
}

impl Expected {
    /// Whether an announced length or digest can verify the bytes.
    pub fn is_verifiable(&self) -> bool {
        self.length.is_some() || !self.hashes.is_empty()
    }

    /// What is expected of a duplicate; `None` if its link contradicts the entry.
    fn of_duplicate(&self, link: &Link) -> Option<Self> {
        let lengths_differ =
            matches!((self.length, link.length), (Some(own), Some(other)) if own != other);
        let mut hashes = self.hashes.clone();
        for hash in &link.hashes {
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
            length: self.length.or(link.length),
            hashes,
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
    let mut duplicates: Vec<&Link> = links
        .iter()
        .filter(|link| link.rel.eq_ignore_ascii_case(DUPLICATE))
        .collect();
    duplicates.sort_by_key(|link| link.pri.unwrap_or(u32::MAX));
    let mut first: Vec<Candidate> = Vec::new();
    let mut last: Vec<Candidate> = Vec::new();
    for link in duplicates {
        let Ok(duplicate) = ResourceUri::try_from(link.href.clone()) else {
            continue;
        };
        let known = first.iter().chain(&last);
        let is_known = duplicate == *uri || known.clone().any(|known| known.uri == duplicate);
        if is_known || known.count() == MAX_DUPLICATES {
            continue;
        }
        if let Some(expected) = expected.of_duplicate(link) {
            let group = if expected.is_verifiable() {
                &mut first
            } else {
                &mut last
            };
            group.push(Candidate {
                uri: duplicate,
                is_own: false,
                expected,
            });
        }
    }
    first.push(Candidate {
        uri: uri.clone(),
        is_own: true,
        expected: expected.clone(),
    });
    first.append(&mut last);
    first
}

#[cfg(test)]
mod tests {
    use url::Url;

    use super::*;
    use crate::protocol::Algorithm;

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
            length: Some(7),
            hashes: vec![digest("content")],
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
        for verifiable in [
            Expected {
                length: Some(7),
                ..Expected::default()
            },
            Expected {
                hashes: vec![digest("content")],
                ..Expected::default()
            },
        ] {
            check(&verifiable, links, &["http://b.example.com/res1", OWN]);
        }
        let verifiable = Link {
            hashes: vec![digest("content")],
            ..link.clone()
        };
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
        let other_length = Link {
            length: Some(8),
            ..base.clone()
        };
        let other_digest = Link {
            hashes: vec![digest("other")],
            ..base.clone()
        };
        check(&verifiable(), &[other_length, other_digest], &[OWN]);
        let md5 = Digest::of(Algorithm::Md5, b"content");
        let uri = ResourceUri::parse(OWN).unwrap();
        let more = Link {
            hashes: vec![digest("content"), md5.clone()],
            ..base
        };
        let candidates = plan_candidates(&uri, &verifiable(), &[more]);
        assert_eq!(candidates[0].expected.hashes, [digest("content"), md5]);
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
}
