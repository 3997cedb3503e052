//! A deterministic run of the real engine and the real store: simulated are the clock, the network, the Source with its hub,
//! and the end of the process at any commit.
//!
//! The set workers, the store, the mirror and the HTTP client are those of the daemon. Three modules replace the rest:
//! `world` calls a set worker when its deadline comes or it is woken, as the worker's own loop would; `downloads` executes
//! tasks with the applier's functions, one after the other; `stage` answers every request from `source`. One thing happens
//! at a time, so that a history that is run twice ends the same way: while a worker waits for the members of a package, nothing
//! else of the daemon works but `downloads`.
//!
//! | module | what it has |
//! |---|---|
//! | `world`, `stage` | one clock and everything that happens by it; what is outside of the daemon |
//! | `daemon`, `downloads` | the daemon without the loops that wait; the execution of tasks |
//! | `source`, `documents`, `packages`, `handwritten` | the Source; its web server; the packages of its dumps; documents that a scenario writes |
//! | `network` | between the hub and the Destination: loss, delay, repetition |
//! | `history` | what happens in a history, one act after the other |
//! | `properties`, `exhaustive`, `scenarios` | where histories come from |
//! | `promises` | what must hold after every commit |
//!
//! Not simulated, among others: requests to hubs (their machine has tables in `resyncd_core::channel`).
//!
//! `promises` defines what must hold for every history; the histories come from `properties` (random ones), `exhaustive`
//! (all short ones) and `scenarios` (those that once failed, and those that one decision depends on). What the Source itself does not
//! publish, such as documents of version 0.1, a scenario writes by hand.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

mod daemon;
mod documents;
mod downloads;
mod exhaustive;
mod handwritten;
mod history;
mod network;
mod packages;
mod promises;
mod properties;
mod scenarios;
mod source;
mod stage;
mod world;
