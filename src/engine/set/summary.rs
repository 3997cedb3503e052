//! The first look at a document: it is read to its end before anything is done with it, so that one that is cut short, or
//! is not what it should be, changes nothing.

use std::io::BufRead;

use url::Url;

use super::media_type::is_zip;
use crate::clock;
use crate::engine::EngineError;
use crate::fetch::FetchedDocument;
use crate::protocol::{
    Capability, DocumentReader, Entry, EntryOrder, Head, Metadata, Oddities, Oddity, ReadError,
    Root, SourceTime,
};
use crate::sync::latest_believed;

/// What a document is, and what it spans.
#[derive(Clone, Debug)]
pub(in crate::engine) struct DocumentSummary {
    pub(in crate::engine) head: Head,
    /// Where it ends, if it says so, and that can be.
    pub(in crate::engine) until: Option<SourceTime>,
    /// The newest time of its entries.
    pub(in crate::engine) newest: Option<SourceTime>,
    /// The oldest time of what its entries point at: of a snapshot, or else of a modification.
    pub(in crate::engine) oldest: Option<SourceTime>,
    /// Whether its newest entry comes first.
    pub(in crate::engine) newest_first: bool,
    /// Whether its first entry is a package by its own word.
    pub(in crate::engine) holds_packages: bool,
    pub(in crate::engine) oddities: Oddities,
    /// How many entries can be read.
    pub(in crate::engine) entries: u64,
    /// How many lists it names, if it is an index.
    pub(in crate::engine) lists: u64,
    /// From when on the first of them tells.
    pub(in crate::engine) lists_from: Option<SourceTime>,
}

impl DocumentSummary {
    /// Reads a document to its end. For a blocking thread. What is dated beyond `latest` does not count as its newest entry.
    pub(in crate::engine) fn of<R: BufRead>(
        mut reader: DocumentReader<R>,
        latest: SourceTime,
    ) -> Result<Self, ReadError> {
        let (mut newest, mut oldest): (_, Option<SourceTime>) = (None, None);
        let mut direction = EntryOrder::default();
        let (mut lists, mut lists_from) = (0, None);
        let mut is_index = reader.head().root == Root::Sitemapindex;
        let mut holds_packages = false;
        let mut entries = 0_u64;
        let mut ahead = 0;
        while let Some(entry) = reader.next_entry()? {
            direction.note(entry.changed_at());
            ahead += u64::from(entry.changed_at().is_some_and(|time| time > latest));
            newest = newest.max(entry.changed_at().filter(|&time| time <= latest));
            let time = entry.md.at.or(entry.lastmod);
            oldest = oldest.into_iter().chain(time).min();
            if entries == 0 {
                holds_packages = entry.md.media_type.as_deref().is_some_and(is_zip);
                is_index |= !holds_packages && is_list(&entry, reader.head());
            }
            entries += 1;
            if is_index {
                lists += 1;
                let from = entry.md.from.or(entry.md.at);
                lists_from = lists_from.into_iter().chain(from).min();
            }
        }
        let (head, mut oddities) = (reader.head().clone(), reader.oddities().clone());
        oddities.add_several(Oddity::FutureTime, ahead);
        Ok(Self {
            until: believed_end(&head.md, latest),
            head,
            newest,
            oldest,
            holds_packages,
            newest_first: direction.is_newest_first(),
            oddities,
            entries,
            lists,
            lists_from,
        })
    }

    /// Refuses a manifest that says that it is something else. One that names the capability of its dump is meant well.
    pub(in crate::engine) fn expect_manifest(
        &self,
        capability: &Capability,
        uri: &Url,
    ) -> Result<(), EngineError> {
        match (&self.head.md.capability, capability) {
            (None, _)
            | (Some(Capability::ResourceDump), Capability::ResourceDumpManifest)
            | (Some(Capability::ChangeDump), Capability::ChangeDumpManifest) => Ok(()),
            (Some(stated), wanted) if stated != wanted => Err(EngineError::WrongCapability {
                document: format!("the manifest of {uri}"),
                wanted: wanted.clone(),
                found: stated.clone(),
            }),
            _ => Ok(()),
        }
    }

    /// Whether it is an index of other lists.
    pub(in crate::engine) fn is_index(&self) -> bool {
        self.head.root == Root::Sitemapindex || self.lists > 0
    }
}

/// Where something ends by its own word. What ends in a time that has not come is open still: to believe it would be to
/// believe that nothing more will happen until then.
pub(in crate::engine) fn believed_end(md: &Metadata, latest: SourceTime) -> Option<SourceTime> {
    md.until.or(md.completed).filter(|&until| until <= latest)
}

/// Whether an entry of a urlset is a list by its own word: some serve an index so. A dump is one only within a dump: others
/// may name it as what it is, too.
fn is_list(entry: &Entry, head: &Head) -> bool {
    match &entry.md.capability {
        Some(Capability::ResourceList | Capability::ChangeList) => true,
        Some(Capability::ResourceDump | Capability::ChangeDump) => {
            entry.md.capability == head.md.capability
        }
        _ => false,
    }
}

/// Summarizes a document off the asynchronous threads.
pub(super) async fn summarize(
    mut document: Box<FetchedDocument>,
) -> Result<(Box<FetchedDocument>, DocumentSummary), EngineError> {
    let latest = latest_believed(clock::now().wall);
    let summarizing = tokio::task::spawn_blocking(move || {
        let summary = DocumentSummary::of(document.reader()?, latest)?;
        Ok::<_, EngineError>((document, summary))
    });
    summarizing.await.map_err(|_| EngineError::Interrupted)?
}
