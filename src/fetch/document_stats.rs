//! What capability documents tell of themselves: each is fetched, and read once to its end, an entry at a time. Packages are
//! not fetched: a dump's document counts them.

use std::collections::HashMap;

use futures_util::{StreamExt, stream};
use url::Url;

use super::{Client, Discovery, DiscoveryError, Fetched, FetchedDocument};
use crate::protocol::{
    Capability, ChangeKind, Entry, Metadata, Oddities, ReadError, Root, SourceTime,
};

/// How many documents are read at once.
const AT_ONCE: usize = 8;

/// What a capability document tells (sections 10 to 13).
#[derive(Clone, Debug, Default)]
pub struct Insight {
    /// What it says of itself: its capability, `at` and `completed`, or `from` and `until`.
    pub head: Metadata,
    /// Whether it is an index: its entries are lists or dumps.
    pub is_index: bool,
    /// How many entries it has: resources, changes, packages, or the lists of an index.
    pub entries: u64,
    /// The earliest time that an entry tells; of an index, where the first list begins.
    pub earliest: Option<SourceTime>,
    /// The latest time that an entry tells; of an index, where the last list ends.
    pub latest: Option<SourceTime>,
    /// How many entries tell of something created, updated and deleted.
    pub changes: Changes,
    /// The lengths that its entries tell, in bytes.
    pub bytes: u64,
    /// What was odd about it.
    pub oddities: Oddities,
}

/// Changes, counted by their kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// What came into being.
    pub created: u64,
    /// What changed.
    pub updated: u64,
    /// What is gone.
    pub deleted: u64,
}

/// What was seen of a Source's capability documents.
#[derive(Debug, Default)]
pub struct Insights {
    found: HashMap<Url, Result<Insight, DiscoveryError>>,
    /// How many documents were not looked into, because there are too many.
    pub left_out: usize,
}

impl Insights {
    /// What was seen of a document, or why nothing was; `None`: it was not looked into.
    #[must_use]
    pub fn of(&self, uri: &Url) -> Option<&Result<Insight, DiscoveryError>> {
        self.found.get(uri)
    }
}

impl Insight {
    /// Reads a document to its end. For a blocking thread.
    fn read(document: &mut FetchedDocument) -> Result<Self, ReadError> {
        let mut reader = document.reader()?;
        let mut insight = Self {
            is_index: reader.head().root == Root::Sitemapindex,
            ..Self::default()
        };
        while let Some(entry) = reader.next_entry()? {
            insight.take(&entry);
        }
        insight.head = reader.head().md.clone();
        insight.oddities = reader.oddities().clone();
        Ok(insight)
    }

    fn take(&mut self, entry: &Entry) {
        // An index that is served as a urlset: its entries are documents by their own word.
        if self.entries == 0 {
            self.is_index |= entry.md.capability.as_ref().is_some_and(is_document);
        }
        self.entries += 1;
        let (earliest, latest) = if self.is_index {
            let md = &entry.md;
            let from = md.from.or(md.at);
            (from, md.until.or(md.completed).or(from))
        } else {
            (entry.changed_at(), entry.changed_at())
        };
        self.earliest = self.earliest.into_iter().chain(earliest).min();
        self.latest = self.latest.max(latest);
        match entry.md.change {
            Some(ChangeKind::Created) => self.changes.created += 1,
            Some(ChangeKind::Updated) => self.changes.updated += 1,
            Some(ChangeKind::Deleted) => self.changes.deleted += 1,
            None => {}
        }
        let length = entry.md.length.unwrap_or_default();
        self.bytes = self.bytes.saturating_add(length);
    }
}

impl Client {
    /// Looks into the capability documents of what was discovered: the first `most` of them. Documents may have `limit` bytes.
    ///
    /// What can't be had keeps nothing else from being looked into.
    pub async fn look_into(&self, discovery: &Discovery, most: usize, limit: u64) -> Insights {
        let mut documents: Vec<Url> = Vec::new();
        let mut left_out = 0;
        let all = discovery.sets.iter().flat_map(|set| &set.capabilities);
        for advertised in all.filter(|advertised| is_document(&advertised.capability)) {
            if documents.contains(&advertised.uri) {
                continue;
            }
            if documents.len() < most {
                documents.push(advertised.uri.clone());
            } else {
                left_out += 1;
            }
        }
        let found = stream::iter(documents)
            .map(|uri| async move {
                let insight = self.look_into_one(&uri, limit).await;
                (uri, insight)
            })
            .buffer_unordered(AT_ONCE)
            .collect()
            .await;
        Insights { found, left_out }
    }

    async fn look_into_one(&self, uri: &Url, limit: u64) -> Result<Insight, DiscoveryError> {
        let fetched = self.get_document(uri, None, limit).await;
        match fetched.map_err(|error| DiscoveryError::fetching(uri, error))? {
            // Nothing was known that it could be the same as.
            Fetched::NotModified => Ok(Insight::default()),
            Fetched::Document(mut document) => {
                let reading = tokio::task::spawn_blocking(move || Insight::read(&mut document));
                let read = reading.await.map_err(|error| {
                    let error = super::FetchError::Io(error.to_string());
                    DiscoveryError::fetching(uri, error)
                })?;
                read.map_err(|error| DiscoveryError::reading(uri, &error))
            }
        }
    }
}

/// Whether it is a document of which this Destination knows what its entries are.
fn is_document(capability: &Capability) -> bool {
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

    /// A site of one set with these documents, all of a capability; the insights of the first `most`.
    async fn look_into(
        capability: &'static str,
        documents: Vec<(&'static str, String)>,
        most: usize,
    ) -> (Site, Insights) {
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
            let found = documents.iter().find(|(path, _)| *path == request.path());
            match found {
                Some((_, body)) => test_site::ok(body.clone()),
                None if request.path() == "/set" => test_site::ok(list.clone()),
                None => test_site::status(404),
            }
        })
        .await;
        let client = test_site::client();
        let entry = Url::parse(&site.url("/set")).unwrap();
        let found = client.discover(&entry, 1 << 20).await.unwrap();
        let insights = client.look_into(&found, most, 1 << 20).await;
        (site, insights)
    }

    fn of<'a>(site: &Site, insights: &'a Insights, path: &str) -> &'a Insight {
        let uri = Url::parse(&site.url(path)).unwrap();
        insights.of(&uri).unwrap().as_ref().unwrap()
    }

    #[tokio::test]
    async fn lists_tell_their_times_and_their_entries() {
        let changes = format!(
            r#"<urlset {NAMESPACES}><rs:md capability="changelist" from="2026-01-01T00:00:00Z"/>
               <url><loc>/a</loc><lastmod>2026-01-03</lastmod><rs:md change="created" length="5"/></url>
               <url><loc>/b</loc><lastmod>2026-01-02</lastmod><rs:md change="deleted"/></url>
               <url><loc>/a</loc><rs:md change="updated" length="7"/></url>
               <url><rs:md change="updated"/></url></urlset>"#
        );
        let (site, insights) = look_into("changelist", vec![("/changes", changes)], 9).await;
        let insight = of(&site, &insights, "/changes");
        assert_eq!(insight.head.capability, Some(Capability::ChangeList));
        assert!(!insight.is_index);
        assert_eq!((insight.entries, insight.bytes), (3, 12));
        let counted = Changes {
            created: 1,
            updated: 1,
            deleted: 1,
        };
        assert_eq!(insight.changes, counted);
        let time = |text: &str| text.parse::<SourceTime>().ok();
        assert_eq!(insight.head.from, time("2026-01-01T00:00:00Z"));
        assert_eq!(insight.earliest, time("2026-01-02T00:00:00Z"));
        assert_eq!(insight.latest, time("2026-01-03T00:00:00Z"));
        assert_eq!(insight.oddities.count(Oddity::BadLoc), 1);
    }

    #[tokio::test]
    async fn index_tells_how_many_lists_and_what_they_span() {
        let index = |root: &str, entry: &str, capability: &str| {
            format!(
                r#"<{root} {NAMESPACES}><rs:md capability="changedump"/>
                   <{entry}><loc>/1</loc><rs:md {capability} from="2026-01-02T00:00:00Z" until="2026-01-04T00:00:00Z"/></{entry}>
                   <{entry}><loc>/2</loc><rs:md {capability} from="2026-01-01T00:00:00Z"/></{entry}></{root}>"#
            )
        };
        let documents = vec![
            ("/index", index("sitemapindex", "sitemap", "")),
            (
                "/set-index",
                index("urlset", "url", r#"capability="changedump""#),
            ),
        ];
        let (site, insights) = look_into("changedump", documents, 9).await;
        for path in ["/index", "/set-index"] {
            let insight = of(&site, &insights, path);
            assert!(insight.is_index, "{path}");
            assert_eq!(insight.entries, 2);
            let time = |text: &str| text.parse::<SourceTime>().ok();
            assert_eq!(insight.earliest, time("2026-01-01T00:00:00Z"));
            assert_eq!(insight.latest, time("2026-01-04T00:00:00Z"));
        }
    }

    #[tokio::test]
    async fn what_can_not_be_had_is_told_and_what_is_too_much_is_left_out() {
        let list = format!(r#"<urlset {NAMESPACES}><rs:md capability="resourcelist"/></urlset>"#);
        let documents = vec![
            ("/cut", list.replace("</urlset>", "")),
            ("/1", list.clone()),
            ("/2", list.clone()),
            ("/3", list),
        ];
        let (site, insights) = look_into("resourcelist", documents, 2).await;
        let uri = |path: &str| Url::parse(&site.url(path)).unwrap();
        let cut = insights.of(&uri("/cut")).unwrap();
        assert_eq!(cut.as_ref().unwrap_err().code(), "cut-short");
        assert_eq!(of(&site, &insights, "/1").entries, 0);
        assert!(insights.of(&uri("/2")).is_none());
        assert_eq!(insights.left_out, 2);
    }
}
