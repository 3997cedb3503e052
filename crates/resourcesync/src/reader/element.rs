//! The elements of a document, recognized by their namespaces and not by their prefixes.

use super::context::Context;
use super::error::{ReadError, clip};
use super::xml::{Tag, is_html};
use crate::document::{RS_NAMESPACE, SITEMAP_NAMESPACE, XHTML_NAMESPACE};
use crate::uri::well_known;
use crate::{Oddity, Root};

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

/// What defines elements.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Vocabulary {
    Sitemap,
    ResourceSync,
    Xhtml,
}

impl Vocabulary {
    /// That of a namespace, and whether the namespace is misspelt; `None` if it is another one.
    fn of(namespace: &str) -> Option<(Self, bool)> {
        Some(match namespace {
            SITEMAP_NAMESPACE => (Self::Sitemap, false),
            RS_NAMESPACE => (Self::ResourceSync, false),
            XHTML_NAMESPACE => (Self::Xhtml, false),
            other if is_misspelt_sitemap_namespace(other) => (Self::Sitemap, true),
            other if well_known(other)? == well_known(RS_NAMESPACE)? => (Self::ResourceSync, true),
            _ => return None,
        })
    }

    /// Its element with that name.
    fn element(self, local_name: &str) -> Element {
        match (self, local_name) {
            (Self::Sitemap, "urlset") => Element::Root(Root::Urlset),
            (Self::Sitemap, "sitemapindex") => Element::Root(Root::Sitemapindex),
            (Self::Sitemap, "url") => Element::Entry(Root::Urlset),
            (Self::Sitemap, "sitemap") => Element::Entry(Root::Sitemapindex),
            (Self::Sitemap, "loc") => Element::Loc,
            (Self::Sitemap, "lastmod") => Element::Lastmod,
            (Self::Sitemap, "changefreq") => Element::Changefreq,
            (Self::ResourceSync, "md") => Element::Md,
            (Self::ResourceSync, "ln") => Element::Ln,
            _ if !DRAFT => Element::Other,
            (Self::Sitemap, "expires") => Element::Expires,
            (Self::ResourceSync, "fixity") => Element::Fixity,
            (Self::ResourceSync, "size") => Element::Size,
            (Self::ResourceSync, "mimetype") => Element::Mimetype,
            (Self::ResourceSync, "contentencoding") => Element::ContentEncoding,
            (Self::ResourceSync, "path") => Element::Path,
            (Self::Xhtml, "meta") => Element::XhtmlMeta,
            (Self::Xhtml, "link") => Element::XhtmlLink,
            _ => Element::Other,
        }
    }
}

impl Context {
    /// The element of a tag. A misspelt namespace is counted once per document, not once per element.
    ///
    /// # Errors
    /// If it may be an `rs:md` or `rs:ln` whose prefix is not declared: it can't be ignored safely.
    pub(super) fn element(&mut self, tag: &Tag<'_>) -> Result<Element, ReadError> {
        let local_name = tag.local_name();
        let namespace = match tag.namespace() {
            Ok(Some(namespace)) => namespace,
            Ok(None) if self.without_namespace => {
                return Ok(match Vocabulary::Sitemap.element(local_name) {
                    Element::Other => Vocabulary::ResourceSync.element(local_name),
                    element => element,
                });
            }
            Err(_) if matches!(local_name, "md" | "ln") => return Err(wrong_namespace(tag)),
            Ok(None) | Err(_) => return Ok(Element::Other),
        };
        let Some((vocabulary, is_misspelt)) = Vocabulary::of(namespace) else {
            return Ok(Element::Other);
        };
        if is_misspelt && !self.misspelt.contains(&vocabulary) {
            self.misspelt.push(vocabulary);
            self.add(Oddity::Namespace);
        }
        Ok(vocabulary.element(local_name))
    }

    /// The root element of a tag.
    pub(super) fn root(&mut self, tag: &Tag<'_>) -> Result<Root, ReadError> {
        let name = tag.local_name();
        match name {
            "urlset" | "sitemapindex" => {}
            "rss" => return Err(ReadError::Feed("RSS")),
            "feed" => return Err(ReadError::Feed("Atom")),
            "RDF" => return Err(ReadError::Feed("RSS 1.0")),
            _ if is_html(Some(name)) => return Err(ReadError::HtmlPage(None)),
            _ => {
                let (at, name) = (tag.place.place(), clip(name));
                return Err(ReadError::WrongRoot { at, name });
            }
        }
        if tag.namespace() == Ok(None) {
            self.without_namespace = true;
            self.add(Oddity::Namespace);
        }
        match self.element(tag)? {
            Element::Root(root) => Ok(root),
            _ => Err(wrong_namespace(tag)),
        }
    }
}

/// The error of a root element, `rs:md` or `rs:ln` with that namespace.
fn wrong_namespace(tag: &Tag<'_>) -> ReadError {
    let reason = match tag.namespace() {
        Ok(namespace) => {
            let namespace = clip(namespace.unwrap_or_default());
            format!("the root element has the namespace {namespace:?}, not {SITEMAP_NAMESPACE:?}")
        }
        Err(prefix) => format!("the namespace prefix {:?} is not declared", clip(prefix)),
    };
    let at = tag.place.place();
    ReadError::WrongNamespace { at, reason }
}

/// The value of an attribute with the namespace of ResourceSync, as version 0.1 has them.
pub(super) fn rs_attribute<'a>(tag: &'a Tag<'_>, wanted: &str) -> Option<&'a str> {
    let is_rs = |namespace: &str| {
        Vocabulary::of(namespace)
            .is_some_and(|(vocabulary, _)| vocabulary == Vocabulary::ResourceSync)
    };
    tag.prefixed_attribute(is_rs, wanted).filter(|_| DRAFT)
}

/// Whether it is another spelling of the namespace of the Sitemap protocol, of any version: it began as Google's, with 0.84.
fn is_misspelt_sitemap_namespace(written: &str) -> bool {
    let begins = [
        "sitemaps.org/schemas/sitemap/0.",
        "google.com/schemas/sitemap/0.",
    ];
    let plain = well_known(written).unwrap_or_default();
    let mut versions = begins.iter().filter_map(|begin| plain.strip_prefix(begin));
    versions.any(|version| version.bytes().all(|byte| byte.is_ascii_digit()))
}
