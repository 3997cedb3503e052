//! The entry that is being read, from its elements in any order.

use url::Url;

use super::attributes::{OF_ENTRY, merge_metadata, read_link, read_metadata};
use super::dialect::{
    has_protocol, kind_of_change, read_category, read_digest, read_entry_link, read_size,
};
use super::element::Element;
use super::references::References;
use super::xml::Tag;
use crate::entries::{ChangeFrequency, LinkLimit};
use crate::{ChangeKind, Entry, Link, Metadata, Oddities, Oddity, SourceTime};

/// Reads a link, unless the limit is reached: then it is counted, and takes no memory.
pub(super) fn admitted_link(
    limit: &mut LinkLimit,
    oddities: &mut Oddities,
    read: impl FnOnce(&mut Oddities) -> Option<Link>,
) -> Option<Link> {
    if limit.is_reached() {
        limit.exceed();
        oddities.add(Oddity::TooManyLinks);
        return None;
    }
    let link = read(oddities)?;
    let fits = limit.admit(&link);
    if !fits {
        oddities.add(Oddity::TooManyLinks);
    }
    fits.then_some(link)
}

/// An entry that is being read.
#[derive(Default)]
pub(super) struct EntryDraft {
    /// The element whose text is being read.
    field: Option<Element>,
    /// That text, as far as it was read.
    text: String,
    /// The type of an `rs:fixity`.
    algorithm: String,
    loc: Option<Url>,
    lastmod: Option<SourceTime>,
    expires: Option<SourceTime>,
    frequency: Option<ChangeFrequency>,
    /// Whether it has had an `rs:md`.
    has_md: bool,
    md: Metadata,
    /// What elements of the dialect state. What an `rs:md` states counts more.
    elements: Metadata,
    links: Vec<Link>,
    link_limit: LinkLimit,
    /// An attribute of its `rs:md` can't be read.
    pub(super) is_unreadable: bool,
    /// Whether it has anything of the dialect of version 0.1.
    pub(super) is_dialect: bool,
    /// Its `loc` is to be used by another protocol.
    pub(super) has_protocol: bool,
}

impl EntryDraft {
    /// Adds an element within the entry.
    pub(super) fn add(
        &mut self,
        element: Element,
        tag: &Tag<'_>,
        references: &mut References,
        oddities: &mut Oddities,
    ) {
        // The notification specifications place an rs:ln within the loc, although their examples have it beside it.
        let is_child = tag.depth == 3 || (tag.depth == 4 && self.field == Some(Element::Loc));
        match element {
            Element::Md if is_child => self.add_metadata(tag, oddities),
            Element::Ln if is_child => {
                let link = admitted_link(&mut self.link_limit, oddities, |oddities| {
                    read_link(tag, references, oddities)
                });
                self.links.extend(link);
            }
            _ if tag.depth == 3 => self.add_field(element, tag, references, oddities),
            _ => {}
        }
    }

    fn add_metadata(&mut self, tag: &Tag<'_>, oddities: &mut Oddities) {
        let is_first = !std::mem::replace(&mut self.has_md, true);
        if !is_first {
            oddities.add(Oddity::SeveralMetadata);
        }
        match read_metadata(tag, OF_ENTRY, oddities) {
            Some(md) if is_first => self.md = md,
            Some(more) => merge_metadata(&mut self.md, more),
            None => self.is_unreadable = true,
        }
    }

    /// Begins an element with a text, or adds one of XHTML.
    fn add_field(
        &mut self,
        element: Element,
        tag: &Tag<'_>,
        references: &mut References,
        oddities: &mut Oddities,
    ) {
        match element {
            Element::Loc => {
                self.has_protocol |= has_protocol(tag);
                self.is_dialect |= self.has_protocol;
            }
            Element::Lastmod => {
                let change = kind_of_change(tag, oddities);
                self.is_dialect |= change.is_some();
                self.elements.change = self.elements.change.or(change);
            }
            Element::Changefreq => {}
            Element::Fixity => {
                self.is_dialect = true;
                tag.attribute("type")
                    .unwrap_or_default()
                    .clone_into(&mut self.algorithm);
            }
            Element::Expires
            | Element::Size
            | Element::Mimetype
            | Element::ContentEncoding
            | Element::Path => self.is_dialect = true,
            Element::XhtmlLink => {
                let link = read_entry_link(tag, references, oddities);
                return self.add_xhtml(link, oddities);
            }
            Element::XhtmlMeta => return self.add_xhtml(read_category(tag), oddities),
            _ => return,
        }
        self.field = Some(element);
        self.text.clear();
    }

    fn add_xhtml(&mut self, link: Option<Link>, oddities: &mut Oddities) {
        let Some(link) = link else {
            return;
        };
        self.is_dialect = true;
        let link = admitted_link(&mut self.link_limit, oddities, |_| Some(link));
        self.links.extend(link);
    }

    /// Adds a piece of text within the entry.
    pub(super) fn add_text(&mut self, text: &str) {
        if self.field.is_some() {
            self.text.push_str(text);
        }
    }

    /// Ends an element of the entry. Of several that state the same, the first valid one counts.
    pub(super) fn end_element(&mut self, references: &mut References, oddities: &mut Oddities) {
        let Some(field) = self.field.take() else {
            return;
        };
        let text = &self.text;
        let trimmed = || Some(text.trim()).filter(|text| !text.is_empty());
        let stated = || trimmed().map(str::to_owned);
        let elements = &mut self.elements;
        match field {
            Element::Loc if self.loc.is_none() => {
                let long_uris = oddities.count(Oddity::LongUri);
                self.loc = references.resolve(text, oddities);
                if oddities.count(Oddity::LongUri) > long_uris {
                    oddities.add(Oddity::BeyondLimit);
                }
            }
            Element::Lastmod if self.lastmod.is_none() => {
                self.lastmod = SourceTime::parse_w3c(text, oddities);
            }
            Element::Expires if self.expires.is_none() => {
                self.expires = SourceTime::parse_w3c(text, oddities);
            }
            Element::Changefreq => {
                self.frequency = self.frequency.or_else(|| ChangeFrequency::parse(text));
            }
            Element::Fixity => {
                let hashes = &mut elements.content.hashes;
                hashes.extend(read_digest(&self.algorithm, text, hashes, oddities));
            }
            Element::Size => {
                let size = read_size(text, oddities);
                elements.content.length = elements.content.length.or(size);
            }
            Element::Mimetype => {
                let known = elements.content.media_type.take();
                elements.content.media_type = known.or_else(stated);
            }
            Element::ContentEncoding => {
                elements.encoding = elements.encoding.take().or_else(stated)
            }
            Element::Path => {
                // Names of files may begin or end with a space, but not with a line break.
                let path = || trimmed().map(|_| text.trim_matches(['\n', '\r', '\t']).to_owned());
                elements.path = elements.path.take().or_else(path);
            }
            _ => {}
        }
    }

    /// The entry; `None` if it has no valid `loc`. The next one begins.
    pub(super) fn finish(&mut self) -> Option<Entry> {
        let next = Self {
            text: std::mem::take(&mut self.text),
            ..Self::default()
        };
        let draft = std::mem::replace(self, next);
        let mut entry = Entry {
            loc: draft.loc?,
            lastmod: draft.lastmod,
            expires: draft.expires,
            md: draft.md,
            links: draft.links,
            has_cut_links: draft.link_limit.is_exceeded(),
            frequency: draft.frequency,
        };
        if draft.is_dialect {
            if draft.elements.change == Some(ChangeKind::Deleted) {
                // In a list of what exists, too.
                entry.expires = entry.expires.or(entry.lastmod);
            }
            merge_metadata(&mut entry.md, draft.elements);
        }
        Some(entry)
    }
}
