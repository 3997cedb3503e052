//! What strangers may send, and what becomes of it: nothing is lost, and nothing is let in.
//!
//! | threat | held by |
//! |---|---|
//! | slow and silent peers | [`floods`]: `thousand_silent_…` |
//! | ten times the load | [`floods`]: `ten_times_the_load_…` |
//! | no file descriptors left | [`floods`]: `listeners_go_on_…` |
//! | the mirror's disk is full, read-only, broken, over quota | [`disks`]: `mirror_whose_disk_…`; each call in turn: `mirror::tests::refusals` |
//! | packages that find no room | [`disks`]: `package_that_…` |
//! | the state's disk refuses | [`disks`]: `state_that_…` |
//! | two daemons on one mirror, or one state | [`rebuilding`]: `two_daemons_…`; `tests/process/start.rs` |
//! | the database is lost | [`rebuilding`]: `what_is_whole_…`, `where_no_digest_…`, `symlink_…` |
//! | the database is damaged | [`damage`]; `store::tests`: `damage`, `opening` |
//! | another process locks the database | [`rebuilding`]: `database_that_another_…` |
//! | web pages that ask the status endpoint | [`pages`] |
//! | resources at inner addresses | [`inside`]: `resources_of_inner_…` |
//! | mirrors (`rel="duplicate"`) at inner addresses | [`inside`]: `mirrors_at_…` |
//! | redirects to inner addresses | [`inside`]: `redirects_to_…`, `requests_to_hubs_…` |
//! | Capability Lists, hubs, indexes, `up` and `describedby` at inner addresses | [`inside`]: `sets_hubs_and_indexes_…` |
//! | pages, `up` and robots.txt that lead inside | [`inside`]: `links_on_the_way_…` |
//! | names that resolve to something else the next time | `fetch::guard`: `address_that_was_checked_…` |
//! | redirects in a ring | [`redirects`] |
//! | redirects from https to http | `fetch::client`: `redirects_never_lead_…`; tests/websub/tls.rs |
//! | passwords of the configuration, sent elsewhere or shown | [`credentials`]: `passwords_…`, `password_comes_back_…` |
//! | passwords in documents, sent or shown | [`credentials`]: `passwords_go_to_…` |
//! | lying lengths, early ends, endless documents, resources and packages | [`bodies`]: `bodies_are_counted_…` |
//! | endless answers of hubs, topics and pages | [`bodies`]: `hubs_topics_and_pages_…` |
//! | slow bodies | [`bodies`]: `content_that_trickles_…`, `source_that_trickles_…`; `fetch::package`: `a_trickle_ends_…` |

#![allow(
    clippy::unwrap_used,
    reason = "what a test relies on and does not get, it should panic of"
)]

#[path = "../support/mod.rs"]
mod support;

#[path = "../process/process.rs"]
#[allow(dead_code, reason = "each test binary uses its own part of this")]
mod process;

mod bodies;
mod credentials;
mod damage;
#[cfg(target_os = "linux")]
mod disks;
mod floods;
mod inside;
mod pages;
mod rebuilding;
mod redirects;
mod site;
