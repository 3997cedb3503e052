//! What strangers may send, and what becomes of it: nothing is lost, and nothing is let in.
//!
//! | threat | held by |
//! |---|---|
//! | entities, document types: a billion laughs, external ones, in UTF-16, at every door | [`entities`]: `no_door_takes_…`, `…_however_the_bytes_are_cut`; `protocol::reader` `refusals` |
//! | documents that are something else: pages, feeds, other roots, namespaces, capabilities, a second root | [`documents`]: `no_door_takes_what_is_something_else`; tests/destination `documents` |
//! | documents that are cut short | [`documents`]: `…_cut_short`; at every byte: `protocol::reader` `a_document_cut_at_any_byte_…`; of dumps: tests/destination `dump_that_cannot_be_read_whole_…` |
//! | depth, attributes, one huge text, tag, comment or entry | [`bombs`]: `large_document_takes_no_memory`; `protocol::reader` `nothing_grows_beyond_its_limit` |
//! | endless documents, gzip that becomes a gibibyte, also twice | [`bombs`]: `endless_document_…`, `large_document_…`; `fetch::spool` `…_out_of_proportion_…` |
//! | notifications that are bombs, or crowds | [`bombs`]: `notification_that_is_a_bomb_…` |
//! | ZIP: bombs, within each other, members that overlap, lie, are encrypted, too many, or named `../` | `fetch::package` `hostile` and `names`; fuzz body `package` |
//! | any bytes at all | tests/fuzzing.rs and fuzz/, which has a README |
//! | URIs that lead out of the mirror, or share a path | [`uris`]: `every_uri_…`; [`paths`]: `evil_uris_…`; `mirror::path`; tests/destination `paths` |
//! | symlinks and pipes planted in the mirror | [`paths`]: `planted_symlinks_…`; `mirror` `symlinks_are_neither_…`, `own_folder_that_is_a_symlink_…`, `fifo_in_the_way_…` |
//! | deletion of all, however it is told | [`deletions`]: `whoever_tells_…`; tests/destination `deletions`, `dumps`, `change_dumps` |
//! | deletion of all, one by one | [`deletions`]: `deletions_that_are_told_one_by_one_…`; `store` `weighing` |
//! | slow and silent peers | [`floods`]: `thousand_silent_…` |
//! | ten times the load | [`floods`]: `ten_times_the_load_…` |
//! | no file descriptors left | [`floods`]: `listeners_go_on_…` |
//! | web pages that ask the status endpoint | [`pages`] |

#![allow(
    clippy::unwrap_used,
    reason = "what a test relies on and does not get, it should panic of"
)]

#[path = "../support/mod.rs"]
mod support;

#[path = "../process/process.rs"]
#[allow(dead_code, reason = "each test binary uses its own part of this")]
mod process;

use tokio::sync::RwLock;

/// Who measures how long something takes has the processor alone; who only works hard shares it.
static PROCESSOR: RwLock<()> = RwLock::const_new(());

mod bombs;
mod deletions;
mod documents;
mod doors;
mod entities;
mod floods;
mod pages;
mod paths;
mod uris;
