//! Records the oddities of a set's documents for the status, and which of them were logged already.
//!
//! Invariants: an oddity of a document is logged once; memory is bounded, whatever a Source publishes.
//!
//! Must not know how oddities are detected.
//!
//! Specification: core, section 6.2 (navigation by `up` links).

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use resourcesync::{Head, Oddities, Oddity};
use url::Url;

use crate::status::OddityStatus;

/// The limit on documents in the status: those that were read last.
const MAX_DOCUMENTS: usize = 50;
/// The limit on oddities in the status.
const MAX_ROWS: usize = 200;
/// The limit on documents whose unread entries are counted.
pub(crate) const MAX_UNREAD: usize = 20_000;
/// The limit on logged oddities, each of them once; the further ones of a set are not logged.
const MAX_LOGGED: usize = 20_000;

/// The documents of a set that have oddities.
#[derive(Debug, Default)]
pub(crate) struct OddDocuments {
    /// The target of a correct `up` link.
    capability_list: Option<Url>,
    /// The one that was read last comes first.
    documents: Vec<(Url, Oddities)>,
    /// The entries that can't be read of documents, by the hashes of their URIs.
    unread: HashMap<u64, u64>,
    /// Hashes of the pairs of document and oddity that were logged.
    logged: HashSet<u64>,
}

impl OddDocuments {
    pub(crate) fn of(capability_list: Url) -> Self {
        Self {
            capability_list: Some(capability_list),
            ..Self::default()
        }
    }

    /// Whether a document's `up` link leads elsewhere than to the Capability List. The scheme is not compared.
    pub(crate) fn has_wrong_up(&self, head: &Head) -> bool {
        let without_scheme = |url: &Url| url.as_str().split_once("://").map(|it| it.1.to_owned());
        match (&self.capability_list, head.link("up")) {
            (Some(list), Some(up)) => without_scheme(list) != without_scheme(up),
            _ => false,
        }
    }

    /// Replaces the oddities of a document that was read again; returns whether one of them was not logged yet.
    pub(crate) fn replace(&mut self, document: &Url, oddities: Oddities) -> bool {
        self.count_unread(document, oddities.bad_entries());
        self.put(document, oddities)
    }

    /// Replaces the number of entries of a document that can't be read.
    pub(crate) fn count_unread(&mut self, document: &Url, count: u64) {
        let mut hasher = DefaultHasher::new();
        document.hash(&mut hasher);
        let hash = hasher.finish();
        self.unread.remove(&hash);
        if count > 0 && self.unread.len() < MAX_UNREAD {
            self.unread.insert(hash, count);
        }
    }

    /// The entries that can't be read of all documents. Those of notifications don't count: a poll brings their changes.
    pub(crate) fn unread(&self) -> u64 {
        self.unread.values().sum()
    }

    fn put(&mut self, document: &Url, oddities: Oddities) -> bool {
        self.documents.retain(|(known, _)| known != document);
        let is_news = self.is_news(document, &oddities);
        if !oddities.is_empty() {
            self.documents.insert(0, (document.clone(), oddities));
            self.documents.truncate(MAX_DOCUMENTS);
        }
        is_news
    }

    /// Adds oddities to those of the same URI, as for the notifications of a topic; returns whether one was not logged yet.
    pub(crate) fn add(&mut self, document: &Url, oddities: &Oddities) -> bool {
        if oddities.is_empty() {
            return false;
        }
        let known = self.documents.iter().find(|(known, _)| known == document);
        let mut all = known.map(|(_, known)| known.clone()).unwrap_or_default();
        all.extend(oddities);
        self.put(document, all)
    }

    /// Adds an oddity unless the document has it; returns whether it was not logged yet.
    pub(crate) fn include(&mut self, document: &Url, oddity: Oddity) -> bool {
        let mut known = self.documents.iter().filter(|(known, _)| known == document);
        if known.any(|(_, oddities)| oddities.count(oddity) > 0) {
            return false;
        }
        let mut oddities = Oddities::default();
        oddities.add(oddity);
        self.add(document, &oddities)
    }

    fn is_news(&mut self, document: &Url, oddities: &Oddities) -> bool {
        let mut is_news = false;
        for (oddity, _) in oddities.iter() {
            let mut hasher = DefaultHasher::new();
            (document, oddity).hash(&mut hasher);
            is_news |= self.logged.len() < MAX_LOGGED && self.logged.insert(hasher.finish());
        }
        is_news
    }

    pub(crate) fn rows(&self) -> Vec<OddityStatus> {
        let row = |document: &Url, (oddity, count): (Oddity, u64)| OddityStatus {
            document: document.to_string(),
            code: oddity.code().to_owned(),
            count,
        };
        self.documents
            .iter()
            .flat_map(|(document, oddities)| oddities.iter().map(move |it| row(document, it)))
            .take(MAX_ROWS)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use resourcesync::{Capability, Link, Root};

    use super::*;

    fn url(n: usize) -> Url {
        Url::parse(&format!("http://example.com/{n}.xml")).unwrap()
    }

    fn oddities(counted: &[Oddity]) -> Oddities {
        let mut oddities = Oddities::default();
        counted.iter().for_each(|&oddity| oddities.add(oddity));
        oddities
    }

    fn status_rows(documents: &OddDocuments) -> Vec<(String, u64)> {
        let rows = documents.rows().into_iter();
        rows.map(|row| {
            let name = row.document.trim_start_matches("http://example.com/");
            (format!("{name} {}", row.code), row.count)
        })
        .collect()
    }

    #[test]
    fn each_oddity_of_a_document_is_news_once() {
        let mut documents = OddDocuments::default();
        let (bad, no_up) = (Oddity::BadLoc, Oddity::NoUp);
        assert!(documents.replace(&url(1), oddities(&[bad])));
        assert!(
            !documents.replace(&url(1), oddities(&[bad, bad])),
            "only the count differs"
        );
        assert_eq!(status_rows(&documents), [("1.xml bad-loc".to_owned(), 2)]);
        assert!(
            documents.replace(&url(2), oddities(&[bad])),
            "another document"
        );
        assert!(
            documents.replace(&url(1), oddities(&[bad, no_up])),
            "another oddity"
        );
        let rows = ["1.xml bad-loc", "1.xml no-up", "2.xml bad-loc"];
        assert_eq!(status_rows(&documents), rows.map(|row| (row.to_owned(), 1)));
        assert_eq!(documents.unread(), 2);
        assert!(!documents.replace(&url(1), oddities(&[])), "repaired");
        assert_eq!(documents.unread(), 1);
        assert_eq!(status_rows(&documents), [("2.xml bad-loc".to_owned(), 1)]);
        assert!(
            !documents.replace(&url(1), oddities(&[no_up])),
            "repaired and odd again"
        );
        assert_eq!(status_rows(&documents).len(), 2);
    }

    #[test]
    fn oddities_of_notifications_of_one_topic_are_summed() {
        let mut documents = OddDocuments::default();
        assert!(documents.add(&url(1), &oddities(&[Oddity::NoFrom])));
        assert!(!documents.add(&url(1), &oddities(&[])));
        assert!(!documents.add(&url(1), &oddities(&[Oddity::NoFrom])));
        assert_eq!(status_rows(&documents), [("1.xml no-from".to_owned(), 2)]);
    }

    #[test]
    fn recorded_oddities_are_bounded() {
        let mut documents = OddDocuments::default();
        for n in 0..MAX_LOGGED + 10 {
            let is_news = documents.replace(&url(n), oddities(&[Oddity::NoUp]));
            assert_eq!(is_news, n < MAX_LOGGED);
        }
        assert_eq!(documents.rows().len(), MAX_DOCUMENTS);
        assert_eq!(
            status_rows(&documents)[0].0,
            "20009.xml no-up",
            "the newest"
        );
        let many = oddities(&[
            Oddity::NoUp,
            Oddity::NoAt,
            Oddity::BadLoc,
            Oddity::BadLink,
            Oddity::NoFrom,
        ]);
        for n in 0..MAX_DOCUMENTS {
            documents.replace(&url(n), many.clone());
        }
        assert_eq!(documents.rows().len(), MAX_ROWS);
    }

    #[test]
    fn up_link_is_wrong_unless_it_leads_to_the_capability_list() {
        let documents = OddDocuments::of(url(1));
        for (up, is_wrong) in [
            (None, false),
            (Some("http://example.com/1.xml"), false),
            (Some("https://example.com/1.xml"), false),
            (Some("http://example.com/.well-known/resourcesync"), true),
        ] {
            let mut head = Head::new(Root::Urlset, Capability::ResourceList);
            let up = up.map(|up| Link::new("up", Url::parse(up).unwrap()));
            head.links.extend(up);
            assert_eq!(documents.has_wrong_up(&head), is_wrong, "{head:?}");
            assert!(!OddDocuments::default().has_wrong_up(&head));
        }
    }
}
