//! An element of a stream.

use bytes::Bytes;
use rxml::parser::QName;
use rxml::{AttrMap, Namespace, NcName};

use super::error::XmppError;
use super::names::{PUBSUB, PUBSUB_EVENT};

/// How deep the elements of a stanza may be nested, and those of a document in it.
pub(super) const MOST_DEEP: usize = 100;
/// How many elements and attributes a stanza may have, without its documents.
pub(super) const MOST_PARTS: usize = 8192;
/// How long the start tags of the elements that are open may be, in bytes: what they declare is in scope.
pub(super) const LONGEST_SCOPE: usize = 64 << 10;

/// An element.
#[derive(Clone, Debug)]
pub(super) struct StanzaElement {
    pub(super) namespace: Namespace<'static>,
    pub(super) name: NcName,
    attributes: AttrMap,
    pub(super) children: Vec<StanzaElement>,
    pub(super) text: String,
    /// Of an item of the service: what it contains.
    pub(super) document: Option<Result<Bytes, XmppError>>,
    /// Of a stanza: why it is incomplete.
    pub(super) fault: Option<XmppError>,
}

impl StanzaElement {
    /// The element that a start tag begins.
    pub(super) fn new((namespace, name): QName, attributes: AttrMap) -> Self {
        Self {
            namespace,
            name,
            attributes,
            children: Vec::new(),
            text: String::new(),
            document: None,
            fault: None,
        }
    }

    /// How many elements and attributes it has, without its children.
    pub(super) fn parts(&self) -> usize {
        1 + self.attributes.len()
    }

    /// Whether it has this name.
    pub(super) fn is(&self, namespace: &str, name: &str) -> bool {
        self.namespace.as_str() == namespace && self.name.as_str() == name
    }

    /// The first child of this name.
    pub(super) fn child(&self, namespace: &str, name: &str) -> Option<&Self> {
        self.children.iter().find(|child| child.is(namespace, name))
    }

    /// An attribute without a prefix.
    pub(super) fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.get("", name).map(String::as_str)
    }

    /// Whether a stanza is sent by this address itself.
    pub(super) fn is_from(&self, address: &str) -> bool {
        let from = self.attribute("from").unwrap_or_default();
        from.eq_ignore_ascii_case(address)
    }

    /// Whether its child is a document.
    pub(super) fn is_item(&self) -> bool {
        self.name.as_str() == "item" && [PUBSUB, PUBSUB_EVENT].contains(&self.namespace.as_str())
    }
}
