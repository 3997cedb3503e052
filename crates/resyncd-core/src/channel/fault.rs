//! What is wrong with a channel although its hub may have granted the subscription: shown until the hub proves otherwise.

use chrono::{DateTime, Utc};

use crate::{HubUri, Transport};

/// What is wrong with the deliveries of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeliveryFaultKind {
    /// Polls have found changes that were not delivered.
    Silent,
    /// A delivery had no signature, although the hub has a secret.
    Unsigned,
    /// A delivery had a wrong signature.
    WrongSignature,
    /// A delivery was for another channel or another set.
    Misdirected,
    /// The Source's own answers contradict what the hub has delivered.
    Contradicted,
}

impl DeliveryFaultKind {
    const ALL: [Self; 5] = [
        Self::Silent,
        Self::Unsigned,
        Self::WrongSignature,
        Self::Misdirected,
        Self::Contradicted,
    ];

    /// The stable code.
    pub fn code(self) -> &'static str {
        match self {
            Self::Silent => "push-silent",
            Self::Unsigned => "unsigned",
            Self::WrongSignature => "wrong-signature",
            Self::Misdirected => "misdirected-delivery",
            Self::Contradicted => "hub-contradicted",
        }
    }

    /// The kind of a stable code.
    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }

    /// The explanation for people, of a channel over this transport.
    pub fn message(self, transport: Transport) -> &'static str {
        match self {
            Self::Silent if !transport.has_hubs() => {
                "polls find changes that the Source has not sent"
            }
            Self::Contradicted if !transport.has_known_sender() => {
                "the Source's own answers contradict what was delivered to the callback; the mirror follows the answers"
            }
            Self::Contradicted if !transport.has_hubs() => {
                "the Source's own answers contradict what it has sent; the mirror follows the answers"
            }
            Self::Silent => "polls find changes that the hub has not delivered",
            Self::Unsigned => {
                "the hub delivers without the signature that was asked for; `signatures = \"off\"` accepts that"
            }
            Self::WrongSignature => {
                "a delivery was not signed with the secret that the hub was given"
            }
            Self::Misdirected => "a delivery was for another channel or another set",
            Self::Contradicted => {
                "the Source's own answers contradict what the hub has delivered; the mirror follows the Source"
            }
        }
    }

    /// Whether deliveries arrive and are rejected.
    pub(super) fn is_of_signatures(self) -> bool {
        matches!(self, Self::Unsigned | Self::WrongSignature)
    }
}

/// The last fault of the deliveries of a channel. It ends with the next delivery that is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeliveryFault {
    /// What is wrong.
    pub kind: DeliveryFaultKind,
    /// Since when.
    pub at: DateTime<Utc>,
}

/// A hub's denial of the subscription. It ends with the next verification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// The hub; `None`: it was asked with no callback that is still known.
    pub hub: Option<HubUri>,
    /// The reason that the hub states; may be empty.
    pub reason: String,
    /// When it was received.
    pub at: DateTime<Utc>,
}

/// The longest stored reason of a denial, in characters.
const MAX_REASON: usize = 300;

impl Denial {
    /// A denial with the beginning of the reason.
    pub(super) fn new(hub: Option<HubUri>, reason: &str, at: DateTime<Utc>) -> Self {
        Self {
            hub,
            reason: reason.chars().take(MAX_REASON).collect(),
            at,
        }
    }

    /// The explanation for people.
    pub fn message(&self) -> String {
        match self.reason.trim() {
            "" => "the hub denied the subscription without a reason".to_owned(),
            reason => format!("the hub denied the subscription: {reason}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_a_code_of_its_own() {
        for kind in DeliveryFaultKind::ALL {
            assert_eq!(DeliveryFaultKind::from_code(kind.code()), Some(kind));
        }
        assert_eq!(DeliveryFaultKind::from_code("other"), None);
    }

    #[test]
    fn explanation_names_who_has_delivered() {
        use DeliveryFaultKind::{Contradicted, Silent};
        for (transport, silent, contradicted) in [
            (Transport::Websub, "the hub", "the hub has delivered"),
            (Transport::Websocket, "the Source", "it has sent"),
            (Transport::Xmpp, "the Source", "it has sent"),
            (Transport::Callback, "the Source", "to the callback"),
        ] {
            assert!(Silent.message(transport).contains(silent), "{transport:?}");
            let message = Contradicted.message(transport);
            assert!(message.contains(contradicted), "{transport:?}");
        }
    }

    #[test]
    fn reason_of_a_denial_is_cut() {
        let denial = Denial::new(None, &"é".repeat(1000), DateTime::UNIX_EPOCH);
        assert_eq!(denial.reason.chars().count(), MAX_REASON);
        let silent = Denial::new(None, " ", DateTime::UNIX_EPOCH);
        assert!(silent.message().ends_with("without a reason"));
    }
}
