//! One set: polls its documents, works through its inbox, and ingests what is news.
//!
//! [`worker`] waits and drives, [`state`] is what is known of the set and how it is committed, [`polling`] decides what is read,
//! [`poll_report`] shows what was not.
//! Each reader of documents returns what its document covers:
//!
//! ```text
//! worker ─► polling ─► offers (Capability List)
//!    │         ├─────► baseline ─► resource_lists ─► list_parts ────────────┐
//!    │         │          └──────► resource_dumps ──────────────────────────┤
//!    │         ├─────► change_lists ─► change_list_index ─┐                 │
//!    │         │          ├──────────► change_sets ───────┼► change_entries ┤
//!    │         └─────► change_dumps ◄─────────────────────┘                 │
//!    └─► inbox, inbox_runs ─► delivery_reader ─► notification               ├─► polled_document, ingest (entries → tasks)
//!          └────► polling (a gap opened)                                    └─► snapshot, state (commit)
//! ```
//!
//! Only `offers` is entered from readers, too: a Sitemap of version 0.1 names Change Sets (`list_parts`, `resource_lists`), and the successor
//! of a closed list is in the Capability List (`change_lists`).
//!
//! A set of version 0.1 has Change Sets in place of Change Lists ([`change_sets`]) and packages in place of Resource Dumps
//! ([`direct_dumps`]); its Sitemap stands for the Capability List.
//!
//! Deliveries of the inbox that need nothing but their turn share transactions ([`inbox_runs`]).
//! Which entries of a covered time are news is decided in [`late_news`], entry by entry. What an index names is requested before its
//! turn by [`fetch_ahead`].
//!
//! What a document is and what its indexes name is in [`documents`](super::documents), which the audit reads by, too.

mod baseline;
mod change_dumps;
mod change_entries;
mod change_list_index;
mod change_lists;
mod change_sets;
pub(super) mod changes;
mod cross_check;
mod delivery_reader;
mod direct_dumps;
mod entry_batches;
mod fetch_ahead;
mod inbox;
mod inbox_runs;
mod ingest;
mod late_news;
mod linked;
mod list_parts;
mod moments;
pub(super) mod notices;
mod notification;
mod offering;
mod offers;
pub(super) mod package_files;
mod packages;
mod poll_report;
pub(super) mod polled_document;
mod polling;
mod rejected_packages;
mod remembered;
mod resource_dumps;
mod resource_lists;
mod snapshot;
mod span;
mod state;
pub(super) mod worker;
