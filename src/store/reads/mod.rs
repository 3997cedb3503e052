//! The queries, each of which sees the database at one moment.

pub(super) mod excerpt;
pub(super) mod find;
pub(super) mod hook_news;
mod late;
pub(super) mod listing;
mod lookup;
pub(super) mod named;
mod needed;
mod parts;
pub(super) mod published;
pub(super) mod queue;
mod report;
pub(super) mod statistics;
pub(super) mod status;
