//! What strangers may send, and what becomes of it: nothing is lost, and nothing is let in.
//!
//! | threat | held by |
//! |---|---|
//! | slow and silent peers | [`floods`]: `thousand_silent_…` |
//! | ten times the load | [`floods`]: `ten_times_the_load_…` |
//! | no file descriptors left | [`floods`]: `listeners_go_on_…` |
//! | a signed notification that is sent again and again | [`replays`], and the tests of `store::delivered` |
//! | notifications that are not signed, or wrongly | `tests/websub`, `deliveries` |
//! | verifications that nobody asked for, and forged denials | `tests/websub`, `verifying`, and the tests of `sync::lease` |
//! | forged wishes to unsubscribe | `tests/websub`, `verifying` and `endings` |
//! | intervals that are backwards, empty, or of a time that can't be | [`intervals`]: `no_interval_…`, `no_span_…`; `tests/destination`, `hints` |
//! | changes that are dated in the far future | [`intervals`]: `change_of_…`, `resource_of_…`, `deletion_of_…` |
//! | older documents that are served again | [`older`] |
//! | our own clock is set | `tests/clock.rs`, and the tests of `sync::lease` and `store::tasks` |
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

mod floods;
mod intervals;
mod older;
mod pages;
mod replays;
