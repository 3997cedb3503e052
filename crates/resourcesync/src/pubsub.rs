//! The URI of a node of an XMPP PubSub service (XEP-0060, section 12.22; RFC 5122): `xmpp:pubsub.example.com?;node=changes`.
//!
//! ResourceSync 0.1 (section 5.2.1) states the service and the node separately; as a channel they are one URI.

use url::Url;

use super::draft::PushInterface;
use super::uri::well_known;

/// The URI of the protocol in a Sitemap of version 0.1.
const PROTOCOL: &str = "http://xmpp.org/extensions/xep-0060.html";
/// How a node is named in a URI.
const NODE: &str = ";node=";
/// The length of the longest part of an address, in bytes (RFC 7622, section 3.1). A service, and a node, is named by no more.
pub const MAX_JID_PART: usize = 1023;

impl PushInterface {
    /// The URI of the channel if it is a node of an XMPP PubSub service.
    #[must_use]
    pub fn as_node(&self) -> Option<Url> {
        if well_known(&self.protocol) != well_known(PROTOCOL) {
            return None;
        }
        let mut uri = self.href.clone();
        uri.set_fragment(None);
        if let Some(node) = &self.node {
            uri.set_query(Some(&format!("{NODE}{}", encoded(node))));
        }
        node_of(&uri).map(|_| uri)
    }
}

/// The address of the service, in lower case, and the name of the node; `None`: it is no URI of a node.
#[must_use]
pub fn node_of(uri: &Url) -> Option<(String, String)> {
    if uri.scheme() != "xmpp" || !uri.cannot_be_a_base() {
        return None;
    }
    let service = decoded(uri.path())?.to_lowercase();
    let mut parts = uri.query()?.split_inclusive(';');
    // What is before the first `;` is an action, which is `pubsub` or missing.
    let action = parts.next()?;
    if !matches!(action, ";" | "pubsub;") {
        return None;
    }
    let node = parts.find_map(|part| part.trim_end_matches(';').strip_prefix("node="))?;
    let node = decoded(node)?;
    let is_valid = |text: &str| {
        !text.is_empty() && text.len() <= MAX_JID_PART && !text.chars().any(char::is_control)
    };
    let is_address = |text: &str| is_valid(text) && !text.contains(char::is_whitespace);
    (is_address(&service) && is_valid(&node)).then_some((service, node))
}

/// Every byte but letters, digits and a few signs as `%` and two digits.
pub(super) fn encoded(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}

fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, others)) = rest.split_first() {
        rest = others;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
        if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(href: &str, node: Option<&str>) -> PushInterface {
        PushInterface {
            protocol: PROTOCOL.to_owned(),
            href: Url::parse(href).unwrap(),
            node: node.map(str::to_owned),
        }
    }

    #[test]
    fn interface_of_the_draft_is_a_node() {
        // Example 5.4.
        let uri = interface("xmpp:pubsub.example.com", Some("Example_Node_Name")).as_node();
        let uri = uri.unwrap();
        assert_eq!(
            uri.as_str(),
            "xmpp:pubsub.example.com?;node=Example_Node_Name"
        );
        let expected = (
            "pubsub.example.com".to_owned(),
            "Example_Node_Name".to_owned(),
        );
        assert_eq!(node_of(&uri), Some(expected));
        for name in ["a;node=b&c", "ä/ %41", "http://example.org/#x?y"] {
            let uri = interface("xmpp:me@EXAMPLE.org/r", Some(name))
                .as_node()
                .unwrap();
            let uri = Url::parse(uri.as_str()).unwrap();
            assert_eq!(
                node_of(&uri),
                Some(("me@example.org/r".to_owned(), name.to_owned()))
            );
        }
        assert_eq!(interface("xmpp:pubsub.example.com", None).as_node(), None);
        let written = interface("xmpp:pubsub.example.com?;node=n", None);
        assert_eq!(written.as_node().unwrap(), written.href);
        let other = PushInterface {
            protocol: "http://example.com/protocol/callback".to_owned(),
            ..written
        };
        assert_eq!(other.as_node(), None);
        assert_eq!(interface("http://example.com/", Some("n")).as_node(), None);
    }

    #[test]
    fn other_uris_name_no_node() {
        let long = format!("xmpp:a?;node={}", "n".repeat(1024));
        for uri in [
            "xmpp:pubsub.example.com",
            "xmpp:pubsub.example.com?message;node=n",
            "xmpp:pubsub.example.com?;node=",
            "xmpp:pubsub.example.com?;node=%0a",
            "xmpp:pubsub.example.com?;node=%zz",
            "xmpp:pubsub.example.com?;node=%ff",
            "xmpp:pub%20sub.example.com?;node=n",
            "xmpp:?;node=n",
            "xmpp://pubsub.example.com/?;node=n",
            "http://pubsub.example.com/?;node=n",
            &long,
        ] {
            assert_eq!(node_of(&Url::parse(uri).unwrap()), None, "{uri}");
        }
        let pubsub = Url::parse("xmpp:a?pubsub;action=subscribe;node=n").unwrap();
        assert_eq!(node_of(&pubsub), Some(("a".to_owned(), "n".to_owned())));
    }
}
