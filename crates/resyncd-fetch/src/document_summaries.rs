//! Summaries of the documents that a discovered Source offers, for `discover`: each document is fetched and read once to its
//! end. Packages are not fetched; the documents of a dump count them. The parts of an index are not read, but requested: which of
//! them can't be fetched is known.

use std::collections::HashMap;

use futures_util::{StreamExt, stream};
use resourcesync::entries::UnstatedParts;
use resourcesync::{Capability, DocumentSummary, Oddity, ReadError, SourceTime};
use resyncd_core::{ErrorClass, Offer};
use url::Url;

use super::error::on_blocking_thread;
use super::{Client, Discovery, DiscoveryError, FetchError, FetchedDocument};
use crate::EntryCounts;

/// How many documents are read concurrently.
const CONCURRENT_DOCUMENTS: usize = 8;

/// How many parts of indexes are requested in all.
const MAX_PARTS: usize = 500;

/// Summaries of a Source's documents (sections 10 to 13).
#[derive(Debug, Default)]
pub struct DocumentSummaries {
    /// The documents that were fetched, each with why it could not be read.
    pub by_uri: HashMap<Url, Result<SummarizedDocument, DiscoveryError>>,
    /// The number of documents that were not fetched because there are too many.
    pub left_out: usize,
}

/// A document that was read.
#[derive(Debug)]
pub struct SummarizedDocument {
    /// What it states.
    pub summary: DocumentSummary,
    /// What its entries state.
    pub counts: EntryCounts,
    /// The parts of an index that were requested.
    pub parts: Option<TriedParts>,
}

/// The parts of an index that were requested.
#[derive(Clone, Debug, Default)]
pub struct TriedParts {
    /// Those that can't be fetched.
    pub dead: Vec<(Url, DiscoveryError)>,
    /// How many were not requested because there are too many.
    pub left_out: u64,
}

impl Client {
    /// Fetches and summarizes the documents of the discovered sets: the first `max_documents` of them, each of at most
    /// `limit` bytes. `latest`: the latest plausible time of the Source.
    ///
    /// A document that fails does not affect the others.
    pub async fn summarize_documents(
        &self,
        discovery: &Discovery,
        max_documents: usize,
        limit: u64,
        latest: SourceTime,
    ) -> DocumentSummaries {
        let mut documents: Vec<Url> = Vec::new();
        let mut left_out = 0;
        let all = discovery.sets.iter().flat_map(|set| {
            // Where there is no Capability List, a dump is a package.
            let is_package = move |advertised: &&Offer| {
                set.is_implied() && advertised.capability == Capability::ResourceDump
            };
            let documents = set.capabilities.iter();
            documents.filter(move |advertised| !is_package(advertised))
        });
        for advertised in all.filter(|advertised| has_summary(&advertised.capability)) {
            if documents.contains(&advertised.uri) {
                continue;
            }
            if documents.len() < max_documents {
                documents.push(advertised.uri.clone());
            } else {
                left_out += 1;
            }
        }
        let read: Vec<_> = stream::iter(documents)
            .map(|uri| async move {
                let summary = self.summarize(&uri, limit, latest).await;
                (uri, summary)
            })
            .buffer_unordered(CONCURRENT_DOCUMENTS)
            .collect()
            .await;
        let mut summaries = DocumentSummaries {
            left_out,
            ..DocumentSummaries::default()
        };
        let mut untried = MAX_PARTS;
        for (uri, read) in read {
            let read = match read {
                Ok((mut read, parts)) => {
                    if read.summary.is_index {
                        let tried = parts.len().min(untried);
                        untried -= tried;
                        let own = read.summary.oddities.count(Oddity::IndexRing);
                        read.parts = Some(TriedParts {
                            dead: self.dead_of(&parts[..tried]).await,
                            left_out: read.summary.entries.saturating_sub(tried as u64 + own),
                        });
                    }
                    Ok(read)
                }
                Err(error) => Err(error),
            };
            summaries.by_uri.insert(uri, read);
        }
        summaries
    }

    /// Reads what is behind the first entries of a document whose entries may be the parts of an index, and makes its summary that of
    /// an index if they are documents. Fails if that can't be decided at the moment.
    ///
    /// They are parts if each of them that can be fetched is a document. Where none exists, those with the time of a snapshot are
    /// parts that are gone, and others are resources. `limit`: the maximum length of a document.
    pub async fn reveal_index(
        &self,
        summary: &mut DocumentSummary,
        limit: u64,
    ) -> Result<(), (Url, FetchError)> {
        let Some(unstated) = summary.unstated_parts else {
            return Ok(());
        };
        let (mut is_index, mut undecided) = (None, None);
        for part in summary.first_entries.clone() {
            match self.get_document(&part, limit).await {
                Ok(mut document) => {
                    let reading = on_blocking_thread(move || document.is_sitemap());
                    let is_document = reading.await.map_err(|error| (part, error))?;
                    is_index = Some(is_document);
                    if !is_document {
                        break;
                    }
                }
                Err(error) if error.class() == ErrorClass::Retry => {
                    undecided = Some((part, error));
                }
                Err(_) => {}
            }
        }
        match (is_index, undecided) {
            (None, Some(undecided)) => return Err(undecided),
            (None, None) if unstated == UnstatedParts::Timed => summary.reveal_index(),
            (Some(true), _) => summary.reveal_index(),
            (None, None) | (Some(false), _) => {}
        }
        Ok(())
    }

    /// Which of these documents can't be fetched.
    async fn dead_of(&self, parts: &[Url]) -> Vec<(Url, DiscoveryError)> {
        let tried = stream::iter(parts.to_vec()).map(|uri| async move {
            let error = self.probe_document(&uri).await.err()?;
            let error = DiscoveryError::fetching(&uri, error);
            Some((uri, error))
        });
        let tried = tried.buffered(CONCURRENT_DOCUMENTS);
        tried.filter_map(|dead| async { dead }).collect().await
    }

    /// Reads a document; also returns the first parts of an index.
    async fn summarize(
        &self,
        uri: &Url,
        limit: u64,
        latest: SourceTime,
    ) -> Result<(SummarizedDocument, Vec<Url>), DiscoveryError> {
        let failed = |error| DiscoveryError::fetching(uri, error);
        let mut document = self.get_document(uri, limit).await.map_err(failed)?;
        let unreadable = |error| DiscoveryError::reading(uri, error, self.redaction());
        let reading = on_blocking_thread(move || {
            let summary = DocumentSummary::read(document.reader()?, latest)?;
            let counts = EntryCounts::read(document.reader()?)?;
            Ok((summary, counts, document))
        });
        let (mut summary, counts, document) = reading.await.map_err(failed)?.map_err(unreadable)?;
        // In doubt its entries are resources: the document is only described.
        let _ = self.reveal_index(&mut summary, limit).await;
        let mut parts = Vec::new();
        if summary.is_index {
            let reading = on_blocking_thread(move || first_entries(*document));
            parts = reading.await.map_err(failed)?.map_err(unreadable)?;
        }
        if parts.contains(uri) {
            summary.oddities.add(Oddity::IndexRing);
            parts.retain(|part| part != uri);
        }
        let read = SummarizedDocument {
            summary,
            counts,
            parts: None,
        };
        Ok((read, parts))
    }
}

/// The first entries of an index.
fn first_entries(document: FetchedDocument) -> Result<Vec<Url>, ReadError> {
    let mut reader = document.into_reader()?;
    let mut parts = Vec::new();
    while parts.len() < MAX_PARTS
        && let Some(entry) = reader.next_entry()?
    {
        parts.push(entry.loc);
    }
    Ok(parts)
}

/// Whether the entries of such a document can be interpreted.
fn has_summary(capability: &Capability) -> bool {
    matches!(
        capability,
        Capability::ResourceList
            | Capability::ResourceDump
            | Capability::ChangeList
            | Capability::ChangeDump
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_site::{self, TestSite};

    const NAMESPACES: &str = r#"xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/""#;

    /// A site of one set with these documents, all of one capability; the summaries of the first `max_documents`.
    async fn summarize(
        capability: &'static str,
        documents: Vec<(&'static str, String)>,
        max_documents: usize,
    ) -> (TestSite, DocumentSummaries) {
        let entries: String = documents
            .iter()
            .map(|(path, _)| {
                format!(r#"<url><loc>{path}</loc><rs:md capability="{capability}"/></url>"#)
            })
            .collect();
        let list = format!(
            r#"<urlset {NAMESPACES}><rs:md capability="capabilitylist"/>{entries}</urlset>"#
        );
        let site = TestSite::start(move |request| {
            let served = documents.iter().find(|(path, _)| *path == request.path());
            match served {
                Some((_, body)) => test_site::ok(body.clone()),
                None if request.path() == "/set" => test_site::ok(list.clone()),
                None => test_site::status(404),
            }
        })
        .await;
        let client = test_site::client();
        let entry = Url::parse(&site.url("/set")).unwrap();
        let discovery = client.discover(&entry, 1 << 20).await.unwrap();
        let latest = "2026-01-31T00:00:00Z".parse().unwrap();
        let summaries = client
            .summarize_documents(&discovery, max_documents, 1 << 20, latest)
            .await;
        (site, summaries)
    }

    fn of<'a>(
        site: &TestSite,
        summaries: &'a DocumentSummaries,
        path: &str,
    ) -> &'a DocumentSummary {
        let uri = Url::parse(&site.url(path)).unwrap();
        &summaries.by_uri[&uri].as_ref().unwrap().summary
    }

    #[tokio::test]
    async fn documents_and_indexes_are_fetched_and_summarized() {
        let changes = format!(
            r#"<urlset {NAMESPACES}><rs:md capability="changedump" from="2026-01-01T00:00:00Z"/>
               <url><loc>/1.zip</loc><lastmod>2026-01-02</lastmod><rs:md type="application/zip" length="5"/></url>
               <url><rs:md type="application/zip"/></url></urlset>"#
        );
        let index = format!(
            r#"<sitemapindex {NAMESPACES}><rs:md capability="changedump"/>
               <sitemap><loc>/1</loc><rs:md from="2026-01-01T00:00:00Z"/></sitemap></sitemapindex>"#
        );
        let documents = vec![("/changes", changes), ("/index", index)];
        let (site, summaries) = summarize("changedump", documents, 9).await;
        let time = |text: &str| text.parse::<SourceTime>().ok();
        let summary = of(&site, &summaries, "/changes");
        assert_eq!(summary.head.md.capability, Some(Capability::ChangeDump));
        assert_eq!(summary.head.md.from, time("2026-01-01T00:00:00Z"));
        assert!(!summary.is_index);
        assert_eq!((summary.entries, summary.bytes), (1, 5));
        assert_eq!(summary.newest, time("2026-01-02T00:00:00Z"));
        assert_eq!(summary.oddities.count(Oddity::BadLoc), 1);
        let summary = of(&site, &summaries, "/index");
        assert!(summary.is_index);
        assert_eq!(summary.lists_from, time("2026-01-01T00:00:00Z"));
    }

    #[tokio::test]
    async fn a_failing_document_is_reported_and_surplus_documents_are_left_out() {
        let list = format!(r#"<urlset {NAMESPACES}><rs:md capability="resourcelist"/></urlset>"#);
        let documents = vec![
            ("/cut", list.replace("</urlset>", "")),
            ("/1", list.clone()),
            ("/2", list.clone()),
            ("/3", list),
        ];
        let (site, summaries) = summarize("resourcelist", documents, 2).await;
        let uri = |path: &str| Url::parse(&site.url(path)).unwrap();
        let cut = &summaries.by_uri[&uri("/cut")];
        assert_eq!(cut.as_ref().unwrap_err().code(), "cut-short");
        assert_eq!(of(&site, &summaries, "/1").entries, 0);
        assert!(!summaries.by_uri.contains_key(&uri("/2")));
        assert_eq!(summaries.left_out, 2);
    }
}
