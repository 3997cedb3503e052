//! The queries, each of which sees the database at one moment.

mod late;
mod lookup;
mod needed;
mod parts;
pub(super) mod queue;
pub(super) mod statistics;
