//! The account that the nodes of PubSub services are subscribed to with (ResourceSync 0.1, section 5.2.1).

use std::fmt;

/// An account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XmppAccount {
    /// What is before the `@` of its address.
    pub user: String,
    /// The domain.
    pub domain: String,
    /// The password.
    pub password: XmppPassword,
    /// Where the server is; `None`: where the domain's SRV records say.
    pub server: Option<(String, u16)>,
}

impl XmppAccount {
    /// The port of a server that is named without one, or found without an SRV record (RFC 6120, section 3.2.2).
    pub const DEFAULT_PORT: u16 = 5222;

    /// The host that is configured, or else the domain.
    #[must_use]
    pub fn host(&self) -> &str {
        let configured = self.server.as_ref().map(|(host, _)| host);
        configured.unwrap_or(&self.domain)
    }
}

/// The password of an account. It is not shown.
#[derive(Clone, PartialEq, Eq)]
pub struct XmppPassword(String);

impl XmppPassword {
    /// The longest one, in bytes.
    pub const MAX_BYTES: u64 = 1024;

    /// One of 1 to 1024 visible ASCII characters and spaces; `None` for any other text.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let is_valid = text
            .bytes()
            .all(|byte| byte.is_ascii_graphic() || byte == b' ');
        let is_valid = is_valid && !text.is_empty() && text.len() as u64 <= Self::MAX_BYTES;
        is_valid.then(|| Self(text.to_owned()))
    }

    /// The password itself.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for XmppPassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("XmppPassword(…)")
    }
}
