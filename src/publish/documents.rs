//! The documents of what is published (the core, sections 8 to 12), made from the database when somebody asks for them.
//!
//! A Resource List is a snapshot: whatever is published later is of a later time, and in a Change List. Its index names lists by ranges of
//! rows, each of which is a snapshot of its own.

use std::io::Write;

use chrono::{DateTime, TimeDelta, Utc};
use resourcesync::{
    Capability, DocumentWriter, Entry, Head, Link, Root, SourceTime, write_document,
};
use url::Url;

use super::entries::EntryForm;
use super::spool::{DocumentError, SpoolWriter};
use super::uris::{
    CAPABILITY_LIST, CHANGE_DUMP, CHANGE_LIST, CHANGES, FRAMEWORK, RESOURCE_DUMP, RESOURCE_LIST,
    SiteUris,
};
use crate::store::{
    ChangeSpan, PublishedRows, PublishedSet, PublishedState, ResourceId, StoreError,
};

/// How many entries and bytes a document may have (the Sitemap protocol).
const MOST_ENTRIES: u64 = 50_000;
const MOST_BYTES: u64 = 50_000_000;
/// How many rows of resources a list of an index has.
const PAGE: i64 = 10_000;
/// How many numbers of the feed a Change List has at most.
pub(super) const CHANGES_A_LIST: i64 = 1 << 15;

/// A document of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SetDocument {
    CapabilityList,
    /// The only Resource List, or the index.
    ResourceList,
    /// A list of the index: so many of them are before it.
    ResourceListPage(i64),
    /// The index of the Change Lists.
    ChangeLists,
    /// The Change List up to that number of the feed; `None`: the open one.
    ChangeList(Option<i64>),
    /// The Resource Dump, which names a package for each range of rows.
    ResourceDump,
    /// The Change Dump, which names a package for each Change List.
    ChangeDump,
}

impl SetDocument {
    /// The document of a file name.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let stem = name.strip_suffix(".xml")?;
        Some(match stem {
            "capabilitylist" => Self::CapabilityList,
            RESOURCE_LIST => Self::ResourceList,
            CHANGE_LIST => Self::ChangeLists,
            "changelist-open" => Self::ChangeList(None),
            RESOURCE_DUMP => Self::ResourceDump,
            CHANGE_DUMP => Self::ChangeDump,
            _ => {
                let (kind, number) = stem.split_once('-')?;
                let digits = number.bytes().all(|byte| byte.is_ascii_digit());
                let number = number.parse().ok().filter(|_| digits)?;
                match kind {
                    RESOURCE_LIST => Self::ResourceListPage(number),
                    CHANGE_LIST => Self::ChangeList(Some(number)),
                    _ => return None,
                }
            }
        })
    }

    /// Whether it states what there is at one moment.
    pub(super) fn is_snapshot(self) -> bool {
        matches!(
            self,
            Self::ResourceList | Self::ResourceListPage(_) | Self::ResourceDump
        )
    }

    fn name(self) -> String {
        match self {
            Self::CapabilityList => CAPABILITY_LIST.to_owned(),
            Self::ResourceList => format!("{RESOURCE_LIST}.xml"),
            Self::ResourceListPage(page) => format!("{RESOURCE_LIST}-{page}.xml"),
            Self::ChangeLists => format!("{CHANGE_LIST}.xml"),
            Self::ChangeList(Some(until)) => format!("{CHANGE_LIST}-{until}.xml"),
            Self::ChangeList(None) => format!("{CHANGE_LIST}-open.xml"),
            Self::ResourceDump => format!("{RESOURCE_DUMP}.xml"),
            Self::ChangeDump => format!("{CHANGE_DUMP}.xml"),
        }
    }
}

/// A document that is never long, and the time of what it states.
type ShortDocument = (Head, Vec<Entry>, DateTime<Utc>);

/// What the documents of a set are made of, besides its rows.
#[derive(Clone, Debug)]
pub(super) struct SetDocuments {
    pub(super) set: PublishedSet,
    pub(super) form: EntryForm,
    /// Whether there are dumps.
    pub(super) dumps: bool,
    /// The hub of the channels; `None`: there are none.
    pub(super) hub: Option<Url>,
    /// The time of the oldest changes; `None`: of all that the feed has.
    pub(super) oldest: Option<DateTime<Utc>>,
}

impl SetDocuments {
    fn uris(&self) -> &SiteUris {
        &self.form.uris
    }

    /// A topic of a channel.
    pub(super) fn topic(&self, name: &str) -> Url {
        self.uris().of_set(&self.set, name)
    }

    pub(super) fn uri(&self, document: SetDocument) -> Url {
        self.uris().of_set(&self.set, &document.name())
    }

    /// Whether there may be a document, by the last row of a resource: looking for others would cost more.
    pub(super) fn may_have(&self, document: SetDocument, last: ResourceId) -> bool {
        match document {
            SetDocument::ResourceListPage(page) => (0..=last.number() / PAGE).contains(&page),
            _ => true,
        }
    }

    /// What a document that states what there is at one moment was made of.
    pub(super) fn snapshot_version(&self, state: &PublishedState) -> String {
        format!("{} {}", state.changed, self.set.resources)
    }

    /// The name by which a document is remembered.
    pub(super) fn key(&self, document: SetDocument) -> String {
        self.uri(document).path().to_owned()
    }

    /// Writes a document, and returns the time of what it states. `at`: the time of a snapshot.
    pub(super) fn write(
        &self,
        rows: &PublishedRows<'_>,
        document: SetDocument,
        at: DateTime<Utc>,
        output: &mut SpoolWriter,
    ) -> Result<DateTime<Utc>, DocumentError> {
        let (head, entries, modified) = match document {
            SetDocument::CapabilityList => self.capability_list(),
            SetDocument::ResourceList if self.is_long(rows)? => {
                let head = self.head(Root::Sitemapindex, Capability::ResourceList, None);
                let entry = |page: i64| Entry::new(self.uri(SetDocument::ResourceListPage(page)));
                self.of_pages(rows, at, head, entry)?
            }
            SetDocument::ResourceList => {
                let all = (ResourceId::NONE, ResourceId::LAST);
                return self.write_list(rows, at, all, None, output);
            }
            SetDocument::ResourceListPage(page) => {
                let range = self.page_range(page);
                if !self.is_long(rows)? || rows.first_after(self.set.id, range.0)?.is_none() {
                    return Err(DocumentError::Missing);
                }
                let index = Some(SetDocument::ResourceList);
                return self.write_list(rows, at, range, index, output);
            }
            SetDocument::ResourceDump | SetDocument::ChangeDump if !self.dumps => {
                return Err(DocumentError::Missing);
            }
            SetDocument::ResourceDump => {
                let head = self.head(Root::Urlset, Capability::ResourceDump, None);
                let entry = |page: i64| self.package(&format!("{RESOURCE_DUMP}-{page}.zip"));
                self.of_pages(rows, at, head, entry)?
            }
            SetDocument::ChangeDump => self.change_dump(rows)?,
            SetDocument::ChangeLists => self.change_lists(rows)?,
            SetDocument::ChangeList(until) => {
                let span = self.span(rows, until)?;
                return self.write_changes(rows, &span, output);
            }
        };
        output.write_all(&write_document(&head, &entries))?;
        Ok(modified)
    }

    fn capability_list(&self) -> ShortDocument {
        let mut head = Head::new(Root::Urlset, Capability::CapabilityList);
        let description = self.uris().description(&self.set.source);
        head.links.push(Link::new("up", description));
        let described_by = self.set.described_by.iter().cloned();
        let described_by = described_by.map(|document| Link::new("describedby", document));
        head.links.extend(described_by);
        let lists = [
            (SetDocument::ResourceList, Capability::ResourceList),
            (SetDocument::ChangeLists, Capability::ChangeList),
        ];
        let dumps = [
            (SetDocument::ResourceDump, Capability::ResourceDump),
            (SetDocument::ChangeDump, Capability::ChangeDump),
        ];
        let dumps = dumps.into_iter().filter(|_| self.dumps);
        let documents = lists.into_iter().chain(dumps);
        let mut entries: Vec<Entry> = documents
            .map(|(document, capability)| pointer(self.uri(document), capability))
            .collect();
        if let Some(hub) = &self.hub {
            for (topic, capability) in [
                (CHANGES, Capability::ChangeNotification),
                (FRAMEWORK, Capability::FrameworkNotification),
            ] {
                let mut channel = pointer(self.topic(topic), capability);
                channel.links.push(Link::new("hub", hub.clone()));
                entries.push(channel);
            }
        }
        (head, entries, self.set.since)
    }

    /// The Change Lists: those that are closed, and the open one.
    pub(super) fn spans(&self, rows: &PublishedRows<'_>) -> Result<Vec<ChangeSpan>, StoreError> {
        rows.spans(&self.set, self.oldest, CHANGES_A_LIST)
    }

    /// The Change List that is closed with a number of the feed; `None`: the open one.
    pub(super) fn span(
        &self,
        rows: &PublishedRows<'_>,
        until: Option<i64>,
    ) -> Result<ChangeSpan, DocumentError> {
        let mut spans = self.spans(rows)?.into_iter();
        let is_found = |span: &ChangeSpan| span.closed.map(|_| span.until) == until;
        spans.find(is_found).ok_or(DocumentError::Missing)
    }

    /// Whether one list can't have all resources.
    fn is_long(&self, rows: &PublishedRows<'_>) -> Result<bool, DocumentError> {
        let bytes = || rows.bytes_of_entries(self.set.id, MOST_ENTRIES);
        Ok(self.set.resources > MOST_ENTRIES || bytes()? > MOST_BYTES / 2)
    }

    /// The head of a document, or of one of an index.
    pub(super) fn head(
        &self,
        root: Root,
        capability: Capability,
        index: Option<SetDocument>,
    ) -> Head {
        let mut head = Head::new(root, capability);
        let list = self.uri(SetDocument::CapabilityList);
        head.links.push(Link::new("up", list));
        let index = index.map(|index| Link::new("index", self.uri(index)));
        head.links.extend(index);
        head
    }

    fn write_list(
        &self,
        rows: &PublishedRows<'_>,
        at: DateTime<Utc>,
        range: (ResourceId, ResourceId),
        index: Option<SetDocument>,
        output: &mut SpoolWriter,
    ) -> Result<DateTime<Utc>, DocumentError> {
        let mut head = self.head(Root::Urlset, Capability::ResourceList, index);
        head.md.at = Some(SourceTime::from(at));
        // What it states is all of one moment.
        head.md.completed = head.md.at;
        let mut writer = DocumentWriter::start(output, &head)?;
        rows.resources(self.set.id, range, |resource| {
            if writer.get_mut().length() > MOST_BYTES {
                return Err(DocumentError::TooLong);
            }
            Ok(writer.entry(&self.form.resource(&resource))?)
        })?;
        writer.finish()?;
        Ok(at)
    }

    /// A document with an entry for each list of the index.
    fn of_pages(
        &self,
        rows: &PublishedRows<'_>,
        at: DateTime<Utc>,
        mut head: Head,
        entry: impl Fn(i64) -> Entry,
    ) -> Result<ShortDocument, DocumentError> {
        head.md.at = Some(SourceTime::from(at));
        let mut entries: Vec<Entry> = self.pages(rows)?.into_iter().map(entry).collect();
        for entry in &mut entries {
            entry.md.at = head.md.at;
        }
        Ok((head, entries, at))
    }

    /// The numbers of the lists of the index.
    fn pages(&self, rows: &PublishedRows<'_>) -> Result<Vec<i64>, DocumentError> {
        let (mut pages, mut after) = (Vec::new(), ResourceId::NONE);
        while let Some(first) = rows.first_after(self.set.id, after)? {
            let page = first.number().div_euclid(PAGE);
            pages.push(page);
            (_, after) = ResourceId::range(page * PAGE, (page + 1) * PAGE);
        }
        Ok(pages)
    }

    /// All lists of the resources: of a sitemap.
    pub(super) fn lists(&self, rows: &PublishedRows<'_>) -> Result<Vec<Url>, DocumentError> {
        if !self.is_long(rows)? {
            return Ok(vec![self.uri(SetDocument::ResourceList)]);
        }
        let pages = self.pages(rows)?.into_iter();
        Ok(pages
            .map(|page| self.uri(SetDocument::ResourceListPage(page)))
            .collect())
    }

    /// The rows of a list of the index.
    pub(super) fn page_range(&self, page: i64) -> (ResourceId, ResourceId) {
        let first = page.saturating_mul(PAGE);
        ResourceId::range(first, first.saturating_add(PAGE))
    }

    fn package(&self, name: &str) -> Entry {
        let mut entry = Entry::new(self.uris().of_set(&self.set, name));
        entry.md.content.media_type = Some("application/zip".to_owned());
        entry
    }

    fn change_dump(&self, rows: &PublishedRows<'_>) -> Result<ShortDocument, DocumentError> {
        let spans = self.spans(rows)?;
        let mut head = self.head(Root::Urlset, Capability::ChangeDump, None);
        head.md.from = spans.first().map(|span| span.from.into());
        // What is not closed yet is no package that stays: it is in the Change List.
        let closed = spans.iter().filter_map(|span| Some((span, span.closed?)));
        let (mut entries, mut newest) = (Vec::new(), self.set.since);
        for (span, until) in closed {
            newest = until;
            let mut entry = self.package(&format!("{CHANGE_DUMP}-{}.zip", span.until));
            entry.md.from = Some(span.from.into());
            entry.md.until = Some(until.into());
            entries.push(entry);
        }
        Ok((head, entries, newest))
    }

    fn change_lists(&self, rows: &PublishedRows<'_>) -> Result<ShortDocument, DocumentError> {
        let spans = self.spans(rows)?;
        let mut head = self.head(Root::Sitemapindex, Capability::ChangeList, None);
        head.md.from = spans.first().map(|span| span.from.into());
        let (mut entries, mut open) = (Vec::new(), self.set.since);
        for span in &spans {
            open = span.from;
            let until = span.closed.map(|_| span.until);
            let mut entry = Entry::new(self.uri(SetDocument::ChangeList(until)));
            entry.md.from = Some(span.from.into());
            entry.md.until = span.closed.map(SourceTime::from);
            entries.push(entry);
        }
        Ok((head, entries, open))
    }

    fn write_changes(
        &self,
        rows: &PublishedRows<'_>,
        span: &ChangeSpan,
        output: &mut SpoolWriter,
    ) -> Result<DateTime<Utc>, DocumentError> {
        let index = Some(SetDocument::ChangeLists);
        let mut head = self.head(Root::Urlset, Capability::ChangeList, index);
        head.md.from = Some(span.from.into());
        head.md.until = span.closed.map(SourceTime::from);
        let mut writer = DocumentWriter::start(output, &head)?;
        let mut newest = span.from;
        rows.changes(self.set.id, (span.after, span.until), |change| {
            newest = change.row.at;
            if let Some(entry) = self.form.change(&self.set.source, &change) {
                writer.entry(&entry)?;
            }
            Ok::<_, DocumentError>(true)
        })?;
        writer.finish()?;
        Ok(span.closed.unwrap_or(newest))
    }
}

/// Writes a Source Description of sets (the core, section 8).
pub(super) fn write_description(
    sets: &[SetDocuments],
    output: &mut SpoolWriter,
) -> Result<(), DocumentError> {
    let head = Head::new(Root::Urlset, Capability::Description);
    let lists = sets.iter().map(|set| set.uri(SetDocument::CapabilityList));
    let entries: Vec<Entry> = lists
        .map(|list| pointer(list, Capability::CapabilityList))
        .collect();
    Ok(output.write_all(&write_document(&head, &entries))?)
}

/// Writes an index of plain sitemaps.
pub(super) fn write_sitemap(lists: &[Url], output: &mut SpoolWriter) -> Result<(), DocumentError> {
    let head = Head {
        root: Root::Sitemapindex,
        ..Head::default()
    };
    let entries: Vec<Entry> = lists.iter().cloned().map(Entry::new).collect();
    Ok(output.write_all(&write_document(&head, &entries))?)
}

fn pointer(loc: Url, capability: Capability) -> Entry {
    let mut entry = Entry::new(loc);
    entry.md.capability = Some(capability);
    entry
}

/// The begin of the day that is so long before now: Change Lists begin there.
pub(super) fn oldest_day(now: DateTime<Utc>, keep: TimeDelta) -> Option<DateTime<Utc>> {
    let oldest = now.checked_sub_signed(keep)?.date_naive();
    Some(oldest.and_hms_opt(0, 0, 0)?.and_utc())
}
