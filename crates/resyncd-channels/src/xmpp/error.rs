//! Why there is no connection to the XMPP server, or no more.

use std::io;

use super::element::MOST_DEEP;
use super::limits::{MOST_OF_SOURCE, MOST_SESSIONS};
use super::stanza::{LONGEST_TAG, LONGEST_TOKEN};

/// Why a node can't be listened to, or not any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum XmppError {
    /// `[xmpp]` is not configured.
    #[error("[xmpp] jid is not set")]
    NoAccount,
    /// The topic names no node.
    #[error("the URI names no node of a PubSub service")]
    NoNode,
    /// The account has as many sessions as it may have.
    #[error(
        "the XMPP account has as many sessions as it may have: {MOST_SESSIONS}, of one Source {MOST_OF_SOURCE}"
    )]
    TooMany,
    /// The server can't be found or connected to.
    #[error("the XMPP server is unreachable: {0}")]
    Unreachable(String),
    /// The server offers no TLS, or somebody on the way has removed the offer.
    #[error("the XMPP server offers no TLS (STARTTLS), which is required unless it is on loopback")]
    NoTls,
    /// TLS has failed.
    #[error("TLS with the XMPP server has failed: {0}")]
    Tls(String),
    /// The server does not accept the account, or is not the one that knows it.
    #[error("authentication at the XMPP server has failed: {0}")]
    Authentication(String),
    /// The service does not let this account subscribe, or has ended the subscription.
    #[error("the PubSub service refuses or has ended the subscription: {0}")]
    Refused(String),
    /// The service has not answered a request in time.
    #[error("the PubSub service has not answered a request in time")]
    NoAnswer,
    /// The server has ended the session.
    #[error("the XMPP server has ended the session: {0}")]
    Session(String),
    /// The server has ended the stream with an error.
    #[error("the XMPP server has ended the stream: {0}")]
    Stream(String),
    /// The server has closed the connection.
    #[error("the XMPP server has closed the connection")]
    Closed,
    /// The connection is broken.
    #[error("the connection is lost: {0}")]
    Lost(String),
    /// The server answers no pings.
    #[error("the XMPP server has answered none of two pings")]
    Unanswered,
    /// A stanza does not end.
    #[error("a stanza was not complete within 300 seconds")]
    Endless,
    /// A stanza is longer than allowed.
    #[error("a stanza is larger than {0} bytes; see [limits] notification")]
    TooLarge(usize),
    /// A start tag of a stanza is longer than allowed.
    #[error(
        "a start tag of a stanza is longer than {LONGEST_TAG} bytes, or a value in it than {LONGEST_TOKEN}"
    )]
    LongTag,
    /// An item, or a stanza of the service, is not accepted. The session goes on.
    #[error("an item of the node is not accepted: {0}")]
    Item(String),
    /// The server violates the protocol.
    #[error("the XMPP server violates the protocol: {0}")]
    Protocol(String),
}

impl XmppError {
    /// The elements of a stanza, or of a document in it, are nested too deeply.
    pub(super) fn too_deep() -> Self {
        Self::Item(format!(
            "its elements are nested more than {MOST_DEEP} deep"
        ))
    }

    /// The stable name of the error.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoAccount => "no-xmpp-account",
            Self::NoNode => "no-xmpp-node",
            Self::TooMany => "xmpp-sessions",
            Self::Unreachable(_) => "xmpp-unreachable",
            Self::NoTls => "xmpp-no-tls",
            Self::Tls(_) => "xmpp-tls",
            Self::Authentication(_) => "xmpp-authentication",
            Self::Refused(_) => "xmpp-refused",
            Self::NoAnswer => "xmpp-no-answer",
            Self::Session(_) => "xmpp-session",
            Self::Stream(_) => "xmpp-stream-error",
            Self::Closed => "connection-closed",
            Self::Lost(_) => "connection-lost",
            Self::Unanswered => "unanswered-pings",
            Self::Endless => "endless-message",
            Self::TooLarge(_) | Self::LongTag => "too-large",
            Self::Item(_) => "bad-item",
            Self::Protocol(_) => "xmpp-protocol",
        }
    }

    /// The same error, once a session has begun.
    pub(super) fn in_session(self) -> Self {
        match self {
            Self::Stream(why) => Self::Session(why),
            Self::Closed => Self::Session("it has closed the connection".to_owned()),
            other => other,
        }
    }

    /// Whether a stanza was received that is not accepted.
    #[must_use]
    pub fn is_of_message(&self) -> bool {
        matches!(
            self,
            Self::Endless | Self::TooLarge(_) | Self::LongTag | Self::Item(_)
        )
    }

    /// Whether what was sent is the reason: it would be one again.
    #[must_use]
    pub fn is_of_content(&self) -> bool {
        self.is_of_message() || matches!(self, Self::Protocol(_))
    }

    /// Whether it says nothing of what was sent: a session can be resumed then.
    #[must_use]
    pub fn is_of_connection(&self) -> bool {
        matches!(
            self,
            Self::Lost(_) | Self::Unanswered | Self::Unreachable(_)
        )
    }
}

impl From<io::Error> for XmppError {
    fn from(error: io::Error) -> Self {
        Self::Lost(error.to_string())
    }
}
