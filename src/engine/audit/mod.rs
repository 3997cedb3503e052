//! Compares a mirror, file by file, with what its Source states now, and repairs it if that was requested.
//!
//! What the Source states is read as a daemon reads it, into a database of its own, and no executor applies it: the tasks that remain are
//! the files that are expected. The findings are written to the [`AuditDb`](crate::store::AuditDb), too, so that memory does not grow with
//! the set, and reported at the end. No daemon decides anything by it: an audit that only compares writes nothing but its own scratch
//! folder, and one that repairs plans tasks as a daemon does, for an executor of its own.
//!
//! | module | what it does |
//! |---|---|
//! | `run` | [`Audit`]: the steps, one after the other |
//! | `reading` | has the Source's documents read |
//! | `files` | compares the files with what is expected |
//! | `originals` | compares republished resources with what is stated of their originals |
//! | `recheck` | checks the findings once more |
//! | `repair` | corrects them |
//! | `results` | what is reported |
//! | `context` | what each step needs |

mod context;
mod files;
mod originals;
mod reading;
mod recheck;
mod repair;
mod results;
mod run;

pub use context::RepairOptions;
pub use results::{
    OriginalOutcome, OriginalSums, Reported, ReportedFinding, ReportedOriginal, Summary, Sums,
};
pub use run::Audit;
