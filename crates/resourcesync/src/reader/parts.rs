//! The parts of a document as they are read: its head, and one entry after another, from elements in any order.

use std::mem;

use url::Url;

use super::attributes::{
    describe, is_of_entry, is_of_head, may_continue, parse_change, read_link, read_metadata,
};
use super::context::Context;
use super::dialect::{self, HeadLink};
use super::element::{Element, rs_attribute};
use super::error::ReadError;
use super::xml::{Tag, not_xml};
use crate::entries::{ChangeFrequency, LinkLimit};
use crate::{ChangeKind, Entry, Head, Link, Metadata, Oddity, SourceTime};

/// The maximum length of an entry, and of all metadata and links of the head together, in bytes.
pub(super) const MAX_ENTRY_BYTES: u64 = 1024 * 1024;

/// How many interfaces of pushing a head may state.
const MAX_INTERFACES: usize = 20;

/// The head, as far as it was read.
#[derive(Default)]
pub(super) struct HeadDraft {
    pub(super) head: Head,
    link_limit: LinkLimit,
    pub(super) has_md: bool,
    /// The length of its tags, in bytes.
    bytes: u64,
}

impl HeadDraft {
    pub(super) fn new() -> Self {
        let link_limit = LinkLimit::HEAD;
        Self {
            link_limit,
            ..Self::default()
        }
    }

    /// Adds an element of the head; returns whether it states anything.
    pub(super) fn add(
        &mut self,
        element: Element,
        tag: &Tag<'_>,
        context: &mut Context,
    ) -> Result<bool, ReadError> {
        self.bytes += tag.length;
        if self.bytes > MAX_ENTRY_BYTES {
            return Err(ReadError::EventTooLarge(tag.place.place()));
        }
        let (head, limit) = (&mut self.head, &mut self.link_limit);
        match element {
            Element::Ln => {
                let cut_before = context.oddities.cut_uris();
                let link = context.admitted_link(limit, |context| read_link(tag, context));
                if link.is_none() && may_continue(tag) {
                    context.add(Oddity::BadEntry);
                    let is_cut = context.oddities.cut_uris() > cut_before;
                    context.add_if(Oddity::BeyondLimit, is_cut);
                }
                head.links.extend(link);
            }
            Element::XhtmlMeta => {
                let modified = dialect::read_modified(tag, &mut context.oddities);
                head.md.modified = head.md.modified.or(modified);
                return Ok(modified.is_some());
            }
            Element::XhtmlLink => match dialect::read_head_link(tag, context) {
                None => return Ok(false),
                Some(HeadLink::Interface(interface)) if head.interfaces.len() < MAX_INTERFACES => {
                    head.interfaces.push(interface);
                }
                Some(HeadLink::Interface(_)) => context.add(Oddity::TooManyLinks),
                Some(HeadLink::Link(link)) => {
                    head.links.extend(context.admitted_link(limit, |_| link));
                }
            },
            _ => {
                let is_another = mem::replace(&mut self.has_md, true);
                context.add_if(Oddity::SeveralMetadata, is_another);
                let mut md = head.md.clone();
                if !read_metadata(tag, is_of_head, &mut md, &mut context.oddities) {
                    // What the document is would be a guess.
                    let reason = "an attribute of its rs:md can't be read";
                    return Err(not_xml(tag.place.place(), &reason));
                }
                head.md = md;
            }
        }
        Ok(true)
    }
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
    pub(super) fn add(&mut self, element: Element, tag: &Tag<'_>, context: &mut Context) {
        // The notification specifications place an rs:ln within the loc, although their examples have it beside it.
        let is_child = tag.depth == 3 || (tag.depth == 4 && self.field == Some(Element::Loc));
        match element {
            Element::Md if is_child => {
                let is_another = mem::replace(&mut self.has_md, true);
                context.add_if(Oddity::SeveralMetadata, is_another);
                let oddities = &mut context.oddities;
                self.is_unreadable |= !read_metadata(tag, is_of_entry, &mut self.md, oddities);
            }
            Element::Ln if is_child => {
                let limit = &mut self.link_limit;
                let link = context.admitted_link(limit, |context| read_link(tag, context));
                self.links.extend(link);
            }
            _ if tag.depth == 3 => self.add_field(element, tag, context),
            _ => {}
        }
    }

    /// Begins an element with a text, or adds one of XHTML.
    fn add_field(&mut self, element: Element, tag: &Tag<'_>, context: &mut Context) {
        match element {
            Element::Loc => {
                self.has_protocol |= dialect::protocol(tag).is_some();
                self.is_dialect |= self.has_protocol;
            }
            Element::Lastmod => {
                let stated = rs_attribute(tag, "type");
                let change = stated.and_then(|stated| parse_change(stated, &mut context.oddities));
                self.is_dialect |= change.is_some();
                self.elements.change = self.elements.change.or(change);
            }
            Element::Changefreq => {}
            Element::Root(_) | Element::Entry(_) | Element::Md | Element::Ln | Element::Other => {
                return;
            }
            Element::Fixity => {
                self.is_dialect = true;
                let algorithm = tag.attribute("type").unwrap_or_default();
                algorithm.clone_into(&mut self.algorithm);
            }
            Element::XhtmlLink | Element::XhtmlMeta => {
                let link = match element {
                    Element::XhtmlLink => dialect::read_entry_link(tag, context),
                    _ => dialect::read_category(tag),
                };
                if link.is_some() {
                    self.is_dialect = true;
                    let link = context.admitted_link(&mut self.link_limit, |_| link);
                    self.links.extend(link);
                }
                return;
            }
            _ => self.is_dialect = true,
        }
        self.field = Some(element);
        self.text.clear();
    }

    /// Adds a piece of text within the entry.
    pub(super) fn add_text(&mut self, text: &str) {
        if self.field.is_some() {
            self.text.push_str(text);
        }
    }

    /// Ends an element of the entry. Of several that state the same, the first valid one counts.
    pub(super) fn end_element(&mut self, context: &mut Context) {
        let (text, elements) = (&self.text, &mut self.elements);
        let oddities = &mut context.oddities;
        match self.field.take() {
            Some(Element::Loc) if self.loc.is_none() => {
                let long_uris = oddities.count(Oddity::LongUri);
                self.loc = context.resolve(text);
                let is_long = context.oddities.count(Oddity::LongUri) > long_uris;
                context.add_if(Oddity::BeyondLimit, is_long);
            }
            Some(Element::Lastmod) if self.lastmod.is_none() => {
                self.lastmod = SourceTime::parse_w3c(text, oddities);
            }
            Some(Element::Expires) if self.expires.is_none() => {
                self.expires = SourceTime::parse_w3c(text, oddities);
            }
            Some(Element::Changefreq) => {
                self.frequency = self.frequency.or_else(|| ChangeFrequency::parse(text));
            }
            Some(Element::Fixity) => {
                let hashes = &mut elements.content.hashes;
                hashes.extend(dialect::read_digest(
                    &self.algorithm,
                    text,
                    hashes,
                    oddities,
                ));
            }
            Some(Element::Size) => describe(elements, "length", text, oddities),
            Some(Element::Mimetype) => describe(elements, "type", text, oddities),
            Some(Element::ContentEncoding) => describe(elements, "encoding", text, oddities),
            Some(Element::Path) if elements.path.is_none() && !text.trim().is_empty() => {
                // Names of files may begin or end with a space, but not with a line break.
                elements.path = Some(text.trim_matches(['\n', '\r', '\t']).to_owned());
            }
            _ => {}
        }
    }

    /// The entry; `None` if it has no valid `loc`. The next one begins.
    pub(super) fn finish(&mut self) -> Option<Entry> {
        let text = mem::take(&mut self.text);
        let draft = mem::replace(
            self,
            Self {
                text,
                ..Self::default()
            },
        );
        let (mut md, elements) = (draft.md, draft.elements);
        // In a list of what exists, too.
        let is_deleted = elements.change == Some(ChangeKind::Deleted);
        if draft.is_dialect {
            md.change = md.change.or(elements.change);
            md.encoding = md.encoding.or(elements.encoding);
            md.path = md.path.or(elements.path);
            md.content.complete_with(&elements.content);
        }
        Some(Entry {
            loc: draft.loc?,
            lastmod: draft.lastmod,
            expires: draft.expires.or(draft.lastmod.filter(|_| is_deleted)),
            md,
            links: draft.links,
            has_cut_links: draft.link_limit.is_exceeded(),
            frequency: draft.frequency,
        })
    }
}
