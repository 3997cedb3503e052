//! A sample Source with its hub, in process and on loopback.
//!
//! The integration tests and the benchmarks follow it. Its documents are written without the program's publisher: a shared one would hide
//! shared errors. It knows nothing of the Destination: like any Source it publishes documents, notifies a hub and answers requests.
//!
//! Invariants:
//! - **Tests compose faults.** [`SampleSource::notify`] makes a notification and [`SampleSource::publish`] sends it to the hub: a lost
//!   one is not published, a duplicate is published twice, a late one after the next.
//! - **Its time never goes back.** Times follow the system clock or a clock that a test moves; two changes never have the same time,
//!   unless whole seconds are configured.
//! - **Documents are correct unless configured otherwise.** The intervals of consecutive notifications adjoin, the Change List has
//!   every change, and the Resource List and the Resource Dump are snapshots made on request only.
//! - **Tests wait for events**, not for a time: [`Hub::wait_for`], [`SampleSource::wait_for_hits`].
//!
//! Specification: the core (ANSI/NISO Z39.99-2014), sections 8 to 13; Change Notification 1.0.1 and Framework Notification 1.0.1,
//! sections 3 to 5; WebSub, sections 5 and 7, the hub's side.

#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod hub;
mod serving;
mod source;
pub mod tls;
mod traffic;

use chrono::{DateTime, Utc};
pub use hub::{
    Granting, Hub, HubCounts, HubDelivery, HubEvent, HubOptions, Signing, Subscription, Verifying,
};
pub use source::{
    ChangeListForm, ChannelHub, DumpOptions, Fault, MemberFault, Notification, PathForm,
    SampleOptions, SampleSource, Submission,
};
pub use traffic::{Traffic, TrafficEvent, TrafficOptions, Transmission};

/// What time it is.
pub type Clock = fn() -> DateTime<Utc>;

/// The clock of the system.
#[allow(
    clippy::disallowed_methods,
    reason = "a Source has a clock of its own, and this is not the daemon's"
)]
#[must_use]
pub fn system_clock() -> DateTime<Utc> {
    Utc::now()
}

/// An error of the sample Source or its hub.
#[derive(Debug, thiserror::Error)]
pub enum SampleError {
    /// The listener cannot be bound.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The configured address.
        address: std::net::SocketAddr,
        /// The system's error.
        error: std::io::Error,
    },
    /// The HTTP client cannot be created.
    #[error("cannot create the HTTP client: {0}")]
    Client(String),
    /// An external hub could not be reached.
    #[error("hub {hub} not reachable: {error}")]
    HubUnreachable {
        /// The hub.
        hub: String,
        /// The error of the request.
        error: reqwest::Error,
    },
    /// An external hub rejected the notification.
    #[error("hub {hub} answered {status}")]
    HubRefused {
        /// The hub.
        hub: String,
        /// The status of its response.
        status: u16,
    },
}

impl SampleError {
    /// The stable code of the error, in kebab-case.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Listen { .. } => "cannot-listen",
            Self::Client(_) => "no-http-client",
            Self::HubUnreachable { .. } => "hub-unreachable",
            Self::HubRefused { .. } => "hub-refused",
        }
    }
}
