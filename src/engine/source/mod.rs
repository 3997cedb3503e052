//! One Source: finds its sets and runs a worker for each.

pub(super) mod discovery;
pub(super) mod location;
pub(super) mod worker;
