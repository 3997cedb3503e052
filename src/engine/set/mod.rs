//! One set: polls its documents, works through its inbox, and ingests what is news.
//!
//! [`worker`] waits and drives, [`state`] is what is known of the set and how it is committed, [`polling`] decides what is read,
//! [`poll_report`] shows what was not.
//! Each reader of Change Lists and Change Dumps commits what it reads and returns what that covers; those of Resource Lists and Resource
//! Dumps commit it with the baseline:
//!
//! ```text
//! worker ─► polling ─► offers (Capability List)
//!    │         ├─────► baseline ─► snapshot ─► list_parts ─► resource_dumps ─┐
//!    │         └─────► change_lists ─► change_list_index ─► change_dumps ────┤
//!    │                      └────────► change_sets ──────────────────────────┤
//!    └─► inbox, inbox_runs ─► delivery_reader ─► notification                ├─► polled_document, ingest (entries → tasks)
//!          └────► polling (a gap opened)                                     └─► state (commit)
//! ```
//!
//! Two drivers read documents with their indexes and pages, each with one loop over what a walk yields: `list_parts` those of a snapshot
//! (Resource Lists and Resource Dumps), `change_list_index` those that state changes (Change Lists and Change Dumps).
//!
//! Only `offers` is entered from readers, too: a Sitemap of version 0.1 names Change Sets (`list_parts`), and the successor of a closed list
//! is in the Capability List (`change_lists`).
//!
//! A set of version 0.1 has Change Sets in place of Change Lists ([`change_sets`]) and packages in place of Resource Dumps
//! ([`direct_dumps`], entered from `snapshot`); its Sitemap stands for the Capability List.
//!
//! What the diagram leaves out:
//!
//! | module | what it does | used by |
//! |---|---|---|
//! | [`fetch_ahead`] | requests what an index names before its turn | `change_list_index`, `list_parts` |
//! | [`remembered`] | what was read, from one poll to the next, in memory | `state`, and the readers of Change Lists and dumps |
//! | [`span`] | the time that a Change List covers | the readers of changes |
//! | [`packages`], [`package_files`], [`rejected_packages`] | the packages that dumps name; their files; those that are unusable | the readers of dumps |
//! | [`entry_batches`] | the entries of a document as changes, a batch at a time; which of them are news | `ingest`, `notification` |
//! | [`moments`] | of the entries of one resource at one time the last one counts | `entry_batches` |
//! | [`late_news`] | which entries of a covered time are news, entry by entry | `entry_batches` |
//! | [`changes`] | an entry becomes a change | all that ingest |
//! | [`linked`] | which resources that an entry links to are fetched | `changes` |
//! | [`untrusted`] | what is used of a notification of which the sender may not speak for the Source | `delivery_reader`, `notification` |
//! | [`offering`] | offers a package's members to the executor while its manifest is ingested | `ingest` |
//! | [`notices`] | oddities, and what is left out, for the status | all that read documents; discovery |
//!
//! Deliveries of the inbox that need nothing but their turn share transactions ([`inbox_runs`]).
//!
//! What a document is and what its indexes name is in [`documents`](super::documents).

mod baseline;
mod change_dumps;
mod change_list_index;
mod change_lists;
mod change_sets;
pub(super) mod changes;
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
mod snapshot;
mod span;
mod state;
mod untrusted;
pub(super) mod worker;
