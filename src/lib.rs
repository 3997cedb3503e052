//! resyncd keeps local copies in step with ResourceSync Sources.

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
