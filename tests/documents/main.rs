//! What real Sources write, row by row: that it is read, that a daemon which follows such a Source ends in sync with the right
//! files, and that what is odd about it is told by a stable code.
//!
//! | what is odd | held by |
//! |---|---|
//! | the namespace of `rs` without its last slash | [`entering`]: `namespace_…` |
//! | a plain sitemap at the well-known URI; `.wellknown` | [`entering`]: `plain_sitemap_…`, `misspelt_well_known_…` |
//! | an HTML link to the Source Description | [`entering`]: `page_that_links_…` |
//! | `up` that skips a level, points down, or is missing | [`entering`]: `up_…` |
//! | no `index` in the lists of an index | [`lists`] and [`changes`]: `index_…` |
//! | a capability twice, one of them something else | [`entering`]: `capability_twice_…` |
//! | a capability misspelt | [`entering`]: `misspelt_capabilities_…`, [`reading`] |
//! | the URI of a list changes at each publication | [`entering`]: `list_that_moves_…` |
//! | a Change List newest first, by kind, in no order | [`changes`]: `order_…`, `grouped_…` |
//! | a Change List without `from`, without times; an index with `at` | [`changes`]: `change_list_without_…`, `index_of_change_lists_…` |
//! | a Resource List without `at`, or with `from` | [`lists`]: `resource_list_without_at_…`, `resource_list_with_from_…` |
//! | times to the day, without zone, with a space, with an offset, local | [`times`], and the tests of `protocol::datetime` |
//! | two `rs:md`; `md` before `ln` and `loc` | [`lists`]: `elements_in_any_order_…`, [`reading`] |
//! | digests in other encodings, several, unknown ones | [`lists`]: `digests_…`, [`reading`] |
//! | white space in `loc`, `describedBy`, relative URIs | [`lists`]: `loc_…`, [`reading`] |
//! | an index served as `urlset`; indexes of indexes | [`lists`] and [`changes`]: `index_…` |
//! | more than 50,000 entries | [`lists`]: `list_of_more_entries_…` |
//! | gzip known by the name or by the header alone | [`lists`]: `gzip_…` |
//! | dumps: member paths, manifests without `change`, `changelist` for a Change Dump | [`reading`]: `manifests_…`, `change_dump_…`; packages have tests of their own |
//! | no digest and no length | [`lists`]: `only_lastmod_…` |
//! | stylesheets, comments, other vocabularies | [`lists`]: `markup_of_others_…` |
//! | what is odd is logged once and shown | [`telling`] |
//!
//! [`shapes`] are the specification's own examples. [`writing`] holds the writer and the reader against each other.

#![allow(
    clippy::unwrap_used,
    reason = "what a test relies on and does not get, it should panic of"
)]

#[path = "../support/mod.rs"]
mod support;

mod changes;
mod entering;
mod lists;
mod made;
mod odd;
mod reading;
mod shapes;
mod site;
mod telling;
mod times;
mod writing;

use resyncd::protocol::{Document, read_document};
use url::Url;

/// Where the documents are that only the reader sees.
fn base() -> Url {
    Url::parse("http://example.com/sets/1/list.xml").unwrap()
}

/// Reads a document that is odd in these ways, as the log writes them.
#[track_caller]
fn read_odd(text: &str, oddities: &str) -> Document {
    let document = read_document(text.as_bytes(), &base());
    let document = document.unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!(document.oddities.to_string(), oddities, "{text}");
    document
}
