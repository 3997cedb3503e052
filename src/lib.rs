//! resyncd keeps local copies in step with [ResourceSync](https://www.openarchives.org/rs/) Sources.
//!
//! It is a Destination that runs as a service. It receives notifications over WebSub, and proves from their `from` and `until` that
//! none is missing; over a WebSocket, XMPP or HTTP callback each is a hint. What is missing it reads from Change Lists, or else from the
//! Resource List. Where a Source has no channel it polls; where a Source packages its resources it reads the packages; a site without ResourceSync it
//! follows by its sitemaps, and a Source of the draft of version 0.1 by its Sitemap and its Change Sets. What it mirrors, or a folder, it
//! publishes as a Source itself.
//!
//! This page is the map: the modules, the data flow, the invariants, and what is absent on purpose. How it is decided what to do with a
//! resource is on one page of its own, `docs/developing/decisions.md`. The words are those of `docs/reference/glossary.md`. The library
//! exists for the program, its tests and its benchmarks; its interface may change with any version.
//!
//! # The crates and the modules
//!
//! There are two halves. The **core** decides and performs no I/O: no async, no sockets, no SQL, no clock. The **shell** performs
//! I/O. What has an edge of its own is a crate: it can know only what its `Cargo.toml` names.
//!
//! | crate | what it does | what it must not know |
//! |---|---|---|
//! | [`resourcesync`] | documents: reader, writer, datetimes, intervals, digests, links | everything else |
//! | [`websub`] | WebSub forms and signatures, for subscriber and hub | everything else |
//! | [`resyncd_core`] | decides: coverage, sequencer, statements and what follows from them, what a recorded file proves, schedule, channel machine, lease; what a set offers, which resources are selected | XML, HTTP, paths, SQL, serde, a clock |
//! | [`resyncd_fetch`] | outbound: guard, client, documents, content, packages, hub requests, web hooks, discovery | coverage, mirror paths, SQL, the configuration, a clock |
//! | [`resyncd_channels`] | WebSockets, sessions of the XMPP account | what a message means, coverage, SQL, the configuration |
//! | [`resyncd_mirror`] | files, in a folder or an object store: the path of a URI; stage, publish, remove, open | SQL, intervals, HTTP |
//! | [`resyncd_packages`] | the members of ZIP, tar and WARC, with bounds, and their manifest | everything else |
//! //! | [`resyncd_patches`] | JSON Patch, merge patch and XML patches, applied to bytes with bounds | everything else |
//!
//! | module | what it does | what it must not know |
//! |---|---|---|
//! | [`store`] | shell, SQLite: inbox, tasks, resources, channels, coverage, change feed; the database of an audit | the network, the mirror's files |
//! | [`http`] | shell, inbound: callback listener, status listener with the page | the sequencer, SQL, how the engine works |
//! | [`engine`] | joins them: `documents` (what a set and the audit share), `source` (discovery, worker), `set` (worker, readers of documents, ingest), `apply` (executor, publisher), `versions`, `channels`, `hooks`, `notify`, `audit` | XML syntax, SQL, path rules |
//! | [`publish`] | resyncd as a Source: documents, files, hub and dumps of what the store has; folders | how Sources are followed, SQL |
//! | [`cli`] | one file per command; [`Daemon`](cli::Daemon) starts and stops everything in order | XML syntax, SQL |
//! | [`config`] | the configuration, complete and valid; every fault with its line | HTTP, SQL |
//! | [`status`] | the data that the status endpoint serializes | everything else of this program |
//! | [`metrics`] | the metrics: their names, the counts that nothing else keeps, Prometheus' text format | everything but the status |
//! | [`clock`] | the only place that reads the clocks | everything else |
//! | `random` | the random numbers that several modules need | everything else |
//!
//! `clippy.toml` bans SQL outside of the store, the clocks outside of [`clock`], and parsers of URIs other than
//! [`resourcesync::uri::parse_uri`] and [`resourcesync::uri::resolve_reference`].
//!
//! # The data flow
//!
//! The way of a notification into the mirror:
//!
//! ```text
//! hub POST → http::callback            token → channel; size limit; signature over the raw bytes
//!          → store (tx::receive)       the inbox: one group-committed transaction, on disk
//!          → 2xx
//!          → engine::set::worker       woken; engine::set::inbox_runs: deliveries that need only their turn, many in one transaction;
//!                                      engine::set::inbox: all others, one by one
//!                                      both: engine::set::delivery_reader: can it be read, is it for the set, who has sent it
//!          → resyncd_core::Sequencer   handle(now, …) → Verdict: ingest, hold, known, covers nothing; a wait that ends opens a gap
//!          → engine::set::entry_batches NewsSelection: which entries are news
//!          → store (tx::ingest)        resyncd_core::apply, decide: what is stated, and what is to be done;
//!                                      tasks + coverage + inbox row concluded: ONE transaction
//!          → engine::apply::executor   starts due tasks, several hosts at once
//!          → engine::apply::execute    deletes, adopts a file that is there, or fetches
//!          → engine::apply::candidates by a patch, from a package member, verifiable duplicates, or the resource's own URI
//!          → engine::apply::download   from resyncd_fetch::Content into memory or, if large, a staged file; counted, hashed, and verified
//!                                      by resourcesync::Verifier
//!          → engine::apply::publisher  gathers files and results; syncs those of the next batch while one is published
//!          → resyncd_mirror::publish   sync, rename, sync of the folder; many files at once
//!          → engine::versions          if they are stored: a hard link as the version of its time
//!          → store (tx::complete)      resource + task concluded + version + feed entry, many in ONE transaction
//! ```
//!
//! A message over a WebSocket or XMPP (`engine::channels`) enters at the same inbox; nothing more is read of its connection until it is on disk.
//!
//! A version that is announced but not published in the mirror gets its own row in the commit of its entry; the Source's version worker
//! fetches it from where the entry links to.
//!
//! A polled Change List or Change Dump enters at the sequencer (`engine::set::change_lists`, `ingest`): it says which entries may be news,
//! and covers the interval. A Resource List or Resource Dump needs no sequencer (`engine::set::snapshot`, `ingest`; store:
//! `tx::ingest_listed`, `tx::delete_absent`): its entries are statements, and so is it that it does not name a resource. The members of a
//! package are offered by `engine::set::offering`; `engine::apply::members` has them until their tasks are executed.
//! [`Engine::once`](engine::Engine::once) is the same without subscriptions: what is in the inbox already is processed.
//!
//! A document is summarized completely ([`resourcesync::DocumentSummary`]) before an entry of it is ingested. The lists of an index and
//! the pages of a list are read one after the other; only all of them together prove something. An entry of a time that is covered
//! is compared with what is stated of its resource, because a Source may list a change late. A package of a dump is
//! downloaded completely, and its manifest is ingested as a document; while the tasks of its entries are executed, its members are
//! on offer to the executor, which verifies and publishes them like downloads.
//!
//! For each set [`resyncd_core::Coverage`] holds the stretches of the Source's time in which every change is known. A hole between two of
//! them is a gap. A gap is closed only by documents that cover it completely.
//!
//! # Invariants
//!
//! 1. **A notification is acknowledged when it is on disk**, not before. Inbox full: 503, and the hub retries.
//! 2. **A file in the mirror is complete and verified**: staged on the same file system, counted and hashed while it is received,
//!    length and every known digest checked, synced, renamed, its folder synced.
//! 3. **The database never states more than the files.** Publish, then commit. What a crash leaves in between is executed again,
//!    and that changes nothing.
//! 4. **Coverage moves with its tasks**, in one transaction.
//! 5. **Deletion requires proof**: a `deleted` change, or absence from a Resource List or Resource Dump that was read completely and
//!    is not older than what is known. A resource of another set stays as long as the Source serves it, and so does one whose deletion
//!    only a hub of another origin has stated. While another set was never read completely, a resource that the Source serves stays, up
//!    to a day. Too many at once are held back and reported until they are approved.
//! 6. **An error of one Source does not affect another**: limits, time-outs, concurrency and failures are per Source.
//! 7. **Never from outside to inside**: what is requested because a Source or hub names it is an http or https URL, or that of a
//!    WebSocket, and leads to no private address unless the configuration allows it; checked for every URL, every redirect and every
//!    resolved address. The XMPP server is the configured one.
//!
//! The Source's time and ours are never mixed: coverage and the order of changes use the Source's clock only; leases, waits and polls
//! use ours.
//!
//! # Absent on purpose
//!
//! - No polling of the database: workers are woken by a [`store::Wake`]. Only what is logged for people, what is removed, and
//!   versions that wait for nothing any more are looked for from time to time.
//! - No list in memory as a whole: documents are read an entry at a time, whatever their length. Only of a Change List, or of
//!   the manifest of a Change Dump, are the changes in memory until its end that are late or overtaken. A delivery is in memory, up to the
//!   limit of its length.
//! - No clock but [`clock`], so that a test can replace it.
//! - No assumption that closes a gap: neither the next notification nor a quiet hour.
//! - No index of the mirror in memory: it is in the database, which a baseline rebuilds without fetching complete files again.
//! - No passwords for users of the status listener, only one optional token, and no TLS on either listener: a reverse proxy has
//!   both.

#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_types))]

pub mod cli;
pub mod clock;
pub mod config;
pub mod engine;
pub mod http;
pub mod metrics;
pub mod publish;
mod random;
pub mod status;
pub mod store;
#[cfg(test)]
mod test_clock;
#[cfg(test)]
mod test_log;
