//! The streaming reader of documents.
//!
//! It reads bytes when an entry is requested, and stores no more than that entry: memory does not depend on the length of the
//! document. Unambiguous deviations from the specification are accepted and counted as an [`Oddity`]; an invalid entry does
//! not affect the others. A document is rejected if it is of another kind, incomplete, or exceeds the limits below.

mod attributes;
mod conformance;
mod element;
mod error;
#[cfg(test)]
mod tests;
mod xml;

use std::fmt;
use std::io::BufRead;

use url::Url;

use super::{
    Capability, Document, Entry, Head, Link, Metadata, Oddities, Oddity, Root, SourceTime,
};
use attributes::{merge_metadata, read_link, read_metadata, resolve};
use conformance::Conformance;
use element::{Element, Spelling, read_root};
pub use error::ReadError;
use xml::{Tag, XmlEvent, XmlEvents};

/// The maximum length of an entry, and of all metadata and links of the head together, in bytes.
const MAX_ENTRY_BYTES: u64 = 1024 * 1024;

/// Reads a document an entry at a time; memory does not depend on its length.
///
/// A document is known to be complete only when [`next_entry`](Self::next_entry) has returned `None`.
pub struct DocumentReader<R: BufRead> {
    events: XmlEvents<R>,
    base: Url,
    head: Head,
    /// Whether the head has had an `rs:md`.
    head_md: bool,
    /// The length of the tags of the head, in bytes.
    head_bytes: u64,
    spelling: Spelling,
    oddities: Oddities,
    conformance: Conformance,
    state: State,
}

/// The state of a reader between two calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The start tag of an entry was read.
    InEntry,
    /// The document has ended and is complete.
    Ended,
    /// The document was rejected; nothing more is read.
    Failed,
}

impl<R: BufRead> DocumentReader<R> {
    /// Reads up to the first entry. Relative URIs are resolved against `base`, the URI of the document.
    pub fn open(input: R, base: &Url) -> Result<Self, ReadError> {
        let mut events = XmlEvents::new(input)?;
        let mut oddities = Oddities::default();
        let mut spelling = Spelling::default();
        let root = loop {
            match events.next()? {
                XmlEvent::Open(tag) => break read_root(&tag, &mut spelling, &mut oddities)?,
                XmlEvent::End => return Err(ReadError::CutShort),
                XmlEvent::Close { .. } | XmlEvent::Text(_) | XmlEvent::Nothing => {}
            }
        };
        let mut reader = Self {
            events,
            base: base.clone(),
            head: Head {
                root,
                md: Metadata::default(),
                links: Vec::new(),
            },
            head_md: false,
            head_bytes: 0,
            spelling,
            oddities,
            conformance: Conformance::default(),
            state: State::InEntry,
        };
        reader.state = reader.seek_entry(false)?;
        Ok(reader)
    }

    /// The head. After the last entry it includes the parts that followed entries.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// The next entry; `None` at the end of a complete document. After an error every later call is an error too.
    pub fn next_entry(&mut self) -> Result<Option<Entry>, ReadError> {
        loop {
            match self.state {
                State::Ended => return Ok(None),
                State::Failed => return Err(ReadError::CutShort),
                State::InEntry => {}
            }
            // Left only by success.
            self.state = State::Failed;
            let entry = self.read_entry()?;
            self.state = self.seek_entry(true)?;
            if let Some(entry) = entry {
                return Ok(Some(entry));
            }
        }
    }

    /// The oddities found so far; those of the complete document are counted at its end.
    pub fn oddities(&self) -> &Oddities {
        &self.oddities
    }

    /// Reads up to the next entry or to the end, including parts of the head.
    fn seek_entry(&mut self, late: bool) -> Result<State, ReadError> {
        loop {
            let tag = match self.events.next()? {
                XmlEvent::Open(tag) if tag.depth == 2 => tag,
                XmlEvent::End => break,
                _ => continue,
            };
            let element = self.spelling.element(&tag, &mut self.oddities)?;
            if let Element::Entry(root) = element {
                if root != self.head.root {
                    self.oddities.add(Oddity::MixedEntries);
                }
                return Ok(State::InEntry);
            }
            if !matches!(element, Element::Md | Element::Ln) {
                continue;
            }
            if late {
                self.oddities.add(Oddity::LateHead);
            }
            self.head_bytes += tag.length();
            if self.head_bytes > MAX_ENTRY_BYTES {
                return Err(ReadError::EventTooLarge);
            }
            if element == Element::Ln {
                let link = read_link(&tag, &self.base, &mut self.oddities);
                self.head.links.extend(link);
                continue;
            }
            if std::mem::replace(&mut self.head_md, true) {
                self.oddities.add(Oddity::SeveralMetadata);
            }
            let more = read_metadata(&tag, &mut self.oddities);
            merge_metadata(&mut self.head.md, more);
        }
        if self.head.md.capability.is_none() {
            self.oddities.add(Oddity::NoCapability);
        }
        self.conformance
            .finish(&self.head, &self.base, &mut self.oddities);
        Ok(State::Ended)
    }

    /// Reads an entry whose start tag was read; `None` if it has no valid `loc`.
    fn read_entry(&mut self) -> Result<Option<Entry>, ReadError> {
        let begin = self.events.position();
        let bad_changes = self.oddities.count(Oddity::BadChange);
        let mut draft = EntryDraft::default();
        loop {
            if self.events.position() - begin > MAX_ENTRY_BYTES {
                return Err(ReadError::EventTooLarge);
            }
            match self.events.next()? {
                XmlEvent::Open(tag) => {
                    let element = self.spelling.element(&tag, &mut self.oddities)?;
                    draft.add(element, &tag, &self.base, &mut self.oddities);
                }
                XmlEvent::Text(text) => draft.add_text(&text),
                XmlEvent::Close { depth: 2 } => break,
                XmlEvent::Close { depth: 3 } => draft.field = Field::None,
                XmlEvent::Close { .. } | XmlEvent::Nothing => {}
                XmlEvent::End => return Err(ReadError::CutShort),
            }
        }
        let Some(entry) = draft.finish(&self.base, &mut self.oddities) else {
            self.oddities.add(Oddity::BadLoc);
            return Ok(None);
        };
        let unknown_change = self.oddities.count(Oddity::BadChange) > bad_changes;
        if entry.md.change.is_none() && !unknown_change && needs_change(&self.head, &entry.md) {
            self.oddities.add(Oddity::BadChange);
        }
        self.conformance.note(&self.head, &entry);
        Ok(Some(entry))
    }
}

impl<R: BufRead> fmt::Debug for DocumentReader<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DocumentReader")
            .field("base", &self.base.as_str())
            .field("head", &self.head)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

/// Reads a complete document from memory.
pub fn read_document(bytes: &[u8], base: &Url) -> Result<Document, ReadError> {
    let mut reader = DocumentReader::open(bytes, base)?;
    let mut entries = Vec::new();
    while let Some(entry) = reader.next_entry()? {
        entries.push(entry);
    }
    Ok(Document {
        head: reader.head,
        entries,
        oddities: reader.oddities,
    })
}

/// Whether an entry of such a document must have a `change`. An entry with a capability refers to another document and has
/// none, except in a framework notification, which reports changes of documents.
fn needs_change(head: &Head, md: &Metadata) -> bool {
    match head.md.capability {
        Some(Capability::FrameworkNotification) => true,
        Some(
            Capability::ChangeList
            | Capability::ChangeNotification
            | Capability::ChangeDumpManifest,
        ) => head.root == Root::Urlset && md.capability.is_none(),
        _ => false,
    }
}

/// An entry that is being read.
#[derive(Default)]
struct EntryDraft {
    loc: Option<String>,
    lastmod: Option<String>,
    /// Whether it has had an `rs:md`.
    has_md: bool,
    md: Metadata,
    links: Vec<Link>,
    field: Field,
}

/// The text of an entry that is being read.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Field {
    #[default]
    None,
    Loc,
    Lastmod,
}

impl EntryDraft {
    /// Adds an element within the entry.
    fn add(&mut self, element: Element, tag: &Tag<'_>, base: &Url, oddities: &mut Oddities) {
        // The notification specifications place an rs:ln within the loc, although their examples have it beside it.
        let is_child = tag.depth == 3 || (tag.depth == 4 && self.field == Field::Loc);
        match element {
            Element::Loc if tag.depth == 3 && self.loc.is_none() => {
                self.loc = Some(String::new());
                self.field = Field::Loc;
            }
            Element::Lastmod if tag.depth == 3 && self.lastmod.is_none() => {
                self.lastmod = Some(String::new());
                self.field = Field::Lastmod;
            }
            Element::Md if is_child => {
                if std::mem::replace(&mut self.has_md, true) {
                    oddities.add(Oddity::SeveralMetadata);
                }
                merge_metadata(&mut self.md, read_metadata(tag, oddities));
            }
            Element::Ln if is_child => self.links.extend(read_link(tag, base, oddities)),
            _ => {}
        }
    }

    /// Adds a piece of text within the entry.
    fn add_text(&mut self, text: &str) {
        let field = match self.field {
            Field::None => return,
            Field::Loc => &mut self.loc,
            Field::Lastmod => &mut self.lastmod,
        };
        field.get_or_insert_default().push_str(text);
    }

    /// The entry; `None` if it has no valid `loc`.
    fn finish(self, base: &Url, oddities: &mut Oddities) -> Option<Entry> {
        let loc = resolve(self.loc.as_deref()?, base, oddities)?;
        let lastmod = self.lastmod.as_deref();
        Some(Entry {
            loc,
            lastmod: lastmod.and_then(|text| SourceTime::parse_w3c(text, oddities)),
            md: self.md,
            links: self.links,
        })
    }
}
