//! The connections over which messages of a Source arrive: WebSockets (Notification 0.8, sections 3 to 6), and sessions of an XMPP
//! account that are subscribed to nodes of PubSub services (version 0.1, section 5.2.1).
//!
//! | module | what it has |
//! |---|---|
//! | `transports` | [`Transports`]: what one Source opens channels with |
//! | `websocket` | a WebSocket; how many a Source may have |
//! | `xmpp` | a session of the XMPP account; how many there may be |
//!
//! Invariants:
//! - A WebSocket is opened by a request of the guarded client, like any other. A session is opened to the server that the operator has
//!   configured, and to no other.
//! - A message takes bounded memory, a connection that is silent or never ends a message ends after a while, and the number of
//!   connections is limited.
//!
//! It knows transports, not what a message means, where it is stored, or whether a channel is wanted.
//!
//! Specification: RFC 6455 (WebSockets); RFC 6120, XEP-0060, XEP-0198 (XMPP PubSub).

#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod transports;
mod websocket;
mod xmpp;

pub use transports::Transports;
pub use websocket::{Socket, SocketError, SocketMessage};
pub use xmpp::{
    NodeEvent, NodeItem, NodeMemory, NodeResumption, NodeSession, SessionPermit, XmppAccount,
    XmppError, XmppPassword,
};
