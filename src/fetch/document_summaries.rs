//! Summaries of the documents that a discovered Source offers, for `discover`: each document is fetched and read once to its
//! end. Packages are not fetched; the documents of a dump count them.

use std::collections::HashMap;

use futures_util::{StreamExt, stream};
use url::Url;

use super::{Client, Discovery, DiscoveryError, FetchError, Fetched};
use crate::protocol::{Capability, DocumentSummary, SourceTime};

/// How many documents are read concurrently.
const CONCURRENT_DOCUMENTS: usize = 8;

/// Summaries of a Source's documents (sections 10 to 13).
#[derive(Debug, Default)]
pub struct DocumentSummaries {
    by_uri: HashMap<Url, Result<DocumentSummary, DiscoveryError>>,
    /// The number of documents that were not fetched because there are too many.
    pub left_out: usize,
}

impl DocumentSummaries {
    /// The summary of a document, or why there is none; `None` if the document was not fetched.
    pub fn of(&self, uri: &Url) -> Option<&Result<DocumentSummary, DiscoveryError>> {
        self.by_uri.get(uri)
    }
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
        let all = discovery.sets.iter().flat_map(|set| &set.capabilities);
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
        let by_uri = stream::iter(documents)
            .map(|uri| async move {
                let summary = self.summarize(&uri, limit, latest).await;
                (uri, summary)
            })
            .buffer_unordered(CONCURRENT_DOCUMENTS)
            .collect()
            .await;
        DocumentSummaries { by_uri, left_out }
    }

    async fn summarize(
        &self,
        uri: &Url,
        limit: u64,
        latest: SourceTime,
    ) -> Result<DocumentSummary, DiscoveryError> {
        let failed = |error| DiscoveryError::fetching(uri, error);
        let fetched = self.get_document(uri, None, limit).await;
        let Fetched::Document(mut document) = fetched.map_err(failed)? else {
            // An answer to a condition that was not in the request.
            return Err(failed(FetchError::Status {
                status: 304,
                retry_after: None,
            }));
        };
        let reading =
            tokio::task::spawn_blocking(move || DocumentSummary::read(document.reader()?, latest));
        let summary = reading
            .await
            .map_err(|error| failed(FetchError::Io(error.to_string())))?;
        summary.map_err(|error| DiscoveryError::reading(uri, &error))
    }
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
    use crate::fetch::test_site::{self, Site};
    use crate::protocol::Oddity;

    const NAMESPACES: &str = r#"xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/""#;

    /// A site of one set with these documents, all of one capability; the summaries of the first `max_documents`.
    async fn summarize(
        capability: &'static str,
        documents: Vec<(&'static str, String)>,
        max_documents: usize,
    ) -> (Site, DocumentSummaries) {
        let entries: String = documents
            .iter()
            .map(|(path, _)| {
                format!(r#"<url><loc>{path}</loc><rs:md capability="{capability}"/></url>"#)
            })
            .collect();
        let list = format!(
            r#"<urlset {NAMESPACES}><rs:md capability="capabilitylist"/>{entries}</urlset>"#
        );
        let site = Site::start(move |request| {
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

    fn of<'a>(site: &Site, summaries: &'a DocumentSummaries, path: &str) -> &'a DocumentSummary {
        let uri = Url::parse(&site.url(path)).unwrap();
        summaries.of(&uri).unwrap().as_ref().unwrap()
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
        let cut = summaries.of(&uri("/cut")).unwrap();
        assert_eq!(cut.as_ref().unwrap_err().code(), "cut-short");
        assert_eq!(of(&site, &summaries, "/1").entries, 0);
        assert!(summaries.of(&uri("/2")).is_none());
        assert_eq!(summaries.left_out, 2);
    }
}
