//! How the hub behaves, and misbehaves.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use crate::protocol::websub::SignatureMethod;

/// How a hub behaves. The default does all that WebSub asks of it.
#[derive(Clone, Debug)]
pub struct HubOptions {
    /// Where it listens; port 0 takes a free one.
    pub listen: SocketAddr,
    /// How it answers a request to subscribe or unsubscribe.
    pub granting: Granting,
    /// When it verifies intent.
    pub verifying: Verifying,
    /// The shortest lease it grants.
    pub min_lease: Duration,
    /// The longest lease it grants.
    pub max_lease: Duration,
    /// The lease it grants when none is asked for.
    pub default_lease: Duration,
    /// Whether its verification tells `hub.lease_seconds`.
    pub tells_lease: bool,
    /// What its verification tells for `hub.lease_seconds` instead of what it grants.
    pub false_lease: Option<u64>,
    /// Whether a renewal leaves the old secret in force.
    pub keeps_old_secret: bool,
    /// How it signs deliveries to subscribers that sent a secret.
    pub signing: Signing,
    /// How often it tries a delivery that is not answered with 2xx, in all.
    pub attempts: u32,
    /// How long it waits before it tries again.
    pub retry_after: Duration,
    /// How long a subscriber may take to answer.
    pub timeout: Duration,
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
            tells_lease: true,
            false_lease: None,
            keeps_old_secret: false,
            signing: Signing::Signed(SignatureMethod::Sha256),
            attempts: 3,
            retry_after: Duration::from_millis(100),
            timeout: Duration::from_secs(10),
        }
    }
}

/// How a hub answers a request to subscribe or unsubscribe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Granting {
    /// With this status, and goes on to verify. 202 is what WebSub asks for; some hubs answer 204.
    Accept(u16),
    /// With this status, and forgets about it.
    Refuse(u16),
    /// With this status while a lease is asked for, else with 202: some hubs take no `hub.lease_seconds`.
    RefuseLease(u16),
    /// With this status, 307 as a rule, to another hub.
    Redirect(u16, String),
}

/// When a hub verifies intent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verifying {
    /// Before it answers the request.
    BeforeAnswer,
    /// After it has answered.
    AfterAnswer,
    /// Never: it takes the subscriber at its word.
    Never,
}

/// How a hub signs (WebSub, section 7.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signing {
    /// As it should, by this method.
    Signed(SignatureMethod),
    /// Not at all.
    Unsigned,
    /// With another secret than it was sent.
    Wrong,
}
