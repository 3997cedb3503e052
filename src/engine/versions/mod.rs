//! Stores the versions that a Source announces, beside the mirror (core, section 14.6).
//!
//! ```text
//! publisher ── published file ──► folder: a hard link, before the commit ──► store
//! store ── version_task ──► worker ──► fetch: memento, TimeGate, mirror ──► folder ──► store
//!                                  └─► time_map: the pages of a TimeMap ──► store
//! ```
//!
//! What the mirror publishes is stored with the same commit. Every other announced version is a row of the database from the commit of
//! its entry on, and is fetched from a place of its own. A file is published before it is recorded: what a crash leaves in between is
//! done again, and changes nothing.
//!
//! | module | what it has |
//! |---|---|
//! | `worker`, `fetch`, `time_map` | fetch what the mirror does not store by itself |
//! | `folder`, `opening` | the folder of versions; opens the one that was used so far |
//! | `view` | the versions of a resource, for people |
//!
//! Invariants: a stored version is complete and verified, as a file of the mirror; nothing is written outside of the folder; what
//! can't be stored is reported, tried again a bounded number of times, and changes nothing of the mirror.

mod fetch;
pub(super) mod folder;
mod opening;
mod time_map;
pub(super) mod view;
pub(super) mod worker;
