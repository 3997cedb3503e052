//! What the configuration must state for the channels of a transport.

use resyncd_core::Transport;

use super::callback_protocols::UnconfiguredProtocol;

/// What the configuration lacks for a channel.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LackingKey {
    /// The protocol of its interface is not one of `callback_protocols`.
    #[error(transparent)]
    Protocol(UnconfiguredProtocol),
    /// There is no URL for its callback.
    #[error("[callback] public_url is not set")]
    PublicUrl,
    /// There is no account for it.
    #[error("[xmpp] jid is not set")]
    Account,
}

impl LackingKey {
    const PUBLIC_URL: &str = "no-public-url";
    const ACCOUNT: &str = "no-xmpp-account";
    /// All codes.
    pub const CODES: [&str; 3] = [UnconfiguredProtocol::CODE, Self::PUBLIC_URL, Self::ACCOUNT];

    /// What is lacking for a channel over a transport; `protocol`: the error of its protocol, if it has one.
    pub fn all_of(
        transport: Transport,
        protocol: Option<UnconfiguredProtocol>,
        has_public_url: bool,
        has_account: bool,
    ) -> impl Iterator<Item = Self> {
        let lacks_url = transport.has_callback() && !has_public_url;
        let lacks_account = transport.needs_account() && !has_account;
        let lacking = [
            protocol.map(Self::Protocol),
            lacks_url.then_some(Self::PublicUrl),
            lacks_account.then_some(Self::Account),
        ];
        lacking.into_iter().flatten()
    }

    /// The stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Protocol(_) => UnconfiguredProtocol::CODE,
            Self::PublicUrl => Self::PUBLIC_URL,
            Self::Account => Self::ACCOUNT,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::CallbackProtocols;

    #[test]
    fn each_transport_needs_its_own_keys() {
        use Transport::{Callback, Websocket, Websub, Xmpp};
        let unconfigured = CallbackProtocols::default().check("urn:x").err();
        let all = |transport, protocol, has_url, has_account| -> Vec<_> {
            let lacking = LackingKey::all_of(transport, protocol, has_url, has_account);
            lacking.map(|it| it.code()).collect()
        };
        for (transport, expected) in [
            (Websub, &["no-public-url"][..]),
            (Websocket, &[]),
            (Xmpp, &["no-xmpp-account"]),
            (Callback, &["protocol-not-configured", "no-public-url"]),
        ] {
            let protocol = unconfigured.clone().filter(|_| transport == Callback);
            assert_eq!(all(transport, protocol, false, false), expected);
            assert!(all(transport, None, true, true).is_empty());
        }
    }
}
