//! SHELL, inbound: the listener that hubs call and the one that operators ask.
//!
//! Invariants: a delivery is acknowledged when, and only when, it is on disk or can be told at once to be of no use; a
//! channel is known by its callback's token alone; no answer holds a secret or a token. The room knows the inbox and the
//! feed of the [`store`](crate::store) and the [`Operations`](crate::status::Operations) of the daemon, not how those work.
//!
//! Specification: WebSub, sections 5.3 (verification of intent), 7 (content distribution) and 7.1 (signatures).

mod callback;
mod connection_slots;
mod host_origin_guard;
mod keyed_semaphore;
mod listener;
mod operator;
mod refusals;
mod rejection_counters;

pub use callback::{Callback, callback_router};
pub use listener::{Bound, bind, serve};
pub use operator::operator_router;
pub use rejection_counters::RejectionCounters;
