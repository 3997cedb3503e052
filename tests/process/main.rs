//! The program as a process: exit statuses, output, signals, crashes.

#![allow(
    clippy::unwrap_used,
    reason = "a test panics when a precondition fails"
)]

#[path = "../support/mod.rs"]
mod support;

mod audit;
mod backup;
mod commands;
mod completeness;
mod crash;
mod demo;
mod discover;
mod forget;
mod http2;
mod logs;
#[allow(dead_code, reason = "each test binary uses its own part of this")]
mod process;
mod related;
mod reload;
mod start;
mod sync;
mod versions;
