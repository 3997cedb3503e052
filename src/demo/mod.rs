//! Somebody else's Source: a sample Source with its hub, in process and on loopback.
//!
//! `resyncd demo`, the integration tests and the benchmarks follow it. It knows nothing of the Destination: it writes
//! documents, notifies a hub, and answers requests, as any Source would.
//!
//! What it is built for:
//! - **Faults are composed, not hidden.** [`SampleSource::notify`] makes a notification and [`SampleSource::publish`]
//!   hands it to the hub: a lost one is not published, a doubled one is published twice, a late one after the next.
//! - **Its time never goes back.** The Source's time stamps follow [`crate::clock`] or a clock that a test moves; two changes never
//!   share one, unless whole seconds are asked for.
//! - **It tells the truth unless told to lie.** The intervals of consecutive notifications touch, the Change List holds every
//!   change, and the Resource List and the Resource Dump are snapshots that are taken only when asked.
//! - **Waiting is for an event**, never for a while: [`Hub::wait_for`], [`SampleSource::wait_for_hits`].
//!
//! Specification: the core (ANSI/NISO Z39.99-2014), sections 8 to 13; Change Notification 1.0.1 and Framework Notification 1.0.1,
//! sections 3 to 5; WebSub, sections 5 and 7, the hub's side.

mod hub;
mod serving;
mod source;
mod traffic;

pub use hub::{
    Granting, Hub, HubCounts, HubDelivery, HubEvent, HubOptions, Signing, Subscription, Verifying,
};
pub use source::{
    ChangeListForm, ChannelHub, DumpOptions, Fault, MemberFault, Notification, PathForm,
    SampleOptions, SampleSource, Submission,
};
pub use traffic::{Fate, Traffic, TrafficEvent, TrafficOptions};

/// Why the sample Source or its hub could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// The address can't be listened on.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address that was asked for.
        address: std::net::SocketAddr,
        /// What the system said.
        error: std::io::Error,
    },
    /// The HTTP client can't be set up.
    #[error("cannot set up the HTTP client: {0}")]
    Client(String),
    /// An external hub could not be reached.
    #[error("the hub {hub} cannot be reached: {error}")]
    HubUnreachable {
        /// The hub.
        hub: String,
        /// What went wrong.
        error: reqwest::Error,
    },
    /// An external hub did not take the notification.
    #[error("the hub {hub} answered {status}")]
    HubRefused {
        /// The hub.
        hub: String,
        /// Its answer.
        status: u16,
    },
}

impl DemoError {
    /// The stable name of the error.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Listen { .. } => "cannot-listen",
            Self::Client(_) => "no-http-client",
            Self::HubUnreachable { .. } => "hub-unreachable",
            Self::HubRefused { .. } => "hub-refused",
        }
    }
}
