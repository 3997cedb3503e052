//! The elements of a document, recognized by their namespaces and not by their prefixes.

use super::ReadError;
use super::error::clip;
use super::xml::{Tag, is_html};
use crate::document::{RS_NAMESPACE, SITEMAP_NAMESPACE, XHTML_NAMESPACE};
use crate::uri::well_known;
use crate::{Oddities, Oddity, Root};

/// Whether elements and attributes of the draft of version 0.1 are recognized; without it, nothing of the draft is found.
const DRAFT: bool = cfg!(feature = "draft");

/// The elements in use, whatever their prefixes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Element {
    Root(Root),
    /// `url` or `sitemap`, as the root element that it belongs to.
    Entry(Root),
    Loc,
    Lastmod,
    Changefreq,
    Md,
    Ln,
    /// Those of version 0.1.
    Expires,
    Fixity,
    Size,
    Mimetype,
    ContentEncoding,
    Path,
    XhtmlMeta,
    XhtmlLink,
    Other,
}

impl Element {
    /// Whether it states something of the document that it is in, and not of an entry.
    pub(super) fn is_of_head(self) -> bool {
        matches!(
            self,
            Self::Md | Self::Ln | Self::XhtmlMeta | Self::XhtmlLink
        )
    }
}

/// The spelling of the namespaces. A misspelling is counted once per document, not once per element.
#[derive(Default)]
pub(super) struct Spelling {
    /// The root element has no namespace: then elements without one are those of the Sitemap protocol and of ResourceSync.
    without_namespace: bool,
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
            Ok(None) if self.without_namespace => {
                return Ok(match sitemap_element(local_name) {
                    Element::Other => rs_element(local_name),
                    element => element,
                });
            }
            Ok(None) => return Ok(Element::Other),
            Err(prefix) if matches!(local_name, "md" | "ln") => {
                let prefix = clip(prefix);
                return Err(ReadError::WrongNamespace {
                    at: tag.at(),
                    reason: format!("the namespace prefix {prefix:?} is not declared"),
                });
            }
            Err(_) => return Ok(Element::Other),
        };
        if namespace == SITEMAP_NAMESPACE {
            return Ok(sitemap_element(local_name));
        }
        if namespace == RS_NAMESPACE {
            return Ok(rs_element(local_name));
        }
        if namespace == XHTML_NAMESPACE {
            return Ok(xhtml_element(local_name));
        }
        let (element, seen) = if is_misspelt_sitemap_namespace(namespace) {
            (sitemap_element(local_name), &mut self.odd_sitemap)
        } else if is_misspelling_of(namespace, RS_NAMESPACE) {
            (rs_element(local_name), &mut self.odd_rs)
        } else {
            return Ok(Element::Other);
        };
        if !std::mem::replace(seen, true) {
            oddities.add(Oddity::Namespace);
        }
        Ok(element)
    }
}

/// The element of the Sitemap protocol with that name.
fn sitemap_element(local_name: &str) -> Element {
    match local_name {
        "urlset" => Element::Root(Root::Urlset),
        "sitemapindex" => Element::Root(Root::Sitemapindex),
        "url" => Element::Entry(Root::Urlset),
        "sitemap" => Element::Entry(Root::Sitemapindex),
        "loc" => Element::Loc,
        "lastmod" => Element::Lastmod,
        "changefreq" => Element::Changefreq,
        "expires" if DRAFT => Element::Expires,
        _ => Element::Other,
    }
}

/// The element of ResourceSync with that name.
fn rs_element(local_name: &str) -> Element {
    match local_name {
        "md" => Element::Md,
        "ln" => Element::Ln,
        "fixity" if DRAFT => Element::Fixity,
        "size" if DRAFT => Element::Size,
        "mimetype" if DRAFT => Element::Mimetype,
        "contentencoding" if DRAFT => Element::ContentEncoding,
        "path" if DRAFT => Element::Path,
        _ => Element::Other,
    }
}

/// The element of XHTML with that name.
fn xhtml_element(local_name: &str) -> Element {
    match local_name {
        "meta" if DRAFT => Element::XhtmlMeta,
        "link" if DRAFT => Element::XhtmlLink,
        _ => Element::Other,
    }
}

/// The value of an attribute with the namespace of ResourceSync, as version 0.1 has them.
pub(super) fn rs_attribute<'a>(tag: &'a Tag<'_>, wanted: &str) -> Option<&'a str> {
    if !DRAFT {
        return None;
    }
    let mut all = tag.prefixed_attributes();
    let is_wanted = |namespace: &str, name: &str| {
        name == wanted && (namespace == RS_NAMESPACE || is_misspelling_of(namespace, RS_NAMESPACE))
    };
    all.find(|(namespace, name, _)| is_wanted(namespace, name))
        .map(|(.., value)| value)
}

/// Whether it is that namespace, but for https, `www.`, or a slash at its end.
fn is_misspelling_of(written: &str, namespace: &str) -> bool {
    well_known(written).is_some() && well_known(written) == well_known(namespace)
}

/// Whether it is another spelling of the namespace of the Sitemap protocol, of any version: it began as Google's, with 0.84.
fn is_misspelt_sitemap_namespace(written: &str) -> bool {
    let version = well_known(written).and_then(|plain| {
        let path = ["sitemaps.org/", "google.com/"]
            .iter()
            .find_map(|host| plain.strip_prefix(host))?;
        path.strip_prefix("schemas/sitemap/")
    });
    version.is_some_and(|version| {
        version.starts_with("0.") && version[2..].bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// The root element of a tag.
pub(super) fn read_root(
    tag: &Tag<'_>,
    spelling: &mut Spelling,
    oddities: &mut Oddities,
) -> Result<Root, ReadError> {
    let name = tag.local_name();
    match name {
        "urlset" | "sitemapindex" => {}
        "rss" => return Err(ReadError::Feed("RSS")),
        "feed" => return Err(ReadError::Feed("Atom")),
        "RDF" => return Err(ReadError::Feed("RSS 1.0")),
        _ if is_html(Some(name)) => return Err(ReadError::HtmlPage(None)),
        _ => {
            return Err(ReadError::WrongRoot {
                at: tag.at(),
                name: clip(name),
            });
        }
    }
    if tag.namespace() == Ok(None) {
        spelling.without_namespace = true;
        oddities.add(Oddity::Namespace);
    }
    if let Element::Root(root) = spelling.element(tag, oddities)? {
        return Ok(root);
    }
    let reason = match tag.namespace() {
        Ok(namespace) => {
            let namespace = clip(namespace.unwrap_or_default());
            format!("the root element has the namespace {namespace:?}, not {SITEMAP_NAMESPACE:?}")
        }
        Err(prefix) => format!("the namespace prefix {:?} is not declared", clip(prefix)),
    };
    Err(ReadError::WrongNamespace {
        at: tag.at(),
        reason,
    })
}
