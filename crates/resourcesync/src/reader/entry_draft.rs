//! The entry that is being read, from its elements in any order.

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
pub(super) struct EntryDraft {
    loc: DraftText,
    lastmod: DraftText,
    expires: DraftText,
    frequency: DraftText,
    /// The text of an element of the dialect, as far as it was read.
    text: String,
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
    field: Field,
}

/// The text of an element of an entry, as far as it was read.
#[derive(Default)]
struct DraftText {
    text: String,
    /// Whether the entry has the element.
    is_stated: bool,
}

impl DraftText {
    fn clear(&mut self) {
        self.text.clear();
        self.is_stated = false;
    }

    /// Begins it; returns whether it is the first element of its name.
    fn begin(&mut self) -> bool {
        !std::mem::replace(&mut self.is_stated, true)
    }

    fn stated(&self) -> Option<&str> {
        self.is_stated.then_some(&self.text)
    }
}

/// The text of an entry that is being read.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Field {
    None,
    Loc,
    Lastmod,
    Expires,
    Frequency,
    /// `rs:fixity`, with its type.
    Fixity(String),
    Size,
    Mimetype,
    ContentEncoding,
    Path,
}

impl EntryDraft {
    pub(super) fn new() -> Self {
        Self {
            loc: DraftText::default(),
            lastmod: DraftText::default(),
            expires: DraftText::default(),
            frequency: DraftText::default(),
            text: String::new(),
            has_md: false,
            md: Metadata::default(),
            elements: Metadata::default(),
            links: Vec::new(),
            link_limit: LinkLimit::ENTRY,
            is_unreadable: false,
            is_dialect: false,
            has_protocol: false,
            field: Field::None,
        }
    }

    /// Begins the next entry.
    pub(super) fn clear(&mut self) {
        self.loc.clear();
        self.lastmod.clear();
        self.expires.clear();
        self.frequency.clear();
        self.text.clear();
        self.has_md = false;
        self.md = Metadata::default();
        if std::mem::take(&mut self.is_dialect) {
            self.elements = Metadata::default();
        }
        self.links.clear();
        self.link_limit = LinkLimit::ENTRY;
        self.is_unreadable = false;
        self.has_protocol = false;
        self.field = Field::None;
    }

    /// Adds an element within the entry.
    pub(super) fn add(
        &mut self,
        element: Element,
        tag: &Tag<'_>,
        references: &mut References,
        oddities: &mut Oddities,
    ) {
        // The notification specifications place an rs:ln within the loc, although their examples have it beside it.
        let is_child = tag.depth == 3 || (tag.depth == 4 && self.field == Field::Loc);
        match element {
            Element::Loc if tag.depth == 3 && self.loc.begin() => {
                self.has_protocol = has_protocol(tag);
                self.is_dialect |= self.has_protocol;
                self.field = Field::Loc;
            }
            Element::Lastmod if tag.depth == 3 && self.lastmod.begin() => {
                if let Some(change) = kind_of_change(tag, oddities) {
                    self.is_dialect = true;
                    self.elements.change = Some(change);
                }
                self.field = Field::Lastmod;
            }
            Element::Changefreq if tag.depth == 3 && self.frequency.begin() => {
                self.field = Field::Frequency;
            }
            Element::Md if is_child => self.add_metadata(tag, oddities),
            Element::Ln if is_child => {
                let link = admitted_link(&mut self.link_limit, oddities, |oddities| {
                    read_link(tag, references, oddities)
                });
                self.links.extend(link);
            }
            _ if tag.depth == 3 => self.add_dialect(element, tag, references, oddities),
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

    /// Adds an element of the dialect of version 0.1.
    fn add_dialect(
        &mut self,
        element: Element,
        tag: &Tag<'_>,
        references: &mut References,
        oddities: &mut Oddities,
    ) {
        self.field = match element {
            Element::Expires if self.expires.begin() => Field::Expires,
            Element::Fixity => Field::Fixity(tag.attribute("type").unwrap_or_default().to_owned()),
            Element::Size => Field::Size,
            Element::Mimetype => Field::Mimetype,
            Element::ContentEncoding => Field::ContentEncoding,
            Element::Path => Field::Path,
            Element::XhtmlLink => {
                let link = read_entry_link(tag, references, oddities);
                self.add_xhtml(link, oddities);
                return;
            }
            Element::XhtmlMeta => {
                self.add_xhtml(read_category(tag), oddities);
                return;
            }
            _ => return,
        };
        self.text.clear();
        self.is_dialect = true;
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
        let field = match self.field {
            Field::None => return,
            Field::Loc => &mut self.loc.text,
            Field::Lastmod => &mut self.lastmod.text,
            Field::Expires => &mut self.expires.text,
            Field::Frequency => &mut self.frequency.text,
            Field::Fixity(_)
            | Field::Size
            | Field::Mimetype
            | Field::ContentEncoding
            | Field::Path => &mut self.text,
        };
        field.push_str(text);
    }

    /// Ends an element of the entry.
    pub(super) fn end_element(&mut self, oddities: &mut Oddities) {
        let field = std::mem::replace(&mut self.field, Field::None);
        let (text, elements) = (&self.text, &mut self.elements);
        let stated = || Some(text.trim()).filter(|text| !text.is_empty());
        match field {
            Field::None | Field::Loc | Field::Lastmod | Field::Expires | Field::Frequency => {}
            Field::Fixity(algorithm) => {
                let hashes = &mut elements.content.hashes;
                hashes.extend(read_digest(&algorithm, text, hashes, oddities));
            }
            Field::Size => {
                let size = read_size(text, oddities);
                elements.content.length = elements.content.length.or(size);
            }
            Field::Mimetype => {
                let stated = stated().map(str::to_owned);
                let known = elements.content.media_type.take();
                elements.content.media_type = known.or(stated);
            }
            Field::ContentEncoding => {
                let known = elements.encoding.take();
                elements.encoding = known.or(stated().map(str::to_owned));
            }
            Field::Path => {
                let known = elements.path.take();
                // Names of files may begin or end with a space, but not with a line break.
                let path = stated().map(|_| text.trim_matches(['\n', '\r', '\t']).to_owned());
                elements.path = known.or(path);
            }
        }
    }

    /// The entry; `None` if it has no valid `loc`.
    pub(super) fn finish(
        &mut self,
        references: &mut References,
        oddities: &mut Oddities,
    ) -> Option<Entry> {
        let loc = references.resolve(self.loc.stated()?, oddities)?;
        let lastmod = self.lastmod.stated();
        let mut entry = Entry {
            loc,
            lastmod: lastmod.and_then(|text| SourceTime::parse_w3c(text, oddities)),
            expires: None,
            md: std::mem::take(&mut self.md),
            links: std::mem::take(&mut self.links),
            has_cut_links: self.link_limit.is_exceeded(),
            frequency: self.frequency.stated().and_then(ChangeFrequency::parse),
        };
        if self.is_dialect {
            self.finish_dialect(&mut entry, oddities);
        }
        Some(entry)
    }

    /// Adds to the entry what elements of the dialect state.
    fn finish_dialect(&mut self, entry: &mut Entry, oddities: &mut Oddities) {
        let expires = self.expires.stated();
        entry.expires = expires.and_then(|text| SourceTime::parse_w3c(text, oddities));
        let elements = std::mem::take(&mut self.elements);
        if elements.change == Some(ChangeKind::Deleted) {
            // In a list of what exists, too.
            entry.expires = entry.expires.or(entry.lastmod);
        }
        merge_metadata(&mut entry.md, elements);
    }
}
