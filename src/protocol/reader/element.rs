//! The elements of a document, recognized by their namespaces and not by their prefixes.

use super::ReadError;
use super::xml::{Tag, clip};
use crate::protocol::document::{RS_NAMESPACE, SITEMAP_NAMESPACE};
use crate::protocol::{Oddities, Oddity, Root};

/// The elements in use, whatever their prefixes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Element {
    Root(Root),
    /// `url` or `sitemap`, as the root element that it belongs to.
    Entry(Root),
    Loc,
    Lastmod,
    Md,
    Ln,
    Other,
}

/// The spelling of the namespaces. A misspelling is counted once per document, not once per element.
#[derive(Default)]
pub(super) struct Spelling {
    odd_sitemap: bool,
    odd_rs: bool,
}

impl Spelling {
    /// The element of a tag.
    ///
    /// # Errors
    /// If it may be an `rs:md` or `rs:ln` whose prefix is not declared: it can't be ignored safely.
    pub(super) fn element(
        &mut self,
        tag: &Tag<'_>,
        oddities: &mut Oddities,
    ) -> Result<Element, ReadError> {
        let local_name = tag.local_name();
        let namespace = match tag.namespace() {
            Ok(Some(namespace)) => namespace,
            Ok(None) => return Ok(Element::Other),
            Err(prefix) if matches!(local_name, "md" | "ln") => {
                let prefix = clip(prefix);
                let message = format!("the namespace prefix {prefix:?} is not declared");
                return Err(ReadError::WrongNamespace(message));
            }
            Err(_) => return Ok(Element::Other),
        };
        let (element, odd, seen) = if is_namespace(namespace, SITEMAP_NAMESPACE) {
            let element = match local_name {
                "urlset" => Element::Root(Root::Urlset),
                "sitemapindex" => Element::Root(Root::Sitemapindex),
                "url" => Element::Entry(Root::Urlset),
                "sitemap" => Element::Entry(Root::Sitemapindex),
                "loc" => Element::Loc,
                "lastmod" => Element::Lastmod,
                _ => Element::Other,
            };
            (
                element,
                namespace != SITEMAP_NAMESPACE,
                &mut self.odd_sitemap,
            )
        } else if is_namespace(namespace, RS_NAMESPACE) {
            let element = match local_name {
                "md" => Element::Md,
                "ln" => Element::Ln,
                _ => Element::Other,
            };
            (element, namespace != RS_NAMESPACE, &mut self.odd_rs)
        } else {
            return Ok(Element::Other);
        };
        if odd && !std::mem::replace(seen, true) {
            oddities.add(Oddity::Namespace);
        }
        Ok(element)
    }
}

/// Whether it is that namespace, possibly with https, or with or without a slash at its end.
fn is_namespace(written: &str, namespace: &str) -> bool {
    fn plain(text: &str) -> Option<&str> {
        let text = text.strip_suffix('/').unwrap_or(text);
        text.strip_prefix("http://")
            .or_else(|| text.strip_prefix("https://"))
    }
    written == namespace || (plain(written).is_some() && plain(written) == plain(namespace))
}

/// The root element of a tag.
pub(super) fn read_root(
    tag: &Tag<'_>,
    spelling: &mut Spelling,
    oddities: &mut Oddities,
) -> Result<Root, ReadError> {
    let name = tag.local_name();
    if !matches!(name, "urlset" | "sitemapindex") {
        return Err(ReadError::WrongRoot(clip(name)));
    }
    if let Element::Root(root) = spelling.element(tag, oddities)? {
        return Ok(root);
    }
    Err(ReadError::WrongNamespace(match tag.namespace() {
        Ok(Some(namespace)) => {
            let namespace = clip(namespace);
            format!("the root element has the namespace {namespace:?}, not {SITEMAP_NAMESPACE:?}")
        }
        Ok(None) => {
            format!("the root element has no namespace; it should be {SITEMAP_NAMESPACE:?}")
        }
        Err(prefix) => format!("the namespace prefix {:?} is not declared", clip(prefix)),
    }))
}
