//! One set: polls its documents, works through its inbox, and ingests what is news.
//!
//! [`worker`] waits and drives, [`state`] is what is known of the set and how it is committed, [`polling`] decides what is read.
//! Each reader returns what its document covers; none calls back up:
//!
//! ```text
//! worker ─► polling ─► baseline ─► resource_lists ─► list_parts ─┐
//!    │         │          └──────► resource_dumps ───────────────┤
//!    │         └─► change_dumps ─► change_lists ─► change_list_index ─┤
//!    └─► inbox ─► polling                                        ├─► documents (poll, summarize), ingest (entries → tasks)
//!                                                                └─► snapshot, state (commit)
//! ```

mod baseline;
mod change_dumps;
mod change_list_index;
mod change_lists;
pub(super) mod changes;
pub(super) mod documents;
mod entry_batches;
mod failures;
mod inbox;
mod index;
mod ingest;
mod list_parts;
mod offering;
mod offers;
pub(super) mod package_files;
mod packages;
mod pending_lists;
mod polling;
mod rejected_packages;
mod remembered;
mod resource_dumps;
mod resource_lists;
mod snapshot;
mod span;
mod state;
mod summary;
pub(super) mod worker;
