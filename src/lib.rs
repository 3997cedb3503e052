//! resyncd keeps local copies in step with ResourceSync Sources.

pub mod clock;
pub mod config;
pub mod mirror;
pub mod protocol;
pub mod store;
pub mod sync;
