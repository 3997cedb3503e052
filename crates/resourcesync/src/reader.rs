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
mod dialect;
mod element;
mod entry_draft;
mod error;
mod input;
mod references;
#[cfg(test)]
mod tests;
mod text_position;
mod uri_list;
mod xml;

use std::collections::BTreeMap;
use std::fmt;
use std::io::BufRead;

use attributes::{OF_HEAD, may_continue, merge_metadata, read_link, read_metadata};
use beginning::Beginning;
use conformance::Conformance;
use dialect::{HeadLink, is_change_set, read_head_link, read_modified};
use element::{Element, Spelling, read_root};
use entry_draft::{EntryDraft, admitted_link};
pub use error::ReadError;
use input::{DocumentInput, EventPlace};
use references::References;
pub use text_position::TextPosition;
use uri_list::UriList;
use url::Url;
use xml::{Tag, XmlEvent, XmlEvents, not_xml};

use super::diagnostics::Warning;
use super::entries::LinkLimit;
use super::uri::{BaseUri, is_web, parse_uri};
use super::{Capability, Document, Entry, Head, Metadata, Oddities, Oddity, Root};

/// The maximum length of an entry, and of all metadata and links of the head together, in bytes.
const MAX_ENTRY_BYTES: u64 = 1024 * 1024;

/// How many interfaces of pushing a head may state.
const MAX_INTERFACES: usize = 20;

/// Reads a document an entry at a time; memory does not depend on its length.
///
/// A document is known to be complete only when [`next_entry`](Self::next_entry) has returned `None`, or the iterator has ended
/// without an error.
pub struct DocumentReader<R: BufRead> {
    content: ReaderContent<R>,
    references: References,
    head: Head,
    head_parts: HeadParts,
    spelling: Spelling,
    /// Whether it has anything of the dialect of version 0.1.
    is_dialect: bool,
    oddities: Oddities,
    places: FirstPlaces,
    conformance: Conformance,
    /// The entry that is being read.
    draft: EntryDraft,
    /// Whether a damaged end is tolerated.
    is_end_optional: bool,
    state: ReaderState,
}

/// The place where each kind of oddity was found first.
type FirstPlaces = BTreeMap<Oddity, TextPosition>;

/// Notes a place for the kinds that have none.
fn note_places(
    places: &mut FirstPlaces,
    oddities: &Oddities,
    place: impl FnOnce() -> TextPosition,
) {
    if oddities.kinds() > places.len() {
        let place = place();
        for (oddity, _) in oddities.iter() {
            places.entry(oddity).or_insert(place);
        }
    }
}

/// What is being read.
enum ReaderContent<R: BufRead> {
    Xml(Box<XmlEvents<R>>),
    UriList(Box<UriList<R>>),
}

impl<R: BufRead> ReaderContent<R> {
    /// Where the event begins that was read last.
    fn event(&self) -> EventPlace<'_> {
        match self {
            Self::Xml(events) => events.event(),
            Self::UriList(lines) => lines.event(),
        }
    }
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
        match Beginning::of(&beginning) {
            Beginning::Html { title } => Err(ReadError::HtmlPage(title)),
            Beginning::Json => Err(ReadError::Json),
            Beginning::UriList if may_be_text => Ok(Self::of_uris(input, base)),
            Beginning::UriList | Beginning::Unknown => Self::of_xml(input, base),
        }
    }

    /// A sitemap as plain text.
    fn of_uris(input: DocumentInput<R>, base: BaseUri<'_>) -> Self {
        let content = ReaderContent::UriList(Box::new(UriList::new(input)));
        let mut reader = Self::of(content, Root::Urlset, base);
        reader.oddities.add(Oddity::UriList);
        reader.state = ReaderState::InLines;
        reader
    }

    fn of_xml(input: DocumentInput<R>, base: BaseUri<'_>) -> Result<Self, ReadError> {
        let mut events = Box::new(XmlEvents::new(input));
        let mut oddities = Oddities::default();
        let mut spelling = Spelling::default();
        let (root, is_change_set) = loop {
            match events.next()? {
                XmlEvent::Open(tag) => {
                    let root = read_root(&tag, &mut spelling, &mut oddities)?;
                    break (root, is_change_set(&tag));
                }
                XmlEvent::End => return Err(ReadError::CutShort(events.event().place())),
                XmlEvent::Close { .. } | XmlEvent::Text(_) | XmlEvent::Nothing => {}
            }
        };
        if events.declares_encoding() {
            oddities.add(Oddity::Encoding);
        }
        let mut reader = Self::of(ReaderContent::Xml(events), root, base);
        note_places(&mut reader.places, &oddities, || TextPosition::BEGIN);
        reader.oddities = oddities;
        reader.spelling = spelling;
        reader.is_dialect = is_change_set;
        reader.head.is_change_set = is_change_set;
        reader.state = reader.seek_entry(false)?;
        // What an rs:md states counts more.
        if is_change_set && reader.head.md.capability.is_none() {
            reader.head.md.capability = Some(Capability::ChangeList);
        }
        Ok(reader)
    }

    /// A reader that has read nothing.
    fn of(content: ReaderContent<R>, root: Root, base: BaseUri<'_>) -> Self {
        Self {
            content,
            references: References::of(base),
            head: Head {
                root,
                ..Head::default()
            },
            head_parts: HeadParts {
                links: LinkLimit::HEAD,
                has_md: false,
                bytes: 0,
            },
            spelling: Spelling::default(),
            is_dialect: false,
            oddities: Oddities::default(),
            places: FirstPlaces::default(),
            conformance: Conformance::default(),
            draft: EntryDraft::default(),
            is_end_optional: false,
            state: ReaderState::Failed,
        }
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
        &self.head
    }

    /// The next entry; `None` at the end of a complete document. After an error every later call is an error too.
    pub fn next_entry(&mut self) -> Result<Option<Entry>, ReadError> {
        loop {
            // Left only by success.
            let entry = match std::mem::replace(&mut self.state, ReaderState::Failed) {
                ReaderState::Ended => {
                    self.state = ReaderState::Ended;
                    return Ok(None);
                }
                ReaderState::Failed => {
                    return Err(ReadError::CutShort(self.content.event().place()));
                }
                ReaderState::InEntry { is_other } => {
                    let entry = self.read_entry(is_other);
                    self.note_places();
                    let (entry, next) = match entry {
                        Ok(entry) => (entry, self.seek_entry(true)),
                        Err(error) => {
                            self.oddities.add(Oddity::BadEntry);
                            (None, Err(error))
                        }
                    };
                    self.state = next.or_else(|error| self.end_damaged(error))?;
                    entry
                }
                ReaderState::InLines => {
                    let entry = self.read_line()?;
                    self.note_places();
                    entry
                }
            };
            if let Some(entry) = entry {
                return Ok(Some(entry));
            }
        }
    }

    /// The oddities found so far; those of the complete document are counted at its end.
    pub fn oddities(&self) -> &Oddities {
        &self.oddities
    }

    /// The deviations found so far, each kind once, with the place of the first.
    pub fn warnings(&self) -> impl Iterator<Item = Warning> {
        self.places.iter().map(|(&oddity, &position)| Warning {
            oddity,
            count: self.oddities.count(oddity),
            position,
        })
    }

    /// Whether it has had anything of the dialect of version 0.1 so far.
    pub fn is_draft(&self) -> bool {
        self.is_dialect
    }

    fn note_places(&mut self) {
        let place = self.content.event();
        note_places(&mut self.places, &self.oddities, || place.place());
    }

    /// Reads up to the next entry or to the end, including parts of the head.
    fn seek_entry(&mut self, late: bool) -> Result<ReaderState, ReadError> {
        let ReaderContent::Xml(events) = &mut self.content else {
            return Ok(ReaderState::InLines);
        };
        loop {
            let tag = match events.next()? {
                XmlEvent::Open(tag) if tag.depth == 2 => tag,
                XmlEvent::End => break,
                _ => continue,
            };
            let element = self.spelling.element(&tag, &mut self.oddities)?;
            if let Element::Entry(root) = element {
                let is_other = root != self.head.root;
                if is_other {
                    self.oddities.add(Oddity::MixedEntries);
                }
                note_places(&mut self.places, &self.oddities, || tag.at());
                if is_other && !late && distinguishes_entries(&self.head) {
                    self.head.root = root;
                    return Ok(ReaderState::InEntry { is_other: false });
                }
                return Ok(ReaderState::InEntry { is_other });
            }
            if !element.is_of_head() {
                continue;
            }
            let (references, oddities) = (&mut self.references, &mut self.oddities);
            let parts = &mut self.head_parts;
            let is_used = parts.add(&mut self.head, element, &tag, references, oddities)?;
            self.is_dialect |= is_used && !matches!(element, Element::Md | Element::Ln);
            if late && is_used {
                self.oddities.add(Oddity::LateHead);
            }
            note_places(&mut self.places, &self.oddities, || tag.at());
        }
        let damaged = events.damaged();
        if events.ends_reopened() {
            self.oddities.add(Oddity::RootReopened);
        }
        Ok(self.finish(damaged))
    }

    /// Ends a document at what is wrong with it, if that may be a damaged end.
    fn end_damaged(&mut self, error: ReadError) -> Result<ReaderState, ReadError> {
        let is_end = matches!(
            error,
            ReadError::CutShort(_) | ReadError::TrailingContent(_)
        );
        let is_plain = !self.head_parts.has_md
            && !self.is_dialect
            && self.head.links.is_empty()
            && self.conformance.has_plain_entries();
        let ReaderContent::Xml(events) = &self.content else {
            return Err(error);
        };
        if !(self.is_end_optional && is_end && is_plain) {
            return Err(error);
        }
        let damaged = events.damaged();
        self.oddities.add(Oddity::DamagedEnd);
        Ok(self.finish(damaged))
    }

    /// Ends a complete document. `damaged`: in how many places its text can't be read.
    fn finish(&mut self, damaged: u64) -> ReaderState {
        self.oddities.add_several(Oddity::BadMarkup, damaged);
        if self.is_dialect {
            self.oddities.add(Oddity::Draft01);
        } else if self.head.md.capability.is_none() {
            self.oddities.add(Oddity::NoCapability);
        }
        let base = self.references.base();
        self.conformance
            .finish(&self.head, base, self.is_dialect, &mut self.oddities);
        self.note_places();
        ReaderState::Ended
    }

    /// Reads an entry whose start tag was read; `None` if it can't be used. `is_other`: it is the element of the other root
    /// element.
    fn read_entry(&mut self, is_other: bool) -> Result<Option<Entry>, ReadError> {
        let ReaderContent::Xml(events) = &mut self.content else {
            return Ok(None);
        };
        let begin = events.position();
        let bad_changes = self.oddities.count(Oddity::BadChange);
        let draft = &mut self.draft;
        loop {
            if events.position() - begin > MAX_ENTRY_BYTES {
                return Err(ReadError::EventTooLarge(events.end()));
            }
            match events.next()? {
                XmlEvent::Open(tag) => {
                    let element = self.spelling.element(&tag, &mut self.oddities)?;
                    draft.add(element, &tag, &mut self.references, &mut self.oddities);
                }
                XmlEvent::Text(text) => draft.add_text(&text),
                XmlEvent::Close { depth: 2 } => break,
                XmlEvent::Close { depth: 3 } => {
                    draft.end_element(&mut self.references, &mut self.oddities);
                }
                XmlEvent::Close { .. } | XmlEvent::Nothing => {}
                XmlEvent::End => return Err(ReadError::CutShort(events.end())),
            }
        }
        let is_unusable = draft.is_unreadable || (is_other && distinguishes_entries(&self.head));
        self.is_dialect |= draft.is_dialect;
        let has_protocol = draft.has_protocol;
        let entry = draft.finish();
        if self.references.are_expanded(events.position()) {
            return Err(ReadError::UriExpansion(events.end()));
        }
        let Some(mut entry) = entry else {
            self.oddities.add(Oddity::BadLoc);
            return Ok(None);
        };
        if is_unusable {
            self.oddities.add(Oddity::BadEntry);
            return Ok(None);
        }
        if has_protocol && holds_resources(&self.head) {
            self.oddities.add(Oddity::OtherProtocol);
            return Ok(None);
        }
        // It is counted by its scheme. What can't be mirrored is not unread.
        if !self.make_fetchable(&mut entry) {
            return Ok(None);
        }
        let unknown_change = self.oddities.count(Oddity::BadChange) > bad_changes;
        // Whether it has expired is not known here.
        if !entry.states_change() && !unknown_change && needs_change(&self.head, &entry.md) {
            self.oddities.add(Oddity::BadChange);
        }
        self.conformance.note(&self.head, &entry);
        Ok(Some(entry))
    }

    /// Gives a resource that is neither at an http nor at an https URI the URI of its first duplicate that is; returns whether it can be
    /// fetched then.
    fn make_fetchable(&mut self, entry: &mut Entry) -> bool {
        let Some(scheme) = Oddity::of_scheme(&entry.loc) else {
            return true;
        };
        let is_resource = entry.md.capability.is_none() && holds_resources(&self.head);
        if !is_resource {
            return true;
        }
        self.oddities.add(scheme);
        let Some(duplicate) = entry
            .links("duplicate")
            .find(|link| is_web(&link.href))
            .cloned()
        else {
            return false;
        };
        entry.md.content.complete_with(&duplicate.content);
        entry.loc = duplicate.href;
        true
    }

    /// Reads the next line of a list of URIs, or its end.
    fn read_line(&mut self) -> Result<Option<Entry>, ReadError> {
        let ReaderContent::UriList(lines) = &mut self.content else {
            return Ok(None);
        };
        let Some(line) = lines.next()? else {
            let damaged = lines.damaged();
            self.state = self.finish(damaged);
            return Ok(None);
        };
        self.state = ReaderState::InLines;
        // A line that is no absolute URI is damaged, not relative.
        let is_relative = !self.references.is_too_long(&line) && parse_uri(&line).is_err();
        let uri = if is_relative {
            None
        } else {
            self.references.resolve(&line, &mut self.oddities)
        };
        let uri = uri.filter(is_web);
        let Some(uri) = uri else {
            self.oddities.add(Oddity::BadLoc);
            return Ok(None);
        };
        let entry = Entry::new(uri);
        self.conformance.note(&self.head, &entry);
        Ok(Some(entry))
    }
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
            .field("base", &self.references.base().as_str())
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
pub(super) fn needs_change(head: &Head, md: &Metadata) -> bool {
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

/// Whether a `url` and a `sitemap` mean different things in such a document: the one a resource, a change or a package, the other
/// a list of them.
fn distinguishes_entries(head: &Head) -> bool {
    matches!(
        head.md.capability,
        None | Some(
            Capability::ResourceList
                | Capability::ResourceDump
                | Capability::ResourceDumpManifest
                | Capability::ChangeList
                | Capability::ChangeDump
                | Capability::ChangeDumpManifest
        )
    )
}

/// Whether the entries of such a document are resources, or changes of them, unless they state a capability.
fn holds_resources(head: &Head) -> bool {
    let is_list = matches!(
        head.md.capability,
        None | Some(
            Capability::ResourceList
                | Capability::ChangeList
                | Capability::ChangeNotification
                | Capability::ResourceDumpManifest
                | Capability::ChangeDumpManifest
        )
    );
    is_list && head.root == Root::Urlset
}

/// What was read of the head of a document.
struct HeadParts {
    links: LinkLimit,
    has_md: bool,
    /// The length of its tags, in bytes.
    bytes: u64,
}

impl HeadParts {
    /// Adds an element of the head; returns whether it states anything.
    fn add(
        &mut self,
        head: &mut Head,
        element: Element,
        tag: &Tag<'_>,
        references: &mut References,
        oddities: &mut Oddities,
    ) -> Result<bool, ReadError> {
        self.bytes += tag.length();
        if self.bytes > MAX_ENTRY_BYTES {
            return Err(ReadError::EventTooLarge(tag.at()));
        }
        match element {
            Element::Ln => {
                let cut_before = oddities.cut_uris();
                let link = admitted_link(&mut self.links, oddities, |oddities| {
                    read_link(tag, references, oddities)
                });
                if link.is_none() && may_continue(tag) {
                    oddities.add(Oddity::BadEntry);
                    if oddities.cut_uris() > cut_before {
                        oddities.add(Oddity::BeyondLimit);
                    }
                }
                head.links.extend(link);
            }
            Element::XhtmlMeta => {
                let modified = read_modified(tag, oddities);
                head.md.modified = head.md.modified.or(modified);
                return Ok(modified.is_some());
            }
            Element::XhtmlLink => match read_head_link(tag, references, oddities) {
                None => return Ok(false),
                Some(HeadLink::Interface(interface)) if head.interfaces.len() < MAX_INTERFACES => {
                    head.interfaces.push(interface);
                }
                Some(HeadLink::Interface(_)) => oddities.add(Oddity::TooManyLinks),
                Some(HeadLink::Link(link)) => {
                    let link = admitted_link(&mut self.links, oddities, |_| link);
                    head.links.extend(link);
                }
            },
            _ => {
                if std::mem::replace(&mut self.has_md, true) {
                    oddities.add(Oddity::SeveralMetadata);
                }
                let Some(more) = read_metadata(tag, OF_HEAD, oddities) else {
                    // What the document is would be a guess.
                    return Err(not_xml(
                        tag.at(),
                        &"an attribute of its rs:md can't be read",
                    ));
                };
                merge_metadata(&mut head.md, more);
            }
        }
        Ok(true)
    }
}
