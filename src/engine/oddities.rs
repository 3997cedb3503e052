//! Which of a set's documents are odd, and which of it was logged already.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use url::Url;

use crate::protocol::{Head, Oddities, Oddity};
use crate::status::OddityStatus;

/// So many documents are shown, those that were read last.
const MOST_DOCUMENTS: usize = 50;
/// So many of what is odd about them.
const MOST_ROWS: usize = 200;
/// So many things are logged, each once; a set of more odd documents than that has been told of often enough.
const MOST_LOGGED: usize = 20_000;

/// A set's odd documents.
#[derive(Debug, Default)]
pub(in crate::engine) struct OddDocuments {
    /// What is above the set's documents.
    capability_list: Option<Url>,
    /// By the time at which they were read, the last one first.
    documents: Vec<(Url, Oddities)>,
    /// The documents and oddities that were logged.
    logged: HashSet<u64>,
}

impl OddDocuments {
    pub(in crate::engine) fn of(capability_list: Url) -> Self {
        Self {
            capability_list: Some(capability_list),
            ..Self::default()
        }
    }

    /// Whether a document's link `up` leads elsewhere than to the Capability List. Both ways to ask a host are one.
    pub(in crate::engine) fn is_astray(&self, head: &Head) -> bool {
        let without_scheme = |url: &Url| url.as_str().split_once("://").map(|it| it.1.to_owned());
        match (&self.capability_list, head.link("up")) {
            (Some(list), Some(up)) => without_scheme(list) != without_scheme(up),
            _ => false,
        }
    }

    /// Takes what is odd about a document as it was read now; whether there is something in it that was never told.
    pub(in crate::engine) fn replace(&mut self, document: &Url, oddities: Oddities) -> bool {
        self.documents.retain(|(known, _)| known != document);
        let is_news = self.is_news(document, &oddities);
        if !oddities.is_empty() {
            self.documents.insert(0, (document.clone(), oddities));
            self.documents.truncate(MOST_DOCUMENTS);
        }
        is_news
    }

    /// Adds what is odd about one of many documents of one URI, as notifications are.
    pub(in crate::engine) fn add(&mut self, document: &Url, oddities: &Oddities) -> bool {
        if oddities.is_empty() {
            return false;
        }
        let known = self.documents.iter().find(|(known, _)| known == document);
        let mut all = known.map(|(_, known)| known.clone()).unwrap_or_default();
        all.extend(oddities);
        self.replace(document, all)
    }

    fn is_news(&mut self, document: &Url, oddities: &Oddities) -> bool {
        let mut is_news = false;
        for (oddity, _) in oddities.iter() {
            let mut hasher = DefaultHasher::new();
            (document, oddity).hash(&mut hasher);
            is_news |= self.logged.len() < MOST_LOGGED && self.logged.insert(hasher.finish());
        }
        is_news
    }

    pub(in crate::engine) fn rows(&self) -> Vec<OddityStatus> {
        let row = |document: &Url, (oddity, count): (Oddity, u64)| OddityStatus {
            document: document.to_string(),
            code: oddity.code().to_owned(),
            count,
        };
        self.documents
            .iter()
            .flat_map(|(document, oddities)| oddities.iter().map(move |it| row(document, it)))
            .take(MOST_ROWS)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Capability, Link, Root};

    fn url(n: usize) -> Url {
        Url::parse(&format!("http://example.com/{n}.xml")).unwrap()
    }

    fn odd(counted: &[Oddity]) -> Oddities {
        let mut oddities = Oddities::default();
        counted.iter().for_each(|&oddity| oddities.add(oddity));
        oddities
    }

    fn shown(documents: &OddDocuments) -> Vec<(String, u64)> {
        let rows = documents.rows().into_iter();
        rows.map(|row| {
            let name = row.document.trim_start_matches("http://example.com/");
            (format!("{name} {}", row.code), row.count)
        })
        .collect()
    }

    #[test]
    fn document_is_news_once_for_each_thing_that_is_odd_about_it() {
        let mut documents = OddDocuments::default();
        let (bad, no_up) = (Oddity::BadLoc, Oddity::NoUp);
        assert!(documents.replace(&url(1), odd(&[bad])));
        assert!(!documents.replace(&url(1), odd(&[bad, bad])), "only more");
        assert_eq!(shown(&documents), [("1.xml bad-loc".to_owned(), 2)]);
        assert!(documents.replace(&url(2), odd(&[bad])), "another document");
        assert!(documents.replace(&url(1), odd(&[bad, no_up])), "more kinds");
        let rows = ["1.xml bad-loc", "1.xml no-up", "2.xml bad-loc"];
        assert_eq!(shown(&documents), rows.map(|row| (row.to_owned(), 1)));
        assert!(!documents.replace(&url(1), odd(&[])), "healed");
        assert_eq!(shown(&documents), [("2.xml bad-loc".to_owned(), 1)]);
        assert!(!documents.replace(&url(1), odd(&[no_up])), "odd again");
        assert_eq!(shown(&documents).len(), 2);
    }

    #[test]
    fn notifications_of_one_channel_are_summed_up() {
        let mut documents = OddDocuments::default();
        assert!(documents.add(&url(1), &odd(&[Oddity::NoFrom])));
        assert!(!documents.add(&url(1), &odd(&[])));
        assert!(!documents.add(&url(1), &odd(&[Oddity::NoFrom])));
        assert_eq!(shown(&documents), [("1.xml no-from".to_owned(), 2)]);
    }

    #[test]
    fn no_more_is_kept_than_can_be_shown() {
        let mut documents = OddDocuments::default();
        for n in 0..MOST_LOGGED + 10 {
            let is_news = documents.replace(&url(n), odd(&[Oddity::NoUp]));
            assert_eq!(is_news, n < MOST_LOGGED);
        }
        assert_eq!(documents.rows().len(), MOST_DOCUMENTS);
        assert_eq!(shown(&documents)[0].0, "20009.xml no-up", "the newest");
        let many = odd(&[
            Oddity::NoUp,
            Oddity::NoAt,
            Oddity::BadLoc,
            Oddity::BadLink,
            Oddity::NoFrom,
        ]);
        for n in 0..MOST_DOCUMENTS {
            documents.replace(&url(n), many.clone());
        }
        assert_eq!(documents.rows().len(), MOST_ROWS);
    }

    #[test]
    fn link_up_leads_astray_unless_it_leads_to_the_capability_list() {
        let documents = OddDocuments::of(url(1));
        for (up, is_astray) in [
            (None, false),
            (Some("http://example.com/1.xml"), false),
            (Some("https://example.com/1.xml"), false),
            (Some("http://example.com/.well-known/resourcesync"), true),
        ] {
            let mut head = Head::new(Root::Urlset, Capability::ResourceList);
            let up = up.map(|up| Link::new("up", Url::parse(up).unwrap()));
            head.links.extend(up);
            assert_eq!(documents.is_astray(&head), is_astray, "{head:?}");
            assert!(!OddDocuments::default().is_astray(&head));
        }
    }
}
