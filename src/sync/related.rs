//! Limits the links of a resource that are stored.
//!
//! Invariant: what a Source states of one resource takes a bounded amount of memory and of the database.
//!
//! Must not know what the links mean.
//!
//! Specification: core, section 14 (linking to related resources).

use crate::protocol::{Digest, Link};

/// How many links of a resource are stored.
const MAX_LINKS: usize = 64;
/// How many bytes they may have in total.
const MAX_BYTES: usize = 16 << 10;

/// Removes the links beyond the limits; returns whether there were any.
pub fn cut_links(links: &mut Vec<Link>) -> bool {
    let mut bytes = 0_usize;
    let fitting = links
        .iter()
        .take(MAX_LINKS)
        .take_while(|link| {
            bytes = bytes.saturating_add(bytes_of(link));
            bytes <= MAX_BYTES
        })
        .count();
    let is_cut = fitting < links.len();
    links.truncate(fitting);
    is_cut
}

/// The approximate size of a link in the database, in bytes.
fn bytes_of(link: &Link) -> usize {
    let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    let hashes = link.content.hashes.iter().map(Digest::to_string);
    64 + link.rel.len()
        + link.href.as_str().len()
        + text(&link.content.media_type)
        + text(&link.encoding)
        + text(&link.path)
        + hashes.map(|hash| hash.len()).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use url::Url;

    use super::*;

    #[test]
    fn links_are_cut_to_a_number_and_a_size() {
        let link = |path: &str| {
            let href = Url::parse("http://example.com/").unwrap();
            Link::new("alternate", href.join(path).unwrap())
        };
        let long = "a".repeat(6000);
        for (given, stored) in [
            (vec![], 0),
            (vec![link("a"); 64], 64),
            (vec![link("a"); 65], 64),
            (vec![link(&long); 2], 2),
            (vec![link(&long); 3], 2),
            (vec![link(&"a".repeat(20_000)), link("b")], 0),
        ] {
            let mut links = given.clone();
            assert_eq!(cut_links(&mut links), stored < given.len());
            assert_eq!(links, given[..stored]);
        }
    }
}
