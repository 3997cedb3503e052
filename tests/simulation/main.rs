//! A simulated world for the core: a Source that changes and publishes, a network that loses, doubles, delays and reorders, a
//! hub that coalesces, and a Destination that is ended at any step and goes on from what it had committed.
//!
//! The decisions are the real ones, those of `resyncd::sync`. Around them stands a model of the engine (`destination`,
//! `reading`, `inbox`, `applier`) and of the store (`disk`), small enough to be read beside the originals. Nothing here
//! does I/O or waits: the clock is moved by the test alone, and a history that is run twice ends the same way.
//!
//! What is held to be true of every history stands in `promises`; the histories come from `properties` (random ones) and
//! `exhaustive` (all short ones).

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

mod applier;
mod destination;
mod disk;
mod exhaustive;
mod history;
mod inbox;
mod network;
mod promises;
mod properties;
mod reading;
mod scenarios;
mod source;
mod tasks;
mod world;
