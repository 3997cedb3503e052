//! The protocols of the interfaces at which callbacks may be registered (version 0.1 of ResourceSync, section 5.2.2).
//!
//! The draft defines none: what the URI of one stands for, only the operator can know.

use resourcesync::uri::parse_uri;

/// The URIs of these protocols.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallbackProtocols(Vec<String>);

/// A callback may not be registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its protocol {0} is not one of callback_protocols")]
pub struct UnconfiguredProtocol(String);

impl UnconfiguredProtocol {
    /// The stable code.
    pub const CODE: &'static str = "protocol-not-configured";
}

impl CallbackProtocols {
    /// These protocols.
    pub fn new(uris: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        Self(uris.into_iter().map(|uri| form_of(uri.as_ref())).collect())
    }

    /// Whether callbacks may be registered at an interface of a protocol.
    ///
    /// # Errors
    /// [`UnconfiguredProtocol`] if not.
    pub fn check(&self, protocol: &str) -> Result<(), UnconfiguredProtocol> {
        if self.0.contains(&form_of(protocol)) {
            Ok(())
        } else {
            Err(UnconfiguredProtocol(protocol.to_owned()))
        }
    }
}

/// A URI as it is compared.
fn form_of(uri: &str) -> String {
    parse_uri(uri.trim()).map_or_else(|_| uri.trim().to_owned(), String::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_configured_protocols_are_used() {
        let protocols = CallbackProtocols::new(["http://example.com", "urn:x:callback"]);
        for (protocol, is_allowed) in [
            ("http://example.com/", true),
            ("HTTP://Example.com", true),
            ("urn:x:callback", true),
            ("http://example.com/callback", false),
            ("https://example.com/", false),
            ("", false),
        ] {
            let checked = protocols.check(protocol);
            assert_eq!(checked.is_ok(), is_allowed, "{protocol}");
            assert!(CallbackProtocols::default().check(protocol).is_err());
        }
    }
}
