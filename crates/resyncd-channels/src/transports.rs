//! What one Source opens channels with.

use std::sync::Arc;

use resyncd_fetch::Client;

use crate::websocket::SocketLimits;
use crate::xmpp::XmppAccount;
use crate::xmpp::limits::NodeLimits;

/// The client, the XMPP account, and the limits of what is open. Clones share the limits.
#[derive(Clone)]
pub struct Transports {
    client: Client,
    account: Option<Arc<XmppAccount>>,
    pub(crate) sockets: SocketLimits,
    pub(crate) nodes: NodeLimits,
}

impl Transports {
    /// Those of a process.
    #[must_use]
    pub fn new(client: Client, account: Option<XmppAccount>) -> Self {
        Self {
            client,
            account: account.map(Arc::new),
            sockets: SocketLimits::default(),
            nodes: NodeLimits::default(),
        }
    }

    /// Those of a Source, which has this client: WebSockets are counted for each Source, sessions of the account for all of them, too.
    #[must_use]
    pub fn for_source(&self, client: Client) -> Self {
        Self {
            client,
            account: self.account.clone(),
            sockets: SocketLimits::default(),
            nodes: self.nodes.of_source(),
        }
    }

    /// The same ones with another client.
    #[must_use]
    pub fn with_client(&self, client: Client) -> Self {
        Self {
            client,
            ..self.clone()
        }
    }

    /// The client of all requests.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The account for PubSub services.
    #[must_use]
    pub fn xmpp_account(&self) -> Option<&XmppAccount> {
        self.account.as_deref()
    }
}
