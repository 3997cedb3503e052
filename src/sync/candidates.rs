//! Where a representation may be fetched from, and in which order: from the duplicates that the Source names (section 14.2),
//! and from the resource's own URI.
//!
//! A duplicate takes load off the Source, so it comes first, in the order of `pri`. But only where its bytes can be held
//! against something that was told: else nobody would notice that it lags behind, and it is for when the resource's own URI
//! fails, unless that says that there is nothing (any more).

use crate::protocol::{Digest, Link, ResourceUri, SourceTime};

/// The relation of a duplicate.
const DUPLICATE: &str = "duplicate";
/// How many duplicates are considered: each of them may take its time to fail.
const MOST_DUPLICATES: usize = 8;

/// What the bytes must be, as far as it was told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// Their number.
    pub length: Option<u64>,
    /// Their digests.
    pub hashes: Vec<Digest>,
    /// When they were last modified: what is older is another version.
    pub modified: Option<SourceTime>,
}

impl Expected {
    /// Whether the bytes can be held against anything.
    #[must_use]
    pub fn is_told(&self) -> bool {
        self.length.is_some() || !self.hashes.is_empty()
    }

    /// What is expected of a duplicate; `None` where its link tells of other bytes than these.
    fn of_duplicate(&self, link: &Link) -> Option<Self> {
        let lengths_differ =
            matches!((self.length, link.length), (Some(own), Some(other)) if own != other);
        let mut hashes = self.hashes.clone();
        for hash in &link.hashes {
            let told = hashes
                .iter()
                .find(|told| told.algorithm() == hash.algorithm());
            match told {
                Some(told) if told != hash => return None,
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

/// Somewhere to fetch a representation from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Where it is.
    pub uri: ResourceUri,
    /// Whether that is the resource's own URI.
    pub is_own: bool,
    /// What its bytes must be.
    pub expected: Expected,
}

/// Puts the places in order that a resource may be fetched from; its own URI is always among them. Duplicates that are
/// neither http nor https are passed over, and so are those whose links tell of other bytes than the entry does.
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
        if is_known || known.count() == MOST_DUPLICATES {
            continue;
        }
        if let Some(expected) = expected.of_duplicate(link) {
            let place = if expected.is_told() {
                &mut first
            } else {
                &mut last
            };
            place.push(Candidate {
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

    fn told() -> Expected {
        Expected {
            length: Some(7),
            hashes: vec![digest("content")],
            modified: None,
        }
    }

    /// In which order the places come.
    fn check(expected: &Expected, links: &[Link], order: &[&str]) {
        let uri = ResourceUri::parse(OWN).unwrap();
        let candidates = plan_candidates(&uri, expected, links);
        let found: Vec<&str> = candidates.iter().map(|found| found.uri.as_str()).collect();
        assert_eq!(found, order);
        let own: Vec<bool> = candidates.iter().map(|found| found.is_own).collect();
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
            &told(),
            &links,
            &[
                "http://first.example.com/res1",
                "http://second.example.com/res1",
                "http://third.example.com/res1",
                "http://fourth.example.com/res1",
                OWN,
            ],
        );
        check(&told(), &[], &[OWN]);
    }

    #[test]
    fn duplicates_that_cannot_be_fetched_or_are_met_again_are_passed_over() {
        let links = [
            duplicate("gsiftp://gridftp.example.com/res1", Some(1)),
            duplicate("ftp://example.com/res1", Some(2)),
            duplicate("magnet:?xt=urn:btih:1", Some(2)),
            duplicate(OWN, Some(3)),
            duplicate("http://b.example.com/res1", Some(4)),
            duplicate("http://b.example.com/res1#part", Some(5)),
        ];
        check(&told(), &links, &["http://b.example.com/res1", OWN]);
    }

    #[test]
    fn duplicates_whose_bytes_nothing_can_prove_come_after_the_own_uri() {
        let link = duplicate("http://b.example.com/res1", None);
        let links = std::slice::from_ref(&link);
        check(
            &Expected::default(),
            links,
            &[OWN, "http://b.example.com/res1"],
        );
        for proof in [
            Expected {
                length: Some(7),
                ..Expected::default()
            },
            Expected {
                hashes: vec![digest("content")],
                ..Expected::default()
            },
        ] {
            check(&proof, links, &["http://b.example.com/res1", OWN]);
        }
        let proven = Link {
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
                    ..proven
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
    fn duplicates_that_tell_of_other_bytes_are_passed_over() {
        let base = duplicate("http://b.example.com/res1", None);
        let other_length = Link {
            length: Some(8),
            ..base.clone()
        };
        let other_digest = Link {
            hashes: vec![digest("other")],
            ..base.clone()
        };
        check(&told(), &[other_length, other_digest], &[OWN]);
        let md5 = Digest::of(Algorithm::Md5, b"content");
        let uri = ResourceUri::parse(OWN).unwrap();
        let more = Link {
            hashes: vec![digest("content"), md5.clone()],
            ..base
        };
        let candidates = plan_candidates(&uri, &told(), &[more]);
        assert_eq!(candidates[0].expected.hashes, [digest("content"), md5]);
        assert_eq!(candidates[1].expected, told());
    }

    #[test]
    fn a_thousand_duplicates_are_no_more_than_a_few() {
        let links: Vec<Link> = (0..1000)
            .map(|n| duplicate(&format!("http://m{n}.example.com/"), None))
            .collect();
        let uri = ResourceUri::parse(OWN).unwrap();
        let candidates = plan_candidates(&uri, &told(), &links);
        assert_eq!(candidates.len(), MOST_DUPLICATES + 1);
        assert!(candidates[MOST_DUPLICATES].is_own);
    }
}
