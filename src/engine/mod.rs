//! Joins what is fetched, decided, stored and published.
//!
//! A Source has a worker that finds its sets, an executor for its tasks, and a worker for each set. A set's worker is the only one
//! that moves its coverage; the executor changes the mirror, as do a repair by an audit and `forget` when a person
//! asks for them. They meet in the [`store`](crate::store), and
//! wake each other through it. An error of one Source does not affect another one.
//!
//! ```text
//! source::SourceWorker ── finds ──► set::SetWorker ── tasks ──► store ──► apply::Executor ──► mirror, store
//!                                      ▲  │
//!                          inbox, hubs │  └─ Change Lists, Resource Lists, dumps and their packages
//! ```
//!
//! Where versions are stored, the publisher links what it publishes, and a worker beside the executor fetches the others (`versions`).
//!
//! A reload replaces the list of the Sources: it stops the workers of those that are changed or removed, and starts others. What
//! is left of a Source is forgotten on request.
//!
//! The same set workers and executors also do a [single run](Engine::once), without hubs. For an [`Audit`] set workers read into an empty
//! database, without an executor; it compares the mirror with that, and has an executor repair what differs.
//!
//! | module | what it does |
//! |---|---|
//! | | **follows Sources** |
//! | `lifecycle` | [`Engine`]: starts and stops all workers |
//! | `operations` | what operators request of it |
//! | `reload`, `followed` | replaces the list of the Sources; that list |
//! | `sharing` | which Sources this node follows, where several work on one database |
//! | `nodes` | what this node asks of the others |
//! | `one_shot` | a single run |
//! | `source` | one Source: discovery, its worker |
//! | `context` | the handles that all work on one Source shares |
//! | | **reads what a Source states** |
//! | `set` | one set: polls, inbox, ingest |
//! | `documents` | the documents of a set: fetched, recognized and walked through |
//! | `channels` | the subscriptions of a set, over each transport |
//! | `package_permits` | how many packages are in progress at once |
//! | `contradictions` | the Source contradicts a hub: a fault of the channel |
//! | `read_facts` | what a single run has read, and what it could not read |
//! | | **changes the mirror** |
//! | `apply` | executes tasks, publishes files |
//! | `versions` | stores the versions beside the mirror |
//! | `mirror_opening` | opens the mirror that the Source has used so far |
//! | `audit` | compares, repairs |
//! | `forget` | deletes what is known of a former Source |
//! | | **passes on, tidies up** |
//! | `hooks` | programs and URLs that get the changes from the feed |
//! | `trimming` | removes old rows from the database |
//! | | **shows the state** |
//! | `runtime_status` | what the workers know and the database does not |
//! | `status_view` | the status: database and runtime status together |
//! | `attention` | what waits for a person, and the next step |
//! | `faults`, `oddities` | the counted errors and notices of a set; the oddities of its documents |
//! | `unencrypted_hubs` | the notice of a secret or callback that goes over plain http |
//! | `progress`, `recent_changes` | what was done since the start; what was applied in the last hour and day |
//! | `activity_log` | log lines of what was done |
//! | `notify` | tells people what waits for them: in the log, and as `[[notify]]` states |
//! | | **survives faults** |
//! | `error` | why an operation failed, and its class |
//! | `restarts` | starts a worker again after a panic |
//! | `store_retries` | the pause after a database error |
//! | `heartbeats` | finds workers that no longer respond |
//! | | **for tests** |
//! | `simulation` | the engine with a simulated clock, network and Source |
//! | `tests` | a Source with an empty database and an empty mirror |

mod activity_log;
mod apply;
mod attention;
mod audit;
mod audits;
mod channels;
mod context;
mod contradictions;
mod documents;
mod error;
mod faults;
mod followed;
mod forget;
mod heartbeats;
mod hooks;
mod hours;
mod lifecycle;
mod mirror_opening;
mod nodes;
mod notify;
mod oddities;
mod one_shot;
mod operations;
mod package_permits;
mod pausing;
mod progress;
mod read_facts;
mod recent_changes;
mod reload;
mod restarts;
mod runtime_status;
mod set;
mod sharing;
#[cfg(test)]
mod simulation;
mod source;
mod status_view;
mod store_retries;
#[cfg(test)]
mod tests;
mod trimming;
mod unencrypted_hubs;
mod versions;

pub use audit::{
    Audit, OriginalOutcome, OriginalSums, RepairOptions, Reported, ReportedFinding,
    ReportedOriginal, Summary, Sums,
};
pub use channels::{EndingSource, end_subscriptions};
use error::EngineError;
pub use followed::followed_sets;
pub use forget::{ForgetError, ForgetRequest, forget_source};
pub use lifecycle::{Engine, PublishedStatus};
pub use nodes::{NodeAnswer, NodeRequest, ask_node};
pub(crate) use notify::send_test;
pub use one_shot::in_scratch_folder;
pub use progress::Counts;
pub use source::location::has_another_mirror;
