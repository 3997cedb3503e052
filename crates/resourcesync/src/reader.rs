//! The streaming reader of documents.
//!
//! It reads bytes when an entry is requested, and stores no more than that entry: memory does not depend on the length of the
//! document. Unambiguous deviations from the specification are accepted and counted as an [`Oddity`]; an invalid entry does
//! not affect the others. A document is rejected if it is of another kind, incomplete, or exceeds the limits below.
//!
//! Entries that are not returned are counted, so that nobody takes a document for complete whose entries were not all read.

mod attributes;
mod beginning;
mod conformance;
mod context;
mod dialect;
mod element;
mod error;
mod input;
mod parts;
#[cfg(test)]
mod tests;
mod xml;

use std::io::BufRead;
use std::{fmt, mem};

use beginning::Beginning;
pub(super) use conformance::needs_change;
use conformance::{Conformance, distinguishes_entries, holds_resources};
use context::Context;
use dialect::is_change_set;
use element::Element;
pub use error::{ReadError, TextPosition};
use input::{DocumentInput, EventPlace};
use parts::{EntryDraft, HeadDraft, MAX_ENTRY_BYTES};
use url::Url;
use xml::{XmlEvent, XmlEvents};

use super::diagnostics::Warning;
use super::uri::{BaseUri, is_web, parse_uri};
use super::{Capability, Document, Entry, Head, Oddities, Oddity};

/// Reads a document an entry at a time; memory does not depend on its length.
///
/// A document is known to be complete only when [`next_entry`](Self::next_entry) has returned `None`, or the iterator has ended
/// without an error.
pub struct DocumentReader<R: BufRead> {
    events: XmlEvents<R>,
    context: Context,
    head: HeadDraft,
    /// The entry that is being read.
    entry: EntryDraft,
    conformance: Conformance,
    /// Whether it has anything of the dialect of version 0.1.
    is_dialect: bool,
    /// Whether a damaged end is tolerated.
    is_end_optional: bool,
    state: ReaderState,
}

/// The state of a reader between two calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReaderState {
    /// The start tag of an entry was read. `is_other`: it is the element of the other root element.
    InEntry { is_other: bool },
    /// The next line of a list of URIs may be an entry.
    InLines,
    /// The document has ended and is complete.
    Ended,
    /// The document was rejected; nothing more is read.
    Failed,
}

impl<R: BufRead> DocumentReader<R> {
    /// Reads up to the first entry. Relative URIs are resolved against `base`, the URI of the document.
    pub fn open<'a>(input: R, base: impl Into<BaseUri<'a>>) -> Result<Self, ReadError> {
        Self::open_input(input, base.into(), false)
    }

    /// As [`open`](Self::open), but a sitemap may also be plain text with a URI on each line.
    pub fn open_sitemap<'a>(input: R, base: impl Into<BaseUri<'a>>) -> Result<Self, ReadError> {
        Self::open_input(input, base.into(), true)
    }

    fn open_input(input: R, base: BaseUri<'_>, may_be_text: bool) -> Result<Self, ReadError> {
        let (input, beginning) = DocumentInput::new(input)?;
        let mut reader = Self {
            events: XmlEvents::new(input),
            context: Context::of(base),
            head: HeadDraft::new(),
            entry: EntryDraft::default(),
            conformance: Conformance::default(),
            is_dialect: false,
            is_end_optional: false,
            state: ReaderState::Failed,
        };
        match Beginning::of(&beginning) {
            Beginning::Html { title } => return Err(ReadError::HtmlPage(title)),
            Beginning::Json => return Err(ReadError::Json),
            Beginning::UriList if may_be_text => {
                reader.context.add(Oddity::UriList);
                reader.state = ReaderState::InLines;
            }
            Beginning::UriList | Beginning::Unknown => reader.read_head()?,
        }
        Ok(reader)
    }

    /// Reads up to the first entry of a document in XML.
    fn read_head(&mut self) -> Result<(), ReadError> {
        let is_change_set = loop {
            // This ends: a document without a root element is an error.
            if let XmlEvent::Open(tag) = self.events.next()? {
                self.head.head.root = self.context.root(&tag)?;
                break is_change_set(&tag);
            }
        };
        let declares_encoding = self.events.input().declares_encoding;
        self.context.add_if(Oddity::Encoding, declares_encoding);
        self.context.note_places(EventPlace::BEGIN);
        self.is_dialect = is_change_set;
        self.head.head.is_change_set = is_change_set;
        self.state = self.seek_entry(false)?;
        // What an rs:md states counts more.
        let capability = &mut self.head.head.md.capability;
        if is_change_set && capability.is_none() {
            *capability = Some(Capability::ChangeList);
        }
        Ok(())
    }

    /// Tolerates a damaged end of a sitemap that states nothing of ResourceSync, as [`Oddity::DamagedEnd`]: for input that is known to
    /// be all that there is. The generators of some sitemaps never write the end tag, or write something behind it.
    #[must_use]
    pub fn tolerating_damaged_end(mut self) -> Self {
        self.is_end_optional = true;
        self
    }

    /// The head. After the last entry it includes the parts that followed entries.
    pub fn head(&self) -> &Head {
        &self.head.head
    }

    /// The next entry; `None` at the end of a complete document. After an error every later call is an error too.
    pub fn next_entry(&mut self) -> Result<Option<Entry>, ReadError> {
        while self.state != ReaderState::Ended {
            // Left only by success.
            let entry = match mem::replace(&mut self.state, ReaderState::Failed) {
                ReaderState::InEntry { is_other } => {
                    let entry = self.read_entry(is_other);
                    self.context.note_places(self.events.input().event());
                    self.context.add_if(Oddity::BadEntry, entry.is_err());
                    let (entry, next) = match entry {
                        Ok(entry) => (entry, self.seek_entry(true)),
                        Err(error) => (None, Err(error)),
                    };
                    self.state = next.or_else(|error| self.end_damaged(error))?;
                    entry
                }
                ReaderState::InLines => {
                    let entry = self.read_line()?;
                    self.context.note_places(self.events.input().event());
                    entry
                }
                ReaderState::Ended | ReaderState::Failed => {
                    return Err(ReadError::CutShort(self.events.input().event().place()));
                }
            };
            if entry.is_some() {
                return Ok(entry);
            }
        }
        Ok(None)
    }

    /// The oddities found so far; those of the complete document are counted at its end.
    pub fn oddities(&self) -> &Oddities {
        &self.context.oddities
    }

    /// The deviations found so far, each kind once, with the place of the first.
    pub fn warnings(&self) -> impl Iterator<Item = Warning> {
        let places = self.context.places.iter();
        places.map(|(&oddity, &position)| Warning {
            oddity,
            count: self.context.oddities.count(oddity),
            position,
        })
    }

    /// Whether it has had anything of the dialect of version 0.1 so far.
    pub fn is_draft(&self) -> bool {
        self.is_dialect
    }

    /// Reads up to the next entry or to the end, including parts of the head.
    fn seek_entry(&mut self, late: bool) -> Result<ReaderState, ReadError> {
        loop {
            let tag = match self.events.next()? {
                XmlEvent::Open(tag) if tag.depth == 2 => tag,
                XmlEvent::End { is_reopened } => {
                    self.context.add_if(Oddity::RootReopened, is_reopened);
                    return Ok(self.finish());
                }
                _ => continue,
            };
            match self.context.element(&tag)? {
                Element::Entry(root) => {
                    let head = &mut self.head.head;
                    let mut is_other = root != head.root;
                    self.context.add_if(Oddity::MixedEntries, is_other);
                    self.context.note_places(tag.place);
                    if is_other && !late && distinguishes_entries(head) {
                        head.root = root;
                        is_other = false;
                    }
                    return Ok(ReaderState::InEntry { is_other });
                }
                element @ (Element::Md | Element::Ln | Element::XhtmlMeta | Element::XhtmlLink) => {
                    let is_used = self.head.add(element, &tag, &mut self.context)?;
                    self.is_dialect |= is_used && !matches!(element, Element::Md | Element::Ln);
                    self.context.add_if(Oddity::LateHead, late && is_used);
                    self.context.note_places(tag.place);
                }
                _ => {}
            }
        }
    }

    /// Ends a document at what is wrong with it, if that may be a damaged end.
    fn end_damaged(&mut self, error: ReadError) -> Result<ReaderState, ReadError> {
        let states_more = self.is_dialect || self.head.has_md || !self.head.head.links.is_empty();
        let is_plain = !states_more && self.conformance.has_plain_entries();
        match error {
            ReadError::CutShort(_) | ReadError::TrailingContent(_)
                if self.is_end_optional && is_plain =>
            {
                self.context.add(Oddity::DamagedEnd);
                Ok(self.finish())
            }
            error => Err(error),
        }
    }

    /// Ends a complete document.
    fn finish(&mut self) -> ReaderState {
        let (context, head) = (&mut self.context, &self.head.head);
        let (oddities, is_dialect) = (&mut context.oddities, self.is_dialect);
        oddities.add_several(Oddity::BadMarkup, self.events.damaged());
        oddities.add_if(Oddity::Draft01, is_dialect);
        let is_unknown = !is_dialect && head.md.capability.is_none();
        oddities.add_if(Oddity::NoCapability, is_unknown);
        self.conformance.finish(head, is_dialect, context);
        self.context.note_places(self.events.input().event());
        ReaderState::Ended
    }

    /// Reads an entry whose start tag was read; `None` if it can't be used. `is_other`: it is the element of the other root
    /// element.
    fn read_entry(&mut self, is_other: bool) -> Result<Option<Entry>, ReadError> {
        let (events, context, draft) = (&mut self.events, &mut self.context, &mut self.entry);
        let begin = events.position();
        let bad_changes = context.oddities.count(Oddity::BadChange);
        loop {
            if events.position() - begin > MAX_ENTRY_BYTES {
                return Err(ReadError::EventTooLarge(events.input().place()));
            }
            match events.next()? {
                XmlEvent::Open(tag) => {
                    let element = context.element(&tag)?;
                    draft.add(element, &tag, context);
                }
                XmlEvent::Text(text) => draft.add_text(&text),
                XmlEvent::Close { depth: 2 } => break,
                XmlEvent::Close { depth: 3 } => draft.end_element(context),
                XmlEvent::Close { .. } | XmlEvent::Nothing => {}
                XmlEvent::End { .. } => return Err(ReadError::CutShort(events.input().place())),
            }
        }
        let head = &self.head.head;
        let is_unusable = draft.is_unreadable || (is_other && distinguishes_entries(head));
        self.is_dialect |= draft.is_dialect;
        let has_protocol = draft.has_protocol;
        let entry = draft.finish();
        if context.are_expanded(events.position()) {
            return Err(ReadError::UriExpansion(events.input().place()));
        }
        let Some(mut entry) = entry else {
            context.add(Oddity::BadLoc);
            return Ok(None);
        };
        let has_protocol = has_protocol && holds_resources(head);
        context.add_if(Oddity::BadEntry, is_unusable);
        context.add_if(Oddity::OtherProtocol, has_protocol && !is_unusable);
        // What can't be mirrored is not unread.
        if is_unusable || has_protocol || !make_fetchable(&mut entry, head, context) {
            return Ok(None);
        }
        let unknown_change = context.oddities.count(Oddity::BadChange) > bad_changes;
        // Whether it has expired is not known here.
        let lacks_change = !entry.states_change() && needs_change(head, &entry.md);
        context.add_if(Oddity::BadChange, lacks_change && !unknown_change);
        self.conformance.note(head, &entry);
        Ok(Some(entry))
    }

    /// Reads the next line of a list of URIs, or its end.
    fn read_line(&mut self) -> Result<Option<Entry>, ReadError> {
        let Some(line) = self.events.next_line()? else {
            self.state = self.finish();
            return Ok(None);
        };
        self.state = ReaderState::InLines;
        let context = &mut self.context;
        // A line that is no absolute URI is damaged, not relative.
        let is_whole = context.is_too_long(&line) || parse_uri(&line).is_ok();
        let uri = Some(line).filter(|_| is_whole);
        let uri = uri.and_then(|uri| context.resolve(&uri));
        let Some(uri) = uri.filter(is_web) else {
            context.add(Oddity::BadLoc);
            return Ok(None);
        };
        let entry = Entry::new(uri);
        self.conformance.note(&self.head.head, &entry);
        Ok(Some(entry))
    }
}

/// Gives a resource that is neither at an http nor at an https URI the URI of its first duplicate that is; returns whether it can be
/// fetched then. It is counted by its scheme.
fn make_fetchable(entry: &mut Entry, head: &Head, context: &mut Context) -> bool {
    let is_resource = |_: &Oddity| entry.md.capability.is_none() && holds_resources(head);
    let Some(scheme) = Oddity::of_scheme(&entry.loc).filter(is_resource) else {
        return true;
    };
    context.add(scheme);
    let duplicate = entry.links("duplicate").find(|link| is_web(&link.href));
    let duplicate = duplicate.cloned();
    if let Some(duplicate) = &duplicate {
        entry.md.content.complete_with(&duplicate.content);
        entry.loc = duplicate.href.clone();
    }
    duplicate.is_some()
}

/// Ends after the first error.
impl<R: BufRead> Iterator for DocumentReader<R> {
    type Item = Result<Entry, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.state == ReaderState::Failed {
            return None;
        }
        self.next_entry().transpose()
    }
}

impl<R: BufRead> fmt::Debug for DocumentReader<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DocumentReader")
            .field("base", &self.context.base.as_str())
            .field("head", &self.head.head)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

/// Reads a complete document from memory.
pub fn read_document(bytes: &[u8], base: &Url) -> Result<Document, ReadError> {
    let mut reader = DocumentReader::open(bytes, base)?;
    let entries = reader.by_ref().collect::<Result<_, _>>()?;
    Ok(Document {
        head: reader.head.head,
        entries,
        oddities: reader.context.oddities,
    })
}
