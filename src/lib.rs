//! resyncd keeps local copies in step with ResourceSync Sources.

pub mod clock;
pub mod config;
pub mod fetch;
pub mod protocol;
