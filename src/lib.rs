//! resyncd keeps local copies in step with [ResourceSync](https://www.openarchives.org/rs/) Sources.
//!
//! It is a Destination that runs as a service. It learns of changes by notification, over WebSub. It proves from the `from`
//! and `until` of the notifications that it has missed none. What it did miss it fills from Change Lists, or else from the
//! Resource List. Where a Source has no channel it polls. Where a Source packages its resources, they come in packages. A site
//! without ResourceSync it follows by its sitemaps.
//!
//! This page is where a newcomer begins: the rooms, the way of a change through them, what always holds, and what is left out
//! on purpose. The library exists for the program, its tests and its benchmark; its interface may change with any version.
//!
//! # The rooms
//!
//! There are two halves. The **core** decides, and cannot fail on I/O: no async, no sockets, no SQL, no clock. The **shell**
//! does.
//!
//! | room | what it does | what it must not know |
//! |---|---|---|
//! | [`protocol`] | core: what the wire says: URIs, datetimes, intervals, digests, documents, WebSub forms and signatures | tokio, HTTP clients and servers, SQL, the configuration, the clock |
//! | [`sync`] | core: what to do: coverage, sequencer, plan, lease, schedule | XML, HTTP, paths, SQL, serde |
//! | [`fetch`] | shell, outbound HTTP: guarded client, documents, content, packages, hub requests, discovery | coverage, mirror paths, SQL |
//! | [`mirror`] | shell, files: which path a URI has; stage, publish, remove, open | SQL, intervals, HTTP |
//! | [`store`] | shell, SQLite: inbox, tasks, resources, channels, coverage, change feed; the database of an audit | the network, the file tree |
//! | [`http`] | shell, inbound: the listener for hubs and the one for operators | the sequencer, the engine, SQL text |
//! | [`engine`] | the only joiner: a worker for each Source and each set, the applier, stopping in order; once through, and audits | XML syntax, SQL text, path rules |
//! | [`demo`] | a sample Source with its hub, for the demo, tests and the benchmark | everything but the protocol and the clock: it is somebody else's Source |
//! | [`cli`] | one file a command; [`Daemon`](cli::Daemon) starts and stops the whole in order | XML syntax, SQL text |
//! | [`config`] | the configuration, complete and valid; every fault with its line | HTTP, SQL |
//! | [`status`] | the view that the status endpoint serialises | everything: it is plain data |
//! | [`clock`] | the only place that asks what time it is | everything |
//!
//! `tests/tidy.rs` holds this against the `use` lines, and `clippy.toml` bans the clock elsewhere. `main.rs` only calls
//! [`cli::main`].
//!
//! # The flow
//!
//! The way of a notification into the mirror:
//!
//! ```text
//! hub POST → http::Callback          size limit; token → channel; signature over the raw bytes
//!          → Store::receive          the inbox: one group-committed transaction, on disk
//!          → 2xx
//!          → engine, SetWorker       woken, reads the inbox in order
//!          → protocol::read_document one document
//!          → sync::Sequencer         handle(now, …) → Verdict: apply, hold, drop; a wait that ends opens a gap
//!          → sync::plan_change       one task a resource: the latest change wins
//!          → Store::apply            tasks + coverage + inbox row done: ONE transaction
//!          → engine, Applier         takes tasks, several hosts at once
//!          → sync::plan_candidates   from duplicates that can be checked, from the resource's own URI
//!          → fetch::Content          streams to a working file, counting and hashing
//!          → Mirror::publish         fsync, rename, fsync the folder
//!          → Store::complete         resource + task done + change-feed row, many in ONE transaction
//! ```
//!
//! A polled Change List or Change Dump enters at the sequencer, as a notification does. A Resource List or Resource Dump enters
//! at the plan. Push and poll are two doors to one room, never two programs. [`Engine::once`](engine::Engine::once) is the same
//! room without the first door.
//!
//! A package of a dump is fetched as a whole, and its manifest is the document. While the tasks of a batch of its entries are
//! carried out, its members are on offer: the applier takes the bytes from there, and not over HTTP, and then goes on as
//! ever. So nothing that comes in a package is verified less, or published otherwise.
//!
//! For each set [`sync::Coverage`] keeps the stretches of the Source's own time in which every change is known. A hole between
//! two of them is a gap. A gap is closed by proof, never by hope: by documents that cover it whole.
//!
//! # What always holds
//!
//! 1. **A notification is acknowledged when it is on disk**, not before. The inbox is full: 503, and the hub tries again.
//! 2. **A file in the mirror is whole and verified**: a working file in the same file system, bytes counted and hashed while
//!    they are written, length and every understood digest checked, fsync, rename, fsync of the folder.
//! 3. **The database never says more than the files.** Publish first, then commit. What a crash leaves between is done again,
//!    and doing it again changes nothing.
//! 4. **Coverage moves with its tasks**, in one transaction.
//! 5. **Deletion needs proof**: a `deleted` change, or absence from a Resource List or Resource Dump that was read whole and is
//!    not older than what is known. Too many at once are held back and told, until a person lets them go on.
//! 6. **One Source's trouble is its own**: limits, time-outs, concurrency and failures are per Source.
//! 7. **Never from outside to inside**: only http and https, and no address that is not public unless the configuration
//!    allows it; checked on every URL, every redirect and every resolved address.
//!
//! The Source's time and ours are never mixed: only the Source's clock counts for coverage and for the order of changes; ours
//! times leases, waits and polls.
//!
//! # What is absent on purpose
//!
//! - No loop that looks for work: whoever waits is woken by a [`store::Wake`].
//! - No list in memory as a whole: Resource Lists and Change Lists are read an entry at a time, whatever their length.
//! - No second opinion on time: nothing but [`clock`] asks, so that a test can move it.
//! - No guess that closes a gap: not the next notification, not a quiet hour.
//! - No table in memory of what the mirror has: that is the database's, and a baseline makes the database anew,
//!   without fetching what is whole.
//! - No password on the status listener and no TLS on either listener: both are a reverse proxy's.

pub mod cli;
pub mod clock;
pub mod config;
pub mod demo;
pub mod engine;
pub mod fetch;
pub mod http;
pub mod mirror;
pub mod protocol;
pub mod status;
pub mod store;
pub mod sync;
