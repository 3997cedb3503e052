//! Over what the notifications of a channel come: WebSub (Notification 1.0.1), a WebSocket (Notification 0.8, section 6), XMPP PubSub or
//! HTTP callback (version 0.1, sections 5.2.1 and 5.2.2).

use resourcesync::draft::node_of;
use url::Url;

/// A transport of notifications.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// A hub delivers them to the callback. It alone has leases, renewals and verifications.
    Websub,
    /// The Source sends them over a connection that this Destination opens.
    Websocket,
    /// A PubSub service sends them to a session of the configured XMPP account.
    Xmpp,
    /// The Source delivers them to the callback that this Destination has registered. Nobody verifies the registration, and nothing
    /// signs what is delivered.
    Callback,
}

impl Transport {
    /// All of them, the ones that are preferred first: only notifications over WebSub state an interval, and so that none is missing.
    pub const ALL: [Self; 4] = [Self::Websub, Self::Websocket, Self::Xmpp, Self::Callback];

    /// The stable name, for the status and the database.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Websub => "websub",
            Self::Websocket => "websocket",
            Self::Xmpp => "xmpp",
            Self::Callback => "callback",
        }
    }

    /// What is logged once a channel is active.
    #[must_use]
    pub fn active_event(self) -> &'static str {
        match self {
            Self::Websub => "subscription active",
            Self::Websocket | Self::Xmpp => "connection active",
            Self::Callback => "callback registered",
        }
    }

    /// What is logged where polls find what a channel has not brought.
    #[must_use]
    pub fn silent_event(self) -> &'static str {
        match self {
            Self::Websub => "no deliveries from the hub; subscribing again",
            Self::Websocket | Self::Xmpp => "no messages over the connection; connecting again",
            Self::Callback => "no deliveries at the callback; registering it again",
        }
    }

    /// The transport of a stable name.
    #[must_use]
    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|transport| transport.code() == code)
    }

    /// The transport of a channel with this URI, of which no protocol is stated; `None`: one that is not supported.
    #[must_use]
    pub fn of_uri(uri: &Url) -> Option<Self> {
        match uri.scheme() {
            "http" | "https" => Some(Self::Websub),
            "ws" | "wss" => uri.has_host().then_some(Self::Websocket),
            "xmpp" => node_of(uri).map(|_| Self::Xmpp),
            _ => None,
        }
    }

    /// Whether the head of a Sitemap of version 0.1 names its channels, and not a Capability List.
    #[must_use]
    pub fn is_named_by_sitemaps(self) -> bool {
        matches!(self, Self::Xmpp | Self::Callback)
    }

    /// Whether a channel needs the configured XMPP account.
    #[must_use]
    pub fn needs_account(self) -> bool {
        self == Self::Xmpp
    }

    /// Whether hubs stand between the Source and the Destination: a channel has one, and may have others.
    #[must_use]
    pub fn has_hubs(self) -> bool {
        self == Self::Websub
    }

    /// Whether a channel has a lease, which is renewed.
    #[must_use]
    pub fn has_lease(self) -> bool {
        self == Self::Websub
    }

    /// Whether notifications are delivered to a callback, which needs a public URL.
    #[must_use]
    pub fn has_callback(self) -> bool {
        matches!(self, Self::Websub | Self::Callback)
    }

    /// Whether deliveries may be signed.
    #[must_use]
    pub fn has_signatures(self) -> bool {
        self == Self::Websub
    }

    /// Whether it is known who sends the notifications: a hub that has verified the subscription, or the server of a connection.
    /// Otherwise whoever knows the callback may have made them up.
    #[must_use]
    pub fn has_known_sender(self) -> bool {
        self != Self::Callback
    }

    /// Whether the intervals that notifications state count: consecutive ones prove that none is missing. Otherwise each is a hint,
    /// whatever it states.
    #[must_use]
    pub fn states_intervals(self) -> bool {
        self == Self::Websub
    }

    /// Whether a notification may come several times because its delivery is tried again. Those of XMPP are distinguished by their
    /// identifiers before they are stored.
    #[must_use]
    pub fn is_retried(self) -> bool {
        matches!(self, Self::Websub | Self::Callback)
    }

    /// Whether a channel is a connection whose subscription stays when the connection ends: it is ended on its own.
    #[must_use]
    pub fn outlives_connections(self) -> bool {
        self == Self::Xmpp
    }
}

/// The same URI with the scheme of the HTTP request that opens a WebSocket (RFC 6455, section 3); any other URI as it is.
#[must_use]
pub fn http_form(uri: &Url) -> Url {
    let mut form = uri.clone();
    let scheme = match uri.scheme() {
        "ws" => "http",
        "wss" => "https",
        _ => return form,
    };
    // Fails only between schemes that have a host always, and others.
    let _ = form.set_scheme(scheme);
    form
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transports_have_names_and_schemes() {
        for transport in Transport::ALL {
            assert_eq!(Transport::from_code(transport.code()), Some(transport));
        }
        assert_eq!(Transport::from_code("carrier-pigeon"), None);
        for (uri, transport) in [
            ("http://example.com/", Some(Transport::Websub)),
            ("https://example.com/", Some(Transport::Websub)),
            ("ws://example.com/", Some(Transport::Websocket)),
            ("wss://example.com/", Some(Transport::Websocket)),
            ("xmpp:pubsub.example.com", None),
            ("xmpp:pubsub.example.com?;node=n", Some(Transport::Xmpp)),
            ("ftp://example.com/", None),
        ] {
            let found = Transport::of_uri(&Url::parse(uri).unwrap());
            assert_eq!(found, transport, "{uri}");
        }
    }

    #[test]
    fn websocket_is_opened_at_the_same_place_over_http() {
        for (uri, expected) in [
            ("ws://example.com/a?b", "http://example.com/a?b"),
            ("wss://example.com:443/a", "https://example.com/a"),
            ("wss://example.com:80/a", "https://example.com:80/a"),
            ("WS://example.com:8080", "http://example.com:8080/"),
            ("https://example.com/", "https://example.com/"),
        ] {
            let form = http_form(&Url::parse(uri).unwrap());
            assert_eq!(form.as_str(), expected);
            assert_eq!(
                form.port_or_known_default(),
                Url::parse(expected).unwrap().port_or_known_default()
            );
        }
    }
}
