//! CORE. What to do: which stretches of the Source's time are known, which notification is next, what a change means for
//! the mirror, when a lease is renewed and when to poll.
//!
//! Everything here is a value that is told what happened and what time it is, and answers what to do: no I/O, no clock,
//! no SQL, no XML. Times of the Source are [`SourceTime`](crate::protocol::SourceTime)s, times of this machine come as
//! [`Now`](crate::clock::Now); the two are compared in two places only: where a notification claims to come from the future,
//! and where a time that a list is said to be of may not be over.
//!
//! Specification: Change Notification 1.0.1, section 3 (consecutive, non-overlapping intervals); core, sections 10.1 and
//! 12.1 (`at`, `from`, `until`); WebSub, sections 5 and 6 (leases).

mod candidates;
mod channel;
mod circuit_breaker;
mod coverage;
mod lease;
mod news_filter;
mod part;
mod plan;
mod push_watchdog;
mod related;
mod schedule;
mod sequencer;
mod span;

pub use candidates::{Candidate, Expected, plan_candidates};
pub use channel::{
    Channel, ChannelAction, ChannelChoice, ChannelEvent, ChannelFailure, ChannelKey,
    ChannelMachine, ChannelReport, ChannelRules, ChannelStep, HubRequest, choose_channels,
};
pub use circuit_breaker::HostCircuitBreaker;
pub use coverage::Coverage;
pub use lease::{Asked, ChannelState, Intent, Lease, Ruling};
pub use news_filter::NewsFilter;
pub use part::{KnownPart, PartPlan, believed, plan_part, proof_of_part};
pub use plan::{
    Announced, Decision, LocalState, Pending, holds_back, plan_absent, plan_change, plan_listed,
};
pub use push_watchdog::PushWatchdog;
pub use related::cut_links;
pub use schedule::{Pacing, Schedule};
pub use sequencer::{
    Gap, GapReason, Hint, Limits, NotificationId, Sequencer, Verdict, is_plausible,
    latest_believed, latest_plausible,
};
pub use span::Span;
