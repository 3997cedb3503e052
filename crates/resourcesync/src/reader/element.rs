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

/// What defines elements.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Vocabulary {
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

/// The spelling of the namespaces. A misspelling is counted once per document, not once per element.
#[derive(Default)]
pub(super) struct Spelling {
    /// The root element has no namespace: then elements without one are those of the Sitemap protocol and of ResourceSync.
    without_namespace: bool,
    /// Those whose namespace is misspelt.
    misspelt: Vec<Vocabulary>,
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
                return Ok(match Vocabulary::Sitemap.element(local_name) {
                    Element::Other => Vocabulary::ResourceSync.element(local_name),
                    element => element,
                });
            }
            Err(prefix) if matches!(local_name, "md" | "ln") => {
                let prefix = clip(prefix);
                return Err(ReadError::WrongNamespace {
                    at: tag.at(),
                    reason: format!("the namespace prefix {prefix:?} is not declared"),
                });
            }
            Ok(None) | Err(_) => return Ok(Element::Other),
        };
        let Some((vocabulary, is_misspelt)) = Vocabulary::of(namespace) else {
            return Ok(Element::Other);
        };
        if is_misspelt && !self.misspelt.contains(&vocabulary) {
            self.misspelt.push(vocabulary);
            oddities.add(Oddity::Namespace);
        }
        Ok(vocabulary.element(local_name))
    }
}

/// The value of an attribute with the namespace of ResourceSync, as version 0.1 has them.
pub(super) fn rs_attribute<'a>(tag: &'a Tag<'_>, wanted: &str) -> Option<&'a str> {
    if !DRAFT {
        return None;
    }
    let mut all = tag.prefixed_attributes();
    let found = all.find(|(namespace, name, _)| {
        let vocabulary = Vocabulary::of(namespace).map(|(vocabulary, _)| vocabulary);
        *name == wanted && vocabulary == Some(Vocabulary::ResourceSync)
    });
    found.map(|(.., value)| value)
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
