//! What strangers may send, and what becomes of it: nothing is lost, and nothing is let in.
//!
//! | threat | held by |
//! |---|---|
//! | slow and silent peers | [`floods`]: `thousand_silent_…` |
//! | ten times the load | [`floods`]: `ten_times_the_load_…` |
//! | no file descriptors left | [`floods`]: `listeners_go_on_…` |
//! | the mirror's disk is full, read-only, broken, over quota | [`disks`]: `mirror_whose_disk_…`; each call in turn: `mirror::tests::refusals` |
//! | the state's disk refuses | [`disks`]: `state_that_…` |
//! | two daemons on one mirror, or one state | [`rebuilding`]: `two_daemons_…`; `tests/process/start.rs` |
//! | the database is lost | [`rebuilding`]: `what_is_whole_…`, `where_no_digest_…`, `symlink_…` |
//! | the database is damaged | [`damage`]; set aside: `store::tests::opening` |
//! | another process locks the database | [`rebuilding`]: `database_that_another_…` |
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

mod damage;
#[cfg(target_os = "linux")]
mod disks;
mod floods;
mod pages;
mod rebuilding;
