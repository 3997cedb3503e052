//! The options of the hub, for correct and incorrect behaviour.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use websub::SignatureMethod;

use crate::{Clock, system_clock};

/// The options of a hub. The default conforms to WebSub.
#[derive(Clone, Debug)]
pub struct HubOptions {
    /// The address to listen on; port 0 chooses a free one.
    pub listen: SocketAddr,
    /// How it answers a request to subscribe or unsubscribe.
    pub granting: Granting,
    /// When it verifies intent.
    pub verifying: Verifying,
    /// The shortest lease it grants.
    pub min_lease: Duration,
    /// The longest lease it grants.
    pub max_lease: Duration,
    /// The lease it grants when none is requested.
    pub default_lease: Duration,
    /// Whether its verification states `hub.lease_seconds`.
    pub states_lease: bool,
    /// The `hub.lease_seconds` that its verification states instead of what it grants.
    pub false_lease: Option<u64>,
    /// Whether a renewal leaves the old secret in force.
    pub keeps_old_secret: bool,
    /// How it signs deliveries to subscribers that sent a secret.
    pub signing: Signing,
    /// The maximum number of attempts to deliver.
    pub attempts: u32,
    /// The time between two attempts.
    pub retry_after: Duration,
    /// How long a subscriber may take to answer.
    pub timeout: Duration,
    /// What time it is, for the ends of leases.
    pub clock: Clock,
}

impl Default for HubOptions {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            granting: Granting::Accept(202),
            verifying: Verifying::AfterAnswer,
            min_lease: Duration::from_secs(1),
            max_lease: Duration::from_secs(31 * 86_400),
            default_lease: Duration::from_secs(10 * 86_400),
            states_lease: true,
            false_lease: None,
            keeps_old_secret: false,
            signing: Signing::Signed(SignatureMethod::Sha256),
            attempts: 3,
            retry_after: Duration::from_millis(100),
            timeout: Duration::from_secs(180),
            clock: system_clock,
        }
    }
}

/// How a hub answers a request to subscribe or unsubscribe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Granting {
    /// With this status, and then verifies. WebSub requires 202; some hubs answer 204.
    Accept(u16),
    /// With this status, and does not verify.
    Refuse(u16),
    /// With this status if a lease is requested, otherwise with 202: some hubs reject `hub.lease_seconds`.
    RefuseLease(u16),
    /// With this status, usually 307, to another hub.
    Redirect(u16, String),
}

/// When a hub verifies intent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verifying {
    /// Before it answers the request.
    BeforeAnswer,
    /// After it has answered.
    AfterAnswer,
    /// Never: every request is accepted.
    Never,
}

/// How a hub signs (WebSub, section 7.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signing {
    /// Correctly, with this method.
    Signed(SignatureMethod),
    /// Not at all.
    Unsigned,
    /// With a wrong secret.
    Wrong,
}
