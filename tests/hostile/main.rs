//! What strangers may send, and what becomes of it: nothing is lost, and nothing is let in.
//!
//! | threat | held by |
//! |---|---|
//! | slow and silent peers | [`floods`]: `thousand_silent_…` |
//! | ten times the load | [`floods`]: `ten_times_the_load_…` |
//! | no file descriptors left | [`floods`]: `listeners_go_on_…` |
//! | a kill at any step of the work | [`every_step`]: `killed_at_any_step_…` |
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

#[path = "../process/whole.rs"]
#[allow(dead_code, reason = "each test binary uses its own part of this")]
mod whole;

mod cycle;
mod every_step;
mod floods;
mod pages;
mod traced;
