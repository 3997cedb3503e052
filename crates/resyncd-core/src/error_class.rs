//! The class of an error: whose it is, and whether it may pass by itself. Each error that somebody decides by has one.
//!
//! Must not know the errors.

/// Whose an error is, and whether it may pass by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// Ours: the database, the disk, or a stop. The work waits until it passes.
    Fatal,
    /// It may pass by itself, and other requests to the same host may fail as well.
    Retry,
    /// The Source's, or a conflict in the mirror: it stays until something else changes.
    Unusable,
}
