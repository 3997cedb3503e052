//! The program as its users meet it: the real binary, its exit statuses, its output, and what it survives.

#![allow(
    clippy::unwrap_used,
    reason = "what a test relies on and does not get, it should panic of"
)]

#[path = "../support/mod.rs"]
mod support;

mod audit;
mod commands;
mod crash;
mod demo;
mod discover;
#[allow(dead_code, reason = "each test binary uses its own part of this")]
mod process;
mod start;
mod sync;
mod whole;
