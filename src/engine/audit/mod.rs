//! Compares a mirror, file by file, with what its Source states now, and repairs it if that was requested.
//!
//! What the Source states is written into an [`AuditDb`](crate::store::AuditDb) on disk, so that memory does not grow with the set;
//! the findings are written there, too, and reported at the end. No daemon decides anything by it: an audit that only compares takes
//! no lock and writes nothing else, and one that repairs plans tasks as a daemon does, for an executor of its own.
//!
//! | module | what it does |
//! |---|---|
//! | `run` | [`Audit`]: the steps, one after the other |
//! | `documents`, `entries` | read the Source's documents; record their entries |
//! | `files` | compares the files with what is expected |
//! | `originals` | compares republished resources with what is stated of their originals |
//! | `recheck` | checks the findings once more |
//! | `repair` | corrects them |
//! | `comparison`, `results` | the result before it is repaired or reported; what is reported |
//! | `context` | what each step needs |

mod comparison;
mod context;
mod documents;
mod entries;
mod files;
mod originals;
mod recheck;
mod repair;
mod results;
mod run;

pub use context::RepairOptions;
pub use results::{
    OriginalOutcome, OriginalSums, Reported, ReportedFinding, ReportedOriginal, Summary, Sums,
};
pub use run::Audit;
