//! The namespaces of XMPP.

/// Stanzas (RFC 6120).
pub(super) const CLIENT: &str = "jabber:client";
/// The stream, its features and its errors.
pub(super) const STREAM: &str = "http://etherx.jabber.org/streams";
/// Conditions of errors of the stream.
pub(super) const STREAM_ERRORS: &str = "urn:ietf:params:xml:ns:xmpp-streams";
/// Conditions of errors of stanzas.
pub(super) const STANZA_ERRORS: &str = "urn:ietf:params:xml:ns:xmpp-stanzas";
/// STARTTLS.
pub(super) const TLS: &str = "urn:ietf:params:xml:ns:xmpp-tls";
/// SASL.
pub(super) const SASL: &str = "urn:ietf:params:xml:ns:xmpp-sasl";
/// Binding of a resource.
pub(super) const BIND: &str = "urn:ietf:params:xml:ns:xmpp-bind";
/// Stream management (XEP-0198).
pub(super) const SM: &str = "urn:xmpp:sm:3";
/// Pings (XEP-0199).
pub(super) const PING: &str = "urn:xmpp:ping";
/// Requests to a PubSub service (XEP-0060).
pub(super) const PUBSUB: &str = "http://jabber.org/protocol/pubsub";
/// What a PubSub service sends to its subscribers.
pub(super) const PUBSUB_EVENT: &str = "http://jabber.org/protocol/pubsub#event";
