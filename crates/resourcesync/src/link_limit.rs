//! Limits the links of one entry, and of the head of a document.
//!
//! Invariant: what a Source states of one resource takes a bounded amount of memory.
//!
//! Must not know what the links mean.
//!
//! Specification: core, section 14 (linking to related resources).

use super::{Digest, Link};

/// How many more links are read. After the first one that does not fit there are no further ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkLimit {
    links: usize,
    bytes: usize,
    is_exceeded: bool,
}

impl LinkLimit {
    /// The limit of one entry.
    pub(super) const ENTRY: Self = Self::new(64, 16 << 10);
    /// The limit of the head of a document: hubs, and documents that describe a Source, with long URIs.
    pub(super) const HEAD: Self = Self::new(64, 256 << 10);

    /// A limit of so many links of so many bytes in total.
    #[must_use]
    pub const fn new(links: usize, bytes: usize) -> Self {
        Self {
            links,
            bytes,
            is_exceeded: false,
        }
    }

    /// Whether no further link fits.
    pub(super) fn is_reached(&self) -> bool {
        self.links == 0
    }

    /// Notes that there is a link that does not fit.
    pub(super) fn exceed(&mut self) {
        self.is_exceeded = true;
    }

    /// Whether there was a link that does not fit.
    pub fn is_exceeded(&self) -> bool {
        self.is_exceeded
    }

    /// Counts a link; returns whether it fits.
    pub fn admit(&mut self, link: &Link) -> bool {
        let left = self.bytes.checked_sub(bytes_of(link));
        match left.filter(|_| self.links > 0) {
            Some(left) => {
                self.bytes = left;
                self.links -= 1;
                true
            }
            None => {
                self.links = 0;
                self.exceed();
                false
            }
        }
    }
}

impl Default for LinkLimit {
    fn default() -> Self {
        Self::ENTRY
    }
}

/// The approximate size of a link in the database, in bytes.
fn bytes_of(link: &Link) -> usize {
    let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    // As they are written: in hexadecimal, after the algorithm and a colon.
    let hash = |hash: &Digest| hash.algorithm().as_str().len() + 1 + 2 * hash.bytes().len();
    64 + link.rel.len()
        + link.href.as_str().len()
        + text(&link.content.media_type)
        + text(&link.encoding)
        + text(&link.path)
        + link.content.hashes.iter().map(hash).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use url::Url;

    use super::*;
    use crate::Algorithm;

    #[test]
    fn links_are_limited_in_number_and_size() {
        let link = |path: &str| {
            let href = Url::parse("http://example.com/").unwrap();
            Link::new("alternate", href.join(path).unwrap())
        };
        let long = "a".repeat(6000);
        for (given, admitted) in [
            (vec![], 0),
            (vec![link("a"); 64], 64),
            (vec![link("a"); 65], 64),
            (vec![link(&long); 2], 2),
            (vec![link(&long); 3], 2),
            (vec![link(&"a".repeat(20_000)), link("b")], 0),
        ] {
            let mut limit = LinkLimit::ENTRY;
            let fits: Vec<bool> = given.iter().map(|link| limit.admit(link)).collect();
            let expected: Vec<bool> = (0..given.len()).map(|n| n < admitted).collect();
            assert_eq!(fits, expected);
            assert_eq!(limit.is_exceeded(), admitted < given.len());
        }
    }

    #[test]
    fn digest_counts_as_long_as_it_is_written() {
        let mut link = Link::new("alternate", Url::parse("http://example.com/").unwrap());
        for algorithm in [Algorithm::Md5, Algorithm::Sha1, Algorithm::Sha512] {
            let before = bytes_of(&link);
            let digest = Digest::of(algorithm, b"content");
            let length = digest.to_string().len();
            link.content.hashes.push(digest);
            assert_eq!(bytes_of(&link), before + length, "{algorithm}");
        }
    }
}
