//! SHELL, inbound: the callback listener for hubs and Sources, and the status listener for operators with its page (`page`).
//!
//! Invariants: a delivery is acknowledged only when it is on disk, or known at once to be unusable; a channel is identified by the
//! token of its callback alone; no response contains a secret or a token. The module knows the inbox and the feed of the
//! [`store`](crate::store) and the [`Operations`](crate::status::Operations) of the daemon, not how they work.
//!
//! Specification: WebSub, sections 5.3 (verification of intent), 7 (content distribution) and 7.1 (signatures); version 0.1 of
//! ResourceSync, section 5.2.2 (HTTP callback).

mod bearer_token;
mod callback;
mod connection_slots;
mod delivery_body;
mod delivery_budget;
mod delivery_rate;
mod error_response;
mod feed;
mod host_origin_guard;
mod known_callbacks;
mod listener;
mod log_throttle;
mod operator;
mod page;
mod query;
mod rejection_counters;
mod resource_line;

pub use callback::{Callback, SharedRedaction, callback_router};
pub use listener::{BoundListener, bind, serve};
pub use operator::operator_router;
pub use rejection_counters::{PROBE, RejectionCounters};
