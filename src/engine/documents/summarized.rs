//! One document: fetched, and summarized off the asynchronous threads before anything is done with its entries. A document that is
//! cut short, or of another capability than expected, changes nothing.

use std::fmt::Display;

use resourcesync::{Capability, DocumentSummary, Entry, ReadError, SourceTime};
use resyncd_core::{Validators, latest_source_time};
use resyncd_fetch::{Client, FetchError, FetchedDocument};
use url::Url;

use crate::clock;
use crate::engine::EngineError;

/// Fetches a document. `limit`: its maximum length in bytes.
pub(crate) async fn fetch_document(
    client: &Client,
    uri: &Url,
    limit: u64,
) -> Result<Box<FetchedDocument>, EngineError> {
    let fetched = client.get_document(uri, limit).await;
    fetched.map_err(|error| fetching(uri, error))
}

/// Fetches a document; `None` if it is still the `known` version.
pub(crate) async fn fetch_if_changed(
    client: &Client,
    uri: &Url,
    known: &Validators,
    limit: u64,
) -> Result<Option<Box<FetchedDocument>>, EngineError> {
    let fetched = client.get_document_if_changed(uri, known, limit).await;
    fetched.map_err(|error| fetching(uri, error))
}

fn fetching(uri: &Url, error: FetchError) -> EngineError {
    EngineError::Fetch {
        uri: uri.to_string(),
        error,
    }
}

/// Reads the next entry of a document; `None` after the last one.
pub(crate) type NextEntry<'a> = dyn FnMut() -> Result<Option<Entry>, ReadError> + 'a;

/// A document that was read to its end.
pub(crate) struct SummarizedDocument {
    pub(crate) document: Box<FetchedDocument>,
    pub(crate) summary: DocumentSummary,
}

impl SummarizedDocument {
    /// Reads a document once to its end, on a blocking thread. `uri`: where it was fetched from.
    async fn read(uri: &Url, mut document: Box<FetchedDocument>) -> Result<Self, EngineError> {
        let latest = latest_source_time(clock::now().wall);
        let secrets = document.redaction().clone();
        let reading = tokio::task::spawn_blocking(move || {
            let summary = DocumentSummary::read(document.reader()?, latest)?;
            Ok(Self { document, summary })
        });
        let read = reading
            .await
            .map_err(|error| EngineError::of_join(&error, uri))?;
        read.map_err(|error: ReadError| EngineError::BadDocument {
            uri: uri.to_string(),
            error: error.map_text(|text| secrets.redact(text)),
        })
    }

    /// As [`read`](Self::read), but a Resource List whose entries state nothing is an index if there are documents behind them.
    pub(crate) async fn read_from(
        client: &Client,
        uri: &Url,
        document: Box<FetchedDocument>,
        limit: u64,
    ) -> Result<Self, EngineError> {
        let mut read = Self::read(uri, document).await?;
        let revealed = client.reveal_index(&mut read.summary, limit).await;
        revealed.map_err(|(uri, error)| fetching(&uri, error))?;
        Ok(read)
    }

    /// Reads its entries once more, on a blocking thread.
    pub(crate) async fn with_entries<T: Send + 'static>(
        mut self,
        read: impl FnOnce(&mut NextEntry<'_>) -> Result<T, EngineError> + Send + 'static,
    ) -> Result<(Self, T), EngineError> {
        let uri = self.document.url().clone();
        let reading = tokio::task::spawn_blocking(move || {
            let mut reader = self.document.reader()?;
            let found = read(&mut || reader.next_entry())?;
            drop(reader);
            Ok((self, found))
        });
        reading
            .await
            .map_err(|error| EngineError::of_join(&error, &uri))?
    }

    /// Rejects a document that states another capability.
    pub(crate) fn expect(&self, wanted: &Capability) -> Result<(), EngineError> {
        expect_capability(&self.summary, wanted, self.document.url())
    }

    /// Rejects a document with entries that can't be read, where it must be complete.
    pub(crate) fn expect_all(&self) -> Result<(), EngineError> {
        match self.summary.bad_entries() {
            0 => Ok(()),
            count => Err(EngineError::UnreadEntries {
                document: self.document.url().to_string(),
                count,
            }),
        }
    }

    /// Rejects a document with damaged entries, which may state changes that nothing else states.
    pub(crate) fn expect_undamaged(&self) -> Result<(), EngineError> {
        expect_undamaged(&self.summary, self.document.url())
    }

    /// Rejects a document that has no entries and does not state what it is, as a Source serves that has lost its data. Its
    /// time would be the one at which it was read, and it would prove that there is nothing.
    pub(crate) fn expect_something(&self) -> Result<(), EngineError> {
        let is_stated = self.summary.head.md.capability.is_some();
        if self.summary.entries == 0 && !is_stated {
            return Err(EngineError::EmptyDocument(self.document.url().to_string()));
        }
        Ok(())
    }

    /// The page after this one, of a document that is published in pages (RFC 8288, `next`).
    pub(crate) fn next_page(&self) -> Option<&Url> {
        self.summary.head.link("next")
    }

    /// The time that a Resource List or Resource Dump states: its `at`, or the oldest one of the lists of an index. `listed`: what
    /// its own index states of it, which precedes. A time in the future is ignored.
    pub(crate) fn stated_time(&self, listed: Option<SourceTime>) -> Option<SourceTime> {
        let summary = &self.summary;
        let md = &summary.head.md;
        first_plausible([listed, md.at, md.modified, summary.lists_from])
    }

    /// The time that stands for the one that is not stated: `guess`, else when the document was modified, else now. A list without
    /// any time, as an empty one may be, has only the time at which it was read.
    pub(crate) fn guessed_time(&self, guess: Option<SourceTime>) -> SourceTime {
        first_plausible([guess, self.document.last_modified()])
            .unwrap_or_else(|| SourceTime::from(clock::now().wall))
    }

    /// The index that a closed list or dump belongs to: it names what follows. `uri`: where the list was fetched from.
    pub(crate) fn index_of_closed(&self, uri: &Url) -> Option<&Url> {
        let head = &self.summary.head;
        let index = head.link("index");
        index.filter(|&index| head.md.until.is_some() && index != uri)
    }
}

fn first_plausible<const N: usize>(times: [Option<SourceTime>; N]) -> Option<SourceTime> {
    let latest = latest_source_time(clock::now().wall);
    let mut times = times.into_iter().flatten();
    times.find(|&time| time <= latest)
}

/// Rejects a document, or the manifest of a package, with damaged entries, which may name what nothing else names.
pub(crate) fn expect_undamaged(
    summary: &DocumentSummary,
    document: impl Display,
) -> Result<(), EngineError> {
    match summary.oddities.damaged_entries() {
        0 => Ok(()),
        count => Err(EngineError::UnreadEntries {
            document: document.to_string(),
            count,
        }),
    }
}

/// Rejects a document that states another capability; one that states none is accepted, unless it can't state one. Some dumps state the capability of the
/// list that they stand for: then the type of the first entry decides. Some manifests state that of their dump.
pub(crate) fn expect_capability(
    summary: &DocumentSummary,
    wanted: &Capability,
    document: impl Display,
) -> Result<(), EngineError> {
    let Some(stated) = &summary.head.md.capability else {
        return if summary.may_be_cut() && *wanted != Capability::ResourceList {
            // A URI as plain text states what exists, and nothing else; so does a sitemap whose end is damaged.
            Err(EngineError::UriList {
                document: document.to_string(),
                wanted: wanted.clone(),
            })
        } else {
            Ok(())
        };
    };
    let is_accepted = match (stated, wanted) {
        (Capability::ResourceList, Capability::ResourceDump)
        | (Capability::ChangeList, Capability::ChangeDump) => summary.holds_packages,
        (Capability::ResourceDump, Capability::ResourceDumpManifest)
        | (Capability::ChangeDump, Capability::ChangeDumpManifest) => true,
        _ => stated == wanted,
    };
    if is_accepted {
        return Ok(());
    }
    Err(EngineError::WrongCapability {
        document: document.to_string(),
        wanted: wanted.clone(),
        found: stated.clone(),
    })
}

#[cfg(test)]
mod tests {
    use resourcesync::{DocumentReader, Entry, Head, Root, write_document};

    use super::*;

    #[test]
    fn list_of_uris_is_a_list_of_resources_only() {
        let base = Url::parse("https://example.org/list.txt").unwrap();
        let reader = DocumentReader::open_sitemap(&b"https://example.org/a\n"[..], &base);
        let summary = DocumentSummary::read(reader.unwrap(), SourceTime::MAX).unwrap();
        let expect = |wanted| expect_capability(&summary, &wanted, &base);
        assert!(expect(Capability::ResourceList).is_ok());
        for other in [Capability::ChangeList, Capability::ResourceDump] {
            assert_eq!(expect(other).unwrap_err().code(), "wrong-capability");
        }
    }

    #[test]
    fn dumps_and_manifests_may_state_the_capability_of_what_they_stand_for() {
        use Capability::{
            ChangeDump, ChangeDumpManifest, ChangeList, ResourceDump, ResourceDumpManifest,
            ResourceList,
        };
        let base = Url::parse("https://example.org/document.xml").unwrap();
        let check = |stated: &Capability, has_package: bool, wanted: &Capability| {
            let mut entry = Entry::new(base.clone());
            if has_package {
                entry.md.content.media_type = Some("application/zip".to_owned());
            }
            let bytes = write_document(&Head::new(Root::Urlset, stated.clone()), [&entry]);
            let reader = DocumentReader::open(bytes.as_slice(), &base).unwrap();
            let summary = DocumentSummary::read(reader, SourceTime::MAX).unwrap();
            expect_capability(&summary, wanted, &base).is_ok()
        };
        for (stated, has_package, wanted, is_accepted) in [
            (&ResourceList, false, &ResourceList, true),
            (&ChangeList, false, &ResourceList, false),
            (&ResourceDump, true, &ResourceDump, true),
            (&ResourceList, true, &ResourceDump, true),
            (&ResourceList, false, &ResourceDump, false),
            (&ResourceList, true, &ChangeDump, false),
            (&ChangeList, true, &ChangeDump, true),
            (&ResourceDump, false, &ResourceDumpManifest, true),
            (&ChangeDump, false, &ChangeDumpManifest, true),
            (&ResourceDump, false, &ChangeDumpManifest, false),
            (&ResourceDump, true, &ResourceList, false),
        ] {
            let accepted = check(stated, has_package, wanted);
            assert_eq!(accepted, is_accepted, "{stated:?} for a {wanted:?}");
        }
    }
}
