//! The first look at a document: it is read to its end before anything is done with it, so that one that is cut short, or
//! is not what it should be, changes nothing.

use std::io::BufRead;

use url::Url;

use super::EngineError;
use super::packages::is_zip;
use crate::clock;
use crate::fetch::FetchedDocument;
use crate::protocol::{
    Capability, DocumentReader, Entry, Head, Oddities, ReadError, Root, SourceTime,
};
use crate::sync::{Direction, latest_believed};

/// A list that an index names.
#[derive(Clone, Debug)]
pub(super) struct Child {
    pub(super) uri: Url,
    pub(super) from: Option<SourceTime>,
    pub(super) until: Option<SourceTime>,
}

/// What a document is, and what it spans.
#[derive(Clone, Debug)]
pub(super) struct Survey {
    pub(super) head: Head,
    /// The newest time of its entries.
    pub(super) newest: Option<SourceTime>,
    /// The oldest time of what its entries point at: of a snapshot, or else of a modification.
    pub(super) oldest: Option<SourceTime>,
    /// Whether its newest entry comes first.
    pub(super) newest_first: bool,
    /// Whether its first entry is a package by its own word.
    pub(super) holds_packages: bool,
    pub(super) oddities: Oddities,
    /// The lists of an index, in its order; empty for any other document.
    pub(super) children: Vec<Child>,
}

impl Survey {
    /// Reads a document to its end. For a blocking thread. What is dated beyond `latest` does not count as its newest entry.
    pub(super) fn of<R: BufRead>(
        mut reader: DocumentReader<R>,
        latest: SourceTime,
    ) -> Result<Self, ReadError> {
        let (mut newest, mut oldest): (_, Option<SourceTime>) = (None, None);
        let mut direction = Direction::default();
        let mut children = Vec::new();
        let mut is_index = reader.head().root == Root::Sitemapindex;
        let mut holds_packages = false;
        let mut entries = 0_u64;
        while let Some(entry) = reader.next_entry()? {
            direction.note(entry.changed_at());
            newest = newest.max(entry.changed_at().filter(|&time| time <= latest));
            let time = entry.md.at.or(entry.lastmod);
            oldest = oldest.into_iter().chain(time).min();
            if entries == 0 {
                holds_packages = entry.md.media_type.as_deref().is_some_and(is_zip);
                is_index |= !holds_packages && is_list(&entry, reader.head());
            }
            entries += 1;
            if is_index {
                let (from, until) = (
                    entry.md.from.or(entry.md.at),
                    entry.md.until.or(entry.md.completed),
                );
                children.push(Child {
                    uri: entry.loc,
                    from,
                    until,
                });
            }
        }
        let (head, oddities) = (reader.head().clone(), reader.oddities().clone());
        Ok(Self {
            head,
            newest,
            oldest,
            holds_packages,
            newest_first: direction.is_newest_first(),
            oddities,
            children,
        })
    }

    /// Refuses a manifest that says that it is something else. One that names the capability of its dump is meant well.
    pub(super) fn expect_manifest(
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
    pub(super) fn is_index(&self) -> bool {
        self.head.root == Root::Sitemapindex || !self.children.is_empty()
    }
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

/// Surveys a document off the asynchronous threads, and tells once what is odd about it.
pub(super) async fn survey(
    mut document: Box<FetchedDocument>,
) -> Result<(Box<FetchedDocument>, Survey), EngineError> {
    let latest = latest_believed(clock::now().wall);
    let surveying = tokio::task::spawn_blocking(move || {
        let survey = Survey::of(document.reader()?, latest)?;
        Ok::<_, EngineError>((document, survey))
    });
    let (document, survey) = surveying.await.map_err(|_| EngineError::Interrupted)??;
    if !survey.oddities.is_empty() {
        tracing::info!(code = "odd-document", document = %document.url(), oddities = %survey.oddities, "a document is odd");
    }
    Ok((document, survey))
}
