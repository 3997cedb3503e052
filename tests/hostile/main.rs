//! What strangers may send, and what becomes of it: nothing is lost, and nothing is let in.
//!
//! | threat | held by |
//! |---|---|
//! | entities, document types: a billion laughs, external ones, in UTF-16, at every door | [`entities`]: `no_door_takes_…`, `…_however_the_bytes_are_cut`; `protocol::reader` `rejections` |
//! | documents that are something else: pages, feeds, other roots, namespaces, capabilities, a second root, nothing | [`documents`]: `no_door_takes_what_is_something_else`, `…_a_list_of_nothing_…`; tests/destination `documents` |
//! | documents that are cut short | [`documents`]: `…_cut_short`; at every byte: `protocol::reader` `a_document_cut_at_any_byte_…`; of dumps: tests/destination `dump_that_cannot_be_read_whole_…` |
//! | depth, attributes, one huge text, tag, comment or entry | [`bombs`]: `large_document_takes_no_memory`; `protocol::reader` `every_limit_is_enforced` |
//! | endless documents, gzip that becomes a gibibyte, also twice | [`bombs`]: `endless_document_…`, `large_document_…`; `fetch::spool` `…_out_of_proportion_…` |
//! | notifications that are bombs, or crowds | [`bombs`]: `notification_that_is_a_bomb_…` |
//! | ZIP: bombs, within each other, members that overlap, lie, are encrypted, too many, or named `../` | `fetch::package` `hostile` and `names`; fuzz body `package` |
//! | any bytes at all | tests/fuzzing.rs and fuzz/, which has a README |
//! | URIs that lead out of the mirror, or share a path | [`uris`]: `every_uri_…`; [`paths`]: `evil_uris_…`; `mirror::path`; tests/destination `paths` |
//! | symlinks and pipes planted in the mirror | [`paths`]: `planted_symlinks_…`; `mirror` `symlinks_are_neither_…`, `own_folder_that_is_a_symlink_…`, `fifo_in_the_way_…` |
//! | deletion of all, however it is told | [`deletions`]: `whoever_tells_…`; tests/destination `deletions`, `dumps`, `change_dumps` |
//! | deletion of all, one by one | [`deletions`]: `deletions_that_are_told_one_by_one_…`; `store` `weighing` |
//! | lists, indexes, dumps and packages that name nothing | [`nothing`] |
//! | slow and silent peers | [`floods`]: `silent_peers_make_way_…`; [`peers`]: `peers_that_do_not_go_on_…`; `http::turns` |
//! | deliveries that break off, never end, or find no room | [`peers`]: `delivery_…`; tests/destination `full_inbox_…` |
//! | a crowd of hosts that never answer | [`crowds`] |
//! | ten times the load | [`floods`]: `ten_times_the_load_…` |
//! | no file descriptors left | [`floods`]: `listeners_go_on_…` |
//! | a signed notification that is sent again and again | [`replays`], and the tests of `store::delivered` |
//! | notifications that are not signed, or wrongly | `tests/websub`, `deliveries` |
//! | verifications that nobody asked for, and forged denials | `tests/websub`, `verifying`, and the tests of `sync::lease` |
//! | forged wishes to unsubscribe | `tests/websub`, `verifying` and `endings` |
//! | intervals that are backwards, empty, or of a time that can't be | [`intervals`]: `no_interval_…`, `no_span_…`; `tests/destination`, `hints`; of packages: `own_change_dumps` |
//! | changes that are dated in the far future, or before there were clocks | [`intervals`]: `change_of_…`, `resource_of_…`, `deletion_of_…` |
//! | older documents that are served again | [`older`]; tests/process `audit` `last_weeks_list_…` |
//! | our own clock is set | `tests/clock.rs`, and the tests of `sync::lease` and `store::tasks` |
//! | the mirror's disk is full, read-only, broken, over quota | [`disks`]: `mirror_whose_disk_…`; each call in turn: `mirror::tests::disk_faults` |
//! | packages that find no room | [`disks`]: `package_that_…` |
//! | the state's disk refuses | [`disks`]: `state_that_…` |
//! | two daemons on one mirror, or one state | [`rebuilding`]: `two_daemons_…`; `tests/process/start.rs` |
//! | the database is lost | [`rebuilding`]: `what_is_whole_…`, `where_no_digest_…`, `symlink_…` |
//! | the database is damaged | [`damage`]; `store::tests`: `damage`, `opening` |
//! | another process locks the database | [`rebuilding`]: `database_that_another_…` |
//! | the database refuses one step of a poll | [`retries`] |
//! | a kill at any step of the work | [`every_step`]: `killed_at_any_step_…` |
//! | any step of the work fails, once: of the mirror, of the database | [`every_step`]: `whatever_step_fails_…` |
//! | web pages that ask the status endpoint | [`pages`] |
//! | what strangers write, in the log and the status | [`logs`]; `status`: `remote_text_…` |
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
//! | lying lengths, early ends, endless documents, resources and packages | [`bodies`]: `bodies_are_counted_…`, `resource_that_is_longer_…` |
//! | endless answers of hubs, topics and pages | [`bodies`]: `hubs_topics_and_pages_…` |
//! | slow bodies | [`bodies`]: `content_that_trickles_…`, `document_that_…`, `nobody_waits_…`, `source_that_trickles_…`; `fetch::package`: `a_trickle_ends_…` |

#![allow(
    clippy::unwrap_used,
    reason = "what a test relies on and does not get, it should panic of"
)]

#[path = "../support/mod.rs"]
mod support;

#[path = "../process/process.rs"]
#[allow(dead_code, reason = "each test binary uses its own part of this")]
mod process;

#[path = "../process/whole.rs"]
#[allow(dead_code, reason = "each test binary uses its own part of this")]
mod whole;

mod bodies;
mod bombs;
mod corruption;
mod credentials;
mod crowds;
mod cycle;
mod deletions;
mod disks;
mod documents;
mod doors;
mod entities;
mod every_step;
mod floods;
mod inside;
mod intervals;
mod logs;
mod nothing;
mod older;
mod pages;
mod paths;
mod peers;
mod rebuilding;
mod redirects;
mod replays;
mod retries;
mod site;
mod traced;
mod uris;

use tokio::sync::RwLock;

/// Tests that open thousands of connections run alone; tests that use much of the processor run beside each other.
static PROCESSOR: RwLock<()> = RwLock::const_new(());
