//! XMPP PubSub (ResourceSync 0.1, section 5.2.1; RFC 6120, XEP-0060, XEP-0198): a session of the configured account that is
//! subscribed to a node. Nothing but this module knows XMPP.
//!
//! Stanzas are read here, on the parser `rxml`, and not by `tokio-xmpp` 6 on the same parser, as that bounds nothing: 8000 nested elements
//! in a stanza of 56 kB, or 19,000 in what the server offers before TLS, overflow the stack of a thread and end the process; 8 MB of empty
//! elements take 450 MB. It also counts stanzas when they are read and not when they are stored, and takes the stanza of the draft's
//! example 5.5, in a namespace of its own, for an error of the stream.
//!
//! - `stanza` reads stanzas, `payload` the document of an `element`, `stream` joins them with a connection;
//! - `srv` finds the server, `scram` proves the password, `login` begins a session;
//! - `node` subscribes and listens, `wanted` has what it asks for.
//!
//! Invariants: a stanza takes bounded memory; without TLS nothing but the domain is sent, except on loopback; the server is the one
//! that the operator has configured, and never one that a Source names. Each channel has a session of its own, whose resource is its
//! own, so that one whose inbox is full holds up no other.

mod account;
#[cfg(test)]
mod connecting_tests;
mod element;
mod error;
pub(crate) mod limits;
mod login;
mod names;
mod node;
mod payload;
mod scram;
mod srv;
mod stanza;
mod stream;
#[cfg(test)]
mod tests;
mod wanted;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

pub use account::{XmppAccount, XmppPassword};
pub use error::XmppError;
pub use limits::SessionPermit;
use login::{Login, LoginCredentials, Security, log_in};
use node::NodeName;
pub use node::{NodeEvent, NodeItem, NodeResumption, NodeSession};
use resourcesync::draft::node_of;
use resyncd_core::TopicUri;
use srv::addresses_of;
use tokio::net::TcpStream;

use crate::Transports;

/// How many addresses of a place are tried.
const MOST_ADDRESSES: usize = 8;
/// How long an address may take to accept a connection, and a name to be resolved.
const CONNECTING_TIME: Duration = Duration::from_secs(10);

/// What one session of a channel passes to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeMemory {
    /// The resource of the address, which is the channel's own.
    pub resource: String,
    /// The longest document, in bytes.
    pub limit: u64,
    /// How many of the newest items are asked for.
    pub newest: u32,
    /// What the next session resumes.
    pub resumption: Option<NodeResumption>,
    /// The items that a session asks for which resumes none: the one before was not sent their documents.
    pub unanswered: Vec<String>,
}

impl Transports {
    /// Subscribes to the node of a channel, or resumes the session that is subscribed. The flag states which. The permit is that of
    /// the session, for as long as it is open.
    ///
    /// # Errors
    /// [`XmppError`] if the server or the service does not agree, or the account has too many sessions.
    pub async fn open_node(
        &self,
        topic: &TopicUri,
        memory: &mut NodeMemory,
    ) -> Result<(NodeSession, bool, SessionPermit), XmppError> {
        let permit = self.nodes.session_permit().ok_or(XmppError::TooMany)?;
        let name = name_of(topic)?;
        let opening = async {
            let (resource, known) = (&memory.resource, memory.resumption.as_ref());
            let login = self.log_in(resource, memory.limit, Some(&name.service), known);
            let login = login.await?;
            let is_resumed = login.is_resumed;
            self.nodes.note_address(resource, &login.own);
            let session = NodeSession::begin(login, name, known.cloned(), memory.newest);
            let mut session = session.await?;
            if !is_resumed {
                session.ask_for(&memory.unanswered)?;
            }
            Ok((session, is_resumed))
        };
        let opened: Result<_, XmppError> = opening.await;
        // A session that was not reached can still be resumed.
        if !matches!(&opened, Err(error) if error.is_of_connection()) {
            memory.resumption = None;
        }
        let (session, is_resumed) = opened?;
        memory.unanswered = Vec::new();
        Ok((session, is_resumed, permit))
    }

    /// Ends the subscription of a channel by a session that takes the place of none. `resource`: that of the channel's sessions.
    ///
    /// # Errors
    /// [`XmppError`] if the service does not confirm it.
    pub async fn leave_node(&self, topic: &TopicUri, resource: &str) -> Result<(), XmppError> {
        let _permit = self.nodes.ending_permit().await;
        // Somebody may have asked for it while the driver tries: one session must not displace the other.
        static ENDINGS: AtomicU32 = AtomicU32::new(1);
        let number = ENDINGS.fetch_add(1, Ordering::Relaxed);
        let name_of_end = format!("{resource}-end-{number}");
        let login = self.log_in(&name_of_end, 0, None, None);
        let session = NodeSession::over(login.await?, name_of(topic)?);
        let assigned = self.nodes.address(resource);
        let own = assigned.unwrap_or_else(|| session.own_with(resource));
        session.end_subscription_of(&own).await
    }

    async fn log_in(
        &self,
        resource: &str,
        limit: u64,
        service: Option<&str>,
        resumption: Option<&NodeResumption>,
    ) -> Result<Login, XmppError> {
        let account = self.xmpp_account().ok_or(XmppError::NoAccount)?;
        let opening = async {
            let (connection, address) = connect(account).await?;
            let credentials = LoginCredentials {
                account,
                tls: &|| {
                    let tls = self.client().tls().map(Arc::new);
                    tls.map_err(|error| XmppError::Tls(error.to_string()))
                },
                resource,
                limit: usize::try_from(limit).unwrap_or(usize::MAX),
                service,
            };
            let security = security_of(account, address);
            log_in(Box::new(connection), security, &credentials, resumption).await
        };
        let opened = tokio::time::timeout(self.client().timeout(), opening).await;
        opened.unwrap_or_else(|_| Err(XmppError::Unreachable("timeout".to_owned())))
    }
}

fn name_of(topic: &TopicUri) -> Result<NodeName, XmppError> {
    let (service, node) = node_of(topic.url()).ok_or(XmppError::NoNode)?;
    Ok(NodeName { service, node })
}

/// Whether the server of an account needs TLS, at this address. A name may resolve to loopback because whoever answers for the DNS
/// likes to, and then another user of this machine is the server: only what can mean nothing else is exempt.
fn security_of(account: &XmppAccount, address: IpAddr) -> Security {
    let name = account.host();
    let is_loopback = |address: IpAddr| address.to_canonical().is_loopback();
    let is_local = match name.parse::<IpAddr>() {
        Ok(literal) => is_loopback(literal),
        Err(_) => name.eq_ignore_ascii_case("localhost"),
    };
    if is_local && is_loopback(address) {
        Security::Loopback
    } else {
        Security::Required
    }
}

/// Connects to the server of an account.
async fn connect(account: &XmppAccount) -> Result<(TcpStream, IpAddr), XmppError> {
    let servers = match &account.server {
        Some(server) => vec![server.clone()],
        None => addresses_of(&account.domain).await,
    };
    let mut last = format!("{} has none", account.domain);
    for (host, port) in servers {
        let found = tokio::net::lookup_host((host.as_str(), port));
        let connected = match in_time(found).await {
            Ok(found) => first_of(found.take(MOST_ADDRESSES), TcpStream::connect).await,
            Err(error) => Err(error),
        };
        match connected {
            Ok((connection, address)) => return Ok((connection, address.ip())),
            Err(error) => last = format!("{host}:{port}: {error}"),
        }
    }
    Err(XmppError::Unreachable(last))
}

/// Connects to the first of these addresses that accepts it.
async fn first_of<T, F: Future<Output = io::Result<T>>>(
    addresses: impl Iterator<Item = SocketAddr>,
    connect: impl Fn(SocketAddr) -> F,
) -> io::Result<(T, SocketAddr)> {
    let mut last = io::Error::other("it has no address");
    for address in addresses {
        match in_time(connect(address)).await {
            Ok(connection) => return Ok((connection, address)),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// One address that drops packets must not use up the time of the others.
async fn in_time<T>(trying: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let tried = tokio::time::timeout(CONNECTING_TIME, trying).await;
    tried.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}
